"""Sums of the weighted gradients of single records, without these gradients where a layer can do without.

The gradient of a record with respect to a layer's parameters is a product of what the layer received and of the
gradient of its output. So one forward and one backward pass through the activations give all norms; weights follow from
the norms, and the sum of the weighted gradients is that of a batch whose output gradients are weighted. Linear,
convolutional and group-normalising layers are known; a network with others takes the gradient of each record.

Source:
    Goodfellow 2015, 'Efficient per-example gradient computations'; 'Differentially private optimization on large model
    at small cost', ICML 2023.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.grad import conv2d_weight

from leakbound.training import memory
from leakbound.training.client_steps import Gradients, record_gradients
from leakbound.training.stacked_layers import written_out

Weigh = Callable[[Float[Tensor, " n"]], Float[Tensor, " n"]]
_HELD = 2**14  # values of a layer's weight up to which the gradients of single records are kept


@dataclass(frozen=True)
class _Part:
    """Contribution of one layer.

    Attributes:
        squares: (n,), squared norms of the records' gradients with respect to its parameters.
        total: From weights (n,) to the weighted sum for each of its parameters.
    """

    squares: Tensor
    total: Callable[[Tensor], Gradients]


def weighted_sums(
    model: nn.Module, images: Float[Tensor, "n colors height width"], labels: Int[Tensor, " n"], weigh: Weigh
) -> Gradients:
    """Σ w(‖g_i‖) g_i over the gradients g_i of the records' cross-entropies.

    Args:
        model: Network without batch statistics; its parameters are read and stay as they are.
        images: One record each; there may be none.
        labels: Their classes.
        weigh: Weights (n,) by the norms (n,), over all parameters together.

    Returns:
        Parameter name to its sum; equal to that of :func:`~leakbound.training.client_steps.record_gradients` up to
        rounding.
    """
    if len(labels) == 0:
        return {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    parts = _parts(_layers(model), _plain(model), images, labels) if divisible(model) else None
    if parts is None:
        gradients = record_gradients(model, images, labels)
        squares = [value.flatten(1).square().sum(1) for value in gradients.values()]
        weights = weigh(torch.stack(squares).sum(0).sqrt())
        return {name: torch.einsum("i,i...", weights, value) for name, value in gradients.items()}
    weights = weigh(torch.stack([part.squares for part in parts.values()]).sum(0).sqrt())
    totals = _totals(parts, weights)
    return {name: totals[name] for name, _ in model.named_parameters()}


def stacked_sums(
    model: nn.Module,
    params: Mapping[str, Tensor],
    images: Float[Tensor, "slots n colors height width"],
    labels: Int[Tensor, "slots n"],
    weigh: Callable[[Float[Tensor, "slots n"]], Float[Tensor, "slots n"]],
) -> Gradients:
    """The sums of :func:`weighted_sums` for every slot of a stack, over records of its own, all slots at once.

    A network that is not of known layers, or that cannot be written out, is computed slot by slot.

    Args:
        model: Architecture; its own parameters are overwritten where slots are computed one by one.
        params: Parameter name to its values (slots, ...).
        images: Records of each slot; there may be none.
        labels: Their classes.
        weigh: Weights by the norms, of all slots together.

    Returns:
        Parameter name to the sum of each slot (slots, ...).
    """
    slots, records = labels.shape
    if records == 0:
        return {name: torch.zeros_like(value) for name, value in params.items()}
    network = written_out(model, params, images) if divisible(model) else None
    rows, own = images.transpose(0, 1).flatten(0, 1), {name: value.detach() for name, value in params.items()}
    if network is not None:
        forward = partial(network.of_rows, own)
        parts = _parts(network.layers, forward, rows, labels.T.flatten(), slots)
        if parts is not None:
            norms = torch.stack([part.squares for part in parts.values()]).sum(0).sqrt().view(records, slots).T
            totals = _totals(parts, weigh(norms).T.flatten())
            return {name: totals[name] for name in params}
    return _slot_by_slot(model, own, images, labels, weigh)


def _slot_by_slot(model: nn.Module, params: Gradients, images: Tensor, labels: Tensor, weigh: Weigh) -> Gradients:
    """Sums of each slot on its own: norms first, which are weighed together, then sums with these weights."""
    norms: list[Tensor] = []

    def noted(found: Tensor) -> Tensor:
        """Weights of nobody, while norms are looked at."""
        norms.append(found)
        return torch.zeros_like(found)

    def sums(slot: int, weigh_own: Weigh) -> Gradients:
        """Sums of one slot."""
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(params[name][slot])
        return weighted_sums(model, images[slot], labels[slot], weigh_own)

    for slot in range(len(labels)):
        sums(slot, noted)
    weights = weigh(torch.stack(norms))
    found = [sums(slot, partial(_given, own)) for slot, own in enumerate(weights)]
    return {name: torch.stack([one[name] for one in found]) for name in params}


def _given(weights: Tensor, norms: Tensor) -> Tensor:
    """Weights that do not wait for the norms."""
    return weights


def _totals(parts: dict[str, "_Part"], weights: Tensor) -> Gradients:
    """Weighted sums by the names of the network's parameters."""
    return {
        f"{layer}.{name}" if layer else name: value
        for layer, part in parts.items()
        for name, value in part.total(weights).items()
    }


def divisible(model: nn.Module) -> bool:
    """True if every parameter belongs to one layer alone, of a kind that is known here."""
    layers = list(_layers(model).values())
    owned = [id(value) for layer in layers for value in layer.parameters(recurse=False)]
    return len(owned) == len(set(owned)) and all(_known(layer) for layer in layers)


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """Layers that have parameters of their own."""
    return {name: layer for name, layer in model.named_modules() if any(True for _ in layer.parameters(recurse=False))}


def _known(layer: nn.Module) -> bool:
    """True of a kind, and of settings, that gradients of single records are known for."""
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros"
        return plain and not isinstance(layer.padding, str)
    return type(layer) in (nn.Linear, nn.GroupNorm)


def _plain(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Call of a network, without gradients of its parameters."""
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    return lambda images: functional_call(model, parameters, (images,))


def _parts(
    layers: dict[str, nn.Module],
    forward: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    slots: int | None = None,
) -> dict[str, _Part] | None:
    """Each layer's part; None if one is not called once, on a row for each record, or if its call is not as it was.

    Args:
        layers: Layers with parameters.
        forward: Logits of images, by calls of these layers.
        images: One record each, of a stack record by record.
        labels: Their classes.
        slots: Of a stack, whose sums are (slots, ...).
    """
    with torch.enable_grad(), _watched(layers) as calls:
        outputs = forward(images.detach().requires_grad_())
        loss = F.cross_entropy(outputs, labels, reduction="sum")
    if sorted(call.layer for call in calls) != sorted(layers):
        return None
    if not all(call.sound(layers[call.layer], len(labels)) for call in calls):
        return None
    slopes = torch.autograd.grad(loss, [call.made for call in calls], materialize_grads=True)
    kinds: dict[type[nn.Module], Callable[..., _Part]] = {
        nn.Linear: _linear,
        nn.Conv2d: _convolution,
        nn.GroupNorm: _group_norm,
    }
    with torch.no_grad():
        return {
            call.layer: kinds[type(layers[call.layer])](layers[call.layer], call.given.detach(), slope, slots)
            for call, slope in zip(calls, slopes, strict=True)
        }


@dataclass(frozen=True)
class _Call:
    """Input and output of a layer, and how often both had been changed by then."""

    layer: str
    given: Tensor
    made: Tensor
    versions: tuple[int, int]

    def sound(self, layer: nn.Module, records: int) -> bool:
        """True if there is one row for each record, and neither tensor was changed in place afterwards."""
        rows = len(self.given) == records and (self.given.ndim == 2 or not isinstance(layer, nn.Linear))
        return rows and self.made.requires_grad and self.versions == (self.given._version, self.made._version)


@contextmanager
def _watched(layers: dict[str, nn.Module]) -> Iterator[list[_Call]]:
    """Calls of layers, in their order, as they come."""
    calls: list[_Call] = []

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        """Hook of one layer."""

        def note(_: nn.Module, given: tuple[Tensor], made: Tensor) -> None:
            """Its call."""
            calls.append(_Call(name, given[0], made, (given[0]._version, made._version)))

        return note

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _sums(weights: Float[Tensor, " n"], values: Float[Tensor, "n *rest"], slots: int) -> Float[Tensor, "slots *rest"]:
    """Weighted sums of each slot's rows."""
    return torch.einsum("ij,ij...->j...", weights.unflatten(0, (-1, slots)), values.unflatten(0, (-1, slots)))


def _linear(
    layer: nn.Linear, given: Float[Tensor, "n inputs"], slope: Float[Tensor, "n outputs"], slots: int | None
) -> _Part:
    """The gradient of a record is the outer product of ``slope`` and ``given``."""
    squares = slope.square().sum(1) * (given.square().sum(1) + (layer.bias is not None))

    def total(weights: Tensor) -> Gradients:
        """Weighted sum."""
        weighted = slope * weights[:, None]
        if slots is None:
            return _named(layer, weighted.T @ given, weighted.sum(0))
        own = weighted.unflatten(0, (-1, slots))
        return _named(layer, own.permute(1, 2, 0) @ given.unflatten(0, (-1, slots)).transpose(0, 1), own.sum(0))

    return _Part(squares, total)


def _convolution(
    layer: nn.Conv2d,
    given: Float[Tensor, "n channels height width"],
    slope: Float[Tensor, "n outputs rows columns"],
    slots: int | None,
) -> _Part:
    """The gradient of a record is the product of ``slope`` and of its unfolded input.

    Its norm comes from this product or from the products of either with itself, whichever takes less.
    """
    squares, held = [], []
    values, places = layer.weight[0].numel(), slope.shape[2] * slope.shape[3]
    keeps = layer.weight.numel() <= _HELD
    gram = not keeps and places * (values + layer.out_channels) < values * layer.out_channels
    size = max(1, memory.UNFOLDED_VALUES.on(given.device) // max(values * places, layer.weight.numel()))
    for some, own in zip(given.split(size), slope.flatten(2).split(size), strict=True):
        unfolded = _unfolded(layer, some)
        if gram:
            squares.append((unfolded.mT @ unfolded * (own.mT @ own)).sum((1, 2)))
            continue
        products = own @ unfolded.mT
        squares.append(products.square().sum((1, 2)))
        if keeps:
            held.append(products)
    biases = slope.sum((2, 3))

    def total(weights: Tensor) -> Gradients:
        """Weighted sum."""
        if slots is not None:
            own = _sums(weights, torch.cat(held), slots) if keeps else _weight_sums(layer, given, slope, weights, slots)
            return _named(layer, own.view(slots, *layer.weight.shape), _sums(weights, biases, slots))
        if keeps:
            summed = torch.einsum("i,i...", weights, torch.cat(held)).view_as(layer.weight)
        else:
            summed = _weight_sums(layer, given, slope, weights, 1)
        return _named(layer, summed, weights @ biases)

    return _Part(torch.cat(squares) + (0 if layer.bias is None else biases.square().sum(1)), total)


def _weight_sums(layer: nn.Conv2d, given: Tensor, slope: Tensor, weights: Tensor, slots: int) -> Tensor:
    """Weighted sums of the gradients of a kernel, (slots · outputs, ...): those of a convolution of groups of slots."""
    weighted = slope * weights.view(-1, 1, 1, 1)
    padding = (int(layer.padding[0]), int(layer.padding[1]))
    stride = (layer.stride[0], layer.stride[1])
    shape = (slots * layer.weight.shape[0], *layer.weight.shape[1:])
    sides = (values.unflatten(0, (-1, slots)).flatten(1, 2) for values in (given, weighted))
    return conv2d_weight(next(sides), shape, next(sides), stride, padding, groups=slots)


def _unfolded(layer: nn.Conv2d, images: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n values places"]:
    """Inputs of the kernel at each place; ``F.unfold`` takes three times as long."""
    (high, wide), (down, right) = layer.kernel_size, layer.stride
    vertical, horizontal = (int(size) for size in layer.padding)
    images = images.contiguous()  # where the channels of a pixel lie side by side, rows are copied value by value
    if vertical or horizontal:
        images = F.pad(images, (horizontal, horizontal, vertical, vertical))
    seen = images.unfold(2, high, down).unfold(3, wide, right)  # n, channels, rows, columns, high, wide
    return seen.permute(0, 1, 4, 5, 2, 3).reshape(len(images), math.prod(layer.weight.shape[1:]), -1)


def _group_norm(
    layer: nn.GroupNorm, given: Float[Tensor, "n channels *places"], slope: Tensor, slots: int | None
) -> _Part:
    """The gradients of a record are sums over places, of ``slope`` times the normalised input and of ``slope``."""
    scales = (slope * F.group_norm(given, layer.num_groups, eps=layer.eps)).flatten(2).sum(2)
    shifts = slope.flatten(2).sum(2)

    def total(weights: Tensor) -> Gradients:
        """Weighted sum."""
        if slots is None:
            return _named(layer, weights @ scales, weights @ shifts)
        return _named(layer, _sums(weights, scales, slots), _sums(weights, shifts, slots))

    return _Part(scales.square().sum(1) + shifts.square().sum(1), total)


def _named(layer: nn.Module, weight: Tensor, bias: Tensor) -> Gradients:
    """Sums by the names of a layer's parameters."""
    return {"weight": weight} if layer.bias is None else {"weight": weight, "bias": bias}
