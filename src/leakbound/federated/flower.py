"""PMIDP-FL in Flower: a client mod that clips and adds noise, and a strategy that averages by the noise.

Flower needs older versions of some packages. It is installed in a folder of its own
(``make .venv-flower/ready``, ``PYTHONPATH=.venv-flower``)::

    client_app = ClientApp()

    @client_app.train(mods=[PersonalizedNoise(mi_budget=1.0, n_clients=100, max_rounds=10)])
    def train(message, context): ...

    strategy = PersonalizedAveraging(n_clients=100)

A client's reply holds its parameters as one ``ArrayRecord`` with the arrays that it received, and one
``MetricRecord``. The mod does the rest. Send parameters only, because buffers would count as parameters.

The client trusts nothing that a server sends. The strength of its noise follows from its own settings and
from what it clips itself. It refuses a message that asks for anything else before it trains.
"""

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from leakbound.federated.clients import clip
from leakbound.federated.noise_calibration import log_noise_unit, next_max_param_norms
from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, SecureNoise, as_source

NOISE_STD = "noise-std"
N_CLIENTS = "n-clients"
_ROUND = "server-round"
_ANSWERED = "answered"
_MAX_ROUNDS = "max-rounds"
_MI_BUDGET = "mi-budget"
_THRESHOLD = "max-param-norm"
_STATE = "leakbound.personalized"


class PersonalizedNoise:
    """Client mod: clip what training returns, and add noise that meets the client's own budget.

    The noise is σ_k = α_k/√N, so that the average of all N replies reveals at most ε_k nats about this client
    in one round. Rounds add up. The server sees the reply itself and learns about N times as much. The other
    clients must add noise likewise. A reply contains only the noisy parameters, the standard deviation of
    their noise, and the metrics named here. If training ends in values that are not finite, the client
    replies as if it had changed nothing (or had ended at 0), and does not report it.

    Args:
        mi_budget: Budget ε_k in nats for one round, > 0, or a function from a node's context to it. Default:
            ``mi-budget`` in the node's configuration.
        n_clients: Number N of clients, >= 1, as this client knows it. Default: ``n-clients`` in the node's
            configuration. A server that states another number is refused.
        max_rounds: Largest number of rounds that are answered, >= 1. All rounds together leak at most this
            times ε_k. Default: ``max-rounds`` in the node's configuration. One of the two is required,
            because a server could ask for rounds without end.
        least_noise_std: Lower limit of σ_k, whatever the other settings give, >= 0.
        metrics: Names of metrics that are sent without noise in addition to the parameters, e.g.
            ``num-examples``.
        max_param_norm: Clipping threshold C_k of the first round, > 0.
        clip_rate: Rate at which the threshold follows the norms, in [0, 1). 0 keeps the threshold. One that
            follows the norms reveals them to the server.
        clipped: What the threshold limits: the ``parameters``, or their ``update``.
        generator: Function from context and round to the generator of a node's noise, to repeat a simulation.
            Whoever knows its seed can subtract the noise. Default: secure noise, released on a grid
            (:mod:`leakbound.randomness`).

    Source:
        PMIDP-FL, Algorithm 2.
    """

    def __init__(
        self,
        mi_budget: float | Callable[[Context], float] | None = None,
        *,
        n_clients: int | None = None,
        max_rounds: int | None = None,
        least_noise_std: float = 0.0,
        metrics: Collection[str] = (),
        max_param_norm: float = 10.0,
        clip_rate: float = 0.0,
        clipped: Literal["parameters", "update"] = "parameters",
        generator: Callable[[Context, int], torch.Generator] | None = None,
    ) -> None:
        if not 0 <= clip_rate < 1:
            raise ValueError(
                f"clip_rate = {clip_rate}: must be at least 0 and below 1; 0 keeps the threshold"
            )
        if not 0 <= least_noise_std < math.inf:
            raise ValueError(f"least_noise_std = {least_noise_std}: must be at least 0 and finite")
        self._mi_budget = mi_budget
        self._generator = generator
        self._n_clients = n_clients
        self._max_rounds = max_rounds
        self._least_std = least_noise_std
        self._metrics = frozenset(metrics)
        self._max_param_norm = max_param_norm
        self._clip_rate = clip_rate
        self._clipped = clipped

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Let the client train, and make its reply private.

        Raises:
            ValueError: Before training, if the message is no request to train in a new round with the number
                of clients that this client knows, its parameters are not finite, the rounds are used up, or a
                setting is out of range. After training, if other arrays came back than were sent.
        """
        kept = context.state.metric_records.get(_STATE)
        round_ = self._checked_round(message, context, kept)
        sent = _only_arrays(message)
        start = _vector(sent)
        if not bool(start.isfinite().all()):
            raise ValueError("the parameters that were sent are not finite: nothing is trained from them")
        threshold = self._max_param_norm if kept is None else float(kept[_THRESHOLD])
        std = self._noise_std(context, threshold, len(start))
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        returned = _only_arrays(reply)
        if _shapes(returned) != _shapes(sent):
            raise ValueError(f"training returned arrays {_shapes(returned)}, but {_shapes(sent)} were sent")
        origin = start if self._clipped == "update" else torch.zeros_like(start)
        moved = _vector(returned) - origin
        if not bool(moved.isfinite().all()):
            moved = torch.zeros_like(moved)
        private, norms = clip(moved[None], [threshold])
        source: NoiseSource = SecureNoise()
        if self._generator is not None:
            source = as_source(self._generator(context, round_))
        # What was sent is added after the noise: before it, its rounding could be made coarser than the noise.
        _fill(returned, origin + perturbed(private[0], std, source))
        self._strip(reply, std)
        following = next_max_param_norms(np.array([threshold]), np.array(norms), self._clip_rate)
        answered = 1 if kept is None else 1 + int(kept[_ANSWERED])
        context.state[_STATE] = MetricRecord(
            {_THRESHOLD: float(following[0]), _ROUND: round_, _ANSWERED: answered}
        )
        return reply

    def _checked_round(self, message: Message, context: Context, kept: MetricRecord | None) -> int:
        """Check all that a message states, and return the number of the round that it asks for."""
        kind = message.metadata.message_type.partition(".")[0]
        if kind != MessageType.TRAIN:
            raise ValueError(
                f"a message of type {kind!r}: only replies to {MessageType.TRAIN!r} are made private"
            )
        config = _only(message.content.config_records, "ConfigRecord")
        if N_CLIENTS not in config:
            raise ValueError(f"the message has no {N_CLIENTS!r}: use the strategy PersonalizedAveraging")
        n_clients = _own_count(context, N_CLIENTS, self._n_clients)
        if n_clients is None:
            raise ValueError(
                f"n_clients: give it, or {N_CLIENTS!r} in the node's configuration; a server may lie"
            )
        if type(config[N_CLIENTS]) is not int or config[N_CLIENTS] != n_clients:
            raise ValueError(
                f"{N_CLIENTS} = {config[N_CLIENTS]!r} in the message: this client knows of {n_clients}"
            )
        round_ = config.get(_ROUND)
        last, answered = (0, 0) if kept is None else (int(kept[_ROUND]), int(kept[_ANSWERED]))
        if type(round_) is not int or round_ <= last:
            raise ValueError(
                f"{_ROUND} = {round_!r} in the message: must be a whole number above {last}, the last one"
            )
        most = _own_count(context, _MAX_ROUNDS, self._max_rounds)
        if most is None:
            raise ValueError(
                f"max_rounds: give it, or {_MAX_ROUNDS!r} in the node's configuration; rounds add up"
            )
        if answered >= most:
            raise ValueError(f"max_rounds = {most}: all are answered, and each costs the budget of one round")
        return round_

    def _noise_std(self, context: Context, threshold: float, dimension: int) -> float:
        """Return the standard deviation σ_k of this round's noise, from this client's own settings."""
        budget = self._mi_budget(context) if callable(self._mi_budget) else self._mi_budget
        if budget is None and _MI_BUDGET not in context.node_config:
            raise ValueError(f"mi_budget: give it, or {_MI_BUDGET!r} in the node's configuration")
        budgets = np.array([float(context.node_config[_MI_BUDGET] if budget is None else budget)])
        log_unit = float(log_noise_unit(np.array([threshold]), budgets, dimension)[0])
        n_clients = _own_count(context, N_CLIENTS, self._n_clients) or 1
        return max(math.exp(log_unit - 0.5 * math.log(n_clients)), self._least_std)

    def _strip(self, reply: Message, std: float) -> None:
        """Remove everything from a reply except parameters, allowed metrics and the strength of the noise."""
        metrics = _only(reply.content.metric_records, "MetricRecord")
        (arrays_name,), (metrics_name,) = reply.content.array_records, reply.content.metric_records
        kept = {name: value for name, value in metrics.items() if name in self._metrics}
        reply.content = RecordDict(
            {arrays_name: _only_arrays(reply), metrics_name: MetricRecord({**kept, NOISE_STD: std})}
        )


class PersonalizedAveraging(FedAvg):
    """Strategy: average the parameters with weights in inverse proportion to each client's noise.

    A round in which not all clients answer is dropped, and the parameters stay as they were, because fewer
    replies contain less noise than the budgets need.

    Args:
        n_clients: Number of clients N, all of which take part in every round.
        **options: Passed to ``FedAvg``.

    Source:
        PMIDP-FL, Corollary 2.
    """

    def __init__(self, n_clients: int, **options: Any) -> None:
        fixed = {"fraction_train": 1.0, "min_train_nodes": n_clients, "min_available_nodes": n_clients}
        if unwanted := sorted({*fixed, "weighted_by_key"} & set(options)):
            raise ValueError(
                f"{', '.join(unwanted)}: every client takes part in every round, weighted by its noise"
            )
        super().__init__(weighted_by_key=NOISE_STD, **fixed, **options)
        self.n_clients = n_clients

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to all clients, with the number of clients, from which each computes its noise."""
        config[N_CLIENTS] = self.n_clients
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the average and its noise per coordinate, or None for both if a client is missing."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if len(valid) != self.n_clients:
            return None, None
        stds = np.array(
            [float(_only(reply.content.metric_records, "MetricRecord")[NOISE_STD]) for reply in valid]
        )
        weights = stds.min() / stds
        weights /= weights.sum()
        total = sum(
            float(weight) * _vector(_only_arrays(reply)).double()
            for weight, reply in zip(weights, valid, strict=True)
        )
        average = _only_arrays(valid[0]).copy()
        _fill(average, torch.as_tensor(total).float())
        return average, MetricRecord({"aggregate-std": float(np.linalg.norm(weights * stds))})


def _own_count(context: Context, name: str, setting: int | None) -> int | None:
    """Return a whole number >= 1 from the mod's settings or else from the node, or None if both lack it.

    Raises:
        ValueError: If it is anything else.
    """
    count = context.node_config.get(name) if setting is None else setting
    if count is not None and (type(count) is not int or count < 1):
        raise ValueError(
            f"{name} = {count!r} in this client's own settings: must be a whole number of at least 1"
        )
    return count


def _only(records: Any, kind: str) -> Any:
    """Return the one record of its kind in a message.

    Raises:
        ValueError: If there is none, or several.
    """
    if len(records) != 1:
        raise ValueError(f"a message must hold one {kind}, this one holds {len(records)}")
    return next(iter(records.values()))


def _only_arrays(message: Message) -> ArrayRecord:
    """Return the parameters of a message."""
    return _only(message.content.array_records, "ArrayRecord")


def _shapes(arrays: ArrayRecord) -> dict[str, tuple[int, ...]]:
    """Return the names of arrays with the shapes that they really have."""
    return {name: array.numpy().shape for name, array in arrays.items()}


def _vector(arrays: ArrayRecord) -> Tensor:
    """Return parameters as one float32 vector."""
    return torch.cat([torch.from_numpy(array.numpy().copy()).float().flatten() for array in arrays.values()])


def _fill(arrays: ArrayRecord, vector: Tensor) -> None:
    """Replace parameters by those of a vector. Shapes and types stay."""
    begin = 0
    for name, array in list(arrays.items()):
        old = array.numpy()
        arrays[name] = Array(vector[begin : begin + old.size].numpy().reshape(old.shape).astype(old.dtype))
        begin += old.size
