"""Verdicts on a figure's claims: reproduced, contradicted or undecided."""

import math
from typing import Any

import numpy as np
import pandas as pd

from leakbound.claims.outcomes import Outcome
from leakbound.claims.selection import EmptySelectionError, select_or_nothing
from leakbound.claims.statistics import holm, replicas_needed
from leakbound.config.catalogue import ClaimConfig, FigureConfig
from leakbound.randomness.seeding import numpy_generator
from leakbound.registry import CLAIM_TESTS

_NUMBERS = ("effect", "low", "high", "p_value", "p_adjusted")
_STATED = ("paper", "figure", "claim", "text", "dataset", "model", "test")
COLUMNS = (*_STATED, *_NUMBERS, "n", "verdict", "detail", "seeds_needed")
VERDICTS = ("reproduced", "contradicted", "undecided")
OVERALL = "all"
_FACETS = ("dataset", "model")


def evaluate(figure: FigureConfig, rows: pd.DataFrame, alpha: float, seed: int = 0) -> pd.DataFrame:
    """Test the claims of a figure on its rows.

    Each claim is tested two-sided in each setting (dataset and model), or over several together if it is a statement
    ``across`` them. The p-values of all tests of the figure are
    corrected together by Holm, so that a false verdict anywhere in it has probability at most ``alpha``. A setting's
    verdict is *reproduced* if its adjusted p-value is below ``alpha`` and the effect goes the claimed way,
    *contradicted* if it goes the opposite way, *undecided* otherwise. Over all settings (dataset and model ``all``) a
    claim is reproduced if it is in every setting, contradicted if it is in any, undecided otherwise. Closed forms hold
    or fail exactly: their p-value is 0 or 1 and stays out of the correction.

    Args:
        figure: Entry of the catalogue.
        rows: The table that the figure's conditions choose from; its own rows, chosen already, do as well.
        alpha: Level of the verdicts, in (0, 0.5).
        seed: Seed of permutations and resamples; each test has its own generator.

    Returns:
        Table with the columns ``COLUMNS``: for each claim its settings, then the row over all. ``n`` is the least
        number of independent replicas compared. ``low`` and ``high`` are a 95 % interval that allows for few replicas:
        Student's t about mean differences (Welch's where groups differ); about shares of pairs and differences of
        hypervolumes, the standard error of resampled replicas times √(n/(n − 1)) and Student's t with n − 1 degrees of
        freedom, shares cut off at −1 and 1; missing where replicas show no spread. Verdicts come from p-values of
        permutations, which near the level may differ from whether the interval holds 0. ``seeds_needed`` estimates how
        many would decide an undecided claim with 80 % power, and is missing where that cannot be told or more than
        1,000 would be needed.

    Raises:
        ConfigError: If a claim's options are wrong.
        SelectionError: If a claim's condition names an unknown column.
    """
    rows = select_or_nothing(rows, figure.select)
    tests = [(claim, setting) for claim in figure.claims for setting in _settings(rows, claim.across)]
    outcomes = [_outcome(figure, claim, setting, rows, seed) for claim, setting in tests]
    chancy = [i for i, outcome in enumerate(outcomes) if not outcome.exact and not math.isnan(outcome.p_value)]
    adjusted = [outcome.p_value for outcome in outcomes]
    for index, value in zip(chancy, holm([outcomes[i].p_value for i in chancy]), strict=True):
        adjusted[index] = value
    level = alpha / max(1, len(chancy))
    table: list[dict[str, Any]] = []
    for claim in figure.claims:
        own = [
            {
                **{"paper": figure.paper, "figure": figure.id, "claim": claim.id, "text": claim.text},
                **{"dataset": "", "model": "", **setting, "test": claim.test},
                **_judged(outcome, p_adjusted, alpha, level),
            }
            for (tested, setting), outcome, p_adjusted in zip(tests, outcomes, adjusted, strict=True)
            if tested is claim
        ]
        table += [*own, _overall(own)]
    types: dict[str, Any] = {**dict.fromkeys(_NUMBERS, float), "n": "int64", "seeds_needed": "Int64"}
    return pd.DataFrame(table, columns=list(COLUMNS)).astype(types)


def _settings(rows: pd.DataFrame, across: tuple[str, ...]) -> list[dict[str, Any]]:
    """The datasets and models of the rows, but for columns tested together; one empty setting if they name none."""
    columns = [column for column in _FACETS if column in rows.columns and column not in across]
    pairs = rows[columns].drop_duplicates().sort_values(columns) if columns else rows.iloc[:0]
    return [dict(zip(columns, values, strict=True)) for values in pairs.itertuples(index=False)] or [{}]


def _outcome(
    figure: FigureConfig, claim: ClaimConfig, setting: dict[str, Any], rows: pd.DataFrame, seed: int
) -> Outcome:
    """A claim's test on the rows of one setting."""
    for column, value in setting.items():
        rows = rows[rows[column] == value]
    rows = rows[np.isfinite(rows["value"])].reset_index(drop=True)
    generator = numpy_generator(seed, "claim", figure.paper, figure.id, claim.id, *map(str, setting.values()))
    try:
        return CLAIM_TESTS.get(claim.test)(rows, options=claim.options, generator=generator)
    except EmptySelectionError as error:
        return Outcome(math.nan, math.nan, math.nan, math.nan, 0, 0, f"nothing to compare: {error}")


def _judged(outcome: Outcome, p_adjusted: float, alpha: float, level: float) -> dict[str, Any]:
    """Columns of an outcome, with its verdict."""
    needed, detail = None, outcome.detail
    if outcome.exact or (p_adjusted < alpha and outcome.direction):
        verdict = "reproduced" if outcome.direction > 0 else "contradicted"
    else:
        verdict = "undecided"
        if not math.isnan(outcome.p_value):
            least = outcome.smallest_p(outcome.replicas)
            if least >= level:
                detail += f"; too few replicas: the least p-value that {outcome.replicas} can give is {least:.2g}"
            needed = replicas_needed(outcome.p_value, outcome.replicas, level, outcome.smallest_p)
    numbers = {name: getattr(outcome, name) for name in _NUMBERS if name != "p_adjusted"} | {"p_adjusted": p_adjusted}
    return {**numbers, "n": outcome.replicas, "seeds_needed": needed, "verdict": verdict, "detail": detail}


def _overall(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """The row over all settings of one claim."""
    counts = {verdict: sum(row["verdict"] == verdict for row in settings) for verdict in VERDICTS}
    summary = {**settings[0], "dataset": OVERALL, "model": OVERALL}
    if len(settings) == 1:
        return summary
    verdict = next(one for one in ("contradicted", "undecided", "reproduced") if counts[one])
    decisive = [row for row in settings if row["verdict"] == verdict]
    # All settings must hold, so the weakest one speaks for them; one that fails is enough against them.
    pick = min if verdict == "contradicted" else max
    chosen = pick(decisive, key=lambda row: -1.0 if math.isnan(row["p_adjusted"]) else row["p_adjusted"])
    needed = [row["seeds_needed"] for row in decisive]
    where = f"{chosen['dataset']}, {chosen['model']}".strip(", ")
    listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return {
        **summary,
        **{key: chosen[key] for key in _NUMBERS},
        "n": min(row["n"] for row in settings),
        "verdict": verdict,
        "detail": f"{listed} of {len(settings)} settings; numbers of the decisive one ({where})",
        "seeds_needed": None if verdict != "undecided" or None in needed else max(needed),
    }
