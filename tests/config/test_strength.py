"""Strength of levels follows what each defense's settings say."""

import pandas as pd
import pytest

from leakbound.config.defenses import default_defenses
from leakbound.config.strength import with_strength


@pytest.mark.parametrize("name", [name for name, defense in default_defenses().items() if defense.has_level])
def test_first_rank_is_the_level_that_the_defense_calls_its_strongest(name):
    rows = with_strength(pd.DataFrame({"defense": name, "level": [1.0, 2.0, 2.0]}))
    larger = default_defenses()[name].stronger_with == "larger level"
    assert rows["strength"].tolist() == ([2.0, 1.0, 1.0] if larger else [1.0, 2.0, 2.0])


def test_defenses_of_other_names_are_ranked_by_what_their_rows_say():
    rows = pd.DataFrame({"defense": ["a", "a", "b", "b"], "level": [1.0, 2.0, 1.0, 2.0]})
    rows["stronger_with"] = ["larger level"] * 2 + ["smaller level"] * 2
    assert with_strength(rows)["strength"].tolist() == [2.0, 1.0, 1.0, 2.0]
