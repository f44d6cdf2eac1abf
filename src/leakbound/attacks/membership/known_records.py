"""Records that an attacker on membership knows, those that it is scored on, and canaries among the latter."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from leakbound.attacks.membership.network import FOLDS
from leakbound.datasets import ImageDataset


@dataclass(frozen=True)
class Division:
    """Rows of the records that the attacker knows and of those it is scored on, disjoint, equally many of a kind."""

    known_members: Int[np.ndarray, " known"]
    known_nonmembers: Int[np.ndarray, " known"]
    scored_members: Int[np.ndarray, " scored"]
    scored_nonmembers: Int[np.ndarray, " scored"]


def divide(members: int, nonmembers: int, known_fraction: float, generator: np.random.Generator) -> Division:
    """Draw which records the attacker knows.

    Args:
        members: How many members there are.
        nonmembers: How many non-members there are; of the larger group the surplus is left out.
        known_fraction: Fraction that the attacker knows, in (0, 1).
        generator: Draws the order of the records.

    Raises:
        ValueError: If fewer than ``FOLDS`` of a kind are left to learn from, or fewer than two to score.
    """
    count = min(members, nonmembers)
    known = round(count * known_fraction)
    if known < FOLDS or count - known < 2:
        raise ValueError(
            f"known_fraction = {known_fraction} of {count} members leaves {known} to learn from and {count - known} to "
            f"score: at least {FOLDS} and 2 are needed. Give the dataset more members and test records."
        )
    drawn = [generator.permutation(total)[:count] for total in (members, nonmembers)]
    return Division(drawn[0][:known], drawn[1][:known], drawn[0][known:], drawn[1][known:])


@dataclass(frozen=True)
class Group:
    """Records of the pool, and the class of each that is in question: a canary's wrong one."""

    rows: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class AttackedRecords:
    """Records that one network is attacked with.

    Attributes:
        known: Those whose membership the attacker knows, the first half members.
        scored: Others, the first half members.
        canaries: With canaries both of each pair, pair by pair, and after them the scored non-members once
            more, with wrong labels that were drawn alike: which canaries are compared with. Else nobody.
        inserted: Place, 0 or 1, of the member in each pair.
    """

    known: Group
    scored: Group
    canaries: Group
    inserted: Int[np.ndarray, " k"]

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups to score: ``scored``, and ``canaries`` if there are some."""
        return (self.scored, self.canaries) if len(self.inserted) else (self.scored,)

    def named(
        self, scored: Float[np.ndarray, " n"], canaries: Float[np.ndarray, " m"] | None = None
    ) -> dict[str, np.ndarray]:
        """Scores by kind: ``members``, ``nonmembers``, and of canaries these (k, 2) and ``mislabelled`` others."""
        half, pairs = len(self.scored) // 2, len(self.inserted)
        found = {"members": scored[:half], "nonmembers": scored[half:]}
        if canaries is not None:
            found |= {"canaries": canaries[: 2 * pairs].reshape(-1, 2), "mislabelled": canaries[2 * pairs :]}
        return found


def attacked_records(
    dataset: ImageDataset, replica: int, known_fraction: float, generator: np.random.Generator
) -> AttackedRecords:
    """Part the members and as many others of a replica. Canaries are neither known nor among the scored.

    Args:
        dataset: Knows each replica's records.
        replica: Whose network is attacked.
        known_fraction: Fraction that the attacker knows, in (0, 1).
        generator: Draws which.

    Raises:
        ValueError: As :func:`divide`.
    """
    parts, labels, canaries = dataset.parts(replica), dataset.pool.labels, dataset.canaries(replica)
    pairs = len(canaries.inserted)
    drawn = divide(len(parts.members) - pairs, len(parts.nonmembers) - pairs, known_fraction, generator)
    known = np.concatenate([parts.members[drawn.known_members], parts.nonmembers[drawn.known_nonmembers]])
    others = parts.nonmembers[drawn.scored_nonmembers]
    scored = np.concatenate([parts.members[drawn.scored_members], others])
    planted = np.concatenate([canaries.rows.ravel(), others if pairs else others[:0]])
    return AttackedRecords(
        Group(known, labels[known]),
        Group(scored, labels[scored]),
        Group(planted, dataset.wrong_labels(replica)[planted]),
        canaries.inserted,
    )
