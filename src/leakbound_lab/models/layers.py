"""Known layers: linear, convolutional and group-normalising ones, and networks of them for a stack.

Per-record gradients of known layers are outer products (:mod:`leakbound_lab.models.gradients`). A network of them
is written out for all slots of a stack, with as many kernels as for one network.

The records of all slots form one batch, record by record: (records · slots, ...). The slots of a record are
then adjacent in the channel axis. A convolution separates them by groups, a normalisation by more groups, and
nothing is copied. Linear layers are one batched product. Functions without parameters see each row alone, as
in a single network.

Attackers on gradients differentiate twice. For this torch's own convolutions launch a kernel for each group.
So there are special forms whose number of kernels does not grow with the slots.
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

ImageTensor = Float[Tensor, "n colors height width"]
ImageBatches = Float[Tensor, "slots batch colors height width"]
Logits = Float[Tensor, "slots batch classes"]
_TRIED = 3  # records that a network written out is compared on
_CLOSE = 1e-2  # largest difference of a logit, over the largest logit: any rounding, no mixture of records
_written: WeakKeyDictionary[nn.Module, "dict[bool, WrittenOut | None]"] = WeakKeyDictionary()


def own_parameters(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a layer itself, by their names."""
    return dict(layer.named_parameters(recurse=False))


def parameter_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of a network that have parameters, by their names."""
    return {name: layer for name, layer in model.named_modules() if own_parameters(layer)}


def whole(layer: nn.Module) -> bool:
    """Check that weight and bias of a layer are its parameters: neither is frozen or made of other ones."""
    return not layer._buffers and {"weight"} <= own_parameters(layer).keys() <= {"weight", "bias"}


def stackable(model: nn.Module) -> bool:
    """Check that each parameter is in one layer only, which can be computed for all slots at once.

    A subclass of a known kind of layer may compute something else.
    """
    layers = parameter_layers(model).values()
    owned = [id(parameter) for layer in layers for parameter in own_parameters(layer).values()]
    return len(owned) == len(set(owned)) and all(
        whole(layer) and type(layer) in _FORMS and getattr(layer, "padding_mode", "zeros") == "zeros"
        for layer in layers
    )


def factorable(model: nn.Module) -> bool:
    """Check that each parameter is in one layer only, whose per-record gradients are outer products.

    They are, for known layers, if a convolution has one group and numeric padding.
    """
    layers = [layer for layer in parameter_layers(model).values() if isinstance(layer, nn.Conv2d)]
    return stackable(model) and not any(
        layer.groups != 1 or isinstance(layer.padding, str) for layer in layers
    )


def windows(inputs: ImageTensor, layer: nn.Conv2d) -> Float[Tensor, "n values places"]:
    """Return the inputs of a convolution's kernel at each place, channels outermost, differentiable.

    On a GPU ``F.unfold`` launches a kernel for each image. On a CPU it is used, because its order of
    summation must not change.
    """
    if inputs.device.type == "cuda":
        return strided_windows(inputs, layer)
    return F.unfold(inputs, layer.kernel_size, layer.dilation, zero_padding(layer), layer.stride)


def strided_windows(inputs: ImageTensor, layer: nn.Conv2d) -> Float[Tensor, "n values places"]:
    """Return the same as copies of views of the padded inputs: a few kernels for any number of images.

    On a CPU it takes a third of the time of ``F.unfold``.
    """
    (high, wide), (down, right), (far, apart) = layer.kernel_size, layer.stride, layer.dilation
    vertical, horizontal = zero_padding(layer)
    inputs = inputs.contiguous()  # else rows are copied value by value, where channels lie side by side
    if vertical or horizontal:
        inputs = F.pad(inputs, (horizontal, horizontal, vertical, vertical))
    seen = inputs.unfold(2, far * (high - 1) + 1, down).unfold(3, apart * (wide - 1) + 1, right)
    seen = seen[..., ::far, ::apart]  # n, channels, rows, columns, high, wide
    return seen.permute(0, 1, 4, 5, 2, 3).reshape(len(inputs), inputs.shape[1] * high * wide, -1)


def zero_padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Return the rows and columns of zeros on each side of a convolution with numeric padding."""
    return int(layer.padding[0]), int(layer.padding[1])


def by_record(images: ImageTensor, rows: Int[Tensor, "slots batch"]) -> ImageBatches:
    """Select images for each slot, in the memory layout that a network that is written out takes."""
    chosen = images.index_select(0, rows.T.flatten())
    return chosen.view(*rows.T.shape, *images.shape[1:]).transpose(0, 1)


def written_out(
    model: nn.Module, params: Mapping[str, Tensor], images: Tensor, *, twice: bool = False
) -> "WrittenOut | None":
    """Write a network out. None if it has parameters in unknown layers, or mixes slots.

    Its code is tested once, with weights near the given ones. A network that mixes the records of a batch
    would also mix slots.

    Args:
        model: Architecture. The result is cached for the lifetime of the model.
        params: Parameter name to its values (slots, ...).
        images: Batches (slots, batch, colors, height, width).
        twice: Whether it will be differentiated twice, in the images only.
    """
    networks = _written.setdefault(model, {})
    if twice not in networks:
        network = WrittenOut(model, twice=twice) if stackable(model) else None
        with torch.autocast(images.device.type, enabled=False):  # rounding would look like a mixture
            agrees = network is not None and _agrees(network, model, params, images)
        networks[twice] = network if agrees else None
    return networks[twice]


class WrittenOut:
    """A network whose layers with parameters compute all slots at once.

    Args:
        model: Architecture of known layers. Its code is copied, its parameters are not.
        twice: Whether it will be differentiated twice, in the images only.

    Attributes:
        layers: Layers with parameters, by name. They are called like those of the model, on rows of all
            slots.
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

    def __call__(self, params: Mapping[str, Tensor], images: ImageBatches) -> Logits:
        """Compute the logits of every slot for its own images, without a copy if they are record by record.

        Args:
            params: Parameter name to its values (slots, ...).
            images: A batch per slot.
        """
        logits = self.of_rows(params, images.transpose(0, 1).flatten(0, 1))
        return logits.unflatten(0, (images.shape[1], len(images))).transpose(0, 1)

    def of_rows(self, params: Mapping[str, Tensor], images: ImageTensor) -> Float[Tensor, "n classes"]:
        """Compute the logits of rows that are ordered by record, with the slots of each record adjacent."""
        for name, value in params.items():
            layer, _, parameter = name.rpartition(".")
            self._own[layer][parameter] = value
        try:
            logits: Tensor = self._network(images)
        finally:
            for kept in self._own.values():
                kept.clear()
        return logits


class _Products(torch.autograd.Function):
    """Linear layers of all slots, on rows ordered by record. Autograd itself would copy them twice."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the outputs (records · slots, outputs)."""
        slots, outputs, _ = weight.shape
        made = inputs.new_empty(len(inputs) // slots, slots, outputs)
        rows = inputs.unflatten(0, (-1, slots)).transpose(0, 1)
        room = made.transpose(0, 1)
        if bias is None:
            torch.bmm(rows, weight.mT, out=room)
        else:
            torch.baddbmm(bias.unsqueeze(1), rows, weight.mT, out=room)
        ctx.save_for_backward(inputs, weight)
        return made.flatten(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute the gradients of inputs, weights and biases."""
        inputs, weight = ctx.saved_tensors
        slots, _, width = weight.shape
        products = slope.unflatten(0, (-1, slots)).transpose(0, 1)
        before = weights = biases = None
        if ctx.needs_input_grad[0]:
            before = slope.new_empty(len(inputs) // slots, slots, width)
            torch.bmm(products, weight, out=before.transpose(0, 1))
            before = before.flatten(0, 1)
        if ctx.needs_input_grad[1]:
            weights = torch.bmm(products.mT, inputs.unflatten(0, (-1, slots)).transpose(0, 1))
        if ctx.needs_input_grad[2]:
            biases = products.sum(1)
        return before, weights, biases


class _ProductsTwice(_Products):
    """The same for constant weights: a linear map, whose transpose is of the same kind."""

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute the gradient of the inputs, which can be differentiated in turn."""
        _, weight = ctx.saved_tensors
        return _ProductsTwice.apply(slope, weight.mT, None), None, None


class _Convolved(torch.autograd.Function):
    """Convolution in groups with constant weights: a linear map."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        """Compute the outputs. Settings are stride, padding, dilation and groups."""
        ctx.save_for_backward(weight)
        ctx.settings = settings
        ctx.shape = inputs.shape
        return F.conv2d(inputs, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradient of the inputs."""
        (weight,) = ctx.saved_tensors
        return _Pulled.apply(slope, weight, ctx.shape, *ctx.settings), *[None] * (2 + len(ctx.settings))


class _Pulled(torch.autograd.Function):
    """Transpose of ``_Convolved``, from slopes at outputs to slopes at inputs. Its transpose convolves."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, weight: Tensor, shape: torch.Size, *settings: Any) -> Tensor:
        """Compute slopes at inputs of a shape."""
        ctx.save_for_backward(weight)
        ctx.settings = settings
        return conv2d_input(shape, weight, slope, *settings)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradient of the slopes at outputs."""
        (weight,) = ctx.saved_tensors
        return _Convolved.apply(slope, weight, None, *ctx.settings), *[None] * (2 + len(ctx.settings))


def _linear(
    layer: nn.Linear, values: Mapping[str, Tensor], inputs: Tensor, products: Any = _Products
) -> Tensor:
    """Compute a product for each slot."""
    weight = values["weight"]
    bias = values.get("bias")
    inputs = inputs.to(weight.dtype)  # a convolution before may have computed in bfloat16
    if inputs.ndim == 2:
        made: Tensor = products.apply(inputs, weight, bias)
        return made
    several = torch.einsum("bk...i,koi->bk...o", inputs.unflatten(0, (-1, len(weight))), weight)
    if bias is not None:
        several = several + bias.view(len(bias), *[1] * (inputs.ndim - 2), -1)
    return several.flatten(0, 1)


def _convolution(
    layer: nn.Conv2d,
    values: Mapping[str, Tensor],
    inputs: Tensor,
    convolved: Callable[..., Tensor] = F.conv2d,
) -> Tensor:
    """Compute a convolution in groups of channels, one group or more for each slot.

    Args:
        layer: Layer with stride, padding, dilation and groups of one slot.
        values: ``weight`` and ``bias`` of all slots (slots, ...).
        inputs: (records · slots, channels, height, width).
        convolved: Function that convolves, with the arguments of ``F.conv2d``.
    """
    weight = values["weight"]
    bias = values.get("bias")
    made = convolved(
        inputs.unflatten(0, (-1, len(weight))).flatten(1, 2),
        weight.flatten(0, 1),
        None if bias is None else bias.flatten(),
        layer.stride,
        layer.padding,
        layer.dilation,
        len(weight) * layer.groups,
    )
    return made.unflatten(1, (len(weight), -1)).flatten(0, 1)


def _group_norm(layer: nn.GroupNorm, values: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Normalise in groups for each slot."""
    weight = values["weight"]
    bias = values["bias"]
    side = inputs.unflatten(0, (-1, len(weight))).flatten(1, 2)
    made = F.group_norm(side, len(weight) * layer.num_groups, weight.flatten(), bias.flatten(), layer.eps)
    return made.view(inputs.shape)


_FORMS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.GroupNorm: _group_norm,
}
_TWICE: dict[type[nn.Module], Callable[..., Tensor]] = {
    **_FORMS,
    nn.Linear: partial(_linear, products=_ProductsTwice),
    nn.Conv2d: partial(_convolution, convolved=_Convolved.apply),
}


@torch.no_grad()
def _agrees(network: WrittenOut, model: nn.Module, params: Mapping[str, Tensor], images: Tensor) -> bool:
    """Check that two slots with weights near the given ones get the logits that each of them gets alone."""
    generator = torch.Generator(images.device).manual_seed(0)

    def drawn(like: Tensor) -> Tensor:
        """Draw uniform numbers in [-1, 1)."""
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
