"""DP-MF: what is added to sums, in which batches, and what a server makes of the uploads."""

import math

import numpy as np
import pytest
import torch

from asking import resumed, training_of
from leakbound.accounting.correlated import inverse_coefficients, square_root_bands
from leakbound.accounting.dp import epsilon
from leakbound.randomness.grid import grid_spacing
from leakbound.randomness.seeding import torch_generator
from leakbound_lab.config.attacks import AuditConfig, GradientCapacityConfig, NamingConfig
from leakbound_lab.config.defenses import DPMF, DPSGD
from leakbound_lab.training import UntrainableError, train
from leakbound_lab.training.batches import CyclicBatches
from leakbound_lab.training.correlated import CorrelatedLearner, CorrelatedNoise
from leakbound_lab.training.matched_filter import MatchedFilter
from leakbound_lab.training.per_sample import PrivateStackLearner

SHORT = DPMF(bands=4)


def asked(digits, **changes):
    """The training of two perceptrons on digits, of whose 400 members 40 are in a step."""
    values = {"defense": SHORT, "level": 2.0, "rounds": 12, "batch_size": 40, "replicas": 2}
    return training_of(digits, **values | changes)


def lower_triangular(first, steps):
    """The Toeplitz matrix of a first column."""
    rows, columns = np.indices((steps, steps))
    padded = np.concatenate([first, np.zeros(max(0, steps - len(first)))])
    return np.where(rows >= columns, padded[np.abs(rows - columns)], 0.0)


def test_a_record_takes_part_in_the_same_step_of_each_epoch():
    batches = CyclicBatches(60, 20, torch_generator(0, "order"))
    drawn = [batches.draw() for _ in range(9)]
    assert torch.equal(torch.cat(drawn[:3]).sort().values, torch.arange(60))
    assert all(torch.equal(early, late) for early, late in zip(drawn[:6], drawn[3:], strict=True))
    other = CyclicBatches(60, 20, torch_generator(0, "order"))
    other.restore({"step": 4})
    assert torch.equal(other.draw(), drawn[4])


def test_noise_is_white_noise_times_the_inverse():
    """Of two parameters at a time, over more steps than there are bands."""
    white = torch.randn(20, 2, 7, generator=torch_generator(0), dtype=torch.float64)
    noise = CorrelatedNoise(square_root_bands(4))
    rows = [torch.cat(noise.following([step[:, :3], step[:, 3:]]), dim=1) for step in white]
    matrix = lower_triangular(inverse_coefficients(square_root_bands(4), 20), 20)
    expected = np.einsum("ts,sij->tij", matrix, white.numpy())
    np.testing.assert_allclose(torch.stack(rows).numpy(), expected, rtol=1e-12, atol=1e-12)


def test_with_one_band_and_all_records_in_each_step_it_is_dp_sgd(digits, monkeypatch):
    """C = I: the same weights to the last bit, and the same ε."""
    # DP-SGD of networks of any size by the same sums, and not by Opacus' one network at a time.
    monkeypatch.setattr("leakbound_lab.training.opacus_learner.OpacusLearner", PrivateStackLearner)
    changes = {"batch_size": 400, "rounds": 3}
    ours = train(asked(digits, defense=DPMF(bands=1), **changes))
    theirs = train(asked(digits, defense=DPSGD(), **changes))
    for name, weights in theirs.weights.items():
        assert torch.equal(ours.weights[name], weights)
    spent = [result.curves.query("metric == 'epsilon'")["value"].iloc[-1] for result in (ours, theirs)]
    assert spent[0] == pytest.approx(spent[1], rel=1e-12)
    more = train(asked(digits, defense=DPMF(bands=1), **changes | {"batch_size": 200}))
    assert not torch.equal(more.weights["head.weight"], ours.weights["head.weight"])


def test_what_a_training_adds_has_the_covariance_of_the_inverse(digits):
    """Sums with noise less those without, at a rate that moves no weights: 98,666 values for each pair of steps."""
    steps = 10
    learners = [
        CorrelatedLearner(request, request.slots)
        for request in (asked(digits, level=level, rate=1e-30, replicas=1) for level in (3.0, 1e-20))
    ]
    sent: list[list[torch.Tensor]] = []
    for learner in learners:
        rows = []
        learner._update = lambda noisy, rows=rows: rows.append(torch.cat([part.flatten() for part in noisy]))
        for _ in range(steps):
            learner.step()
        sent.append(rows)
    noise = torch.stack(sent[0]).double() - torch.stack(sent[1]).double()
    matrix = lower_triangular(inverse_coefficients(square_root_bands(4), steps), steps)
    expected = 9.0 * matrix @ matrix.T
    found = (noise @ noise.T / noise.shape[1]).numpy()
    # Standard errors are below 9 · 1.4 · √(2 / 34,000), and 6 of them are allowed.
    np.testing.assert_allclose(found, expected, atol=6 * 13 * math.sqrt(2 / noise.shape[1]))
    assert abs(found[1, 0]) > 3  # and steps are correlated


def test_resumed_noise_goes_on_as_it_would_have(digits, tmp_path, monkeypatch):
    whole = train(asked(digits))
    request = asked(digits, checkpoint=tmp_path / "checkpoint")
    result, taken = resumed(monkeypatch, CorrelatedLearner, "step", 8, lambda: train(request))
    assert taken == 4
    for name, weights in whole.weights.items():
        assert torch.equal(result.weights[name], weights)


def test_secure_noise_is_on_the_grid_and_nothing_of_it_is_kept(digits):
    request = asked(digits, privacy_noise="secure", replicas=1)
    learner = CorrelatedLearner(request, request.slots)
    rows = []
    learner._update = rows.append
    learner.step()
    learner.step()
    spacing = float(grid_spacing(np.array([2.0]))[0])
    assert all((part.double() / spacing % 1 == 0).all() for row in rows for part in row)
    assert learner.state()["correlated"] == []
    first, second = (torch.cat([part.flatten() for part in row]).double() for row in rows)
    # The sums are at most 40 long, noise is √98,666 · 2; its correlation is −½/√1.25.
    assert torch.corrcoef(torch.stack([first, second]))[0, 1] == pytest.approx(-0.5 / math.sqrt(1.25), abs=0.03)


def test_event_counts_uses_and_states_bands(digits):
    [event, _] = (result := train(asked(digits, rounds=12))).events
    assert (event.mechanism, event.sampling, event.steps, event.uses, event.bands) == ("dpmf", "cyclic", 12, 2, 4)
    spent = result.curves.query("metric == 'epsilon' and replica == 0")["value"].iloc[-1]
    assert spent == pytest.approx(epsilon(event, 1e-5), rel=1e-12)


def test_batches_and_levels_that_do_not_fit_are_refused_before_the_first_step(digits):
    for changes, message in (
        ({"batch_size": 32}, "batch_size = 32: dpmf repeats the same batches in each epoch, so that 400 members"),
        ({"batch_size": 200}, "bands = 4, and a record of 400 members takes part again after 2 steps"),
        ({"level": 0.0}, "dpmf needs the multiplier of its white noise, > 0"),
    ):
        with pytest.raises(UntrainableError, match=message):
            train(asked(digits, **changes))
    for attack in (AuditConfig, GradientCapacityConfig, NamingConfig):
        assert attack.problem(SHORT, 1.0) is not None


def test_filtered_uploads_give_the_likelihood_ratio():
    """By the density of all uploads in NumPy, with a record in each step of eleven in turn, and four bands."""
    generator = np.random.default_rng(0)
    steps, size, std = 11, 3, 0.7
    first = square_root_bands(4)
    strategy = lower_triangular(first, steps)
    known, gradient = generator.normal(size=(steps, size)), generator.normal(size=size)
    uploads = known + np.linalg.solve(strategy, std * generator.normal(size=(steps, size)))
    precision = strategy.T @ strategy / std**2

    def log_density(mean):
        return -0.5 * np.einsum("ti,ts,si->", uploads - mean, precision, uploads - mean)

    matched = MatchedFilter(first)
    found = []
    for step in range(steps):
        upload = {"layer": torch.from_numpy(uploads[step] - known[step])}
        found += matched.completed_by(step, upload, last=step == steps - 1)
    assert [step for step, _ in found] == [*range(steps)]
    for step, total in found:
        with_it = known.copy()
        with_it[step] += gradient
        variance = std**2 / np.square(first[: steps - step]).sum()
        ratio = (gradient @ total["layer"].numpy() - gradient @ gradient / 2) / variance
        assert ratio == pytest.approx(log_density(with_it) - log_density(known), rel=1e-10)
    assert matched.noise == pytest.approx(1 / np.square(first).sum())
    # In the middle of a long training all gradients are in one sum with these weights.
    weights = strategy.T @ strategy / np.square(first).sum()
    assert matched.others == pytest.approx(np.square(weights[5]).sum())
