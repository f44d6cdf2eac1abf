"""Gradients of single records, by vmap for any network, or in factored form.

The factors are the inputs of each layer, and the slopes of the loss at its outputs. For a linear layer, a
convolution or a group normalisation the gradient is the outer product of both. One backward pass to the
layers' outputs gives the slopes of all records. Only the forward pass depends on the weights, so records of
several networks of one architecture (:mod:`leakbound_lab.models.layers`) are processed together.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from leakbound_lab.models.layers import ImageTensor, factorable, own_parameters, parameter_layers, windows

Gradients = dict[str, Tensor]
Labels = Int[Tensor, " n"] | Float[Tensor, "n classes"]
"""Classes, or fractions of all classes."""


class Factor(NamedTuple):
    """One layer's part of the gradients of some records.

    Attributes:
        name: Name of the layer.
        layer: The layer.
        inputs: Inputs of the layer, a record in each row.
        slopes: Gradient of the sum of the losses with respect to the outputs.
    """

    name: str
    layer: Any
    inputs: Tensor
    slopes: Tensor

    def by_name(self, weight: Tensor, bias: Tensor) -> Gradients:
        """Return values for weight and bias by the names of the network's parameters."""
        values = {"weight": weight, "bias": bias}
        return {
            f"{self.name}.{parameter}" if self.name else parameter: values[parameter]
            for parameter in own_parameters(self.layer)
        }

    def compared(self, observed: Gradients) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Compute each record's inner product with observed gradients of this layer, and its squared norm.

        For a linear layer the gradient is δ aᵀ. So <δ aᵀ, G> = δᵀ G a, and the squared norm is ‖δ‖² ‖a‖²,
        without forming the gradient.

        Args:
            observed: Parameter name to gradients (n, ...).
        """
        target = {parameter: observed[f"{self.name}.{parameter}"] for parameter in own_parameters(self.layer)}
        if isinstance(self.layer, nn.Linear):
            product = (torch.bmm(self.slopes[:, None], target["weight"])[:, 0] * self.inputs).sum(1)
            square = self.slopes.square().sum(1) * self.inputs.square().sum(1)
        else:
            gradient = self.at_weight()
            product = (gradient * target["weight"].flatten(1)).sum(1)
            square = gradient.square().sum(1)
        if "bias" in target:
            at_bias = self.at_bias()
            product = product + (at_bias * target["bias"]).sum(1)
            square = square + at_bias.square().sum(1)
        return product, square

    def at_bias(self) -> Float[Tensor, "n outputs"]:
        """Compute the gradients of the bias."""
        return self.slopes if isinstance(self.layer, nn.Linear) else self.slopes.flatten(2).sum(2)

    def at_weight(self) -> Float[Tensor, "n values"]:
        """Compute the gradients of the weights: the sum of δ aᵀ over all positions at which they act.

        For a convolution a is the input patch, for a group normalisation the normalised input.
        """
        if isinstance(self.layer, nn.Linear):
            return (self.slopes[:, :, None] * self.inputs[:, None]).flatten(1)
        if isinstance(self.layer, nn.GroupNorm):
            normalised = F.group_norm(self.inputs, self.layer.num_groups, eps=self.layer.eps)
            return (self.slopes * normalised).flatten(2).sum(2)
        patches = windows(self.inputs, self.layer)
        return torch.bmm(self.slopes.flatten(2), patches.transpose(1, 2)).flatten(1)


class _Call(NamedTuple):
    """One call of a layer, with the versions of its input and output at that time."""

    name: str
    layer: nn.Module
    inputs: Tensor
    outputs: Tensor
    versions: tuple[int, int]

    def sound(self, records: int) -> bool:
        """Check that there is one row per record, and that no tensor was changed in place afterwards."""
        return (
            len(self.inputs) == records
            and (self.inputs.ndim == 2 or not isinstance(self.layer, nn.Linear))
            and self.outputs.requires_grad
            and self.versions == (self.inputs._version, self.outputs._version)
        )


class Factors:
    """Factored gradients of a network, or of several networks whose records are processed together.

    Args:
        forward: Function from images to logits.
        layers: Name to layer, for all layers with parameters. Their gradients are outer products
            (:func:`~leakbound_lab.models.layers.factorable`).
    """

    def __init__(self, forward: Callable[[ImageTensor], Tensor], layers: Mapping[str, nn.Module]) -> None:
        self._forward = forward
        self._layers = layers

    def __call__(self, images: ImageTensor, labels: Labels) -> list[Factor]:
        """Factor the gradient of each record's cross-entropy, differentiable in the images.

        Args:
            images: A record in each row.
            labels: Class of each record, or its probabilities of all classes.

        Returns:
            Factors of the layers in the order of their calls.
        """
        logits, calls = self._recorded(images)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        slopes = torch.autograd.grad(loss, [call.outputs for call in calls], create_graph=True)
        return [
            Factor(call.name, call.layer, call.inputs, slope)
            for call, slope in zip(calls, slopes, strict=True)
        ]

    def constant(self, images: ImageTensor, labels: Labels) -> list[Factor] | None:
        """Factor the gradients, not differentiably. None if the images are not covered (:meth:`cover`).

        Args:
            images: A record in each row.
            labels: Class of each record, or its probabilities of all classes.
        """
        with torch.no_grad():
            logits, calls = self._recorded(images.detach(), constant=True)
            loss = F.cross_entropy(logits, labels, reduction="sum")
        if not self._sound(calls, len(labels)):
            return None
        slopes = torch.autograd.grad(loss, [call.outputs for call in calls], materialize_grads=True)
        return [
            Factor(call.name, call.layer, call.inputs.detach(), slope)
            for call, slope in zip(calls, slopes, strict=True)
        ]

    def cover(self, example: ImageTensor) -> bool:
        """Check that each layer is called once, with a row per record, and not changed in place afterwards.

        Args:
            example: Images of the shape of later calls.
        """
        with torch.enable_grad():
            _, calls = self._recorded(example.detach().requires_grad_())
        return self._sound(calls, len(example))

    def _sound(self, calls: Sequence[_Call], records: int) -> bool:
        """Check that each layer was called once, and soundly."""
        return sorted(call.name for call in calls) == sorted(self._layers) and all(
            call.sound(records) for call in calls
        )

    def _recorded(self, images: ImageTensor, *, constant: bool = False) -> tuple[Tensor, list[_Call]]:
        """Compute the logits, and list the calls of the layers in their order.

        Args:
            images: A record in each row.
            constant: Whether only what the layers compute and what follows is differentiated, within
                ``no_grad``: what comes before the first of them then needs no graph.
        """
        calls: list[_Call] = []

        def record(name: str, layer: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
            """Keep a call."""
            calls.append(_Call(name, layer, inputs[0], outputs, (inputs[0]._version, outputs._version)))

        def begin(layer: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            """Start the graph at the inputs of a layer, if it has not started yet."""
            torch.set_grad_enabled(True)  # until the caller's no_grad ends
            return inputs if inputs[0].requires_grad else (inputs[0].detach().requires_grad_(),)

        handles = [layer.register_forward_hook(partial(record, name)) for name, layer in self._layers.items()]
        if constant:
            handles += [layer.register_forward_pre_hook(begin) for layer in self._layers.values()]
        try:
            return self._forward(images), calls
        finally:
            for handle in handles:
                handle.remove()


def batch_gradients(
    model: nn.Module,
    images: Float[Tensor, "n records colors height width"],
    labels: Tensor,
    parameters: Mapping[str, Tensor],
) -> Gradients:
    """Compute the gradient of the mean cross-entropy of each of some batches by vmap, differentiable in the images.

    Args:
        model: Architecture without batch statistics.
        images: n >= 1 batches of as many records each.
        labels: Class of each image (n, records), or its probabilities of all classes.
        parameters: Parameter name to its values.

    Returns:
        Parameter name to gradients (n, ...).
    """

    def loss(parameters: Gradients, batch: Tensor, classes: Tensor) -> Tensor:
        """Compute the mean cross-entropy of one batch."""
        return F.cross_entropy(functional_call(model, parameters, (batch,)), classes)

    gradients: Gradients = vmap(grad(loss), in_dims=(None, 0, 0))(dict(parameters), images, labels)
    return gradients


def record_gradients(model: nn.Module, images: ImageTensor, labels: Labels) -> Gradients:
    """Compute the gradient of the cross-entropy of each record by vmap, differentiable in the images.

    Args:
        model: Network without batch statistics. Its parameters are read, not changed.
        images: (n, colors, height, width), n >= 0.
        labels: Class of each image, or its probabilities of all classes.

    Returns:
        Parameter name to gradients (n, ...).
    """
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    if len(labels) == 0:
        return {name: value.new_zeros((0, *value.shape)) for name, value in parameters.items()}
    return batch_gradients(model, images[:, None], labels[:, None], parameters)


def constant_gradients(model: nn.Module, images: ImageTensor, labels: Labels) -> Gradients:
    """Compute the same, up to rounding, not differentiably, from factors where the network has them.

    Then torch's compiler is not loaded, which the first call of ``torch.func.grad`` imports.
    """
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    factors = None
    if len(labels) and factorable(model):
        forward = Factors(lambda batch: functional_call(model, parameters, (batch,)), parameter_layers(model))
        factors = forward.constant(images, labels)
    if factors is None:
        return record_gradients(model, images, labels)
    gradients: Gradients = {}
    for factor in factors:
        gradients |= factor.by_name(factor.at_weight(), factor.at_bias())
    return {name: gradients[name].view(-1, *value.shape) for name, value in parameters.items()}
