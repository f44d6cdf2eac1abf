"""Networks of known layers, written out for all slots of a stack: one kernel where one network needs one.

The records of all slots make one batch, record by record: (records · slots, ...). So the slots of a record
lie side by side in the channel axis, where a convolution keeps them apart by groups and a normalisation by
more groups, and nothing is copied. Linear layers are one batched product. What has no parameters sees each
row alone, as in a single network.

Attackers on gradients differentiate twice. Of that torch's own convolutions take a kernel for each group, so
there are forms for it whose kernels do not grow with the slots.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn.grad import conv2d_input

from leakbound.training.known_layers import parameter_layers, stackable

_TRIED = 3  # records that a network written out is compared on
_CLOSE = 1e-2  # largest difference of a logit, over the largest logit: any rounding, no mixture of records
_known: WeakKeyDictionary[nn.Module, "dict[bool, WrittenOut | None]"] = WeakKeyDictionary()


def by_record(
    images: Float[Tensor, "n colors height width"], rows: Int[Tensor, "slots batch"]
) -> Float[Tensor, "slots batch colors height width"]:
    """Chosen images of each slot, which lie in memory as a network that is written out takes them."""
    chosen = images.index_select(0, rows.T.flatten())
    return chosen.view(*rows.T.shape, *images.shape[1:]).transpose(0, 1)


def written_out(
    model: nn.Module, params: Mapping[str, Tensor], images: Tensor, *, twice: bool = False
) -> "WrittenOut | None":
    """The network written out, or None if it has parameters in other layers, or computes otherwise than slot by slot.

    What its code does with the records is seen by trying it once, with weights near those given: a network
    that mixes the records of a batch would mix slots, too.

    Args:
        model: Architecture. The answer is kept as long as it lives.
        params: Parameter name to its values (slots, ...).
        images: Batches (slots, batch, colors, height, width).
        twice: Whether it is to be differentiated twice, in the images alone.
    """
    networks = _known.setdefault(model, {})
    if twice not in networks:
        network = WrittenOut(model, twice=twice) if stackable(model) else None
        networks[twice] = network if network is not None and _agrees(network, model, params, images) else None
    return networks[twice]


class WrittenOut:
    """A network whose layers with parameters compute all slots at once.

    Args:
        model: Architecture, of known layers. Its code is copied, its parameters are not.
        twice: Whether it is to be differentiated twice, in the images alone.

    Attributes:
        layers: Layers with parameters by their names; they call as those of the model, on rows of all slots.
    """

    def __init__(self, model: nn.Module, *, twice: bool = False) -> None:
        shapes = {
            id(value): nn.Parameter(torch.empty_like(value, device="meta")) for value in model.parameters()
        }
        self._network = copy.deepcopy(model, dict(shapes))
        self.layers = parameter_layers(self._network)
        self._own: dict[str, dict[str, Tensor]] = {}
        forms = _TWICE if twice else _FORMS
        for name, layer in self.layers.items():
            self._own[name] = {}
            # An attribute of the copied layer, which stands before the method of its class.
            layer.forward = partial(forms[type(layer)], layer, self._own[name])

    def __call__(
        self, params: Mapping[str, Tensor], images: Float[Tensor, "slots batch colors height width"]
    ) -> Float[Tensor, "slots batch classes"]:
        """Logits of every slot for its own images, which cost no copy if they lie record by record.

        Args:
            params: Parameter name to its values (slots, ...).
            images: A batch per slot.
        """
        logits = self.of_rows(params, images.transpose(0, 1).flatten(0, 1))
        return logits.unflatten(0, (images.shape[1], len(images))).transpose(0, 1)

    def of_rows(
        self, params: Mapping[str, Tensor], images: Float[Tensor, "rows colors height width"]
    ) -> Float[Tensor, "rows classes"]:
        """Logits of rows that lie record by record, the slots of each side by side."""
        for name, value in params.items():
            layer, _, own = name.rpartition(".")
            self._own[layer][own] = value
        try:
            logits: Tensor = self._network(images)
        finally:
            for kept in self._own.values():
                kept.clear()
        return logits


class _Products(torch.autograd.Function):
    """Linear layers of all slots, on rows that lie record by record; by itself autograd would copy them twice."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Outputs (records · slots, outputs)."""
        slots, outputs, _ = weight.shape
        made = given.new_empty(len(given) // slots, slots, outputs)
        rows = given.unflatten(0, (-1, slots)).transpose(0, 1)
        room = made.transpose(0, 1)
        if bias is None:
            torch.bmm(rows, weight.mT, out=room)
        else:
            torch.baddbmm(bias.unsqueeze(1), rows, weight.mT, out=room)
        ctx.save_for_backward(given, weight)
        return made.flatten(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of inputs, weights and biases."""
        given, weight = ctx.saved_tensors
        slots, _, inputs = weight.shape
        products = slope.unflatten(0, (-1, slots)).transpose(0, 1)
        before = weights = biases = None
        if ctx.needs_input_grad[0]:
            before = slope.new_empty(len(given) // slots, slots, inputs)
            torch.bmm(products, weight, out=before.transpose(0, 1))
            before = before.flatten(0, 1)
        if ctx.needs_input_grad[1]:
            weights = torch.bmm(products.mT, given.unflatten(0, (-1, slots)).transpose(0, 1))
        if ctx.needs_input_grad[2]:
            biases = products.sum(1)
        return before, weights, biases


class _ProductsTwice(_Products):
    """The same by weights that are not sought: a linear map, whose transpose is one of the same kind."""

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradient of the inputs, which can be differentiated in turn."""
        _, weight = ctx.saved_tensors
        return _ProductsTwice.apply(slope, weight.mT, None), None, None


class _Convolved(torch.autograd.Function):
    """Convolution in groups by weights that are not sought: a linear map."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        """Outputs. Settings are stride, padding, dilation and groups."""
        ctx.save_for_backward(weight)
        ctx.settings = settings
        ctx.shape = given.shape
        return F.conv2d(given, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Gradient of the inputs."""
        (weight,) = ctx.saved_tensors
        return Pulled.apply(slope, weight, ctx.shape, *ctx.settings), *[None] * (2 + len(ctx.settings))


class Pulled(torch.autograd.Function):
    """Its transpose, from slopes by outputs to slopes by inputs (of a shape), whose own transpose convolves."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, weight: Tensor, shape: torch.Size, *settings: Any) -> Tensor:
        """Slopes by inputs of a shape."""
        ctx.save_for_backward(weight)
        ctx.settings = settings
        return conv2d_input(shape, weight, slope, *settings)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Gradient of the slopes by outputs."""
        (weight,) = ctx.saved_tensors
        return _Convolved.apply(slope, weight, None, *ctx.settings), *[None] * (2 + len(ctx.settings))


def _linear(layer: nn.Linear, own: Mapping[str, Tensor], given: Tensor, products: Any = _Products) -> Tensor:
    """A product for each slot."""
    weight = own["weight"]
    bias = own.get("bias")
    if given.ndim == 2:
        made: Tensor = products.apply(given, weight, bias)
        return made
    several = torch.einsum("bk...i,koi->bk...o", given.unflatten(0, (-1, len(weight))), weight)
    if bias is not None:
        several = several + bias.view(len(bias), *[1] * (given.ndim - 2), -1)
    return several.flatten(0, 1)


def convolution(
    layer: nn.Conv2d, own: Mapping[str, Tensor], given: Tensor, convolved: Callable[..., Tensor] = F.conv2d
) -> Tensor:
    """Groups of channels for each slot, whose values (slots, ...) are given by name."""
    weight = own["weight"]
    bias = own.get("bias")
    made = convolved(
        given.unflatten(0, (-1, len(weight))).flatten(1, 2),
        weight.flatten(0, 1),
        None if bias is None else bias.flatten(),
        layer.stride,
        layer.padding,
        layer.dilation,
        len(weight) * layer.groups,
    )
    return made.unflatten(1, (len(weight), -1)).flatten(0, 1)


def _group_norm(layer: nn.GroupNorm, own: Mapping[str, Tensor], given: Tensor) -> Tensor:
    """Groups for each slot."""
    weight = own["weight"]
    bias = own["bias"]
    side = given.unflatten(0, (-1, len(weight))).flatten(1, 2)
    made = F.group_norm(side, len(weight) * layer.num_groups, weight.flatten(), bias.flatten(), layer.eps)
    return made.view(given.shape)


_FORMS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: _linear,
    nn.Conv2d: convolution,
    nn.GroupNorm: _group_norm,
}
_TWICE: dict[type[nn.Module], Callable[..., Tensor]] = {
    **_FORMS,
    nn.Linear: partial(_linear, products=_ProductsTwice),
    nn.Conv2d: partial(convolution, convolved=_Convolved.apply),
}


@torch.no_grad()
def _agrees(network: WrittenOut, model: nn.Module, params: Mapping[str, Tensor], images: Tensor) -> bool:
    """True if two slots with weights near the given ones get the logits that each of them gets alone."""
    generator = torch.Generator(images.device).manual_seed(0)

    def drawn(like: Tensor) -> Tensor:
        """Uniform numbers in [-1, 1)."""
        return torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype) * 2 - 1

    two = {
        name: value.detach().expand(2, *value.shape[1:]) if len(value) == 1 else value[:2].detach()
        for name, value in params.items()
    }
    near = {name: value + 0.1 * drawn(value) for name, value in two.items()}
    batches = drawn(images[:1, :1].expand(2, _TRIED, -1, -1, -1))
    alone = [
        functional_call(model, {name: value[slot] for name, value in near.items()}, batches[slot])
        for slot in (0, 1)
    ]
    expected = torch.stack(alone)
    try:
        logits = network(near, batches)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a user's code, which may read any attribute of a layer or of a batch
        return False
    return logits.shape == expected.shape and bool(
        (logits - expected).abs().max() <= _CLOSE * expected.abs().max()
    )
