import json
from pathlib import Path

import pytest

from leakbound import storage
from leakbound.cli.federated import federate, federated, log_federated
from leakbound.config.data import DatasetConfig
from leakbound.config.execution import TrackingConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.whole import Config
from leakbound.jobs.federated_runs import all_runs, run_settings, table_settings, tracking_settings
from leakbound.jobs.table import as_text


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
    return Config(datasets={"bars": DatasetConfig()}, studies={}, replicas=2, federated=section, tracking=tracking)


@pytest.fixture(scope="module")
def root(config, dataset, tmp_path_factory) -> Path:
    """Results of all runs of the configuration."""
    root = tmp_path_factory.mktemp("results")
    images = root / "data" / "bars.safetensors"
    metadata = {"name": "bars", "classes": json.dumps(dataset.classes)}
    storage.write_arrays(images, dataset.arrays(), metadata)
    for slug, run in all_runs(config.federated).items():
        folder = root / "federated" / slug
        federate(as_text(run_settings(config, run)), images, folder / "rows.parquet", folder / "provenance.json")
    return root


def test_runs_leave_rows_and_a_threat_table_and_no_checkpoint(config, root):
    (slug, *_) = all_runs(config.federated)
    folder = root / "federated" / slug
    files = {"provenance.json", "rows.parquet"}
    assert {path.name for path in folder.iterdir()} == files | {f".{name}.sha256" for name in files}
    provenance = storage.read_json(folder / "provenance.json")
    assert provenance["records"] == 200 // 4
    assert provenance["dimension"] > 30_000
    assert provenance["diverged"] == [False, False]
    assert [sorted(threats) for threats in provenance["leakage"]] == 2 * [
        ["leak_round", "leak_server_round", "leak_server_total", "leak_total"]
    ]


def test_a_run_whose_curves_no_server_takes_leaves_the_same_rows(config, root, tmp_path):
    slug, run = next(iter(all_runs(config.federated).items()))
    nobody = "http://127.0.0.1:9"  # the port of a service that throws everything away, and runs nowhere
    outputs = (tmp_path / "rows.parquet", tmp_path / "provenance.json")
    federate(as_text(run_settings(config, run)), root / "data" / "bars.safetensors", *outputs, live=nobody)
    assert outputs[0].read_bytes() == (root / "federated" / slug / "rows.parquet").read_bytes()


def test_a_table_gathers_all_its_runs(config, root, tmp_path):
    federated(as_text(table_settings(config, "means")), root, tmp_path / "means.parquet")
    rows = storage.read_rows(tmp_path / "means.parquet")
    assert rows["run"].nunique() == 4
    assert len(rows[rows["metric"] == "final_accuracy"]) == 4 * 2
    assert len(rows[rows["metric"] == "advantage"]) == 2 * 2


def test_the_table_of_composition_knows_the_networks(config, root, tmp_path):
    federated(as_text(table_settings(config, "composition")), root, tmp_path / "composition.parquet")
    rows = storage.read_rows(tmp_path / "composition.parquet")
    assert set(rows["variant"]) == {"printed", "composed", "static", "uploads"}
    assert set(rows["dataset"]) == {"bars"}


def test_a_run_is_shown_in_mlflow(config, root, tmp_path):
    from mlflow import MlflowClient

    run = next(iter(all_runs(config.federated).values()))
    settings = tracking_settings(config, run, {"pmidp/fig09": "federated/means"})
    log_federated(as_text(settings), root, tmp_path / "marker.json")
    client = MlflowClient(config.tracking.uri)
    (experiment,) = [found for found in client.search_experiments() if found.name.endswith("/bars")]
    (shown,) = client.search_runs(
        [experiment.experiment_id], f"tags.slug = 'federated/{run.slug}' and tags.paper = 'pmidp'"
    )
    assert shown.data.tags["figures"] == "pmidp/fig09"
    assert shown.data.metrics["federated/leak_round"] > 0
    assert len(client.get_metric_history(shown.info.run_id, "test_accuracy")) == 2
