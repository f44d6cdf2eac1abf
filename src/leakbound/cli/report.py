"""Command: put everything that a finished configuration has shown into one offline page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakbound import storage
from leakbound.cli.files import check_outputs, plain_settings
from leakbound.cli.results import run_table, summary, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leakbound.config.execution import TrackingConfig
    from leakbound.figures.report import ReportFigure
    from leakbound.jobs.table import RunTable


def report(
    configfile: Annotated[Path | None, typer.Option(help="Configuration that has been run.")] = None,
    settings: Annotated[str | None, typer.Option(help="The same as JSON, in place of a file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Page; by default results/<preset>/report.html.")] = None,
) -> None:
    """Write one offline page with the figures, verdicts, runs and provenance of a finished configuration."""
    from leakbound.config import reading
    from leakbound.figures.report import Report, page

    if (configfile is None) == (settings is None):
        raise typer.BadParameter("give either --configfile or --settings")
    config = reading.load(configfile) if configfile else reading.check(plain_settings(settings or ""), "--settings")
    table = run_table(config)
    root = Path(config.root)
    target = out or root / "report.html"
    check_outputs(target)
    text = page(
        Report(
            config=config,
            figures=list(_figures(root, table)),
            claims=verdicts(root, table),
            provenance=summary(root, table),
            counts={
                "runs": len(table.runs),
                "networks trained": sum(table.runs[slug].replicas for slug in table.trained()),
                "attacks": sum(len(attacks) for attacks in table.attacks.values()),
                "figures": len(table.figures),
            },
            links=dict(_links(root / "tracking", table, _pages(config.tracking))),
        )
    )
    with storage.atomic(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{target}: {target.stat().st_size / 1e6:.1f} MB\n")


def _figures(root: Path, table: RunTable) -> Iterator[ReportFigure]:
    """The figures as they were drawn."""
    from leakbound.figures.report import ReportFigure

    for key, figure in table.figures.items():
        stem = root / "figures" / key
        drawn = {}
        for suffix in ("svg", "png"):
            path = stem.with_name(f"{stem.name}.{suffix}")
            if not path.is_file():
                raise FileNotFoundError(f"{path}: is missing; run snakemake for this configuration first")
            drawn[suffix] = storage.read_bytes(path)
        rows = storage.read_rows(stem.with_name(f"{stem.name}.parquet"))
        yield ReportFigure(figure, table.caption(key), drawn["svg"], drawn["png"], rows)


def _pages(tracking: TrackingConfig) -> str:
    """Address of MLflow's pages: the server's own, or where `leakbound ui` shows a database."""
    return (tracking.uri if tracking.uri.startswith("http") else tracking.ui).rstrip("/")


def _links(folder: Path, table: RunTable, base: str) -> Iterator[tuple[str, str]]:
    """Run and address of its page, for runs that are in MLflow."""
    for slug in table.runs:
        marker = folder / f"{slug}.json"
        place = storage.read_json(marker).get("place") if marker.is_file() else None
        if place:
            run = f"experiments/{place['experiment_id']}/runs/{place['run_id']}"
            yield slug, f"{base}/#/{run}?workflowType=machine_learning"  # MLflow's other view is for chatbots
