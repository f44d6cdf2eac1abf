"""DP-MF: clipped gradients in cyclic batches, with Gaussian noise that is correlated over steps.

What a step adds to its sum takes back a part of what the steps before have added, so that weights, which are made of
the sum of all uploads, have less noise than each upload. ε is that of all uploads as one Gaussian mechanism
(:mod:`leakbound.accounting.correlated`). It holds against whoever sees all of them and knows the batches.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.accounting.correlated import participations, square_root_bands
from leakbound.accounting.dp import gaussian_steps, poisson_epsilon
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.randomness.grid import grid_spacing, to_grid
from leakbound_lab.config.defenses import DPMF
from leakbound_lab.training.accounted_learner import largest_batch
from leakbound_lab.training.batches import CyclicBatches
from leakbound_lab.training.client_steps import ClippedStep
from leakbound_lab.training.loop import slots_per_stack, train_slots
from leakbound_lab.training.per_sample import PrivateStackLearner
from leakbound_lab.training.request import Slot, TrainingRequest, TrainingResult


def train_correlated(request: TrainingRequest) -> TrainingResult:
    """Train by clipped gradients of cyclic batches with correlated noise, as many slots at a time as memory allows.

    Source:
        Choquette-Choo et al. 2023, "(Amplified) banded matrix factorization", Algorithm 1, without amplification.
    """
    return train_slots(request, CorrelatedLearner, slots_per_stack(request, largest_batch(request)))


class CorrelatedStep(ClippedStep):
    """Step of DP-MF. The first one, which attacks on single uploads see, is that of DP-SGD."""

    defense: DPMF

    @cached_property
    def noise_factor(self) -> Float[np.ndarray, " bands"]:
        """First column of C, whose inverse correlates the noise."""
        return square_root_bands(self.defense.bands)

    def event(self, **counted: Any) -> PrivacyEvent:
        """Return the record of clipping and correlated noise."""
        return super().event(bands=self.defense.bands, **counted)


class CorrelatedNoise:
    """Rows of C⁻¹Z in turn, from those of Z, for banded Toeplitz C with ones on the diagonal.

    Args:
        coefficients: First column of C.
    """

    def __init__(self, coefficients: Float[np.ndarray, " bands"]) -> None:
        self._coefficients = [*map(float, coefficients[1:])]
        self._past: deque[list[Tensor]] = deque(maxlen=len(self._coefficients))  # the latest first

    def following(self, white: Sequence[Tensor]) -> list[Tensor]:
        """Return the next row, made of the next one of Z, in its shapes."""
        noise = list(white)
        for coefficient, past in zip(self._coefficients, self._past, strict=False):
            noise = list(torch._foreach_add(noise, past, alpha=-coefficient))
        self._past.appendleft(noise)
        return noise

    def state(self) -> list[list[Tensor]]:
        """Return the rows that the next ones depend on."""
        return list(self._past)

    def restore(self, state: Sequence[Sequence[Tensor]], like: Sequence[Tensor]) -> None:
        """Resume from :meth:`state`, on the device of some tensors."""
        rows = ([part.to(each.device) for part, each in zip(row, like, strict=True)] for row in state)
        self._past = deque(rows, maxlen=len(self._coefficients))


class CorrelatedLearner(PrivateStackLearner):
    """Several slots under DP-MF, trained as one stack.

    Args:
        request: The run.
        slots: Slots of the run to train.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        super().__init__(request, slots)
        step: Any = request.client
        self._correlated = CorrelatedNoise(step.noise_factor)
        self._noise_shape = None  # noise waits for the sums: it needs that of earlier steps

    def _batches_of(self, replica: int) -> CyclicBatches:
        """Return the cyclic batches of a replica."""
        order = self._request.generator(replica, "batches")
        return CyclicBatches(self._population, self._request.batch_size, order)

    def step(self) -> None:
        """Take one optimisation step of every slot."""
        drawn = self._batches.draw()
        self._pass(drawn)
        self._update(self._noisy(self._sums[drawn.shape[1]]))
        self._steps += 1

    def _noisy(self, sums: list[Tensor]) -> list[Tensor]:
        """Add the next noise to the sums of a step, on a grid if it is secure."""
        secure = self._noise.secure
        of_type = torch.float64 if secure else sums[0].dtype
        noise = self._correlated.following([self._noise.normal(total.shape, of_type) for total in sums])
        if not secure:
            return list(torch._foreach_add(sums, torch._foreach_mul(noise, self._std)))
        spacing = float(grid_spacing(np.array([self._std]))[0])
        return [
            to_grid(torch.add(total.double(), each, alpha=self._std), spacing).to(total.dtype)
            for total, each in zip(sums, noise, strict=True)
        ]

    def metrics(self) -> dict[str, float]:
        """Return ε of all uploads so far, at the δ of the defense, for a record with all its copies or an owner."""
        defense = self._client.defense
        event = self.event(0, self._steps)
        spent = poisson_epsilon(*gaussian_steps(event), defense.delta, defense.accountant, rows=event.rows)
        return {"epsilon": spent}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Return the record of steps on cyclic batches with correlated noise."""
        size = self._request.batch_size
        uses = participations(steps, self._population // size) * self._units["rows"]
        return self._client.event(
            sampling="cyclic",
            population=self._population,
            batch_size=size,
            steps=steps,
            uses=uses,
            **self._units,
        )

    def state(self) -> dict[str, Any]:
        """Return what the next steps depend on, and no secure noise.

        Without it noise begins from scratch, as by a C whose columns end there. None gets longer, so that ε holds.
        """
        past = [] if self._noise.secure else self._correlated.state()
        return {**super().state(), "correlated": past}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state`."""
        super().restore(dict(state))
        self._correlated.restore(state["correlated"], list(self._weights.params.values()))
