"""Membership inference by a server that sees every upload while the networks train once more."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.accounting.one_run import guess
from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, Networks, joined
from leakbound_lab.attacks.membership.attack import UNKNOWN, membership_estimates
from leakbound_lab.attacks.membership.known_records import AttackedRecords, Group, attacked_records
from leakbound_lab.attacks.metrics import auc_interval
from leakbound_lab.attacks.rows import DIVERGED, row, table_of
from leakbound_lab.config.attacks import UploadMembershipConfig
from leakbound_lab.config.training import TrainingSettings
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.training.request import Slot, TrainingRequest, UploadScoring, training_request
from leakbound_lab.training.trainers import train

_LEFT_OUT = 0.5  # part of the records that `membership` knows by default: both are scored on the same others
_GUESSED = 0.5  # part of the pairs that is guessed


def replayed_training(
    request: AttackRequest[UploadMembershipConfig],
    training: TrainingSettings,
    rates: pd.DataFrame,
    checkpoint: Path,
) -> Networks:
    """Train the kept networks of a run once more, as :func:`scored_uploads` does, with the settings of its training.

    Args:
        request: Arguments of the attack, whose images and channel are those of the training.
        training: Settings of the run's training, with the device that the job has chosen.
        rates: Rows of the kept networks. Only those of full length count.
        checkpoint: File to resume from and to save to.
    """
    again = training_request(training, request.dataset, request.channel, checkpoint)
    return scored_uploads(again, rates, request.config)


def scored_uploads(request: TrainingRequest, rates: pd.DataFrame, config: UploadMembershipConfig) -> Networks:
    """Train the kept networks of a run once more from the same seeds, and score candidates by their uploads.

    Args:
        request: The run.
        rates: Rows of the kept networks. Only those of full length count.
        config: Settings of the attack.

    Returns:
        Networks with ``scores`` (networks, statistics, candidates) in place of weights.

    Raises:
        ValueError: If uploads of such a network or trainer cannot be scored.
    """
    rates = rates[rates["length"] == "full"] if "length" in rates else rates
    rates = rates[rates["chosen"]] if config.rates == "chosen" else rates
    slots = tuple(map(Slot, rates["replica"].tolist(), rates["learning_rate"].tolist()))
    by_replica = {
        slot.replica: _records(request.dataset, slot.replica, config, request.seed) for slot in slots
    }
    rows = {
        replica: [*map(int, records.known.rows), *map(int, records.scored.rows)]
        for replica, records in by_replica.items()
    }
    scoring = UploadScoring(rows, config.public, config.window, config.draws, config.precision)
    scores = train(replace(request, lengths=("full",), scoring=scoring, only=slots)).scores
    if scores is None:
        raise ValueError(f"{request.slug}: its trainer scores no uploads; leave out membership_uploads")
    return Networks({"scores": scores}, rates.reset_index(drop=True))


def _records(
    dataset: ImageDataset, replica: int, config: UploadMembershipConfig, seed: int
) -> AttackedRecords:
    """Draw the records that one network is attacked with, from those of ``membership``."""
    division = numpy_generator(seed, dataset.name, replica, "membership_division")
    records = attacked_records(dataset, replica, _LEFT_OUT, division)
    groups = {
        "known": _first(records.known, config.calibration),
        "scored": _first(records.scored, config.candidates),
    }
    return replace(records, **groups, inserted=records.inserted[:0])


def _first(group: Group, count: int) -> Group:
    """Return the first members and the first others of a group."""
    places = np.concatenate([half[:count] for half in np.split(np.arange(len(group)), 2)])
    return Group(group.rows[places], group.labels[places])


def infer_from_uploads(request: AttackRequest[UploadMembershipConfig]) -> Attacked:
    """Attack every replica of a run by the scores of its uploads.

    Args:
        request: Arguments of the attack. ``weights`` are those of :func:`scored_uploads`.

    Returns:
        Rows with AUC and true-positive rates of two variants. ``likelihood`` adds up likelihood ratios, with
        the share of a gradient that does best on the known records. ``plain`` is a control, the inner product
        of gradient and upload without whitening. Variant ``nonmembers`` is another one, the AUC of half of the
        non-members against the others by ``likelihood``. Variant ``coins`` counts ``pairs`` of a member and a
        non-member of one class, ``guesses`` which of both is the member, and ``correct`` ones. Arrays are the
        scores by ``likelihood``.
    """
    results = []
    for place, replica in enumerate(request.replicas):
        records = _records(request.dataset, replica, request.config, request.seed)
        scores = request.weights["scores"][place].double().numpy()
        results.append(_attacked(replica, records, scores))
    return joined(results)


def _attacked(replica: int, records: AttackedRecords, scores: Float[np.ndarray, "statistics n"]) -> Attacked:
    """Make the rows and arrays of a replica from the scores of its candidates, known ones first."""
    calibration, scored = np.split(scores, [len(records.known)], axis=1)
    finite = bool(np.isfinite(scores).all())
    areas = [auc_interval(*np.split(each, 2)).value if finite else 0.0 for each in calibration[:-1]]
    by_kind = {
        "likelihood": records.by_kind(scored[int(np.argmax(areas))]),
        "plain": records.by_kind(scored[-1]),
    }
    best = by_kind["likelihood"]
    successes = [
        (name, *each)
        for name, kinds in by_kind.items()
        for each in membership_estimates(kinds, records).items()
    ]
    control = auc_interval(*np.array_split(best["nonmembers"], 2)) if finite else UNKNOWN
    rows = [
        row(variant, metric, each.value, low=each.low, high=each.high)
        | {"status": "" if finite else DIVERGED}
        for variant, metric, each in (*successes, ("nonmembers", "auc", control))
    ]
    rows += _coins(records.scored.labels, best) if finite else ()
    return table_of(replica, rows), {f"likelihood_{kind}": values for kind, values in best.items()}


def _coins(labels: np.ndarray, scores: Mapping[str, np.ndarray]) -> Iterator[dict[str, object]]:
    """Yield numbers of pairs of a member and a non-member, guesses which is which, and correct ones.

    Both of a pair are of one class, so that their exchange would have been as likely under stratified
    drawing. The half with the clearest differences is guessed.
    """
    classes = np.split(labels, 2)
    differences = [
        scores["members"][classes[0] == label][:count] - scores["nonmembers"][classes[1] == label][:count]
        for label in np.unique(labels)
        for count in [min(int((half == label).sum()) for half in classes)]
    ]
    scored = np.concatenate(differences)
    guesses, correct = guess(scored, np.ones(len(scored), bool), _GUESSED)
    for name, value in (("pairs", len(scored)), ("guesses", guesses), ("correct", correct)):
        yield row("coins", name, float(value)) | {"status": ""}
