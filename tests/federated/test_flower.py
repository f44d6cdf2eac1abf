"""The personalized scheme in Flower's own simulation engine against the stacked simulation, on the same seeds.

Flower has an environment of its own: ``make test-flower`` runs this file there.
"""

import numpy as np
import pytest
import torch

from images import gathered

pytest.importorskip("flwr", reason="Flower has an environment of its own: run `make test-flower`")
pytest.importorskip("ray", reason="Flower's simulation engine needs ray: run `make test-flower`")
pytestmark = pytest.mark.filterwarnings("ignore")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from leakbound.config.federated import FederatedConfig  # noqa: E402
from leakbound.datasets import Split  # noqa: E402
from leakbound.federated import averaging  # noqa: E402
from leakbound.federated.clients import draw_batches, train_clients  # noqa: E402
from leakbound.federated.flower import PersonalizedAveraging, PersonalizedNoise  # noqa: E402
from leakbound.jobs.federated_runs import FederatedRun  # noqa: E402
from leakbound.randomness.grid import grid_spacing  # noqa: E402
from leakbound.randomness.seeding import torch_generator  # noqa: E402

CLIENTS, ROUNDS, SEED = 12, 3, 5


def bars(count: int, generator: np.random.Generator) -> Split:
    labels = np.arange(count) % 4
    pixels = 0.3 * generator.standard_normal((count, 1, 32, 32))
    pixels[np.arange(count), 0, :, 8 * labels] += 0.6
    return Split(np.clip(pixels, -1, 1).astype(np.float32), labels.astype(np.int64))


def request_of(clipped: str, clip_rate: float) -> averaging.FederatedRequest:
    generator = np.random.default_rng(0)
    return averaging.FederatedRequest(
        dataset=gathered(bars(520, generator), members=240, validation=40, name="bars", classes=("a", "b", "c", "d")),
        run=FederatedRun(
            dataset="bars",
            model="mlp",
            scheme="personalized",
            n_clients=CLIENTS,
            max_param_norm=4.0,
            mi_budget=2000.0,
            budget_spread=600.0,
        ),
        config=FederatedConfig(
            communication_rounds=ROUNDS,
            local_epochs=2,
            batch_size=8,
            learning_rate=0.1,
            evaluations=2,
            clip_rate=clip_rate,
            clipped=clipped,
        ),
        records=20,
        seed=SEED,
    )


def as_arrays(vector: torch.Tensor, model: torch.nn.Module) -> ArrayRecord:
    parts = vector.split([value.numel() for value in model.parameters()])
    named = zip(model.named_parameters(), parts, strict=True)
    return ArrayRecord({name: Array(part.reshape(value.shape).numpy().copy()) for (name, value), part in named})


def as_vector(arrays: ArrayRecord) -> torch.Tensor:
    return torch.cat([torch.from_numpy(array.numpy().copy()).flatten() for array in arrays.values()])


def client_app(request: averaging.FederatedRequest) -> ClientApp:
    """Clients that train as those of the stacked simulation do; all privacy is the mod's."""
    words, config = (SEED, request.run.dataset, 0), request.config
    federation = averaging.Federation(request, 0)
    held, budgets, model = federation.held, federation.budgets, federation.model
    members = request.dataset.members(0)
    images, labels = torch.from_numpy(members.images), torch.from_numpy(members.labels)

    def client_of(context: Context) -> int:
        return int(context.node_config["partition-id"])

    mod = PersonalizedNoise(
        lambda context: float(budgets[client_of(context)]),
        n_clients=CLIENTS,
        max_rounds=ROUNDS,
        max_param_norm=4.0,
        clip_rate=config.clip_rate,
        clipped=config.clipped,
        generator=lambda context, round_: torch_generator(*words, "noise", client_of(context), round_),
    )
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, round_ = client_of(context), int(message.content["config"]["server-round"])
        start = as_vector(message.content["arrays"])
        batches = held[client][draw_batches(20, config.batch_size, config.local_epochs, *words, client, round_)]
        trained = train_clients(model, start, images, labels, batches[None], config.learning_rate)[0]
        content = {"arrays": as_arrays(trained, model), "metrics": MetricRecord({"num-examples": 20})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def run_flower(request: averaging.FederatedRequest) -> tuple[torch.Tensor, float]:
    """Parameters after all rounds, and the noise of the last average per coordinate."""
    start, found = averaging.Federation(request, 0), {}
    server = ServerApp()

    @server.main()
    def main(grid, context: Context) -> None:
        strategy = PersonalizedAveraging(CLIENTS, fraction_evaluate=0.0)
        result = strategy.start(
            grid, as_arrays(start.parameters, start.model), num_rounds=ROUNDS, train_config=ConfigRecord()
        )
        found["vector"] = as_vector(result.arrays)
        found["std"] = result.train_metrics_clientapp[ROUNDS]["aggregate-std"]

    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client_app(request), num_supernodes=CLIENTS, backend_config=backend)
    return found["vector"], found["std"]


@pytest.mark.parametrize(("clipped", "clip_rate"), [("parameters", 0.2), ("update", 0.0)])
def test_flower_and_the_stacked_simulation_give_the_same_average(clipped, clip_rate):
    request = request_of(clipped, clip_rate)
    flower, std = run_flower(request)
    stacked = averaging.Federation(request, 0)
    for _ in range(ROUNDS):
        noise = stacked.noise()
        assert stacked.advance()
    np.testing.assert_allclose(flower.numpy(), stacked.parameters.numpy(), rtol=0, atol=1e-5)
    assert std == pytest.approx(noise.aggregate_std, rel=1e-6)


def test_noise_that_nobody_seeded_differs_from_run_to_run_and_is_on_the_grid():
    config = ConfigRecord({"n-clients": 1, "server-round": 1})
    arrays = ArrayRecord({"w": Array(np.zeros(50, np.float32))})

    def reply_of() -> tuple[np.ndarray, float]:
        message = Message(RecordDict({"arrays": arrays, "config": config}), dst_node_id=1, message_type="train")
        context = Context(1, 1, {"mi-budget": 2.0, "n-clients": 1}, RecordDict(), {})

        def train(received: Message, _: Context) -> Message:
            content = RecordDict({"arrays": received.content["arrays"].copy(), "metrics": MetricRecord({"loss": 1.0})})
            return Message(content, reply_to=received)

        reply = PersonalizedNoise(max_rounds=1, max_param_norm=1.0)(message, context, train)
        std = next(iter(reply.content.metric_records.values()))["noise-std"]
        return next(iter(reply.content.array_records.values()))["w"].numpy(), float(std)

    (one, std), (two, _) = reply_of(), reply_of()
    assert (one != two).mean() > 0.5  # a grid of 32 points in a standard deviation at most: some agree by chance
    step = grid_spacing(np.array([std]))
    assert (one.astype(float) / step % 1 == 0).all()


def test_options_that_break_the_budgets_are_refused():
    with pytest.raises(ValueError, match="every client takes part in every round"):
        PersonalizedAveraging(10, fraction_train=0.5)
    with pytest.raises(ValueError, match="clip_rate = 1"):
        PersonalizedNoise(1.0, clip_rate=1.0)
