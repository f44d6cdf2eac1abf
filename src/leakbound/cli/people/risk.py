"""Command: from nats to risks, in plain words, and how few nats to ask for."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound.accounting import risk as accounting
from leakbound.cli.people import own_records

_LIMITS = (0.5, 0.1, 0.01)
_ADVANTAGE = 0.1  # of recognising members, kept by the nats that are advised
_NOTHING = 0.99  # an advantage from which on its bound helps nobody
_MOST = 10**12
_MEANING = """
identified: probability, at most, with which an attacker who knows all these records finds the one that was used
nats for P: ask for at most so many, from all uses together, to keep that probability at or below P
as by epsilon: pure DP of this epsilon limits identification as much, of every record; nats do so on average over
  records of the law, and no number of nats implies an epsilon
"""


def risk(
    nats: Annotated[float, typer.Option(help="What all uses of a record together reveal of it, at most.")],
    records: Annotated[list[int], typer.Option(metavar="M", help="Candidates for the record; may be repeated.")],
    probability: Annotated[
        list[float] | None, typer.Option(metavar="P", help="Chance of identification to keep; 0.5, 0.1 and 0.01.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", parser=own_records.path_of, help=f"Own records. {own_records.DATA}")
    ] = None,
    label: own_records.LabelOption = "label",
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of words.")] = False,
) -> None:
    """Say what nats mean for identification, membership and reconstruction, and how few to ask for."""
    few, limits = min(records), probability or _LIMITS
    if not 0 < nats < math.inf:
        raise typer.BadParameter(f"--nats {nats:g}: give a finite number above 0")
    if not 2 <= few <= max(records) <= _MOST:
        raise typer.BadParameter(f"--records {few if few < 2 else max(records)}: give whole numbers from 2 to {_MOST}")
    for limit in probability or ():
        if not 1 / few < limit < 1:
            raise typer.BadParameter(
                f"--probability {limit:g}: give one between {1 / few:.4g}, which guessing one of {few} has, and 1"
            )
    rows = [accounting.identification_risk(nats, count, limits) for count in records]
    facts: dict[str, Any] = {
        "nats": nats,
        "identification": [asdict(row) for row in rows],
        "membership": dict(zip(("advantage", "auc"), accounting.membership_bound(nats), strict=True)),
        "reconstruction": None if data is None else _reconstruction(data, label, nats),
    }
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if as_json else _words(facts, rows, limits))


def _reconstruction(path: Path, label: str, nats: float) -> dict[str, Any]:
    """Error of the best linear estimate of records behind natural noise, which depends on all nats together alone."""
    from leakbound.channels.covariance import population_moments
    from leakbound.cli.people.progress import counted
    from leakbound.engine.targets import Leakage
    from leakbound.registry import SHAPES

    own, _ = own_records.read_both(path, None, label)
    with counted(f"covariance of {own.values[0].size} values", None):
        moments, form = population_moments(own.values), SHAPES.get("natural")
    try:
        made = Leakage(nats, 1).solve(form, form.decompose(moments), moments, 1)
    except ValueError as error:
        raise typer.BadParameter(f"--nats {nats:g}: {error}") from error
    guessed, units = moments.total_variance / moments.dimension, own_records.SCALE if own.pictures else "own units"
    return {"records": str(path), "mse": made.linear_error(1), "mse_mean": guessed, "units": units}


def _words(facts: dict[str, Any], rows: Sequence[accounting.IdentificationRisk], limits: Sequence[float]) -> str:
    """The facts for people, rounded to the safe side: risks up; nats to ask for, and errors that are left, down."""
    nats, members, errors = f"{facts['nats']:g} nats", facts["membership"], facts["reconstruction"]
    cells = [["among", "guessing", "identified", "as by epsilon", *(f"nats for {limit:g}" for limit in limits)]]
    lines = []
    for row in rows:
        most = {limit: _down(nats) for limit, nats in row.allowed.items()}
        bounds = ["no limit", "none"] if row.epsilon is None else [_up(row.probability), _down(row.epsilon)]
        asked = [most.get(limit, "-") for limit in limits]
        cells.append([str(row.candidates), _up(1 / row.candidates), *bounds, *asked])
        if row.epsilon is None:
            none = f"among {row.candidates}, nor do any from {_up(math.log(row.candidates))} on"
            advice = [f"; ask for at most {one} to keep it at or below {limit:g}" for limit, one in most.items()]
            lines.append(f"{nats} say nothing about identification {none}{''.join(advice[:1])}")
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    told = f"membership is recognised with TPR - FPR <= {_up(members['advantage'])} and AUC <= {_up(members['auc'])}"
    if members["advantage"] > _NOTHING:
        told = f"{nats} say next to nothing about membership"
    few = _down(accounting.membership_information(_ADVANTAGE))
    lines.append(f"{told}; ask for at most {few} to keep TPR - FPR at or below {_ADVANTAGE}")
    if errors is not None:
        left, share = _down(errors["mse"]), _down(100 * errors["mse"] / errors["mse_mean"])
        lines.append(
            f"{errors['records']} behind natural noise: the best linear estimate errs by {left} squared per value, "
            f"{share} % of guessing the mean\n  ({errors['units']}; if not Gaussian, other attacks can err less)"
        )
    return "\n".join([*table, "", *lines]) + "\n" + _MEANING


def _up(value: float, rounding: str = ROUND_CEILING) -> str:
    """Three digits, not below the value, but for errors of float64."""
    safe = value * (1 + (1e-11 if rounding == ROUND_FLOOR else -1e-11))
    return format(Context(3, rounding).create_decimal_from_float(safe).normalize(), "f")


_down = partial(_up, rounding=ROUND_FLOOR)
