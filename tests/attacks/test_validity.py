"""An attack that did not move, did not converge or chose at an edge of its grid says so, and is no number in a mean."""

import dataclasses
import math

import numpy as np
import torch
from torch import nn

from asking import attack_of, calibrated, weights_of
from leakbound.channels import estimate_moments
from leakbound_lab.attacks.gradient_inversion import attack as gradient_inversion
from leakbound_lab.attacks.gradient_inversion import closed_form as recursive
from leakbound_lab.attacks.gradient_inversion import published as geiping
from leakbound_lab.attacks.gradient_inversion.gradient_matching import GradientMatching
from leakbound_lab.attacks.model_inversion import attack as model_inversion
from leakbound_lab.attacks.model_inversion.queries import AnsweringNetworks
from leakbound_lab.attacks.scheduling import side_by_side
from leakbound_lab.attacks.search_images import EXTENSIONS, largest_binds
from leakbound_lab.claims.tabulation import RunResults, tabulate
from leakbound_lab.config.attacks import GradientInversionConfig, ModelInversionConfig
from leakbound_lab.config.defenses import ChannelDefense
from leakbound_lab.models import build
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.stack import stacked

INVERSION = ModelInversionConfig(iterations=8, tv_weights=(0.0, 1e-3))


class Awake(nn.Module):
    """Network that is dead at black images and sees an image once some of its pixels are bright enough."""

    def __init__(self, threshold: float):
        super().__init__()
        self.threshold = threshold
        self.head = nn.Linear(1024, 2)

    def forward(self, images):
        return self.head(torch.relu(images.flatten(1) - self.threshold))


def awake(threshold: float) -> Awake:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Awake(threshold)


def attacker() -> model_inversion._Attacker:
    black, known = torch.full((2, 1, 32, 32), -0.9), np.zeros((2, 1, 32, 32), np.float32)
    return model_inversion._Attacker(0, torch.arange(2), black, known, INVERSION)


def told(network, asking):
    """Result of an attacker that asks one network."""
    (result,) = side_by_side([asking], AnsweringNetworks(network, stacked([network]), 1).answers)
    return result


def test_start_without_a_slope_is_jittered_until_it_has_one():
    """Thresholds that the first, the second and no jitter of three passes: 0.1, 0.2 and 0.4 of standard deviation."""
    for threshold, cured in ((-1.0, True), (-0.65, True), (-0.4, True), (2.0, False)):
        starts, dead = told(awake(threshold), attacker().starts(torch.Generator().manual_seed(0)))
        moved = bool((starts != -0.9).any())
        assert moved == (threshold > -0.9)
        assert (len(dead) == 0) == cured
        assert starts.abs().max() <= 1
    again = [told(awake(-0.4), attacker().starts(torch.Generator().manual_seed(5)))[0] for _ in range(2)]
    assert torch.equal(*again)


def test_cured_attack_has_values_and_an_incurable_one_says_that_it_is_stuck():
    for threshold, status in ((-0.4, ""), (2.0, "stuck")):
        found, statuses = told(awake(threshold), attacker().restore(torch.Generator().manual_seed(0)))
        assert set(statuses["printed"]) == {status}
        assert np.isfinite(found["printed"]).all()
        assert (set(statuses["tuned"]) == {"stuck"}) == bool(status)


def test_dead_network_gives_no_value_that_a_mean_could_hold(few_digits):
    alive, dead = (build("lenet", 1, 10, torch.Generator().manual_seed(seed)) for seed in range(2))
    with torch.no_grad():
        for parameter in dead.parameters():
            parameter.zero_()
    known = {"weights": weights_of([alive, dead]), "replicas": [0, 1]}
    rows, _ = model_inversion.invert_models(attack_of(few_digits, INVERSION, **known))
    attacks, controls = rows[rows.variant.isin(["printed", "tuned"])], rows[rows.variant.isin(["start", "aux_mean"])]
    assert set(attacks[attacks.replica == 1].status) == {"stuck"}
    assert attacks[attacks.replica == 1].value.isna().all()
    assert attacks[(attacks.replica == 0) & (attacks.status == "")].value.notna().all()
    assert controls.value.notna().all()
    assert set(controls.status) == {""}
    shared = {"learning_rate": 0.1, "chosen": True}
    run = RunResults("run", "digits", "lenet", "none", None, 10, 64, attacks={"model_inversion": rows.assign(**shared)})
    table = tabulate([run])
    summary = table[(table.unit == -1) & (table.variant == "printed") & (table.metric == "mse")]
    assert summary.set_index("replica").value.isna().tolist() == [False, True]


def test_attack_whose_loss_rises_has_not_converged():
    """A start at which the class has probability ½ and more, so that only an increase below that counts."""
    one, network, nobody = attacker(), awake(-1.0), np.array([], dtype=int)
    ends = one.start.numpy().copy()
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor([[1.0], [-1.0]]).expand(2, 1024))
    ends[0] -= 0.05  # darker is less of class 0, and more of class 1
    ends[1] -= 0.05
    assert told(network, one.status(one.start, ends, nobody)).tolist() == ["", ""]  # class 0 is still near certain
    ends[0], ends[1] = 0.9, 0.9  # brighter is less of class 1
    assert told(network, one.status(one.start, ends, nobody)).tolist() == ["", "not_converged"]
    ends[0] = np.inf
    assert told(network, one.status(one.start, ends, np.array([1]))).tolist() == ["diverged", "stuck"]
    assert told(network, one.status(one.start, one.start.numpy(), nobody)).tolist() == ["stuck", "stuck"]


def test_only_an_edge_that_is_better_by_more_than_a_hundredth_binds():
    for errors in ([3.0, 2.0, 1.0], [math.inf, 2.0]):
        assert largest_binds(errors)
    for errors in ([3.0, 1.0, 0.995], [1.0, 2.0], [1.0], [2.0, math.inf], [2.0, math.nan]):
        assert not largest_binds(errors)


def test_inversion_that_ends_no_lower_than_it_began_has_not_converged_and_without_a_direction_is_stuck(few_digits):
    model = build("lenet_sigmoid", 1, 10, torch.Generator().manual_seed(0))
    truth, label = torch.from_numpy(few_digits.pool.images[:1]), torch.from_numpy(few_digits.pool.labels[:1])
    observed = record_gradients(model, truth, label)
    matching = GradientMatching(model, observed, (1, 32, 32))
    near, far = 0.9 * truth, -truth
    for start, end, status in ((far, near, ""), (near, far, "not_converged"), (far, far, "stuck")):
        assert geiping._statuses(matching, label, start, torch.zeros(1), end).tolist() == [status]
    nothing = GradientMatching(model, {name: 0 * value for name, value in observed.items()}, (1, 32, 32))
    for end, status in ((near, "stuck"), (near * math.nan, "diverged")):
        assert geiping._statuses(nothing, label, far, torch.zeros(1), end).tolist() == [status]


def test_grid_of_weights_is_extended_while_its_edge_is_best_and_flagged_if_it_stays_so(few_digits, monkeypatch):
    """Noise that tells nothing: the smoother the better, without end."""
    monkeypatch.setattr(recursive, "_ITERATIONS", 20)  # of the other attack, which is not looked at
    config = GradientInversionConfig(images=2, iterations=30, search_iterations=5, tv_weights=(1e-1,))
    moments = estimate_moments([few_digits.aux.images])
    known = {"moments": moments, "channel": calibrated(moments, 0.01), "level": 0.01, "defense": ChannelDefense()}
    rows, _ = gradient_inversion.invert_gradients(attack_of(few_digits, config, "lenet_sigmoid", **known))
    weight = rows[(rows.metric == "tv_weight") & (rows.variant == "geiping")]
    assert 0.1 < weight.value.item() <= 0.1 * 10**EXTENSIONS
    errors = rows[rows.unit >= 0].groupby("variant").status.unique()
    assert set(errors["geiping"]) == {weight.status.item()}
    assert set(errors["untuned"]) == set(errors["prior"]) == {""}
    assert rows.value.notna().all()


def test_tuned_inversion_is_never_farther_from_what_the_attacker_owns_than_the_printed_one():
    for seed in range(3):
        one = dataclasses.replace(attacker(), means=np.random.default_rng(seed).normal(size=(2, 1, 32, 32)))
        found, _ = told(awake(-1.0), one.restore(torch.Generator().manual_seed(seed)))
        printed, tuned = (((found[name] - one.means) ** 2).mean(axis=(1, 2, 3)) for name in ("printed", "tuned"))
        assert (tuned <= printed).all()
