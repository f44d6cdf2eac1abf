"""Audit of a network that was trained elsewhere: membership attacks, and lower limits of its leakage.

Attackers are chosen on one half of the records, and all numbers come from the other half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from leakbound.accounting.coin_limits import CoinLimit, StatedBound, check_coins, coin_limits, verdict_on
from leakbound.accounting.risk import check_confidence
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab.attacks.membership.attack import View, scores_of, strongest
from leakbound_lab.attacks.membership.audited_records import ReferenceScores, Score, doubts, outputs
from leakbound_lab.attacks.membership.reference_scores import Confidences
from leakbound_lab.attacks.membership.signals import signals_of_outputs
from leakbound_lab.attacks.metrics import Interval, auc_interval, blind_area, roc_curve, tpr_at_fpr
from leakbound_lab.config.attacks import MembershipConfig
from leakbound_lab.datasets.audited import Records, check_records, check_shape

RATES = (0.01, 0.001)
"""False-positive rates at which true ones are stated."""
# Attackers that learn here from outputs alone.
_LEARNED = {"white_box": "learned", "white_box_references": "learned_with_references"}
_MOST = 2000  # records, classes, and about as many values, of the classifier without the network


@dataclass(frozen=True)
class NetworkAudit:
    """Outcome of an audit.

    Attributes:
        counts: Members and others, given and evaluated.
        areas: Attacker to its AUC with a 95 % interval, on the evaluated records. ``loss_threshold`` orders
            by the loss, ``learned`` is a network that learned from outputs, the others compare with
            references.
        choices: False-positive rate, None for the AUC, to the attacker that was strongest on the other half.
        rates: False-positive rate to the true one with its exact 95 % interval, None for too few records.
        needed: False-positive rate to the number of others that it needs.
        blind: AUC of a classifier that sees the records and not the network, None where they are no numbers.
        limits: Lower limits of ε and of nats.
        bound: Stated bound.
        confidence: Confidence of the limits of each quantity together.
        curve: False- and true-positive rates of the attacker that is strongest by AUC.
        verdict: Verdict on the bound, in words.
        warnings: Doubts, in words.
    """

    counts: Mapping[str, int]
    areas: Mapping[str, Interval]
    choices: Mapping[float | None, str]
    rates: Mapping[float, Interval | None]
    needed: Mapping[float, int]
    blind: Interval | None
    limits: Sequence[CoinLimit]
    bound: StatedBound | None
    confidence: float
    curve: tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]
    verdict: str
    warnings: Sequence[str]

    @property
    def contradicted(self) -> bool:
        """True if a limit is above the stated bound."""
        return any(limit.contradicts for limit in self.limits)


def audit_network(
    score: Score,
    members: Records,
    others: Records,
    *,
    references: ReferenceScores | None = None,
    canaries: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    bound: StatedBound | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> NetworkAudit:
    """Attack the membership of a network's records, and compare what that demonstrates with a stated bound.

    Args:
        score: Gives logits (n, classes), posteriors, or losses (n) of records under their labels.
        members: Records that the network was trained on, and their labels.
        others: Records of the same distribution that it was not trained on, and their labels.
        references: Outputs of other networks on the same records.
        canaries: Records, labels, and for each by an independent fair coin whether it was trained on.
        bound: Bound on ε, or on nats about one record with its label.
        confidence: Probability, in (0, 1), at least, that no limit of a quantity is above the truth.
        seed: Divides the records and draws attack networks.

    Raises:
        ValueError: If records or scores do not fit together, are too few, not finite, or members and others
            share records.

    Example:
        >>> import numpy as np
        >>> from leakbound_lab.attacks.membership.network_audit import StatedBound, audit_network
        >>> draw = np.random.default_rng(0)
        >>> members, others = draw.normal(size=(2, 200, 3)).astype("float32")
        >>> labels = np.zeros(200, dtype=int)
        >>> memorized = {record.tobytes() for record in members}
        >>> def score(records, labels):
        ...     return np.array([0.1 if record.tobytes() in memorized else 2.0 for record in records])
        >>> audit = audit_network(score, (members, labels), (others, labels), bound=StatedBound("epsilon", 1.0))
        >>> audit.verdict
        'epsilon = 1 at delta = 1e-05 is contradicted at confidence 0.95: the lower limit is 1.74'
    """
    check_confidence(confidence)
    check_records(members, others)
    if references is not None:
        references.check(len(members[0]), len(others[0]))
    planted = None if canaries is None else _planted(score, canaries, members[0].shape[1:], seed)
    answers = [outputs(score, *kind, name) for name, kind in (("members", members), ("others", others))]
    if answers[0].shape[1:] != answers[1].shape[1:]:
        raise ValueError(f"score gives {answers[0].shape} values for members, {answers[1].shape} for others")
    count = len(members[0])
    total = count + len(others[0])
    # The first half is what the attackers learn from, the second is scored. Members come first in all arrays.
    halves = _halves(count, total, seed)
    labels = np.concatenate([members[1], others[1]])
    training, scored = _attacked(np.concatenate(answers), labels, references, halves, seed)
    split = int((halves[1] < count).sum())
    evaluated = {name: (scores[:split], scores[split:]) for name, scores in scored.items()}
    choices = {rate: strongest(training, rate) for rate in (None, *RATES)}
    areas = {name: auc_interval(*pair) for name, pair in evaluated.items()}
    attackers = dict.fromkeys(choices.values())
    pairs = {name: np.split(training[name], 2) for name in attackers}
    limits = list(coin_limits(bound, confidence, pairs, evaluated, planted))
    blind = _blind(members, others, labels, halves)
    # Fewest others for a rate: the scored ones must resolve it.
    needed = {rate: round(1 / rate) + min(count // 2, round(1 / rate)) for rate in RATES}
    return NetworkAudit(
        counts={"members": count, "others": total - count}
        | {"evaluated_members": split, "evaluated_others": len(halves[1]) - split},
        areas={_LEARNED.get(name, name): area for name, area in areas.items()},
        choices={rate: _LEARNED.get(name, name) for rate, name in choices.items()},
        rates={
            rate: tpr_at_fpr(*evaluated[choices[rate]], rate) if total - count >= needed[rate] else None
            for rate in RATES
        },
        needed=needed,
        blind=blind,
        limits=limits,
        bound=bound,
        confidence=confidence,
        curve=roc_curve(*evaluated[choices[None]]),
        verdict=verdict_on(bound, limits, confidence),
        warnings=list(doubts(score, members, answers[0], areas["loss_threshold"], blind)),
    )


def _halves(members: int, total: int, seed: int) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " e"]]:
    """Divide records by chance into as many members as others that are known, and the rest, members first."""
    generator = numpy_generator(seed, "network_audit_division")
    orders = [generator.permutation(members), members + generator.permutation(total - members)]
    half = min(members, total - members) // 2
    first, rest = zip(*((order[:half], order[half:]) for order in orders), strict=True)
    return np.concatenate(first), np.concatenate(rest)


def _attacked(
    answers: Float[np.ndarray, "n ..."],
    labels: np.ndarray,
    references: ReferenceScores | None,
    halves: tuple[Int[np.ndarray, " k"], Int[np.ndarray, " e"]],
    seed: int,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Score the half that each attacker knows, and the other one, higher for members."""
    compared = None if references is None else references.confidences(labels, answers.shape[1:])
    views = [
        View(
            signals_of_outputs(answers[rows], labels[rows]),
            compared and Confidences(*(part[:, rows] for part in vars(compared).values())),
        )
        for rows in halves
    ]
    attacked = [(views, torch_generator(seed, "network_audit_attackers"))]
    (scores,) = scores_of(attacked, MembershipConfig())
    first, second = ({name: parts[half] for name, parts in scores.items()} for half in (0, 1))
    return first, second


def _planted(
    score: Score, canaries: tuple[np.ndarray, np.ndarray, np.ndarray], shape: tuple[int, ...], seed: int
) -> tuple[Float[np.ndarray, " k"], Bool[np.ndarray, " k"]]:
    """Compute confidences in canaries, and their coins, in random order, so that chance breaks ties."""
    records, labels, included = canaries
    check_shape("canaries", records, labels, shape)
    check_coins(included, len(records))
    order = numpy_generator(seed, "network_audit_canaries").permutation(len(records))
    answers = outputs(score, records[order], labels[order], "canaries")
    return signals_of_outputs(answers, labels[order]).confidence.numpy(), included[order].astype(bool)


def _blind(
    members: Records,
    others: Records,
    labels: np.ndarray,
    halves: tuple[Int[np.ndarray, " k"], Int[np.ndarray, " e"]],
) -> Interval | None:
    """Compute the AUC of a classifier of numbers and their labels without the network, None for texts."""
    if members[0].dtype.kind in "US":
        return None
    classes, places = np.unique(labels, return_inverse=True)
    kinds = np.eye(len(classes), dtype=np.float32)[places] if len(classes) <= _MOST else places[:, None]
    records = np.concatenate([members[0], others[0]]).reshape(len(labels), -1)
    records = records[:, :: 1 + records.shape[1] // _MOST]
    learnt = np.concatenate([part[: _MOST // 2] for part in np.split(halves[0], 2)])
    rows = np.concatenate([records.astype(np.float32), kinds], axis=1)
    return blind_area(rows, np.arange(len(labels)) < len(members[0]), learnt, halves[1])
