"""Scores of candidates from uploads: whether an upload holds a record's own gradient, by a whitened filter.

The server takes the gradient G of one linear layer out of each upload. A record with slope δ and input f adds
δ fᵀ to it. With second moments B of slopes and A of inputs of other records, its score is δᵀ B⁻¹ G A⁻¹ f over
its norm. A channel in front of that layer adds its known covariance to A.

Source:
    Li, Li and Ribeiro 2023, 'Effective passive membership inference attacks in federated learning against
    overparameterized models' (inner products). Martens and Grosse 2015, 'Optimizing neural networks with
    Kronecker-factored approximate curvature' (B ⊗ A).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from leakbound.datasets import Split
from leakbound.models import memory
from leakbound.models.gradients import Factors
from leakbound.models.layers import factorable, parameter_layers, whole
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.training.request import Slot, TrainingRequest, UploadScoring
from leakbound.training.weighted_sums import record_norms

Outer = tuple[Float[Tensor, "n outputs"], Float[Tensor, "n values"]]
"""Slopes and inputs of a layer for some records, whose gradients are the outer products of both."""
SHARES = (0.3, 0.45, 0.6, 0.8, 1.0)
"""Shares of a record's gradient that its upload may show: noise on its image changes the gradient."""
_RIDGE = 0.01  # of the mean moment, for directions that too few public records span
_REFRESH = 10  # scored uploads after which moments are estimated anew
_MEMORY = 0.98  # part of the earlier uploads in mean and variance of a candidate's scores
_FAR = 3.0  # deviations at which a score counts no more for either: most likely the candidate took part
_SCALE = 1.4826  # standard deviation of a Gaussian, in median absolute deviations
_UNSCORED = (
    "{}: trains no linear layer that sees each record once, or clips gradients of layers other than linear, "
    "convolutional and group-normalising ones; leave out membership_uploads for this network"
)


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
        self._layer, self._layers = scored_layers(request.model, model, clips=request.defense.clips)
        device = request.device
        images, labels = _on_device(request.dataset.aux, device)
        shown = request.client.released(images[: scoring.public], self._source("public"))
        self._public = shown, labels[: scoring.public]
        drawn = [request.dataset.pool.chosen(np.array(scoring.rows[slot.replica])) for slot in slots]
        self._candidates = [_on_device(records, device) for records in drawn]
        rates = [slot.learning_rate for slot in slots]
        self._rates = torch.tensor(rates, device=device).view(-1, 1, 1)
        # Variance of the defense's noise on the sum of a step's gradients, for each record in it.
        self._noise = request.client.noise_std(request.records) ** 2 * request.records
        self._images = self._whitened_images(_of_slot(params, 0), images)
        self._draws = 0 if self._images or request.channel is None else scoring.draws
        if not self._draws:
            self._candidates = [(self._without_noise(rows), labels) for rows, labels in self._candidates]
        weights = self._joined(params)
        shape = (len(slots), len(SHARES), len(self._candidates[0][1]))
        self._state: dict[str, Any] = {
            "steps": 0,
            "scored": 0,
            "seen": 0,
            "start": _copied(params),
            "before": weights,
            "velocity": torch.zeros_like(weights),
            "total": torch.zeros_like(weights),
            "whitening": [],
            "means": weights.new_zeros(shape[0], shape[2]),
            "variances": weights.new_ones(shape[0], shape[2]),
            "plain": weights.new_zeros(shape[0], 1, shape[2]),
            "ratios": weights.new_zeros(shape),
            "epoch": weights.new_full(shape, -math.inf),
        }

    @torch.no_grad()
    def add(self, params: Mapping[str, Tensor], *, last: bool) -> None:
        """Take the uploads of one step, which the server sees in the weights after it.

        Args:
            params: Parameters (slots, ...) after the step.
            last: Whether no step follows.
        """
        state = self._state
        weights = self._joined(params)
        velocity = (state["before"] - weights) / self._rates
        sent = velocity - self._request.config.momentum * state["velocity"]
        state["total"] += self._request.records * sent
        state |= {"velocity": velocity, "before": weights, "steps": state["steps"] + 1}
        if last or state["steps"] == self._window:
            self._score()
            state["total"].zero_()
            state |= {"start": _copied(params), "steps": 0}

    def values(self) -> Float[Tensor, "slots statistics n"]:
        """Return log likelihood ratios for each of :data:`SHARES`, and plain inner products, on the CPU."""
        state = self._state
        open_epoch = state["epoch"].logaddexp(torch.tensor(_log_rest(state["seen"] / self._population)))
        return torch.cat([state["ratios"] + open_epoch, state["plain"]], dim=1).cpu()

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        return self._state

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._state = _moved(state, self._request.device)

    @property
    def _population(self) -> int:
        """Number of members."""
        return self._request.dataset.drawing.members

    def _source(self, purpose: str, number: int = 0) -> NoiseSource:
        """Return the source of the server's noise, the same after a resumption."""
        words = (self._request.dataset.name, "uploads", purpose, number)
        return as_source(torch_generator(self._request.seed, *words, device=self._request.device))

    def _joined(self, params: Mapping[str, Tensor]) -> Float[Tensor, "slots outputs values"]:
        """Join weight and bias of the scored layer as outer products have them."""
        parts = [params[f"{self._layer}.weight"].detach()]
        bias = params.get(f"{self._layer}.bias")
        return torch.cat(parts if bias is None else [*parts, bias.detach()[..., None]], dim=-1)

    def _without_noise(self, images: Tensor) -> Tensor:
        """Return images as the network sees them, but without the noise of a channel."""
        return self._request.client.expected(images, self._source("expected"))

    def _outer(
        self, params: Mapping[str, Tensor], images: Tensor, labels: Tensor, *, inputs: bool = True
    ) -> Outer:
        """Compute slopes, with the record's clipping, and inputs of the scored layer if asked for."""
        chunk = memory.FORWARD_IMAGES.on(images.device)
        factored = Factors(lambda batch: functional_call(self._model, dict(params), (batch,)), self._layers)
        pairs = []
        for piece in zip(images.split(chunk), labels.split(chunk), strict=True):
            factors = factored.constant(*piece)
            if factors is None:
                raise ValueError(_UNSCORED.format(self._request.model))
            _, layer, seen, slopes = next(factor for factor in factors if factor.name == self._layer)
            if self._request.defense.clips:
                slopes = slopes * self._request.client.record_weights(record_norms(factors))[:, None]
            pairs.append((slopes, _with_one(seen, layer.bias) if inputs else seen[:, :0]))
        return _mapped(torch.cat, pairs)

    def _whitened_images(self, params: Mapping[str, Tensor], images: Tensor) -> list[tuple[Tensor, ...]]:
        """Compute f, A⁻¹ f and fᵀ A⁻¹ f of candidates from public images and the channel's covariance.

        Returns:
            Nothing for a layer that sees something else than images.
        """
        slopes, inputs = self._outer(params, *self._public)
        flat = self._public[0].flatten(1)
        values = flat.shape[1]
        if not torch.equal(inputs[:, :values], flat):
            return []
        bias = None if inputs.shape[1] == values else inputs
        groups = (images, *(group[0] for group in self._candidates))
        public, *rows = (_with_one(self._without_noise(group).flatten(1), bias) for group in groups)
        moments = _moments(public)
        if self._request.channel is not None:
            moments[:values, :values] += torch.from_numpy(self._request.channel.noise_covariance()).to(
                moments
            )
        inverse = _inverse(moments, self._noise / slopes.square().mean())
        return [_turned(each, inverse) for each in rows]

    def _whitening(self, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Estimate B⁻¹ and A⁻¹ from public records, A⁻¹ only where it is not known from the images."""
        slopes, inputs = self._outer(params, *self._public)
        of_inputs = inputs[:0]
        if not self._images:
            of_inputs = _inverse(_moments(inputs), self._noise / slopes.square().mean())
        return _inverse(_moments(slopes), self._noise / inputs.square().mean()), of_inputs

    def _seen(self, slot: int, params: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Compute δ, f, A⁻¹ f and fᵀ A⁻¹ f of candidates, means over draws of a channel's noise."""
        images, labels = self._candidates[slot]
        if self._images:
            return self._outer(params, images, labels, inputs=False)[0], *self._images[slot]
        source = self._source("draws", self._state["scored"])
        released = [self._request.client.released(images, source) for _ in range(self._draws)] or [images]
        drawn = [self._outer(params, shown, labels) for shown in released]
        slopes, inputs = _mapped(lambda rows: torch.stack(rows).mean(0), drawn)
        return slopes, *_turned(inputs, self._state["whitening"][slot][1])

    def _score(self) -> None:
        """Add the scores of the uploads since the last call."""
        state = self._state
        records = self._request.records * state["steps"]
        starts = [_of_slot(state["start"], slot) for slot in range(len(self._candidates))]
        if state["scored"] % _REFRESH == 0:
            state["whitening"] = [self._whitening(start) for start in starts]
        for slot, (_, labels) in enumerate(self._candidates):
            slopes, inputs, turned, lengths = self._seen(slot, starts[slot])
            total = state["total"][slot]
            state["plain"][slot] += ((inputs @ total.T) * slopes).sum(1)
            scores, norms = filtered(total, slopes, slopes @ state["whitening"][slot][0], turned, lengths)
            scores, strengths = self._standardised(slot, scores, norms, labels)
            means = scores.new_tensor(SHARES)[:, None] * strengths
            self._add_ratios(slot, means * (scores - means / 2), records)
        state["scored"] += 1
        state["seen"] = 0 if self._request.defense.clips else (state["seen"] + records) % self._population

    def _standardised(
        self, slot: int, scores: Float[Tensor, " n"], norms: Float[Tensor, " n"], labels: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Scale scores to mean 0 and variance 1 of candidates that take no part, and their norms alike.

        At most steps few of the candidates take part, so the bulk is that of the others.
        """
        for label in labels.unique():
            scores[labels == label] -= scores[labels == label].median()
        deviation = (_SCALE * scores.abs().median()).clamp(min=torch.finfo(scores.dtype).tiny)
        scores = scores / deviation
        means, variances = (self._state[name][slot] for name in ("means", "variances"))
        means.lerp_(scores.clamp(-_FAR, _FAR), 1 - _MEMORY)
        scores = scores - means
        variances.lerp_(scores.clamp(-_FAR, _FAR).square(), 1 - _MEMORY)
        return scores / variances.sqrt(), norms / deviation / variances.sqrt()

    def _add_ratios(self, slot: int, ratios: Float[Tensor, "shares n"], records: int) -> None:
        """Add the likelihood ratios of having taken part in some uploads, by how likely that was before.

        A Poisson sample holds a member independently of the others. Of shuffled batches, exactly one in each
        epoch does.
        """
        total, epoch = (self._state[name][slot] for name in ("ratios", "epoch"))
        share = min(1.0, records / self._population)
        if self._request.defense.clips:
            total += (ratios + math.log(share)).logaddexp(torch.tensor(_log_rest(share)))
            return
        left = 1.0 - self._state["seen"] / self._population
        torch.logaddexp(epoch, ratios + math.log(min(share, left)), out=epoch)
        if share >= left:
            total += epoch
            epoch.fill_(-math.inf) if share == left else epoch.copy_(ratios + math.log(share - left))


def filtered(
    total: Tensor, slopes: Tensor, whitened: Tensor, turned: Tensor, lengths: Tensor
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Compute the inner product of each record's gradient δ fᵀ with a sum G, over its norm, and the norm.

    Both are whitened: δᵀ B⁻¹ G A⁻¹ f, and (δᵀ B⁻¹ δ · fᵀ A⁻¹ f)^½, of which no gradient is formed.

    Args:
        total: (outputs, values), G, the sum of the gradients of some records.
        slopes: (n, outputs), δ.
        whitened: (n, outputs), B⁻¹ δ.
        turned: (n, values), A⁻¹ f.
        lengths: (n,), fᵀ A⁻¹ f.
    """
    squares = (whitened * slopes).sum(1) * lengths
    norms = squares.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
    return ((turned @ total.T) * whitened).sum(1) / norms, norms


def _on_device(records: Split, device: str) -> tuple[Tensor, Tensor]:
    """Return images and labels of some records on a device."""
    return torch.from_numpy(records.images).to(device), torch.from_numpy(records.labels).to(device)


def _turned(inputs: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, A⁻¹ f and fᵀ A⁻¹ f."""
    turned = inputs @ inverse
    return inputs, turned, (turned * inputs).sum(1)


def _with_one(rows: Tensor, bias: Tensor | None) -> Tensor:
    """Append the input of a bias, if there is one."""
    return rows if bias is None else torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def scored_layers(name: str, model: nn.Module, *, clips: bool) -> tuple[str, dict[str, nn.Module]]:
    """Return the first trained linear layer, and the layers whose gradients count: all if they are clipped.

    Args:
        name: Name of the network, for the message.
        model: The network.
        clips: Whether the defense clips gradients.

    Raises:
        ValueError: If there are none.
    """
    layers = parameter_layers(model)
    linear = [name for name, layer in layers.items() if type(layer) is nn.Linear and whole(layer)]
    if not linear or (clips and not factorable(model)):
        raise ValueError(_UNSCORED.format(name))
    return linear[0], layers if clips else {linear[0]: layers[linear[0]]}


def _moments(rows: Float[Tensor, "n values"]) -> Float[Tensor, "values values"]:
    """Compute the second moments of some rows."""
    return rows.T @ rows / len(rows)


def _inverse(moments: Float[Tensor, "values values"], noise: Tensor) -> Float[Tensor, "values values"]:
    """Invert second moments with a ridge and the variance of noise, NaN where they are NaN."""
    diagonal = moments.diagonal()
    diagonal += _RIDGE * diagonal.mean() + noise + torch.finfo(moments.dtype).tiny
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(moments).L)


def _mapped(join: Callable[[tuple[Tensor, ...]], Tensor], pairs: Sequence[Outer]) -> Outer:
    """Join slopes and inputs of several pairs."""
    slopes, inputs = (join(rows) for rows in zip(*pairs, strict=True))
    return slopes, inputs


def _copied(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy parameters, without their history."""
    return {name: value.detach().clone() for name, value in params.items()}


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


def _log_rest(share: float) -> float:
    """Return ln(1 − share), finite for a share of 1."""
    return math.log(max(1.0 - share, torch.finfo(torch.float32).tiny))
