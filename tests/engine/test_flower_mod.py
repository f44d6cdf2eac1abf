"""The client mod in Flower's own simulation; Flower has an environment of its own: ``make test-flower``."""

import numpy as np
import pytest
import torch
from gaussians import engine_of, private
from torch.utils.data import DataLoader

from leakbound import BudgetError, Capacity, ChannelEngine, GuaranteeError, Leakage

pytest.importorskip("flwr", reason="Flower has an environment of its own: run `make test-flower`")
pytestmark = pytest.mark.filterwarnings("ignore")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from leakbound.engine.flower import LEAKAGE, SECRET, UNCOUNTED, ChannelMod, largest_leakage  # noqa: E402

CLIENTS, ROUNDS = 2, 3


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch):
    """Messages can be made within a run alone."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def made(target=None, **options) -> ChannelEngine:
    return engine_of(target or Leakage(3.0, uses=2 * ROUNDS), **{"seed": 5, **options})


def trained(engine: ChannelEngine, message: Message, epochs: int, seed: int) -> Message:
    """A reply whose parameters are the sum of all noisy inputs."""
    loader = engine.protect(DataLoader(private(seed=seed + 1), batch_size=5))
    total = sum(inputs.sum(dim=0) for _ in range(epochs) for inputs, _ in loader)
    content = {"arrays": ArrayRecord({"w": Array(total.numpy())}), "metrics": MetricRecord({"num-examples": 20})}
    return Message(content=RecordDict(content), reply_to=message)


def request() -> Message:
    content = {"arrays": ArrayRecord({"w": Array(np.zeros(4, np.float32))}), "config": ConfigRecord()}
    return Message(RecordDict(content), dst_node_id=1, message_type="train")


def node(number: int) -> Context:
    return Context(1, number, {"partition-id": number}, RecordDict(), {})


def told_by(reply: Message) -> float:
    """The nats that a reply states, under whatever name."""
    (nats,) = reply.content[LEAKAGE].values()
    return nats


@pytest.mark.parametrize(
    "options", [{"seed": 5}, {"seed": None}, {"target": Leakage(3.0), "noise": "frozen", "seed": None}]
)
def test_nodes_of_one_process_keep_their_own_counts_in_their_own_states(options):
    engine = made(**options)
    mod, nodes = ChannelMod(engine), [node(0), node(1)]
    told, seen = [], []
    for number in (0, 1, 0, 0, 1):
        reply = mod(request(), nodes[number], lambda message, _, at=number: trained(engine, message, 1, at))
        told.append(told_by(reply))
        seen.append(reply.content["arrays"]["w"].numpy())
    looks = [1, 1, 1, 1, 1] if engine.noise == "frozen" else [1, 1, 2, 3, 2]
    np.testing.assert_allclose(told, [engine.calibration.information(count) for count in looks], rtol=1e-9)
    assert np.array_equal(seen[0], seen[2]) == (engine.noise == "frozen")


def test_a_node_whose_budget_is_spent_is_refused_and_others_are_not():
    engine = made(Leakage(3.0, uses=2))
    mod, first, second = ChannelMod(engine), node(0), node(1)
    mod(request(), first, lambda message, _: trained(engine, message, 2, 0))
    with pytest.raises(BudgetError):
        mod(request(), first, lambda message, _: trained(engine, message, 1, 0))
    mod(request(), second, lambda message, _: trained(engine, message, 2, 1))


def test_uses_of_a_training_that_fails_are_kept():
    engine, own = made(), node(0)

    def failing(message, context):
        trained(engine, message, 1, 0)
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        ChannelMod(engine)(request(), own, failing)
    engine.take_up(None)
    reply = ChannelMod(engine)(request(), own, lambda message, _: trained(engine, message, 1, 0))
    assert told_by(reply) == pytest.approx(engine.calibration.information(2))


def test_the_state_of_another_channel_is_refused_and_nothing_need_be_told():
    own = node(0)
    reply = ChannelMod(one := made(), tell=False)(request(), own, lambda message, _: trained(one, message, 1, 0))
    assert LEAKAGE not in reply.content
    with pytest.raises(GuaranteeError, match="calibrate as that one was"):
        ChannelMod(made(Capacity(9.0)))(request(), own, lambda message, _: message)


def test_a_simulation_counts_over_all_rounds():
    pytest.importorskip("ray", reason="Flower's simulation engine needs ray: run `make test-flower`")
    engine, found = made(), {}
    app = ClientApp(mods=[ChannelMod(engine)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        return trained(engine, message, 1, int(context.node_config["partition-id"]))

    server = ServerApp()

    @server.main()
    def main(grid, context: Context) -> None:
        options = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
        strategy = FedAvg(train_metrics_aggr_fn=largest_leakage, **options)
        start = ArrayRecord({"w": Array(np.zeros(4, np.float32))})
        found["metrics"] = strategy.start(grid, start, num_rounds=ROUNDS).train_metrics_clientapp

    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, app, num_supernodes=CLIENTS, backend_config=backend)
    told = [found["metrics"][number][f"{UNCOUNTED}-{SECRET}"] for number in (1, 2, 3)]
    np.testing.assert_allclose(told, [engine.calibration.information(count) for count in (1, 2, 3)], rtol=1e-9)


def reply_of(examples: int, told: dict | None) -> RecordDict:
    content = {"metrics": MetricRecord({"num-examples": examples, "loss": float(examples)})}
    return RecordDict(content if told is None else {**content, LEAKAGE: ConfigRecord(told)})


def test_the_largest_leakage_of_a_round_arrives_and_no_average():
    """Clients with 0.5 and 8 nats once arrived as 1.25."""
    told = largest_leakage([reply_of(900, {LEAKAGE: 0.5}), reply_of(100, {LEAKAGE: 8.0})], "num-examples")
    assert dict(told) == {LEAKAGE: 8.0, "loss": pytest.approx(0.9 * 900 + 0.1 * 100)}
    mixed = largest_leakage([reply_of(900, {LEAKAGE: 9.0}), reply_of(100, {UNCOUNTED: 8.0})], "num-examples")
    assert mixed[UNCOUNTED] == 9.0  # no bound with labels is one of all clients
    assert LEAKAGE not in mixed
    seeded = largest_leakage(
        [reply_of(900, {LEAKAGE: 9.0}), reply_of(100, {f"{LEAKAGE}-{SECRET}": 8.0})], "num-examples"
    )
    assert set(seeded) == {f"{LEAKAGE}-{SECRET}", "loss"}
    silent = largest_leakage([reply_of(900, {LEAKAGE: 0.5}), reply_of(100, None)], "num-examples")
    assert set(silent) == {"loss"}


def test_labels_that_are_not_counted_are_named_beside_the_nats():
    """13.67 nats were once told where labels made them 14.4."""
    for options, name in (({"classes": 20}, LEAKAGE), ({}, UNCOUNTED)):
        engine = made(seed=None, **options)
        reply = ChannelMod(engine)(request(), node(0), lambda message, _, by=engine: trained(by, message, 1, 0))
        inputs = engine.calibration.information(1)
        assert dict(reply.content[LEAKAGE]) == {name: pytest.approx(inputs + (np.log(20) if options else 0.0))}
        assert set(reply.content["metrics"]) == {"num-examples"}
        engine = made(**options)  # whoever knows the seed subtracts the noise
        reply = ChannelMod(engine)(request(), node(1), lambda message, _, by=engine: trained(by, message, 1, 0))
        assert set(reply.content[LEAKAGE]) == {f"{name}-{SECRET}"}
