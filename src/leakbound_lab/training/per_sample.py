"""DP-SGD and DP-PSAC: clipping of the gradients of single records, noise on their sum, and accounting.

A channel may stand in front of the images (:class:`~leakbound_lab.training.client_steps.NoisyClippedStep`).

Sums of clipped gradients come from :mod:`leakbound_lab.training.weighted_sums`, mostly without the gradients of
single records. They equal those of Opacus' optimizer (tested). Its accountants state ε, and it supplies noise and
scaling where networks train one by one (:mod:`leakbound_lab.training.opacus_learner`). Batches are Poisson
samples, as its accountants assume, and can be empty. A step then adds noise alone. If a batch does not fit into
memory, sums are accumulated piece by piece, and noise is added once.

Large networks train one by one on a CPU, others as one stack. Poisson samples of its slots differ in size.
They are padded to one width with records of weight 0, so that the sum is over the drawn records. A GPU
replays a CUDA graph of the step for each width. Noise that is not drawn ahead, because it is secure or the
network is large, is added outside of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakbound.randomness.grid import added, all_perturbed
from leakbound.randomness.sources import StackedNoise
from leakbound_lab.models import memory
from leakbound_lab.training import stack
from leakbound_lab.training.accounted_learner import AccountedLearner, largest_batch, physical_batch
from leakbound_lab.training.batches import PaddedBatches
from leakbound_lab.training.loop import slots_per_stack, train_slots
from leakbound_lab.training.request import Slot, TrainingRequest, TrainingResult, initial_network
from leakbound_lab.training.stack import Replayed, StackWeights, cuda_graph
from leakbound_lab.training.weighted_sums import stacked_sums


def train_per_sample(request: TrainingRequest) -> TrainingResult:
    """Train by weighted gradients of single records and noise on their sum: DP-SGD and DP-PSAC.

    Networks that are trained one by one take Opacus' step. Stacks take the same step for all networks at
    once.

    Source:
        Abadi et al. 2016, Algorithm 1. Xia et al. 2023, 'Differentially Private Learning with Per-Sample
        Adaptive Clipping'.
    """
    size = slots_per_stack(request, largest_batch(request))
    if size > 1 or torch.device(request.device).type != "cpu":
        return train_slots(request, PrivateStackLearner, size)
    from leakbound_lab.training.opacus_learner import OpacusLearner  # slow import

    return train_slots(request, OpacusLearner, size)


class PrivateStackLearner(AccountedLearner):
    """Several slots under DP-SGD or DP-PSAC, trained as one stack.

    Args:
        request: The run.
        slots: Slots of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        super().__init__(request, slots)
        networks = [initial_network(request, slot.replica) for slot in slots]
        rates = [slot.learning_rate for slot in slots]
        self._weights = StackWeights(networks, rates, request.device, request.config.momentum)
        self.model = networks[0].to(request.device)
        self._batches = PaddedBatches([self._batches_of(slot.replica) for slot in slots], request.device)
        self._std = self._client.level * self._client.defense.max_grad_norm
        self._noise = StackedNoise([request.noise(slot.replica) for slot in slots])
        self._shapes = [value.shape for value in self._weights.params.values()]
        values = sum(shape[1:].numel() for shape in self._shapes)
        ahead = memory.noise_steps_ahead(request.device, values)
        self._noise.reserve(values * ahead)
        self._noise_shape = (len(slots), values) if ahead and not self._noise.secure else None
        self._chunk = max(1, physical_batch(self.model, request.image_shape, request.device) // len(slots))
        self._sums: dict[int, list[Tensor]] = {}
        self._begin()

    def _begin(self) -> None:
        """Capture steps from now on, and none of before, which would change the old momentum."""
        on_gpu = torch.device(self._request.device).type == "cuda"
        self._pass = Replayed(self._differentiate, cuda_graph if on_gpu and self._inputs.capturable else None)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""
        return {name: value.detach() for name, value in self._weights.params.items()}

    def step(self) -> None:
        """Take one optimisation step of every slot. A slot that drew no record gets noise alone."""
        indices = self._batches.draw()
        # Noise that was drawn ahead is part of the pass; other noise waits for the sums.
        if self._noise_shape is None:
            self._pass(indices)
            self._update(all_perturbed(self._sums[indices.shape[1]], self._std, self._noise))
        else:
            self._pass(indices, self._noise.normal(self._noise_shape))
        self._steps += 1

    def _differentiate(self, indices: Tensor, noise: Tensor | None = None) -> None:
        """Compute the sums of a step (slots, width), and update the weights if noise was drawn ahead."""
        # Sums of weighted gradients, over pieces of the batch that fit into memory.
        sums: list[Tensor] = []
        batch = self._inputs.with_noise(indices, None)
        for piece, images in zip(*(part.split(self._chunk, dim=1) for part in (indices, batch)), strict=True):
            labels = self._labels.gather(1, piece.clamp(min=0))
            weigh = partial(self._weigh_records, piece >= 0)
            by_name = stacked_sums(
                self.model, self.params, images, labels, weigh, self._request.config.precision
            )
            of_piece = list(by_name.values())
            sums = list(torch._foreach_add(sums, of_piece)) if sums else of_piece
        if noise is None:
            self._sums[indices.shape[1]] = sums  # a captured step writes into its own tensors
            return
        # Noise in the shapes of the parameters, and the update.
        pieces = noise.split([shape[1:].numel() for shape in self._shapes], dim=1)
        shaped = [piece.view(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        self._update(added(sums, shaped, self._std))

    def _update(self, noisy: list[Tensor]) -> None:
        """Update momentum and weights by noisy sums."""
        gradients = self._weights.gathered(noisy)
        torch._foreach_div_(gradients, self._request.batch_size)
        self._weights.update(gradients)

    def _weigh_records(self, records: Bool[Tensor, "slots n"], norms: Float[Tensor, "slots n"]) -> Tensor:
        """Compute the factors of the records' gradients, 0 for padding."""
        return self._weigh(norms.flatten()).view(norms.shape) * records

    def state(self) -> dict[str, Any]:
        """Return weights, optimizer, generators and steps, and nothing for secure noise."""
        return {**self._weights.state(), **super().state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._weights.restore(state)
        self._begin()
        super().restore(state)
