"""Settings of jobs: reading, checking, and settings that several steps share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import ConfigDict, Field

from leakbound_lab import registries
from leakbound_lab.config.attacks import ReferenceRecords
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.messages import ConfigError, parse, unknown_name
from leakbound_lab.config.settings import (
    Level,
    Line,
    Listed,
    Name,
    PrivacyNoise,
    Records,
    Replicas,
    Seed,
    Settings,
    Steps,
    Target,
)
from leakbound_lab.config.training import Length, TrainingConfig

J = TypeVar("J", bound=Settings)
ConfigOption = Annotated[Path, typer.Option(help="Configuration file.")]
SETTINGS = "settings of the job"
"""Name of a job's settings, for messages."""
Device = Literal["auto", "cpu", "cuda"]


class JobSettings(Settings):
    """Settings of a command that a job calls: the part of a configuration on which the job depends.

    The workflow takes them from a checked configuration. They are checked again, because users can call a
    command directly.
    """

    model_config = ConfigDict(defer_build=True)  # each command needs one of these models

    plugins: dict[Name, dict[Name, Target]] = Field(default_factory=dict)
    """Plugins that the job uses: kind to name to ``module:attribute``."""


class SeededSettings(JobSettings):
    """Draws from a seed, and noise that protects records."""

    seed: Seed
    privacy_noise: PrivacyNoise = "seeded"


class DefendedSettings(JobSettings):
    """A network under a defense at one of its levels."""

    model: Name
    defense: Defense
    level: Level | None
    seed: Seed
    device: Device


class TrainingSettings(DefendedSettings):
    """A network that is trained."""

    dataset: Name
    slug: Line
    batch_size: Records
    privacy_noise: PrivacyNoise = "seeded"
    training: TrainingConfig
    rounds: Steps
    replicas: Replicas
    rates: Literal["chosen", "all"] = "chosen"
    lengths: Listed[Length] = ("full",)
    reference_records: ReferenceRecords = "pool"


def read_settings(plain: Mapping[str, Any], kind: type[J]) -> J:
    """Check the plain settings of a job, and register the plugins that they list.

    Args:
        plain: Settings of the job.
        kind: Model of the settings.

    Raises:
        ConfigError: With every mistake in the settings.
    """
    settings = parse(kind, dict(plain), SETTINGS)
    if isinstance(settings, JobSettings):
        register_plugins(settings.plugins)
    return settings


def register_plugins(plugins: Mapping[str, Mapping[str, str]]) -> None:
    """Register objects from outside the package.

    Args:
        plugins: Kind to name to ``module:attribute``.

    Raises:
        ConfigError: If there is no such kind.
    """
    for kind, entries in plugins.items():
        if wrong := unknown_name("plugins", kind, "kind", sorted(registries.KINDS)):
            raise ConfigError(SETTINGS, wrong)
        for name, target in entries.items():
            registries.KINDS[kind].add(name, target)
