"""Canaries: records with wrong labels, which a network can only know if it was trained on them.

A network is confident in a wrong label only if it has memorised it. Canaries are therefore the records that
membership inference finds most easily, and that a defense must hide. They come in pairs, of which a fair coin
makes one a member. An attacker who identifies the members of more pairs than chance has learned something.

Source:
    Aerni, Zhang and Tramèr 2024, "Evaluations of machine learning privacy defenses are misleading", Sec. 4.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class Canaries:
    """Pairs of canaries of one replica.

    Attributes:
        rows: Rows of the pool, all different.
        labels: The wrong label of each row.
        inserted: Index in its pair, 0 or 1, of the canary that is a member. The other one is no member.
    """

    rows: Int[np.ndarray, "k 2"]
    labels: Int[np.ndarray, "k 2"]
    inserted: Int[np.ndarray, " k"]

    @property
    def members(self) -> Int[np.ndarray, " k"]:
        """Rows of the canaries that are members."""
        return self.rows[np.arange(len(self.rows)), self.inserted]

    @property
    def nonmembers(self) -> Int[np.ndarray, " k"]:
        """Rows of the canaries that are no members."""
        return self.rows[np.arange(len(self.rows)), 1 - self.inserted]


def canary_problem(canaries: int, members: int, classes: int) -> str | None:
    """Say why replicas cannot have so many pairs of canaries, or return None if they can."""
    if canaries and classes < 2:
        return f"canaries = {canaries}: wrong labels need at least two classes, and there is one. Ask for 0."
    if not 0 <= canaries <= members // 2:
        return f"canaries = {canaries}: at most half of the {members} members can be canaries. Ask for fewer."
    return None


def wrong_labels(
    labels: Int[np.ndarray, " n"], classes: int, generator: np.random.Generator
) -> Int[np.ndarray, " n"]:
    """Draw a wrong label for each record, uniformly among the other classes.

    Args:
        labels: True labels, 0 … classes − 1.
        classes: Number of classes, at least two.
        generator: Generator, from which one number is drawn for each record, in order.
    """
    return (labels + generator.integers(1, classes, len(labels))) % classes
