"""ε against other accountants on the same events, each by its own convention (docs/privacy-statement.md)."""

import math

import numpy as np
import pytest
from opacus.accountants import PRVAccountant, RDPAccountant
from scipy import optimize, stats

from leakbound.accounting import dp
from leakbound.accounting.leakage import PrivacyEvent

DELTA = 1e-5
# (noise multiplier, sampling rate, steps): ε by RdpAccountant and by PLDAccountant of dp-accounting 0.6.0, of adding or
# removing a record.
GOOGLE = {
    (0.8, 64 / 50_000, 10_000): (1.5613227486030437, 1.0218967562231962),
    (1.0, 0.01, 1_000): (2.101366525420273, 1.8282436455855091),
    (2.0, 1.0, 10): (8.079406222420491, 7.511275931204883),
}


@pytest.mark.parametrize("event", GOOGLE, ids=str)
def test_epsilon_is_that_of_dp_accounting(event):
    rdp, pld = GOOGLE[event]
    assert dp.poisson_epsilon(*event, DELTA) == pytest.approx(rdp, rel=1e-6)
    # PRV states an upper end that lies .01 above its estimate; PLD rounds up by less.
    assert pld < dp.poisson_epsilon(*event, DELTA, "prv") < pld + 0.012


@pytest.mark.parametrize("event", GOOGLE, ids=str)
def test_epsilon_is_that_of_opacus(event):
    multiplier, rate, steps = event
    for name, kind in {"rdp": RDPAccountant, "prv": PRVAccountant}.items():
        accountant = kind()
        accountant.history = [(multiplier, rate, steps)]
        with np.errstate(divide="ignore"):  # prv at a rate of 1
            assert dp.poisson_epsilon(*event, DELTA, name) == accountant.get_epsilon(delta=DELTA)


def exact_epsilon(multiplier: float, delta: float) -> float:
    """Compute ε at δ of one Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        first, second = stats.norm.logcdf(
            [0.5 / multiplier - epsilon * multiplier, -0.5 / multiplier - epsilon * multiplier]
        )
        return math.exp(first) - math.exp(epsilon + second) - delta

    return optimize.brentq(excess, 0.0, 100.0)


@pytest.mark.parametrize(("multiplier", "steps"), [(2.0, 10), (5.0, 1), (1.0, 4)])
def test_without_sampling_epsilon_is_above_the_exact_curve_and_prv_near_it(multiplier, steps):
    exact = exact_epsilon(multiplier / math.sqrt(steps), DELTA)
    assert exact < dp.poisson_epsilon(multiplier, 1.0, steps, DELTA, "prv") < exact + 0.012
    assert exact < dp.poisson_epsilon(multiplier, 1.0, steps, DELTA) < 1.1 * exact


def test_fixed_batches_of_jax_privacy_are_poisson_batches_at_half_the_multiplier():
    """jax-privacy 2.0.0, 10,000 records, batches of 100, 1,000 steps, noise over the clip 1: (rdp, pld)."""
    found = {1.0: (2.1018132827058342, 1.8282436455855091), 0.5: (15.455701811775826, 13.360825690298975)}
    for multiplier, (rdp, pld) in found.items():
        event = (multiplier, 0.01, 1_000)
        # Its Rényi orders are others than Opacus', and each choice of orders gives a bound.
        assert dp.poisson_epsilon(*event, DELTA) == pytest.approx(rdp, rel=1e-3)
        assert pld < dp.poisson_epsilon(*event, DELTA, "prv") < pld + 0.012


def test_replacing_a_record_costs_at_most_twice_what_adding_or_removing_does():
    """PLDAccountant of dp-accounting 0.6.0 under REPLACE_ONE, on the events above."""
    replaced = [1.5077083601663726, 2.8434458118173023, 17.8565868490167]
    for event, epsilon in zip(GOOGLE, replaced, strict=True):
        # Twice ε holds at (1 + e^ε) δ, so ε is taken at a δ at which that is no more than DELTA.
        smaller = optimize.brentq(
            lambda log, e=event: _replaced_delta(e, log) - math.log(DELTA), -50.0, math.log(DELTA)
        )
        assert epsilon < 2.0 * dp.poisson_epsilon(*event, math.exp(smaller))


def _replaced_delta(event: tuple[float, float, int], log_delta: float) -> float:
    """Return the logarithm of (1 + e^ε) δ, with ε at δ."""
    return log_delta + math.log1p(math.exp(dp.poisson_epsilon(*event, math.exp(log_delta))))


def test_a_delta_that_prv_cannot_reach_names_what_rdp_says():
    with pytest.raises(ValueError, match=r"delta = 1e-15: 'prv' cannot .*; 'rdp' bounds it by 5\.285$"):
        dp.poisson_epsilon(1.0, 0.01, 1_000, 1e-15, "prv")
    assert 5.284 < dp.poisson_epsilon(1.0, 0.01, 1_000, 1e-15) <= 5.285  # told rounded up


def test_shuffled_batches_name_what_holds_without_credit_for_sampling():
    event = PrivacyEvent("dpsgd", "shuffled", 1_000, 10, 500, 5, noise_multiplier=2.0, max_grad_norm=1.0)
    for call in (dp.record_information, lambda shuffled: dp.epsilon(shuffled, DELTA)):
        with pytest.raises(ValueError, match=r"hold 0\.625 nats .* poisson_epsilon\(2, 1\.0, 5, delta\)"):
            call(event)
    # Five sums with noise of variance m² move by 1 each: as one Gaussian at a distance of √5/m.
    everybody = PrivacyEvent("dpsgd", "poisson", 10, 10, 5, 5, noise_multiplier=2.0, max_grad_norm=1.0)
    assert dp.record_information(everybody) == pytest.approx(0.625, rel=1e-6)
    copies = PrivacyEvent("dpsgd", "shuffled", 1_000, 10, 500, 15, noise_multiplier=2.0, max_grad_norm=1.0, rows=3)
    with pytest.raises(ValueError, match=r"hold 5\.625 nats"):  # worst: three copies in one batch, five times
        dp.record_information(copies)


def test_without_noise_nothing_holds_for_shuffled_batches():
    event = PrivacyEvent("dpsgd", "shuffled", 1_000, 10, 500, 5, noise_multiplier=0.0, max_grad_norm=1.0)
    with pytest.raises(ValueError, match=r"train with Poisson sampling$"):
        dp.record_information(event)
