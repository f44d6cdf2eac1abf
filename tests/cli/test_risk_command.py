"""`leakbound risk`: its numbers, its words where a bound is vacuous, its refusals, and its page."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.datasets import load_digits

from calling import called, succeeded
from leakbound.accounting.reconstruction import empirical_bayes
from leakbound.accounting.risk import identification_information, identification_risk, membership_bound, naming_bound
from leakbound.channels import population_moments
from leakbound.commands.risk_translation import _down, _up

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "risk.md").read_text(encoding="utf-8")


def stated(*words) -> dict:
    return json.loads(succeeded("risk", *words, "--json").out)


def natural_error(eigenvalues: np.ndarray, nats: float) -> float:
    """Σ λσ/(λ + σ) at the σ with ½ Σ ln(1 + λ/σ) nats."""

    def excess(log_noise: float) -> float:
        return 0.5 * np.log1p(eigenvalues / math.exp(log_noise)).sum() - nats

    noise = math.exp(brentq(excess, -60, 40))
    return float((eigenvalues * noise / (eigenvalues + noise)).sum())


def test_sixty_nats_say_nothing_among_900_and_what_to_ask_for_is_safe():
    outcome = succeeded("risk", "--nats", 60, "--records", 900, "--probability", 0.3)
    assert "60 nats: an attacker may identify the record among 900 with certainty (guessing: 0.00112)" in outcome.out
    assert "as from 6.81 nats on" in outcome.out
    assert "60 nats do not limit membership inference" in outcome.out
    asked = float(re.search(r"Ask for at most ([0-9.]+) to keep it at or below 0.3", outcome.out)[1])
    assert naming_bound(asked, 900) <= 0.3 < naming_bound(asked * 1.01, 900)
    few = stated("--nats", asked, "--records", 900)
    assert few["identification"][0]["probability"] <= 0.3


def test_a_bound_that_rounds_to_certainty_is_no_limit():
    said = called("risk", "--nats", 2.9955, "--records", 20).out
    assert "TPR - FPR 0.975, AUC no limit; ask for" in said
    assert re.search(r"20 +0\.05 +no limit +\d", said)


def test_numbers_are_those_of_the_bounds_and_fall_with_the_nats():
    last = {"probability": 0.0, "advantage": 0.0}
    for nats in (0.01, 0.5, 3.0, 6.0):
        facts = stated("--nats", nats, "--records", 900, "--records", 10**6, "--probability", 0.2)
        small, large = facts["identification"]
        assert identification_information(small["probability"], 900) == pytest.approx(nats, rel=1e-6)
        assert large["probability"] < small["probability"]
        assert small["allowed"] == {"0.2": pytest.approx(0.2 * math.log(180) + 0.8 * math.log(0.8 * 900 / 899))}
        now = {"probability": small["probability"], "advantage": facts["membership"]["advantage"]}
        assert all(now[name] > last[name] for name in now)
        last = now


def test_errors_are_those_of_the_best_linear_estimate_of_the_records(tmp_path):
    generator = np.random.default_rng(1)
    records = generator.standard_normal((300, 6)) @ generator.standard_normal((6, 6)) + 3.0
    np.save(tmp_path / "mine.npy", records)
    eigenvalues = np.linalg.eigvalsh(population_moments(records).covariance)
    errors = []
    for nats in (0.5, 5.0, 60.0):
        facts = stated("--nats", nats, "--data", tmp_path / "mine.npy")
        assert [row["candidates"] for row in facts["identification"]] == [300]
        found = facts["reconstruction"]
        assert found["mse"] == pytest.approx(natural_error(eigenvalues, nats) / 6, rel=1e-6)
        assert found["mse_mean"] == pytest.approx(eigenvalues.sum() / 6, rel=1e-6)
        errors.append(found["mse"])
    assert sorted(errors, reverse=True) == errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nats", "-1", "--records", "9"), "--nats -1: give a finite number above 0"),
        (("--nats", "1", "--records", "1"), "--records 1: give whole numbers from 2 to 1000000000000"),
        (("--nats", "1", "--records", "9", "--probability", "0.1"), "--probability 0.1: give one between 0.1111"),
        (("--nats", "1"), "--records is missing: give the number of an attacker's candidates, or --data"),
        (("--nats", "1", "--records", "9", "--data", "nowhere"), "nowhere: there is no such file or folder"),
        (("--nats", "1e300", "--records", "9", "--data", "mine.npy"), "--nats 1e+300: "),
    ],
)
def test_mistakes_are_named(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.random.default_rng(0).standard_normal((30, 2)))
    outcome = called("risk", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.message


def test_commands_of_the_page_print_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = (DOCS / "commands.md").read_text(encoding="utf-8")
    exec(compile(re.search(r"```py\n(.*?)```", records, re.S)[1], "commands.md", "exec"), {})
    blocks = re.findall(r"```sh\nleakbound (.*?)\n```\n\n```text\n(.*?)```", PAGE, re.S)
    assert len(blocks) == PAGE.count("```sh") == 2
    for words, shown in blocks:
        assert called(*words.split()).out == shown


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading of the page."""
    table = PAGE.partition(heading)[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]


def test_advice_of_the_page_is_computed():
    found = rows("## Advice by use")
    assert len(found) >= 5
    for *_, candidates, limit, nats, advantage, epsilon in found:
        row = identification_risk(float(nats), int(candidates), [float(limit)])
        assert nats == _down(row.allowed[float(limit)])
        assert advantage == _up(membership_bound(float(nats))[0])
        assert epsilon == _down(row.epsilon)
    assert "at most 0.02 nats" in PAGE
    assert membership_bound(0.02)[0] == pytest.approx(0.1)


def test_risks_of_digits_on_the_page_are_computed_and_its_attacker_is_the_best_one():
    """2,000 draws: rates within 4 standard errors of two simulations."""
    digits = (load_digits().images[:900] * 15.9375).astype(np.uint8).reshape(900, 64) / 255
    eigenvalues = np.linalg.eigvalsh(population_moments(digits).covariance).clip(0)
    found = rows("## Nats and risks on 900 digits")
    assert len(found) >= 5
    for nats, identified, hits, linear, least, advantage, epsilon in found:
        row = identification_risk(float(nats), 900)
        assert (identified, epsilon) == (_up(row.probability), _down(row.epsilon) if row.epsilon else "none")
        assert advantage == _up(membership_bound(float(nats))[0])
        error = natural_error(eigenvalues, float(nats))
        assert linear == f"{error / eigenvalues.sum():.2f}"
        noise = brentq(lambda one, nats=float(nats): 0.5 * np.log1p(eigenvalues * math.exp(-one)).sum() - nats, -60, 40)
        best = empirical_bayes(digits, np.full(64, math.exp(noise)), np.random.default_rng(7), draws=1000)
        spread = math.sqrt(best.identification_rate * (1 - best.identification_rate) * (1 / 1000 + 1 / 2000))
        assert float(hits) == pytest.approx(best.identification_rate, abs=4 * spread + 0.002)
        least_share, doubt = (value / eigenvalues.sum() for value in (best.error, best.error_standard_error))
        assert float(least) == pytest.approx(least_share, abs=5 * doubt + 0.006)


def test_the_nats_that_are_translated_are_said_with_their_labels():
    said = succeeded("risk", "--nats", 2, "--records", 900).out
    assert "as given, and not checked: All uses together reveal about one record at most 2 nats on average" in said
    assert "plus labels, not counted" in said
    whole = stated("--nats", 2, "--records", 900, "--classes", 5)
    assert whole["statement"]["nats"] == whole["nats"] == pytest.approx(2 + math.log(5))
    assert whole["identification"][0]["probability"] == naming_bound(2 + math.log(5), 900)
