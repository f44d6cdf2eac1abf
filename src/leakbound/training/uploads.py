"""Averaged gradients of a stack, as its clients upload them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.training.client_steps import ClientStep


class StackUploads:
    """Disguised gradients of the slots of a stack, each on its own, so that a stack draws what each slot draws alone.

    Args:
        client: Step that each slot takes.
        sources: Of noise, or generators of it; one per slot, on the device of the stack.
    """

    def __init__(self, client: ClientStep, sources: Sequence[NoiseSource | torch.Generator]) -> None:
        self._client, self._sources = client, [as_source(source) for source in sources]
        self._kept: dict[int, list[Tensor]] = {}

    def apply(self, gradients: list[Tensor]) -> None:
        """Change gradients (slots, ...), one tensor per parameter, in place; one slot takes room at a time."""
        if not self._client.defense.changes_gradients:
            return
        for slot, source in enumerate(self._sources):
            whole = [gradient[slot : slot + 1] for gradient in gradients]
            if slot in self._kept:
                for gradient, kept in zip(whole, self._kept[slot], strict=True):
                    gradient.add_(kept.to(gradient.device))
            sent = self._client.disguised(whole, source)
            if self._client.error_feedback:
                self._kept[slot] = [gradient - one for gradient, one in zip(whole, sent, strict=True)]
            for gradient, one in zip(whole, sent, strict=True):
                gradient.copy_(one)

    def state(self) -> dict[str, Any]:
        """All that the next uploads depend on: sources, and what was not sent."""
        sources = [source.state() for source in self._sources] if self._client.defense.changes_gradients else []
        return {"sources": sources, "kept": dict(self._kept)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for source, saved in zip(self._sources, state["sources"], strict=False):
            source.restore(saved)
        self._kept = dict(state["kept"])
