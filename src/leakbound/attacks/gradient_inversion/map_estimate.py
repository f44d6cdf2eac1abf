"""Recovery of what gradients were computed on, by attackers who know the defense: one family, one interface.

``recursive`` solves for a single record in closed form. The others look for the most probable images under a
Gaussian law, of which the attacker's own records give mean and covariance and the channel the noise: they
minimise ½ Σ ‖u‖² + w · ‖difference of gradients‖² / ‖gradient‖² over images z = mean + root · u of all
records of a batch together. ``quasi_newton`` (L-BFGS) suits smooth networks. ``adam`` is not stopped by the
kinks of ReLU and pooling, and ``staged`` softens them, where a single record went through a chain of
convolutions (:mod:`leakbound.attacks.gradient_inversion.staged`). No search keeps to the range of pixels:
noisy images do not. On a GPU all but L-BFGS take several replicas in one stack.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg, optimize
from torch import Tensor, nn

from leakbound.attacks.gradient_inversion import staged
from leakbound.attacks.gradient_inversion.closed_form import Solving, solvable
from leakbound.attacks.gradient_inversion.gradient_matching import problems_at_once
from leakbound.attacks.gradient_inversion.searches import Part, beside, in_parts
from leakbound.channels.channel import GaussianChannel
from leakbound.config.attacks import GradientInversionConfig
from leakbound.training.client_steps import ClientStep, Gradients, record_gradients
from leakbound.training.factors import Factors, Stack, stack_of
from leakbound.training.stack import stacked

logger = logging.getLogger("leakbound")

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
    def of(cls, records: Float[np.ndarray, "n colors height width"], channel: GaussianChannel | None) -> Law:
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
            covariance += (
                noise if channel.basis is None else (channel.basis * channel.variances) @ channel.basis.T
            )
        values, vectors = linalg.eigh(covariance)
        return cls(torch.from_numpy(mean), torch.from_numpy(vectors * np.sqrt(values.clip(min=0))))


@dataclass(frozen=True)
class MapProblem:
    """Uploads of some batches, and all that the attacker knows besides.

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

    def part(self, rows: slice | Int[Tensor, " k"]) -> MapProblem:
        """Some of the batches."""
        chosen = {name: tensor[rows] for name, tensor in self.gradients.items()}
        return MapProblem(self.network, self.client, chosen, self.labels[rows], self.image_shape)

    def to(self, dtype: torch.dtype) -> MapProblem:
        """The same in another precision."""
        network = copy.deepcopy(self.network).to(dtype)
        gradients = {name: tensor.to(dtype) for name, tensor in self.gradients.items()}
        return MapProblem(network, self.client, gradients, self.labels, self.image_shape)

    @cached_property
    def flat(self) -> Float[Tensor, "n parameters"]:
        """Uploads in one row each."""
        return torch.cat([tensor.flatten(1) for tensor in self.gradients.values()], dim=1)

    @cached_property
    def sent(self) -> Tensor | None:
        """Coordinates that were sent, where a defense leaves out some, which are 0 then."""
        partly = self.client.defense.changes_gradients and not self.client.noise_std(self.labels.shape[1])
        return self.flat != 0 if partly else None

    def differences(
        self, images: Float[Tensor, "n records colors height width"]
    ) -> Float[Tensor, "n parameters"]:
        """Uploads that images lead to before noise, less the ones seen, over the length of the latter."""
        differences = self.averaged(images) - self.flat
        if self.sent is not None:
            differences = torch.where(self.sent, differences, 0.0)
        return differences / self.flat.norm(dim=1, keepdim=True).clamp(
            min=torch.finfo(differences.dtype).tiny
        )

    def averaged(
        self, images: Float[Tensor, "n records colors height width"]
    ) -> Float[Tensor, "n parameters"]:
        """Averages that a client forms of the gradients at images."""
        gradients = record_gradients(self.network, images.flatten(0, 1), self.labels.flatten())
        return self.weighed(gradients).unflatten(0, self.labels.shape).mean(1)

    def weighed(self, gradients: Gradients) -> Float[Tensor, "rows parameters"]:
        """Gradients of single records as they go into an average, in one row each."""
        rows = torch.cat([gradients[name].flatten(1) for name in self.gradients], dim=1)
        if self.client.defense.clips:
            rows = rows * self.client.record_weights(rows.norm(dim=1))[:, None]
        return rows


@dataclass(frozen=True)
class StackedProblem(MapProblem):
    """Batches of several networks, batch by batch with the networks side by side.

    Attributes:
        factors: Of the gradients of all networks, record by record with the networks side by side.
        slots: Number of networks.
    """

    factors: Factors
    slots: int

    @classmethod
    def of(cls, problems: Sequence[MapProblem], stack: Stack, part: Part) -> StackedProblem:
        """Some batches of each problem. Clients, numbers of records and shapes are those of all."""
        own = [(problems[place], rows) for place, rows in zip(part.searches, part.rows, strict=True)]
        gradients = {
            name: beside(one.gradients[name][rows] for one, rows in own) for name in own[0][0].gradients
        }
        labels = beside(one.labels[rows] for one, rows in own)
        known = (problems[0].network, problems[0].client, gradients, labels, problems[0].image_shape)
        return cls(*known, stack.factors(part.searches), len(own))

    def averaged(
        self, images: Float[Tensor, "n records colors height width"]
    ) -> Float[Tensor, "n parameters"]:
        """Averages that clients form of the gradients at images."""
        records, labels = (
            one.unflatten(0, (-1, self.slots)).transpose(1, 2) for one in (images, self.labels)
        )
        rows = self.weighed(self.factors.gradients(records.flatten(0, 2), labels.flatten()))
        return rows.unflatten(0, labels.shape).mean(1).flatten(0, 1)


class Method(NamedTuple):
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


def methods(problem: MapProblem, config: GradientInversionConfig) -> Iterator[Method]:
    """Members of the family that suit an upload, the surest one first.

    Behind noise of known variance s² on the gradient the weight is that of the likelihood, ‖gradient‖² / 2s².
    A network that is not searched in stages goes without that, and the log says why.
    """
    size = problem.labels.shape[1]
    noise = problem.client.noise_std(size)
    if noise:
        yield Method("adam", float(problem.flat.square().sum(1).mean()) / (2 * noise**2))
        return
    if not problem.client.defense.changes_gradients:
        if size == 1 and solvable(problem.network, problem.image_shape):
            yield Method("recursive", _EXACT_WEIGHT)
        yield Method("quasi_newton", _EXACT_WEIGHT)
    yield from (Method("adam", weight) for weight in sorted(config.gradient_weights))
    if size == 1 and not problem.client.defense.changes_gradients:
        try:
            staged.stages_of(problem.network, problem.image_shape)
        except ValueError as reason:
            logger.info("No staged search of %s: %s", type(problem.network).__name__, reason)
        else:
            yield Method("staged", staged.WEIGHT)


@dataclass(frozen=True)
class Recovering:
    """Search of an attacker for the images of each batch.

    Attributes:
        problem: The uploads.
        method: One of :func:`methods`.
        law: Law of what was released, may be missing for ``recursive``.
        iterations: Steps of a search.
    """

    problem: MapProblem
    method: Method
    law: Law | None
    iterations: int

    @property
    def kind(self) -> Hashable:
        """Searches of one attack by one method go together, whatever their weights."""
        return Recovering, self.method.name

    def alone(self) -> Recovery:
        """Images.

        Raises:
            ValueError: If a search has no law, or no equations lead to the images.
        """
        if self.method.name == "recursive":
            return _checked(self.problem, self._solving().alone()[:, None])
        if self.law is None:
            raise ValueError(f"{self.method.name} needs a law of the released images")
        if self.method.name == "quasi_newton":
            return _checked(
                self.problem, _quasi_newton(self.problem, self.law, self.method.weight, self.iterations)
            )
        if self.method.name == "staged":
            return self._staged([self], self.law)[0]
        return self._adam([self], self.law, lambda part: self.problem.part(part.rows[0]))[0]

    def together(self, others: Sequence[Recovering]) -> list[Recovery]:
        """Images of this search and of others in one stack. L-BFGS, a search of SciPy, takes one after another."""
        searches = [self, *others]
        problems = [one.problem for one in searches]
        if self.method.name == "recursive":
            first, *rest = (one._solving() for one in searches)
            return [
                _checked(one, images[:, None])
                for one, images in zip(problems, first.together(rest), strict=True)
            ]
        if self.method.name == "staged" and self.law is not None:
            return self._staged(searches, self.law)
        stack = stack_of([one.network for one in problems], self.problem.image_shape)
        if self.method.name != "adam" or self.law is None or stack is None:
            return [one.alone() for one in searches]
        return self._adam(searches, self.law, lambda part: StackedProblem.of(problems, stack, part))

    def _solving(self) -> Solving:
        """Search for a solution of equations."""
        return Solving(self.problem.network, self.problem.gradients, self.problem.image_shape)

    def _adam(
        self, searches: list[Recovering], law: Law, batches: Callable[[Part], MapProblem]
    ) -> list[Recovery]:
        """Images of several searches, which have a weight each; some batches at once."""

        def climbed(part: Part) -> Tensor:
            """Images of some batches of each."""
            weights = [searches[place].method.weight for place in part.searches] * len(part.rows[0])
            return _climbed(batches(part), law, weights, self.iterations)

        return self._in_parts(searches, climbed)

    def _staged(self, searches: list[Recovering], law: Law) -> list[Recovery]:
        """Images of several searches in stages, by what the linear layers of each network reveal."""
        shape, problems = self.problem.image_shape, [one.problem for one in searches]
        known = [staged.features_of(one.network, one.gradients, shape) for one in problems]
        device = known[0].values.device
        weights = {
            name: value.detach() for name, value in stacked([one.network for one in problems], device).items()
        }
        stages = staged.stages_of(self.problem.network, shape)

        def searched(part: Part) -> Tensor:
            """Images of some records of each."""
            own = list(zip(part.searches, part.rows, strict=True))
            side = (beside(known[place][field][rows] for place, rows in own) for field in (0, 1))
            seen = {
                name: beside(problems[place].gradients[name][rows] for place, rows in own) for name in weights
            }
            encoder = staged.Encoder(stages, {name: value[part.searches] for name, value in weights.items()})
            found = staged.search(
                encoder, staged.Features(*side), seen, (law.mean, law.root), shape, self.iterations
            )
            return found[:, None]

        return self._in_parts(searches, searched, staged.STARTS)

    def _in_parts(
        self, searches: list[Recovering], images: Callable[[Part], Tensor], starts: int = 1
    ) -> list[Recovery]:
        """Images of several searches, which begin at some points each, when those of a part are found at once."""
        problem = self.problem
        like = next(iter(problem.gradients.values()))
        found = [like.new_empty(*one.problem.labels.shape, *problem.image_shape) for one in searches]
        rows = problems_at_once(problem.network, problem.image_shape, like.device) // (
            problem.labels.shape[1] * starts
        )
        in_parts(
            [len(one) for one in found], max(1, rows), like.device, lambda part: part.put(images(part), found)
        )
        return [_checked(one.problem, own) for one, own in zip(searches, found, strict=True)]


def _checked(problem: MapProblem, images: Tensor) -> Recovery:
    """Images, and how well they explain what was uploaded."""
    with torch.no_grad():
        residuals = problem.to(torch.float64).differences(images.double()).norm(dim=1)
    lost = ~(residuals.isfinite() & images.flatten(1).isfinite().all(1))
    images = torch.where(lost.view(-1, 1, 1, 1, 1), torch.nan, images.float())
    return Recovery(images.cpu().numpy(), torch.where(lost, torch.inf, residuals).cpu().numpy())


def _placed(law: Law, u: Tensor, problem: MapProblem) -> Tensor:
    """Images z = mean + root u."""
    flat = law.mean.to(u) + u @ law.root.to(u).T
    return flat.view(*u.shape[:2], *problem.image_shape)


def _starts(problem: MapProblem, values: int, dtype: torch.dtype) -> Tensor:
    """First u of each batch: the mean, moved a little so that records of one class do not stay alike."""
    count, size = problem.labels.shape
    generator = torch.Generator().manual_seed(size)
    moved = (
        0.1 * torch.randn(size, values, generator=generator, dtype=dtype)
        if size > 1
        else torch.zeros(1, values)
    )
    return moved.to(problem.labels.device, dtype).expand(count, -1, -1).clone()


def _climbed(part: MapProblem, law: Law, weights: Sequence[float], iterations: int) -> Tensor:
    """Images of batches, each with a weight of the gradient against the law: Adam on u with a cosine schedule."""
    root = Law(law.mean.to(part.flat), law.root.to(part.flat))
    own = torch.tensor(weights, dtype=torch.float64).to(part.flat)
    u = _starts(part, len(law.mean), part.flat.dtype).requires_grad_()
    optimizer = torch.optim.Adam([u], lr=_STEP, fused=u.is_cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    for _ in range(iterations):
        differences = part.differences(_placed(root, u, part)).square().sum(1)
        (u.grad,) = torch.autograd.grad(0.5 * u.square().sum() + (own * differences).sum(), u)
        optimizer.step()
        schedule.step()
    return _placed(root, u.detach(), part)


def _quasi_newton(problem: MapProblem, law: Law, weight: float, iterations: int) -> Tensor:
    """L-BFGS on u in float64, batch by batch."""
    exact, pieces = problem.to(torch.float64), []
    root = Law(law.mean.to(exact.flat), law.root.to(exact.flat))
    for row in range(len(problem.labels)):
        part = exact.part(slice(row, row + 1))
        start = _starts(part, len(law.mean), torch.float64)

        def objective(
            values: np.ndarray, part: MapProblem = part, start: Tensor = start
        ) -> tuple[float, np.ndarray]:
            """Value and gradient at u."""
            u = torch.from_numpy(values).to(start).view_as(start).requires_grad_()
            value = 0.5 * u.square().sum() + weight * part.differences(_placed(root, u, part)).square().sum()
            (slopes,) = torch.autograd.grad(value, u)
            both = (
                torch.cat([value.detach().view(1), slopes.flatten()]).cpu().numpy()
            )  # a GPU is waited for once
            return float(both[0]), both[1:]

        minimum = optimize.minimize(
            objective,
            start.flatten().cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": iterations,
                "maxfun": 2 * iterations,
                "maxcor": _MEMORY,
                "ftol": 0.0,
                "gtol": 0.0,
            },
        )
        pieces.append(_placed(root, torch.from_numpy(minimum.x).to(start).view_as(start), part))
    return torch.cat(pieces)
