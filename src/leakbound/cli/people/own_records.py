"""Options of commands on records of one's own: the records, the public ones, the shape of noise and the target."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from jaxtyping import Float

from leakbound.cli.people.bars import counted
from leakbound.engine.record_uses import refuse_shared
from leakbound.engine.refusals import GuaranteeError
from leakbound.storage.replaced_folders import check_new

if TYPE_CHECKING:
    from leakbound.channels.channel import GaussianChannel
    from leakbound.datasets.collection import Collection
    from leakbound.datasets.pixels import PictureForm
    from leakbound.engine.targets import Target

Shape = Literal["natural", "white", "personalized", "least_power", "rate_distortion"]
SCALE = "pixels from 0, black, to 1, white"
MOST = 10**9
"""Most candidates, or planned uses."""


def path_of(text: str | Path) -> Path:
    """A path, which must not be empty: that would mean the folder one happens to be in.

    Raises:
        BadParameter: If it is empty or holds what no path can.
    """
    if not str(text).strip() or "\0" in str(text):
        raise typer.BadParameter(f"{text!r} is no path; name a file or folder, . for the one you are in")
    return Path(text)


DATA = "Folder of images, folder with a subfolder of images for each class, Parquet file of images, or array .npy."
DataArgument = Annotated[Path, typer.Argument(parser=path_of, help=DATA)]
PublicOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        parser=path_of,
        help="Public records, to which the noise is calibrated. They must have the distribution and the form of the "
        "private ones.",
    ),
]
AcceptOption = Annotated[
    float | None,
    typer.Option(
        "--accept-capacity",
        metavar="NATS",
        help="Largest leakage of all planned copies, in nats, for the covariance of your own records. Default: 25 % "
        "more than for the covariance of the public ones.",
    ),
]
LabelOption = Annotated[str, typer.Option(help="Column of the labels in a Parquet file or table.")]
ResizeOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=512,
        metavar="PIXELS",
        help="Crop each image to its largest centred square and resize it to so many pixels a side.",
    ),
]
ColorOption = Annotated[
    Literal["rgb", "gray"] | None,
    typer.Option(
        help="Convert images of all modes to this one: transparent images get a white background, 16 bits become 8. "
        "Default: take only 8-bit grey or RGB."
    ),
]
KappaOption = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        help="Largest number of nats that one noisy copy may reveal about a record (capacity).",
    ),
]
LeakageOption = Annotated[
    float | None,
    typer.Option(
        "--target-leakage",
        metavar="NATS",
        help="Largest number of nats that all --uses together may reveal about a record.",
    ),
]
MseOption = Annotated[
    float | None,
    typer.Option(
        "--target-mse",
        metavar="ERROR",
        help="Squared error per value that the best linear estimate from all --uses must keep. Units: pixels from 0 to "
        "1 for images, their own units for arrays.",
    ),
]
IdentificationOption = Annotated[
    float | None,
    typer.Option(
        "--target-identification",
        metavar="PROBABILITY",
        help="Largest probability of identifying a record among --candidates from all --uses.",
    ),
]
CandidatesOption = Annotated[
    int, typer.Option(min=2, max=MOST, help="Number of equally likely records, one of which is the true one.")
]
UsesOption = Annotated[
    int,
    typer.Option(
        min=1, max=MOST, help="Planned number of noisy copies of each record, each with fresh noise."
    ),
]
BoxOption = Annotated[
    tuple[int, int, int, int, float] | None,
    typer.Option(
        metavar="TOP BOTTOM LEFT RIGHT WEIGHT",
        help="Rectangle with more noise, for the personalized shape: first row, row after the last, first column, "
        "column after the last, and its noise variance as a multiple of the variance elsewhere.",
    ),
]


def target_of(
    kappa: float | None,
    leakage: float | None,
    mse: float | None,
    identification: float | None,
    candidates: int,
    uses: int,
) -> Target:
    """Build the target that exactly one of four options gives.

    Args:
        kappa: Nats of one use.
        leakage: Nats of all uses together.
        mse: Squared error per value that is left after all uses.
        identification: Probability of identifying a record after all uses.
        candidates: Number of records that identification is among.
        uses: Planned uses of each record.

    Raises:
        BadParameter: If none or several are given, or a number is out of range.
    """
    from leakbound.engine.targets import Capacity, Identification, Leakage, Reconstruction

    targets: dict[str, tuple[float | None, Callable[[float], Target]]] = {
        "--kappa": (kappa, partial(Capacity, uses=uses)),
        "--target-leakage": (leakage, partial(Leakage, uses=uses)),
        "--target-mse": (mse, partial(Reconstruction, uses=uses)),
        "--target-identification": (identification, partial(Identification, among=candidates, uses=uses)),
    }
    given = [option for option, (value, _) in targets.items() if value is not None]
    if len(given) != 1:
        raise typer.BadParameter(
            f"the target is given by {' and '.join(given) or 'none'}: give exactly one of {', '.join(targets)}"
        )
    value, target = targets[given[0]]
    try:
        return target(value)  # type: ignore[arg-type]
    except GuaranteeError as error:
        raise typer.BadParameter(f"{given[0]} {value:g}: {error}") from error


def weights_of(
    box: tuple[int, int, int, int, float] | None, shape: str, collection: Collection
) -> Float[np.ndarray, " d"] | None:
    """Compute the weights of the personalized shape; None for every other shape.

    Args:
        box: First row, row after the last, first column, column after the last, weight.
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
    from leakbound.channels.weights import box_weights

    if not collection.pictures:
        raise typer.BadParameter(f"--box: {collection.origin} holds no images; take another shape")
    colors, height, width = collection.values.shape[1:]
    try:
        return box_weights(colors, height, width, box[4], rows=box[:2], columns=box[2:4])
    except ValueError as error:
        raise typer.BadParameter(f"--box: {error}") from error


def read_both(
    path: Path, public: Path | None, label: str, form: PictureForm | None = None, *, labelled: bool = False
) -> tuple[Collection, Collection | None]:
    """The records and the public ones, alike in form.

    Args:
        path: The records.
        public: The public ones, if there are any.
        label: Column of the labels, of Parquet.
        form: Form that pictures are brought to, by default their own.
        labelled: Whether a folder needs a subfolder for each class.

    Raises:
        BadParameter: If the public ones are the records themselves, or of another form or unit.
        DatasetError: If one of them cannot be read.
    """
    from leakbound.datasets.collection import read_collection
    from leakbound.datasets.pixels import AS_STORED

    reading: dict[str, Any] = {"label": label, "form": form or AS_STORED, "labelled": labelled}
    if public is not None and public.exists() and path.exists() and public.samefile(path):
        raise typer.BadParameter(f"--public {public}: these are the records to protect; name others")
    with counted(f"reading {path}", None) as each:
        own = read_collection(path, **reading, each=each, fits=partial(_check_size, path, 1))
    _check_law(own)
    if public is None:
        _check_size(path, len(own), own.values.shape[1:])
        return own, None
    with counted(f"reading {public}", None) as each:
        known = read_collection(public, **reading, each=each, fits=partial(_check_size, public, 1))
    _check_size(public, len(known), known.values.shape[1:])
    if known.pictures != own.pictures or known.values.shape[1:] != own.values.shape[1:]:
        raise typer.BadParameter(
            f"--public {public}: holds {_form(known)}, {path} holds {_form(own)}; both need one form: convert one, or "
            "give --resize and --color"
        )
    try:
        refuse_shared(known.values.reshape(len(known), -1), own.values.reshape(len(own), -1))
    except GuaranteeError as error:
        raise typer.BadParameter(f"--public {public}: {error}") from error
    _check_law(known)
    if not own.pictures:
        _check_units(own, known)
    return own, known


def check_reachable(target: Target, law: Collection) -> None:
    """Refuse an error that guessing the mean has already.

    Raises:
        BadParameter: If the target asks for it.
    """
    from leakbound.channels.directions import blocks
    from leakbound.engine.targets import Reconstruction

    if isinstance(target, Reconstruction):
        flat = law.values.reshape(len(law), -1)
        parts = [flat[:, part].var(axis=0, dtype=np.float64) for part in blocks(*flat.shape)]
        blind = law.unit**2 * float(np.concatenate(parts).mean())
        if not target.mse < blind * (1 - 1e-6):
            raise typer.BadParameter(
                f"--target-mse {target.mse:g}: guessing the mean of {law.origin} already errs by {blind:.4g} per "
                "value; ask for less than that"
            )


def in_units(target: Target, records: Collection) -> Target:
    """A target in the units of the values of some records, of which an error alone depends.

    Args:
        target: As people give it, for images with pixels from 0 to 1.
        records: The records.
    """
    from leakbound.engine.targets import Reconstruction

    return replace(target, mse=target.mse / records.unit**2) if isinstance(target, Reconstruction) else target


def _check_size(origin: Path, count: int, shape: tuple[int, ...]) -> None:
    """Refuse records that are too large for a covariance."""
    from leakbound.engine.records import check_size

    try:
        check_size(count, math.prod(shape))
    except GuaranteeError as error:
        raise typer.BadParameter(f"{origin}: {error}") from error


def _check_law(collection: Collection) -> None:
    """Refuse records that are all equal."""
    if np.array_equal(collection.values.min(axis=0), collection.values.max(axis=0)):
        raise typer.BadParameter(
            f"{collection.origin}: all records are equal, so there is nothing to hide; give others"
        )


def _check_units(own: Collection, known: Collection) -> None:
    """Refuse arrays whose values lie farther outside of the public ones than half of their width."""
    low, high = float(known.values.min()), float(known.values.max())
    least, largest = float(own.values.min()), float(own.values.max())
    slack = 0.5 * (high - low)
    if least < low - slack or largest > high + slack:
        raise typer.BadParameter(
            f"--public {known.origin}: holds values from {low:g} to {high:g}, {own.origin} from {least:g} to "
            f"{largest:g}; allowed is half the width more on both sides: bring both into the same units"
        )


def with_options(message: str) -> str:
    """A message of the library with the names that the command line gives to its parameters."""
    return message.replace("accept_capacity=", "--accept-capacity ")


@contextmanager
def warned() -> Iterator[None]:
    """Write warnings about the records like all other warnings of the command line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        sys.stderr.write(f"leakbound: warning: {with_options(str(warning.message))}\n")


def check_new_folder(folder: Path) -> None:
    """Refuse an output folder that holds anything.

    Raises:
        BadParameter: If it does, or is no folder.
    """
    try:
        check_new(folder)
    except ValueError as error:
        raise typer.BadParameter(f"--out {error}") from error


def check_absent(path: Path) -> None:
    """Refuse to overwrite a file.

    Raises:
        BadParameter: If it exists.
    """
    if path.exists():
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


def units(collection: Collection) -> str:
    """Units of the values of some records."""
    return SCALE if collection.pictures else "units of the array"


def calibrated_to(public: Collection | None) -> str:
    """Records that the noise is calibrated to."""
    return "the records themselves" if public is None else "public records"


def deviations(channel: GaussianChannel) -> dict[str, float]:
    """Standard deviations of the noise of single values: root mean square, least and largest."""
    found = np.sqrt(channel.pixel_variances())
    return {
        "root_mean_square": float(np.sqrt(np.square(found).mean())),
        "least": float(found.min()),
        "largest": float(found.max()),
    }


def _form(collection: Collection) -> str:
    """Form of one record, in words."""
    shape = collection.values.shape[1:]
    if not collection.pictures:
        return f"arrays of shape {shape}"
    colors, tall, wide = shape
    return f"images of {tall}×{wide} with {colors} {'color' if colors == 1 else 'colors'}"
