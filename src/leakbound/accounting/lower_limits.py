"""Lower limits on what the attackers of a run demonstrably learned, next to what its accountant allows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import special

from leakbound.accounting.one_run import gaussian_epsilon, guess, one_run_epsilon, one_run_gaussian
from leakbound.accounting.risk import (
    check_candidates,
    check_confidence,
    demonstrated_information,
    gained_information,
    identification_information,
)

CANDIDATES = (2, 10, 100)
"""Numbers of records among which a member is identified by scores of trained networks, if there are so many."""
_GUESSED = 0.5  # part of the pairs of canaries whose coin is guessed
_STRONGEST = "strongest"  # attacker that was chosen on records that it knows
_RELEASES = ("images", "gradients")  # variants of the attack `naming`: what the attacker receives


@dataclass(frozen=True)
class Evidence:
    """Lower limit with the bound that it is held against.

    Attributes:
        release: What the attacker saw: ``images`` (noisy ones), ``gradients``, ``uploads``, ``weights``, or
            weights that were trained on mislabelled ``canaries``.
        uses: Number of uses of the record, or -1 where it is that of the training or of the audit.
        quantity: ``nats`` about one record, ``epsilon`` by any mechanism, ``gaussian_epsilon`` by a Gaussian
            one.
        demonstrated: Lower confidence limit.
        allowed: What the accountant states, or NaN where no bound was derived.
        trials: Independent trials behind the limit: identifications, canaries, pairs, or networks.
        attacker: Who demonstrated it.
    """

    release: str
    uses: int
    quantity: Literal["nats", "epsilon", "gaussian_epsilon"]
    demonstrated: float
    allowed: float
    trials: int
    attacker: str

    @property
    def alarming(self) -> bool:
        """True if more was demonstrated than is allowed: then the accountant, or the noise, is wrong."""
        return self.demonstrated > self.allowed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, None where no bound was derived."""
        facts = asdict(self) | {"alarming": self.alarming}
        return facts | {"allowed": None if math.isnan(self.allowed) else self.allowed}


def evidence(
    rows: Mapping[str, pd.DataFrame],
    scores: Mapping[str, np.ndarray] | None = None,
    leakage: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    uploads: Mapping[str, np.ndarray] | None = None,
) -> list[Evidence]:
    """Collect all that the attacks of one run demonstrate.

    Each limit holds with the confidence on its own. Limits are corrected for what they were chosen among.
    Replicas are pooled: trials of identification and canaries are independent given the networks, so that
    limits hold for their mean. For trained networks see :func:`weights_information`.

    Args:
        rows: Rows of attacks by name, of which ``naming``, ``audit`` and ``membership_uploads`` are read.
        scores: Arrays of the attack ``membership`` on networks of the chosen rates.
        leakage: Bounds that the run's provenance states, or None without any.
        confidence: Of each lower limit, in (0, 1).
        uploads: Arrays of the attack ``membership_uploads``, likewise.
    """
    limits = list(_identified(rows["naming"], confidence)) if "naming" in rows else []
    if "audit" in rows:
        limits += _audited(rows["audit"], confidence)
    if scores is not None:
        limits += _weights(scores, leakage, confidence)
    if uploads is not None:
        limits += _weights(uploads, leakage, confidence, "uploads")
    if "membership_uploads" in rows:
        limits += _paired(rows["membership_uploads"], leakage, confidence)
    return limits


def evidence_rows(limits: Sequence[Evidence]) -> pd.DataFrame:
    """Write evidence as rows of an attack. Replica -1 stands for all, the unit is the number of uses.

    Metrics are ``<release>_<quantity>``. Variants are ``demonstrated`` and, where there is a bound,
    ``allowed``.
    """
    table = [
        {
            "variant": variant,
            "metric": f"{limit.release}_{limit.quantity}",
            "unit": limit.uses,
            "value": value,
        }
        for limit in limits
        for variant, value in (("demonstrated", limit.demonstrated), ("allowed", limit.allowed))
        if not math.isnan(value)
    ]
    frame = pd.DataFrame(table, columns=["variant", "metric", "unit", "value"])
    return frame.assign(replica=-1, learning_rate=np.nan, chosen=True, low=np.nan, high=np.nan, status="")


def naming_rate(
    members: Float[np.ndarray, " m"], nonmembers: Float[np.ndarray, " n"], candidates: int
) -> float:
    """Compute how often a member scores higher than M − 1 distinct non-members, over all such groups.

    Ties count as failures. For a member above L of N non-members it is C(L, M−1) / C(N, M−1).

    Raises:
        ValueError: If there are fewer than M − 1 non-members, M < 2, or a score is NaN.
    """
    check_candidates(candidates)
    if np.isnan(members).any() or np.isnan(nonmembers).any():
        raise ValueError("members, nonmembers: a score is NaN; leave that record out")
    distractors = candidates - 1
    if len(nonmembers) < distractors:
        raise ValueError(f"candidates = {candidates}: there are only {len(nonmembers)} non-members")
    below = np.searchsorted(np.sort(nonmembers), members, side="left")
    return float(_falling(below, distractors, len(nonmembers)).mean())


def _falling(below: Int[np.ndarray, " m"], distractors: int, count: int) -> Float[np.ndarray, " m"]:
    """Compute C(below, others) / C(count, others)."""
    chances = np.zeros(len(below))
    enough = below >= distractors
    falling = below[enough].astype(float)
    logs = special.gammaln(falling + 1) - special.gammaln(falling - distractors + 1)
    chances[enough] = np.exp(logs - special.gammaln(count + 1.0) + special.gammaln(count - distractors + 1.0))
    return chances


def weights_information(
    members: Float[np.ndarray, "networks m"],
    nonmembers: Float[np.ndarray, "networks n"],
    candidates: Sequence[int] = CANDIDATES,
    confidence: float = 0.95,
) -> float:
    """Bound from below the nats that trained weights reveal about a member, by identifying it.

    The member is identified among non-members. Records of one network share it, so networks are the trials.
    For each M the mean of their identification rates has Student's one-sided limit, corrected for the choice
    of M. The divergence is convex in the rate, so that of the mean rate is at most the mean of what networks
    reveal. The limit is approximate, as Student's is, for rates that are not normal.

    Args:
        members: Scores of members, higher means member. Networks whose scores are not finite are left out.
        nonmembers: Scores of non-members.
        candidates: Numbers M. Those beyond the number of non-members are left out.
        confidence: In (0, 1).

    Returns:
        Nats, or 0 for fewer than two networks, or where no rate is above chance beyond doubt.

    Raises:
        ValueError: If the confidence is out of range.
    """
    check_confidence(confidence)
    sound = np.isfinite(members).all(axis=1) & np.isfinite(nonmembers).all(axis=1)
    fitting = [count for count in candidates if count <= nonmembers.shape[1]]
    if sound.sum() < 2 or not fitting:
        return 0.0
    limits = []
    for count in fitting:
        pairs = zip(members[sound], nonmembers[sound], strict=True)
        rates = np.array([naming_rate(guesses, distractors, count) for guesses, distractors in pairs])
        limits.append(_networks_information(rates, count, 1.0 - (1.0 - confidence) / len(fitting)))
    return max(limits)


def pairs_information(
    scores: Float[np.ndarray, "networks pairs 2"],
    inserted: Int[np.ndarray, "networks pairs"],
    confidence: float = 0.95,
) -> float:
    """Bound from below the nats that trained weights reveal about a mislabelled member, at most ln 2.

    It is :func:`weights_information` for records that stand out: the member of each pair of canaries is
    identified. Arguments are those of :func:`weights_epsilon`.
    """
    sound = np.isfinite(scores).all(axis=(1, 2))
    if sound.sum() < 2:
        return 0.0
    right = (scores[sound, :, 1] > scores[sound, :, 0]) == (inserted[sound] == 1)
    return _networks_information(right.mean(axis=1), 2, confidence)


def _networks_information(rates: Float[np.ndarray, " networks"], candidates: int, confidence: float) -> float:
    """Compute the nats that the mean identification rate of networks demonstrates, by Student's t."""
    quantile = float(special.stdtrit(len(rates) - 1, confidence))
    low = float(rates.mean() - quantile * (rates.std(ddof=1) / len(rates) ** 0.5))
    return identification_information(min(max(low, 0.0), 1.0), candidates)


def weights_epsilon(
    scores: Float[np.ndarray, "networks pairs 2"],
    inserted: Int[np.ndarray, "networks pairs"],
    delta: float,
    confidence: float = 0.95,
) -> tuple[float, int]:
    """Bound ε from below by pairs of canaries, of which a fair coin chose the member, and count the pairs.

    The coins of the half with the clearest differences are guessed. Networks are independent mechanisms on
    coins of their own, so that their pairs count together. The limit is one for adding or removing a record
    (:func:`leakbound.accounting.one_run.one_run_p_value`, ``pairs``).

    Args:
        scores: Scores of both records of each pair. Networks whose scores are not finite are left out.
        inserted: Index of the member of each pair.
        delta: δ.
        confidence: In (0, 1).
    """
    sound = np.isfinite(scores).all(axis=(1, 2))
    coins = inserted[sound].ravel()
    if not len(coins):
        return 0.0, 0
    guesses, correct = guess((scores[sound, :, 1] - scores[sound, :, 0]).ravel(), coins == 1, _GUESSED)
    return one_run_epsilon(len(coins), guesses, correct, delta, confidence, "pairs"), len(coins)


def _identified(rows: pd.DataFrame, confidence: float) -> Iterator[Evidence]:
    """Yield evidence of the attack ``naming`` for the best number of candidates and way to answer."""
    for release in _RELEASES:
        of_release = rows[rows["variant"] == release]
        trials = of_release[of_release["metric"] == "trials"]["value"]
        total = int(trials.sum())
        numbers = {
            metric.removeprefix("rate_") for metric in of_release["metric"] if metric.startswith("rate_")
        }
        for uses in sorted(map(int, numbers)):
            rates, means, variances = (
                of_release[of_release["metric"] == f"{name}_{uses}"].groupby("unit")["value"]
                for name in ("rate", "gain", "gain_variance")
            )
            each = 1.0 - (1.0 - confidence) / (len(rates) + len(means))
            # Replicas have equally many trials.
            limits = [
                demonstrated_information(round(rate.mean() * total), total, int(count), each)
                for count, rate in rates
            ]
            for count, gains in means:
                within = (trials.iloc[0] - 1) * variances.get_group(count).sum()
                between = trials.iloc[0] * ((gains - gains.mean()) ** 2).sum()
                variance = float(within + between) / (total - 1)
                limits.append(gained_information(float(gains.mean()), variance, total, int(count), each))
            allowed = rows[(rows["variant"] == "bound") & (rows["metric"] == f"nats_{uses}")]["value"]
            bound = float(allowed.mean()) if len(allowed) else math.nan
            yield Evidence(release, uses, "nats", max(limits), bound, total, "naming")


def _audited(rows: pd.DataFrame, confidence: float) -> Iterator[Evidence]:
    """Yield evidence of the attack ``audit``, from the coins of all replicas together."""
    counts = {
        name: int(rows[rows["metric"] == name]["value"].sum()) for name in ("canaries", "guesses", "correct")
    }
    bound = float(rows[rows["variant"] == "bound"]["value"].mean())
    delta = float(rows[rows["metric"] == "delta"]["value"].mean())
    total, guesses, correct = counts.values()
    general = one_run_epsilon(total, guesses, correct, delta, confidence)
    yield Evidence("uploads", -1, "epsilon", general, bound, total, "canaries")
    if (rows["variant"] == "gaussian").any():
        tight = gaussian_epsilon(one_run_gaussian(total, guesses, correct, confidence), delta)
        yield Evidence("uploads", -1, "gaussian_epsilon", tight, bound, total, "canaries")


def _paired(rows: pd.DataFrame, leakage: Mapping[str, Any] | None, confidence: float) -> Iterator[Evidence]:
    """Yield evidence of ε from uploads, by pairs of a member and a non-member in random order."""
    bounds = (leakage or {}).get("replica", {})
    coins = rows[(rows["variant"] == "coins") & rows["chosen"]].groupby("metric")["value"].sum()
    if "epsilon" in bounds and len(coins):
        pairs, guesses, correct = (int(coins[name]) for name in ("pairs", "guesses", "correct"))
        epsilon = one_run_epsilon(pairs, guesses, correct, bounds["delta"], confidence, "pairs")
        yield Evidence("uploads", -1, "epsilon", epsilon, bounds["epsilon"], pairs, "likelihood")


def _weights(
    scores: Mapping[str, np.ndarray],
    leakage: Mapping[str, Any] | None,
    confidence: float,
    release: str = "weights",
) -> Iterator[Evidence]:
    """Yield evidence from trained networks, by the attacker chosen beforehand or corrected for the choice."""
    names = [name.removesuffix("_members") for name in sorted(scores) if name.endswith("_members")]
    names = [_STRONGEST] if _STRONGEST in names else names
    each = 1.0 - (1.0 - confidence) / max(1, len(names))
    bounds = (leakage or {}).get("replica", {})
    networks = {name: int(np.isfinite(scores[f"{name}_members"]).all(axis=1).sum()) for name in names}
    nats = {
        name: weights_information(scores[f"{name}_members"], scores[f"{name}_nonmembers"], confidence=each)
        for name in names
    }
    allowed = bounds.get("record", math.nan) + (leakage or {}).get("labels", 0.0)
    if nats:
        best = max(nats, key=lambda name: nats[name])
        yield Evidence(release, -1, "nats", nats[best], allowed, networks[best], best)
    if "canaries_inserted" not in scores:
        return
    coins = scores["canaries_inserted"]
    pairs = {name: pairs_information(scores[f"{name}_canaries"], coins, each) for name in names}
    best = max(pairs, key=lambda name: pairs[name])
    yield Evidence("canaries", -1, "nats", pairs[best], allowed, networks[best], best)
    if "epsilon" in bounds:
        limits = {
            name: weights_epsilon(scores[f"{name}_canaries"], coins, bounds["delta"], each) for name in names
        }
        best = max(limits, key=lambda name: limits[name])
        epsilon, trials = limits[best]
        yield Evidence("canaries", -1, "epsilon", epsilon, bounds["epsilon"], trials, best)
