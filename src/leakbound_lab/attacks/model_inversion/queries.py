"""Questions of model inversion to networks: losses and slopes at images, and images that are driven to labels.

On a GPU questions to several networks are answered by one stack, which launches as many kernels as one
network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from leakbound_lab.attacks.scheduling import by_kind, in_parts
from leakbound_lab.attacks.search_images import descent, total_variation
from leakbound_lab.models.layers import ImageTensor
from leakbound_lab.training.stack import forward

_OF_IMAGES = ("labels", "images", "tv_weights", "bounds")  # of a question for images, one for each of them


@dataclass(frozen=True)
class Slopes:
    """Question for the cross-entropy of labels at images, nats, and for its slopes there.

    Attributes:
        slot: Network that is asked.
        labels: Label of each image.
        images: The images.
    """

    kind: ClassVar[tuple[int, ...]] = ()
    slot: int
    labels: Int[Tensor, " n"]
    images: ImageTensor


@dataclass(frozen=True)
class Inversion:
    """Question for images that a network gives labels, as :func:`invert` finds them.

    Attributes:
        slot: Network that is asked.
        labels: Label that each image is driven to.
        images: First iterates.
        tv_weights: Weight of the total variation of each.
        bounds: Largest absolute pixel value of each.
        learning_rate: Adam's.
        moments: Iterations whose images are asked for.
    """

    slot: int
    labels: Int[Tensor, " n"]
    images: ImageTensor
    tv_weights: Float[Tensor, " n"]
    bounds: Float[Tensor, " n"]
    learning_rate: float
    moments: list[int]

    @property
    def kind(self) -> tuple[int, ...]:
        """Equal for questions that one stack can answer."""
        return tuple(self.moments)


def joined_inversion(queries: Sequence[Inversion]) -> Inversion:
    """Join questions of one kind to one network into one for all their images."""
    values = {name: torch.cat([getattr(query, name) for query in queries]) for name in _OF_IMAGES}
    return replace(queries[0], **cast(dict[str, Any], values))


Query = Slopes | Inversion


@dataclass(frozen=True)
class AnsweringNetworks:
    """Networks of one architecture that answer questions.

    Attributes:
        model: Architecture.
        params: Parameter name to its values (slots, ...).
        at_once: Questions that one stack answers. Where ``vmap`` does not know the network, or memory does
            not hold one image of each question, two halves of it do.
    """

    model: nn.Module
    params: Mapping[str, Tensor]
    at_once: int

    def answers(self, queries: Sequence[Sequence[Query]]) -> list[list[Any]]:
        """Answer the questions of several attackers.

        Returns:
            For slopes the losses (n,) and the slopes (n, colors, height, width). For images those after each
            moment on the host, (moments, n, colors, height, width).
        """
        flat = [query for group in queries for query in group]
        # RuntimeError: of memory that is used up, and of vmap.
        answers = iter(
            by_kind(
                flat, lambda each: each.kind, self._answered_by_one_stack, self.at_once, errors=RuntimeError
            )
        )
        return [[next(answers) for _ in group] for group in queries]

    def _answered_by_one_stack(self, queries: list[Query]) -> list[Any]:
        """Return the answers to questions of one kind, which one stack of networks finds."""

        def row_by_row(name: str) -> Tensor:
            """Interleave the values of all questions, with 0 after the end of a shorter one."""
            return pad_sequence([getattr(query, name) for query in queries]).flatten(0, 1)

        params = self._parameters_of(queries)
        labels = row_by_row("labels")
        images = row_by_row("images")
        if isinstance(first := queries[0], Inversion):
            values = [row_by_row(name) for name in _OF_IMAGES]
            search = partial(invert, self.model, params, learning_rate=first.learning_rate)
            pieces: list[np.ndarray] = []

            def solve(places: Sequence[int]) -> None:
                """Invert some images of each question."""
                part = slice(places[0] * len(queries), (places[-1] + 1) * len(queries))
                *rows, bounds = (value[part] for value in values)
                trace = search(*rows, bounds=bounds, moments=first.moments)
                pieces.append(trace.unflatten(1, (-1, len(queries))).cpu().numpy())

            count = len(labels) // len(queries)
            in_parts(range(count), count, solve)
            iterates = np.concatenate(pieces, axis=1)
            return [iterates[:, : len(query.labels), slot] for slot, query in enumerate(queries)]
        images.requires_grad_()
        losses = F.cross_entropy(_logits(self.model, params, images), labels, reduction="none")
        (slopes,) = torch.autograd.grad(losses.sum(), images)
        both = [value.unflatten(0, (-1, len(queries))) for value in (losses.detach(), slopes)]
        return [
            tuple(value[: len(query.labels), slot] for value in both) for slot, query in enumerate(queries)
        ]

    def _parameters_of(self, queries: list[Query]) -> Mapping[str, Tensor]:
        """Select the parameters of the networks that are asked, in the order of the questions."""
        slots = [query.slot for query in queries]
        values = next(iter(self.params.values()))
        if slots == list(range(len(values))):
            return self.params
        rows = torch.tensor(slots, device=values.device)
        return {name: value.index_select(0, rows) for name, value in self.params.items()}


def invert(
    model: nn.Module,
    params: Mapping[str, Tensor],
    labels: Int[Tensor, " rows"],
    start: Float[Tensor, "rows colors height width"],
    tv_weights: Float[Tensor, " rows"],
    *,
    bounds: Float[Tensor, " rows"],
    learning_rate: float,
    moments: list[int],
) -> Float[Tensor, "moments rows colors height width"]:
    """Minimise cross-entropy + weight · TV over each image by Adam, and keep the iterates at some moments.

    Adam works pixel by pixel, so the images of a batch do not influence each other. Those of several networks
    lie row by row: the first images of all networks, then their second ones, and so on.

    Args:
        model: Architecture.
        params: Parameter name to its values (slots, ...), one slot for each network.
        labels: Class that each image is driven to.
        start: First iterates.
        tv_weights: Weight of the total variation of each image, >= 0.
        bounds: Largest absolute pixel value that each image may take, infinite for no constraint.
        learning_rate: Adam's.
        moments: Iteration numbers, ascending and >= 1. The last one ends the optimisation.

    Returns:
        Iterates after each of ``moments``.
    """
    images = start.clone().requires_grad_()

    def gradient() -> Tensor:
        """Differentiate the sum of the objectives of all images."""
        objective = F.cross_entropy(_logits(model, params, images), labels, reduction="sum")
        return torch.autograd.grad(objective + tv_weights @ total_variation(images), images)[0]

    _, step = descent(images, learning_rate, bounds[:, None, None, None], gradient)
    iterates: list[Tensor] = []
    for iteration in range(1, moments[-1] + 1):
        step()
        if iteration in moments:
            iterates.append(images.detach().clone())
    return torch.stack(iterates)


def _logits(
    model: nn.Module, params: Mapping[str, Tensor], images: ImageTensor
) -> Float[Tensor, "n classes"]:
    """Compute the logits of images that lie row by row, each by its own network."""
    slots = len(next(iter(params.values())))
    logits = forward(model, params, images.unflatten(0, (-1, slots)).transpose(0, 1))
    return logits.transpose(0, 1).flatten(0, 1)
