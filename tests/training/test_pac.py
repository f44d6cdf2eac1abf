import dataclasses
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.optimize import minimize
from torch import nn

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import run_statements, stated_bounds
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import as_source
from leakbound_lab.attacks.gradient_inversion.map_estimate import MapProblem
from leakbound_lab.attacks.membership.upload_attack import scored_uploads
from leakbound_lab.config.attacks import UploadMembershipConfig
from leakbound_lab.config.defenses import PACPrivacy, Undefended
from leakbound_lab.datasets import Split
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.client_steps import client_step
from leakbound_lab.training.leakage_statement import statement
from leakbound_lab.training.pac import fitted_noise
from leakbound_lab.training.request import initial_network
from leakbound_lab.training.trainers import train

PUBLIC = 60
SMALL = PACPrivacy(public=PUBLIC, groups=20)


def step(digits, level=50.0, defense=SMALL):
    return client_step(defense, level, public=lambda: digits.aux)


def batch(digits, size=8):
    images, labels = digits.pool.images[:size], digits.pool.labels[:size]
    return torch.from_numpy(images)[None], torch.from_numpy(labels)[None]


def flat(gradients):
    return torch.cat([value.flatten().double() for value in gradients.values()])


@pytest.fixture
def network(request_for):
    return initial_network(request_for(model="mlp"), 0)


def test_noise_is_the_published_one():
    """Xiao and Devadas 2023: e = root of λ times the sum of the roots over 2v, of total (sum of the roots)² / 2v."""
    variances, nats = torch.tensor([4.0, 1.0, 0.25, 0.0], dtype=torch.float64), 0.7
    [noise] = fitted_noise([variances], nats)
    assert noise.square().tolist() == pytest.approx([2 * 3.5 / 1.4, 3.5 / 1.4, 0.5 * 3.5 / 1.4, 0.0])
    assert float(noise.square().sum()) == pytest.approx(3.5**2 / 1.4)
    live = variances > 0
    ratios = variances[live] / noise[live] ** 2
    assert float(ratios.sum()) / 2 == pytest.approx(nats)
    assert float(ratios.log1p().sum()) / 2 < nats  # ½ ln det(I + Σ_u Σ⁻¹)


def test_no_other_noise_of_these_nats_has_less_power():
    variances, nats = np.array([9.0, 1.0, 0.04]), 0.3
    [noise] = fitted_noise([torch.from_numpy(variances)], nats)
    limit = {"type": "eq", "fun": lambda logs: (variances / np.exp(logs)).sum() / 2 - nats}
    best = minimize(lambda logs: np.exp(logs).sum(), np.full(3, 3.0), constraints=[limit])
    assert float(noise.square().sum()) == pytest.approx(best.fun, rel=1e-4)


def test_variance_is_that_of_uploads_over_random_halves_of_the_records(digits, network):
    """Halves of A records have means of variance S / A, if S is that of one record."""
    client = step(digits, defense=PACPrivacy(public=PUBLIC, groups=PUBLIC))
    size = 8
    law = client.law(network, dict(network.named_parameters()), size)
    records = (torch.from_numpy(part[:PUBLIC]) for part in (digits.aux.images, digits.aux.labels))
    of_records = torch.stack(
        [flat(dict(enumerate(row))) for row in zip(*record_gradients(network, *records).values(), strict=True)]
    )
    assert torch.allclose(flat(law.mean), of_records.mean(0), atol=1e-6)
    exact = of_records.var(0)
    expected = (1 / size + 1 / PUBLIC) * exact
    assert torch.allclose(flat(law.variance), expected, rtol=1e-3, atol=1e-6 * float(expected.max()))
    largest, draws = exact.topk(200).indices, np.random.default_rng(0)
    seen = of_records[:, largest]
    halves = [seen[draws.permutation(PUBLIC)[: PUBLIC // 2]].mean(0) for _ in range(2000)]
    assert float(torch.stack(halves).var(0).sum()) == pytest.approx(float(exact[largest].sum()) / PUBLIC, rel=0.1)
    few = client_step(SMALL, 50.0, public=lambda: digits.aux).law(network, dict(network.named_parameters()), size)
    assert float(flat(few.variance).sum()) == pytest.approx(float(expected.sum()), rel=0.25)


def sent_by(client, network, images, labels):
    """Upload, and what it is with the same noise if all that depends on the records is left out."""
    uploads = [
        client.upload(network, shown, labels, torch_generator(5, "noise")) for shown in (images, images * math.nan)
    ]
    return uploads[0].upload_law, [{name: value[0] for name, value in upload.gradients.items()} for upload in uploads]


@pytest.mark.parametrize("stretch", [1.0, 1e3])
def test_an_upload_reveals_no_more_than_its_nats_whatever_the_records_are(digits, network, stretch):
    """The divergence of N(mean + difference, Σ) from N(mean, Σ) is half of the squared difference in units of Σ."""
    images, labels = batch(digits)
    law, (sent, empty) = sent_by(step(digits, level=2.0), network, stretch * images, labels)
    difference = flat(law.whitened(sent)) - flat(law.whitened(empty))
    nats = float(difference.square().sum()) / 2
    assert 0.2 * 16 < nats <= 16 * (1 + 1e-4)
    if stretch > 1:
        assert nats == pytest.approx(16, rel=1e-3)


def test_noise_has_its_variance(digits, network):
    images, labels = batch(digits)
    law, (_, empty) = sent_by(step(digits), network, images, labels)
    noise = flat(law.whitened(empty))
    assert float(noise.square().mean()) == pytest.approx(1.0, abs=0.02)


def test_many_nats_leave_the_average_but_for_its_length(digits, network):
    """Half of the squared difference is the nats on average, so that many an upload is shortened, at all levels."""
    images, labels = batch(digits)
    upload = step(digits, level=1e12).upload(network, images, labels, torch_generator(5, "noise"))
    clean = client_step(Undefended(), None).upload(network, images, labels, torch_generator(5, "noise"))
    sent, average = (
        flat({name: value[0] for name, value in each.gradients.items()}) - flat(upload.upload_law.mean)
        for each in (upload, clean)
    )
    share = float(sent.norm() / average.norm())
    assert 0.5 < share <= 1.0
    assert torch.allclose(sent, share * average, atol=1e-5 * float(average.abs().max()))


def test_statement_is_about_all_records_of_the_client_and_not_about_one(request_for):
    request = request_for(model="mlp", rounds=5, defense=SMALL, level=3.0, privacy_noise="secure", replicas=2)
    result = train(request)
    assert {(event.mechanism, event.capacity, event.steps) for event in result.events} == {("pac", 96.0, 5)}
    stated = statement(request, result.events, None, None)
    assert stated["leakage"] is None
    of_one = stated["statement"]["replica"]
    assert (of_one["unit"], of_one["nats"], of_one["label_kind"], of_one["every"]) == ("client", 480.0, "covered", True)
    assert "about one client at most 480 nats for every client, labels included" in of_one["sentence"]
    assert stated["statement"]["replicas"]["nats"] == 960.0
    weights = next(item for item in stated["released"] if item["item"] == "weights")
    assert (weights["covered"], weights["why"]) == (
        False,
        "'pac' bounds all records of the client together, and no single one",
    )


def test_nats_of_the_client_are_mixed_with_no_others():
    event = PrivacyEvent("pac", "shuffled", 100, 10, steps=4, uses=1, capacity=7.0, noise="fresh")
    channel = dataclasses.replace(event, mechanism="channel", shape="natural")
    assert run_statements([event, channel], np.ones(3), labels=0.0, secure=True) is None
    assert stated_bounds([event], labels=0.0) is None


@pytest.mark.parametrize(("level", "low", "high"), [(0.1, 0.35, 0.65), (3000.0, 0.7, 1.0)])
def test_the_server_recognises_members_only_where_the_nats_are_many(request_for, level, low, high):
    """A control: next to no nats leave nothing to see, and many as much as no defense."""
    request = request_for(model="mlp", rounds=60, batch_size=32, defense=SMALL, level=level, learning_rates=(0.002,))
    config = UploadMembershipConfig(candidates=100, calibration=20, public=100)
    scores = scored_uploads(request, train(request).rates, config).weights["scores"][0, 3]
    members, others = scores[40:140], scores[140:240]
    assert low < float((members[:, None] > others).double().mean()) < high


def test_attackers_compare_uploads_in_units_of_the_noise(digits, network):
    images, labels = batch(digits, 1)
    upload = step(digits, level=1e10).upload(network, images, labels, torch_generator(5, "noise"))
    problem = MapProblem(network, step(digits), upload.gradients, labels, (1, 32, 32), upload.upload_law)
    assert problem.noise == 1.0
    assert float(problem.differences(images).norm()) < 2e-3 < float(problem.differences(-images).norm())
    assert problem.to(torch.float64).flat.dtype == torch.float64


def small_images(records, stretch=1.0):
    """Images of 8 x 8 pixels, on which a softmax regression has 650 parameters."""
    return Split(stretch * np.ascontiguousarray(records.images[:, :, ::4, ::4]), records.labels)


def softmax_gradients(weights, records):
    """Gradients (n, 650) of the cross-entropy of a softmax regression in closed form, (p - y) times the inputs."""
    matrix, offset = weights[:640].reshape(10, 64), weights[640:]
    inputs = records.images.reshape(len(records), 64).astype(float)
    logits = inputs @ matrix.T + offset
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    slopes = odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[records.labels]
    return np.hstack([(slopes[:, :, None] * inputs[:, None]).reshape(len(records), -1), slopes])


def measured(weights, public, groups, size, nats):
    """Mean of an upload, variance of its difference from that of public records, and variance of the noise."""
    gradients = softmax_gradients(weights, public).reshape(groups, -1, len(weights))
    of_record = gradients.shape[1] * gradients.mean(axis=1).var(axis=0, ddof=1)
    variance = of_record / size + of_record / len(public)
    roots = np.sqrt(variance + 1e-3 * variance.mean())
    return gradients.mean(axis=(0, 1)), variance, roots * roots.sum() / (2 * nats)


def softmax_step(digits, size, nats):
    """Step on small images, its network, public records and weights in one row."""
    public = small_images(Split(digits.aux.images[:PUBLIC], digits.aux.labels[:PUBLIC]))
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    weights = flat(dict(network.named_parameters())).detach().numpy()
    return client_step(SMALL, nats / size, public=lambda: public), network, public, weights


def shaped(weights):
    row = torch.from_numpy(weights).float()
    return {"1.weight": row[:640].view(10, 64), "1.bias": row[640:]}


def test_published_bound_over_random_halves_is_within_the_nats(digits):
    """½ ln det(I + Σ_u Σ⁻¹) with all covariances, at most ½ Σ ln(1 + λ/σ²) of Hadamard, at most the nats."""
    size, nats = PUBLIC // 2, 3.0
    client, network, public, weights = softmax_step(digits, size, nats)
    law = client.law(network, dict(network.named_parameters()), size)
    mean, variance, noise = measured(weights, public, SMALL.groups, size, nats)
    assert flat(law.mean).numpy() == pytest.approx(mean, abs=1e-6)
    assert flat(law.variance).numpy() == pytest.approx(variance, rel=1e-3, abs=1e-6 * variance.max())
    assert flat(law.std).numpy() ** 2 == pytest.approx(noise, rel=1e-3)
    draws, gradients = np.random.default_rng(1), softmax_gradients(weights, public)
    halves = np.stack([gradients[draws.permutation(PUBLIC)[:size]].mean(axis=0) for _ in range(800)])
    seen = (halves - halves.mean(axis=0)) / np.sqrt(noise)
    joint = np.linalg.slogdet(np.eye(len(noise)) + seen.T @ seen / len(seen))[1] / 2
    single = np.log1p(seen.var(axis=0)).sum() / 2
    assert 0.1 * nats < joint < single < nats


@pytest.mark.no_shapes
@pytest.mark.parametrize("stretch", [1.0, 1e3])
def test_what_a_perfect_reader_learns_of_the_half_adds_up_to_no_more_than_all_uploads_state(digits, stretch):
    """Which of 16 random halves a client holds, by Bayes' rule from uploads at weights that depend on earlier ones."""
    size, nats, rounds, clients = 8, 0.4, 3, 120
    client, network, public, start = softmax_step(digits, size, nats)
    records = small_images(Split(digits.pool.images[: 2 * size], digits.pool.labels[: 2 * size]), stretch)
    draws, source = np.random.default_rng(2), torch_generator(5, "noise")
    halves = [draws.permutation(2 * size)[:size] for _ in range(16)]
    learned = np.zeros((clients, rounds))
    for one in range(clients):
        held, weights, logs = draws.integers(len(halves)), start, np.zeros(len(halves))
        for turn in range(rounds):
            gradients = softmax_gradients(weights, records)
            averages = np.stack([gradients[half].mean(axis=0) for half in halves])
            law = client.law(network, shaped(weights), size)
            sent = flat(client.noisy_upload(shaped(averages[held]), law, as_source(source))).numpy()
            mean, _, noise = measured(weights, public, SMALL.groups, size, nats)
            expected = (averages - mean) / np.sqrt(noise)
            lengths = np.linalg.norm(expected, axis=1, keepdims=True)
            expected *= np.minimum(1.0, math.sqrt(2 * nats) / lengths)
            logs -= np.square((sent - mean) / np.sqrt(noise) - expected).sum(axis=1) / 2
            learned[one, turn] = logs[held] - np.logaddexp.reduce(logs) + math.log(len(halves))
            weights = weights - 0.01 * sent
    error = learned.std(axis=0) / math.sqrt(clients)
    stated = nats * np.arange(1, rounds + 1)
    assert np.all(learned.mean(axis=0) < stated + 3 * error)
    assert learned.mean(axis=0)[-1] > 0.1 * stated[-1]


@pytest.mark.parametrize("values", [{"groups": 30, "public": 20}, {"groups": 1}, {"public": 3}])
def test_settings_that_measure_nothing_are_refused(values):
    with pytest.raises(ValidationError, match=r"groups|public"):
        PACPrivacy(**values)


def test_levels_and_records_that_cannot_be_are_refused(digits, network):
    for level in (None, 0.0, math.inf):
        assert "pac needs the nats of an upload for each of its records, > 0" in PACPrivacy().level_problem(level)
    many = step(digits, defense=PACPrivacy(public=500, groups=200))
    with pytest.raises(ValueError, match="groups = 200 of public records, of which there are 100"):
        many.law(network, dict(network.named_parameters()), 8)
