"""Steps, ε and memory of private training, for single slots and for stacks."""

import math
import warnings

import torch
from opacus.accountants import create_accountant
from torch import nn

from leakbound.accounting.event import PrivacyEvent
from leakbound.training import memory
from leakbound.training.client_steps import ClippedStep, Norms
from leakbound.training.known_layers import factorable
from leakbound.training.request import TrainingRequest

SLACK = 1e-6  # Opacus adds it to a norm that it divides by


class AccountedLearner:
    """Statements of learners under DP-SGD and DP-PSAC. Steps, records and ε are the same for all slots.

    Args:
        request: The run.

    Raises:
        TypeError: If the defense of the run does not clip gradients of single records.
    """

    def __init__(self, request: TrainingRequest) -> None:
        if not isinstance(request.client, ClippedStep):
            raise TypeError(
                f"{request.slug}: {request.defense.mechanism} clips no gradients of single records"
            )
        self._client = request.client
        self._request = request
        self._population = request.dataset.drawing.members
        self._rate = request.batch_size / self._population
        self._accountant = create_accountant(self._client.defense.accountant)

    def metrics(self) -> dict[str, float]:
        """Return ε so far, at the δ of the defense."""
        if not self._accountant.history:
            return {"epsilon": 0.0}
        if self._client.level == 0:
            return {"epsilon": math.inf}
        with warnings.catch_warnings():
            # The best Rényi order lies at an end of the accountant's list: the bound holds, it may not be tight.
            warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
            return {"epsilon": float(self._accountant.get_epsilon(self._client.defense.delta))}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Return the record of Poisson-sampled steps with clipping and noise.

        The drawn records are secret, so any record may be in each step.
        """
        return self._client.event(
            sampling="poisson",
            population=self._population,
            batch_size=self._request.batch_size,
            steps=steps,
            uses=steps,
        )

    def _weights(self, norms: Norms) -> Norms:
        """Compute the factors of the records' gradients."""
        return self._client.record_weights(norms, SLACK)


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
