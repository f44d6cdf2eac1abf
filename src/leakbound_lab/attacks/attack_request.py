"""The arguments of every attack, in one value, and the trained networks that it attacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments
from leakbound.randomness.seeding import PrivacyNoise, numpy_generator, torch_generator
from leakbound.randomness.sources import NoiseSource, noise_source
from leakbound_lab.attacks.rows import joined_columns
from leakbound_lab.config.attacks import Attack
from leakbound_lab.config.defenses import Defense, Undefended
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models import build
from leakbound_lab.training.client_steps import ClientStep, client_step
from leakbound_lab.training.stack import full_precision

Config = TypeVar("Config", bound=Attack)
Result = TypeVar("Result")
Arrays = dict[str, np.ndarray]
Attacked = tuple[pd.DataFrame, Arrays]
"""Rows of an attack, with the columns of :mod:`leakbound_lab.attacks.rows`, and arrays for storage."""
AttackedNetwork = tuple[Sequence[Mapping[str, Any]], Arrays]
"""Rows of one network, as :func:`~leakbound_lab.attacks.rows.joined_columns` joins them, and its arrays."""


@dataclass(frozen=True, kw_only=True)
class AttackRequest(Generic[Config]):
    """One attack on replicas of a run: on trained networks, or on what clients upload of untrained ones.

    All random draws of an attack derive from seed, dataset and replica, so that all defenses and levels are
    attacked alike.

    Attributes:
        model: Name of the registered network.
        dataset: Pool that the replicas draw from, and the attacker's own records.
        config: Settings of the attack.
        seed: Seed of the configuration.
        slug: Name of the run, for messages.
        replicas: Replica of each attacked network.
        device: Where the attack computes.
        weights: Parameter name to values (networks, ...) of trained networks, or empty for untrained ones.
        learning_rates: Learning rate of each trained network, or empty where nothing depends on it.
        lengths: Length of the training of each network, or empty where all are ``full``.
        references: Reference networks, :class:`~leakbound_lab.attacks.membership.reference_scores.References`, or
            None.
        defense: What a client does to its records or uploads.
        level: Level as the defense means it.
        channel: The calibrated channel, or None for a defense without one.
        moments: Mean and covariance that the channel was made from, or without a channel those of the
            members.
        batch_size: Records whose gradients a client averages. A large batch multiplies it.
        privacy_noise: Origin of the client's noise.
        estimator: Learned estimate, :class:`~leakbound_lab.attacks.learned_estimate.estimator.Estimator`, or
            None.
    """

    model: str
    dataset: ImageDataset
    config: Config
    seed: int
    slug: str
    replicas: Sequence[int] = (0,)
    device: str | torch.device = "cpu"
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    learning_rates: Sequence[float] = ()
    lengths: Sequence[str] = ()
    references: Any = None
    defense: Defense = field(default_factory=Undefended)
    level: float | None = None
    channel: GaussianChannel | None = None
    moments: Moments | None = None
    batch_size: int = 1
    privacy_noise: PrivacyNoise = "seeded"
    estimator: Any = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(colors, height, width) of the dataset's images."""
        colors, height, width = self.dataset.aux.images.shape[1:]
        return colors, height, width

    def network(self, generator: torch.Generator) -> nn.Module:
        """Build a network with random weights from a generator, in evaluation mode, on the device."""
        classes = len(self.dataset.classes)
        network = build(self.model, self.dataset.colors, classes, generator, self.dataset.side)
        return network.to(self.device).eval()

    def untrained(self, purpose: str, replica: int) -> nn.Module:
        """Build the untrained network of a replica from seed, dataset, purpose, replica and model alone."""
        generator = torch_generator(self.seed, self.dataset.name, purpose, replica, self.model, "network")
        return self.network(generator)

    def generators(self, purpose: str, replica: int) -> Callable[[str], np.random.Generator]:
        """Return the generators of the attacker's own draws, by name."""
        return partial(numpy_generator, self.seed, self.dataset.name, purpose, replica)

    def noise(self, purpose: str, replica: int) -> Callable[[str], NoiseSource]:
        """Return the sources of the client's noise, by name."""
        words = (self.dataset.name, purpose, replica)
        return partial(noise_source, self.privacy_noise, self.seed, *words, device=self.device)

    def client(self, problems: Iterable[str] = ()) -> ClientStep:
        """Make the step of a client under the defense.

        Args:
            problems: Further problems that the attack has with the request.

        Raises:
            ValueError: If there are problems, the attack cannot attack the defense, or the step cannot have
                the level and the channel.
        """
        client = client_step(
            self.defense, self.level, self.channel, self.known_moments, public=lambda: self.dataset.aux
        )
        unsuited = self.config.problem(self.defense, self.level)
        if problems := [*([unsuited] if unsuited else client.problems(self.image_shape)), *problems]:
            raise ValueError("\n".join(f"{self.slug}: {problem}" for problem in problems))
        return client

    def known_moments(self) -> Moments:
        """Return the mean and covariance of the records.

        Raises:
            ValueError: If none were given.
        """
        if self.moments is None:
            raise ValueError(f"{self.slug}: the attack needs the mean and the covariance of the records")
        return self.moments


def joined(networks: Iterable[Attacked]) -> Attacked:
    """Join the rows of all networks to one table, and stack their arrays."""
    tables, arrays = zip(*networks, strict=True)
    return pd.concat(tables, ignore_index=True), stacked_arrays(arrays)


def stacked_arrays(arrays: Sequence[Arrays]) -> Arrays:
    """Stack the arrays of all networks."""
    return {name: np.stack([each[name] for each in arrays]) for name in arrays[0]}


@runtime_checkable
class NetworkAttack(Protocol):
    """Function of an attack that attacks networks side by side, several of one replica, too.

    Attributes:
        each: Returns rows and arrays of each network of a request.
        join: Joins the arrays of networks of different replicas.
    """

    each: Callable[[AttackRequest[Any]], list[AttackedNetwork]]
    join: Callable[[Sequence[Arrays]], Arrays]

    def __call__(self, request: AttackRequest[Any], /) -> Attacked:
        """Attack networks of different replicas."""


def side_by_side_networks(
    join: Callable[[Sequence[Arrays]], Arrays],
) -> Callable[[Callable[[AttackRequest[Any]], list[AttackedNetwork]]], NetworkAttack]:
    """Make the function of an attack from one that returns rows and arrays of each network.

    Args:
        join: Joins the arrays of networks of different replicas.
    """

    def decorated(each: Callable[[AttackRequest[Any]], list[AttackedNetwork]]) -> NetworkAttack:
        @wraps(each)
        def attack(request: AttackRequest[Any]) -> Attacked:
            parts, arrays = zip(*each(request), strict=True)
            return joined_columns([*chain.from_iterable(parts)]), join(arrays)

        made: Any = attack
        made.each = each
        made.join = join
        return cast(NetworkAttack, made)

    return decorated


def in_full_precision(
    attack: Callable[[AttackRequest[Config]], Result],
) -> Callable[[AttackRequest[Config]], Result]:
    """Let an attack compute in :func:`~leakbound_lab.training.stack.full_precision` on its device.

    Attention is computed by plain products, which can be differentiated twice.
    """

    @wraps(attack)
    def computed(request: AttackRequest[Config]) -> Result:
        with full_precision(request.device), sdpa_kernel(SDPBackend.MATH):
            return attack(request)

    return computed


@dataclass(frozen=True)
class Networks:
    """Trained networks of a run.

    Attributes:
        weights: Parameter name to its values (networks, ...).
        rates: A row for each network: columns ``replica``, ``learning_rate`` and ``chosen``, and ``length``
            where several lengths of a training are kept. Without it all are ``full``.
    """

    weights: Mapping[str, Tensor]
    rates: pd.DataFrame

    def state_dict(
        self, replica: int = 0, learning_rate: float | None = None, length: str = "full"
    ) -> dict[str, Tensor]:
        """Return copies of the parameters of one network, as ``torch.nn.Module.load_state_dict`` takes them.

        Args:
            replica: Number of the replica.
            learning_rate: Candidate learning rate. Default: the one that validation records chose.
            length: Point of the training: ``half``, ``best`` or ``full``.

        Raises:
            KeyError: If no such network is kept. The message lists those that are.
        """
        rates = self.rates if "length" in self.rates else self.rates.assign(length="full")
        rate = rates["chosen"] if learning_rate is None else rates["learning_rate"] == learning_rate
        places = rates.index[rate & (rates["replica"] == replica) & (rates["length"] == length)]
        if not len(places):
            columns = ["replica", "learning_rate", "length", "chosen"]
            raise KeyError(
                f"replica {replica}, learning rate {learning_rate or 'chosen'}, length {length}: no such network is "
                f"kept, only\n{rates[columns].to_string(index=False)}"
            )
        return {name: values[places[0]].clone() for name, values in self.weights.items()}


@torch.no_grad()
def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Replace the parameters of a network by ``weights``, name to values."""
    for name, parameter in network.named_parameters():
        parameter.copy_(weights[name])


def attack_networks(
    networks: Networks, function: Callable[[AttackRequest[Any]], Attacked], request: AttackRequest[Any]
) -> Attacked:
    """Attack networks in groups that hold at most one of each replica: the chosen ones, then recipe by recipe.

    A :class:`NetworkAttack` is called once for all groups.

    Args:
        networks: The networks.
        function: Attack.
        request: Its arguments, except those that say which networks are attacked.

    Returns:
        Rows of all, with the columns of ``networks.rates`` that say which, and the arrays of the chosen ones.
    """
    rates = networks.rates.reset_index(drop=True)
    recipe = [name for name in ("learning_rate", "length") if name in rates]
    by_recipe = rates[~rates["chosen"]].groupby(recipe, sort=True)
    groups = [rates[rates["chosen"]], *(group for _, group in by_recipe)]
    columns = [*recipe, "chosen"]

    def on(networks_of_group: pd.DataFrame) -> AttackRequest[Any]:
        """Return the arguments of the attack on some of the networks."""
        return replace(
            request,
            weights={
                name: values[networks_of_group.index.tolist()] for name, values in networks.weights.items()
            },
            replicas=networks_of_group["replica"].tolist(),
            learning_rates=networks_of_group["learning_rate"].tolist(),
            lengths=networks_of_group["length"].tolist() if "length" in networks_of_group else (),
        )

    if isinstance(function, NetworkAttack):
        every = pd.concat(groups)
        parts, arrays = zip(*function.each(on(every)), strict=True)
        counts = [sum(len(part["unit"]) for part in network) for network in parts]
        of_rows = every[columns].take(np.arange(len(every)).repeat(counts)).reset_index(drop=True)
        table = joined_columns([*chain.from_iterable(parts)])
        return pd.concat([table, of_rows], axis=1), function.join(arrays[: len(groups[0])])
    attacked = [function(on(group)) for group in groups]
    tables = [
        rows.merge(group[["replica", *columns]], on="replica", how="left")
        for group, (rows, _) in zip(groups, attacked, strict=True)
    ]
    return pd.concat(tables, ignore_index=True), attacked[0][1]
