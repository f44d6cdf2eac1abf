"""Sums of the weighted gradients of single records, without forming these gradients where layers allow it.

The gradient of a record with respect to a layer's parameters is an outer product
(:mod:`leakbound_lab.models.gradients`). So one forward and one backward pass through the activations give all
norms. Weights follow from the norms, and the sum of the weighted gradients is that of a batch with weighted
output gradients. For a network with layers of other kinds the gradient of each record is computed.

Source:
    Goodfellow 2015, 'Efficient per-example gradient computations'. 'Differentially private optimization on
    large model at small cost', ICML 2023.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.grad import conv2d_weight

from leakbound_lab.config.training import Precision
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Factor, Factors, Gradients, record_gradients
from leakbound_lab.models.layers import (
    ImageTensor,
    factorable,
    parameter_layers,
    strided_windows,
    written_out,
    zero_padding,
)
from leakbound_lab.training.stack import forward_in, passes_in

Weigh = Callable[[Float[Tensor, " n"]], Float[Tensor, " n"]]
_MOST_KEPT_VALUES = 2**14  # values of a layer's weight up to which the gradients of single records are kept


@dataclass(frozen=True)
class _Part:
    """Contribution of one layer.

    Attributes:
        squares: (n,), squared norms of the records' gradients with respect to the layer's parameters.
        total: Function from weights (n,) to the weighted sum for each parameter of the layer.
    """

    squares: Tensor
    total: Callable[[Tensor], Gradients]


def weighted_sums(
    model: nn.Module, images: ImageTensor, labels: Int[Tensor, " n"], weigh: Weigh
) -> Gradients:
    """Compute Σ w(‖g_i‖) g_i over the gradients g_i of the records' cross-entropies.

    Args:
        model: Network without batch statistics. Its parameters are read, not changed.
        images: (n, colors, height, width), n >= 0.
        labels: Class of each image.
        weigh: Function from norms (n,), over all parameters together, to weights (n,).

    Returns:
        Parameter name to its sum. It equals that of :func:`~leakbound_lab.models.gradients.record_gradients`
        up to rounding.
    """
    if len(labels) == 0:
        return {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    # One forward and one backward pass, to factors of all gradients.
    constants = {name: value.detach() for name, value in model.named_parameters()}
    factors = None
    if factorable(model):
        forward = Factors(lambda batch: functional_call(model, constants, (batch,)), parameter_layers(model))
        factors = forward.constant(images, labels)
    # A network without factors: the gradients themselves.
    if factors is None:
        gradients = record_gradients(model, images, labels)
        squares = [value.flatten(1).square().sum(1) for value in gradients.values()]
        weights = weigh(torch.stack(squares).sum(0).sqrt())
        return {name: torch.einsum("i,i...", weights, value) for name, value in gradients.items()}
    # Norms over all layers, the weights that follow from them, and the sums.
    parts = _parts(factors)
    weights = weigh(_norms(parts))
    totals = _totals(parts, weights)
    return {name: totals[name].squeeze(0) for name in constants}


def stacked_sums(
    model: nn.Module,
    params: Mapping[str, Tensor],
    images: Float[Tensor, "slots n colors height width"],
    labels: Int[Tensor, "slots n"],
    weigh: Callable[[Float[Tensor, "slots n"]], Float[Tensor, "slots n"]],
    precision: Precision = "float32",
) -> Gradients:
    """Compute the sums of :func:`weighted_sums` for every slot of a stack, over its own records, at once.

    A network with unknown layers, or one that cannot be written out, is computed slot by slot, in float32.
    Norms and sums are float32 products of the same factors, so a bound on the norms bounds what is summed, in
    whatever precision the factors were computed.

    Args:
        model: Architecture. Its parameters are overwritten if slots are computed one by one.
        params: Parameter name to its values (slots, ...).
        images: (slots, n, colors, height, width), n >= 0.
        labels: Class of each image.
        weigh: Function from norms (slots, n) to weights (slots, n), each from its own norm.
        precision: Precision of the passes that give the factors.

    Returns:
        Parameter name to the sum of each slot (slots, ...).
    """
    slots, records = labels.shape
    if records == 0:
        return {name: torch.zeros_like(value) for name, value in params.items()}
    # The passes of all slots at once, in the precision that is asked for.
    constants = {name: value.detach() for name, value in params.items()}
    network = written_out(model, params, images) if factorable(model) else None
    factors = None
    if network is not None:
        of_rows = forward_in(precision, images.device, partial(network.of_rows, constants))
        with passes_in(precision, images.device):
            rows = images.transpose(0, 1).flatten(0, 1)
            factors = Factors(of_rows, network.layers).constant(rows, labels.T.flatten())
    if factors is None:
        return _slot_by_slot(model, constants, images, labels, weigh)
    # Norms and sums in float32, whose order is record by record.
    if precision == "bfloat16":
        factors = [part._replace(inputs=part.inputs.float(), slopes=part.slopes.float()) for part in factors]
    parts = _parts(factors, slots)
    totals = _totals(parts, weigh(_norms(parts).view(records, slots).T).T.flatten())
    return {name: totals[name] for name in params}


def _slot_by_slot(
    model: nn.Module, params: Gradients, images: Tensor, labels: Tensor, weigh: Weigh
) -> Gradients:
    """Compute sums slot by slot, in the network itself."""
    totals = []
    for slot in range(len(labels)):
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(params[name][slot])

        def weigh_slot(norms: Tensor, slot: int = slot) -> Tensor:
            """Compute the weights of one slot's records, as of a stack in which all slots have its norms."""
            return weigh(norms.expand(len(labels), -1))[slot]

        totals.append(weighted_sums(model, images[slot], labels[slot], weigh_slot))
    return {name: torch.stack([total[name] for total in totals]) for name in params}


def _parts(factors: list[Factor], slots: int = 1) -> list[_Part]:
    """Compute the part of each layer. Rows of several slots are record by record. Sums are (slots, ...)."""
    kinds: dict[type[nn.Module], Callable[[Factor, int], _Part]] = {
        nn.Linear: _linear,
        nn.Conv2d: _convolution,
        nn.GroupNorm: _group_norm,
    }
    with torch.no_grad():
        return [kinds[type(factor.layer)](factor, slots) for factor in factors]


def record_norms(factors: list[Factor]) -> Float[Tensor, " n"]:
    """Compute the norms of records' gradients from the factors of all layers with parameters."""
    return _norms(_parts(factors))


def _norms(parts: list[_Part]) -> Float[Tensor, " n"]:
    """Compute the norms of the records' gradients over all layers."""
    return torch.stack([part.squares for part in parts]).sum(0).sqrt()


def _totals(parts: list[_Part], weights: Float[Tensor, " n"]) -> Gradients:
    """Return weighted sums by the names of the parameters."""
    totals: Gradients = {}
    for part in parts:
        totals |= part.total(weights)
    return totals


def _sums(weights: Float[Tensor, " n"], values: Float[Tensor, "n *rest"], slots: int) -> Tensor:  # noqa: F821
    """Compute the weighted sum of the rows of each slot (slots, ...)."""
    return torch.einsum("ij,ij...->j...", weights.unflatten(0, (-1, slots)), values.unflatten(0, (-1, slots)))


def _linear(factor: Factor, slots: int) -> _Part:
    """Compute the part of a linear layer: the gradient of a record is slope times input."""
    inputs = factor.inputs
    slopes = factor.slopes
    squares = slopes.square().sum(1) * (inputs.square().sum(1) + (factor.layer.bias is not None))

    def total(weights: Tensor) -> Gradients:
        """Compute the weighted sums."""
        weighted = (slopes * weights[:, None]).unflatten(0, (-1, slots))
        products = weighted.permute(1, 2, 0) @ inputs.unflatten(0, (-1, slots)).transpose(0, 1)
        return factor.by_name(products, weighted.sum(0))

    return _Part(squares, total)


def _convolution(factor: Factor, slots: int) -> _Part:
    """Compute the part of a convolution. The gradient of a record is slopes times unfolded input.

    Its norm comes from this product or from the products of each factor with itself, whichever is cheaper.
    """
    layer: nn.Conv2d = factor.layer
    squares = []
    products_of_pieces = []
    values = layer.weight[0].numel()
    places = factor.slopes.shape[2] * factor.slopes.shape[3]
    keeps_products = layer.weight.numel() <= _MOST_KEPT_VALUES
    gram = not keeps_products and places * (values + layer.out_channels) < values * layer.out_channels
    chunk = memory.UNFOLDED_VALUES.on(factor.inputs.device) // max(values * places, layer.weight.numel())
    pieces = (tensor.split(max(1, chunk)) for tensor in (factor.inputs, factor.slopes.flatten(2)))
    # Norms piece by piece; products of small layers are kept for the sums.
    for inputs, slopes in zip(*pieces, strict=True):
        unfolded = strided_windows(inputs, layer)
        if gram:
            squares.append((unfolded.mT @ unfolded * (slopes.mT @ slopes)).sum((1, 2)))
            continue
        products = slopes @ unfolded.mT
        squares.append(products.square().sum((1, 2)))
        if keeps_products:
            products_of_pieces.append(products)
    biases = factor.slopes.sum((2, 3))

    def total(weights: Tensor) -> Gradients:
        """Compute the weighted sums."""
        kernels = (
            _sums(weights, torch.cat(products_of_pieces), slots)
            if keeps_products
            else _kernel_sums(factor, weights, slots)
        )
        return factor.by_name(kernels.view(slots, *layer.weight.shape), _sums(weights, biases, slots))

    return _Part(torch.cat(squares) + (0 if layer.bias is None else biases.square().sum(1)), total)


def _kernel_sums(factor: Factor, weights: Tensor, slots: int) -> Tensor:
    """Compute weighted sums of kernel gradients, (slots · outputs, ...), by a grouped convolution."""
    layer: nn.Conv2d = factor.layer
    weighted = factor.slopes * weights.view(-1, 1, 1, 1)
    return conv2d_weight(
        factor.inputs.unflatten(0, (-1, slots)).flatten(1, 2),
        (slots * layer.weight.shape[0], *layer.weight.shape[1:]),
        weighted.unflatten(0, (-1, slots)).flatten(1, 2),
        layer.stride,
        zero_padding(layer),
        layer.dilation,
        groups=slots,
    )


def _group_norm(factor: Factor, slots: int) -> _Part:
    """Compute the part of a normalisation: sums over places of slope times normalised input, and of slope."""
    scales = factor.at_weight()
    shifts = factor.at_bias()

    def total(weights: Tensor) -> Gradients:
        """Compute the weighted sums."""
        return factor.by_name(_sums(weights, scales, slots), _sums(weights, shifts, slots))

    return _Part(scales.square().sum(1) + shifts.square().sum(1), total)
