"""Settings that a job is given on the command line: reading, checking, and those that several steps share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import ConfigDict, Field, model_validator

from leakbound import registry
from leakbound.config.defenses import Defense
from leakbound.config.messages import ConfigError, parse, shown, unknown_name
from leakbound.config.settings import (
    Level,
    Line,
    Listed,
    Name,
    Records,
    Replicas,
    Seed,
    Settings,
    Steps,
    Target,
)
from leakbound.config.training import Length, TrainingConfig
from leakbound.randomness.origin import PrivacyNoise

J = TypeVar("J", bound=Settings)
ConfigOption = Annotated[Path, typer.Option(help="Configuration that is meant.")]
Device = Literal["auto", "cpu", "cuda"]


class JobSettings(Settings):
    """Settings of any command that a job calls: the part of a configuration that the job depends on.

    The workflow takes them from a checked configuration. They are checked again, because a command can be
    called by hand.
    """

    model_config = ConfigDict(defer_build=True)  # each command needs one of them

    plugins: dict[Name, dict[Name, Target]] = Field(default_factory=dict)
    """Things from outside the package that the job uses: kind to name to ``module:attribute``."""


class DefendedSettings(JobSettings):
    """A network under a defense at one of its levels."""

    model: Name
    defense: Defense
    level: Level | None
    seed: Seed
    device: Device

    @model_validator(mode="after")
    def _has_a_possible_level(self) -> DefendedSettings:
        if (problem := self.defense.level_problem(self.level)) is not None:
            raise ValueError(f"level = {self.level}: {problem}")
        return self


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


def read_settings(text: str, kind: type[J]) -> J:
    """Settings from the command line; what they name from outside the package is registered.

    Raises:
        typer.BadParameter: If ``text`` is not a JSON object.
        ConfigError: With every mistake in it.
    """
    asked = parse(kind, plain_settings(text), "--settings")
    if isinstance(asked, JobSettings):
        register_plugins(asked.plugins)
    return asked


def plain_settings(text: str) -> dict[str, Any]:
    """Settings from the command line as they are, e.g. to be recorded.

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
    """Register things from outside the package: kind to name to ``module:attribute``.

    Raises:
        ConfigError: If there is no such kind of things.
    """
    for kind, entries in plugins.items():
        if wrong := unknown_name("plugins", kind, "kind", sorted(registry.KINDS)):
            raise ConfigError("--settings", wrong)
        for name, target in entries.items():
            registry.KINDS[kind].add(name, target)
