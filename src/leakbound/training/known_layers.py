"""Known layers: linear, convolutional and group-normalising ones, with their parameters and kernel inputs.

Networks of known layers are computed for all slots of a stack at once
(:mod:`leakbound.training.stacked_layers`), and their per-record gradients are outer products
(:mod:`leakbound.training.factors`).
"""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ImageTensor = Float[Tensor, "n colors height width"]


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
    """Check that each parameter is in one layer only, which can be computed for all slots at once."""
    return _divisible(model, _is_known)


def factorable(model: nn.Module) -> bool:
    """Check that each parameter is in one layer only, whose per-record gradients are outer products."""
    return _divisible(model, _has_outer_products)


def _divisible(model: nn.Module, suits: Callable[[nn.Module], bool]) -> bool:
    """Check that each parameter is in one layer only, and that all these layers are suitable."""
    layers = parameter_layers(model).values()
    owned = [id(parameter) for layer in layers for parameter in own_parameters(layer).values()]
    return len(owned) == len(set(owned)) and all(suits(layer) for layer in layers)


def _is_known(layer: nn.Module) -> bool:
    """Check that a layer is of a known kind. A subclass may compute something else."""
    return whole(layer) and (
        type(layer) in (nn.Linear, nn.GroupNorm)
        or (type(layer) is nn.Conv2d and layer.padding_mode == "zeros")
    )


def _has_outer_products(layer: nn.Module) -> bool:
    """Check that a layer is known and, for a convolution, has one group and numeric padding."""
    if isinstance(layer, nn.Conv2d) and (layer.groups != 1 or isinstance(layer.padding, str)):
        return False
    return _is_known(layer)


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
    inputs = (
        inputs.contiguous()
    )  # where the channels of a pixel lie side by side, rows are copied value by value
    if vertical or horizontal:
        inputs = F.pad(inputs, (horizontal, horizontal, vertical, vertical))
    seen = inputs.unfold(2, far * (high - 1) + 1, down).unfold(3, apart * (wide - 1) + 1, right)
    seen = seen[..., ::far, ::apart]  # n, channels, rows, columns, high, wide
    return seen.permute(0, 1, 4, 5, 2, 3).reshape(len(inputs), inputs.shape[1] * high * wide, -1)


def zero_padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Return the rows and columns of zeros on each side of a convolution with numeric padding."""
    return int(layer.padding[0]), int(layer.padding[1])
