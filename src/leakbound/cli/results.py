"""What a finished configuration has left, as the commands that show or keep it read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound import storage

if TYPE_CHECKING:
    import pandas as pd

    from leakbound.config.whole import Config
    from leakbound.jobs.table import RunTable


def run_table(config: Config) -> RunTable:
    """All jobs of a configuration, with its catalogue of figures."""
    from leakbound.config import reading
    from leakbound.jobs.table import RunTable

    return RunTable(config, reading.load_catalogue(config.catalogue, config))


def job_names(table: RunTable) -> set[str]:
    """Names of all jobs of a configuration, alone and below their boxes; files of others are of an earlier form."""
    from leakbound.cli.plan.costs import UnitCosts, read_costs
    from leakbound.cli.plan.estimates import jobs_of

    jobs = jobs_of(table, UnitCosts(read_costs(), "cpu"))
    return {name for job in jobs for name in (job.name, f"{job.kind}/{job.name}")}


def verdicts(root: Path, table: RunTable) -> pd.DataFrame:
    """Verdicts on all claims; an empty table if no figure makes one.

    Raises:
        DamagedFileError: If figures make claims and nobody has judged them yet.
    """
    import pandas as pd

    from leakbound.claims.claims import COLUMNS

    if not table.claiming():
        return pd.DataFrame(columns=list(COLUMNS))
    return storage.read_rows(root / "claims.parquet")


def summary(root: Path, table: RunTable) -> dict[str, Any]:
    """What the jobs say of where they come from, and what each box of the chain took."""
    from leakbound.storage.provenance import settings_hash, versions

    config = table.config
    jobs = [storage.read_json(path) for path in _records(root, table)]
    return {
        "preset": config.preset,
        "config_hash": settings_hash(config.model_dump(mode="json")),
        "jobs": len(jobs),
        "commits": dict(Counter(str(job["commit"]) for job in jobs)),
        "dirty": any(job["dirty"] for job in jobs),
        "devices": dict(Counter(job["device"] for job in jobs)),
        "versions": versions(),
        "diverged_replicas": sum(sum(job.get("diverged", [])) for job in jobs),
        "data": {
            name: storage.read_json(path)["content"]
            for name in sorted(config.datasets)
            if (path := root / f"data/{name}.json").is_file()
        },
        "boxes": _costs(root / "benchmarks", job_names(table)),
    }


def _records(root: Path, table: RunTable) -> Iterator[Path]:
    """Provenance of trainings, of attacks, and of tables that no run is behind, as far as they state it."""
    yield from (root / "runs" / slug / "provenance.json" for slug in table.trained())
    for slug in table.runs:
        yield from (root / "attacks" / slug / f"{attack}.json" for attack in table.attacks[slug])
    others = (root / "tables" / f"{name}.json" for name in table.tables if name not in table.members)
    yield from (path for path in others if path.is_file())


def _costs(folder: Path, names: set[str]) -> dict[str, dict[str, int | float]]:
    """Jobs, wall seconds, CPU seconds and largest memory (MiB) of each box, as Snakemake measured the named jobs."""
    import pandas as pd

    measured: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.tsv")):
        name = path.relative_to(folder).as_posix().removesuffix(".tsv")
        if name in names:
            measured.setdefault(name.partition("/")[0], []).append(path)
    costs = {}
    for box, files in measured.items():
        rows = pd.concat([pd.read_csv(path, sep="\t").tail(1) for path in files])
        numbers = {name: pd.to_numeric(rows[name], errors="coerce") for name in ("s", "cpu_time", "max_rss")}
        costs[box] = {
            "jobs": len(rows),
            "seconds": round(float(numbers["s"].sum()), 1),
            "cpu_seconds": round(float(numbers["cpu_time"].sum()), 1),
            "max_rss_mib": round(float(numbers["max_rss"].max()), 1) if numbers["max_rss"].notna().any() else 0.0,
        }
    return costs
