"""Strength of levels, so that those of different defenses can be matched."""

from collections.abc import Mapping

import pandas as pd

from leakbound.config.defenses import default_defenses


def with_stated_strength(rows: pd.DataFrame, stated: Mapping[str, str]) -> pd.DataFrame:
    """Rows with what their defenses say as column ``stronger_with``, as they are if there is nothing to say.

    Args:
        rows: Table.
        stated: Of a configuration, :meth:`leakbound.config.whole.Config.stated_strength`.
    """
    return rows.assign(stronger_with=rows["defense"].map(stated)) if stated and "defense" in rows.columns else rows


def larger_is_stronger(rows: pd.DataFrame) -> pd.Series:
    """True at rows whose defense protects most at its largest level; of the others the smallest does.

    Defenses that say nothing in a column ``stronger_with`` go by the defaults of their names.
    """
    by_name = rows["defense"].map({name: defense.stronger_with for name, defense in default_defenses().items()})
    stated = rows.get("stronger_with", by_name)
    return stated.where(stated.notna(), by_name) == "larger level"


def with_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the rank of their level among their defense's levels as column ``strength``, the strongest first.

    A table without the columns defense and level is returned as it is.
    """
    if not {"defense", "level"} <= set(rows.columns):
        return rows
    signed = rows["level"].where(~larger_is_stronger(rows), -rows["level"])
    return rows.assign(strength=signed.groupby(rows["defense"]).rank(method="dense"))
