"""Attack network of white-box membership inference: a pure function from signals to membership scores.

Each signal passes its own small net, and four layers join their embeddings. Beyond the paper, the network
starts as the loss threshold, or as a score by reference networks (a skip connection, the last layer at zero),
so training can only be kept where it beats that attack on held-out records. Five networks that hold out a
fifth of the known records each vote together. Networks of several attackers train as one stack, which
launches as many kernels as one attacker's networks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, repeat

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from leakbound_lab.attacks.membership.signals import Signals
from leakbound_lab.attacks.scheduling import by_kind
from leakbound_lab.config.attacks import MembershipConfig
from leakbound_lab.training.eager_optimizers import AdamW

FOLDS = 5
_PATIENCE = 6
_LOG_FLOOR = -30.0
_FARTHEST = 10.0


@dataclass(frozen=True)
class AttackData:
    """Records that an attacker learns from, and those that it then scores.

    Attributes:
        known: Signals of the records that it knows.
        membership: Which of them are members, with at least ``FOLDS`` of either kind.
        targets: Signals of the records to score, in groups.
        generator: Generator of folds, weights and batches, on the CPU.
        evidence: More about the known records and, after them, about each group, at least two columns. The
            first is the score, higher means member, that the networks start as in place of the confidence.
            Empty without any.
    """

    known: Signals
    membership: Bool[Tensor, " n"]
    targets: Sequence[Signals]
    generator: torch.Generator
    evidence: Sequence[Float[Tensor, "_ inputs"]] = ()


def white_box_scores(
    tasks: Sequence[AttackData], config: MembershipConfig
) -> list[list[Float[Tensor, " _"]]]:
    """Learn from records of known membership how likely others are members.

    For each learning rate, as many networks as folds are trained at once, each stopped where the loss on its
    own held-out fold is lowest. The learning rate with the lowest mean of these is taken. Tasks of equal
    shapes are one stack. Each has its own draws, and learns the same as alone.

    Args:
        tasks: Tasks of one attacker or more.
        config: Passes, learning rates and batch size.

    Returns:
        For each task log-odds of membership, higher means member: for the known records by the network that
        held each out, NaN for the few that none did, and then for each group.

    Raises:
        ValueError: If there are fewer than ``FOLDS`` known members or non-members.

    Source:
        Tan et al. 2024, Sec. 6.1. The architecture follows Liu et al. 2022, "ML-Doctor".
    """
    return by_kind(
        [_encoded(task) for task in tasks],
        lambda learner: (
            learner.held_out.shape,
            learner.inputs.shape,
            learner.widths,
            *(group.shape for group in learner.targets),
        ),
        partial(_learned, config=config),
    )


class AttackNetwork(nn.Module):
    """Stack of equal networks, trained together, that map encoded signals to log-odds of membership.

    Each signal has as many inputs as ``widths`` says, the score that it starts as first. Each generator draws
    the weights of as many networks as there are folds.
    """

    def __init__(self, widths: tuple[int, ...], generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.widths = widths

        def layers(*sizes: int) -> nn.Sequential:
            """Stack linear layers with a ReLU after each."""
            linear = (_StackedLinear(*pair, generators) for pair in pairwise(sizes))
            return nn.Sequential(*(module for layer in linear for module in (layer, nn.ReLU(inplace=True))))

        self.encoders = nn.ModuleList(layers(width, 64, 32) for width in widths)
        self.joint = layers(32 * len(widths), 64, 32, 16)
        self.last = _StackedLinear(16, 1, generators)
        self.skip = nn.Parameter(torch.ones(FOLDS * len(generators), 1))
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, inputs: Float[Tensor, "stack batch inputs"]) -> Float[Tensor, "stack batch"]:
        """Compute the log-odds of membership of each network's own batch."""
        groups = inputs.split(self.widths, dim=-1)
        embeddings = [encoder(group) for encoder, group in zip(self.encoders, groups, strict=True)]
        learned = self.last(self.joint(torch.cat(embeddings, dim=-1))).squeeze(-1)
        return learned + self.skip * inputs[..., 0]


class _StackedLinear(nn.Module):
    """Linear layer of each network of a stack."""

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight, self.bias = (
            nn.Parameter(
                torch.cat(
                    [torch.empty(FOLDS, *shape).uniform_(-bound, bound, generator=g) for g in generators]
                )
            )
            for shape in ((inputs, outputs), (1, outputs))
        )

    def forward(self, inputs: Float[Tensor, "stack batch inputs"]) -> Float[Tensor, "stack batch outputs"]:
        """Apply the affine map of each network to its own batch."""
        return torch.baddbmm(self.bias, inputs, self.weight)


def _untrained(widths: tuple[int, ...], generators: Sequence[torch.Generator]) -> AttackNetwork:
    """Make the networks of some generators. Those in one state, as of one replica, draw alike, and only once."""
    states = [generator.get_state().numpy().tobytes() for generator in generators]
    drawing = dict(zip(states, generators, strict=True))
    network = AttackNetwork(widths, list(drawing.values()))
    places = torch.tensor([list(drawing).index(state) for state in states])
    for parameter in network.parameters():
        parameter.data = parameter.data.unflatten(0, (-1, FOLDS))[places].flatten(0, 1)
    for state, generator in zip(states, generators, strict=True):
        generator.set_state(drawing[state].get_state())
    return network


@dataclass(frozen=True)
class _Encoded:
    """A task as networks take it: encoded, with the records that each network learns from and holds out."""

    inputs: Float[Tensor, "n inputs"]
    labels: Float[Tensor, " n"]
    learning: Int[Tensor, "folds a"]
    held_out: Int[Tensor, "folds b"]
    targets: list[Float[Tensor, "_ inputs"]]
    widths: tuple[int, ...]
    generator: torch.Generator
    state: Tensor  # of the generator, so that what memory did not hold is drawn again


def _encoded(task: AttackData) -> _Encoded:
    """Encode a task, and draw its folds."""
    learning, held_out = _folds(task.membership.cpu(), task.generator)
    signals = (task.known, *task.targets)
    groups, *targets = (
        (*((more[:, :1], more[:, 1:]) if more is not None else ()), *_groups(part))
        for part, more in zip(signals, task.evidence or repeat(None, len(signals)), strict=True)
    )
    device = task.membership.device
    scales = _scales(groups)
    return _Encoded(
        _encode(groups, scales),
        task.membership.float(),
        learning.to(device),
        held_out.to(device),
        [_encode(group, scales) for group in targets],
        tuple(group.shape[1] for group in groups),
        task.generator,
        task.generator.get_state(),
    )


def _learned(learners: Sequence[_Encoded], config: MembershipConfig) -> list[list[Float[Tensor, " _"]]]:
    """Score the records of learners of equal shapes."""
    inputs = torch.cat([learner.inputs for learner in learners])
    labels = torch.cat([learner.labels for learner in learners])
    # The known records of all learners are one table, of which the networks of each see their own rows.
    starts = len(learners[0].labels) * torch.arange(len(learners), device=labels.device)[:, None, None]
    learning = (torch.stack([learner.learning for learner in learners]) + starts).flatten(0, 1)
    held_out = (torch.stack([learner.held_out for learner in learners]) + starts).flatten(0, 1)
    generators = [learner.generator.set_state(learner.state) for learner in learners]
    # A stack of networks for each learning rate, all learners and folds at once.
    fits = []
    for learning_rate in config.learning_rates:
        network = _untrained(learners[0].widths, generators).to(labels.device)
        losses = _fit(network, inputs, labels, learning, held_out, learning_rate, config, generators)
        fits.append((losses, network))
    # Each learner keeps the learning rate with the lowest held-out loss.
    chosen = [
        min(range(len(fits)), key=lambda fit: float(fits[fit][0][place].mean()))
        for place in range(len(learners))
    ]
    scores: dict[int, list[Float[Tensor, " _"]]] = {}
    for number, (_, network) in enumerate(fits):
        places = [place for place, best in enumerate(chosen) if best == number]
        scores |= zip(places, _scores([learners[place] for place in places], network, places), strict=True)
    return [scores[place] for place in range(len(learners))]


@torch.no_grad()
def _scores(
    learners: Sequence[_Encoded], network: AttackNetwork, places: Sequence[int]
) -> list[list[Float[Tensor, " _"]]]:
    """Score the records of some learners by the networks of a stack that learned from each, all at once.

    Args:
        learners: The learners.
        network: The stack.
        places: Number of each of them among those that the stack learned from.
    """
    if not learners:
        return []
    device = learners[0].labels.device
    slots = (
        torch.tensor(places, device=device)[:, None] * FOLDS + torch.arange(FOLDS, device=device)
    ).flatten()
    params = {name: value.index_select(0, slots) for name, value in network.named_parameters()}

    def log_odds_of(inputs: Float[Tensor, "learners _ n inputs"]) -> Float[Tensor, "learners folds n"]:
        """Compute the log-odds of each fold's records, or of the records of all folds."""
        stacked = inputs.expand(-1, FOLDS, -1, -1).flatten(0, 1)
        return functional_call(network, params, (stacked,)).unflatten(0, (-1, FOLDS))

    held_out = torch.stack([learner.inputs[learner.held_out] for learner in learners])
    scores = []
    for learner, own in zip(learners, log_odds_of(held_out), strict=True):
        scores.append([torch.full_like(learner.labels, torch.nan)])
        scores[-1][0][learner.held_out] = own
    for group in zip(*(learner.targets for learner in learners), strict=True):
        means = log_odds_of(torch.stack(group)[:, None]).mean(1)
        for listed, mean in zip(scores, means, strict=True):
            listed.append(mean)
    return scores


def _fit(
    network: AttackNetwork,
    inputs: Float[Tensor, "n inputs"],
    labels: Float[Tensor, " n"],
    learning: Int[Tensor, "stack a"],
    held_out: Int[Tensor, "stack b"],
    learning_rate: float,
    config: MembershipConfig,
    generators: Sequence[torch.Generator],
) -> Float[Tensor, "learners folds"]:
    """Train in place, each network up to its own best pass, and return the held-out losses of these, nats.

    A learner whose networks have not improved for some passes ends, and draws no more batches.
    """
    optimizer = AdamW(network.parameters(), learning_rate, fused=True)
    validation = inputs[held_out]
    truth = labels[held_out]
    best = [value.detach().clone() for value in network.parameters()]
    lowest = _losses(network, validation, truth)
    stale = torch.zeros(len(generators), dtype=torch.int64, device=labels.device)
    going = [True] * len(generators)
    for _ in range(config.epochs):
        # A pass over the records that each network learns from.
        order = _order(learning.shape[1], generators, going)
        for positions in order.to(learning.device).split(config.batch_size, dim=1):
            batch = learning.gather(1, positions)
            objective = F.binary_cross_entropy_with_logits(
                network(inputs[batch]), labels[batch], reduction="none"
            )
            optimizer.zero_grad()
            objective.mean(1).sum().backward()  # a sum, so that no network's gradient depends on another's
            optimizer.step()
        # Networks that are better on their held-out fold are kept as they are now.
        losses = _losses(network, validation, truth)
        better = (losses < lowest) & (stale < _PATIENCE).repeat_interleave(FOLDS)
        lowest = torch.where(better, losses, lowest)
        with torch.no_grad():
            for stored, current in zip(best, network.parameters(), strict=True):
                torch.where(better.view(-1, *[1] * (stored.ndim - 1)), current, stored, out=stored)
        stale = torch.where(better.view(-1, FOLDS).any(1), 0, stale + 1)
        going = (stale < _PATIENCE).tolist()  # the one moment of a pass at which the host waits
        if not any(going):
            break
    with torch.no_grad():
        for current, stored in zip(network.parameters(), best, strict=True):
            current.copy_(stored)
    return lowest.view(-1, FOLDS).cpu()


def _order(
    records: int, generators: Sequence[torch.Generator], going: Sequence[bool]
) -> Int[Tensor, "stack records"]:
    """Draw the order of each network's records in a pass, without meaning where a learner has ended."""
    unchanged = torch.arange(records)
    permutations = [
        torch.randperm(records, generator=generator) if more else unchanged
        for generator, more in zip(generators, going, strict=True)
        for _ in range(FOLDS)
    ]
    return torch.stack(permutations)


@torch.no_grad()
def _losses(
    network: AttackNetwork, inputs: Float[Tensor, "stack n inputs"], labels: Float[Tensor, "stack n"]
) -> Float[Tensor, " stack"]:
    """Compute the mean loss of each network, nats."""
    return F.binary_cross_entropy_with_logits(network(inputs), labels, reduction="none").mean(1)


def _folds(
    membership: Bool[Tensor, " n"], generator: torch.Generator
) -> tuple[Int[Tensor, "folds a"], Int[Tensor, "folds b"]]:
    """Divide records into those that each network learns from and holds out, members and others equally."""
    learning = []
    held_out = []
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
        first = size * torch.arange(FOLDS)[:, None]
        others = torch.arange(len(records) - size)
        held_out.append(records[first + torch.arange(size)])
        learning.append(records[others + size * (others >= first)])
    return torch.cat(learning, dim=1), torch.cat(held_out, dim=1)


def _groups(signals: Signals) -> tuple[Tensor, ...]:
    """Collect the inputs of each encoder: confidence, ranked posteriors, gradient, label.

    The gradient comes as its two factors. The residual's rows stand in the order true class first, then by
    posterior, so that equal columns of different classes mean the same.
    """
    ranks = signals.log_posteriors.masked_fill(signals.one_hot.bool(), torch.inf).argsort(
        dim=1, descending=True
    )
    residual = signals.log_residual.gather(1, ranks).clamp_min(_LOG_FLOOR)
    gradient = torch.cat([residual, signals.features.double()], dim=1)
    return signals.confidence[:, None], signals.ranked.clamp_min(_LOG_FLOOR), gradient, signals.one_hot


def _scales(groups: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
    """Compute the mean and the deviation of each group among the known records, 1 where that is 0."""
    deviations = [group.std(0) for group in groups]
    return [
        (group.mean(0), torch.where(deviation > 1e-9, deviation, 1.0))
        for group, deviation in zip(groups, deviations, strict=True)
    ]


def _encode(groups: tuple[Tensor, ...], scales: list[tuple[Tensor, Tensor]]) -> Float[Tensor, "n inputs"]:
    """Join all groups, float32, shifted and scaled to mean 0 and deviation 1 among the known records.

    Many of thousands of rectified features are silent on nearly all known records, and one record may then
    lie thousands of deviations away. So all groups except the first, which alone orders the most certain
    records, end at ten deviations.
    """
    encoded = []
    for number, (group, (mean, deviation)) in enumerate(zip(groups, scales, strict=True)):
        standard = (group - mean) / deviation
        encoded.append((standard if number == 0 else standard.clamp(-_FARTHEST, _FARTHEST)).float())
    return torch.cat(encoded, dim=1)
