"""Strength of levels follows what each defense's settings say."""

import pandas as pd
import pytest
import yaml

from leakbound.config import reading
from leakbound.config.defenses import default_defenses
from leakbound.config.strength import larger_is_stronger, with_stated_strength, with_strength


@pytest.mark.parametrize("name", [name for name, defense in default_defenses().items() if defense.has_level])
def test_first_rank_is_the_level_that_the_defense_calls_its_strongest(name):
    rows = with_strength(pd.DataFrame({"defense": name, "level": [1.0, 2.0, 2.0]}))
    larger = default_defenses()[name].stronger_with == "larger level"
    assert rows["strength"].tolist() == ([2.0, 1.0, 1.0] if larger else [1.0, 2.0, 2.0])


def test_defenses_of_other_names_are_ranked_by_what_the_configuration_says():
    defenses = {"mild": {"mechanism": "dpsgd"}, "dpsgd": {"mechanism": "channel"}, "white": {"mechanism": "channel"}}
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    stated = reading.check({**values, "defenses": defenses, "studies": {}}, "test").stated_strength()
    assert stated == {"mild": "larger level", "dpsgd": "smaller level"}
    rows = pd.DataFrame(
        {"defense": ["mild", "mild", "dpsgd", "dpsgd", "large_batch"], "level": [1.0, 2.0, 1.0, 2.0, 3.0]}
    )
    assert with_strength(with_stated_strength(rows, stated))["strength"].tolist() == [2.0, 1.0, 1.0, 2.0, 1.0]
    assert larger_is_stronger(with_stated_strength(rows, stated)).tolist() == [True, True, False, False, True]


def test_presets_state_no_strength_beside_the_default_names():
    assert reading.quick().stated_strength() == {}
    rows = pd.DataFrame({"defense": ["dpsgd"], "level": [1.0]})
    assert with_stated_strength(rows, {}) is rows
