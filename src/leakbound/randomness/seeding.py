"""Seeds by purpose: every generator derives from (seed, run, replica, purpose), and none is shared.

Another run, replica or draw changes no other one, because each generator has a single user.

There are two limits. Torch's generator on a CPU keeps only the low 32 bits of a seed, so among 10⁴ generators
two have the same stream with a probability of about 1 %. And seeds are for reproducing, not for hiding.
Whoever knows the seed of a configuration, which is usually published, can draw the same noise and subtract
it. Others can try all 2³² seeds within hours. To protect real records, set ``privacy_noise: secure``. Their
noise then comes from :class:`leakbound.randomness.sources.SecureNoise`, which depends on no seed. What is
still drawn from seeds is not secret: weights, shuffled batches, splits, the simulated clients' budgets.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

PrivacyNoise = Literal["seeded", "secure"]
"""Origins of noise that protects records: a seed reproduces it, or nobody can."""


def derive_seed(seed: int, *words: str | int) -> int:
    """Derive a seed in [0, 2⁶³) for a purpose. Equal arguments give equal seeds on every machine.

    The seed is a hash of the arguments and no secret.

    Args:
        seed: Seed of the configuration.
        *words: Purpose, e.g. dataset, replica and ``"init"``.
    """
    text = "\x1f".join([str(seed), *(f"{type(word).__name__}:{word}" for word in words)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, *words: str | int) -> np.random.Generator:
    """Make the NumPy generator (PCG64) for the purpose that ``words`` name."""
    return np.random.default_rng(derive_seed(seed, *words))


def torch_generator(seed: int, *words: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """Make the torch generator on ``device`` for the purpose that ``words`` name.

    On a CPU (Mersenne Twister) torch uses only the low 32 bits of the seed. Purposes whose seeds agree in
    these bits share one stream, two of 10⁴ with a probability of about 1 %.
    """
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, *words))
