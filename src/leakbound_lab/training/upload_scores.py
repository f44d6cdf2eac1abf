"""Scores of candidates from uploads: whether an upload holds a record's own gradient, by a whitened filter.

The server takes the gradient G of a linear layer out of each upload, and compares it with the gradient δ fᵀ of each
candidate (``layer_factors``) after both are whitened (``whitening``). A channel in front of that layer adds its known
covariance to that of the inputs.

With noise on clipped gradients, all linear layers are scored together, as if they were independent. Noise averages
out over many steps, but the other members take part again and again. So a second score of all steps together counts
the others more than the noise, and what lasts is removed from the scores of single steps. Noise that differs between
coordinates is first brought to about one variance, in units of slopes and inputs that everybody can compute. Noise
that is correlated over steps is scored in two ways (``correlated_scores``). The server knows that a record takes part
in the same step of each epoch (``participation``).

Source:
    Li, Li and Ribeiro 2023, 'Effective passive membership inference attacks in federated learning against
    overparameterized models' (inner products).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.accounting.correlated import inverse_coefficients
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound_lab.datasets import Split
from leakbound_lab.models.classifier import Classifier
from leakbound_lab.training.client_steps import ClientStep
from leakbound_lab.training.layer_factors import LayerFactors, Outer, paired, scored_layers, with_one
from leakbound_lab.training.participation import (
    ParticipationRatios,
    RunningScale,
    by_bulk,
    classes_of,
    over_norms,
)
from leakbound_lab.training.request import Slot, TrainingRequest, UploadScoring
from leakbound_lab.training.whitening import (
    Units,
    WhitenedInputs,
    Whitener,
    Whitening,
    in_units,
    inner_products,
    second_moments,
)

SHARES = (0.3, 0.45, 0.6, 0.8, 1.0)
"""Shares of a record's gradient that its upload may show: noise on its image changes the gradient."""
_REFRESH = 10  # scored uploads after which moments are estimated anew


class UploadScores:
    """Likelihood ratios of membership of each slot's candidates, from the uploads so far.

    The server knows the sum of the gradients of ``window`` steps from the weights that it sent before and
    gets after them. Scores of candidates that took no part are centred by class and candidate, and scaled.

    Args:
        request: The run.
        scoring: Candidates and settings.
        slots: Slots of the stack.
        model: Architecture on the device.
        params: Parameters (slots, ...) before the first step.

    Raises:
        ValueError: If no layer of the network can be scored.
    """

    def __init__(
        self,
        request: TrainingRequest,
        scoring: UploadScoring,
        slots: Sequence[Slot],
        model: nn.Module,
        params: Mapping[str, Tensor],
    ) -> None:
        self._request = request
        self._model = model
        self._window = scoring.window
        self._population = request.dataset.drawing.members
        linear, layers = scored_layers(request.model, model, clips=request.defense.clips)
        device = request.device
        # Public records as the networks see them, and the candidates of each slot.
        images, labels = _on_device(request.dataset.aux, device)
        released = request.client.released(images[: scoring.public], self._source("public"))
        self._public = released, labels[: scoring.public]
        records = [request.dataset.pool.take(np.array(scoring.rows[slot.replica])) for slot in slots]
        self._candidates = [_on_device(each, device) for each in records]
        self._classes = [classes_of(labels) for _, labels in self._candidates]
        rates = [slot.learning_rate for slot in slots]
        self._rates = torch.tensor(rates, device=device).view(-1, 1, 1)
        # Variance of the defense's noise on the sum of a step's gradients, for each record in it.
        self._measured = type(request.client).law is not ClientStep.law
        std = 1.0 if self._measured else request.client.noise_std(request.records)
        self._noise = std**2 * request.records * self._relative_noise(request.client.noise_factor)
        self._whitener = Whitener(self._noise)
        # Steps of an epoch, if each repeats the same batches.
        cycle = 0 if request.client.noise_factor is None else self._population // request.records
        if cycle and self._window > 1:
            raise ValueError(
                f"window = {self._window}: uploads of {request.defense.mechanism} are scored one by one; give 1"
            )
        self._factors = LayerFactors(
            request, model, linear if self._noise else linear[:1], layers, scoring.precision
        )
        # Inputs of a layer that sees images do not change, so they are whitened once.
        self._images = [] if self._measured else self._whitened_images(_of_slot(params, 0), images)
        self._draws = 0 if self._images or request.channel is None else scoring.draws
        if not self._draws:
            self._candidates = [
                (self._arranged(self._without_noise(rows)), labels) for rows, labels in self._candidates
            ]
        # All that changes from step to step, as a checkpoint keeps it.
        weights = self._factors.joined(params)
        zero_sums = {name: torch.zeros_like(value) for name, value in weights.items()}
        zeros = torch.zeros((len(slots), len(SHARES), len(self._candidates[0][1])), device=device)
        self._scale = RunningScale(zeros[:, 0])
        self._participation = ParticipationRatios(
            zeros, members=self._population, cycle=cycle, poisson=request.defense.clips
        )
        self._state: dict[str, Any] = {
            "steps": 0,
            "start": detached_copies(params),
            "before": weights,
            "velocity": zero_sums,
            "total": detached_copies(zero_sums),
            "whitening": [],
            "units": [],
            "plain": torch.zeros_like(zeros[:, :1]),
            "lasting": torch.zeros_like(zeros[:, :2]),
        }

    def _relative_noise(self, factor: Float[np.ndarray, " bands"] | None) -> float:
        """Return the variance of noise on an upload, over that of the white noise that it is made of."""
        if factor is None:
            return 1.0
        return float(np.square(inverse_coefficients(factor, max(1, self._request.steps))).sum())

    @torch.no_grad()
    def add(self, params: Mapping[str, Tensor], *, last: bool) -> None:
        """Take the uploads of one step, which the server sees in the weights after it.

        Args:
            params: Parameters (slots, ...) after the step.
            last: Whether no step follows.
        """
        state = self._state
        # What was sent follows from weights, rate and momentum, which the server knows.
        sums = {}
        for name, weights in self._factors.joined(params).items():
            velocity = (state["before"][name] - weights) / self._rates
            sent = velocity - self._request.config.momentum * state["velocity"][name]
            sums[name] = self._request.records * sent
            state["velocity"][name] = velocity
            state["before"][name] = weights
        self._take(sums, params, last=last)

    def _take(self, sums: Mapping[str, Tensor], params: Mapping[str, Tensor], *, last: bool) -> None:
        """Add the sums of a step's gradients to those of its window, and score a complete one."""
        state = self._state
        for name, total in state["total"].items():
            total += sums[name]
        state["steps"] += 1
        if last or state["steps"] == self._window:
            self._score()
            for total in state["total"].values():
                total.zero_()
            state |= {"start": detached_copies(params), "steps": 0}

    def _score(self) -> None:
        """Add the scores of the uploads since the last call."""
        state = self._state
        records = self._request.records * state["steps"]
        starts = [_of_slot(state["start"], slot) for slot in range(len(self._candidates))]
        # Whitening of gradients at the weights that were sent, estimated anew every few uploads.
        if self._participation.uploads % _REFRESH == 0:
            state["units"] = [self._units(start) for start in starts]
            state["whitening"] = [self._whitening(*pair) for pair in zip(starts, state["units"], strict=True)]
        for slot, classes in enumerate(self._classes):
            # Whitened inner products with each candidate's own gradient, added up over layers.
            layers = []
            units = state["units"][slot]
            for name, (slopes, inputs) in in_units(self._factors_of(slot, starts[slot]), units).items():
                whitening = Whitening(*state["whitening"][slot][name])
                whitened = (
                    self._whitener.whitened(inputs, whitening.inputs)
                    if inputs.shape[1]
                    else self._images[slot]
                )
                total = state["total"][name][slot]
                if name in units:
                    total = total / (units[name][0][:, None] * units[name][1])
                plain, of_layer = inner_products(total, slopes, whitened, whitening)
                state["plain"][slot] += plain
                layers.append(of_layer)
            sums = torch.stack(layers).sum(0)
            state["lasting"][slot] += sums[-1]
            # Likelihood ratios for each share of its gradient that a member's upload may show.
            scores, strengths = self._scale.standardised(slot, *over_norms(*sums[0]), classes)
            means = scores.new_tensor(SHARES)[:, None] * strengths
            self._participation.add(slot, means * (scores - means / 2), records)
        self._participation.close_upload(records)

    def values(self) -> Float[Tensor, "slots statistics n"]:
        """Return log likelihood ratios for each of :data:`SHARES`, and plain inner products, on the CPU."""
        ratios = self._participation.values()
        if self._noise:
            ratios += torch.stack([self._lasting(slot) for slot in range(len(ratios))])
        return torch.cat([ratios, self._state["plain"]], dim=1).cpu()

    def _lasting(self, slot: int) -> Float[Tensor, "shares n"]:
        """Compute likelihood ratios of all steps together, of which a member takes part in a share."""
        scores, norms = over_norms(*self._state["lasting"][slot])
        scores, strengths = by_bulk(scores, norms, self._classes[slot])
        share = min(1.0, self._request.records / self._population)
        means = scores.new_tensor(SHARES)[:, None] * strengths * share
        return means * (scores - means / 2)

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        parts = {"scale": self._scale.state(), "participation": self._participation.state()}
        return {**self._state, **parts}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._state = _moved(state, self._request.device)
        self._scale.restore(self._state.pop("scale"))
        self._participation.restore(self._state.pop("participation"))

    def _source(self, purpose: str, number: int = 0) -> NoiseSource:
        """Return the source of the server's noise, the same after a resumption."""
        words = (self._request.dataset.name, "uploads", purpose, number)
        return as_source(torch_generator(self._request.seed, *words, device=self._request.device))

    def _without_noise(self, images: Tensor) -> Tensor:
        """Return images as the network sees them, but without the noise of a channel."""
        return self._request.client.expected(images, self._source("expected"))

    def _arranged(self, images: Tensor) -> Tensor:
        """Return images in the order in memory in which the network is fastest, if it has one."""
        return self._model.arranged(images) if isinstance(self._model, Classifier) else images

    def _whitened_images(self, params: Mapping[str, Tensor], images: Tensor) -> list[WhitenedInputs]:
        """Whiten candidates' images by the moments of public ones and the channel's covariance, once.

        Returns:
            Nothing for a layer that sees something else than images.
        """
        inputs = self._factors.of(params, *self._public)[self._factors.names[0]][1]
        flat = self._public[0].flatten(1)
        values = flat.shape[1]
        if not torch.equal(inputs[:, :values], flat):
            return []
        bias = None if inputs.shape[1] == values else inputs
        once = self._request.shared_values
        if "images" not in once:  # the same for all networks
            moments = second_moments(with_one(self._without_noise(images).flatten(1), bias))
            if self._request.channel is not None:
                noise = torch.from_numpy(self._request.channel.noise_covariance())
                moments[:values, :values] += noise.to(moments)
            once["images"] = self._whitener.side(moments)
        self._of_images = once["images"]
        rows = [with_one(self._without_noise(group).flatten(1), bias) for group, _ in self._candidates]
        return [self._whitener.whitened(each, self._of_images[0]) for each in rows]

    def _units(self, params: Mapping[str, Tensor]) -> dict[str, Units]:
        """Return units of slopes and inputs of each layer, in which measured noise is about equal everywhere.

        Its standard deviation on a coordinate is the root of that of the gradients, and so about a product. Without
        measured noise there are none.
        """
        law = self._request.client.law(self._model, params, self._request.records) if self._measured else None
        if law is None:
            return {}
        stds = self._factors.joined({name: value[None] for name, value in law.std.items()})
        units = {}
        for name, std in stds.items():
            logs = std[0].log()
            units[name] = (logs.mean(1).exp(), (logs.mean(0) - logs.mean()).exp())
        return units

    def _whitening(
        self, params: Mapping[str, Tensor], units: Mapping[str, Units]
    ) -> dict[str, tuple[Tensor, Tensor, Tensor | None]]:
        """Estimate from public records what whitens each layer, as tuples, which a checkpoint can hold."""
        public = self._factors.of(params, *self._public, skip_images=bool(self._images))
        whitening = {}
        for name, (slopes, inputs) in in_units(public, units).items():
            side = None if inputs.shape[1] else self._of_images
            of_slopes, of_inputs, others = self._whitener.of_layer(slopes, inputs, side)
            whitening[name] = of_slopes, of_inputs, others
        return whitening

    def _factors_of(self, slot: int, params: Mapping[str, Tensor]) -> dict[str, Outer]:
        """Compute slopes and inputs of candidates, means over draws of a channel's noise."""
        images, labels = self._candidates[slot]
        if not self._draws:
            return self._factors.of(params, images, labels, skip_images=bool(self._images))
        source = self._source("draws", self._participation.uploads)
        copies = [self._request.client.released(images, source) for _ in range(self._draws)]
        factors = [self._factors.of(params, copy, labels) for copy in copies]
        return {
            name: paired(lambda rows: torch.stack(rows).mean(0), [outer[name] for outer in factors])
            for name in self._factors.names
        }


def detached_copies(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy parameters, without their history."""
    return {name: value.detach().clone() for name, value in params.items()}


def _on_device(records: Split, device: str) -> tuple[Tensor, Tensor]:
    """Return images and labels of some records on a device."""
    return torch.from_numpy(records.images).to(device), torch.from_numpy(records.labels).to(device)


def _of_slot(params: Mapping[str, Tensor], slot: int) -> dict[str, Tensor]:
    """Return the parameters of one slot."""
    return {name: value[slot].detach() for name, value in params.items()}


def _moved(value: Any, device: str) -> Any:
    """Move the tensors of a state to a device."""
    if isinstance(value, dict):
        return {name: _moved(part, device) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(part, device) for part in value)
    return value.to(device) if isinstance(value, Tensor) else value
