"""Attack network of white-box membership inference: a pure function from signals to membership scores.

Each signal passes its own small net, and four layers join their embeddings. Beyond the paper, the network starts as the
loss threshold, or as a score by reference networks (a skip connection, the last layer at zero), so training can only be
kept where it beats that attack on held-out records; and five networks that hold out a fifth of the known records each
vote together.
"""

import copy
import math
from collections.abc import Sequence
from itertools import pairwise, repeat

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from leakbound.attacks.signals import Signals
from leakbound.config.attacks import MembershipConfig

FOLDS = 5
_PATIENCE = 6
_LOG_FLOOR = -30.0
_FARTHEST = 10.0


def white_box_scores(
    known: Signals,
    membership: Bool[Tensor, " n"],
    targets: Sequence[Signals],
    *,
    config: MembershipConfig,
    generator: torch.Generator,
    evidence: Sequence[Float[Tensor, "_ inputs"]] = (),
) -> list[Float[Tensor, " _"]]:
    """Learn from records of known membership how likely others are members.

    For each learning rate, as many networks as folds are trained at once, each stopped where the loss on its own
    held-out fold is lowest; the learning rate with the lowest mean of these is taken.

    Args:
        known: Signals of the records that the attacker knows.
        membership: Which of them are members; at least ``FOLDS`` of either kind.
        targets: Signals of the records in question, in groups.
        config: Passes, learning rates and batch size.
        generator: On the CPU; draws folds, weights and batches.
        evidence: More about the known records and, after them, about each group, at least two columns; the first is the
            score, higher means member, that the networks start as in place of the confidence.

    Returns:
        Log-odds of membership, higher means member: of the known records by the network that held each out, NaN for the
        few that none did; then of each group.

    Raises:
        ValueError: If there are fewer than ``FOLDS`` known members or non-members.

    Source:
        Tan et al. 2024, Sec. 6.1; the architecture follows Liu et al. 2022, "ML-Doctor".
    """
    learning, held_out = _folds(membership.cpu(), generator)
    groups, *asked = (
        (*((more[:, :1], more[:, 1:]) if more is not None else ()), *_groups(signals))
        for signals, more in zip((known, *targets), evidence or repeat(None, 1 + len(targets)), strict=True)
    )
    inputs, labels = _encode(groups, groups), membership.float()
    device = inputs.device
    learning, held_out = learning.to(device), held_out.to(device)
    widths = tuple(group.shape[1] for group in groups)
    fits = []
    for learning_rate in config.learning_rates:
        network = AttackNetwork(FOLDS, widths, generator).to(device)
        fits.append((_fit(network, inputs, labels, learning, held_out, learning_rate, config, generator), network))
    _, best = min(fits, key=lambda fit: fit[0])
    own = torch.full_like(labels, torch.nan)
    with torch.no_grad():
        own[held_out] = best(inputs[held_out])
        return [own, *(best(_encode(group, groups).expand(FOLDS, -1, -1)).mean(0) for group in asked)]


class AttackNetwork(nn.Module):
    """Stack of equal networks, trained side by side, that map encoded signals to log-odds of membership.

    Each signal has as many inputs as ``widths`` says, the score that it starts as first; the generator draws the
    weights.
    """

    def __init__(self, stack: int, widths: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.widths = widths

        def layers(*sizes: int) -> nn.Sequential:
            """Linear layers with a ReLU after each."""
            linear = (_StackedLinear(stack, *pair, generator) for pair in pairwise(sizes))
            return nn.Sequential(*(layer for one in linear for layer in (one, nn.ReLU())))

        self.encoders = nn.ModuleList(layers(width, 64, 32) for width in widths)
        self.joint = layers(32 * len(widths), 64, 32, 16)
        self.last = _StackedLinear(stack, 16, 1, generator)
        self.skip = nn.Parameter(torch.ones(stack, 1))
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, inputs: Float[Tensor, "stack batch inputs"]) -> Float[Tensor, "stack batch"]:
        """Log-odds of membership of each network's own batch."""
        groups = inputs.split(self.widths, dim=-1)
        embeddings = [encoder(group) for encoder, group in zip(self.encoders, groups, strict=True)]
        learned = self.last(self.joint(torch.cat(embeddings, dim=-1))).squeeze(-1)
        return learned + self.skip * inputs[..., 0]


class _StackedLinear(nn.Module):
    """Linear layer of each network of a stack."""

    def __init__(self, stack: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(stack, inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(stack, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, inputs: Float[Tensor, "stack batch inputs"]) -> Float[Tensor, "stack batch outputs"]:
        """Affine map of each network's own batch."""
        return torch.baddbmm(self.bias, inputs, self.weight)


def _fit(
    network: AttackNetwork,
    inputs: Float[Tensor, "n inputs"],
    labels: Float[Tensor, " n"],
    learning: Int[Tensor, "folds a"],
    held_out: Int[Tensor, "folds b"],
    learning_rate: float,
    config: MembershipConfig,
    generator: torch.Generator,
) -> float:
    """Train in place, each network up to its own best pass; mean held-out loss of these, nats."""
    optimizer = torch.optim.AdamW(network.parameters(), learning_rate, fused=True)
    validation, truth = inputs[held_out], labels[held_out]
    best = copy.deepcopy(network)
    lowest = _losses(network, validation, truth)
    stale = 0
    for _ in range(config.epochs):
        order = torch.stack([torch.randperm(learning.shape[1], generator=generator) for _ in range(FOLDS)])
        for positions in order.to(learning.device).split(config.batch_size, dim=1):
            batch = learning.gather(1, positions)
            objective = F.binary_cross_entropy_with_logits(network(inputs[batch]), labels[batch], reduction="none")
            optimizer.zero_grad()
            objective.mean(1).sum().backward()  # a sum, so that no network's gradient depends on another's
            optimizer.step()
        losses = _losses(network, validation, truth)
        better = losses < lowest
        lowest = torch.where(better, losses, lowest)
        with torch.no_grad():
            for kept, current in zip(best.parameters(), network.parameters(), strict=True):
                kept.copy_(torch.where(better.view(-1, *[1] * (kept.ndim - 1)), current, kept))
        stale = 0 if better.any() else stale + 1
        if stale == _PATIENCE:
            break
    network.load_state_dict(best.state_dict())
    return float(lowest.mean())


@torch.no_grad()
def _losses(
    network: AttackNetwork, inputs: Float[Tensor, "stack n inputs"], labels: Float[Tensor, "stack n"]
) -> Float[Tensor, " stack"]:
    """Mean loss of each network, nats."""
    return F.binary_cross_entropy_with_logits(network(inputs), labels, reduction="none").mean(1)


def _folds(
    membership: Bool[Tensor, " n"], generator: torch.Generator
) -> tuple[Int[Tensor, "folds a"], Int[Tensor, "folds b"]]:
    """Records that each network learns from, and those it holds out; members and non-members in equal shares."""
    learning: list[list[Tensor]] = [[] for _ in range(FOLDS)]
    held_out: list[list[Tensor]] = [[] for _ in range(FOLDS)]
    for kind in (True, False):
        records = (membership == kind).nonzero().squeeze(1)
        if len(records) < FOLDS:
            name = "members" if kind else "non-members"
            raise ValueError(
                f"{len(records)} known {name}: the attack needs at least {FOLDS}. Give it more records or a larger "
                "known_fraction."
            )
        records = records[torch.randperm(len(records), generator=generator)]
        size = len(records) // FOLDS
        for fold in range(FOLDS):
            first, after = fold * size, (fold + 1) * size
            held_out[fold].append(records[first:after])
            learning[fold].append(torch.cat([records[:first], records[after:]]))
    return torch.stack([torch.cat(f) for f in learning]), torch.stack([torch.cat(f) for f in held_out])


def _groups(signals: Signals) -> tuple[Tensor, ...]:
    """Inputs of each encoder: confidence, ranked posteriors, gradient, label.

    The gradient comes as its two factors. The residual's rows stand in the order true class first, then by posterior,
    so that equal columns of different classes mean the same.
    """
    ranks = signals.log_posteriors.masked_fill(signals.one_hot.bool(), torch.inf).argsort(dim=1, descending=True)
    residual = signals.log_residual.gather(1, ranks).clamp_min(_LOG_FLOOR)
    gradient = torch.cat([residual, signals.features.double()], dim=1)
    return signals.confidence[:, None], signals.ranked.clamp_min(_LOG_FLOOR), gradient, signals.one_hot


def _encode(groups: tuple[Tensor, ...], known: tuple[Tensor, ...]) -> Float[Tensor, "n inputs"]:
    """All groups side by side, float32, shifted and scaled to mean 0 and deviation 1 among the known records.

    Of thousands of rectified features many are silent on nearly all known records, and one record may then lie
    thousands of deviations away. So all groups but the first, which alone orders the most certain records, end at ten
    deviations.
    """
    encoded = []
    for number, (group, reference) in enumerate(zip(groups, known, strict=True)):
        deviation = reference.std(0)
        scale = torch.where(deviation > 1e-9, deviation, 1.0)
        standard = (group - reference.mean(0)) / scale
        encoded.append((standard if number == 0 else standard.clamp(-_FARTHEST, _FARTHEST)).float())
    return torch.cat(encoded, dim=1)
