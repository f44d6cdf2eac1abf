import dataclasses
import itertools
import logging
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from images import repooled
from leakbound.channels import estimate_moments, principal_direction
from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.config.defenses import GradientCompression
from leakbound_lab.training import train


def final(result, metric, replica=0, rate=None):
    """Last value of a metric of a slot; ``rate`` may be left out where there is one."""
    rows = result.curves.query("metric == @metric and replica == @replica")
    assert rate is not None or rows["learning_rate"].nunique() == 1
    rows = rows if rate is None else rows[rows["learning_rate"] == rate]
    return float(rows["value"].iloc[-1])


OTHERS = ["parameter_noise", "gradient_compression", "large_batch", "compression"]


@pytest.mark.no_shapes
@pytest.mark.parametrize(("max_stack", "canaries"), [(1, 0), (4, 0), (4, 80)])
def test_loop_equals_a_plain_loop_written_by_hand(request_for, digits, max_stack, canaries):
    """Two replicas at two rates; as a stack of four, each slot is seen to train at its own rate, on its own labels."""
    rates = (0.02, 0.05)
    digits = dataclasses.replace(digits, drawing=dataclasses.replace(digits.drawing, canaries=canaries))
    settings = {"dataset": digits, "learning_rates": rates, "training": {"max_stack": max_stack}}
    request = request_for(rounds=15, replicas=2, **settings)
    result = train(request)
    for slot, (replica, rate) in enumerate(itertools.product(range(2), rates)):
        members = digits.members(replica)
        images, labels = torch.from_numpy(members.images), torch.from_numpy(members.labels)
        model = models.build("lenet", 1, 10, torch_generator(7, "digits", replica, "init"))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        order = torch_generator(7, "digits", replica, "batches")
        permutations = torch.cat([torch.randperm(400, generator=order) for _ in range(2)])
        for step in range(15):
            batch = permutations[32 * step : 32 * step + 32]
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(result.weights[name][slot], parameter.detach(), rtol=1e-3, atol=1e-5)
        validation = digits.pool.take(digits.parts(replica).validation)
        for part, records in {"train": members, "validation": validation, "test": digits.test}.items():
            logits, labels = model(torch.from_numpy(records.images)), torch.from_numpy(records.labels)
            accuracy = (logits.argmax(1) == labels).float().mean().item()
            assert final(result, f"{part}_accuracy", replica, rate) == pytest.approx(accuracy, abs=0.011)
            loss = F.cross_entropy(logits, labels).item()
            assert final(result, f"{part}_loss", replica, rate) == pytest.approx(loss, 0.01)


@pytest.mark.no_shapes
@pytest.mark.parametrize("case", ["none", "natural", "white", "rate_distortion", "white_frozen", *OTHERS])
def test_stack_of_replicas_and_rates_equals_one_by_one(request_for, under, case):
    slots = {"rounds": 4, "replicas": 2, "learning_rates": (0.02, 0.05)}
    results = [
        train(request_for(**slots, training={"max_stack": size, "evaluations": 1}, **under(case)))
        for size in ("auto", 3, 4)
    ]
    for other in results[1:]:
        torch.testing.assert_close(other.weights, results[0].weights, rtol=1e-3, atol=1e-5)
        assert other.events == results[0].events
        keys = ["replica", "learning_rate", "step", "metric"]
        assert other.curves[keys].equals(results[0].curves[keys])


@pytest.mark.no_shapes
@pytest.mark.parametrize("case", [*OTHERS, "white", "natural_frozen"])
def test_equal_requests_give_equal_bytes_leave_the_global_generator_alone_and_state_what_was_done(
    request_for, under, case
):
    request = request_for(replicas=2, **under(case))
    before = torch.get_rng_state()
    one = train(request)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    other = train(request)
    torch.testing.assert_close(other.weights, one.weights, rtol=0, atol=0)
    assert one.curves.equals(other.curves)
    assert one.events == other.events
    assert one.rates.equals(other.rates)
    (event, _) = one.events
    shape, frozen, _ = case.partition("_frozen")
    assert event.mechanism == (case if case in OTHERS else "channel")
    assert (event.population, event.steps, event.uses) == (400, 4, 1)
    assert event.batch_size == (96 if case == "large_batch" else 32)
    stated = (None, None, None) if case in OTHERS else (shape, 8.0, "frozen" if frozen else "fresh")
    assert (event.shape, event.capacity, event.noise) == stated


def test_large_batch_is_a_plain_run_of_that_batch_size(request_for, under):
    large = train(request_for(**under("large_batch")))
    plain = train(request_for(batch_size=96))
    assert all(torch.equal(large.weights[name], plain.weights[name]) for name in plain.weights)
    assert large.curves.equals(plain.curves)
    assert large.events == [dataclasses.replace(plain.events[0], mechanism="large_batch")]


@pytest.mark.parametrize(("case", "level"), [("parameter_noise", 0.0), ("gradient_compression", 1.0)])
def test_defense_at_its_weakest_is_no_defense(request_for, under, case, level):
    weak, plain = train(request_for(**under(case) | {"level": level})), train(request_for())
    torch.testing.assert_close(weak.weights, plain.weights, rtol=0, atol=0)


def test_compression_is_a_plain_run_on_images_without_the_direction(request_for, under, digits):
    compressed = train(request_for(**under("compression")))
    direction = principal_direction(estimate_moments([digits.pool.images]), 1)
    plain = train(request_for(dataset=repooled(digits, direction.removed_from(digits.pool.images))))
    torch.testing.assert_close(compressed.weights, plain.weights, rtol=1e-4, atol=1e-6)
    assert final(compressed, "test_accuracy") == final(plain, "test_accuracy")
    assert final(compressed, "train_loss") != final(plain, "train_loss")  # measured on the client's clean images


def test_momentum_acts_on_what_is_sent(request_for):
    """A step along the one largest coordinate leaves all others where they were."""
    start = train(request_for(rounds=0)).weights
    sent = train(request_for(rounds=1, defense=GradientCompression(), level=1e-9)).weights
    assert sum(int((sent[name] != start[name]).sum()) for name in start) == 1


def test_seed_and_dataset_decide_the_weights_and_the_name_of_the_run_does_not(request_for, digits):
    named = dataclasses.replace(digits, name="others")
    one, seeded, other, renamed = (
        train(request_for(rounds=3, **change)).weights["head.weight"]
        for change in ({}, {"seed": 8}, {"dataset": named}, {"slug": "digits/lenet/other"})
    )
    assert not torch.equal(one, seeded)
    assert not torch.equal(one, other)
    assert torch.equal(one, renamed)


def test_curves_have_the_asked_points_and_end_at_the_last_round(request_for):
    result = train(request_for(rounds=10, replicas=2, training={"evaluations": 4}))
    assert list(result.curves.columns) == ["replica", "learning_rate", "step", "metric", "value"]
    points = {key: rows["step"].tolist() for key, rows in result.curves.groupby(["replica", "metric"])}
    metrics = [f"{part}_{kind}" for part in ("train", "validation", "test") for kind in ("loss", "accuracy")]
    assert points == {(replica, metric): [2, 5, 8, 10] for replica in range(2) for metric in metrics}


@pytest.mark.parametrize("rounds", [0, 1, 12, 13, 26])
def test_event_counts_the_uses_of_a_record(request_for, rounds):
    (event,) = train(request_for(rounds=rounds)).events
    assert (event.mechanism, event.sampling, event.population) == ("none", "shuffled", 400)
    assert (event.steps, event.batch_size) == (rounds, 32)
    assert event.uses == math.ceil(rounds * 32 / 400)


@pytest.mark.parametrize("max_stack", [1, 2])
def test_divergence_is_recorded_and_never_a_result(request_for, caplog, max_stack):
    request = request_for(learning_rates=(1e6,), rounds=20, replicas=2, training={"max_stack": max_stack})
    with caplog.at_level(logging.WARNING, "leakbound"):
        result = train(request)
    assert result.diverged == [True, True]
    assert all(values.isnan().all() for values in result.weights.values())
    assert np.isfinite(result.curves["value"]).all()
    assert 20 not in set(result.curves["step"])
    assert result.events[0].steps <= 20
    assert "replica 1 at rate 1e+06 diverged before step" in caplog.text


def test_log_has_a_line_for_each_point_of_the_curve(request_for, caplog):
    with caplog.at_level(logging.INFO, "leakbound"):
        train(request_for(rounds=6, training={"evaluations": 3}))
    points = [record.message.split(": ")[1] for record in caplog.records]
    assert points == ["step 2 of 6", "step 4 of 6", "step 6 of 6"]


def test_points_before_the_last_use_a_part_of_large_splits(request_for, monkeypatch):
    monkeypatch.setattr("leakbound_lab.training.stack._CURVE_RECORDS", 10)
    part = train(request_for(rounds=2))
    monkeypatch.undo()
    whole = train(request_for(rounds=2))
    losses = [result.curves.query("metric == 'train_loss'")["value"].tolist() for result in (part, whole)]
    assert losses[0][0] != losses[1][0]
    assert losses[0][1] == losses[1][1]
