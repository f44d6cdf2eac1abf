"""Verdicts on the claims of a figure, from reproduced to contradicted. Closed forms hold or fail."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from leakbound_lab.claims.judging import (
    STRATUM,
    Judged,
    decides,
    joined_blocks,
    judge,
    names,
    opposed,
    part,
    promised,
    sides,
    subsets,
    verdict,
)
from leakbound_lab.claims.outcomes import Blocks, Exact
from leakbound_lab.claims.selection import EmptySelectionError, rows_of, select, split
from leakbound_lab.claims.statistics import holm
from leakbound_lab.config.catalogue import NETWORKS, ClaimConfig, FigureConfig
from leakbound_lab.registries import CLAIM_TESTS

_NUMBERS = ("effect", "low", "high", "low_90", "high_90", "p_value", "p_adjusted")
_STATED = ("paper", "figure", "claim", "text", "dataset", "model", "test", "unit", "delta")
COLUMNS = (
    *_STATED,
    *_NUMBERS,
    "claimed",
    "blocks",
    "exact",
    "printed",
    "verdict",
    "detail",
    "blocks_needed",
    "power",
)
VERDICTS = ("reproduced", "contradicted", "mixed", "negligible", "undecided")
"""Verdicts on claims about experiments."""
EXACT_VERDICTS = ("holds", "fails")
"""Verdicts on statements about closed forms."""
OVERALL = "all"
_FACETS = ("dataset", "model", "preset")
_SIDES = {1: "as claimed", -1: "the opposite", 0: "negligible"}
GeneratorOf = Callable[..., np.random.Generator]
"""Function from names, given as words, to the generator for these names."""


def evaluate(
    figure: FigureConfig, rows: pd.DataFrame, alpha: float, generator_of: GeneratorOf
) -> pd.DataFrame:
    """Test the claims of a figure on its rows.

    A block is one (dataset, model, replica), of one preset if rows of several have a column preset.
    Columns that a claim compares do not distinguish blocks, because all runs of a block have the same
    problem. The verdict of a claim is that over the blocks of all datasets and models. Holm's rule
    corrects the p-values of all claims of a figure together. A claim without any effect is therefore
    reproduced or contradicted anywhere in the figure with probability at most ``alpha``.

    Verdicts on the single settings are added, Holm-corrected over them: the datasets of the claim, each
    with its network if there are several. For *reproduced* or *contradicted*, at least half of them must
    show the effect (:func:`leakbound_lab.claims.judging.subsets`). If fewer do, or if some significantly show
    something else, such as a negligible effect (:func:`leakbound_lab.claims.judging.opposed`), the claim is
    *mixed*.

    Statements about closed forms hold or fail without chance, and fail if they do so in any setting. Their
    p-value is 0 or 1 and is not part of the correction.

    A statement that a paper prints is judged on the paper's own networks alone. If there is none among the
    rows, it is judged on theirs and is no longer the paper's (column ``printed``).

    Args:
        figure: Entry of the catalogue.
        rows: The table that the figure's conditions choose from.
        alpha: Level of the verdicts, in (0, 0.5).
        generator_of: Makes the generator of a claim from its names. The generator draws sign flips if there
            are too many to enumerate.

    Returns:
        Table with the columns ``COLUMNS``. Each claim has a row for each setting, then a row over all,
        with dataset and model ``all``. ``printed`` is True for claims of a paper on its own networks.
        ``low`` and ``high`` are the ends of a 95 % interval of the mean effect (Student's t with the
        share of each dataset and model fixed), ``low_90`` and ``high_90`` those of a 90 % interval.
        ``claimed`` is 1 if the effect is claimed to be positive, -1 if negative, and 0 without such a claim.
        ``power`` is the probability that this many blocks detect an effect of 2 delta, given the spread
        between them and the least favourable of Holm's levels. ``blocks_needed`` is the number of blocks
        with power .8. Both are missing for closed forms, and if the spread is not known.

    Raises:
        ConfigError: If a claim's options are wrong, or it lacks delta.
        SelectionError: If a claim's condition names an unknown column.
    """
    # Effects of all claims, and their tests over all blocks, corrected together.
    findings = [measured(figure, claim, rows) for claim in figure.claims]
    judged = [
        judge(
            finding, claim.smallest_effect(), alpha, generator_of("claim", figure.paper, figure.id, claim.id)
        )
        if isinstance(finding, Blocks)
        else None
        for claim, finding in zip(figure.claims, findings, strict=True)
    ]
    tested = [result for result in judged if result is not None]
    adjusted = zip(
        *(holm([getattr(result, p) for result in tested]) for p in ("p_value", "pooled")), strict=True
    )
    level = alpha / max(1, len(tested))
    # Verdicts of each claim: its settings first, then all of them.
    table: list[dict[str, Any]] = []
    for claim, finding, pooled in zip(figure.claims, findings, judged, strict=True):
        stated: dict[str, Any] = {
            "paper": figure.paper,
            "figure": figure.id,
            "claim": claim.id,
            "text": claim.text,
            "test": claim.test,
            "unit": claim.unit or "",
            "delta": claim.delta,
            "exact": claim.delta is None,
            "printed": bool(own_networks(figure, claim, rows)),
        }
        if pooled is not None and isinstance(finding, Blocks):
            verdicts = _of_settings(claim, finding, alpha, generator_of)
            p_adjusted, p_pooled = next(adjusted)
            row = _row(claim, finding, pooled, p_adjusted, alpha, level)
            verdicts.append(row | _of_all(claim, finding, replace(pooled, p_value=p_pooled), row, alpha))
        elif isinstance(finding, str):
            nothing = {"detail": f"nothing to compare: {finding}", "blocks": 0, "claimed": 0}
            verdicts = [{"verdict": "undecided", **nothing}]
        elif isinstance(finding, dict):
            verdicts = _exact(finding)
        table += [{**stated, "dataset": OVERALL, "model": OVERALL, **row} for row in verdicts]
    types: dict[str, Any] = dict.fromkeys((*_NUMBERS, "delta", "power"), float)
    types |= dict.fromkeys(("claimed", "blocks"), "int64")
    return pd.DataFrame(table, columns=list(COLUMNS)).astype(
        {**types, "blocks_needed": "Int64", "exact": bool, "printed": bool}
    )


def measured(
    figure: FigureConfig, claim: ClaimConfig, rows: pd.DataFrame
) -> Blocks | dict[tuple[str, ...], Exact] | str:
    """Run the test of a claim on the rows of a figure.

    Args:
        figure: Entry of the catalogue.
        claim: One of its claims.
        rows: The table that the figure's conditions choose from.

    Returns:
        The blocks of all settings, or the statement of each setting of a closed form, or the reason why there
        is nothing to compare.

    Raises:
        ConfigError: If the claim's options are wrong.
        SelectionError: If a condition names an unknown column.
    """
    test = CLAIM_TESTS.get(claim.test)
    compared = compared_by(claim)
    if "model" in rows.columns and (networks := own_networks(figure, claim, rows)):
        rows = rows[rows["model"].fillna("").isin(networks)]
    everything: dict[tuple[str, ...], pd.DataFrame] = {}
    if claim.relative_to is not None:
        everything = dict(_settings(rows_of(figure.model_copy(update={"select": {}}), rows), compared))
    blocks: dict[tuple[str, ...], Blocks] = {}
    exact: dict[tuple[str, ...], Exact] = {}
    reason = "no rows"
    for setting, group in _settings(rows_of(figure, rows), compared):
        if claim.decibels:
            group = group[group["value"] > 0].assign(value=lambda positive: 10 * np.log10(positive["value"]))
        try:
            result = test(group, options=claim.options)
            if isinstance(result, Exact):
                exact[setting] = result
                continue
            if claim.relative_to is not None:
                reference = select(everything[setting], claim.relative_to)
                result = result.scaled(reference.groupby("replica")["value"].mean())
        except EmptySelectionError as error:
            reason = str(error)
            continue
        if len(result.effects):
            blocks[setting] = result
    return joined_blocks(blocks) if blocks else exact or reason


def own_networks(figure: FigureConfig, claim: ClaimConfig, rows: pd.DataFrame) -> set[str]:
    """List the networks on which a claim is the paper's.

    Args:
        figure: Entry of the catalogue.
        claim: One of its claims.
        rows: The table that the figure's conditions choose from.

    Returns:
        Networks of the paper among the figure's rows, an empty name for rows without a network. Empty if the
        claim is not the paper's.
    """
    if not claim.printed or figure.paper == "beyond":
        return set()
    figure_rows = rows_of(figure, rows)
    models = set(figure_rows["model"].fillna("")) if "model" in figure_rows.columns else {""}
    return models & {"", *NETWORKS.get(figure.paper, ())}


def compared_by(claim: ClaimConfig) -> set[str]:
    """List the columns along which a claim compares. Their values do not distinguish blocks.

    Args:
        claim: Claim of a figure.

    Raises:
        ConfigError: If the claim's options are wrong.
    """
    check = getattr(CLAIM_TESTS.get(claim.test), "check", None)  # a plugin may be a plain function
    return check(claim.options).compared() if check else set()


def _settings(rows: pd.DataFrame, compared: set[str]) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Yield the finite rows of each dataset, model and preset. Names of missing or compared columns are empty."""
    rows = rows[np.isfinite(rows["value"])]
    columns = [column for column in _FACETS if column in rows.columns and column not in compared]
    for key, group in split(rows, columns).items():
        values = dict(zip(columns, map(str, key), strict=True))
        yield tuple(values.get(column, "") for column in _FACETS), group.reset_index(drop=True)


def _of_settings(
    claim: ClaimConfig, blocks: Blocks, alpha: float, generator_of: GeneratorOf
) -> list[dict[str, Any]]:
    """Return a row for each dataset, or each network on it if there are several, Holm-corrected over these rows."""
    settings = [name for name in names(blocks) if name]
    parts = [part(blocks, name) for name in settings]
    judged = [
        judge(subset, claim.smallest_effect(), alpha, generator_of("claim", claim.id, name))
        for name, subset in zip(settings, parts, strict=True)
    ]
    adjusted = holm([result.p_value for result in judged])
    return [
        _row(claim, subset, result, p_adjusted, alpha, alpha / len(settings))
        | dict(zip(STRATUM, subset.effects.index[0], strict=False))
        for subset, result, p_adjusted in zip(parts, judged, adjusted, strict=True)
    ]


def _of_all(
    claim: ClaimConfig, blocks: Blocks, pooled: Judged, row: dict[str, Any], alpha: float
) -> dict[str, Any]:
    """Return the changes to the row over all blocks if the datasets disagree, by their pooled adjusted p-value."""
    if not decides(pooled.blocks, blocks.rule, alpha):
        return {}
    reached = row["verdict"]
    directions = sides(blocks, claim.smallest_effect(), alpha)
    whole = verdict(pooled, blocks.rule, pooled.p_value, alpha) if reached == "undecided" else reached
    if opposed(directions, whole):
        listed = [
            f"{', '.join(directions[side])} {words}" for side, words in _SIDES.items() if directions[side]
        ]
        which = "networks" if " " in names(blocks)[0] else "datasets"
        detail = f"{which} differ, by Student's t: {'; '.join(listed)}"
        return {"verdict": "mixed", "detail": f"{row['detail']}; {detail}"}
    if whole != reached:
        agreeing = directions[pooled.direction]
        half = -(-len(names(blocks)) // 2)
        few = min(len(subset.effects) for subset in subsets(blocks))
        mixed = 0 < len(agreeing) < half and 2.0 ** (1 - few) < alpha  # else the others could not show it
        reason = f"shown by {', '.join(agreeing)}" if mixed else f"{whole} by all datasets together"
        detail = f"{reason}, but not by at least {half} of {len(names(blocks))}: p = {row['p_value']:.2g}"
        return {"verdict": "mixed" if mixed else reached, "detail": f"{row['detail']}; {detail}"}
    return {}


def _row(
    claim: ClaimConfig, blocks: Blocks, judged: Judged, p_adjusted: float, alpha: float, level: float
) -> dict[str, Any]:
    """Return the columns of judged blocks, with verdict, and power at the least favourable of Holm's levels."""
    delta = claim.smallest_effect()
    design = promised(blocks, delta, level, alpha)
    reached = verdict(judged, blocks.rule, p_adjusted, alpha)
    counted = _counted(judged.blocks)
    notes = [counted, blocks.detail, *filter(None, [blocks.note])]
    if blocks.left_out:
        notes.append(f"{_counted(blocks.left_out)} with missing values left out")
    if reached == "undecided" and judged.small and blocks.rule == "beyond":
        notes.append(f"the mean effect is within ±{delta:g}, but not that of each dataset and network")
    elif reached == "undecided" and p_adjusted < alpha:
        falling = f"the claimed way, but these steps may go back by delta: {', '.join(judged.falling)}"
        notes.append(falling if judged.direction else "ranks and means go in different directions")
    text = claim.text
    if reached in ("undecided", "negligible") and (least := design.smallest_p(judged.blocks)) > level:
        reason = f"too few to detect an effect at {level:.2g}"
        notes.append(f"{reason}: sign flips of {counted} go no lower than p = {least:.2g}")
        if reached == "undecided":  # explains an interval that lies on one side of 0
            text += f" With {counted} no p below {least:.2g} is possible."
    if blocks.rule != "beyond" or reached == "negligible":
        notes.append(f"90 % interval [{judged.low_90:.3g}, {judged.high_90:.3g}]")
    numbers = {name: getattr(judged, name) for name in _NUMBERS if name != "p_adjusted"} | {
        "p_adjusted": p_adjusted
    }
    promise = {"power": design.power(judged.blocks), "blocks_needed": design.needed()}
    claimed = blocks.claimed if blocks.rule == "beyond" else 0
    stated = {"text": text, "unit": f"{claim.unit}{blocks.per}", "claimed": claimed, "blocks": judged.blocks}
    return {**stated, **numbers, **promise, "verdict": reached, "detail": "; ".join(notes)}


def _counted(blocks: int) -> str:
    return "one block" if blocks == 1 else f"{blocks} blocks"


def _exact(statements: dict[tuple[str, ...], Exact]) -> list[dict[str, Any]]:
    """Return a row for each setting of a closed form with a dataset, then the row over all, which shows the weakest."""
    rows = [
        {"dataset": dataset, "model": model, **_exact_row(statement)}
        for (dataset, model, _), statement in statements.items()
        if dataset
    ]
    weakest = next(
        (statement for statement in statements.values() if not statement.holds),
        next(iter(statements.values())),
    )
    return [*rows, _exact_row(weakest)]


def _exact_row(statement: Exact) -> dict[str, Any]:
    """Return the columns of a statement without chance."""
    p_value = 0.0 if statement.holds else 1.0
    numbers = {"effect": statement.effect, "p_value": p_value, "p_adjusted": p_value}
    reached = EXACT_VERDICTS[0 if statement.holds else 1]
    return {
        **numbers,
        "claimed": 0,
        "blocks": 0,
        "exact": True,
        "verdict": reached,
        "detail": f"exact: {statement.detail}",
    }
