import math

import numpy as np
import pandas as pd
import pytest

from leakbound.cli.steps.job_list import all_steps
from leakbound.config.catalogue import Catalogue, FigureConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.federated import FederatedConfig, federated_runs
from leakbound.config.whole import Config
from leakbound.jobs.job import JobList
from leakbound.jobs.table import RunTable
from leakbound.papers.pmidp.run_tables import composition, tabulate_runs, threat_table

SMALL = FederatedConfig(models={"digits": "mlp"}, client_counts=(10, 100), max_param_norms=(5.0, 10.0))


def run_table(section: FederatedConfig | None, **tables: str) -> RunTable:
    """Run table of a section, with figures that show some of its tables."""
    datasets = {name: DatasetConfig() for name in (section.models if section else ())}
    shown = [
        FigureConfig(id=name, paper="pmidp", title="t", table=f"federated/{table}", plot="budgets", caption="c")
        for name, table in tables.items()
    ]
    return RunTable(Config(datasets=datasets, studies={}, federated=section), Catalogue(figures=tuple(shown)))


def job_list(section: FederatedConfig | None, **tables: str) -> JobList:
    return JobList(run_table(section, **tables), all_steps())


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
