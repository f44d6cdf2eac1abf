"""Membership inference: which of the records at hand was the target model trained on?

The attacker knows the membership of some of the records, learns from them, and is scored on the others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound import models
from leakbound.attacks.images import COLUMNS
from leakbound.attacks.signals import Signals, read_signals
from leakbound.attacks.validity import DIVERGED
from leakbound.attacks.white_box import FOLDS, white_box_scores
from leakbound.config.attacks import MembershipConfig
from leakbound.datasets import ImageDataset, Split
from leakbound.metrics import Interval, auc_interval, proportion_interval, tpr_at_fpr
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound.training.stack import finite_slots

VARIANTS = ("white_box", "loss_threshold")

_FALSE_POSITIVE_RATES = (0.01, 0.001)
_UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Division:
    """Rows of the records that the attacker knows and of those it is scored on, disjoint, equally many of a kind."""

    known_members: Int[np.ndarray, " known"]
    known_nonmembers: Int[np.ndarray, " known"]
    scored_members: Int[np.ndarray, " scored"]
    scored_nonmembers: Int[np.ndarray, " scored"]


def divide(members: int, nonmembers: int, known_fraction: float, generator: np.random.Generator) -> Division:
    """Draw which records the attacker knows.

    Args:
        members: How many members there are.
        nonmembers: How many non-members there are; of the larger group the surplus is left out.
        known_fraction: Fraction that the attacker knows, in (0, 1).
        generator: Draws the order of the records.

    Raises:
        ValueError: If fewer than ``FOLDS`` of a kind are left to learn from, or fewer than two to score.
    """
    count = min(members, nonmembers)
    known = round(count * known_fraction)
    if known < FOLDS or count - known < 2:
        raise ValueError(
            f"known_fraction = {known_fraction} of {count} members leaves {known} to learn from and {count - known} to "
            f"score: at least {FOLDS} and 2 are needed. Give the dataset more members and test records."
        )
    drawn = [generator.permutation(total)[:count] for total in (members, nonmembers)]
    return Division(drawn[0][:known], drawn[1][:known], drawn[0][known:], drawn[1][known:])


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
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Attack every replica of a run with the trained network and with the loss threshold.

    Members and non-members of a replica come from one pool. Which of them the attacker knows, and all that it draws
    itself, depends on seed, dataset and replica: it is the same for every defense, level and learning rate. Arguments
    are those of :mod:`leakbound.attacks`.

    Returns:
        Rows with 95 % intervals: AUC and true-positive rates at 1 % and 0.1 % false positives of each variant, and of
        variant ``target`` the accuracy on the scored members and non-members, without which an AUC says little. NaN,
        with its status, for a diverged replica. With them the arrays ``<variant>_members`` and
        ``<variant>_nonmembers`` of scores (replicas, scored), higher means member.

    Raises:
        ValueError: If there are too few records to learn from or to score.
    """
    generator = torch_generator(
        seed, dataset.name, "membership_architecture"
    )  # its weights are replaced by the target's
    network = models.build(model, dataset.colors, len(dataset.classes), generator).to(device).eval()
    rows: list[dict[str, object]] = []
    scores: list[dict[str, np.ndarray]] = []
    for row, (replica, sound) in enumerate(zip(replicas, finite_slots(weights), strict=True)):
        members, nonmembers = dataset.members(replica), dataset.nonmembers(replica)
        generators = numpy_generator(seed, dataset.name, replica, "membership_division")
        division = divide(len(members), len(nonmembers), config.known_fraction, generators)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(weights[name][row])
        both = (members, nonmembers)
        known = _signals(network, both, (division.known_members, division.known_nonmembers), device)
        target = _signals(network, both, (division.scored_members, division.scored_nonmembers), device)
        sound = sound and known.finite and target.finite
        generator = torch_generator(seed, dataset.name, replica, "membership_network")
        if sound:
            found = score(known, target, config=config, generator=generator)
        else:
            unknown = np.full(len(target.labels) // 2, np.nan)
            found = {f"{variant}_{kind}": unknown for variant in VARIANTS for kind in ("members", "nonmembers")}
        rows += _rows(replica, found, target, sound)
        scores.append(found)
    return pd.DataFrame(rows), {name: np.stack([found[name] for found in scores]) for name in scores[0]}


def score(
    known: Signals, target: Signals, *, config: MembershipConfig, generator: torch.Generator
) -> dict[str, Float[np.ndarray, " scored"]]:
    """Score records by every variant, without touching the model.

    Args:
        known: Signals of the records whose membership the attacker knows, the first half members.
        target: Signals of the records to score, the first half members.
        config: Settings of the attacker.
        generator: On the CPU; draws what the trained variant needs.

    Returns:
        ``<variant>_members`` and ``<variant>_nonmembers`` to scores, higher means member.
    """
    count = len(known.labels)
    members = torch.arange(count, device=known.labels.device) < count // 2
    learned = white_box_scores(known, members, target, config=config, generator=generator)
    values = {"white_box": learned, "loss_threshold": target.confidence}
    halves = {variant: scores.double().cpu().numpy().reshape(2, -1) for variant, scores in values.items()}
    return {
        f"{variant}_{kind}": scores[half]
        for half, kind in enumerate(("members", "nonmembers"))
        for variant, scores in halves.items()
    }


def _signals(
    network: torch.nn.Module, both: tuple[Split, Split], rows: tuple[np.ndarray, np.ndarray], device: str
) -> Signals:
    """Signals of chosen members and, after them, of chosen non-members."""
    chosen = [split.chosen(some) for split, some in zip(both, rows, strict=True)]
    images, labels = (np.concatenate([getattr(one, name) for one in chosen]) for name in ("images", "labels"))
    return read_signals(network, torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device))


def _rows(replica: int, scores: dict[str, np.ndarray], target: Signals, sound: bool) -> list[dict[str, object]]:
    """One row per estimate, NaN where there is none; none belongs to a unit of its own."""
    found: dict[tuple[str, str], Interval] = {}
    for variant in VARIANTS:
        members, nonmembers = scores[f"{variant}_members"], scores[f"{variant}_nonmembers"]
        diverged = bool(np.isnan(members).any())
        found[variant, "auc"] = _UNKNOWN if diverged else auc_interval(members, nonmembers)
        for rate in _FALSE_POSITIVE_RATES:
            found[variant, f"tpr_at_fpr_{rate}"] = _UNKNOWN if diverged else tpr_at_fpr(members, nonmembers, rate)
    half = len(target.labels) // 2
    for metric, hits in (("member_accuracy", target.correct[:half]), ("nonmember_accuracy", target.correct[half:])):
        found["target", metric] = proportion_interval(int(hits.sum()), half) if sound else _UNKNOWN
    shared = {"replica": replica, "unit": -1, "status": "" if sound else DIVERGED}
    rows = [{**shared, "variant": variant, "metric": metric, **asdict(one)} for (variant, metric), one in found.items()]
    return [{column: row[column] for column in COLUMNS} for row in rows]
