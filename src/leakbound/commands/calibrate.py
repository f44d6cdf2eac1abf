"""Command: the noise that a target needs on the user's records, for each shape."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from decimal import ROUND_FLOOR
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from leakbound import storage
from leakbound.accounting.leakage import Mechanism
from leakbound.accounting.risk import bound_text, naming_bound
from leakbound.accounting.statement import EQUAL_RECORDS, OWN_NOISE, Statement, state, upper_bound
from leakbound.channels.covariance import LARGE, Moments
from leakbound.commands import own_records, owners, record_options
from leakbound.commands.files import refusing
from leakbound.commands.guidance import write_guidance
from leakbound.commands.terminal import progress_bar, text_table
from leakbound.engine.calibrations import Calibration, OwnMoments, warn_of_records
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import Target
from leakbound.registry import SHAPES

if TYPE_CHECKING:
    from leakbound.records.collection import Collection

_SHAPES: tuple[record_options.Shape, ...] = ("natural", "white", "least_power", "rate_distortion")
_COLUMNS = {
    "shape": "shape",
    "std": "std",
    "std_least": "least",
    "std_largest": "largest",
    "capacity": "one copy",
    "values": "all copies",
    "record": "with label",
    "mse": "best MSE",
    "identification": "identified",
}


def calibrate_records(
    path: record_options.DataArgument,
    target_options: record_options.TargetOptions,
    *,
    shape: Annotated[
        record_options.Shape | None,
        typer.Option(help="Shape of the noise. Default: all shapes that need no box."),
    ] = None,
    box: record_options.BoxOption = None,
    public: record_options.PublicOption = None,
    accept_capacity: record_options.AcceptOption = None,
    reading: record_options.ReadingOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=record_options.path_of,
            help="Write the channel of one --shape to this safetensors file, and its spectrum next to it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Show how much noise a target needs and what the noisy records then leak. Choose exactly one target.

    Example: leakbound calibrate photos --target-leakage 4 --uses 50

    Example: leakbound calibrate photos --resize 32 --kappa 0.5 --shape natural --out
    channel.safetensors
    """
    target = own_records.target_of(target_options)
    if box is not None and shape is None:
        shape = "personalized"
    if out is not None:
        if shape is None:
            raise typer.BadParameter(f"--out {out}: a file holds one channel; give --shape, too")
        own_records.check_absent(out, _spectrum_of(out))
    owner = reading.owner
    uses = target_options.uses
    candidates = target_options.candidates
    private, public_records = own_records.read_both(path, public, reading)
    most = 1
    times = 1
    equal = 0
    if owner is None:
        equal = own_records.count_equal(private)
    else:
        most, times = owners.most_records(private.values, owners.owners_of(private, owner))
    if out is not None:
        private = _for_workflow(out, private)
        public_records = None if public_records is None else _for_workflow(out, public_records)
    weights = own_records.weights_of(box, shape or "natural", private)
    source = public_records or private
    own_records.check_reachable(target, source)
    # The channels, and what all copies behind each reveal.
    shapes = [shape] if shape else _SHAPES
    calibrations = _calibrate_shapes(shapes, source, target, weights, (most, times))
    label_nats = owners.label_nats(private, most if owner is not None else None)
    about: Any = {"labels": label_nats, "owned": owner is not None, "most": most}
    nats = [_counted_nats(each, uses, accept_capacity) for each in calibrations]
    about["uncovered"] = [OWN_NOISE] * (public_records is None) + [EQUAL_RECORDS] * (equal > 0)
    statements = [_state_copies(together, **about) for _, together in nats]
    counts: Any = (uses, candidates, most)
    made = zip(calibrations, (first for first, _ in nats), statements, strict=True)
    rows = [_row(*parts, private.unit, *counts) for parts in made]
    compared = None
    if public_records is not None:
        for row, calibration in zip(rows, calibrations, strict=True):
            row["own"], compared = _compare_with_public(
                calibration, private, uses, accept_capacity, required=shape is not None
            )
    if out is not None:
        _write(out, calibrations[0], covariance_of="members" if public_records is None else "aux")
    facts = {
        "releases_of_an_owner": None if owner is None else most,
        "target": {"kind": type(target).__name__, **asdict(target)},  # type: ignore[call-overload]
        "uses": uses,
        **_calibration_facts(calibrations[0].moments, private, public_records, compared),
        "candidates": candidates,
    }
    text = json.dumps({**facts, "shapes": rows}, indent=2) + "\n" if as_json else _table(facts, rows)
    sys.stdout.write(text)
    write_guidance(calibrations[0], target, source)


def _calibration_facts(
    moments: Moments, private: Collection, public_records: Collection | None, compared: int | None
) -> dict[str, Any]:
    """Return the facts about records and calibration that all channels share, as plain values."""
    return {
        "units": own_records.units(public_records or private),
        "records": moments.count,
        "compared": compared,
        "shrinkage": moments.shrinkage,
        "few_records": own_records.shrinkage_note(moments),
        "calibrated_to": own_records.calibration_source(public_records),
        "classes": private.counts,
        "mse_mean": private.unit**2 * moments.total_variance / moments.dimension,
    }


def _spectrum_of(out: Path) -> Path:
    """Return the file of the spectrum, next to that of the channel."""
    return out.parent / f"{out.stem}.spectrum.safetensors"


def _for_workflow(out: Path, collection: Collection) -> Collection:
    """Scale records for a channel of the workflow: images and standardized values to [-1, 1], others unchanged.

    Raises:
        BadParameter: If they are larger than the workflow allows.
    """
    from leakbound.records.tables import DEVIATIONS

    if (width := collection.values[0].size) > LARGE:
        raise typer.BadParameter(
            f"--out {out}: a record has {width} values, allowed are {LARGE} in a channel for the workflow: "
            "leave --out away, or give --resize 32"
        )
    if collection.scale is not None:
        scaled = np.clip(collection.values / np.float32(DEVIATIONS), -1, 1)
        return replace(collection, values=scaled, unit=DEVIATIONS)
    if not collection.pictures:
        return collection
    return replace(collection, values=2 * (collection.values * np.float32(collection.unit)) - 1, unit=0.5)


def _calibrate_shapes(
    shapes: Sequence[str],
    source: Collection,
    target: Target,
    weights: np.ndarray | None,
    releases: tuple[int, int],
) -> list[Calibration]:
    """Find the channel of least noise of each shape that meets the target, for all releases of an owner together.

    Raises:
        BadParameter: If a shape has none.
    """
    moments = own_records.moments_of(source)
    target = own_records.in_units(target, source)
    calibrations = []
    with progress_bar("calibrating", len(shapes)) as each:
        for name in shapes:
            shape = SHAPES.get(name)
            with refusing(target):
                spectrum = shape.decompose(moments, weights=weights)
                planned = owners.for_owners(target, source.values, name, weights, releases)
                calibrations.append(planned.solve(shape, spectrum, moments, planned.uses or 1))
            each(1)
    with own_records.command_line_warnings():
        warn_of_records(source.values, calibrations[0])
    return calibrations


def _compare_with_public(
    calibration: Calibration, private: Collection, uses: int, accepted: float | None, *, required: bool
) -> tuple[float | None, int]:
    """Compare the user's records with the public ones that a channel is calibrated to.

    Returns:
        Nats of all copies under the moments of the user's records, None without a bound, and how many different
        ones of them were compared.

    Raises:
        BadParameter: If ``protect`` would refuse these records and the user asked for this shape, which is
            ``required``. Of other shapes a warning says so.
    """
    values = private.values.reshape(len(private), -1)
    refused = ""
    try:
        compared = OwnMoments(calibration, uses, accepted)
    except GuaranteeError as error:
        raise typer.BadParameter(f"--{str(error).replace('_', '-', 1)}") from error
    with own_records.command_line_warnings():
        try:
            compared.check(compared.sample(values))
            calibration.check_directions(values)
        except GuaranteeError as error:
            reason = own_records.with_options(str(error))
            refused = f"{private.origin}: {calibration.channel.shape} noise: {reason}"
    if refused and required:
        raise typer.BadParameter(refused)
    if refused:
        own_records.warn(refused)
    capacity = compared.capacity
    if capacity is None:
        return None, 0
    return None if capacity.nats == math.inf else capacity.rounded, capacity.records


def _counted_nats(calibration: Calibration, uses: int, accepted: float | None) -> tuple[float, float]:
    """Bound the nats of one copy and of all copies of a record as an engine counts them, with what was accepted."""
    mechanism = Mechanism(calibration.channel.shape, calibration.ratios, uses, accepted)
    return mechanism.nats(1), mechanism.nats(uses)


def _state_copies(
    nats: float, *, labels: float | None, owned: bool, most: int, uncovered: Sequence[str]
) -> Statement:
    """State what all copies behind a channel reveal about a record, or about ``most`` records of an owner.

    Args:
        nats: Of all copies of a record.
        labels: Nats of labels, None without any.
        owned: Whether records have owners.
        most: Releases of an owner's records.
        uncovered: What of the copies no number covers.
    """
    return state(
        "all noisy copies",
        secure=True,
        labels="none" if labels is None else labels,
        added=most * nats,
        unit="owner" if owned else "record",
        group=most,
        uncovered=uncovered,
    )


def _row(
    calibration: Calibration,
    one_copy: float,
    statement: Statement,
    unit: float,
    uses: int,
    candidates: int,
    most: int,
) -> dict[str, Any]:
    """Return the facts of a channel after all uses, for whom leaks most, in the records' units."""
    std = own_records.deviations(calibration.channel)
    return {
        "shape": calibration.channel.shape,
        "std": unit * std["root_mean_square"],
        "std_least": unit * std["least"],
        "std_largest": unit * std["largest"],
        "capacity": one_copy,
        "values": statement.values,
        "record": statement.nats,
        # What the other records of an owner give away of one is not known.
        "mse": unit**2 * calibration.linear_error(uses) if most == 1 else None,
        "identification": naming_bound(statement.values, candidates),
        "statement": statement.numbers(),
    }


def _write(out: Path, calibration: Calibration, *, covariance_of: str) -> None:
    """Write a channel and its spectrum in the form of the workflow."""
    source = {"covariance_of": covariance_of}
    reached = {"reached": repr(calibration.information(1)), **source}
    spectrum = calibration.spectrum
    channel = calibration.channel
    with own_records.refuse_overwriting(out):
        storage.write_arrays(
            _spectrum_of(out), spectrum.arrays(), spectrum.metadata() | source, replace=False
        )
        storage.write_arrays(out, channel.arrays(), channel.metadata() | reached, replace=False)


def _table(facts: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Write the rows for people, and the meaning of their columns."""
    cells = []
    for row in rows:
        std = (f"{row[name]:.5g}" for name in ("std", "std_least", "std_largest"))
        nats = (upper_bound(row[name], 5) for name in ("capacity", "values", "record"))
        least_error = "-" if row["mse"] is None else bound_text(row["mse"], ROUND_FLOOR, 5)
        identified = record_options.limit_text(row["identification"])
        cells.append([row["shape"], *std, *nats, least_error, identified])
    private = [f"{row['shape']} {row['own']:g}" for row in rows if row.get("own")]
    lines = [
        "",
        *(f"leakage, {row['shape']}: {row['statement']['sentence']}" for row in rows),
        f"std: of the noise of a value, root mean square, least and largest; {facts['units']}",
        f"one copy, all copies: most nats that one noisy copy reveals about a record on average, and {facts['uses']} "
        "together; with label: plus its label, which is not protected"
        + (
            ""
            if facts["releases_of_an_owner"] is None
            else "; the last two for all records of one owner together"
        ),
        f"best MSE: squared error per value of the best linear estimate from all copies; guessing the mean "
        f"errs by {facts['mse_mean']:.5g}",
        "identified: largest probability of identifying a record among "
        f"{facts['candidates']} equally likely ones of its label",
        f"calibrated to {facts['records']} records, {facts['calibrated_to']}",
    ]
    if facts["few_records"]:
        lines.append(facts["few_records"])
    if facts["calibrated_to"] == own_records.calibration_source(None):
        lines.append(
            "no bound holds against whoever knows the other records; protect takes this as --calibrate-to-own"
        )
    if private:
        lines.append(
            f"all copies by the moments of {facts['compared']} different ones of your own records, for you alone: "
            f"{', '.join(private)}"
        )
    return text_table([list(_COLUMNS.values()), *cells]) + "\n".join(lines) + "\n"
