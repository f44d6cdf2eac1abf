"""Verdicts on all claims at a glance: counted, as text, and as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from leakbound_lab.claims.evaluation import EXACT_VERDICTS, OVERALL, VERDICTS

NUMBERS = ["effect [95 %]", "Δ", "p (Holm)", "blocks", "power at 2Δ", "blocks needed"]
"""Columns of ``written`` with the numbers that a verdict rests on."""
CLOSED_FORMS = dict(zip(EXACT_VERDICTS, ("closed forms that hold", "closed forms that fail"), strict=True))
"""Verdict on claims without chance to its column of ``scoreboard``."""
_KINDS = {"experiment": VERDICTS, "closed form": EXACT_VERDICTS}


def overall(claims: pd.DataFrame) -> pd.DataFrame:
    """Choose the rows of ``evaluate`` over all blocks, one for each claim.

    Args:
        claims: Rows of ``evaluate``.
    """
    return claims[(claims["dataset"] == OVERALL) & (claims["model"] == OVERALL)]


def scoreboard_rows(claims: pd.DataFrame) -> pd.DataFrame:
    """Format rows of ``evaluate`` as text, in their order. All lists of claims are made from this table.

    Args:
        claims: Rows of ``evaluate``.

    Returns:
        Columns figure (``paper/id``), claim (the statement), by (``paper`` if it counts as a statement of the
        paper, else ``us``), verdict, ``NUMBERS``, setting and compared.
        Setting is the dataset, with the network if it is only one, or empty for the verdict over all blocks.
        Compared is the comparison in words.
    """
    rows = [
        (
            f"{row.paper}/{row.figure}",
            str(row.text),
            "paper" if row.printed else "us",
            str(row.verdict),
            "–" if pd.isna(row.effect) else effect_text(row),
            "–" if pd.isna(row.delta) else f"{row.delta:.3g} {row.unit}".strip(),
            _p_value(float(row.p_adjusted), bool(row.exact)),
            "–" if row.exact else str(row.blocks),
            "–" if pd.isna(row.power) else f"{row.power:.2f}",
            "–" if row.exact else "cannot tell" if pd.isna(row.blocks_needed) else str(row.blocks_needed),
            ", ".join(name for name in (row.dataset, row.model) if name not in ("", OVERALL)),
            str(row.detail),
        )
        for row in claims.itertuples(index=False)
    ]
    return pd.DataFrame(rows, columns=["figure", "claim", "by", "verdict", *NUMBERS, "setting", "compared"])


def effect_text(claim: Any, *, interval: bool = True) -> str:
    """Write the effect of a claim with its unit, its 95 % interval, and whether it goes the claimed way.

    The sign of an effect is that of the number measured. A fall that is claimed has a negative one.

    Args:
        claim: Row of ``evaluate``, with an effect.
        interval: False to leave the interval out, for blocks that are too few for a verdict.

    Returns:
        Text such as ``+0.043 dB per doubling [-0.01, 0.096], against the claim``. Closed forms have a number
        alone.
    """
    if claim.exact:
        return f"{claim.effect:.3g}"
    words = f"{claim.effect:+.3g} {claim.unit}".rstrip()
    if interval and not pd.isna(claim.low):
        words += f" [{claim.low:.3g}, {claim.high:.3g}]"
    direction = {1: ", as claimed", -1: ", against the claim"}
    return words + direction.get(int(np.sign(claim.claimed * claim.effect)), "")


def scoreboard(claims: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts over all blocks by paper, with closed forms apart from experiments.

    Claims that are not the paper's (column ``printed``) count as ours, *beyond*.

    Args:
        claims: Rows of ``evaluate``.

    Returns:
        Columns paper, each of ``VERDICTS`` for experiments, each of ``CLOSED_FORMS``, and claims, their sum.
        There is a row for each paper and a last one for ``all``.
    """
    counts = verdict_counts(claims)
    table = counts.pivot_table(index="paper", columns="verdict", values="value", aggfunc="sum")
    table = table.reindex(columns=[*VERDICTS, *CLOSED_FORMS], fill_value=0).rename(columns=CLOSED_FORMS)
    table.loc["all"] = table.sum()
    table["claims"] = table.sum(axis=1)
    return table.astype("int64").rename_axis(index="paper", columns=None).reset_index()


def verdict_counts(claims: pd.DataFrame) -> pd.DataFrame:
    """Count verdicts in tidy rows, for a figure.

    Args:
        claims: Rows of ``evaluate``.

    Returns:
        Columns paper, kind (``experiment`` or ``closed form``), verdict and value, the number of claims.
        There is a row for each paper, kind and verdict, zeros included.
    """
    judged = overall(claims)
    kind = judged["exact"].map(dict(zip((False, True), _KINDS, strict=True)))
    counts = pd.crosstab(judged["paper"].where(judged["printed"], "beyond"), [kind, judged["verdict"]])
    pairs = [(name, verdict) for name, verdicts in _KINDS.items() for verdict in verdicts]
    wanted = pd.MultiIndex.from_tuples(pairs, names=["kind", "verdict"])
    table = counts.reindex(columns=wanted, fill_value=0)
    return table.stack(["kind", "verdict"], future_stack=True).rename("value").astype("int64").reset_index()


def to_markdown(claims: pd.DataFrame) -> str:
    """Write the scoreboard as Markdown: counts by paper, then every claim with verdict, numbers and datasets.

    Args:
        claims: Rows of ``evaluate``.
    """
    listed = scoreboard_rows(overall(claims)).assign(datasets=of_datasets(claims))
    listed = listed[["figure", "claim", "by", "verdict", *NUMBERS, "datasets"]]
    tables = [markdown_table(table, table.to_numpy().tolist()) for table in (scoreboard(claims), listed)]
    return "\n\n".join(tables) + "\n"


def of_datasets(claims: pd.DataFrame) -> list[str]:
    """Count the verdicts of datasets for each claim.

    Args:
        claims: Rows of ``evaluate``.

    Returns:
        A text for each claim in the order of :func:`overall`, empty for claims without datasets.
    """
    key = ["paper", "figure", "claim"]
    judged = overall(claims)
    verdicts = (
        claims.drop(judged.index).query("dataset != ''").groupby(key)["verdict"].agg(counts_text).to_dict()
    )
    return [verdicts.get(claim, "") for claim in judged[key].itertuples(index=False, name=None)]


def counts_text(verdicts: pd.Series) -> str:
    """Count verdicts in words, e.g. ``2 reproduced, 1 undecided``, experiments before closed forms.

    Args:
        verdicts: Verdicts of several datasets.
    """
    counts = verdicts.value_counts()
    return ", ".join(f"{counts[name]} {name}" for name in (*VERDICTS, *EXACT_VERDICTS) if name in counts)


def markdown_table(head: Iterable[str], body: Iterable[Sequence[object]]) -> str:
    """Write a Markdown table, with decided verdicts in bold.

    Args:
        head: Headings.
        body: Cells of each row.
    """
    head = list(head)
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in body]
    decided = (*VERDICTS[:-1], *EXACT_VERDICTS)
    marked = [[f"**{cell}**" if cell in decided else cell for cell in row] for row in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *marked])


def _p_value(p_adjusted: float, exact: bool) -> str:
    """Format an adjusted p-value, or the reason why there is none."""
    if exact or pd.isna(p_adjusted):
        return "exact" if exact else "–"
    return f"{p_adjusted:.3f}" if p_adjusted >= 0.001 else "< 0.001"
