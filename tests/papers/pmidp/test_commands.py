import json
from dataclasses import asdict
from pathlib import Path

import pytest
from result_command import words_of

from calling import succeeded
from leakbound import storage
from leakbound.cli.steps.job_list import all_steps
from leakbound.cli.steps.several import make_result
from leakbound.config.catalogue import Catalogue, FigureConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.whole import Config, TrackingConfig
from leakbound.jobs.job import JobList
from leakbound.jobs.table import RunTable

FIGURE = FigureConfig(id="fig09", paper="pmidp", title="t", table="federated/means", plot="budgets", caption="c")


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    store = tmp_path_factory.mktemp("store") / "runs.db"
    section = FederatedConfig(
        models={"bars": "mlp"},
        sweeps=("means", "composition"),
        n_clients=4,
        communication_rounds=2,
        local_epochs=1,
        evaluations=2,
        budget_means=(5.0, 20.0),
    )
    tracking = TrackingConfig(uri=f"sqlite:///{store}")
    return Config(
        datasets={"bars": DatasetConfig(reader="digits")}, studies={}, replicas=2, federated=section, tracking=tracking
    )


@pytest.fixture(scope="module")
def jobs(config) -> JobList:
    return JobList(RunTable(config, Catalogue(figures=(FIGURE,))), all_steps())


@pytest.fixture(scope="module")
def place(jobs, dataset, tmp_path_factory) -> Path:
    """Folder with the results of all runs of the configuration."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        told = {"classes": dataset.classes, "drawing": asdict(dataset.drawing)}
        metadata = {"name": "bars", **{name: json.dumps(value) for name, value in told.items()}}
        storage.write_arrays(Path(jobs.job("prepare", "bars").outputs["out"]), dataset.arrays(), metadata)
        for job in jobs.of("federate"):
            succeeded(*words_of(job))
    return folder


@pytest.fixture(autouse=True)
def _there(place, monkeypatch):
    """Paths of jobs begin in the folder of the project."""
    monkeypatch.chdir(place)


def test_runs_leave_rows_and_a_threat_table_and_no_checkpoint(jobs):
    folder = Path(jobs.of("federate")[0].outputs["rows"]).parent
    files = {"provenance.json", "rows.parquet"}
    assert {path.name for path in folder.iterdir()} == files | {f".{name}.sha256" for name in files}
    provenance = storage.read_json(folder / "provenance.json")
    assert provenance["records"] == 200 // 4
    assert provenance["dimension"] > 30_000
    assert provenance["diverged"] == [False, False]
    assert [sorted(threats) for threats in provenance["leakage"]] == 2 * [
        ["leak_round", "leak_server_round", "leak_server_total", "leak_total"]
    ]


def test_a_table_gathers_all_its_runs(jobs):
    job = jobs.job("federated", "means")
    succeeded(*words_of(job))
    rows = storage.read_rows(Path(job.outputs["rows"]))
    assert rows["run"].nunique() == 4
    assert len(rows[rows["metric"] == "final_accuracy"]) == 4 * 2
    assert len(rows[rows["metric"] == "advantage"]) == 2 * 2


def test_the_table_of_composition_knows_the_networks(jobs):
    job = jobs.job("federated", "composition")
    succeeded(*words_of(job))
    rows = storage.read_rows(Path(job.outputs["rows"]))
    assert set(rows["variant"]) == {"printed", "composed", "static", "uploads"}
    assert set(rows["dataset"]) == {"bars"}


def test_a_run_is_shown_in_mlflow(config, jobs):
    from mlflow import MlflowClient

    job = jobs.of("log")[0]
    make_result(job)  # as the rule does for all runs
    client = MlflowClient(config.tracking.uri)
    (experiment,) = [found for found in client.search_experiments() if found.name.endswith("/bars")]
    (shown,) = client.search_runs([experiment.experiment_id], f"tags.slug = '{job.name}' and tags.paper = 'pmidp'")
    assert job.name == f"federated/{jobs.of('federate')[0].name}"
    assert shown.data.tags["figures"] == "pmidp/fig09"
    assert shown.data.metrics["federated/leak_round"] > 0
    assert len(client.get_metric_history(shown.info.run_id, "curves/test_accuracy")) == 2
