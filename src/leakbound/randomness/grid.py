"""Noisy values on a grid, so that no low-order bit tells what was protected.

Which floating-point numbers a noisy sum can take depends on what the noise was added to (Mironov 2012; Jin et
al. 2022), so a plain sum tells more than real-valued noise would. Here the sum is taken in float64, whose
spacing is finer than the grid by a factor of 2⁴⁰ and more, and rounded to a public grid of at most a
sixteenth of the noise's standard deviation. Rounding comes after the ideal release and so tells nothing more.
Every point of the grid can be reached from every value; and it adds at most 0.033 % to the variance of the
noise. docs/noise.md bounds what is left.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.randomness.sources import NoiseSource, StackedNoise

_FINENESS = 4  # binary digits by which the grid is finer than the noise
_CHUNK = 2**16  # values that are in float64 at a time


def grid_spacing(std: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Spacing Δ of the grid for noise of a standard deviation: the largest power of two that is at most a sixteenth.

    Args:
        std: Standard deviation of each value's noise, >= 0.

    Returns:
        σ/32 < Δ <= σ/16, or 0 where there is no noise, and then nothing is rounded.
    """
    _, exponent = np.frexp(std)
    return np.where(std > 0, np.ldexp(1.0, exponent - 1 - _FINENESS), 0.0)


def to_grid(values: Tensor, spacing: float | Tensor) -> Tensor:
    """Round values in place to multiples of ``spacing``, halves to even, exact, since the spacing is a power of two.

    Args:
        values: Float64, overwritten.
        spacing: Positive, one for all values or one for each (float64).
    """
    return values.div_(spacing).round_().mul_(spacing)


def perturbed(signal: Tensor, std: float, source: NoiseSource | StackedNoise) -> Tensor:
    """A signal with independent noise N(0, std²) on every value, on a grid if the noise is secure.

    Args:
        signal: Values to protect, in floating point.
        std: Standard deviation, >= 0.
        source: Of the noise, on the device of the signal.

    Returns:
        As many values of the same type. A grid point that the type cannot hold, beyond 2²⁴ spacings in
        float32, is rounded to the next one that it can.
    """
    if not source.secure:
        return signal + std * source.normal(signal.shape, signal.dtype)
    if std == 0:
        return signal.clone()
    if isinstance(source, StackedNoise):
        return torch.stack(
            [perturbed(one, std, own) for one, own in zip(signal, source.sources, strict=True)]
        )
    spacing = float(grid_spacing(np.array([std]))[0])
    released = torch.empty_like(signal, memory_format=torch.contiguous_format)
    for before, after in zip(signal.reshape(-1).split(_CHUNK), released.view(-1).split(_CHUNK), strict=True):
        noise = source.normal(before.shape, torch.float64)
        after.copy_(to_grid(torch.add(before.double(), noise, alpha=std), spacing))
    return released


def all_perturbed(signals: Sequence[Tensor], std: float, source: NoiseSource | StackedNoise) -> list[Tensor]:
    """Signals with noise as by :func:`perturbed`, one after another, in as few kernels as a GPU needs for one."""
    if source.secure:
        return [perturbed(signal, std, source) for signal in signals]
    noise = [source.normal(signal.shape, signal.dtype) for signal in signals]
    if signals[0].device.type != "cpu":
        return list(torch._foreach_add(list(signals), noise, alpha=std))
    torch._foreach_mul_(noise, std)  # a sum with a factor rounds once on a CPU, and a product and a sum twice
    return list(torch._foreach_add(list(signals), noise))
