"""Text whose numbers come from results/reference: ``python tools/findings.py`` writes it again.

Each docs/<page>.md.jinja becomes docs/<page>.md, and docs/readme.jinja the part of the README between its two lines
``<!-- results -->`` and ``<!-- end of results -->``. What a template can call is in ``Numbers``.
"""

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from figures import kept_claims
from leakbound.accounting.dp import epsilon
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.claims.evaluation import evaluate
from leakbound_lab.claims.selection import common_blocks
from leakbound_lab.config import reading

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS.parent / "results" / "reference"
EARLIER = DOCS / "earlier_verdicts.csv"
"""Verdicts of an earlier protocol."""
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->"


def written(value: float, digits: int, sign: bool = False) -> str:
    """Write a number without the zero before its point, and with a true minus."""
    if math.isnan(value):
        return "–"
    text = f"{value:{'+' if sign else ''},.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("+-")
    return text.replace("0.", ".", 1).replace("-", "−") if abs(value) < 1 else text.replace("-", "−")


class Numbers:
    """Results of one configuration, or of several joined by ``+``, for the sentences and tables of a page.

    Of several, the last that has a table or claims on a figure stands for it.
    """

    def __init__(self, presets: str) -> None:
        self.name = presets
        self.homes = [KEPT / preset for preset in presets.split("+")]

    @functools.cached_property
    def claims(self) -> pd.DataFrame:
        """Verdicts of these runs; what a paper prints is judged on all of them, which takes seconds."""
        return kept_claims(*self.homes)

    @functools.cache  # noqa: B019 - one object for each configuration, as long as the page is written
    def table(self, name: str) -> pd.DataFrame:
        """Rows of tables/<name>.parquet."""
        paths = [home / "tables" / f"{name}.parquet" for home in self.homes]
        return pd.read_parquet(next((path for path in reversed(paths) if path.is_file()), paths[-1]))

    def rows(self, study: str, **columns: Any) -> pd.DataFrame:
        """Rows of a study at the chosen recipe, where each column has the value or one of the values; None is any."""
        table = self.table(study)
        met = np.ones(len(table), dtype=bool)
        for column, value in (({"chosen": True} if "chosen" in table else {}) | columns).items():
            if value is not None:
                values = value if isinstance(value, list) else [value]
                met &= np.any([self._met(study, column, each) for each in values], axis=0)
        if not met.any():
            raise ValueError(f"{self.name}/{study}: no rows with {columns}")
        return table[met]

    @functools.cache  # noqa: B019 - as above
    def _met(self, study: str, column: str, value: Any) -> np.ndarray:
        """List which rows of a study have a value: hundreds of sentences ask for the same few."""
        return self.table(study)[column].isin([value]).to_numpy(bool)

    @functools.cache  # noqa: B019 - as above
    def _counted(self, study: str) -> np.ndarray:
        """List which rows of a study count in means: those on the blocks of the figures, and those of no replica."""
        table = self.table(study)
        own = pd.MultiIndex.from_frame(table[["dataset", "model", "replica"]])
        return own.isin(common_blocks(table)) | (table["replica"] < 0).to_numpy(bool)

    def value(self, study: str, metric: str, **columns: Any) -> float:
        """Return the mean of a metric over common blocks and their units."""
        rows = self.rows(study, metric=metric, **columns)
        return float(rows["value"][self._counted(study)[rows.index]].mean())

    def mean(self, study: str, metric: str, digits: int = 3, **columns: Any) -> str:
        """Write the mean of a metric over common blocks and their units."""
        return written(self.value(study, metric, **columns), digits)

    def largest(self, study: str, metric: str, **columns: Any) -> float:
        """Return the largest mean over replicas of a metric that a network of any rate has."""
        rows = self.rows(study, metric=metric, chosen=[True, False], unit=-1, **columns)
        return float(rows.groupby(["run", "learning_rate"])["value"].mean().max())

    def claim(self, key: str, dataset: str = "all", model: str | None = None) -> pd.Series:
        """Row of claims.parquet of ``paper/figure/claim``: over all datasets and networks, or those of one or both."""
        paper, figure, name = key.split("/")
        rows = self.claims
        rows = rows[(rows["paper"] == paper) & (rows["figure"] == figure) & (rows["claim"] == name)]
        if model is not None:
            rows = rows[rows["model"] == model]
        if model is None or dataset != "all":
            rows = rows[rows["dataset"] == dataset]
        if len(rows) != 1:
            raise ValueError(f"{self.name}: {len(rows)} rows of {key} on {dataset}")
        return rows.iloc[0]

    def effect(self, key: str, dataset: str = "all", digits: int = 3, model: str | None = None) -> str:
        """Write the effect of a claim with its 95 % interval."""
        row = self.claim(key, dataset, model)
        if math.isnan(row["effect"]):
            return "–"
        low, high = written(row["low"], digits), written(row["high"], digits)
        return f"{written(row['effect'], digits, sign=True)} [{low}, {high}]"

    def verdict(self, key: str, dataset: str = "all") -> str:
        """Write the verdict of a claim."""
        return str(self.claim(key, dataset)["verdict"])

    def count(self, *verdicts: str, exact: bool | None = None, paper: str | None = None) -> int:
        """Count claims with one of the verdicts (all without any), of experiments, of closed forms, or of both.

        A claim counts for the paper that prints it, on its own networks, and otherwise as ours (``beyond``).
        """
        from leakbound_lab.claims.scoreboard import overall

        rows = overall(self.claims)
        if exact is not None:
            rows = rows[rows["exact"].astype(bool) == exact]
        if paper is not None:
            rows = rows[rows["paper"].where(rows["printed"], "beyond") == paper]
        return int(rows["verdict"].isin(verdicts).sum()) if verdicts else len(rows)

    @functools.cache  # noqa: B019 - as above
    def stability(self) -> dict[str, int]:
        """Count the claims on experiments that a repeat with another seed tested again.

        Returns:
            ``tested``, all of them; ``decided``, those that the first analysis decided, and of these ``same``, ``open``
            and ``other``, on which the repeat alone reached the same verdict, none, or another one; ``flips``,
            undecided for that reason; ``left``, those that the first analysis left undecided, and of these ``settled``
            by both runs.
        """
        from leakbound_lab.claims.scoreboard import overall

        rows = overall(self.claims)
        rows = rows[~rows["exact"].astype(bool) & (rows["repeat"] != "") & (rows["first"] != "")]
        left, same = rows["first"] == "undecided", rows["repeat"] == rows["first"]
        empty = rows["repeat"] == "undecided"
        counts = {"tested": rows.index == rows.index, "decided": ~left, "same": ~left & same, "open": ~left & empty}
        counts |= {"other": ~left & ~same & ~empty, "flips": rows["detail"].str.contains("; flips: "), "left": left}
        counts["settled"] = left & (rows["verdict"] != "undecided")
        return {name: int(chosen.sum()) for name, chosen in counts.items()}

    def named(self, paper: str, *verdicts: str) -> str:
        """Name the claims that count for a paper and have one of the verdicts, with what their networks say."""
        from leakbound_lab.claims.scoreboard import overall

        rows = overall(self.claims)
        rows = rows[(rows["paper"] == paper) & rows["printed"] & rows["verdict"].isin(verdicts)]
        differ = rows["detail"].str.extract(r"(?:networks|datasets) differ(?:, by Student's t)?: (.*)$")[0].fillna("")
        return ", ".join(
            f"{r.figure}/{r.claim} {f'({text})' if text else ''}".strip()
            for r, text in zip(rows.itertuples(), differ, strict=True)
        )

    def agreement(self, other: "Numbers") -> dict[str, Any]:
        """Count the claims on experiments, over all datasets, that two runs decide, and name those that differ."""
        from leakbound_lab.claims.scoreboard import overall

        mine, theirs = (rows[~rows["exact"].astype(bool)] for rows in (overall(self.claims), overall(other.claims)))
        both = mine.merge(theirs, on=["paper", "figure", "claim"], suffixes=("", "_other"))
        both = both[(both["verdict"] != "undecided") & (both["verdict_other"] != "undecided")]
        others = both[both["verdict"] != both["verdict_other"]]
        named = [f"{r.paper}/{r.figure}/{r.claim} ({r.verdict} for {r.verdict_other})" for r in others.itertuples()]
        return {"decided": len(both), "same": len(both) - len(others), "others": named}

    def undecided(self) -> Iterator[Any]:
        """Yield the undecided claims on experiments, those that need the fewest blocks first."""
        from leakbound_lab.claims.scoreboard import overall

        rows = overall(self.claims)
        rows = rows[~rows["exact"].astype(bool) & (rows["verdict"] == "undecided")]
        yield from rows.sort_values(["blocks_needed", "paper", "figure", "claim"]).itertuples(index=False)

    def needed(self, row: Any) -> str:
        """Write the number of blocks that a claim needs."""
        return "–" if pd.isna(row.blocks_needed) else f"{row.blocks_needed}"

    def remark(self, row: Any) -> str:
        """Write why more blocks might not decide a claim, as its detail says."""
        reasons = (
            "flips",
            "nothing to compare",
            "the claimed way, but",
            "ranks and means",
            "datasets differ",
            "the mean",
        )
        parts = row.detail.split("; ")
        return ", ".join(part for part in parts if part.startswith(reasons) or "not by at least" in part)

    @functools.cache  # noqa: B019 - as above
    def changes(self) -> pd.DataFrame:
        """Compare verdicts on experiments with those of the earlier protocol.

        Returns:
            Columns paper, figure, claim, earlier and now, a row for each claim of either; NaN where one of them
            lacks the claim.
        """
        from leakbound_lab.claims.scoreboard import overall

        names = ["paper", "figure", "claim"]
        earlier = pd.read_csv(EARLIER, dtype=str).rename(columns={"verdict": "earlier"})
        now = overall(self.claims)[[*names, "verdict", "exact"]].rename(columns={"verdict": "now"})
        both = earlier.merge(now, on=names, how="outer")
        return both[both["exact"].ne(True)].drop(columns="exact")

    def moved(self, earlier: str | None, now: str | None) -> int:
        """Count claims that had one verdict and have another (or the same); None stands for no verdict."""
        rows = self.changes()
        had = rows["earlier"].isna() if earlier is None else rows["earlier"] == earlier
        has = rows["now"].isna() if now is None else rows["now"] == now
        return int((had & has).sum())

    def changed(self) -> Iterator[Any]:
        """Yield the rows of ``changes`` whose two verdicts differ."""
        rows = self.changes().dropna(subset=["earlier", "now"])
        yield from rows[rows["earlier"] != rows["now"]].itertuples(index=False)


@functools.cache
def kept(presets: str) -> Numbers:
    """Return the results of configurations, read once for all pages."""
    return Numbers(presets)


@functools.cache
def together(first: str, second: str, study: str) -> Numbers:
    """Test the claims on a study over the blocks of two runs, which have no dataset in common, at half of the level.

    Each run has been tested alone before, so that this second analysis of its blocks has the other half
    (docs/protocol.md#repeats).
    """
    both = Numbers(f"{first}+{second}")
    config = reading.load(KEPT / first / "config.yaml")
    rows = pd.concat([kept(name).table(study) for name in (first, second)], ignore_index=True)
    figures = reading.load_catalogue(config.catalogue, config).figures
    tested = [
        evaluate(figure, rows, config.alpha / 2, functools.partial(numpy_generator, 0))
        for figure in figures
        if figure.study == study and figure.rates == "all" and figure.claims
    ]
    both.claims = pd.concat(tested, ignore_index=True)
    return both


def epsilons(preset: str, study: str, level: float, delta: float = 1e-5) -> list[str]:
    """Write the ε of DP-SGD in a kept run, by Rényi orders, as the run states it, and by numerical convolution.

    Both are upper bounds for one replica at δ. The second is the tighter one.
    """
    config = reading.load(KEPT / preset / "config.yaml")
    plan = config.studies[study]
    event = PrivacyEvent(
        mechanism="dpsgd",
        sampling="poisson",
        population=config.datasets[plan.datasets[0]].members or 0,
        batch_size=plan.batch_sizes[0],
        steps=plan.rounds[0],
        uses=plan.rounds[0],
        noise_multiplier=level,
        max_grad_norm=1.0,
    )
    return [f"{epsilon(event, delta, name):.3g}" for name in ("rdp", "prv")]


def rendered(template: Path) -> str:
    """Write the text of a template.

    Args:
        template: Jinja template, which calls ``kept("photos")`` for the ``Numbers`` of a configuration.

    Raises:
        ValueError: If the kept results lack what the template asks for.
    """
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    text = environment.from_string(template.read_text(encoding="utf-8"))
    return text.render(kept=kept, together=together, written=written, epsilons=epsilons)


def pages() -> dict[Path, str]:
    """Write the text that each page should have."""
    texts = {path.with_suffix(""): rendered(path) for path in sorted(DOCS.glob("*.md.jinja"))}
    readme = DOCS.parent / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split(_BEGIN)
    after = rest.split(_END)[1]
    return {**texts, readme: f"{before}{_BEGIN}{rendered(DOCS / 'readme.jinja')}{_END}{after}"}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
