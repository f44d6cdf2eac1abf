"""The figures of PMIDP-FL on rows as federated runs would leave them, with effects of known size."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakbound.claims.scoreboard import overall
from leakbound.claims.selection import select
from leakbound.cli.steps.plot import write_figure
from leakbound.config import reading
from leakbound.config.federated import FederatedConfig, federated_runs
from leakbound.papers.pmidp.run_tables import composition, tabulate_runs
from verdicts import evaluate

FOLDER = Path(__file__).parents[2] / "config" / "figures"
FIGURES = {
    f"{figure.paper}/{figure.id}": figure
    for figure in reading.load_catalogue(FOLDER / "pmidp.yaml", reading.quick()).figures
}
SECTION = FederatedConfig()
REPLICAS = 5


def outcome_of(run) -> float:
    """Accuracy that a run tends to: more for large budgets and many clients, most at middle thresholds."""
    if run.scheme == "none":
        return 0.9
    smallest = max(1.0, run.mi_budget - 2.5 * run.budget_spread) if run.scheme == "uniform" else run.mi_budget
    noise = (run.max_param_norm / 10) ** 2 * 100 / run.n_clients / smallest
    return 0.9 - 0.4 * noise**0.5 - 0.5 / run.max_param_norm**2


def rows_of(run, generator: np.random.Generator) -> pd.DataFrame:
    points = []
    for replica in range(REPLICAS):
        accuracy = outcome_of(run) + 0.005 * generator.standard_normal()
        for round_, share in ((1, 0.3), (50, 0.9), (100, 1.0)):
            points.append((replica, round_, "test_accuracy", share * accuracy))
            points.append((replica, round_, "train_loss", 2.3 - 2 * share * accuracy))
        points.append((replica, 100, "final_accuracy", accuracy))
        points.append((replica, 100, "final_loss", 2.3 - 2 * accuracy))
    return pd.DataFrame(points, columns=["replica", "communication_round", "metric", "value"]).assign(unit=-1)


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(4)
    made = {
        f"federated/{table}": tabulate_runs({run: rows_of(run, generator) for run in runs})
        for table, runs in federated_runs(SECTION).items()
        if runs
    }
    networks = {"mnist": ("mlp", 33_130), "cifar10": ("cnn", 26_346)}
    return {**made, "federated/composition": composition(networks, 100, 100, 10.0)}


@pytest.mark.parametrize("key", FIGURES)
def test_every_figure_draws_its_rows(tables, tmp_path, key):
    write_figure(FIGURES[key], select(tables[FIGURES[key].table], FIGURES[key].select), tmp_path / "fig")
    svg = (tmp_path / "fig.svg").read_text(encoding="utf-8")
    assert "Nothing to show" not in svg
    assert "MNIST" in svg
    assert "CIFAR-10" in svg


@pytest.mark.parametrize("key", FIGURES)
def test_every_claim_that_the_rows_were_made_for_is_reproduced(tables, key):
    verdicts = overall(evaluate(FIGURES[key], tables[FIGURES[key].table], alpha=0.05))
    assert verdicts["p_value"].notna().all(), verdicts["detail"].tolist()
    # At a spread of 10 the smallest of 100 budgets is 1 at every mean, so equal noise gains nothing from a larger one.
    made_for = verdicts[verdicts["claim"] != "most_at_low_means"]
    wrong = made_for[~made_for["verdict"].isin(["reproduced", "holds"])]
    assert wrong.empty, verdicts[["claim", "dataset", "verdict", "detail"]].to_dict("records")


def test_budgets_are_drawn_from_light_to_dark_with_the_undisturbed_line_beside(tables):
    from leakbound.registry import PLOTS

    figure = FIGURES["pmidp/fig03"]
    picture = PLOTS.get("budgets")(select(tables[figure.table], figure.select), options=figure.options)
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels == ["ε = 5", "ε = 10", "ε = 20", "no noise"]
    assert all(len(axes.lines) == 4 for axes in picture.axes)
