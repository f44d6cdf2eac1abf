"""Gradients of single records in factored form: each layer's inputs, and the slopes of the loss at its outputs.

Of a linear layer, a convolution or a group normalisation the gradient is the outer product of both, and one backward
pass by the layers' outputs tells the slopes of all records. Only the forward pass depends on the weights, so records of
several networks of one architecture, which are written out (:mod:`leakbound.training.stacked_layers`), go side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.training import stack
from leakbound.training.client_steps import Gradients
from leakbound.training.stacked_layers import WrittenOut, written_out

Images = Float[Tensor, "n colors height width"]
Labels = Int[Tensor, " n"] | Float[Tensor, "n classes"]
"""Classes, or fractions of all classes."""


class Factor(NamedTuple):
    """One layer's part of the gradients of some records.

    Attributes:
        name: The layer's.
        layer: The layer.
        inputs: What it was given, a record in each row.
        slopes: Of the sum of the losses by its outputs.
    """

    name: str
    layer: Any
    inputs: Tensor
    slopes: Tensor

    def gradients(self) -> Gradients:
        """Parameter name to gradients (n, ...)."""
        if isinstance(self.layer, nn.Linear):
            weight = self.slopes[:, :, None] * self.inputs[:, None]
        else:
            weight = self._summed().view(-1, *self.layer.weight.shape)
        found = {"weight": weight, "bias": self._at_bias()}
        return {f"{self.name}.{own}": found[own] for own, _ in own_parameters(self.layer)}

    def compared(self, observed: Gradients) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Inner product with the layer's own part of observed gradients, and squared norm, of each record.

        Linear: the gradient is δ aᵀ, so <δ aᵀ, G> = δᵀ G a and its squared norm ‖δ‖² ‖a‖², without forming it.
        """
        known = {own: observed[f"{self.name}.{own}"] for own, _ in own_parameters(self.layer)}
        if isinstance(self.layer, nn.Linear):
            product = (torch.bmm(self.slopes[:, None], known["weight"])[:, 0] * self.inputs).sum(1)
            square = self.slopes.square().sum(1) * self.inputs.square().sum(1)
        else:
            gradient = self._summed()
            product, square = (gradient * known["weight"].flatten(1)).sum(1), gradient.square().sum(1)
        if "bias" in known:
            at_bias = self._at_bias()
            product = product + (at_bias * known["bias"]).sum(1)
            square = square + at_bias.square().sum(1)
        return product, square

    def _at_bias(self) -> Tensor:
        """Gradients of the bias, (n, outputs)."""
        return self.slopes if isinstance(self.layer, nn.Linear) else self.slopes.flatten(2).sum(2)

    def _summed(self) -> Float[Tensor, "n values"]:
        """Gradients of weights that act at many positions: the sum of δ aᵀ over them.

        Of a convolution a is the patch below, of a group normalisation the normalised input.
        """
        if isinstance(self.layer, nn.GroupNorm):
            normalised = F.group_norm(self.inputs, self.layer.num_groups, eps=self.layer.eps)
            return (self.slopes * normalised).flatten(2).sum(2)
        patches = windows(self.inputs, self.layer)
        return torch.bmm(self.slopes.flatten(2), patches.transpose(1, 2)).flatten(1)


class Factors:
    """Factored gradients of a network, or of several whose records lie side by side.

    Args:
        forward: Logits of images.
        layers: Layers that it calls, and their names; those that are not known here do not count.
    """

    def __init__(self, forward: Callable[[Images], Tensor], layers: Iterable[tuple[str, nn.Module]]) -> None:
        self._forward = forward
        self._layers = {layer: name for name, layer in layers if _factorable(layer)}

    def __call__(self, images: Images, labels: Labels) -> list[Factor]:
        """Factors of the gradient of each record's cross-entropy, in the order of calls, differentiable in the images.

        Args:
            images: A record in each row.
            labels: Their classes, or fractions of all classes.
        """
        logits, calls = self._recorded(images)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        slopes = torch.autograd.grad(loss, [output for _, _, output in calls], create_graph=True)
        return [
            Factor(self._layers[layer], layer, inputs, slope)
            for (layer, inputs, _), slope in zip(calls, slopes, strict=True)
        ]

    def gradients(self, images: Images, labels: Labels) -> Gradients:
        """Parameter name to gradients (n, ...); arguments are those of a call."""
        found: Gradients = {}
        for factor in self(images, labels):
            found |= factor.gradients()
        return found

    def cover(self, names: Collection[str], example: Images) -> bool:
        """True if all parameters lie in known layers, each called once and, if linear, on vectors.

        Args:
            names: Of the parameters.
            example: Images of the shape that will be asked for.
        """
        if {f"{name}.{own}" for layer, name in self._layers.items() for own, _ in own_parameters(layer)} != {*names}:
            return False
        _, calls = self._recorded(example)
        once = len(calls) == len(self._layers) == len({layer for layer, _, _ in calls})
        return once and all(inputs.ndim == 2 for layer, inputs, _ in calls if isinstance(layer, nn.Linear))

    def _recorded(self, images: Images) -> tuple[Tensor, list[tuple[nn.Module, Tensor, Tensor]]]:
        """Logits, and each known layer with its input and output in the order of calls."""
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        handles = [
            layer.register_forward_hook(lambda module, inputs, output: calls.append((module, inputs[0], output)))
            for layer in self._layers
        ]
        try:
            return self._forward(images), calls
        finally:
            for handle in handles:
                handle.remove()


@dataclass(frozen=True)
class Stack:
    """Several networks of one architecture whose records go side by side.

    Attributes:
        network: The architecture, written out.
        params: Parameter name to values (slots, ...), which are not sought.
    """

    network: WrittenOut
    params: Mapping[str, Tensor]

    def factors(self, slots: Sequence[int]) -> Factors:
        """Factored gradients of some networks, whose rows lie record by record with the networks side by side."""
        own = {name: torch.stack([value[slot] for slot in slots]) for name, value in self.params.items()}
        return Factors(partial(self.network.of_rows, own), self.network.layers.items())


def stack_of(models: Sequence[nn.Module], image_shape: tuple[int, int, int]) -> Stack | None:
    """Networks side by side; None where their architecture cannot be written out, or its gradients not be factored.

    Args:
        models: Networks of one architecture on one device, in evaluation mode; their weights are copied.
        image_shape: (colors, height, width).
    """
    device = next(models[0].parameters()).device
    params = {name: value.detach() for name, value in stack.stacked(models, device).items()}
    example = next(iter(params.values())).new_zeros((len(models), 1, *image_shape))
    network = written_out(models[0], params, example, twice=True)
    if network is None:
        return None
    found = Stack(network, params)
    return found if found.factors(range(len(models))).cover(params, example.flatten(0, 1)) else None


def windows(inputs: Images, layer: nn.Conv2d) -> Float[Tensor, "n values places"]:
    """Inputs of a convolution's kernel at each place, channels outermost, differentiable.

    On a GPU ``F.unfold`` takes a kernel for each image. On a CPU it stays, so that gradients add up in the order in
    which they always have.
    """
    if inputs.device.type == "cuda":
        return strided_windows(inputs, layer)
    return F.unfold(inputs, layer.kernel_size, layer.dilation, _padding(layer), layer.stride)


def strided_windows(inputs: Images, layer: nn.Conv2d) -> Float[Tensor, "n values places"]:
    """The same as views of the padded inputs that are copied at once: a few kernels, however many images."""
    (high, wide), (down, right), (far, apart) = layer.kernel_size, layer.stride, layer.dilation
    vertical, horizontal = _padding(layer)
    if vertical or horizontal:
        inputs = F.pad(inputs, (horizontal, horizontal, vertical, vertical))
    seen = inputs.unfold(2, far * (high - 1) + 1, down).unfold(3, apart * (wide - 1) + 1, right)
    seen = seen[..., ::far, ::apart]  # n, channels, rows, columns, high, wide
    return seen.permute(0, 1, 4, 5, 2, 3).reshape(len(inputs), inputs.shape[1] * high * wide, -1)


def own_parameters(layer: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters of a layer itself."""
    return list(layer.named_parameters(recurse=False))


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Rows and columns of zeros on each side; layers that name their padding are not among those known here."""
    return int(layer.padding[0]), int(layer.padding[1])


def _factorable(layer: nn.Module) -> bool:
    """True if a layer's gradient is an outer product that this module knows."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear) or (isinstance(layer, nn.GroupNorm) and layer.affine)
