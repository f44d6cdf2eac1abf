"""Recovery of what gradients were computed on, by attackers who know the defense: one family, one interface.

``recursive`` solves for a single record in closed form. The others search for the most probable images under
a Gaussian distribution, whose mean and covariance come from the attacker's own records and the channel's
noise. They minimise ½ Σ ‖u‖² + w · ‖difference of gradients‖² / ‖gradient‖² over images z = mean + root · u
of all records of a batch together. ``quasi_newton`` (L-BFGS) suits smooth networks. ``adam`` is not stopped
by the kinks of ReLU and pooling, and ``staged`` softens them, where a single record went through a chain of
convolutions (:mod:`leakbound_lab.attacks.gradient_inversion.staged`). Behind noise on the gradient of a single
record the most probable images fit the noise, and ``regression`` errs less: the best linear estimate of the
image from the gradient, learned from gradients of images of the same distribution and class. No search keeps
to the range of pixels, as noisy images do not.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg, optimize
from torch import Tensor, nn

from leakbound.channels.channel import GaussianChannel
from leakbound_lab.attacks.gradient_inversion import staged
from leakbound_lab.attacks.gradient_inversion.closed_form import solvable, solved_images
from leakbound_lab.attacks.gradient_inversion.gradient_matching import problems_at_once
from leakbound_lab.attacks.metrics import Pictures
from leakbound_lab.attacks.scheduling import in_parts
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.models.gradients import Gradients, constant_gradients, record_gradients
from leakbound_lab.training.client_steps import ClientStep, UploadLaw
from leakbound_lab.training.eager_optimizers import Adam

logger = logging.getLogger("leakbound")

Batches = Float[np.ndarray, "n records colors height width"]
"""Records of batches."""
_Candidates = Float[Tensor, "n records colors height width"]
SOLVED = 0.01
"""Relative difference of gradients below which an attacker knows that it has found the images."""

_EXACT_WEIGHT = 1e9  # of a gradient without noise, where the distribution only breaks ties
_RIDGE = 1e-4  # variance added in every direction, in terms of the mean one
_MEMORY = 30  # steps that L-BFGS remembers
_STEP = 0.1  # Adam's first step, in standard deviations
_DRAWS = 1000  # images that a regression learns from
_MOST_NUMBERS = 2**28  # of their gradients


@dataclass(frozen=True)
class Law:
    """Gaussian distribution of released images.

    Attributes:
        mean: (d,), mean image.
        root: (d, d), with root rootᵀ = covariance.
    """

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, records: Pictures, channel: GaussianChannel | None) -> Law:
        """Estimate the distribution of records like the attacker's own after a channel."""
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
            covariance += (
                noise if channel.basis is None else (channel.basis * channel.variances) @ channel.basis.T
            )
        values, vectors = linalg.eigh(covariance)
        return cls(torch.from_numpy(mean), torch.from_numpy(vectors * np.sqrt(values.clip(min=0))))


@dataclass(frozen=True)
class MapProblem:
    """Uploads for some batches, and what else the attacker knows.

    Attributes:
        network: The network that they come from, in evaluation mode.
        client: The client's step.
        gradients: Parameter name to averaged gradients (n, ...).
        labels: Classes of the records (n, records).
        image_shape: (colors, height, width).
        upload_law: Mean and noise of the uploads where noise differs between coordinates. They are then compared in
            units of their noise.
    """

    network: nn.Module
    client: ClientStep
    gradients: Gradients
    labels: Int[Tensor, "n records"]
    image_shape: tuple[int, int, int]
    upload_law: UploadLaw | None = None

    def part(self, rows: slice | Int[Tensor, " k"]) -> MapProblem:
        """Select some of the batches."""
        gradients = {name: tensor[rows] for name, tensor in self.gradients.items()}
        return MapProblem(
            self.network, self.client, gradients, self.labels[rows], self.image_shape, self.upload_law
        )

    def to(self, dtype: torch.dtype) -> MapProblem:
        """Convert the problem to another precision."""
        network = copy.deepcopy(self.network).to(dtype)
        gradients = {name: tensor.to(dtype) for name, tensor in self.gradients.items()}
        law = None if self.upload_law is None else self.upload_law.to(dtype)
        return MapProblem(network, self.client, gradients, self.labels, self.image_shape, law)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each coordinate of :attr:`flat`."""
        return self.client.noise_std(self.labels.shape[1]) if self.upload_law is None else 1.0

    @cached_property
    def flat(self) -> Float[Tensor, "n parameters"]:
        """Uploads in one row each."""
        gradients = self.gradients if self.upload_law is None else self.upload_law.whitened(self.gradients)
        return torch.cat([tensor.flatten(1) for tensor in gradients.values()], dim=1)

    @cached_property
    def sent(self) -> Tensor | None:
        """Coordinates that were sent, where a defense leaves out some, which are 0 then."""
        partly = self.client.defense.changes_gradients and not self.noise
        return self.flat != 0 if partly else None

    def differences(self, images: _Candidates) -> Float[Tensor, "n parameters"]:
        """Subtract seen uploads from those that images lead to without noise, relative to their length."""
        differences = self.averaged(images) - self.flat
        if self.sent is not None:
            differences = torch.where(self.sent, differences, 0.0)
        return differences / self.flat.norm(dim=1, keepdim=True).clamp(
            min=torch.finfo(differences.dtype).tiny
        )

    def averaged(self, images: _Candidates) -> Float[Tensor, "n parameters"]:
        """Average the gradients at images as a client does."""
        gradients_of = record_gradients if images.requires_grad else constant_gradients
        gradients = gradients_of(self.network, images.flatten(0, 1), self.labels.flatten())
        rows = self.weighed(gradients).unflatten(0, self.labels.shape).mean(1)
        return rows if self.upload_law is None else rows * self.upload_law.factors(rows.norm(dim=1))[:, None]

    def weighed(self, gradients: Gradients) -> Float[Tensor, "rows parameters"]:
        """Weigh gradients of single records as they go into an average, in one row each."""
        if self.upload_law is not None:
            gradients = self.upload_law.whitened(gradients)
        rows = torch.cat([gradients[name].flatten(1) for name in self.gradients], dim=1)
        if self.client.defense.clips:
            rows = rows * self.client.record_weights(rows.norm(dim=1))[:, None]
        return rows


class Method(NamedTuple):
    """Way to recover images, by name, with the weight of the gradient against the prior of images in a search."""

    name: str
    weight: float = _EXACT_WEIGHT


@dataclass(frozen=True)
class Recovery:
    """Recovered images.

    Attributes:
        images: (n, records, colors, height, width), float32, NaN where there is no result.
        residuals: (n,), relative differences of the gradients that they lead to: the attacker's own check.
    """

    images: Batches
    residuals: Float[np.ndarray, " n"]

    @property
    def solved(self) -> bool:
        """True if half of the gradients are explained."""
        return bool(np.median(self.residuals) < SOLVED)


def methods(problem: MapProblem, config: GradientInversionConfig) -> Iterator[Method]:
    """Yield the methods that suit an upload, the surest one first.

    Behind noise of known variance s² on the gradient the weight is that of the likelihood, ‖gradient‖² / 2s².
    A network that cannot be searched in stages goes without that, and the log says why.
    """
    size = problem.labels.shape[1]
    if problem.noise:
        yield Method("adam", float(problem.flat.square().sum(1).mean()) / (2 * problem.noise**2))
        if size == 1:
            yield Method("regression")
        return
    if not problem.client.defense.changes_gradients:
        if size == 1 and solvable(problem.network, problem.image_shape):
            yield Method("recursive")
        yield Method("quasi_newton")
    yield from (Method("adam", weight) for weight in sorted(config.gradient_weights))
    if size == 1 and not problem.client.defense.changes_gradients:
        try:
            staged.stages_of(problem.network, problem.image_shape)
        except ValueError as reason:
            logger.info("No staged search of %s: %s", type(problem.network).__name__, reason)
        else:
            yield Method("staged")


def recover_images(problem: MapProblem, method: Method, law: Law | None, iterations: int) -> Recovery:
    """Recover the images of each batch.

    Args:
        problem: The uploads.
        method: One of :func:`methods`.
        law: Distribution of what was released, which may be missing for ``recursive``.
        iterations: Steps of a search.

    Raises:
        ValueError: If a search has no distribution, or no equations lead to the images.
    """
    if method.name == "recursive":
        images = solved_images(problem.network, problem.gradients, problem.image_shape)[:, None]
    elif law is None:
        raise ValueError(f"{method.name} needs a distribution of the released images")
    elif method.name == "quasi_newton":
        images = _quasi_newton(problem, law, method.weight, iterations)
    elif method.name == "staged":
        images = _staged(problem, law, iterations)
    elif method.name == "regression":
        images = _regressed(problem, law)
    else:
        images = _in_parts(problem, lambda rows: _climbed(problem.part(rows), law, method.weight, iterations))
    return _checked(problem, images)


def _staged(problem: MapProblem, law: Law, iterations: int) -> Tensor:
    """Recover single records in stages, from what linear layers reveal."""
    features = staged.features_of(problem.network, problem.gradients, problem.image_shape)

    def searched(rows: slice) -> Tensor:
        """Recover some records."""
        seen = staged.Features(features.values[rows], features.slopes[rows])
        part = problem.part(rows)
        known_law = (law.mean, law.root)
        images = staged.search(part.network, seen, part.gradients, known_law, part.image_shape, iterations)
        return images[:, None]

    return _in_parts(problem, searched, staged.STARTS)


def _in_parts(problem: MapProblem, images: Callable[[slice], Tensor], starts: int = 1) -> Tensor:
    """Recover images of some rows at a time, as many as memory holds, each from a number of starts."""
    count, records = problem.labels.shape
    at_once = problems_at_once(problem.network, problem.image_shape, problem.labels.device)
    pieces: list[Tensor] = []

    def solve(places: Sequence[int]) -> None:
        """Recover the images of some batches."""
        pieces.append(images(slice(places[0], places[-1] + 1)))

    in_parts(range(count), max(1, at_once // (records * starts)), solve)
    return torch.cat(pieces)


def _checked(problem: MapProblem, images: Tensor) -> Recovery:
    """Compute how well images explain what was uploaded."""
    with torch.no_grad():
        residuals = problem.to(torch.float64).differences(images.double()).norm(dim=1)
    lost = ~(residuals.isfinite() & images.flatten(1).isfinite().all(1))
    images = torch.where(lost.view(-1, 1, 1, 1, 1), torch.nan, images.float())
    return Recovery(images.cpu().numpy(), torch.where(lost, torch.inf, residuals).cpu().numpy())


def _placed(law: Law, u: Tensor, problem: MapProblem) -> Tensor:
    """Compute the images z = mean + root u."""
    return (law.mean.to(u) + u @ law.root.to(u).T).view(*u.shape[:2], *problem.image_shape)


def _starts(problem: MapProblem, values: int, dtype: torch.dtype) -> Tensor:
    """Return the first u of each batch: the mean, moved a little so that equal records do not stay equal."""
    count, size = problem.labels.shape
    noise = torch.randn(size, values, generator=torch.Generator().manual_seed(size), dtype=dtype)
    moved = 0.1 * noise if size > 1 else torch.zeros(1, values)
    return moved.to(problem.labels.device, dtype).expand(count, -1, -1).clone()


def _climbed(part: MapProblem, law: Law, weight: float, iterations: int) -> Tensor:
    """Minimise over u by Adam with a cosine schedule."""
    root = Law(law.mean.to(part.flat), law.root.to(part.flat))
    u = _starts(part, len(law.mean), part.flat.dtype).requires_grad_()
    optimizer = Adam([u], lr=_STEP, fused=u.is_cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    # Descent on ½‖u‖² + weight · difference², where the distribution is standard normal in u.
    for _ in range(iterations):
        differences = part.differences(_placed(root, u, part)).square().sum(1)
        (u.grad,) = torch.autograd.grad(0.5 * u.square().sum() + (weight * differences).sum(), u)
        optimizer.step()
        schedule.step()
    return _placed(root, u.detach(), part)


@torch.no_grad()
def _regressed(problem: MapProblem, law: Law) -> Float[Tensor, "n 1 colors height width"]:
    """Estimate single records linearly from gradients g + noise, with moments of drawn images of each class.

    The mean squared error is least among linear estimates: E z + Cov(z, g) (Cov(g) + s² · 1)⁻¹ (g − E g),
    in its dual form, as there are fewer images than parameters.
    """
    count = max(2, min(_DRAWS, _MOST_NUMBERS // problem.flat.shape[1]))
    u = torch.randn(count, 1, len(law.mean), generator=torch.Generator().manual_seed(0)).to(problem.flat)
    samples = _placed(law, u, problem)
    blocks = samples.split(problems_at_once(problem.network, problem.image_shape, u.device))
    images = samples.flatten(1).double()
    restored = torch.empty(len(problem.labels), images.shape[1], dtype=torch.float64, device=images.device)
    # One regression for each class, as a label is known: moments of gradients at drawn images of the class.
    for label in problem.labels.unique():
        alike = dataclasses.replace(problem, labels=label.expand(count, 1))
        gradients = torch.cat([alike.part(slice(len(block))).averaged(block) for block in blocks])
        mean = gradients.mean(0)
        gradients -= mean
        rows = problem.labels[:, 0] == label
        # Dual form: a system of as many equations as images, with the noise on its diagonal.
        products = (gradients @ gradients.T).double()
        products.diagonal().add_(count * problem.noise**2)
        shares = torch.linalg.solve(products, (gradients @ (problem.flat[rows] - mean).T).double())
        restored[rows] = images.mean(0) + shares.T @ (images - images.mean(0))
    return restored.float().view(-1, 1, *problem.image_shape)


def _quasi_newton(problem: MapProblem, law: Law, weight: float, iterations: int) -> Tensor:
    """Minimise over u by L-BFGS in float64, batch by batch."""
    exact = problem.to(torch.float64)
    pieces = []
    root = Law(law.mean.to(exact.flat), law.root.to(exact.flat))
    for row in range(len(problem.labels)):
        part = exact.part(slice(row, row + 1))
        start = _starts(part, len(law.mean), torch.float64)

        def objective(
            values: np.ndarray, part: MapProblem = part, start: Tensor = start
        ) -> tuple[float, np.ndarray]:
            """Compute value and gradient at u."""
            u = torch.from_numpy(values).to(start).view_as(start).requires_grad_()
            value = 0.5 * u.square().sum() + weight * part.differences(_placed(root, u, part)).square().sum()
            (slopes,) = torch.autograd.grad(value, u)
            # One copy, so that a GPU is waited for once.
            both = torch.cat([value.detach().view(1), slopes.flatten()]).cpu().numpy()
            return float(both[0]), both[1:]

        options = {
            "maxiter": iterations,
            "maxfun": 2 * iterations,
            "maxcor": _MEMORY,
            "ftol": 0.0,
            "gtol": 0.0,
        }
        # SciPy's search runs on the host, in float64.
        minimum = optimize.minimize(
            objective, start.flatten().cpu().numpy(), jac=True, method="L-BFGS-B", options=options
        )
        pieces.append(_placed(root, torch.from_numpy(minimum.x).to(start).view_as(start), part))
    return torch.cat(pieces)
