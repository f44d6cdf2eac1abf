"""The usual Flower script, a small CNN in a simulated federation, with five lines more for clients, one for the server.

    python examples/flower_client.py --rounds 10 --nats 60

Each of two clients has 450 of scikit-learn's handwritten digits, so nothing is downloaded; a third of all play the
public records. Lines that end in `# leakbound` are all that is new: a client's uploads of all rounds together reveal a
bounded number of nats about a record, on average over records like the public ones. Counts live in the state of the
client's node. The server gets the largest bound of a client, as an average over clients is a bound for nobody. Flower
asks for older versions of what the rest uses, so it has a folder of its own:
`make .venv-flower/ready`, then `PYTHONPATH=.venv-flower python`. `run_simulation` is deprecated, as it says: Flower
prefers `flwr run` on a folder whose `pyproject.toml` names both apps, in which the marked lines are the same.
"""

import argparse
from collections.abc import Callable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from leakbound import ChannelEngine, Leakage  # leakbound
from leakbound.engine.flower import ChannelMod, largest_leakage  # leakbound

CLIENTS = 2


def network() -> nn.Module:
    """Two convolutions and two dense layers for grey pictures of 8×8 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def digits() -> tuple[TensorDataset, list[TensorDataset], TensorDataset]:
    """Public records, those of each client, and test records: pictures (1, 8, 8) in [0, 1], and labels."""
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    public, test = order[:600], order[1500:]
    clients = order[600:1500].reshape(CLIENTS, -1)
    return (
        TensorDataset(images[public], labels[public]),
        [TensorDataset(images[part], labels[part]) for part in clients],
        TensorDataset(images[test], labels[test]),
    )


def client_app(args: argparse.Namespace) -> ClientApp:
    """One epoch of Adam on the client's own records in each round."""
    public, private, _ = digits()
    mods: list[Callable] = []
    engine = ChannelEngine.for_data(public, Leakage(args.nats, uses=args.rounds), classes=10)  # leakbound
    mods.append(ChannelMod(engine))  # leakbound
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        loader = DataLoader(private[int(context.node_config["partition-id"])], batch_size=32, shuffle=True)
        loader = engine.protect(loader)  # leakbound
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        for data, target in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(data), target).backward()
            optimizer.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 450})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def server_app(args: argparse.Namespace, found: dict) -> ServerApp:
    """Federated averaging, and the test accuracy after the last round."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        options = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
        options["train_metrics_aggr_fn"] = largest_leakage  # leakbound
        strategy = FedAvg(**options)
        torch.manual_seed(1)
        result = strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=args.rounds)
        model = network()
        model.load_state_dict(result.arrays.to_torch_state_dict())
        images, labels = digits()[2].tensors
        with torch.no_grad():
            found["accuracy"] = float((model(images).argmax(dim=1) == labels).float().mean())
        found.update({name: float(value) for name, value in result.train_metrics_clientapp[args.rounds].items()})

    return app


def main(words: list[str] | None = None) -> dict[str, float]:
    """Simulate the federation; prints and returns the accuracy, and what the replies of the last round told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--nats", type=float, default=60.0)
    args = parser.parse_args(words)
    found: dict[str, float] = {}
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app(args, found), client_app(args), num_supernodes=CLIENTS, backend_config=resources)
    print(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    return found


if __name__ == "__main__":
    main()
