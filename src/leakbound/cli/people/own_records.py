"""Options of commands on records of one's own: the records, the public ones, the shape of noise and the target."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer
from jaxtyping import Float

from leakbound.cli.people.progress import counted

if TYPE_CHECKING:
    from leakbound.channels.channel import GaussianChannel
    from leakbound.datasets.collection import Collection
    from leakbound.engine.targets import Target

Shape = Literal["natural", "white", "personalized", "least_power", "rate_distortion"]
SCALE = "pixels from 0, black, to 1, white"
_WAYS = (
    "--kappa NATS, --target-leakage NATS[:USES], --target-mse ERROR[:USES] or "
    "--target-naming PROBABILITY:CANDIDATES[:USES]"
)
_BOX = re.compile(r"(\d{1,6}):(\d{1,6}),(\d{1,6}):(\d{1,6}),(.+)")


def path_of(text: str | Path) -> Path:
    """A path, which must not be empty: that would mean the folder one happens to be in.

    Raises:
        BadParameter: If it is empty or holds what no path can.
    """
    if not str(text).strip() or "\0" in str(text):
        raise typer.BadParameter(f"{text!r} is no path; name a file or folder, . for the one you are in")
    return Path(text)


DATA = "Folder with a subfolder of images for each class, Parquet file of images, or array .npy."
DataArgument = Annotated[Path, typer.Argument(parser=path_of, help=DATA)]
PublicOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        parser=path_of,
        help="Public records of the same law, of the same kinds, which the noise is calibrated to; calibrated to the "
        "given records it is a statistic of these.",
    ),
]
AcceptOption = Annotated[
    float | None,
    typer.Option(
        "--accept-capacity",
        metavar="NATS",
        help="What all planned copies together may reveal of a record by the moments of the given records; by default "
        "up to 25 % more than by those of the public ones.",
    ),
]
LabelOption = Annotated[str, typer.Option(help="Column of the labels, of Parquet files.")]
KappaOption = Annotated[
    str | None, typer.Option(metavar="NATS", help="Capacity: what one noisy copy tells of a record, at most.")
]
LeakageOption = Annotated[
    str | None,
    typer.Option(
        "--target-leakage", metavar="NATS[:USES]", help="What so many noisy copies tell together of a record, at most."
    ),
]
MseOption = Annotated[
    str | None,
    typer.Option(
        "--target-mse",
        metavar="ERROR[:USES]",
        help="Squared error per value that the best linear estimate of a record keeps at least: of images with pixels "
        "from 0 to 1, of arrays in their own units.",
    ),
]
NamingOption = Annotated[
    str | None,
    typer.Option(
        "--target-naming",
        metavar="PROBABILITY:CANDIDATES[:USES]",
        help="Probability of naming the true one of so many equally likely records, at most.",
    ),
]
BoxOption = Annotated[
    str | None,
    typer.Option(
        metavar="ROW:ROW,COLUMN:COLUMN,WEIGHT",
        help="Rectangle of the personalized shape, first row and column from 0 and those after the last, and its noise "
        "variance as a multiple of that elsewhere.",
    ),
]


def target_of(kappa: str | None, leakage: str | None, mse: str | None, naming: str | None) -> Target:
    """The target that the one of four options names.

    Raises:
        BadParameter: If there is none or several, or its text or a number in it is wrong.
    """
    from leakbound.engine.refusals import GuaranteeError
    from leakbound.engine.targets import Capacity, Leakage, Naming, Reconstruction

    options = {"--kappa": kappa, "--target-leakage": leakage, "--target-mse": mse, "--target-naming": naming}
    given = {name: text for name, text in options.items() if text is not None}
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise typer.BadParameter(f"the target is given by {found}: give exactly one of {_WAYS}")
    ((option, text),) = given.items()
    form = next(way for way in re.split(", | or ", _WAYS) if way.startswith(option))
    words = text.split(":")
    least, most = {"--kappa": (1, 1), "--target-naming": (2, 3)}.get(option, (1, 2))
    if not least <= len(words) <= most:
        raise typer.BadParameter(f"{option} {text!r}: give {form}")
    value = _number(option, text, words[0], form)
    counts = [_count(option, text, word, form) for word in words[1:]]
    try:
        if option == "--kappa":
            return Capacity(value)
        if option == "--target-naming":
            return Naming(value, counts[0], *(counts[1:] or [1]))
        return {"--target-leakage": Leakage, "--target-mse": Reconstruction}[option](value, *(counts or [1]))
    except GuaranteeError as error:
        raise typer.BadParameter(f"{option} {text!r}: {error}") from error


def weights_of(box: str | None, shape: str, collection: Collection) -> Float[np.ndarray, " d"] | None:
    """Weights of the personalized shape; None for any other one.

    Raises:
        BadParameter: If the shape and the box do not go together, or the box is none of the images.
    """
    if (box is not None) != (shape == "personalized"):
        raise typer.BadParameter(
            f"--shape {shape} and --box {box!r}: the shape personalized needs a box, and no other shape takes one"
        )
    if box is None:
        return None
    from leakbound.channels.weights import box_weights

    if not collection.pictures:
        raise typer.BadParameter(f"--box {box!r}: {collection.origin} holds no images; take another shape")
    found = _BOX.fullmatch(box)
    if found is None:
        raise typer.BadParameter(f"--box {box!r}: give ROW:ROW,COLUMN:COLUMN,WEIGHT, e.g. 0:16,0:32,5")
    top, bottom, left, right = map(int, found.groups()[:4])
    colors, tall, wide = collection.values.shape[1:]
    weight = _number("--box", box, found[5], "ROW:ROW,COLUMN:COLUMN,WEIGHT")
    try:
        return box_weights(colors, tall, wide, weight, (top, bottom), (left, right))
    except ValueError as error:
        raise typer.BadParameter(f"--box {box!r}: {error}") from error


def read_both(path: Path, public: Path | None, label: str) -> tuple[Collection, Collection | None]:
    """The records and the public ones, alike in form.

    Raises:
        BadParameter: If the public ones are the records themselves, or of another form or unit.
        DatasetError: If one of them cannot be read.
    """
    from leakbound.datasets.collection import read_collection

    if public is not None and public.exists() and path.exists() and public.samefile(path):
        raise typer.BadParameter(f"--public {public}: these are the records to protect; name others")
    with counted(f"reading {path}", None) as each:
        own = read_collection(path, label=label, each=each, fits=partial(_check_size, path))
    _check_law(own)
    if public is None:
        return own, None
    with counted(f"reading {public}", None) as each:
        known = read_collection(public, label=label, each=each, fits=partial(_check_size, public))
    if known.pictures != own.pictures or known.values.shape[1:] != own.values.shape[1:]:
        raise typer.BadParameter(
            f"--public {public}: holds {_form(known)}, {path} holds {_form(own)}; both need one form: convert one"
        )
    from leakbound.engine.record_uses import refuse_shared
    from leakbound.engine.refusals import GuaranteeError

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
    from leakbound.engine.targets import Reconstruction

    if isinstance(target, Reconstruction):
        blind = float(np.var(law.values, axis=0, dtype=np.float64).mean())
        if not target.mse < blind * (1 - 1e-6):
            raise typer.BadParameter(
                f"--target-mse {target.mse:g}: guessing the mean of {law.origin} already errs by {blind:.4g} per "
                "value; ask for less than that"
            )


def _check_size(origin: Path, shape: tuple[int, ...]) -> None:
    """Refuse records that are too large for a covariance."""
    import torch

    from leakbound.engine.records import Layout
    from leakbound.engine.refusals import GuaranteeError

    try:
        Layout.of(torch.zeros(()).expand(1, *shape))
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


@contextmanager
def warned() -> Iterator[None]:
    """Say warnings about the records as the command's other ones."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        text = str(one.message).replace("accept_capacity=", "--accept-capacity ")
        sys.stderr.write(f"leakbound: warning: {text}\n")


@contextmanager
def not_replaced(path: Path) -> Iterator[None]:
    """Turn a file that appeared meanwhile into an error.

    Raises:
        BadParameter: If there is one.
    """
    try:
        yield
    except FileExistsError as error:
        raise typer.BadParameter(
            f"--out {path}: has appeared meanwhile; name another file, nothing is overwritten"
        ) from error


def candidates(target: Target) -> int:
    """Number of candidates that the probability of naming is told for: that of the target, or a thousand."""
    return int(getattr(target, "candidates", 1000))


def deviations(channel: GaussianChannel) -> dict[str, float]:
    """Standard deviations of the noise of single values: root mean square, least and largest."""
    variances = channel.variances
    if channel.basis is not None:
        variances = np.square(channel.basis) @ variances
    found = np.sqrt(variances)
    return {
        "root_mean_square": float(np.sqrt(variances.mean())),
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


def _number(option: str, text: str, word: str, form: str) -> float:
    """A finite number."""
    try:
        value = float(word) if word.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise typer.BadParameter(f"{option} {text!r}: {word!r} is no finite number; give {form}")
    return value


def _count(option: str, text: str, word: str, form: str) -> int:
    """A whole number of at least 1."""
    if not (word.isascii() and word.isdigit() and len(word) <= 9 and int(word) >= 1):
        raise typer.BadParameter(f"{option} {text!r}: {word!r} is no whole number from 1 to 999999999; give {form}")
    return int(word)
