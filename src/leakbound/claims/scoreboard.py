"""Verdicts on all claims at a glance: counted, as text, and as Markdown."""

from collections.abc import Iterable, Sequence

import pandas as pd

from leakbound.claims.claims import OVERALL, VERDICTS

NUMBERS = ["effect [95 %]", "p (Holm)", "seeds", "seeds to decide"]
"""Columns of ``written`` that say on what a verdict rests."""


def overall(claims: pd.DataFrame) -> pd.DataFrame:
    """Of the rows of ``evaluate`` those over all settings, one for each claim."""
    return claims[(claims["dataset"] == OVERALL) & (claims["model"] == OVERALL)]


def written(claims: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``evaluate`` as text, in their order: the one table that all lists of claims are made of.

    Returns:
        Columns figure (``paper/id``), claim (the statement), verdict, ``NUMBERS``, setting (dataset and network, empty
        for the verdict over all settings and where there are none) and compared (the comparison in words).
    """
    rows = [
        (
            f"{row.paper}/{row.figure}",
            str(row.text),
            str(row.verdict),
            _with_interval(float(row.effect), float(row.low), float(row.high)),
            _p_value(float(row.p_adjusted), str(row.detail)),
            str(row.n),
            _needed(row.verdict, row.seeds_needed),
            "" if row.dataset == OVERALL else ", ".join(name for name in (row.dataset, row.model) if name),
            str(row.detail),
        )
        for row in claims.itertuples(index=False)
    ]
    return pd.DataFrame(rows, columns=["figure", "claim", "verdict", *NUMBERS, "setting", "compared"])


def scoreboard(claims: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts over all settings by paper.

    Returns:
        Columns paper, reproduced, contradicted, undecided, claims; one row per paper and a last one for ``all``.
    """
    judged = overall(claims)
    counts = pd.crosstab(judged["paper"], judged["verdict"]).reindex(columns=list(VERDICTS), fill_value=0)
    counts.loc["all"] = counts.sum()
    counts["claims"] = counts.sum(axis=1)
    return counts.astype("int64").rename_axis(index="paper", columns=None).reset_index()


def verdict_counts(claims: pd.DataFrame) -> pd.DataFrame:
    """The scoreboard as tidy rows, for a figure.

    Returns:
        Columns paper, verdict and value, the number of claims: a row for each paper and verdict, zeros included.
    """
    counts = scoreboard(claims).set_index("paper").drop(index="all")[list(VERDICTS)]
    return counts.rename_axis(columns="verdict").stack().rename("value").reset_index()


def to_markdown(claims: pd.DataFrame) -> str:
    """The scoreboard as Markdown: the counts by paper, then every claim with its verdict and numbers."""
    listed = written(overall(claims))[["figure", "claim", "verdict", *NUMBERS]]
    tables = [markdown_table(table, table.to_numpy().tolist()) for table in (scoreboard(claims), listed)]
    return "\n\n".join(tables) + "\n"


def markdown_table(head: Iterable[str], body: Iterable[Sequence[object]]) -> str:
    """A Markdown table; verdicts that were reached are bold."""
    head = list(head)
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in body]
    marked = [[f"**{cell}**" if cell in VERDICTS[:2] else cell for cell in row] for row in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *marked])


def _with_interval(effect: float, low: float, high: float) -> str:
    """An effect with its interval, as far as it has them."""
    if pd.isna(effect):
        return "–"
    return f"{effect:.3g}" if pd.isna(low) else f"{effect:.3g} [{low:.3g}, {high:.3g}]"


def _p_value(p_adjusted: float, detail: str) -> str:
    """An adjusted p-value, or why there is none."""
    if pd.isna(p_adjusted):
        return "–"
    if detail.startswith("exact"):
        return "exact"
    return f"{p_adjusted:.3f}" if p_adjusted >= 0.001 else "< 0.001"


def _needed(verdict: object, seeds: object) -> str:
    """Replicas that would decide an undecided claim."""
    if verdict != "undecided":
        return ""
    return "cannot tell" if pd.isna(seeds) else f"about {seeds}"
