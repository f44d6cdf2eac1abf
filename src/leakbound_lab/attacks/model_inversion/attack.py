"""Model inversion: optimise an image until a network gives it a label, and compare it with the class mean.

The paper's metric alone misleads: it measures how far the attack walks from its start, and 600 steps walk
farther on a noisier landscape. So every result is compared with its start, with what the attacker knew
without the model (``aux_mean``), and with an attacker who keeps pixels within [-1, 1], smooths the result and
stops in time. What the network reveals is what an attacker gains over ``aux_mean`` who starts there, and
moves a little way.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.randomness.seeding import torch_generator
from leakbound_lab.attacks.attack_request import (
    Arrays,
    AttackedNetwork,
    AttackRequest,
    in_full_precision,
    side_by_side_networks,
)
from leakbound_lab.attacks.metrics import Pictures
from leakbound_lab.attacks.model_inversion.queries import (
    AnsweringNetworks,
    Inversion,
    Query,
    Slopes,
    joined_inversion,
)
from leakbound_lab.attacks.rows import (
    DIVERGED,
    GRID_EDGE,
    NO_RESULT,
    NOT_CONVERGED,
    STUCK,
    columns,
    image_values,
)
from leakbound_lab.attacks.scheduling import side_by_side
from leakbound_lab.attacks.search_images import EXTENSIONS, LARGEST_PIXEL, RESTARTS, jittered, largest_binds
from leakbound_lab.config.attacks import ModelInversionConfig
from leakbound_lab.datasets import ImageDataset, Split
from leakbound_lab.models.memory import SEARCHES_SIDE_BY_SIDE, stack_size
from leakbound_lab.training.stack import finite_slots


def gains(
    truth: np.ndarray, nonmembers: np.ndarray, restored: np.ndarray, controls: Mapping[str, np.ndarray]
) -> dict[str, Float[np.ndarray, " k"]]:
    """Compute gains of restored images over controls, by class means of members (truth) and non-members."""

    def error(mean: np.ndarray, images: np.ndarray) -> Float[np.ndarray, " k"]:
        return image_values(mean, images, ["mse"])["mse"]

    return {
        "gain": error(truth, controls["start"]) - error(truth, restored),
        "gain_over_aux": 1.0 - error(truth, restored) / error(truth, controls["aux_mean"]),
        "gain_on_others": 1.0 - error(nonmembers, restored) / error(nonmembers, controls["aux_mean"]),
    }


class Prior:
    """Knowledge of the attacker about the means of a class's members, besides the mean of its own records.

    Members are drawn like the attacker's records. So the difference of the two means has the covariance of
    the records of a class, over their numbers.

    Args:
        aux: The attacker's records.
        class_means: Mean of each class.
        classes: The classes, in the same order.
        members: Number of members of all classes, which is no secret.
    """

    def __init__(self, aux: Split, class_means: Pictures, classes: list[int], members: int) -> None:
        self.known = class_means
        self.records = [records_of(aux, label) for label in classes]
        residuals = [records - mean for records, mean in zip(self.records, class_means, strict=True)]
        self._residuals = np.concatenate(residuals).reshape(-1, class_means[0].size)
        self._common = np.linalg.qr(class_means.reshape(len(class_means), -1).T.astype(np.float64))[0]
        counts = np.array([len(records) for records in self.records])
        variance = float(np.square(self._residuals).sum(dtype=np.float64)) / len(self._residuals)
        self.lengths = np.sqrt(variance * (len(classes) / members + 1.0 / counts))

    def deviations(self, slopes: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d"]:
        """Compute unit vectors along which class means most likely deviate, from slopes of a likelihood.

        To first order the most likely deviation is the prior's covariance times the slope at the known means.
        Slopes within the span of the class means are left out, as they distinguish classes, which those of
        any network of such classes do. A vector is 0 where nothing is left.
        """
        spread = self._residuals.T @ (self._residuals @ slopes.T.astype(np.float32))
        spread = spread.astype(np.float64).T / len(self._residuals)
        rest = spread - (spread @ self._common) @ self._common.T
        sizes = np.linalg.norm(rest, axis=1, keepdims=True)
        return np.divide(rest, sizes, out=np.zeros_like(rest), where=sizes > 0)


def class_means(split: Split, classes: list[int]) -> Pictures:
    """Compute the mean image of each class, that of the whole split for a class without records in it."""
    return np.stack([records_of(split, label).mean(axis=0) for label in classes])


def records_of(split: Split, label: int) -> Pictures:
    """Select the images of a class, those of the whole split if it has none of it."""
    images = split.images[split.labels == label]
    return images if len(images) else split.images


_CHUNK = 256  # records whose slopes are computed at once
_WORKING_COPIES = 4  # of an image, besides those that a search returns: Adam's two, gradient, first iterate
_LONGER = 4  # times the steps for a tuned attack that would rather stop later

Found = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Images (classes, colors, height, width) by attack, and their statuses (classes)."""
Result = TypeVar("Result")
Asking = Generator[list[Query], list[Any], Result]
"""Questions to a network, some at a time, until there is a result."""


def _first_images(images: Sequence[Arrays]) -> Arrays:
    """Return the images of the first network."""
    return images[0]


@side_by_side_networks(_first_images)
@in_full_precision
def invert_models(request: AttackRequest[ModelInversionConfig]) -> list[AttackedNetwork]:
    """Invert every class of every network, from the mean auxiliary image.

    Variants: ``printed`` is the paper's attack (cross-entropy alone, no constraint, the last iterate).
    ``tuned`` adds the range of pixels and total variation, and chooses its weight and the moment to stop for
    each replica and class: those that come nearest to the mean of the class's auxiliary records, which it
    owns. The printed result inside the range is among what it chooses from. ``informed`` starts from
    ``aux_mean`` and moves once, to where the network likes records of the class better. None of them sees a
    member. ``start`` and ``aux_mean`` are controls that need no model: the mean auxiliary image, and the
    auxiliary mean of the class.

    A class whose loss has no slope at the start is attacked from a jittered one. Where that fails too,
    ``printed`` and ``tuned`` are ``stuck``. So is ``informed`` where none of the attacker's records has a
    slope. ``printed`` has ``not_converged`` where the network gives the class neither more probability than
    at the start nor more than a half. Weights are extended where the largest one is best, and the tuned
    attack goes on beyond the printed one's steps where the last moment is best, with ``grid_edge`` if that
    was not enough.

    The truth of a class is the mean of the replica's members of it. The attack draws nothing but jitter.

    Args:
        request: Arguments of the attack.

    Returns:
        Rows, the unit being a class that has members: ``mse``, ``psnr``, ``ssim`` and ``cosine`` for every
        variant, and for the attacks ``gain`` = MSE of the start - MSE, and ``gain_over_aux``, the part of the
        MSE of ``aux_mean`` that they take away: what the network adds to what the attacker knew.
        ``gain_on_others`` is the same by the means of the replica's non-members, a control: what a network
        reveals about all records of a class is in both. NaN where the status is of ``rows.NO_RESULT``, and
        all values of a replica with weights that are not finite. And the images of a replica, joined those of
        the first, by variant, (classes, colors, 32, 32), with ``truth``.

    Source:
        Tan et al. 2024, Sec. 6.1 (attack and metric).
    """
    dataset = request.dataset
    present = sorted(set(dataset.pool.labels.tolist()))
    means = class_means(dataset.aux, present)
    start = np.broadcast_to(dataset.aux.images.mean(axis=0), means.shape).astype(np.float32)
    controls = {"start": start, "aux_mean": means}
    prior = Prior(dataset.aux, means, present, dataset.drawing.members)
    words = (request.seed, dataset.name, "model_inversion")
    network = request.network(torch_generator(*words))
    labels = torch.tensor(present, device=request.device)
    first = torch.from_numpy(start).to(request.device)

    def attacker(slot: int, place: int) -> Asking[Found]:
        """Attack a network, which answers by its slot."""
        jitter = torch_generator(*words, request.replicas[place], "jitter")
        return _Attacker(slot, labels, first, means, request.config).attack(jitter, prior)

    # All networks answer the questions of their attackers together, as one stack.
    results = _results(network, request.weights, start, request.config, attacker)
    return _compared_with_means(request, present, controls, results)


def _compared_with_means(
    request: AttackRequest[ModelInversionConfig],
    present: list[int],
    controls: Mapping[str, Pictures],
    results: Mapping[int, Found],
) -> list[AttackedNetwork]:
    """Compare the images of all networks with the class means of their replica, all at once.

    Args:
        request: Arguments of the attack.
        present: Classes.
        controls: Images that need no model, by control.
        results: Findings by the row of each network whose weights are finite.
    """
    nothing = _nothing(controls["aux_mean"])
    findings = [results.get(place, nothing) for place in range(len(request.replicas))]
    of_replica = {
        replica: _Means.of(request.dataset, replica, present) for replica in dict.fromkeys(request.replicas)
    }
    compared = [of_replica[replica] for replica in request.replicas]
    truth = np.concatenate([each.members for each in compared])
    others = np.concatenate([each.nonmembers for each in compared])
    of_controls = {name: np.concatenate([images] * len(compared)) for name, images in controls.items()}
    restored = {name: np.concatenate([images[name] for images, _ in findings]) for name in nothing[0]}
    values = {
        **{
            name: image_values(truth, images) | gains(truth, others, images, of_controls)
            for name, images in restored.items()
        },
        **{name: image_values(truth, images) for name, images in of_controls.items()},
    }
    attacked: list[AttackedNetwork] = []
    for place, replica in enumerate(request.replicas):
        images, statuses = findings[place]
        sound = np.full(len(present), "" if place in results else DIVERGED, dtype=object)
        at = slice(place * len(present), (place + 1) * len(present))
        has_members = compared[place].has_members
        units = np.array(present)[has_members].tolist()
        tables = []
        for variant, of_all in values.items():
            status = statuses.get(variant, sound)
            lost = np.isin(status.astype(str), NO_RESULT)
            of_one = {
                name: np.where(lost, np.nan, column[at])[has_members] for name, column in of_all.items()
            }
            tables.append(columns(replica, variant, units, of_one, status[has_members].tolist()))
        attacked.append((tables, {"truth": compared[place].members, **images, **controls}))
    return attacked


@dataclass(frozen=True)
class _Means:
    """Class means of a replica's members and non-members, and which classes have members."""

    members: Pictures
    nonmembers: Pictures
    has_members: np.ndarray

    @classmethod
    def of(cls, dataset: ImageDataset, replica: int, present: list[int]) -> "_Means":
        """Compute those of a replica."""
        members = dataset.members(replica)
        others = class_means(dataset.nonmembers(replica), present)
        return cls(class_means(members, present), others, np.isin(present, members.labels))


def _results(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    start: Pictures,
    config: ModelInversionConfig,
    attacker: Callable[[int, int], Asking[Found]],
) -> dict[int, Found]:
    """Attack the networks whose weights are finite, and return the findings by the row of each.

    As many are attacked at once as ``stack_size`` allows.

    Args:
        network: Architecture, on the device.
        weights: Parameter name to its values (networks, ...).
        start: First starts.
        config: Settings of the attack.
        attacker: Makes the attacker on a network from its slot, among those side by side, and its row.
    """
    sound = [row for row, finite in enumerate(finite_slots(weights)) if finite]
    device = next(network.parameters()).device
    colors, height, width = start.shape[1:]
    images = len(start) * (1 + len(config.tv_weights))
    image_copies = images * (_WORKING_COPIES + len(stopping_times(_LONGER * config.iterations)))
    size = stack_size(
        "auto", len(sound), device, network, (colors, height, width), max(images, _CHUNK), image_copies
    )
    findings: dict[int, Found] = {}
    for group in (sound[first : first + size] for first in range(0, len(sound), size)):
        params = {name: values[group].to(device) for name, values in weights.items()}
        attackers = [attacker(slot, row) for slot, row in enumerate(group)]
        answers = AnsweringNetworks(network, params, size).answers
        findings |= zip(group, side_by_side(attackers, answers), strict=True)
    return findings


def stopping_times(iterations: int) -> list[int]:
    """List the iterations at which the tuned attacker may stop: all, half, a quarter, and so on, ascending.

    They lie on a geometric grid because the best moment is often an early one.
    """
    return sorted({iterations // 2**halvings for halvings in range(iterations.bit_length())})


def _nothing(means: Pictures) -> Found:
    """Return the findings of attacks on weights that are not finite."""
    attacks = ("printed", "tuned", "informed")
    images = dict.fromkeys(attacks, np.full_like(means, np.nan))
    return images, dict.fromkeys(attacks, np.full(len(means), DIVERGED, dtype=object))


@dataclass(frozen=True)
class _Search:
    """Search for images of classes, with each weight and its bound, up to the last moment."""

    classes: np.ndarray
    tv_weights: list[float]
    bounds: list[float]
    moments: list[int]


@dataclass(frozen=True)
class _Attacker:
    """Attacker on one network, of which it asks: classes, first start and own class means in the same order."""

    slot: int
    labels: Tensor
    start: Tensor
    means: np.ndarray
    config: ModelInversionConfig

    def attack(self, jitter: torch.Generator, prior: Prior) -> Asking[Found]:
        """Run all attacks, and return images and statuses."""
        informed = yield from self.informed(prior)
        images, statuses = yield from self.restore(jitter)
        return {**images, "informed": informed[0]}, {**statuses, "informed": informed[1]}

    def restore(self, jitter: torch.Generator) -> Asking[Found]:
        """Run the printed attack and the tuned one, and return images and statuses."""
        starts, dead = yield from self.starts(jitter)
        classes = np.arange(len(self.labels))
        weights = sorted(set(self.config.tv_weights))
        moments = stopping_times(self.config.iterations)
        bounds = [math.inf, *(LARGEST_PIXEL for _ in weights)]
        (traces,) = yield from self.solve(starts, [_Search(classes, [0.0, *weights], bounds, moments)])
        printed = traces[0, -1]
        tried = list(traces[1:])
        # Heavier weights for the classes whose heaviest one is best so far.
        for _ in range(EXTENSIONS):  # in step with other attackers, so that what follows is one stack
            widest = self.binding([self.errors(trace).min(axis=0) for trace in tried])
            further = [_Search(widest, [10 * weights[-1]], bounds[-1:], moments)] if len(widest) else []
            for (trace,) in (yield from self.solve(starts, further)):
                weights.append(10 * weights[-1])
                tried.append(trace)
        edge = set(self.binding([self.errors(trace).min(axis=0) for trace in tried]))
        best = np.argmin([self.errors(trace).min(axis=0) for trace in tried], axis=0)
        # More steps for the classes that would rather stop after the last one.
        iterates = [np.clip(printed, -LARGEST_PIXEL, LARGEST_PIXEL)[None], *tried]
        errors = [self.errors(tried[setting])[:, place] for place, setting in enumerate(best)]
        late = self.binding(list(np.stack(errors, axis=1)))
        later = stopping_times(_LONGER * self.config.iterations)
        longer = [
            _Search(late[best[late] == setting], [weights[setting]], bounds[-1:], later)
            for setting in set(best[late])
        ]
        for (trace,) in (yield from self.solve(starts, longer)):
            edge |= set(self.binding(list(self.errors(trace))))
            iterates.append(trace)
        # Of all iterates the one nearest to the attacker's own class mean.
        images = np.concatenate(iterates)
        tuned = images[self.errors(images).argmin(axis=0), classes]
        statuses = np.full(len(classes), "", dtype=object)
        statuses[sorted(edge)] = GRID_EDGE
        statuses[dead] = STUCK
        status = yield from self.status(starts, printed, dead)
        return {"printed": printed, "tuned": tuned}, {"printed": status, "tuned": statuses}

    def informed(self, prior: Prior) -> Asking[tuple[np.ndarray, np.ndarray]]:
        """Attack from the attacker's own class means, and return images and statuses.

        It moves along the mean slope of ln p(class | record) over the attacker's records of the class, by the
        share ``step`` of the distance that is expected between two such means.
        """
        slopes = []
        for records, label in zip(prior.records, self.labels, strict=True):
            slopes.append((yield from self.mean_slope(records, label)))
        directions = prior.deviations(torch.stack(slopes).flatten(1).cpu().numpy())
        moved = (self.config.step * prior.lengths)[:, None] * directions
        images = prior.known + moved.reshape(prior.known.shape).astype(np.float32)
        statuses = np.where(directions.any(axis=1), "", STUCK).astype(object)
        return np.clip(images, -LARGEST_PIXEL, LARGEST_PIXEL), statuses

    def mean_slope(self, records: np.ndarray, label: Tensor) -> Asking[Tensor]:
        """Compute the mean slope of ln p(label | record) over records, (colors, height, width)."""
        total = torch.zeros(records.shape[1:], dtype=torch.float64, device=self.start.device)
        for images in torch.from_numpy(records).split(_CHUNK):
            ((_, slopes),) = yield [
                Slopes(self.slot, label.expand(len(images)), images.to(self.start.device))
            ]
            total -= slopes.sum(0, dtype=torch.float64)
        return total / len(records)

    def starts(self, jitter: torch.Generator) -> Asking[tuple[Tensor, np.ndarray]]:
        """Return starts, jittered where the loss has no slope, and the classes without a slope anywhere."""
        starts = self.start
        dead = yield from self.flat(starts)
        for attempt in range(1, RESTARTS + 1):
            starts = torch.where(dead[:, None, None, None], jittered(self.start, attempt, jitter), starts)
            dead = yield from self.flat(starts)
        return starts, np.flatnonzero(dead.cpu().numpy())

    def flat(self, images: Tensor) -> Asking[Tensor]:
        """Return whether the loss of each class has no slope at its image."""
        ((_, slopes),) = yield [Slopes(self.slot, self.labels, images)]
        return ~(slopes.flatten(1).abs().amax(1) > 0)

    def solve(self, starts: Tensor, searches: Sequence[_Search]) -> Asking[list[np.ndarray]]:
        """Return iterates of each search, (weights, moments, classes, ...), NaN for other classes."""
        queries = [self.query(starts, search) for search in searches]
        stacked = len(queries) > 1 and SEARCHES_SIDE_BY_SIDE.on(starts.device) > 1
        traces = yield [joined_inversion(queries)] if stacked else [*queries]
        if stacked:
            traces = np.split(traces[0], np.cumsum([len(query.labels) for query in queries])[:-1], axis=1)
        solved = []
        for search, trace in zip(searches, traces, strict=True):
            images = trace.reshape(len(trace), -1, len(search.classes), *starts.shape[1:]).swapaxes(0, 1)
            iterates = np.full((*images.shape[:2], *starts.shape), np.nan, dtype=np.float32)
            iterates[:, :, search.classes] = images
            solved.append(iterates)
        return solved

    def query(self, starts: Tensor, search: _Search) -> Inversion:
        """Put a search as a question to the network."""
        classes = torch.from_numpy(search.classes).to(starts.device)
        settings = len(search.bounds)
        return Inversion(
            self.slot,
            self.labels[classes].repeat(settings),
            starts[classes].repeat(settings, 1, 1, 1),
            torch.tensor(search.tv_weights, device=starts.device).repeat_interleave(len(classes)),
            torch.tensor(search.bounds, device=starts.device).repeat_interleave(len(classes)),
            self.config.learning_rate,
            search.moments,
        )

    def errors(self, images: np.ndarray) -> Float[np.ndarray, "... k"]:
        """Compute the squared distance to the attacker's own class means, infinite if it is not finite."""
        errors = ((images - self.means) ** 2).mean(axis=(-3, -2, -1))
        return np.where(np.isfinite(errors), errors, np.inf)

    @staticmethod
    def binding(errors: list[np.ndarray]) -> np.ndarray:
        """Find the classes whose last setting is best, from errors of all classes for each setting."""
        return np.flatnonzero([largest_binds(curve) for curve in np.transpose(errors).tolist()])

    def status(self, starts: Tensor, ends: np.ndarray, dead: np.ndarray) -> Asking[np.ndarray]:
        """Judge the images of the printed attack."""
        final = torch.from_numpy(ends).to(starts.device)
        checked = yield [Slopes(self.slot, self.labels, images) for images in (starts, final)]
        before, after = (losses.cpu().numpy() for losses, _ in checked)
        statuses = np.full(len(ends), "", dtype=object)
        statuses[~((after < before) | (after < math.log(2)))] = NOT_CONVERGED
        statuses[(final == starts).flatten(1).all(1).cpu().numpy()] = STUCK
        statuses[~np.isfinite(ends).all(axis=(1, 2, 3))] = DIVERGED
        statuses[dead] = STUCK
        return statuses
