from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call, grad, vmap

from asking import attack_of, made_up, trained_lenet, untrained, weights_of
from images import repooled
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab import models
from leakbound_lab.attacks.membership.attack import ALONE, STRONGEST, View, infer_membership, scores_of
from leakbound_lab.attacks.membership.known_records import divide
from leakbound_lab.attacks.membership.network import FOLDS, AttackData, white_box_scores
from leakbound_lab.attacks.membership.signals import Signals, read_signals
from leakbound_lab.config.attacks import MembershipConfig

CONFIG = MembershipConfig()
SHORT = MembershipConfig(epochs=3, learning_rates=(1e-3,))


def _values(rows, metric, replica=0):
    chosen = rows[(rows.metric == metric) & (rows.replica == replica)]
    return chosen.set_index("variant")


def areas(known, target, config=CONFIG):
    """AUC of each attacker on signals of records of which the first half are members."""
    (found,) = scores_of([([View(known), View(target)], torch_generator(0))], config)
    halves = {variant: np.split(scores, 2) for variant, (_, scores) in found.items()}
    return {variant: (members[:, None] > others).mean() for variant, (members, others) in halves.items()}


def attacked(weights, dataset, replicas=(0,), config=SHORT, seed=0, slug="run"):
    return infer_membership(attack_of(dataset, config, weights=weights, replicas=replicas, seed=seed, slug=slug))


@pytest.fixture(scope="module")
def mislabelled(digits):
    """Handwriting with labels drawn by lot: a network can only learn them by heart."""
    generator = np.random.default_rng(1)
    return repooled(digits, labels=generator.integers(0, 10, len(digits.pool)))


@pytest.fixture(scope="module")
def found(mislabelled):
    """Rows and scores of a network that overfits, beside one that has been trained on nothing, and a diverged one."""
    trained, fresh = weights_of([trained_lenet(mislabelled, steps=700)]), untrained()
    weights = {name: torch.cat([value, fresh[name], value * torch.nan]) for name, value in trained.items()}
    return attacked(weights, mislabelled, replicas=[0, 1, 2], config=CONFIG)


def test_last_layer_gradient_equals_autograd(digits):
    network = models.build("lenet", 1, 10, torch_generator(3, "weights")).double()
    images, labels = torch.from_numpy(digits.test.images[:7]).double(), torch.from_numpy(digits.test.labels[:7])
    signals = read_signals(network, images, labels)

    def loss(head, image, label):
        logits = functional_call(network, head, (image[None],), strict=False)
        return F.cross_entropy(logits, label[None])

    head = {name: dict(network.named_parameters())[name].detach() for name in ("head.weight", "head.bias")}
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(head, images, labels)
    expected = torch.cat([gradients["head.weight"], gradients["head.bias"][:, :, None]], dim=2)
    residual = signals.log_residual.exp() * (1.0 - 2.0 * signals.one_hot)
    found = residual[:, :, None] * F.pad(signals.features, (0, 1), value=1.0)[:, None, :]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(signals.ranked, signals.log_posteriors.gather(1, network(images).argsort(descending=True)))


def test_confidence_orders_records_whose_loss_rounds_to_zero():
    class Certain(torch.nn.Module):
        head = torch.nn.Identity()

        def features(self, images):
            return images[:, :, 0, 0]

    logits = torch.tensor([[800.0, 0.0, 0.0], [900.0, 0.0, 0.0]])
    signals = read_signals(Certain(), logits[:, :, None, None], torch.zeros(2, dtype=torch.int64))
    assert F.softplus(-signals.confidence).tolist() == [0.0, 0.0]
    assert signals.confidence[1] > signals.confidence[0]
    assert signals.finite


@given(st.integers(10, 60), st.integers(10, 60), st.floats(0.5, 0.8), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_known_and_scored_records_are_disjoint_and_equally_many_of_a_kind(members, nonmembers, fraction, seed):
    divided = divide(members, nonmembers, fraction, np.random.default_rng(seed))
    count = min(members, nonmembers)
    for known, scored, total in zip(*divided, (members, nonmembers), strict=True):
        both = np.concatenate([known, scored])
        assert len(np.unique(both)) == len(both) == count
        assert both.min() >= 0
        assert both.max() < total
        assert len(known) == round(count * fraction)


@pytest.mark.parametrize(("members", "fraction"), [(8, 0.5), (10, 0.95)])
def test_division_refuses_too_few_records(members, fraction):
    with pytest.raises(ValueError, match=r"known_fraction = .* members and test records"):
        divide(members, 1000, fraction, np.random.default_rng(0))


def test_attack_network_refuses_too_few_known_records():
    signals = made_up(torch_generator(0, "few"), count=FOLDS)
    membership = torch.arange(2 * FOLDS) < FOLDS - 1
    with pytest.raises(ValueError, match=r"4 known members: .*known_fraction"):
        white_box_scores([AttackData(signals, membership, [signals], torch_generator(0))], SHORT)


def test_scores_of_a_record_do_not_depend_on_the_other_scored_records():
    generator = torch_generator(0, "records")
    known, target = made_up(generator, shift=1.0), made_up(generator, shift=1.0)
    membership = torch.arange(600) < 300
    chosen = torch.tensor([5, 300, 599])
    few = Signals(*(getattr(target, field.name)[chosen] for field in fields(target)))
    ((_, whole),) = white_box_scores([AttackData(known, membership, [target], torch_generator(1))], SHORT)
    ((_, alone),) = white_box_scores([AttackData(known, membership, [few], torch_generator(1))], SHORT)
    torch.testing.assert_close(whole[chosen], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.no_shapes
def test_white_box_attack_finds_what_the_loss_does_not_show():
    """Members have a feature that non-members lack; their posteriors are drawn alike."""
    generator = torch_generator(0, "feature")
    known, target = made_up(generator), made_up(generator)
    for signals in (known, target):
        signals.features[:300, 0] += 2.0
    # Two normal laws two deviations apart: AUC = Φ(2/√2) = 0.92.
    assert areas(known, target)["white_box"] > 0.85


@pytest.mark.no_shapes
@pytest.mark.parametrize("width", [6, 4096])
def test_white_box_attack_keeps_the_loss_threshold_where_nothing_else_tells(width):
    generator = torch_generator(0, "loss")
    known, target = (made_up(generator, shift=1.5, width=width) for _ in range(2))
    found = areas(known, target, CONFIG.model_copy(update={"learning_rates": (1e-3,)}))  # the one that overfits more
    assert found["loss_threshold"] > 0.7
    assert found["white_box"] > found["loss_threshold"] - 0.02


def test_a_feature_that_was_silent_on_the_known_records_decides_nothing():
    generator = torch_generator(0, "silent")
    known, target = made_up(generator, shift=1.5), made_up(generator, shift=1.5)
    for signals in (known, target):
        signals.features[:, 1] = 0.0
    known.features[0, 1] = 1e-6
    membership = torch.arange(600) < 300
    ((_, quiet),) = white_box_scores([AttackData(known, membership, [target], torch_generator(1))], SHORT)
    target.features[::2, 1] = 1.0
    ((_, loud),) = white_box_scores([AttackData(known, membership, [target], torch_generator(1))], SHORT)
    assert loud.isfinite().all()
    assert (loud - quiet).abs().max() < 1.0


@pytest.mark.no_shapes
def test_attack_succeeds_on_an_overfitted_lenet(found):
    rows, _ = found
    areas = _values(rows, "auc")
    assert _values(rows, "member_accuracy").loc["target", "value"] > 0.8
    assert _values(rows, "nonmember_accuracy").loc["target", "value"] < 0.3
    assert areas.loc["white_box", "low"] >= 0.75
    assert areas.loc["loss_threshold", "low"] >= 0.75
    assert areas.loc["white_box", "value"] >= areas.loc["loss_threshold", "value"] - 0.01


@pytest.mark.no_shapes
def test_attack_on_a_model_that_has_seen_no_record_is_at_chance(found):
    rows, _ = found
    areas = _values(rows, "auc", replica=1)
    # Known and scored records are drawn alike, so a 95 % interval leaves out 1/2 for 5 % of seeds; the seed is fixed.
    assert (areas.low <= 0.5).all()
    assert (areas.high >= 0.5).all()


@pytest.mark.no_shapes
def test_rows_and_scores_tell_of_every_replica_and_variant(found):
    rows, arrays = found
    metrics = ("auc", "tpr_at_fpr_0.01", "tpr_at_fpr_0.001")
    expected = {(variant, metric) for variant in (*ALONE, STRONGEST) for metric in metrics}
    expected |= {("target", "member_accuracy"), ("target", "nonmember_accuracy")}
    for replica in range(3):
        chosen = rows[rows.replica == replica]
        assert set(zip(chosen.variant, chosen.metric, strict=True)) == expected
    assert {name: array.shape for name, array in arrays.items() if array.ndim > 1} == {
        f"{variant}_{kind}": (3, 200) for variant in (*ALONE, STRONGEST) for kind in ("members", "nonmembers")
    }
    for replica, choice in enumerate(arrays["strongest_choice"][:2]):
        assert np.array_equal(arrays[f"{ALONE[choice]}_members"][replica], arrays["strongest_members"][replica])


@pytest.mark.no_shapes
def test_diverged_replica_has_no_result_and_leaves_the_others_alone(found):
    rows, arrays = found
    assert rows[rows.replica == 2][["value", "low", "high"]].isna().all(axis=None)
    assert rows.groupby("replica").status.unique().map(list).tolist() == [[""], [""], ["diverged"]]
    assert rows[rows.replica < 2][["value", "low", "high"]].notna().all(axis=None)
    scores = [array for array in arrays.values() if array.ndim > 1]
    assert all(np.isnan(array[2]).all() and np.isfinite(array[:2]).all() for array in scores)
    assert arrays["strongest_choice"][2] == -1


def test_attack_repeats_by_seed_and_changes_with_it(digits):
    both = untrained(2)
    rows, scores = attacked(both, digits, replicas=[0, 1])
    again, others = attacked(both, digits, replicas=[0, 1], slug="other")  # alike for every defense
    pd.testing.assert_frame_equal(rows, again, check_exact=True)
    assert all(np.array_equal(scores[name], others[name]) for name in scores)
    _, alone = attacked(untrained(), digits)
    assert all(np.array_equal(scores[name][:1], alone[name]) for name in scores)
    _, seeded = attacked(both, digits, replicas=[0, 1], seed=1)
    assert not np.array_equal(scores["white_box_members"], seeded["white_box_members"])


def test_accuracies_are_those_of_the_scored_records(digits):
    rows, _ = attacked(untrained(), digits)
    _, (_, scored) = divide(400, 400, 0.5, numpy_generator(0, "digits", 0, "membership_division"))
    others = digits.nonmembers(0).take(scored)
    network = models.build("lenet", 1, 10, torch_generator(0, "weights"))
    with torch.no_grad():
        choices = network(torch.from_numpy(others.images)).argmax(1).numpy()
    expected = np.mean(choices == others.labels)
    assert _values(rows, "nonmember_accuracy").loc["target", "value"] == pytest.approx(expected)
