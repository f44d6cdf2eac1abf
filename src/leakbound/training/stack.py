"""A stack of networks of one architecture, trained as one: slots are replicas, clients or shadow models.

Parameters are a dictionary from name to tensor (slots, ...). One slot is computed as a plain network, several
slots as one batched network. Both give the same result within float32 rounding, and on a CPU the same bytes
for the same slots.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakbound.datasets import Split
from leakbound.training import memory
from leakbound.training.stacked_layers import by_record, written_out

Parameters = dict[str, Tensor]
_CURVE_RECORDS = 2000  # records in all points of a curve but the last


def stacked(models: Sequence[nn.Module], device: str | torch.device = "cpu") -> Parameters:
    """Stack the parameters of equal networks, one slot each, as new leaf tensors that require gradients.

    Args:
        models: One or more networks of one architecture, each on any device.
        device: Device of the stack.
    """
    params = [dict(model.named_parameters()) for model in models]
    return {
        name: torch.stack([slot[name].detach().to(device) for slot in params]).requires_grad_()
        for name in params[0]
    }


class StackWeights:
    """Parameters of several slots that are trained together, in one row of memory.

    The row holds parameter by parameter, each with its values for all slots. So the gradient of all slots is
    one tensor. Learning rates, momentum and update take one kernel each, whatever the number of slots and
    parameters.

    Args:
        models: One or more networks of one architecture, one for each slot.
        rates: Learning rate of each slot, > 0.
        device: Device of the stack.

    Attributes:
        leaves: Tensors for an optimizer: the parameters of one slot, or the row of several slots.
    """

    def __init__(
        self, models: Sequence[nn.Module], rates: Sequence[float], device: str | torch.device
    ) -> None:
        params = stacked(models, device)
        self._shapes = {name: value.shape for name, value in params.items()}
        self._sizes = [value.numel() for value in params.values()]
        self.leaves = list(params.values())
        self._rates = torch.tensor(rates)
        self._single = len(models) == 1
        if not self._single:
            self.leaves = [torch.cat([value.detach().flatten() for value in self.leaves]).requires_grad_()]
            of_parameters = [self._rates.repeat_interleave(size // len(rates)) for size in self._sizes]
            self._rates = torch.cat(of_parameters).to(device)

    @property
    def params(self) -> Parameters:
        """Parameter name to its values (slots, ...), as views of the leaves."""
        return dict(zip(self._shapes, self.parts(self.leaves), strict=True))

    def parts(self, values: list[Tensor]) -> list[Tensor]:
        """Split values with the layout of the leaves into one tensor (slots, ...) for each parameter."""
        if self._single:
            return values
        pieces = values[0].split(self._sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self._shapes.values(), strict=True)]

    def gathered(self, parts: list[Tensor]) -> list[Tensor]:
        """Join one tensor (slots, ...) for each parameter into the layout of the leaves."""
        return parts if self._single else [torch.cat([part.flatten() for part in parts])]

    def scale(self, gradients: list[Tensor]) -> None:
        """Multiply gradients of the leaves by the rate of each slot, in place. Momentum is linear."""
        torch._foreach_mul_(gradients, float(self._rates) if self._rates.numel() == 1 else [self._rates])


def forward(
    model: nn.Module, params: Mapping[str, Tensor], images: Float[Tensor, "slots batch colors height width"]
) -> Float[Tensor, "slots batch classes"]:
    """Compute the logits of every slot for its own images.

    One slot is a plain call. Several slots are written out if the network allows it, and else use
    :func:`vmapped`.

    Args:
        model: Architecture. Its parameters are not used.
        params: Parameter name to its values (slots, ...).
        images: A batch per slot. For one batch in all slots pass ``images.expand(slots, ...)``.
    """
    if len(next(iter(params.values()))) == 1:
        single = {name: value.squeeze(0) for name, value in params.items()}
        return functional_call(model, single, (images.squeeze(0),)).unsqueeze(0)
    network = written_out(model, params, images)
    return vmapped(model, params, images) if network is None else network(params, images)


def vmapped(
    model: nn.Module, params: Mapping[str, Tensor], images: Float[Tensor, "slots batch colors height width"]
) -> Float[Tensor, "slots batch classes"]:
    """Compute the logits of every slot for its own images, for any network that ``vmap`` supports.

    Args:
        model: Architecture. Its parameters are not used.
        params: Parameter name to its values (slots, ...).
        images: A batch per slot.
    """
    return vmap(lambda slot, batch: functional_call(model, slot, (batch,)))(dict(params), images)


def loss(
    logits: Float[Tensor, "slots batch classes"], labels: Int[Tensor, "slots batch"]
) -> Float[Tensor, " slots"]:
    """Compute the mean cross-entropy of each slot, in nats. Each slot has an independent gradient."""
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return each.view(labels.shape).mean(1)


def gradients(
    leaves: Sequence[Tensor], logits: Float[Tensor, "slots batch classes"], labels: Int[Tensor, "slots batch"]
) -> list[Tensor]:
    """Compute gradients of the sum of the slots' :func:`loss`, 0 for a leaf that the logits do not use.

    No two gradients share memory, so that they can be changed in place. They are contiguous, as fused
    optimizers require.

    Args:
        leaves: Tensors to differentiate by.
        logits: (slots, batch, classes).
        labels: (slots, batch), classes of the records.
    """
    # Record by record, as a network written out lays its logits; the mean is in the slope that the sum begins with.
    total = F.cross_entropy(logits.transpose(0, 1).flatten(0, 1), labels.T.flatten(), reduction="sum")
    slope = total.new_full((), 1 / labels.shape[1])
    grads = torch.autograd.grad(total, list(leaves), slope, allow_unused=True)
    seen: set[int] = set()
    separate = []
    for leaf, grad in zip(leaves, grads, strict=True):
        dense = torch.zeros_like(leaf) if grad is None else grad.contiguous()
        # Autograd returns one tensor for both terms of a sum.
        separate.append(dense.clone() if id(dense) in seen else dense)
        seen.add(id(dense))
    return separate


@torch.no_grad()
def predict(
    model: nn.Module,
    params: Mapping[str, Tensor],
    images: Float[Tensor, "n colors height width"],
    rows: Int[Tensor, "slots k"] | None = None,
) -> Float[Tensor, "slots k classes"]:
    """Compute logits of every slot for its rows of the images, by default for all, without gradients.

    A forward pass takes 500 images on a CPU and 4,000 on a GPU, over all slots together, which limits the
    memory.

    Args:
        model: Architecture. Its parameters are not used.
        params: Parameter name to its values (slots, ...).
        images: (n, colors, height, width), on the device of the stack.
        rows: (slots, k), rows of the images for each slot. Default: all.
    """
    first = next(iter(params.values()))
    if rows is None:
        rows = torch.arange(len(images), device=images.device).expand(len(first), -1)
    chunk = max(1, memory.FORWARD_IMAGES.on(images.device) // len(first))
    return torch.cat(
        [forward(model, params, by_record(images, part)) for part in rows.split(chunk, dim=1)], dim=1
    )


def evaluate_split(
    model: nn.Module,
    params: Mapping[str, Tensor],
    split: Split,
    rows: Int[np.ndarray, "*slots k"] | None = None,
    labels: Int[np.ndarray, "slots n"] | None = None,
    *,
    whole: bool,
) -> tuple[Float[np.ndarray, " slots"], Float[np.ndarray, " slots"]]:
    """Compute mean cross-entropy (nats) and accuracy of every slot on clean records of a split.

    Args:
        model: Architecture.
        params: Parameter name to its values (slots, ...).
        split: Images and labels.
        rows: (k,) or (slots, k), records to evaluate on. Default: all.
        labels: (slots, n), labels of the records for each slot. Default: those of the split.
        whole: Whether all records are used, as at the last point of a curve, or at most 2,000, evenly spread.
    """
    first = next(iter(params.values()))
    rows = np.arange(len(split.labels)) if rows is None else rows
    if not whole:
        rows = rows[..., np.unique(np.linspace(0, rows.shape[-1] - 1, _CURVE_RECORDS).astype(int))]
    used, places = np.unique(rows, return_inverse=True)  # so that only these reach the device
    images = torch.from_numpy(split.images[used]).to(first.device)
    rows_of_used = torch.from_numpy(places.reshape(rows.shape)).to(first.device).expand(len(first), -1)
    logits = predict(model, params, images, rows_of_used)
    labels_of_rows = split.labels[rows] if labels is None else np.take_along_axis(labels, rows, axis=1)
    targets = torch.from_numpy(labels_of_rows).to(first.device).expand(len(first), -1)
    accuracy = (logits.argmax(-1) == targets).float().mean(1)
    return loss(logits, targets).cpu().numpy(), accuracy.cpu().numpy()


def finite_slots(params: Mapping[str, Tensor]) -> list[bool]:
    """Return True for each slot whose parameters are all finite."""
    flags = torch.stack(
        [value.detach().isfinite().reshape(len(value), -1).all(1) for value in params.values()]
    )
    return [bool(flag) for flag in flags.all(0)]
