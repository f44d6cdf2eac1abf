"""Distance between the gradient of a candidate image and an observed one, for many candidates at once.

Each candidate has its own observed gradient and the distance is differentiated once more, so per-record
gradients of the weights are needed inside the graph. Where a network's gradients can be factored
(:mod:`leakbound_lab.models.gradients`), that costs half to all of what vmap takes, and never forms the gradient
of a linear layer. Any other network goes through vmap. Both are exact.
"""

import copy
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Factors, Labels, record_gradients
from leakbound_lab.models.layers import ImageTensor, factorable, parameter_layers, written_out
from leakbound_lab.training.stack import stacked


class Matching:
    """Cosine distance between the gradients of candidates and observed gradients, problem by problem.

    Args:
        factors: Factors of the networks whose gradients were observed.
        observed: Parameter name to gradients (n, ...), one per problem.
    """

    def __init__(self, factors: Factors, observed: Mapping[str, Tensor]) -> None:
        self._factors = factors
        self._observed = dict(observed)
        self._norms = (
            torch.stack([tensor.flatten(1).square().sum(1) for tensor in observed.values()]).sum(0).sqrt()
        )

    def distances(self, candidates: ImageTensor, labels: Labels) -> Float[Tensor, " n"]:
        """Compute 1 - cos(gradient of the candidate, observed gradient), in [0, 2], differentiably.

        Args:
            candidates: One image per problem.
            labels: Class of each.
        """
        products, squares = self._products(candidates, labels)
        return 1.0 - products / (squares.sqrt() * self._norms)

    def _products(self, candidates: ImageTensor, labels: Labels) -> tuple[Tensor, Tensor]:
        """Compute inner products of candidates' gradients with the observed ones, and squared norms of the former."""
        pairs = [factor.compared(self._observed) for factor in self._factors(candidates, labels)]
        products, squares = zip(*pairs, strict=True)
        return torch.stack(products).sum(0), torch.stack(squares).sum(0)


class GradientMatching(Matching):
    """Cosine distance for gradients of any single network.

    Args:
        model: Network whose gradients were observed. A copy is kept.
        observed: Parameter name to gradients (n, ...), one per problem.
        image_shape: (colors, height, width) of the candidates.

    Attributes:
        factored: Whether per-record gradients are taken in factored form, and not by vmap.

    Raises:
        ValueError: If the names are not those of the model's parameters.
    """

    def __init__(
        self, model: nn.Module, observed: Mapping[str, Tensor], image_shape: tuple[int, ...]
    ) -> None:
        names = [name for name, _ in model.named_parameters()]
        if sorted(names) != sorted(observed):
            raise ValueError(f"gradients of {sorted(observed)}: the model has the parameters {sorted(names)}")
        self._model = copy.deepcopy(model).requires_grad_(False).eval()
        super().__init__(Factors(self._model, parameter_layers(self._model)), observed)
        example = next(iter(observed.values())).new_zeros((1, *image_shape))
        self.factored = factorable(self._model) and self._factors.cover(example)

    def _products(self, candidates: ImageTensor, labels: Labels) -> tuple[Tensor, Tensor]:
        """Compute the same from factored gradients, or from those of vmap where the network has none."""
        if self.factored:
            return super()._products(candidates, labels)
        gradients = record_gradients(self._model, candidates, labels)
        products = [(gradients[name] * self._observed[name]).flatten(1).sum(1) for name in gradients]
        squares = [gradient.square().flatten(1).sum(1) for gradient in gradients.values()]
        return torch.stack(products).sum(0), torch.stack(squares).sum(0)


def stack_of(models: Sequence[nn.Module], image_shape: tuple[int, ...]) -> Factors | None:
    """Make factored gradients of several networks, record by record: the first record of all networks, then the second.

    None if their architecture cannot be written out or its gradients not be factored.

    Args:
        models: Networks of one architecture on one device, in evaluation mode. Their weights are copied.
        image_shape: (colors, height, width).
    """
    device = next(models[0].parameters()).device
    params = {name: value.detach() for name, value in stacked(models, device).items()}
    example = next(iter(params.values())).new_zeros((len(models), 1, *image_shape))
    network = written_out(models[0], params, example, twice=True) if factorable(models[0]) else None
    if network is None:
        return None
    factors = Factors(partial(network.of_rows, params), network.layers)
    return factors if factors.cover(example.flatten(0, 1)) else None


def problems_at_once(model: nn.Module, image_shape: tuple[int, ...], device: str | torch.device) -> int:
    """Count the candidates that are matched at once: on a CPU 64 of LeNet, 13 of ResNet10, 1 of VGG16.

    A problem is taken to need six copies of the parameters (the observed gradient, a copy, and those of
    convolutions, formed and differentiated) and four times what a training step needs for a record. On a CPU
    two gibibytes are filled, whatever the machine has, and on a GPU 60 % of what is free. The network is on
    the device. Images have a shape (colors, height, width).
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    on_gpu = torch.device(device).type == "cuda"
    budget = memory.free_bytes(device) if on_gpu else memory.MATCHING_BYTES
    fitting = budget // (4 * 6 * parameters + 4 * memory.record_bytes(model, image_shape))
    return max(1, min(fitting, memory.MATCHED_CANDIDATES.on(device)))
