"""What learners under DP-SGD and DP-PSAC have in common: statements, clipped records, and batches that memory holds."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from leakbound.accounting.dp import poisson_epsilon
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.randomness.sources import NoiseSource, StackedNoise
from leakbound_lab.models import memory
from leakbound_lab.models.layers import factorable
from leakbound_lab.training.batches import WIDTH, CyclicBatches, PaddedBatches, PoissonBatches
from leakbound_lab.training.client_steps import ClippedStep
from leakbound_lab.training.request import Slot, TrainingRequest, members_of, unit_facts

SLACK = 1e-6  # Opacus adds it to a norm that it divides by


def largest_batch(request: TrainingRequest) -> int:
    """Return the number of records that memory is planned for: five standard deviations above the mean.

    It is at most the number of members, and rounded up to the width of a step.
    """
    size = request.batch_size + 5 * math.sqrt(request.batch_size)
    return min(-(-math.ceil(size) // WIDTH) * WIDTH, request.dataset.drawing.members + WIDTH)


def physical_batch(model: nn.Module, image_shape: tuple[int, int, int], device: str | torch.device) -> int:
    """Return the number of records that are differentiated at once. Larger batches are processed in pieces.

    On a CPU one gibibyte is used, whatever the machine has. On a GPU it is the free memory less four copies
    of the parameters that a step makes. A record needs the outputs of the layers and, in a network without
    factored gradients, its gradient.

    Args:
        model: Network on the device.
        image_shape: (colors, height, width).
        device: Device of the training.
    """
    parameters = 4 * sum(parameter.numel() for parameter in model.parameters())
    budget = memory.GRADIENT_BYTES
    if torch.device(device).type == "cuda":
        budget = memory.free_bytes(device) - 4 * parameters
    gradient = 0 if factorable(model) else parameters
    return max(1, budget // (gradient + memory.record_bytes(model, image_shape)))


class AccountedLearner:
    """Statements of learners under DP-SGD and DP-PSAC. Steps, records and ε are the same for all slots.

    Args:
        request: The run.
        slots: Slots of the run to train.

    Raises:
        TypeError: If the defense of the run does not clip gradients of single records.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        if not isinstance(request.client, ClippedStep):
            raise TypeError(
                f"{request.slug}: {request.defense.mechanism} clips no gradients of single records"
            )
        self._client = request.client
        self._request = request
        self._population = request.dataset.drawing.members
        self._units = unit_facts(request.dataset)
        self._rate = request.batch_size / self._population
        self._steps = 0
        self._weigh = partial(self._client.record_weights, slack=SLACK)
        images, rows, self._labels = members_of(request, slots)
        # A source of its own, so that noise on gradients is the same with and without a channel.
        sources = [request.noise(slot.replica, "channel") for slot in slots]
        self._inputs = self._client.inputs(images, rows, sources)
        self._batches: PoissonBatches | CyclicBatches | PaddedBatches
        self._noise: NoiseSource | StackedNoise

    def _batches_of(self, replica: int) -> PoissonBatches | CyclicBatches:
        """Return the Poisson samples of a replica, which are drawn on the CPU."""
        source = self._request.noise(replica, "batches", "cpu")
        return PoissonBatches(self._population, self._rate, source)

    def metrics(self) -> dict[str, float]:
        """Return ε so far, at the δ of the defense, for a record with all its copies or an owner."""
        defense = self._client.defense
        mechanism = (self._client.level, self._rate, self._steps, defense.delta, defense.accountant)
        return {"epsilon": poisson_epsilon(*mechanism, rows=self._units["rows"])}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Return the record of Poisson-sampled steps with clipping and noise.

        The drawn records are secret, so any record may be in each step.
        """
        return self._client.event(
            sampling="poisson",
            population=self._population,
            batch_size=self._request.batch_size,
            steps=steps,
            uses=steps * self._units["rows"],
            **self._units,
        )

    def state(self) -> dict[str, Any]:
        """Return generators and the number of steps, and nothing for secure noise."""
        return {
            "batches": self._batches.state(),
            "inputs": self._inputs.state(),
            "noise": self._noise.state(),
            "steps": self._steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._batches.restore(state["batches"])
        self._inputs.restore(state["inputs"])
        self._noise.restore(state["noise"])
        self._steps = state["steps"]
