"""Claims about recipes: what a defense reaches beyond plain SGD at another learning rate or stopping time.

A recipe is a run at one candidate rate. A defense protects only as far as its recipes lie beyond the front of
those of plain SGD, since whoever only trains less leaks less too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from leakbound.claims.outcomes import Blocks, ClaimOptions, ClaimTest
from leakbound.claims.selection import Columns, EmptySelectionError, both_quantities, select, split
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


class LeakageAxis(Settings):
    """A quantity that measures how much an attack learned. Less is better."""

    where: Conditions
    """Its rows."""
    nothing: float
    """Its value where nothing leaks, e.g. 0.5 of an AUC; what lies below is luck, and counts as that."""


class PlainSGD(Settings):
    """The recipes that others are measured by, and what they are worth."""

    utility: Conditions
    """Rows of what is wanted; more is better."""
    plain: Columns = ("none", "early_stopping", "stopped")
    """Arms of plain SGD, whose recipes make the front."""
    guess: float = 0.1
    """Utility of a guess, which leaks nothing."""
    guesses: dict[str, float] = Field(default_factory=dict)
    """Dataset to the utility of a guess there, if it is another."""

    def guess_on(self, dataset: str, leakage: LeakageAxis) -> np.ndarray:
        """Find the leakage and utility of a guess."""
        return np.array([leakage.nothing, self.guesses.get(dataset, self.guess)])


class Beyond(ClaimOptions, PlainSGD):
    """One arm's front beyond that of plain SGD."""

    COMPARED: ClassVar[tuple[str, ...]] = ("arm",)

    arm: Conditions
    """Rows of the arm's recipes."""
    leakage: LeakageAxis
    """Quantity along which fronts are compared."""


def recipes_of(rows: pd.DataFrame, leakage: LeakageAxis, plain: PlainSGD) -> pd.DataFrame:
    """List the recipes in rows, one for each network: those of its leakage, with columns x (leakage), y (utility).

    Leakage below the value without leakage is chance and is clipped to it.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one network.
        EmptySelectionError: If no network has both quantities.
    """
    both = both_quantities(rows, leakage.where, plain.utility)
    if both.empty:
        raise EmptySelectionError("no network has both quantities")
    return both.assign(x=both["x"].clip(lower=leakage.nothing))


def matched(
    recipes: pd.DataFrame, arm: pd.DataFrame, plain: PlainSGD
) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Pair the recipes of each level of an arm with those of plain SGD that were trained for the same lengths.

    Whoever tries more recipes reaches more though none of them is better, so all are given the same family.
    Where plain SGD has several runs of a length, the first of its arms that has it counts.

    Returns:
        Recipes of a level and of plain SGD, one row for each network, with a column recipe that names what is
        the same in all replicas.

    Raises:
        EmptySelectionError: If the arm and plain SGD have no length in common.
    """
    reference, tried = (_with_length(rows) for rows in (recipes[recipes["defense"].isin(plain.plain)], arm))
    if reference.empty:
        raise EmptySelectionError(f"no replica has both plain SGD ({', '.join(plain.plain)}) and the arm")
    order = reference["defense"].map(plain.plain.index)
    reference = reference[order == order.groupby(reference["length"]).transform("min")]
    pairs = []
    for level in split(
        tried, [column for column in ("defense", "level") if column in tried.columns]
    ).values():
        shared = set(level["length"]) & set(reference["length"])
        if shared:
            pairs.append((level[level["length"].isin(shared)], reference[reference["length"].isin(shared)]))
    if not pairs:
        lengths = [", ".join(sorted(set(rows["length"]))) for rows in (tried, reference)]
        raise EmptySelectionError(
            f"the arm's recipes have the lengths {lengths[0]}, plain SGD's {lengths[1]}"
        )
    return pairs


def heights_above_plain(
    pairs: list[tuple[pd.DataFrame, pd.DataFrame]], leakage: LeakageAxis, plain: PlainSGD
) -> pd.Series[float]:
    """Measure the utility of an arm beyond the front of plain SGD at equal leakage, the mean over the arm's levels.

    Corners are chosen in one replica and judged in another (:func:`leakbound.claims.hulls.beyond_front`), in
    all pairs of different replicas. The number of a replica is the mean height where it judges, plus that
    where it chooses, minus that of all pairs: a jackknife, so that the luck of a choice counts where numbers
    are compared with their spread. A pair of replicas counts by the range of leakages that both fronts reach
    in it.

    Args:
        pairs: Recipes of one dataset and network, as :func:`matched` gives them.
        leakage: Quantity along which fronts are compared.
        plain: What guesses are worth.

    Returns:
        A number for each replica that has recipes of both, of every level whose recipes reach leakages of
        plain SGD.

    Raises:
        EmptySelectionError: If there are fewer than two such replicas, or no leakage that both fronts reach.
    """
    import pandas as pd

    dataset = pairs[0][0]["dataset"].iloc[0] if "dataset" in pairs[0][0].columns else ""
    guess = plain.guess_on(str(dataset), leakage)
    heights = [
        height for tried, reference in pairs if (height := _crossed(tried, reference, guess)) is not None
    ]
    if not heights:
        raise EmptySelectionError(
            "corners of fronts are chosen and judged in different replicas: no two of them have recipes of the arm and "
            "of plain SGD whose leakages overlap"
        )
    return pd.concat(heights, axis=1).mean(axis=1, skipna=False).dropna()


def rank_recipes(rows: pd.DataFrame, options: Beyond) -> Blocks:
    """Test the utility of an arm beyond plain SGD's own front at equal leakage, in each replica.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one network.
        EmptySelectionError: If there is nothing to compare.
    """
    recipes = recipes_of(select(rows, options.where), options.leakage, options)
    pairs = matched(recipes, select(recipes, options.arm), options)
    effects = heights_above_plain(pairs, options.leakage, options)
    name = "+".join(str(value) for value in options.arm.values())
    counts = [[rows["recipe"].nunique() for rows in sides] for sides in pairs]
    numbers = " and ".join(dict.fromkeys(f"{tried} to {reference}" for tried, reference in counts))
    lengths = ", ".join(dict.fromkeys(length for _, ref in pairs for length in sorted(set(ref["length"]))))
    detail = f"sign flips; {name} above the front of {'+'.join(options.plain)} at equal leakage, mean over leakages"
    detail += f" and {len(pairs)} levels; recipes: {numbers} of the lengths {lengths}"
    replicas = {replica for sides in pairs for rows in sides for replica in rows["replica"]}
    return Blocks(effects.to_frame("beyond"), 1, detail, left_out=len(replicas) - len(effects))


def _with_length(rows: pd.DataFrame) -> pd.DataFrame:
    """Recipes with the length of their training in words, and a name that is the same in all replicas.

    Arms of plain SGD that only stop it name a length by themselves: its best point on validation records, or
    a part.
    """
    lengths = rows["length"] if "length" in rows.columns else np.repeat("full", len(rows))
    levels = rows["level"] if "level" in rows.columns else np.repeat(0.5, len(rows))
    named = [
        length
        if length != "full"
        else {"early_stopping": "best", "stopped": _part(level)}.get(defense, length)
        for defense, level, length in zip(rows["defense"], levels, lengths, strict=True)
    ]
    kept = [column for column in ("run", "learning_rate", "length") if column in rows.columns]
    return rows.assign(length=named, recipe=rows.groupby(kept, dropna=False).ngroup())


def _part(level: float) -> str:
    """A part of the rounds in words."""
    return "half" if level == 0.5 else f"{level:g}"


def _crossed(tried: pd.DataFrame, reference: pd.DataFrame, guess: np.ndarray) -> pd.Series[float] | None:
    """Heights of one front above another, one number for each replica, None where no two replicas can be compared."""
    import pandas as pd

    from leakbound.claims.hulls import beyond_front

    replicas = sorted(set(tried["replica"]) & set(reference["replica"]))
    sides = [
        np.stack(
            [rows.pivot(index="replica", columns="recipe", values=q).loc[replicas] for q in "xy"], axis=-1
        )
        for rows in (tried, reference)
    ]
    n = len(replicas)
    heights, ranges = (
        np.full((n, n), np.nan),
        np.zeros((n, n)),
    )  # chosen in a row's replica, judged in a column's
    for place in zip(*np.nonzero(~np.eye(n, dtype=bool)), strict=True):
        # A network that diverged in one of both replicas is no corner.
        both = [side[list(place)][:, np.isfinite(side[list(place), :, 0]).all(axis=0)] for side in sides]
        heights[place], ranges[place] = beyond_front(both[0], both[1], guess)
    weights = ranges if ranges.any() else np.isfinite(heights).astype(float)
    if not weights.any():
        return None
    weights *= n * (n - 1) / weights.sum()
    heights = np.nan_to_num(heights)
    mean = (weights * heights).sum() / (n * (n - 1))
    terms = weights * (heights - mean)
    numbers = terms.sum(axis=0) + (
        terms.sum(axis=1) if n > 2 else 0
    )  # two replicas would have the same number
    return pd.Series(mean + numbers / (n - 1), index=replicas)


beyond = ClaimTest("beyond", Beyond, rank_recipes)
