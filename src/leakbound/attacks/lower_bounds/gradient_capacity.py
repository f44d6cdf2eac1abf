"""Capacity of one step of DP training, by the gradients that a trained network really has.

Theorem 4 of Tan et al. bounds it for gradients that point everywhere alike, and is used to match noise multipliers with
capacities. Real gradients of clipped length lie in few directions, so the same noise lets less through.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.accounting.dp import dp_capacity
from leakbound.attacks.images import rows
from leakbound.attacks.status import DIVERGED
from leakbound.config.attacks import GradientCapacityConfig
from leakbound.config.defenses import Defense
from leakbound.datasets import ImageDataset
from leakbound.models import build
from leakbound.randomness.seeding import torch_generator
from leakbound.training import memory
from leakbound.training.client_steps import client_step, record_gradients
from leakbound.training.precision import in_full_precision
from leakbound.training.stack import finite_slots

_CHUNK = 50  # records differentiated at once, fewer of a large network
_OPACUS_SLACK = 1e-6  # added to norms by the optimizer that the network was trained with


@in_full_precision
def measure(
    weights: Mapping[str, Tensor],
    *,
    replicas: Sequence[int],
    model: str,
    dataset: ImageDataset,
    config: GradientCapacityConfig,
    defense: Defense,
    level: float | None,
    batch_size: int,
    seed: int,
    slug: str,
    device: str | torch.device = "cpu",
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Capacity of one DP step at the weights that a training ended with.

    The step releases the sum of B clipped gradients with Gaussian noise of variance m²S² on each parameter. Of all
    distributions with the gradients' covariance Σ the Gaussian one tells most: ½ Σ ln(1 + B λ_i / (m²S²)).
    Variants: ``measured`` has the eigenvalues λ_i of the sample covariance of some members of each replica, the same
    ones at all levels, and falls short where there are few of them; ``trace`` is B tr Σ / (2 m²S²), never below it;
    ``corrected`` and ``printed`` are Theorem 4, which knows but tr Σ <= S².

    Args, beside those of :mod:`leakbound.attacks`:
        defense: ``dpsgd`` or ``dppsac``, at a ``level`` of noise m > 0: how gradients are clipped.
        batch_size: Expected number B of records in a step.

    Returns:
        Rows with unit −1 and metric ``capacity`` in nats per step, NaN where weights are not finite; and
        ``eigenvalues`` (replicas, records), ascending.

    Raises:
        ValueError: If the defense clips no gradients, or has no noise.

    Source:
        Tan et al. 2024, Theorem 4, with its factor ½ restored.
    """
    client = client_step(defense, level)
    if not defense.clips or not level:
        raise ValueError(f"{slug}: a step's capacity is measured for dpsgd and dppsac with noise, not at level {level}")
    generator = torch_generator(seed, dataset.name, "capacity")  # its weights are replaced
    network = build(model, dataset.colors, len(dataset.classes), generator, dataset.side).to(device)
    ratio = batch_size / (level * client.defense.max_grad_norm) ** 2
    parameters = sum(one.numel() for one in network.parameters())
    size = max(1, min(_CHUNK, memory.GRADIENT_BYTES // (4 * parameters)))
    bounds = {
        "corrected": dp_capacity(level, batch_size, parameters),
        "printed": dp_capacity(level, batch_size, as_printed=True),
    }
    tables, spectra = [], []
    for row, (replica, finite) in enumerate(zip(replicas, finite_slots(weights), strict=True)):
        members = dataset.pool.chosen(dataset.parts(replica).members[: config.records])
        images, labels = torch.from_numpy(members.images), torch.from_numpy(members.labels)
        spectrum = np.full(len(labels), np.nan)
        if finite:
            network.load_state_dict({name: tensor[row].to(device) for name, tensor in weights.items()})
            pieces = []  # kept in float32 on the CPU
            for some, targets in zip(images.split(size), labels.split(size), strict=True):
                gradients = record_gradients(network, some.to(device), targets.to(device))
                flat = torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1)
                pieces.append((client.record_weights(flat.norm(dim=1), _OPACUS_SLACK)[:, None] * flat).cpu())
            spectrum = covariance_spectrum(torch.cat(pieces))
        found = {
            "measured": 0.5 * float(np.log1p(ratio * spectrum).sum()),
            "trace": 0.5 * ratio * float(spectrum.sum()),
            **(bounds if finite else dict.fromkeys(bounds, math.nan)),
        }
        for name, value in found.items():
            tables.append(rows(replica, name, [-1], {"capacity": np.array([value])}, "" if finite else DIVERGED))
        spectra.append(spectrum)
    return pd.concat(tables, ignore_index=True), {"eigenvalues": np.stack(spectra)}


def covariance_spectrum(samples: Float[Tensor, "n d"]) -> Float[np.ndarray, " n"]:
    """Eigenvalues of the unbiased sample covariance that are not zero of necessity, ascending and never below 0.

    They are those of the n × n matrix of inner products, so that d may be large.

    Args:
        samples: One record each, n >= 2.
    """
    centered = samples - samples.mean(dim=0)
    products = (centered @ centered.T).double().cpu().numpy() / (len(samples) - 1)
    return np.linalg.eigvalsh(products).clip(min=0.0)
