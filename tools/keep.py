"""Keep the results of a finished configuration in the repository: ``python tools/keep.py --configfile FILE``."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer

from leakbound import storage
from leakbound.commands.command_line import main
from leakbound.storage.provenance import settings_hash
from leakbound_lab.config import reading
from leakbound_lab.datasets.records import unpublishable
from leakbound_lab.jobs.job import Job, JobList
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.steps.job_list import all_steps, job_list
from leakbound_lab.steps.job_settings import register_plugins
from leakbound_lab.steps.results import summary
from leakbound_lab.steps.step_command import make_result
from replaced_folders import check_replaceable, replaced_folder

if TYPE_CHECKING:
    from leakbound_lab.config.whole import Config

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_KEPT = Path("results/reference")
_VALUES = ["value", "low", "high"]


@app.command()
def keep(
    configfile: Annotated[Path, typer.Option(help="Configuration whose run is finished.")],
    out: Annotated[Path | None, typer.Option(help="Folder to replace. By default results/reference/<preset>.")] = None,
    units: Annotated[
        bool,
        typer.Option(
            help="Keep also the values of single classes, images and records in the tables. Whether attacks on "
            "them failed is kept in any case."
        ),
    ] = True,
    finished: Annotated[
        bool,
        typer.Option(
            help="Keep what an interrupted run has finished, as on a rented machine: its tables, verdicts and figures "
            "are made here, of the networks that are trained and of the attacks on them that are complete."
        ),
    ] = False,
) -> None:
    """Copy the results of a finished configuration into results/reference, to keep them in the repository."""
    config = reading.load(configfile)
    register_plugins(config.plugins.model_dump())
    root = Path(config.root)
    made = _finished(config) if finished else job_list(config)
    target = out or _KEPT / config.preset
    check_replaceable(target)
    if not all(Path(path).is_file() for path in made.files("claims")):
        raise typer.BadParameter(f"{root} has no claims.parquet: run snakemake --configfile {configfile} first")
    kept = _publishable(made, config)
    facts = _stated(root, made) if finished else summary(root, made)
    for path in kept:
        storage.check(path)
    with replaced_folder(target) as new:
        for path in kept:
            copy = new / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            if not units and copy.parent == new / "tables":
                _drop_units(copy)
        storage.write_json(new / "provenance.json", facts, sealed=False)
        (new / "config.yaml").write_text(reading.as_yaml(config), encoding="utf-8")
    sys.stdout.write(
        f"{target}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file()) / 1e6:.1f} MB\n"
    )


def _finished(config: Config) -> JobList:
    """List the jobs of the finished runs of studies, and make tables, verdicts and figures of these runs."""
    table = RunTable(config, reading.load_catalogue(config.catalogue, config))
    root = Path(config.root)
    for slug, run in [*table.runs.items()]:
        attacks = table.attacks[slug]
        there = [name for name in attacks if output(root, "attack", f"{slug}/{name}", "provenance").is_file()]
        table.attacks[slug] = there
        if not (output(root, "train", slug, "provenance").is_file() if run.rounds else there):
            del table.runs[slug], table.attacks[slug]
    for study, slugs in table.studies.items():
        table.studies[study] = [slug for slug in slugs if slug in table.runs]
    made = JobList(table, all_steps())
    for job in (job for step in ("tabulate", "claims", "plot") for job in made.of(step)):
        make_result(job)
    return made


def _stated(root: Path, made: JobList) -> dict[str, Any]:
    """Collect the origin of finished jobs as they state it.

    There is no bound over all jobs, because it follows from covariances, which may have been left elsewhere.
    """
    jobs = {step: [_record(root, job) for job in made.of(step)] for step in ("train", "attack")}
    records = [*jobs["train"], *jobs["attack"]]
    return {
        "preset": made.table.config.preset,
        "config_hash": settings_hash(made.table.config.model_dump(mode="json")),
        "jobs": len(records),
        "commits": dict(Counter(str(record["commit"]) for record in records)),
        "dirty": any(record["dirty"] for record in records),
        "devices": dict(Counter(record["device"] for record in records)),
        "versions": records[0]["versions"],
        "diverged_replicas": sum(sum(record["diverged"]) for record in jobs["train"]),
        "steps": {
            step: {"jobs": len(those), "seconds": round(sum(record["seconds"] for record in those), 1)}
            for step, those in jobs.items()
        },
    }


def _record(root: Path, job: Job) -> dict[str, Any]:
    """Read the provenance of a finished job."""
    return storage.read_json(output(root, job.step, job.name, "provenance"))


def _drop_units(table: Path) -> None:
    """Rewrite a kept table without values of single units. One row of each states how the attack ended."""
    rows = storage.read_rows(table, sealed=False)
    if {"unit", "status"} <= set(rows):
        single = rows[rows["unit"] >= 0].sort_values("status", ascending=False, kind="stable")
        ended = single.drop_duplicates(single.columns.difference([*_VALUES, "metric", "status"]))
        kept = [rows[rows["unit"] < 0], ended.assign(**dict.fromkeys(_VALUES, float("nan")))]
        storage.write_rows(table, pd.concat(kept, ignore_index=True), sealed=False)


def _publishable(made: JobList, config: Config) -> list[Path]:
    """List tables, verdicts and figures without private pictures, and print the names of the other figures."""
    readers = {name: dataset.reader or name for name, dataset in config.datasets.items()}
    tables = [path for path in made.files() if path.startswith(f"{config.root}/tables/") and path.endswith(".parquet")]
    kept = [
        path
        for path in map(Path, dict.fromkeys([*tables, *made.files("claims")]))
        if path.suffix != ".parquet" or not unpublishable(storage.read_rows(path), readers)
    ]
    for job in made.of("plot"):
        if secret := unpublishable(storage.read_rows(Path(job.outputs["shown"])), readers):
            sys.stdout.write(
                f"left out {job.name}: it shows pictures of {', '.join(secret)}, whose reader does not say that they "
                "may be published (publishable = True)\n"
            )
        else:
            kept += map(Path, job.outputs.values())
    return kept


if __name__ == "__main__":
    main(app)
