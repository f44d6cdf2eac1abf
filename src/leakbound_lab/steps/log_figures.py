"""Figures, tables and verdicts of a configuration in one MLflow run."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from leakbound import storage
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.paths import OUTPUTS, output


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield one job, if there are runs and figures and they are logged."""
    config = table.config
    if not (config.tracking.enabled and table.runs and table.figures):
        return
    files = [
        *(table.file("tabulate", name) for name in table.tables),
        *(path for key in table.figures for path in table.drawn(key)),
        *(table.file("claims", "claims", role) for role in OUTPUTS["claims"] if table.claiming()),
    ]
    readers = table.readers()
    arguments = {
        "preset": config.preset,
        "uri": config.tracking.uri,
        "figures": [*table.figures],
        "formats": sorted({"svg", *config.figure_formats}),
        "readers": readers,
    }
    uses = {"datasets": sorted({*readers.values()})}
    yield new_job(
        config,
        "log_figures",
        "figures",
        {},
        arguments=arguments,
        uses=uses,
        inputs={"files": files},
        purpose="figures",
    )


def log_figures(
    preset: str,
    uri: str,
    figures: Sequence[str],
    formats: Sequence[str],
    readers: Mapping[str, str],
    root: Path,
    marker: Path,
) -> None:
    """Write all figures, tables and verdicts of a configuration to one MLflow run.

    Args:
        preset: Name of the configuration.
        uri: Address of the store.
        figures: Keys ``paper/id`` of its figures.
        formats: Formats of their pictures.
        readers: Dataset to the name of its reader.
        root: Folder of the results, whose figures and tables are read.
        marker: File to write, which says what was sent.
    """
    from leakbound_lab.datasets.records import unpublishable
    from leakbound_lab.tracking.run_description import describe_figures
    from leakbound_lab.tracking.sending import log_run

    @cache
    def is_private(rows: Path) -> bool:
        return rows.is_file() and bool(unpublishable(storage.read_rows(rows), readers))

    drawn = [output(root, "plot", key, role) for key in figures for role in (*formats, "shown")]
    tables = [
        path for path in (root / "tables").rglob("*") if path.is_file() and not path.name.startswith(".")
    ]
    files = sorted(
        path
        for path in (*drawn, *tables)
        if not is_private(path.with_suffix(".parquet"))  # next to a figure those that it shows
    )
    verdicts = {}
    claims = output(root, "claims", "claims", "out")
    if claims.is_file():
        rows = storage.read_rows(claims)
        overall = rows[rows["dataset"] == "all"]
        verdicts = {str(name): int(count) for name, count in overall["verdict"].value_counts().items()}
        files += [claims, output(root, "claims", "claims", "scoreboard")]
    for path in files:
        storage.check(path)
    outcome = log_run(describe_figures(preset, files, root, verdicts), uri, marker)
    sys.stderr.write(f"figures of {preset}: {outcome.status} {outcome.reason}\n")


STEP = Step(log_figures, jobs, final=True)
