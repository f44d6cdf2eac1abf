"""Federated averaging with noise that no seed repeats."""

import dataclasses

import numpy as np
import pytest
import torch

from asking import resumed
from leakbound_lab.config.catalogue import Catalogue
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.federated import FederatedConfig
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.job import JobList
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.papers.pmidp.averaging import Federation, train_federation
from leakbound_lab.steps.job_list import all_steps


def secure(request):
    return dataclasses.replace(request, privacy_noise="secure")


@pytest.mark.parametrize("scheme", ["client", "server", "personalized", "sampled"])
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
    request = secure(make_request("personalized", checkpoint=tmp_path / "checkpoint.pt"))
    result, advanced = resumed(monkeypatch, Federation, "advance", 2, lambda: train_federation(request))
    assert advanced == 2  # the last round, and the end
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
