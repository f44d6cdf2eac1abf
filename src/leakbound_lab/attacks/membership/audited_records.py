"""Outputs of an audited network and of references, with what makes them doubtful."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped

from leakbound_lab.attacks.membership.reference_scores import Confidences
from leakbound_lab.attacks.membership.signals import signals_of_outputs
from leakbound_lab.attacks.metrics import Interval
from leakbound_lab.datasets.audited import Records

_AT_ONCE = 1000  # records that are scored at once
_AGAIN = 3  # records that are scored again, alone
_FAR = 4.0  # standard errors, which chance exceeds once in 16,000 times

Score = Callable[[np.ndarray, np.ndarray], Any]
"""Function of records and labels: logits or posteriors (n, classes), or losses (n), lower for a better fit."""


@dataclass(frozen=True)
class ReferenceScores:
    """Outputs of R >= 2 networks that were trained likewise, on draws that do not depend on the network's members.

    Attributes:
        members: Outputs on the members, as those of the network with a leading R.
        others: Outputs on the others.
        inside_members: 1 for members that a network was trained on, 0 for others, by default all 0.
        inside_others: The same for the others.
    """

    members: Float[np.ndarray, "references m ..."]
    others: Float[np.ndarray, "references n ..."]
    inside_members: Shaped[np.ndarray, "references m"] | None = None
    inside_others: Shaped[np.ndarray, "references n"] | None = None

    def confidences(self, labels: np.ndarray, shape: tuple[int, ...]) -> Confidences:
        """Compute confidences in all records, members first, and which network was trained on which.

        Args:
            labels: Labels of the members and of the others.
            shape: Shape of the audited network's output for one record.

        Raises:
            ValueError: If the outputs of the references have another one.
        """
        if self.members.shape[2:] != shape or self.others.shape[2:] != shape:
            raise ValueError(
                f"references: outputs of shape {self.members.shape} and {self.others.shape}: score gives one of shape "
                f"{shape} for each record"
            )
        answers = np.concatenate([self.members, self.others], axis=1).astype(np.float64)
        confidence = np.stack([signals_of_outputs(each, labels).confidence.numpy() for each in answers])
        inside = self._inside()
        inside &= ~inside.all(0)  # a record that all were trained on has no other estimate
        return Confidences(confidence, inside, ~inside)

    def _inside(self) -> Bool[np.ndarray, "references records"]:
        """Return the membership of all records in the training of each network."""
        parts = ((self.inside_members, self.members), (self.inside_others, self.others))
        bits = [np.zeros(answers.shape[:2]) if part is None else part for part, answers in parts]
        return np.concatenate(bits, axis=1).astype(bool)

    def check(self, members: int, others: int) -> None:
        """Refuse outputs of other records, and references whose training depended on who is a member.

        Raises:
            ValueError: If shapes do not fit, a value is not finite, or one kind of records is inside more
                often.
        """
        networks = len(self.members)
        for name, count in (("members", members), ("others", others)):
            answers = getattr(self, name)
            bits = getattr(self, f"inside_{name}")
            if networks < 2 or answers.shape[:2] != (networks, count) or answers.ndim > 3:
                raise ValueError(
                    f"references: {name} of shape {answers.shape}: the outputs of at least 2 networks, equally many "
                    f"for members and others, for each of {count} {name} are needed"
                )
            if not np.isfinite(answers).all():
                raise ValueError(f"references: {name} are not all finite, leave out networks that diverged")
            if bits is not None and not (bits.shape == (networks, count) and np.isin(bits, (0, 1)).all()):
                raise ValueError(
                    f"references: inside_{name} of shape {bits.shape}: {networks} times {count} of 0 or 1 are needed"
                )
        counts = np.split(self._inside().sum(0).astype(float), [members])
        error = np.sqrt(sum(float(part.var()) / len(part) for part in counts))
        if abs(counts[0].mean() - counts[1].mean()) > _FAR * error:
            raise ValueError(
                f"references: of {networks} networks {counts[0].mean():.3g} were trained on a member and "
                f"{counts[1].mean():.3g} on another record: draw their records without regard to who is a member"
            )


def outputs(score: Score, records: np.ndarray, labels: np.ndarray, name: str) -> Float[np.ndarray, "n ..."]:
    """Compute outputs for records, some at a time.

    Raises:
        ValueError: If they are no logits or losses, are not finite, or have no class of a label.
    """
    parts = []
    for first in range(0, len(records), _AT_ONCE):
        chunk = slice(first, first + _AT_ONCE)
        count = len(labels[chunk])
        parts.append(_numbers(score(records[chunk], labels[chunk]), f"for {count} {name}"))
        if parts[-1].ndim not in (1, 2) or len(parts[-1]) != count or parts[-1].shape[1:] == (1,):
            raise ValueError(
                f"score gives shape {parts[-1].shape} for {count} {name}: logits ({count}, classes) or losses "
                f"({count},) are needed"
            )
    joined = np.concatenate(parts)
    if wrong := int((~np.isfinite(joined)).reshape(len(joined), -1).any(1).sum()):
        raise ValueError(
            f"score is not finite for {wrong} of {len(joined)} {name}: give logits, or clip losses"
        )
    if joined.ndim == 2 and (
        labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= joined.shape[1]
    ):
        first, *_, last = np.unique(labels).tolist() * 2
        raise ValueError(
            f"{name}: labels from {first!r} to {last!r}, type {labels.dtype}: score gives logits of "
            f"{joined.shape[1]} classes, so whole numbers from 0 to {joined.shape[1] - 1} are needed"
        )
    return joined


def _numbers(values: Any, what: str) -> Float[np.ndarray, "..."]:
    """Return what a score gives as numbers: an array, a tensor, or the logits of a model's output or a dict.

    Raises:
        ValueError: If it is nothing of these.
    """
    logits = (
        values.get("logits", values) if isinstance(values, Mapping) else getattr(values, "logits", values)
    )
    try:
        plain = logits.detach().cpu().double().numpy() if isinstance(logits, torch.Tensor) else logits
        return np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"score gives a {type(logits).__name__} {what}: return an array of logits (n, classes) or losses (n,)"
        ) from error


def doubts(
    score: Score, members: Records, before: np.ndarray, area: Interval, blind: Interval | None
) -> Iterator[str]:
    """Yield warnings about scores that are random or have the wrong sign, and about records that differ.

    Args:
        score: Function of the network.
        members: Records that it was trained on.
        before: Its outputs for them.
        area: AUC of the loss.
        blind: AUC of :func:`blind_area`.
    """
    again = outputs(score, members[0][:_AGAIN], members[1][:_AGAIN], "members")
    if not np.allclose(again, before[:_AGAIN], rtol=1e-2, atol=1e-3):
        yield (
            f"score gives the first {_AGAIN} members other values when they come alone: bring the network into "
            "evaluation mode (network.eval())"
        )
    if area.high < 0.5:
        yield (
            f"members fit worse than others (AUC {area.value:.3f}): a loss is lower for a better fit; check its sign, "
            "and that members are the records of the training (this warning is wrong in one of 40 audits)"
        )
    if blind is not None and blind.low > 0.5:
        yield (
            f"a classifier that never saw the network distinguishes members from others (AUC {blind.value:.3f}): they "
            "are not of one distribution, so no number here shows what the network leaks: divide records by chance "
            "(this warning is wrong in one of 40 audits)"
        )
