"""Settings of jobs that several steps share, and the plugins that a job lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ConfigDict, Field

from leakbound.words import shown
from leakbound_lab import registries
from leakbound_lab.config.messages import ConfigError, unknown_name
from leakbound_lab.config.settings import Name, PrivacyNoise, Seed, Settings, Target

ConfigOption = Annotated[Path, typer.Option(help="Configuration file.")]
SETTINGS = "settings of the job"
"""Name of a job's settings, for messages."""
Device = Literal["auto", "cpu", "cuda"]


class JobSettings(Settings):
    """Settings of a job: the part of a configuration on which the job depends."""

    model_config = ConfigDict(defer_build=True)  # each command needs one of these models

    plugins: dict[Name, dict[Name, Target]] = Field(default_factory=dict)
    """Plugins that the job uses: kind to name to ``module:attribute``."""


class SeededSettings(JobSettings):
    """Draws from a seed, and noise that protects records."""

    seed: Seed
    privacy_noise: PrivacyNoise = "seeded"


def register_plugins(plugins: Mapping[str, Mapping[str, str]]) -> None:
    """Register objects from outside the package.

    Args:
        plugins: Kind to name to ``module:attribute``.

    Raises:
        ConfigError: If there is no such kind, or they are no such mapping.
    """
    mappings = isinstance(plugins, Mapping) and all(
        isinstance(entries, Mapping) for entries in plugins.values()
    )
    if not mappings:
        raise ConfigError(
            SETTINGS, f"plugins = {shown(plugins)}: is no mapping from kinds to names to module:attribute"
        )
    for kind, entries in plugins.items():
        if wrong := unknown_name("plugins", kind, "kind", sorted(registries.KINDS)):
            raise ConfigError(SETTINGS, wrong)
        for name, target in entries.items():
            registries.KINDS[kind].add(name, target)
