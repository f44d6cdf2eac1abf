"""CPU time of a federated round over its clients."""

from dataclasses import replace

from leakbound.config.federated import FederatedConfig
from leakbound.federated.averaging import FederatedRequest, Federation
from leakbound.jobs.federated import FederatedRun
from leakbound.training.growth import Box
from leakbound.training.request import TrainingRequest


def round_box(plain: TrainingRequest) -> Box:
    """A round of federated averaging under a budget, each client with as many records.

    Args:
        plain: Undefended training on a CPU, for its images and network.
    """
    federations = {count: _federation(replace(plain, device="cpu"), count) for count in (2, 4, 8)}
    return Box("federated round", "clients", {count: one.advance for count, one in federations.items()}, 1.0)


def _federation(plain: TrainingRequest, clients: int) -> Federation:
    """A federation that goes on for longer than it is measured."""
    run = FederatedRun(
        plain.dataset.name,
        plain.model,
        "client",
        n_clients=clients,
        max_param_norm=5.0,
        mi_budget=2000.0,
        budget_spread=None,
    )
    config = FederatedConfig(
        communication_rounds=1000, local_epochs=1, batch_size=32, learning_rate=1e-3, evaluations=2
    )
    records = min(96, plain.dataset.drawing.members // 8)
    request = FederatedRequest(dataset=plain.dataset, run=run, config=config, records=records, seed=plain.seed)
    return Federation(request, 0)
