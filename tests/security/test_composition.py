"""Whoever has several replicas, levels or defenses on the same members knows more than one of them tells."""

import html
import math

import numpy as np
import pytest
from chain import run_jobs, small_study
from scipy import linalg

from leakbound import storage
from leakbound.accounting import dp
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.channels import Moments
from leakbound_lab.steps.results import composed, summary

ARMS = {"none": [], "natural": [4.0], "white": [4.0], "white_frozen": [4.0], "dpsgd": [1.0]}
CONFIG = small_study("composed", "lenet", ARMS, replicas=2)
CONFIG["training"]["learning_rates"] = [0.01, 0.03]
CONFIG["attacks"] = {"membership": {"epochs": 1, "learning_rates": [1e-3], "references": 2}}
CONFIG["studies"]["small"]["attacks"] = ["membership"]


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
    assert told["dp"]["epsilon"] == pytest.approx(dp.epsilon(longer, 1e-5), rel=1e-12)
    assert told["record"] == pytest.approx(told["channels"] + told["dp"]["values"], rel=1e-12)
    alone = [provenance(root, arm)["leakage"] for arm in ("natural-4", "white-4", "white_frozen-4")]
    assert max(one["replicas"]["record"] for one in alone) < told["channels"]


def test_page_and_table_state_both_figures(results):
    root, _ = results
    page, table = (root / "report.html").read_text(), storage.read_rows(root / "tables/small.parquet")
    for arm in ("natural-4", "dpsgd-1"):
        stated = provenance(root, arm)["leakage"]
        rows = table[(table["run"] == f"digits/lenet/{arm}/n5-b16") & (table["source"] == "accounting")]
        for which in ("replica", "replicas"):
            assert html.escape(provenance(root, arm)["statement"][which]["short"]) in page
            kept = rows[(rows["variant"] == which) & (rows["metric"] == "record")]["value"]
            assert kept.tolist() == [stated[which]["record"]]
    assert "digits/lenet/none/n5-b16" in page
    assert "not covered" in page


@pytest.mark.parametrize(
    ("leakage", "bounds"),
    [
        ([{"leak_total": 40.0}, {"leak_total": 50.0}], ("50 nats", "90 nats")),
        ([{"leak_total": 40.0}, {"leak_total": None}], ("none", "none")),
        ([{"leak_total": 40.0}], ("none", "none")),  # the other replica diverged
    ],
)
def test_federated_run_states_in_mlflow_what_all_its_replicas_tell(leakage, bounds):
    from leakbound_lab.tracking.run_description import describe_run
    from leakbound_lab.tracking.run_records import RunFacts

    facts = RunFacts("p", "federated/d/mlp/client-m5/n4", "d", "mlp", "client", 5.0, 2, 8, 2, "client", "5 nats")
    record = {"started": 0.0, "seconds": 1.0, "diverged": [False, False], "released": [], "leakage": leakage}
    record["settings"] = {"privacy_noise": "secure"}
    tags = describe_run(facts, None, {}, record).tags
    for of, bound in zip(("bound_replica", "bound_replicas"), bounds, strict=True):
        assert tags[of] in tags["mlflow.note.content"]
        told = f"about one client at most {bound} on average over clients, labels included;"
        assert (told in tags[of]) == (bound != "none")
        assert ("no bound" in tags[of]) == (bound == "none")
        assert tags[f"{of}_noise"] == "secure"
    seeded = describe_run(facts, None, {}, record | {"settings": {}}).tags["bound_replica"]
    assert ("no bound: noise from a seed" in seeded) == (bounds[0] != "none")


def test_same_records_under_two_names_are_composed_too(tmp_path, monkeypatch):
    from leakbound_lab.figures.report.overview import bounds_table

    names = ["digits", "again"]
    data = {name: {"reader": "digits", "pool": 900, "test": 60, "aux": 60} for name in names}
    config = small_study("twice", "mlp", {"natural": [4.0]}, replicas=1, datasets=data)
    config["studies"]["small"] |= {"datasets": names, "rounds": [2]}
    steps = {"prepare", "covariance", "spectrum", "calibrate", "train"}
    root, made = run_jobs(tmp_path, config, monkeypatch, steps)
    paths = [root / f"data/{name}.safetensors" for name in names]
    first, second = (storage.read_arrays(path)["pool_images"] for path in paths)
    assert len({one.tobytes() for one in first} & {one.tobytes() for one in second}) > 300
    told = composed(root, made)
    stated = storage.read_json(root / "runs/digits/mlp/natural-4/n2-b16/provenance.json")["leakage"]
    assert told["digits"]["channels"] == stated["replicas"]["record"]  # of the one run, to the last bit
    assert told["digits"]["labels"] == stated["labels"] == math.log(10)
    assert told["digits"]["same_records"] == ["again"]
    assert told["digits"]["record_of_all"] == told["digits"]["record"] + told["again"]["record"]
    (line, _) = bounds_table({"leakage": told})
    assert line[-2] == "2.303"
    assert 0 <= float(line[-1].split(" with ")[0]) - told["digits"]["record_of_all"] < 1e-2


def test_bounds_in_the_table_of_all_trainings_are_rounded_up():
    """2.00004 nats were once shown as 2."""
    from leakbound_lab.figures.report.overview import bounds_table

    told = {"jobs": {}, "channels": 1.00001, "dp": None, "federated": 3.00049, "record": 2.00004, "labels": 2.302585}
    (line,) = bounds_table({"leakage": {"digits": told | {"unbounded": []}}})
    assert line[2:] == ["1.001", "–", "3.001", "2.001", "2.303", "2.001"]
    told |= {"unbounded": [], "same_records": ["again"], "record_of_all": 5.00001}
    assert bounds_table({"leakage": {"digits": told}})[0][-1].startswith("5.001 with ")
