"""Claims about recipes: what a defense reaches beyond plain SGD at another learning rate or stopping time.

A recipe is a run at one candidate rate. A defense protects only as far as its recipes lie beyond the front of those of
plain SGD, since whoever only trains less leaks less too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from leakbound.claims.outcomes import Blocks, ClaimOptions, ClaimTest, complete
from leakbound.claims.selection import Columns, EmptySelectionError, both_quantities, select
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


class Leakage(Settings):
    """A quantity that tells how much an attack learned; less is better."""

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

    def guess_on(self, dataset: str, leakage: Leakage) -> np.ndarray:
        """Leakage and utility of a guess."""
        return np.array([leakage.nothing, self.guesses.get(dataset, self.guess)])


class Beyond(ClaimOptions, PlainSGD):
    """One arm's front beyond that of plain SGD."""

    COMPARED: ClassVar[tuple[str, ...]] = ("arm",)

    arm: Conditions
    """Rows of the arm's recipes."""
    leakage: Leakage
    """Quantity along which fronts are compared."""


def recipes_of(rows: pd.DataFrame, leakage: Leakage, plain: PlainSGD) -> pd.DataFrame:
    """The recipes in rows, one row for each network: those of its leakage, with columns x (leakage) and y (utility).

    Leakage below that of nothing is luck and counts as that.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one network.
        EmptySelectionError: If no network has both quantities.
    """
    found = both_quantities(rows, leakage.where, plain.utility)
    if found.empty:
        raise EmptySelectionError("no network has both quantities")
    return found.assign(x=found["x"].clip(lower=leakage.nothing))


def distances(recipes: pd.DataFrame, arm: pd.DataFrame, leakage: Leakage, plain: PlainSGD) -> pd.Series[float]:
    """Utility of an arm beyond the front of plain SGD at equal leakage, as :func:`leakbound.metrics.beyond_front`.

    Args:
        recipes: Recipes of one dataset and network, those of plain SGD among them.
        arm: Recipes of the arm.
        leakage: Quantity along which fronts are compared.
        plain: The arms of plain SGD.

    Returns:
        A number for each replica that has recipes of both.
    """
    import pandas as pd

    from leakbound.metrics import beyond_front

    reference = dict(list(recipes[recipes["defense"].isin(plain.plain)].groupby("replica")))
    guess = plain.guess_on(str(recipes["dataset"].iloc[0]) if "dataset" in recipes.columns else "", leakage)
    found = {
        replica: beyond_front(own[["x", "y"]].to_numpy(float), reference[replica][["x", "y"]].to_numpy(float), guess)
        for replica, own in arm.groupby("replica")
        if replica in reference
    }
    return pd.Series(found, dtype=float)


def rank_recipes(rows: pd.DataFrame, options: Beyond) -> Blocks:
    """Utility of an arm beyond plain SGD's own front at equal leakage, in each replica.

    The front takes the best of all recipes of plain SGD in the replica itself, so luck raises it, the more the more
    recipes it has: an arm with fewer recipes than plain SGD is beyond it with no greater chance than stated.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one network.
        EmptySelectionError: If there is nothing to compare.
    """
    recipes = recipes_of(select(rows, options.where), options.leakage, options)
    found = distances(recipes, select(recipes, options.arm), options.leakage, options)
    (table,), left_out = complete([found.to_frame("beyond")])
    name = "+".join(str(value) for value in options.arm.values())
    detail = f"sign flips; {name} above the front of {'+'.join(options.plain)} at equal leakage, mean over leakages"
    return Blocks(table, 1, detail, left_out=left_out)


beyond = ClaimTest("beyond", Beyond, rank_recipes)
