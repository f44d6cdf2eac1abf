"""Recovery of what gradients were computed on, by attackers who know the defense: one family, one interface.

``recursive`` solves for a single record in closed form. The others look for the most probable images under a Gaussian
law, of which the attacker's own records give mean and covariance and the channel the noise: they minimise
½ Σ ‖u‖² + w · ‖difference of gradients‖² / ‖gradient‖² over images z = mean + root · u of all records of a batch
together. ``quasi_newton`` (L-BFGS) suits smooth networks; ``adam`` is not stopped by the kinks of ReLU and pooling.
No search keeps to the range of pixels: noisy images do not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg, optimize
from torch import Tensor, nn

from leakbound.attacks.matching import problems_at_once
from leakbound.attacks.recursive import solvable, solved_images
from leakbound.channels.channel import Channel
from leakbound.config.attacks import GradientInversionConfig
from leakbound.training.client_steps import ClientStep, Gradients, record_gradients

SOLVED = 0.01
"""Relative difference of gradients below which an attacker knows that it has found the images."""

_EXACT_WEIGHT = 1e9  # of a gradient without noise: the law only breaks ties
_RIDGE = 1e-4  # variance added in every direction, in terms of the mean one
_MEMORY = 30  # steps that L-BFGS remembers
_STEP = 0.1  # Adam's first step, in standard deviations


@dataclass(frozen=True)
class Law:
    """Gaussian law of released images.

    Attributes:
        mean: (d,).
        root: (d, d), with root rootᵀ = covariance.
    """

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, records: Float[np.ndarray, "n colors height width"], channel: Channel | None) -> Law:
        """Law of records like the attacker's own, sent through a channel; a little variance in every direction."""
        flat = records.reshape(len(records), -1).astype(np.float64)
        mean = flat.mean(axis=0)
        covariance = (flat - mean).T @ (flat - mean) / len(flat)
        covariance += _RIDGE * np.trace(covariance) / len(mean) * np.eye(len(mean))
        if channel is not None:
            if channel.gain is not None and channel.mean is not None:
                along = np.diag(channel.gain)
                if channel.basis is not None:
                    along = (channel.basis * channel.gain) @ channel.basis.T
                mean = channel.mean + along @ (mean - channel.mean)
                covariance = along @ covariance @ along.T
            noise = np.diag(channel.variances)
            covariance += noise if channel.basis is None else (channel.basis * channel.variances) @ channel.basis.T
        values, vectors = linalg.eigh(covariance)
        return cls(torch.from_numpy(mean), torch.from_numpy(vectors * np.sqrt(values.clip(min=0))))


@dataclass(frozen=True)
class Problem:
    """Uploads of some batches, and all that the attacker knows beside them.

    Attributes:
        network: The network that they come from, in evaluation mode.
        client: The client's step.
        gradients: Parameter name to averaged gradients (n, ...).
        labels: Classes of the records (n, records).
        image_shape: (colors, height, width).
    """

    network: nn.Module
    client: ClientStep
    gradients: Gradients
    labels: Int[Tensor, "n records"]
    image_shape: tuple[int, int, int]

    def part(self, rows: slice) -> Problem:
        """Some of the batches."""
        chosen = {name: tensor[rows] for name, tensor in self.gradients.items()}
        return Problem(self.network, self.client, chosen, self.labels[rows], self.image_shape)

    def to(self, dtype: torch.dtype) -> Problem:
        """The same in another precision."""
        network = copy.deepcopy(self.network).to(dtype)
        gradients = {name: tensor.to(dtype) for name, tensor in self.gradients.items()}
        return Problem(network, self.client, gradients, self.labels, self.image_shape)

    @cached_property
    def flat(self) -> Float[Tensor, "n parameters"]:
        """Uploads in one row each."""
        return torch.cat([tensor.flatten(1) for tensor in self.gradients.values()], dim=1)

    @cached_property
    def sent(self) -> Tensor | None:
        """Coordinates that were sent, where a defense leaves out some, which are 0 then."""
        partly = self.client.defense.changes_gradients and not self.client.noise_std(self.labels.shape[1])
        return self.flat != 0 if partly else None

    def differences(self, images: Float[Tensor, "n records colors height width"]) -> Float[Tensor, "n parameters"]:
        """Uploads that images lead to before noise, less the ones seen, over the length of the latter."""
        count, size = self.labels.shape
        gradients = record_gradients(self.network, images.flatten(0, 1), self.labels.flatten())
        rows = torch.cat([gradients[name].flatten(1) for name in self.gradients], dim=1)
        if self.client.defense.clips:
            rows = rows * self.client.record_weights(rows.norm(dim=1))[:, None]
        differences = rows.unflatten(0, (count, size)).mean(1) - self.flat
        if self.sent is not None:
            differences = torch.where(self.sent, differences, 0.0)
        return differences / self.flat.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


class Way(NamedTuple):
    """Member of the family, with the weight of the gradient against the law."""

    name: str
    weight: float


@dataclass(frozen=True)
class Recovery:
    """Images found.

    Attributes:
        images: (n, records, colors, height, width), float32, NaN where there is no result.
        residuals: (n,), relative differences of the gradients that they lead to: the attacker's own check.
    """

    images: Float[np.ndarray, "n records colors height width"]
    residuals: Float[np.ndarray, " n"]

    @property
    def solved(self) -> bool:
        """True if half of the gradients are explained."""
        return bool(np.median(self.residuals) < SOLVED)


def ways(problem: Problem, config: GradientInversionConfig) -> Iterator[Way]:
    """Members of the family that suit an upload, the surest one first.

    Behind noise of known variance s² on the gradient the weight is that of the likelihood, ‖gradient‖² / 2s².
    """
    size = problem.labels.shape[1]
    noise = problem.client.noise_std(size)
    if noise:
        yield Way("adam", float(problem.flat.square().sum(1).mean()) / (2 * noise**2))
        return
    if not problem.client.defense.changes_gradients:
        if size == 1 and solvable(problem.network, problem.image_shape):
            yield Way("recursive", _EXACT_WEIGHT)
        yield Way("quasi_newton", _EXACT_WEIGHT)
    yield from (Way("adam", weight) for weight in sorted(config.gradient_weights))


def recover(problem: Problem, way: Way, law: Law | None, iterations: int) -> Recovery:
    """Look for the images of each batch in one way.

    Args:
        problem: The uploads.
        way: One of :func:`ways`.
        law: Law of what was released; may be missing for ``recursive``.
        iterations: Steps of a search.

    Raises:
        ValueError: If a search has no law, or no equations lead to the images.
    """
    if way.name == "recursive":
        images = solved_images(problem.network, problem.gradients, problem.image_shape)[:, None]
    elif law is None:
        raise ValueError(f"{way.name} needs a law of the released images")
    else:
        images = (_quasi_newton if way.name == "quasi_newton" else _adam)(problem, law, way.weight, iterations)
    with torch.no_grad():
        residuals = problem.to(torch.float64).differences(images.double()).norm(dim=1)
    lost = ~(residuals.isfinite() & images.flatten(1).isfinite().all(1))
    images = torch.where(lost.view(-1, 1, 1, 1, 1), torch.nan, images.float())
    return Recovery(images.cpu().numpy(), torch.where(lost, torch.inf, residuals).cpu().numpy())


def _placed(law: Law, u: Tensor, problem: Problem) -> Tensor:
    """Images z = mean + root u."""
    flat = law.mean.to(u) + u @ law.root.to(u).T
    return flat.view(*u.shape[:2], *problem.image_shape)


def _starts(problem: Problem, values: int, dtype: torch.dtype) -> Tensor:
    """First u of each batch: the mean, moved a little so that records of one class do not stay alike."""
    count, size = problem.labels.shape
    generator = torch.Generator().manual_seed(size)
    moved = 0.1 * torch.randn(size, values, generator=generator, dtype=dtype) if size > 1 else torch.zeros(1, values)
    return moved.to(problem.labels.device, dtype).expand(count, -1, -1).clone()


def _adam(problem: Problem, law: Law, weight: float, iterations: int) -> Tensor:
    """Adam on u with a cosine schedule, some batches at once."""
    at_once = max(1, problems_at_once(problem.network, problem.image_shape, law.mean.device) // problem.labels.shape[1])
    pieces = []
    root = Law(law.mean.to(problem.flat), law.root.to(problem.flat))
    for first in range(0, len(problem.labels), at_once):
        part = problem.part(slice(first, first + at_once))
        u = _starts(part, len(law.mean), part.flat.dtype).requires_grad_()
        optimizer = torch.optim.Adam([u], lr=_STEP, fused=u.is_cuda)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
        for _ in range(iterations):
            differences = part.differences(_placed(root, u, part)).square().sum()
            (u.grad,) = torch.autograd.grad(0.5 * u.square().sum() + weight * differences, u)
            optimizer.step()
            schedule.step()
        pieces.append(_placed(root, u.detach(), part))
    return torch.cat(pieces)


def _quasi_newton(problem: Problem, law: Law, weight: float, iterations: int) -> Tensor:
    """L-BFGS on u in float64, batch by batch."""
    exact, pieces = problem.to(torch.float64), []
    root = Law(law.mean.to(exact.flat), law.root.to(exact.flat))
    for row in range(len(problem.labels)):
        part = exact.part(slice(row, row + 1))
        start = _starts(part, len(law.mean), torch.float64)

        def objective(values: np.ndarray, part: Problem = part, start: Tensor = start) -> tuple[float, np.ndarray]:
            """Value and gradient at u."""
            u = torch.from_numpy(values).to(start).view_as(start).requires_grad_()
            value = 0.5 * u.square().sum() + weight * part.differences(_placed(root, u, part)).square().sum()
            (slopes,) = torch.autograd.grad(value, u)
            both = torch.cat([value.detach().view(1), slopes.flatten()]).cpu().numpy()  # a GPU is waited for once
            return float(both[0]), both[1:]

        found = optimize.minimize(
            objective,
            start.flatten().cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0},
        )
        pieces.append(_placed(root, torch.from_numpy(found.x).to(start).view_as(start), part))
    return torch.cat(pieces)
