"""Strength of levels follows what each defense's settings say."""

import pandas as pd
import pytest
import yaml

from leakbound.claims.selection import larger_is_stronger, with_strength
from leakbound.claims.tabulation import RunResults, tabulate
from leakbound.config import reading
from leakbound.config.defenses import default_defenses


@pytest.mark.parametrize("name", [name for name, defense in default_defenses().items() if defense.has_level])
def test_first_rank_is_the_level_that_the_defense_calls_its_strongest(name):
    rows = with_strength(pd.DataFrame({"defense": name, "level": [1.0, 2.0, 2.0]}))
    larger = default_defenses()[name].stronger_with == "larger level"
    assert rows["strength"].tolist() == ([2.0, 1.0, 1.0] if larger else [1.0, 2.0, 2.0])


def test_defenses_of_other_names_are_ranked_by_what_the_configuration_says():
    defenses = {"mild": {"mechanism": "dpsgd"}, "dpsgd": {"mechanism": "channel"}, "white": {"mechanism": "channel"}}
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    stated = reading.config_of({**values, "defenses": defenses, "studies": {}}, "test").stated_strength()
    assert stated == {"mild": "larger level", "dpsgd": "smaller level"}
    runs = [
        RunResults(f"{name}-{level:g}", "digits", "lenet", name, level, 10, 2, attacks={"gradient_inversion": scores()})
        for name, level in (("dpsgd", 1.0), ("dpsgd", 2.0), ("large_batch", 3.0), ("mild", 1.0), ("mild", 2.0))
    ]
    rows = tabulate(runs, {}, stated)
    assert list(rows.columns) == [*tabulate(runs, {}).columns, "stronger_with"]
    assert with_strength(rows)["strength"].tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert larger_is_stronger(rows).tolist() == [False, False, True, True, True]


def scores() -> pd.DataFrame:
    row = {"replica": 0, "learning_rate": 0.1, "chosen": True, "variant": "tuned", "unit": 0, "metric": "mse"}
    return pd.DataFrame([{**row, "value": 0.5, "low": float("nan"), "high": float("nan"), "status": ""}])


def test_presets_state_no_strength_beside_the_default_names():
    assert reading.quick().stated_strength() == {}
