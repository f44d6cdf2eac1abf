"""Verdicts and pictures of results/reference, made again from the kept tables: ``python tools/judging.py [PRESET]``.

A new rule for verdicts, or another plot, changes what kept results say without a new training. This writes verdicts,
scoreboards and pictures of the presets, or of all, as the workflow and `pool.py` write them.
"""

import functools
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from leakbound import storage
from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.claims.evaluation import COLUMNS, evaluate
from leakbound_lab.claims.scoreboard import to_markdown, verdict_counts
from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import NETWORKS, SCOREBOARD, Catalogue, FigureConfig
from leakbound_lab.jobs.table import RunTable, rows_file
from pool import redraw
from repeats import evaluate_twice
from replaced_folders import MANIFEST, replaced_folder

KEPT = Path(__file__).parents[1] / "results" / "reference"
_GENERATOR = functools.partial(numpy_generator, 0)


@functools.lru_cache(maxsize=12)  # more than runs that are judged together
def _table(path: Path, written: int) -> pd.DataFrame:
    """Read a table once for all figures that show it."""
    return storage.read_rows(path, sealed=False)


class KeptRun:
    """A kept run: its configuration, those of its repeats, and its tables.

    Args:
        home: Its folder.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = reading.load(home / "config.yaml")
        self.repeats = [reading.load(path) for path in sorted((home / "repeats").glob("*.yaml"))]
        self.claims = storage.read_rows(home / "claims.parquet", sealed=False)

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        """The catalogue of figures, as it is now."""
        return reading.load_catalogue(self.home.parents[2] / self.config.catalogue, self.config)

    def rows(self, figure: FigureConfig) -> pd.DataFrame:
        """Read the table that a figure shows, or the rows that are kept beside its picture."""
        table = rows_file(self.home, figure)
        kept = table if table.is_file() else self.home / f"figures/{figure.paper}/{figure.id}.parquet"
        return _table(kept, kept.stat().st_mtime_ns)

    def judged(self, figure: FigureConfig) -> pd.DataFrame:
        """Judge the claims of a figure: as its first run and the repeat of its study decide them."""
        rows, alpha = self.rows(figure), self.config.alpha
        if any(figure.study in config.studies for config in self.repeats):
            return evaluate_twice(figure, *self._parted(figure, rows), alpha, _GENERATOR)
        verdicts = evaluate(figure, rows, alpha, _GENERATOR)
        return verdicts.assign(first=verdicts["verdict"], repeat="") if self.repeats else verdicts

    def _parted(self, figure: FigureConfig, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Part the rows of a study in those of the first run and of its repeat, each numbered as it numbered them."""
        table = RunTable(self.config, self.catalogue)
        count = max(table.runs[slug].replicas for slug in table.studies[str(figure.study)])
        later = (rows["replica"] >= count) | (rows["replica"] < -1)
        own = rows["replica"].sub(count).where(rows["replica"] >= 0, -1)
        return rows[~later], rows[later].assign(replica=own)

    def figures(self) -> Iterator[FigureConfig]:
        """Yield the figures whose verdicts are kept, in the order of the verdicts."""
        by_key = {(figure.paper, figure.id): figure for figure in self.catalogue.figures}
        kept = self.claims[["paper", "figure"]].drop_duplicates().itertuples(index=False, name=None)
        yield from (by_key[key] for key in kept)


def judged_together(homes: Sequence[Path]) -> pd.DataFrame:
    """Judge what papers print about their networks on all blocks of several runs.

    Each run has been judged alone, so that this second analysis has half of the level (docs/protocol.md#claims).

    Args:
        homes: Folders of kept runs.

    Returns:
        Rows of ``evaluate`` for the printed claims of figures of studies that several runs have.
    """
    runs = [KeptRun(home) for home in homes if (home / "config.yaml").is_file()]
    verdicts = []
    for figure in runs[-1].catalogue.figures if runs else ():
        networks = {*NETWORKS.get(figure.paper, ())}
        studies = [(run, run.config.studies.get(figure.study or "")) for run in runs]
        own = [run for run, study in studies if study and networks & {*study.models}]
        stated = figure.model_copy(update={"claims": tuple(claim for claim in figure.claims if claim.printed)})
        if stated.claims and len(own) > 1:
            rows = pd.concat([run.rows(figure).assign(preset=run.home.name) for run in own], ignore_index=True)
            verdicts.append(evaluate(stated, rows, min(run.config.alpha for run in own) / 2, _GENERATOR))
    return pd.concat(verdicts, ignore_index=True) if verdicts else pd.DataFrame(columns=list(COLUMNS))


def judge_again(home: Path) -> pd.DataFrame:
    """Judge the claims of a kept run again.

    Args:
        home: Its folder.

    Returns:
        Rows of ``evaluate``.
    """
    run = KeptRun(home)
    return pd.concat([run.judged(figure) for figure in run.figures()], ignore_index=True)


def rewrite(home: Path) -> None:
    """Write verdicts, scoreboard and pictures of a kept run again.

    Args:
        home: Its folder.
    """
    run, claims = KeptRun(home), judge_again(home)
    readers = {name: dataset.reader or name for name, dataset in run.config.datasets.items()}
    with replaced_folder(home) as new:
        shutil.copytree(home, new, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        counts = verdict_counts(claims)
        storage.write_rows(new / "claims.parquet", claims, sealed=False)
        storage.write_rows(new / f"tables/{SCOREBOARD}.parquet", counts, sealed=False)
        (new / "scoreboard.md").write_text(to_markdown(claims), encoding="utf-8")
        for figure in run.catalogue.figures:
            if (home / f"figures/{figure.paper}/{figure.id}.svg").is_file():
                redraw(figure, counts if figure.table == SCOREBOARD else run.rows(figure), readers, new)


if __name__ == "__main__":
    for preset in sys.argv[1:] or sorted(path.parent.name for path in KEPT.glob("*/claims.parquet")):
        rewrite(KEPT / preset)
