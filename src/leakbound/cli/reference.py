"""Command: keep tables, figures and verdicts of a finished configuration, with what they were made by."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound import storage

if TYPE_CHECKING:
    from leakbound.studies import RunTable

_FACES = "celeba"  # its agreement forbids publishing the pictures


def reference(
    configfile: Annotated[Path, typer.Option(help="Configuration that has been run.")],
    out: Annotated[Path | None, typer.Option(help="Folder; by default results/reference/<preset>.")] = None,
) -> None:
    """Copy the results of a finished configuration that are worth keeping in the repository."""
    import pandas as pd

    from leakbound import presets
    from leakbound.studies import RunTable

    config = presets.load(configfile)
    table = RunTable(config, presets.load_catalogue(config.catalogue, config))
    root, target = Path(config.root), out or Path("results/reference") / config.preset
    if not (root / "claims.parquet").is_file():
        raise typer.BadParameter(f"{root} has no claims.parquet: run snakemake --configfile {configfile} first")
    kept = [f"tables/{name}.parquet" for name in table.tables] + ["claims.parquet", "scoreboard.md"]
    faces = {name for name, dataset in config.datasets.items() if (dataset.reader or name) == _FACES}
    for key, figure in table.figures.items():
        if figure.plot == "image_grid" and faces & set(pd.read_parquet(root / f"figures/{key}.parquet")["dataset"]):
            sys.stdout.write(f"left out {key}: it shows faces\n")
        else:
            kept += [f"figures/{key}.{suffix}" for suffix in ("svg", "png", "parquet")]
    shutil.rmtree(target, ignore_errors=True)
    for inside in kept:
        (target / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / inside, target / inside)
    storage.write_json(target / "provenance.json", _summary(root, table))
    (target / "config.yaml").write_text(presets.as_yaml(config), encoding="utf-8")
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sys.stdout.write(f"{target}: {size / 1e6:.1f} MB\n")


def _summary(root: Path, table: RunTable) -> dict[str, Any]:
    """What the runs say of where they come from, and what each box of the chain took."""
    from leakbound.provenance import settings_hash, versions

    config = table.config
    paths = [root / "runs" / slug / "provenance.json" for slug in table.trained()]
    paths += [root / "attacks" / slug / f"{attack}.json" for slug in table.runs for attack in table.attacks[slug]]
    runs = [storage.read_json(path) for path in paths]
    return {
        "preset": config.preset,
        "config_hash": settings_hash(config.model_dump(mode="json")),
        "jobs": len(runs),
        "commits": dict(Counter(str(run["commit"]) for run in runs)),
        "dirty": any(run["dirty"] for run in runs),
        "devices": dict(Counter(run["device"] for run in runs)),
        "versions": versions(),
        "diverged_replicas": sum(sum(run.get("diverged", [])) for run in runs),
        "data": {name: storage.read_json(root / f"data/{name}.json")["content"] for name in sorted(config.datasets)},
        "boxes": _costs(root / "benchmarks"),
    }


def _costs(folder: Path) -> dict[str, dict[str, float]]:
    """Jobs, wall seconds, CPU seconds and largest memory (MiB) of each box, as Snakemake measured them."""
    import pandas as pd

    costs = {}
    for box in sorted({path.relative_to(folder).parts[0] for path in folder.rglob("*.tsv")}):
        files = [folder / box] if (folder / box).is_file() else list((folder / box).rglob("*.tsv"))
        rows = pd.concat([pd.read_csv(path, sep="\t").tail(1) for path in files])
        numbers = {name: pd.to_numeric(rows[name], errors="coerce") for name in ("s", "cpu_time", "max_rss")}
        costs[box.removesuffix(".tsv")] = {
            "jobs": len(rows),
            "seconds": round(float(numbers["s"].sum()), 1),
            "cpu_seconds": round(float(numbers["cpu_time"].sum()), 1),
            "max_rss_mib": round(float(numbers["max_rss"].max()), 1),
        }
    return costs
