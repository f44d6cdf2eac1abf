"""Records of clients, and one round: train from what the server sent, clip, add noise. Many form one stack.

Parameters are passed as vectors (clients, d) in the order of the network's parameters.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.randomness.grid import perturbed
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import NoiseSource
from leakbound_lab.training import stack
from leakbound_lab.training.batches import ShuffledBatches
from leakbound_lab.training.eager_optimizers import SGD


def split_records(
    labels: Int[np.ndarray, " n"],
    n_clients: int,
    records: int,
    generator: np.random.Generator,
    concentration: float | None = None,
) -> Int[np.ndarray, "clients records"]:
    """Draw disjoint sets of records, equally many for each client.

    Args:
        labels: Class of each record.
        n_clients: Number of clients.
        records: Number of records of each client.
        generator: Draws the records.
        concentration: None draws uniformly. A number > 0 draws each client's class proportions from a
            symmetric Dirichlet distribution of this concentration, and then its records class by class. Once a class is
            used up, the client's other records come from the remaining classes. Small numbers give each
            client few classes.

    Raises:
        ValueError: If there are fewer records than asked for.

    Source:
        PMIDP-FL, Sec. VI (uniform). Hsu et al. 2019 (Dirichlet).
    """
    if n_clients * records > len(labels):
        raise ValueError(
            f"{n_clients} clients with {records} records each need {n_clients * records} members, there are "
            f"{len(labels)}; take fewer clients or records, or more members"
        )
    if concentration is None:
        return generator.permutation(len(labels))[: n_clients * records].reshape(n_clients, records)
    pools = [generator.permutation(np.flatnonzero(labels == label)).tolist() for label in np.unique(labels)]
    clients: list[list[int]] = [[] for _ in range(n_clients)]
    for of_client in clients:
        shares = generator.dirichlet(np.full(len(pools), concentration))
        while len(of_client) < records:
            left = np.array([len(pool) for pool in pools])
            open_shares = np.where(
                left > 0, np.maximum(shares, 1e-12), 0.0
            )  # a class of share 0 is the last resort
            counts = generator.multinomial(records - len(of_client), open_shares / open_shares.sum())
            for pool, count in zip(pools, np.minimum(counts, left), strict=True):
                of_client += [pool.pop() for _ in range(count)]
    return np.array(clients, dtype=np.int64)


def flattened(params: stack.Parameters) -> Float[Tensor, "slots d"]:
    """Return the parameters of each slot as one vector (slots, d)."""
    return torch.cat([value.detach().reshape(len(value), -1) for value in params.values()], dim=1)


def unflattened(vectors: Float[Tensor, "slots d"], model: nn.Module) -> stack.Parameters:
    """Copy vectors (slots, d) into parameters of ``model``, one slot each."""
    parameters = dict(model.named_parameters())
    pieces = vectors.split([value.numel() for value in parameters.values()], dim=1)
    return {
        name: piece.reshape(-1, *parameters[name].shape).clone()
        for name, piece in zip(parameters, pieces, strict=True)
    }


def draw_batches(
    records: int, batch_size: int, local_epochs: int, seed: int, *words: int | str
) -> Int[Tensor, "steps batch"]:
    """Draw the batches of one client for all local epochs of one round, from the seed of this round.

    Args:
        records: Number of records of the client.
        batch_size: Records in a batch. Fewer if the client has fewer.
        local_epochs: τ, passes through the client's records in one round.
        seed: Seed of the configuration.
        *words: Dataset, and numbers of replica, client and round, for the seed of this round.

    Returns:
        Positions among the client's records (steps, batch).
    """
    *replica, client, round_ = words
    generator = torch_generator(seed, *replica, "batches", client, round_)
    size = min(batch_size, records)
    batches = ShuffledBatches(records, size, generator)
    return torch.stack([batches.draw() for _ in range(math.ceil(local_epochs * records / size))])


def train_clients(
    model: nn.Module,
    start: Float[Tensor, " d"],
    images: Float[Tensor, "n colors height width"],
    labels: Int[Tensor, " n"],
    batches: Int[Tensor, "clients steps batch"],
    learning_rate: float,
) -> Float[Tensor, "clients d"]:
    """Train several clients in parallel by plain SGD, all from the same parameters.

    Args:
        model: Architecture. Its parameters are not used.
        start: (d,), the parameters that the server sent.
        images: Records of all clients, on the device of ``start``.
        labels: Their classes.
        batches: Rows of ``images`` that each client uses in each step.
        learning_rate: Learning rate of SGD, > 0.

    Returns:
        (clients, d), parameters of each client after its last step.
    """
    params = unflattened(start.expand(len(batches), -1), model)
    values = [value.requires_grad_() for value in params.values()]
    optimizer = SGD(values, lr=learning_rate, fused=True)
    for rows in batches.unbind(1):
        optimizer.zero_grad()
        stack.loss(stack.forward(model, params, images[rows]), labels[rows]).sum().backward()
        optimizer.step()
    return flattened(params)


def clip(
    vectors: Float[Tensor, "clients d"], max_norms: Sequence[float]
) -> tuple[Float[Tensor, "clients d"], list[float]]:
    """Scale vectors to their thresholds, w/max(1, ‖w‖/C).

    Args:
        vectors: (clients, d), w.
        max_norms: C of each client, > 0.

    Returns:
        The clipped vectors, and the norms before clipping.
    """
    norms = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
    limits = torch.tensor(max_norms, dtype=torch.float64, device=vectors.device)
    shrink = (limits / norms.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)
    return vectors * shrink.to(vectors.dtype)[:, None], norms.tolist()


def clip_around(
    vectors: Float[Tensor, "clients d"],
    start: Float[Tensor, " d"],
    max_norms: Sequence[float],
    clipped: Literal["parameters", "update"],
) -> tuple[Float[Tensor, "clients d"], list[float]]:
    """Clip parameters, or their change from what the server sent.

    Args:
        vectors: (clients, d), parameters after local training.
        start: (d,), parameters that the server sent.
        max_norms: Threshold of each client, > 0.
        clipped: What the threshold limits, ``parameters`` or ``update``.

    Returns:
        The clipped parameters, and the norms before clipping.
    """
    if clipped == "parameters":
        return clip(vectors, max_norms)
    change, norms = clip(vectors - start, max_norms)
    return start + change, norms


def perturb(vector: Float[Tensor, " d"], std: float, source: NoiseSource) -> Float[Tensor, " d"]:
    """Add Gaussian noise to a vector.

    Args:
        vector: (d,).
        std: Standard deviation of the noise on each coordinate. At 0 the vector is returned unchanged.
        source: Source of the noise, on the device of the vector.
    """
    return vector if std == 0 else perturbed(vector, std, source)
