"""Power of a configuration's claims, before it runs: ``python tools/power.py --configfile FILE``.

It is estimated from the spread between blocks of earlier results.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.commands.command_line import main
from leakbound.commands.terminal import text_table
from leakbound_lab.claims.evaluation import compared_by, measured
from leakbound_lab.claims.judging import ENOUGH, Design, promised
from leakbound_lab.claims.outcomes import Blocks
from leakbound_lab.claims.selection import SelectionError
from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import ClaimConfig, FigureConfig
from leakbound_lab.config.consensus import ConsensusConfig
from leakbound_lab.config.federated import FederatedConfig
from leakbound_lab.config.studies import EfficiencyConfig
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.table import RunTable, rows_file
from leakbound_lab.steps.job_list import job_list, try_networks
from leakbound_lab.steps.job_settings import ConfigOption, register_plugins

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
REFERENCE = Path("results/reference/photos")
"""Results whose spreads are used if a configuration has no results."""
_COLUMNS = ("claim", "delta", "std", "blocks", "power at 2 delta", "at delta", "replicas for .8")
_UNKNOWN = "–"
_FACETS = ("dataset", "model")


@app.command()
def power(
    configfile: ConfigOption = Path("config/config.yaml"),
    variances: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results, whose spread between blocks is used. Default: the results of the "
            f"configuration, or {REFERENCE}."
        ),
    ] = None,
) -> None:
    """Predict which claims a configuration can decide."""
    config = reading.load(configfile)
    try_networks(config, str(configfile))
    made = job_list(config)
    register_plugins(config.plugins.model_dump())
    sys.stdout.write(power_text(made.table, _results(Path(config.root), variances)))


def _results(root: Path, requested: Path | None) -> Path:
    """Return the folder of the results whose spread is used: requested, of the configuration, or kept.

    Raises:
        BadParameter: If it contains no tables.
    """
    folder = requested or (root if any((root / "tables").glob("*.parquet")) else REFERENCE)
    if not any((folder / "tables").glob("*.parquet")):
        raise typer.BadParameter(f"--variances: {folder} has no tables of finished studies, {folder}/tables/*.parquet")
    return folder


@dataclass(frozen=True)
class Planned:
    """A claim before it is run.

    Attributes:
        name: ``paper/figure/claim``.
        delta: Smallest effect of interest, with its unit.
        settings: Number of (dataset, network) pairs of its blocks.
        replicas: Number of replicas in each pair.
        design: Design of its test. None if the results have no such rows.
    """

    name: str
    delta: str
    settings: int
    replicas: int
    design: Design | None

    def power(self, times: float) -> float:
        """Compute the probability to detect an effect of ``times`` delta.

        Args:
            times: True effect, in multiples of delta.

        Returns:
            Probability, NaN if the spread is not known.
        """
        return self.design.power(self.settings * self.replicas, times) if self.design else math.nan

    def line(self) -> tuple[str, ...]:
        """Return the cells of a row of the table."""
        std = max(self.design.spreads) if self.design else math.nan
        needed = self.design.needed() if self.design else None
        more = f"> {1000 // self.settings}" if self.design else _UNKNOWN
        return (
            self.name,
            self.delta,
            _UNKNOWN if math.isnan(std) else f"{std:.3g}",
            f"{self.settings} x {self.replicas}",
            *(_UNKNOWN if math.isnan(self.power(times)) else f"{self.power(times):.2f}" for times in (2.0, 1.0)),
            more if needed is None else str(math.ceil(needed / self.settings)),
        )


def power_text(table: RunTable, root: Path) -> str:
    """Estimate the power of every claim about an experiment with the blocks of a configuration.

    Args:
        table: Runs and figures of the configuration.
        root: Folder of finished results of a configuration, or a kept copy below ``results/reference``.

    Returns:
        A table, and notes on its columns.
    """
    figures = table.claiming()
    planned = [claim for figure in figures for claim in _planned(table, figure, root)]
    exact = sum(claim.delta is None for figure in figures for claim in figure.claims)
    estimated = [claim for claim in planned if claim.design]
    enough = sum(claim.power(2.0) >= ENOUGH for claim in estimated)
    lines = [
        f"Power of the claims of {table.config.preset} with the spread between the blocks of {root}",
        "",
        text_table([_COLUMNS, *(claim.line() for claim in planned)], left=2),
        f"{len(planned)} claims about experiments: {enough} detect 2 delta with power {ENOUGH:g}, "
        f"{len(estimated) - enough} do not, and for {len(planned) - len(estimated)} the spread is not known. "
        f"{exact} closed forms hold or fail.",
        "* blocks: (dataset, network) pairs x replicas; std: standard deviation between the blocks of one pair",
        f"* tests are two-sided at {table.config.alpha:g} divided by the number of such claims of the figure, "
        "the least favourable step of Holm's correction",
        "* for within and at_most, an effect of 2 delta exceeds the claimed bound by delta",
    ]
    return "\n".join(lines) + "\n"


def _planned(table: RunTable, figure: FigureConfig, root: Path) -> list[Planned]:
    """Return the claims of a figure that are about experiments."""
    claims = [claim for claim in figure.claims if claim.delta is not None]
    return [
        Planned(
            f"{figure.paper}/{figure.id}/{claim.id}",
            f"{claim.delta:g} {claim.unit}",
            *_blocks(table, figure, claim),
            _design(table, figure, claim, root, len(claims)),
        )
        for claim in claims
    ]


def _design(table: RunTable, figure: FigureConfig, claim: ClaimConfig, root: Path, corrected: int) -> Design | None:
    """Estimate the spread of a claim from the rows of finished results. None if they have no such rows.

    Holm corrects for ``corrected`` claims of the figure.
    """
    path = Path(rows_file(root, figure))
    if not path.is_file():
        return None
    rows = storage.read_rows(path, sealed=False)
    try:
        blocks = measured(figure, claim, rows)
    except SelectionError:  # e.g. results of other levels
        return None
    if not isinstance(blocks, Blocks):
        return None
    alpha = table.config.alpha
    design = promised(blocks, claim.smallest_effect(), alpha / corrected, alpha)
    return None if any(map(math.isnan, design.spreads)) else design


def _blocks(table: RunTable, figure: FigureConfig, claim: ClaimConfig) -> tuple[int, int]:
    """Count the (dataset, network) pairs of a claim's blocks, and the replicas in each."""
    pairs, replicas = _planned_blocks(table.config, figure)
    compared = compared_by(claim)
    shown = {
        column: set(figure.admitted(column, {pair[place] for pair in pairs})) for place, column in enumerate(_FACETS)
    }
    kept = {
        tuple("" if column in compared else name for column, name in zip(_FACETS, pair, strict=True))
        for pair in pairs
        if all(name in shown[column] for column, name in zip(_FACETS, pair, strict=True))
    }
    return max(1, len(kept)), replicas


def _planned_blocks(config: Config, figure: FigureConfig) -> tuple[list[tuple[str, str]], int]:
    """List dataset and network of each block that a figure's claims rest on, empty if there is none, and the replicas.

    Closed forms have a single block.
    """
    if figure.illustration is not None:
        return [("", "")], config.illustrations[figure.illustration].replicas
    if figure.study is not None:
        study = config.studies[figure.study]
        return list(product(study.datasets, study.models)), study.replicas or config.replicas
    section = getattr(config, (figure.table or "").partition("/")[0], None)
    if isinstance(section, EfficiencyConfig):
        return [(section.dataset, model) for model in section.models], section.repeats
    if isinstance(section, FederatedConfig):
        return list(section.models.items()), section.replicas or config.replicas
    if isinstance(section, ConsensusConfig):
        return [("", "")], section.averaging.batches
    return [(name, "") for name in getattr(section, "datasets", ("",))], 1


if __name__ == "__main__":
    main(app)
