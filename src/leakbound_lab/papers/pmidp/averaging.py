"""Federated averaging of all replicas of a run, on clean uploads or under a mutual-information budget."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.randomness.seeding import PrivacyNoise, numpy_generator, torch_generator
from leakbound.randomness.sources import NoiseSource, noise_source
from leakbound_lab.config.federated import ADAPTED, FederatedConfig, FederatedRun
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models import build, memory
from leakbound_lab.papers.pmidp import clients, noise_calibration
from leakbound_lab.papers.pmidp.noise_calibration import AggregateNoise, PerClient
from leakbound_lab.training import stack
from leakbound_lab.training.checkpoint import Checkpoint, identity_hash
from leakbound_lab.training.stack import full_precision

logger = logging.getLogger("leakbound")
_ALL = -1


@dataclass(frozen=True, kw_only=True)
class FederatedRequest:
    """One run with all its replicas.

    Attributes:
        dataset: Members, which are divided among the clients, and test records.
        run: Scheme, clients, thresholds and budgets.
        config: Rounds, epochs, batches, learning rate. Its fields about sweeps are not used.
        records: Number of records of each client.
        seed: Seed of the configuration. Each generator derives from (seed, dataset, replica, purpose).
        privacy_noise: Whether noise that protects records is ``seeded`` or ``secure``.
        replicas: Independent repetitions, each with other records, weights, batches and noise, >= 1.
        device: Where it is trained, e.g. ``cpu`` or ``cuda``.
        checkpoint: File to resume from and to save to, or None to do neither.
    """

    dataset: ImageDataset
    run: FederatedRun
    config: FederatedConfig
    records: int
    seed: int
    privacy_noise: PrivacyNoise = "seeded"
    replicas: int = 1
    device: str = "cpu"
    checkpoint: Path | None = None


@dataclass(frozen=True)
class FederatedResult:
    """Outcome of a run.

    Attributes:
        rows: Columns ``replica``, ``communication_round``, ``unit``, ``metric``, ``value``. Curves:
            ``train_loss`` (nats, on clients' records), ``test_accuracy``, ``threshold`` (mean over clients).
            At the end: ``final_loss``, ``final_accuracy``, ``weight_distance`` (‖p − 1/N‖₁ of the last
            round), ``diverged``, and leaks in nats for each client (``unit``) and the worst one (−1).
            ``leak_round`` (the worst round) and ``leak_total`` (all rounds) are leaks to those who see the
            averages, ``leak_server_round`` and ``leak_server_total`` to the server, in the rounds in which a
            client took part. All points except the
            last use at most 2,000 records of each split. A diverged replica has ``diverged`` = 1 and the
            ``final_accuracy`` of a guess, and no other row.
        parameters: (replicas, d), the last average of each replica, NaN for a diverged one.
        dimension: d, number of parameters.
    """

    rows: pd.DataFrame
    parameters: Float[np.ndarray, "replicas d"]
    dimension: int


def train_federation(request: FederatedRequest) -> FederatedResult:
    """Run all rounds of all replicas, one replica after another, with as many clients at a time as fit.

    Equal requests give equal bytes on a CPU with an equal number of threads, also if a run was interrupted
    and resumed from its checkpoint. With secure noise results always differ. The caller removes the
    checkpoint once the result is stored.

    Args:
        request: The run: data, scheme, budgets, replicas.

    Returns:
        Curves, leaks and the last average of each replica.

    Raises:
        ValueError: If there are fewer members than the clients need.

    Example:
        >>> import numpy as np
        >>> from leakbound_lab.datasets import Drawing, ImageDataset, Split
        >>> generator = np.random.default_rng(0)
        >>> images = generator.uniform(-1, 1, (60, 1, 8, 8)).astype(np.float32)
        >>> records = Split(images, np.arange(60) % 2)
        >>> drawing = Drawing(members=20, validation=10, seed=0)
        >>> dataset = ImageDataset("noise", ("even", "odd"), records, records, records, drawing)
        >>> from leakbound_lab.config.federated import FederatedConfig, FederatedRun
        >>> arm = {"scheme": "client", "n_clients": 4, "max_param_norm": 5.0, "mi_budget": 200.0}
        >>> run = FederatedRun(dataset="noise", model="mlp", **arm)
        >>> config = FederatedConfig(communication_rounds=2, local_epochs=1, batch_size=5, evaluations=2)
        >>> result = train_federation(FederatedRequest(dataset=dataset, run=run, config=config, records=5, seed=0))
        >>> result.parameters.shape == (1, result.dimension)
        True
    """
    identity = _identity(request) if request.checkpoint else ""
    checkpoint = Checkpoint(request.checkpoint, identity, request.config.checkpoint_seconds)
    saved = checkpoint.load() or {"finished": [], "current": None}
    finished = saved["finished"]
    current = saved["current"]
    for replica in range(len(finished), request.replicas):
        with full_precision(request.device):
            federation = Federation(request, replica)
            if current is not None:
                federation.restore(current)
            while federation.advance():
                if checkpoint.due():
                    checkpoint.save({"finished": finished, "current": federation.state()})
        finished.append({"rows": federation.rows(), "parameters": federation.parameters.cpu()})
        current = None
    parameters = np.stack([replica["parameters"].numpy() for replica in finished])
    rows = [row for replica in finished for row in replica["rows"]]
    types = dict.fromkeys(("replica", "communication_round", "unit"), "int64")
    types |= {"metric": "str", "value": "float64"}
    table = pd.DataFrame(rows, columns=[*types]).astype(types)
    return FederatedResult(table, parameters, parameters.shape[1])


class Federation:
    """One replica of a run: server and clients.

    Args:
        request: The run.
        replica: Number of the replica, from 0.
    """

    def __init__(self, request: FederatedRequest, replica: int) -> None:
        self._request = request
        self._replica = replica
        run = request.run
        members = request.dataset.members(replica)
        self._words = words = (request.seed, run.dataset, replica)
        colors, height, width = members.images.shape[1:]
        classes = len(request.dataset.classes)
        model = build(run.model, colors, classes, torch_generator(*words, "init"), request.dataset.side)
        self.parameters = clients.flattened(stack.stacked([model], request.device))[0]
        concentration = request.config.concentration if request.config.split == "dirichlet" else None
        parts = clients.split_records(
            members.labels, run.n_clients, request.records, numpy_generator(*words, "split"), concentration
        )
        self.held = torch.from_numpy(parts)
        self.budgets = _budgets(request, replica)
        self.thresholds = np.full(run.n_clients, run.max_param_norm or np.inf)
        self.round = 0
        self._members = members
        self._images = torch.from_numpy(members.images).to(request.device)
        self._labels = torch.from_numpy(members.labels).to(request.device)
        self._leaks: dict[str, PerClient] = {}
        self._rows: list[tuple[int, int, int, str, float]] = []
        self._diverged = False
        batch = min(request.config.batch_size, request.records)
        most = request.config.max_stack
        self._stack = memory.stack_size(
            most, run.n_clients, request.device, model, (colors, height, width), batch
        )
        self.model = model.to(request.device)

    def noise(self) -> AggregateNoise:
        """Return noise and weights of the next round, from budgets and thresholds, and who takes part in it."""
        run = self._request.run
        if self.budgets is None:
            equal = np.full(run.n_clients, 1 / run.n_clients)  # plain federated averaging
            return AggregateNoise(equal, np.zeros_like(equal), 0.0)
        rules = {
            "personalized": noise_calibration.personalized_noise,
            "server": noise_calibration.server_noise,
        }
        if run.scheme == "sampled":
            sampled = noise_calibration.sampled_noise(self.thresholds, self.budgets, len(self.parameters))
            return sampled.draw(numpy_generator(*self._words, "participants", self.round))
        rule = rules.get(run.scheme, noise_calibration.client_noise)
        return rule(self.thresholds, self.budgets, len(self.parameters))

    def advance(self) -> bool:
        """Run one round, and add a point to the curves if one is due. Return False if no round is left."""
        if self.round == self._request.config.communication_rounds or self._diverged:
            return False
        # Uploads of all clients, their average, and the server's noise.
        round_noise = self.noise()
        average, norms = self._average(round_noise)
        self.round += 1
        self.parameters = clients.perturb(
            average, round_noise.server_std, self._source("server_noise", self.round)
        )
        # What the round reveals to other clients and to the server.
        for name, leak in (
            ("leak", noise_calibration.aggregate_leak),
            ("leak_server", noise_calibration.server_leak),
        ):
            now = leak(round_noise, self.thresholds, len(average))
            self._leaks[f"{name}_round"] = np.maximum(self._leaks.get(f"{name}_round", 0.0), now)
            self._leaks[f"{name}_total"] = self._leaks.get(f"{name}_total", 0.0) + now
        # Thresholds of the next round, and the end of a federation that diverged.
        if self._request.run.scheme in ADAPTED:
            self.thresholds = noise_calibration.next_max_param_norms(
                self.thresholds, norms, self._request.config.clip_rate
            )
        if not bool(self.parameters.isfinite().all()):
            logger.warning(
                "%s, replica %d diverged in round %d", self._request.run.slug, self._replica, self.round
            )
            self._diverged = True
            self.parameters = torch.full_like(self.parameters, torch.nan)
        rounds = self._request.config.communication_rounds
        points = self._request.config.evaluations
        # The curves have points at the first round, the last, and evenly between.
        evaluated_rounds = {1 + round((rounds - 1) * i / (points - 1)) for i in range(points)}
        if self.round in evaluated_rounds and not self._diverged:
            self._evaluate(round_noise)
        return True

    def _average(self, round_noise: AggregateNoise) -> tuple[Float[Tensor, " d"], PerClient]:
        """Return the average of all uploads, summed in float64, and the norms before clipping.

        The norm of a client that takes no part is given as its threshold, which then stays.
        """
        total = torch.zeros(len(self.parameters), dtype=torch.float64, device=self.parameters.device)
        norms = self.thresholds.copy()
        everybody = np.arange(self._request.run.n_clients)
        present = everybody if round_noise.present is None else everybody[round_noise.present]
        for first in range(0, len(present), self._stack):
            chunk = present[first : first + self._stack]
            uploads, norms[chunk] = self._uploads(chunk.tolist(), round_noise)
            total += torch.from_numpy(round_noise.weights[chunk]).to(total.device) @ uploads.double()
        return total.float(), norms

    def _uploads(
        self, chunk: Sequence[int], round_noise: AggregateNoise
    ) -> tuple[Float[Tensor, "clients d"], list[float]]:
        """Return the uploads of some clients in this round, and the norms before clipping."""
        config = self._request.config
        records = self._request.records
        following = self.round + 1
        client_batches = [
            self.held[client][
                clients.draw_batches(
                    records, config.batch_size, config.local_epochs, *self._words, client, following
                )
            ]
            for client in chunk
        ]
        batches = torch.stack(client_batches).to(self._request.device)
        vectors = clients.train_clients(
            self.model, self.parameters, self._images, self._labels, batches, config.learning_rate
        )
        limits = self.thresholds[chunk].tolist()
        vectors, before = clients.clip_around(vectors, self.parameters, limits, config.clipped)
        return torch.stack(
            [
                clients.perturb(
                    vector, float(round_noise.client_std[client]), self._source("noise", client, following)
                )
                for client, vector in zip(chunk, vectors, strict=True)
            ]
        ), before

    def _source(self, *purpose: str | int) -> NoiseSource:
        """Return the noise of one purpose and round, on the device of the parameters."""
        return noise_source(
            self._request.privacy_noise, *self._words, *purpose, device=self.parameters.device
        )

    def _evaluate(self, round_noise: AggregateNoise) -> None:
        """Extend the curves, and after the last round add the final metrics and leaks."""
        last = self.round == self._request.config.communication_rounds
        average = self.model, clients.unflattened(self.parameters[None], self.model)
        rows = self.held.flatten().sort().values.numpy()
        loss = stack.evaluate_split(*average, self._members, rows, whole=last)[0].item()
        accuracy = stack.evaluate_split(*average, self._request.dataset.test, whole=last)[1].item()
        values = {"train_loss": loss, "test_accuracy": accuracy, "threshold": float(self.thresholds.mean())}
        if last:
            distance = float(np.abs(round_noise.weights - 1 / len(round_noise.weights)).sum())
            values |= {"final_loss": loss, "final_accuracy": accuracy, "weight_distance": distance}
            values |= {name: float(leak.max()) for name, leak in self._leaks.items()}
        if not np.isfinite(values["threshold"]):
            del values["threshold"]  # nothing is clipped
        self._rows += [(self._replica, self.round, _ALL, name, value) for name, value in values.items()]
        if last:
            self._rows += [
                (self._replica, self.round, client, name, float(value))
                for name, leak in self._leaks.items()
                for client, value in enumerate(leak)
            ]
        described = ", ".join(
            f"{name.replace('_', ' ')} {value:.4g}" for name, value in list(values.items())[:3]
        )
        of_rounds = (self.round, self._request.config.communication_rounds)
        logger.info(
            "%s, replica %d: round %d of %d: %s", self._request.run.slug, self._replica, *of_rounds, described
        )

    def rows(self) -> list[tuple[int, int, int, str, float]]:
        """Return the rows of the replica so far."""
        flag = (self._replica, self.round, _ALL, "diverged", float(self._diverged))
        guess = (self._replica, self.round, _ALL, "final_accuracy", 1 / len(self._request.dataset.classes))
        return [guess, flag] if self._diverged else [*self._rows, flag]

    def state(self) -> dict[str, Any]:
        """Return all that the remaining rounds depend on. Seeds are per round, secure noise has no state."""
        return {
            "round": self.round,
            "parameters": self.parameters.cpu(),
            "thresholds": self.thresholds.tolist(),
            "leaks": {name: leak.tolist() for name, leak in self._leaks.items()},
            "rows": self._rows,
            "diverged": self._diverged,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self.round = state["round"]
        self._rows = state["rows"]
        self._diverged = state["diverged"]
        self.parameters = state["parameters"].to(self.parameters.device)
        self.thresholds = np.array(state["thresholds"])
        self._leaks = {name: np.array(leak) for name, leak in state["leaks"].items()}


def _budgets(request: FederatedRequest, replica: int) -> PerClient | None:
    """Return the budget of each client in nats for one round, or None without noise."""
    run = request.run
    if run.mi_budget is None:
        return None
    if run.budget_spread is None:
        return np.full(run.n_clients, run.mi_budget)
    generator = numpy_generator(request.seed, run.dataset, replica, "budgets")
    return noise_calibration.draw_budgets(
        run.n_clients, run.mi_budget, run.budget_spread, request.config.least_budget, generator
    )


def _identity(request: FederatedRequest) -> str:
    """Return a hash of all that the course of a run depends on."""
    unused = {"checkpoint_seconds", "replicas", "sweeps", "models"}
    settings = {name: getattr(request, name) for name in ("records", "seed", "privacy_noise", "replicas")}
    settings |= {
        "run": request.run.model_dump(),
        "config": request.config.model_dump(mode="json", exclude=unused),
        "device": torch.device(request.device).type,
    }
    return identity_hash(request.dataset, request.dataset.arrays(), settings)
