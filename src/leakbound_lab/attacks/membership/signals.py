"""Signals that a white-box attacker reads about a record: posteriors, loss, last-layer gradient, label."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.channels.sampling import ChannelSampler
from leakbound_lab.models.layers import ImageTensor
from leakbound_lab.models.memory import FORWARD_IMAGES

_LOG_FLOOR = -30.0


@dataclass(frozen=True)
class Signals:
    """Signals of n records, in logarithms so that those of an overfitted model do not all round to 0 and 1.

    The gradient of a record's loss by the head's weight and bias is (p − y) ⊗ [features, 1]. It has rank one,
    so its two factors are kept: they hold all of it in the sum of their lengths instead of the product.

    Attributes:
        log_posteriors: ln p of each class, nats, float64.
        confidence: ln p/(1 − p) of the true class, float64. The loss is ln(1 + e^−confidence), so a threshold
            on either decides the same, but the confidence still orders records whose loss rounds to 0.
        features: What the head sees, in the network's own precision.
        labels: True classes.
    """

    log_posteriors: Float[Tensor, "n classes"]
    confidence: Float[Tensor, " n"]
    features: Float[Tensor, "n width"]
    labels: Int[Tensor, " n"]

    @property
    def correct(self) -> Tensor:
        """True where the model's first choice is the true class, bool (n)."""
        return self.log_posteriors.argmax(1) == self.labels

    @cached_property
    def ranked(self) -> Float[Tensor, "n classes"]:
        """Log posteriors of all classes, largest first."""
        return self.log_posteriors.sort(dim=1, descending=True).values

    @cached_property
    def one_hot(self) -> Float[Tensor, "n classes"]:
        """1 at the true class, 0 elsewhere."""
        return F.one_hot(self.labels, self.log_posteriors.shape[1]).to(self.log_posteriors)

    @property
    def log_residual(self) -> Float[Tensor, "n classes"]:
        """Logarithm of ``|p − y|``, the head's bias gradient. Its sign is − at the true class, + elsewhere."""
        missing = F.logsigmoid(-self.confidence)[:, None]
        return torch.where(self.one_hot.bool(), missing, self.log_posteriors)

    @property
    def finite(self) -> bool:
        """True if the model gave a number for everything."""
        return bool(self.confidence.isfinite().all() and self.features.isfinite().all())


def signals_of_outputs(answers: Float[np.ndarray, "n ..."], labels: np.ndarray) -> Signals:
    """Read signals from a network's outputs, with posteriors in place of features.

    Args:
        answers: Logits, logarithms of posteriors, or posteriors of each class (n, classes), or a loss of each
            record (n), lower for a better fit. A loss −ln p that is nowhere negative gives the confidence
            ln p/(1 − p), any other loss its negative.
        labels: True classes, which may be anything with losses.
    """
    outputs = torch.from_numpy(answers).double()
    if outputs.ndim == 1:
        losses = outputs.clamp_min(torch.finfo(torch.float64).tiny)
        confidence = -losses - torch.log(-torch.expm1(-losses)) if (outputs >= 0).all() else -outputs
        outputs = torch.stack([confidence, torch.zeros_like(confidence)], dim=1)
        labels = np.zeros(len(answers))
    elif (outputs >= 0).all() and np.allclose(answers.sum(1), 1, atol=1e-3):
        outputs = outputs.clamp_min(torch.finfo(torch.float32).tiny).log()
    truth = torch.from_numpy(labels.astype(np.int64))
    posteriors = outputs.log_softmax(1)
    other_classes = outputs.scatter(1, truth[:, None], -torch.inf).logsumexp(1)
    confidence = outputs.gather(1, truth[:, None])[:, 0] - other_classes
    return Signals(posteriors, confidence, posteriors.clamp_min(_LOG_FLOOR), truth)


class Queries:
    """Ways in which a record is shown to a network, as it is or with noise. Answers are averaged.

    A network that was trained behind a channel knows noisy records, so an attacker who knows the channel
    draws noise as well. The same few draws serve all records and all networks, so that answers differ by what
    a network knows and not by luck, and a product with a matrix of axes is computed only once.

    Args:
        sampler: The channel. None shows records as they are.
        draws: Draws of its noise.
        generator: Generator of the noise, on the sampler's device.
    """

    def __init__(
        self, sampler: ChannelSampler | None = None, draws: int = 0, generator: torch.Generator | None = None
    ) -> None:
        self._sampler = sampler
        self._noise = None if sampler is None or generator is None else sampler.noise(draws, generator)
        self.count = draws if self._noise is not None else 0

    def inputs(self, images: ImageTensor) -> Iterator[ImageTensor]:
        """Yield the records as the network is shown them, in each of these ways."""
        if self._sampler is None or self._noise is None:
            yield images
            return
        signal = self._sampler.signal(images)
        for noise in self._noise:
            yield signal + noise.view(images.shape[1:])


@torch.no_grad()
def read_signals(
    model: nn.Module, images: ImageTensor, labels: Int[Tensor, " n"], queries: Queries | None = None
) -> Signals:
    """Show records to a model and keep what an attacker can use, each signal as the mean over all queries.

    Args:
        model: Network with a linear last layer ``head`` and a method ``features``, on the images' device.
        images: Records on [−1, 1].
        labels: Their true classes.
        queries: How each record is shown. Default: as it is.
    """
    answers = []
    for chunk in images.split(FORWARD_IMAGES.on(images.device)):
        features = torch.stack([model.features(view) for view in (queries or Queries()).inputs(chunk)])  # type: ignore[operator]
        logits = model.head(features).double()  # type: ignore[operator]
        answers.append((logits.log_softmax(-1).mean(0), _confidences(logits).mean(0), features.mean(0)))
    posteriors, confidences, features = (torch.cat(parts) for parts in zip(*answers, strict=True))
    return Signals(posteriors, confidences.gather(1, labels[:, None])[:, 0], features, labels)


@torch.no_grad()
def read_confidences(model: nn.Module, images: ImageTensor, queries: Queries) -> Float[Tensor, "n classes"]:
    """Read the confidence ln p/(1 − p) of a model in every class of every record, as the mean over queries.

    Args:
        model: Network on the images' device.
        images: Records on [−1, 1].
        queries: How each record is shown.
    """
    means = [
        torch.stack([_confidences(model(view).double()) for view in queries.inputs(chunk)]).mean(0)
        for chunk in images.split(FORWARD_IMAGES.on(images.device))
    ]
    return torch.cat(means).float()


def _confidences(logits: Float[Tensor, "*lead classes"]) -> Float[Tensor, "*lead classes"]:
    """Compute the confidence of each class, ln p/(1 − p)."""
    alone = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return logits - logits[..., None, :].masked_fill(alone, -torch.inf).logsumexp(-1)
