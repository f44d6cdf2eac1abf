"""One offline page for a decision: which protection is worth its cost on the user's records."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from leakbound.accounting.dp import gaussian_steps
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.risk import bound_text, dp_naming_bound, identification_information, naming_bound
from leakbound.accounting.statement import Statement
from leakbound.words import in_nats
from leakbound_lab.claims.statistics import Estimate, mean_interval
from leakbound_lab.config.comparing import shares
from leakbound_lab.config.data import size_of
from leakbound_lab.config.whole import Config
from leakbound_lab.figures import style
from leakbound_lab.figures.report.page_templates import picture_address, templates

_FRONTS = ("fig15_recipes", "recipes")
_AGAINST = "_against_membership"
_FRONT = "tan2024/fig15_recipes"
_PICTURES = (_FRONT, "beyond/uploads_front", "beyond/sandwich", "beyond/limit_pictures")
_OUTCOMES = {
    "reproduced": "worth its cost at these learning rates: more accuracy than plain SGD that leaks as much",
    "contradicted": "not worth its cost: plain SGD that trains less, or at another rate, leaks as little and is more "
    "accurate",
    "negligible": "no difference that matters from plain SGD at another rate or stopping time",
    "mixed": "depends on the level",
    "undecided": "undecided",
}
_MEMBERSHIP = ("strongest", "white_box")
_GUESSING = 0.5  # AUC
_RELEASE = "the uploads of a whole training"  # which bounds of its weights hold for, too
_INVERTED = ["metric", "variant", "chosen", "status", "level", "value"]
_APPLIED = ("natural", "white", "least_power", "rate_distortion", "dpsgd")  # personalized noise needs weights
_CERTAIN = 0.99  # probability from which a bound on identification limits nothing
_RECOMMENDED = (
    0.5  # probability up to which one does, so that an attacker is wrong at least as often as right
)
_BOUNDS = {"bound_text": bound_text, "infinity": math.inf, "certain": _CERTAIN, "recommended": _RECOMMENDED}


@dataclass(frozen=True)
class Decision:
    """Content of the page.

    Attributes:
        config: Configuration that has been run, with one dataset and one network.
        claims: Rows of ``evaluate``, the verdicts.
        tables: Study to its rows.
        drawings: Figure ``paper/id`` to its drawing, SVG.
        seconds: CPU seconds of all jobs.
        trainings: Run to the provenance of its training.
        recoverable: Nats about a record to the share of the variance that they can reveal, of Gaussian records.
        classes: Number of labels.
        majority: Share of new records with the most frequent label, which a guess gets right.
        columns: Names of the values of a record of a table, in their order.
    """

    config: Config
    claims: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    drawings: Mapping[str, bytes]
    seconds: float
    trainings: Mapping[str, Mapping[str, Any]]
    recoverable: Callable[[float], float]
    classes: int
    majority: float
    columns: Sequence[str] = ()

    @cached_property
    def arms(self) -> pd.DataFrame:
        """Table of protections and levels: accuracy and AUC with 95 % intervals, bounds, diverged replicas.

        Intervals of accuracies hold both what differs between replicas and the choice of the test records, which
        all replicas share. An arm is useful if its accuracy is shown to exceed that of the most frequent label, or
        does with a single replica.
        """
        rows = self.tables["comparison"]
        arms = pd.DataFrame(list(self._arms(rows[rows["chosen"] & (rows["length"] == "full")])))
        return arms.assign(useful=arms["accuracy_low"].fillna(arms["accuracy"]) > self.majority)

    @property
    def tested(self) -> int:
        """Number of test records."""
        ((name, dataset),) = [*self.config.datasets.items()][:1]
        return size_of(name, dataset).test

    @property
    def secure(self) -> bool:
        """True if the noise of all trainings is secret, so that bounds hold for them as they are."""
        return self.config.privacy_noise == "secure"

    @property
    def sees_uploads(self) -> bool:
        """True if the threat is a server that sees every upload, against which less training hides little."""
        return "uploads" in self.config.studies

    @cached_property
    def ranked(self) -> bool:
        """True if accuracy at equal AUC from the last weights decides: for who sees these, and finds members."""
        plain = self.arms[self.arms["defense"] == "none"].dropna(subset=["auc"])
        return not self.sees_uploads and (not len(plain) or bool(plain["auc_low"].iloc[0] > _GUESSING))

    def _uploads_auc(self, runs: pd.Series) -> pd.Series:
        """Return the AUC from the uploads of each replica of some runs that did not diverge."""
        if not self.sees_uploads:
            return pd.Series(dtype=float)
        rows = self.tables["uploads"]
        rows = rows[(rows["metric"] == "auc") & (rows["variant"] == "likelihood") & rows["run"].isin(runs)]
        return rows[rows["status"].astype(str) == ""]["value"]

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
            minutes = times * self.seconds / 60
            time = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
            outcome += f": {needed:.0f} replicas would decide, and take about {time} of CPU time"
        return {
            "label": style.style_of(defense).label,
            "verdict": row["verdict"],
            "effect": float(row["effect"]),
            "low": float(row["low"]),
            "high": float(row["high"]),
            "outcome": outcome,
        }

    def _arms(self, rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        """Yield the facts of each defense at each level. Means leave out replicas whose network diverged."""
        sound = rows[(rows["status"].astype(str) == "") & rows["value"].notna()]
        for defense in style.ordered(sound["defense"].unique()):
            of_defense = sound[sound["defense"] == defense]
            for level in sorted(of_defense["level"].dropna().unique()) or [None]:
                of_arm = of_defense if level is None else of_defense[of_defense["level"] == level]
                accuracy = of_arm[of_arm["metric"] == "test_accuracy"]
                areas = of_arm[of_arm["metric"] == "auc"]
                attackers = [name for name in _MEMBERSHIP if name in areas["variant"].array]
                yield {
                    "defense": defense,
                    "label": style.style_of(defense).label,
                    "level": "" if level is None else style.level_label(defense, level),
                    "rate": accuracy["learning_rate"].mode().min(),
                    "diverged": int(of_arm[of_arm["metric"] == "diverged"]["value"].sum()),
                    **_with_test_records(_share("accuracy", accuracy["value"]), self.tested),
                    **_share("auc", areas[areas["variant"].isin(attackers[:1])]["value"]),
                    **_share("uploads", self._uploads_auc(of_arm["run"])),
                    **self._bounds(self.trainings[of_arm["run"].iloc[0]]),
                }

    def _bounds(self, training: Mapping[str, Any]) -> dict[str, object]:
        """Take the run's statement for one network, as it is and with secret noise, and what its nats allow.

        For DP the smaller bound of Hayes et al. 2023 on identification takes the place of Fano's.
        """
        event = max((PrivacyEvent(**event) for event in training["events"]), key=lambda event: event.uses)
        statement = Statement.from_numbers(training["statement"]["replica"])
        bound = replace(statement.if_secret, release=_RELEASE)
        nats = bound.nats
        # There are at least so many units, and fewer candidates are identified more easily.
        candidates = max(2, event.population // event.rows)
        identified = naming_bound(nats, candidates)
        by_noise = math.inf
        if event.bound == "epsilon" and event.noise_multiplier:
            by_noise = dp_naming_bound(*gaussian_steps(event), candidates, event.rows)
        return {
            "event": event,
            "statement": statement,
            "bound": bound,
            "candidates": candidates,
            "uses": round(event.steps * event.sample_rate) if event.sampling == "poisson" else event.uses,
            "nats": nats,
            "identified": min(identified, by_noise),
            "by_noise": by_noise < identified,
            "recovered": self.recoverable(nats),
        }

    @cached_property
    def gradients(self) -> dict[float, float]:
        """Capacity, ∞ without protection, to the error of records from a gradient.

        It is the mean squared error of pixels from 0 to 1, of tables that over the error of the mean record.
        """
        rows = self._inverted("relative_mse" if self.config.tables else "mse", "attack")
        return rows.groupby(rows["level"].fillna(math.inf))["value"].mean()[::-1].to_dict()

    @property
    def guessed(self) -> float:
        """Mean squared error of the mean image, pixels from 0 to 1."""
        return float(self._inverted("mse", "prior")["value"].mean())

    def _inverted(self, metric: str, variant: str) -> pd.DataFrame:
        """Return a metric of records from a gradient, by those attacks on it that ended."""
        rows = self.tables.get("gradient_inversion", pd.DataFrame(columns=_INVERTED))
        rows = rows[(rows["metric"] == metric) & (rows["variant"] == variant) & rows["chosen"].astype(bool)]
        return rows[rows["status"].astype(str) == ""]

    @cached_property
    def proven(self) -> tuple[Any, pd.Series] | None:
        """The release (level, metric, uses) whose nats attacks prove best, and these nats, or None."""
        rows = self.tables.get("naming")
        if rows is None:
            return None
        rows = rows[rows["metric"].isin(("images_nats", "gradients_nats"))]
        nats = rows.pivot_table(index=["level", "metric", "unit"], columns="variant", values="value").dropna()
        best = (nats["demonstrated"] / nats["allowed"]).idxmax()
        return best, nats.loc[best]

    @cached_property
    def winner(self) -> pd.Series | None:
        """The most accurate useful arm that limits identification to .5 and that a few lines apply, or None."""
        arms = self.arms.query("identified <= @_RECOMMENDED and useful and defense in @_APPLIED")
        return None if arms.empty else arms.loc[arms["accuracy"].idxmax()]

    @property
    def sentences(self) -> list[str]:
        """Sentences on the records, leakage without protection, bounds, and protections by their verdicts."""
        return [*shares(self.config), *self._text("decision.txt").splitlines()]

    @property
    def next_step(self) -> list[str]:
        """Choice of an arm and its reason, lines of code that apply it, and the meaning of their names."""
        natural = self.arms[self.arms["defense"] == "natural"]
        arm = self.winner if self.winner is not None else self.nearest
        if arm is None:
            if natural.empty or self.values_target <= 0:
                return [self._nothing()]
            arm = natural.iloc[0]
        return [part.strip() for part in self._text("next_step.txt", arm=arm).split("\n\n")]

    def _nothing(self) -> str:
        """Say that no protection and no level limits identification to .5, and what stands in the way."""
        useless = (
            f" and is right more often than a guess, the most frequent label ({100 * self.majority:.3g} %)"
        )
        limited = bool((self.arms["identified"] <= _RECOMMENDED).any())
        sentence = f"No level that was tried limits identification to 50 %{useless if limited else ''}."
        if self.values_target <= 0:
            sentence += (
                " Labels alone may reveal more nats than 50 % allows: limit them first, by --label-nats."
            )
        return sentence

    @cached_property
    def nearest(self) -> pd.Series | None:
        """The useful arm above .5 with the least identification, of those that a few lines apply, or None."""
        arms = self.arms.query("@_RECOMMENDED < identified < @_CERTAIN and useful and defense in @_APPLIED")
        return None if arms.empty else arms.loc[arms["identified"].idxmin()]

    @property
    def values_target(self) -> float:
        """Nats about the values of a record that keep identification at .5 if its label is released too."""
        event = self.arms["event"].iloc[0]
        label_nats = next(iter(self.config.datasets.values())).label_nats
        released = math.log(self.classes) if label_nats is None else label_nats
        labels = released * (event.records if event.unit == "owner" else 1)
        return identification_information(_RECOMMENDED, int(self.arms["candidates"].iloc[0])) - labels

    def _text(self, name: str, **values: Any) -> str:
        """Fill in a template of sentences."""
        surroundings = templates(trim_blocks=True, lstrip_blocks=True)
        surroundings.filters["in_nats"] = in_nats
        return surroundings.get_template(name).render(decision=self, **_BOUNDS, **values)


def decision_page(decision: Decision) -> str:
    """Write the page as self-contained HTML.

    Args:
        decision: Content of the page.
    """
    pictures = {
        key: picture_address("svg+xml", decision.drawings[key])
        for key in _PICTURES
        if key in decision.drawings and (decision.ranked or key != _FRONT)
    }
    surroundings = templates()
    surroundings.filters["in_nats"] = in_nats
    page = surroundings.get_template("decision.html")
    return page.render(decision=decision, pictures=pictures, next_step=decision.next_step, **_BOUNDS)


def _with_test_records(shares: dict[str, float], tested: int) -> dict[str, float]:
    """Widen the interval of an accuracy by Wilson's interval for the test records, which all replicas share."""
    accuracy = shares["accuracy"]
    low = shares["accuracy_low"]
    high = shares["accuracy_high"]
    if math.isnan(accuracy):
        return shares
    z = float(special.ndtri(0.975))
    middle = (accuracy + z**2 / (2 * tested)) / (1 + z**2 / tested)
    half = math.sqrt(accuracy * (1 - accuracy) / tested + z**2 / (4 * tested**2)) * z / (1 + z**2 / tested)
    ends = {
        "accuracy_low": max(0.0, accuracy - math.hypot(accuracy - low, accuracy - (middle - half))),
        "accuracy_high": min(1.0, accuracy + math.hypot(high - accuracy, middle + half - accuracy)),
    }
    return {**shares, **ends}


def _share(name: str, values: pd.Series) -> dict[str, float]:
    """Return the mean share over replicas with both ends of its 95 % interval within [0, 1], NaN without replicas."""
    estimate = mean_interval(values.to_numpy()) if len(values) else Estimate(math.nan, math.nan, math.nan)
    low, high = np.clip(estimate[1:], 0.0, 1.0)  # Student's t knows no bounds
    return {name: estimate.value, f"{name}_low": float(low), f"{name}_high": float(high)}
