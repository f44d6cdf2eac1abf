"""Scores of candidates from uploads: whether an upload holds a record's own gradient, by a whitened filter.

The server takes the gradient G of a linear layer out of each upload. A record with slope δ and input f adds
δ fᵀ to it. With second moments B of slopes and A of inputs of other records, its score is δᵀ B⁻¹ G A⁻¹ f over
its norm. A channel in front of that layer adds its known covariance to A.

Noise of variance σ² on the sum of n clipped gradients is added to n B ⊗ A, whose axes stay. All linear layers
are then scored together, as if they were independent. Noise averages out over many steps, but the other
members take part again and again. So a second score of all steps together counts the others more than the
noise, and what lasts is removed from the scores of single steps. Noise that differs between coordinates is
first brought to about one variance, in units of slopes and inputs that everybody can compute. Noise that is
correlated over steps is seen in two ways, in uploads as they are and in their sums over nearby steps by a matched
filter. The server chooses between both by records that it knows. It knows that a record takes part in the same step
of each epoch.

Source:
    Li, Li and Ribeiro 2023, 'Effective passive membership inference attacks in federated learning against
    overparameterized models' (inner products). Martens and Grosse 2015, 'Optimizing neural networks with
    Kronecker-factored approximate curvature' (B ⊗ A).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from leakbound.accounting.correlated import inverse_coefficients
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound_lab.datasets import Split
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Factors
from leakbound_lab.models.layers import factorable, parameter_layers, whole
from leakbound_lab.training.client_steps import ClientStep
from leakbound_lab.training.matched_filter import MatchedFilter
from leakbound_lab.training.request import Slot, TrainingRequest, UploadScoring
from leakbound_lab.training.weighted_sums import record_norms

Outer = tuple[Float[Tensor, "n outputs"], Float[Tensor, "n values"]]
"""Slopes and inputs of a layer for some records, whose gradients are the outer products of both."""
_Units = tuple[Float[Tensor, " outputs"], Float[Tensor, " values"]]
"""Units of slopes and of inputs of a layer."""
_Seen = tuple[Float[Tensor, "n values"], Float[Tensor, "n axes"], Float[Tensor, " n"]]
"""Inputs f of a layer, A⁻¹ f and fᵀ A⁻¹ f, or coordinates of f along the axes of A and fᵀ f."""
SHARES = (0.3, 0.45, 0.6, 0.8, 1.0)
"""Shares of a record's gradient that its upload may show: noise on its image changes the gradient."""
_OTHERS = (4.0, 100.0)  # weights of the variance of others, in scores of single steps and of all steps
_AXES = 512  # axes of inputs along which others are more than noise on gradients
_LEAST = 1e-12  # of the largest moment, for an axis of a Gram matrix that is more than rounding
_RIDGE = 0.01  # of the mean moment, for directions that too few public records span
_REFRESH = 10  # scored uploads after which moments are estimated anew
_MEMORY = 0.98  # part of the earlier uploads in mean and variance of a candidate's scores
_FAR = 3.0  # deviations at which a score counts no more for either: most likely the candidate took part
_SCALE = 1.4826  # standard deviation of a Gaussian, in median absolute deviations
_UNSCORED = (
    "{}: trains no linear layer that sees each record once, or clips gradients of layers other than linear, "
    "convolutional and group-normalising ones; leave out membership_uploads for this network"
)


class Whitening(NamedTuple):
    """Whitening of gradients δ fᵀ of one layer.

    Attributes:
        slopes: B⁻¹, or the axes of B as columns.
        inputs: A⁻¹, or the axes of A as columns.
        others: (scores, outputs, axes), the part of the variance along each pair of axes that is not noise on
            gradients, for each of some scores. None without such noise, where inverses whiten.
    """

    slopes: Tensor
    inputs: Tensor
    others: Tensor | None


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
        linear, self._layers = scored_layers(request.model, model, clips=request.defense.clips)
        device = request.device
        # Public records as the networks see them, and the candidates of each slot.
        images, labels = _on_device(request.dataset.aux, device)
        shown = request.client.released(images[: scoring.public], self._source("public"))
        self._public = shown, labels[: scoring.public]
        drawn = [request.dataset.pool.chosen(np.array(scoring.rows[slot.replica])) for slot in slots]
        self._candidates = [_on_device(records, device) for records in drawn]
        rates = [slot.learning_rate for slot in slots]
        self._rates = torch.tensor(rates, device=device).view(-1, 1, 1)
        # Variance of the defense's noise on the sum of a step's gradients, for each record in it.
        self._measured = type(request.client).law is not ClientStep.law
        std = 1.0 if self._measured else request.client.noise_std(request.records)
        self._noise = std**2 * request.records * self._relative_noise(request.client.noise_factor)
        # Steps of an epoch, if each repeats the same batches.
        self._cycle = 0 if request.client.noise_factor is None else self._population // request.records
        if self._cycle and self._window > 1:
            raise ValueError(
                f"window = {self._window}: uploads of {request.defense.mechanism} are scored one by one; give 1"
            )
        self._scored = linear if self._noise else linear[:1]
        # Inputs of a layer that sees images do not change, so they are whitened once.
        self._images = [] if self._measured else self._whitened_images(_of_slot(params, 0), images)
        self._draws = 0 if self._images or request.channel is None else scoring.draws
        if not self._draws:
            self._candidates = [(self._without_noise(rows), labels) for rows, labels in self._candidates]
        # All that changes from step to step, as a checkpoint keeps it.
        weights = self._joined(params)
        still = {name: torch.zeros_like(value) for name, value in weights.items()}
        shape = (len(slots), len(SHARES), len(self._candidates[0][1]))
        ratios = torch.zeros(shape, device=device)
        self._state: dict[str, Any] = {
            "steps": 0,
            "scored": 0,
            "seen": 0,
            "start": _copied(params),
            "before": weights,
            "velocity": still,
            "total": _copied(still),
            "whitening": [],
            "units": [],
            "means": torch.zeros_like(ratios[:, 0]),
            "variances": torch.ones_like(ratios[:, 0]),
            "plain": torch.zeros_like(ratios[:, :1]),
            "lasting": torch.zeros_like(ratios[:, :2]),
            "ratios": ratios,
            "epoch": torch.full_like(ratios, -math.inf),
            "phases": ratios.new_zeros(self._cycle, *shape),
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
        for name, weights in self._joined(params).items():
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
            state |= {"start": _copied(params), "steps": 0}

    def values(self) -> Float[Tensor, "slots statistics n"]:
        """Return log likelihood ratios for each of :data:`SHARES`, and plain inner products, on the CPU."""
        state = self._state
        epoch = state["epoch"]
        if self._cycle:
            open_epoch = state["phases"].logsumexp(0) - math.log(self._cycle)
        else:
            open_epoch = epoch.logaddexp(epoch.new_tensor(_log_rest(state["seen"] / self._population)))
        ratios = state["ratios"] + open_epoch
        if self._noise:
            ratios += torch.stack([self._lasting(slot) for slot in range(len(ratios))])
        return torch.cat([ratios, state["plain"]], dim=1).cpu()

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        return self._state

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._state = _moved(state, self._request.device)

    def _source(self, purpose: str, number: int = 0) -> NoiseSource:
        """Return the source of the server's noise, the same after a resumption."""
        words = (self._request.dataset.name, "uploads", purpose, number)
        return as_source(torch_generator(self._request.seed, *words, device=self._request.device))

    def _joined(self, params: Mapping[str, Tensor]) -> dict[str, Float[Tensor, "slots outputs values"]]:
        """Join weight and bias of each scored layer as outer products have them."""
        joined = {}
        for name in self._scored:
            parts = [params[f"{name}.weight"].detach()]
            bias = params.get(f"{name}.bias")
            joined[name] = torch.cat(parts if bias is None else [*parts, bias.detach()[..., None]], dim=-1)
        return joined

    def _without_noise(self, images: Tensor) -> Tensor:
        """Return images as the network sees them, but without the noise of a channel."""
        return self._request.client.expected(images, self._source("expected"))

    def _outer(
        self, params: Mapping[str, Tensor], images: Tensor, labels: Tensor, *, skip_images: bool = False
    ) -> dict[str, Outer]:
        """Compute slopes, with the record's clipping, and inputs of each scored layer unless known."""
        chunk = memory.FORWARD_IMAGES.on(images.device)
        factored = Factors(lambda batch: functional_call(self._model, dict(params), (batch,)), self._layers)
        pairs: dict[str, list[Outer]] = {name: [] for name in self._scored}
        for piece in zip(images.split(chunk), labels.split(chunk), strict=True):
            factors = factored.constant(*piece)
            if factors is None:
                raise ValueError(_UNSCORED.format(self._request.model))
            weights: float | Tensor = 1.0
            if self._request.defense.clips:
                weights = self._request.client.record_weights(record_norms(factors))[:, None]
            for name, layer, inputs, slopes in factors:
                if name in pairs:
                    skipped = skip_images and name == self._scored[0]
                    seen = inputs[:, :0] if skipped else _with_one(inputs, layer.bias)
                    pairs[name].append((slopes * weights, seen))
        return {name: _mapped(torch.cat, rows) for name, rows in pairs.items()}

    def _whitened_images(self, params: Mapping[str, Tensor], images: Tensor) -> list[_Seen]:
        """Whiten candidates' images by the moments of public ones and the channel's covariance, once.

        Returns:
            Nothing for a layer that sees something else than images.
        """
        inputs = self._outer(params, *self._public)[self._scored[0]][1]
        flat = self._public[0].flatten(1)
        values = flat.shape[1]
        if not torch.equal(inputs[:, :values], flat):
            return []
        bias = None if inputs.shape[1] == values else inputs
        once = self._request.once
        if "images" not in once:  # the same for all networks
            moments = _moments(_with_one(self._without_noise(images).flatten(1), bias))
            if self._request.channel is not None:
                noise = torch.from_numpy(self._request.channel.noise_covariance())
                moments[:values, :values] += noise.to(moments)
            once["images"] = self._side(moments)
        self._of_images = once["images"]
        rows = [_with_one(self._without_noise(group).flatten(1), bias) for group, _ in self._candidates]
        return [self._whitened(each, self._of_images[0]) for each in rows]

    def _side_of(self, rows: Float[Tensor, "n values"]) -> tuple[Tensor, Tensor]:
        """Return the inverse of the second moments of rows, or their largest axes if gradients are noisy."""
        if self._noise and len(rows) < rows.shape[1] and rows.isfinite().all():
            return _axes_of_few(rows)
        return self._side(_moments(rows))

    def _side(self, moments: Float[Tensor, "values values"]) -> tuple[Tensor, Tensor]:
        """Return the inverse of A or B, or its largest axes with their moments if gradients are noisy."""
        if not self._noise:
            return _inverse(moments), moments[:0, 0]
        finite = moments if moments.isfinite().all() else torch.zeros_like(moments)  # of a diverged network
        squares, axes = torch.linalg.eigh(finite)
        return axes[:, -_AXES:], squares[-_AXES:].clamp(min=0)

    def _whitened(self, inputs: Tensor, of_inputs: Tensor) -> _Seen:
        """Whiten inputs of a layer, or express them along axes."""
        turned = inputs @ of_inputs
        return inputs, turned, ((inputs if self._noise else turned) * inputs).sum(1)

    def _units(self, params: Mapping[str, Tensor]) -> dict[str, _Units]:
        """Return units of slopes and inputs of each layer, in which measured noise is about equal everywhere.

        Its standard deviation on a coordinate is the root of that of the gradients, and so about a product. Without
        measured noise there are none.
        """
        law = self._request.client.law(self._model, params, self._request.records) if self._measured else None
        if law is None:
            return {}
        stds = self._joined({name: value[None] for name, value in law.std.items()})
        units = {}
        for name, std in stds.items():
            logs = std[0].log()
            units[name] = (logs.mean(1).exp(), (logs.mean(0) - logs.mean()).exp())
        return units

    def _whitening(
        self, params: Mapping[str, Tensor], units: Mapping[str, _Units]
    ) -> dict[str, tuple[Tensor, Tensor, Tensor | None]]:
        """Estimate from public records what whitens each layer, as tuples, which a checkpoint can hold."""
        whitening = {}
        public = self._outer(params, *self._public, skip_images=bool(self._images))
        for name, (slopes, inputs) in _in_units(public, units).items():
            of_slopes, outputs = self._side_of(slopes)
            of_inputs, values = self._side_of(inputs) if inputs.shape[1] else self._of_images
            others = None
            if self._noise:
                variances = slopes.new_tensor(_OTHERS)[:, None, None] * outputs[:, None] * values
                others = variances / (variances + self._noise)
            whitening[name] = of_slopes, of_inputs, others
        return whitening

    def _factors(self, slot: int, params: Mapping[str, Tensor]) -> dict[str, Outer]:
        """Compute slopes and inputs of candidates, means over draws of a channel's noise."""
        images, labels = self._candidates[slot]
        if not self._draws:
            return self._outer(params, images, labels, skip_images=bool(self._images))
        source = self._source("draws", self._state["scored"])
        draws = [self._request.client.released(images, source) for _ in range(self._draws)]
        drawn = [self._outer(params, shown, labels) for shown in draws]
        return {
            name: _mapped(lambda rows: torch.stack(rows).mean(0), [outer[name] for outer in drawn])
            for name in self._scored
        }

    def _score(self) -> None:
        """Add the scores of the uploads since the last call."""
        state = self._state
        records = self._request.records * state["steps"]
        starts = [_of_slot(state["start"], slot) for slot in range(len(self._candidates))]
        # Whitening of gradients at the weights that were sent, estimated anew every few uploads.
        if state["scored"] % _REFRESH == 0:
            state["units"] = [self._units(start) for start in starts]
            state["whitening"] = [self._whitening(*pair) for pair in zip(starts, state["units"], strict=True)]
        # Whitened inner products with each candidate's own gradient, added up over layers.
        for slot, (_, labels) in enumerate(self._candidates):
            layers = []
            units = state["units"][slot]
            for name, (slopes, inputs) in _in_units(self._factors(slot, starts[slot]), units).items():
                whitening = Whitening(*state["whitening"][slot][name])
                seen = self._whitened(inputs, whitening.inputs) if inputs.shape[1] else self._images[slot]
                total = state["total"][name][slot]
                if name in units:
                    total = total / (units[name][0][:, None] * units[name][1])
                plain, of_layer = filtered(total, slopes, seen, whitening)
                state["plain"][slot] += plain
                layers.append(of_layer)
            sums = torch.stack(layers).sum(0)
            state["lasting"][slot] += sums[-1]
            # Likelihood ratios for each share of its gradient that a member's upload may show.
            scores, strengths = self._standardised(slot, *_over_norms(*sums[0]), labels)
            means = scores.new_tensor(SHARES)[:, None] * strengths
            self._add_ratios(slot, means * (scores - means / 2), records)
        state["scored"] += 1
        state["seen"] = 0 if self._request.defense.clips else (state["seen"] + records) % self._population

    def _lasting(self, slot: int) -> Float[Tensor, "shares n"]:
        """Compute likelihood ratios of all steps together, of which a member takes part in a share."""
        scores, norms = _over_norms(*self._state["lasting"][slot])
        scores, strengths = _by_bulk(scores, norms, self._candidates[slot][1])
        share = min(1.0, self._request.records / self._population)
        means = scores.new_tensor(SHARES)[:, None] * strengths * share
        return means * (scores - means / 2)

    def _standardised(
        self, slot: int, scores: Float[Tensor, " n"], norms: Float[Tensor, " n"], labels: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Scale scores to mean 0 and variance 1 of candidates that take no part, and their norms alike.

        Few candidates take part in a step, so most scores are of candidates that do not.
        """
        weights = torch.where(_tells(norms), 1 - _MEMORY, 0.0)
        scores, norms = _by_bulk(scores, norms, labels)
        means, variances = (self._state[name][slot] for name in ("means", "variances"))
        means.lerp_(scores.clamp(-_FAR, _FAR), weights)
        scores = scores - means
        variances.lerp_(scores.clamp(-_FAR, _FAR).square(), weights)
        return scores / variances.sqrt(), norms / variances.sqrt()

    def _add_ratios(self, slot: int, ratios: Float[Tensor, "shares n"], records: int) -> None:
        """Add the likelihood ratios of having taken part in some uploads, by how likely that was before.

        A Poisson sample holds a member independently of the others. Of shuffled batches, exactly one in each
        epoch does, of cyclic ones always the same.
        """
        if self._cycle:
            self._state["phases"][self._state["scored"] % self._cycle, slot] += ratios
            return
        total, epoch = (self._state[name][slot] for name in ("ratios", "epoch"))
        share = min(1.0, records / self._population)
        if self._request.defense.clips:
            total += (ratios + math.log(share)).logaddexp(ratios.new_tensor(_log_rest(share)))
            return
        left = 1.0 - self._state["seen"] / self._population
        torch.logaddexp(epoch, ratios + math.log(min(share, left)), out=epoch)
        if share >= left:
            total += epoch
            epoch.fill_(-math.inf) if share == left else epoch.copy_(ratios + math.log(share - left))


class FilteredScores(UploadScores):
    """Likelihood ratios from sums of uploads over nearby steps, in which correlated noise is least.

    Arguments are those of :class:`UploadScores`.
    """

    def __init__(self, request: TrainingRequest, *rest: Any) -> None:
        factor = request.client.noise_factor
        if factor is None:
            raise ValueError(f"{request.defense.mechanism} has independent noise: take UploadScores")
        self._filter = MatchedFilter(factor)
        super().__init__(request, *rest)

    def _relative_noise(self, factor: Float[np.ndarray, " bands"] | None) -> float:
        """Return the variance of filtered noise, as a part of how often others are counted."""
        return self._filter.noise / self._filter.others

    def _take(self, sums: Mapping[str, Tensor], params: Mapping[str, Tensor], *, last: bool) -> None:
        """Filter the sums of a step's gradients, and score the steps that no later upload adds to."""
        state = self._state
        begun = state["start"]
        for start, total in self._filter.pushed(begun, sums, last=last):
            state |= {"start": start, "total": total, "steps": 1}
            self._score()
        state["start"] = _copied(params)

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        return {**super().state(), "filter": self._filter.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        super().restore(state)
        self._filter.restore(self._state.pop("filter"))


class BothScores:
    """Scores of uploads with correlated noise as they are, and of their sums over nearby steps.

    Arguments are those of :class:`UploadScores`.
    """

    def __init__(self, *arguments: Any) -> None:
        self._scores = [FilteredScores(*arguments), UploadScores(*arguments)]

    def add(self, params: Mapping[str, Tensor], *, last: bool) -> None:
        """Take the uploads of one step."""
        for scores in self._scores:
            scores.add(params, last=last)

    def values(self) -> Float[Tensor, "slots statistics n"]:
        """Return log likelihood ratios of both, and plain inner products with the uploads as they are."""
        summed, as_sent = (scores.values() for scores in self._scores)
        return torch.cat([summed[:, :-1], as_sent], dim=1)

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        summed, as_sent = (scores.state() for scores in self._scores)
        return {"filtered": summed, "as_sent": as_sent}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for scores, saved in zip(self._scores, (state["filtered"], state["as_sent"]), strict=True):
            scores.restore(saved)


def filtered(
    total: Float[Tensor, "outputs values"],
    slopes: Float[Tensor, "n outputs"],
    seen: _Seen,
    whitening: Whitening,
) -> tuple[Float[Tensor, " n"], Float[Tensor, "scores 2 n"]]:
    """Compute inner products of records' gradients δ fᵀ with a sum G, of which no gradient is formed.

    Args:
        total: G, the sum of the gradients of some records.
        slopes: δ.
        seen: f, in what form the whitening takes it.
        whitening: B⁻¹ and A⁻¹, or axes with noise on gradients.

    Returns:
        δᵀ G f, and for each score the whitened inner product and the whitened squared norm of the gradient:
        δᵀ B⁻¹ G A⁻¹ f and δᵀ B⁻¹ δ · fᵀ A⁻¹ f. With noise of variance σ² on the sum, both are those of the
        inverse of n B ⊗ A + σ², times σ².
    """
    inputs, turned, lengths = seen
    along = slopes @ whitening.slopes
    plain = ((inputs @ total.T) * slopes).sum(1)
    if whitening.others is None:
        sums = torch.stack([((turned @ total.T) * along).sum(1), (along * slopes).sum(1) * lengths])
        return plain, sums[None]
    rotated = whitening.slopes.T @ total @ whitening.inputs
    whole = torch.stack([plain, slopes.square().sum(1) * lengths])
    removed = [
        torch.stack(
            [((along @ (rotated * part)) * turned).sum(1), ((along.square() @ part) * turned.square()).sum(1)]
        )
        for part in whitening.others
    ]
    return plain, whole - torch.stack(removed)


def _in_units(factors: Mapping[str, Outer], units: Mapping[str, _Units]) -> dict[str, Outer]:
    """Express slopes and inputs of layers in units of the noise, if there are any."""
    return {
        name: (slopes / units[name][0], inputs / units[name][1]) if name in units else (slopes, inputs)
        for name, (slopes, inputs) in factors.items()
    }


def _over_norms(products: Float[Tensor, " n"], squares: Float[Tensor, " n"]) -> tuple[Tensor, Tensor]:
    """Divide inner products by norms. Return norms, too."""
    norms = squares.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
    return products / norms, norms


def _by_bulk(
    scores: Float[Tensor, " n"], norms: Float[Tensor, " n"], labels: Int[Tensor, " n"]
) -> tuple[Tensor, Tensor]:
    """Centre scores at the median of their class, and scale scores and norms by the bulk's deviation.

    Gradients of 0 have the score 0, and are no part of the bulk.
    """
    tells = _tells(norms)
    centred = scores.clone()
    for label in labels.unique():
        of_class = tells & (labels == label)
        centred[of_class] -= scores[of_class].median()
    deviation = _SCALE * centred[tells].abs().median()
    deviation = deviation.where(deviation != 0, math.inf)  # a bulk without spread has no scale
    return (centred / deviation).where(tells, 0), (norms / deviation).where(tells, 0)


def _tells(norms: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Return where a norm is above rounding or NaN. It is 0 for records at which all units of a layer are off."""
    return ~(norms <= torch.finfo(norms.dtype).tiny ** 0.5)


def _on_device(records: Split, device: str) -> tuple[Tensor, Tensor]:
    """Return images and labels of some records on a device."""
    return torch.from_numpy(records.images).to(device), torch.from_numpy(records.labels).to(device)


def _with_one(rows: Tensor, bias: Tensor | None) -> Tensor:
    """Append the input of a bias, if there is one."""
    return rows if bias is None else torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def scored_layers(name: str, model: nn.Module, *, clips: bool) -> tuple[list[str], dict[str, nn.Module]]:
    """Return the first trained linear layer, or all if gradients are clipped, and all layers that count.

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
    return (linear, layers) if clips else (linear[:1], {linear[0]: layers[linear[0]]})


def _moments(rows: Float[Tensor, "n values"]) -> Float[Tensor, "values values"]:
    """Compute the second moments of some rows."""
    return rows.T @ rows / len(rows)


def _axes_of_few(
    rows: Float[Tensor, "n values"],
) -> tuple[Float[Tensor, "values axes"], Float[Tensor, " axes"]]:
    """Compute the largest axes of the second moments of fewer rows than values, and these, by the rows' Gram matrix.

    Axes along which the rows do not differ from 0 are 0, as are their moments.
    """
    exact = rows.double()
    squares, vectors = torch.linalg.eigh(exact @ exact.T / len(rows))
    squares, vectors = squares[-_AXES:], vectors[:, -_AXES:]
    seen = squares > _LEAST * squares[-1]
    lengths = (len(rows) * squares).where(seen, math.inf).sqrt()
    return ((exact.T @ vectors) / lengths).to(rows), squares.where(seen, 0.0).to(rows)


def _inverse(moments: Float[Tensor, "values values"]) -> Float[Tensor, "values values"]:
    """Invert second moments with a ridge, NaN where they are NaN."""
    diagonal = moments.diagonal()
    diagonal += _RIDGE * diagonal.mean() + torch.finfo(moments.dtype).tiny
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(moments).L)


def _mapped(join: Callable[[tuple[Tensor, ...]], Tensor], pairs: Sequence[tuple[Tensor, Tensor]]) -> Outer:
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
