"""SGD over a stack of slots, by which most defenses are trained."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.accounting.event import PrivacyEvent
from leakbound.training import memory, stack
from leakbound.training.batches import ShuffledBatches, StackedBatches
from leakbound.training.cuda_graph import Replayed, cuda_graph
from leakbound.training.eager_optimizers import SGD
from leakbound.training.loop import train_slots
from leakbound.training.precision import forward_in, passes_in
from leakbound.training.request import Slot, TrainingRequest, TrainingResult, initial_network
from leakbound.training.uploads import StackUploads


def train_stack(request: TrainingRequest) -> TrainingResult:
    """Train by SGD, as many slots at a time as ``max_stack`` allows."""
    return train_slots(request, StackLearner, slots_together(request, request.records))


def slots_together(request: TrainingRequest, records: int) -> int:
    """Return how many slots are trained together in steps of so many records.

    What a slot always keeps is counted in images: noisy copies, noise drawn ahead.
    """
    values = memory.PARAMETER_NOISE_VALUES.on(request.device) if request.defense.changes_gradients else 0
    block = memory.NOISE_STEPS.on(request.device) * request.records
    copies = request.client.kept_images(request.dataset.drawing.members, block)
    return memory.stack_size(
        request.config.max_stack,
        len(request.slots),
        request.device,
        initial_network(request, 0),
        request.image_shape,
        records,
        -(-values // math.prod(request.image_shape)) + copies,
    )


class StackLearner:
    """SGD of several slots as one stack.

    Args:
        request: The run.
        slots: Slots of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        self._request = request
        networks = [initial_network(request, slot.replica) for slot in slots]
        self._weights = stack.StackWeights(networks, [slot.learning_rate for slot in slots], request.device)
        self.model = networks[0].to(request.device)
        self._optimizer = sgd_optimizer(request, self._weights.leaves, 1.0)
        images, rows, self._labels = members_of(request, slots)
        orders = [
            ShuffledBatches(rows.shape[1], request.records, request.generator(slot.replica, "batches"))
            for slot in slots
        ]
        self._batches = StackedBatches(orders, request.device)
        sources = [request.noise(slot.replica) for slot in slots]
        self._inputs = request.client.inputs(images, rows, sources)
        self._uploads = StackUploads(request.client, sources)
        self._capture = (
            cuda_graph if self._inputs.capturable and torch.device(request.device).type == "cuda" else None
        )
        self._pass = Replayed(self._differentiate, self._capture)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""
        return self._weights.params

    def step(self) -> None:
        """Take one optimisation step of every slot."""
        indices = self._batches.draw()
        noise = self._inputs.noise(indices.shape[1])
        self._pass(indices, *([] if noise is None else [noise]))
        if self._request.defense.changes_gradients:
            self._uploads.apply(self._weights.parts(self._gradients))
            self._update()

    def _differentiate(self, indices: Tensor, noise: Tensor | None = None) -> None:
        """Compute the gradients of a step, and update the weights if gradients are uploaded unchanged."""
        precision = self._request.config.precision
        forward = forward_in(precision, self._request.device, stack.forward)
        with passes_in(precision, self._request.device):
            logits = forward(self.model, self.params, self._inputs.seen(indices, noise))
            self._gradients = stack.gradients(self._weights.leaves, logits, self._labels.gather(1, indices))
        if not self._request.defense.changes_gradients:
            self._update()

    def _update(self) -> None:
        """Update momentum and weights by the gradients."""
        self._weights.scale(self._gradients)
        for leaf, gradient in zip(self._weights.leaves, self._gradients, strict=True):
            leaf.grad = gradient
        self._optimizer.step()

    def metrics(self) -> dict[str, float]:
        """Return no metrics."""
        return {}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Return the record of shuffled epochs, with the number of uses of the most used record."""
        return self._request.client.event(
            sampling="shuffled",
            population=self._labels.shape[1],
            batch_size=self._request.records,
            steps=steps,
            uses=int(self._batches.now(slot).uses.max()),
        )

    def state(self) -> dict[str, Any]:
        """Return weights, optimizer, generators and what the defense keeps, and nothing for secure noise."""
        return {
            "params": {name: value.detach() for name, value in self.params.items()},
            "optimizer": self._optimizer.state_dict(),
            "batches": self._batches.state(),
            "inputs": self._inputs.state(),
            "uploads": self._uploads.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for name, value in self.params.items():
            value.detach().copy_(state["params"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        # A graph of before would change the old momentum.
        self._pass = Replayed(self._differentiate, self._capture)
        self._batches.restore(state["batches"])
        self._inputs.restore(state["inputs"])
        self._uploads.restore(state["uploads"])


def members_of(
    request: TrainingRequest, slots: Sequence[Slot]
) -> tuple[
    Float[Tensor, "n colors height width"], Int[Tensor, "slots members"], Int[Tensor, "slots members"]
]:
    """Return the members of some slots on the device: images, rows of each slot, and labels of each slot."""
    data = request.dataset
    parts = [request.dataset.parts(slot.replica) for slot in slots]
    used, places = np.unique(np.stack([part.members for part in parts]), return_inverse=True)
    rows = torch.from_numpy(places.reshape(len(slots), -1))
    labels = [data.labels(slot.replica)[part.members] for slot, part in zip(slots, parts, strict=True)]
    images = torch.from_numpy(data.pool.images[used]).to(request.device)
    return images, rows.to(request.device), torch.from_numpy(np.stack(labels)).to(request.device)


def sgd_optimizer(request: TrainingRequest, params: list[Tensor], learning_rate: float) -> torch.optim.SGD:
    """Create the optimizer that all defenses use."""
    return SGD(params, lr=learning_rate, momentum=request.config.momentum, fused=True)
