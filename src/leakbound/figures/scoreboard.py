"""All claims of all papers at a glance."""

from __future__ import annotations

import pandas as pd

from leakbound.figures.claims import OVERALL, VERDICTS


def scoreboard(claims: pd.DataFrame) -> pd.DataFrame:
    """Count verdicts by paper.

    Args:
        claims: Rows of ``evaluate`` of any number of figures; only those over all settings are counted.

    Returns:
        Columns paper, reproduced, contradicted, undecided, claims; one row per paper and a last one for ``all``.
    """
    overall = _overall(claims)
    counts = pd.crosstab(overall["paper"], overall["verdict"]).reindex(columns=list(VERDICTS), fill_value=0)
    counts.loc["all"] = counts.sum()
    counts["claims"] = counts.sum(axis=1)
    return counts.astype("int64").rename_axis(index="paper", columns=None).reset_index()


def to_markdown(claims: pd.DataFrame) -> str:
    """The scoreboard as Markdown: the counts by paper, then every claim with its verdict and numbers.

    Args:
        claims: Rows of ``evaluate`` of any number of figures.
    """
    counts = [[str(value) for value in row] for row in scoreboard(claims).itertuples(index=False)]
    listed = [
        [
            f"{row.paper}/{row.figure}",
            str(row.text),
            f"**{row.verdict}**" if row.verdict != "undecided" else str(row.verdict),
            _with_interval(float(row.effect), float(row.low), float(row.high)),
            _p_value(float(row.p_adjusted), str(row.detail)),
            str(row.n),
            _needed(row.verdict, row.seeds_needed),
        ]
        for row in _overall(claims).itertuples(index=False)
    ]
    return (
        "\n\n".join(
            [
                _table(["paper", *VERDICTS, "claims"], counts),
                _table(["figure", "claim", "verdict", "effect [95 %]", "p (Holm)", "seeds", "seeds to decide"], listed),
            ]
        )
        + "\n"
    )


def _overall(claims: pd.DataFrame) -> pd.DataFrame:
    """The rows over all settings."""
    return claims[(claims["dataset"] == OVERALL) & (claims["model"] == OVERALL)]


def _table(head: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


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
