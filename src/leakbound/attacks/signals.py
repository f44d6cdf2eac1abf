"""Signals that a white-box attacker reads from a model about a record: posteriors, loss, last-layer gradient, label."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class Signals:
    """Signals of n records, in logarithms so that those of an overfitted model do not all round to 0 and 1.

    The gradient of a record's loss by the head's weight and bias is (p − y) ⊗ [features, 1]. It has rank one, so its
    two factors are kept: they hold all of it in the sum of their lengths instead of the product.

    Attributes:
        log_posteriors: ln p of each class, nats, float64.
        confidence: ln p/(1 − p) of the true class, float64. The loss is ln(1 + e^−confidence), so a threshold on either
            decides the same, but the confidence still orders records whose loss rounds to 0.
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

    @property
    def ranked(self) -> Float[Tensor, "n classes"]:
        """Log posteriors of all classes, largest first."""
        return self.log_posteriors.sort(dim=1, descending=True).values

    @property
    def one_hot(self) -> Float[Tensor, "n classes"]:
        """1 at the true class, 0 elsewhere."""
        return F.one_hot(self.labels, self.log_posteriors.shape[1]).to(self.log_posteriors)

    @property
    def log_residual(self) -> Float[Tensor, "n classes"]:
        """Logarithm of |p − y|, the head's bias gradient; its sign is − at the true class, + elsewhere."""
        missing = F.logsigmoid(-self.confidence)[:, None]
        return torch.where(self.one_hot.bool(), missing, self.log_posteriors)

    @property
    def finite(self) -> bool:
        """True if the model gave a number for everything."""
        return bool(self.confidence.isfinite().all() and self.features.isfinite().all())


@torch.no_grad()
def read_signals(
    model: nn.Module, images: Float[Tensor, "n colors height width"], labels: Int[Tensor, " n"], batch_size: int = 500
) -> Signals:
    """Show the records to a model and keep what an attacker can use.

    Args:
        model: Network with a linear last layer ``head`` and a method ``features``, on the images' device.
        images: Records on [−1, 1].
        labels: Their true classes.
        batch_size: Records per forward pass; bounds memory.
    """
    features = torch.cat([model.features(some) for some in images.split(batch_size)])  # type: ignore[operator]
    logits = model.head(features).double()  # type: ignore[operator]
    truth = F.one_hot(labels, logits.shape[1]).bool()
    others = logits.masked_fill(truth, -torch.inf).logsumexp(1)
    return Signals(logits.log_softmax(1), logits[truth] - others, features, labels)
