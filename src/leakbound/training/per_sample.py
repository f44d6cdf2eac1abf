"""DP-SGD and DP-PSAC: per-sample clipping, noise and accounting; on a CPU slots one after another.

Sums of clipped gradients come from :mod:`leakbound.training.weighted_sums`, most of them without the gradients of
single records. They are equal to those of Opacus' optimizer (tested), whose noise, scaling and privacy accountant these
are. Batches are Poisson samples, as its accountants assume, and can be empty; a step then adds noise alone. What a
large network needs for all records of a batch does not fit into memory at once: sums are then accumulated piece by
piece, and noise is added once.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from opacus.accountants import create_accountant
from opacus.optimizers.optimizer import DPOptimizer, _check_processed_flag, _mark_as_processed
from torch import Tensor, nn

from leakbound.accounting.event import PrivacyEvent
from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, SeededNoise
from leakbound.training import loop, stack
from leakbound.training.batches import PoissonBatches
from leakbound.training.client_steps import ClippedStep, Norms
from leakbound.training.request import Slot, TrainingRequest, TrainingResult
from leakbound.training.weighted_sums import divisible, weighted_sums

SLACK = 1e-6  # Opacus adds it to a norm that it divides by
_CPU_BYTES = 2**30  # for what single records need on a CPU: no measurement, so that equal runs give equal bytes


def train_per_sample(request: TrainingRequest) -> TrainingResult:
    """Train by weighed gradients of single records and noise on their sum: DP-SGD and DP-PSAC.

    Source:
        Abadi et al. 2016, Algorithm 1; Xia et al. 2023, 'Differentially Private Learning with Per-Sample Adaptive
        Clipping'.
    """
    if torch.device(request.device).type == "cpu":
        return loop.run(request, PerSampleLearner, 1)
    from leakbound.training.private_stack import PrivateStackLearner, largest_batch

    size = stack.stack_size(
        request.config.max_stack,
        len(request.slots),
        request.device,
        loop.build(request, 0),
        request.image_shape,
        largest_batch(request),
        loop.kept_images(request),
    )
    return loop.run(request, PrivateStackLearner, size)


class PrivateOptimizer(DPOptimizer):
    """Opacus' optimizer, which takes sums of clipped gradients, and secure noise too.

    Opacus' own secure noise needs a package that nobody maintains.

    Args:
        *args: As for ``DPOptimizer``.
        source: Of noise. Of seeded noise Opacus takes the generator, and draws by itself.
        **kwargs: As for ``DPOptimizer``.
    """

    def __init__(self, *args: Any, source: NoiseSource | None = None, **kwargs: Any) -> None:
        if isinstance(source, SeededNoise):
            kwargs["generator"] = source.generator
        super().__init__(*args, **kwargs)
        self._secure = None if source is None or isinstance(source, SeededNoise) else source

    @property
    def accumulated_iterations(self) -> int:
        """One: all pieces of a batch make one sum."""
        return 1

    def add(self, sums: Sequence[Tensor]) -> None:
        """Add sums over some records of a step, one for each parameter; none of them may be longer than S alone."""
        for parameter, total in zip(self.params, sums, strict=True):
            parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total

    def pre_step(self, closure: Any = None) -> bool:
        """Noise, mean over the batch, and accounting."""
        self.add_noise()
        self.scale_grad()
        if self.step_hook:
            self.step_hook(self)
        return True

    def add_noise(self) -> None:
        """Add noise to the sum of clipped gradients, on a grid if it is secure."""
        if self._secure is None:
            super().add_noise()
            return
        for parameter in self.params:
            _check_processed_flag(parameter.summed_grad)
            noisy = perturbed(parameter.summed_grad, self.noise_multiplier * self.max_grad_norm, self._secure)
            parameter.grad = noisy.view_as(parameter)
            _mark_as_processed(parameter.summed_grad)


class AccountedLearner:
    """What learners under DP-SGD and DP-PSAC state of themselves: steps, records and ε are the same for all slots.

    Args:
        request: The run.

    Raises:
        TypeError: If its defense clips no gradients of single records.
    """

    def __init__(self, request: TrainingRequest) -> None:
        if not isinstance(request.client, ClippedStep):
            raise TypeError(f"{request.slug}: {request.defense.mechanism} clips no gradients of single records")
        self._client, self._request = request.client, request
        self._population = request.dataset.drawing.members
        self._rate = request.batch_size / self._population
        self._accountant = create_accountant(self._client.defense.accountant)

    def metrics(self) -> dict[str, float]:
        """ε spent so far, at the δ of the defense."""
        if not self._accountant.history:
            return {"epsilon": 0.0}
        if self._client.level == 0:
            return {"epsilon": math.inf}
        with warnings.catch_warnings():
            # The best Rényi order lies at an end of the accountant's list: the bound holds, it may not be tight.
            warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
            return {"epsilon": float(self._accountant.get_epsilon(self._client.defense.delta))}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Poisson sampled steps with clipping and noise; who was drawn is secret, so anybody may be in each step."""
        return self._client.event(
            sampling="poisson",
            population=self._population,
            batch_size=self._request.batch_size,
            steps=steps,
            uses=steps,
        )

    def _weights(self, norms: Norms) -> Norms:
        """Factors of the records' gradients."""
        return self._client.record_weights(norms, SLACK)


class PerSampleLearner(AccountedLearner):
    """One slot under DP-SGD or DP-PSAC.

    Args:
        request: The run.
        slots: Which of its slots: one.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        (slot,) = slots
        replica = slot.replica
        super().__init__(request)
        self.model = loop.build(request, replica).to(request.device)
        members = request.dataset.members(replica)
        self._images, self._labels = (
            torch.from_numpy(array).to(request.device) for array in (members.images, members.labels)
        )
        self._batches = PoissonBatches(len(members.labels), self._rate, request.noise(replica, "batches", "cpu"))
        self._noise = request.noise(replica)
        self._optimizer = PrivateOptimizer(
            loop.sgd(request, list(self.model.parameters()), slot.learning_rate),
            noise_multiplier=self._client.level,
            max_grad_norm=self._client.defense.max_grad_norm,
            expected_batch_size=request.batch_size,
            source=self._noise,
        )
        self._optimizer.attach_step_hook(self._accountant.get_optimizer_hook_fn(sample_rate=self._rate))
        self._chunk = physical_batch(self.model, request.image_shape, request.device)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (1, ...) as they are now."""
        return {name: value.detach().unsqueeze(0) for name, value in self.model.named_parameters()}

    def step(self) -> None:
        """One optimisation step, whose records are clipped and summed piece by piece."""
        pieces = self._batches.draw().to(self._labels.device, non_blocking=True).split(self._chunk)
        self._optimizer.zero_grad(set_to_none=True)
        for indices in pieces:
            sums = weighted_sums(self.model, self._images[indices], self._labels[indices], self._weights)
            self._optimizer.add(list(sums.values()))
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        """Weights, optimizer, generators, accountant; of secure noise nothing."""
        return {
            "model": dict(self.model.state_dict()),  # without versions of layers, which no plain dictionary has
            "optimizer": self._optimizer.state_dict(),
            "batches": self._batches.state(),
            "noise": self._noise.state(),
            "history": list(self._accountant.history),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._batches.restore(state["batches"])
        self._noise.restore(state["noise"])
        self._accountant.history = state["history"]


def physical_batch(model: nn.Module, image_shape: tuple[int, int, int], device: str | torch.device) -> int:
    """Number of records that are differentiated at once; a larger batch is taken piece by piece.

    On a CPU a gibibyte is filled, whatever the machine has. On a GPU it is what is free, less four copies of the
    parameters that a step makes. A record needs what the layers put out and, in a network that cannot be divided into
    them, its gradient. The network is on the device; images have a shape (colors, height, width).
    """
    parameters = 4 * sum(parameter.numel() for parameter in model.parameters())
    budget = _CPU_BYTES
    if torch.device(device).type == "cuda":
        budget = stack.free_bytes(device) - 4 * parameters
    gradient = 0 if divisible(model) else parameters
    return max(1, budget // (gradient + stack.record_bytes(model, image_shape)))
