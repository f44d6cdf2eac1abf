"""Runs, tables and commands of PMIDP-FL: in lists of jobs and in numbers, and as the workflow calls them."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calling import done, job_called
from leakbound import storage
from leakbound_lab.config.catalogue import Catalogue, FigureConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.federated import FederatedConfig, federated_runs
from leakbound_lab.config.whole import Config, TrackingConfig
from leakbound_lab.jobs.job import JobList
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.papers.pmidp.run_tables import composition, tabulate_runs, threat_table
from leakbound_lab.steps.job_list import all_steps
from leakbound_lab.steps.step_command import make_result

SMALL = FederatedConfig(models={"digits": "mlp"}, client_counts=(10, 100), max_param_norms=(5.0, 10.0))


def figures(**tables: str) -> Catalogue:
    """Figures that show some tables."""
    shown = {"paper": "pmidp", "title": "t", "plot": "budgets", "caption": "c"}
    return Catalogue(
        figures=tuple(FigureConfig(id=name, table=f"federated/{table}", **shown) for name, table in tables.items())
    )


def run_table(section: FederatedConfig | None, **tables: str) -> RunTable:
    """Run table of a section, with figures that show some of its tables."""
    datasets = {name: DatasetConfig() for name in (section.models if section else ())}
    return RunTable(Config(datasets=datasets, studies={}, federated=section), figures(**tables))


def job_list(section: FederatedConfig | None, **tables: str) -> JobList:
    return JobList(run_table(section, **tables), all_steps())


def test_tables_of_sampled_clients_have_the_runs_of_the_others_besides_and_are_made_only_if_asked():
    section = SMALL.model_copy(update={"sweeps": (*SMALL.sweeps, "sampled_means", "sampled_spreads")})
    shown = federated_runs(section)
    for name in ("means", "spreads"):
        assert {run.scheme for run in shown[f"sampled_{name}"]} == {"personalized", "uniform", "sampled"}
        assert set(shown[name]) == {run for run in shown[f"sampled_{name}"] if run.scheme != "sampled"}
    assert not {name for name in federated_runs(SMALL) if name.startswith("sampled")}


def test_runs_that_several_tables_show_are_there_once():
    runs, shown = run_table(SMALL).all_federated(), federated_runs(SMALL)
    assert set(shown) == set(SMALL.tables())
    listed = [run.slug for runs in shown.values() for run in runs]
    assert len(runs) == len(set(listed)) < len(listed)
    assert "digits/mlp/client-m10-c10/n100" in {run.slug for run in shown["clients"]}
    assert "digits/mlp/client-m10-c10/n100" in {run.slug for run in shown["thresholds"]}


def test_a_run_depends_on_no_sweep():
    """So that a longer sweep reruns nothing."""
    slug = federated_runs(SMALL)["budgets"][0].slug
    longer = SMALL.model_copy(update={"mi_budgets": (1.0, 5.0, 10.0, 20.0), "records": 5})
    shorter = SMALL.model_copy(update={"records": 5})
    one, other = (job_list(section).job("federate", slug) for section in (longer, shorter))
    assert one.settings == other.settings
    assert job_list(SMALL).job("federate", slug).settings["most_clients"] == 100


def test_tables_know_their_runs_and_figures_theirs():
    jobs = job_list(SMALL, fig09="means", fig03="budgets")
    assert len(jobs.job("federated", "means").settings["runs"]) == 8
    assert "runs" not in jobs.job("federated", "composition").settings
    run = federated_runs(SMALL)["means"][0]
    assert jobs.job("log", f"federated/{run.slug}").settings["figures"] == ["pmidp/fig09"]


def rows_of(loss: float, accuracy: float) -> pd.DataFrame:
    points = [
        (0, 1, -1, "train_loss", loss + 1),
        (0, 9, -1, "train_loss", loss),
        (0, 9, -1, "final_accuracy", accuracy),
    ]
    return pd.DataFrame(points, columns=["replica", "communication_round", "unit", "metric", "value"])


def test_gaps_are_losses_above_the_undisturbed_run():
    runs = federated_runs(SMALL)["budgets"]
    losses = {run: rows_of(2.0 if run.scheme == "none" else 2.5, 0.5) for run in runs}
    table = tabulate_runs(losses)
    gaps = table[table["metric"].isin(["gap_first", "gap_last"])]
    assert len(gaps) == 2 * 6
    assert set(gaps["scheme"]) == {"client", "server"}
    np.testing.assert_allclose(gaps["value"], 0.5)


def test_advantages_compare_equal_settings():
    runs = federated_runs(SMALL)["means"]
    table = tabulate_runs(
        {run: rows_of(2.0, 0.8 if run.scheme == "personalized" else 0.5 + run.mi_budget / 100) for run in runs}
    )
    found = table[table["metric"] == "advantage"].sort_values("mi_budget")
    assert found["mi_budget"].tolist() == list(SMALL.budget_means)
    np.testing.assert_allclose(found["value"], [0.3 - mean / 100 for mean in SMALL.budget_means])


def test_composition_sums_what_rounds_tell():
    rows = composition({"digits": ("mlp", 33_000)}, 100, 100, 10.0)
    final = rows[rows["metric"] == "final_leak"].set_index("variant")["value"]
    assert final["printed"] == 10
    assert final["composed"] == 1000
    assert final["printed"] < final["static"] < final["composed"] < final["uploads"]
    first = rows[rows["metric"] == "first_leak"].set_index("variant")["value"]
    assert first["printed"] == first["composed"] == pytest.approx(first["static"])
    assert first["uploads"] == pytest.approx(0.5 * 33_000 * math.log1p(100 * math.expm1(20 / 33_000)))


def test_threat_table_in_plain_values_says_none_where_nothing_is_bounded():
    columns = ["replica", "communication_round", "unit", "metric", "value"]
    rows = pd.DataFrame([(0, 9, -1, "leak_round", 5.0), (0, 9, -1, "leak_server_round", math.inf)], columns=columns)
    assert threat_table(rows, [0]) == [{"leak_round": 5.0, "leak_server_round": None}]


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
    return JobList(RunTable(config, figures(fig09="means")), all_steps())


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
            done(job_called(job))
    return folder


@pytest.fixture
def there(place, monkeypatch):
    """Paths of jobs begin in the folder of the project."""
    monkeypatch.chdir(place)


@pytest.mark.usefixtures("there")
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


@pytest.mark.usefixtures("there")
def test_a_table_gathers_all_its_runs_and_that_of_composition_knows_the_networks(jobs):
    found = {}
    for name in ("means", "composition"):
        job = jobs.job("federated", name)
        done(job_called(job))
        found[name] = storage.read_rows(Path(job.outputs["rows"]))
    rows = found["means"]
    assert rows["run"].nunique() == 4
    assert len(rows[rows["metric"] == "final_accuracy"]) == 4 * 2
    assert len(rows[rows["metric"] == "advantage"]) == 2 * 2
    assert set(found["composition"]["variant"]) == {"printed", "composed", "static", "uploads"}
    assert set(found["composition"]["dataset"]) == {"bars"}


@pytest.mark.usefixtures("there")
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
