"""SGD over a stack of slots, by which most defenses are trained, with the uploads that their clients send."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.randomness.sources import NoiseSource, StackedNoise, as_source
from leakbound_lab.models import memory
from leakbound_lab.training import stack
from leakbound_lab.training.batches import ShuffledBatches, StackedBatches, require_same_form
from leakbound_lab.training.client_steps import ClientStep
from leakbound_lab.training.loop import slots_per_stack, train_slots
from leakbound_lab.training.request import (
    Slot,
    TrainingRequest,
    TrainingResult,
    initial_network,
    members_of,
    most_uses,
    unit_facts,
)
from leakbound_lab.training.stack import Replayed, StackWeights, cuda_graph, forward_in, passes_in


def train_sgd(request: TrainingRequest) -> TrainingResult:
    """Train by SGD, as many slots at a time as ``max_stack`` allows."""
    return train_slots(request, StackLearner, slots_per_stack(request, request.records))


class StackLearner:
    """SGD of several slots as one stack.

    Args:
        request: The run.
        slots: Slots of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        self._request = request
        # Whose uses are counted: records, or owners of several.
        dataset = request.dataset
        self._facts = unit_facts(dataset)
        grouped = self._facts["rows"] > 1
        self._units = [
            dataset.units[dataset.parts(slot.replica).members] if grouped else None for slot in slots
        ]
        # One network for each slot, all as one stack.
        networks = [initial_network(request, slot.replica) for slot in slots]
        rates = [slot.learning_rate for slot in slots]
        self._weights = StackWeights(networks, rates, request.device, request.config.momentum)
        self.model = networks[0].to(request.device)
        # Members, the order in which each slot uses its own, and their images behind the defense.
        images, rows, self._labels = members_of(request, slots)
        orders = [
            ShuffledBatches(rows.shape[1], request.records, request.generator(slot.replica, "batches"))
            for slot in slots
        ]
        self._batches = StackedBatches(orders, request.device)
        sources = [request.noise(slot.replica) for slot in slots]
        self._inputs = request.client.inputs(images, rows, sources)
        self._uploads = self._make_uploads(sources)
        self._begin()

    def _make_uploads(self, sources: Sequence[NoiseSource]) -> "StackUploads":
        """Return what disguises the average gradients of the slots before they are uploaded."""
        return StackUploads(self._request.client, sources)

    def _begin(self) -> None:
        """Capture steps from now on, and none of before, which would change the old momentum."""
        on_gpu = torch.device(self._request.device).type == "cuda"
        self._pass = Replayed(self._differentiate, cuda_graph if on_gpu and self._inputs.capturable else None)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""
        return self._weights.params

    def step(self) -> None:
        """Take one optimisation step of every slot."""
        # Draws wait for the CPU, so they are made before the pass, which a GPU replays.
        indices = self._batches.draw()
        noise = self._inputs.noise(indices.shape[1])
        self._pass(indices, *([] if noise is None else [noise]))
        # A defense of the gradient acts on the average of each slot, outside of what is replayed.
        if self._request.defense.changes_gradients:
            self._uploads.apply(self._weights.parts(self._gradients))
            self._weights.update(self._gradients)

    def _differentiate(self, indices: Tensor, noise: Tensor | None = None) -> None:
        """Compute the gradients of a step, and update the weights if gradients are uploaded unchanged."""
        precision = self._request.config.precision
        forward = forward_in(precision, self._request.device, stack.forward)
        with passes_in(precision, self._request.device):
            logits = forward(self.model, self.params, self._inputs.with_noise(indices, noise))
            self._gradients = stack.gradients(self._weights.leaves, logits, self._labels.gather(1, indices))
        if not self._request.defense.changes_gradients:
            self._weights.update(self._gradients)

    def metrics(self) -> dict[str, float]:
        """Return no metrics."""
        return {}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Return the record of shuffled epochs, with the number of uses of the most used record or owner."""
        return self._request.client.event(
            sampling="shuffled",
            population=self._labels.shape[1],
            batch_size=self._request.records,
            steps=steps,
            uses=most_uses(self._batches.uses(slot), self._units[slot]),
            **self._facts,
        )

    def state(self) -> dict[str, Any]:
        """Return weights, optimizer, generators and what the defense keeps, and nothing for secure noise."""
        return {
            **self._weights.state(),
            "batches": self._batches.state(),
            "inputs": self._inputs.state(),
            "uploads": self._uploads.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._weights.restore(state)
        self._begin()
        self._batches.restore(state["batches"])
        self._inputs.restore(state["inputs"])
        self._uploads.restore(state["uploads"])


class StackUploads:
    """Disguised gradients of the slots of a stack, with the draws that each slot makes alone.

    Slots are disguised together if the client's step is marked
    :func:`~leakbound_lab.training.client_steps.row_by_row`, and else one by one.

    Args:
        client: Client step of all slots.
        sources: Source of noise, or generator, of each slot, on the device of the stack.
    """

    def __init__(self, client: ClientStep, sources: Sequence[NoiseSource | torch.Generator]) -> None:
        self._client = client
        of_slots = [as_source(source) for source in sources]
        row_by_row = getattr(type(client).disguised, "row_by_row", False)
        self._sources: list[Any] = [StackedNoise(of_slots)] if row_by_row else of_slots
        self._unsent: dict[int, list[Tensor]] = {}  # place of a source to what its slots did not send

    def apply(self, gradients: list[Tensor]) -> None:
        """Disguise gradients in place, under a defense that changes them.

        Args:
            gradients: One tensor (slots, ...) for each parameter.
        """
        values = sum(gradient[0].numel() for gradient in gradients)
        steps = memory.noise_steps_ahead(gradients[0].device, values)
        parts = zip(*(gradient.chunk(len(self._sources)) for gradient in gradients), strict=True)
        for place, (source, part) in enumerate(zip(self._sources, parts, strict=True)):
            whole = list(part)
            if isinstance(source, StackedNoise):
                source.reserve(values * steps)
            if place in self._unsent:
                torch._foreach_add_(whole, [rest.to(whole[0].device) for rest in self._unsent[place]])
            sent = self._client.disguised(whole, source)
            if len(sent) != len(whole):
                raise ValueError(
                    f"{type(self._client).disguised.__qualname__} returned {len(sent)} tensors; "
                    f"return one for each of the {len(whole)} parameters"
                )
            for average, returned in zip(whole, sent, strict=True):
                require_same_form(average, returned, self._client.disguised)
            if self._client.error_feedback:
                self._unsent[place] = list(torch._foreach_sub(whole, sent))
            torch._foreach_copy_(whole, sent)

    def state(self) -> dict[str, Any]:
        """Return all that the next uploads depend on: sources, and what each slot did not send."""
        drawn_from = self._sources if self._client.defense.changes_gradients else []
        return {"sources": [source.state() for source in drawn_from], "kept": dict(self._unsent)}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for source, saved in zip(self._sources, state["sources"], strict=False):
            source.restore(saved)
        self._unsent = dict(state["kept"])
