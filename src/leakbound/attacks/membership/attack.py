"""Membership inference: which of the records at hand was the target model trained on?

The attacker knows the membership of some of the records, learns from them, and is scored on the others. It compares the
target with reference networks, which were trained by the same defense on other draws from the pool, and if it knows the
channel of a defense, it looks at each record through noise of its own.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakbound import models
from leakbound.attacks.images import COLUMNS
from leakbound.attacks.membership.known_records import Asked, Group, asked_records
from leakbound.attacks.membership.network import Lesson, white_box_scores
from leakbound.attacks.membership.reference_scores import (
    Compared,
    References,
    lira_offline,
    lira_online,
    rmia,
    shared_laws,
)
from leakbound.attacks.membership.signals import Queries, Signals, read_signals
from leakbound.attacks.scheduling import side_by_side
from leakbound.attacks.status import DIVERGED
from leakbound.attacks.trained_networks import load
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.sampling import ChannelSampler
from leakbound.config.attacks import MembershipConfig
from leakbound.datasets import ImageDataset
from leakbound.metrics import Interval, auc_interval, proportion_interval, score_parts, standard_errors, tpr_at_fpr
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound.training.memory import slots_that_fit
from leakbound.training.precision import in_full_precision
from leakbound.training.stack import finite_slots

ALONE = ("white_box", "loss_threshold")
"""Attackers that look at the target alone."""
COMPARING = ("lira_offline", "lira_online", "rmia", "white_box_references")
"""Attackers that compare it with reference networks; the last one learns from all signals and these scores together."""
LEARNED = ("white_box", "white_box_references")
"""Attackers that learn from the records that they know."""
STRONGEST = "strongest"
"""By each metric the attacker that does best on the records that it knows."""

_FALSE_POSITIVE_RATES: Mapping[str, float | None] = {"auc": None, "tpr_at_fpr_0.01": 0.01, "tpr_at_fpr_0.001": 0.001}
_OFFLINE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # values of RMIA's a that the attacker tries
_COPIES = 6  # of a record's signals: as read and as encoded, held out, in a batch, and two in between
_SURE = 2.33  # standard errors of one-sided tests of five others, .05 in all
_UNKNOWN = Interval(math.nan, math.nan, math.nan)

Scores = Mapping[str, Sequence[Float[np.ndarray, " _"]]]
"""Attacker to its scores of some groups of records, those that it knows first; higher means member."""


@dataclass(frozen=True)
class Look:
    """View of some records that the attacker has.

    Attributes:
        signals: Of the target.
        compared: Confidences of reference networks, if there are any.
    """

    signals: Signals
    compared: Compared | None = None


@dataclass(frozen=True)
class _Case:
    """A replica, the records that it is attacked with, and looks at them in the way that promises most."""

    replica: int
    asked: Asked
    looks: list[Look]
    way: Queries
    sound: bool
    generator: torch.Generator


@in_full_precision
def attack(
    weights: Mapping[str, Tensor],
    *,
    replicas: Sequence[int],
    model: str,
    dataset: ImageDataset,
    config: MembershipConfig,
    seed: int,
    slug: str,
    device: str = "cpu",
    channel: GaussianChannel | None = None,
    references: References | None = None,
    learning_rates: Sequence[float] = (),
    lengths: Sequence[str] = (),
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Attack every replica of a run in all ways, and by each metric in the :func:`strongest`.

    Members and non-members of a replica come from one pool. Which of them the attacker knows, and all that it draws
    itself, depends on seed, dataset and replica: it is the same for every defense, level and learning rate. Canaries
    are scored on their own: their members against their non-members together with the scored non-members under wrong
    labels, which are drawn by the same law and are many.

    Args, beside those of :mod:`leakbound.attacks`:
        channel: Of the defense, if it has one.
        references: Networks to compare with; None for none.
        learning_rates: That of each network, needed with references; ``lengths`` those of their trainings, or ``full``.

    Returns:
        Rows with 95 % intervals: AUC and true-positive rates at 1 % and 0.1 % false positives of each variant, the same
        on canaries (``canary_auc``, ...) if there are some, and of variant ``target`` the accuracy on the scored
        members and non-members, without which an AUC says little. NaN, with its status, for a diverged replica, and for
        a comparison with references of which fewer than two trained soundly. With them the arrays ``<variant>_members``
        and ``<variant>_nonmembers`` of scores (replicas, scored), higher means member; ``<variant>_canaries``
        (replicas, k, 2), ``<variant>_mislabelled`` (replicas, scored) and ``canaries_inserted`` (replicas, k); and of
        the attacker that is strongest by AUC its index among the variants, ``strongest_choice`` (replicas,), and
        whether it looked through noise, ``noisy_queries`` (replicas,).

    Raises:
        ValueError: If there are too few records to learn from or to score.
    """
    generator = torch_generator(seed, dataset.name, "membership_architecture")  # the target's weights replace its own
    network = models.build(model, dataset.colors, len(dataset.classes), generator, dataset.side).to(device).eval()
    ways = list(_ways(channel, config, dataset, seed, device))
    variants = ALONE if references is None else ALONE + COMPARING
    rows, kept = list[dict[str, object]](), list[dict[str, np.ndarray]]()

    def case(row: int, replica: int, sound: bool) -> _Case:
        """Look at the records of a replica."""
        division = numpy_generator(seed, dataset.name, replica, "membership_division")
        asked = asked_records(dataset, replica, config.known_fraction, division)
        load(network, {name: values[row] for name, values in weights.items()})
        recipe = (learning_rates[row], lengths[row] if lengths else "full") if references is not None else None
        look = partial(_look, network, dataset, references, recipe)
        known, way = max(((look(way, asked.known), way) for way in ways), key=lambda seen: _promise(seen[0]))
        looks = [known, *(look(way, group) for group in asked.groups)]
        sound = sound and all(seen.signals.finite for seen in looks)
        drawn = torch_generator(seed, dataset.name, replica, "membership_network")
        return _Case(replica, asked, looks, way, sound, drawn)

    numbered = list(zip(range(len(replicas)), replicas, finite_slots(weights), strict=True))
    size = _replicas_at_once(network, dataset)
    for first in range(0, len(replicas), size):
        cases = [case(*one) for one in numbered[first : first + size]]
        attackers = [scores_of(one.looks, one.generator) for one in cases if one.sound]
        found = iter(side_by_side(attackers, partial(white_box_scores, config=config)))
        for one in cases:
            table, arrays = _told(one, next(found) if one.sound else {}, variants)
            rows += table
            kept.append(arrays)
    return pd.DataFrame(rows), {name: np.stack([arrays[name] for arrays in kept]) for name in kept[0]}


def _replicas_at_once(network: nn.Module, dataset: ImageDataset) -> int:
    """Replicas whose attack networks train as one stack: as many as a CPU's cache or a GPU's memory holds."""
    device = next(network.parameters()).device
    # Of each replica at most members, as many others and mislabelled ones: features, posteriors, residuals and labels.
    records, features = 3 * dataset.drawing.members, network.get_parameter("head.weight").shape[1]
    needed = 4 * _COPIES * records * (features + 4 * len(dataset.classes))
    return slots_that_fit(needed, device)


def _told(case: _Case, found: Scores, variants: Sequence[str]) -> tuple[list[dict[str, object]], dict[str, np.ndarray]]:
    """Rows and arrays of a replica; there are no scores if it is not sound."""
    unknown = [np.full(len(group), np.nan) for group in case.asked.groups]
    named = {name: case.asked.named(*found.get(name, (None, *unknown))[1:]) for name in variants}
    known = {name: scores[0] for name, scores in found.items()}
    choices = {metric: strongest(known, at) if known else "" for metric, at in _FALSE_POSITIVE_RATES.items()}
    best = named[choices["auc"] or variants[0]]
    kept = {f"{name}_{kind}": one for name, kinds in (named | {STRONGEST: best}).items() for kind, one in kinds.items()}
    choice = list(variants).index(choices["auc"]) if known else -1
    kept |= {"strongest_choice": np.array(choice), "noisy_queries": np.array(case.way.count > 0)}
    kept |= {"canaries_inserted": case.asked.inserted} if len(case.asked.inserted) else {}
    target = case.looks[1].signals if case.sound else None
    return _rows(case.replica, named, choices, case.asked, target), kept


def scores_of(looks: Sequence[Look], generator: torch.Generator) -> Generator[Lesson, list[Tensor], Scores]:
    """Score records by every attacker, without touching the model; those that learn ask for lessons.

    Args:
        looks: At the records whose membership the attacker knows, the first half members; then at groups to score.
        generator: On the CPU; draws what the trained attackers need.

    Returns:
        Attacker to its scores of the known records, for one that learns from them by networks that held them out (NaN
        for the few that none did), and of each other group.
    """
    found: dict[str, list[np.ndarray]] = {
        "white_box": (yield from _learned(looks, (), generator)),
        "loss_threshold": [look.signals.confidence.cpu().numpy() for look in looks],
    }
    if looks[0].compared is not None:
        found |= _comparing(looks, looks[0].compared)
        evidence = [_evidence(found, number, look) for number, look in enumerate(looks)]
        found["white_box_references"] = yield from _learned(looks, evidence, generator)
    return found


def _comparing(looks: Sequence[Look], known: Compared) -> dict[str, list[np.ndarray]]:
    """Scores of all looks by attackers that compare the target's confidence with that of reference networks.

    What the laws share, and RMIA's a, comes from the known records.
    """
    laws = shared_laws(known)
    pairs = [(look.signals.confidence.cpu().numpy(), look.compared) for look in looks if look.compared is not None]
    offline = max(_OFFLINE, key=lambda a: _area(rmia(*pairs[0], a)))
    return {
        "lira_offline": [lira_offline(*pair, laws) for pair in pairs],
        "lira_online": [lira_online(*pair, laws) for pair in pairs],
        "rmia": [rmia(*pair, offline) for pair in pairs],
    }


def _evidence(found: Scores, number: int, look: Look) -> Float[np.ndarray, "n inputs"]:
    """Inputs of an attack network from reference networks: scores, that of RMIA first, and what references know."""
    scores = [found[name][number] for name in ("rmia", "lira_offline", "lira_online")]
    if look.compared is None:
        return np.stack(scores, axis=1)
    known = look.compared.mean, np.log(np.maximum(look.compared.probability, np.finfo(np.float64).tiny))
    return np.stack([*scores, *known], axis=1)


def _learned(
    looks: Sequence[Look], evidence: Sequence[Float[np.ndarray, "_ inputs"]], generator: torch.Generator
) -> Generator[Lesson, list[Tensor], list[np.ndarray]]:
    """Scores of all looks by an attack network that learns from the first of them, and from evidence if any."""
    known, *others = (look.signals for look in looks)
    device = known.labels.device
    members = torch.arange(len(known.labels), device=device) < len(known.labels) // 2
    more = [torch.from_numpy(one).to(device) for one in evidence]
    learned = yield Lesson(known, members, others, generator, more)
    return [one.double().cpu().numpy() for one in learned]


def _ways(
    channel: GaussianChannel | None, config: MembershipConfig, dataset: ImageDataset, seed: int, device: str
) -> Iterator[Queries]:
    """Ways of showing a record to a network: as it is, and through the channel that it was trained behind."""
    yield Queries()
    if channel is not None and config.draws:
        colors, height, width = dataset.pool.images.shape[1:]
        sampler = ChannelSampler(channel, (colors, height, width), device)
        generator = torch_generator(seed, dataset.name, "membership_queries", device=device)
        yield Queries(sampler, config.draws, generator)


def _look(
    network: nn.Module,
    dataset: ImageDataset,
    references: References | None,
    recipe: tuple[float, str] | None,
    queries: Queries,
    group: Group,
) -> Look:
    """View of some records through a network and the references of its learning rate and length."""
    device = next(network.parameters()).device
    images, labels = torch.from_numpy(dataset.pool.images[group.rows]), torch.from_numpy(group.labels)
    signals = read_signals(network, images.to(device), labels.to(device), queries)
    if references is None or recipe is None:
        return Look(signals)
    return Look(signals, references.compared(recipe[0], queries, group.rows, group.labels, recipe[1]))


def _promise(look: Look) -> float:
    """AUC on the known records of an attacker that need not learn, by which ways of looking are compared."""
    confidence = look.signals.confidence.cpu().numpy()
    return _area(
        confidence if look.compared is None else lira_offline(confidence, look.compared, shared_laws(look.compared))
    )


def strongest(known: Mapping[str, Float[np.ndarray, " n"]], fpr: float | None = None) -> str:
    """Attacker that does best on the records that it knows.

    One that learned is taken where its AUC is above that of the best of the others by more than a standard error: of
    two that are alike the simpler. Few records decide about a true-positive rate: at ``fpr`` another is taken only
    where it is better by paired one-sided tests at .05.

    Args:
        known: Attacker to its scores; the first half are members'. Records without a score are left out.
        fpr: False-positive rate at which true ones are compared; None for the AUC.
    """

    def best(names: Iterable[str], other: str, errors: float, fpr: float | None) -> str:
        pairs = ((name, (known[name].reshape(2, -1), known[other].reshape(2, -1))) for name in names)
        better = [name for name, pair in pairs if standard_errors(*pair, fpr) > errors]
        return max(better, key=lambda name: _area(known[name], fpr), default=other)

    plain = max((name for name in known if name not in LEARNED), key=lambda name: _area(known[name]))
    found = best((name for name in LEARNED if name in known), plain, 1.0, None)
    return found if fpr is None else best(known, found, _SURE, fpr)


def _area(known: Float[np.ndarray, " n"], fpr: float | None = None) -> float:
    """AUC, or true-positive rate, of finite scores, the first half members'; 0 where there are too few."""
    members, nonmembers = (half[np.isfinite(half)] for half in np.split(known, 2))
    enough = min(len(members), len(nonmembers)) > 1
    return float(score_parts(members, nonmembers, fpr)[0].mean()) if enough else 0.0


def _rows(
    replica: int,
    named: Mapping[str, Mapping[str, np.ndarray]],
    choices: Mapping[str, str],
    asked: Asked,
    target: Signals | None,
) -> list[dict[str, object]]:
    """One row per estimate, NaN where there is none; none belongs to a unit of its own."""
    found: dict[tuple[str, str], Interval] = {}
    for variant, scores in named.items():
        compared = {"": (scores["members"], scores["nonmembers"])}
        if len(asked.inserted):
            place = np.arange(len(asked.inserted))
            others = scores["canaries"][place, 1 - asked.inserted], scores["mislabelled"]
            compared["canary_"] = scores["canaries"][place, asked.inserted], np.concatenate(others)
        for kind, halves in compared.items():
            unknown = not all(np.isfinite(half).all() for half in halves)
            for metric, at in _FALSE_POSITIVE_RATES.items():
                one = _UNKNOWN if unknown else auc_interval(*halves) if at is None else tpr_at_fpr(*halves, at)
                found[variant, f"{kind}{metric}"] = one
    kinds = ("", "canary_") if len(asked.inserted) else ("",)
    for kind, (metric, name) in product(kinds, choices.items()):
        found[STRONGEST, f"{kind}{metric}"] = found.get((name, f"{kind}{metric}"), _UNKNOWN)
    hits = np.full(len(asked.scored), np.nan) if target is None else target.correct.cpu().numpy()
    for metric, half in zip(("member_accuracy", "nonmember_accuracy"), np.split(hits, 2), strict=True):
        found["target", metric] = _UNKNOWN if target is None else proportion_interval(int(half.sum()), len(half))
    shared = {"replica": replica, "unit": -1}
    rows: list[dict[str, object]] = []
    for (variant, metric), one in found.items():
        status = DIVERGED if math.isnan(one.value) else ""
        rows.append({**shared, "variant": variant, "metric": metric, **asdict(one), "status": status})
    return [{column: row[column] for column in COLUMNS} for row in rows]
