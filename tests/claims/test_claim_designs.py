"""What claims are about: strength of levels, conditions, options that tests declare."""

import numpy as np
import pandas as pd
import pytest
import yaml

from leakbound.claims.selection import SelectionError, larger_is_stronger, select, with_strength
from leakbound.claims.tabulation import RunResults, tabulate
from leakbound.config import reading


def test_the_strongest_level_is_the_smallest_or_the_largest_by_defense():
    levels = {"natural": (50, 300), "dpsgd": (0.8, 0.2), "parameter_noise": (0.1, 0.01), "large_batch": (8, 2)}
    levels |= {"gradient_compression": (0.01, 0.5), "compression": (0, 10)}  # the strongest first
    rows = pd.DataFrame(
        [(name, float(level)) for name in levels for level in levels[name]], columns=["defense", "level"]
    )
    strongest = with_strength(rows).query("strength == 1").set_index("defense")["level"].to_dict()
    assert strongest == {name: first for name, (first, _) in levels.items()}


def test_conditions_may_say_what_rows_have_not():
    rows = pd.DataFrame({"dataset": ["digits", "svhn", "celeba"], "level": [1.0, np.nan, 2.0]})
    assert select(rows, {"dataset": {"not": ["svhn", "celeba"]}})["dataset"].tolist() == ["digits"]
    assert select(rows, {"level": {"not": None}})["dataset"].tolist() == ["digits", "celeba"]
    with pytest.raises(SelectionError, match=r"give a value, a list of values or \{not: ...\}"):
        select(rows, {"dataset": {"but": "svhn"}})


def test_defenses_of_other_names_are_ranked_by_what_the_configuration_says():
    defenses = {"mild": {"mechanism": "dpsgd"}, "dpsgd": {"mechanism": "channel"}, "white": {"mechanism": "channel"}}
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    stated = reading.config_of({**values, "defenses": defenses, "studies": {}}, "test").stated_strength()
    assert stated == {"mild": "larger level", "dpsgd": "smaller level"}
    assert reading.quick().stated_strength() == {}
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
