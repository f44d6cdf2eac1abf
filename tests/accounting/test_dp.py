import dataclasses
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.accounting import dp
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import stated_bounds

SIZES = {"population": 50_000, "batch_size": 64, "steps": 10_000, "uses": 31}
EVENT = PrivacyEvent("dpsgd", "poisson", **SIZES, noise_multiplier=0.8, max_grad_norm=1.0)


@given(st.floats(0.05, 20), st.integers(1, 4096), st.integers(1, 10**9))
def test_finite_dimension_tightens_the_capacity_and_printed_doubles_it(multiplier, batch_size, parameters):
    limit = dp.dp_capacity(multiplier, batch_size)
    assert dp.dp_capacity(multiplier, batch_size, parameters) <= limit * (1 + 1e-12)
    assert dp.dp_capacity(multiplier, batch_size, as_printed=True) == 2 * limit
    assert dp.dp_capacity(multiplier, batch_size, 10**15) == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_bounds_of_dp_are_those_of_the_accountant_that_is_named(accountant):
    found = stated_bounds([EVENT], delta=1e-5, accountant=accountant, labels=2.0)["replica"]
    assert set(found) == {"epsilon", "delta", "accountant", "record"}
    assert found["epsilon"] == dp.epsilon(EVENT, 1e-5, accountant)
    assert (found["delta"], found["accountant"]) == (1e-5, accountant)
    assert found["record"] == dp.record_information(EVENT)


def test_bounds_are_stated_only_for_what_they_were_derived_for():
    bare = dataclasses.replace(EVENT, mechanism="none", noise_multiplier=None)
    assert stated_bounds([bare], delta=1e-5, labels=math.log(10)) is None
    assert stated_bounds([EVENT, bare], delta=1e-5, labels=math.log(10)) is None
    assert stated_bounds([EVENT], labels=math.log(10)) is None
    clipped = dataclasses.replace(EVENT, noise_multiplier=0.0)
    assert stated_bounds([clipped], delta=1e-5, labels=math.log(10)) is None
    found = stated_bounds([EVENT, EVENT], delta=1e-5, labels=math.log(10))
    assert set(found) == {"count", "labels", "replica", "replicas"}
    assert (found["count"], found["labels"]) == (2, 0.0)
    for of, events in (("replica", [EVENT]), ("replicas", [EVENT, EVENT])):
        assert found[of]["epsilon"] == dp.composed_epsilon(events, 1e-5)
        assert found[of]["record"] == len(events) * dp.record_information(EVENT)


def test_epsilon_at_the_end_of_the_orders_is_a_number_and_no_warning():
    assert dp.poisson_epsilon(0.05, 1.0, 1, 1e-5) > 100
    assert dp.poisson_epsilon(500.0, 0.001, 1, 1e-5) < 0.5


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_clipping_without_noise_has_no_finite_epsilon(accountant):
    event = dataclasses.replace(EVENT, noise_multiplier=0.0)
    assert dp.epsilon(event, 1e-5, accountant) == math.inf
    assert dp.poisson_epsilon(0.0, 0.01, 0, 1e-5, accountant) == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": "shuffled"}, "assume Poisson sampling"),
        ({"mechanism": "channel"}, "mechanism 'channel'"),
        ({"mechanism": "none"}, "mechanism 'none'"),
        ({"mechanism": "parameter_noise"}, "for all others no guarantee was derived"),
        ({"noise_multiplier": None}, "states no noise_multiplier"),
    ],
)
def test_epsilon_refuses_events_it_was_not_derived_for(changes, message):
    with pytest.raises(ValueError, match=message):
        dp.epsilon(dataclasses.replace(EVENT, **changes), 1e-5)


def test_trainings_compose_to_what_opacus_composes_step_by_step_whatever_their_order():
    from opacus.accountants import RDPAccountant

    other = dataclasses.replace(EVENT, noise_multiplier=1.3, batch_size=500, steps=700)
    events = [EVENT, other, EVENT, other, EVENT]
    keeper = RDPAccountant()
    keeper.history = [(one.noise_multiplier, one.sample_rate, one.steps) for one in events]
    whole = keeper.get_epsilon(delta=1e-5)
    assert dp.composed_epsilon(events, 1e-5) == pytest.approx(whole, rel=1e-12)
    assert dp.composed_epsilon(sorted(events, key=repr), 1e-5) == pytest.approx(whole, rel=1e-12)
    longer = dataclasses.replace(EVENT, steps=3 * EVENT.steps)
    assert dp.composed_epsilon([EVENT] * 3, 1e-5) == dp.epsilon(longer, 1e-5)


@pytest.mark.parametrize("orders", [None, [1.5, 4.0, 64.0]])
def test_orders_of_one_step_give_the_number_of_the_accountant_whatever_came_before(orders):
    """Divergences of a step are kept: neither other steps nor other orders may change what comes next."""
    from opacus.accountants import RDPAccountant

    assert list(dp.ORDERS) == RDPAccountant.DEFAULT_ALPHAS
    for steps, delta in ((3, 1e-5), (4000, 1e-5), (3, 0.2), (4000, 1e-5)):
        keeper = RDPAccountant()
        keeper.history = [(0.9, 0.02, steps)]
        expected = keeper.get_epsilon(delta=delta, alphas=orders)
        assert dp.poisson_epsilon(0.9, 0.02, steps, delta, orders=orders) == max(0.0, expected)


def test_epsilon_by_orders_loads_neither_torch_nor_the_package_around_its_functions():
    code = (
        "import sys; from leakbound.accounting.dp import poisson_epsilon; poisson_epsilon(1.0, 0.1, 100, 1e-5); "
        "print({'torch', 'opacus', 'sympy', 'scipy.stats'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
