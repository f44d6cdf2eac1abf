"""What is found in a catalogue before any job, and which figures a configuration draws."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from leakbound_lab.claims.selection import rows_of
from leakbound_lab.config import reading
from leakbound_lab.config.reading import ConfigError
from leakbound_lab.jobs.table import RunTable

FIGURES = Path(__file__).parents[2] / "config" / "figures"
ENTRY = {
    "id": "fig09",
    "paper": "tan2024",
    "title": "A title",
    "study": "capacity",
    "select": {"metric": "test_accuracy"},
    "plot": "levels",
    "options": {"where": {"defense": "natural"}},
    "caption": "Text.",
    "claims": [
        {"id": "rises", "text": "It rises.", "test": "increasing", "delta": 0.01, "unit": "accuracy", "options": {}}
    ],
}


def quick(**study):
    """The quick configuration with settings of its study changed."""
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    values["studies"]["capacity"] |= study
    return reading.config_of(values, "some.yaml")


def loaded(folder: Path, config, **changes):
    path = folder / "figures.yaml"
    path.write_text(yaml.safe_dump({"figures": [{**ENTRY, **changes}]}), encoding="utf-8")
    return reading.load_catalogue(path, config)


def test_options_of_plots_and_claims_are_checked_with_the_catalogue(tmp_path):
    with pytest.raises(ConfigError, match=r"figures.tan2024/fig09.options: y_lable: unknown setting.*'y_label'"):
        loaded(tmp_path, quick(), options={"y_lable": "accuracy"})
    claim = {**ENTRY["claims"][0], "options": {"buy": "level"}}
    with pytest.raises(ConfigError, match=r"claims.rises.options: buy: unknown setting.*did you mean 'by'"):
        loaded(tmp_path, quick(), claims=[claim])


def test_checking_the_catalogue_loads_nothing_that_draws_or_trains():
    code = (
        "import sys; from leakbound_lab.config import reading; reading.load_catalogue(sys.argv[1], reading.quick()); "
        "assert not {'matplotlib', 'scipy', 'pandas', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(FIGURES / "tan2024_capacity.yaml")], check=True)


def test_runs_of_several_lengths_need_a_figure_that_tells_them_apart(tmp_path):
    config = quick(rounds=[100, 200])
    with pytest.raises(ConfigError, match=r"draw them, e.g. by options.x: rounds"):
        loaded(tmp_path, config)
    assert loaded(tmp_path, config, options={"x": "rounds"}).figures
    assert loaded(tmp_path, config, select={"rounds": 200}).figures
    config = quick(batch_sizes=[16, 32])
    with pytest.raises(ConfigError, match=r"options.x: batch_size"):
        loaded(tmp_path, config)
    assert loaded(tmp_path, config, options={"x": "batch_size"}).figures


def inverting(*datasets: str) -> RunTable:
    """The runs and figures of gradient inversion on these datasets."""
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    values["datasets"] |= {name: {"members": 400, "test": 600, "aux": 600} for name in datasets}
    values["studies"]["gradient_inversion"]["datasets"] = datasets
    config = reading.config_of(values, "some.yaml")
    return RunTable(config, reading.load_catalogue(FIGURES / "tan2024_gradients.yaml", config))


def test_a_figure_of_one_dataset_shows_what_the_preset_has_beside_those_of_the_others():
    shown = {"tan2024/fig14", "tan2024/fig30", "tan2024/fig31"}
    assert shown & inverting("digits").figures.keys() == shown - {"tan2024/fig30"}
    assert shown & inverting("svhn").figures.keys() == shown - {"tan2024/fig14"}
    assert shown <= inverting("cifar10", "celeba").figures.keys()


def test_captions_name_the_datasets_that_a_figure_shows():
    table = inverting("digits", "svhn")
    assert "Data: digits. Network" in table.caption("tan2024/fig14")
    assert "Data: svhn. Network" in table.caption("tan2024/fig30")


def test_a_figure_of_a_defense_that_the_study_lacks_is_not_drawn():
    config = quick(defenses={"none": [], "natural": [1.0, 4.0]})
    table = RunTable(config, reading.load_catalogue(FIGURES / "tan2024_capacity.yaml", config))
    assert "tan2024/fig09" in table.figures
    assert "tan2024/fig18" not in table.figures


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"defenses": {"dpsgd": [2.0]}}, {"fig15", "fig16"}),  # no undefended networks to improve over
        ({"attacks": ["model_inversion"]}, {"fig15"}),  # its metric needs both attacks, either axis of the other one
        ({"attacks": []}, {"fig15", "fig16"}),
        ({}, set()),
    ],
)
def test_a_figure_of_improvements_is_left_out_where_no_network_has_any(changes, missing):
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    values["studies"]["comparison"] |= changes
    config = reading.config_of(values, "some.yaml")
    table = RunTable(config, reading.load_catalogue(FIGURES / "tan2024_comparison.yaml", config))
    assert {"fig15", "fig16"} - {figure.id for figure in table.figures.values()} == missing
    assert missing <= {figure.id for figure in table.left_out}


def test_a_claim_about_an_experiment_states_its_smallest_effect_and_one_about_closed_forms_none(tmp_path):
    claim = {key: value for key, value in ENTRY["claims"][0].items() if key not in ("delta", "unit")}
    with pytest.raises(ConfigError, match=r"fig09.claims.rises: delta is missing .*delta: 0.01, unit: accuracy"):
        loaded(tmp_path, quick(), claims=[claim])
    with pytest.raises(ConfigError, match=r"fig09.claims.rises.delta = 0.01: closed forms hold or fail without chance"):
        loaded(tmp_path, quick(), claims=[{**ENTRY["claims"][0], "options": {"exact": True}}])
    with pytest.raises(ConfigError, match=r"delta"):
        loaded(tmp_path, quick(), claims=[{**ENTRY["claims"][0], "delta": 0}])


def test_a_figure_shows_chosen_rates_unless_it_asks_for_all(tmp_path):
    rows = pd.DataFrame({"metric": "test_accuracy", "chosen": [True, False], "value": [1.0, 2.0]})
    (figure,) = loaded(tmp_path, quick()).figures
    assert rows_of(figure, rows)["value"].tolist() == [1.0]
    assert rows_of(figure, rows.drop(columns="chosen"))["value"].tolist() == [1.0, 2.0]
    (figure,) = loaded(tmp_path, quick(), rates="all").figures
    assert rows_of(figure, rows)["value"].tolist() == [1.0, 2.0]
