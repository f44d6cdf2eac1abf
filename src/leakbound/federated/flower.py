"""PMIDP-FL in Flower: a client mod that clips and adds noise, and a strategy that averages by the noise.

Flower needs an environment of its own (``make .venv-flower/ready``): it asks for older versions of what the rest uses.

    client_app = ClientApp(mods=[PersonalizedNoise(mi_budget=10.0, max_param_norm=10.0)])
    strategy = PersonalizedAveraging(n_clients=100)

A client's reply holds its parameters as one ``ArrayRecord`` with the arrays in the order it was sent, and a
``MetricRecord``; the mod does the rest. Parameters have to be all that is sent: buffers would count as parameters.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from leakbound.federated.clients import clip_around
from leakbound.federated.noise import log_noise_unit, next_max_param_norms
from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, SecureNoise, as_source

NOISE_STD = "noise-std"
N_CLIENTS = "n-clients"
_ROUND = "server-round"
_THRESHOLD = "max-param-norm"
_STATE = "leakbound.personalized"


class PersonalizedNoise:
    """Client mod: clip what training returns, add noise that meets the client's own budget, tell its strength.

    Noise is σ_k = α_k/√N, so that the average of all N replies tells at most ε_k nats of this client in one round;
    rounds add up. The server itself sees the reply and learns about N times as much. Other clients must do the same.

    Args:
        mi_budget: Budget ε_k in nats for one round, > 0, or what gives it for a node; by default the node's
            configuration ``mi-budget``.
        max_param_norm: Clipping threshold of the first round.
        clip_rate: Rate at which the threshold follows the norms, in [0, 1); 0 keeps it. A threshold that follows the
            norms tells them to the server.
        clipped: Whether parameters are clipped or their change.
        generator: Gives the generator of a node's noise in a round, to repeat a simulation; who knows its seed can
            subtract the noise. By default noise is secure and released on a grid (:mod:`leakbound.randomness`).

    Source:
        PMIDP-FL, Algorithm 2.
    """

    def __init__(
        self,
        mi_budget: float | Callable[[Context], float] | None = None,
        *,
        max_param_norm: float = 10.0,
        clip_rate: float = 0.0,
        clipped: Literal["parameters", "update"] = "parameters",
        generator: Callable[[Context, int], torch.Generator] | None = None,
    ) -> None:
        if not 0 <= clip_rate < 1:
            raise ValueError(f"clip_rate = {clip_rate}: must be at least 0 and below 1; 0 keeps the threshold")
        self._mi_budget, self._generator = mi_budget, generator
        self._max_param_norm, self._clip_rate, self._clipped = max_param_norm, clip_rate, clipped

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Let the client train, and make its reply private.

        Raises:
            ValueError: If the message lacks the number of clients, or a budget or threshold is not positive.
        """
        sent, config = _only_arrays(message), _only(message.content.config_records, "ConfigRecord")
        if N_CLIENTS not in config:
            raise ValueError(f"the message has no {N_CLIENTS!r}: use the strategy PersonalizedAveraging")
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        returned = _only_arrays(reply)
        start, vector = _vector(sent), _vector(returned)
        kept = context.state.metric_records.get(_STATE)
        threshold = self._max_param_norm if kept is None else float(kept[_THRESHOLD])
        budget = self._mi_budget(context) if callable(self._mi_budget) else self._mi_budget
        budgets = np.array([float(context.node_config["mi-budget"]) if budget is None else budget])
        log_unit = float(log_noise_unit(np.array([threshold]), budgets, len(vector))[0])
        std = math.exp(log_unit - 0.5 * math.log(int(config[N_CLIENTS])))
        private, norms = clip_around(vector[None], start, [threshold], self._clipped)
        source: NoiseSource = SecureNoise()
        if self._generator is not None:
            source = as_source(self._generator(context, int(config[_ROUND])))
        _fill(returned, perturbed(private[0], std, source))
        metrics = _only(reply.content.metric_records, "MetricRecord")
        metrics[NOISE_STD] = std
        following = next_max_param_norms(np.array([threshold]), np.array(norms), self._clip_rate)
        context.state[_STATE] = MetricRecord({_THRESHOLD: float(following[0])})
        return reply


class PersonalizedAveraging(FedAvg):
    """Strategy: average the parameters with weights in proportion to one over each client's noise.

    A round in which not all clients answer is dropped, and the parameters stay as they were: fewer replies hold less
    noise than the budgets ask for.

    Args:
        n_clients: Number of clients N, all of which take part in every round.
        **options: Passed to ``FedAvg``.

    Source:
        PMIDP-FL, Corollary 2.
    """

    def __init__(self, n_clients: int, **options: Any) -> None:
        fixed = {"fraction_train": 1.0, "min_train_nodes": n_clients, "min_available_nodes": n_clients}
        if unwanted := sorted({*fixed, "weighted_by_key"} & set(options)):
            raise ValueError(f"{', '.join(unwanted)}: every client takes part in every round, weighted by its noise")
        super().__init__(weighted_by_key=NOISE_STD, **fixed, **options)
        self.n_clients = n_clients

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to all clients, with their number, from which each computes its noise."""
        config[N_CLIENTS] = self.n_clients
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The average, and how strong its noise is per coordinate; nothing if a client is missing."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if len(valid) != self.n_clients:
            return None, None
        stds = np.array([float(_only(reply.content.metric_records, "MetricRecord")[NOISE_STD]) for reply in valid])
        weights = stds.min() / stds
        weights /= weights.sum()
        total = sum(
            float(weight) * _vector(_only_arrays(reply)).double() for weight, reply in zip(weights, valid, strict=True)
        )
        average = _only_arrays(valid[0]).copy()
        _fill(average, torch.as_tensor(total).float())
        return average, MetricRecord({"aggregate-std": float(np.linalg.norm(weights * stds))})


def _only(records: Any, kind: str) -> Any:
    """The one record of its kind in a message.

    Raises:
        ValueError: If there is none, or several.
    """
    if len(records) != 1:
        raise ValueError(f"a message must hold one {kind}, this one holds {len(records)}")
    return next(iter(records.values()))


def _only_arrays(message: Message) -> ArrayRecord:
    """Parameters of a message."""
    return _only(message.content.array_records, "ArrayRecord")


def _vector(arrays: ArrayRecord) -> Tensor:
    """Parameters as one float32 vector."""
    return torch.cat([torch.from_numpy(array.numpy().copy()).float().flatten() for array in arrays.values()])


def _fill(arrays: ArrayRecord, vector: Tensor) -> None:
    """Replace the parameters by those of a vector, shapes and types kept."""
    begin = 0
    for name, array in list(arrays.items()):
        old = array.numpy()
        arrays[name] = Array(vector[begin : begin + old.size].numpy().reshape(old.shape).astype(old.dtype))
        begin += old.size
