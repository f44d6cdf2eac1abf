"""Seeds that belong to a purpose: every generator derives from (seed, run, replica, purpose), none is shared.

Adding a run, a replica or a draw changes no other one, because no generator's stream is ever consumed by two
of them.

Two limits. Torch's generator on a CPU keeps only the low 32 bits of a seed, so among 10⁴ of them two run in
step with a probability of about 1 %. And seeds are for repeating, not for hiding: whoever knows the seed of a
configuration, as everybody does once it is published, draws the same noise and subtracts it. Whoever does not
tries all 2³² in hours. To protect real records set ``privacy_noise: secure``: their noise then comes from
:class:`leakbound.randomness.sources.SecureNoise`, which depends on no seed. Nothing drawn here is secret
then: weights, shuffled batches, splits, the simulated clients' budgets.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *words: str | int) -> int:
    """Seed in [0, 2⁶³) for the purpose that ``words`` name. Equal arguments give equal seeds on every machine.

    It is a hash and not a secret: whoever knows the arguments knows the seed.
    """
    text = "\x1f".join([str(seed), *(f"{type(word).__name__}:{word}" for word in words)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, *words: str | int) -> np.random.Generator:
    """NumPy generator (PCG64) for the purpose that ``words`` name."""
    return np.random.default_rng(derive_seed(seed, *words))


def torch_generator(seed: int, *words: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """Torch generator on ``device`` for the purpose that ``words`` name.

    On a CPU (Mersenne Twister) torch reads only the low 32 bits of the seed: purposes whose seeds agree in
    them share one stream, two of 10⁴ with a probability of about 1 %.
    """
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, *words))
