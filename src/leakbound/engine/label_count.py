"""Labels of records, which are released as they are and counted; whatever else a record holds is refused."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from leakbound.engine.records import is_numbers, is_whole
from leakbound.engine.refusals import GuaranteeError


class LabelCount:
    """Labels of the records that an engine releases.

    Args:
        classes: Number of labels; None if they are not counted.

    Attributes:
        classes: As given.
        uncounted: Places of records that are released too, whatever they hold, as their owner allowed.
    """

    def __init__(self, classes: int | None) -> None:
        if classes is not None and classes < 1:
            raise GuaranteeError(
                f"classes = {classes}: give the number of labels, at least 1, or leave it out"
            )
        self.classes, self.uncounted = classes, set[str | int]()
        self._most = 1

    def check(self, rests: Sequence[Any], uncounted: Collection[str | int]) -> None:
        """Refuse records with more in them than input and labels.

        Args:
            rests: Records without their inputs.
            uncounted: Places that are allowed.

        Raises:
            GuaranteeError: If there is something else, or a label that ``classes`` does not count.
        """
        self._most = max([self._most, *(count_labels(rest, self.classes, uncounted) for rest in rests)])
        self.uncounted.update(uncounted)

    @property
    def nats(self) -> float | None:
        """Entropy of all labels of a record, at most; None if they are not counted."""
        return None if self.classes is None else self._most * math.log(self.classes)


def count_labels(rest: Any, classes: int | None, uncounted: Collection[str | int] = ()) -> int:
    """Number of labels in a record, which are released as they are; refuses whatever else would be.

    Args:
        rest: The record, with None in place of its input.
        classes: Labels are whole numbers from 0 to below it; None for any whole numbers.
        uncounted: Places, fields or keys of the record that its owner allows to be released too, whatever
            they hold.

    Raises:
        GuaranteeError: If something else than single whole numbers is in it.
    """
    fields = getattr(rest, "_fields", ())
    allowed = {fields.index(place) if place in fields else place for place in uncounted}
    return sum(
        _labels(part, place, "", classes) for place, part in _parts(rest) or () if place not in allowed
    )


def _labels(part: Any, place: Any, inside: str, classes: int | None) -> int:
    """Labels in a part of a record, at a place and what is inside of it."""
    if part is None:
        return 0
    if (parts := _parts(part)) is not None and not (isinstance(part, Sequence) and is_numbers(part)):
        return sum(_labels(one, place, f"{inside}[{at!r}]", classes) for at, one in parts)
    form: Any = part if isinstance(part, Tensor) else np.asarray(part)
    whole = is_whole(form) if isinstance(form, Tensor) else form.dtype.kind in "biu"
    if not whole or math.prod(form.shape) != 1:
        array = isinstance(part, Tensor | np.ndarray)
        kind = f"{form.dtype} of shape {tuple(form.shape)}" if array else f"of type {type(part).__name__}"
        raise GuaranteeError(
            f"place {place!r}{inside} of a record is {kind}, no label of one whole number, and would be released "
            f"without noise: leave it out, or allow it by protect(..., uncounted=[{place!r}]), which does not count it"
        )
    if classes is not None and not 0 <= form.item() < classes:
        raise GuaranteeError(
            f"place {place!r}{inside} of a record is the label {form.item()}: classes = {classes} counts labels from 0 "
            f"to {classes - 1}, so give their real number"
        )
    return 1


def _parts(thing: Any) -> list[tuple[Any, Any]] | None:
    """Names and parts of a mapping, tuple or list; None for anything else."""
    if isinstance(thing, Mapping):
        return list(thing.items())
    return list(enumerate(thing)) if isinstance(thing, tuple | list) else None
