"""Federated averaging with noise that no seed repeats."""

import dataclasses

import numpy as np
import pytest
import torch

from leakbound.cli.steps.job_list import all_steps
from leakbound.config.catalogue import Catalogue
from leakbound.config.data import DatasetConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.whole import Config
from leakbound.jobs.job import JobList
from leakbound.jobs.table import RunTable
from leakbound.papers.pmidp.averaging import Federation, train_federation


def secure(request):
    return dataclasses.replace(request, privacy_noise="secure")


@pytest.mark.parametrize("scheme", ["client", "server", "personalized"])
def test_equal_requests_end_apart_with_the_same_budgets(make_request, scheme):
    request = secure(make_request(scheme))
    one, two = train_federation(request), train_federation(request)
    assert (one.parameters != two.parameters).mean() > 0.9
    first, second = (Federation(request, 0) for _ in range(2))
    np.testing.assert_array_equal(first.budgets, second.budgets)  # the server knows them: they are no secret
    assert torch.equal(first.held, second.held)
    leaks = [found.rows.query("metric == 'leak_round' and unit == -1")["value"].item() for found in (one, two)]
    assert leaks[0] == pytest.approx(leaks[1])


def test_without_noise_nothing_depends_on_its_origin(make_request):
    request = make_request("none")
    assert (train_federation(request).parameters == train_federation(secure(request)).parameters).all()


def test_killed_secure_federation_goes_on_after_its_last_round(make_request, tmp_path, monkeypatch):
    monkeypatch.setattr("leakbound.training.checkpoint.Checkpoint.due", lambda checkpoint: True)
    request = secure(make_request("personalized", checkpoint=tmp_path / "checkpoint.pt"))
    advance, rounds = Federation.advance, []

    def dying(federation):
        if len(rounds) == 2:
            raise KeyboardInterrupt
        rounds.append(1)
        return advance(federation)

    monkeypatch.setattr(Federation, "advance", dying)
    with pytest.raises(KeyboardInterrupt):
        train_federation(request)
    resumed = []
    monkeypatch.setattr(Federation, "advance", lambda federation: (resumed.append(1), advance(federation))[1])
    result = train_federation(request)
    assert len(resumed) == 2  # the last round, and the end
    assert result.rows["communication_round"].max() == 3


def test_origin_of_noise_reaches_the_runs_that_add_noise():
    section = FederatedConfig(models={"bars": "mlp"}, sweeps=("budgets",), n_clients=4)
    config = Config(
        datasets={"bars": DatasetConfig(reader="digits")}, studies={}, federated=section, privacy_noise="secure"
    )
    jobs = JobList(RunTable(config, Catalogue(figures=())), all_steps())
    runs = jobs.table.all_federated()
    assert {job.name for job in jobs.of("federate")} == set(runs)
    for slug, run in runs.items():
        told = jobs.job("federate", slug).settings.get("privacy_noise")
        assert told == (None if run.scheme == "none" else "secure")
