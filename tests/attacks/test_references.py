"""Scores by reference networks: against scipy, brute-force definitions, and networks that are known to remember."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from asking import attack_of, calibrated, training_of
from images import repooled
from leakbound.channels import estimate_moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.attacks.attack_request import Networks, attack_networks
from leakbound_lab.attacks.membership import signals
from leakbound_lab.attacks.membership.attack import ALONE, COMPARING, STRONGEST, infer_membership
from leakbound_lab.attacks.membership.known_records import attacked_records
from leakbound_lab.attacks.membership.reference_scores import (
    Confidences,
    References,
    lira_offline,
    lira_online,
    rmia,
    shared_laws,
)
from leakbound_lab.attacks.membership.signals import Queries, read_confidences, read_signals
from leakbound_lab.config.attacks import MOST_REFERENCES, MembershipConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import ChannelDefense
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import ImageDataset, prepare
from leakbound_lab.datasets.splits import reference_dataset
from leakbound_lab.models.memory import DeviceLimit
from leakbound_lab.training import train
from leakbound_lab.training.request import reference_request

RATE = 0.05
SHORT = MembershipConfig(epochs=10, learning_rates=(1e-3,))


@pytest.fixture(scope="module")
def made_up():
    """Confidences of 40 networks in 200 records; each network was trained on half of them, and is surer of these."""
    generator = np.random.default_rng(0)
    outside = generator.normal(0, 2, 200)
    inside = generator.random((40, 200)) < 0.5
    confidence = outside + 1.5 * inside + generator.normal(0, 1, (40, 200))
    return Confidences(confidence, inside, ~inside), outside, generator


def test_laws_are_those_that_the_confidences_were_drawn_from(made_up):
    compared, outside, _ = made_up
    laws = shared_laws(compared)
    # 4,000 residuals a kind: 5 standard errors are 6 % of a variance and 0.08 of a mean.
    assert laws.variance == pytest.approx(1.0, rel=0.06)
    assert laws.spread == pytest.approx(np.sqrt(1.05), rel=0.06)  # a mean of 20 outside has a variance of its own
    assert laws.curve(np.array([-2.0, 0.0, 2.0])) - np.array([-2.0, 0.0, 2.0]) == pytest.approx(1.5, abs=0.15)
    assert np.corrcoef(compared.mean, outside)[0, 1] > 0.99


def test_offline_score_has_the_tail_of_a_normal_law(made_up):
    """Of records that networks never saw, the score is standard normal, but for the error of a mean of some twenty."""
    compared, outside, generator = made_up
    scores = lira_offline(outside + generator.normal(0, 1, 200), compared, shared_laws(compared))
    assert stats.kstest(scores / np.sqrt(1 + 1 / 20), "norm").pvalue > 0.001


def test_online_score_is_the_ratio_of_two_normal_densities(made_up):
    compared, outside, _ = made_up
    laws = shared_laws(compared)
    scores = lira_online(outside, compared, laws)
    for record in (0, 7, 199):
        own = compared.confidence[:, record]
        away, within = own[compared.outside[:, record]], own[compared.inside[:, record]]
        mean = (10 * laws.curve(away.mean()) + within.sum()) / (10 + len(within))
        variance = (16 * laws.variance + len(away) * away.var()) / (16 + len(away) - 1)
        expected = stats.norm(mean, laws.spread).logpdf(outside[record])
        expected -= stats.norm(away.mean(), np.sqrt(variance)).logpdf(outside[record])
        assert scores[record] == pytest.approx(expected, rel=1e-9)


def test_record_that_no_reference_was_trained_on_has_the_mean_shift_of_the_others(made_up):
    compared, outside, _ = made_up
    laws = shared_laws(compared)
    unseen = Confidences(compared.confidence[:, :1], np.zeros((40, 1), bool), np.ones((40, 1), bool))
    sure, unsure = (lira_online(unseen.mean + shift, unseen, laws)[0] for shift in (1.5, 0.0))
    assert sure > 0 > unsure
    few = dataclasses.replace(compared, inside=np.zeros_like(compared.inside))
    assert shared_laws(few).curve is None
    assert lira_online(outside, few, shared_laws(few)) == pytest.approx(lira_offline(outside, few, shared_laws(few)))


@pytest.mark.parametrize("offline", [0.0, 0.3, 1.0])
def test_rmia_orders_records_as_its_definition_over_a_population(made_up, offline):
    """Pr over z of p(x|θ)/p(x) ≥ γ p(z|θ)/p(z), counted one by one, with a population as large as it takes."""
    compared, outside, generator = made_up
    chances = 1 / (1 + np.exp(-compared.confidence))
    target = 1 / (1 + np.exp(-outside - generator.normal(0, 1, 200)))
    confidence = np.log(target / (1 - target))

    ratios = []
    for record in range(200):
        away = chances[compared.outside[:, record], record].mean()
        seen = [*chances[compared.inside[:, record], record], offline * away + 1 - offline]
        ratios.append(target[record] / (0.5 * (away + np.mean(seen))))
    population = np.exp(generator.normal(0, 3, 2000))
    counted = [np.mean(ratio >= 1.2 * population) for ratio in ratios]
    assert stats.spearmanr(rmia(confidence, compared, offline), counted).statistic > 0.999
    assert rmia(confidence, compared, offline) == pytest.approx(np.log(ratios), rel=1e-9)


@pytest.fixture(scope="module")
def digits():
    """Handwriting with labels drawn by lot, which can only be learned by heart, and 30 pairs of canaries."""
    config = DatasetConfig(members=200, validation=50, pool=900, test=50, aux=50, canaries=30)
    dataset = prepare("digits", config, seed=0)
    labels = np.random.default_rng(1).integers(0, 10, len(dataset.pool))
    return repooled(dataset, labels=labels)


def request(dataset, **changes):
    return training_of(dataset, **{"rounds": 250, "batch_size": 50} | changes)


def references_of(run, count, targets=()):
    found = train(reference_request(run, count, [RATE], targets))
    network = models.build("mlp", 1, 10, torch_generator(0, "any"))
    rates = found.rates.assign(chosen=True)
    if targets:
        rates["target"] = rates["replica"] // MOST_REFERENCES
    return References(Networks(found.weights, rates), network, run.dataset)


@pytest.fixture(scope="module")
def trained(digits):
    """A network that overfits, one that has seen nothing, and four references."""
    run = request(digits)
    fresh = models.build("mlp", 1, 10, torch_generator(0, "untrained"))
    weights = train(run).weights
    both = {name: torch.cat([weights[name], value.detach()[None]]) for name, value in fresh.named_parameters()}
    return both, references_of(run, 4)


@pytest.fixture(scope="module")
def found(digits, trained):
    weights, references = trained
    known = {"references": references, "learning_rates": [RATE, RATE]}
    return infer_membership(attack_of(digits, SHORT, "mlp", weights=weights, replicas=[0, 1], **known))


def _values(rows, metric, replica):
    return rows[(rows["metric"] == metric) & (rows["replica"] == replica)].set_index("variant")


@pytest.mark.no_shapes
def test_comparing_attacks_succeed_where_labels_are_learned_by_heart_and_are_at_chance_without_training(found):
    areas = _values(found[0], "auc", 0)
    assert areas.loc[list(COMPARING), "low"].min() > 0.7
    assert areas.loc[["rmia", "white_box_references", STRONGEST], "low"].min() > 0.8
    blind = _values(found[0], "auc", 1).loc[[*ALONE, *COMPARING, STRONGEST]]
    assert (blind["low"] <= 0.5).all()
    assert (blind["high"] >= 0.5).all()


@pytest.mark.no_shapes
def test_canaries_are_found_in_the_network_that_learned_them_and_not_in_the_other(found):
    rows, arrays = found
    assert _values(rows, "canary_auc", 0).loc[STRONGEST, "low"] > 0.8
    assert _values(rows, "canary_tpr_at_fpr_0.01", 0).loc["rmia", "value"] > 0.1
    seen_nothing = _values(rows, "canary_auc", 1).loc["rmia"]
    assert seen_nothing["low"] <= 0.5 <= seen_nothing["high"]
    assert arrays["rmia_canaries"].shape == (2, 30, 2)
    place = arrays["canaries_inserted"][0]
    members, others = (arrays["rmia_canaries"][0, np.arange(30), one] for one in (place, 1 - place))
    assert np.mean(members > others) > 0.8


def test_canaries_are_scored_with_their_wrong_labels_and_stay_out_of_everything_else(digits, trained):
    records = attacked_records(digits, 0, 0.5, np.random.default_rng(0))
    canaries, planted = digits.canaries(0), records.canaries
    assert not np.isin(np.concatenate([records.known.rows, records.scored.rows]), canaries.rows).any()
    assert len(records.known) == len(records.scored) == 170
    assert np.array_equal(planted.rows[:60].reshape(-1, 2), canaries.rows)
    assert np.array_equal(planted.labels[:60].reshape(-1, 2), canaries.labels)
    assert (planted.labels != digits.pool.labels[planted.rows]).all()
    assert np.array_equal(planted.rows[60:], records.scored.rows[85:])
    compared = trained[1].compared(RATE, Queries(), planted.rows, planted.labels)
    assert not compared.inside.any()  # nobody was trained on a record under this label
    drawn = [reference_dataset(digits).parts(number).members for number in range(4)]
    for number, rows in enumerate(drawn):
        assert not (compared.outside[number] & np.isin(planted.rows, rows)).any()


def test_references_are_shared_by_arms_and_disjoint_in_their_draws_from_replicas(digits):
    plain = request(digits, replicas=4)
    channel = calibrated(estimate_moments([digits.aux.images]), 30.0)
    noisy = request(digits, defense=ChannelDefense(), level=30.0, channel=channel, learning_rates=(0.01, RATE))
    one, other = (reference_request(run, 3, [RATE, RATE]) for run in (plain, noisy))
    assert one.candidates == other.candidates == [RATE]
    assert one.replicas == other.replicas == 3
    for number in range(3):
        assert np.array_equal(one.dataset.parts(number).members, other.dataset.parts(number).members)
        for purpose in ("init", "batches"):
            assert one.generator(number, purpose).initial_seed() == other.generator(number, purpose).initial_seed()
            assert one.generator(number, purpose).initial_seed() != plain.generator(number, purpose).initial_seed()
        for replica in range(4):
            assert not np.array_equal(one.dataset.parts(number).members, digits.parts(replica).members)
    assert np.array_equal(one.dataset.labels(0), digits.pool.labels)  # references have no canaries


def test_references_of_records_without_canaries_are_drawn_as_no_replica_is(digits):
    """Members of reference k and of replica k meet as often as any two draws do: 200²/900 = 44 of 200 on average."""
    plain = dataclasses.replace(digits, drawing=dataclasses.replace(digits.drawing, canaries=0))
    drawn = reference_dataset(plain)
    for number, replica in itertools.product(range(4), range(4)):
        own, other = plain.parts(replica), drawn.parts(number)
        for part in (own.members, own.nonmembers):
            assert 15 < np.isin(other.members, part).sum() < 75  # five standard deviations
    assert np.array_equal(drawn.parts(0).members, reference_dataset(digits).parts(0).members)


def test_networks_are_compared_with_references_of_their_own_recipe(digits):
    """References of each length are those that training for so long would have made, and attacks ask for theirs."""
    rates, network = (0.01, 0.05), models.build("mlp", 1, 10, torch_generator(0, "any"))
    settings = {"learning_rates": rates, "lengths": ("half", "best", "full"), "config": TrainingConfig(evaluations=2)}
    rows, every = np.arange(20), train(reference_request(request(digits, rounds=6, **settings), 2, rates))
    references = References(Networks(every.weights, every.rates), network, digits)
    for rate, (length, steps) in itertools.product(rates, (("half", 3), ("full", 6))):
        alone = train(reference_request(request(digits, rounds=steps), 2, [rate]))
        asked = rate, Queries(), rows, digits.pool.labels[rows]
        found = references.compared(*asked, length)
        expected = References(Networks(alone.weights, alone.rates), network, digits).compared(*asked, "full")
        np.testing.assert_allclose(found.confidence, expected.confidence, rtol=1e-4, atol=1e-5)  # stacks of other sizes

    def attacked(group):
        slots = zip(group.replicas, group.learning_rates, group.lengths, strict=True)
        seen.append([*slots, group.weights["head.weight"]])
        return pd.DataFrame({"replica": group.replicas, "value": 0.0}), {}

    seen: list = []
    found, _ = attack_networks(Networks(every.weights, every.rates), attacked, attack_of(digits, SHORT, "mlp"))
    groups = {slot: weights[row] for *slots, weights in seen for row, slot in enumerate(slots)}
    names = ["replica", "learning_rate", "length"]
    for row, slot in enumerate(every.rates[names].itertuples(index=False, name=None)):
        assert torch.equal(groups[slot], every.weights["head.weight"][row])
    assert len(groups) == len(found) == 12
    assert found[[*names, "chosen"]].merge(every.rates, on=[*names, "chosen"]).shape[0] == 12


def test_references_that_diverged_are_left_out_and_too_few_give_no_result(digits, trained):
    weights, references = trained
    broken = {name: values.clone() for name, values in references.networks.weights.items()}
    for values in broken.values():
        values[:3] = torch.nan
    left = dataclasses.replace(references, networks=Networks(broken, references.networks.rates), _answers={})
    one = {name: values[:1] for name, values in weights.items()}
    rows, _ = infer_membership(attack_of(digits, SHORT, "mlp", weights=one, references=left, learning_rates=[RATE]))
    areas = _values(rows, "auc", 0)
    assert areas.loc[list(COMPARING), "value"].isna().all()
    assert set(areas.loc[list(COMPARING), "status"]) == {"diverged"}
    assert areas.loc[[*ALONE, STRONGEST], "value"].notna().all()


@pytest.mark.parametrize("copied", [False, True])
def test_references_of_candidates_share_them_out_whoever_is_a_member(digits, monkeypatch, copied):
    """A target's members and its others change places, and its references still hold the same records."""
    copies = np.arange(900) // 2 * 2 if copied else None
    dataset = dataclasses.replace(digits, copies=copies)
    candidates = [np.concatenate([dataset.parts(place).members, dataset.parts(place).nonmembers]) for place in (0, 3)]
    halves = reference_dataset(dataset, of_candidates=True)
    drawn = [[halves.parts(MOST_REFERENCES * place + k).members for k in range(4)] for place in (0, 3)]
    for rows, of_target in zip(candidates, drawn, strict=True):
        assert {len(half) for half in of_target} == {200}
        assert (np.sum([np.isin(rows, half) for half in of_target], axis=0) == 2).all()
        assert 60 < np.isin(of_target[0], of_target[2]).sum() < 140  # two pairs are independent
        if copied:
            assert all(set(copies[half]).isdisjoint(copies[np.setdiff1d(rows, half)]) for half in of_target)
    own = ImageDataset._draw_parts

    def exchanged(self, replica):
        parts = own(self, replica)
        return dataclasses.replace(parts, members=parts.nonmembers, nonmembers=parts.members)

    monkeypatch.setattr(ImageDataset, "_draw_parts", exchanged)
    assert set(halves.parts(1).members) == set(drawn[0][1])
    assert np.array_equal(halves.labels(0), digits.pool.labels)


def test_references_of_candidates_see_the_members_of_their_target_and_none_of_another_network(digits):
    """Each target has references of its own. A network that was trained on none of the candidates shows chance."""
    run = request(digits, replicas=2)
    candidates = np.concatenate([digits.parts(0).members, digits.parts(0).nonmembers])
    outside = digits.pool.take(np.setdiff1d(range(900), candidates))
    drawing = dataclasses.replace(digits.drawing, canaries=0)
    elsewhere = train(request(dataclasses.replace(digits, pool=outside, drawing=drawing))).weights
    references = references_of(run, 4, run.slots)
    assert references.networks.rates["target"].tolist() == [0] * 4 + [1] * 4
    known = {"references": references, "learning_rates": [RATE, RATE]}
    rows, _ = infer_membership(attack_of(digits, SHORT, "mlp", weights=train(run).weights, replicas=[0, 1], **known))
    for replica in (0, 1):
        assert _values(rows, "auc", replica).loc[["lira_online", "rmia", STRONGEST], "low"].min() > 0.75
        assert _values(rows, "inside", replica).loc["references", "value"] == 0.5
    rows, _ = infer_membership(attack_of(digits, SHORT, "mlp", weights=elsewhere, **known))
    blind = _values(rows, "auc", 0).loc[[*COMPARING, STRONGEST]]
    assert (blind["low"] <= 0.5).all()
    assert (blind["high"] >= 0.5).all()


def test_noisy_queries_average_what_a_network_says_behind_the_channel(digits, trained, monkeypatch):
    weights, references = trained
    sampler = ChannelSampler(calibrated(estimate_moments([digits.aux.images]), 30.0, "white"), (1, 32, 32))
    monkeypatch.setattr(signals, "FORWARD_IMAGES", DeviceLimit(cpu=3, cuda=3))
    queries = Queries(sampler, 3, torch.Generator().manual_seed(5))
    noise = sampler.noise(3, torch.Generator().manual_seed(5)).view(3, 1, 1, 32, 32)
    network = references.network
    images, labels = torch.from_numpy(digits.aux.images[:7]), torch.from_numpy(digits.aux.labels[:7])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(weights[name][0])
        chances = torch.stack([network(images + one) for one in noise]).double().softmax(-1)
    expected = (chances / (1 - chances)).log().mean(0)
    found = read_confidences(network, images, queries)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
    read = read_signals(network, images, labels, queries)
    torch.testing.assert_close(read.confidence, expected.gather(1, labels[:, None])[:, 0], rtol=1e-3, atol=1e-3)


def test_one_reference_is_refused():
    with pytest.raises(ValueError, match=r"one reference network has no spread.*0 or at least 2"):
        MembershipConfig(references=1)
