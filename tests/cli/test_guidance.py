"""Where next to nothing is left of records, ``protect`` and ``calibrate`` say so, and what would leave more."""

import json
import re

import numpy as np
import pytest
from PIL import Image
from scipy import optimize

from calling import succeeded
from leakbound.commands.guidance import LITTLE

NUMBER = r"([\d.,e+-]*\d)"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Arrays whose first of 40 values varies most, and smooth pictures of 48 by 48 pixels."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    spread = np.linspace(3.0, 0.2, 40)
    for name, count in (("mine", 50), ("public", 400)):
        np.save(f"{name}.npy", generator.normal(size=(count, 40)) * spread)
        (tmp_path / name).mkdir()
        for number in range(count // 2):
            coarse = Image.fromarray(generator.integers(0, 256, (3, 3), dtype=np.uint8))
            coarse.resize((48, 48), Image.Resampling.BICUBIC).save(tmp_path / name / f"{number}.png")
    return tmp_path


def warnings(*words) -> tuple[dict, str]:
    outcome = succeeded("calibrate", *words, "--json")
    return json.loads(outcome.out), outcome.message


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, text
    return [float(group.replace(",", "")) for group in found.groups()]


def test_half_of_the_variance_is_recovered_at_the_nats_that_are_suggested(place):
    _, said = warnings("mine.npy", "--public", "public.npy", "--target-leakage", 0.5, "--uses", 5)
    (lost,) = numbers(rf"from all 5 copies averaged recovers {NUMBER} %", said)
    half, alike = numbers(
        rf"natural, from about {NUMBER} nats on half of the variance is recovered, and from about {NUMBER} nats on the "
        "noise is as large",
        said,
    )
    public = np.load("public.npy")
    eigenvalues = np.linalg.eigvalsh(np.cov(public.T, bias=True))
    total = eigenvalues.sum()

    def recovered(noise: float) -> float:
        return (eigenvalues**2 / (eigenvalues + noise)).sum() / total

    def nats(noise: float) -> float:
        return np.log1p(eigenvalues / noise).sum() / 2

    def root(wrong) -> float:
        return optimize.brentq(wrong, 1e-6, 1e6)

    assert half == pytest.approx(nats(root(lambda noise: recovered(noise) - 0.5)), rel=0.05)
    assert alike == pytest.approx(nats(total / 40), rel=0.05)
    assert lost / 100 == pytest.approx(recovered(root(lambda noise: nats(noise) - 0.5)), rel=0.05)
    assert lost / 100 < LITTLE


def test_noise_of_smaller_pictures_is_what_they_get_when_they_are_resized(place):
    words = ("mine", "--public", "public", "--shape", "natural", "--target-leakage", 6)
    large, said = warnings(*words)
    (times, recovered) = numbers(rf"noise is {NUMBER} times that of the records. .* recovers {NUMBER} %", said)
    row = large["shapes"][0]
    assert times == pytest.approx(row["std"] / np.sqrt(large["mse_mean"]), rel=0.05)
    assert recovered / 100 == pytest.approx(1 - row["mse"] / large["mse_mean"], rel=0.05)
    for side in (16, 32):
        small, _ = warnings(*words, "--resize", side)
        std, kept = numbers(rf"--resize {side} std {NUMBER} \(recovers {NUMBER} %\)", said)
        assert std == pytest.approx(small["shapes"][0]["std"], rel=0.06)
        assert kept / 100 == pytest.approx(1 - small["shapes"][0]["mse"] / small["mse_mean"], rel=0.06)
    assert "--resize 128" not in said


@pytest.mark.parametrize("shape", ["natural", "white", "least_power", "rate_distortion"])
def test_nothing_is_said_where_enough_is_left(place, shape):
    found, said = warnings("mine.npy", "--public", "public.npy", "--shape", shape, "--target-leakage", 60)
    assert found["shapes"][0]["mse"] < 0.5 * found["mse_mean"]
    assert "variance" not in said


def test_protect_says_it_next_to_its_statement(place):
    box = ("--shape", "personalized", "--box", 0, 8, 0, 8, 4, "--resize", 20)
    outcome = succeeded("protect", "mine", "--public", "public", *box, "--kappa", 0.1, "--out", "out")
    assert "next to nothing is left" in outcome.message
    assert "with the shape natural, from about" in outcome.message
    assert "--resize 16 std" in outcome.message
