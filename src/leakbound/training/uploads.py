"""Uploads of the slots of a stack: gradients that their defense disguised, and what it kept back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leakbound.models import memory
from leakbound.randomness.sources import NoiseSource, StackedNoise, as_source
from leakbound.training.batches import same_form
from leakbound.training.client_steps import ClientStep


class StackUploads:
    """Disguised gradients of the slots of a stack, with the draws that each slot makes alone.

    Slots are disguised together if the client's step is marked
    :func:`~leakbound.training.client_steps.row_by_row`, and else one by one.

    Args:
        client: Client step of all slots.
        sources: Source of noise, or generator, of each slot, on the device of the stack.
    """

    def __init__(self, client: ClientStep, sources: Sequence[NoiseSource | torch.Generator]) -> None:
        self._client = client
        of_slots = [as_source(source) for source in sources]
        together = getattr(type(client).disguised, "row_by_row", False)
        self._sources: list[Any] = [StackedNoise(of_slots)] if together else of_slots
        self._at_once = len(of_slots) if together else 1
        self._kept: dict[int, list[Tensor]] = {}  # first of some slots to what they did not send

    def apply(self, gradients: list[Tensor]) -> None:
        """Disguise gradients in place, under a defense that changes them.

        Args:
            gradients: One tensor (slots, ...) for each parameter.
        """
        values = sum(gradient[0].numel() for gradient in gradients)
        steps = memory.noise_steps_ahead(gradients[0].device, values)
        for place, source in enumerate(self._sources):
            first = place * self._at_once
            whole = [gradient[first : first + self._at_once] for gradient in gradients]
            if isinstance(source, StackedNoise):
                source.reserve(values * steps)
            if first in self._kept:
                torch._foreach_add_(
                    whole,
                    [kept.to(average.device) for kept, average in zip(self._kept[first], whole, strict=True)],
                )
            sent = self._client.disguised(whole, source)
            if len(sent) != len(whole):
                raise ValueError(
                    f"{type(self._client).disguised.__qualname__} returned {len(sent)} tensors; "
                    f"return one for each of the {len(whole)} parameters"
                )
            for average, returned in zip(whole, sent, strict=True):
                same_form(average, returned, self._client.disguised)
            if self._client.error_feedback:
                self._kept[first] = list(torch._foreach_sub(whole, sent))
            torch._foreach_copy_(whole, sent)

    def state(self) -> dict[str, Any]:
        """Return all that the next uploads depend on: sources, and what each slot did not send."""
        sources = (
            [source.state() for source in self._sources] if self._client.defense.changes_gradients else []
        )
        kept = {
            first + slot: [part[slot : slot + 1] for part in parts]
            for first, parts in self._kept.items()
            for slot in range(self._at_once)
        }
        return {"sources": sources, "kept": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for source, saved in zip(self._sources, state["sources"], strict=False):
            source.restore(saved)
        kept = state["kept"]
        self._kept = {
            first: [
                torch.cat(parts)
                for parts in zip(*(kept[first + slot] for slot in range(self._at_once)), strict=True)
            ]
            for first in range(0, len(kept), self._at_once)
        }
