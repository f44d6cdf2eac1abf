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

A reply states the leakage in a record of its own, since FedAvg averages the metrics of its replies by examples,
and an average over clients bounds the leakage of no client. The server gets the largest one by::

    FedAvg(train_metrics_aggr_fn=largest_leakage)
"""

import json
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from leakbound.engine.engine import ChannelEngine

LEAKAGE = "leakage-nats"
"""Record of a reply, and its bound in nats where labels are counted and nothing else was released as it is."""
UNCOUNTED = f"{LEAKAGE}-plus-labels-not-counted"
"""Its bound in nats where labels or other values are not counted."""
SECRET = "if-noise-were-secret"
"""End of the name where a seed repeats the noise, so that the number is no bound."""
_ARRAYS = "leakbound.channel.arrays"
_FACTS = "leakbound.channel.facts"


class ChannelMod:
    """Load a node's counts before its training, keep them after it, and report what has leaked.

    Args:
        engine: Engine that the client's training function protects its loader with.
        tell: Add a record to the reply, with the smallest valid bound of the most used record, in nats. Its name
            says where labels are released that it does not count, and where a seed repeats the noise.
    """

    def __init__(self, engine: ChannelEngine, *, tell: bool = True) -> None:
        self._engine = engine
        self._tell = tell

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
            account = self._engine.leakage()
            reply.content[LEAKAGE] = ConfigRecord({account.metric(LEAKAGE, "-"): account.record})
        return reply


def largest_leakage(records: list[RecordDict], weighting_metric_name: str) -> MetricRecord:
    """Aggregate the metrics of a round as FedAvg does, and add the largest leakage of a client.

    It is left out if a client does not state its own.

    Args:
        records: Contents of the replies.
        weighting_metric_name: Metric by which all others are averaged.
    """
    aggregated: MetricRecord = aggregate_metricrecords(records, weighting_metric_name)
    stated = [dict(record.config_records.get(LEAKAGE, {})) for record in records]
    if all(stated):
        names = {name for each in stated for name in each}
        uncounted = any(name.startswith(UNCOUNTED) for name in names)
        seeded = any(name.endswith(SECRET) for name in names)
        largest = max(float(nats) for each in stated for nats in each.values())
        aggregated[(UNCOUNTED if uncounted else LEAKAGE) + (f"-{SECRET}" if seeded else "")] = largest
    return aggregated


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
