"""Networks under DP-SGD and DP-PSAC that train one by one, by the optimizer of Opacus."""

from collections.abc import Sequence
from typing import Any

from opacus.optimizers import DPOptimizerFastGradientClipping

from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, SeededNoise
from leakbound_lab.training import stack
from leakbound_lab.training.accounted_learner import AccountedLearner, physical_batch
from leakbound_lab.training.eager_optimizers import SGD
from leakbound_lab.training.request import Slot, TrainingRequest, initial_network
from leakbound_lab.training.weighted_sums import weighted_sums


class PrivateOptimizer(DPOptimizerFastGradientClipping):
    """Opacus' optimizer for gradients that are sums of clipped ones, which also takes secure noise.

    Opacus' own secure noise needs a package that is no longer maintained.

    Args:
        *args: As for ``DPOptimizerFastGradientClipping``.
        source: Source of noise. For seeded noise Opacus draws from its generator.
        **kwargs: As for ``DPOptimizerFastGradientClipping``.
    """

    def __init__(self, *args: Any, source: NoiseSource | None = None, **kwargs: Any) -> None:
        if isinstance(source, SeededNoise):
            kwargs["generator"] = source.generator
        super().__init__(*args, **kwargs)
        self._secure = None if source is None or isinstance(source, SeededNoise) else source

    def add_noise(self) -> None:
        """Add noise to the sum of clipped gradients, on a grid if it is secure."""
        if self._secure is None:
            super().add_noise()
            return
        for parameter in self.params:
            noisy = perturbed(parameter.summed_grad, self.noise_multiplier * self.max_grad_norm, self._secure)
            parameter.grad = noisy.view_as(parameter)
            parameter.summed_grad = None  # a sum is used once


class OpacusLearner(AccountedLearner):
    """One slot under DP-SGD or DP-PSAC.

    Args:
        request: The run.
        slots: The one slot of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        (slot,) = slots
        super().__init__(request, slots)
        self.model = initial_network(request, slot.replica).to(request.device)
        self._batches = self._batches_of(slot.replica)
        self._noise = request.noise(slot.replica)
        sgd = SGD(list(self.model.parameters()), slot.learning_rate, request.config.momentum, fused=True)
        self._optimizer = PrivateOptimizer(
            sgd,
            noise_multiplier=self._client.level,
            max_grad_norm=self._client.defense.max_grad_norm,
            expected_batch_size=request.batch_size,
            source=self._noise,
        )
        self._chunk = physical_batch(self.model, request.image_shape, request.device)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (1, ...) as they are now."""
        return {name: value.detach().unsqueeze(0) for name, value in self.model.named_parameters()}

    def step(self) -> None:
        """Take one optimisation step, whose records are clipped and summed piece by piece."""
        indices = self._batches.draw().to(self._labels.device, non_blocking=True)
        records = self._inputs.take(indices[None])[0], self._labels[0, indices]
        self._optimizer.zero_grad(set_to_none=True)
        for images, labels in zip(*(part.split(self._chunk) for part in records), strict=True):
            sums = weighted_sums(self.model, images, labels, self._weigh).values()
            for parameter, total in zip(self._optimizer.params, sums, strict=True):
                parameter.grad = total if parameter.grad is None else parameter.grad + total
        # Noise once on the sum, the mean over the expected batch, and the update.
        self._optimizer.step()
        self._steps += 1

    def state(self) -> dict[str, Any]:
        """Return weights, optimizer, generators and steps, and nothing for secure noise."""
        weights = dict(self.model.state_dict())  # without versions of layers, which no plain dictionary has
        return {"model": weights, "optimizer": self._optimizer.state_dict(), **super().state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        super().restore(state)
