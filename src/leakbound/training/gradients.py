"""Gradients of single records, for clients who train and for attackers."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

Gradients = dict[str, Tensor]


def record_gradients(
    model: nn.Module,
    images: Float[Tensor, "n colors height width"],
    labels: Int[Tensor, " n"] | Float[Tensor, "n classes"],
) -> Gradients:
    """Gradient of the cross-entropy of each record on its own, by vmap; differentiable in the images.

    Args:
        model: Network without batch statistics; its parameters are read and stay as they are.
        images: One record each; there may be none.
        labels: Their classes, or fractions of all classes.

    Returns:
        Parameter name to gradients (n, ...).
    """
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    if len(labels) == 0:
        return {name: value.new_zeros((0, *value.shape)) for name, value in parameters.items()}

    def loss(parameters: Gradients, image: Tensor, label: Tensor) -> Tensor:
        """Cross-entropy of one record."""
        return F.cross_entropy(functional_call(model, parameters, (image[None],)), label[None])

    gradients: Gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, images, labels)
    return gradients
