"""A stack of networks of one architecture, trained as one: slots are replicas, clients or shadow models.

Parameters are a dictionary from name to tensor (slots, ...). One slot is computed as a plain network, several
slots as one batched network. Both give the same result within float32 rounding, and on a CPU the same bytes
for the same slots.

A GPU computes products in full float32 as a CPU does, or in TF32 and bfloat16 in passes of a training. A step
is recorded once as a CUDA graph and then replayed by one launch. Work that cannot be captured runs kernel by
kernel.
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakbound_lab.config.training import Precision
from leakbound_lab.datasets import Split
from leakbound_lab.models import memory
from leakbound_lab.models.layers import ImageBatches, ImageTensor, Logits, by_record, written_out
from leakbound_lab.training.eager_optimizers import SGD

logger = logging.getLogger("leakbound")
Parameters = dict[str, Tensor]
TensorStep = Callable[..., None]
Capture = Callable[..., TensorStep]
_CURVE_RECORDS = 2000  # records in all points of a curve but the last
_WARM_UP = 3  # calls before a capture, in which libraries choose their kernels and buffers are made


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
    parameters. The optimizer is SGD, as for all defenses.

    Args:
        models: One or more networks of one architecture, one for each slot.
        rates: Learning rate of each slot, > 0.
        device: Device of the stack.
        momentum: Momentum of SGD, in [0, 1).

    Attributes:
        leaves: Tensors to differentiate by: the parameters of one slot, or the row of several slots.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        rates: Sequence[float],
        device: str | torch.device,
        momentum: float = 0.0,
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
        self._optimizer = SGD(self.leaves, 1.0, momentum, fused=True)

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

    def update(self, gradients: list[Tensor]) -> None:
        """Update momentum and weights by gradients of the leaves, which are changed in place."""
        # The optimizer's rate is 1: momentum is linear, so the rate of each slot can scale its gradient.
        torch._foreach_mul_(gradients, float(self._rates) if self._rates.numel() == 1 else [self._rates])
        for leaf, gradient in zip(self.leaves, gradients, strict=True):
            leaf.grad = gradient
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        """Return weights and optimizer."""
        params = {name: value.detach() for name, value in self.params.items()}
        return {"params": params, "optimizer": self._optimizer.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state`. Momentum moves to other memory, so a captured step is of no more use."""
        for name, value in self.params.items():
            value.detach().copy_(state["params"][name])
        self._optimizer.load_state_dict(state["optimizer"])


def forward(model: nn.Module, params: Mapping[str, Tensor], images: ImageBatches) -> Logits:
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


def vmapped(model: nn.Module, params: Mapping[str, Tensor], images: ImageBatches) -> Logits:
    """Compute the logits of every slot for its own images, for any network that ``vmap`` supports.

    Args:
        model: Architecture. Its parameters are not used.
        params: Parameter name to its values (slots, ...).
        images: A batch per slot.
    """
    return vmap(lambda slot, batch: functional_call(model, slot, (batch,)))(dict(params), images)


def loss(logits: Logits, labels: Int[Tensor, "slots batch"]) -> Float[Tensor, " slots"]:
    """Compute the mean cross-entropy of each slot, in nats. Each slot has an independent gradient."""
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return each.view(labels.shape).mean(1)


def gradients(leaves: Sequence[Tensor], logits: Logits, labels: Int[Tensor, "slots batch"]) -> list[Tensor]:
    """Compute gradients of the sum of the slots' :func:`loss`, 0 for a leaf that the logits do not use.

    No two gradients share memory, so that they can be changed in place. They are contiguous, as fused
    optimizers require.

    Args:
        leaves: Tensors to differentiate by.
        logits: (slots, batch, classes).
        labels: (slots, batch), classes of the records.
    """
    # Record by record, as a network written out lays its logits.
    total = F.cross_entropy(logits.transpose(0, 1).flatten(0, 1), labels.T.flatten(), reduction="sum")
    # Scaled here: grad_outputs, the third argument, would import sympy in every job.
    grads = torch.autograd.grad(total * (1 / labels.shape[1]), list(leaves), allow_unused=True)
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
    model: nn.Module, params: Mapping[str, Tensor], images: ImageTensor, rows: Int[Tensor, "slots k"]
) -> Float[Tensor, "slots k classes"]:
    """Compute logits of every slot for its rows of the images, without gradients.

    A forward pass takes 500 images on a CPU and 4,000 on a GPU, over all slots together, which limits the
    memory.

    Args:
        model: Architecture. Its parameters are not used.
        params: Parameter name to its values (slots, ...).
        images: (n, colors, height, width), on the device of the stack.
        rows: (slots, k), rows of the images for each slot.
    """
    chunk = max(1, memory.FORWARD_IMAGES.on(images.device) // len(rows))
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


def passes_in(precision: Precision, device: str | torch.device) -> AbstractContextManager[None]:
    """Allow TF32 in forward and backward passes on a GPU, within :func:`full_precision`.

    Args:
        precision: ``float32`` changes nothing.
        device: Device of the passes.
    """
    return nullcontext() if precision == "float32" else full_precision(device, "tf32")


def forward_in(
    precision: Precision, device: str | torch.device, forward: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Return a function that computes the results of ``forward``, in bfloat16 if that is the precision."""
    if precision != "bfloat16":
        return forward
    # A captured step must not keep rounded weights, hence no cache of them.
    rounding = torch.autocast(torch.device(device).type, torch.bfloat16, cache_enabled=False)
    return cast(Callable[..., Tensor], rounding(lambda *inputs: forward(*inputs).float()))


@contextmanager
def full_precision(device: str | torch.device, precision: Literal["ieee", "tf32"] = "ieee") -> Iterator[None]:
    """Compute convolutions and products in full float32 on a GPU, and restore the user's settings afterwards.

    Args:
        device: Device of the work. For a CPU nothing changes.
        precision: ``tf32`` for rounded products within the context of another call.
    """
    if torch.device(device).type == "cpu":
        yield
        return
    flags: list[Any] = [torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul]  # type: ignore[attr-defined]
    before = [flag.fp32_precision for flag in flags]
    older: dict[Any, bool] = {}
    for flag in (torch.backends.cudnn, torch.backends.cuda.matmul):
        with suppress(RuntimeError):  # the user has set what the older name cannot say
            older[flag] = flag.allow_tf32
    try:
        for flag in older:  # contexts such as cudnn.flags read it, and fail where it says something else
            flag.allow_tf32 = precision == "tf32"
        for flag in flags:
            flag.fp32_precision = precision
        yield
    finally:
        for flag, allowed in older.items():
            flag.allow_tf32 = allowed
        for flag, value in zip(flags, before, strict=True):
            flag.fp32_precision = value


class Replayed:
    """A step on tensors that is captured after three calls with equal shapes, if possible, and then replayed.

    Args:
        step: Reads the tensors that it is called with, and changes other tensors. It waits for no value of
            the GPU. What a replay computes is read before the next one, which may be of another shape.
        capture: Captures the step without running it, and returns a function that replays it on other
            tensors of these shapes. It gets the step, the tensors, and for further shapes the first such
            function, whose memory may be used again. None calls the step itself, as does a capture that
            raises a ``RuntimeError``.
    """

    def __init__(self, step: TensorStep, capture: Capture | None = None) -> None:
        self._step = step
        self._capture = capture
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._replays: dict[tuple[torch.Size, ...], TensorStep] = {}

    def __call__(self, *tensors: Tensor) -> None:
        """Run the step once."""
        shapes = tuple(tensor.shape for tensor in tensors)
        self._calls[shapes] += 1
        if self._capture is not None and shapes not in self._replays and self._calls[shapes] > _WARM_UP:
            first = list(self._replays.values())[:1]
            try:
                self._replays[shapes] = self._capture(self._step, tensors, *first)
            except RuntimeError as error:
                logger.info(
                    "the step is not captured as a CUDA graph, its kernels start one by one: %s", error
                )
                self._capture = None
        self._replays.get(shapes, self._step)(*tensors)


class _Captured:
    """A CUDA graph with everything that it reads, because a graph keeps no tensor alive."""

    def __init__(self, graph: torch.cuda.CUDAGraph, step: TensorStep, inputs: Sequence[Tensor]) -> None:
        self._graph = graph
        self._step = step
        self._inputs = inputs
        self.pool = graph.pool()

    def __call__(self, *tensors: Tensor) -> None:
        """Replay the step on other tensors."""
        for captured, tensor in zip(self._inputs, tensors, strict=True):
            captured.copy_(tensor)
        self._graph.replay()


def cuda_graph(step: TensorStep, tensors: Sequence[Tensor], earlier: TensorStep | None = None) -> TensorStep:
    """Capture a step as a CUDA graph, as :class:`Replayed` takes it.

    Args:
        step: Step as :class:`Replayed` takes it.
        tensors: Inputs of the step on the GPU, of the shapes of all later calls.
        earlier: Result for other shapes, whose memory is used again.

    Returns:
        A function that copies its tensors into the graph's inputs and replays the graph.

    Raises:
        RuntimeError: If something in the step cannot be captured.
    """
    inputs = [tensor.clone() for tensor in tensors]
    graph = torch.cuda.CUDAGraph()
    pool = earlier.pool if isinstance(earlier, _Captured) else None
    gc.collect()  # a graph of an earlier learner that is freed during a capture would end the capture
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            step(*inputs)
    finally:
        if collects:
            gc.enable()
    return _Captured(graph, step, inputs)
