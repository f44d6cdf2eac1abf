"""The real workflow on real handwriting: what it makes, what it remakes, and what it says to mistakes."""

import copy
import json
import math
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from itertools import chain, product

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from project_copy import ROOT, environment

from leakbound import storage
from leakbound_lab import load_run, registries
from leakbound_lab.attacks.attack_request import Networks
from leakbound_lab.claims.evaluation import EXACT_VERDICTS, VERDICTS
from leakbound_lab.commands.finished import FinishedRun
from leakbound_lab.config import reading
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.results import read_usage

from .conftest import WHOLE, run_to_its_end

RUN = "digits/lenet/natural-4/n20-b32"
CLOSED_FORMS = ROOT / "config/figures/zeng2022.yaml"


@contextmanager
def edited(project, *way_and_value):
    """Configure a project with one setting of the tiny configuration changed, for as long as the block lasts."""
    config = copy.deepcopy(project.config)
    *way, last, value = way_and_value
    inner = config
    for key in way:
        inner = inner[key]
    inner[last] = value
    project.configure(config)
    try:
        yield
    finally:
        project.configure()


@contextmanager
def aside(path):
    """A file or folder that is not there as long as the block lasts."""
    moved = path.rename(path.with_name("aside"))
    try:
        yield
    finally:
        moved.replace(path)


def test_chain_makes_every_figure_table_and_verdict(finished):
    expected = {
        f"{figure['paper']}/{figure['id']}"
        for figure in finished.figures()
        if (
            figure.get("study") in finished.config["studies"]
            or figure.get("illustration") in finished.config["illustrations"]
            or figure.get("table") in ("efficiency", "scoreboard")
        )
        and figure.get("select", {}).get("dataset") != ["celeba", "svhn", "fashion_mnist"]  # fig30 shows no other data
    }
    for suffix in ("svg", "parquet"):
        found = {f"{path.parent.name}/{path.stem}" for path in (finished.results / "figures").rglob(f"*.{suffix}")}
        assert found == expected
    claims = pd.read_parquet(finished.results / "claims.parquet")
    assert set(claims["verdict"]) <= {*VERDICTS, *EXACT_VERDICTS}
    assert {f"{c.paper}/{c.figure}" for c in claims.itertuples()} <= expected


def test_table_has_every_replica_of_every_run(finished):
    rows = pd.read_parquet(finished.results / "tables" / "capacity.parquet")
    accuracy = rows[(rows["metric"] == "test_accuracy") & (rows["source"] == "training")]
    defenses = finished.config["studies"]["capacity"]["defenses"]
    assert len(accuracy) == sum(len(levels) or 1 for levels in defenses.values()) * 2
    assert accuracy["value"].between(0, 1).all()


def test_comparison_holds_every_candidate_of_every_arm_and_other_studies_the_chosen_ones(whole):
    """The run of two studies, of which one asks for all rates and one for the chosen ones, is in both tables."""
    every = pd.read_parquet(whole.results / "tables" / "comparison.parquet")
    rates = whole.config["training"]["learning_rates"]
    slot = ["run", "replica", "learning_rate", "length"]
    trained = every[(every["source"] == "training") & (every["metric"] == "validation_accuracy")]
    runs = set(trained["run"])
    assert {run.split("/")[2] for run in runs} >= {"none", "early_stopping", "stopped-0.5", "clipping-0"}
    for run, rows in trained.groupby("run"):
        lengths = ["full"] if run.split("/")[2] in ("early_stopping", "stopped-0.5") else ["best", "full", "half"]
        assert sorted(rows[["learning_rate", "length"]].itertuples(index=False, name=None)) == sorted(
            [*product(rates, lengths)] * 2
        ), run
        assert rows.groupby("replica")["chosen"].sum().tolist() == [1, 1], run
        ends = rows[rows["length"] == "full"]
        chosen = rows[rows["chosen"]].set_index("replica")["value"]
        assert (chosen == ends.groupby("replica")["value"].max()).all(), run
    for attack in ("membership", "model_inversion"):
        attacked = every[every["source"] == attack]
        assert len(attacked[slot].drop_duplicates()) == len(trained)
        assert attacked.merge(trained[[*slot, "chosen"]], on=slot)[["chosen_x", "chosen_y"]].nunique(axis=1).max() == 1

    few = pd.read_parquet(whole.results / "tables" / "capacity.parquet")
    assert few["chosen"].all()
    shared = few[few["run"].isin(runs) & (few["source"] != "derived")]
    assert set(shared["run"]) == {run for run in runs if run.split("/")[2] in ("none", "natural-4", "natural-16")}
    same = every[every["chosen"] & every["run"].isin(shared["run"]) & (every["source"] != "derived")]
    same = same.drop(columns="length")
    pd.testing.assert_frame_equal(shared.reset_index(drop=True), same.reset_index(drop=True), check_exact=True)
    arrays = storage.read_arrays(whole.results / "attacks/digits/lenet/none/n20-b32/membership.safetensors")
    assert {len(array) for array in arrays.values()} == {2}  # of the chosen ones


def test_changed_capacity_reruns_only_what_depends_on_it(small):
    with edited(small, "studies", "capacity", "defenses", "white", [5.0]):
        planned = small.planned()
    one_run = {"calibrate": 1, "train": 1, "attack": 1, "log": 1, "tabulate": 1}
    assert {rule: planned.get(rule) for rule in one_run} == one_run
    assert not {"prepare", "covariance", "spectrum", "illustrate", "measure"} & planned.keys()


def test_other_origin_of_noise_reruns_what_draws_noise_or_reads_records(whole):
    with edited(whole, "privacy_noise", "secure"):
        planned = whole.planned()
    # Records that are secret are prepared with a secret for their hashes, so that all of them are other files.
    trained = len(whole.runs())  # one job attacks all untrained networks
    noisy = {"prepare": 1, "covariance": 1, "train": trained, "attack": trained + 1, "measure": 1}
    assert {rule: planned.get(rule) for rule in noisy} == noisy
    assert not {"theory", "consensus"} & planned.keys()


@pytest.mark.slow
def test_snakemake_leaves_the_networks_of_fewer_replicas(fresh):
    weights = "results/tiny/runs/digits/lenet/none/n20-b32/weights.safetensors"
    assert fresh.snakemake(weights).returncode == 0
    before = storage.read_arrays(fresh.folder / weights)
    fresh.configure(fresh.config | {"replicas": 3})
    assert fresh.snakemake(weights).returncode == 0
    log = (fresh.results / "logs/train/digits/lenet/none/n20-b32.log").read_text()
    assert "4 of 6 networks were trained before" in log
    for name, values in storage.read_arrays(fresh.folder / weights).items():
        assert (len(values), values[:2].tobytes()) == (3, before[name].tobytes())


def test_second_call_does_nothing_even_after_a_remark_and_changed_code_reruns_only_what_reaches_it(whole):
    path = whole.folder / "src" / "leakbound_lab" / "attacks" / "membership" / "attack.py"
    original = path.read_text()
    try:
        path.write_text(original + "\n# a remark\n")
        assert whole.planned() == {}
        path.write_text(original + "\n_ADDED = 1\n")
        planned = whole.planned()
    finally:
        path.write_text(original)
    assert planned["attack"] == len(whole.runs())  # membership on each of the trained runs, no other attack
    assert not {"train", "calibrate", "prepare", "illustrate"} & planned.keys()


def test_claims_of_more_figures_than_a_command_line_holds_run_to_the_end_and_a_failure_prints_no_settings(fresh):
    figure = next(one for one in yaml.safe_load(CLOSED_FORMS.read_text())["figures"] if one["id"] == "fig04")
    many = [figure | {"id": f"{figure['id']}_{number}"} for number in range(138)]
    assert len(json.dumps(many, separators=(",", ":"))) > 131_071  # the longest argument of a process on Linux
    (fresh.folder / "config/many.yaml").write_text(yaml.safe_dump({"figures": many}))
    fresh.configure({**fresh.config, "catalogue": "config/many.yaml", "studies": {}, "theory": {"case1": {}}})
    target = fresh.results / "claims.parquet"
    asked = ("--", str(target.relative_to(fresh.folder)))
    done = fresh.snakemake(*asked)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = pd.read_parquet(target)
    assert verdicts["figure"].nunique() == len(many)

    target.unlink()
    rows = fresh.results / "tables/theory/case1.parquet"
    rows.write_bytes(rows.read_bytes()[:-1])
    failed = fresh.snakemake(*asked)
    assert failed.returncode == 1
    assert f"{rows.relative_to(fresh.folder)}: " in failed.stderr
    assert max(map(len, failed.stderr.splitlines())) < 500


def test_target_that_no_job_makes_ends_with_one_sentence_and_the_nearest_names(fresh):
    wrong = "digits/lenet/natural-5/n20-b32"
    result = fresh.snakemake("--dry-run", "--", f"results/tiny/runs/{wrong}/weights.safetensors")
    assert result.returncode == 1
    words = f"tiny has no job {wrong!r} of the rule train; nearest: {RUN},"
    shown = (result.stdout + result.stderr).splitlines()
    assert [line for line in shown if line.strip().startswith(words)]


def test_run_says_where_it_comes_from(finished):
    provenance = json.loads((finished.results / "runs/digits/lenet/natural-4/n20-b32/provenance.json").read_text())
    event = provenance["events"][0]
    assert event["mechanism"] == "channel"
    assert (event["capacity"], event["population"], event["steps"]) == (4.0, 120, 20)
    assert event["uses"] == 6  # 20 steps of 32 records out of 120: five or six times each
    assert provenance["settings"]["rounds"] == 20
    assert provenance["inputs"].keys() == {"dataset", "channel", "spectrum"}
    one, both = (provenance["leakage"][name] for name in ("replica", "replicas"))
    assert one["record"] <= one["linear"] <= one["printed"]
    assert one["record"] < both["record"] < 4 * one["record"]  # two replicas at two rates


def test_sync_logs_again_what_the_store_has_not_accepted_and_a_new_store_gets_all(small):
    def synced(*options):
        code = "from leakbound.commands.command_line import main; main()"
        words = [sys.executable, "-c", code, "sync", "--configfile", "config/tiny.yaml", *options]
        done = subprocess.run(words, cwd=small.folder, env=environment(small.folder), capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    count = len(small.runs()) + 1
    assert synced()[:2] == (0, f"nothing to send: {count} of {count} finished runs are stored\n")
    marker = small.results / "tracking" / f"{RUN}.json"
    marker.write_text("{")
    with edited(small, "tracking", {"uri": "http://127.0.0.1:1"}):
        code, _, error = synced()
    assert code == 2
    assert "tracking.uri: the store does not answer" in error
    assert "Nothing was sent" in error
    assert synced()[:2] == (0, "1 of 1 stored\n")
    assert storage.read_json(marker)["status"] == "stored"
    with aside(small.folder / "results" / "mlflow.db"):
        assert synced()[:2] == (0, f"{count} of {count} stored\n")  # the records say that a lost store had them
        assert synced("--everything")[:2] == (0, f"{count} of {count} stored\n")
        whole = (damaged := small.results / "runs" / RUN / "provenance.json").read_bytes()
        with aside(damaged):
            damaged.write_bytes(whole[:-1])
            code, out, error = synced("--everything")
        assert (code, out) == (1, f"{count - 1} of {count} stored\n")
        assert f"{RUN}/provenance.json" in error
    assert small.planned() == {"report": 1, "all": 1}  # whose links lead to the runs of the new store
    run_to_its_end(small)
    assert small.planned() == {}


def test_page_holds_every_figure_and_leads_to_every_run_of_its_planes(finished):
    page = (finished.results / "report.html").read_text()
    for path in (finished.results / "figures").rglob("*.svg"):
        assert f'id="figure-{path.parent.name}-{path.stem}"' in page
    for run in ("natural-4", "dpsgd-1", "none") if finished.config == WHOLE else ():  # the small one draws no planes
        place = json.loads((finished.results / f"tracking/digits/lenet/{run}/n20-b32.json").read_text())["place"]
        assert f"http://127.0.0.1:5000/#/experiments/{place['experiment_id']}/runs/{place['run_id']}" in page
    assert 'src="http' not in page


def test_each_kind_of_file_that_is_gone_is_made_again(small):
    """One plan answers for several: each attack has lost a file of another kind, and each other rule one of its own."""
    kinds = {"none": "parquet", "natural-4": "json", "white-4": "safetensors"}
    plans = (
        {"attack": [f"attacks/digits/lenet/{arm}/n20-b32/membership.{kind}" for arm, kind in kinds.items()]},
        {"tabulate": ["tables/capacity.parquet"]},
        {"log": [f"tracking/{RUN}.json"], "figures": ["figures/tan2024/fig04.svg"]},
    )
    for lost in plans:
        with ExitStack() as until_planned:
            for name in chain.from_iterable(lost.values()):
                until_planned.enter_context(aside(small.results / name))
            planned = small.planned()
        assert {rule: planned.get(rule) for rule in lost} == {rule: len(names) for rule, names in lost.items()}


def test_snakemake_knows_every_file_of_every_result(finished, monkeypatch):
    """--summary lists it, and nothing of it is to be made again."""
    monkeypatch.chdir(finished.folder)
    made = job_list(reading.load("config/tiny.yaml"))
    listed = finished.snakemake("--summary").stdout.splitlines()[1:]
    assert {line.split("\t")[0] for line in listed} == {*made.files()}
    assert all("\tok\t" in line for line in listed)


def test_results_that_somebody_touches_count_as_made(small):
    """A copy of results is younger in any order; --touch says that they are those of the configuration."""
    images = small.results / "data/digits.safetensors"
    images.touch()
    assert small.planned() != {}
    touched = small.snakemake("--touch")
    assert touched.returncode == 0, touched.stderr
    assert small.planned() == {}


def test_any_file_is_asked_for_by_its_name_and_a_rule_by_until(fresh):
    results = "results/tiny"
    of_other_rules = fresh.planned("--", f"{results}/figures/tan2024/fig04.svg", f"{results}/tracking/{RUN}.json")
    assert (of_other_rules["figures"], of_other_rules["illustrate"], of_other_rules["log"]) == (1, 1, 1)
    one_run = {"prepare": 1, "covariance": 1, "spectrum": 1, "calibrate": 1, "train": 1, "attack": 1}
    of_an_attack = (f"attacks/{RUN}/membership.safetensors", f"references/{RUN}/weights.safetensors")
    assert fresh.planned("--", *(f"{results}/{name}" for name in of_an_attack)) == one_run
    all_runs = {"prepare": 1, "covariance": 1, "spectrum": 2, "calibrate": 2, "train": 3, "attack": 3}
    assert fresh.planned("--", "attacks") == {**all_runs, "attacks": 1}
    until = fresh.planned("--until", "log", "figures_tan2024", "attack_membership")
    assert {**all_runs, "log": 1, "figures": 1}.items() <= until.items()
    assert "report" not in until


def test_snakemake_measures_every_job(small):
    rules = {"prepare", "covariance", "spectrum", "calibrate", "train", "attack", "illustrate", "measure", "tabulate"}
    found = {path: read_usage(path) for path in (small.results / "benchmarks").rglob("*.tsv")}
    assert {path.relative_to(small.results / "benchmarks").with_suffix("").parts[0] for path in found} == {
        *rules,
        *("claims", "figures", "log", "log_figures", "report"),
    }
    assert all(used.seconds > 0 for used in found.values())
    trained = [used for path, used in found.items() if "train" in path.parts]
    assert len(trained) == len(small.runs())
    assert all(used.max_rss_mib > 50 and used.cpu_seconds > 0 for used in trained)


def test_a_finished_run_comes_back_to_python_as_the_networks_of_its_curves(small):
    run = load_run(small.results, RUN)
    assert {*run.attacks} == {"membership"}
    assert run.provenance["leakage"]["replica"]["record"] > 0
    images = storage.read_arrays(small.results / "data/digits.safetensors")
    records, labels = (torch.from_numpy(images[f"test_{name}"]) for name in ("images", "labels"))
    for _, kept in run.networks.rates.iterrows():
        with torch.no_grad():
            accuracy = float((run.network(kept["replica"])(records).argmax(1) == labels).double().mean())
        curve = run.curves[(run.curves["replica"] == kept["replica"]) & (run.curves["metric"] == "test_accuracy")]
        curve = curve[curve["learning_rate"] == kept["learning_rate"]]
        assert curve[curve["step"] == 20]["value"].item() == pytest.approx(accuracy)
    (block,) = re.findall(r"^```py\n(.*?load_run.*?)^```", (ROOT / "docs/guide.md").read_text("utf-8"), re.M | re.S)
    theirs = {"results/quick": str(small.results), "digits/mlp/natural-1/n400-b32": RUN, "comparison": "capacity"}
    for shown, here in theirs.items():
        assert shown in block
        block = block.replace(shown, here)
    exec(block, {})
    with pytest.raises(KeyError, match=r"replica 7.*no such network is kept, only"):
        run.networks.state_dict(7)
    with pytest.raises(FileNotFoundError, match=r"finished runs of .* are digits/lenet/natural-4/n20-b32, digits"):
        load_run(small.results, "digits/lenet/natural-5/n20-b32")


@pytest.mark.parametrize(
    ("model", "shape", "plugins"),
    [("mlp", (1, 1, 30), {}), ("from_outside", (1, 32, 32), {"from_outside": f"{__package__}.outside:Tiny"})],
)
def test_a_finished_run_builds_networks_of_tables_and_networks_from_outside(
    tmp_path, monkeypatch, model, shape, plugins
):
    monkeypatch.setattr(registries.MODELS, "_entries", dict(registries.MODELS._entries))
    constructor = registries.MODELS.get(model, plugins)
    trained = constructor(1, 2) if plugins else constructor(1, 2, size=shape[1:])
    storage.write_arrays(
        tmp_path / "prepared.safetensors", {"test_images": np.zeros((4, *shape), np.float32)}, {"classes": '["a", "b"]'}
    )
    rates = pd.DataFrame([{"replica": 0, "learning_rate": 0.1, "chosen": True}])
    networks = Networks({name: value.detach()[None] for name, value in trained.named_parameters()}, rates)
    provenance = {"settings": {"plugins": {"models": plugins} if plugins else {}}}
    run = FinishedRun(model, tmp_path / "prepared.safetensors", networks, pd.DataFrame(), {}, provenance)
    records = torch.linspace(-1, 1, 4 * math.prod(shape)).view(4, *shape)
    assert torch.equal(run.network()(records), trained.eval()(records))
