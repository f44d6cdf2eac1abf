"""Records as a reader returns them: all labels, and pixels on request. Equal records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Shaped

from leakbound.words import shown

if TYPE_CHECKING:
    pass

_WHOLE = 2**53  # largest number up to which floats hold all whole ones


class DatasetError(ValueError):
    """Images that cannot be used. The message names the file, the row and a remedy."""


@dataclass(frozen=True)
class Records:
    """One original split, with images still encoded.

    Attributes:
        origin: Origin of the records, for messages: a file, a hub dataset or a package.
        labels: Class index of each record.
        decode: Row indices (k,) to pixels (k, height, width, colors) on the scale 0 to 255, all of one size.
    """

    origin: str
    labels: Int[np.ndarray, " n"]
    decode: Callable[[np.ndarray], np.ndarray]

    def __len__(self) -> int:
        return len(self.labels)

    def check_order(self, rows: np.ndarray) -> None:
        """Decode two rows in both orders. A decoder that sorts them would give records the labels of others.

        Args:
            rows: Rows of records, of which the first two are decoded.

        Raises:
            DatasetError: If the result is no array, or its order is not that of the rows.
        """
        pair = rows[:2]
        if not len(pair):
            return
        decoded = self.decode(pair)
        turned = self.decode(pair[::-1])
        if not isinstance(decoded, np.ndarray):
            raise DatasetError(
                f"{self.origin}: decode returned a {type(decoded).__name__}. Return a NumPy array, e.g. tensor.numpy()."
            )
        if len(pair) == len(decoded) == 2 and not np.array_equal(decoded[::-1], turned):
            raise DatasetError(
                f"{self.origin}: decode gave rows {pair[1]}, {pair[0]} in another order than asked for, so labels "
                "would belong to other records. Return one for each row, in their order."
            )

    def like(self, first: int, rows: np.ndarray) -> np.ndarray:
        """Decode some rows. Decoding stops at the first one whose form differs from that of the row ``first``.

        Raises:
            DatasetError: If it does not give one image for each row.
        """
        decoded = self.decode(np.concatenate([[first], rows]))
        if len(decoded) != len(rows) + 1:
            raise DatasetError(
                f"{self.origin}: decode was given {len(rows) + 1} rows and returned {len(decoded)} images. "
                "Return one for each row, in their order."
            )
        return decoded[1:]


def checked_labels(
    values: np.ndarray, *, classes: int | None, column: str, origin: str
) -> Int[np.ndarray, " n"]:
    """Check every label, and return them as int64.

    Args:
        values: Column of labels: integers, booleans, or floats without a fraction.
        classes: Number of classes. If None, the labels determine it, and must be 0 … k-1 without gaps.
        column: Column name, for messages.
        origin: File or dataset, for messages.

    Raises:
        DatasetError: If there are no rows, or a label is not an integer or not a class.
    """
    if not isinstance(values, np.ndarray):
        raise DatasetError(
            f"{origin}: labels are a {type(values).__name__}. Give a NumPy array of whole numbers."
        )
    if len(values) == 0:
        raise DatasetError(f"{origin}: has no images. Make the file again.")
    if values.dtype.kind == "f" and np.array_equal(values, np.rint(np.clip(values, -_WHOLE, _WHOLE))):
        values = values.astype(np.int64)
    if values.dtype.kind not in "iub":
        row = next((row for row, value in enumerate(values.tolist()) if not _is_whole(value)), 0)
        # Bytes can be long, e.g. those of an image.
        label = values[row][:100] if isinstance(values[row], bytes) else values[row]
        label = shown(label.item() if isinstance(label, np.generic) else label)
        raise DatasetError(
            f"{origin}: row {row}: column {column!r} holds {label}, which is no integer label. "
            "Labels are whole numbers from 0; encode other ones first, or name another column as label."
        )
    labels = values.astype(np.int64)
    allowed = f"0 to {classes - 1}" if classes is not None else "0 or more"
    wrong = (labels < 0) | (labels >= classes if classes is not None else False)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise DatasetError(
            f"{origin}: row {row}: column {column!r} holds label {labels[row]}, allowed is {allowed}. "
            "Correct the label or the names of the classes."
        )
    if classes is None:
        missing = np.setdiff1d(np.arange(min(labels.max() + 1, len(labels) + 1)), labels)
        if len(missing):
            raise DatasetError(
                f"{origin}: column {column!r} has labels up to {labels.max()} but never {missing[0]}; "
                "labels without class names must be 0, 1, … without gaps. Name another column as label."
            )
    return labels


def _is_whole(value: object) -> bool:
    """Return True for a whole number that floats hold exactly."""
    return isinstance(value, int | float) and abs(value) <= _WHOLE and value == int(value)


def check_alike(shape: tuple[int, ...], place: str, first: tuple[int, ...], first_place: str) -> None:
    """Refuse an image whose (height, width, colors) differ from those of the first one.

    Args:
        shape: Shape of the image.
        place: Place of the image, for the message.
        first: Shape of the first image.
        first_place: Place of the first image, for the message.

    Raises:
        DatasetError: If the shapes differ.
    """
    if shape != first:
        size, expected = (
            f"{tall}×{wide} with {n} {'color' if n == 1 else 'colors'}" for tall, wide, n in (shape, first)
        )
        raise DatasetError(
            f"{place}: image is {size}, but that of {first_place} is {expected}. "
            "All images of a dataset must be alike: convert them, or read your own with --resize and --color."
        )


def first_copies(*parts: Shaped[np.ndarray, "_ ..."]) -> Int[np.ndarray, " n"]:
    """Find the first of the equal records, for each record of all parts one after another.

    Example:
        >>> import numpy as np
        >>> first_copies(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[1.0, -0.0]]))
        array([0, 1, 0])
    """
    seen: dict[bytes, int] = {}
    digests = (blake2b((row + row.dtype.type(0)).tobytes(), digest_size=16).digest() for row in chain(*parts))
    return np.array([seen.setdefault(digest, number) for number, digest in enumerate(digests)], np.int64)
