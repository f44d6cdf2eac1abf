"""Whoever has several replicas, levels or defenses on the same members knows more than one of them tells."""

import dataclasses
import math

import numpy as np
import pytest
from chain import run_jobs
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp
from scipy import linalg

from leakbound import accounting, datasets, storage
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.gaussian import gaussian_capacity, mutual_information
from leakbound.accounting.statement import stated_bounds
from leakbound.channels import GaussianChannel, Moments, composed_capacity, estimate_moments, signal_to_noise
from leakbound.config.data import DatasetConfig
from leakbound.jobs.results.dataset_leakage import composed
from leakbound.jobs.results.summary import summary
from leakbound.registry import SHAPES

CHANNEL = PrivacyEvent("channel", "shuffled", 400, 32, 300, 24, shape="natural", capacity=4.0, noise="fresh")
PRIVATE = PrivacyEvent("dpsgd", "poisson", 400, 32, 300, 0, noise_multiplier=2.0, max_grad_norm=1.0)
RATIOS = np.geomspace(3.0, 1e-4, 40)
ANY = dataclasses.replace(CHANNEL, capacity=gaussian_capacity(RATIOS, 1.0))
COUNTS = st.lists(st.integers(1, 500), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def quick_natural() -> np.ndarray:
    """Variance ratios of the channel natural-4 of the quick configuration."""
    digits = datasets.prepare("digits", DatasetConfig(members=400, test=300, aux=500), 0)
    spectrum = SHAPES.get("natural").decompose(estimate_moments([digits.pool.images]))
    return signal_to_noise(SHAPES.get("natural").calibrate(spectrum, 4.0), spectrum)


def test_three_replicas_of_the_quick_configuration_tell_half_as_much_again_as_one(quick_natural):
    bounds = stated_bounds([CHANNEL] * 3, quick_natural, labels=math.log(10))
    assert bounds["replica"]["record"] == pytest.approx(27.85, abs=0.05)
    assert bounds["replicas"]["record"] == pytest.approx(44.5, abs=0.05)
    assert bounds["replica"]["stated"] == "27.85 nats"
    assert bounds["labels"] == math.log(10)


def test_frozen_noise_of_three_replicas_is_three_looks(quick_natural):
    bounds = stated_bounds([dataclasses.replace(CHANNEL, noise="frozen")] * 3, quick_natural, labels=math.log(10))
    assert bounds["replica"]["record"] == pytest.approx(4.0, rel=1e-9)
    assert bounds["replicas"]["record"] == pytest.approx(8.77, abs=0.05)


def test_three_replicas_of_dpsgd_have_the_epsilon_of_three_times_the_steps():
    bounds = stated_bounds([PRIVATE] * 3, delta=1e-5, labels=math.log(10))
    assert bounds["replica"]["epsilon"] == pytest.approx(3.56, abs=0.005)
    assert bounds["replicas"]["epsilon"] == pytest.approx(6.49, abs=0.005)
    longer = accounting.epsilon(dataclasses.replace(PRIVATE, steps=900), 1e-5)
    assert bounds["replicas"]["epsilon"] == pytest.approx(longer, rel=1e-12)
    assert bounds["labels"] == 0.0


def test_numerical_accountant_composes_replicas_too():
    longer = accounting.epsilon(dataclasses.replace(PRIVATE, steps=900), 1e-5, "prv")
    found = accounting.composed_epsilon([PRIVATE] * 3, 1e-5, "prv")
    assert found == pytest.approx(longer, rel=1e-2)
    assert found < accounting.composed_epsilon([PRIVATE] * 3, 1e-5)


@pytest.mark.parametrize("mechanism", ["none", "parameter_noise", "compression", "gradient_compression", "homemade"])
def test_run_without_a_derived_bound_states_none(mechanism):
    assert stated_bounds([dataclasses.replace(CHANNEL, mechanism=mechanism)], RATIOS, labels=math.log(10)) is None


def test_clipping_without_noise_states_no_bound():
    assert stated_bounds([dataclasses.replace(PRIVATE, noise_multiplier=0.0)], delta=1e-5, labels=math.log(10)) is None


@given(COUNTS)
def test_replicas_tell_what_one_training_with_all_their_uses_tells(counts):
    events = [dataclasses.replace(ANY, uses=count, steps=count) for count in counts]
    whole = dataclasses.replace(ANY, uses=sum(counts), steps=sum(counts))
    together = accounting.composed_leakage(events, RATIOS)
    assert together == accounting.leakage(whole, RATIOS)
    each = [accounting.leakage(event, RATIOS).record for event in events]
    assert max(each) <= together.record <= sum(each) * (1 + 1e-12)


def test_trainings_through_other_channels_are_refused():
    with pytest.raises(ValueError, match="of other channels or records"):
        accounting.composed_leakage([ANY, dataclasses.replace(ANY, population=401)], RATIOS)
    with pytest.raises(ValueError, match="there are no events"):
        accounting.composed_leakage([], RATIOS)


@st.composite
def mixtures(draw):
    """Looks through channels of several shapes, calibrated to one law of a few dimensions."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    size = draw(st.integers(2, 5))
    factor = rng.normal(size=(size, size + 2))
    moments = Moments(rng.normal(size=size), factor @ factor.T, 50)
    looks = []
    for name in draw(st.lists(st.sampled_from(SHAPES.builtin), min_size=1, max_size=4)):
        shape = SHAPES.get(name)
        weights = rng.uniform(0.1, 10.0, size) if shape.takes_weights else None
        spectrum = shape.decompose(moments, weights=weights)
        looks.append((shape.calibrate(spectrum, draw(st.floats(0.05, 8.0))), draw(st.integers(1, 4))))
    return moments, looks


@given(mixtures())
def test_channels_of_any_shapes_compose_to_the_information_in_all_noisy_copies(mixture):
    """Joint covariance of the record and of every copy, written out; a channel that passes nothing has no copy."""
    moments, looks = mixture
    size = moments.dimension
    gains, noises = [np.eye(size)], [np.zeros((size, size))]
    for channel, count in looks:
        basis = np.eye(size) if channel.basis is None else channel.basis
        gain = np.ones(size) if channel.gain is None else channel.gain
        passing = np.isfinite(channel.variances) & (gain > 0)
        turn = (gain[:, None] * basis.T)[passing]
        gains += [turn] * count
        noises += [np.diag(channel.variances[passing])] * count
    stacked = np.concatenate(gains)
    joint = stacked @ moments.covariance @ stacked.T + linalg.block_diag(*noises)
    found = composed_capacity(looks, moments)
    expected = mutual_information(joint, range(size)) if len(joint) > size else 0.0
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
    alone = [composed_capacity([look], moments) for look in looks]
    assert max(alone) * (1 - 1e-9) <= found <= sum(alone) * (1 + 1e-9)


@pytest.mark.parametrize("name", SHAPES.builtin)
def test_matrix_form_is_the_scalar_form_for_equal_shapes(name):
    factor = np.random.default_rng(0).normal(size=(12, 20)) * np.geomspace(1, 0.01, 20)
    moments, shape = Moments(np.zeros(12), factor @ factor.T, 99), SHAPES.get(name)
    spectrum = shape.decompose(moments, weights=np.linspace(1, 50, 12) if shape.takes_weights else None)
    low, high = (shape.calibrate(spectrum, capacity) for capacity in (4.0, 16.0))
    together = 10 * signal_to_noise(low, spectrum) + 3 * signal_to_noise(high, spectrum)
    assert composed_capacity([(low, 10), (high, 3)], moments) == pytest.approx(
        gaussian_capacity(together, 1.0), rel=1e-9
    )
    one = gaussian_capacity(signal_to_noise(low, spectrum), 1.0, 7.0)
    assert composed_capacity([(low, 7)], moments) == pytest.approx(one, rel=1e-9)


def test_look_without_noise_tells_everything_and_no_look_tells_nothing():
    moments = Moments(np.zeros(2), np.eye(2), 9)
    channel = SHAPES.get("natural").calibrate(SHAPES.get("natural").decompose(moments), 1.0)
    bare = dataclasses.replace(channel, variances=np.zeros(2))
    assert composed_capacity([(bare, 1), (channel, 2)], moments) == math.inf
    assert composed_capacity([(bare, 0)], moments) == 0.0
    assert composed_capacity([], moments) == 0.0
    with pytest.raises(ValueError, match="-1 uses"):
        composed_capacity([(channel, -1)], moments)


def test_direction_without_noise_tells_only_what_varies_along_it():
    """Records on a line: bare across it tells nothing, bare along it everything, though both pixels vary."""
    moments = Moments(np.zeros(2), np.ones((2, 2)), 9)
    across, along = np.array([0.5, 0.0]), np.array([0.0, 0.5])
    basis = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    one = GaussianChannel("white", 1.0, across, basis=basis)
    assert composed_capacity([(one, 1)], moments) == pytest.approx(0.5 * math.log(1 + 2.0 / 0.5))
    assert composed_capacity([(dataclasses.replace(one, variances=along), 1)], moments) == math.inf
    silent = Moments(np.zeros(2), np.diag([1.0, 0.0]), 9)
    pixels = GaussianChannel("natural", 1.0, np.array([0.5, 0.0]))
    assert composed_capacity([(pixels, 2)], silent) == pytest.approx(0.5 * math.log(1 + 2 / 0.5))


@given(st.floats(0.3, 20.0), st.floats(0.001, 1.0), st.integers(1, 2000))
def test_nats_of_dp_are_the_limit_of_its_renyi_divergences(multiplier, rate, steps):
    event = dataclasses.replace(
        PRIVATE, population=10**6, batch_size=round(rate * 10**6), steps=steps, noise_multiplier=multiplier
    )
    found = accounting.record_information(event)
    low, high = compute_rdp(q=event.sample_rate, noise_multiplier=multiplier, steps=steps, orders=[1.01, 1.02])
    assert found <= low * (1 + 1e-6) + steps * 1e-12
    assert found == pytest.approx(2 * low - high, rel=2e-2, abs=steps * 1e-11)
    assert found <= steps / (2 * multiplier**2) * (1 + 1e-8) + steps * 1e-14


def test_nats_of_dp_without_sampling_are_those_of_its_gaussian():
    event = dataclasses.replace(PRIVATE, batch_size=400, steps=10)
    found = accounting.record_information(event)
    assert 10 / (2 * 2.0**2) <= found <= 10 / (2 * 2.0**2) * (1 + 3e-9)  # rounded up
    assert accounting.record_information(dataclasses.replace(event, noise_multiplier=0.0)) == math.inf


CONFIG = {
    "preset": "composed",
    "replicas": 2,
    "datasets": {"digits": {"members": 60, "pool": 150, "test": 60, "aux": 60}},
    "training": {"learning_rates": [0.01, 0.03], "evaluations": 1},
    "attacks": {"membership": {"epochs": 1, "learning_rates": [1e-3], "references": 2}},
    "studies": {
        "small": {
            "datasets": ["digits"],
            "models": ["lenet"],
            "defenses": {"none": [], "natural": [4.0], "white": [4.0], "white_frozen": [4.0], "dpsgd": [1.0]},
            "rounds": [5],
            "batch_sizes": [16],
            "attacks": ["membership"],
        }
    },
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folder and jobs of a configuration that has run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("composed")
        yield run_jobs(folder, CONFIG, patch)


def provenance(root, arm: str) -> dict:
    return storage.read_json(root / f"runs/digits/lenet/{arm}/n5-b16/provenance.json")


@pytest.mark.parametrize("arm", ["natural-4", "white-4", "white_frozen-4", "dpsgd-1"])
def test_run_states_bounds_for_all_that_it_trained_whether_or_not_the_weights_are_kept(results, arm):
    """Of two replicas at two learning rates the weights of the chosen rates are kept, and four networks have looked."""
    root, _ = results
    weights = storage.read_arrays(root / f"runs/digits/lenet/{arm}/n5-b16/weights.safetensors")
    stated = provenance(root, arm)["leakage"]
    assert {len(array) for array in weights.values()} == {2}
    assert stated["count"] == 4
    kind = "epsilon" if arm == "dpsgd-1" else "record"
    assert stated["replica"][kind] < stated["replicas"][kind] <= 4 * stated["replica"][kind]
    covered = {one["item"] for one in provenance(root, arm)["released"] if one["covered"]} - {"channel"}
    assert covered == {"privacy event"}  # the noise is from seeds


def networks(root, arm: str) -> int:
    """Networks that have looked at the pool: two replicas at two rates each, and two references at those chosen."""
    references = storage.read_json(root / f"references/digits/lenet/{arm}/n5-b16/provenance.json")["events"]
    assert len(references) in (2, 4)
    return 4 + len(references)


def test_everything_done_to_the_same_members_is_composed_once_for_the_folder(results):
    root, made = results
    told = summary(root, made)["leakage"]["digits"]
    assert told["unbounded"] == ["digits/lenet/none/n5-b16", "references/digits/lenet/none/n5-b16"]
    assert told["jobs"] == {"trainings": 4, "trainings of reference networks": 4}
    # 5 steps of 16 among 60: twice at most; frozen: once a network.
    seen_white = networks(root, "white-4") * 2 + networks(root, "white_frozen-4")
    looks = {"natural-4": networks(root, "natural-4") * 2, "white-4": seen_white}
    law = made.job("spectrum", "digits/natural").inputs["moments"]
    moments = Moments.from_arrays(storage.read_arrays(root.parents[1] / law))
    values, vectors = linalg.eigh(moments.covariance)
    factor, seen = vectors * np.sqrt(np.maximum(values, 0)), np.eye(1024)
    for name, count in looks.items():
        variances = storage.read_arrays(root / f"channels/digits/{name}.safetensors")["variances"]
        basis = storage.read_arrays(root / f"spectra/digits/{name[:-2]}.safetensors").get("basis", np.eye(1024))
        turned = basis.T @ factor
        seen += turned.T @ (count / variances[:, None] * turned)
    expected = 0.5 * np.linalg.slogdet(seen)[1]
    # In the 960 directions in which digits do not vary, white noise is small, and their variances are rounding.
    assert told["channels"] == pytest.approx(expected, rel=2e-4)
    longer = PrivacyEvent("dpsgd", "poisson", 60, 16, networks(root, "dpsgd-1") * 5, 0, noise_multiplier=1.0)
    assert told["dp"]["epsilon"] == pytest.approx(accounting.epsilon(longer, 1e-5), rel=1e-12)
    assert told["record"] == pytest.approx(told["channels"] + told["dp"]["record"], rel=1e-12)
    alone = [provenance(root, arm)["leakage"] for arm in ("natural-4", "white-4", "white_frozen-4")]
    assert max(one["replicas"]["record"] for one in alone) < told["channels"]


def test_page_table_and_mlflow_state_both_figures(results):
    from mlflow import MlflowClient

    root, _ = results
    page = (root / "report.html").read_text()
    stated = {arm: provenance(root, arm)["leakage"] for arm in ("natural-4", "dpsgd-1")}
    table = storage.read_rows(root / "tables/small.parquet")
    client = MlflowClient(f"sqlite:///{root.parent}/mlflow.db")
    ids = [one.experiment_id for one in client.search_experiments()]
    for arm, one in stated.items():
        (run,) = client.search_runs(ids, f"tags.slug = 'digits/lenet/{arm}/n5-b16' and tags.bound_replica != ''")
        rows = table[(table["run"] == f"digits/lenet/{arm}/n5-b16") & (table["source"] == "accounting")]
        for which in ("replica", "replicas"):
            assert one[which]["stated"] in page
            assert run.data.tags[f"bound_{which}"] == one[which]["stated"]
            assert one[which]["stated"] in run.data.tags["mlflow.note.content"]
            assert run.data.metrics[f"leakage/{which}/record"] == one[which]["record"]
            kept = rows[(rows["variant"] == which) & (rows["metric"] == "record")]["value"]
            assert kept.tolist() == [one[which]["record"]]
    assert "digits/lenet/none/n5-b16" in page
    assert "not covered" in page


@pytest.mark.parametrize(
    ("leakage", "bounds"),
    [
        ([{"leak_total": 40.0}, {"leak_total": 50.0}], ("50 nats", "90 nats")),
        ([{"leak_total": 40.0}, {"leak_total": None}], ("none", "none")),
        ([{"leak_total": 40.0}], ("none", "none")),  # the other replica diverged
        (None, ("none", "none")),
    ],
)
def test_federated_run_states_in_mlflow_what_all_its_replicas_tell(leakage, bounds):
    from leakbound.tracking.run_description import describe_run
    from leakbound.tracking.run_records import RunFacts

    facts = RunFacts("p", "federated/d/mlp/client-m5/n4", "d", "mlp", "client", 5.0, 2, 8, 2, "client", "5 nats")
    record = {"started": 0.0, "seconds": 1.0, "diverged": [False, False], "released": [], "leakage": leakage}
    tags = describe_run(facts, None, {}, record).tags
    assert (tags["bound_replica"], tags["bound_replicas"]) == bounds
    assert all(bound in tags["mlflow.note.content"] for bound in bounds if bound != "none")


def test_same_records_under_two_names_are_composed_too(tmp_path, monkeypatch):
    from leakbound.figures.report.overview import bounds_table

    study = {
        "datasets": ["digits", "again"],
        "models": ["mlp"],
        "defenses": {"natural": [4.0]},
        "rounds": [2],
        "batch_sizes": [16],
        "attacks": [],
    }
    config = {
        "preset": "twice",
        "replicas": 1,
        "datasets": {name: {"reader": "digits", "pool": 900, "test": 60, "aux": 60} for name in study["datasets"]},
        "training": {"learning_rates": [0.01], "evaluations": 1},
        "studies": {"small": study},
        "tracking": {"enabled": False},
    }
    steps = {"prepare", "covariance", "spectrum", "calibrate", "train"}
    root, made = run_jobs(tmp_path, config, monkeypatch, steps)
    paths = [root / f"data/{name}.safetensors" for name in study["datasets"]]
    first, second = (storage.read_arrays(path)["pool_images"] for path in paths)
    assert len({one.tobytes() for one in first} & {one.tobytes() for one in second}) > 300
    told = composed(root, made)
    assert told["digits"]["same_records"] == ["again"]
    assert told["digits"]["record_of_all"] == told["digits"]["record"] + told["again"]["record"]
    (line, _) = bounds_table({"leakage": told})
    assert line[-1].startswith(f"{told['digits']['record_of_all']:.4g} with ")
