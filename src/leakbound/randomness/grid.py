"""Noisy values on a grid, so that low-order bits reveal nothing about the protected value.

The floating-point numbers that a noisy sum can take depend on the value that the noise was added to (Mironov
2012, Jin et al. 2022), so a plain sum leaks more than real-valued noise would. Here the sum is computed in
float64, whose spacing is at least 2⁴⁰ times finer than the grid. It is then rounded to a public grid with a
spacing of at most a sixteenth of the noise's standard deviation. Rounding follows the ideal release, so it
reveals nothing more. Every point of the grid can be reached from every value. Rounding adds at most 0.033 %
to the variance of the noise. docs/noise.md bounds the remaining leakage.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.randomness.sources import NoiseSource, StackedNoise

_FINENESS = 4  # binary digits by which the grid is finer than the noise
_CHUNK = 2**16  # values that are held in float64 at a time


def grid_spacing(std: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Compute the spacing Δ of the grid: the largest power of two that is at most a sixteenth of ``std``.

    Args:
        std: Standard deviation σ of each value's noise, >= 0.

    Returns:
        σ/32 < Δ <= σ/16, or 0 without noise, where nothing is rounded.
    """
    _, exponent = np.frexp(std)
    return np.where(std > 0, np.ldexp(1.0, exponent - 1 - _FINENESS), 0.0)


def to_grid(values: Tensor, spacing: float | Tensor) -> Tensor:
    """Round values in place to multiples of ``spacing``, halves to even. This is exact for powers of two.

    Args:
        values: Float64 values, overwritten.
        spacing: Positive spacing, one for all values or one for each (float64).
    """
    return values.div_(spacing).round_().mul_(spacing)


def perturbed(signal: Tensor, std: float, source: NoiseSource | StackedNoise) -> Tensor:
    """Add independent noise N(0, std²) to every value of a signal, on a grid if the noise is secure.

    Args:
        signal: Floating-point values to protect.
        std: Standard deviation, >= 0.
        source: Source of the noise, on the device of the signal.

    Returns:
        Values of the same shape and type. A grid point that the type cannot represent, beyond 2²⁴ spacings in
        float32, is rounded to the nearest one that it can.
    """
    if not source.secure:
        return signal + std * source.normal(signal.shape, signal.dtype)
    if std == 0:
        return signal.clone()
    if isinstance(source, StackedNoise):
        slots = zip(signal, source.sources, strict=True)
        return torch.stack([perturbed(values, std, draws) for values, draws in slots])
    spacing = float(grid_spacing(np.array([std]))[0])
    released = torch.empty_like(signal, memory_format=torch.contiguous_format)
    for before, after in zip(signal.reshape(-1).split(_CHUNK), released.view(-1).split(_CHUNK), strict=True):
        noise = source.normal(before.shape, torch.float64)
        after.copy_(to_grid(torch.add(before.double(), noise, alpha=std), spacing))
    return released


def all_perturbed(signals: Sequence[Tensor], std: float, source: NoiseSource | StackedNoise) -> list[Tensor]:
    """Add noise to several signals as :func:`perturbed` does, in as few GPU kernels as one signal takes."""
    if source.secure:
        return [perturbed(signal, std, source) for signal in signals]
    return added(signals, [source.normal(signal.shape, signal.dtype) for signal in signals], std)


def added(signals: Sequence[Tensor], noise: Sequence[Tensor], std: float) -> list[Tensor]:
    """Add ``std`` times standard normal numbers to signals of these shapes. The numbers may be overwritten."""
    if signals[0].device.type != "cpu":
        return list(torch._foreach_add(list(signals), list(noise), alpha=std))
    torch._foreach_mul_(list(noise), std)  # unlike alpha on a CPU, this rounds the product, as perturbed does
    return list(torch._foreach_add(list(signals), list(noise)))
