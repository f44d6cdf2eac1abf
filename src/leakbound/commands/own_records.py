"""Options of commands on the user's records: private and public records, shape of noise, and target."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from jaxtyping import Float, Int

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments, population_moments
from leakbound.channels.directions import blocks
from leakbound.channels.shapes import box_weights
from leakbound.commands import owners
from leakbound.commands.files import check_outputs, refusing
from leakbound.commands.record_options import Box, ReadingOptions, TargetOptions
from leakbound.commands.terminal import progress_bar
from leakbound.engine.calibrations import Progress, unlike_units
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import Capacity, Identification, Leakage, Reconstruction, Target
from leakbound.records.pixels import PictureForm
from leakbound.storage.seals import check_new
from leakbound.words import shown

if TYPE_CHECKING:
    from leakbound.records.collection import Collection
    from leakbound.records.tables import Encoding

SCALE = "pixels from 0, black, to 1, white"
_FEW_RECORDS = 20  # fewer whole numbers are often all different
_MANY_EQUAL = 0.1  # of the records, above which values are few, and known by their frequency
_CLASSES = 20  # that are named with their counts
_STATES_OWN = "by the moments of"  # a warning that states the nats of private records
_OPTIONS = {
    "accept_capacity=": "--accept-capacity ",
    "calibrate_to_own=True": "--calibrate-to-own instead of --public",
    "by a target with records=": "by --owner",
}
"""Parameters of the library in its messages, and what they are on the command line."""
_OF_OWNERS = "are of one owner"  # a warning about plans, which commands make for owners themselves
_OWN = (
    "by the moments of the given records more is revealed than the target; how much is for their owner alone"
)
_FEW_LEVELS = 32  # of 256, below which pictures are nearly of one grey
_AS_STORED = ReadingOptions()


def target_of(options: TargetOptions) -> Target:
    """Build the target that exactly one of four options gives.

    Raises:
        BadParameter: If none or several are given, or a number is out of range.
    """
    uses = options.uses
    among = options.candidates
    targets: dict[str, tuple[float | None, Callable[[float], Target]]] = {
        "--kappa": (options.kappa, partial(Capacity, uses=uses)),
        "--target-leakage": (options.leakage, partial(Leakage, uses=uses)),
        "--target-mse": (options.mse, partial(Reconstruction, uses=uses)),
        "--target-identification": (options.identification, partial(Identification, among=among, uses=uses)),
    }
    option_names = [option for option, (value, _) in targets.items() if value is not None]
    if len(option_names) != 1:
        raise typer.BadParameter(
            f"the target is given by {' and '.join(option_names) or 'none'}: give exactly one of {', '.join(targets)}"
        )
    value, target = targets[option_names[0]]
    with refusing(f"{option_names[0]} {value:g}", GuaranteeError):
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


_warnings: ContextVar[list[str] | None] = ContextVar("warnings", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings that are written meanwhile, in the words that a file may hold."""
    said: list[str] = []
    token = _warnings.set(said)
    try:
        yield said
    finally:
        _warnings.reset(token)


def warn(text: str, filed: str | None = None) -> None:
    """Write a warning about the records.

    Args:
        text: For the owner alone, because it may state numbers of private records.
        filed: The same without such numbers, for a file that others see. None if there are none.
    """
    sys.stderr.write(f"leakbound: warning: {text}\n")
    if (said := _warnings.get()) is not None:
        said.append(filed or text)


def read_both(
    path: Path, public: Path | None, reading: ReadingOptions = _AS_STORED, *, labelled: bool = False
) -> tuple[Collection, Collection | None]:
    """Read the user's records and the public ones, which must have the same form.

    The records are compared in the units of their files, before anything is standardized: by the public records, or
    by the user's without public ones. Without the option, tables are standardized.

    Args:
        path: The user's records.
        public: Public records, if there are any. They determine categories and medians, too.
        reading: How both are read.
        labelled: Whether labels are needed.

    Raises:
        BadParameter: If the public records are the user's, or have another form or unit.
        DatasetError: If one of them cannot be read.
    """
    if public is not None and public.exists() and path.exists() and public.samefile(path):
        raise typer.BadParameter(f"--public {public}: these are the records to protect; name others")
    private, public_records = _read_each(path, public, reading, labelled=labelled)
    scaled = private.kind == "table" if reading.standardize is None else reading.standardize
    _warn_columns(private, scaled)
    if private.labels is not None and private.classes:
        table = private.kind == "table" and private.values.ndim == 2
        columns = dict(zip(private.names, private.values.T, strict=True)) if table else {}
        say_classes(path, private.classes, private.labels, columns)
    if public is None or public_records is None:
        _check_size(path, len(private), private.values.shape[1:])
        return private.standardized(private) if scaled else private, None
    _check_size(public, len(public_records), public_records.values.shape[1:])
    _check_forms(path, private, public, public_records)
    if scaled:
        private = private.standardized(public_records)
        public_records = public_records.standardized(public_records)
    _check_others(path, private, public, public_records)
    return private, public_records


def _check_others(path: Path, private: Collection, public: Path, public_records: Collection) -> None:
    """Check that public records are others than the user's, as all that protects them does.

    Raises:
        BadParameter: If they are the user's, or seem to be.
    """
    import torch

    from leakbound.engine.identity import Identity, PublicRecords

    values = torch.from_numpy(public_records.values)
    identity = Identity.new(values)
    others = PublicRecords(identity.contents(values), "--calibrate-to-own of protect, without --public")
    with refusing(f"{path} and --public {public}", GuaranteeError):
        others.refuse_many(identity.contents(torch.from_numpy(private.values)))


def _read_each(
    path: Path, public: Path | None, reading: ReadingOptions, *, labelled: bool
) -> tuple[Collection, Collection | None]:
    """Read both files, the public one first where it determines categories and medians.

    Columns that are left out, as that of the owners, are the private file's. The public one may lack them.
    """
    reading = owners.without_owner_column(path, reading)
    if public is None or not (reading.categories or reading.missing):
        private = _read(path, reading, labelled=labelled)
        return private, None if public is None else _read(public, reading, labelled=labelled, public=True)
    public_records = _read(public, reading, labelled=labelled, public=True)
    return _read(path, reading, labelled=labelled, encoding=public_records.encoding), public_records


def _check_forms(path: Path, private: Collection, public: Path, public_records: Collection) -> None:
    """Check that public records have the form, the columns and the units of the user's.

    Raises:
        BadParameter: If they do not.
    """
    if (
        public_records.pictures != private.pictures
        or public_records.values.shape[1:] != private.values.shape[1:]
    ):
        raise typer.BadParameter(
            f"--public {public}: holds {_form(public_records)}, {path} holds {_form(private)}; both need one form: "
            "convert one, or give --resize and --color"
        )
    if public_records.names != private.names and private.kind == public_records.kind == "table":
        raise typer.BadParameter(
            f"--public {public}: its columns are {shown(public_records.names)}, not {shown(private.names)}; both "
            "need the same in the same order"
        )
    if not private.pictures:
        _check_units(private, public_records)


def _read(
    path: Path,
    reading: ReadingOptions,
    *,
    labelled: bool,
    public: bool = False,
    encoding: Encoding | None = None,
) -> Collection:
    """Read records, and refuse those that cannot be calibrated to or hidden.

    Args:
        path: File or folder.
        reading: How they are read.
        labelled: Whether labels are needed.
        public: Whether they are public records: their options are those of the private ones, and were checked.
        encoding: That of the public records, which a table needs too.
    """
    if len(files := _shards(path)) > 1:
        sys.stderr.write(f"leakbound: {path}: one table in {len(files)} files, all of which are read\n")
    with progress_bar(f"reading {path}", None) as each:
        collection = read_as(
            path,
            reading,
            labelled=labelled,
            encoding=encoding,
            absent_ok=public,
            each=each,
            fits=partial(_check_size, path, 1),
        )
    if not public:
        _check_options(collection, reading)
    _check_varies(collection, reading.span)
    if collection.left_out:
        sys.stderr.write(
            f"leakbound: {path}: {collection.left_out} records lack something and are left out\n"
        )
    return collection


def read_as(path: Path, reading: ReadingOptions, **further: Any) -> Collection:
    """Read records as the options of a command say.

    Args:
        path: File or folder.
        reading: The options.
        further: Other parameters of :func:`leakbound.records.collection.read_collection`.

    Raises:
        DatasetError: If the records cannot be read.
    """
    from leakbound.records.collection import read_collection

    return read_collection(
        path,
        label=reading.label,
        image=reading.image,
        form=PictureForm(reading.resize, reading.color, reading.span),
        exclude=reading.exclude or (),
        categories=reading.categories or (),
        missing=reading.missing,
        **further,
    )


def _shards(path: Path) -> tuple[Path, ...]:
    """List the files of a table, none for other records."""
    from leakbound.storage.parquet import holds_shards, shards

    with refusing("DATA"):
        return shards(path) if holds_shards(path) or path.suffix.lower() == ".parquet" else ()


def say_classes(
    origin: Path | str,
    classes: Sequence[str],
    labels: Int[np.ndarray, " n"],
    columns: Mapping[str, np.ndarray],
) -> None:
    """Write the classes with their numbers of records, and warn of what is odd about them.

    Args:
        origin: File or folder.
        classes: Names of the classes.
        labels: Class of each record.
        columns: Values of a table by column.
    """
    from leakbound.records.tables import remarks

    numbers = np.bincount(labels, minlength=len(classes))
    counts = [f"{shown(name)} {count}" for name, count in zip(classes, numbers, strict=True)]
    rest = f" and {len(counts) - _CLASSES} more" if len(counts) > _CLASSES else ""
    sys.stderr.write(f"leakbound: {origin}: classes: {', '.join(counts[:_CLASSES])}{rest}\n")
    for remark in remarks(classes, labels, columns):
        warn(f"{origin}: {remark}")


def _check_options(private: Collection, reading: ReadingOptions) -> None:
    """Refuse options of pictures for other records, and the reverse."""
    pictures = {"--resize": reading.resize, "--color": reading.color, "--range": reading.span}
    tables = {
        "--exclude": reading.exclude or None,
        "--categories": reading.categories or None,
        "--missing": reading.missing,
    }
    foreign: dict[str, object] = dict(pictures)
    if private.pictures:
        foreign = {"--standardize": reading.standardize, **tables}
    elif private.kind == "array":
        foreign |= tables
    if unfit := [name for name, value in foreign.items() if value is not None]:
        raise typer.BadParameter(
            f"{' and '.join(unfit)}: {private.origin} holds {_form(private)}; leave it away"
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
            warn(
                f"{private.origin}: a different whole number for each record in "
                f"{', '.join(map(repr, numbers))}, as identifiers are. If so, leave it out: --exclude {numbers[0]}"
            )
    table = not private.pictures and flat.shape == private.values.shape
    if table and not scaled and (deviations := unlike_units(flat)) is not None:
        least, largest = deviations
        said = (
            "{}: standard deviations of columns are {}. Natural noise is the same for all: it covers some {}"
        )
        rest = "and hardly changes others. --standardize brings them into one unit"
        warn(
            said.format(private.origin, f"{least:.2g} to {largest:.2g}", rest),
            said.format(private.origin, "very different", rest),
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


def count_equal(private: Collection) -> int:
    """Count the records that equal an earlier one, and so have its copy. Warn where many do.

    Args:
        private: Records without owners.
    """
    from leakbound.records.records import first_copies

    count = len(private) - len(np.unique(first_copies(private.values)))
    if count > _MANY_EQUAL * len(private):
        warn(
            f"{private.origin}: {count} of {len(private)} records equal others and have the same noisy copy, by which "
            "whoever knows how frequent values are recognises them, whatever the noise: --owner gives each record a "
            "copy of its own, and counts all of them"
        )
    return count


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


def _check_varies(collection: Collection, span: tuple[int, int] | None) -> None:
    """Refuse records that are all equal, and pictures of 16 bits that were read as black. Warn about few levels."""
    low = collection.values.min(axis=0)
    high = collection.values.max(axis=0)
    if np.array_equal(low, high):
        raise typer.BadParameter(
            f"{collection.origin}: all records are equal, so there is nothing to hide; give others"
        )
    if not collection.pictures or (high.max() - low.min()) >= _FEW_LEVELS:
        return
    if collection.deep and span is None:
        raise typer.BadParameter(
            f"{collection.origin}: the files hold 16 bits, of which so few are used that all pictures are nearly of "
            "one grey: give --range with the levels that are black and white, e.g. 0 4095 for the 12 bits of an X-ray"
        )
    warn(
        f"{collection.origin}: all levels are between {low.min()} and {high.max()} of 255",
        f"{collection.origin}: all levels lie within {_FEW_LEVELS} of 256",
    )


def _check_units(private: Collection, public: Collection) -> None:
    """Refuse values that exceed the range of the public ones by more than half of its width, in the files' units."""
    low = float(public.values.min())
    high = float(public.values.max())
    least = float(private.values.min())
    largest = float(private.values.max())
    slack = 0.5 * (high - low)
    if least < low - slack or largest > high + slack:
        raise typer.BadParameter(
            f"--public {public.origin}: holds values from {low:g} to {high:g}, {private.origin} from {least:g} to "
            f"{largest:g}, in the units of the files; allowed is half the width more on both sides: bring both into "
            "the same units"
        )


def with_options(message: str) -> str:
    """Replace parameters of the library in a message by options of the command line."""
    for parameter, option in _OPTIONS.items():
        message = message.replace(parameter, option)
    return message


@contextmanager
def command_line_warnings() -> Iterator[None]:
    """Write warnings about the records in the form of the command line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(with_options(str(warning.message)) for warning in caught):
        if _OF_OWNERS not in text:
            warn(text, _OWN if _STATES_OWN in text else None)


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
def refuse_overwriting(path: Path) -> Iterator[None]:
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


def percent(share: float) -> str:
    """Write a share in percent, with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def shrinkage_note(moments: Moments) -> str | None:
    """Say what few records mean for a covariance, None if they are not few."""
    if not moments.shrinkage:
        return None
    return (
        f"{percent(moments.shrinkage)} of their variance is spread evenly over all directions, "
        f"because {moments.count} records of {moments.dimension} values do not show how else it is spread: "
        "if more records do, less noise is enough"
    )


def calibration_source(public: Collection | None) -> str:
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
