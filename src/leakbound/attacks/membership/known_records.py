"""Records that an attacker on membership knows, those that it is scored on, and canaries among the latter."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from leakbound.attacks.membership.network import FOLDS
from leakbound.datasets import ImageDataset


@dataclass(frozen=True)
class Division:
    """Rows of the records that the attacker knows and of those it is scored on, all disjoint."""

    known_members: Int[np.ndarray, " known"]
    known_nonmembers: Int[np.ndarray, " known"]
    scored_members: Int[np.ndarray, " scored"]
    scored_nonmembers: Int[np.ndarray, " scored"]


def divide(members: int, nonmembers: int, known_fraction: float, generator: np.random.Generator) -> Division:
    """Draw which records the attacker knows.

    Args:
        members: Number of members.
        nonmembers: Number of non-members. The surplus of the larger group is left out.
        known_fraction: Fraction that the attacker knows, in (0, 1).
        generator: Draws the order of the records.

    Raises:
        ValueError: If fewer than ``FOLDS`` of a kind are left to learn from, or fewer than two to score.
    """
    count = min(members, nonmembers)
    known_count = round(count * known_fraction)
    if known_count < FOLDS or count - known_count < 2:
        raise ValueError(
            f"known_fraction = {known_fraction} of {count} members leaves {known_count} to learn from and "
            f"{count - known_count} to score: at least {FOLDS} and 2 are needed. Give the dataset more members and "
            "test records."
        )
    drawn = [generator.permutation(total)[:count] for total in (members, nonmembers)]
    return Division(
        drawn[0][:known_count], drawn[1][:known_count], drawn[0][known_count:], drawn[1][known_count:]
    )


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
    parts, canaries = dataset.parts(replica), dataset.canaries(replica)
    labels = dataset.pool.labels
    pairs = len(canaries.inserted)
    drawn = divide(len(parts.members) - pairs, len(parts.nonmembers) - pairs, known_fraction, generator)
    rows = np.concatenate([parts.members[drawn.known_members], parts.nonmembers[drawn.known_nonmembers]])
    others = parts.nonmembers[drawn.scored_nonmembers]
    scored = np.concatenate([parts.members[drawn.scored_members], others])
    planted = np.concatenate([canaries.rows.ravel(), others if pairs else others[:0]])
    return AttackedRecords(
        Group(rows, labels[rows]),
        Group(scored, labels[scored]),
        Group(planted, dataset.wrong_labels(replica)[planted]),
        canaries.inserted,
    )
