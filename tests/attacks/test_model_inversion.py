import dataclasses

import numpy as np
import pytest
import torch
from torch.func import functional_call

from asking import attack_of, trained_lenet, weights_of
from leakbound_lab.attacks.model_inversion import attack as model_inversion
from leakbound_lab.attacks.model_inversion.attack import Prior, class_means, invert_models, stopping_times
from leakbound_lab.attacks.model_inversion.queries import AnsweringNetworks
from leakbound_lab.attacks.rows import image_values
from leakbound_lab.attacks.scheduling import side_by_side
from leakbound_lab.config.attacks import ModelInversionConfig
from leakbound_lab.datasets import Split
from leakbound_lab.models import build

CONFIG = ModelInversionConfig(iterations=50, tv_weights=(0.0, 1e-2))
ATTACKS, CONTROLS = ("printed", "tuned", "informed"), ("start", "aux_mean")


@pytest.fixture(scope="module")
def weights(digits):
    """Two trained replicas, and one that diverged."""
    stack = weights_of([trained_lenet(digits, 0), trained_lenet(digits, 1), trained_lenet(digits, 2, steps=1)])
    stack["head.bias"][2, 0] = torch.nan
    return stack


def attacked(weights, dataset, config=CONFIG, replicas=(0, 1, 2)):
    return invert_models(attack_of(dataset, config, weights=weights, replicas=replicas))


@pytest.fixture(scope="module")
def results(weights, digits):
    return attacked(weights, digits)


def values_of(rows, variant, metric, replica=0):
    chosen = rows[(rows.variant == variant) & (rows.metric == metric) & (rows.replica == replica)]
    assert len(chosen) == 10
    return chosen.value.to_numpy()


@pytest.mark.slow
def test_tuned_attack_comes_closer_to_the_members_than_its_start(results):
    rows, _ = results
    for replica in (0, 1):
        assert np.median(values_of(rows, "tuned", "gain", replica)) > 0


@pytest.mark.no_shapes
def test_inverted_images_get_their_label_from_the_attacked_network_and_tuned_ones_stay_in_the_box(results, weights):
    _, pictures = results
    model = build("lenet", 1, 10, torch.Generator().manual_seed(9))
    params = {name: value[0] for name, value in weights.items()}
    with torch.no_grad():
        logits = functional_call(model, params, (torch.from_numpy(pictures["printed"]),))
    assert logits.argmax(1).tolist() == list(range(10))
    assert np.abs(pictures["tuned"]).max() <= 1.0 < np.abs(pictures["printed"]).max()


@pytest.mark.no_shapes
def test_gains_are_the_start_less_the_attack_and_parts_of_the_error_of_own_class_means(results, digits):
    rows, pictures = results
    known = values_of(rows, "aux_mean", "mse")
    others = class_means(digits.nonmembers(0), list(range(10)))
    before = image_values(others, pictures["aux_mean"])["mse"]
    for variant in ATTACKS:
        expected = values_of(rows, "start", "mse") - values_of(rows, variant, "mse")
        np.testing.assert_allclose(values_of(rows, variant, "gain"), expected)
        expected = (known - values_of(rows, variant, "mse")) / known
        np.testing.assert_allclose(values_of(rows, variant, "gain_over_aux"), expected, rtol=1e-4, atol=1e-6)
        expected = 1 - image_values(others, pictures[variant])["mse"] / before
        np.testing.assert_allclose(values_of(rows, variant, "gain_on_others"), expected, rtol=1e-6)


@pytest.mark.no_shapes
def test_informed_attack_moves_the_stated_way_from_its_own_class_means(results, digits):
    _, pictures = results
    start = class_means(digits.aux, list(range(10)))
    moved = (pictures["informed"] - start).reshape(10, -1).astype(np.float64)
    # Members and own records differ by chance alone, like two samples of one class.
    within = np.mean([digits.aux.images[digits.aux.labels == c].var(axis=0).sum() for c in range(10)])
    lengths = [np.sqrt(within * (10 / 400 + 1 / (digits.aux.labels == c).sum())) for c in range(10)]
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 0.1 * np.array(lengths), rtol=0.1)
    slopes = np.random.default_rng(0).normal(size=(10, 1024))
    slopes[3] = start[4].ravel()
    prior = Prior(digits.aux, start, list(range(10)), 400)
    ways = prior.deviations(slopes)
    np.testing.assert_allclose(np.linalg.norm(ways, axis=1), 1.0)
    assert np.abs(ways @ start.reshape(10, -1).T).max() < 1e-4 * np.linalg.norm(start[0])


def test_informed_attack_finds_the_way_of_class_means_that_a_linear_network_was_moved_by(digits):
    """A network whose logit of a class falls with the distance from the members' mean points there exactly."""
    truth = torch.from_numpy(class_means(digits.members(0), list(range(10)))).flatten(1).double()

    class Nearest(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1024, 10)

        def forward(self, images):
            return self.head(images.flatten(1))

    known = class_means(digits.aux, list(range(10)))
    network = Nearest()
    deviation = truth - torch.from_numpy(known).flatten(1).double()
    parameters = {"head.weight": deviation.float()[None], "head.bias": torch.zeros(1, 10)}
    told = torch.from_numpy(known), known, ModelInversionConfig(step=0.1)
    attacker = model_inversion._Attacker(0, torch.arange(10), *told)
    prior = Prior(digits.aux, known, list(range(10)), 400)

    def informed(parameters):
        """Images and statuses of an attacker that asks one network."""
        networks = AnsweringNetworks(network, parameters, 1)
        return side_by_side([attacker.informed(prior)], networks.answers)[0]

    images, statuses = informed(parameters)
    exact = truth.numpy().reshape(known.shape).astype(np.float32)
    assert (image_values(exact, images)["mse"] < image_values(exact, known)["mse"]).all()
    assert set(statuses) == {""}
    images, statuses = informed({name: torch.zeros_like(value) for name, value in parameters.items()})
    np.testing.assert_array_equal(images, known)
    assert set(statuses) == {"stuck"}


@pytest.mark.no_shapes
def test_controls_need_no_model(results, digits):
    rows, pictures = results
    mean = digits.aux.images.mean(axis=0)
    known = class_means(digits.aux, list(range(10)))
    for replica in (0, 1):
        truth = class_means(digits.members(replica), list(range(10)))
        for variant, image in zip(CONTROLS, (mean, known), strict=True):
            expected = ((truth - image) ** 2).mean(axis=(1, 2, 3)) / 4
            np.testing.assert_allclose(values_of(rows, variant, "mse", replica), expected, rtol=1e-5)
    np.testing.assert_array_equal(pictures["truth"], class_means(digits.members(0), list(range(10))))


@pytest.mark.no_shapes
def test_attacks_depend_on_no_member_beyond_the_network(results, weights, digits):
    """Tuning that looks at members would flatter the attack: with others, and the same network, it ends the same."""
    noise = np.random.default_rng(0).uniform(-1, 1, digits.pool.images.shape).astype(np.float32)
    others = dataclasses.replace(digits, pool=dataclasses.replace(digits.pool, images=noise))
    _, pictures = attacked({name: value[:1] for name, value in weights.items()}, others, replicas=[0])
    for variant in (*ATTACKS, *CONTROLS):
        np.testing.assert_array_equal(pictures[variant], results[1][variant])


@pytest.mark.no_shapes
def test_diverged_replica_is_no_result(results):
    rows, _ = results
    assert rows[rows.replica == 2].value.isna().all()
    assert set(rows[rows.replica == 2].status) == {"diverged"}
    assert rows[rows.replica < 2].value.notna().all()
    assert len(rows[rows.replica == 2]) == len(rows[rows.replica == 0])


def test_stopping_times_halve_from_the_last_iteration():
    assert stopping_times(600) == [1, 2, 4, 9, 18, 37, 75, 150, 300, 600]
    assert stopping_times(3) == [1, 3]


def test_class_without_auxiliary_records_is_known_by_the_mean_of_all():
    images = np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1) * np.ones((3, 1, 32, 32), np.float32) / 2
    means = class_means(Split(images, np.array([0, 0, 2])), [0, 1, 2])
    np.testing.assert_allclose(means[:, 0, 0, 0], [0.25, 0.5, 1.0])


def test_an_image_that_is_not_finite_spoils_no_other_one():
    generator = np.random.default_rng(0)
    truth, candidates = (generator.uniform(-1, 1, (3, 1, 32, 32)).astype(np.float32) for _ in range(2))
    expected = image_values(truth, candidates)
    candidates[1, 0, 3, 4] = np.inf
    for name, found in image_values(truth, candidates).items():
        assert np.isnan(found[1]), name
        np.testing.assert_array_equal(found[[0, 2]], expected[name][[0, 2]])
