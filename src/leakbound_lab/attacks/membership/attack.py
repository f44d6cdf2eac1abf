"""Membership inference: which of the records at hand was the target model trained on?

The attacker knows the membership of some of the records, learns from them, and is scored on the others. It
compares the target with reference networks, which were trained by the same defense on other records. If it
knows the channel of a defense, it shows each record to the networks with noise of its own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product, repeat
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.attack_request import (
    AttackedNetwork,
    AttackRequest,
    in_full_precision,
    load_weights,
    side_by_side_networks,
    stacked_arrays,
)
from leakbound_lab.attacks.membership.known_records import AttackedRecords, Group, attacked_records
from leakbound_lab.attacks.membership.network import AttackData, white_box_scores
from leakbound_lab.attacks.membership.reference_scores import Confidences, lira_offline, lira_online, rmia
from leakbound_lab.attacks.membership.signals import Queries, Signals, read_signals
from leakbound_lab.attacks.rows import DIVERGED, columns_of, row
from leakbound_lab.config.attacks import MembershipConfig
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models.memory import slots_that_fit
from leakbound_lab.training.stack import finite_slots

ALONE = ("white_box", "loss_threshold")
"""Attackers that examine only the target."""
COMPARING = ("lira_offline", "lira_online", "rmia", "white_box_references")
"""Attackers that compare it with reference networks. The last one learns from all signals and these scores."""
LEARNED = ("white_box", "white_box_references")
"""Attackers that learn from the records that they know."""
STRONGEST = "strongest"
"""Attacker that does best, by each metric, on the records that it knows."""

_FALSE_POSITIVE_RATES: Mapping[str, float | None] = {
    "auc": None,
    "tpr_at_fpr_0.01": 0.01,
    "tpr_at_fpr_0.001": 0.001,
}
_OFFLINE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # values of RMIA's a that the attacker tries
_COPIES = 6  # of a record's signals: as read and as encoded, held out, in a batch, and two in between
_SURE = 2.33  # standard errors of one-sided tests of five others, .05 in all
UNKNOWN = metrics.Interval(math.nan, math.nan, math.nan)
"""Estimate where there is none."""

Scores = Mapping[str, Sequence[Float[np.ndarray, " _"]]]
"""Attacker to its scores of some groups of records, those that it knows first. Higher means member."""


@dataclass(frozen=True)
class View:
    """Observations of an attacker on some records.

    Attributes:
        signals: Of the target.
        compared: Confidences of reference networks, if there are any.
    """

    signals: Signals
    compared: Confidences | None = None


@dataclass(frozen=True)
class _Case:
    """A replica, the records that it is attacked with, and their views by the most promising method."""

    replica: int
    records: AttackedRecords
    views: list[View]
    method: Queries
    sound: bool
    generator: torch.Generator


@side_by_side_networks(stacked_arrays)
@in_full_precision
def infer_membership(request: AttackRequest[MembershipConfig]) -> list[AttackedNetwork]:
    """Attack every network in all ways, and for each metric in the :func:`strongest` way.

    Members and non-members of a replica come from one pool. Which of them the attacker knows, and all that it
    draws itself, depends on seed, dataset and replica. So it is the same for every defense, level and
    learning rate. Canaries are scored on their own: their members against their non-members together with the
    scored non-members under wrong labels, which come from the same distribution and are many.

    Args:
        request: Arguments of the attack. With references, learning rates are needed.

    Returns:
        Rows with 95 % intervals: AUC and true-positive rates at 1 % and 0.1 % false positives of each
        variant, the same on canaries (``canary_auc``, ...) if there are some, and of variant ``target`` the
        accuracy on the scored members and non-members, without which an AUC says little. With references also
        ``inside`` of variant ``references``, the mean part of them that holds a scored record. NaN, with its
        status, for a diverged replica, and for a comparison with references of which fewer than two trained
        soundly. With them the arrays ``<variant>_members`` and ``<variant>_nonmembers`` of scores (replicas,
        scored), where higher means member, ``<variant>_canaries`` (replicas, k, 2), ``<variant>_mislabelled``
        (replicas, scored) and ``canaries_inserted`` (replicas, k). And for the attacker that is strongest by
        AUC its index among the variants, ``strongest_choice`` (replicas,), and whether it showed records with
        noise, ``noisy_queries`` (replicas,).

    Raises:
        ValueError: If there are too few records to learn from or to score.
    """
    # The target's weights replace its own.
    network = request.network(torch_generator(request.seed, request.dataset.name, "membership_architecture"))
    methods = list(_methods(request))
    variants = ALONE if request.references is None else ALONE + COMPARING
    sound = finite_slots(request.weights)
    records = {replica: _records(request, replica) for replica in dict.fromkeys(request.replicas)}
    # Networks of a replica follow each other, because their attackers draw the same.
    places = sorted(range(len(request.replicas)), key=request.replicas.__getitem__)
    size = _replicas_at_once(network, request.dataset)
    results = {}
    for first in range(0, len(places), size):
        cases = {
            place: _case(request, place, network, methods, records[request.replicas[place]], sound[place])
            for place in places[first : first + size]
        }
        attacked = [(case.views, case.generator) for case in cases.values() if case.sound]
        scores = iter(scores_of(attacked, request.config))
        for place, case in cases.items():
            results[place] = _results(case, next(scores) if case.sound else {}, variants)
    return [results[place] for place in range(len(places))]


def _records(request: AttackRequest[MembershipConfig], replica: int) -> AttackedRecords:
    """Draw which records of a replica the attacker knows, and which are scored."""
    division = numpy_generator(request.seed, request.dataset.name, replica, "membership_division")
    return attacked_records(request.dataset, replica, request.config.known_fraction, division)


def _case(
    request: AttackRequest[MembershipConfig],
    place: int,
    network: nn.Module,
    methods: Sequence[Queries],
    records: AttackedRecords,
    sound: bool,
) -> _Case:
    """Read the signals of one network about the records of its replica.

    Args:
        request: Arguments of the attack.
        place: Number of the network among those attacked.
        network: Architecture, whose parameters are replaced.
        methods: Ways of showing a record to the network, of which the most promising is taken.
        records: Records of the replica.
        sound: Whether the weights are finite.
    """
    load_weights(network, {name: values[place] for name, values in request.weights.items()})
    view = partial(_view, request, place, network)
    # The way of showing records that is best on the known ones, and what it shows of the others.
    tried = [(view(method, records.known), method) for method in methods]
    known_view, method = max(tried, key=lambda pair: _promise(pair[0]))
    views = [known_view, *(view(method, group) for group in records.groups)]
    sound = sound and all(seen.signals.finite for seen in views)
    replica = request.replicas[place]
    generator = torch_generator(request.seed, request.dataset.name, replica, "membership_network")
    return _Case(replica, records, views, method, sound, generator)


def _replicas_at_once(network: nn.Module, dataset: ImageDataset) -> int:
    """Choose how many replicas' attack networks train as one stack, by a CPU's cache or a GPU's memory."""
    device = next(network.parameters()).device
    # A replica has at most its members, as many others, and mislabelled ones, with features and values of each class.
    records = 3 * dataset.drawing.members
    head: Any = network.head
    return slots_that_fit(4 * _COPIES * records * (head.in_features + 4 * len(dataset.classes)), device)


def _results(case: _Case, scores: Scores, variants: Sequence[str]) -> AttackedNetwork:
    """Make the rows and arrays of a replica.

    Args:
        case: The replica.
        scores: Scores of each attacker, or none if the replica is not sound.
        variants: Attackers that have rows, sound or not.
    """
    records = case.records
    unknown = [np.full(len(group), np.nan) for group in records.groups]
    by_kind = {name: records.by_kind(*(scores[name][1:] if name in scores else unknown)) for name in variants}
    on_known = {name: groups[0] for name, groups in scores.items()}
    strong = strongest_at(on_known, list(_FALSE_POSITIVE_RATES.values())) if on_known else repeat("")
    choices = dict(zip(_FALSE_POSITIVE_RATES, strong, strict=False))
    best = by_kind[choices["auc"] or variants[0]]
    arrays = {
        f"{name}_{kind}": values
        for name, kinds in (by_kind | {STRONGEST: best}).items()
        for kind, values in kinds.items()
    }
    arrays["strongest_choice"] = np.array(list(variants).index(choices["auc"]) if on_known else -1)
    arrays["noisy_queries"] = np.array(case.method.count > 0)
    if len(records.inserted):
        arrays["canaries_inserted"] = records.inserted
    view = case.views[1] if case.sound else None
    return [columns_of(case.replica, _rows(by_kind, choices, records, view))], arrays


def scores_of(
    attacked: Sequence[tuple[Sequence[View], torch.Generator]], config: MembershipConfig
) -> list[Scores]:
    """Score records of several replicas by every attacker. Attack networks of all replicas learn together.

    Args:
        attacked: For each replica views of the records whose membership the attacker knows, the first half
            members, and then of groups to score, and the generator of what the trained attackers draw, on
            the CPU.
        config: Settings of the attack.

    Returns:
        For each replica attacker to its scores of the known records, for one that learns from them by
        networks that held them out (NaN for the few that none did), and of each other group.
    """
    # Attackers that examine only the target.
    learned = _learned([_task(views, (), generator) for views, generator in attacked], config)
    all_scores: list[dict[str, list[np.ndarray]]] = [
        {"white_box": scores, "loss_threshold": [view.signals.confidence.cpu().numpy() for view in views]}
        for scores, (views, _) in zip(learned, attacked, strict=True)
    ]
    # Attackers that compare with references, and one that learns from all of it.
    tasks = []
    compared = []
    for scores, (views, generator) in zip(all_scores, attacked, strict=True):
        references = [view.compared for view in views if view.compared is not None]
        if references:
            scores |= _comparing(scores["loss_threshold"], references)
            evidence = [_evidence(scores, number, each) for number, each in enumerate(references)]
            tasks.append(_task(views, evidence, generator))
            compared.append(scores)
    for scores, groups in zip(compared, _learned(tasks, config), strict=True):
        scores["white_box_references"] = groups
    return list(all_scores)


def _comparing(
    confidences: Sequence[np.ndarray], references: Sequence[Confidences]
) -> dict[str, list[np.ndarray]]:
    """Score groups of records by attackers that compare the target's confidence with that of references.

    What distributions share, and RMIA's a, comes from the known records, which are the first group.
    """
    pairs = list(zip(confidences, references, strict=True))
    shared = references[0].laws
    offline = max(_OFFLINE, key=lambda a: _area(rmia(*pairs[0], a)))
    return {
        "lira_offline": [lira_offline(*pair, shared) for pair in pairs],
        "lira_online": [lira_online(*pair, shared) for pair in pairs],
        "rmia": [rmia(*pair, offline) for pair in pairs],
    }


def _evidence(scores: Scores, number: int, compared: Confidences) -> Float[np.ndarray, "n inputs"]:
    """Collect inputs of an attack network from references: scores, RMIA's first, and what references know."""
    columns = [scores[name][number] for name in ("rmia", "lira_offline", "lira_online")]
    probability = np.maximum(compared.probability, np.finfo(np.float64).tiny)
    return np.stack([*columns, compared.mean, np.log(probability)], axis=1)


def _task(
    views: Sequence[View], evidence: Sequence[Float[np.ndarray, "_ inputs"]], generator: torch.Generator
) -> AttackData:
    """Make the task of an attack network: it learns from the first view, and evidence if any, and scores all."""
    signals, *scored = (view.signals for view in views)
    device = signals.labels.device
    members = torch.arange(len(signals.labels), device=device) < len(signals.labels) // 2
    inputs = [torch.from_numpy(columns).to(device) for columns in evidence]
    return AttackData(signals, members, scored, generator, inputs)


def _learned(tasks: Sequence[AttackData], config: MembershipConfig) -> list[list[np.ndarray]]:
    """Return the scores of attack networks as arrays: of each task, for each of its groups of records."""
    learned = white_box_scores(tasks, config)
    return [[scores.double().cpu().numpy() for scores in groups] for groups in learned]


def _methods(request: AttackRequest[MembershipConfig]) -> Iterator[Queries]:
    """Yield ways of showing a record to a network: as it is, and through the channel of its training."""
    yield Queries()
    if request.channel is not None and request.config.draws:
        sampler = ChannelSampler(request.channel, request.image_shape, request.device)
        words = (request.dataset.name, "membership_queries")
        generator = torch_generator(request.seed, *words, device=request.device)
        yield Queries(sampler, request.config.draws, generator)


def _view(
    request: AttackRequest[MembershipConfig], place: int, network: nn.Module, queries: Queries, group: Group
) -> View:
    """View some records through a network and the references of its learning rate and length."""
    images = torch.from_numpy(request.dataset.pool.images[group.rows]).to(request.device)
    signals = read_signals(network, images, torch.from_numpy(group.labels).to(request.device), queries)
    if request.references is None:
        return View(signals)
    length = request.lengths[place] if request.lengths else "full"
    recipe = request.learning_rates[place], queries, group.rows, group.labels, length
    return View(signals, request.references.compared(*recipe, request.replicas[place]))


def _promise(view: View) -> float:
    """Compute the AUC on the known records of an attacker that need not learn, to compare methods by."""
    scores = view.signals.confidence.cpu().numpy()
    if view.compared is not None:
        scores = lira_offline(scores, view.compared, view.compared.laws)
    return _area(scores)


def strongest(scores: Mapping[str, Float[np.ndarray, " n"]], fpr: float | None = None) -> str:
    """Find the attacker that does best on the records that it knows, as :func:`strongest_at` does."""
    return strongest_at(scores, [fpr])[0]


def strongest_at(scores: Mapping[str, Float[np.ndarray, " n"]], rates: Sequence[float | None]) -> list[str]:
    """Find the attacker that does best on the records that it knows, by the AUC and at false-positive rates.

    One that learned is taken only if its AUC is above that of the best of the others by more than a standard
    error, so that the simpler of two similar ones is taken. Few records decide about a true-positive rate. So
    at a false-positive rate another attacker is taken only where it is better by paired one-sided tests at .05.

    Args:
        scores: Attacker to its scores. The first half are members'. Records without a score are left out.
        rates: False-positive rates at which true ones are compared, or None for the AUC.

    Returns:
        The attacker for each of ``rates``.
    """

    def best(names: Iterable[str], other: str, errors: float, fpr: float | None) -> str:
        pairs = (
            (name, (scores[name].reshape(2, -1), scores[other].reshape(2, -1)))
            for name in names
            if name != other
        )
        better = [name for name, pair in pairs if metrics.standard_errors(*pair, fpr) > errors]
        return max(better, key=lambda name: _area(scores[name], fpr), default=other)

    plain = max((name for name in scores if name not in LEARNED), key=lambda name: _area(scores[name]))
    by_area = best((name for name in LEARNED if name in scores), plain, 1.0, None)
    return [by_area if fpr is None else best(scores, by_area, _SURE, fpr) for fpr in rates]


def _area(scores: Float[np.ndarray, " n"], fpr: float | None = None) -> float:
    """Compute the AUC, or true-positive rate, of finite scores, the first half members', 0 for too few."""
    members, nonmembers = (half[np.isfinite(half)] for half in np.split(scores, 2))
    enough = min(len(members), len(nonmembers)) > 1
    return float(metrics.score_parts(members, nonmembers, fpr)[0].mean()) if enough else 0.0


def _rows(
    by_kind: Mapping[str, Mapping[str, np.ndarray]],
    choices: Mapping[str, str],
    records: AttackedRecords,
    view: View | None,
) -> Iterator[dict[str, object]]:
    """Yield one row per estimate, NaN where there is none. None belongs to a unit of its own.

    Args:
        by_kind: Scores of each attacker, as :meth:`AttackedRecords.by_kind` returns them.
        choices: Metric to the strongest attacker by it, empty names where none was chosen.
        records: Records that were scored.
        view: View of the scored records, or None for a network that is not sound.
    """
    estimates = {
        (variant, metric): estimate
        for variant, scores in by_kind.items()
        for metric, estimate in membership_estimates(scores, records).items()
    }
    kinds = ("", "canary_") if len(records.inserted) else ("",)
    for kind, (metric, name) in product(kinds, choices.items()):
        estimates[STRONGEST, f"{kind}{metric}"] = estimates.get((name, f"{kind}{metric}"), UNKNOWN)
    hits = np.full(len(records.scored), np.nan) if view is None else view.signals.correct.cpu().numpy()
    for metric, half in zip(("member_accuracy", "nonmember_accuracy"), np.split(hits, 2), strict=True):
        accuracy = UNKNOWN if view is None else metrics.proportion_interval(int(half.sum()), len(half))
        estimates["target", metric] = accuracy
    if view is not None and view.compared is not None:
        inside = float(view.compared.inside.mean())
        estimates["references", "inside"] = metrics.Interval(inside, math.nan, math.nan)
    for (variant, metric), estimate in estimates.items():
        status = DIVERGED if math.isnan(estimate.value) else ""
        columns = row(variant, metric, estimate.value, low=estimate.low, high=estimate.high)
        yield columns | {"status": status}


def membership_estimates(
    scores: Mapping[str, np.ndarray], records: AttackedRecords
) -> dict[str, metrics.Interval]:
    """Estimate AUC and true-positive rates of one attacker on scored records, and on canaries, if any."""
    compared = {"": (scores["members"], scores["nonmembers"])}
    if len(records.inserted):
        pairs = np.arange(len(records.inserted))
        left_out = np.concatenate([scores["canaries"][pairs, 1 - records.inserted], scores["mislabelled"]])
        compared["canary_"] = scores["canaries"][pairs, records.inserted], left_out
    estimates = {}
    for (kind, (members, nonmembers)), (metric, fpr) in product(
        compared.items(), _FALSE_POSITIVE_RATES.items()
    ):
        if not (np.isfinite(members).all() and np.isfinite(nonmembers).all()):
            estimates[f"{kind}{metric}"] = UNKNOWN
        elif fpr is None:
            estimates[f"{kind}{metric}"] = metrics.auc_interval(members, nonmembers)
        else:
            estimates[f"{kind}{metric}"] = metrics.tpr_at_fpr(members, nonmembers, fpr)
    return estimates
