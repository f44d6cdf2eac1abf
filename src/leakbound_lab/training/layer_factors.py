"""Gradients of single records in the layers that uploads are scored by, as outer products: a slope δ and an input f."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Factors
from leakbound_lab.models.layers import factorable, parameter_layers, whole
from leakbound_lab.training.request import TrainingRequest
from leakbound_lab.training.weighted_sums import record_norms

Outer = tuple[Float[Tensor, "n outputs"], Float[Tensor, "n values"]]
"""Slopes and inputs of a layer for some records, whose gradients are the outer products of both."""
_UNSCORED = (
    "{}: trains no linear layer that sees each record once, or clips gradients of layers other than linear, "
    "convolutional and group-normalising ones; leave out membership_uploads for this network"
)


def scored_layers(name: str, model: nn.Module, *, clips: bool) -> tuple[list[str], dict[str, nn.Module]]:
    """Return the first trained linear layer, or all if gradients are clipped, and all layers that count.

    Args:
        name: Name of the network, for the message.
        model: The network.
        clips: Whether the defense clips gradients.

    Raises:
        ValueError: If there are none.
    """
    layers = parameter_layers(model)
    linear = [name for name, layer in layers.items() if type(layer) is nn.Linear and whole(layer)]
    if not linear or (clips and not factorable(model)):
        raise ValueError(_UNSCORED.format(name))
    return (linear, layers) if clips else (linear[:1], {linear[0]: layers[linear[0]]})


class LayerFactors:
    """Slopes and inputs of the scored layers of a network, for any records and weights.

    Args:
        request: The run.
        model: Architecture on the device.
        names: Scored layers.
        layers: All layers whose gradients count for the clipping of a record.
        precision: Arithmetic of the products in them. Slopes and inputs are in float32 in any case.

    Attributes:
        names: Scored layers, the first of which may see images.
    """

    def __init__(
        self,
        request: TrainingRequest,
        model: nn.Module,
        names: Sequence[str],
        layers: Mapping[str, nn.Module],
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        self.names = names
        self._request = request
        self._model = model
        self._layers = layers
        self._short = precision == "bfloat16"

    def of(
        self, params: Mapping[str, Tensor], images: Tensor, labels: Tensor, *, skip_images: bool = False
    ) -> dict[str, Outer]:
        """Compute slopes, with the clipping of each record, and inputs of each scored layer.

        Args:
            params: Weights of one network.
            images: Records as the network sees them (n, colors, height, width).
            labels: Their labels (n).
            skip_images: Whether inputs of the first layer are left out, because they are known.

        Raises:
            ValueError: If a layer does not see each record once.
        """
        chunk = memory.FORWARD_IMAGES.on(images.device)
        factored = Factors(lambda batch: functional_call(self._model, dict(params), (batch,)), self._layers)
        pairs: dict[str, list[Outer]] = {name: [] for name in self.names}
        for piece in zip(images.split(chunk), labels.split(chunk), strict=True):
            with torch.autocast(images.device.type, torch.bfloat16, enabled=self._short):
                factors = factored.constant(*piece)
            if factors is None:
                raise ValueError(_UNSCORED.format(self._request.model))
            if self._short:
                factors = [
                    each._replace(inputs=each.inputs.float(), slopes=each.slopes.float()) for each in factors
                ]
            weights: float | Tensor = 1.0
            if self._request.defense.clips:
                weights = self._request.client.record_weights(record_norms(factors))[:, None]
            for name, layer, inputs, slopes in factors:
                if name in pairs:
                    skipped = skip_images and name == self.names[0]
                    columns = inputs[:, :0] if skipped else with_one(inputs, layer.bias)
                    pairs[name].append((slopes * weights, columns))
        return {name: paired(torch.cat, rows) for name, rows in pairs.items()}

    def joined(self, params: Mapping[str, Tensor]) -> dict[str, Float[Tensor, "slots outputs values"]]:
        """Join weight and bias of each scored layer to one matrix, as outer products have them."""
        joined = {}
        for name in self.names:
            parts = [params[f"{name}.weight"].detach()]
            bias = params.get(f"{name}.bias")
            joined[name] = torch.cat(parts if bias is None else [*parts, bias.detach()[..., None]], dim=-1)
        return joined


def with_one(rows: Tensor, bias: Tensor | None) -> Tensor:
    """Append the input of a bias, a column of ones, if there is a bias."""
    return rows if bias is None else torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def paired(join: Callable[[tuple[Tensor, ...]], Tensor], pairs: Sequence[tuple[Tensor, Tensor]]) -> Outer:
    """Join the slopes of several pairs, and their inputs."""
    slopes, inputs = (join(rows) for rows in zip(*pairs, strict=True))
    return slopes, inputs
