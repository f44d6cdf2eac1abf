"""The choice among candidate learning rates, and that no candidate, level or replica changes another."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from leakbound_lab.config.defenses import DPSGD, EarlyStopping, Stopped
from leakbound_lab.training import train
from leakbound_lab.training.opacus_learner import OpacusLearner
from leakbound_lab.training.request import RATE_COLUMNS, Slot, chosen_rates
from leakbound_lab.training.sgd import StackLearner

RATES = (0.1, 0.2, 0.3)
NAN = math.nan


def curves_of(slots, accuracies, losses):
    """Curves that end with given validation values, and were the other way round before."""
    rows = []
    for step, sign in ((1, -1.0), (2, 1.0)):
        for slot, accuracy, loss in zip(slots, accuracies, losses, strict=True):
            if not math.isnan(accuracy):
                values = {"validation_accuracy": accuracy, "validation_loss": loss, "train_loss": 0.0}
                rows += [(slot.replica, slot.learning_rate, step, name, sign * one) for name, one in values.items()]
    return pd.DataFrame(rows, columns=["replica", "learning_rate", "step", "metric", "value"])


def choice(accuracies, losses, rates=RATES, replicas=1):
    slots = [Slot(replica, rate) for replica in range(replicas) for rate in rates]
    diverged = [math.isnan(value) for value in accuracies]
    return chosen_rates(slots, curves_of(slots, accuracies, losses), diverged)


@pytest.mark.parametrize(
    ("accuracies", "losses", "expected"),
    [
        ((0.50, 0.52, 0.51), (1.2, 1.4, 1.3), 0.2),  # accuracy decides, however close
        ((0.50, 0.52, 0.52), (1.2, 1.4, 1.3), 0.3),  # of equal ones the smaller loss
        ((0.52, 0.50, 0.52), (1.3, 1.0, 1.3), 0.1),  # then the smaller rate
        ((NAN, 0.10, NAN), (NAN, 2.3, NAN), 0.2),  # a diverged one never while there is another
        ((0.10, NAN, NAN), (9.9, NAN, NAN), 0.1),
        ((NAN, NAN, NAN), (NAN, NAN, NAN), 0.1),
    ],
)
def test_best_validation_accuracy_decides_then_loss_then_the_smaller_rate(accuracies, losses, expected):
    table = choice(accuracies, losses)
    assert tuple(table.columns) == RATE_COLUMNS
    assert table.loc[table["chosen"], "learning_rate"].tolist() == [expected]
    assert table["diverged"].tolist() == [math.isnan(value) for value in accuracies]


def test_every_replica_chooses_for_itself_and_a_choice_at_either_end_of_the_grid_is_marked():
    table = choice(np.eye(3).flatten().tolist(), [1.0] * 9, replicas=3)
    assert table["chosen"].tolist() == [place in (0, 4, 8) for place in range(9)]
    assert table["at_edge"].tolist() == [place in (0, 8) for place in range(9)]
    alone = choice([0.5], [1.0], rates=(0.2,))
    assert (alone["chosen"].tolist(), alone["at_edge"].tolist()) == ([True], [False])


def test_training_chooses_the_rate_that_validation_records_like_best(request_for):
    """A rate too small to learn anything in 70 steps, one that learns, given twice, and one that diverges."""
    result = train(request_for(rounds=70, learning_rates=(90.0, 0.03, 1e-5, 0.03)))
    rates = result.rates
    assert rates["learning_rate"].tolist() == [1e-5, 0.03, 90.0]
    assert rates["chosen"].tolist() == [False, True, False]
    assert rates["diverged"].tolist() == result.diverged == [False, False, True]
    ends = result.curves.query("step == 70").pivot(index="learning_rate", columns="metric", values="value")
    for rate in (1e-5, 0.03):
        row = rates.set_index("learning_rate").loc[rate]
        assert row["validation_accuracy"] == ends.loc[rate, "validation_accuracy"]
        assert row["validation_loss"] == ends.loc[rate, "validation_loss"]
    assert ends.loc[0.03, "validation_accuracy"] > 0.6 > ends.loc[1e-5, "validation_accuracy"]
    assert rates.loc[2, ["validation_accuracy", "validation_loss"]].isna().all()


# -- streams that all defenses, levels and candidates of a replica share ----------------------------------------------


@pytest.mark.parametrize("case", ["none", "natural", "white_frozen", "dpsgd", "parameter_noise"])
def test_more_candidates_and_more_replicas_change_no_other_slot(request_for, under, case):
    defense = under(case) | {"training": {"evaluations": 1}}
    few = train(request_for(replicas=1, learning_rates=(0.05,), **defense))
    request = request_for(replicas=2, learning_rates=(0.02, 0.05, 0.1), **defense)
    more, place = train(request), request.slots.index(Slot(0, 0.05))
    for name, values in few.weights.items():
        assert values[0].numpy().tobytes() == more.weights[name][place].numpy().tobytes()
    own = more.curves.query("replica == 0 and learning_rate == 0.05").reset_index(drop=True)
    pd.testing.assert_frame_equal(own, few.curves, check_exact=True)
    assert more.events[place] == few.events[0]
    assert not torch.equal(more.weights["head.weight"][place], more.weights["head.weight"][place + 3])


def test_all_defenses_levels_and_rates_share_members_weights_and_batches(request_for, under, through, digits):
    cases = {name: under(name) for name in ("none", "natural", "white", "natural_frozen", "parameter_noise")}
    cases |= {"rate": {"learning_rates": (0.3,)}, "natural 2": through("natural", level=2.0)}
    requests = {name: request_for(replicas=2, slug=f"digits/lenet/{name}", **case) for name, case in cases.items()}
    made = {name: StackLearner(request, request.slots[1:]) for name, request in requests.items()}
    plain = made.pop("none")
    batches = [plain._batches.draw()[0].clone() for _ in range(15)]
    assert np.array_equal(plain._labels[0].numpy(), digits.members(1).labels)
    for name, learner in made.items():
        assert all(torch.equal(learner.params[key], value) for key, value in plain.params.items()), name
        assert torch.equal(learner._labels, plain._labels), name
        assert all(torch.equal(learner._batches.draw()[0], batch) for batch in batches), name


def test_private_training_shares_members_and_weights_and_its_levels_share_batches_and_noise(request_for, digits):
    made = [
        OpacusLearner(request, request.slots[1:])
        for level in (0.0, 0.5, 2.0)
        for request in [request_for(replicas=2, defense=DPSGD(), level=level, slug=f"dpsgd-{level}")]
    ]
    plain = StackLearner(request_for(replicas=2), request_for(replicas=2).slots[1:])
    batches = [made[0]._batches.draw() for _ in range(5)]
    every = torch.arange(len(digits.members(1).images))[None]
    for learner in made:
        assert np.array_equal(learner._inputs.take(every)[0].numpy(), digits.members(1).images)
        assert all(torch.equal(learner.params[key], value) for key, value in plain.params.items())
    assert all(torch.equal(learner._batches.draw(), batch) for learner in made[1:] for batch in batches)
    little, much = (learner._noise.normal((1000,), torch.float32) for learner in made[1:])
    assert torch.equal(little, much)


def seen_noise(request_for, through, shape, level, noise="fresh", steps=9):
    """Noise on the images of some steps of replica 1, each beside its clean image; white noise is drawn by eights."""
    noisy, clean = (
        StackLearner(request, request.slots[1:])._inputs
        for request in (request_for(replicas=2, **through(shape, noise, level)), request_for(replicas=2))
    )
    indices = torch.arange(6)[None]
    return torch.cat([(noisy.take(indices) - clean.take(indices))[0] for _ in range(steps)]).double().flatten(1)


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
@pytest.mark.parametrize("shape", ["natural", "white"])
def test_noise_of_two_capacities_is_a_multiple_of_each_other(request_for, through, channel, shape, noise):
    small, large = (seen_noise(request_for, through, shape, level, noise) for level in (2.0, 8.0))
    stds = [np.sqrt(channel(shape, level).variances) for level in (2.0, 8.0)]
    factor = stds[0].max() / stds[1].max()
    assert factor > 1.5
    torch.testing.assert_close(small, factor * large, rtol=1e-3, atol=1e-4 * float(stds[0].max()))


# -- control arms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.25, 0.5, 1.0])
def test_stopped_is_the_plain_run_of_its_part_of_the_rounds(request_for, part):
    settings = {"learning_rates": (0.02, 0.05), "training": {"evaluations": 1}}
    stopped = train(request_for(defense=Stopped(), level=part, rounds=8, **settings))
    plain = train(request_for(rounds=round(8 * part), **settings))
    torch.testing.assert_close(stopped.weights, plain.weights, rtol=0, atol=0)
    assert stopped.curves.equals(plain.curves)
    assert stopped.rates.equals(plain.rates)
    assert stopped.events == [dataclasses.replace(event, mechanism="stopped") for event in plain.events]


def test_stopped_takes_at_least_a_step():
    assert [Stopped().steps(part, 10) for part in (0.001, 0.04, 0.26, 1.0)] == [1, 1, 3, 10]


def test_early_stopping_ends_with_the_weights_of_its_best_validation_point(request_for):
    """At a rate far too large some points lie below ones before."""
    settings = {"rounds": 12, "learning_rates": (0.01, 0.4), "replicas": 2, "training": {"evaluations": 3}}
    early = train(request_for(defense=EarlyStopping(), **settings))
    kept = train(request_for(lengths=("best", "full"), **settings))
    best = torch.tensor((kept.rates["length"] == "best").tolist())
    for name, weights in early.weights.items():
        assert torch.equal(weights, kept.weights[name][best])
    ends = points_of(early.curves.assign(length="full"), "full")
    steps = kept.curves[kept.curves["length"] == "best"].groupby(["replica", "learning_rate"])["step"].first()
    kept_steps = {(*slot, "kept_step"): repr(float(step)) for slot, step in steps.items()}
    assert ends == points_of(kept.curves, "best") | kept_steps
    assert steps.min() < 12
    assert {event.steps for event in early.events} == {12}  # all its steps have seen the records


# -- lengths ----------------------------------------------------------------------------------------------------------

LENGTHS = ("half", "best", "full")


def points_of(curves, length):
    """Metrics of each slot at its point of a length, as text of which no digit is lost."""
    ends = curves[curves["length"] == length].drop_duplicates(["replica", "learning_rate", "metric"], keep="last")
    return {(row.replica, row.learning_rate, row.metric): repr(row.value) for row in ends.itertuples()}


@pytest.mark.parametrize("arm", ["none", "clipping", "dpsgd", "natural"])
def test_one_training_of_any_arm_keeps_what_trainings_of_each_length_would_end_with(request_for, under, arm):
    """At a rate far too large the best point lies before the end; rates, weights and metrics have one order."""
    defense = under("dpsgd") | {"level": 0.0} if arm == "clipping" else under(arm)
    rates = (1.0, 30.0) if arm in ("clipping", "dpsgd") else (0.01, 0.4)
    settings = {**defense, "learning_rates": rates, "training": {"evaluations": 3}}
    kept, whole = train(request_for(rounds=6, lengths=LENGTHS, **settings)), train(request_for(rounds=6, **settings))
    plain = {
        steps: train(request_for(rounds=steps, **settings | {"training": {"evaluations": 1}})) for steps in (2, 3, 4, 6)
    }
    assert kept.rates["length"].tolist() == [*LENGTHS] * 2
    assert kept.rates["learning_rate"].tolist() == [rate for rate in rates for _ in LENGTHS]
    full = kept.rates[kept.rates["length"] == "full"].reset_index(drop=True)
    assert full.drop(columns="length").equals(whole.rates)
    assert not kept.rates["chosen"][kept.rates["length"] != "full"].any()
    assert kept.events == whole.events  # all steps have seen the records
    points = {length: points_of(kept.curves, length) for length in LENGTHS}
    assert points["full"] == points_of(whole.curves.assign(length="full"), "full")
    assert points["half"] == points_of(plain[3].curves.assign(length="half"), "half")
    for place, rate in enumerate(rates):
        ends = {steps: plain[steps].rates.loc[place, ["validation_accuracy", "validation_loss"]] for steps in plain}
        best = max(ends, key=lambda steps: (ends[steps].iloc[0], -ends[steps].iloc[1], -steps))
        for row, steps in zip(kept.rates.itertuples(), (3, best, 6) * 2, strict=True):
            if row.learning_rate == rate:
                assert row.validation_accuracy == ends[steps].iloc[0]
                for name, weights in kept.weights.items():
                    assert weights[row.Index].numpy().tobytes() == plain[steps].weights[name][place].numpy().tobytes()
        if arm == "dpsgd":  # the point was chosen from the whole training
            assert points["best"][0, rate, "epsilon"] == points["full"][0, rate, "epsilon"]
            assert float(points["half"][0, rate, "epsilon"]) < float(points["full"][0, rate, "epsilon"])


def test_test_records_choose_nothing(request_for, digits):
    """Under wrong labels of the test records early points do best on them; weights and choices stay as they are."""
    wrong = dataclasses.replace(digits.test, labels=(digits.test.labels + 1) % 10)
    settings = {"rounds": 12, "learning_rates": (0.05, 0.1), "training": {"evaluations": 4}}
    for arm in ({"defense": EarlyStopping()}, {"lengths": LENGTHS}):
        found = train(request_for(**arm, **settings))
        other = train(request_for(dataset=dataclasses.replace(digits, test=wrong), **arm, **settings))
        accuracy = other.curves.query("metric == 'test_accuracy'").groupby("learning_rate")["value"]
        assert (accuracy.first() > accuracy.last()).any()
        assert found.rates.equals(other.rates)
        torch.testing.assert_close(other.weights, found.weights, rtol=0, atol=0)


def test_a_training_that_diverges_late_keeps_its_sound_lengths(request_for, monkeypatch):
    measured = StackLearner.step

    def step(self):
        measured(self)
        self.steps_done = getattr(self, "steps_done", 0) + 1
        if self.steps_done == 4:
            with torch.no_grad():
                next(iter(self.params.values())).fill_(torch.nan)

    monkeypatch.setattr(StackLearner, "step", step)
    result = train(request_for(rounds=4, lengths=LENGTHS, training={"evaluations": 4}))
    assert result.diverged == [True]
    assert result.rates["diverged"].tolist() == [False, False, True]
    sound = [all(bool(torch.isfinite(values[row]).all()) for values in result.weights.values()) for row in range(3)]
    assert sound == [True, True, False]
    assert {*result.curves["length"]} == {*LENGTHS}
