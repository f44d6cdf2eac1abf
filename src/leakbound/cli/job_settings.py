"""Settings of jobs on the command line: reading, checking, and settings that several steps share."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import ConfigDict, Field

from leakbound import registry
from leakbound.config.attacks import ReferenceRecords
from leakbound.config.defenses import Defense
from leakbound.config.messages import ConfigError, parse, shown, unknown_name
from leakbound.config.settings import (
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
from leakbound.config.training import Length, TrainingConfig

J = TypeVar("J", bound=Settings)
ConfigOption = Annotated[Path, typer.Option(help="Configuration file.")]
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


def read_settings(text: str, kind: type[J]) -> J:
    """Read settings from the command line, and register the plugins that they list.

    Args:
        text: Settings as JSON.
        kind: Model of the settings.

    Raises:
        typer.BadParameter: If ``text`` is not a JSON object.
        ConfigError: With every mistake in the settings.
    """
    settings = parse(kind, plain_settings(text), "--settings")
    if isinstance(settings, JobSettings):
        register_plugins(settings.plugins)
    return settings


def plain_settings(text: str) -> dict[str, Any]:
    """Read settings from the command line as plain values, e.g. for provenance.

    Args:
        text: Settings as JSON.

    Raises:
        typer.BadParameter: If ``text`` is not a JSON object.
    """
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--settings is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise typer.BadParameter(f"--settings must be a JSON object, not {shown(settings)}")
    return settings


def register_plugins(plugins: Mapping[str, Mapping[str, str]]) -> None:
    """Register objects from outside the package.

    Args:
        plugins: Kind to name to ``module:attribute``.

    Raises:
        ConfigError: If there is no such kind.
    """
    for kind, entries in plugins.items():
        if wrong := unknown_name("plugins", kind, "kind", sorted(registry.KINDS)):
            raise ConfigError("--settings", wrong)
        for name, target in entries.items():
            registry.KINDS[kind].add(name, target)
