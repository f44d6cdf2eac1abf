from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from pydantic import ValidationError

from leakbound_lab.claims.selection import select
from leakbound_lab.config.catalogue import Catalogue
from leakbound_lab.config.consensus import AveragingConfig, ConsensusConfig
from leakbound_lab.papers.wang2020.privacy import contributor_variance
from leakbound_lab.papers.wang2020.protocol import PairwiseMasks
from leakbound_lab.papers.wang2020.simulations import network, simulation_rows, state_scale
from verdicts import evaluate

FILE = Path(__file__).parents[3] / "config" / "figures" / "wang2020.yaml"
FIGURES = {figure.id: figure for figure in Catalogue.model_validate(yaml.safe_load(FILE.read_text())).figures}
SMALL = ConsensusConfig(averaging=AveragingConfig(runs=500))


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return {f"consensus/{part}": simulation_rows(part, SMALL, 0) for part in SMALL.tables()}


def value(rows: pd.DataFrame, **conditions) -> float:
    return float(select(rows, conditions)["value"].mean())


def test_claims_of_the_paper_on_convergence_are_reproduced(tables):
    for name in ("fig01a", "fig01b", "masks"):
        verdicts = evaluate(FIGURES[name], tables[FIGURES[name].table], alpha=0.05)
        assert (verdicts["verdict"] == "reproduced").all(), verdicts[["claim", "detail"]].to_dict("records")


def test_theorem_2_fails_and_all_else_about_levels_holds(tables):
    verdicts = evaluate(FIGURES["kldp_joint"], tables["consensus/privacy"], alpha=0.05)
    found = dict(zip(verdicts["claim"], verdicts["verdict"], strict=True))
    assert found.pop("theorem2") == "fails"
    assert set(found.values()) == {"holds"}


def test_defaults_are_the_published_setting(tables):
    levels = tables["consensus/privacy"]
    assert value(levels, scheme="initial", time=0) == pytest.approx(2.21239e-5, rel=1e-5)
    assert value(levels, scheme="limit", time=0) == pytest.approx(5e-3)
    assert value(levels, scheme="contributor", time=0) == 0.5
    assert value(tables["consensus/averaging"], metric="gap") == pytest.approx(0.535237, rel=1e-5)


def test_all_schemes_start_at_the_same_reports_and_have_a_row_for_every_batch_and_time(tables):
    rows = tables["consensus/averaging"]
    for metric in ("spread", "deviation"):
        first = select(rows, {"metric": metric, "time": 0})
        assert first["value"].nunique() == 1
        counts = select(rows, {"metric": metric}).groupby("scheme")[["time", "replica"]].nunique()
        assert (counts["time"] == 101).all()
        assert (counts["replica"] == 10).all()


def test_secure_noise_follows_no_seed_and_the_rest_does():
    config = ConsensusConfig(steps=3, averaging=AveragingConfig(runs=20, batches=2))
    first, second = (simulation_rows("averaging", config, 1, "secure") for _ in range(2))
    seeded = simulation_rows("averaging", config, 1)
    keys = ["scheme", "time", "replica", "metric"]
    assert first[keys].equals(seeded[keys])
    same = first["value"] == second["value"]
    assert set(first.loc[same, "metric"]) == {"true_mean", "gap"}  # what contributors have, and a closed form
    assert (first["value"] == seeded["value"]).equals(same)
    with pytest.raises(ValueError, match="privacy_noise = 'sure'"):
        simulation_rows("averaging", config, 1, "sure")


def test_secure_averages_are_those_of_the_published_setting():
    """Mean of 5,000 deviations |y(∞) − x̂| of scheme 1 against its closed form, to 7 standard errors of |N(0, s²)|."""
    rows = simulation_rows("averaging", ConsensusConfig(steps=60), 0, "secure")
    deviation = value(rows, scheme="initial", metric="final_deviation")
    gap = value(rows, metric="gap")
    assert abs(deviation / gap - 1) < 7 * np.sqrt((np.pi / 2 - 1) / 5000) + 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"servers": 3, "edges": [[0, 1]]}, r"no way leads from server 0 to \[2\].*connected network"),
        ({"servers": 3, "edges": [[0, 3]]}, r"edges has \[0, 3\]: an edge joins two different servers of 0..2"),
        ({"decay": 0.0}, "greater than 0"),
        ({"values": [5, 1]}, "the least value comes first"),
        ({"averaging": {"runs": 5, "batches": 2}}, "runs = 5 does not split into batches = 2"),
    ],
)
def test_settings_that_cannot_be_averaged_are_refused_before_anything_runs(settings, message):
    with pytest.raises(ValidationError, match=message):
        ConsensusConfig.model_validate(settings)


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match="table = 'rounds': known: averaging, privacy"):
        simulation_rows("rounds", SMALL, 0)


def test_level_of_masks_is_that_of_the_server_that_they_protect_least():
    """On the path 0–1–2, by the inverse of a matrix of three: an end has one mask, the middle has two."""
    config = ConsensusConfig(servers=3, edges=((0, 1), (1, 2)), averaging=AveragingConfig(runs=500))
    found = value(simulation_rows("privacy", config, 0), scheme="masks", release="all_messages")
    graph = network(config, 0)
    masks = PairwiseMasks.of_mean_variance(graph, config.noise_variance)
    scale = state_scale(np.full(3, config.contributors))
    reported = config.contributors * contributor_variance(config.adjacent_distance, config.kl_budget)
    laplacian = np.array([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]])
    inverse = np.linalg.inv(scale**2 * reported * np.eye(3) + masks.variance * laplacian)
    levels = 0.5 * (scale * config.adjacent_distance) ** 2 * np.diag(inverse)
    assert found == pytest.approx(levels.max(), rel=1e-9)
    assert levels.max() > 1.001 * levels.min()
