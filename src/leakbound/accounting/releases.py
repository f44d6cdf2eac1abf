"""Items that jobs release, and whether the bound that a run states covers what they reveal about a record."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# Items that reveal something to the recipient of a published replica.
PUBLISHED = ("weights", "learning rate", "channel")


@dataclass(frozen=True, order=True)
class ReleasedItem:
    """Item that a job releases.

    Attributes:
        item: Its name.
        covered: Whether the bound that the run states covers what the item reveals about a record.
        why: The reason, in a few words.
    """

    item: str
    covered: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def dataset_releases(secure: bool) -> list[ReleasedItem]:
    """List what the jobs that prepare a dataset and draw its figures release."""
    hashed = (
        "keyed by a secret that does not leave" if secure else "singles out the true records among candidates"
    )
    return [
        ReleasedItem("hash of prepared images", secure, hashed),
        ReleasedItem("mean and covariance of members", False, "statistics of the members"),
        ReleasedItem(
            "pictures of members", False, "shown only if the reader says that they may be published"
        ),
        ReleasedItem(
            "claims on pictures of members", False, "say how like noisy copies are to them, exactly"
        ),
    ]


def estimator_releases(from_members: bool) -> list[ReleasedItem]:
    """List what the learned estimate of a dataset releases.

    Args:
        from_members: Whether channels use the members' moments.
    """
    why = "learned from the attacker's records, through channels"
    if from_members:
        why += " calibrated to the members' moments"
    return [ReleasedItem("estimator", not from_members, why)]


def attack_releases(targets: bool) -> list[ReleasedItem]:
    """List what an attack releases. Its ``targets`` are single members where it inverts gradients."""
    pictures = (
        "targets and reconstructions of members" if targets else "what weights tell of classes of members"
    )
    return [
        ReleasedItem("scores of attacks", False, "compare with clean members and name them"),
        ReleasedItem("arrays of attacks", False, pictures),
    ]


def federated_releases(adapted: bool) -> list[ReleasedItem]:
    """List what a federated run releases. With ``adapted`` thresholds follow the norms of parameters."""
    norms = "follow norms that no budget covers" if adapted else "follow from the settings alone"
    return [
        ReleasedItem("curves, divergence", False, "losses and accuracies of clean members"),
        ReleasedItem("thresholds and leaks", not adapted, norms),
    ]


def refusals(releases: Sequence[ReleasedItem], *, channel: bool) -> list[str]:
    """List why a replica may not be published, with or without ``channel``: items that no bound covers."""
    listed = {release.item for release in releases}
    unsaid = [item for item in PUBLISHED if item not in listed and (channel or item != "channel")]
    uncovered = [release for release in releases if release.item in PUBLISHED and not release.covered]
    return [
        *(f"{release.item}: {release.why}" for release in uncovered),
        *(f"{item}: the provenance does not say whether a bound covers it; train again" for item in unsaid),
    ]
