"""Staged search for single records behind ReLU and pooling: what linear layers reveal, then softened kinks.

The linear layers' gradients reveal the features below them and the slopes of the loss there without a search
(:mod:`leakbound_lab.attacks.gradient_inversion.closed_form`). Below lie convolutions, each with a ReLU and
perhaps pooling. The search finds the most probable image under a Gaussian distribution that leads to these
features, and with these slopes to the gradients of the convolutions. Each is compared in terms of its own
norm, because the convolutions are a hundredth of the whole gradient. ReLU and pooling are softened at first
and hardened step by step, as a search with kinks stays with the units that are active where it begins.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from leakbound_lab.attacks.gradient_inversion.closed_form import descend
from leakbound_lab.attacks.gradient_inversion.layer_chain import calls_of, chain_of, equal, passable
from leakbound_lab.models.gradients import Gradients
from leakbound_lab.models.layers import windows
from leakbound_lab.training.eager_optimizers import Adam

STARTS = 2
"""Starts of each record: the mean of the distribution, and a point near it."""

_STEP = 0.1  # Adam's first step, in standard deviations of the distribution
_SPREAD = 0.3  # distance of the second start from the mean, in the same
_LIGHTEST = 1e2  # weight of the differences against the distribution of images, at the beginning
_HEAVIEST = 1e5  # the same at the end
_RISING = 0.8  # part of the steps over which the weight rises
_SOFT = 0.7  # part of the steps until the kinks are hard
_WARMEST = 1.0  # temperature at the beginning, in standard deviations of what goes into a ReLU
_BIAS = 0.1  # weight of the lowest convolution's bias


class Stage(NamedTuple):
    """Convolution, the ReLU of its output, and pooling.

    Attributes:
        name: Name of the convolution.
        layer: The convolution.
        side: Side of the windows that are pooled, which do not overlap, or 1 without pooling.
        mean: Whether their mean is taken instead of the largest value.
    """

    name: str
    layer: nn.Conv2d
    side: int
    mean: bool


class Features(NamedTuple):
    """Features of some records below the linear layers.

    Attributes:
        values: (n, features), float64.
        slopes: Slopes of the loss by them, float64, of the same shape.
    """

    values: Float[Tensor, "n features"]
    slopes: Float[Tensor, "n features"]


def stages_of(model: nn.Module, image_shape: tuple[int, int, int]) -> list[Stage]:
    """List the convolutions of a network from the image up.

    Args:
        model: Network, in evaluation mode.
        image_shape: (colors, height, width).

    Raises:
        ValueError: If the network does not consist of convolutions with ReLU, and pooling in windows that do
            not overlap, below linear layers whose inputs are known in closed form.
    """
    source, calls = calls_of(model, image_shape)
    links, _ = chain_of(model, image_shape)
    stages: list[Stage] = []
    for name, layer, inputs, output in calls:
        if not passable(layer, inputs):
            raise ValueError(f"{name} is a {type(layer).__name__}, not a plain convolution or a linear layer")
        if stages:
            side, mean = _pooling(source, inputs)
            if not side:
                raise ValueError(
                    f"between {stages[-1].name} and {name} is something else than a ReLU and pooling"
                )
            stages[-1] = stages[-1]._replace(side=side, mean=mean)
        elif not equal(source, inputs):
            raise ValueError(f"{name} is not given the image")
        if isinstance(layer, nn.Linear):
            if not stages or not links or links[-1].name != name:
                raise ValueError(f"{name} has no convolution below, or an input that no equations lead to")
            return stages
        stages.append(Stage(name, layer, 1, False))
        source = output
    raise ValueError(f"{type(model).__name__} is no chain of layers that ends with a linear one")


def _pooling(source: Tensor, inputs: Tensor) -> tuple[int, bool]:
    """Find the side of the windows pooled between layers, 0 if none fits, and whether it is their mean."""
    for side in range(1, min(source.shape[2:]) + 1):
        if equal(F.relu(F.max_pool2d(source, side)), inputs):
            return side, False
        if equal(F.avg_pool2d(F.relu(source), side), inputs):
            return side, True
    return 0, False


def features_of(model: nn.Module, gradients: Gradients, image_shape: tuple[int, int, int]) -> Features:
    """Compute the features below the linear layers and the slopes of the loss by them, in closed form.

    For the lowest linear layer, y = W f + b, the gradient is G = δ fᵀ, so f = Gᵀδ/‖δ‖², and the slopes are
    Wᵀδ.

    Args:
        model: Network that has stages.
        gradients: Parameter name to gradients (n, ...), of one record each.
        image_shape: (colors, height, width).

    Raises:
        ValueError: If the last layer is not linear.
    """
    layers = descend(model, gradients, image_shape)
    if layers is None:
        raise ValueError(f"the last layer of {type(model).__name__} is not linear")
    weight = model.get_parameter(f"{layers.layer}.weight").detach()
    return Features(layers.inputs.flatten(1), layers.slopes @ weight.double())


def encoded(
    stages: Sequence[Stage],
    weights: Mapping[str, Tensor],
    images: Float[Tensor, "rows colors height width"],
    slopes: Float[Tensor, "rows features"],
    temperature: float,
) -> tuple[Float[Tensor, "rows features"], Gradients]:
    """Compute features, and gradients of the convolutions for known slopes of the loss by the features.

    Args:
        stages: Convolutions from the image up.
        weights: Parameter name to values.
        images: The images.
        slopes: The slopes.
        temperature: Temperature of the softened kinks. At 0 features and gradients are the network's own.
    """
    # Forward, through convolution, softened ReLU and softened pooling.
    values = images
    passed = []
    for stage in stages:
        layer = stage.layer
        parameters = (weights[f"{stage.name}.weight"], weights.get(f"{stage.name}.bias"))
        before = F.conv2d(values, *parameters, layer.stride, layer.padding, layer.dilation)
        pooled, shares = _pooled(before, stage, temperature)
        passed.append((stage, values, before, shares))
        values = pooled
    # Backward, from the known slopes by the features to the gradient of each convolution.
    gradients: Gradients = {}
    slope = slopes.view(values.shape)
    for stage, inputs, before, shares in reversed(passed):
        layer = stage.layer
        through = _spread(slope, shares, before)
        patches = windows(inputs, layer)
        gradients[f"{stage.name}.weight"] = torch.bmm(through.flatten(2), patches.transpose(1, 2))
        if layer.bias is not None:
            gradients[f"{stage.name}.bias"] = through.flatten(2).sum(2)
        if stage is not stages[0]:
            weight = weights[f"{stage.name}.weight"]
            slope = conv2d_input(inputs.shape, weight, through, layer.stride, layer.padding, layer.dilation)
    return values.flatten(1), gradients


def _pooled(before: Tensor, stage: Stage, temperature: float) -> tuple[Tensor, Tensor]:
    """Pool a softened ReLU softly, and share the slope among the values of each window (..., side²).

    At temperature t times the standard deviation of a record's values x the largest one is softened to their
    mean with weights softmax(x/t), the ReLU to t ln(1 + exp(x/t)), and its gate to 1/(1 + exp(−x/t)).
    """
    side = stage.side
    tiles = before.unfold(2, side, side).unfold(3, side, side).flatten(4)
    if not temperature:
        if stage.mean:
            return tiles.relu().mean(-1), (tiles > 0) / side**2
        largest, index = tiles.max(-1, keepdim=True)
        return largest[..., 0].relu(), torch.zeros_like(tiles).scatter(-1, index, 1.0) * (largest > 0)
    spread = before.detach().flatten(1).std(1).clamp(min=torch.finfo(before.dtype).tiny)
    scale = temperature * spread.view(-1, 1, 1, 1, 1)
    if stage.mean:
        return (scale * F.softplus(tiles / scale)).mean(-1), (tiles / scale).sigmoid() / side**2
    shares = (tiles / scale).softmax(-1)
    largest = (shares * tiles).sum(-1, keepdim=True) / scale
    return (scale * F.softplus(largest))[..., 0], shares * largest.sigmoid()


def _spread(slopes: Tensor, shares: Tensor, before: Tensor) -> Tensor:
    """Compute slopes by a convolution's output from those by its pooled values, 0 outside of all windows."""
    side = round(shares.shape[-1] ** 0.5)
    tiles = (slopes.unsqueeze(-1) * shares).unflatten(-1, (side, side)).transpose(3, 4)
    tiles = tiles.flatten(4, 5).flatten(2, 3)
    missing = [whole - reached for whole, reached in zip(before.shape[2:], tiles.shape[2:], strict=True)]
    return F.pad(tiles, (0, missing[1], 0, missing[0])) if any(missing) else tiles


def search(
    model: nn.Module,
    features: Features,
    gradients: Gradients,
    law: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]],
    image_shape: tuple[int, int, int],
    steps: int,
) -> Float[Tensor, "rows colors height width"]:
    """Find the most probable image x = mean + root u of each row.

    It minimises ½‖u‖² + w (‖Δf‖²/‖f‖² + Σ ‖ΔG‖²/‖G‖² + ‖Δb‖²/10‖b‖²) by Adam, with f the features, G the
    gradients of the convolutions and b that of the lowest one's bias. The weight w rises, and the temperature
    of ReLU and pooling falls to 0. Of several starts the one with the lowest value at temperature 0 is kept.

    Args:
        model: Network that has stages.
        features: Features of each row.
        gradients: Parameter name to observed gradients (rows, ...).
        law: Mean of the distribution of images, and the root of its covariance.
        image_shape: (colors, height, width).
        steps: Steps of Adam from each start.
    """
    stages = stages_of(model, image_shape)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    like = next(iter(weights.values()))
    mean = law[0].to(like)
    root = law[1].to(like).T
    # What is matched, each in terms of its own norm, once for every start.
    # The empty name stands for the features, which the last layer gives away.
    shares = {"": 1.0, **{f"{stage.name}.weight": 1.0 for stage in stages}}
    shares[f"{stages[0].name}.bias"] = _BIAS
    wanted = {
        name: torch.cat([value.flatten(1).to(like)] * STARTS)
        for name, value in {"": features.values, **gradients}.items()
        if name in shares
    }
    tiny = torch.finfo(like.dtype).tiny
    scales = {name: shares[name] / value.square().sum(1).clamp(min=tiny) for name, value in wanted.items()}
    slopes = torch.cat([features.slopes.to(like)] * STARTS)

    def values(u: Tensor, weight: float, temperature: float) -> Float[Tensor, " rows"]:
        """Compute the value of each row."""
        images = (mean + u @ root).view(-1, *image_shape)
        reached_features, reached = encoded(stages, weights, images, slopes, temperature)
        reached[""] = reached_features
        misfits = [
            scales[name] * (reached[name].flatten(1) - value).square().sum(1)
            for name, value in wanted.items()
        ]
        return 0.5 * u.square().sum(1) + weight * torch.stack(misfits).sum(0)

    # Starts: the mean of the distribution, and a point near it.
    rows = len(features.values)
    moved = torch.randn(len(mean), generator=torch.Generator().manual_seed(1)).to(like)
    starts = [torch.zeros(rows, len(mean)).to(like), (_SPREAD * moved).expand(rows, -1)]
    u = torch.cat(starts).requires_grad_()
    optimizer = Adam([u], lr=_STEP, fused=u.is_cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    # The weight rises while the temperature falls to 0, where ReLU and pooling are the network's own.
    for step in range(steps):
        done = step / steps
        weight = _LIGHTEST * (_HEAVIEST / _LIGHTEST) ** min(1.0, done / _RISING)
        temperature = _WARMEST * max(0.0, 1.0 - done / _SOFT) ** 2
        (u.grad,) = torch.autograd.grad(values(u, weight, temperature).sum(), u)
        optimizer.step()
        schedule.step()
    # Of each record the start that ended lowest.
    with torch.no_grad():
        best = values(u, _HEAVIEST, 0.0).nan_to_num(nan=torch.inf).view(STARTS, rows).argmin(0)
        lowest = u.view(STARTS, rows, -1)[best, torch.arange(rows, device=u.device)]
        return (mean + lowest @ root).view(-1, *image_shape)
