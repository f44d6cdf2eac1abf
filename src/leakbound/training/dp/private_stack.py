"""DP-SGD and DP-PSAC of several slots as one stack, as a GPU trains them.

Clipping, noise, mean and accountant are those of :mod:`leakbound.training.dp.per_sample`. Poisson samples of
the slots differ in size. They are padded to one width with records of weight 0, so that the sum is over the
drawn records. A GPU replays a CUDA graph of the step for each width. Noise that is not drawn ahead, because
it is secure or the network is large, is added outside of it.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakbound.randomness.grid import added, all_perturbed
from leakbound.randomness.sources import StackedNoise
from leakbound.training import memory, sgd, stack
from leakbound.training.batches import WIDTH, PaddedBatches, PoissonBatches
from leakbound.training.cuda_graph import Replayed, cuda_graph
from leakbound.training.dp.accounted import AccountedLearner, physical_batch
from leakbound.training.dp.weighted_sums import stacked_sums
from leakbound.training.request import Slot, TrainingRequest
from leakbound.training.stacked_layers import by_record


class PrivateStackLearner(AccountedLearner):
    """Several slots under DP-SGD or DP-PSAC, trained as one stack.

    Args:
        request: The run.
        slots: Slots of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        super().__init__(request)
        networks = [sgd.initial_network(request, slot.replica) for slot in slots]
        self._row = stack.StackWeights(networks, [slot.learning_rate for slot in slots], request.device)
        self.model = networks[0].to(request.device)
        self._optimizer = sgd.sgd_optimizer(request, self._row.leaves, 1.0)
        self._images, self._rows, self._labels = sgd.members_of(request, slots)
        drawn = [
            PoissonBatches(self._population, self._rate, request.noise(slot.replica, "batches", "cpu"))
            for slot in slots
        ]
        self._batches = PaddedBatches(drawn, request.device)
        self._std = self._client.level * self._client.defense.max_grad_norm
        self._noise = StackedNoise([request.noise(slot.replica) for slot in slots])
        self._shapes = [value.shape for value in self._row.params.values()]
        values = sum(shape[1:].numel() for shape in self._shapes)
        ahead = memory.noise_steps_ahead(request.device, values)
        self._noise.reserve(values * ahead)
        self._reserved = (len(slots), values) if ahead and not self._noise.secure else None
        self._chunk = max(1, physical_batch(self.model, request.image_shape, request.device) // len(slots))
        self._sums: dict[int, list[Tensor]] = {}
        self._begin()

    def _begin(self) -> None:
        """Capture steps from now on, and none of before, which would change the old momentum."""
        capture = cuda_graph if torch.device(self._request.device).type == "cuda" else None
        self._pass = Replayed(self._differentiate, capture)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""
        return {name: value.detach() for name, value in self._row.params.items()}

    def step(self) -> None:
        """Take one optimisation step of every slot. A slot that drew no record gets noise alone."""
        drawn = self._batches.draw()
        if self._reserved is None:
            self._pass(drawn)
            self._update(all_perturbed(self._sums[drawn.shape[1]], self._std, self._noise))
        else:
            self._pass(drawn, self._noise.normal(self._reserved))
        self._accountant.step(noise_multiplier=self._client.level, sample_rate=self._rate)

    def _differentiate(self, drawn: Tensor, noise: Tensor | None = None) -> None:
        """Compute the sums of a step (slots, width), and update the weights if noise was drawn ahead."""
        sums: list[Tensor] = []
        for piece in drawn.split(self._chunk, dim=1):
            indices = piece.clamp(min=0)
            images = by_record(self._images, self._rows.gather(1, indices))
            labels = self._labels.gather(1, indices)
            weigh = partial(self._weigh, piece >= 0)
            by_name = stacked_sums(
                self.model, self.params, images, labels, weigh, self._request.config.precision
            )
            of_piece = list(by_name.values())
            sums = list(torch._foreach_add(sums, of_piece)) if sums else of_piece
        if noise is None:
            self._sums[drawn.shape[1]] = sums  # a captured step writes into its own tensors
            return
        pieces = noise.split([shape[1:].numel() for shape in self._shapes], dim=1)
        shaped = [piece.view(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        self._update(added(sums, shaped, self._std))

    def _update(self, noisy: list[Tensor]) -> None:
        """Update momentum and weights by noisy sums."""
        gradients = self._row.gathered(noisy)
        torch._foreach_div_(gradients, self._request.batch_size)
        self._row.scale(gradients)
        for leaf, gradient in zip(self._row.leaves, gradients, strict=True):
            leaf.grad = gradient
        self._optimizer.step()

    def _weigh(self, drawn: Bool[Tensor, "slots n"], norms: Float[Tensor, "slots n"]) -> Tensor:
        """Compute the factors of the records' gradients, 0 for padding."""
        return self._weights(norms.flatten()).view(norms.shape) * drawn

    def state(self) -> dict[str, Any]:
        """Return weights, optimizer, generators and accountant, and nothing for secure noise."""
        return {
            "params": self.params,
            "optimizer": self._optimizer.state_dict(),
            "batches": self._batches.state(),
            "noise": self._noise.state(),
            "history": list(self._accountant.history),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for name, value in self.params.items():
            value.copy_(state["params"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self._begin()
        self._batches.restore(state["batches"])
        self._noise.restore(state["noise"])
        self._accountant.history = state["history"]


def largest_batch(request: TrainingRequest) -> int:
    """Return the number of records that memory is planned for: five standard deviations above the mean.

    It is at most the number of members, and rounded up to the width of a step.
    """
    size = request.batch_size + 5 * math.sqrt(request.batch_size)
    return min(-(-math.ceil(size) // WIDTH) * WIDTH, request.dataset.drawing.members + WIDTH)
