"""MLflow against real stores: a SQLite file, a local server, and a server that is not there."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow_server import free_port, own_words, running

from bad_server import answering
from leakbound import storage
from leakbound.accounting.statement import state
from leakbound_lab.tracking import sending
from leakbound_lab.tracking.measurements import metric_name
from leakbound_lab.tracking.run_description import channel_facts, describe_figures, describe_run
from leakbound_lab.tracking.run_records import Point, RunFacts, RunRecord
from leakbound_lab.tracking.sending import log_run, pages, push
from leakbound_lab.tracking.store import connect, upgrade_store

SLUG = "digits/lenet/natural-4/n200-b64"
FACTS = RunFacts("quick", SLUG, "digits", "lenet", "natural", 4.0, 200, 64, 2, "natural noise", "4 nats", ("tan2024",))
PROVENANCE = {
    **{"started": 1_700_000_000.0, "seconds": 20.0, "commit": "0123abcd", "dirty": False, "device": "cpu"},
    "inputs": {"dataset": "0123456789abcdef" * 4},
    "events": [{"mechanism": "channel", "capacity": 4.0, "noise": "fresh", "sampling": "shuffled", "uses": 32}],
    "diverged": [False, False],
}
START = 1_700_000_000_000


def curves(scale: float = 1.0) -> pd.DataFrame:
    rows = [
        (replica, step, metric, scale * (step + 1) / (300 + 10 * replica))
        for replica in range(2)
        for step in (100, 200)
        for metric in ("test_accuracy", "train_loss")
    ]
    return pd.DataFrame(rows, columns=["replica", "step", "metric", "value"])


def attack_rows(rows: list[tuple[int, str, int, str, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["replica", "variant", "unit", "metric", "value"])
    return frame.assign(low=frame["value"] - 0.05, high=frame["value"] + 0.05)


MEMBERSHIP = attack_rows([(0, "white_box", -1, "auc", 0.7), (1, "white_box", -1, "auc", 0.8)])
INVERSION = attack_rows([(r, "printed", unit, "mse", value) for r in range(2) for unit, value in enumerate((1, 2, 9))])


def record(scale: float = 1.0, *, facts: RunFacts = FACTS, files: tuple[Path, ...] = ()) -> RunRecord:
    attacks = {"membership": MEMBERSHIP, "model_inversion": INVERSION}
    return describe_run(facts, curves(scale), attacks, PROVENANCE, channel={"shape": "natural"}, files=files)


def accounted(*, secure: bool = False) -> RunRecord:
    """The same with the accountant's curve and its bounds."""
    told = pd.DataFrame(
        [(replica, step, "leakage", nats) for replica in range(2) for step, nats in ((100, 5.0), (200, 9.0))],
        columns=["replica", "step", "metric", "value"],
    )
    provenance = PROVENANCE | {"statement": told_by(secure=secure)}
    return describe_run(FACTS, pd.concat([curves(), told]), {"membership": MEMBERSHIP}, provenance)


def told_by(**facts: Any) -> dict[str, Any]:
    """Statements of 9 nats of one replica and 13 of all, and of labels of ten classes."""
    nats = {"replica": 9.0, "replicas": 13.0}
    return {
        of: state(f"the weights of {of}", added=n, labels=math.log(10), **facts).numbers() for of, n in nats.items()
    }


def values(run: RunRecord) -> dict[str, list[tuple[int, int, float]]]:
    found: dict[str, list[tuple[int, int, float]]] = {}
    for point in run.metrics:
        found.setdefault(point.key, []).append((point.step, point.timestamp, point.value))
    return found


def stored_runs(uri: str, experiment: str = "quick/digits") -> tuple[list, dict[str, list]]:
    """Runs at the top, and those below each by its identifier."""
    client = connect(uri)
    runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id], max_results=1000)
    below: dict[str, list] = {}
    for run in runs:
        below.setdefault(run.data.tags.get("mlflow.parentRunId", ""), []).append(run)
    top = below.pop("")
    assert below.keys() <= {run.info.run_id for run in top}
    return top, below


def stored_values(uri: str, run) -> dict[str, list[tuple[int, int, float]]]:
    client = connect(uri)
    return {
        key: [(m.step, m.timestamp, m.value) for m in client.get_metric_history(run.info.run_id, key)]
        for key in run.data.metrics
    }


def stored_as(uri: str, made: RunRecord):
    """The only run of its experiment, which has the values of a record, and so have those below it."""
    (parent,), below = stored_runs(uri)
    assert stored_values(uri, parent) == values(made)
    children = {run.info.run_name: stored_values(uri, run) for run in below[parent.info.run_id]}
    assert children == {child.name: values(child) for child in made.children}
    assert parent.info.status == "FINISHED"
    return parent


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all tables and no runs, made once: the migrations take seconds."""
    path = tmp_path_factory.mktemp("store") / "new folder" / "template.db"
    upgrade_store(f"sqlite:///{path}")
    return path


@pytest.fixture
def uri(template: Path, tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(template.read_bytes())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture(scope="module")
def processes() -> Any:
    """Context of processes that share nothing but what MLflow imports, which takes seconds: no store is open in it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store", "pandas"])
    return context


def ended(*processes: Any) -> list[int | None]:
    """Start processes at once, and wait for their exit statuses."""
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


# -- records -------------------------------------------------------------------------------------------------------


def test_run_without_noise_that_no_accountant_bounds_is_no_failure():
    """Clipping alone has an infinite ε at every step, and trains as well as any other."""
    unbounded = curves().assign(metric=lambda rows: rows["metric"].replace("train_loss", "epsilon"))
    unbounded.loc[unbounded["metric"] == "epsilon", "value"] = np.inf
    clipped = describe_run(FACTS, unbounded, {"membership": MEMBERSHIP}, PROVENANCE)
    assert {one.status for one in (clipped, *clipped.children)} == {"FINISHED"}
    assert values(clipped).keys() >= {"curves/test_accuracy", "membership/white_box/auc", "brief/accuracy"}
    assert "diverged" not in " ".join(clipped.tags.values())
    assert not any("epsilon" in key for key in values(clipped))
    unbounded.loc[unbounded["metric"] == "test_accuracy", "value"] = np.nan
    assert describe_run(FACTS, unbounded, {}, PROVENANCE).status == "FAILED"


def test_charts_open_with_the_brief_whatever_the_attacks_are_called():
    scores = dict.fromkeys(("audit", "aardvark", "membership"), MEMBERSHIP)
    made = describe_run(FACTS, curves(), scores, PROVENANCE)
    for one in (made, *made.children):
        assert min(values(one)).startswith("brief/")
    assert "scores/audit/white_box/auc" in values(made)


def test_record_has_means_over_replicas_and_intervals_only_below_single_ones():
    found = values(record())
    both = np.array([201 / 300, 201 / 310])
    assert found["curves/test_accuracy"][1] == (200, START + 20_000, pytest.approx(both.mean()))
    assert not [key for key in found if key.startswith("spread/")]
    assert found["membership/white_box/auc"] == [(0, START + 20_000, pytest.approx(0.75))]
    assert not [key for key in found if key.endswith(("_low", "_high"))]
    child = values(record().children[1])
    auc = "membership/white_box/auc"
    ends = [child[name][0][2] for name in (f"spread/{auc}_low", auc, f"spread/{auc}_high")]
    assert ends == pytest.approx([0.75, 0.8, 0.85])


def test_record_opens_with_headlines_and_shows_the_accountant_s_curve_beside_its_bound():
    made = accounted()
    brief = {point.key: point.value for point in made.metrics[:3]}
    name = "nats_per_record_average_with_labels"
    headline = f"brief/if_noise_were_secret_{name}"
    assert brief == {"brief/accuracy": 0.659, headline: 11.4, "brief/membership_auc_last_weights": 0.75}
    assert {point.step for point in made.metrics[:3]} == {0}
    found = values(made)
    assert all("/" in key for key in found)
    so_far = "if_noise_were_secret/so_far/nats_per_record_average_without_labels"
    assert [(step, value) for step, _, value in found[so_far]] == [(100, 5.0), (200, 9.0)]
    assert found[f"if_noise_were_secret/replica/{name}"][0][2] == 9.0 + math.log(10)
    assert found[f"if_noise_were_secret/replicas/{name}"][0][2] == 13.0 + math.log(10)
    assert not [key for key in found if "stated_bound" in key or "leakage" in key]
    secure = values(accounted(secure=True))
    assert not [key for key in secure if "if_noise_were_secret" in key]
    assert secure[f"brief/stated_bound_{name}"][0][2] == 11.4


def test_record_takes_the_median_over_classes_of_a_model_inversion_and_the_mean_over_images_of_a_gradient_inversion():
    rows = {"model_inversion": INVERSION, "gradient_inversion": INVERSION.assign(variant="attack")}
    found = values(describe_run(FACTS, curves(), rows, PROVENANCE, over_units={"model_inversion": "median"}))
    assert found["model_inversion/printed/mse"][0][2] == 2
    assert found["gradient_inversion/attack/mse"][0][2] == 4


def test_record_dates_values_by_the_job_and_not_by_the_clock():
    assert {point.timestamp for point in record().metrics} == {START + 10_000, START + 20_000}
    without = {name: value for name, value in PROVENANCE.items() if name != "started"}
    with pytest.raises(ValueError, match=r"provenance\.started is missing"):
        describe_run(FACTS, curves(), {}, without)


def test_record_of_a_diverged_replica_is_failed_and_shows_no_mean_of_its_attacks():
    broken = curves()
    broken.loc[(broken["replica"] == 1) & (broken["step"] == 200), "value"] = np.nan
    found = describe_run(FACTS, broken, {"membership": MEMBERSHIP}, PROVENANCE)
    assert (found.status, [child.status for child in found.children]) == ("FAILED", ["FINISHED", "FAILED"])
    assert found.tags["diverged_replicas"] == "1"
    assert found.tags["mlflow.note.content"].endswith(": 2 replicas. A replica diverged: the run shows no mean.")
    assert values(found).keys() == {"curves/test_accuracy", "curves/train_loss"}
    assert [step for step, _, _ in values(found)["curves/test_accuracy"]] == [100]
    assert "membership/white_box/auc" in values(found.children[0])
    assert "membership/white_box/auc" not in values(found.children[1])


def test_record_of_an_untrained_run_has_its_attacks_alone():
    facts = dataclasses.replace(FACTS, rounds=0, replicas=1)
    found = describe_run(facts, None, {"gradient_inversion": INVERSION[INVERSION["replica"] == 0]}, PROVENANCE)
    assert values(found) == {"gradient_inversion/printed/mse": [(0, START + 20_000, 4.0)]}
    assert len(found.children) == 1


def test_each_replica_has_the_learning_rate_that_was_chosen_for_it():
    tried = [(0, 0.01, True), (0, 0.1, False), (1, 0.1, True), (1, 0.3, False)]
    rates = [dict(zip(("replica", "learning_rate", "chosen"), each, strict=True)) for each in tried]
    run = describe_run(FACTS, curves(), {"membership": MEMBERSHIP}, PROVENANCE | {"rates": rates})
    assert [child.params["learning_rate"] for child in run.children] == ["0.01", "0.1"]
    assert run.params["learning_rates"] == "0.01, 0.1, 0.3"


def test_description_states_what_the_run_was_and_its_results():
    assert record().tags["mlflow.note.content"] == (
        "lenet on digits with the defense natural noise at 4 nats, trained for 200 rounds, batch size 64: 2 replicas. "
        "Test accuracy 0.659, membership inference from the last weights with an AUC of 0.75."
    )
    found = describe_run(FACTS, curves(), {}, {**PROVENANCE, "statement": told_by(secure=False)}).tags
    bound = "no bound: noise from a seed, which whoever knows or tries it subtracts."
    both = f"The weights of replica: {bound} The weights of replicas: {bound}"
    assert found["mlflow.note.content"].endswith(f"Test accuracy 0.659. {both}")
    assert (found["bound_replica_noise"], found["bound_replica_labels"]) == ("seeded", "counted")
    found = describe_run(FACTS, curves(), {}, {**PROVENANCE, "statement": told_by(secure=True)}).tags
    bound = "reveal about one record at most 11.31 nats on average over records, 2.303 of them by labels; records are"
    assert bound in found["mlflow.note.content"]
    assert found["bound_replica"] in found["mlflow.note.content"]


def test_channel_facts_are_read_from_the_stored_channel(tmp_path):
    path = tmp_path / "channel.safetensors"
    storage.write_arrays(path, {"variances": np.array([1.0, 3.0])}, {"shape": "white", "capacity": "2.5"})
    found = channel_facts(path)
    assert (found["capacity"], found["noise_variance_mean"], found["noise_variance_max"]) == (2.5, 2.0, 3.0)


@pytest.mark.parametrize("part", ["tpr@1%", "../up", "/root", "a//b", ".", "κ = 4", "", "x" * 400])
def test_metric_names_are_ones_that_mlflow_takes(part):
    from mlflow.utils.validation import _validate_metric

    _validate_metric(metric_name("source", part, "value"), 0.0, 0, 0)


# -- stores --------------------------------------------------------------------------------------------------------


def test_push_replaces_the_run_and_leaves_every_value_once(uri, tmp_path):
    (tmp_path / "figure.svg").write_text("<svg/>")
    made = record(files=(tmp_path / "figure.svg",))
    push(record(scale=0.5), uri)
    upgrade_store(uri)
    for _ in range(2):
        push(made, uri)
    parent = stored_as(uri, made)
    assert parent.data.params == made.params
    assert made.tags.items() <= parent.data.tags.items()
    assert (parent.info.start_time, parent.info.end_time) == (START, START + 20_000)
    assert [file.path for file in connect(uri).list_artifacts(parent.info.run_id)] == ["figure.svg"]
    assert list((tmp_path / "mlartifacts" / "quick" / "digits").rglob("figure.svg"))


def test_run_names_its_data_once_and_its_experiment_is_of_the_kind_that_trains(uri):
    for _ in range(2):
        run_id = push(record(), uri)["run_id"]
    (found,) = connect(uri).get_run(run_id).inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.digest) == ("digits", ("0123456789abcdef" * 4)[:16])
    assert {tag.key: tag.value for tag in found.tags} == {"mlflow.data.context": "training"}
    kind = {"mlflow.experimentKind": "custom_model_development"}
    assert kind.items() <= connect(uri).get_experiment_by_name("quick/digits").tags.items()


def test_experiment_opens_with_columns_for_what_its_runs_open_with(uri):
    """They are sorted by defense, and then by level as a number; untrained networks, without accuracy, come last."""
    connect(uri).create_experiment("quicker/digits")
    for level in (16.0, 0.25):
        push(record(facts=dataclasses.replace(FACTS, slug=f"natural-{level}", level=level)), uri)
    push(record(facts=dataclasses.replace(FACTS, slug="dp", defense="dpsgd", level=2.0)), uri)
    push(record(facts=dataclasses.replace(FACTS, slug="none", defense="none", level=None)), uri)
    push(record(facts=dataclasses.replace(FACTS, slug="untrained", defense="clipping", level=1.0, rounds=0)), uri)
    made = connect(uri).get_experiment_by_name(FACTS.experiment).experiment_id
    connect(uri).set_experiment_tag(made, "mlflow.sharedViewState.leakbound", "{}")  # as of an earlier version
    assert push(accounted(), uri)["experiment_id"] == made
    page = f"/#/experiments/{made}/runs?workflowType=machine_learning&viewStateShareKey=leakbound"
    assert pages(uri, "quick") == {"quick/digits": page}
    view = json.loads(connect(uri).get_experiment(made).tags["mlflow.sharedViewState.leakbound"])
    runs = connect(uri).search_runs([made], view["searchFilter"], order_by=[f"{view['orderByKey']} ASC"])
    assert [run.data.params.get("level") for run in runs] == [None, "2", "0.25", "4", "16", "1"]
    run = runs[3]
    assert run.data.metrics.keys() >= {
        "brief/accuracy",
        "brief/if_noise_were_secret_nats_per_record_average_with_labels",
        "brief/membership_auc_last_weights",
    }
    shown = {f"metrics.`{key}`" for key in run.data.metrics if key.startswith("brief/")} | {"tags.`defense`"}
    assert shown <= set(view["selectedColumns"]) == set(view["columnWidths"])
    last, uploads = (
        view["columnOrder"].index(f"metrics.`brief/membership_auc_{seen}`") for seen in ("last_weights", "uploads")
    )
    assert uploads < last  # the server sees more


def _push_until_killed(moment: int, made: RunRecord, uri: str) -> None:
    calls, send = iter(range(10)), sending._send_values

    def send_or_die(*words: Any) -> None:
        if next(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        send(*words)

    sending._send_values = send_or_die
    push(made, uri)


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_job_that_is_killed_while_it_logs_a_run_leaves_it_once_when_it_is_called_again(uri, processes, moment):
    made = record()
    push(made, uri)
    assert ended(processes.Process(target=_push_until_killed, args=(moment, made, uri))) == [-signal.SIGKILL]
    (broken,), _ = stored_runs(uri)
    assert broken.info.status == "RUNNING"
    push(made, uri)
    stored_as(uri, made)


def test_push_of_more_values_than_one_call_takes_stores_all(uri):
    steps = range(2100)
    many = pd.DataFrame({"replica": 0, "step": steps, "metric": "train_loss", "value": [1 / (s + 1) for s in steps]})
    made = describe_run(dataclasses.replace(FACTS, rounds=2100), many, {}, PROVENANCE)
    push(made, uri)
    assert stored_values(uri, stored_runs(uri)[0][0]) == values(made)


def test_push_takes_an_experiment_out_of_the_bin(uri):
    push(record(scale=0.5), uri)
    client = connect(uri)
    client.delete_experiment(client.get_experiment_by_name("quick/digits").experiment_id)
    push(record(), uri)
    stored_as(uri, record())


def test_push_of_figures_keeps_folders_and_counts_of_claims(uri, tmp_path):
    path = tmp_path / "figures" / "tan2024" / "fig14.svg"
    path.parent.mkdir(parents=True)
    path.write_text("<svg/>")
    top = tmp_path / "figures" / "scoreboard.md"
    top.write_text("| claim |")
    made = describe_figures("quick", [path, top], tmp_path / "figures", {"reproduced": 3, "contradicted": 1})
    for _ in range(2):
        push(made, uri)
    (run,), _ = stored_runs(uri, "quick/figures")
    assert run.data.metrics == {"claims/reproduced": 3.0, "claims/contradicted": 1.0}
    assert [file.path for file in connect(uri).list_artifacts(run.info.run_id, "tan2024")] == ["tan2024/fig14.svg"]
    assert "scoreboard.md" in [file.path for file in connect(uri).list_artifacts(run.info.run_id)]


def _push_level(level: float, uri: str, ready) -> None:
    slug = f"digits/lenet/natural-{level:g}/n200-b64"
    made = record(facts=dataclasses.replace(FACTS, slug=slug, level=level))
    ready.wait()
    push(made, uri)


@pytest.mark.slow
def test_push_from_four_processes_into_a_new_file_loses_nothing(tmp_path, processes):
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    ready = processes.Barrier(4)
    pushing = [processes.Process(target=_push_level, args=(float(n), address, ready)) for n in range(4)]
    assert ended(*pushing) == [0] * 4
    top, below = stored_runs(address)
    assert sorted(float(run.data.params["level"]) for run in top) == [0.0, 1.0, 2.0, 3.0]
    assert all(len(children) == 2 for children in below.values())
    assert all(stored_values(address, run) == values(record()) for run in top)


# -- faults --------------------------------------------------------------------------------------------------------


def test_marker_says_where_the_run_stands(uri, tmp_path):
    marker = tmp_path / "run.json"
    made = record()
    dead = f"http://someone:secret@127.0.0.1:{free_port()}"
    assert log_run(made, dead, marker).status == "pending"
    kept = storage.read_json(marker)
    assert (kept["status"], kept["place"], bool(kept["reason"])) == ("pending", None, True)
    assert "secret" not in marker.read_text()
    assert log_run(made, uri, marker).status == "stored"
    (run,) = stored_runs(uri)[0]
    place = {"experiment_id": run.info.experiment_id, "run_id": run.info.run_id}
    assert storage.read_json(marker) == {"status": "stored", "reason": "", "place": place}


@pytest.mark.slow
def test_server_killed_while_runs_are_logged_has_each_of_them_once_afterwards(tmp_path, monkeypatch):
    (tmp_path / "figure.svg").write_text("<svg/>")
    records = [
        record(facts=dataclasses.replace(FACTS, slug=f"run {number}"), files=(tmp_path / "figure.svg",))
        for number in range(3)
    ]
    calls, send = iter(range(100)), sending._send_values
    with running(own_words(tmp_path, port := free_port()), tmp_path, port) as server:

        def send_or_die(*words: object) -> None:
            if next(calls) == 4:  # the second of three runs, in the middle of its values
                server.stop(signal.SIGKILL)
            send(*words)

        monkeypatch.setattr(sending, "_send_values", send_or_die)
        outcomes = [log_run(one, server.uri, tmp_path / f"{one.key}.json") for one in records]
    assert [outcome.status for outcome in outcomes] == ["stored", "pending", "pending"]
    with running(own_words(tmp_path, port), tmp_path, port) as server:
        again = [log_run(one, server.uri, tmp_path / f"{one.key}.json") for one in records]
        assert [outcome.status for outcome in again] == ["stored"] * 3
        top, below = stored_runs(server.uri)
        assert {run.data.tags["leakbound.key"] for run in top} == {one.key for one in records}
        for run in top:
            assert stored_values(server.uri, run) == values(records[0])
            assert len(below[run.info.run_id]) == 2
            assert [file.path for file in connect(server.uri).list_artifacts(run.info.run_id)] == ["figure.svg"]


# -- a store that fails: one attempt, which leaves the record pending ---------------------------------------------


SHORT = RunRecord("run", "experiment", "a run", 0, 1, metrics=(Point("loss", 0, 1, 0.5),))


@pytest.mark.parametrize("fault", ["cuts the connection", "hangs", 401, 500, 503])
def test_server_that_fails_is_asked_once(tmp_path, monkeypatch, fault):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    asked, closing = [], threading.Event()

    def fail(request, content):
        asked.append(request.path)
        if fault == "hangs":
            closing.wait()
        return (fault, b"failed") if isinstance(fault, int) else None

    with answering(fail) as uri:
        outcome = log_run(SHORT, uri, tmp_path / "run.json")
        closing.set()
    assert (outcome.status, bool(outcome.reason)) == ("pending", True)
    assert len(asked) == 1


def test_store_that_was_copied_writes_nothing_next_to_the_original(tmp_path, template):
    """MLflow keeps the folder of an experiment's files by its whole path."""
    note, original, copy = tmp_path / "note.txt", tmp_path / "my clone", tmp_path / "copy"
    note.write_text("a")
    original.mkdir()
    (original / "mlflow.db").write_bytes(template.read_bytes())
    assert log_run(record(files=(note,)), f"sqlite:///{original}/mlflow.db", tmp_path / "first.json").status == "stored"
    before = sorted(original.rglob("*"))
    shutil.copytree(original, copy)
    (tmp_path / "link").symlink_to(original)
    outcome = log_run(record(2.0, files=(note,)), f"sqlite:///{copy}/mlflow.db", tmp_path / "second.json")
    assert outcome.status == "pending"
    assert f"keeps the files of quick/digits in {original}/mlartifacts, so delete it" in outcome.reason
    assert sorted(original.rglob("*")) == before
    through = log_run(record(files=(note,)), f"sqlite:///{tmp_path}/link/mlflow.db", tmp_path / "third.json")
    assert through.status == "stored"
    shutil.rmtree(original)
    assert log_run(record(), f"sqlite:///{copy}/mlflow.db", tmp_path / "fourth.json").status == "pending"
    assert not original.exists()


def test_file_that_is_missing_leaves_the_run_pending_with_its_name(tmp_path):
    record = RunRecord("run", "experiment", "a run", 0, 1, artifacts=((tmp_path / "gone.json", ""),))
    outcome = log_run(record, f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "run.json")
    assert outcome.status == "pending"
    assert "gone.json" in outcome.reason
    assert storage.read_json(tmp_path / "run.json")["status"] == "pending"


# -- a store whose making is cut off: MLflow cannot go on from half of its tables, so they must never be seen ------


def _upgrade_until_killed(uri: str) -> None:
    from mlflow.store.db import utils

    utils._upgrade_db = lambda engine: os.kill(os.getpid(), signal.SIGKILL)  # what follows upon the first tables
    upgrade_store(uri)


def test_store_whose_making_was_killed_is_made_by_the_next_one(tmp_path, processes):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert ended(processes.Process(target=_upgrade_until_killed, args=(uri,))) == [-signal.SIGKILL]
    assert not (tmp_path / "mlflow.db").exists()
    assert list(tmp_path.glob(".mlflow.db.*/.mlflow.db"))
    upgrade_store(uri)
    assert [experiment.name for experiment in connect(uri).search_experiments()] == ["Default"]
    assert {path.name for path in tmp_path.iterdir()} == {"mlartifacts", "mlflow.db", "mlflow.db.lock"}
