from pathlib import Path

import pytest
import yaml

from leakbound_lab.config import reading
from leakbound_lab.config.attacks import AttackConfig, published_attacks
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.registries import ATTACKS

PRESETS = published_attacks()


def attacks(**settings) -> AttackConfig:
    return AttackConfig.model_validate(settings)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_exactly_the_settings_that_it_states(name):
    preset = PRESETS[name]
    assert any(character.isdigit() for character in preset.citation)
    assert preset.differences.endswith(".")
    usual = ATTACKS.get(preset.attack)().model_dump(mode="json")
    found = attacks(**{preset.attack: {"preset": name}})
    assert getattr(found, preset.attack).model_dump(mode="json") == usual | preset.settings
    others = set(ATTACKS.builtin) - {preset.attack}
    assert all(getattr(found, other) == getattr(AttackConfig(), other) for other in others)


def test_settings_beside_the_name_replace_those_of_the_preset():
    found = attacks(gradient_inversion={"preset": "geiping2020", "iterations": 300, "images": 5}).gradient_inversion
    assert (found.iterations, found.images, found.tv_weights) == (300, 5, (1e-4,))


@pytest.mark.parametrize(
    ("attack", "preset", "expected"),
    [
        ("gradient_inversion", "geiping2002", "did you mean 'geiping2020'"),
        ("membership", "geiping2020", "unknown preset 'geiping2020' of membership; known: carlini2022"),
        ("uses", "tan2024", "known: none"),
        ("membership", ["carlini2022"], "unknown preset"),
    ],
)
def test_unknown_presets_are_refused_with_the_known_and_the_nearest_ones(attack, preset, expected):
    values = yaml.safe_load(reading.as_yaml(reading.quick())) | {"attacks": {attack: {"preset": preset}}}
    with pytest.raises(ConfigError, match=rf"attacks\.{attack}.*{expected}"):
        reading.config_of(values, "some.yaml")


def test_a_configuration_with_a_preset_runs_with_plain_settings():
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    values["attacks"]["membership"] = {"preset": "zarifzadeh2024", "epochs": 1}
    config = reading.config_of(values, "some.yaml")
    assert "preset" not in reading.as_yaml(config).split("attacks:", 1)[1].split("custom", 1)[0]
    assert config.attacks.membership.references == 2


def test_the_page_on_extending_lists_every_preset():
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    assert [name for name in PRESETS if f"`{name}`" not in page] == []
