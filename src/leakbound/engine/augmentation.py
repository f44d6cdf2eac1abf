"""Randomness before the channel: by the names of transforms, and by reading records more than once.

A random transform before the channel shows another version of a record at each use. Precisions of noise then
do not add up on one record, and what k uses reveal is no longer what an accountant of channels computes.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch

from leakbound.engine.records import Key, as_tensor, taken
from leakbound.engine.refusals import GuaranteeError

_RANDOM = re.compile(
    r"Random|Jitter|Augment|AugMix|MixUp|Mixup|CutMix|Cutout|Erasing|Elastic|GaussianNoise|Dropout"
)
_PLACES = ("transform", "transforms", "dataset", "datasets", "augmentations")
_DEPTH = 6
_RECORDS = 3  # that are read again
_READS = 3


def refuse_random(dataset: Any, key: Key) -> None:
    """Refuse a dataset whose records are not the same at each reading.

    Names of transforms are looked through, as torchvision and others give them, and a few records are read
    several times. Randomness that neither shows is caught at a record's second use
    (:mod:`leakbound.engine.ledger`).

    Raises:
        GuaranteeError: If a transform is named as random ones are, or a record differs between two readings.
    """
    if (name := next(_random_names(dataset, _DEPTH), None)) is not None:
        raise GuaranteeError(
            f"{name} acts before the channel, so that each use shows another version of a record: move it behind the "
            "channel, protect(..., after=transform)"
        )
    for index in range(min(_RECORDS, len(dataset))):
        first, *others = (as_tensor(taken(dataset[index], key)) for _ in range(_READS))
        if not all(torch.equal(first, other) for other in others):
            raise GuaranteeError(
                f"record {index} differs between two readings, so something random acts before the channel: move it "
                "behind the channel, protect(..., after=transform)"
            )


def _random_names(parent: Any, depth: int) -> Iterator[str]:
    """Find the names of random transforms in a dataset or a transform."""
    for place in _PLACES:
        held = getattr(parent, place, None)
        for part in held if isinstance(held, list | tuple) else [held]:
            if part is None or isinstance(part, torch.Tensor):
                continue
            name = getattr(part, "__name__", type(part).__name__)
            if place != "dataset" and _RANDOM.search(name) and not name.endswith("Dataset"):
                yield name
            if depth:
                yield from _random_names(part, depth - 1)
