import math

import numpy as np
import pandas as pd
import pytest

from leakbound.config.data import DatasetConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.whole import Config
from leakbound.federated.tables import composition, tabulate, threat_table
from leakbound.jobs.federated_runs import all_runs, part_runs, run_settings, table_settings, tracking_settings

SMALL = FederatedConfig(models={"digits": "mlp"}, client_counts=(10, 100), max_param_norms=(5.0, 10.0))


def config(section: FederatedConfig) -> Config:
    return Config(datasets={"digits": DatasetConfig()}, studies={}, federated=section)


def test_the_paper_settings_are_the_defaults():
    paper = FederatedConfig()
    assert (paper.communication_rounds, paper.local_epochs, paper.batch_size, paper.learning_rate) == (100, 5, 64, 0.01)
    assert paper.client_counts == tuple(range(20, 201, 20))
    assert paper.max_param_norms == tuple(np.arange(1, 9) * 2.5)
    assert paper.most_clients() == 200
    assert set(paper.tables()) == set(FederatedConfig.TABLES)


def test_runs_that_several_tables_show_are_there_once():
    runs = all_runs(SMALL)
    listed = [run.slug for part in SMALL.tables() for run in part_runs(SMALL, part)]
    assert len(runs) == len(set(listed)) < len(listed)
    assert "digits/mlp/client-m10-c10/n100" in {run.slug for run in part_runs(SMALL, "clients")}
    assert "digits/mlp/client-m10-c10/n100" in {run.slug for run in part_runs(SMALL, "thresholds")}


def test_slugs_tell_runs_apart():
    runs = all_runs(FederatedConfig())
    assert len(runs) == len(set(runs.values()))
    assert "mnist/mlp/personalized-m20-s15-c10/n100" in runs
    assert "cifar10/cnn/none/n100" in runs


def test_a_run_depends_on_no_sweep():
    """So that a longer sweep reruns nothing."""
    run = part_runs(SMALL, "budgets")[0]
    longer = SMALL.model_copy(update={"mi_budgets": (1.0, 5.0, 10.0, 20.0), "records": 5})
    shorter = SMALL.model_copy(update={"records": 5})
    assert run_settings(config(longer), run) == run_settings(config(shorter), run)


def test_the_settings_of_a_run_make_the_section_again():
    settings = run_settings(config(SMALL), part_runs(SMALL, "means")[0])
    section = FederatedConfig.model_validate(settings["federated"])
    assert section.communication_rounds == SMALL.communication_rounds
    assert settings["most_clients"] == 100


def test_tables_know_their_runs_and_figures_theirs():
    whole = config(SMALL)
    assert len(table_settings(whole, "means")["runs"]) == 8
    assert "runs" not in table_settings(whole, "composition")
    run = part_runs(SMALL, "means")[0]
    shown = tracking_settings(whole, run, {"pmidp/fig09": "federated/means", "pmidp/fig03": "federated/budgets"})
    assert shown["figures"] == ["pmidp/fig09"]


def test_a_configuration_without_the_section_is_told_so():
    with pytest.raises(ValueError, match="has no section federated"):
        run_settings(Config(datasets={}, studies={}), part_runs(SMALL, "budgets")[0])


def rows_of(loss: float, accuracy: float) -> pd.DataFrame:
    points = [
        (0, 1, -1, "train_loss", loss + 1),
        (0, 9, -1, "train_loss", loss),
        (0, 9, -1, "final_accuracy", accuracy),
    ]
    return pd.DataFrame(points, columns=["replica", "communication_round", "unit", "metric", "value"])


def test_gaps_are_losses_above_the_undisturbed_run():
    runs = part_runs(SMALL, "budgets")
    losses = {run: rows_of(2.0 if run.scheme == "none" else 2.5, 0.5) for run in runs}
    table = tabulate(losses)
    gaps = table[table["metric"].isin(["gap_first", "gap_last"])]
    assert len(gaps) == 2 * 6
    assert set(gaps["scheme"]) == {"client", "server"}
    np.testing.assert_allclose(gaps["value"], 0.5)


def test_advantages_compare_equal_settings():
    runs = part_runs(SMALL, "means")
    table = tabulate(
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
