"""No argument of a public function gives a number that cannot be: it is refused, or the number is in its range."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakbound.accounting import dp, gaussian, leakage, lower_limits, one_run, reconstruction, risk
from leakbound.accounting.coin_limits import StatedBound, check_coins
from leakbound.accounting.leakage import PrivacyEvent, joint_information
from leakbound.accounting.runs import stated_bounds

ODD = [-1.0, -1e-3, 0.0, 0.05, 0.5, 0.9, 1.0, 2.0, 3.0, 40.0, math.inf, math.nan]
COUNTS = [-1, 0, 1, 2, 3, 10, 400]
ARRAYS = [np.array(values) for values in ([0.0, 1.0], [-1.0, 2.0], [0.3, 0.7], [math.inf, 1.0], [math.nan, 1.0])]
WHOLE = {"candidates", "canaries", "guesses", "correct", "hits", "trials", "pairs", "steps", "batch_size", "parameters"}
WHOLE |= {"rows"}
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
    others |= {"whiten", "composed_nats", "private_nats", "group_divergence", "drawn_shifts", "step_log_ratio"}
    others |= {"gaussian_steps"}
    functions = {name for name in here if not name.startswith(("_", "check_"))}
    assert functions - others == {function.__name__ for function in RANGES} & functions


DP = {"mechanism": "dpsgd", "sampling": "poisson", "population": 100, "batch_size": 10, "steps": 10, "uses": 10}


@pytest.mark.parametrize(
    "change", [{"population": 9}, {"population": -1}, {"steps": -1}, {"batch_size": 0}, {"noise_multiplier": -1.0}]
)
def test_events_that_cannot_be_have_no_bound(change):
    event = PrivacyEvent(**{**DP, "noise_multiplier": 1.0, **change})
    for bound in (dp.record_information, lambda event: dp.epsilon(event, 1e-5)):
        with pytest.raises(ValueError, match="must be"):
            bound(event)


def test_a_delta_that_publishing_a_record_meets_is_refused_and_bounds_no_run():
    event = PrivacyEvent(**DP, noise_multiplier=1.0)
    for delta in (0.01, 0.5):
        with pytest.raises(ValueError, match=r"for 100 records: .* it must be below 1 / 100"):
            dp.epsilon(event, delta)
        assert stated_bounds([event], delta=delta, labels=0.0) is None
    assert stated_bounds([event], delta=0.0099, labels=0.0)["replica"]["epsilon"] > 0
    assert dp.poisson_epsilon(1.0, 0.1, 10, 0.9) == 0.0  # once -2.2


ONE, NOISE, DRAW = np.ones(1), np.ones(2), np.random.default_rng(0)
REFUSED = {
    "candidates = 1: identification takes at least 2": lambda: risk.naming_bound(1.0, 1),
    "information = nan": lambda: risk.naming_bound(math.nan, 2),
    "information = -1.0: it is >= 0 nats": lambda: risk.membership_bound(-1.0),
    "rate = 1.5: a probability": lambda: risk.identification_information(1.5, 2),
    "hits = 5: there are 4 trials": lambda: risk.lower_rate(5, 4),
    r"confidence = 1.0: it must be in \(0, 1\)": lambda: risk.lower_rate(1, 4, 1.0),
    "trials = 1 must be >= 2": lambda: risk.gained_information(0.1, 0.1, 1, 2),
    "sample_rate = 0.0": lambda: risk.dp_naming_bound(1.0, 0.0, 1, 2),
    r"advantage = 1.0: TPR - FPR is limited to something in \[0, 1\)": lambda: risk.membership_information(1.0),
    r"probability = 0.05: among candidates = 10 >= 2 it is": lambda: risk.identification_epsilon(0.05, 10),
    "correct = 5, guesses = 4, canaries = 10": lambda: one_run.one_run_epsilon(10, 4, 5, 1e-5),
    "delta = 2.0": lambda: one_run.one_run_p_value(10, 4, 4, 1.0, 2.0),
    "epsilon = -1": lambda: one_run.one_run_p_value(10, 4, 4, -1.0, 0.0),
    "confidence = 0.0": lambda: one_run.one_run_gaussian(10, 4, 4, 0.0),
    "mu = -1": lambda: one_run.gaussian_epsilon(-1.0, 1e-5),
    "draws = 1": lambda: reconstruction.empirical_bayes(np.eye(2), NOISE, DRAW, draws=1),
    "without noise": lambda: reconstruction.empirical_bayes(np.eye(2), 0 * NOISE, DRAW, draws=5),
    "gain: each is >= 0": lambda: reconstruction.whiten(np.eye(2), NOISE, None, -NOISE),
    "noise_variances and gain": lambda: reconstruction.whiten(np.eye(2), math.nan * NOISE, None, NOISE),
    "noise_multiplier = 0": lambda: dp.dp_capacity(0.0, 64),
    "batch_size = 0": lambda: dp.dp_capacity(1.0, 0),
    "parameters = 0": lambda: dp.dp_capacity(1.0, 64, 0),
    "no number of parameters": lambda: dp.dp_capacity(1.0, 64, 10, as_printed=True),
    "noise_multiplier = -1": lambda: dp.poisson_epsilon(-1.0, 0.1, 10, 1e-5),
    "delta = 0": lambda: dp.poisson_epsilon(1.0, 0.1, 10, 0.0),
    "orders belong": lambda: dp.poisson_epsilon(1.0, 0.1, 10, 1e-5, "prv", [2.0]),
    "x > 0": lambda: gaussian.log_expm1(0.0),
    "eigenvalue -0.1 is negative": lambda: gaussian.gaussian_capacity(np.array([1.0, -0.1]), 1.0),
    "not finite": lambda: gaussian.gaussian_capacity(np.nan * ONE, 1.0),
    "noise variance is -1": lambda: gaussian.gaussian_capacity(ONE, -1.0),
    "uses = 0.5": lambda: gaussian.gaussian_capacity(ONE, 1.0, 0.5),
    "each once": lambda: gaussian.mutual_information(np.eye(3), [0, 0]),
    "some, not all": lambda: gaussian.mutual_information(np.eye(3), [0, 1, 2]),
    "not positive definite": lambda: gaussian.mutual_information(np.zeros((2, 2)), [0]),
    "not symmetric": lambda: gaussian.mutual_information(np.array([[1.0, 2.0], [0.0, 1.0]]), [0]),
    "NaN or infinite": lambda: gaussian.log_determinant(np.array([[np.inf]])),
    "positive and finite": lambda: gaussian.linear_mmse_from_covariances(np.eye(2), np.array([0.0, 1.0])),
    r"epsilon = 0, delta = 1e-05: give a finite bound above 0": lambda: StatedBound("epsilon", 0.0),
    r"delta = 1: give a finite bound above 0 and a delta in": lambda: StatedBound("epsilon", 1.0, 1.0),
    "a 0 or 1 for each of 3 is needed": lambda: check_coins(np.array([0, 1]), 3),
    "100 of 100 are included, which fair coins do not give": lambda: check_coins(np.ones(100), 100),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_by_name(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
