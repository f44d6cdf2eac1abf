"""Capacity of one step of DP training, by the gradients that a trained network really has.

Theorem 4 of Tan et al. bounds it for gradients that point everywhere alike, and is used to match noise
multipliers with capacities. Real gradients of clipped length lie in few directions, so that the same noise
leaks less.
"""

import math

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.accounting.dp import dp_capacity
from leakbound.randomness.seeding import torch_generator
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.rows import DIVERGED, rows
from leakbound_lab.config.attacks import GradientCapacityConfig
from leakbound_lab.datasets import Split
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import constant_gradients
from leakbound_lab.training.client_steps import ClientStep
from leakbound_lab.training.stack import finite_slots

_CHUNK = 50  # records differentiated at once, fewer of a large network
_OPACUS_SLACK = 1e-6  # added to norms by the optimizer that the network was trained with


@in_full_precision
def measure_capacity(request: AttackRequest[GradientCapacityConfig]) -> Attacked:
    """Compute the capacity of one DP step at the weights that a training ended with.

    The step releases the sum of B clipped gradients with Gaussian noise of variance m²S² on each parameter.
    Among all distributions with the gradients' covariance Σ the Gaussian one reveals most: ½ Σ ln(1 + B λ_i /
    (m²S²)). Variants: ``measured`` has the eigenvalues λ_i of the sample covariance of some members of each
    replica, the same ones at all levels, and falls short where there are few of them. ``trace`` is B tr Σ /
    (2 m²S²), never below it. ``corrected`` and ``printed`` are Theorem 4, which knows only tr Σ <= S².

    Args:
        request: Arguments of the attack, with the defense ``dpsgd`` or ``dppsac`` and its noise multiplier m
            > 0, and the expected number B of records in a step.

    Returns:
        Rows with unit −1 and metric ``capacity`` in nats per step, NaN where weights are not finite. And the
        array ``eigenvalues`` (replicas, records), ascending.

    Raises:
        ValueError: If the defense clips no gradients, or has no noise.

    Source:
        Tan et al. 2024, Theorem 4, with its factor ½ restored.
    """
    client = request.client()
    level = client.level
    # Its weights are replaced.
    network = request.network(torch_generator(request.seed, request.dataset.name, "capacity"))
    ratio = request.batch_size / (level * client.defense.max_grad_norm) ** 2
    parameters = sum(parameter.numel() for parameter in network.parameters())
    bounds = {
        "corrected": dp_capacity(level, request.batch_size, parameters),
        "printed": dp_capacity(level, request.batch_size, as_printed=True),
    }
    results = []
    for place, finite in enumerate(finite_slots(request.weights)):
        replica = request.replicas[place]
        member_rows = request.dataset.parts(replica).members[: request.config.records]
        members = request.dataset.pool.take(member_rows)
        spectrum = np.full(len(members), np.nan)
        if finite:
            weights = {name: tensor[place].to(request.device) for name, tensor in request.weights.items()}
            network.load_state_dict(weights)
            spectrum = covariance_spectrum(_clipped_gradients(network, client, members))
        capacities = {
            "measured": 0.5 * float(np.log1p(ratio * spectrum).sum()),
            "trace": 0.5 * ratio * float(spectrum.sum()),
            **(bounds if finite else dict.fromkeys(bounds, math.nan)),
        }
        status = "" if finite else DIVERGED
        tables = [
            rows(replica, name, [-1], {"capacity": np.array([value])}, status)
            for name, value in capacities.items()
        ]
        results.append((pd.concat(tables, ignore_index=True), {"eigenvalues": spectrum}))
    return joined(results)


def _clipped_gradients(
    network: nn.Module, client: ClientStep, records: Split
) -> Float[Tensor, "n parameters"]:
    """Compute gradients of records as a client weighs them, float32 on the CPU, some at a time."""
    parameters = list(network.parameters())
    fitting = memory.GRADIENT_BYTES // (4 * sum(parameter.numel() for parameter in parameters))
    size = max(1, min(_CHUNK, fitting))
    device = parameters[0].device
    images = torch.from_numpy(records.images)
    labels = torch.from_numpy(records.labels)
    pieces = []
    for chunk, targets in zip(images.split(size), labels.split(size), strict=True):
        gradients = constant_gradients(network, chunk.to(device), targets.to(device))
        flat = torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1)
        pieces.append((client.record_weights(flat.norm(dim=1), _OPACUS_SLACK)[:, None] * flat).cpu())
    return torch.cat(pieces)


def covariance_spectrum(samples: Float[Tensor, "n d"]) -> Float[np.ndarray, " n"]:
    """Compute the eigenvalues of the unbiased sample covariance that can differ from 0, ascending.

    They are those of the n × n matrix of inner products, so that d may be large. None is below 0.

    Args:
        samples: One record each, n >= 2.
    """
    centered = samples - samples.mean(dim=0)
    products = (centered @ centered.T).double().cpu().numpy() / (len(samples) - 1)
    return np.linalg.eigvalsh(products).clip(min=0.0)
