"""What several steps share: the option of a configuration file, devices by name, and the plugins that a job lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from leakbound.words import shown
from leakbound_lab import registries
from leakbound_lab.config.messages import ConfigError, unknown_name

ConfigOption = Annotated[Path, typer.Option(help="Configuration file.")]
SETTINGS = "settings of the job"
"""Name of a job's settings, for messages."""
Device = Literal["auto", "cpu", "cuda"]


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
