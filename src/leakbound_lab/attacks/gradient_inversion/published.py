"""Published gradient inversion: match the direction of an observed gradient (Geiping et al. 2020).

A batch of several records is restored as one image. The weight of the total variation decides how good the
attack is, and noise needs more of it, so it is chosen at each level on the attacker's own records. An
attacker who keeps one weight flatters the defense. The search keeps to smooth images in the range of pixels,
which noisy images are not. So behind a channel it fails whatever the gradient reveals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.randomness.seeding import torch_generator
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.gradient_inversion.gradient_matching import (
    GradientMatching,
    Matching,
    problems_at_once,
    stack_of,
)
from leakbound_lab.attacks.rows import DIVERGED, NO_RESULT, NOT_CONVERGED, STUCK
from leakbound_lab.attacks.scheduling import by_kind, in_parts
from leakbound_lab.attacks.search_images import (
    EXTENSIONS,
    LARGEST_PIXEL,
    RESTARTS,
    descent,
    jittered,
    largest_binds,
    total_variation,
)
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.models.gradients import Gradients, Labels
from leakbound_lab.models.layers import ImageTensor

Result = TypeVar("Result")


def reconstruct(
    matching: Matching,
    labels: Labels,
    start: ImageTensor,
    tv_weights: Float[Tensor, " n"],
    *,
    iterations: int,
    learning_rate: float,
) -> ImageTensor:
    """Minimise cosine distance + weight · TV over each candidate by Adam on the sign of the gradient.

    The step falls to a tenth after 3/8, 5/8 and 7/8 of the iterations, and pixels are kept inside [-1, 1].
    Problems share networks only: a stack of images, weights or levels gives what each gives alone, up to
    rounding.

    Args:
        matching: The networks and one observed gradient per problem.
        labels: Class of each record, or fractions of the classes in each batch, known to the attacker.
        start: First candidates.
        tv_weights: Weight of each candidate's total variation, >= 0.
        iterations: Steps.
        learning_rate: Adam's learning rate, before it falls.

    Returns:
        The last candidates.

    Source:
        Geiping et al. 2020.
    """
    candidates = start.clone().requires_grad_()

    def gradient() -> Tensor:
        """Compute the sign of the slope of each candidate's objective."""
        objectives = matching.distances(candidates, labels) + tv_weights * total_variation(candidates)
        return torch.autograd.grad(objectives.sum(), candidates)[0].sign()

    optimizer, step = descent(candidates, learning_rate, LARGEST_PIXEL, gradient)
    milestones = [iterations * eighths // 8 for eighths in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=0.1)
    for _ in range(iterations):
        step()
        schedule.step()
    return candidates.detach()


Solved = tuple[ImageTensor, np.ndarray]
"""Images, and their statuses (n)."""


@dataclass(frozen=True)
class PublishedReconstruction:
    """Problems of one network that an attacker inverts. Each has a gradient, a start and a weight.

    Attributes:
        network: The network, in evaluation mode.
        observed: Parameter name to gradients (k, ...).
        labels: Of the gradients.
        record: Gradient of each problem.
        starts: First candidate of each problem.
        tv_weights: Weight of the total variation of each problem.
        config: Settings.
    """

    network: nn.Module
    observed: Gradients
    labels: Int[Tensor, " k"] | Float[Tensor, "k classes"]
    record: Int[Tensor, " n"]
    starts: ImageTensor
    tv_weights: Float[Tensor, " n"]
    config: GradientInversionConfig


Attacker: TypeAlias = Generator[PublishedReconstruction, Solved, Result]
"""Yields problems, is sent how they were solved, and returns a result."""


def inverted(searches: Sequence[PublishedReconstruction]) -> list[Solved]:
    """Invert the gradients of several networks as one stack, or as several where memory does not hold one.

    A stack launches as many kernels as one network. Each network gets what it would get alone, up to rounding.
    """
    network = searches[0].network
    starts = searches[0].starts
    size = problems_at_once(network, starts.shape[1:], starts.device)
    return by_kind(searches, lambda _: None, partial(_stack_inverted, size=size), size)


def _stack_inverted(searches: Sequence[PublishedReconstruction], size: int) -> list[Solved]:
    """Invert the gradients of some networks, at most so many at once, one by one if they make no stack."""
    first = searches[0]
    shape = first.starts.shape[1:]
    factors = stack_of([search.network for search in searches], shape) if len(searches) > 1 else None
    if factors is None and len(searches) > 1:
        return [_stack_inverted([search], size)[0] for search in searches]
    counts = [len(search.starts) for search in searches]
    ends: list[Tensor] = []
    statuses: list[np.ndarray] = []

    def solve(places: Sequence[int]) -> None:
        """Invert some problems of each search. One that has fewer than others repeats its own."""
        # Interleave the problems of all networks, record by record.
        rows = [torch.tensor(places, device=first.starts.device) % count for count in counts]
        pairs = [(search, row, search.record[row]) for search, row in zip(searches, rows, strict=True)]
        observed = {
            name: interleaved(search.observed[name][record] for search, _, record in pairs)
            for name in first.observed
        }
        # Gradients of one network by its own layers, of several by the stack.
        matching = (
            GradientMatching(first.network, observed, shape)
            if factors is None
            else Matching(factors, observed)
        )
        labels = interleaved(search.labels[record] for search, _, record in pairs)
        starts = interleaved(search.starts[row] for search, row, _ in pairs)
        weights = interleaved(search.tv_weights[row] for search, row, _ in pairs)
        config = first.config
        images = reconstruct(
            matching,
            labels,
            starts,
            weights,
            iterations=config.iterations,
            learning_rate=config.learning_rate,
        )
        judged = _statuses(matching, labels, starts, weights, images)
        ends.append(images.unflatten(0, (-1, len(searches))))
        statuses.append(judged.reshape(-1, len(searches)))

    in_parts(range(max(counts)), max(1, size // len(searches)), solve)
    images = torch.cat(ends)
    judged = np.concatenate(statuses)
    return [(images[:count, slot], judged[:count, slot]) for slot, count in enumerate(counts)]


def interleaved(values: Iterable[Tensor]) -> Tensor:
    """Interleave the values of searches, (n, ...) of each: the first of all, the second of all, and so on."""
    return torch.stack(list(values), dim=1).flatten(0, 1)


@dataclass(frozen=True)
class Geiping:
    """Attacker on one network, which yields the searches that it needs.

    Attributes:
        network: The network.
        prior: (colors, height, width), mean auxiliary image, where each search starts.
        config: Settings.
        generator: Returns the generator of a purpose.
    """

    network: nn.Module
    prior: Tensor
    config: GradientInversionConfig
    generator: Callable[[str], np.random.Generator]

    def tuned(
        self, gradients: Gradients, labels: Labels, truth: metrics.Pictures
    ) -> Attacker[tuple[float, bool, Float[np.ndarray, " n"]]]:
        """Return the weight with the lowest mean error on the attacker's own records, and these errors.

        The untuned weight is among those tried, and stays unless another one is better by more than two
        standard errors of their difference, as few records would often choose a worse one by luck. A record
        whose inversion has no result counts as the prior. Between both it says whether the best weight is at
        an edge of the grid.
        """
        grid = sorted({*self.config.tv_weights, self.config.untuned_tv_weight})
        prior = metrics.mse(truth, np.broadcast_to(self.prior.cpu().numpy(), truth.shape))
        errors: dict[float, np.ndarray] = {}

        def extend(weights: Sequence[float]) -> Attacker[list[float]]:
            """Try weights, and return all mean errors in the order of the grid."""
            solved = yield from self.solve(gradients, labels, weights, "tuning")
            for weight, images, statuses in zip(weights, *solved, strict=True):
                lost = np.isin(statuses.astype(str), NO_RESULT)
                errors[weight] = np.where(lost, prior, metrics.mse(truth, images))
            return [float(errors[weight].mean()) for weight in sorted(errors)]

        # The grid, extended by factors of 10 as long as its best weight lies at an end.
        curve = yield from extend(grid)
        for _ in range(EXTENSIONS if len(grid) > 1 else 0):
            if largest_binds(curve):
                curve = yield from extend([10 * max(errors)])
            elif largest_binds(curve[::-1]) and min(errors) > 0:
                curve = yield from extend([min(errors) / 10])
            else:
                break
        # The best weight, kept only if it is better than the untuned one beyond chance.
        best = min(errors, key=lambda weight: float(errors[weight].mean()))
        gains = errors[self.config.untuned_tv_weight] - errors[best]
        if gains.mean() <= 2 * gains.std() / math.sqrt(len(gains)):
            return self.config.untuned_tv_weight, False, errors[self.config.untuned_tv_weight]
        at_edge = largest_binds(curve) or (largest_binds(curve[::-1]) and min(errors) > 0)
        return best, at_edge, errors[best]

    def solve(
        self, observed: Gradients, labels: Labels, tv_weights: Sequence[float], purpose: str
    ) -> Attacker[tuple[Float[np.ndarray, "weights n colors height width"], np.ndarray]]:
        """Invert each gradient with each weight, and return images and their statuses (weights, n).

        The start is the prior image, and where that leads to no result a jittered one.
        """
        count = len(labels)
        device = self.prior.device
        weights = torch.tensor(tv_weights, device=device).repeat_interleave(count)
        record = torch.arange(count, device=device).repeat(len(tv_weights))
        images = self.prior.repeat(len(record), 1, 1, 1)
        statuses = np.full(len(record), STUCK, dtype=object)
        jitter = torch_generator(int(self.generator(f"jitter {purpose}").integers(2**31)))
        starts = images.clone()
        # Problems without a result start again from a jittered image.
        for attempt in range(1 + RESTARTS):
            if attempt:  # a record has the same start with any weight
                starts = jittered(self.prior.expand(count, -1, -1, -1), attempt, jitter)[record]
            unsolved = np.flatnonzero(np.isin(statuses.astype(str), NO_RESULT))
            if not len(unsolved):
                break
            rows = torch.from_numpy(unsolved).to(device)
            problems = (record[rows], starts[rows], weights[rows], self.config)
            images[rows], statuses[unsolved] = yield PublishedReconstruction(
                self.network, observed, labels, *problems
            )
        shape = (len(tv_weights), count)
        return images.cpu().numpy().reshape(*shape, *self.prior.shape), statuses.reshape(shape)


def _statuses(
    matching: Matching, labels: Labels, start: Tensor, tv_weights: Tensor, end: Tensor
) -> np.ndarray:
    """Judge inversions from where they began and ended, (n)."""
    began = start.clone().requires_grad_()
    distances = matching.distances(began, labels)
    (slopes,) = torch.autograd.grad(distances.sum(), began)
    before = distances.detach() + tv_weights * total_variation(start)
    distances = matching.distances(end.clone().requires_grad_(), labels)
    after = distances.detach() + tv_weights * total_variation(end)
    statuses = np.full(len(end), "", dtype=object)
    statuses[(~(after < before)).cpu().numpy()] = NOT_CONVERGED
    still = ~(slopes.flatten(1).abs().amax(1) > 0) | (end == start).flatten(1).all(1)
    statuses[still.cpu().numpy()] = STUCK
    statuses[~end.isfinite().flatten(1).all(1).cpu().numpy()] = DIVERGED
    return statuses
