"""No argument of a public function gives a number that cannot be: it is refused, or the number is in its range."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakbound.accounting import dp, gaussian, leakage, lower_limits, one_run, reconstruction, risk
from leakbound.accounting.leakage import PrivacyEvent, joint_information
from leakbound.accounting.statement import stated_bounds

ODD = [-1.0, -1e-3, 0.0, 0.05, 0.5, 0.9, 1.0, 2.0, 3.0, 40.0, math.inf, math.nan]
COUNTS = [-1, 0, 1, 2, 3, 10, 400]
ARRAYS = [np.array(values) for values in ([0.0, 1.0], [-1.0, 2.0], [0.3, 0.7], [math.inf, 1.0], [math.nan, 1.0])]
WHOLE = {"candidates", "canaries", "guesses", "correct", "hits", "trials", "pairs", "steps", "batch_size", "parameters"}
VECTORS = {"eigenvalues", "noise_variances", "members", "nonmembers", "ratios"}
NATS = (0.0, math.inf)
RANGES = {
    dp.dp_capacity: NATS,
    dp.poisson_epsilon: NATS,
    risk.identification_information: NATS,
    risk.lower_rate: (0.0, 1.0),
    risk.demonstrated_information: NATS,
    risk.gained_information: NATS,
    risk.naming_bound: (0.0, 1.0),
    risk.dp_naming_bound: (0.0, 1.0),
    risk.stated_gains: (math.log(0.01) - 1e-9, math.log(400) + 1e-9),
    one_run.one_run_p_value: (0.0, 1.0),
    one_run.one_run_epsilon: NATS,
    one_run.one_run_gaussian: NATS,
    one_run.one_run_information: (0.0, math.log(2)),
    one_run.gaussian_epsilon: NATS,
    reconstruction.fano_error: (0.0, 1.0),
    reconstruction.gaussian_surrogate_error: NATS,
    gaussian.gaussian_capacity: NATS,
    gaussian.linear_mmse: NATS,
    joint_information: NATS,
    lower_limits.naming_rate: (0.0, 1.0),
    risk.identification_epsilon: NATS,
    risk.membership_information: NATS,
}


def given_values(name):
    """Values of an argument, ordinary ones and odd ones."""
    if name in ("accountant", "adjacency", "as_printed"):
        return {"accountant": ["rdp"], "adjacency": ["add_remove", "pairs"], "as_printed": [False]}[name]
    if name == "orders":
        return [None]
    if name == "posteriors":
        return ARRAYS[:4]  # what is unknown stays unknown
    return ARRAYS if name in VECTORS else COUNTS if name in WHOLE else ODD


@settings(max_examples=100)
@pytest.mark.parametrize("function", RANGES, ids=lambda function: function.__name__)
@given(data=st.data())
def test_any_argument_is_refused_or_gives_a_number_in_its_range(function, data):
    names = inspect.signature(function).parameters
    values = {name: data.draw(st.sampled_from(given_values(name)), label=name) for name in names}
    try:
        found = function(**values)
    except ValueError:
        return
    low, high = RANGES[function]
    assert np.all((np.asarray(found) >= low) & (np.asarray(found) <= high)), values


def test_every_public_function_of_numbers_is_among_them():
    """Others take an event, several uses or draws, or only check or multiply."""
    rooms = (dp, leakage, risk, one_run, reconstruction)
    members = [pair for room in rooms for pair in inspect.getmembers(room, inspect.isfunction)]
    here = {name for name, found in members if found.__module__ in map(str, (r.__name__ for r in rooms))}
    others = {"composed_epsilon", "composed_leakage", "empirical_bayes", "epsilon", "record_information"}
    others |= {"added_up", "bound_text", "guess", "identification_risk", "membership_bound", "repeated", "seen_by"}
    others |= {"whiten"}
    functions = {name for name in here if not name.startswith(("_", "check_"))}
    assert functions - others == {function.__name__ for function in RANGES} & functions


DP = {"mechanism": "dpsgd", "sampling": "poisson", "population": 100, "batch_size": 10, "steps": 10, "uses": 10}
CHANNEL = {**DP, "mechanism": "channel", "sampling": "shuffled", "shape": "natural", "noise": "fresh", "capacity": 2.0}


@pytest.mark.parametrize(
    "change", [{"population": 9}, {"population": -1}, {"steps": -1}, {"batch_size": 0}, {"noise_multiplier": -1.0}]
)
def test_events_that_cannot_be_have_no_bound(change):
    event = PrivacyEvent(**{**DP, "noise_multiplier": 1.0, **change})
    for bound in (dp.record_information, lambda event: dp.epsilon(event, 1e-5)):
        with pytest.raises(ValueError, match="must be"):
            bound(event)


@pytest.mark.parametrize("change", [{"population": -1}, {"steps": -1}, {"uses": -1}, {"capacity": math.nan}])
def test_events_of_a_channel_that_cannot_be_have_no_bound(change):
    with pytest.raises(ValueError, match="states a capacity >= 0"):
        leakage.composed_leakage([PrivacyEvent(**{**CHANNEL, **change})], np.ones(2))


def test_a_delta_that_publishing_a_record_meets_is_refused_and_bounds_no_run():
    event = PrivacyEvent(**DP, noise_multiplier=1.0)
    for delta in (0.01, 0.5):
        with pytest.raises(ValueError, match=r"for 100 records: .* it must be below 1 / 100"):
            dp.epsilon(event, delta)
        assert stated_bounds([event], delta=delta, labels=0.0) is None
    assert stated_bounds([event], delta=0.0099, labels=0.0)["replica"]["epsilon"] > 0
    assert dp.poisson_epsilon(1.0, 0.1, 10, 0.9) == 0.0  # once -2.2


def test_gains_and_scores_that_hide_leakage_are_refused():
    records, noise = np.eye(3), np.ones(3)
    for gain, variances in ((-noise, noise), (noise, -noise), (noise, noise * math.nan)):
        with pytest.raises(ValueError, match="gain: each is >= 0"):
            reconstruction.whiten(records, variances, None, gain)
    with pytest.raises(ValueError, match=r"part = 2.0: it must be in \(0, 1\]"):
        one_run.guess(np.ones(4), np.ones(4, bool), 2.0)
    with pytest.raises(ValueError, match="confidence"):
        lower_limits.weights_information(np.eye(4), np.eye(4), confidence=-1.0)
    with pytest.raises(ValueError, match="a stated probability"):
        risk.stated_gains(np.array([1.5]), 10)
