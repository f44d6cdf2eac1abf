"""One offline page with all results of a finished configuration."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakbound import storage
from leakbound.commands.files import check_outputs
from leakbound.storage.provenance import settings_hash
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.reading import load
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.job import Job, JobList, Step, new_job
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.table import RunTable, rows_file
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.job_settings import ConfigOption, register_plugins
from leakbound_lab.steps.plot import write_figure

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from leakbound_lab.figures.report.page import ReportFigure


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield one page. The rule says what it waits for."""
    arguments = {"config": table.config}
    yield new_job(table.config, "report", "report", {}, arguments=arguments, purpose="figures")


_PageOption = Annotated[
    Path | None, typer.Option(help="Page to write. By default report.html in the folder of the results.")
]


def page_hash(job: Job, table: RunTable) -> str:
    """Hash the captions, and the templates, style and script of the page."""
    captions = {key: [figure.title, table.caption(key)] for key, figure in table.figures.items()}
    folder = files("leakbound_lab.figures.report") / "templates"
    return settings_hash(
        [captions, {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}]
    )


def report(config: Config, out: Path | None) -> None:
    """Write one offline page with the figures, verdicts, runs and provenance of a finished configuration.

    Its first sentences, its path and its size are printed.

    Args:
        config: Configuration whose run is finished.
        out: Page to write. None for report.html in the folder of the results.

    Raises:
        FileNotFoundError: If a figure is missing.
        ValueError: If a figure shows pictures that may not be published.
    """
    from leakbound_lab.figures.report.page import Report, page
    from leakbound_lab.steps.results import summary

    register_plugins(config.plugins.model_dump())
    made = job_list(config)
    table = made.table
    root = Path(config.root)
    target = out or output(root, "report", "report", "out")
    check_outputs(target)
    tables: dict[str, pd.DataFrame] = {}
    content = Report(
        config=config,
        figures=list(_figures(root, table, tables)),
        claims=_verdicts(root, table),
        provenance=summary(root, made),
        links=dict(_links(root, made, config.tracking.pages)),
        tables=tables,
        curves=dict(_curves(root, tables)),
    )
    storage.write_text(target, page(content))
    sys.stdout.write("\n".join([*content.sentences, f"{target}: {target.stat().st_size / 1e6:.1f} MB", ""]))


def _figures(root: Path, table: RunTable, tables: dict[str, pd.DataFrame]) -> Iterator[ReportFigure]:
    """Yield the figures as drawn, and put the tables of their studies into ``tables``."""
    import pandas as pd

    from leakbound_lab.datasets.records import unpublishable
    from leakbound_lab.figures.notes import notes, warnings
    from leakbound_lab.figures.report.page import LARGEST_DRAWING, ReportFigure

    read = cache(storage.read_rows)
    ran = table.config.model_dump(mode="json")
    for key, figure in table.figures.items():
        drawn = output(root, "plot", key, "svg")
        if not drawn.is_file():
            raise FileNotFoundError(f"{drawn}: is missing; run snakemake for this configuration first")
        rows = storage.read_rows(output(root, "plot", key, "shown"))
        if private := unpublishable(rows, table.readers()):
            raise ValueError(
                f"{key}: shows private pictures of {', '.join(private)}; run snakemake again to leave them out"
            )
        drawing = storage.read_bytes(drawn, most=storage.limits.TEXT)
        whole = read(rows_file(root, figure)) if figure.study or figure.table else pd.DataFrame()
        if figure.study is not None:
            tables[figure.study] = whole
        yield ReportFigure(
            figure,
            table.caption(key),
            drawing,
            rows,
            notes(figure, whole, ran),
            warnings(figure, whole),
            _in_pixels(figure, rows) if len(drawing) > LARGEST_DRAWING else b"",
        )


def _in_pixels(figure: FigureConfig, rows: pd.DataFrame) -> bytes:
    """Draw a figure as PNG."""
    with tempfile.TemporaryDirectory() as folder:
        stem = Path(folder) / figure.id
        write_figure(figure, rows, stem, formats=["png"])
        return stem.with_suffix(".png").read_bytes()


def _curves(
    root: Path, tables: dict[str, pd.DataFrame]
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield defenses, each with the rates of the strongest membership attack on the run where it shows least."""
    from leakbound_lab.attacks.rows import mean_roc_curve
    from leakbound_lab.figures.report.opening import ATTACKERS, attacked_runs

    for defense, run in attacked_runs(tables).items():
        scores = storage.read_arrays(output(root, "attack", f"{run}/membership", "arrays"))
        name = next(name for name in ATTACKERS if f"{name}_members" in scores)
        yield defense, mean_roc_curve(scores[f"{name}_members"], scores[f"{name}_nonmembers"])


def _verdicts(root: Path, table: RunTable) -> pd.DataFrame:
    """Read the verdicts on all claims. The table is empty if no figure makes one."""
    import pandas as pd

    from leakbound_lab.claims.evaluation import COLUMNS

    if not table.claiming():
        return pd.DataFrame(columns=list(COLUMNS))
    return storage.read_rows(output(root, "claims", "claims", "out"))


def _links(root: Path, made: JobList, base: str) -> Iterator[tuple[str, str]]:
    """Yield each run in MLflow with the address of its page, on a server or on `leakbound ui` for a database."""
    for job in made.of("log"):
        marker = output(root, "log", job.name, "marker")
        place = storage.read_json(marker).get("place") if marker.is_file() else None
        if place:
            run = f"experiments/{place['experiment_id']}/runs/{place['run_id']}"
            # MLflow's other view is for chatbots.
            yield (job.name, f"{base}/#/{run}?workflowType=machine_learning")


STEP = Step(report, jobs, final=True)


def write_report(configfile: ConfigOption = Path("config/config.yaml"), out: _PageOption = None) -> None:
    """Write one offline page with the figures, verdicts, runs and provenance of a finished configuration.

    Example: leakbound report --configfile config/small.yaml --out small.html
    """
    report(load(configfile), out)
