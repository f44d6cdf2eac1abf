"""Power of a configuration's claims, promised by the spread between blocks of results that are there already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leakbound import storage
from leakbound.config.catalogue import EFFICIENCY, ClaimConfig, FigureConfig
from leakbound.jobs.table import RunTable, rows_file

if TYPE_CHECKING:
    from leakbound.claims.design import Design

REFERENCE = Path("results/reference/small")
"""Results whose spreads count where a configuration has none of its own."""
_COLUMNS = ("claim", "delta", "std", "blocks", "power at 2 delta", "at delta", "replicas for .8")
_UNKNOWN = "–"
_FACETS = ("dataset", "model")


@dataclass(frozen=True)
class Planned:
    """A claim before it is run.

    Attributes:
        name: ``paper/figure/claim``.
        delta: Smallest effect of interest, with its unit.
        settings: Datasets and networks that its blocks are of.
        replicas: Replicas in each of them.
        design: What is known of its spread; None if the results have no such rows.
    """

    name: str
    delta: str
    settings: int
    replicas: int
    design: Design | None

    def power(self, times: float) -> float:
        """Chance to see ``times`` delta; NaN if the spread is not known."""
        return self.design.power(self.settings * self.replicas, times) if self.design else math.nan

    def line(self) -> tuple[str, ...]:
        """Row of the table."""
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
    """Power of every claim about an experiment with the blocks that a configuration will have, and what that decides.

    Args:
        table: Runs and figures of the configuration.
        root: Folder of finished results, as a configuration or ``results/reference`` has them.
    """
    from leakbound.claims.design import ENOUGH

    figures = table.claiming()
    planned = [one for figure in figures for one in _planned(table, figure, root)]
    exact = sum(claim.delta is None for figure in figures for claim in figure.claims)
    known = [one for one in planned if one.design]
    enough = sum(one.power(2.0) >= ENOUGH for one in known)
    lines = [f"Power of the claims of {table.config.preset} with the spread between the blocks of {root}", ""]
    lines += _aligned([_COLUMNS, *(one.line() for one in planned)])
    lines += [
        "",
        f"{len(planned)} claims about experiments: {enough} see 2 delta with power {ENOUGH:g}, {len(known) - enough} "
        f"do not; of {len(planned) - len(known)} the spread is not known. {exact} closed forms hold or fail.",
        "* blocks: datasets and networks x replicas; std: standard deviation between blocks of one dataset and network",
        f"* two-sided at {table.config.alpha:g} over the number of such claims of the figure, the least favourable "
        "step of Holm's correction",
        "* within and at_most see an effect of 2 delta as one that is delta too large",
    ]
    return "\n".join(lines) + "\n"


def _planned(table: RunTable, figure: FigureConfig, root: Path) -> list[Planned]:
    """The claims of a figure that are about experiments."""
    claims = [claim for claim in figure.claims if claim.delta is not None]
    return [
        Planned(
            f"{figure.paper}/{figure.id}/{claim.id}",
            f"{claim.delta:g} {claim.unit}",
            *_blocks(table, figure, claim),
            _design(table, figure, claim, root, table.config.alpha / len(claims)),
        )
        for claim in claims
    ]


def _design(table: RunTable, figure: FigureConfig, claim: ClaimConfig, root: Path, level: float) -> Design | None:
    """Spread of a claim by the rows of finished results; None if they have none."""
    from leakbound.claims.evaluation import measured
    from leakbound.claims.judging import promised
    from leakbound.claims.outcomes import Blocks
    from leakbound.claims.selection import SelectionError

    path = Path(rows_file(root, figure))
    if not path.is_file():
        return None
    rows = storage.read_rows(path, sealed=False)
    try:
        found = measured(figure, claim, rows)
    except SelectionError:  # of another version, with other columns
        return None
    design = promised(found, claim.smallest_effect(), level) if isinstance(found, Blocks) else None
    return design if design and not any(map(math.isnan, design.spreads)) else None


def _blocks(table: RunTable, figure: FigureConfig, claim: ClaimConfig) -> tuple[int, int]:
    """Datasets and networks, and replicas in each, that a claim's blocks will be of."""
    from leakbound.claims.evaluation import compared_by

    config = table.config
    pairs: list[tuple[str, str]] = [("", "")]
    replicas = 1
    if figure.study is not None:
        study = config.studies[figure.study]
        pairs = [(dataset, model) for dataset in study.datasets for model in study.models]
        replicas = study.replicas or config.replicas
    elif figure.illustration is not None:
        replicas = config.illustrations[figure.illustration].replicas
    elif figure.table == EFFICIENCY and config.efficiency is not None:
        pairs = [(config.efficiency.dataset, model) for model in config.efficiency.models]
        replicas = config.efficiency.repeats
    elif (figure.table or "").startswith("federated/") and config.federated is not None:
        pairs = list(config.federated.models.items())
        replicas = config.federated.replicas or config.replicas
    elif (figure.table or "").startswith("consensus/") and config.consensus is not None:
        replicas = config.consensus.averaging.batches
    shown = {
        column: set(figure.admitted(column, {pair[place] for pair in pairs})) for place, column in enumerate(_FACETS)
    }
    compared = compared_by(claim)
    kept = {
        tuple("" if column in compared else name for column, name in zip(_FACETS, pair, strict=True))
        for pair in pairs
        if all(name in shown[column] for column, name in zip(_FACETS, pair, strict=True))
    }
    return max(1, len(kept)), replicas


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of a table, the first two columns to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.ljust(width) if place < 2 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
