"""What a client does to its averaged gradient before the optimizer, and so the server, sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, as_source


@runtime_checkable
class GradientTransform(Protocol):
    """Change of the gradients of all slots of a stack, each slot on its own."""

    def apply(self, gradients: list[Tensor]) -> None:
        """Change gradients (slots, ...), one tensor per parameter, in place."""

    def state(self) -> dict[str, Any]:
        """All that the next change depends on, beyond the gradients."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""


class Unchanged:
    """The gradient itself."""

    def apply(self, gradients: list[Tensor]) -> None:
        """Nothing to do."""

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to do."""


class ConstantNoise:
    """Gaussian noise of one standard deviation on every coordinate, whatever the gradient and the batch size.

    Args:
        noise_std: Standard deviation, >= 0.
        sources: Of noise, or generators of it; one per slot, on the device of the stack, for this noise alone.
    """

    def __init__(self, noise_std: float, sources: Sequence[NoiseSource | torch.Generator]) -> None:
        self._noise_std, self._sources = noise_std, [as_source(source) for source in sources]

    def apply(self, gradients: list[Tensor]) -> None:
        """Add fresh noise, slot by slot, so that a stack draws what each slot draws alone."""
        for slot, source in enumerate(self._sources):
            for gradient in gradients:
                gradient[slot] = perturbed(gradient[slot], self._noise_std, source)

    def state(self) -> dict[str, Any]:
        """Those of the sources."""
        return {"sources": [source.state() for source in self._sources]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for source, saved in zip(self._sources, state["sources"], strict=True):
            source.restore(saved)


class LargestCoordinates:
    """The largest coordinates of a slot's whole gradient by magnitude; the others are not sent.

    With error feedback, what was not sent is kept and added to the next gradient: what was sent so far and what is kept
    add up to the sum of all gradients. Momentum acts on what was sent, at the server.

    Args:
        fraction: Of the coordinates, in (0, 1]; at least one coordinate is sent.
        error_feedback: Whether what was not sent is kept.

    Source:
        Lin et al. 2018, "Deep gradient compression", without momentum correction and warm-up.
    """

    def __init__(self, fraction: float, error_feedback: bool) -> None:
        self._fraction, self._error_feedback = fraction, error_feedback
        self._kept: dict[int, Tensor] = {}

    def apply(self, gradients: list[Tensor]) -> None:
        """Replace the gradients by what is sent, slot by slot, so that only one slot's choice takes room at a time."""
        for slot in range(len(gradients[0])):
            whole = torch.cat([gradient[slot].flatten() for gradient in gradients])
            if slot in self._kept:
                whole += self._kept[slot].to(whole.device)
            sent = keep_largest(whole[None], self._fraction)[0]
            if self._error_feedback:
                self._kept[slot] = whole - sent
            parts = sent.split([gradient[slot].numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient[slot] = part.view(gradient.shape[1:])

    def state(self) -> dict[str, Any]:
        """What was not sent."""
        return {"kept": dict(self._kept)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self._kept = dict(state["kept"])


def keep_largest(gradients: Float[Tensor, "n d"], fraction: float) -> Float[Tensor, "n d"]:
    """Gradients with all coordinates 0 but the largest ones by magnitude.

    Args:
        gradients: One in each row.
        fraction: Of the coordinates, in (0, 1], rounded to a whole number of at least one.
    """
    count = max(1, round(fraction * gradients.shape[1]))
    largest = gradients.abs().topk(count, dim=1).indices
    return torch.zeros_like(gradients).scatter(1, largest, gradients.gather(1, largest))
