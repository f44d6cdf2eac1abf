import json
import re
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import pytest
import yaml

from images import gathered
from leakbound.claims.scoreboard import overall, verdict_counts
from leakbound.claims.selection import EmptySelectionError, rows_of, select
from leakbound.cli.job_settings import read_settings
from leakbound.cli.steps.plot import PlotSettings, write_figure
from leakbound.config.catalogue import Catalogue, FigureConfig
from leakbound.config.consensus import AveragingConfig, ConsensusConfig
from leakbound.config.studies import IllustrationConfig
from leakbound.jobs.job import Job
from leakbound.registry import CLAIM_TESTS, ILLUSTRATIONS, PLOTS
from verdicts import evaluate

ELSEWHERE = {"zeng2022.yaml", "pmidp.yaml"}
"""Files whose figures are drawn and judged by the tests of their own worlds."""
PATH = Path(__file__).parents[2] / "config" / "figures"
FILES = [
    yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted(PATH.glob("*.yaml"))
    if path.name not in ELSEWHERE
]
CATALOGUE = Catalogue.model_validate({"figures": [figure for file in FILES for figure in file["figures"]]})
FIGURES = {f"{figure.paper}/{figure.id}": figure for figure in CATALOGUE.figures}
EVERY = {
    f"{figure.paper}/{figure.id}": figure
    for path in sorted(PATH.glob("*.yaml"))
    for figure in Catalogue.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).figures
}
_GAINS = {"Upper row: the attack as published": "gain, attack as printed", "Lower row: ": "gain, tuned attack"}
_ACCURACIES = {"Twin of ": "membership AUC", "below it the accuracy of": "accuracy"}
PLACES = {
    "beyond/inversion_gain": {
        "Above: the tuned attack from the mean": "gain, from the mean image",
        "In the middle: the attack that starts from the attacker's class means": "gain, from own class means",
        "Below, as a control: the same images": "the same, non-members",
    },
    "beyond/shapes_trained": {
        "From above: test accuracy": "test accuracy",
        "AUC of the strongest": "membership AUC",
        "gain of the tuned": "gain of inversion",
    },
    "beyond/leakage": {"Above: how much": "leakage (nats)", "Below: the error": "error left (MSE)"},
    "beyond/personalized_cost": {"power (left)": "noise_power", "κ (right)": "capacity"},
    "beyond/canaries": {
        "Above: the part of mislabelled members": "TPR at 0.1 % FPR, canaries",
        "Below: the AUC on all other records": "membership AUC, all records",
    },
    "beyond/zeng_general": {
        "Above: equal clients": "clients alike:\nU / cap",
        "Below: parameters that share": "clients differ:\nU / cap",
    },
    "tan2024/fig16_recipes": {"Above: the AUC": "membership AUC", "Below: the gain": "gain of inversion (MSE)"},
    "zeng2022/fig07": {
        "Largest utility": "utility U\n(bits per client)",
        "Below: the utility minus": "U − ε\n(bits per client)",
    },
    **{f"tan2024/fig{number}_gain": _GAINS for number in (10, 13, 20, 23)},
    **{f"tan2024/fig{number}_accuracy": _ACCURACIES for number in (19, 22, 25, 26)},
}
"""Words of a caption that say where a panel is, with its label in the catalogue, from above or from the left."""
SHAPES = ("natural", "white", "personalized")
_MADE_FOR = ("06", "08", "09", "10_gain", "12", "13_gain", "14", "24", "25", "25_accuracy", "26", "30", "32")
MADE_FOR = (*(f"tan2024/fig{number}" for number in _MADE_FOR), "tan2024/table02", "beyond/kinks")


@pytest.fixture(scope="module")
def illustrations() -> dict[str, pd.DataFrame]:
    """Rows of the figures without training, computed for small smooth random pictures."""
    from leakbound.channels import Moments
    from leakbound.datasets import Split

    generator = np.random.default_rng(1)
    coarse = generator.uniform(-0.6, 0.6, (160, 1, 8, 8)) * np.geomspace(0.02, 1.0, 64).reshape(8, 8)
    images = np.kron(coarse, np.ones((1, 1, 4, 4))).astype(np.float32)
    split = Split(images=images, labels=np.arange(160, dtype=np.int64) % 10)
    dataset = gathered(split, members=64, validation=16, name="squares")
    flat = images.reshape(160, -1).astype(np.float64)
    moments = Moments(flat.mean(axis=0), np.cov(flat, rowvar=False, bias=True), 160)
    levels = dict.fromkeys(SHAPES, (20.0, 60.0))
    settings = {
        "noisy_images": IllustrationConfig(dataset="squares", levels=levels, images=2),
        "compression": IllustrationConfig(dataset="squares", levels={"natural": (20.0, 60.0)}),
        "covariance_leak": IllustrationConfig(dataset="squares", covariance="aux", replicas=3),
        "reconstructions": IllustrationConfig(dataset="squares", levels={"natural": [4.0, 16.0]}, images=1),
        "leakage": IllustrationConfig(dataset="squares", levels={"natural": (20.0,)}),
        "personalized_cost": IllustrationConfig(dataset="squares", levels={"personalized": (20.0, 60.0)}),
        "shapes": IllustrationConfig(
            dataset="squares", levels={**levels, "least_power": (20.0, 60.0), "rate_distortion": (20.0, 60.0)}
        ),
    }
    given = {"dataset": dataset, "moments": moments, "seed": 0}
    names = {figure.illustration for figure in CATALOGUE.figures if figure.illustration}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leakbound.papers.tan2024.reconstructions._ITERATIONS", 60)
        return {name: ILLUSTRATIONS.get(name)(settings.get(name, IllustrationConfig()), **given) for name in names}


@pytest.fixture(scope="module")
def worlds() -> dict[str, pd.DataFrame]:
    """Tables of the worlds beside the chain, with the committed settings or less."""
    from leakbound.papers.wang2020.simulations import simulation_rows as consensus_rows

    averaging = ConsensusConfig(averaging=AveragingConfig(runs=300))
    return {f"consensus/{part}": consensus_rows(part, averaging, 0) for part in averaging.tables()}


@pytest.fixture(scope="module")
def tables(studies, recipes, efficiency, illustrations, worlds) -> dict[str, pd.DataFrame]:
    drawn = {f"illustrations/{name}": rows for name, rows in illustrations.items()}
    scoreboard = verdict_counts(evaluate(FIGURES["tan2024/fig09"], studies["capacity"], alpha=0.05))
    drawn["what_wins"] = with_uploads(recipes)
    return {**studies, "recipes": recipes, "efficiency": efficiency, "scoreboard": scoreboard, **drawn, **worlds}


def with_uploads(recipes: pd.DataFrame) -> pd.DataFrame:
    """Recipes whose uploads are scored as their weights are, with a record's part, and DP-SGD behind a channel."""
    rows = recipes.replace({"membership": "membership_uploads", "strongest": "likelihood"})
    areas = rows[rows["metric"] == "auc"]
    parts = areas.assign(source="derived", variant="", metric="recovered")
    rows = pd.concat([rows, areas.assign(metric="tpr_at_fpr_0.01"), parts], ignore_index=True)
    behind = rows[rows["defense"] == "dpsgd"].replace({"defense": {"dpsgd": "channel_dpsgd"}})
    runs = behind["run"].str.replace("dpsgd", "channel_dpsgd")
    return pd.concat([rows, behind.assign(run=runs, value=0.9 * behind["value"])], ignore_index=True)


def table_of(figure: FigureConfig, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    study = "recipes" if figure.rates == "all" and figure.study != "what_wins" else figure.study
    return tables[study or figure.table or f"illustrations/{figure.illustration}"]


def test_the_catalogue_has_every_figure_and_table_of_the_main_paper():
    assert {*(f"tan2024/fig{number:02d}" for number in range(3, 34)), "tan2024/table02"} <= set(FIGURES)


def test_misleading_metrics_have_a_twin():
    misled = {"gain": (10, 11, 13, 15, 16, 20, 23, 24), "bounded": (8, 14, 30)}
    misled |= {"accuracy": (19, 22, 25, 26), "relative": (6,)}
    twins = {f"tan2024/fig{number:02d}_{kind}" for kind, numbers in misled.items() for number in numbers}
    assert twins <= set(FIGURES)


@pytest.mark.parametrize("key", FIGURES)
def test_the_options_of_plots_and_claims_are_known(key):
    PLOTS.get(FIGURES[key].plot).check(FIGURES[key].options)
    for claim in FIGURES[key].claims:
        CLAIM_TESTS.get(claim.test).check(claim.options)


@pytest.mark.parametrize("key", EVERY)
def test_panels_have_the_order_of_the_catalogue_where_a_job_draws_them(key):
    figure = EVERY[key]
    job = Job("plot", key, PurePosixPath("results"), {"figure": figure.model_dump(mode="json", exclude={"claims"})})
    received = read_settings(job.settings_text(), PlotSettings).figure.options
    assert json.dumps(received) == json.dumps(figure.options)  # with the order of every key


def test_captions_name_the_panels_where_they_are():
    several = {key for key, one in EVERY.items() if len(_panels_of(one)) > 1}
    placed = re.compile(r"\b(Above|Below|Upper row|From above|below it)\b(?! 0)|\((left|right)\)")
    assert {key for key in several if placed.search(EVERY[key].caption)} == set(PLACES)
    for key, places in PLACES.items():
        found = [EVERY[key].caption.index(words) for words in places]
        assert found == sorted(found), key
        assert list(_panels_of(EVERY[key])) == list(places.values()), key


def _panels_of(figure: FigureConfig) -> dict[str, object]:
    """Panels that the options list, in order."""
    kept = next((figure.options[name] for name in ("rows", "leakages", "labels") if name in figure.options), {})
    return kept if isinstance(kept, dict) else {}


@pytest.mark.parametrize("key", [key for key in PLACES if key in FIGURES and FIGURES[key].plot == "levels"])
def test_panels_are_drawn_in_the_order_of_the_catalogue(tables, key):
    figure = FIGURES[key]
    picture = PLOTS.get(figure.plot)(rows_of(figure, table_of(figure, tables)), options=figure.options)
    labels = {axes.get_ylabel(): -axes.get_position().y0 for axes in picture.axes if axes.get_ylabel()}
    assert sorted(labels, key=labels.__getitem__) == list(PLACES[key].values())


@pytest.mark.parametrize("key", FIGURES)
def test_every_figure_is_drawn_from_its_rows(tmp_path, tables, key):
    figure = FIGURES[key]
    rows = rows_of(figure, table_of(figure, tables))
    write_figure(figure, rows, tmp_path / "fig")
    svg = (tmp_path / "fig.svg").read_text(encoding="utf-8")
    assert "Nothing to show" not in svg
    assert all(label in svg for label in figure.options.get("leakages", ()))
    assert (tmp_path / "fig.png").stat().st_size > 2000


@pytest.mark.parametrize("key", [key for key, figure in FIGURES.items() if figure.claims])
def test_every_claim_finds_its_rows(tables, key):
    verdicts = evaluate(FIGURES[key], table_of(FIGURES[key], tables), alpha=0.05)
    assert verdicts["p_value"].notna().all(), verdicts["detail"].tolist()


DRAWN = {"beyond/covariance_leak"}  # of random records


@pytest.mark.parametrize("key", [k for k, one in FIGURES.items() if one.illustration and one.claims and k not in DRAWN])
def test_closed_form_claims_hold(tables, key):
    verdicts = evaluate(FIGURES[key], table_of(FIGURES[key], tables), alpha=0.05)
    assert (verdicts["verdict"] == "holds").all(), verdicts[["claim", "detail"]].to_dict("records")


@pytest.mark.parametrize("key", MADE_FOR)
def test_claims_that_the_rows_were_made_for_are_reproduced(tables, key):
    verdicts = overall(evaluate(FIGURES[key], table_of(FIGURES[key], tables), alpha=0.05))
    made_for = verdicts[verdicts["claim"] != "personalized_above_natural"]  # by 0.3 dB, which is less than counts
    assert (made_for["verdict"] == "reproduced").all()


def test_every_claim_is_exact_or_states_the_smallest_effect_of_interest():
    for figure in FIGURES.values():
        for claim in figure.claims:
            exact = getattr(CLAIM_TESTS.get(claim.test).check(claim.options), "exact", False)
            assert exact == (claim.delta is None), f"{figure.id}.{claim.id}"


@pytest.mark.parametrize("key", ["tan2024/fig14", "tan2024/fig14_bounded"])
def test_three_networks_decide_nothing_about_gradient_inversion(make_gradients, key):
    verdicts = evaluate(FIGURES[key], make_gradients(3), alpha=0.05)
    assert set(verdicts["verdict"]) <= {"undecided", "negligible"}
    assert (verdicts["blocks"] == 3).all()
    assert verdicts["detail"].str.contains("sign flips of 3 blocks go no lower than p = 0.25").all()


def test_no_caption_says_what_the_preset_decides():
    assert not [figure.id for figure in CATALOGUE.figures if "iterations" in figure.caption]


def test_a_study_without_an_attack_is_named_when_its_figure_is_asked_for(study):
    without = study[study["source"] != "model_inversion"]
    with pytest.raises(EmptySelectionError, match=r"select.source = 'model_inversion' leaves no row"):
        select(without, FIGURES["tan2024/fig10"].select)


def test_captions_and_titles_are_sentences_and_phrases():
    for figure in CATALOGUE.figures:
        assert figure.caption.rstrip().endswith("."), figure.id
        assert not figure.title.endswith("."), figure.id
        assert all(claim.text.endswith(".") for claim in figure.claims)
