"""Federated averaging: records of clients, rounds, noise that each draws, and what the rows hold."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from asking import resumed
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab import models
from leakbound_lab.papers.pmidp import averaging, clients
from leakbound_lab.papers.pmidp.averaging import Federation, train_federation
from leakbound_lab.papers.pmidp.clients import clip_around, draw_batches, split_records


def value_of(result, metric: str) -> float:
    rows = result.rows[result.rows["unit"] == -1]
    return float(rows[rows["metric"] == metric]["value"].iloc[-1])


def plain_fedavg(request) -> np.ndarray:
    """The same federation as one would write it down: a network, an optimizer and a loop over clients."""
    run, config, words = request.run, request.config, (request.seed, request.run.dataset, 0)
    model = models.build(run.model, 1, 4, torch_generator(*words, "init"))
    members = request.dataset.members(0)
    held = clients.split_records(members.labels, run.n_clients, request.records, numpy_generator(*words, "split"))
    server = parameters_to_vector(model.parameters()).detach().clone()
    noise = Federation(request, 0).noise()
    for round_ in range(1, config.communication_rounds + 1):
        average = torch.zeros_like(server)
        for client in range(run.n_clients):
            vector_to_parameters(server.clone(), model.parameters())
            optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
            batches = draw_batches(request.records, config.batch_size, config.local_epochs, *words, client, round_)
            for batch in batches.numpy():
                rows = held[client][batch]
                optimizer.zero_grad()
                logits = model(torch.from_numpy(members.images[rows]))
                F.cross_entropy(logits, torch.from_numpy(members.labels[rows])).backward()
                optimizer.step()
            upload = parameters_to_vector(model.parameters()).detach()
            if run.scheme != "none":
                upload = upload / max(1.0, float(upload.norm()) / run.max_param_norm)
                generator = torch_generator(*words, "noise", client, round_)
                upload = upload + noise.client_std[client] * torch.randn(len(upload), generator=generator)
            average += noise.weights[client] * upload
        server = average
    return server.numpy()


@pytest.mark.no_shapes
@pytest.mark.parametrize("scheme", ["none", "client", "personalized"])
@pytest.mark.parametrize("max_stack", [1, 4, 6])
def test_stacked_averaging_agrees_with_a_plain_loop(make_request, scheme, max_stack):
    request = make_request(scheme, max_stack=max_stack, clip_rate=0.0)  # at which thresholds stay as they are
    np.testing.assert_allclose(train_federation(request).parameters[0], plain_fedavg(request), rtol=0, atol=2e-5)


def test_other_seeds_and_replicas_differ_and_more_replicas_change_no_other_one(make_request):
    both = train_federation(make_request(replicas=2)).parameters
    assert (both[0] == train_federation(make_request()).parameters[0]).all()
    assert (both[0] != both[1]).mean() > 0.99
    assert (both[0] != train_federation(make_request(seed=1)).parameters[0]).mean() > 0.99


@pytest.mark.parametrize("scheme", ["server", "personalized", "sampled"])
def test_killed_federation_resumes_with_the_same_bytes(make_request, tmp_path, monkeypatch, scheme):
    """Killed in the second replica's second round, with a checkpoint after each round."""
    expected = train_federation(make_request(scheme, replicas=2))
    request = make_request(scheme, replicas=2, checkpoint=tmp_path / "checkpoint.pt", checkpoint_seconds=1e-9)
    # 3 rounds and the end of the first replica, 2 rounds of the second; then its last round and its end.
    ended, advanced = resumed(monkeypatch, Federation, "advance", 6, lambda: train_federation(request))
    assert advanced == 2
    assert ended.parameters.tobytes() == expected.parameters.tobytes()
    assert ended.rows.equals(expected.rows)


def test_checkpoint_of_other_settings_is_not_resumed(make_request, tmp_path, monkeypatch):
    monkeypatch.setattr("leakbound_lab.training.checkpoint.Checkpoint.due", lambda checkpoint: True)
    path = tmp_path / "checkpoint.pt"
    train_federation(make_request("client", checkpoint=path))
    other = train_federation(make_request("client", checkpoint=path, max_param_norm=2.0))
    assert (other.parameters == train_federation(make_request("client", max_param_norm=2.0)).parameters).all()


def test_noise_of_clients_and_of_the_server_reaches_the_average_with_equal_variance(make_request):
    """One round from the same start. Both are N(0, s² I) with d ≈ 33,000: variances within 5 standard errors each."""
    for scheme in ("client", "server"):
        request = make_request(scheme, communication_rounds=1, evaluations=2)
        quiet = dataclasses.replace(request, run=request.run.model_copy(update={"mi_budget": 1e12}))
        noisy, silent = Federation(request, 0), Federation(quiet, 0)
        silent._request = dataclasses.replace(silent._request, run=noisy._request.run)  # the same draws
        silent.parameters = noisy.parameters.clone()
        silent.held = noisy.held
        noisy.advance()
        silent.advance()
        difference = (noisy.parameters - silent.parameters).double()
        expected = noisy.noise().aggregate_std
        error = 5 * math.sqrt(2 / len(difference))
        assert float(difference.var()) == pytest.approx(expected**2, rel=error)
        assert abs(float(difference.mean())) < 5 * expected / math.sqrt(len(difference))


def test_clipping_the_update_leaves_the_start_as_it_is():
    start = torch.tensor([100.0, 0.0])
    clipped, norms = clip_around(torch.tensor([[103.0, 4.0]]), start, [1.0], "update")
    assert torch.allclose(clipped, torch.tensor([[100.6, 0.8]]))
    assert norms == pytest.approx([5.0])


def test_a_round_uses_every_record_equally_often():
    batches = draw_batches(20, 8, 2, 0, "bars", 0, 3, 1)
    assert batches.shape == (5, 8)
    assert np.bincount(batches.flatten().numpy(), minlength=20).tolist() == [2] * 20


def test_threat_table_says_what_each_observer_learns_of_each_client(make_request):
    result = train_federation(make_request("personalized", clip_rate=0.2))
    rows = result.rows[result.rows["unit"] >= 0]
    table = rows.pivot(index="unit", columns="metric", values="value")
    budgets = averaging._budgets(make_request("personalized"), 0)
    np.testing.assert_allclose(table["leak_round"], budgets, rtol=1e-9)
    np.testing.assert_allclose(table["leak_total"], 3 * budgets, rtol=1e-9)
    assert (table["leak_server_round"] > budgets).all()
    assert (table["leak_server_total"] > table["leak_total"]).all()
    assert value_of(result, "leak_round") == pytest.approx(budgets.max())


def test_threat_table_of_noise_at_the_server_shows_that_the_server_learns_everything(make_request):
    result = train_federation(make_request("server"))
    assert value_of(result, "leak_server_round") == math.inf
    assert value_of(result, "leak_round") == pytest.approx(2000.0, rel=1e-9)
    assert value_of(train_federation(make_request("none")), "leak_round") == math.inf


def test_thresholds_follow_the_norms_only_where_asked(make_request):
    moving = train_federation(make_request("personalized", clip_rate=0.5)).rows
    fixed = train_federation(make_request("client", clip_rate=0.5)).rows
    assert moving[moving["metric"] == "threshold"]["value"].nunique() == 3
    assert (fixed[fixed["metric"] == "threshold"]["value"] == 5.0).all()


@pytest.mark.parametrize("scheme", ["personalized", "sampled"])
def test_equal_budgets_make_every_scheme_the_uniform_one(make_request, scheme):
    """All schemes draw the same budgets."""
    one, two = (Federation(make_request(s, budget_spread=0.0), 0).noise() for s in (scheme, "uniform"))
    np.testing.assert_allclose(one.weights, two.weights)
    np.testing.assert_allclose(one.client_std, two.client_std)


UNEQUAL = {"mi_budget": 300.0, "budget_spread": 3000.0, "communication_rounds": 12}


def test_only_who_takes_part_is_averaged_and_leaks(make_request):
    """Six clients with budgets of which some are 1 nat. Nobody else's records or noise are in the average."""
    federation = Federation(make_request("sampled", clip_rate=0.5, **UNEQUAL), 0)
    here, met = [], 0
    while True:
        start, thresholds, noise = federation.parameters.clone(), federation.thresholds.copy(), federation.noise()
        uploads, _ = federation._uploads(np.flatnonzero(noise.present).tolist(), noise)
        if not federation.advance():
            break
        here.append(noise.present)
        assert torch.allclose(federation.parameters, uploads.double().mean(0).float(), atol=1e-6)
        assert (federation.thresholds[~noise.present] == thresholds[~noise.present]).all()
        assert (federation.thresholds[noise.present] != thresholds[noise.present]).all()
        met += not torch.equal(start, federation.parameters)
    here = np.array(here)
    assert met == 12
    assert here.any(axis=1).all()
    assert here[:, federation.budgets == 1].sum() < 12
    assert ((federation._leaks["leak_total"] > 0) == here.any(axis=0)).all()
    assert ((federation._leaks["leak_server_total"] > 0) == here.any(axis=0)).all()
    assert np.isfinite(federation._leaks["leak_server_total"]).all()


def test_who_takes_part_differs_between_rounds_and_replicas(make_request):
    request = make_request("sampled", n_clients=10, replicas=2, **{**UNEQUAL, "mi_budget": 4000.0})
    drawn = []
    for replica in range(2):
        federation = Federation(request, replica)
        federation.budgets = np.array([50.0] * 5 + [100.0] * 5)
        for federation.round in range(6):
            drawn.append(tuple(federation.noise().present))
    assert len(set(drawn)) > 6


def test_dirichlet_split_is_an_option(make_request):
    even, skewed = (make_request("none", split=split, concentration=0.05) for split in ("iid", "dirichlet"))
    labels = torch.from_numpy(even.dataset.members(0).labels)
    kinds = [
        np.mean([len(labels[held].unique()) for held in Federation(request, 0).held]) for request in (even, skewed)
    ]
    assert kinds[1] < kinds[0]


def test_divergence_is_told_and_counts_as_guessing(make_request):
    result = train_federation(make_request("none", learning_rate=100.0, communication_rounds=10, local_epochs=20))
    assert result.rows[["metric", "value"]].to_numpy().tolist() == [["final_accuracy", 0.25], ["diverged", 1.0]]
    assert np.isnan(result.parameters).all()


def test_curves_have_the_first_and_the_last_round(make_request):
    rows = train_federation(make_request("client", communication_rounds=9, evaluations=3)).rows
    assert rows[rows["metric"] == "test_accuracy"]["communication_round"].tolist() == [1, 5, 9]
    assert value_of(train_federation(make_request("client", communication_rounds=1, evaluations=3)), "final_loss") > 0


WIDE = {"max_param_norm": 1e3, "learning_rate": 1e-9}  # nothing is clipped, and nothing is learned


def noise_of_round(federation: Federation, number: int) -> torch.Tensor:
    """What the uploads of a round hold beside what the server sent, in units of its standard deviation."""
    federation.round = number
    asked = federation.noise()
    uploads, _ = federation._uploads(range(6), asked)
    noise = (uploads - federation.parameters).double()
    return noise / torch.from_numpy(asked.client_std)[:, None]


def test_noise_of_clients_and_rounds_is_independent(make_request):
    """Six clients, two rounds, two replicas: 24 vectors of about 33,000 standard normal numbers, 276 pairs."""
    request = make_request("client", replicas=2, **WIDE)
    drawn = torch.cat([noise_of_round(Federation(request, replica), n) for replica in range(2) for n in range(2)])
    correlations = torch.corrcoef(drawn).numpy()
    # Six standard errors: false alarm 6e-7 over all pairs.
    assert np.abs(correlations - np.eye(24)).max() < 6 / math.sqrt(drawn.shape[1])
    np.testing.assert_allclose(drawn.std(dim=1), 1.0, rtol=0.05)


def test_noise_of_the_server_is_independent_from_round_to_round(make_request):
    federation = Federation(make_request("server", **WIDE), 0)
    sent, std = [federation.parameters], federation.noise().server_std
    while federation.advance() and len(sent) < 4:
        sent.append(federation.parameters)
    steps = [(after - before).double() for before, after in itertools.pairwise(sent)]
    assert len(steps) == 3
    for one, two in itertools.combinations(steps, 2):
        # Five standard errors of a correlation: false alarm 6e-7 each.
        assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1].item()) < 5 / math.sqrt(len(one))
        assert abs(one.std().item() / std - 1) < 0.05


LABELS = np.repeat(np.arange(10), 100)


@given(st.integers(1, 20), st.integers(1, 50), st.sampled_from([None, 0.05, 0.5, 100.0]), st.integers(0, 1000))
def test_clients_hold_equally_many_records_and_share_none(n_clients, records, concentration, seed):
    held = split_records(LABELS, n_clients, records, np.random.default_rng(seed), concentration)
    assert held.shape == (n_clients, records)
    assert len(np.unique(held)) == n_clients * records


def test_more_records_than_there_are_members_are_refused():
    with pytest.raises(ValueError, match="20 clients with 51 records each need 1020 members, there are 1000"):
        split_records(LABELS, 20, 51, np.random.default_rng(0), None)
