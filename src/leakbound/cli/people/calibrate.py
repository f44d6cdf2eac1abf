"""Command: the noise that a target needs on one's own records, shape by shape."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound.cli.people import own_records
from leakbound.cli.people.progress import counted

if TYPE_CHECKING:
    import numpy as np

    from leakbound.channels.covariance import Moments
    from leakbound.datasets.collection import Collection
    from leakbound.engine.targets import Calibration, Target

_SHAPES = ("natural", "white", "least_power", "rate_distortion")
_STRETCH = 2  # the workflow's pixels go from -1 to 1
_COLUMNS = {
    "shape": "shape",
    "std": "std",
    "std_least": "least",
    "std_largest": "largest",
    "capacity": "one copy",
    "values": "all copies",
    "record": "with label",
    "mse": "best MSE",
    "naming": "named",
}


def calibrate(
    path: own_records.DataArgument,
    kappa: own_records.KappaOption = None,
    leakage: own_records.LeakageOption = None,
    mse: own_records.MseOption = None,
    naming: own_records.NamingOption = None,
    shape: Annotated[
        own_records.Shape | None, typer.Option(help="Shape of the noise; by default all that need no box.")
    ] = None,
    box: own_records.BoxOption = None,
    public: own_records.PublicOption = None,
    accept_capacity: own_records.AcceptOption = None,
    label: own_records.LabelOption = "label",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=own_records.path_of,
            help="Written: the channel of one --shape, safetensors, and beside it FILE.spectrum.safetensors.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Show the noise that a target needs on records, and what an attacker gets then; give one of four targets."""
    target = own_records.target_of(kappa, leakage, mse, naming)
    if box is not None and shape is None:
        shape = "personalized"
    if out is not None:
        _check_out(out, shape)
    own, known = own_records.read_both(path, public, label)
    weights = own_records.weights_of(box, shape or "natural", own)
    law = known or own
    own_records.check_reachable(target, law)
    moments = _moments(law)
    stretched = _stretched(target) if law.pictures else target
    found = {}
    with counted("calibrating", len([shape] if shape else _SHAPES)) as each:
        for name in [shape] if shape else _SHAPES:
            found[name] = _calibrated(name, moments, stretched, weights)
            each(1)
    unit = 1 / _STRETCH if law.pictures else 1.0
    rows = [_row(name, one, target, len(own.classes), unit) for name, one in found.items()]
    if known is not None:
        for row, one in zip(rows, found.values(), strict=True):
            row["own"], refused = _compared(one, own, target, accept_capacity)
            if refused and shape is not None:
                raise typer.BadParameter(refused)
            sys.stderr.write(f"leakbound: warning: {refused}\n" if refused else "")
    if out is not None:
        _write(out, *found.values(), covariance_of="members" if known is None else "aux")
    units = own_records.SCALE if own.pictures else "those of the array"
    facts = {
        "target": {"kind": type(target).__name__, **asdict(target)},  # type: ignore[call-overload]
        "uses": target.uses or 1,
        "units": units,
        "records": moments.count,
        "shrinkage": moments.shrinkage,
        "calibrated_to": "the records themselves" if known is None else "public records",
        "mse_mean": unit**2 * moments.total_variance / moments.dimension,
        "candidates": own_records.candidates(target),
    }
    sys.stdout.write(json.dumps({**facts, "shapes": rows}, indent=2) + "\n" if as_json else _table(facts, rows))


def _stretched(target: Target) -> Target:
    """The same target for pixels on the workflow's scale."""
    from leakbound.engine.targets import Reconstruction

    return Reconstruction(_STRETCH**2 * target.mse, target.uses) if isinstance(target, Reconstruction) else target


def _check_out(out: Path, shape: str | None) -> None:
    """Refuse a channel of no one shape, and files that cannot be written or would be replaced."""
    from leakbound.cli.inputs import check_outputs

    if shape is None:
        raise typer.BadParameter(f"--out {out}: a file holds one channel; give --shape, too")
    files = (out, _spectrum_of(out))
    check_outputs(*files)
    for path in files:
        if path.exists():
            raise typer.BadParameter(f"--out {path}: is there already; name another file, nothing is overwritten")


def _spectrum_of(out: Path) -> Path:
    """File of the spectrum beside that of a channel."""
    return out.parent / f"{out.stem}.spectrum.safetensors"


def _moments(law: Collection) -> Moments:
    """Mean and covariance of the law of some records, of images on the workflow's scale from -1 to 1."""
    from leakbound.channels.covariance import population_moments

    with counted(f"covariance of {law.values[0].size} values", None):
        return population_moments(_STRETCH * law.values - 1 if law.pictures else law.values)


def _calibrated(shape: str, moments: Moments, target: Target, weights: np.ndarray | None) -> Calibration:
    """Channel of least noise of a shape that meets the target.

    Raises:
        BadParameter: If there is none.
    """
    from leakbound.registry import SHAPES

    form = SHAPES.get(shape)
    try:
        return target.solve(form, form.decompose(moments, weights=weights), moments, target.uses or 1)
    except ValueError as error:
        raise typer.BadParameter(f"{target}: {error}") from error


def _compared(
    calibration: Calibration, own: Collection, target: Target, accepted: float | None
) -> tuple[float | None, str]:
    """Nats of all copies by the moments of the given records, and why the channel would refuse these, if it would."""
    from leakbound.engine.own_moments import OwnMoments
    from leakbound.engine.refusals import GuaranteeError

    values = (_STRETCH * own.values - 1 if own.pictures else own.values).reshape(len(own), -1).astype("float64")
    refused = ""
    try:
        compared = OwnMoments(calibration, target.uses or 1, accepted)
    except GuaranteeError as error:
        raise typer.BadParameter(f"--{str(error).replace('_', '-', 1)}") from error
    with own_records.warned():
        try:
            compared.check(compared.chosen(values))
            calibration.check_directions(values)
        except GuaranteeError as error:
            told = str(error).replace("accept_capacity=", "--accept-capacity ")
            refused = f"{own.origin}: {calibration.channel.shape} noise: {told}"
    found = compared.capacity
    return None if found is None or found.nats == math.inf else found.rounded, refused


def _row(shape: str, calibration: Calibration, target: Target, classes: int, unit: float) -> dict[str, Any]:
    """Facts of one channel: after all planned uses, of the most told record, in units of ``unit``."""
    from leakbound.accounting.naming import naming_bound
    from leakbound.engine.accountant import LeakageAccountant

    uses = target.uses or 1
    accountant = LeakageAccountant(calibration.moments).add(calibration.channel, uses, ratios=calibration.ratios)
    if classes:
        accountant.add_labels(classes)
    told, std = accountant.account(), own_records.deviations(calibration.channel)
    return {
        "shape": shape,
        "std": unit * std["root_mean_square"],
        "std_least": unit * std["least"],
        "std_largest": unit * std["largest"],
        "capacity": calibration.information(1),
        "values": told.joint,
        "record": told.record,
        "mse": unit**2 * calibration.linear_error(uses),
        "naming": naming_bound(told.joint, own_records.candidates(target)),
    }


def _write(out: Path, calibration: Calibration, *, covariance_of: str) -> None:
    """Write a channel and its spectrum as the workflow does."""
    from leakbound import storage

    of = {"covariance_of": covariance_of}
    with own_records.not_replaced(out):
        arrays, about = calibration.spectrum.arrays(), {**calibration.spectrum.metadata(), **of}
        storage.write_arrays(_spectrum_of(out), arrays, about, replace=False)
        told = {"reached": repr(calibration.information(1)), **of}
        about = {**calibration.channel.metadata(), **told}
        storage.write_arrays(out, calibration.channel.arrays(), about, replace=False)


def _table(facts: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The rows for people, and what their columns mean."""
    cells = [list(_COLUMNS.values())]
    cells += [[row["shape"], *(f"{row[name]:.5g}" for name in list(_COLUMNS)[1:])] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    own = [f"{row['shape']} {row['own']:g}" for row in rows if row.get("own")]
    uses = facts["uses"]
    lines += [
        "",
        f"std: of the noise of a value, root mean square, least and largest; {facts['units']}",
        f"one copy, all copies: nats that one noisy copy of a record tells at most, and {uses} together; with label: "
        "beside its label, which leaves as it is",
        f"best MSE: squared error per value of the best linear estimate from all copies; guessing the mean errs by "
        f"{facts['mse_mean']:.5g}",
        f"named: probability, at most, of naming the true one of {facts['candidates']} equally likely records",
        f"calibrated to {facts['records']} records, {facts['calibrated_to']}",
        *([f"all copies by the moments of your own records, to be kept to yourself: {', '.join(own)}"] if own else []),
    ]
    return "\n".join(lines) + "\n"
