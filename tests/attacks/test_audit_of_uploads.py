import numpy as np
import pytest

from asking import attack_of
from leakbound.accounting.dp import poisson_epsilon
from leakbound.accounting.one_run import gaussian_epsilon, guess
from leakbound_lab.attacks.lower_bounds.dp_audit import audit_uploads
from leakbound_lab.config.attacks import AuditConfig
from leakbound_lab.config.defenses import DPPSAC, DPSGD
from leakbound_lab.training import client_steps

CONFIG = AuditConfig(canaries=1000, clients=4)


def audited(dataset, defense=None, level=1.0, config=CONFIG, replicas=1):
    rows, arrays = audit_uploads(
        attack_of(dataset, config, defense=defense or DPSGD(), level=level, replicas=range(replicas))
    )
    return {key: group["value"].to_numpy() for key, group in rows.groupby(["variant", "metric"])}, arrays


def test_scores_are_likelihood_ratios_of_coins(digits):
    """With m = 1 they are N(±1/2, 1), independent: 8,000 of them, six standard errors."""
    _, arrays = audited(digits, replicas=2)
    signs = np.where(arrays["included"], 1.0, -1.0)
    assert (signs * arrays["scores"]).mean() == pytest.approx(0.5, abs=6 / np.sqrt(8000))
    assert (arrays["scores"] - 0.5 * signs).var() == pytest.approx(1.0, rel=0.1)
    assert arrays["included"].mean() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("defense", [DPSGD(), DPSGD(max_grad_norm=7.0), DPPSAC()])
@pytest.mark.parametrize("level", [1.0, 2.0])
def test_a_right_client_proves_much_of_its_epsilon_and_no_more(digits, defense, level):
    values, _ = audited(digits, defense, level)
    exact = gaussian_epsilon(1 / level, 1e-5)
    assert values["bound", "epsilon"] == pytest.approx(poisson_epsilon(level, 1.0, 1, 1e-5))
    assert 0 < values["one_run", "epsilon"] < values["gaussian", "epsilon"] < exact < values["bound", "epsilon"]
    assert values["gaussian", "epsilon"] > 0.4 * exact


def test_steps_add_up(digits):
    """Four steps at twice the multiplier tell what one tells."""
    values, _ = audited(digits, level=2.0, config=AuditConfig(canaries=500, clients=4, steps=4))
    assert values["bound", "epsilon"] == pytest.approx(poisson_epsilon(1.0, 1.0, 1, 1e-5), rel=1e-6)
    assert 1.5 < values["gaussian", "epsilon"] < values["bound", "epsilon"]


def test_subsampling_is_accounted_for_and_leaves_the_general_limit_alone(digits):
    values, arrays = audited(digits, level=0.6, config=AuditConfig(canaries=500, clients=4, steps=4, sample_rate=0.5))
    assert ("gaussian", "epsilon") not in values
    assert 0 < values["one_run", "epsilon"] < values["bound", "epsilon"]
    assert values["bound", "epsilon"] == pytest.approx(poisson_epsilon(0.6, 0.5, 4, 1e-5))
    assert arrays["scores"].min() >= 4 * np.log(0.5)  # nothing speaks more against a canary than never being drawn


@pytest.mark.parametrize(("level", "rate"), [(2.0, 0.5), (1.5, 0.2)])
def test_likelihood_ratios_of_records_that_were_not_there_average_one(digits, level, rate):
    """E[p/q] under q is 1. Five standard errors, from a variance of (e^(1/m²) − 1) q² for one step."""
    config = AuditConfig(canaries=1000, clients=8, sample_rate=rate)
    _, arrays = audited(digits, level=level, config=config)
    ratios = np.exp(arrays["scores"][arrays["included"] == 0])
    error = rate * np.sqrt(np.expm1(1 / level**2) / len(ratios))
    assert ratios.mean() == pytest.approx(1.0, abs=5 * error)


@pytest.mark.slow
def test_halved_noise_is_found_almost_always_and_right_noise_accused_almost_never(digits, monkeypatch):
    """40 repetitions each. Right noise: a limit above even the exact ε in at most 5 %, here 5 of 40 (p = 0.05)."""
    exact = gaussian_epsilon(1.0, 1e-5)
    right, _ = audited(digits, replicas=40)
    assert (right["gaussian", "epsilon"] > right["bound", "epsilon"]).sum() == 0
    assert (right["gaussian", "epsilon"] > exact).sum() <= 5
    assert (right["one_run", "epsilon"] > exact).sum() == 0
    drawn = client_steps.perturbed
    monkeypatch.setattr(client_steps, "perturbed", lambda signal, std, source: drawn(signal, std / 2, source))
    wrong, _ = audited(digits, replicas=40)
    assert (wrong["gaussian", "epsilon"] > wrong["bound", "epsilon"]).sum() >= 38


def test_clearest_scores_are_guessed():
    scores, included = np.array([[3.0, -2.0, 0.1], [-0.2, 5.0, -4.0]]), np.array([[True, True, False]] * 2)
    assert guess(scores, included, 0.5) == (3, 3)
    assert guess(scores, included, 2 / 3) == (4, 3)
    assert guess(scores, included, 1.0) == (6, 3)
