"""Distance between the gradient of a candidate image and an observed one, for many candidates at once.

Each candidate has its own observed gradient and the distance is differentiated once more, so per-record gradients of
the weights are needed inside the graph. Where all parameters belong to linear layers, convolutions and group
normalisations, the gradient of one backward pass with respect to the layers' outputs gives them in factored form (the
outer product with the layers' inputs), which costs half to all of what vmap takes, and never forms the gradient of a
linear layer; any other network goes through vmap. Both are exact.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.training import stack
from leakbound.training.client_steps import Gradients, record_gradients

_MOST = {"cpu": 64, "cuda": 1024}  # problems at once; more would not be faster
_CPU_BYTES = 2**31  # for the problems on a CPU: no measurement, so that equal attacks give equal bytes

Images = Float[Tensor, "n colors height width"]
Labels = Int[Tensor, " n"] | Float[Tensor, "n classes"]
"""Classes, or fractions of all classes."""


class GradientMatching:
    """Cosine distance between the gradients of candidates and observed gradients, problem by problem.

    Args:
        model: Network whose gradients were observed; a copy is kept.
        observed: Parameter name to gradients (n, ...), one per problem.
        image_shape: (colors, height, width) of the candidates.

    Attributes:
        factored: Whether per-record gradients are taken in factored form; else by vmap.

    Raises:
        ValueError: If the names are not those of the model's parameters.
    """

    def __init__(self, model: nn.Module, observed: Mapping[str, Tensor], image_shape: tuple[int, int, int]) -> None:
        names = [name for name, _ in model.named_parameters()]
        if sorted(names) != sorted(observed):
            raise ValueError(f"gradients of {sorted(observed)}: the model has the parameters {sorted(names)}")
        self._model = copy.deepcopy(model).requires_grad_(False).eval()
        self._observed = dict(observed)
        self._norms = torch.stack([tensor.flatten(1).square().sum(1) for tensor in observed.values()]).sum(0).sqrt()
        self._layers = {module: name for name, module in self._model.named_modules() if _factorable(module)}
        self.factored = self._is_covered_by_factors(set(names), image_shape)

    def distances(self, candidates: Images, labels: Labels) -> Float[Tensor, " n"]:
        """1 - cos(gradient of the candidate, observed gradient), in [0, 2], differentiable in the candidates.

        Args:
            candidates: One image per problem.
            labels: Its class.
        """
        products, squares = (self._from_factors if self.factored else self._from_gradients)(candidates, labels)
        return 1.0 - products / (squares.sqrt() * self._norms)

    def _from_gradients(self, candidates: Images, labels: Labels) -> tuple[Tensor, Tensor]:
        """Inner product of each candidate's gradient with the observed one, and its squared norm."""
        gradients = record_gradients(self._model, candidates, labels)
        products = [(gradients[name] * self._observed[name]).flatten(1).sum(1) for name in gradients]
        squares = [gradient.square().flatten(1).sum(1) for gradient in gradients.values()]
        return torch.stack(products).sum(0), torch.stack(squares).sum(0)

    def _from_factors(self, candidates: Images, labels: Labels) -> tuple[Tensor, Tensor]:
        """The same from the layers' inputs a and the gradients δ of their outputs."""
        logits, calls = self._recorded(candidates)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        deltas = torch.autograd.grad(loss, [output for _, _, output in calls], create_graph=True)
        pairs = []
        for (module, inputs, _), delta in zip(calls, deltas, strict=True):
            observed = {name: self._observed[f"{self._layers[module]}.{name}"] for name, _ in _own(module)}
            pairs.append(_product_and_square(module, inputs, delta, observed))
        products, squares = zip(*pairs, strict=True)
        return torch.stack(products).sum(0), torch.stack(squares).sum(0)

    def _is_covered_by_factors(self, names: set[str], image_shape: tuple[int, int, int]) -> bool:
        """True if all parameters lie in known layers, each called once and, if linear, on vectors."""
        if {f"{prefix}.{name}" for module, prefix in self._layers.items() for name, _ in _own(module)} != names:
            return False
        example = next(iter(self._observed.values())).new_zeros((1, *image_shape))
        _, calls = self._recorded(example)
        once = len(calls) == len(self._layers) == len({module for module, _, _ in calls})
        return once and all(inputs.ndim == 2 for module, inputs, _ in calls if isinstance(module, nn.Linear))

    def _recorded(self, images: Images) -> tuple[Tensor, list[tuple[nn.Module, Tensor, Tensor]]]:
        """Logits, and each known layer with its input and output in the order of calls."""
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        handles = [
            layer.register_forward_hook(lambda module, inputs, output: calls.append((module, inputs[0], output)))
            for layer in self._layers
        ]
        try:
            return self._model(images), calls
        finally:
            for handle in handles:
                handle.remove()


def problems_at_once(model: nn.Module, image_shape: tuple[int, int, int], device: str | torch.device) -> int:
    """Number of candidates that are matched side by side: on a CPU 64 of LeNet, 13 of ResNet10, 1 of VGG16.

    A problem is taken to need six copies of the parameters (the observed gradient, a copy, and those of convolutions,
    formed and differentiated) and four times what a training step needs for a record. On a CPU two gibibytes are
    filled, whatever the machine has; on a GPU 60 % of what is free. The network is on the device; images have a shape
    (colors, height, width).
    """
    kind = torch.device(device).type
    parameters = sum(parameter.numel() for parameter in model.parameters())
    budget = stack.free_bytes(device) if kind == "cuda" else _CPU_BYTES
    fitting = budget // (4 * 6 * parameters + 4 * stack.record_bytes(model, image_shape))
    return max(1, min(fitting, _MOST.get(kind, _MOST["cpu"])))


def _own(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters of a layer itself."""
    return list(module.named_parameters(recurse=False))


def _factorable(module: nn.Module) -> bool:
    """True if a layer's gradient is an outer product that this module knows."""
    if isinstance(module, nn.Conv2d):
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return isinstance(module, nn.Linear) or (isinstance(module, nn.GroupNorm) and module.affine)


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


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Rows and columns of zeros on each side; layers that name their padding are not among those known here."""
    return int(layer.padding[0]), int(layer.padding[1])


def _product_and_square(module: Any, inputs: Tensor, delta: Tensor, observed: Gradients) -> tuple[Tensor, Tensor]:
    """Inner product with the observed gradient of one layer, and squared norm, per problem.

    Linear: the gradient is δ aᵀ, so <δ aᵀ, G> = δᵀ G a and its squared norm ‖δ‖² ‖a‖², without forming it. Convolution:
    it is the sum over positions of δ aᵀ with a the patch below, a matrix that is formed. Group normalisation: it is the
    sum over positions of δ times the normalised input.
    """
    if isinstance(module, nn.Linear):
        at_bias = delta
        product = (torch.bmm(delta[:, None], observed["weight"])[:, 0] * inputs).sum(1)
        square = delta.square().sum(1) * inputs.square().sum(1)
    else:
        at_bias = delta.flatten(2).sum(2)
        if isinstance(module, nn.GroupNorm):
            normalised = F.group_norm(inputs, module.num_groups, eps=module.eps)
            gradient = (delta * normalised).flatten(2).sum(2)
        else:
            patches = windows(inputs, module)
            gradient = torch.bmm(delta.flatten(2), patches.transpose(1, 2)).flatten(1)
        product, square = (gradient * observed["weight"].flatten(1)).sum(1), gradient.square().sum(1)
    if "bias" in observed:
        product = product + (at_bias * observed["bias"]).sum(1)
        square = square + at_bias.square().sum(1)
    return product, square
