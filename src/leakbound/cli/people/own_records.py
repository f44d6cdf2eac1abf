"""Options of commands on the user's records: private and public records, shape of noise, and target."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from jaxtyping import Float

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments, population_moments
from leakbound.channels.directions import blocks
from leakbound.channels.shapes import box_weights
from leakbound.cli.inputs import check_outputs, refusing
from leakbound.cli.people.record_options import Box, Form, Given
from leakbound.cli.terminal import counted
from leakbound.config.messages import shown
from leakbound.datasets.pixels import PictureForm
from leakbound.engine.calibrations import Progress, unlike_units
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import Capacity, Identification, Leakage, Reconstruction, Target
from leakbound.storage.seals import check_new

if TYPE_CHECKING:
    from leakbound.datasets.collection import Collection

SCALE = "pixels from 0, black, to 1, white"
_FEW_RECORDS = 20  # fewer whole numbers are often all different
_FEW_LEVELS = 32  # of 256, below which pictures are nearly of one grey


def target_of(
    kappa: Given, leakage: Given, mse: Given, identification: Given, candidates: int, uses: int
) -> Target:
    """Build the target that exactly one of four options gives.

    Args:
        kappa: Nats of one use.
        leakage: Nats of all uses together.
        mse: Squared error per value that remains after all uses.
        identification: Probability of identifying a record after all uses.
        candidates: Number of records that identification is among.
        uses: Planned uses of each record.

    Raises:
        BadParameter: If none or several are given, or a number is out of range.
    """
    targets: dict[str, tuple[Given, Callable[[float], Target]]] = {
        "--kappa": (kappa, partial(Capacity, uses=uses)),
        "--target-leakage": (leakage, partial(Leakage, uses=uses)),
        "--target-mse": (mse, partial(Reconstruction, uses=uses)),
        "--target-identification": (identification, partial(Identification, among=candidates, uses=uses)),
    }
    chosen = [option for option, (value, _) in targets.items() if value is not None]
    if len(chosen) != 1:
        raise typer.BadParameter(
            f"the target is given by {' and '.join(chosen) or 'none'}: give exactly one of {', '.join(targets)}"
        )
    value, target = targets[chosen[0]]
    with refusing(f"{chosen[0]} {value:g}", GuaranteeError):
        return target(value)  # type: ignore[arg-type]


def weights_of(box: Box, shape: str, collection: Collection) -> Float[np.ndarray, " d"] | None:
    """Compute the weights of the personalized shape. Other shapes have none.

    Args:
        box: Rectangle with more noise.
        shape: Shape of the noise.
        collection: Records that the noise is for.

    Raises:
        BadParameter: If shape and box do not go together, or the box does not fit the images.
    """
    if (box is not None) != (shape == "personalized"):
        raise typer.BadParameter(
            f"--shape {shape} and --box {box}: the shape personalized needs a box, and no other shape takes one"
        )
    if box is None:
        return None
    if not collection.pictures:
        raise typer.BadParameter(f"--box: {collection.origin} holds no images; take another shape")
    colors, height, width = collection.values.shape[1:]
    with refusing("--box"):
        return box_weights(colors, height, width, box[4], rows=box[:2], columns=box[2:4])


def read_both(
    path: Path, public: Path | None, form: Form, standardize: bool | None = None, **reading: Any
) -> tuple[Collection, Collection | None]:
    """Read the user's records and the public ones, which must have the same form.

    Args:
        path: The user's records.
        public: Public records, if there are any.
        form: What pictures are converted to.
        standardize: Whether values are standardized by the public records, or by the user's without public
            ones. None for those of tables.
        reading: Further parameters of :func:`leakbound.datasets.collection.read_collection`.

    Raises:
        BadParameter: If the public records are the user's, or have another form or unit.
        DatasetError: If one of them cannot be read.
    """
    from leakbound.datasets.collection import read_collection

    reading |= {"form": PictureForm(*form), "exclude": reading.get("exclude") or ()}
    if public is not None and public.exists() and path.exists() and public.samefile(path):
        raise typer.BadParameter(f"--public {public}: these are the records to protect; name others")
    with counted(f"reading {path}", None) as each:
        private = read_collection(path, **reading, each=each, fits=partial(_check_size, path, 1))
    _check_options(private, form, standardize, reading["exclude"])
    _check_varies(private)
    scaled = private.kind == "table" if standardize is None else standardize
    _warn_columns(private, scaled)
    if public is None:
        _check_size(path, len(private), private.values.shape[1:])
        return private.standardized(private) if scaled else private, None
    with counted(f"reading {public}", None) as each:
        others = read_collection(public, **reading, each=each, fits=partial(_check_size, public, 1))
    _check_size(public, len(others), others.values.shape[1:])
    if others.pictures != private.pictures or others.values.shape[1:] != private.values.shape[1:]:
        raise typer.BadParameter(
            f"--public {public}: holds {_form(others)}, {path} holds {_form(private)}; both need one form: "
            "convert one, or give --resize and --color"
        )
    if others.names != private.names and private.kind == others.kind == "table":
        raise typer.BadParameter(
            f"--public {public}: its columns are {shown(others.names)}, not {shown(private.names)}; both "
            "need the same in the same order"
        )
    if scaled:
        private, others = private.standardized(others), others.standardized(others)
    from leakbound.engine.identity import refuse_shared

    with refusing(f"--public {public}", GuaranteeError):
        refuse_shared(others.values.reshape(len(others), -1), private.values.reshape(len(private), -1))
    _check_varies(others)
    if not private.pictures:
        _check_units(private, others)
    return private, others


def _check_options(private: Collection, form: Form, standardize: bool | None, exclude: Any) -> None:
    """Refuse options of pictures for other records, and the reverse."""
    pictures = ("--resize", "--color", "--range")
    options = dict(zip(pictures, form, strict=True))
    options |= {"--standardize": standardize, "--exclude": exclude or None}
    names = ["--standardize", "--exclude"] if private.pictures else [*pictures]
    names += ["--exclude"] if private.kind == "array" else []
    if wrong := [name for name in names if options[name] is not None]:
        raise typer.BadParameter(
            f"{' and '.join(wrong)}: {private.origin} holds {_form(private)}; leave it away"
        )


def _warn_columns(private: Collection, scaled: bool) -> None:
    """Warn about columns that look like identifiers, and about values that equal noise hides unequally."""
    flat = private.values.reshape(len(private), -1)
    if private.kind == "table" and len(flat) >= _FEW_RECORDS:
        whole = (flat == np.rint(flat)).all(axis=0)
        alone = [
            name for name, column in zip(private.names, flat.T, strict=True) if len({*column}) == len(flat)
        ]
        if numbers := [name for name in alone if whole[private.names.index(name)]]:
            sys.stderr.write(
                f"leakbound: warning: {private.origin}: a different whole number for each record in "
                f"{', '.join(map(repr, numbers))}, as identifiers are. If so, leave it out: --exclude {numbers[0]}\n"
            )
    table = not private.pictures and flat.shape == private.values.shape
    if table and not scaled and (deviations := unlike_units(flat)) is not None:
        least, largest = deviations
        sys.stderr.write(
            f"leakbound: warning: {private.origin}: standard deviations of columns are {least:.2g} to {largest:.2g}. "
            "Natural noise is the same for all: it covers some and hardly changes others. "
            "--standardize brings them into one unit\n"
        )


def check_reachable(target: Target, source: Collection) -> None:
    """Refuse a reconstruction error that guessing the mean has already.

    Args:
        target: Target of the calibration.
        source: Records that the noise is calibrated to.

    Raises:
        BadParameter: If the target requires such an error.
    """
    if isinstance(target, Reconstruction):
        flat = source.values.reshape(len(source), -1)
        variances = [flat[:, part].var(axis=0, dtype=np.float64) for part in blocks(*flat.shape)]
        blind = source.unit**2 * float(np.concatenate(variances).mean())
        if not target.mse < blind * (1 - 1e-6):
            raise typer.BadParameter(
                f"--target-mse {target.mse:g}: guessing the mean of {source.origin} already errs by {blind:.4g} per "
                "value; ask for less than that"
            )


def in_units(target: Target, records: Collection) -> Target:
    """Convert a target to the units of the values of some records. Only errors depend on units.

    Args:
        target: Target as the user gives it, with pixels from 0 to 1 for images.
        records: The records.
    """
    return replace(target, mse=target.mse / records.unit**2) if isinstance(target, Reconstruction) else target


def _check_size(origin: Path, count: int, shape: tuple[int, ...]) -> None:
    """Refuse records that are too large for a covariance."""
    from leakbound.engine.records import check_size

    with refusing(origin, GuaranteeError):
        check_size(count, math.prod(shape))


def _check_varies(collection: Collection) -> None:
    """Refuse records that are all equal, and warn about pictures with few of the 256 levels."""
    low = collection.values.min(axis=0)
    high = collection.values.max(axis=0)
    if np.array_equal(low, high):
        raise typer.BadParameter(
            f"{collection.origin}: all records are equal, so there is nothing to hide; give others"
        )
    if collection.pictures and (high.max() - low.min()) < _FEW_LEVELS:
        sys.stderr.write(
            f"leakbound: warning: {collection.origin}: all levels are between {low.min()} and {high.max()} of 255. If "
            "the files hold 16 bits of which few are used, give --range, e.g. 0 4095 for the 12 bits of an X-ray\n"
        )


def _check_units(private: Collection, public: Collection) -> None:
    """Refuse arrays that exceed the range of the public values by more than half of its width."""
    low, high = float(public.values.min()), float(public.values.max())
    least, largest = float(private.values.min()), float(private.values.max())
    slack = 0.5 * (high - low)
    if least < low - slack or largest > high + slack:
        raise typer.BadParameter(
            f"--public {public.origin}: holds values from {low:g} to {high:g}, {private.origin} from {least:g} to "
            f"{largest:g}; allowed is half the width more on both sides: bring both into the same units"
        )


def with_options(message: str) -> str:
    """Replace parameters of the library in a message by options of the command line."""
    return message.replace("accept_capacity=", "--accept-capacity ")


@contextmanager
def warned() -> Iterator[None]:
    """Write warnings about the records in the form of the command line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        sys.stderr.write(f"leakbound: warning: {with_options(str(warning.message))}\n")


def check_new_folder(folder: Path) -> None:
    """Refuse an output folder that is not empty.

    Raises:
        BadParameter: If it contains anything, or is no folder.
    """
    with refusing("--out"):
        check_new(folder)


def check_absent(*paths: Path) -> None:
    """Refuse to overwrite a file, and outputs that cannot be written.

    Raises:
        BadParameter: If one exists, or cannot be written.
    """
    check_outputs(*paths)
    for path in filter(Path.exists, paths):
        raise typer.BadParameter(f"--out {path}: is there already; name another file, nothing is overwritten")


@contextmanager
def not_replaced(path: Path) -> Iterator[None]:
    """Refuse a file that has appeared since :func:`check_absent`.

    Raises:
        BadParameter: If there is one.
    """
    try:
        yield
    except FileExistsError as error:
        raise typer.BadParameter(
            f"--out {path}: has appeared meanwhile; name another file, nothing is overwritten"
        ) from error


def moments_of(collection: Collection) -> Moments:
    """Estimate mean and covariance of the population of some records, with progress if that takes long."""
    progress = Progress(len(collection), collection.values[0].size)
    moments = population_moments(collection.values, progress)
    progress("covariance done", 1.0)
    return moments


def units(collection: Collection) -> str:
    """Return the units of the values of some records."""
    if collection.scale is not None:
        return "standard deviations"
    return SCALE if collection.pictures else f"units of the {collection.kind}"


def calibrated_to(public: Collection | None) -> str:
    """Describe the records that the noise is calibrated to."""
    return "the records themselves" if public is None else "public records"


def deviations(channel: GaussianChannel) -> dict[str, float]:
    """Compute standard deviations of the noise of single values: root mean square, least and largest."""
    std = np.sqrt(channel.pixel_variances())
    return {
        "root_mean_square": float(np.sqrt(np.square(std).mean())),
        "least": float(std.min()),
        "largest": float(std.max()),
    }


def _form(collection: Collection) -> str:
    """Describe the form of one record."""
    shape = collection.values.shape[1:]
    if not collection.pictures:
        return f"{'a table' if collection.kind == 'table' else 'arrays'} of shape {shape}"
    colors, tall, wide = shape
    return f"images of {tall}×{wide} with {colors} {'color' if colors == 1 else 'colors'}"
