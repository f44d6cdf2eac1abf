"""Labels of records, counted and released as they are or by randomized response."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.engine.identity import Identity
from leakbound.engine.records import is_numbers, is_whole
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.uses import Label


class LabelCount:
    """Count the labels of the records that an engine releases, and refuse whatever else records hold.

    Args:
        classes: Number of labels, None if they are not counted.
        response: Randomized response that labels pass, once for each record. None if they are released as
            they are.

    Attributes:
        classes: As given, or those of the response.
        response: As given.
        uncounted: Places of records that are released too, whatever they hold, as their owner allowed.

    Raises:
        GuaranteeError: If there is no class, or the response is for another number of them.
    """

    def __init__(self, classes: int | None, response: RandomizedResponse | None = None) -> None:
        if classes is not None and classes < 1:
            raise GuaranteeError(
                f"classes = {classes}: give the number of labels, at least 1, or leave it out"
            )
        if response is not None and classes not in (None, response.classes):
            raise GuaranteeError(
                f"classes = {classes}, and labels is a response over {response.classes} classes: leave classes out"
            )
        self.classes = response.classes if response else classes
        self.uncounted: set[str | int] = set()
        self.response = response
        self._records = 0
        self._labels: dict[bytes, list[int]] = {}

    def check(
        self, rests: Sequence[Any], uncounted: Collection[str | int], records: int = 0
    ) -> list[list[int]]:
        """List the labels of records, and refuse records that hold more than input and labels.

        Args:
            rests: Records without their inputs.
            uncounted: Places that are allowed.
            records: Number of records of the collections that they come from. Without ``classes`` a record has
                one label below it: a larger number may say who somebody is.

        Raises:
            GuaranteeError: If there is something else, or a label that ``classes`` does not count.
        """
        self._records = max(self._records, records)
        listed = [labels_of(rest, self.classes, uncounted) for rest in rests]
        for labels in listed if self.classes is None else ():
            if len(labels) > 1 or any(abs(label) >= self._records for label in labels):
                raise GuaranteeError(
                    f"a record holds the whole numbers {labels}, which would be released without noise: give "
                    f"classes=K if each is a label from 0 to K - 1, which also counts them (without it a record has "
                    f"one label, below the {self._records} records), leave them out, or allow them by "
                    "protect(..., uncounted=[place]), which does not count them"
                )
        self.uncounted.update(uncounted)
        return listed

    def check_same(
        self, contents: Sequence[bytes], rests: Sequence[Any], uncounted: Collection[str | int]
    ) -> None:
        """Refuse equal records with different labels, of which one response would reveal more than counted.

        Args:
            contents: Digest of each record, without a key.
            rests: The records without their inputs.
            uncounted: Places that hold no labels.

        Raises:
            GuaranteeError: If there are some, in this batch or since the engine was made.
        """
        for content, rest in zip(contents, rests, strict=True) if self.response else ():
            labels = labels_of(rest, None, uncounted)
            if self._labels.setdefault(content, labels) != labels:
                raise GuaranteeError(
                    f"a record has the labels {labels} here and {self._labels[content]} elsewhere, and a response "
                    "covers one label of a record: keep one of these records, or leave labels=RandomizedResponse out"
                )

    def responses(
        self,
        rests: Sequence[Any],
        digests: Sequence[bytes],
        identity: Identity,
        uncounted: Collection[str | int],
    ) -> list[Any]:
        """Replace each label by its response, which is the same at every use and wherever the key is.

        Draws are a function of the key, the record, the label, its number in the record and the response, so
        that those of different responses are independent and their nats add up.

        Args:
            rests: Checked records without their inputs.
            digests: Keyed digests of the records.
            identity: Key.
            uncounted: Places that stay as they are.
        """
        if self.response is None:
            return list(rests)
        labels = [labels_of(rest, None, uncounted) for rest in rests]
        texts = self._texts(digests, labels)
        clean = np.array([label for held in labels for label in held], dtype=np.int64)
        drawn = iter(self.response.randomize(clean, identity.uniforms(texts)).tolist())
        return [_relabelled(rest, uncounted, lambda _: next(drawn)) for rest in rests]

    @property
    def nats(self) -> float | None:
        """Nats that one label reveals, None if labels are not counted."""
        if self.response is not None:
            return self.response.capacity
        return None if self.classes is None else math.log(self.classes)

    def keyed(
        self, digests: Sequence[bytes], listed: Sequence[Sequence[int]], identity: Identity
    ) -> list[Label]:
        """List the labels of records as the record of uses counts them: each label once for each response.

        A record without one counts as if it had one, since ``classes`` says that its label is released elsewhere.

        Args:
            digests: Keyed digests of the records.
            listed: Labels of each.
            identity: Key.
        """
        if (nats := self.nats) is None:
            return []
        listed = [labels or [-1] for labels in listed]
        held = [digest for digest, labels in zip(digests, listed, strict=True) for _ in labels]
        keys = identity.of(self._texts(digests, listed))
        return [(digest, key, nats) for digest, key in zip(held, keys, strict=True)]

    def _texts(self, digests: Sequence[bytes], listed: Sequence[Sequence[int]]) -> list[bytes]:
        """Name each label by its record, its number in it, its value and its response."""
        name = f"{self.classes}" if self.response is None else f"{self.classes} {self.response.keep:.17g}"
        return [
            digest + f"{name} {number} {label}".encode()
            for digest, labels in zip(digests, listed, strict=True)
            for number, label in enumerate(labels)
        ]


def labels_of(rest: Any, classes: int | None, uncounted: Collection[str | int] = ()) -> list[int]:
    """List the labels in a record, which are released as they are, and refuse whatever else would be.

    Args:
        rest: The record, with None in place of its input.
        classes: Labels are whole numbers from 0 to below it. None allows any whole number.
        uncounted: Places, fields or keys of the record that its owner allows to be released too, whatever
            they hold.

    Raises:
        GuaranteeError: If something else than single whole numbers is in it.
    """
    allowed = _allowed(rest, uncounted)
    parts = [(place, part) for place, part in _parts(rest) or () if part is not None and place not in allowed]
    return [label for place, part in parts for label in _labels(part, place, "", classes)]


def _allowed(rest: Any, uncounted: Collection[str | int]) -> set[str | int]:
    """Return the keys or numbers of the places of a record that hold no labels."""
    fields = getattr(rest, "_fields", ())
    return {fields.index(place) if place in fields else place for place in uncounted}


def _relabelled(rest: Any, uncounted: Collection[str | int], respond: Callable[[int], int]) -> Any:
    """Replace each label of a checked record by the response to it, as the same type of number."""
    if (parts := _parts(rest)) is None:
        return rest
    allowed = _allowed(rest, uncounted)
    responses = [part if place in allowed else _response_to(part, respond) for place, part in parts]
    return _rebuilt(rest, responses)


def _response_to(part: Any, respond: Callable[[int], int]) -> Any:
    """Replace the labels in a part of a record by the responses to them."""
    if part is None:
        return None
    if (parts := _parts(part)) is not None:
        return _rebuilt(part, [_response_to(inner, respond) for _, inner in parts])
    label = respond(int(np.asarray(part).item()))
    if isinstance(part, Tensor):
        return torch.full_like(part, label)
    return type(part)(label) if isinstance(part, int | float) else np.full_like(part, label)[()]


def _rebuilt(whole: Any, parts: list[Any]) -> Any:
    """Make a mapping, tuple or list like this one of other parts. Mappings become dictionaries."""
    if isinstance(whole, Mapping):
        return dict(zip(whole, parts, strict=True))
    return type(whole)(*parts) if hasattr(whole, "_fields") else type(whole)(parts)


def _labels(part: Any, place: Any, inside: str, classes: int | None) -> list[int]:
    """List the labels in a part of a record, at a place of it and below this place."""
    if part is None:
        return []
    tensor = isinstance(part, Tensor)
    parts = None if tensor else _parts(part)
    if parts is not None and not (isinstance(part, Sequence) and is_numbers(part)):
        inner = [_labels(value, place, f"{inside}[{at!r}]", classes) for at, value in parts]
        return [label for labels in inner for label in labels]
    form: Any = part if tensor else np.asarray(part)
    whole = is_whole(form) if tensor else form.dtype.kind in "biu"
    label = form.item() if math.prod(form.shape) == 1 else None
    if classes is not None and not whole and label is not None:  # 0.0 and 1.0, where classes are named
        whole = (tensor or form.dtype.kind == "f") and float(label).is_integer()
    if not whole or label is None:
        array = isinstance(part, Tensor | np.ndarray)
        kind = f"{form.dtype} of shape {tuple(form.shape)}" if array else f"of type {type(part).__name__}"
        raise GuaranteeError(
            f"place {place!r}{inside} of a record is {kind}, no label of one whole number, and would be released "
            f"without noise: leave it out, or allow it by protect(..., uncounted=[{place!r}]), which does not count it"
        )
    if classes is not None and not 0 <= label < classes:
        raise GuaranteeError(
            f"place {place!r}{inside} of a record is the label {label}: classes = {classes} counts labels from 0 "
            f"to {classes - 1}, so give their real number"
        )
    return [int(label)]


def _parts(whole: Any) -> list[tuple[Any, Any]] | None:
    """List the names and parts of a mapping, tuple or list. None for anything else."""
    if isinstance(whole, tuple | list):
        return list(enumerate(whole))
    return list(whole.items()) if isinstance(whole, Mapping) else None
