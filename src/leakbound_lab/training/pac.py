"""Uploads with Gaussian noise as large as uploads vary over draws of records: PAC privacy, for one client.

Everybody can compute, at the weights that the server sent, what an upload of n public records is on average and how
much it varies. The client shortens the difference of its own upload from that average, and adds noise to it. So an
upload follows N(mean + difference, Σ), and reveals of the client's records at most its divergence from N(mean, Σ),
½ ‖difference‖² in units of the noise. That holds whatever the records are, and after any earlier uploads.

Source:
    Xiao and Devadas 2023, "PAC privacy: automatic privacy measurement and control of data processing", CRYPTO. They
    bound the information by ½ ln det(I + Σ_u Σ⁻¹) for a known distribution of the uploads, which holds for the first
    one. What is shortened here needs no known distribution, so that uploads can be added up.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound_lab.config.defenses import PACPrivacy
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Gradients, batch_gradients
from leakbound_lab.training import stack
from leakbound_lab.training.client_steps import ClientStep, Upload, UploadLaw
from leakbound_lab.training.loop import slots_per_stack, train_slots
from leakbound_lab.training.request import TrainingRequest, TrainingResult
from leakbound_lab.training.sgd import StackLearner, StackUploads

_FLOOR = 1e-3  # of the mean variance, for coordinates that hardly vary over the public records
_ROUNDING = 1e-6  # by which float32 may exceed what a difference is shortened to


def train_pac(request: TrainingRequest) -> TrainingResult:
    """Train by SGD whose uploads get measured noise, as many slots at a time as ``max_stack`` allows."""
    return train_slots(request, MeasuredNoiseLearner, slots_per_stack(request, request.records))


def fitted_noise(variances: Sequence[Float[Tensor, "..."]], nats: float) -> list[Float[Tensor, "..."]]:
    """Compute the noise of least total variance whose ½ Σ λ/e is some nats, for independent coordinates.

    Args:
        variances: λ, variances of the coordinates of an upload, >= 0, in pieces.
        nats: Nats v, > 0.

    Returns:
        Standard deviations √e of the noise, with e = √λ Σ √λ / (2v).

    Source:
        Xiao and Devadas 2023, Theorem 3 and Algorithm 1. As ln(1 + x) <= x, no more than v nats pass if λ are the
        variances.

    Example:
        >>> [noise] = fitted_noise([torch.tensor([1.0, 4.0])], 0.5)
        >>> noise.square().round().tolist()
        [3.0, 6.0]
    """
    roots = [variance.double().sqrt() for variance in variances]
    total = sum(float(root.sum()) for root in roots)
    return [
        (root * (total / (2.0 * nats))).sqrt().to(like) for root, like in zip(roots, variances, strict=True)
    ]


@dataclass(eq=False)
class MeasuredNoiseStep(ClientStep):
    """Step that shortens an average's difference from that of public records, and adds noise fitted to both."""

    defense: PACPrivacy

    @cached_property
    def _groups(self) -> tuple[Tensor, Tensor]:
        """Images (groups, records, ...) and labels (groups, records) of the public records."""
        if self.public is None:
            raise ValueError(f"{self.defense.mechanism} measures its noise: give public records")
        records = self.public()
        count = min(self.defense.public, len(records))
        each = count // self.defense.groups
        if not each:
            raise ValueError(
                f"{self.defense.mechanism}: groups = {self.defense.groups} of public records, of which there are "
                f"{count}; take fewer groups or more auxiliary records"
            )
        shape = (self.defense.groups, each)
        images = torch.from_numpy(records.images[: math.prod(shape)])
        labels = torch.from_numpy(records.labels[: math.prod(shape)])
        return images.unflatten(0, shape), labels.unflatten(0, shape)

    def law(self, model: nn.Module, params: Mapping[str, Tensor], size: int) -> UploadLaw:
        """Return what everybody knows about an upload: the mean of its distribution, and the noise."""
        mean, of_record, records = self._public_moments(model, params)
        of_difference = [(1.0 / size + 1.0 / records) * value for value in of_record.values()]
        values = sum(value.numel() for value in of_difference)
        floor = _FLOOR * sum(float(value.double().sum()) for value in of_difference) / values
        noise = fitted_noise([value + floor for value in of_difference], self._nats(size))
        longest = (1.0 - _ROUNDING) * math.sqrt(2.0 * self._nats(size))
        return UploadLaw(
            mean=mean,
            variance=dict(zip(mean, of_difference, strict=True)),
            std=dict(zip(mean, noise, strict=True)),
            longest=longest,
        )

    def _public_moments(
        self, model: nn.Module, params: Mapping[str, Tensor]
    ) -> tuple[Gradients, Gradients, int]:
        """Compute the mean gradient of the public records, the variance of one record's, and how many records."""
        weights = {name: value.detach() for name, value in params.items()}
        device = next(iter(weights.values())).device
        images, labels = (part.to(device) for part in self._groups)
        count, each = labels.shape
        # Groups are differentiated as many at a time as memory holds, and compared with the first ones' mean.
        at_once = max(1, memory.GRADIENT_BYTES // (8 * sum(value.numel() for value in weights.values())))
        shift: Gradients = {}
        sums, squares = ({name: torch.zeros_like(value) for name, value in weights.items()} for _ in range(2))
        for piece in torch.arange(count, device=device).split(at_once):
            gradients = batch_gradients(model, images[piece], labels[piece], weights)
            shift = shift or {name: gradient.mean(0) for name, gradient in gradients.items()}
            for name, gradient in gradients.items():
                gradient -= shift[name]
                sums[name] += gradient.sum(0)
                squares[name] += gradient.square_().sum(0)
        means = {name: total / count for name, total in sums.items()}
        of_record = {
            name: (each / (count - 1)) * (total - count * means[name].square()).clamp(min=0)
            for name, total in squares.items()
        }
        return {name: shift[name] + means[name] for name in weights}, of_record, count * each

    def disguised(self, gradients: list[Tensor], source: NoiseSource) -> list[Tensor]:
        """Refuse an average alone, whose noise depends on the weights that the server sent.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"{self.defense.mechanism} measures its noise at the weights: take MeasuredUploads")

    def noisy_upload(self, average: Gradients, law: UploadLaw, source: NoiseSource) -> Gradients:
        """Return what is sent in place of an average gradient: the public mean, and a shortened difference with noise.

        Half of the square of the difference, in units of the noise, is at most the nats of an upload. A difference that
        is not finite becomes 0.
        """
        difference = {name: value.nan_to_num(0.0, 0.0, 0.0) for name, value in law.whitened(average).items()}
        squares = [value.double().square().sum() for value in difference.values()]
        factor = float(law.factors(torch.stack(squares).sum().sqrt()[None]))
        return {
            name: law.mean[name] + law.std[name] * perturbed(value * factor, 1.0, source)
            for name, value in difference.items()
        }

    def upload(
        self,
        model: nn.Module,
        images: Float[Tensor, "n records colors height width"],
        labels: Int[Tensor, "n records"],
        source: NoiseSource | torch.Generator,
    ) -> Upload:
        """Compute the upload of one first step for each batch, and what everybody knows about it.

        Args:
            model: Network with the weights that the server sent.
            images: n batches of records.
            labels: Classes of the records.
            source: Source of the noise, or a generator, on the device of the images.

        Raises:
            ValueError: If there are no public records, or fewer than groups of them.
        """
        source = as_source(source)
        count, size = labels.shape
        law = self.law(model, dict(model.named_parameters()), size)
        sums = self._summed(model, images, labels)
        sent = [
            self.noisy_upload({name: total[batch] / size for name, total in sums.items()}, law, source)
            for batch in range(count)
        ]
        gradients = {name: torch.stack([each[name] for each in sent]) for name in sums}
        return Upload(images.mean(1), gradients, law)

    def event(self, **counted: Any) -> PrivacyEvent:
        """Return the record of the uploads, whose capacity is that of one."""
        return super().event(capacity=self._nats(counted["batch_size"]), noise="fresh", **counted)

    def _nats(self, size: int) -> float:
        """Return the nats of an upload of some records."""
        return float(self.level * size)


class MeasuredUploads(StackUploads):
    """Uploads of the slots of a stack, with noise that is measured at each.

    Args:
        request: The run.
        sources: Source of noise of each slot.
        model: Architecture.
        params: Function that returns the parameters (slots, ...) that the server sent.
    """

    def __init__(
        self,
        request: TrainingRequest,
        sources: Sequence[NoiseSource],
        model: nn.Module,
        params: Callable[[], stack.Parameters],
    ) -> None:
        super().__init__(request.client, sources)
        self._step: Any = request.client
        self._model = model
        self._params = params
        self._size = request.records

    def apply(self, gradients: list[Tensor]) -> None:
        """Hide averages in place. ``gradients`` has one tensor (slots, ...) for each parameter."""
        params = self._params()
        for slot, source in enumerate(self._sources):
            weights = {name: value[slot] for name, value in params.items()}
            law = self._step.law(self._model, weights, self._size)
            average = {name: part[slot] for name, part in zip(params, gradients, strict=True)}
            sent = self._step.noisy_upload(average, law, source)
            for part, value in zip(gradients, sent.values(), strict=True):
                part[slot].copy_(value)


class MeasuredNoiseLearner(StackLearner):
    """SGD of several slots as one stack, whose uploads get measured noise."""

    def _make_uploads(self, sources: Sequence[NoiseSource]) -> MeasuredUploads:
        """Return what hides the averages of the slots."""
        return MeasuredUploads(self._request, sources, self.model, lambda: self.params)
