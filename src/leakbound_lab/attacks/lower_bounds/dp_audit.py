"""Audit of uploads: canaries included by fair coins, and the lower limit of ε that they prove.

The server is malicious, as the accountants of DP allow. It sends a linear network, and the client's records
are images with one lit pixel each. Their gradients are orthogonal and longer than the clipping bound, so that
none of them hides another one. The client applies its usual step (:mod:`leakbound_lab.training.client_steps`).
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn

from leakbound.accounting.dp import poisson_epsilon
from leakbound.accounting.one_run import gaussian_epsilon, guess, one_run_epsilon, one_run_gaussian
from leakbound.randomness.sources import NoiseSource
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.rows import row, table_of
from leakbound_lab.config.attacks import AuditConfig
from leakbound_lab.training.client_steps import ClientStep, client_step

_CLASSES = 2
_BRIGHT = 1e6  # value of the lit pixel, so large that clipping decides the length of the gradient


@in_full_precision
def audit_uploads(request: AttackRequest[AuditConfig]) -> Attacked:
    """Compute lower limits of ε that the uploads of defended clients demonstrate, and the accountant's ε.

    Each canary is a client's record or not, by a coin of its own, and takes part in each step by Poisson
    sampling. Its score is the logarithm of the likelihood ratio of all uploads along its clipped gradient.
    The coins of the clearest scores are guessed, a part that is stated beforehand. Clients are independent,
    so that their canaries count as those of one mechanism. Variants: ``one_run`` holds for any mechanism.
    ``gaussian``, where nothing is subsampled, speaks against accountants of the Gaussian mechanism, and is
    far tighter. ``bound`` is the accountant's.

    Args:
        request: Arguments of the attack, with the defense ``dpsgd`` or ``dppsac`` and its noise multiplier.
            The server sends its own network and samples batches, so that the model and the batch size stay
            unused.

    Returns:
        Rows with unit -1: ``epsilon`` of each variant, which is a one-sided lower limit for the first two,
        and for variant ``coins`` the counts ``canaries``, ``guesses`` and ``correct``, and ``delta``. And
        arrays ``scores`` and ``included`` (replicas, clients, canaries).

    Raises:
        ValueError: If the defense is not DP with noise.

    Source:
        Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run"; Mahloujifar, Melis and
        Chaudhuri 2024, "Auditing f-differential privacy in one run"; Nasr et al. 2023, "Tight auditing", for
        malicious gradients.
    """
    config = request.config
    client = request.client()
    results = []
    for replica in request.replicas:
        generators = request.generators("audit", replica)
        included = generators("coins").random((config.clients, config.canaries)) < 0.5
        source = request.noise("audit", replica)("noise")
        scored = _scores(request, client, included, generators("batches"), source)
        arrays = {"scores": scored, "included": included.astype(np.int64)}
        results.append((table_of(replica, _rows(client, config, scored, included)), arrays))
    return joined(results)


def _scores(
    request: AttackRequest[AuditConfig],
    client: ClientStep,
    included: Bool[np.ndarray, "clients canaries"],
    generator: np.random.Generator,
    source: NoiseSource,
) -> Float[np.ndarray, "clients canaries"]:
    """Score canaries by a sum over the steps of ln((1 − q) + q N(x; 1, m²) / N(x; 0, m²)).

    x is an upload along a canary's gradient.
    """
    config = request.config
    level = float(client.level)
    count = request.config.canaries
    values = math.prod(request.image_shape)
    linear = nn.Linear(values, _CLASSES, bias=False)
    nn.init.zeros_(linear.weight)
    network = nn.Sequential(nn.Flatten(), linear).to(request.device)
    # Each canary has one lit pixel. They are spread over all pixels.
    images = torch.zeros(count, values)
    images[torch.arange(count), torch.linspace(0, values - 1, count).long()] = _BRIGHT
    images = images.view(count, *request.image_shape).to(request.device)
    labels = torch.zeros(count, dtype=torch.int64, device=request.device)
    clean = client_step(client.defense, 0.0).upload(network, images[:, None], labels[:, None], source)
    gradients = clean.gradients["1.weight"].flatten(1)
    scale = count / gradients.norm(dim=1) / client.defense.max_grad_norm
    total = np.zeros(included.shape)
    for _ in range(config.steps):
        taken = included & (generator.random(included.shape) < config.sample_rate)
        # A record that is not in the batch is a black one, whose gradient is 0: all batches are equally large.
        batch = images * torch.from_numpy(taken).to(request.device)[..., None, None, None]
        sent = client.upload(network, batch, labels.expand(len(batch), -1), source)
        along = sent.gradients["1.weight"].flatten(1) @ gradients.T * scale
        ratio = (2.0 * along.double().cpu().numpy() - 1.0) / (2.0 * level**2)
        with np.errstate(divide="ignore"):
            total += np.logaddexp(np.log1p(-config.sample_rate), math.log(config.sample_rate) + ratio)
    return total


def _rows(
    client: ClientStep, config: AuditConfig, scores: np.ndarray, included: np.ndarray
) -> Iterator[dict[str, object]]:
    """Yield variant, metric and value of all rows of one replica."""
    guesses, correct = guess(scores, included, config.guessed)
    delta = client.defense.delta
    counts = {"canaries": scores.size, "guesses": guesses, "correct": correct}
    limits = {
        "one_run": one_run_epsilon(scores.size, guesses, correct, delta, config.confidence),
        "bound": poisson_epsilon(
            client.level, config.sample_rate, config.steps, delta, client.defense.accountant
        ),
    }
    if config.sample_rate == 1:
        mu = one_run_gaussian(scores.size, guesses, correct, config.confidence)
        limits["gaussian"] = gaussian_epsilon(mu, delta)
    yield from (row(variant, "epsilon", value) for variant, value in limits.items())
    yield from (row("coins", name, float(value)) for name, value in {**counts, "delta": delta}.items())
