"""Attack networks of several replicas that learn in one stack, as on a GPU, learn what each learns alone."""

from functools import partial

import pandas as pd
import torch

from asking import attack_of, made_up, untrained
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab import datasets
from leakbound_lab.attacks.attack_request import Networks, attack_networks
from leakbound_lab.attacks.membership import attack as membership
from leakbound_lab.attacks.membership import network as white_box
from leakbound_lab.attacks.membership.attack import View, scores_of
from leakbound_lab.attacks.membership.network import AttackData, white_box_scores
from leakbound_lab.attacks.membership.reference_scores import Confidences
from leakbound_lab.config.attacks import MembershipConfig
from leakbound_lab.config.data import DatasetConfig
from operations import of_further_steps

CONFIG = MembershipConfig(epochs=3, learning_rates=(1e-2, 1e-3), batch_size=32)


def signals(seed, count=40, width=6):
    return made_up(torch_generator(seed, "signals"), count, width, shift=seed)


def task(seed, count=40, **shape):
    known = signals(seed, count, **shape)
    membership = torch.arange(2 * count) < count
    return AttackData(known, membership, [signals(seed + 10, 7, **shape)], torch_generator(0, "draws"))


def test_tasks_of_a_stack_are_learnt_as_alone_with_the_same_draws(monkeypatch):
    """One of them has records of another shape."""
    monkeypatch.setattr(white_box, "_PATIENCE", 1)
    shapes = ({}, {}, {"width": 9}, {})
    config = MembershipConfig(epochs=8, learning_rates=(0.1,), batch_size=32)
    together, alone = ([task(seed, **shape) for seed, shape in enumerate(shapes)] for _ in range(2))
    found = white_box_scores(together, config)
    for own, first, one in zip(found, together, alone, strict=True):
        (expected,) = white_box_scores([one], config)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert torch.equal(first.generator.get_state(), one.generator.get_state())
    drawn = {bytes(one.generator.get_state().tolist()) for one, shape in zip(alone, shapes, strict=True) if not shape}
    assert len(drawn) > 1  # learners of one stack stopped at passes of their own


def test_a_stack_that_memory_does_not_hold_is_halved_and_draws_anew(monkeypatch):
    """Memory is used up after weights and batches were drawn."""
    together, alone = ([task(seed) for seed in range(3)] for _ in range(2))
    expected, losses = [white_box_scores([one], CONFIG) for one in alone], white_box._losses

    def crowded(network, inputs, labels):
        if len(inputs) > white_box.FOLDS and (network.last.weight != 0).any():  # a step was made
            raise torch.OutOfMemoryError
        return losses(network, inputs, labels)

    monkeypatch.setattr(white_box, "_losses", crowded)
    for own, first, (one,), other in zip(white_box_scores(together, CONFIG), together, expected, alone, strict=True):
        torch.testing.assert_close(own, one, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(first.generator.get_state(), other.generator.get_state())


def compared(seed, count):
    generator = numpy_generator(seed, "references")
    inside = generator.random((6, count)) < 0.5
    inside[0], inside[1] = True, False
    return Confidences(generator.normal(size=(6, count)), inside, ~inside)


def test_attackers_with_references_and_without_them_learn_side_by_side():
    def attacked(seed):
        known = (signals(seed), signals(seed + 10, 7))
        views = [View(one, compared(seed, len(one.labels)) if seed else None) for one in known]
        return views, torch_generator(seed, "draws")

    found = scores_of([attacked(seed) for seed in range(3)], CONFIG)
    assert ["white_box_references" in own for own in found] == [False, True, True]
    for seed, own in enumerate(found):
        (expected,) = scores_of([attacked(seed)], CONFIG)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_operations_of_a_pass_do_not_grow_with_the_replicas():
    def learned(learners, epochs):
        config = MembershipConfig(epochs=epochs, learning_rates=(1e-3,), batch_size=16)
        white_box_scores([task(seed) for seed in range(learners)], config)

    one, four = (of_further_steps(partial(learned, learners), 2, 3) for learners in (1, 4))
    assert one == four
    assert one[0]["baddbmm"] == (1 + 4) * (4 * 2 + 4)  # batches of 64 records and the look at those held out


def test_attack_on_a_stack_tells_what_it_tells_replica_by_replica(monkeypatch):
    dataset = datasets.prepare("digits", DatasetConfig(members=40, aux=40, canaries=4), seed=0)
    weights = untrained(4)
    weights["head.bias"][1, 0] = torch.nan
    request, found = attack_of(dataset, CONFIG, weights=weights, replicas=[0, 1, 2, 3]), []
    for size in (1, 3):
        monkeypatch.setattr(membership, "_replicas_at_once", lambda *_, size=size: size)
        found.append(membership.infer_membership(request))
    (alone, arrays), (together, others) = found
    keys = ["replica", "variant", "unit", "metric", "status"]
    assert alone[keys].equals(together[keys])
    assert set(alone[alone["replica"] == 1]["status"]) == {"diverged"}
    torch.testing.assert_close(others, arrays, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_networks_of_several_recipes_attacked_at_once_have_the_rows_of_recipe_by_recipe():
    """Weights lie replica by replica, rows come recipe by recipe, and attackers of one replica draw together."""
    dataset = datasets.prepare("digits", DatasetConfig(members=40, aux=40), seed=0)
    rates = pd.MultiIndex.from_product([range(3), [0.1, 0.2], ["half", "full"]]).to_frame(index=False)
    rates.columns = pd.Index(["replica", "learning_rate", "length"])
    rates["chosen"] = (rates["length"] == "full") & (rates["learning_rate"] == 0.1 + 0.1 * (rates["replica"] % 2))
    networks, request = Networks(untrained(len(rates)), rates), attack_of(dataset, CONFIG)
    together, arrays = attack_networks(networks, membership.infer_membership, request)
    apart, others = attack_networks(networks, lambda asked: membership.infer_membership(asked), request)
    pd.testing.assert_frame_equal(together, apart, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(arrays, others, rtol=1e-4, atol=1e-5, equal_nan=True)
