"""Published attacks: presets of settings, which a configuration can name and change."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from leakbound.config.settings import Line, Name, Settings
from leakbound.registry import nearest


class AttackPreset(Settings):
    """A published attack, a file of the folder ``published_attacks`` under its name."""

    attack: Name
    """Attack that implements it."""
    citation: Line
    """Paper."""
    differences: Line
    """Differences between the paper's attack and the one that is run."""
    settings: dict[Name, Any]
    """Settings of the attack; all others keep their defaults."""


@cache
def published_attacks() -> Mapping[str, AttackPreset]:
    """Read the published attacks, by name."""
    files = sorted(Path(__file__).with_name("published_attacks").glob("*.yaml"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {name: AttackPreset.model_validate(yaml.safe_load(text)) for name, text in texts.items()}


def with_preset(attack: str, values: Any) -> Any:
    """Replace the name of a preset by the preset's settings.

    Args:
        attack: Name of the attack.
        values: Plain values. Those given with ``preset`` override the preset's settings.

    Raises:
        ValueError: If the attack has no such preset.

    Example:
        >>> with_preset("membership", {"preset": "carlini2022", "epochs": 10})["epochs"]
        10
    """
    if not isinstance(values, Mapping) or "preset" not in values:
        return values
    presets = {name: preset for name, preset in published_attacks().items() if preset.attack == attack}
    chosen = values["preset"]
    if not isinstance(chosen, str) or chosen not in presets:
        raise ValueError(f"unknown preset {chosen!r} of {attack}; {nearest(str(chosen), [*presets])}")
    return presets[chosen].settings | {name: value for name, value in values.items() if name != "preset"}
