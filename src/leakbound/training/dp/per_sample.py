"""DP-SGD and DP-PSAC: per-sample clipping, noise and accounting. Large networks train one by one on a CPU.

Sums of clipped gradients come from :mod:`leakbound.training.dp.weighted_sums`, mostly without the gradients
of single records. They equal those of Opacus' optimizer (tested), which supplies noise, scaling and privacy
accountant. Batches are Poisson samples, as its accountants assume, and can be empty. A step then adds noise
alone. If a batch of a large network does not fit into memory, sums are accumulated piece by piece, and noise
is added once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from opacus.optimizers.optimizer import DPOptimizer, _check_processed_flag, _mark_as_processed
from torch import Tensor

from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, SeededNoise
from leakbound.training import loop, sgd, stack
from leakbound.training.batches import PoissonBatches
from leakbound.training.dp.accounted import AccountedLearner, physical_batch
from leakbound.training.dp.private_stack import PrivateStackLearner, largest_batch
from leakbound.training.dp.weighted_sums import weighted_sums
from leakbound.training.request import Slot, TrainingRequest, TrainingResult


def train_per_sample(request: TrainingRequest) -> TrainingResult:
    """Train by weighted gradients of single records and noise on their sum: DP-SGD and DP-PSAC.

    Networks that are trained one by one take Opacus' step. Stacks take the same step for all networks at
    once.

    Source:
        Abadi et al. 2016, Algorithm 1. Xia et al. 2023, 'Differentially Private Learning with Per-Sample
        Adaptive Clipping'.
    """
    size = sgd.slots_together(request, largest_batch(request))
    alone = size == 1 and torch.device(request.device).type == "cpu"
    return loop.train_slots(request, PerSampleLearner if alone else PrivateStackLearner, size)


class PrivateOptimizer(DPOptimizer):
    """Opacus' optimizer for sums of clipped gradients, which also takes secure noise.

    Opacus' own secure noise needs a package that is no longer maintained.

    Args:
        *args: As for ``DPOptimizer``.
        source: Source of noise. For seeded noise Opacus draws from its generator.
        **kwargs: As for ``DPOptimizer``.
    """

    def __init__(self, *args: Any, source: NoiseSource | None = None, **kwargs: Any) -> None:
        if isinstance(source, SeededNoise):
            kwargs["generator"] = source.generator
        super().__init__(*args, **kwargs)
        self._secure = None if source is None or isinstance(source, SeededNoise) else source

    @property
    def accumulated_iterations(self) -> int:
        """1, because all pieces of a batch make one sum."""
        return 1

    def add(self, sums: Sequence[Tensor]) -> None:
        """Add sums over some records of a step, one for each parameter.

        The gradient of each record may contribute at most the clipping bound S.
        """
        for parameter, total in zip(self.params, sums, strict=True):
            parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total

    def pre_step(self, closure: Any = None) -> bool:
        """Add noise, average over the batch, and account for the step."""
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


class PerSampleLearner(AccountedLearner):
    """One slot under DP-SGD or DP-PSAC.

    Args:
        request: The run.
        slots: The one slot of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        (slot,) = slots
        replica = slot.replica
        super().__init__(request)
        self.model = sgd.initial_network(request, replica).to(request.device)
        members = request.dataset.members(replica)
        self._images, self._labels = (
            torch.from_numpy(array).to(request.device) for array in (members.images, members.labels)
        )
        self._batches = PoissonBatches(
            len(members.labels), self._rate, request.noise(replica, "batches", "cpu")
        )
        self._noise = request.noise(replica)
        self._optimizer = PrivateOptimizer(
            sgd.sgd_optimizer(request, list(self.model.parameters()), slot.learning_rate),
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
        """Take one optimisation step, whose records are clipped and summed piece by piece."""
        pieces = self._batches.draw().to(self._labels.device, non_blocking=True).split(self._chunk)
        self._optimizer.zero_grad(set_to_none=True)
        for indices in pieces:
            sums = weighted_sums(self.model, self._images[indices], self._labels[indices], self._weights)
            self._optimizer.add(list(sums.values()))
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        """Return weights, optimizer, generators and accountant, and nothing for secure noise."""
        return {
            "model": dict(
                self.model.state_dict()
            ),  # without versions of layers, which no plain dictionary has
            "optimizer": self._optimizer.state_dict(),
            "batches": self._batches.state(),
            "noise": self._noise.state(),
            "history": list(self._accountant.history),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._batches.restore(state["batches"])
        self._noise.restore(state["noise"])
        self._accountant.history = state["history"]
