"""Claims about trade-offs: the front of one defense beyond the fronts of others, and the geometry of fronts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field, Strict

from leakbound_lab.claims.outcomes import Blocks, ClaimOptions, ClaimTest, complete
from leakbound_lab.claims.selection import EmptySelectionError, both_quantities, select, select_or_nothing
from leakbound_lab.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


def hypervolume(points: Float[np.ndarray, "n 2"], reference: Float[np.ndarray, " 2"]) -> float:
    """Compute the area that a two-dimensional front dominates, if more is better along both axes.

    Args:
        points: Points of the front. Dominated points add nothing.
        reference: Corner from which the area is measured. Points that do not exceed it along both axes add
            nothing.

    Returns:
        The area, in the product of both axes' units.

    Raises:
        ValueError: If a coordinate is not finite.
    """
    if not (np.isfinite(points).all() and np.isfinite(reference).all()):
        raise ValueError(
            "a point of the front is not finite: leave out diverged runs before taking the hypervolume"
        )
    sides = np.maximum(points - reference, 0.0)
    sides = sides[np.argsort(-sides[:, 0], kind="stable")]
    reached = np.maximum.accumulate(sides[:, 1])  # by this point and all points farther along the first axis
    return float(-np.diff(sides[:, 0], append=0.0) @ reached)


def recipe_front(
    recipes: Float[np.ndarray, "n 2"], guess: Float[np.ndarray, " 2"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Compute the highest utility that recipes reach at each leakage, mixtures of recipes included.

    Suppose that somebody publishes the model of one recipe with probability p, and otherwise that of another.
    The mean leakage and the mean utility are then p times those of the first recipe plus 1 − p times those of
    the second. Recipes therefore reach all points on and under their concave hull. A staircase would be too
    low between two recipes, so points there would seem better than they are.

    Args:
        recipes: Leakage (less is better) and utility (more is better) of each recipe. Leakage below that of
            the guess is luck and is clipped to it.
        guess: Leakage and utility of a guess, which needs no data.

    Returns:
        Leakages and utilities of the hull's corners, both ascending, from the least leakage to the highest
        utility. The front is linear between corners, and flat behind the last one.

    Raises:
        ValueError: If a coordinate is not finite.
    """
    points = _recipes(recipes, guess)
    corners = points[_corners(points)]
    return corners[:, 0], corners[:, 1]


def beyond_front(
    recipes: Float[np.ndarray, "2 n 2"], reference: Float[np.ndarray, "2 m 2"], guess: Float[np.ndarray, " 2"]
) -> tuple[float, float]:
    """Measure the utility of one front above another at equal leakage, chosen in one replica and judged in another.

    The first replica determines which recipes are corners, and how they are mixed for each leakage. The
    second replica compares mixtures of both fronts that leak equally in the first: the difference of their
    utilities, minus the difference of their leakages times the mean slope of both fronts. This is linear in
    the measurements of the second replica. Luck in these measurements therefore favors neither front,
    whatever their numbers of recipes. A bad choice lowers its front, so that means over several replicas
    choose better.

    Args:
        recipes: Leakage and utility of each recipe in the replica that chooses, or their means over several,
            and in the one that judges.
        reference: The same for the other front.
        guess: Leakage and utility of a guess, which needs no data.

    Returns:
        The mean height over the leakages that both fronts reach, from the larger of their first corners to
        the smaller of their last ones, and the length of this range. The height is NaN if there is no such
        leakage.

    Raises:
        ValueError: If a coordinate is not finite.
    """
    fronts = []
    ends = []
    for choosing, judged in ([_recipes(part, guess) for part in both] for both in (recipes, reference)):
        corners = _corners(choosing)
        trained = [corner for corner in corners if corner > 0]  # the guess is no recipe
        if not trained:
            return math.nan, 0.0
        fronts.append((choosing[corners], judged[corners]))
        ends.append(choosing[[trained[0], trained[-1]], 0])
    low = max(first for first, _ in ends)
    high = min(last for _, last in ends)
    if low > high:
        return math.nan, 0.0
    knots = np.unique(np.clip(np.concatenate([choosing[:, 0] for choosing, _ in fronts]), low, high))
    at = (knots[1:] + knots[:-1]) / 2 if low < high else knots  # everything is linear between two knots
    utility, leakage, slope = (
        np.array(part) for part in zip(*(_mixed(at, *front) for front in fronts), strict=True)
    )
    heights = utility[0] - utility[1] - slope.mean(axis=0) * (leakage[0] - leakage[1])
    return float(np.average(heights, weights=np.diff(knots) if low < high else None)), float(high - low)


def _mixed(
    at: Float[np.ndarray, " k"], choosing: Float[np.ndarray, "c 2"], judged: Float[np.ndarray, "c 2"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return judged utility, leakage and slope of the mixtures with leakage ``at`` in the choosing replica."""
    x = choosing[:, 0]
    rises = np.diff(choosing[:, 1]) / np.diff(x) if len(x) > 1 else np.zeros(1)
    slope = rises[np.clip(np.searchsorted(x, at) - 1, 0, len(rises) - 1)]
    return np.interp(at, x, judged[:, 1]), np.interp(at, x, judged[:, 0]), slope


def _recipes(recipes: Float[np.ndarray, "n 2"], guess: Float[np.ndarray, " 2"]) -> Float[np.ndarray, "n1 2"]:
    """Stack the guess and the recipes, with no leakage below that of the guess."""
    points = np.vstack([guess, recipes])
    if not np.isfinite(points).all():
        raise ValueError("a recipe is not finite: leave out diverged runs before taking the front")
    points[:, 0] = np.maximum(points[:, 0], guess[0])
    return points


def _corners(points: Float[np.ndarray, "n 2"]) -> list[int]:
    """List the corners of the concave hull of points, from the least leakage to the highest utility."""
    x, y = points.T.tolist()
    corners: list[int] = []
    slopes: list[float] = []  # from each corner to the next
    for index in np.lexsort((-points[:, 1], points[:, 0])).tolist():
        if corners and y[index] <= y[corners[-1]]:
            continue
        while corners:
            slope = (y[index] - y[corners[-1]]) / (x[index] - x[corners[-1]])
            if not slopes or slope < slopes[-1]:
                slopes.append(slope)
                break
            # A point on or under the line between its neighbors is no corner: slopes must fall from one to the next.
            corners.pop()
            slopes.pop()
        corners.append(index)
    return corners


class Front(ClaimOptions):
    """One front that is claimed to dominate more than each of several others."""

    COMPARED: ClassVar[tuple[str, ...]] = ("best", "against", "x", "y")

    best: Conditions
    """Conditions of the points claimed to have the best trade-off."""
    against: Annotated[tuple[Conditions, ...], Strict(False), Field(min_length=1)]
    """Conditions of the points of each other front. Fronts without points are left out."""
    x: Conditions
    """Conditions of the quantity along x. More is better."""
    y: Conditions
    """Conditions of the quantity along y. More is better."""
    reference: Annotated[tuple[float, float], Strict(False)] = (0.0, 0.0)
    """Corner from which areas are measured."""


def rank_fronts(rows: pd.DataFrame, options: Front) -> Blocks:
    """Compare the area that one front dominates with the area of each other front, in each replica.

    A front of more points dominates more, even if none of its points is better, because it has more steps and
    more luck. Choosing some of its points instead would reduce the area of a front with similar points. Only
    fronts with equally many points are therefore compared.

    Args:
        rows: Rows of one dataset and network.
        options: Conditions of the fronts and of both quantities.

    Returns:
        For each replica and each other front, the difference of the areas, in the product of both quantities'
        units.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one point and replica.
        EmptySelectionError: If there is nothing to compare, or numbers of points differ.
    """
    import pandas as pd

    # Points of each front that has some, more being better along both axes.
    rows = select(rows, options.where)
    points = both_quantities(rows, options.x, options.y)
    fronts = {
        _description(conditions): select_or_nothing(points, conditions)
        for conditions in (options.best, *options.against)
    }
    fronts = {name: front for name, front in fronts.items() if len(front)}
    best = _description(options.best)
    if best not in fronts or len(fronts) < 2:
        raise EmptySelectionError(f"{best} and a front to compare it with must both be in the rows")
    # Equally many points for each, and the areas of replicas that have all of theirs.
    counts = {name: int(front.groupby("replica").size().max()) for name, front in fronts.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise EmptySelectionError(
            f"fronts with more points dominate more, and these have {listed}: give each as many levels and rates"
        )
    areas = {}
    for name, front in fronts.items():
        coordinates = front[["x", "y"]].to_numpy(float)
        areas[name] = {
            replica: hypervolume(coordinates[places], np.array(options.reference))
            for replica, places in front.groupby("replica").indices.items()
            if len(places) == counts[name]
        }
    (table,), left_out = complete([pd.DataFrame(areas)])
    listed = ", ".join(f"{name} {value:.4g}" for name, value in table.mean().items())
    effects = pd.DataFrame({name: table[best] - table[name] for name in fronts if name != best})
    detail = f"sign flips; areas by {counts[best]} points: {listed}; effect: {best} minus the decisive other"
    return Blocks(effects, 1, detail, left_out=left_out)


def _description(conditions: Conditions) -> str:
    """Describe a front by the values of its conditions."""
    values = [value if isinstance(value, list | tuple) else [value] for value in conditions.values()]
    return " ".join("+".join(str(item) for item in value) for value in values)


front = ClaimTest("front", Front, rank_fronts)
