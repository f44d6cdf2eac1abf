"""One offline page for a decision: which protection is worth its cost on the user's records."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from leakbound.claims.estimates import Estimate, mean_interval
from leakbound.config.whole import Config
from leakbound.figures import style
from leakbound.figures.report import opening
from leakbound.figures.report.page_templates import picture_address, templates

_FRONTS = ("fig15_recipes", "recipes")
_AGAINST = "_against_membership"
_RECORDS = "beyond/limit_pictures"
_MOST_COLUMNS = 40  # that a caption lists
_PICTURES = {
    "tan2024/fig15_recipes": "Test accuracy against membership inference: every learning rate and stopping time of "
    "every protection, and the front of plain SGD",
    "beyond/sandwich": "Nats that an attack has proven, next to the bound that the channel promises",
    _RECORDS: "Records that an untrained network saw behind a channel, and those that attackers recovered "
    "from one gradient of it",
}
_OUTCOMES = {
    "reproduced": "worth its cost at these learning rates: more accuracy than plain SGD that leaks as much",
    "contradicted": "not worth its cost: plain SGD that trains less, or at another rate, leaks as little and is more "
    "accurate",
    "negligible": "no difference that matters from plain SGD at another rate or stopping time",
    "mixed": "depends on the level",
    "undecided": "undecided",
}
_MEMBERSHIP = ("strongest", "white_box")


@dataclass(frozen=True)
class Decision:
    """Content of the page.

    Attributes:
        config: Configuration that has been run, with one dataset and one network.
        claims: Rows of ``evaluate``, the verdicts.
        tables: Study to its rows.
        drawings: Figure ``paper/id`` to its drawing, SVG.
        seconds: CPU seconds of all jobs.
        columns: Names of the values of a record of a table, in their order.
    """

    config: Config
    claims: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    drawings: Mapping[str, bytes]
    seconds: float
    columns: Sequence[str] = ()

    @cached_property
    def arms(self) -> pd.DataFrame:
        """Table of protections and levels: accuracy and AUC with 95 % intervals, ε, diverged replicas."""
        rows = self.tables["comparison"]
        return pd.DataFrame(list(_arms(rows[rows["chosen"] & (rows["length"] == "full")])))

    @cached_property
    def fronts(self) -> pd.DataFrame:
        """Table of protections: accuracy above plain SGD's front, and the verdict in words."""
        rows = self.claims
        rows = rows[
            rows["figure"].isin(_FRONTS) & rows["claim"].str.endswith(_AGAINST) & (rows["dataset"] != "all")
        ]
        return pd.DataFrame([self._front(row) for _, row in rows.iterrows()])

    def _front(self, row: pd.Series) -> dict[str, object]:
        """Compare one protection's front with that of plain SGD."""
        defense = str(row["claim"]).removesuffix(_AGAINST)
        needed = float(row["blocks_needed"])
        times = needed / float(row["blocks"])
        outcome = _OUTCOMES[str(row["verdict"])]
        if row["verdict"] == "undecided" and times <= 1:
            outcome += ", but near a decision: a few replicas more should decide"
        elif row["verdict"] == "undecided":
            outcome += f": {needed:.0f} replicas would decide, and take about {_time(times * self.seconds)} of CPU time"
        return {
            "label": style.style_of(defense).label,
            "verdict": row["verdict"],
            "effect": float(row["effect"]),
            "low": float(row["low"]),
            "high": float(row["high"]),
            "outcome": outcome,
        }

    @property
    def sentences(self) -> list[str]:
        """Sentences on leakage without protection, on protections by their verdicts, and on bounds."""
        said = [*self._undefended(), *self._verdicts(), *self._bounds()]
        if not self.config.tables:
            return said
        return [text.replace("images", "copies").replace("image", "record") for text in said]

    def _undefended(self) -> Iterator[str]:
        """Yield sentences on accuracy and leakage without protection."""
        plain = self.arms[self.arms["defense"] == "none"].dropna(subset=["accuracy", "auc"])
        if len(plain):
            yield (
                f"Without protection the network is right for {_percent(plain['accuracy'].iloc[0])} of new "
                f"records, and the strongest membership attack reaches an AUC of {plain['auc'].iloc[0]:.2f} "
                "(.50 is guessing)."
            )
        for dataset in self.config.datasets.values():
            if dataset.label_nats is not None:
                yield (
                    f"Labels are randomized responses in all rows, without protection too, and reveal at most "
                    f"{dataset.label_nats:g} nats each in addition. Accuracy is that on true labels."
                )
        yield from (
            text for text in opening.sentences(self.tables, {}) if text.startswith("Error of the image")
        )

    def _verdicts(self) -> Iterator[str]:
        """Yield sentences on the protections by the verdict on their fronts."""
        groups = dict(list(self.fronts.groupby("verdict"))) if len(self.fronts) else {}
        if "reproduced" in groups:
            yield (
                "Worth the cost against membership inference, at the learning rates that were tried: "
                f"{_listed(groups['reproduced'])}. Smaller rates of plain SGD may close such a lead: "
                "add some to learning_rates in compare.yaml, and all protections get them."
            )
        else:
            yield (
                "No protection is shown to leave more accuracy than plain SGD that trains less, or at another rate, "
                "and leaks as much."
            )
        for name, text in (
            ("contradicted", "Not worth the cost"),
            ("negligible", "Without a difference that matters"),
        ):
            if name in groups:
                yield f"{text}, in accuracy against plain SGD that leaks as much: {_listed(groups[name])}."
        if "undecided" in groups:
            yield f"Undecided: {_listed(groups['undecided'])}; the table says what deciding takes."

    def _bounds(self) -> Iterator[str]:
        """Yield sentences on the smallest capacity, and on the largest share of a bound that attacks prove."""
        from leakbound.accounting.risk import identification_risk

        members = next(iter(self.config.datasets.values())).members or 2
        for capacity in sorted(self.config.studies["comparison"].defenses.get("natural", ()))[:1]:
            most = identification_risk(capacity, members).probability
            limited = "not at all" if most >= 1 else f"to at most {_percent(most)}"
            yield (
                f"A capacity of {capacity:g} nats limits the probability that an attacker who has one noisy copy "
                f"identifies its record among the {members} of a client {limited} (guessing: {_percent(1 / members)})."
            )
        identified = {study: rows for study, rows in self.tables.items() if study == "naming"}
        yield from (text for text in opening.sentences(identified, {}) if text.startswith("Attacks prove"))


def decision_page(decision: Decision) -> str:
    """Write the page as self-contained HTML.

    Args:
        decision: Content of the page.
    """
    captions = dict(_PICTURES)
    if decision.columns:
        listed = ", ".join(decision.columns[:_MOST_COLUMNS])
        others = len(decision.columns) - _MOST_COLUMNS
        captions[_RECORDS] += f". Values from left to right: {listed}" + (
            f" and {others} others" if others > 0 else ""
        )
    pictures = [
        (picture_address("svg+xml", decision.drawings[key]), text)
        for key, text in captions.items()
        if key in decision.drawings
    ]
    return (
        templates()
        .get_template("decision.html")
        .render(decision=decision, pictures=pictures, percent=_percent)
    )


def _arms(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield the facts of each defense at each level. Means leave out replicas whose network diverged."""
    sound = rows[(rows["status"].astype(str) == "") & rows["value"].notna()]
    for defense in style.ordered(sound["defense"].unique()):
        of_defense = sound[sound["defense"] == defense]
        for level in sorted(of_defense["level"].dropna().unique()) or [None]:
            of_arm = of_defense if level is None else of_defense[of_defense["level"] == level]
            accuracy = of_arm[of_arm["metric"] == "test_accuracy"]["value"]
            areas = of_arm[of_arm["metric"] == "auc"]
            attackers = [name for name in _MEMBERSHIP if name in areas["variant"].array]
            auc = areas[areas["variant"].isin(attackers[:1])]["value"]
            # Of one network, not of all replicas.
            epsilon = of_arm[(of_arm["metric"] == "epsilon") & (of_arm["variant"] == "")]["value"]
            yield {
                "defense": defense,
                "label": style.style_of(defense).label,
                "level": "" if level is None else style.level_label(defense, level),
                "epsilon": style.epsilon_text(epsilon.mean()) if len(epsilon) else "",
                "diverged": int(of_arm[of_arm["metric"] == "diverged"]["value"].sum()),
                **_mean("accuracy", accuracy),
                **_mean("auc", auc),
            }


def _mean(name: str, values: pd.Series) -> dict[str, float]:
    """Return the mean over replicas with both ends of its 95 % interval, NaN without replicas."""
    estimate = mean_interval(values.to_numpy()) if len(values) else Estimate(math.nan, math.nan, math.nan)
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _listed(rows: pd.DataFrame) -> str:
    """List protections with the distance of their fronts above that of plain SGD."""
    points = 100 * rows[["effect", "low", "high"]]
    listed = zip(rows["label"], points.itertuples(index=False), strict=True)
    return "; ".join(
        f"{label} ({effect:+.1f} points, 95 %: {low:+.1f} to {high:+.1f})"
        for label, (effect, low, high) in listed
    )


def _percent(share: float) -> str:
    """Write a share in percent."""
    return f"{100 * share:.3g} %"


def _time(seconds: float) -> str:
    """Write seconds in a readable unit."""
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
