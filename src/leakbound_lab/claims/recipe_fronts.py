"""Claims about recipes: accuracy that a defense reaches beyond plain SGD at any learning rate or length.

A recipe is a learning rate and a length of training. A shorter or slower training leaks less without any
defense. A defense therefore protects only as far as its recipes lie beyond the front of those of plain SGD.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from leakbound_lab.claims.outcomes import Blocks, ClaimOptions, ClaimTest
from leakbound_lab.claims.selection import Columns, EmptySelectionError, both_quantities, select, split
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


_CHOOSERS = 3
"""Replicas whose means choose the corners of fronts, fewer if there are fewer than five."""
_MOST_CHOICES = 20
"""Choices of choosers for each replica that judges."""


class LeakageAxis(Settings):
    """A quantity that measures how much an attack learned. Less is better."""

    where: Conditions
    """Its rows."""
    nothing: float
    """Value without leakage (0.5 for AUC). Fronts clip lower values to it, which are luck."""
    least: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Least width of the window of leakages that two fronts must both reach, in the unit of the leakage. Levels
    with a narrower one do not count: their height above each other says nothing."""


class PlainSGD(Settings):
    """The recipes of plain SGD that others are compared with, and the utility of a guess."""

    utility: Conditions
    """Rows of the utility. More is better."""
    plain: Columns = ("none", "early_stopping", "stopped")
    """Arms of plain SGD whose recipes form the front; of several with the same length, the first one."""
    guess: float = 0.1
    """Utility of a guess, which leaks nothing."""
    guesses: dict[str, float] = Field(default_factory=dict)
    """Dataset to the utility of a guess, for datasets on which it differs."""
    pool_levels: bool = False
    """Whether the levels of an arm are recipes of one front, as for who is free to choose the level."""

    def guess_on(self, dataset: str, leakage: LeakageAxis) -> np.ndarray:
        """Return the leakage and utility of a guess.

        Args:
            dataset: Name of the dataset.
            leakage: Quantity along which fronts are compared.
        """
        return np.array([leakage.nothing, self.guesses.get(dataset, self.guess)])


class Beyond(ClaimOptions, PlainSGD):
    """Options of a claim that the front of one arm lies beyond that of plain SGD."""

    COMPARED: ClassVar[tuple[str, ...]] = ("arm",)

    arm: Conditions
    """Rows of the arm's recipes."""
    leakage: LeakageAxis
    """Quantity along which fronts are compared."""


def recipes_of(rows: pd.DataFrame, leakage: LeakageAxis, plain: PlainSGD) -> pd.DataFrame:
    """Join leakage (column x) and utility (column y) of each network.

    Args:
        rows: Rows of one dataset and network.
        leakage: Quantity along which fronts are compared.
        plain: Utility of the networks and of a guess.

    Returns:
        One row for each network. The column length has the length of its training in words, with the number
        of rounds if the rows have several. The column recipe identifies equal recipes of different replicas.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one network.
        EmptySelectionError: If no network has both quantities.
    """
    both = both_quantities(rows, leakage.where, plain.utility)
    if both.empty:
        raise EmptySelectionError("no network has both quantities")
    return _with_recipes(both)


def matched(
    recipes: pd.DataFrame, arm: pd.DataFrame, plain: PlainSGD
) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Pair the recipes of each level of an arm with those of plain SGD that were trained for the same lengths.

    The best of many recipes beats the best of few even if none of them is better, so both sides get the same
    family of recipes. If several arms of plain SGD have the same length, the first of them counts.

    Args:
        recipes: Recipes of all arms, as :func:`recipes_of` returns them.
        arm: Those of the arm.
        plain: Arms of plain SGD.

    Returns:
        For each level, or each defense if its levels are pooled, its recipes and those of plain SGD, one row
        for each network.

    Raises:
        EmptySelectionError: If the arm and plain SGD have no length in common.
    """
    reference = recipes[recipes["defense"].isin(plain.plain)]
    if reference.empty:
        raise EmptySelectionError(f"no replica has both plain SGD ({', '.join(plain.plain)}) and the arm")
    order = reference["defense"].map(plain.plain.index)
    reference = reference[order == order.groupby(reference["length"]).transform("min")]
    pairs = []
    families = ("defense",) if plain.pool_levels else ("defense", "level")
    for level in split(arm, [column for column in families if column in arm.columns]).values():
        shared = set(level["length"]) & set(reference["length"])
        if shared:
            pairs.append((level[level["length"].isin(shared)], reference[reference["length"].isin(shared)]))
    if not pairs:
        lengths = [", ".join(sorted(set(rows["length"]))) for rows in (arm, reference)]
        raise EmptySelectionError(
            f"the arm's recipes have the lengths {lengths[0]}, plain SGD's {lengths[1]}"
        )
    return pairs


def heights_above_plain(
    pairs: list[tuple[pd.DataFrame, pd.DataFrame]], leakage: LeakageAxis, plain: PlainSGD
) -> tuple[pd.Series[float], list[float]]:
    """Measure the utility of an arm beyond the front of plain SGD at equal leakage, averaged over the arm's levels.

    The weight of a level is its window, the mean over combinations of the range of leakages that its
    front and that of plain SGD both reach. A level whose window is narrower than ``leakage.least`` does
    not count.

    Three replicas choose the corners by their means, and another one judges them
    (:func:`leakbound_lab.claims.fronts.beyond_front`), in all combinations or 20 for each judge. One replica
    alone often chooses a recipe that is good only there, so that plain SGD seems worse the more unsteady
    its bad recipes are.

    The number of a replica is the mean of all combinations plus a multiple of what those that it is part of
    deviate from it. Numbers spread as those of the delete-one jackknife, so that the luck of a choice
    counts. Its variance is too large rather than too small (Efron and Stein 1981). The weight of a
    combination is the range of leakages that both fronts reach in it.

    Args:
        pairs: Recipes of one dataset and network, as :func:`matched` returns them.
        leakage: Quantity along which fronts are compared.
        plain: Utility of a guess.

    Returns:
        A number, in the unit of the utility, for each replica that has recipes of the arm and of plain SGD,
        and the window of each level, in the unit of the leakage.

    Raises:
        EmptySelectionError: If there are fewer than two such replicas, or no level has a wide enough window.
    """
    import pandas as pd

    dataset = pairs[0][0]["dataset"].iloc[0] if "dataset" in pairs[0][0].columns else ""
    guess = plain.guess_on(str(dataset), leakage)
    crossed = [_crossed(tried, reference, guess) for tried, reference in pairs]
    windows = [window for _, window in crossed]
    comparable = [
        (height, window) for height, window in crossed if height is not None and window >= leakage.least
    ]
    if not comparable:
        raise EmptySelectionError(
            "some replicas choose the corners of fronts and another judges them: no two replicas have recipes of the "
            f"arm and of plain SGD whose leakages overlap by {leakage.least:g} or more; "
            f"windows: {', '.join(f'{window:.2g}' for window in windows)}"
        )
    heights = pd.concat([height for height, _ in comparable], axis=1).dropna()
    widths = np.array([window for _, window in comparable])
    weights = widths if widths.any() else np.ones(len(widths))
    return heights @ (weights / weights.sum()), windows


def rank_recipes(rows: pd.DataFrame, options: Beyond) -> Blocks:
    """Measure the utility of an arm beyond the front of plain SGD at equal leakage, in each replica.

    Args:
        rows: Rows of one dataset and network.
        options: Conditions of the arm, of leakage and of utility.

    Returns:
        A number for each replica, in the unit of the utility.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one network.
        EmptySelectionError: If there is nothing to compare.
    """
    recipes = recipes_of(select(rows, options.where), options.leakage, options)
    pairs = matched(recipes, select(recipes, options.arm), options)
    effects, windows = heights_above_plain(pairs, options.leakage, options)
    name = "+".join(str(value) for value in options.arm.values())
    front = "+".join(options.plain)
    counts = [[rows["recipe"].nunique() for rows in sides] for sides in pairs]
    numbers = " and ".join(dict.fromkeys(f"{tried} to {reference}" for tried, reference in counts))
    lengths = ", ".join(dict.fromkeys(length for _, ref in pairs for length in sorted(set(ref["length"]))))
    detail = f"sign flips; {name} above the front of {front} at equal leakage, mean over leakages"
    detail += "" if options.pool_levels else f" and {len(pairs)} levels by their windows"
    detail += f"; recipes: {numbers} of the lengths {lengths}"
    replicas = {replica for sides in pairs for rows in sides for replica in rows["replica"]}
    narrow = [" (too narrow)" * (window < options.leakage.least) for window in windows]
    note = ", ".join(f"{window:.2g}{words}" for window, words in zip(windows, narrow, strict=True))
    left_out = len(replicas) - len(effects)
    return Blocks(effects.to_frame("beyond"), 1, detail, left_out=left_out, note=f"windows {note}")


def _with_recipes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the length of each training in words and the number of its recipe, equal in all replicas.

    Arms of plain SGD that only stop it have a length of their own: the best point on validation records, or a
    part. If the rows have several numbers of rounds, lengths state them.
    """
    several = "rounds" in rows.columns and rows["rounds"].nunique() > 1
    columns = (
        rows.get(name, [default] * len(rows))
        for name, default in (("length", "full"), ("level", 0.5), ("rounds", 0))
    )
    lengths = [
        _length_in_words(defense, length, level) + (f" of {rounds}" if several else "")
        for defense, length, level, rounds in zip(rows["defense"], *columns, strict=True)
    ]
    coordinates = [column for column in ("run", "learning_rate", "length") if column in rows.columns]
    return rows.assign(length=lengths, recipe=rows.groupby(coordinates, dropna=False).ngroup())


def _length_in_words(defense: str, length: str, level: float) -> str:
    """Return the length of a training, by which networks that were trained for equally long are matched."""
    if length == "full" and defense == "early_stopping":
        return "best"
    if length == "full" and defense == "stopped":
        return "half" if level == 0.5 else f"{level:g}"
    return length


def _crossed(
    tried: pd.DataFrame, reference: pd.DataFrame, guess: np.ndarray
) -> tuple[pd.Series[float] | None, float]:
    """Measure the height of a front above another in each replica, None if no two compare, and the window."""
    import pandas as pd

    replicas = sorted(set(tried["replica"]) & set(reference["replica"]))
    sides = [
        np.stack(
            [rows.pivot(index="replica", columns="recipe", values=q).loc[replicas] for q in "xy"], axis=-1
        )
        for rows in (tried, reference)
    ]
    # Which replicas choose and which one judges, at most so many choices for each judge.
    n = len(replicas)
    size = max(1, min(_CHOOSERS, n - 2))
    shifts = list(itertools.combinations(range(1, n), size))
    shifts = shifts[:: -(-len(shifts) // _MOST_CHOICES) or 1]
    cases = [([(judge + step) % n for step in shift], judge) for shift in shifts for judge in range(n)]
    heights, ranges = np.array([_height(sides, *case, guess) for case in cases]).reshape(-1, 2).T
    weights = ranges if ranges.any() else np.isfinite(heights).astype(float)
    if not weights.any():
        return None, 0.0
    window = float(ranges.mean())
    heights = np.nan_to_num(heights)
    mean = np.average(heights, weights=weights)
    if n == 2:  # choosing counted too, both would have the same number
        return pd.Series(mean + (weights / weights.mean() * (heights - mean)), index=replicas), window
    # A number for each replica, by the combinations that it is part of.
    part = np.array([[replica in (*choosing, judge) for replica in range(n)] for choosing, judge in cases])
    deviations = (weights / weights.mean() * (heights - mean)) @ part / part.sum(axis=0)
    return pd.Series(mean + (size + 1) * (n - 1) / (n - 1 - size) * deviations, index=replicas), window


def _height(
    sides: list[np.ndarray], choosers: list[int], judge: int, guess: np.ndarray
) -> tuple[float, float]:
    """Measure the height of one front above another, and the range of leakages that both reach.

    Each side is an array of replicas x recipes x (leakage, utility), NaN where a network diverged.
    """
    from leakbound_lab.claims.fronts import beyond_front

    parts = [side[[*choosers, judge]] for side in sides]
    # A network that diverged in one of these replicas is no corner.
    parts = [part[:, np.isfinite(part[..., 0]).all(axis=0)] for part in parts]
    recipes, reference = (np.stack([part[:-1].mean(axis=0), part[-1]]) for part in parts)
    return beyond_front(recipes, reference, guess)


beyond = ClaimTest("beyond", Beyond, rank_recipes)
