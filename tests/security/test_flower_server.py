"""A server that lies to Flower's clients: what it sends must never make a reply tell more than the client's budget.

Flower has an environment of its own: ``make test-flower`` runs this file there.
"""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower has an environment of its own: run `make test-flower`")
pytestmark = pytest.mark.filterwarnings("ignore")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from leakbound.federated.flower import PersonalizedNoise  # noqa: E402
from leakbound.federated.noise_calibration import personalized_noise  # noqa: E402

CLIENTS, SIZE, THRESHOLD, BUDGET = 4, 50, 10.0, 2.0
HONEST = {"n-clients": CLIENTS, "server-round": 1}
NODE = {"mi-budget": BUDGET, "n-clients": CLIENTS, "max-rounds": 20}
RECORDS = np.linspace(-1, 1, SIZE, dtype=np.float32)
"""All that training returns: it stands for the client's data."""


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    """Messages are made within a task of Flower's."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Client:
    """A node of Flower with its mod and its data, whose state lasts from message to message."""

    def __init__(self, node: dict | None = None, returned: np.ndarray = RECORDS, **settings) -> None:
        self.context = Context(1, 1, NODE if node is None else node, RecordDict(), {})
        self.mod = PersonalizedNoise(**{"max_param_norm": THRESHOLD, **settings})
        self.returned, self.trained = returned, 0

    def answer(self, config: dict, sent: np.ndarray | None = None, kind: str = "train") -> RecordDict:
        """What leaves the client after a message."""
        weights = np.zeros(SIZE, np.float32) if sent is None else sent
        record = RecordDict({"arrays": ArrayRecord({"w": Array(weights)}), "config": ConfigRecord(config)})
        message = Message(record, dst_node_id=1, message_type=kind)

        def train(received: Message, _: Context) -> Message:
            self.trained += 1
            content = {
                "arrays": ArrayRecord({"w": Array(self.returned)}),
                "metrics": MetricRecord({"loss": 0.123456, "num-examples": 20}),
                "more": ConfigRecord({"first label": 7}),
            }
            return Message(RecordDict(content), reply_to=received)

        return self.mod(message, self.context, train).content


def weights(reply: RecordDict) -> np.ndarray:
    return reply["arrays"]["w"].numpy()


def own_std() -> float:
    """Noise that a client of four needs, by the simulation's own rule."""
    every = np.full(CLIENTS, THRESHOLD), np.full(CLIENTS, BUDGET)
    return float(personalized_noise(*every, SIZE).client_std[0])


def test_honest_server_is_answered_with_the_noise_of_the_client_s_own_settings():
    for client in (Client(), Client({}, mi_budget=BUDGET, n_clients=CLIENTS, max_rounds=20)):
        reply = client.answer(HONEST)
        assert reply["metrics"]["noise-std"] == pytest.approx(own_std())
        noise = weights(reply) - RECORDS
        assert 0.4 * own_std() < noise.std() < 1.8 * own_std()  # 50 values: a false alarm in less than 10⁻⁷


@pytest.mark.parametrize("claimed", [10**18, CLIENTS + 1, 1, 0, -4, 4.0, math.inf, "4", True, [4]])
def test_number_of_clients_that_a_server_makes_up_is_refused_before_training(claimed):
    """10¹⁸ took a billionth of the noise, which left the reply as it was to the last digit."""
    client = Client()
    with pytest.raises(ValueError, match=r"n-clients = .* in the message: this client knows of 4"):
        client.answer({**HONEST, "n-clients": claimed})
    assert client.trained == 0


@pytest.mark.parametrize(
    ("node", "settings", "message"),
    [
        ({"mi-budget": 2.0}, {}, "n_clients: give it, or 'n-clients' in the node's configuration"),
        ({"mi-budget": 2.0, "n-clients": 4}, {}, "max_rounds: give it, or 'max-rounds' in the node's configuration"),
        ({"n-clients": 4, "max-rounds": 9}, {}, "mi_budget: give it, or 'mi-budget' in the node's configuration"),
        ({**NODE, "n-clients": 4.0}, {}, "n-clients = 4.0 in this client's own settings: must be a whole number"),
        (NODE, {"n_clients": 0}, "n-clients = 0 in this client's own settings"),
        ({**NODE, "max-rounds": "many"}, {}, "max-rounds = 'many' in this client's own settings"),
    ],
)
def test_settings_that_are_missing_or_wrong_are_never_taken_from_the_server(node, settings, message):
    client = Client(node, **settings)
    with pytest.raises(ValueError, match=message):
        client.answer(HONEST)
    assert client.trained == 0


@pytest.mark.parametrize("floor", [math.nan, math.inf, -1.0])
def test_floor_that_is_no_standard_deviation_is_refused(floor):
    with pytest.raises(ValueError, match="least_noise_std"):
        PersonalizedNoise(least_noise_std=floor)


def test_noise_never_falls_below_the_client_s_floor():
    """A threshold that follows vanishing norms would take the noise with it."""
    client = Client(returned=np.zeros(SIZE, np.float32), clip_rate=0.9, least_noise_std=0.5)
    stds = [client.answer({**HONEST, "server-round": number})["metrics"]["noise-std"] for number in range(1, 12)]
    assert stds[0] > stds[1]
    assert min(stds) == stds[-1] == 0.5


@pytest.mark.parametrize("again", [1, 0, -1, 1.5, "2", None])
def test_round_is_answered_once_so_that_no_noise_is_repeated(again):
    """With seeded noise two replies of one round differed by exactly what training had changed."""
    client = Client(generator=lambda _, number: torch.Generator().manual_seed(number))
    client.answer(HONEST)
    client.returned = RECORDS + 1
    with pytest.raises(ValueError, match=r"server-round = .* must be a whole number above 1, the last one"):
        client.answer({"n-clients": CLIENTS} | ({} if again is None else {"server-round": again}))
    assert client.trained == 1


def test_server_cannot_ask_for_more_rounds_than_the_client_gives():
    for client in (Client(max_rounds=3), Client({**NODE, "max-rounds": 3})):
        for number in (1, 2, 7):
            client.answer({**HONEST, "server-round": number})
        with pytest.raises(ValueError, match="max_rounds = 3: all are answered"):
            client.answer({**HONEST, "server-round": 8})
        assert client.trained == 3


def test_large_parameters_do_not_stretch_what_was_clipped():
    """Near 2·10⁷ float32 has steps of 2: a change of 1.41 in each of 50 places, clipped to 10 in all, became one of 14.

    The noise is that of a norm of 10. Added before the rounding, it leaves the mean where it was.
    """
    sent = np.full(SIZE, 2e7, np.float32)
    client = Client(returned=sent + 2, clipped="update", mi_budget=60.0, max_rounds=1000, least_noise_std=0.8)
    replies = [weights(client.answer({**HONEST, "server-round": number}, sent)) for number in range(1, 401)]
    shift = np.mean(replies, axis=0, dtype=np.float64) - 2e7
    assert 9 < np.linalg.norm(shift) < 11


@pytest.mark.parametrize("clipped", ["parameters", "update"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_training_that_overflows_is_answered_like_any_other(clipped, wrong):
    """What overflows may depend on the data: NaN stays NaN whatever noise is added, and told it."""
    returned = RECORDS.copy()
    returned[7] = wrong
    reply = Client(returned=returned, clipped=clipped).answer(HONEST)
    assert np.isfinite(weights(reply)).all()
    assert weights(reply).std() > 0.4 * own_std()
    assert reply["metrics"]["noise-std"] == pytest.approx(own_std())


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_parameters_that_are_not_finite_are_not_trained(wrong):
    client = Client()
    with pytest.raises(ValueError, match="the parameters that were sent are not finite"):
        client.answer(HONEST, np.full(SIZE, wrong, np.float32))
    assert client.trained == 0


@pytest.mark.parametrize("shape", [(1,), (), (SIZE, 1), (SIZE + 1,)])
def test_arrays_of_other_shapes_are_not_mixed_with_those_of_the_server(shape):
    with pytest.raises(ValueError, match="training returned arrays"):
        Client().answer(HONEST, np.zeros(shape, np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
def test_type_of_the_sent_arrays_does_not_change_the_noise(dtype):
    replies = [Client().answer(HONEST, np.zeros(SIZE, dtype)) for _ in range(2)]
    assert all(reply["metrics"]["noise-std"] == pytest.approx(own_std()) for reply in replies)
    assert (weights(replies[0]) != weights(replies[1])).mean() > 0.5


def test_reply_holds_nothing_without_noise_but_the_metrics_that_the_client_names():
    """The mean loss on private records left exact before, and whatever else the reply held."""
    reply = Client().answer(HONEST)
    assert sorted(reply) == ["arrays", "metrics"]
    assert set(reply["metrics"]) == {"noise-std"}
    assert set(Client(metrics=["num-examples"]).answer(HONEST)["metrics"]) == {"noise-std", "num-examples"}


@pytest.mark.parametrize("kind", ["evaluate", "query", "evaluate.more"])
def test_only_training_is_answered(kind):
    client = Client()
    with pytest.raises(ValueError, match="only replies to 'train' are made private"):
        client.answer(HONEST, kind=kind)
    assert client.trained == 0
