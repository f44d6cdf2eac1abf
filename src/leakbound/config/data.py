"""Settings of datasets: which images are members, non-members and the attacker's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from leakbound.config.settings import Line, Name, Records, Settings

COLORS = {"digits": 1, "mnist": 1, "fashion_mnist": 1, "cifar10": 3, "svhn": 3, "celeba": 3}
"""Reader to the planes of its images, where they are known before anything is read."""


class DatasetConfig(Settings):
    """Which images are members, non-members and the attacker's own."""

    reader: Name | None = None
    """Registered reader; by default the one of the dataset's own name."""
    source: Literal["auto", "folder", "hub"] = "auto"
    """Where images come from: the folder LEAKBOUND_DATA, the Hugging Face hub, or (auto) the folder if it is set."""
    members: Annotated[Records, Field(ge=10)] | None = None
    """Training records (the members), drawn from the original training split; all that are left if not given."""
    test: Annotated[Records, Field(ge=10)] | None = None
    """Test records (the non-members), drawn from the original test split; all if not given."""
    aux: Annotated[Records, Field(ge=10)] = 1000
    """Records that the attacker owns, disjoint from both, drawn from the original training split."""
    label: Line | None = None
    """Column to use as the label instead of ``label``, e.g. a CelebA attribute."""
