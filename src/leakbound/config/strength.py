"""Strength of levels, so that those of different defenses can be matched."""

from __future__ import annotations

import pandas as pd

from leakbound.config.defenses import default_defenses

STRONGER_WITH_LEVEL = tuple(
    name for name, defense in default_defenses().items() if defense.stronger_with == "larger level"
)
"""Defenses whose largest level protects most; of the others the smallest does."""


def with_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the rank of their level among their defense's levels as column ``strength``, the strongest first.

    Args:
        rows: Table; without the columns defense and level it is returned as it is. A column ``stronger_with`` holds
            what each row's defense says; without it, defenses go by their default names.
    """
    if not {"defense", "level"} <= set(rows.columns):
        return rows
    larger = rows.get("stronger_with", rows["defense"].isin(STRONGER_WITH_LEVEL).map({True: "larger level"}))
    signed = rows["level"].where(larger != "larger level", -rows["level"])
    return rows.assign(strength=signed.groupby(rows["defense"]).rank(method="dense"))
