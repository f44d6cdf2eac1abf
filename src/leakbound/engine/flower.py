"""The engine in Flower: a client mod that counts the uses of each node's records, over all rounds.

Flower needs a folder of its own on the path (``make .venv-flower/ready``, ``PYTHONPATH=.venv-flower``)::

    engine = ChannelEngine.for_data(public, Leakage(300, uses=rounds))
    client_app = ClientApp()

    @client_app.train(mods=[ChannelMod(engine)])
    def train(message, context):
        loader = engine.protect(own_loader(context))  # again in each round
        ...

A process may serve several nodes one after the other, so the counts of a node live in its own state. Flower
drops the state of a node whose training fails. Within one process such uses are still known. Over several
processes, give a ledger.
"""

import json
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp.typing import ClientAppCallable

from leakbound.engine.engine import ChannelEngine

LEAKAGE = "leakage-nats"
_ARRAYS = "leakbound.channel.arrays"
_FACTS = "leakbound.channel.facts"


class ChannelMod:
    """Load a node's counts before its training, keep them after it, and report what has leaked.

    Args:
        engine: Engine that the client's training function protects its loader with.
        tell: Add the smallest valid bound of the most used record, in nats, to the metrics of the reply.
    """

    def __init__(self, engine: ChannelEngine, *, tell: bool = True) -> None:
        self._engine, self._tell = engine, tell

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Let the client train with the counts of this node.

        Raises:
            GuaranteeError: If the node's state is of another channel.
            BudgetError: If its records have no uses left.
        """
        self._engine.take_up(_state(context))
        try:
            reply = call_next(message, context)
        finally:
            _keep(context, self._engine.state_dict())
        if self._tell and not reply.has_error():
            nats = self._engine.leakage().record
            for record in reply.content.metric_records.values():
                record[LEAKAGE] = nats
                break
            else:
                reply.content["leakage"] = MetricRecord({LEAKAGE: nats})
        return reply


def _state(context: Context) -> dict[str, Any] | None:
    """Read the state of the engine as a node left it."""
    if _FACTS not in context.state.config_records:
        return None
    state: dict[str, Any] = json.loads(str(context.state.config_records[_FACTS]["json"]))
    for key, array in context.state.array_records[_ARRAYS].items():
        part, _, name = key.partition(":")
        state["ledgers"].setdefault(name, {})[part] = torch.from_numpy(np.array(array.numpy()))
    return state


def _keep(context: Context, state: dict[str, Any]) -> None:
    """Keep the state of the engine in that of a node."""
    ledgers = state["ledgers"]
    context.state[_ARRAYS] = ArrayRecord(
        {
            f"{part}:{name}": Array(value.numpy())
            for name, parts in ledgers.items()
            for part, value in parts.items()
        }
    )
    context.state[_FACTS] = ConfigRecord({"json": json.dumps({**state, "ledgers": {}})})
