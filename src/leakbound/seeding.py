"""Seeds that belong to a purpose: every generator derives from (seed, run, replica, purpose), none is shared.

Adding a run, a replica or a draw changes no other one, because no generator's stream is ever consumed by two of them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *words: str | int) -> int:
    """Seed in [0, 2⁶³) for the purpose that ``words`` name; equal arguments give equal seeds on every machine."""
    text = "\x1f".join([str(seed), *(f"{type(word).__name__}:{word}" for word in words)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, *words: str | int) -> np.random.Generator:
    """NumPy generator (PCG64) for the purpose that ``words`` name."""
    return np.random.default_rng(derive_seed(seed, *words))


def torch_generator(seed: int, *words: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """Torch generator on ``device`` for the purpose that ``words`` name."""
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, *words))
