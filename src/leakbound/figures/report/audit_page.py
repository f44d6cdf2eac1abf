"""One offline page on what the user's network leaks about the membership of its records."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from leakbound.accounting.risk import membership_bound
from leakbound.figures.report.page_templates import templates

_SIDE = 360.0  # side of the picture, within its axes
_Rates = Sequence[Sequence[float]] | tuple[np.ndarray, np.ndarray]
_FINE = 60  # points of a line on logarithmic axes


def audit_page(facts: Mapping[str, Any]) -> str:
    """Write the page as self-contained HTML.

    Args:
        facts: Plain values, as ``leakbound audit --checkpoint ... --json`` writes them.
    """
    decades = max(1, math.ceil(math.log10(max(facts["evaluated_members"], facts["evaluated_others"]))))
    symbols = {"contradicted": "✗"}
    roc = drawn_roc(_lines(facts, decades), decades)
    return templates().get_template("audit.html").render(facts=facts, symbols=symbols, roc=roc)


def drawn_roc(lines: Iterable[tuple[str, str, _Rates]], decades: int) -> dict[str, Any]:
    """Place rates on logarithmic axes, for the macro ``roc`` of the templates.

    Args:
        lines: Name of each line, its class or color, its false- and its true-positive rates.
        decades: Powers of ten that the axes show.
    """
    return {
        "side": _SIDE,
        "ticks": [(_SIDE * (1 - power / decades), f"{10.0**-power:g}") for power in range(decades + 1)],
        "lines": [(name, mark, _path(rates, decades)) for name, mark, rates in lines],
    }


def _lines(facts: Mapping[str, Any], decades: int) -> Iterator[tuple[str, str, _Rates]]:
    """Yield name, style and rates of each line: the strongest attacker, guessing, and the bound."""
    yield "strongest attacker", "curve", facts["curve"]
    rates = [10 ** (-decades * (1 - step / _FINE)) for step in range(_FINE + 1)]
    yield "guessing", "chance", (rates, rates)
    bound = facts["bound"]
    if bound is None:
        return
    if bound["quantity"] == "nats":
        advantage = membership_bound(bound["value"])[0]
        yield "bound", "bound", (rates, [min(1.0, rate + advantage) for rate in rates])
        return
    # A member is compared with another record, not with its absence: that is one removal and one addition.
    factor = math.exp(min(bound["value"], 300.0))
    most = [min(1.0, factor**2 * rate + (1 + factor) * bound["delta"]) for rate in rates]
    yield "bound", "bound", (rates, most)


def _path(rates: _Rates, decades: int) -> str:
    """Write the points of an SVG line, with logarithmic axes that are cut at their lower ends."""

    def place(rate: float) -> float:
        return _SIDE * max(0.0, 1 + math.log10(max(rate, 1e-300)) / decades)

    return " ".join(
        f"{place(false):.1f},{_SIDE - place(true):.1f}" for false, true in zip(*rates, strict=True)
    )
