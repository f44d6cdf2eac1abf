"""DP-SGD and DP-PSAC: per-sample clipping, noise and accounting; large networks on a CPU one after another.

Sums of clipped gradients come from :mod:`leakbound.training.dp.weighted_sums`, most of them without the
gradients of single records. They are equal to those of Opacus' optimizer (tested), whose noise, scaling and
privacy accountant these are. Batches are Poisson samples, as its accountants assume, and can be empty. A step
then adds noise alone. What a large network needs for all records of a batch does not fit into memory at once:
sums are then accumulated piece by piece, and noise is added once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from opacus.optimizers.optimizer import DPOptimizer, _check_processed_flag, _mark_as_processed
from torch import Tensor

from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, SeededNoise
from leakbound.training import loop, memory, sgd, stack
from leakbound.training.batches import PoissonBatches
from leakbound.training.dp.accounted import AccountedLearner, physical_batch
from leakbound.training.dp.private_stack import PrivateStackLearner, largest_batch
from leakbound.training.dp.weighted_sums import weighted_sums
from leakbound.training.request import Slot, TrainingRequest, TrainingResult


def train_per_sample(request: TrainingRequest) -> TrainingResult:
    """Train by weighed gradients of single records and noise on their sum: DP-SGD and DP-PSAC.

    Networks that are trained one by one take Opacus' step. Stacks take the same one for all networks at once.

    Source:
        Abadi et al. 2016, Algorithm 1; Xia et al. 2023, 'Differentially Private Learning with Per-Sample Adaptive
        Clipping'.
    """
    size = memory.stack_size(
        request.config.max_stack,
        len(request.slots),
        request.device,
        sgd.initial_network(request, 0),
        request.image_shape,
        largest_batch(request),
        sgd.kept_images(request),
    )
    alone = size == 1 and torch.device(request.device).type == "cpu"
    return loop.train_slots(request, PerSampleLearner if alone else PrivateStackLearner, size)


class PrivateOptimizer(DPOptimizer):
    """Opacus' optimizer, which takes sums of clipped gradients, and secure noise too.

    Opacus' secure noise needs a package that is no longer maintained.

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
        """Add sums over some records of a step, one for each parameter, or none of them may be longer than S alone."""
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
