"""All claims of all papers at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import pandas as pd

from leakbound.claims.claims import OVERALL, VERDICTS

_CSS = (
    "body{font:15px/1.45 system-ui,sans-serif;color:#222;margin:0}main{max-width:72rem;margin:auto;padding:1rem}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.35rem .7rem;text-align:left;vertical-align:top;"
    "border-bottom:1px solid #ddd}thead th{border-bottom:2px solid #888}.wide{overflow-x:auto}"
    ".reproduced{color:#1b6e2c;font-weight:600}.contradicted{color:#a3223a;font-weight:600}.undecided{color:#555}"
)


@dataclass(frozen=True)
class WrittenClaim:
    """A claim with its verdict and numbers as text.

    Attributes:
        figure: ``paper/id``.
        text: The statement.
        verdict: ``reproduced``, ``contradicted`` or ``undecided``.
        effect: Effect size with its 95 % interval.
        p: p-value after Holm's correction, or that the statement is exact.
        seeds: Independent replicas compared.
        needed: Replicas that would decide an undecided claim.
        detail: What was compared.
        setting: Dataset and network, empty for the verdict over all settings and where there are none.
    """

    figure: str
    text: str
    verdict: str
    effect: str
    p: str
    seeds: str
    needed: str
    detail: str
    setting: str


def overall(claims: pd.DataFrame) -> pd.DataFrame:
    """Of the rows of ``evaluate`` those over all settings, one for each claim."""
    return claims[(claims["dataset"] == OVERALL) & (claims["model"] == OVERALL)]


def written(claims: pd.DataFrame) -> list[WrittenClaim]:
    """Rows of ``evaluate`` as text, in their order."""
    return [
        WrittenClaim(
            figure=f"{row.paper}/{row.figure}",
            text=str(row.text),
            verdict=str(row.verdict),
            effect=_with_interval(float(row.effect), float(row.low), float(row.high)),
            p=_p_value(float(row.p_adjusted), str(row.detail)),
            seeds=str(row.n),
            needed=_needed(row.verdict, row.seeds_needed),
            detail=str(row.detail),
            setting="" if row.dataset == OVERALL else ", ".join(part for part in (row.dataset, row.model) if part),
        )
        for row in claims.itertuples(index=False)
    ]


def scoreboard(claims: pd.DataFrame) -> pd.DataFrame:
    """Count verdicts by paper.

    Args:
        claims: Rows of ``evaluate`` of any number of figures; only those over all settings are counted.

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

    Args:
        claims: Rows of ``evaluate`` of any number of figures; only those over all settings are counted.

    Returns:
        Columns paper, verdict and value, the number of claims: a row for each paper and verdict, zeros included.
    """
    counts = scoreboard(claims).set_index("paper").drop(index="all")[list(VERDICTS)]
    return counts.rename_axis(columns="verdict").stack().rename("value").reset_index()


def to_markdown(claims: pd.DataFrame) -> str:
    """The scoreboard as Markdown: the counts by paper, then every claim with its verdict and numbers.

    Args:
        claims: Rows of ``evaluate`` of any number of figures.
    """
    return "\n\n".join(_markdown(*table) for table in _tables(claims)) + "\n"


def to_html(claims: pd.DataFrame) -> str:
    """The scoreboard as one offline page: no script, no outside address, readable on a phone.

    Args:
        claims: Rows of ``evaluate`` of any number of figures.
    """
    counts, listed = (_html(*table) for table in _tables(claims))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Claims and verdicts</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_CSS}</style></head>\n<body><main><h1>Claims and verdicts</h1>\n"
        "<p>A claim is reproduced or contradicted if its test, corrected by Holm within the figure, says so in every "
        "setting or against it in any; undecided otherwise.</p>\n"
        f'{counts}\n<div class="wide" tabindex="0">{listed}</div></main></body></html>\n'
    )


def _tables(claims: pd.DataFrame) -> list[tuple[list[str], list[list[str]]]]:
    """Head and body of both tables, as plain text: counts by paper, then every claim."""
    counts = [[str(value) for value in row] for row in scoreboard(claims).itertuples(index=False)]
    listed = [
        [claim.figure, claim.text, claim.verdict, claim.effect, claim.p, claim.seeds, claim.needed]
        for claim in written(overall(claims))
    ]
    head = ["figure", "claim", "verdict", "effect [95 %]", "p (Holm)", "seeds", "seeds to decide"]
    return [(["paper", *VERDICTS, "claims"], counts), (head, listed)]


def _markdown(head: list[str], body: list[list[str]]) -> str:
    """A Markdown table; verdicts that were reached are bold."""
    marked = [[f"**{cell}**" if cell in VERDICTS[:2] else cell.replace("|", "\\|") for cell in row] for row in body]
    lines = [head, ["---"] * len(head), *marked]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _html(head: list[str], body: list[list[str]]) -> str:
    """An HTML table; verdicts carry their name as a class."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    rows = (
        "".join(f'<td class="{cell}">{cell}</td>' if cell in VERDICTS else f"<td>{escape(cell)}</td>" for cell in row)
        for row in body
    )
    lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead>\n<tbody>{lines}</tbody></table>"


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
