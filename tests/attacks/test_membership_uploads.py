"""What a server learns about membership from uploads: it succeeds where it should, and nowhere else."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from asking import attack_of, resumed, training_of
from leakbound.accounting.dp import epsilon
from leakbound.accounting.lower_limits import evidence
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.sampling import ChannelSampler
from leakbound_lab.attacks.membership.upload_attack import infer_from_uploads, scored_uploads
from leakbound_lab.config.attacks import UploadMembershipConfig
from leakbound_lab.config.defenses import DPMF, DPSGD, ChannelDefense, ChannelDPSGD, Undefended
from leakbound_lab.datasets import Drawing, ImageDataset, Split
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.models.small import MLP
from leakbound_lab.registries import MODELS
from leakbound_lab.training import UntrainableError, loop, train, upload_scores
from leakbound_lab.training.correlated import CorrelatedLearner
from leakbound_lab.training.participation import ParticipationRatios, by_bulk, classes_of
from leakbound_lab.training.request import UploadScoring, initial_network
from leakbound_lab.training.whitening import Whitening, axes_of_few, inner_products

CONFIG = UploadMembershipConfig(candidates=150, calibration=50, public=300)


@pytest.fixture(scope="module")
def scenes():
    """Noisy images of two classes, of which each is far from all others."""
    generator = np.random.default_rng(0)
    labels = np.arange(1600) % 2
    images = generator.uniform(-1, 1, (1600, 1, 16, 16)).astype(np.float32) / 2 + labels[:, None, None, None] / 4
    pool, aux = (Split(images[part].astype(np.float32), labels[part]) for part in (slice(600, None), slice(600)))
    return ImageDataset("scenes", ("a", "b"), pool, aux, aux, Drawing(members=400, validation=50, seed=0))


def asked(dataset, **changes):
    """The training of a perceptron."""
    return training_of(dataset, **{"rounds": 100, "rate": 0.02, "batch_size": 16} | changes)


def attacked(request, config=CONFIG):
    """Rows and arrays of the attack on all networks of a request."""
    rates = [(slot.replica, slot.learning_rate, True) for slot in request.slots]
    networks = scored_uploads(request, pd.DataFrame(rates, columns=["replica", "learning_rate", "chosen"]), config)
    replicas = range(request.replicas)
    return infer_from_uploads(
        attack_of(request.dataset, config, request.model, replicas=replicas, weights=networks.weights)
    )


def estimate(rows, variant, metric="auc"):
    return rows[(rows["variant"] == variant) & (rows["metric"] == metric)].iloc[0]


def noisy(std):
    """A request's changes for a natural channel."""
    channel = GaussianChannel("natural", 5.0, np.full(256, std**2))
    return {"defense": ChannelDefense(shape="natural"), "level": 5.0, "channel": channel}


def test_members_are_recognised_from_the_uploads_of_plain_sgd_and_not_by_the_plain_inner_product(scenes):
    rows, arrays = attacked(asked(scenes))
    assert estimate(rows, "likelihood").value >= 0.99
    assert estimate(rows, "plain").low < 0.5
    control = estimate(rows, "nonmembers")
    assert control.low < 0.5 < control.high
    assert arrays["likelihood_members"].shape == (1, 150)


def test_a_training_that_holds_none_of_the_candidates_shows_chance(scenes, monkeypatch):
    """The server scores records that no client holds, as members and non-members at random."""
    request, init = asked(scenes), upload_scores.UploadScores.__init__
    others = np.random.default_rng(0).permutation(np.setdiff1d(range(len(scenes.pool)), scenes.parts(0).members))

    def elsewhere(scores, inner, scoring, *rest):
        rows = others[: len(scoring.rows[0])].tolist()
        init(scores, inner, replace(scoring, rows={0: rows}), *rest)

    monkeypatch.setattr(upload_scores.UploadScores, "__init__", elsewhere)
    found = estimate(attacked(request)[0], "likelihood")
    assert found.low < 0.5 < found.high


@pytest.mark.no_shapes
def test_noise_hides_members_the_more_the_stronger_it_is(scenes):
    """Against 150 others, chance ends at .5 + 2 standard errors of .033."""
    channels = [asked(scenes, **noisy(std)) for std in (0.1, 0.5, 3.0)]
    clipped = [asked(scenes, defense=DPSGD(), level=level) for level in (0.05, 0.3, 30.0)]
    for requests in (channels, clipped):
        areas = [estimate(attacked(request)[0], "likelihood").value for request in requests]
        assert areas[0] > areas[1] > areas[2]
        assert areas[2] < 0.57


@pytest.mark.parametrize("changes", [noisy(0.5), {"defense": DPSGD(), "level": 0.3}], ids=["channel", "DP-SGD"])
def test_gradients_of_candidates_in_bfloat16_recognise_as_many_members(scenes, changes):
    """Others are another 150 records than members, so AUCs have a standard error of .033."""
    short = CONFIG.model_copy(update={"precision": "bfloat16"})
    (whole, scores), (halved, rounded) = (attacked(asked(scenes, **changes), config) for config in (CONFIG, short))
    areas = [estimate(rows, "likelihood").value for rows in (whole, halved)]
    assert areas[1] == pytest.approx(areas[0], abs=0.01)
    assert not np.array_equal(scores["likelihood_members"], rounded["likelihood_members"])
    assert rounded["likelihood_members"].dtype == scores["likelihood_members"].dtype


@pytest.mark.slow
def test_correlated_noise_hides_members_the_more_the_stronger_it_is(scenes):
    """Chance as above. 25 steps are an epoch of 400 members, and noise is summed over eight of them."""
    requests = [asked(scenes, defense=DPMF(bands=8), level=level) for level in (0.05, 0.3, 60.0)]
    areas = [estimate(attacked(request)[0], "likelihood").value for request in requests]
    assert areas[0] > areas[1] > areas[2]
    assert areas[0] > 0.8
    assert areas[2] < 0.57


@pytest.mark.no_shapes
def test_either_noise_of_dp_behind_a_channel_hides_members(scenes):
    """An attacker against a quarter of either noise is certainly better: intervals of 95 %."""
    both = {"defense": ChannelDPSGD(capacity=5.0)}
    found, less_on_images, less_on_gradients = (
        estimate(attacked(asked(scenes, **noisy(std) | both | {"level": level}))[0], "likelihood")
        for std, level in ((0.4, 0.1), (0.1, 0.1), (0.4, 0.025))
    )
    assert 0.5 < found.low < found.high < min(less_on_images.low, less_on_gradients.low)


@pytest.mark.no_shapes
def test_half_of_a_channels_noise_is_seen(scenes, monkeypatch):
    sound = estimate(attacked(asked(scenes, **noisy(0.6)))[0], "likelihood")
    drawn = ChannelSampler._shaped
    monkeypatch.setattr(ChannelSampler, "_shaped", lambda *arguments: drawn(*arguments) / 2)
    assert estimate(attacked(asked(scenes, **noisy(0.6)))[0], "likelihood").low > sound.high


def test_forgotten_noise_of_dp_proves_more_than_the_accountant_allows(scenes, monkeypatch):
    request = asked(scenes, defense=DPSGD(), level=5.0)
    bounds = {"record": math.nan, "epsilon": epsilon(train(request).events[0], 1e-5), "delta": 1e-5}

    def limit():
        rows = attacked(request)[0].assign(chosen=True)
        return evidence({"membership_uploads": rows}, leakage={"replica": bounds})[0]

    assert not limit().alarming
    silent = "opacus.optimizers.optimizer_fast_gradient_clipping._generate_noise"
    monkeypatch.setattr(silent, lambda **arguments: torch.zeros_like(arguments["reference"]))
    found = limit()
    assert (found.release, found.quantity, found.trials) == ("uploads", "epsilon", 142)  # pairs of one class
    assert found.alarming


def test_filter_by_outer_products_is_that_of_explicit_gradients():
    """δᵀ B⁻¹ G A⁻¹ f and the squared norm, with a gradient for each record and B ⊗ A inverted as one matrix."""
    generator = torch.Generator().manual_seed(0)
    slopes, inputs = (torch.randn(20, size, generator=generator, dtype=torch.float64) for size in (3, 5))
    total = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    of_slopes, of_inputs = (rows.T @ rows / 20 + torch.eye(rows.shape[1]).double() for rows in (slopes, inputs))
    inverses = torch.linalg.inv(of_slopes), torch.linalg.inv(of_inputs)
    seen = inputs, inputs @ inverses[1], ((inputs @ inverses[1]) * inputs).sum(1)
    plain, found = inner_products(total, slopes, seen, Whitening(*inverses, None))
    gradients = torch.einsum("no,ni->noi", slopes, inputs).flatten(1)
    dense = torch.linalg.inv(torch.kron(of_slopes, of_inputs))
    expected = torch.stack([gradients @ dense @ total.flatten(), ((gradients @ dense) * gradients).sum(1)])
    torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(plain, gradients @ total.flatten(), rtol=1e-10, atol=1e-10)


def explicit(network, records, clips=True):
    """Slopes and inputs of both layers of a perceptron for each record, whose products are gradients, in float64."""
    images, labels = (torch.from_numpy(part) for part in (records.images, records.labels))
    gradients = record_gradients(network, images, labels)
    squares = [value.flatten(1).square().sum(1) for value in gradients.values()]
    weights = (1 / torch.stack(squares).sum(0).sqrt()).clamp(max=1.0)[:, None].double() if clips else 1.0
    seen = {"fc1": images.flatten(1), "head": network.features(images).detach()}
    factors = {}
    for name, inputs in seen.items():
        ones = torch.cat([inputs, torch.ones(len(labels), 1)], dim=1).double()
        factors[name] = weights * gradients[f"{name}.bias"].double(), ones
    return factors


@pytest.mark.parametrize("shape", [(40, 90), (40, 600), (5, 30)])
def test_axes_of_fewer_rows_than_values_are_those_of_the_whole_matrix_of_moments(shape):
    """Where moments are 0 the axes are free, so both are compared where they count: in the weighted projections."""
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(3)) * torch.linspace(0.1, 3.0, shape[1])
    rows[1] = rows[0]  # fewer axes than rows
    axes, squares = axes_of_few(rows)
    moments = rows.double().T @ rows.double() / len(rows)
    weighed = (axes.double() * (squares / (squares + 0.7))) @ axes.double().T
    expected = moments @ torch.linalg.inv(moments + 0.7 * torch.eye(shape[1], dtype=torch.float64))
    torch.testing.assert_close(weighed, expected, rtol=1e-5, atol=1e-5)
    assert int((squares == 0).sum()) == 1


def test_ratios_behind_noise_on_gradients_are_those_of_an_explicit_covariance_of_all_layers(scenes):
    """Two steps with images of 16 pixels. The covariance B ⊗ A of others and noise is inverted as one matrix."""
    parts = {"pool": scenes.pool, "aux": scenes.aux, "test": scenes.test}
    cut = {name: Split(part.images[..., :4, :4].copy(), part.labels) for name, part in parts.items()}
    small = replace(scenes, **cut)
    request = asked(small, rounds=2, defense=DPSGD(), level=0.5)
    config = request.config.model_copy(update={"momentum": 0.0})
    rows = small.parts(0).members[:40]
    request = replace(request, config=config, scoring=UploadScoring({0: rows.tolist()}, 600, 1))
    labels = torch.from_numpy(small.pool.labels[rows])
    trained = [train(replace(request, rounds=rounds, scoring=None)).weights for rounds in (1, 2)]
    network, share, noise = initial_network(request, 0), 16 / 400, 0.25 / 16
    sums, ratios, means, variances = torch.zeros(2, 2, 40).double(), 0.0, torch.zeros(40), torch.ones(40)

    def centred(scores, norms):
        scores = scores.clone()
        for label in (0, 1):
            scores[labels == label] -= scores[labels == label].median()
        return scores / (1.4826 * scores.abs().median()), norms / (1.4826 * scores.abs().median())

    others = explicit(network, small.aux)  # moments are estimated anew after ten steps
    moments = {name: [part.T @ part / 600 for part in pair] for name, pair in others.items()}
    for after in trained:
        candidates = explicit(network, small.pool.take(rows))
        before = {name: value.detach().clone() for name, value in network.named_parameters()}
        step = torch.zeros(2, 2, 40).double()
        for name, (slopes, inputs) in candidates.items():
            sent = [before[f"{name}.{part}"] - after[f"{name}.{part}"][0] for part in ("weight", "bias")]
            total = 16 / 0.02 * torch.cat([sent[0], sent[1][:, None]], dim=1).double().flatten()
            gradients = torch.einsum("no,ni->noi", slopes, inputs).flatten(1)
            for number, weight in enumerate((4.0, 100.0)):
                covariance = weight * torch.kron(*moments[name]) + noise * torch.eye(len(total)).double()
                whitened = noise * torch.linalg.solve(covariance, gradients.T).T
                step[number] += torch.stack([whitened @ total, (whitened * gradients).sum(1)])
        sums += step
        scores, norms = centred(step[0, 0] / step[0, 1].sqrt(), step[0, 1].sqrt())
        means = 0.98 * means + 0.02 * scores.clamp(-3, 3)
        variances = 0.98 * variances + 0.02 * (scores - means).clamp(-3, 3).square()
        scores, norms = (scores - means) / variances.sqrt(), norms / variances.sqrt()
        ratios = ratios + torch.log1p(share * torch.expm1(norms * (scores - norms / 2)))
        network.load_state_dict({name: value[0] for name, value in after.items()})
    scores, norms = centred(sums[1, 0] / sums[1, 1].sqrt(), share * sums[1, 1].sqrt())
    found = train(request).scores[0, len(upload_scores.SHARES) - 1].double()
    torch.testing.assert_close(found, ratios + norms * (scores - norms / 2), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("level", [None, 0.0], ids=["plain SGD", "clipped"])
def test_plain_scores_of_one_step_are_inner_products_with_the_clients_own_gradients(scenes, level):
    """Gradients record by record, clipped where the defense clips, and the sum over the members of the batch."""
    defense = Undefended() if level is None else DPSGD()
    request = asked(scenes, rounds=1, defense=defense, level=level)
    rows = scenes.parts(0).members[:40]
    found = train(replace(request, scoring=UploadScoring({0: rows.tolist()}, 100, 1))).scores[0, -1]
    network = initial_network(request, 0)
    slopes, inputs = explicit(network, scenes.pool.take(rows), clips=level is not None)["fc1"]
    own = torch.einsum("no,ni->noi", slopes, inputs).flatten(1).float()
    after = train(request).weights
    weights = {name: value.detach() for name, value in network.named_parameters()}
    sent = {name: 16 * (weights[name] - after[name][0]) / 0.02 for name in ("fc1.weight", "fc1.bias")}
    total = torch.cat([sent["fc1.weight"], sent["fc1.bias"][:, None]], dim=1).flatten()
    torch.testing.assert_close(found, own @ total, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("poisson", [False, True], ids=["epochs", "Poisson samples"])
def test_ratios_of_steps_are_weighed_by_how_batches_are_drawn(scenes, monkeypatch, poisson):
    """400 members, 6 batches of 80: the sixth begins the second epoch."""
    defense, level = (DPSGD(), 0.0) if poisson else (Undefended(), None)
    ratios = torch.randn(6, 5, 40, generator=torch.Generator().manual_seed(0)) * 3
    steps, add = iter(ratios), ParticipationRatios.add
    monkeypatch.setattr(
        ParticipationRatios, "add", lambda self, slot, _, records: add(self, slot, next(steps), records)
    )
    scoring = UploadScoring({0: scenes.parts(0).members[:40].tolist()}, 100, 1)
    request = asked(scenes, rounds=6, batch_size=80, defense=defense, level=level, scoring=scoring)
    found = train(request).scores[0, :-1]
    if poisson:
        expected = torch.log(4 / 5 + ratios.exp() / 5).sum(0)
    else:
        expected = (ratios[:5].exp() / 5).sum(0).log() + torch.log(ratios[5].exp() / 5 + 4 / 5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("arm", [noisy(1.0), {"defense": DPSGD(), "level": 1.0}], ids=["copies", "gradients"])
def test_scores_have_the_same_bytes_after_an_interruption_and_change_no_training(
    scenes, monkeypatch, tmp_path, caplog, arm
):
    scoring = UploadScoring({0: scenes.parts(0).members[:40].tolist()}, 100, 3, draws=2)
    request = asked(scenes, rounds=10, model="cnn", scoring=scoring, **arm)
    whole = train(request)
    saved = replace(request, checkpoint=tmp_path / "checkpoint.pt")
    ended, _ = resumed(monkeypatch, loop.StackTraining, "advance", 7, lambda: train(saved))
    plain = train(replace(request, scoring=None))
    assert "starts from scratch" not in caplog.text
    assert torch.equal(ended.scores, whole.scores)
    torch.testing.assert_close(whole.weights, plain.weights, rtol=0, atol=0)
    assert plain.scores is None


def test_a_network_without_a_layer_that_can_be_scored_is_refused_by_name_before_a_step(scenes, monkeypatch):
    class Normed(MLP):
        """Weights of its layers are not parameters."""

        def __init__(self, colors, classes, size):
            super().__init__(colors, classes, size)
            self.fc1, self.head = map(nn.utils.parametrizations.weight_norm, (self.fc1, self.head))

    monkeypatch.setitem(MODELS._entries, "normed", Normed)
    monkeypatch.setattr(loop.StackTraining, "advance", lambda *arguments: pytest.fail("a step was taken"))
    with pytest.raises(UntrainableError, match="normed: trains no linear layer that sees each record once"):
        attacked(asked(scenes, model="normed"))


def test_records_without_gradient_do_not_hide_the_others(scenes):
    """At this rate all units are soon off for most records."""
    best = estimate(attacked(asked(scenes, rate=10.0))[0], "likelihood")
    assert best.status == ""
    assert best.value > 0.7


@pytest.mark.parametrize("defense", [{}, {"defense": DPSGD(), "level": 1.0}], ids=["plain SGD", "noise"])
def test_diverged_networks_have_no_scores(scenes, defense):
    rows, arrays = attacked(asked(scenes, rate=1e30, rounds=10, **defense))
    assert estimate(rows, "likelihood").status == "diverged"
    assert math.isnan(estimate(rows, "likelihood").value)
    assert np.isnan(arrays["likelihood_members"]).any()


def correlated(scenes, bands, **changes):
    """A short training with correlated noise, of whose members and others some are scored."""
    rows = {0: [*scenes.parts(0).members[:30].tolist(), *range(30)]}
    changes = {"scoring": UploadScoring(rows, 100, 1), "rounds": 12} | changes
    return asked(scenes, defense=DPMF(bands=bands), level=0.3, **changes)


def test_both_views_of_uploads_are_one_where_noise_is_independent(scenes):
    """C = I, for which the filter changes nothing; with more bands it does."""
    summed, as_sent = train(correlated(scenes, 1)).scores[0, :-1].chunk(2)
    assert torch.equal(summed, as_sent)
    summed, as_sent = train(correlated(scenes, 4)).scores[0, :-1].chunk(2)
    assert not torch.allclose(summed, as_sent, rtol=0.1)


def test_scores_behind_correlated_noise_go_on_after_an_interruption(scenes, tmp_path, monkeypatch):
    whole = train(correlated(scenes, 4)).scores
    request = correlated(scenes, 4, checkpoint=tmp_path / "checkpoint")
    result, _ = resumed(monkeypatch, CorrelatedLearner, "step", 8, lambda: train(request))
    assert torch.equal(result.scores, whole)
    with pytest.raises(ValueError, match="window = 2: uploads of dpmf are scored one by one"):
        train(correlated(scenes, 4, scoring=replace(request.scoring, window=2)))


@pytest.mark.parametrize("broken", [False, True])
def test_scores_are_centred_at_the_lower_median_of_their_class_without_those_of_no_gradient(broken):
    generator = torch.Generator().manual_seed(5)
    labels = torch.tensor([7] * 40 + [2] * 9 + [5] * 2 + [3])[torch.randperm(52, generator=generator)]
    scores = torch.randn(52, generator=generator) + labels
    norms = torch.rand(52, generator=generator) + 0.5
    off = torch.arange(52) % 5 == 0
    norms[off], scores[off] = 0.0, 0.0
    norms[labels == 3] = scores[labels == 3] = 0.0  # a class without any gradient
    if broken:
        scores[1] = math.nan
    medians = {}
    for label in (7, 2, 5):
        of_class = sorted(scores[(labels == label) & (norms > 0)].tolist())
        medians[label] = of_class[(len(of_class) - 1) // 2]
    centred = torch.tensor([s - medians.get(int(y), 0.0) for s, y in zip(scores.tolist(), labels, strict=True)])
    bulk = sorted(centred[norms > 0].abs().tolist())
    deviation = 1.4826 * bulk[(len(bulk) - 1) // 2] if not broken else math.nan
    expected = torch.where(norms > 0, centred / deviation, 0.0), torch.where(norms > 0, norms / deviation, 0.0)
    for value, right in zip(by_bulk(scores, norms, classes_of(labels)), expected, strict=True):
        torch.testing.assert_close(value, right, equal_nan=True)
