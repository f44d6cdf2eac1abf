"""What claims are about: strength of levels, conditions, options that tests declare."""

import numpy as np
import pandas as pd
import pytest

from leakbound.claims.selection import SelectionError, select, with_strength
from leakbound.config.messages import ConfigError
from leakbound.registry import CLAIM_TESTS


def test_the_strongest_level_is_the_smallest_or_the_largest_by_defense():
    levels = {"natural": (50, 300), "dpsgd": (0.2, 0.8), "parameter_noise": (0.01, 0.1), "large_batch": (2, 8)}
    levels |= {"gradient_compression": (0.01, 0.5), "compression": (0, 10)}
    rows = pd.DataFrame(
        [(name, float(level)) for name in levels for level in levels[name]], columns=["defense", "level"]
    )
    strongest = with_strength(rows).query("strength == 1").set_index("defense")["level"].to_dict()
    assert strongest == {
        "natural": 50,
        "dpsgd": 0.8,
        "parameter_noise": 0.1,
        "large_batch": 8,
        "gradient_compression": 0.01,
        "compression": 0,
    }


def test_conditions_may_say_what_rows_have_not():
    rows = pd.DataFrame({"dataset": ["digits", "svhn", "celeba"], "level": [1.0, np.nan, 2.0]})
    assert select(rows, {"dataset": {"not": ["svhn", "celeba"]}})["dataset"].tolist() == ["digits"]
    assert select(rows, {"level": {"not": None}})["dataset"].tolist() == ["digits", "celeba"]
    with pytest.raises(SelectionError, match=r"give a value, a list of values or \{not: ...\}"):
        select(rows, {"dataset": {"but": "svhn"}})


def test_every_test_declares_its_options_and_refuses_others():
    for name in CLAIM_TESTS.names():
        with pytest.raises(ConfigError, match=rf"claim test {name}: options: bye: unknown setting"):
            CLAIM_TESTS.get(name).check({"bye": "level"})
