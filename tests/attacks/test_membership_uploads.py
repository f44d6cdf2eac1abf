"""What a server learns about membership from uploads: it succeeds where it should, and nowhere else."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from leakbound.attacks.attack_request import AttackRequest
from leakbound.attacks.membership.upload_attack import infer_from_uploads, scored_uploads
from leakbound.channels.channel import GaussianChannel
from leakbound.config.attacks import UploadMembershipConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.defenses import DPSGD, ChannelDefense, Undefended
from leakbound.config.training import TrainingConfig
from leakbound.datasets import prepare
from leakbound.training import TrainingRequest, stack_training, train, upload_scores
from leakbound.training.client_steps import record_gradients
from leakbound.training.request import Slot, UploadScoring, initial_network

CONFIG = UploadMembershipConfig(candidates=150, known=50, public=300)


@pytest.fixture(scope="module")
def digits():
    return prepare("digits", DatasetConfig(members=400, validation=50, test=50, aux=500, side=8), seed=0)


def asked(dataset, *, rounds=200, rate=0.02, **changes):
    """The training of a perceptron."""
    values = {"model": "mlp", "defense": Undefended(), "level": None, "batch_size": 8, "slug": "digits/mlp/test"}
    config = TrainingConfig(evaluations=1)
    return TrainingRequest(
        dataset=dataset, rounds=rounds, learning_rates=(rate,), config=config, seed=0, **(values | changes)
    )


def attacked(request, config=CONFIG):
    """Rows and arrays of the attack on all networks of a request."""
    rates = [(slot.replica, slot.learning_rate, True) for slot in request.slots]
    networks = scored_uploads(request, pd.DataFrame(rates, columns=["replica", "learning_rate", "chosen"]), config)
    known = {"model": request.model, "dataset": request.dataset, "config": config, "seed": 0, "slug": "run"}
    replicas = range(request.replicas)
    return infer_from_uploads(AttackRequest(**known, replicas=replicas, weights=networks.weights))


def estimate(rows, variant, metric="auc"):
    return rows[(rows["variant"] == variant) & (rows["metric"] == metric)].iloc[0]


def noisy(std, planted=None):
    """A request's changes for a natural channel, and those for one that adds other noise than it states."""
    variances = np.full(64, (std if planted is None else planted) ** 2)
    channel = GaussianChannel("natural", 5.0, variances)
    return {"defense": ChannelDefense(shape="natural"), "level": 5.0, "channel": channel}


def test_members_are_recognised_from_the_uploads_of_plain_sgd_and_not_by_the_plain_inner_product(digits):
    rows, arrays = attacked(asked(digits))
    assert estimate(rows, "likelihood").value >= 0.99
    assert estimate(rows, "plain").value < 0.75
    control = estimate(rows, "nonmembers")
    assert control.low < 0.5 < control.high
    assert arrays["likelihood_members"].shape == (1, 150)


def test_a_training_that_holds_none_of_the_candidates_shows_chance(digits, monkeypatch):
    """The server scores records that no client holds, as members and non-members at random."""
    request, init = asked(digits), upload_scores.UploadScores.__init__
    others = np.random.default_rng(0).permutation(np.setdiff1d(range(len(digits.pool)), digits.parts(0).members))

    def elsewhere(scores, inner, scoring, *rest):
        rows = others[: len(scoring.rows[0])]
        init(scores, inner, replace(scoring, rows={0: rows}), *rest)

    monkeypatch.setattr(upload_scores.UploadScores, "__init__", elsewhere)
    found = estimate(attacked(request)[0], "likelihood")
    assert found.low < 0.5 < found.high


def test_noise_hides_members_the_more_the_stronger_it_is(digits):
    channels = [estimate(attacked(asked(digits, **noisy(std)))[0], "likelihood").value for std in (0.3, 3.0, 30.0)]
    clipped = [
        estimate(attacked(asked(digits, defense=DPSGD(), level=level))[0], "likelihood").value
        for level in (0.05, 1.0, 30.0)
    ]
    for areas in (channels, clipped):
        assert areas[0] > areas[1] > areas[2]
        assert areas[2] < 0.6  # 150 against 150 records: three standard errors above chance


def test_a_channel_or_dp_without_the_noise_that_it_states_is_seen(digits):
    """The server counts with the noise that is stated, and recognises more than it would allow."""
    stated = [attacked(asked(digits, **noisy(3.0)))[0], attacked(asked(digits, defense=DPSGD(), level=1.0))[0]]
    planted = [
        attacked(asked(digits, **noisy(3.0, planted=1e-6)))[0],
        attacked(asked(digits, defense=DPSGD(), level=0.0))[0],
    ]
    for sound, broken in zip(stated, planted, strict=True):
        assert estimate(broken, "likelihood").low > estimate(sound, "likelihood").high


def test_filter_by_outer_products_is_that_of_explicit_gradients(digits):
    """δᵀ B⁻¹ G A⁻¹ f over the norm, with one gradient for each record and B ⊗ A inverted as one matrix."""
    generator = torch.Generator().manual_seed(0)
    slopes, inputs = (torch.randn(20, size, generator=generator, dtype=torch.float64) for size in (3, 5))
    total = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    of_slopes, of_inputs = (rows.T @ rows / 20 + torch.eye(rows.shape[1]).double() for rows in (slopes, inputs))
    inverses = torch.linalg.inv(of_slopes), torch.linalg.inv(of_inputs)
    found = upload_scores.filtered(total, slopes, inputs, slopes @ inverses[0], inputs @ inverses[1])
    gradients = torch.einsum("no,ni->noi", slopes, inputs).flatten(1)
    dense = torch.linalg.inv(torch.kron(of_slopes, of_inputs))
    norms = ((gradients @ dense) * gradients).sum(1).sqrt()
    torch.testing.assert_close(found[0], gradients @ dense @ total.flatten() / norms, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found[1], norms, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("level", [None, 0.0], ids=["plain SGD", "clipped"])
def test_plain_scores_of_one_step_are_inner_products_with_the_clients_own_gradients(digits, level):
    """Gradients record by record, clipped where the defense clips, and the sum over the members of the batch."""
    defense = Undefended() if level is None else DPSGD()
    request = asked(digits, rounds=1, defense=defense, level=level)
    rows = digits.parts(0).members[:40]
    found = train(replace(request, scoring=UploadScoring({0: rows}, 100, 1))).scores[0, -1]
    network = initial_network(request, 0)
    images, labels = (torch.from_numpy(part[rows]) for part in (digits.pool.images, digits.pool.labels))
    gradients = record_gradients(network, images, labels)
    own = torch.cat([gradients["fc1.weight"], gradients["fc1.bias"][..., None]], dim=2).flatten(1)
    after = train(request).weights
    weights = {name: value.detach() for name, value in network.named_parameters()}
    sent = {name: 8 * (weights[name] - after[name][0]) / 0.02 for name in ("fc1.weight", "fc1.bias")}
    total = torch.cat([sent["fc1.weight"], sent["fc1.bias"][:, None]], dim=1).flatten()
    torch.testing.assert_close(found, own @ total / own.norm(dim=1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("poisson", [False, True], ids=["epochs", "Poisson samples"])
def test_ratios_of_steps_are_weighed_by_how_batches_are_drawn(digits, monkeypatch, poisson):
    """400 members, 6 batches of 80: the sixth begins the second epoch."""
    defense, level = (DPSGD(), 1.0) if poisson else (Undefended(), None)
    ratios = torch.randn(6, 5, 40, generator=torch.Generator().manual_seed(0)) * 3
    steps, add = iter(ratios), upload_scores.UploadScores._add_ratios
    monkeypatch.setattr(
        upload_scores.UploadScores, "_add_ratios", lambda self, slot, _, records: add(self, slot, next(steps), records)
    )
    scoring = UploadScoring({0: digits.parts(0).members[:40]}, 100, 1)
    request = asked(digits, rounds=6, batch_size=80, defense=defense, level=level, scoring=scoring)
    found = train(request).scores[0, :-1]
    if poisson:
        expected = torch.log(4 / 5 + ratios.exp() / 5).sum(0)
    else:
        expected = (ratios[:5].exp() / 5).sum(0).log() + torch.log(ratios[5].exp() / 5 + 4 / 5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_scores_have_the_same_bytes_after_an_interruption_and_change_no_training(digits, monkeypatch, tmp_path):
    scoring = UploadScoring({0: digits.parts(0).members[:40]}, 100, 3, draws=2)
    request = asked(digits, rounds=10, model="cnn", scoring=scoring, **noisy(1.0))
    whole = train(request)
    saved = replace(
        request,
        checkpoint=tmp_path / "checkpoint.pt",
        config=request.config.model_copy(update={"checkpoint_seconds": 0.0}),
    )
    advance, steps = stack_training.StackTraining.advance, iter(range(7))

    def interrupted(training, bar):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return advance(training, bar)

    monkeypatch.setattr(stack_training.StackTraining, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(saved)
    monkeypatch.setattr(stack_training.StackTraining, "advance", advance)
    resumed, plain = train(saved), train(replace(request, scoring=None))
    assert torch.equal(resumed.scores, whole.scores)
    assert all(torch.equal(whole.weights[name], plain.weights[name]) for name in plain.weights)
    assert plain.scores is None


def test_diverged_networks_have_no_scores(digits):
    rows, arrays = attacked(asked(digits, rate=1e30, rounds=10))
    assert estimate(rows, "likelihood").status == "diverged"
    assert math.isnan(estimate(rows, "likelihood").value)
    assert np.isnan(arrays["likelihood_members"]).any()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"candidates": 300}, "200 of each kind"), ({"public": 501}, "500 auxiliary records")],
)
def test_more_records_than_there_are_are_refused_before_the_training(digits, changes, words):
    with pytest.raises(ValueError, match=words):
        attacked(asked(digits), CONFIG.model_copy(update=changes))
