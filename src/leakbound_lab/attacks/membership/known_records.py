"""Records that an attacker on membership knows, those that it is scored on, and canaries among the latter."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from leakbound_lab.attacks.membership.network import FOLDS
from leakbound_lab.datasets import ImageDataset

Rows = Int[np.ndarray, " _"]


def divide(
    members: int, nonmembers: int, known_fraction: float, generator: np.random.Generator
) -> tuple[tuple[Rows, Rows], tuple[Rows, Rows]]:
    """Draw which records the attacker knows.

    Args:
        members: Number of members.
        nonmembers: Number of non-members. The surplus of the larger group is left out.
        known_fraction: Fraction that the attacker knows, in (0, 1).
        generator: Draws the order of the records.

    Returns:
        Rows of known members and non-members, and of those that are scored, all disjoint.

    Raises:
        ValueError: If fewer than ``FOLDS`` of a kind are left to learn from, or fewer than two to score.
    """
    count = min(members, nonmembers)
    learnt = round(count * known_fraction)
    if learnt < FOLDS or count - learnt < 2:
        raise ValueError(
            f"known_fraction = {known_fraction} of {count} members leaves {learnt} to learn from and "
            f"{count - learnt} to score: at least {FOLDS} and 2 are needed. Give the dataset more members and "
            "test records."
        )
    first, second = (generator.permutation(total)[:count] for total in (members, nonmembers))
    return (first[:learnt], second[:learnt]), (first[learnt:], second[learnt:])


@dataclass(frozen=True)
class Group:
    """Records of the pool, and the class of each that is tested, which is wrong for a canary."""

    rows: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class AttackedRecords:
    """Records that one network is attacked with.

    Attributes:
        known: Records whose membership the attacker knows, the first half members.
        scored: Others, the first half members.
        canaries: With canaries both of each pair, pair by pair, and after them the scored non-members once
            more, with wrong labels that were drawn likewise, to compare the canaries with. Empty without
            canaries.
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

    def by_kind(
        self, scored: Float[np.ndarray, " n"], canaries: Float[np.ndarray, " m"] | None = None
    ) -> dict[str, np.ndarray]:
        """Sort scores by kind: ``members``, ``nonmembers``, ``canaries`` (k, 2), ``mislabelled``."""
        half = len(self.scored) // 2
        kinds = {"members": scored[:half], "nonmembers": scored[half:]}
        if canaries is not None:
            end = 2 * len(self.inserted)
            kinds |= {"canaries": canaries[:end].reshape(-1, 2), "mislabelled": canaries[end:]}
        return kinds


def attacked_records(
    dataset: ImageDataset, replica: int, known_fraction: float, generator: np.random.Generator
) -> AttackedRecords:
    """Divide the members and as many others of a replica. Canaries are neither known nor among the scored.

    Args:
        dataset: Dataset with each replica's records.
        replica: Replica whose network is attacked.
        known_fraction: Fraction that the attacker knows, in (0, 1).
        generator: Draws which records the attacker knows.

    Raises:
        ValueError: As :func:`divide`.
    """
    parts = dataset.parts(replica)
    canaries = dataset.canaries(replica)
    labels = dataset.pool.labels
    pairs = len(canaries.inserted)
    counts = len(parts.members) - pairs, len(parts.nonmembers) - pairs
    divided = divide(*counts, known_fraction, generator)
    rows, scored = (np.concatenate([parts.members[m], parts.nonmembers[n]]) for m, n in divided)
    nonmembers = scored[len(scored) // 2 :]
    planted = np.concatenate([canaries.rows.ravel(), nonmembers if pairs else nonmembers[:0]])
    return AttackedRecords(
        Group(rows, labels[rows]),
        Group(scored, labels[scored]),
        Group(planted, dataset.wrong_labels(replica)[planted]),
        canaries.inserted,
    )
