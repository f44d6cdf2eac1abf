"""What stands under a figure: ε, attacks that are no results, grids of rates that bind, differences from the paper."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakbound_lab.claims.selection import rows_of, shown_rows
from leakbound_lab.config.catalogue import ClaimConfig, FigureConfig, plain_values
from leakbound_lab.config.defenses import default_defenses
from leakbound_lab.figures.notes import notes, warnings, with_epsilon
from verdicts import entry
from whole_catalogue import whole_catalogue

CONFIG = Path(__file__).parents[2] / "config"
CATALOGUE = whole_catalogue()
FIGURES = {f"{figure.paper}/{figure.id}": figure for figure in CATALOGUE.figures}
COLUMNS = ("model", "dataset", "rounds", "n_clients", "max_param_norm", "mi_budget", "budget_spread")
OTHERS = {"dataset": ("digits", "digits"), "model": ("mlp", "perceptron of 32 units (no network of the paper)")}
FEDERATION = {"communication_rounds": 100, "learning_rate": 0.01, "records": 300}


def figure(rates: str = "chosen", claims: tuple[ClaimConfig, ...] = (), **select) -> FigureConfig:
    return entry(select=select, rates=rates, claims=claims)


def classes(statuses: list[str]) -> pd.DataFrame:
    """Inversions of one network, one for each class, the mean over its start and its summary beside them."""
    known = {"run": "r", "dataset": "digits", "model": "lenet", "defense": "natural", "level": 4.0, "replica": 0}
    known |= {"learning_rate": 0.01, "chosen": True, "source": "model_inversion", "metric": "mse"}
    values = [np.nan if status in ("stuck", "diverged", "not_converged") else 0.02 for status in statuses]
    units = pd.DataFrame({"unit": range(len(statuses)), "status": statuses, "value": values})
    frames = [units.assign(variant="printed"), units.assign(variant="start", status="", value=0.03)]
    frames.append(pd.DataFrame({"unit": [-1], "status": "", "value": 0.02, "variant": "printed"}))
    attacked = pd.concat(frames, ignore_index=True).assign(**known)
    derived = attacked.tail(1).assign(source="derived", metric="imp_dra", variant="")
    return pd.concat([attacked, derived], ignore_index=True)


def test_epsilon_of_a_figure_comes_from_rows_that_it_does_not_show(recipes):
    shown = figure(metric="test_accuracy", source="training")
    chosen = with_epsilon(rows_of(shown, recipes), recipes)
    assert set(chosen["metric"]) == {"test_accuracy"}
    by_level = chosen[chosen["defense"] == "dpsgd"].groupby("level")["epsilon"].unique()
    assert {level: list(values) for level, values in by_level.items()} == {0.2066: [391.76], 0.46: [40.97], 0.8: [9.19]}
    assert np.isinf(chosen.loc[chosen["defense"] == "clipping", "epsilon"]).all()
    assert chosen.loc[chosen["defense"] == "natural", "epsilon"].isna().all()
    told = "ε of one replica: DP-SGD 0.2066: 392; DP-SGD 0.46: 41; DP-SGD 0.8: 9.19; clipping, no noise: ∞."
    assert told in notes(shown, recipes)
    together = recipes[recipes["metric"] == "epsilon"].assign(variant="replicas", value=9e9)
    table = pd.concat([recipes, together], ignore_index=True)
    assert (with_epsilon(rows_of(figure(defense="dpsgd"), table), table)["epsilon"] < 400).all()  # of one replica


@pytest.mark.parametrize(
    ("metric", "source"), [("mse", "model_inversion"), ("imp_dra", "derived")], ids=["shown", "derived from it"]
)
def test_attacks_that_are_no_results_are_counted(metric, source):
    table = classes(["", "stuck", "stuck", "not_converged", "diverged", "grid_edge", "", ""])
    assert notes(figure(metric=metric, source=source, unit=-1), table) == [
        "2 of 8 model inversions did not move and are left out.",
        "1 of 8 model inversions did not converge and are left out.",
        "1 of 8 model inversions diverged and are left out.",
        "1 of 8 model inversions chose a setting at an edge of the attack's own grid and are kept.",
    ]


def test_attacks_of_candidates_that_are_not_shown_are_not_counted():
    table = classes(["stuck", ""])
    other = table.assign(learning_rate=0.1, chosen=False, status="stuck")
    both = pd.concat([table, other], ignore_index=True)
    shown = {"metric": "mse", "source": "model_inversion", "unit": -1}
    assert notes(figure(**shown), both) == ["1 of 2 model inversions did not move and are left out."]
    assert notes(figure("all", **shown), both)[0].startswith("3 of 4 ")


def edged(recipes: pd.DataFrame, share: float) -> pd.DataFrame:
    """The table with a share of the chosen rates of DP-SGD, and no other, at an edge of their grid."""
    table = recipes.copy()
    edges = table["metric"] == "at_edge"
    table.loc[edges, "value"] = 0.0
    own = table.index[edges & table["chosen"] & (table["defense"] == "dpsgd")]
    table.loc[own[: round(share * len(own))], "value"] = 1.0
    return table


def test_a_grid_that_binds_is_told_under_the_figure_and_beside_the_claims_that_it_touches(recipes):
    claims = tuple(
        ClaimConfig(id=name, text="T.", test="increasing", delta=0.1, unit="accuracy", options={"where": where})
        for name, where in (("dp", {"defense": "dpsgd"}), ("natural", {"defense": "natural"}))
    )
    shown = figure(claims=claims, source="training", metric="test_accuracy")
    table = edged(recipes, 0.5)
    assert warnings(shown, table) == {
        "dp": "The grid of learning rates binds: 15 of 30 chosen ones (50%) lie at its edge."
    }
    assert notes(shown, table)[-1].startswith("The grid of learning rates binds: 15 of ")
    assert not warnings(shown, edged(recipes, 0.0))
    assert warnings(shown, edged(recipes, 2 / 30))
    assert not warnings(shown, edged(recipes, 1 / 30))  # 3 %, fewer than 5


def test_trainings_that_diverged_are_counted_even_if_a_run_has_no_other_rows():
    run = {"dataset": "mnist", "mi_budget": 5.0, "communication_round": 3, "unit": -1}
    ends = [("uniform", "a", 0, 1.0), ("uniform", "a", 1, 1.0), ("personalized", "b", 0, 0.0), ("none", "c", 0, 1.0)]
    rows = [dict(run, scheme=scheme, run=slug, replica=k, metric="diverged", value=v) for scheme, slug, k, v in ends]
    rows.append(dict(run, scheme="personalized", run="b", replica=0, metric="final_accuracy", value=0.5))
    both = ["uniform", "personalized"]
    told = notes(figure(scheme=both, metric="final_accuracy", unit=-1), pd.DataFrame(rows))
    assert told == ["2 of 3 trainings diverged and are left out."]
    assert notes(figure(scheme="personalized", metric="final_accuracy"), pd.DataFrame(rows)) == []
    rows += [dict(rows[0], replica=replica, metric="final_accuracy", value=0.1) for replica in (0, 1)]
    told = notes(figure(scheme=both, metric=["final_accuracy", "advantage"], unit=-1), pd.DataFrame(rows))
    assert told == ["2 of 3 trainings diverged and count as guesses."]


def test_tables_without_runs_statuses_and_rates_have_no_notes(study):
    beside = pd.DataFrame({"dataset": ["digits"], "variant": ["a"], "replica": [0], "value": [1.0]})
    assert notes(figure(), beside) == []
    old = study.drop(columns=["status", "learning_rate", "chosen"])
    assert notes(figure(metric="gdc"), old) == []


def experiment(shown: FigureConfig, facts: dict) -> tuple[pd.DataFrame, dict]:
    """One run with exactly these facts, a row for each value, and its configuration."""
    start = {"dataset": "cifar10", "model": "lenet", "defense": "none", "level": np.nan, "unit": -1, "metric": "mse"}
    start |= {"source": "training", "status": "", "variant": ""} if shown.study else {}
    start |= {name: plain_values(wanted)[0] for name, wanted in shown.select.items() if plain_values(wanted)}
    start |= {"run": "r", "replica": 0, "value": 1.0}
    columns = {name: values for name, values in facts.items() if values and name in COLUMNS}
    start |= {name: values[0] for name, values in columns.items()}
    rows = [start, *(start | {name: value} for name, values in columns.items() for value in values)]
    levels = {name: facts[name] for name in facts.keys() & default_defenses().keys()}
    rows += [start | {"defense": name, "level": level} for name, values in levels.items() for level in values]
    rows += [start | {"replica": number} for number in range(facts.get("replicas", [0])[0])]
    rows += [start | {"unit": number} for number in range(facts.get("images", [0])[0])]
    federated = {name: facts[name][0] if facts.get(name) else value for name, value in FEDERATION.items()}
    datasets = {row["dataset"]: {"members": 2000} for row in rows}
    return pd.DataFrame(rows), {"datasets": datasets, "federated": federated}


def differences(shown: FigureConfig, **changed) -> list[str]:
    """What stands under a figure whose experiment is that of the paper except for some facts."""
    told = [text for text in notes(shown, *experiment(shown, shown.facts | changed)) if text.startswith("Unlike")]
    return told[0].removeprefix("Unlike in the paper: ").removesuffix(".").split("; ") if told else []


def test_every_figure_of_a_papers_experiments_states_what_the_paper_prints():
    experiments = {key for key, shown in FIGURES.items() if shown.study or shown.paper == "pmidp"}
    experiments = {key for key in experiments | {"tan2024/table02"} if not key.startswith("beyond/")}
    assert experiments == {key for key, shown in FIGURES.items() if shown.facts}
    assert FIGURES["tan2024/fig12"].facts["rounds"] == (*(np.array([5e5, 1e6, 2e6, 3e6]) // 300).astype(int),)
    assert FIGURES["pmidp/fig05"].facts["n_clients"] == (*np.linspace(20, 200, 10),)
    assert FIGURES["pmidp/fig06"].facts["max_param_norm"] == (*np.linspace(2.5, 20, 8),)


@pytest.mark.parametrize("key", [key for key, shown in FIGURES.items() if shown.facts])
def test_no_figure_of_a_paper_hides_a_difference(key):
    shown = FIGURES[key]
    same = differences(shown)
    assert [text for text in same if ", which the text of the paper does not print: " not in text] == []
    assert len(same) == sum(not printed for printed in shown.facts.values())
    fewer = {name: printed[1:] for name, printed in shown.facts.items() if len(printed) > 1}
    told = [text for text in differences(shown, **fewer) if text not in same]
    for name, text in zip(fewer, told, strict=True):
        assert f" of {len(shown.facts[name])} " in text
    others = [name for name, printed in shown.facts.items() if printed and name not in shown.select]
    changed = {name: OTHERS.get(name, (3, "3 ")) for name in others}
    found = differences(shown, **{name: [other] for name, (other, _) in changed.items()})
    told = [text for text in found if text not in same]
    for (_, words), text in zip(changed.values(), told, strict=True):
        assert words in text


def test_differences_are_said_in_numbers():
    shown = FIGURES["tan2024/fig09"]
    assert "; ".join(differences(shown, model=["lenet"], rounds=[1000], replicas=[3], natural=[50.0, 500.0])) == (
        "LeNet of 4 networks; 1,000 of 10,000 rounds; 3 of 10 repeats; members of a network, which the text of the "
        "paper does not print: 2,000; 50 of 4 levels (natural); levels (natural): 500 in addition"
    )
    assert "none of 4 levels (DP-PSAC)" in differences(FIGURES["tan2024/fig15"], dppsac=[])
    assert "12 instead of 10 repeats" in differences(shown, replicas=[12])


def inversions(replicas: dict[str, int], **errors: float) -> pd.DataFrame:
    """MSE of gradient inversion, undefended and behind two levels; runs may have more replicas than others."""
    rows = [
        (name, name.split("-")[0], level, replica, value + replica)
        for (name, value), level in zip(errors.items(), (np.nan, 50.0, 300.0), strict=True)
        for replica in range(replicas.get(name, 4))
    ]
    known = {"dataset": "cifar10", "model": "lenet", "source": "gradient_inversion", "variant": "attack"}
    known |= {"metric": "mse", "unit": -1, "status": ""}
    return pd.DataFrame(rows, columns=["run", "defense", "level", "replica", "value"]).assign(**known)


HEAT = {"where": {"variant": "attack"}, "constants": {"no defense": {"variant": "attack", "defense": "none"}}}


def test_cells_and_their_control_stand_on_the_same_blocks():
    table = inversions({"none": 6}, **{"none": 1.0, "natural-50": 3.0, "natural-300": 2.0})
    shown = shown_rows(figure(), table)
    assert shown.groupby("run")["replica"].agg(list).map(sorted).to_dict() == {
        run: [0, 1, 2, 3] for run in table["run"]
    }
    together = table.tail(1).assign(replica=-1)
    assert (shown_rows(figure(), pd.concat([table, together]))["replica"] == -1).sum() == 1
    assert len(shown_rows(figure(), table.drop(columns="run"))) == len(table)


def test_arms_that_lack_replicas_of_the_others_are_named():
    table = inversions({"natural-300": 2}, **{"none": 1.0, "natural-50": 3.0, "natural-300": 2.0})
    assert "On fewer replicas than the others: natural (2 of 4)." in notes(figure(), table)
    assert not [text for text in notes(figure(), inversions({}, **{"none": 1, "a": 2, "b": 3})) if "fewer" in text]


@pytest.mark.parametrize(("undefended", "told"), [(1.0, False), (2.5, True)])
def test_an_undefended_attack_that_recovers_less_than_one_behind_noise_is_called_no_upper_limit(undefended, told):
    shown = entry(plot="heatmap", options=HEAT)
    table = inversions({}, **{"none": undefended, "natural-50": 3.0, "natural-300": 2.0})
    (text,) = [text for text in notes(shown, table) if "upper limit" in text] or [""]
    assert text.endswith("CIFAR-10, LeNet: 3.5 instead of 4 (natural 300 nats).") == told
    similar = table.assign(metric="ssim")  # more is better
    assert [text for text in notes(shown, similar) if "(natural 50 nats)" in text]
