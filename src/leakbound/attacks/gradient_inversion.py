"""Gradient inversion: find the image whose gradient points where an observed one points (Geiping et al. 2020).

The network is untrained and labels are known: the attacker's best case. A batch of several records is restored as one
image, which is compared with the mean of its images: restorations of all batch sizes are then equally hard (Tan et al.
2024, Appendix D). The weight of the total variation decides how good the attack is, and noise asks for more of it, so
it is chosen anew at each level on the attacker's own records. An attacker who keeps one weight flatters the defense; it
is shown beside as ``untuned``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound import metrics
from leakbound.attacks.estimator import Estimator
from leakbound.attacks.images import LARGEST_PIXEL, image_values, rows, total_variation
from leakbound.attacks.matching import GradientMatching, Labels, problems_at_once
from leakbound.attacks.oracle import oracle
from leakbound.attacks.validity import (
    DIVERGED,
    EXTENSIONS,
    GRID_EDGE,
    NO_RESULT,
    NOT_CONVERGED,
    RESTARTS,
    STUCK,
    jittered,
    largest_binds,
)
from leakbound.channels.channel import Channel
from leakbound.channels.covariance import Moments
from leakbound.config.attacks import GradientInversionConfig
from leakbound.config.defenses import Defense
from leakbound.datasets import ImageDataset, Split
from leakbound.models import build
from leakbound.randomness.origin import PrivacyNoise
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound.randomness.sources import NoiseSource, noise_source
from leakbound.training.client_steps import ClientStep, Upload, client_step


def attack(
    *,
    model: str,
    dataset: ImageDataset,
    channel: Channel | None,
    moments: Moments,
    defense: Defense,
    level: float | None,
    config: GradientInversionConfig,
    seed: int,
    slug: str,
    replicas: int = 1,
    batch_size: int = 1,
    estimator: Estimator | None = None,
    privacy_noise: PrivacyNoise = "seeded",
    device: str | torch.device = "cpu",
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Reconstruct members, or the mean images of batches of them, from the gradients that a defended client uploads.

    Variants: ``attack`` uses the total-variation weight that was best on auxiliary records under the same defense,
    which the attacker can simulate, in a grid that is extended where it binds; ``untuned`` uses the same weight
    everywhere. An inversion without a result is started again from jittered priors. Controls: ``prior`` is the mean
    auxiliary image, above which an attack is worse than knowing nothing; ``oracle`` is the best linear estimate by who
    knows what the gradient was computed on, the image itself without a defense; none where gradients are disguised.

    A replica is a network with its own random weights, members and auxiliary records: how well a gradient can be
    inverted varies more from network to network than from image to image. These depend on seed and dataset only, so all
    levels and defenses face the same problems and the same standard normal noise. A larger batch holds the smaller one,
    as long as there are records; errors of mean images fall with the batch size in any case, ``relative_mse`` does not.

    Args, beside those of :mod:`leakbound.attacks`:
        channel: The calibrated channel; None for a defense without one.
        moments: Mean and covariance that the channel was made from, for the oracle; else of the members.
        defense: What the client does, at a ``level`` as it means it, e.g. capacity κ; None without a defense.
        replicas: Number of networks.
        batch_size: Records whose gradients are averaged; a large batch multiplies it.
        estimator: Learned estimate of the dataset's images, trained on auxiliary records; None for none.
        privacy_noise: Whether the client's noise is ``seeded`` or ``secure``; the attacker simulates it alike.

    Returns:
        Rows, the unit being the index of a member, of the first one in a batch, NaN where the status is of
        ``validity.NO_RESULT``: ``mse``, ``psnr``, ``ssim`` and ``cosine`` (no ``psnr`` of an exact oracle), for all but
        the prior ``relative_mse`` = MSE / MSE of the prior, for both attacks ``bounded_mse`` = min(MSE, MSE of the
        prior) and, with unit -1, the ``tv_weight`` used. And images (replicas, images, colors, 32, 32) by variant, with
        ``truth`` and ``released`` (what the client's gradient was computed on), both means over a batch.

    Raises:
        ValueError: If the defense names no client step, cannot have the level, or lacks the channel of its shape and
            level, or a batch is larger than the members or the auxiliary records.

    Source:
        Geiping et al. 2020, "Inverting gradients"; Tan et al. 2024, Sec. 6.1.
    """
    client = client_step(defense, level, channel, lambda: moments)
    size = defense.records_in_step(level, batch_size)
    colors, height, width = dataset.aux.images.shape[1:]
    if problems := client.problems((colors, height, width)):
        raise ValueError("\n".join(f"{slug}: {problem}" for problem in problems))
    tables, pictures = [], []
    for replica in range(replicas):
        words = (dataset.name, "gradient_inversion", replica)
        network = build(model, dataset.colors, len(dataset.classes), torch_generator(seed, *words, model, "network"))
        prior = torch.from_numpy(dataset.aux.images.mean(axis=0)).to(device)
        generator = partial(numpy_generator, seed, *words)
        noise = partial(noise_source, privacy_noise, seed, *words, device=device)
        scene = _Scene(network.to(device).eval(), prior, client, size, len(dataset.classes), config, generator, noise)
        table, found = scene.reconstruct(dataset.members(replica), dataset.aux, moments)
        tables.append(table.assign(replica=replica))
        pictures.append(found)
    return pd.concat(tables, ignore_index=True), {name: np.stack([p[name] for p in pictures]) for name in pictures[0]}


def invert(
    matching: GradientMatching,
    labels: Labels,
    start: Float[Tensor, "n colors height width"],
    tv_weights: Float[Tensor, " n"],
    *,
    iterations: int,
    learning_rate: float,
) -> Float[Tensor, "n colors height width"]:
    """Minimise cosine distance + weight · TV over each candidate by Adam on the sign of the gradient.

    The step falls to a tenth after 3/8, 5/8 and 7/8 of the iterations, and pixels are kept inside [-1, 1]. Problems
    share the network only: a stack of images, weights or levels gives what each gives alone, up to rounding.

    Args:
        matching: The network and one observed gradient per problem.
        labels: Class of each record, or fractions of the classes in each batch, known to the attacker.
        start: First candidates.
        tv_weights: Weight of each candidate's total variation, >= 0.
        iterations: Steps.
        learning_rate: Adam's, before it falls.

    Returns:
        The last candidates.

    Source:
        Geiping et al. 2020.
    """
    candidates = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([candidates], lr=learning_rate)
    milestones = [iterations * eighths // 8 for eighths in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=0.1)
    for _ in range(iterations):
        objectives = matching.distances(candidates, labels) + tv_weights * total_variation(candidates)
        (gradient,) = torch.autograd.grad(objectives.sum(), candidates)
        candidates.grad = gradient.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            candidates.clamp_(-LARGEST_PIXEL, LARGEST_PIXEL)
    return candidates.detach()


@dataclass(frozen=True)
class _Observed:
    """Batches whose gradients the attacker has seen.

    Attributes:
        units: (n,), rows of the split that the first record of each batch comes from.
        truth: (n, colors, height, width), mean images.
        labels: (n,) classes of batches of one record; (n, classes) fractions of classes in larger ones.
        sent: Uploads of the client for them.
    """

    units: np.ndarray
    truth: np.ndarray
    labels: Tensor
    sent: Upload


@dataclass(frozen=True)
class _Scene:
    """Network, client and attacker of one replica; generators and sources of noise by purpose."""

    network: nn.Module
    prior: Tensor
    client: ClientStep
    size: int
    classes: int
    config: GradientInversionConfig
    generator: Callable[[str], np.random.Generator]
    noise: Callable[[str], NoiseSource]

    def reconstruct(self, members: Split, aux: Split, moments: Moments) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
        """Rows and pictures."""
        chosen, at_edge = self.tuned(self.observe(aux, self.config.tuning_images, "tuning"))
        weights = {"attack": chosen, "untuned": self.config.untuned_tv_weight}
        observed = self.observe(members, self.config.images, "images")
        distinct = list(dict.fromkeys(weights.values()))
        images, found = self.solve(observed, distinct, "images")
        solved = dict(zip(distinct, zip(images, found, strict=True), strict=True))
        pictures = {variant: solved[weight][0] for variant, weight in weights.items()}
        statuses = {variant: solved[weight][1].copy() for variant, weight in weights.items()}
        if at_edge:
            statuses["attack"][statuses["attack"] == ""] = GRID_EDGE
        pictures["prior"] = np.broadcast_to(self.prior.cpu().numpy(), observed.truth.shape).copy()
        released = observed.sent.images.cpu().numpy()
        best = oracle(self.client, released, moments)
        if best is not None:
            pictures["oracle"] = best
        table = _table(observed, pictures, weights, statuses, GRID_EDGE if at_edge else "")
        return table, {"truth": observed.truth, "released": released, **pictures}

    def tuned(self, own: _Observed) -> tuple[float, bool]:
        """Weight with the lowest mean error on the attacker's own records, and whether its grid binds there.

        The untuned weight is among those tried, and stays unless another one is better by more than two standard
        errors of their difference: few records would often choose a worse one by luck. A record whose inversion
        is no result counts as the prior.
        """
        grid = sorted({*self.config.tv_weights, self.config.untuned_tv_weight})
        if len(grid) == 1:
            return grid[0], False
        prior = metrics.mse(own.truth, np.broadcast_to(self.prior.cpu().numpy(), own.truth.shape))
        errors: dict[float, np.ndarray] = {}

        def extend(weights: Sequence[float]) -> list[float]:
            """Try weights, and return all mean errors in the order of the grid."""
            for weight, images, found in zip(weights, *self.solve(own, weights, "tuning"), strict=True):
                lost = np.isin(found.astype(str), NO_RESULT)
                errors[weight] = np.where(lost, prior, metrics.mse(own.truth, images))
            return [float(errors[weight].mean()) for weight in sorted(errors)]

        curve = extend(grid)
        for _ in range(EXTENSIONS):
            if largest_binds(curve):
                curve = extend([10 * max(errors)])
            elif largest_binds(curve[::-1]) and min(errors) > 0:
                curve = extend([min(errors) / 10])
            else:
                break
        chosen = min(errors, key=lambda weight: float(errors[weight].mean()))
        gains = errors[self.config.untuned_tv_weight] - errors[chosen]
        if gains.mean() <= 2 * gains.std() / math.sqrt(len(gains)):
            return self.config.untuned_tv_weight, False
        return chosen, largest_binds(curve) or (largest_binds(curve[::-1]) and min(errors) > 0)

    def observe(self, records: Split, count: int, purpose: str) -> _Observed:
        """Choose disjoint batches, and let the client upload the gradient of each.

        First records are the same for all sizes of a batch, and ascend.
        """
        order, size = self.generator(purpose).permutation(len(records.labels)), self.size
        if size > len(order):
            raise ValueError(
                f"a batch of {size} records for {purpose}: there are only {len(order)}; take a smaller one"
            )
        count = min(count, len(order) // size)
        first, others = np.sort(order[:count]), order[count : count * size]
        batches = np.column_stack([first, others.reshape(size - 1, count).T])
        images, labels = (
            torch.from_numpy(array[batches]).to(self.prior.device) for array in (records.images, records.labels)
        )
        sent = self.client.upload(self.network, images, labels, self.noise(purpose))
        known = labels[:, 0] if size == 1 else F.one_hot(labels, self.classes).float().mean(1)
        return _Observed(first, images.mean(1).cpu().numpy(), known, sent)

    def solve(
        self, observed: _Observed, tv_weights: Sequence[float], purpose: str
    ) -> tuple[Float[np.ndarray, "weights n colors height width"], np.ndarray]:
        """Invert each gradient with each weight; images, and their statuses (weights, n).

        The start is the prior image, and as far as that leads to no result a jittered one.
        """
        count, device = len(observed.labels), self.prior.device
        colors, height, width = self.prior.shape
        weights = torch.tensor(tv_weights, device=device).repeat_interleave(count)
        record = torch.arange(count, device=device).repeat(len(tv_weights))
        images = self.prior.repeat(len(record), 1, 1, 1)
        statuses = np.full(len(record), STUCK, dtype=object)
        jitter = torch_generator(int(self.generator(f"jitter {purpose}").integers(2**31)))
        starts = images.clone()
        for attempt in range(1 + RESTARTS):
            if attempt:
                noisy = jittered(self.prior.expand(count, -1, -1, -1), attempt, jitter)  # of a record, with any weight
                starts = noisy[record]
            unsolved = torch.from_numpy(np.flatnonzero(np.isin(statuses.astype(str), NO_RESULT))).to(device)
            if not len(unsolved):
                break
            for chunk in unsolved.split(problems_at_once(self.network, (colors, height, width), device)):
                gradients = {name: tensor[record[chunk]] for name, tensor in observed.sent.gradients.items()}
                matching = GradientMatching(self.network, gradients, (colors, height, width))
                problem = (matching, observed.labels[record[chunk]], starts[chunk], weights[chunk])
                images[chunk] = invert(
                    *problem, iterations=self.config.iterations, learning_rate=self.config.learning_rate
                )
                statuses[chunk.cpu().numpy()] = _statuses(*problem, images[chunk])
        shape = (len(tv_weights), count)
        return images.cpu().numpy().reshape(*shape, *self.prior.shape), statuses.reshape(shape)


def _statuses(matching: GradientMatching, labels: Labels, start: Tensor, tv_weights: Tensor, end: Tensor) -> np.ndarray:
    """Statuses of inversions from where they began and ended, (n)."""
    began = start.clone().requires_grad_()
    distances = matching.distances(began, labels)
    (slopes,) = torch.autograd.grad(distances.sum(), began)
    before = distances.detach() + tv_weights * total_variation(start)
    after = matching.distances(end.clone().requires_grad_(), labels).detach() + tv_weights * total_variation(end)
    found = np.full(len(end), "", dtype=object)
    found[(~(after < before)).cpu().numpy()] = NOT_CONVERGED
    still = ~(slopes.flatten(1).abs().amax(1) > 0) | (end == start).flatten(1).all(1)
    found[still.cpu().numpy()] = STUCK
    found[~end.isfinite().flatten(1).all(1).cpu().numpy()] = DIVERGED
    return found


def _table(
    observed: _Observed,
    pictures: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    statuses: Mapping[str, np.ndarray],
    choice: str,
) -> pd.DataFrame:
    """Rows of all variants.

    Args:
        observed: What was attacked.
        pictures: Images by variant.
        weights: Total-variation weight of the variants that are attacks.
        statuses: Statuses of their images.
        choice: Status of the tuned weight.
    """
    values = {variant: image_values(observed.truth, images) for variant, images in pictures.items()}
    for variant in values.keys() - {"prior"}:
        values[variant]["relative_mse"] = values[variant]["mse"] / values["prior"]["mse"]
    for variant in weights:
        values[variant]["bounded_mse"] = np.asarray(metrics.bounded_mse(values[variant]["mse"], values["prior"]["mse"]))
        lost = np.isin(statuses[variant].astype(str), NO_RESULT)
        values[variant] = {name: np.where(lost, np.nan, column) for name, column in values[variant].items()}
    if "oracle" in values and not np.isfinite(values["oracle"]["psnr"]).all():
        del values["oracle"]["psnr"]
    units = observed.units.tolist()
    tables = [
        rows(0, variant, units, columns, statuses[variant].tolist() if variant in statuses else "")
        for variant, columns in values.items()
    ]
    tables += [
        rows(0, variant, [-1], {"tv_weight": np.array([weight])}, choice if variant == "attack" else "")
        for variant, weight in weights.items()
    ]
    return pd.concat(tables, ignore_index=True)
