"""Exact recovery of all records of a batch from the average gradient of a linear layer below ReLUs (SPEAR).

The gradient of the layer's weights is Δ Xᵀ: records X (inputs, B) and slopes of the loss by the layer's outputs
Δ (outputs, B). Its rank is B, so that its singular vectors give Δ = L Q for an unknown Q (B, B). A ReLU that is
off for a record makes a zero in that record's column of Δ. Where B - 1 rows of L are rows of such zeros, they
determine the column of Q up to its length, which the gradient of the bias gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import nn

from leakbound.channels.channel import linear_estimate
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.gradient_inversion.layer_chain import calls_of, equal
from leakbound_lab.attacks.rows import rows
from leakbound_lab.attacks.search_images import LARGEST_PIXEL
from leakbound_lab.config.attacks import SpearConfig
from leakbound_lab.models.gradients import Gradients
from leakbound_lab.models.layers import whole

_PURPOSE = "spear"
_AT_ONCE = 4096  # sets of rows that are solved together
_ZERO = 5.0  # standard deviations of the noise below which an entry of Δ may be 0
_ROUNDING = 1e-7  # standard deviation of the rounding of float32, relative to the largest singular value
_EDGE = 1.02  # times the largest singular value of noise alone, up to which one may be of noise
_LOOSE = (
    30.0  # times that the zeros of a direction from a few rows are off, before all of its zeros determine it
)
_SMALL = 1e-3  # part of a usual row up to which they may be off
_MORE = 2  # zeros of a direction in addition to those that it was solved for
_ESSENTIAL = 1 - 1e-6  # leverage from which a row is needed to determine a direction
_ALIKE = 1 - 1e-9  # cosine from which two directions are one; those of similar records differ little
_INDEPENDENT = 1e-3  # least singular value of directions of norm 1 that can belong to different records
_EXPLAINED = 0.999  # part of the ReLUs that a solution explains, from which the search ends
_TRIED = 500  # directions, those with most zeros, that are tried in place of one of a solution
RECOVERED_MSE = 1e-6
"""Mean squared error, on pixels in [0, 1], up to which an image is called recovered: 60 dB."""


@dataclass(frozen=True)
class Batch:
    """Inputs of a layer that explain its gradient.

    Attributes:
        inputs: (B, n), the inputs of all records, in any order, float64.
        explained: Part of the ReLUs above that are on for a record where its slope is not 0, and only there.
        tried: Sets of rows that were solved.
    """

    inputs: Float[np.ndarray, "B n"]
    explained: float
    tried: int


@in_full_precision
def invert_batches(request: AttackRequest[SpearConfig]) -> Attacked:
    """Recover all records of batches from the uploads of a defended client, exactly where there is no noise on them.

    The attacker knows the network, which is untrained, and the number of records in an upload. It knows no label.
    Images behind a channel are recovered as the network saw them, and the record is estimated from these. Where no
    solution explains an upload, the attacker guesses the mean auxiliary image for each record.

    Returns:
        Rows whose unit is the batch. For ``attack`` and ``prior``: ``mse``, the error of single records in their best
        order. For ``attack`` also ``recovered``, the part of the images that the network saw whose error is at most
        ``RECOVERED_MSE``, and ``explained`` of :class:`Batch`, 0 without a solution. For ``oracle``, behind a channel,
        the ``mse`` of the best linear estimates from the images that the network saw. And the arrays ``truth`` and
        ``attack`` (replicas, batches, B, colors, height, width).

    Raises:
        ValueError: If the network does not begin with a linear layer below ReLUs, has fewer of these than records in a
            batch, or the members do not fill a batch.

    Source:
        Dimitrov, Baader, Müller and Vechev 2024, "SPEAR: Exact gradient inversion of batches in federated learning",
        NeurIPS. Zeros are judged by the noise of the upload, estimated from the singular values beyond B.
    """
    return joined(_attacked(request, replica) for replica in request.replicas)


def _attacked(request: AttackRequest[SpearConfig], replica: int) -> Attacked:
    """Attack the batches of one replica, and return rows and pictures."""
    config = request.config
    client = request.client()
    size = client.defense.records_in_step(request.level, request.batch_size)
    network = request.untrained(_PURPOSE, replica)
    name = first_layer(network, request.image_shape)
    if name is None or min(_linear(network, name).weight.shape) <= size:
        raise ValueError(
            f"{request.slug}: spear needs a network that begins with a linear layer of more than {size} inputs and "
            "ReLUs, the records of a batch; take mlp or mlp_wide, or a smaller batch"
        )
    # The members of each batch. A larger batch holds the smaller one.
    members = request.dataset.members(replica)
    draws = request.generators(_PURPOSE, replica)
    order = draws("images").permutation(len(members))
    count = min(config.batches, len(order) // size)
    if not count:
        raise ValueError(
            f"{request.slug}: a batch of {size} records: there are only {len(order)} members; take a smaller one"
        )
    batch_rows = np.column_stack([order[:count], order[count : count * size].reshape(size - 1, count).T])
    truth = members.images[batch_rows]
    images = torch.from_numpy(truth).to(request.device)
    labels = torch.from_numpy(members.labels[batch_rows]).to(request.device)
    # What the client sends, and what its network saw, by the same noise.
    sent = client.upload(network, images, labels, request.noise(_PURPOSE, replica)("noise"))
    seen = client.released(images, request.noise(_PURPOSE, replica)("noise")).cpu().numpy()
    # Each upload is solved by itself.
    prior = np.broadcast_to(request.dataset.aux.images.mean(axis=0), truth.shape).copy()
    restored = seen.copy()
    values = {metric: np.zeros(count) for metric in ("recovered", "explained")}
    solved = np.zeros(count, bool)
    for batch in range(count):
        gradients = {parameter: gradient[batch] for parameter, gradient in sent.gradients.items()}
        generator = draws(f"rows {batch}")
        solution = solve_batch(network, name, gradients, size, generator, config.samples)
        if solution is None:
            continue
        images_seen = solution.inputs.reshape(seen[batch].shape).astype(np.float32)
        images_seen = images_seen[_matched(seen[batch], images_seen)]
        errors = metrics.mse(seen[batch], images_seen)
        values["recovered"][batch] = float((errors <= RECOVERED_MSE).mean())
        values["explained"][batch] = solution.explained
        restored[batch] = images_seen
        solved[batch] = True
    # The records are estimated from all images at once, which factors the channel's covariance once.
    estimates = _estimated(request, np.concatenate([restored, seen]).reshape(-1, *truth.shape[2:]))
    guesses, oracle = estimates.reshape(2, *truth.shape)
    attack = np.where(solved[:, None, None, None, None], guesses, prior)
    # Errors of single records, in their best order.
    variants = {"attack": attack, "prior": prior}
    if client.channel is not None:
        variants["oracle"] = oracle
    tables = []
    for variant, guesses in variants.items():
        pairs = list(zip(truth, guesses, strict=True))
        errors = np.array(
            [float(metrics.mse(true, guess[_matched(true, guess)]).mean()) for true, guess in pairs]
        )
        columns = {"mse": errors} | (values if variant == "attack" else {})
        tables.append(rows(replica, variant, range(count), columns))
    return pd.concat(tables, ignore_index=True), {"truth": truth, "attack": attack}


def _estimated(request: AttackRequest[SpearConfig], images: metrics.Pictures) -> metrics.Pictures:
    """Estimate records from images that the network saw, within the pixel range."""
    if request.channel is not None:
        images = linear_estimate(images, request.channel, request.known_moments())
    return np.clip(images, -LARGEST_PIXEL, LARGEST_PIXEL)


def _matched(truth: metrics.Pictures, guesses: metrics.Pictures) -> np.ndarray:
    """Return the order of guesses in which they are nearest to the true images."""
    flat, guessed = (images.reshape(len(images), -1).astype(np.float64) for images in (truth, guesses))
    distances = ((flat[:, None] - guessed[None]) ** 2).mean(axis=2)
    return linear_sum_assignment(distances)[1]


def first_layer(network: nn.Module, image_shape: tuple[int, int, int]) -> str | None:
    """Return the name of the linear layer below ReLUs that sees the image, or None if there is none.

    Args:
        network: A network in evaluation mode.
        image_shape: (colors, height, width).

    Example:
        >>> layers = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> first_layer(layers, (1, 2, 2))
        '1'
    """
    image, calls = calls_of(network, image_shape)
    if len(calls) < 2 or not isinstance(calls[0].layer, nn.Linear) or calls[0].layer.bias is None:
        return None
    sees_image = whole(calls[0].layer) and equal(image, calls[0].inputs)
    return calls[0].name if sees_image and equal(F.relu(calls[0].output), calls[1].inputs) else None


def solve_batch(
    network: nn.Module,
    name: str,
    gradients: Gradients,
    size: int,
    generator: np.random.Generator,
    samples: int,
) -> Batch | None:
    """Find the inputs of a linear layer below ReLUs from the gradient of a batch.

    Args:
        network: The network.
        name: Name of the layer.
        gradients: Parameter name to its gradient, summed or averaged over the records, with or without noise.
        size: Records in the batch, at least 1 and fewer than the layer has outputs or inputs.
        generator: Source of the sets of rows.
        samples: Most sets of rows that are solved.

    Returns:
        The solution that explains most of the ReLUs. None if fewer than ``size`` directions were found, or if the
        noise hides even the span of the records: the singular vectors of a matrix whose singular values are no
        larger than those of its noise reveal nothing of it (Benaych-Georges and Nadakuditi 2012, "The singular
        values and vectors of low rank perturbations of large rectangular random matrices").
    """
    layer = _linear(network, name)
    weight, bias = (parameter.detach().double().cpu().numpy() for parameter in (layer.weight, layer.bias))
    gradient, of_bias = (gradients[f"{name}.{part}"].double().cpu().numpy() for part in ("weight", "bias"))
    # Rank of the gradient: its left factor L = U S, and the noise on an entry of L q for q of norm 1.
    left, singular, right = np.linalg.svd(gradient, full_matrices=False)
    factor = left[:, :size] * singular[:size]
    right = right[:size]
    outputs, inputs = gradient.shape
    noise = np.linalg.norm(singular[size:]) / np.sqrt(max(1, outputs - size) * max(1, inputs - size))
    noise = max(noise, _ROUNDING * singular[0] / np.sqrt(outputs))
    if singular[size - 1] <= _EDGE * noise * (np.sqrt(outputs) + np.sqrt(inputs)):
        return None
    problem = _Factors(factor, weight @ right.T, bias, of_bias, _ZERO * noise)
    # Directions of records are sought until some of them explain the ReLUs.
    best: Batch | None = None
    for tried, directions in problem.directions(generator, samples):
        solution = problem.best_directions(directions)
        if solution is not None and (best is None or solution[0] > best.explained):
            best = Batch(np.linalg.solve(solution[1], right), solution[0], tried)
        if best is not None and best.explained >= _EXPLAINED:
            break
    return best


def _linear(network: nn.Module, name: str) -> nn.Linear:
    """Return the linear layer of a name."""
    layer = network.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


@dataclass(frozen=True)
class _Factors:
    """Gradient of a layer in factors of its rank.

    Attributes:
        left: (outputs, B), L of gradient = L R, R with orthonormal rows.
        seen: (outputs, B), weight times Rᵀ.
        bias: (outputs,), bias of the layer.
        of_bias: (outputs,), gradient of the bias, the sum of the columns of Δ.
        zero: Entry of L q, for q of norm 1, up to which it counts as 0.
    """

    left: Float[np.ndarray, "outputs B"]
    seen: Float[np.ndarray, "outputs B"]
    bias: Float[np.ndarray, " outputs"]
    of_bias: Float[np.ndarray, " outputs"]
    zero: float

    def directions(
        self, generator: np.random.Generator, samples: int
    ) -> Iterator[tuple[int, Float[np.ndarray, "directions B"]]]:
        """Yield the number of sets of rows that were solved, and all directions, those with most zeros first.

        It yields as soon as there are B directions, and then whenever there are new ones.
        """
        size = self.left.shape[1]
        if size == 1:
            yield 0, np.ones((1, 1))
            return
        # Rows that are 0 for all records say nothing.
        live = self.left[np.linalg.norm(self.left, axis=1) > self.zero * np.sqrt(size)]
        directions = np.zeros((0, size))
        zeros = np.zeros(0, np.int64)
        for solved in range(0, samples if len(live) > size else 0, _AT_ONCE):
            count = min(_AT_ONCE, samples - solved)
            before = len(directions)
            for direction in self._orthogonal(live, generator, count):
                if not (np.abs(directions @ direction) >= _ALIKE).any():
                    directions = np.vstack([directions, direction])
                    zeros = np.append(zeros, (np.abs(live @ direction) <= self.zero).sum())
            added = len(directions) > before
            order = np.argsort(-zeros, kind="stable")[:_TRIED]
            directions = directions[order]
            zeros = zeros[order]
            if added and len(directions) >= size:
                yield solved + count, directions

    def _orthogonal(
        self, live: Float[np.ndarray, "live B"], generator: np.random.Generator, count: int
    ) -> Iterator[Float[np.ndarray, " B"]]:
        """Yield directions that random sets of B - 1 rows determine, if other rows agree with each of these."""
        size = live.shape[1]
        row_sets = np.argpartition(generator.random((count, len(live))), size - 1, axis=1)[:, : size - 1]
        systems = torch.from_numpy(live[row_sets])
        solved, failed = torch.linalg.solve_ex(systems[:, :, :-1], -systems[:, :, -1:])
        vectors = F.normalize(F.pad(solved[..., 0], (0, 1), value=1.0), dim=1)
        vectors = vectors[(failed == 0) & vectors.isfinite().all(1)]
        usual = float(np.median(np.linalg.norm(live, axis=1)))
        loose = max(self.zero, min(_LOOSE * self.zero, _SMALL * usual))
        zeros = ((vectors @ torch.from_numpy(live).T).abs() <= loose).sum(1)
        for vector in vectors[zeros >= size - 1 + _MORE].numpy():
            refined = np.linalg.svd(live[np.abs(live @ vector) <= loose])[2][-1]
            rows = live[np.abs(live @ refined) <= self.zero]
            if len(rows) < size - 1 + _MORE:
                continue
            left, _, right = np.linalg.svd(rows, full_matrices=False)
            # ReLUs that are off for two records leave a direction open, which one more row then closes.
            if (left[:, : size - 1] ** 2).sum(axis=1).max() < _ESSENTIAL:
                yield right[-1]

    def best_directions(
        self, directions: Float[np.ndarray, "directions B"]
    ) -> tuple[float, Float[np.ndarray, "B B"]] | None:
        """Return the part of the ReLUs that the best B of some directions explain, and these as columns of Q.

        The directions with most zeros come first. Each of the others is then tried in place of each of these.
        """
        size = self.left.shape[1]
        basis = np.zeros((0, size))
        for direction in directions:
            grown = np.vstack([basis, direction])
            if np.linalg.svd(grown, compute_uv=False)[-1] > _INDEPENDENT:
                basis = grown
            if len(basis) == size:
                break
        if len(basis) < size:
            return None
        explained, columns = self._solutions(basis[None])
        for direction in directions:
            if explained[0] >= _EXPLAINED:
                break
            swapped = np.repeat(basis[None], size, axis=0)
            swapped[np.arange(size), np.arange(size)] = direction
            values, solutions = self._solutions(swapped)
            place = int(values.argmax())
            if values[place] > explained[0]:
                explained = values[[place]]
                columns = solutions[[place]]
                basis = swapped[place]
        return (float(explained[0]), columns[0]) if np.isfinite(explained[0]) else None

    def _solutions(
        self, bases: Float[np.ndarray, "n B B"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n B B"]]:
        """Return the part of the ReLUs that each basis explains, and its directions, scaled to the columns of Q.

        The gradient of the bias is the sum of the columns of Δ, so that L times the sum of the columns of Q is known,
        and with it the sum. What has no solution explains -inf.
        """
        total = np.linalg.lstsq(self.left, self.of_bias, rcond=None)[0]
        explained = np.full(len(bases), -np.inf)
        columns = bases.transpose(0, 2, 1).copy()
        sound = np.linalg.cond(bases) < 1 / _INDEPENDENT**2
        lengths = np.linalg.solve(
            columns[sound], np.broadcast_to(total[:, None], (int(sound.sum()), len(total), 1))
        )
        on = np.abs(self.left @ columns[sound]) > self.zero
        columns[sound] *= lengths.transpose(0, 2, 1)
        sound[sound] = (lengths != 0).all(axis=(1, 2))
        on = on[(lengths != 0).all(axis=(1, 2))]
        outputs = self.seen @ np.linalg.inv(columns[sound]).transpose(0, 2, 1) + self.bias[:, None]
        explained[sound] = ((outputs > 0) == on).mean(axis=(1, 2))
        return explained, columns
