"""Command: translate nats into risks, and suggest targets."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from decimal import ROUND_FLOOR
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound.accounting import risk as accounting
from leakbound.accounting.risk import bound_text as _up
from leakbound.accounting.statement import state
from leakbound.commands import record_options
from leakbound.commands.option_groups import Offered
from leakbound.commands.terminal import text_table
from leakbound.words import in_nats

if TYPE_CHECKING:
    from leakbound.records.collection import Collection

_LIMITS = (0.5, 0.1, 0.01)
_ADVANTAGE = 0.1  # advantage of membership inference that the suggested nats allow
_NOTHING = 0.99  # advantage above which the bound is useless
_MOST = 10**12
_READING = Offered(
    ("label", "resize", "color", "span", "image", "standardize", "exclude", "categories", "missing")
)
_MEANING = """
identified: probability, at most, with which an attacker who knows all these records finds the one that was used
nats for P: ask for at most so many, from all uses together, to keep that probability at or below P
as by epsilon: pure DP of this epsilon limits identification as much, of every record; nats do so on average over
  records of the distribution, and no number of nats implies an epsilon
"""


def risk(
    nats: Annotated[
        float,
        typer.Option(
            help="Largest number of nats that all uses of a record together reveal about it, on average (leakage)."
        ),
    ],
    records: Annotated[
        list[int] | None,
        typer.Option(
            metavar="M",
            help="Number of records among which an attacker looks for the true one. May be repeated. "
            "Default: those of --data.",
        ),
    ] = None,
    *,
    probability: Annotated[
        list[float] | None,
        typer.Option(
            metavar="P",
            help="Show the nats at which identification stays below this probability. Default: 0.5, 0.1 and 0.01.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=record_options.path_of,
            help=f"Records, for the error of reconstruction. {record_options.DATA}",
        ),
    ] = None,
    reading: Annotated[record_options.ReadingOptions, _READING],
    classes: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="CLASSES",
            help="Number of labels, if they are released as they are and --nats leaves them out. Their nats are added.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")] = False,
) -> None:
    """Translate nats into risks of identification, membership inference and reconstruction. Suggest targets.

    Example: leakbound risk --nats 2 --records 1000

    Example: leakbound risk --nats 2 --data photos --resize 32
    """
    if not 0 < nats < math.inf:
        raise typer.BadParameter(f"--nats {nats:g}: give a finite number above 0")
    if data is None and not records:
        raise typer.BadParameter(
            "--records is missing: give the number of an attacker's candidates, or --data"
        )
    private = None
    _check(records or (), probability or ())  # before a folder is read
    if data is not None:
        from leakbound.commands import own_records  # slow import

        private, _ = own_records.read_both(data, None, reading)
    counts = records or [len(private or ())]
    limits = probability or _LIMITS
    _check(counts, probability or ())
    stated = state(
        "all uses together",
        secure=True,
        labels="uncounted" if classes is None else math.log(classes),
        added=nats,
        assumptions=["nats and secure noise are as they were given, and not checked"],
    )
    rows = [accounting.identification_risk(stated.nats, count, limits) for count in counts]
    facts: dict[str, Any] = {
        "nats": stated.nats,
        "statement": stated.numbers(),
        "identification": [asdict(row) for row in rows],
        "membership": dict(zip(("advantage", "auc"), accounting.membership_bound(stated.nats), strict=True)),
        # Labels say nothing of the values behind the noise, whose nats are those that were given.
        "reconstruction": None
        if private is None
        else _reconstruction(private, nats) | {"records": str(data)},
    }
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if as_json else _words(facts, rows, limits))


def _check(counts: Sequence[int], probabilities: Sequence[float]) -> None:
    """Refuse numbers of candidates, and probabilities that a guess reaches or nothing does."""
    for count in counts:
        if not 2 <= count <= _MOST:
            raise typer.BadParameter(f"--records {count}: give whole numbers from 2 to {_MOST}")
        for limit in probabilities:
            guessing = f"{1 / count:.4g}, which guessing one of {count} has"
            if not 1 / count < limit < 1:
                raise typer.BadParameter(f"--probability {limit:g}: give one between {guessing}, and 1")


def _reconstruction(private: "Collection", nats: float) -> dict[str, Any]:
    """Compute the error of the best linear estimate of records behind natural noise of so many nats."""
    from leakbound.commands import own_records
    from leakbound.commands.files import refusing  # slow imports
    from leakbound.engine.targets import Leakage
    from leakbound.registry import SHAPES

    moments = own_records.moments_of(private)
    shape = SHAPES.get("natural")
    with refusing(f"--nats {nats:g}"):
        solved = Leakage(nats, 1).solve(shape, shape.decompose(moments), moments, 1)
    return {
        "mse": private.unit**2 * solved.linear_error(1),
        "mse_mean": private.unit**2 * moments.total_variance / moments.dimension,
        "units": own_records.units(private),
    }


def _words(
    facts: dict[str, Any], rows: Sequence[accounting.IdentificationRisk], limits: Sequence[float]
) -> str:
    """Write the facts for people. Risks are rounded up, and suggested nats and remaining errors down."""
    nats = in_nats(f"{facts['nats']:.6g}")
    cells = [
        ["among", "guessing", "identified", "as by epsilon", *(f"nats for {limit:g}" for limit in limits)],
        *(_cells(row, limits) for row in rows),
    ]
    stated = f"as given, and not checked: {facts['statement']['sentence']}"
    lines = [stated, *(_vacuous(nats, row) for row in rows if row.epsilon is None)]
    members, errors = (facts[name] for name in ("membership", "reconstruction"))
    bounds = (record_options.limit_text(members[name]) for name in ("advantage", "auc"))
    said = "limits on membership inference: TPR - FPR {}, AUC {}".format(*bounds)
    if members["advantage"] > _NOTHING:
        said = f"{nats} do not limit membership inference"
    few = _down(accounting.membership_information(_ADVANTAGE))
    lines.append(f"{said}; ask for at most {few} to keep TPR - FPR at or below {_ADVANTAGE}")
    if errors is not None:
        left = _down(errors["mse"])
        share = _down(100 * errors["mse"] / errors["mse_mean"])
        lines.append(
            f"{errors['records']} behind natural noise: the best linear estimate errs by {left} squared per value, "
            f"{share} % of guessing the mean\n  ({errors['units']}; if not Gaussian, other attacks can err less)"
        )
    return "\n".join([text_table(cells, left=0), *lines]) + "\n" + _MEANING


def _cells(row: accounting.IdentificationRisk, limits: Sequence[float]) -> list[str]:
    """Write a row of the table."""
    bounds = [
        record_options.limit_text(row.probability),
        "none" if row.epsilon is None else _down(row.epsilon),
    ]
    allowed = [_down(row.allowed[limit]) if limit in row.allowed else "-" for limit in limits]
    return [str(row.candidates), _up(1 / row.candidates), *bounds, *allowed]


def _vacuous(nats: str, row: accounting.IdentificationRisk) -> str:
    """Say that nats do not limit identification, and how many would."""
    advice = ""
    for limit, most in [*row.allowed.items()][:1]:
        advice = f" Ask for at most {_down(most)} to keep it at or below {limit:g}."
    return (
        f"{nats}: an attacker may identify the record among {row.candidates} with certainty (guessing: "
        f"{_up(1 / row.candidates)}), as from {_up(math.log(row.candidates))} nats on.{advice}"
    )


_down = partial(_up, rounding=ROUND_FLOOR)
