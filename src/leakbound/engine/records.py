"""Records of any loader: the input in a tuple or mapping, its layout, and where records come from.

A random transform before the channel shows another version of a record at each use. Precisions of noise then
do not add up on one record, and what k uses reveal is no longer what an accountant of channels computes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.masked import MaskedTensor
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset

from leakbound.channels.covariance import DENSE, FEW, LARGEST
from leakbound.engine.refusals import GuaranteeError
from leakbound.records.token_ids import are_token_ids

Key = str | int | None
_SPARSE = "an input is sparse ({}), and noise leaves no value 0: give it as a dense one, {}()"
_MASKED = "an input has masked places, and what lies under a mask is no value: give filled ones, e.g. {}(0)"
_SLACK = 0.5  # of the calibrated width, that values may lie outside of it where no range was given
_RANDOM = re.compile(
    r"Random|Jitter|Augment|AugMix|MixUp|Mixup|CutMix|Cutout|Erasing|Elastic|GaussianNoise|Dropout"
)
_PLACES = ("transform", "transforms", "dataset", "datasets", "augmentations")
_DEPTH = 6
_RECORDS = 3  # that are read again
_READS = 3


@dataclass(frozen=True)
class Layout:
    """Form of the input of each record that a channel was calibrated for.

    Attributes:
        shape: Shape of one input, without the axis of the batch.
        integers: Whether values are whole numbers, e.g. bytes of pixels, and not floating point.
        low: Least value that is allowed.
        high: Largest value that is allowed.
    """

    shape: tuple[int, ...]
    integers: bool
    low: float
    high: float

    @classmethod
    def of(cls, inputs: Tensor, value_range: tuple[float | int, float | int] | None = None) -> Layout:
        """Find the layout of inputs (n, ...).

        Without a range, values may lie half their width outside of those that are seen.

        Raises:
            GuaranteeError: If there are no values, too many, values that are not finite, some outside of the
                range, or sequences of token ids.
        """
        shape = tuple(inputs.shape[1:])
        if not inputs.numel():
            raise GuaranteeError(
                f"inputs of shape {tuple(inputs.shape)} hold nothing: give at least two records"
            )
        check_size(len(inputs), math.prod(shape))
        low, high = (float(bound) for bound in inputs.aminmax())  # NaN if one is
        if not (math.isfinite(low) and math.isfinite(high)):
            raise GuaranteeError("a value is NaN or infinite: clean the calibration data")
        if len(shape) == 1 and are_token_ids(inputs.numpy()):
            raise GuaranteeError(
                f"whole numbers from {low:g} to {high:g} in {shape[0]} places look like token ids, and noise on an id "
                "means nothing: embed them first and protect the vectors; if they are measurements, give them as floats"
            )
        if value_range is None:
            slack = _SLACK * (high - low)
            return cls(shape, is_whole(inputs), low - slack, high + slack)
        if not value_range[0] <= low <= high <= value_range[1]:
            raise GuaranteeError(
                f"values from {low:g} to {high:g} leave value_range = {value_range}: widen it"
            )
        return cls(shape, is_whole(inputs), float(value_range[0]), float(value_range[1]))

    def fits(self, inputs: Tensor) -> bool:
        """Return whether :meth:`check` accepts inputs (batch, ...)."""
        try:
            self.check(inputs)
        except GuaranteeError:
            return False
        return True

    def check(self, inputs: Tensor) -> None:
        """Refuse inputs (batch, ...) of another form.

        Raises:
            GuaranteeError: If shape, kind of numbers or range differ.
        """
        if tuple(inputs.shape[1:]) != self.shape:
            raise GuaranteeError(
                f"an input has the shape {tuple(inputs.shape[1:])}, the channel was calibrated for {self.shape}: bring "
                "both into one form before for_data and protect"
            )
        if is_whole(inputs) != self.integers:
            kinds = ("whole numbers", "floating point")
            raise GuaranteeError(
                f"inputs are {kinds[not is_whole(inputs)]} ({inputs.dtype}), the channel was calibrated on "
                f"{kinds[not self.integers]}: convert and scale both alike before for_data and protect"
            )
        if not inputs.numel():
            return
        low, high = (float(bound) for bound in inputs.aminmax())  # NaN if one is
        if not (math.isfinite(low) and math.isfinite(high)):
            raise GuaranteeError("an input holds NaN or infinity: clean the data before protecting it")
        if low < self.low or high > self.high:
            raise GuaranteeError(
                f"values from {low:g} to {high:g} leave the range from {self.low:g} to {self.high:g} that the channel "
                "was calibrated for: scale the data as the calibration data were; only if they are, widen value_range"
            )


def check_size(count: int, width: int) -> None:
    """Refuse calibration data that are too large.

    Args:
        count: Number of records.
        width: Values of each.

    Raises:
        GuaranteeError: If a record has more than 786,432 values (512×512×3), or more than 20,000 and there
            are more than 5,000 records.
    """
    if width > LARGEST:
        raise GuaranteeError(
            f"a record has {width} values: make it smaller before the channel, to at most {LARGEST} values, 512×512×3"
        )
    if width > DENSE and count > FEW:
        raise GuaranteeError(
            f"{count} records of {width} values: of more than {DENSE} values a channel is calibrated to at most {FEW} "
            "records: give fewer, or make them smaller"
        )


def is_whole(inputs: Tensor) -> bool:
    """Return whether inputs are whole numbers or truth values."""
    return not (inputs.is_floating_point() or inputs.is_complex())


def as_tensor(value: Any) -> Tensor:
    """Convert a tensor, array, picture (PIL) or nested list to a tensor on the CPU.

    Raises:
        GuaranteeError: If it holds no real numbers.
    """
    if value is None:
        raise GuaranteeError(
            "a record, or its input, is None: leave such records out of the dataset, e.g. by torch.utils.data.Subset; "
            "a collate function that drops them comes after the channel"
        )
    if isinstance(value, Tensor):
        tensor = _strided(value)
    else:
        check_dense(value)
        try:
            tensor = torch.from_numpy(np.array(value))
        except (TypeError, ValueError):
            raise GuaranteeError(
                f"an input of type {type(value).__name__} is no array of numbers: give `key`, the place of the input"
            ) from None
    if tensor.is_complex():
        raise GuaranteeError("an input holds complex numbers: give their real and imaginary parts")
    kind = tensor.dtype
    if kind == torch.bool:
        return tensor.to(torch.uint8)
    if kind.is_floating_point:
        return tensor.to(torch.float32) if kind.itemsize < torch.float32.itemsize else tensor
    return tensor if kind.is_signed or kind == torch.uint8 else tensor.to(torch.int64)


def check_dense(value: Any) -> None:
    """Refuse what NumPy would read without a word of places that hold no value.

    Raises:
        GuaranteeError: If it is a sparse matrix of SciPy or an array with masked places.
    """
    if callable(getattr(value, "toarray", None)):
        raise GuaranteeError(_SPARSE.format(type(value).__name__, "toarray"))
    if np.ma.is_masked(value):
        raise GuaranteeError(_MASKED.format("filled"))


def _strided(tensor: Tensor) -> Tensor:
    """Return a tensor as one on the CPU that holds each of its values in memory.

    Raises:
        GuaranteeError: If it is sparse, nested, masked or without values.
    """
    if tensor.is_nested:
        raise GuaranteeError(
            "an input is a nested tensor: give records of one shape, e.g. to_padded_tensor(0)"
        )
    if tensor.layout is not torch.strided:
        raise GuaranteeError(_SPARSE.format(tensor.layout, "to_dense"))
    if tensor.is_meta:
        raise GuaranteeError("an input is on the device meta, which holds no values: load the data first")
    if isinstance(tensor, MaskedTensor):
        raise GuaranteeError(_MASKED.format("to_tensor"))
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def input_of(record: Any, key: Key) -> Tensor:
    """Return the input inside a record, where :func:`_raw_input` finds it, as a tensor on the CPU."""
    return as_tensor(_raw_input(record, key))


def inputs_of(records: Sequence[Any], key: Key) -> Tensor | list[Tensor]:
    """Return the inputs inside records, as one tensor (batch, ...) where they are of one form.

    Tensors are stacked first, so that one check is enough for all of them.
    """
    values = [_raw_input(record, key) for record in records]
    dense = all(
        type(value) is Tensor and value.layout is torch.strided and not value.is_nested for value in values
    )
    if dense and _of_one_form(values):
        return as_tensor(torch.stack(values))
    values = [as_tensor(value) for value in values]
    return torch.stack(values) if _of_one_form(values) else values


def _of_one_form(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors, of which there are some, have one shape and type of numbers on one device."""
    return len({(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors}) == 1


def _raw_input(record: Any, key: Key) -> Any:
    """Return the input inside a record as it is: the record, or what lies at ``key``, by default the first of a tuple.

    Raises:
        GuaranteeError: If the key is missing or leads nowhere.
    """
    if key is None and type(record) is tuple and record:  # the usual form
        return record[0]
    if isinstance(record, Mapping):
        if key not in record:
            raise GuaranteeError(
                f"a record has the keys {', '.join(map(repr, record))}: give one as key, not {key!r}"
            )
        return record[key]
    if not _is_tuple(record):
        if key is not None:
            raise GuaranteeError(f"key = {key!r}: a record is one {type(record).__name__}, so leave key out")
        return record
    if isinstance(key, str) and hasattr(record, "_fields"):
        if key not in record._fields:
            raise GuaranteeError(
                f"a record has the fields {', '.join(record._fields)}: give one as key, not {key!r}"
            )
        return getattr(record, key)
    place = 0 if key is None else key
    if not isinstance(place, int) or not 0 <= place < len(record):
        raise GuaranteeError(
            f"a record has {len(record)} places: give key as 0 to {len(record) - 1}, not {key!r}"
        )
    return record[place]


def with_input(record: Any, key: Key, value: Any) -> Any:
    """Return a record with another input in place of the one of :func:`_raw_input`. Mappings become dictionaries."""
    if type(record) is tuple:
        at = key if isinstance(key, int) else 0
        return (*record[:at], value, *record[at + 1 :])
    if isinstance(record, Mapping):
        return {**record, key: value}
    if not _is_tuple(record):
        return value
    if hasattr(record, "_fields"):
        name = key if isinstance(key, str) else record._fields[key or 0]
        return record._replace(**{name: value})
    parts = list(record)
    parts[key if isinstance(key, int) else 0] = value
    return parts if isinstance(record, list) else tuple(parts)


def read_inputs(data: Any, key: Key = None) -> Tensor:
    """Read the inputs (n, ...) of an array, a tensor, a map-style dataset, or the dataset of a loader.

    Raises:
        GuaranteeError: If the records cannot be counted or read, or differ in shape.
    """
    if isinstance(data, Tensor | np.ndarray):
        if key is not None:
            raise GuaranteeError(f"key = {key!r}: an array of inputs has no other place, so leave key out")
        return as_tensor(data)
    records = dataset_of(data)
    inputs = [input_of(records[index], key) for index in range(len(records))]
    if shapes := {tuple(value.shape) for value in inputs if value.shape != inputs[0].shape}:
        raise GuaranteeError(
            f"inputs have the shapes {tuple(inputs[0].shape)} and {min(shapes)}: bring all to one before the channel"
        )
    if not inputs:
        raise GuaranteeError("the calibration data hold no record: give at least two")
    return torch.stack(inputs)


def dataset_of(data: Any) -> Any:
    """Return the map-style dataset itself, or the one that a loader reads.

    Raises:
        GuaranteeError: If it has no length or no records by index, or is sparse.
    """
    dataset = data.dataset if isinstance(data, DataLoader) else data
    check_dense(dataset)
    if isinstance(dataset, IterableDataset) or not (
        isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")
    ):
        raise GuaranteeError(
            f"{type(dataset).__name__} has no records by index, so their uses cannot be counted: "
            "use a map-style dataset"
        )
    return dataset


def _is_tuple(record: Any) -> bool:
    """Return whether a record has several places. A list of numbers is one input."""
    return isinstance(record, tuple) or (
        isinstance(record, Sequence) and not isinstance(record, str | bytes) and not is_numbers(record)
    )


def is_numbers(record: Sequence[Any]) -> bool:
    """Return whether a list holds numbers, or lists of numbers of equal length."""
    return all(isinstance(part, int | float) for part in record) or all(
        isinstance(part, Sequence) and not isinstance(part, str) and is_numbers(part) for part in record
    )


@dataclass(frozen=True)
class Places:
    """Origin of each record of a dataset, so that it is recognised whichever loader reads it.

    Attributes:
        bases: Collections that records come from, none of them a part of another dataset.
        which: (positions,) number of the collection, for each position of the dataset.
        records: (positions,) index inside the collection.
    """

    bases: tuple[Any, ...]
    which: Int[np.ndarray, " positions"]
    records: Int[np.ndarray, " positions"]

    @classmethod
    def of(cls, dataset: Any) -> Places:
        """Find the origins of a dataset's records, through ``Subset`` and ``ConcatDataset``."""
        if isinstance(dataset, Subset):
            inner = cls.of(dataset.dataset)
            chosen = np.asarray(dataset.indices, dtype=np.int64)
            return cls(inner.bases, inner.which[chosen], inner.records[chosen])
        if not isinstance(dataset, ConcatDataset):
            size = len(dataset)
            return cls((dataset,), np.zeros(size, dtype=np.int64), np.arange(size, dtype=np.int64))
        bases: list[Any] = []
        which = []
        records = []
        for part in map(cls.of, dataset.datasets):
            bases += [base for base in part.bases if not any(base is other for other in bases)]
            numbers = [next(at for at, other in enumerate(bases) if other is base) for base in part.bases]
            which.append(np.array(numbers, dtype=np.int64)[part.which])
            records.append(part.records)
        return cls(tuple(bases), np.concatenate(which), np.concatenate(records))


def refuse_random(dataset: Any, key: Key) -> None:
    """Refuse a dataset whose records are not the same at each reading.

    Names of transforms are looked through, as torchvision and others give them, and a few records are read
    several times. Randomness that neither shows is caught at a record's second use
    (:meth:`leakbound.engine.counted_records.CountedRecords.check_same`).

    Raises:
        GuaranteeError: If a transform is named as random ones are, or a record differs between two readings.
    """
    if (name := next(_random_names(dataset, _DEPTH), None)) is not None:
        raise GuaranteeError(
            f"{name} acts before the channel, so that each use shows another version of a record: move it behind the "
            "channel, protect(..., after=transform)"
        )
    for index in range(min(_RECORDS, len(dataset))):
        first, *others = (input_of(dataset[index], key) for _ in range(_READS))
        if not all(torch.equal(first, other) for other in others):
            raise GuaranteeError(
                f"record {index} differs between two readings, so something random acts before the channel: move it "
                "behind the channel, protect(..., after=transform)"
            )


def _random_names(parent: Any, depth: int) -> Iterator[str]:
    """Find the names of random transforms in a dataset or a transform."""
    for place in _PLACES:
        inner = getattr(parent, place, None)
        for part in inner if isinstance(inner, list | tuple) else [inner]:
            if part is None or isinstance(part, torch.Tensor):
                continue
            name = getattr(part, "__name__", type(part).__name__)
            if place != "dataset" and _RANDOM.search(name) and not name.endswith("Dataset"):
                yield name
            if depth:
                yield from _random_names(part, depth - 1)
