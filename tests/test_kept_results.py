"""Commands that show and keep what a finished configuration has left."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from typer.testing import CliRunner

from calling import job_called
from figures import app as figures_app
from figures import kept_claims
from judging import KeptRun, judged_together
from keep import app as keep_app
from leakbound import storage
from leakbound.commands.command_line import app
from leakbound_lab.claims.scoreboard import verdict_counts
from leakbound_lab.config import reading
from leakbound_lab.figures.style import style_of
from leakbound_lab.steps.job_list import job_list
from studies import study
from verdicts import evaluate

ROOT = Path(__file__).parents[1]


def call(*words: object, program: typer.Typer = app) -> tuple[int, str]:
    """Exit code and output of a command, or of a program of one."""
    result = CliRunner().invoke(program, [str(word) for word in words], catch_exceptions=False)
    return result.exit_code, result.output


def pictures(dataset: str) -> pd.DataFrame:
    """Rows of a picture and of one that is like it."""
    rows = [("none", float("nan"), 0, 0, "pixel", 0.5), ("natural", 4.0, 0, 0, "pixel", 0.7)]
    rows += [("natural", level, -1, -1, "ssim", level / 8) for level in (4.0, 8.0)]
    found = pd.DataFrame(rows, columns=["defense", "level", "row", "column", "metric", "value"])
    return found.assign(dataset=dataset, replica=0, color=0)


def write_text(path: Path, text: str) -> None:
    """A text as a job writes it."""
    with storage.atomic(path) as temporary:
        temporary.write_text(text)


def finish(dataset: str, reader: str) -> Path:
    """Leave what a run of pictures of a dataset would leave; returns its configuration."""
    config = {
        "preset": "shown",
        "catalogue": str(ROOT / "config" / "figures"),
        "datasets": {dataset: {"reader": reader}},
        "studies": {},
        "illustrations": {"noisy_images": {"dataset": dataset, "levels": {"natural": [4.0]}}, "weights": {}},
        "figure_formats": ["png"],
        "tracking": {"enabled": False},
    }
    path = Path("shown.yaml")
    path.write_text(yaml.safe_dump(config))
    checked = reading.load(path)
    figures = {f"{f.paper}/{f.id}": f for f in reading.load_catalogue(checked.catalogue, checked).figures}
    home = Path(checked.root)
    for key in ("tan2024/fig05", "tan2024/fig17", "beyond/scoreboard"):
        for suffix in ("svg", "png"):
            write_text(home / "figures" / f"{key}.{suffix}", f"<svg><title>{key}</title></svg>")
    storage.write_rows(home / "figures/tan2024/fig05.parquet", pictures(dataset))
    weights = pd.DataFrame({"row": [0], "column": [0], "value": [1.0]})
    storage.write_rows(home / "figures/tan2024/fig17.parquet", weights)
    claims = evaluate(figures["tan2024/fig05"], pictures(dataset), alpha=0.05)
    storage.write_rows(home / "claims.parquet", claims)
    for kept in ("tables/scoreboard.parquet", "figures/beyond/scoreboard.parquet"):
        storage.write_rows(home / kept, verdict_counts(claims))
    write_text(home / "scoreboard.md", "| claim |\n")
    return path


def keep(*words: object) -> tuple[int, str]:
    """Exit code and output of ``tools/keep.py``."""
    return call("--configfile", *words, program=keep_app)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("dataset", "reader"), [("celeba", "celeba"), ("faces", "celeba"), ("mine", "parquet")])
def test_reference_never_keeps_pictures_that_may_not_be_published(dataset, reader):
    code, output = keep(finish(dataset, reader))
    assert code == 0
    assert f"left out tan2024/fig05: it shows pictures of {dataset}" in output
    kept = {path.name for path in Path("results/reference/shown").rglob("*") if path.is_file()}
    assert "fig17.png" in kept
    assert not [name for name in kept if name.startswith("fig05")]


def test_reference_keeps_pictures_that_may_be_published_once_the_configuration_has_been_run():
    assert keep(finish("digits", "digits"))[0] == 0
    kept = Path("results/reference/shown")
    assert {path.suffix for path in (kept / "figures/tan2024").glob("fig05.*")} == {".svg", ".png", ".parquet"}
    assert storage.read_json(kept / "provenance.json", sealed=False)["preset"] == "shown"
    assert reading.load(kept / "config.yaml") == reading.load("shown.yaml")
    shutil.rmtree("results")
    code, output = keep("shown.yaml")
    assert (code, "run snakemake" in output) == (2, True)


def test_the_report_draws_in_pixels_what_is_too_large_as_a_drawing():
    path = finish("digits", "digits")
    drawn = Path("results/shown/figures/tan2024/fig05")
    counts = []
    for size in (0, 400_000):
        write_text(drawn.with_suffix(".svg"), f"<svg>{' ' * size}</svg>")
        assert call("report", "--configfile", path)[0] == 0
        counts.append(Path("results/shown/report.html").read_text().count('src="data:image/png;base64,'))
    assert counts == [0, 2]  # where the page opens, and in its place


def test_values_of_single_units_may_stay_behind_but_not_that_attacks_failed():
    path = finish("digits", "digits")
    rows = pd.DataFrame({"unit": [-1, 0, 0, 1, 1, -1], "metric": ["mse", "mse", "psnr", "mse", "psnr", "mse"]})
    rows = rows.assign(run="r", value=[1.0, 2.0, 3.0, np.nan, 4.0, 5.0], low=0.0, high=9.0)
    rows["status"] = ["", "", "", "stuck", "", ""]
    storage.write_rows(Path("results/shown/tables/scoreboard.parquet"), rows)
    kept = {}
    for option in ("--units", "--no-units"):
        assert keep(path, option)[0] == 0
        home = Path("results/reference/shown")
        kept[option] = storage.read_rows(home / "tables/scoreboard.parquet", sealed=False)
        assert len(storage.read_rows(home / "figures/beyond/scoreboard.parquet", sealed=False)) > 4
    pd.testing.assert_frame_equal(kept["--units"], rows)
    short = kept["--no-units"]
    assert short[short["unit"] < 0]["value"].tolist() == [1.0, 5.0]
    single = short[short["unit"] >= 0].sort_values("unit")
    assert single["status"].tolist() == ["", "stuck"]
    assert single[["value", "low", "high"]].isna().all(axis=None)


def test_times_are_those_of_the_jobs_that_the_configuration_still_has():
    path = finish("digits", "digits")
    measured = Path("results/shown/benchmarks")
    seconds = {"prepare/digits": 2, "figures/tan2024": 7, "claims": 5}
    stale = {"prepare/mnist": 100, "figures/wang2020": 100, "train/digits/lenet/none/n20-b64": 100}
    for name, time in {**seconds, **stale}.items():
        write_text(measured / f"{name}.tsv", f"s\tmax_rss\tcpu_time\n{time}\t100\t{time / 2}\n")
    assert keep(path)[0] == 0
    steps = storage.read_json(Path("results/reference/shown/provenance.json"), sealed=False)["steps"]
    assert {step: (cost["jobs"], cost["seconds"], cost["cpu_seconds"]) for step, cost in steps.items()} == {
        "prepare": (1, 2.0, 1.0),
        "claims": (1, 5.0, 2.5),
        "figures": (1, 7.0, 3.5),
    }


def test_of_an_interrupted_run_what_it_had_finished_is_kept():
    capacity = study({"none": [], "natural": [4.0, 8.0]}, ["membership"], models=["mlp"])
    naming = study({"natural": [1.0, 8.0]}, ["naming"], models=["mlp"], rounds=0, batch_size=1)
    config = {
        "preset": "cut",
        "catalogue": str(ROOT / "config" / "figures"),
        "replicas": 2,
        "datasets": {"digits": {"members": 100, "test": 100, "aux": 300}},
        "training": {"learning_rates": [0.1], "evaluations": 2},
        "studies": {"capacity": capacity, "naming": naming},
        "attacks": {
            "membership": {"epochs": 1, "learning_rates": [0.001], "references": 0},
            "naming": {"candidates": [2], "trials": 60},
        },
        "tracking": {"enabled": False},
    }
    path = Path("cut.yaml")
    path.write_text(yaml.safe_dump(config))
    chain = ("prepare", "covariance", "spectrum", "calibrate", "train", "attack")
    done = [job for job in job_list(reading.load(path)).of(*chain) if "natural-8" not in job.name]
    for job in done:
        assert job_called(job).code == 0
    assert "has no claims.parquet" in " ".join(keep(path)[1].replace("│", " ").split())
    code, output = keep(path, "--finished")
    assert code == 0, output
    kept = Path("results/reference/cut")
    rows = storage.read_rows(kept / "tables/capacity.parquet", sealed=False)
    assert set(rows["run"]) == {f"digits/mlp/{arm}/n20-b32" for arm in ("none", "natural-4")}
    untrained = storage.read_rows(kept / "tables/naming.parquet", sealed=False)
    assert set(untrained["run"]) == {"digits/mlp/natural-1/n0-b1"}
    assert len(storage.read_rows(kept / "claims.parquet", sealed=False)) > 0
    assert (kept / "figures/tan2024/fig25.svg").is_file()
    facts = storage.read_json(kept / "provenance.json", sealed=False)
    assert facts["jobs"] == facts["devices"]["cpu (x86_64, 1 threads)"] == 5  # two trainings, three attacks
    assert "leakage" not in facts


@pytest.mark.parametrize("name", ["claims.parquet", "scoreboard.md", "figures/tan2024/fig17.png"])
def test_reference_keeps_the_old_copy_if_a_result_is_damaged(name):
    path = finish("digits", "digits")
    assert keep(path)[0] == 0
    kept = Path("results/reference/shown")
    before = {file: file.read_bytes() for file in kept.rglob("*") if file.is_file()}
    assert not [file for file in before if file.name.startswith(".")]
    with (Path("results/shown") / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(storage.DamagedFileError, match=Path(name).name):
        keep(path)
    assert {file: file.read_bytes() for file in kept.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("suffix", ["svg", "parquet"])
def test_report_shows_no_damaged_figure(suffix):
    path = finish("digits", "digits")
    with Path(f"results/shown/figures/tan2024/fig17.{suffix}").open("ab") as file:
        file.write(b" ")
    with pytest.raises(storage.DamagedFileError, match=rf"fig17\.{suffix}"):
        call("report", "--configfile", path)
    assert not Path("results/shown/report.html").exists()


def test_report_is_the_same_page_from_a_file_and_from_the_settings_of_a_run():
    path = finish("digits", "digits")
    assert call("report", "--configfile", path)[0] == 0
    page = Path("results/shown/report.html").read_bytes()
    settings = json.dumps(reading.load(path).model_dump(mode="json"))
    Path("settings.json").write_text(settings)
    Path("results/shown/report.html").unlink()
    assert call("step", "report", "--configfile", "settings.json")[0] == 0
    assert Path("results/shown/report.html").read_bytes() == page
    assert b"tan2024/fig05" in page


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "config").glob("*.yaml")))
def test_configuration_survives_being_passed_as_settings(name):
    config = reading.load(ROOT / "config" / name)
    assert reading.config_of(json.loads(json.dumps(config.model_dump(mode="json"))), name) == config


def test_points_lead_to_the_store_s_own_pages_or_to_those_of_a_database():
    from leakbound_lab.config.whole import TrackingConfig

    assert TrackingConfig().pages == "http://127.0.0.1:5000"
    assert TrackingConfig(ui="https://runs.example.org/").pages == "https://runs.example.org"
    assert TrackingConfig(uri="http://server:5000", ui="https://other.example.org").pages == "http://server:5000"


def test_pages_of_figures_show_numbers():
    """That they are those of the kept results is checked by `make check`."""
    assert not any(re.search(r"\bnan\b", page.read_text()) for page in (ROOT / "docs/figures").glob("*.md"))


SOME = {
    "lenet_full": ("fig09", "fig25", "fig10_gain"),
    "photos": ("fig19", "fig22", "fig05", "table02", "fig06", "fig08", "fig12", "fig14", "fig24", "fig26"),
    "rates": ("fig15",),
}
"""Runs of which some figures are judged again, as all would take minutes."""
ALL = (
    *("pmidp_unequal", "pmidp_rate", "pmidp_levels", "pmidp_sampled", "resnet10", "comparison", "uploads"),
    "uploads_clients",
    *(
        "uploads_resnet10",
        "what_wins",
        "pac",
        "spear",
        "directions",
        "paper_full_rounds",
        "paper_full_celeba",
        "paper_full_comparison",
        "paper_full_dp",
        "paper_full_levels",
        "correlated",
        "van_trees",
        "van_trees_gradients",
        "networks_recipes",
        "gpu_table02",
        "lengths_rest",
    ),
)


@pytest.mark.parametrize("preset", [*SOME, *ALL])
def test_kept_verdicts_are_those_that_the_kept_tables_give(monkeypatch, preset):
    monkeypatch.chdir(ROOT)
    run = KeptRun(ROOT / "results/reference" / preset)
    judged = pd.concat([run.judged(one) for one in run.figures() if one.id in SOME.get(preset, (one.id,))])
    kept = run.claims[run.claims["figure"].isin(judged["figure"])]
    pd.testing.assert_frame_equal(judged.reset_index(drop=True), kept.reset_index(drop=True), rtol=1e-9)


def test_readme_and_findings_count_the_claims_of_the_same_runs():
    runs = re.search(r"<!-- scoreboard of (\S+) -->", (ROOT / "README.md").read_text())[1]
    assert f'{{% set board = kept("{runs}") %}}' in (ROOT / "docs/findings.md.jinja").read_text()


def test_what_a_paper_prints_is_judged_on_all_runs_of_its_networks_at_half_of_the_level():
    homes = [ROOT / "results/reference" / name for name in ("photos", "networks", "resnet10", "gpu_networks")]
    together = judged_together(homes)
    single = {home.name: storage.read_rows(home / "claims.parquet", sealed=False) for home in homes[1:]}
    for key in ("fig09", "fig25"):
        joint = together[together["figure"] == key]
        alone = [rows[(rows["figure"] == key) & rows["printed"]] for rows in single.values()]
        total = sum(int(rows[rows["dataset"] == "all"]["blocks"].iloc[0]) for rows in alone)
        assert joint["blocks"].tolist() == [3, 13, 9, total]  # each network has the blocks of all runs that have it
        assert joint["model"].tolist() == ["alexnet", "lenet", "resnet10", "all"]
    rises = together[(together["figure"] == "fig09") & (together["dataset"] == "all")].iloc[0]
    assert (rises["p_adjusted"] > 0.025) == (rises["verdict"] == "undecided")
    assert not {"fig12", "fig15_recipes", "table02"} & {*together["figure"]}  # of one run, ours, and no study
    counted = kept_claims(*homes)
    assert counted[(counted["figure"] == "fig25") & counted["printed"]]["blocks"].tolist() == joint["blocks"].tolist()


def test_figures_writes_pages_that_then_are_up_to_date(tmp_path):
    kept, home = (folder / "results/reference/photos" for folder in (ROOT, tmp_path))
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (home / "figures/beyond").mkdir(parents=True)
    pictures_of_shapes = [path.relative_to(kept) for path in kept.glob("figures/beyond/shapes.*")]
    for name in ("config.yaml", "provenance.json", *pictures_of_shapes):
        shutil.copy(kept / name, home / name)
    rows = storage.read_rows(kept / "claims.parquet", sealed=False)
    few = rows[rows["figure"].isin(["fig03", "fig10", "shapes"])]
    storage.write_rows(home / "claims.parquet", few, sealed=False)
    (tmp_path / "README.md").write_text("<!-- scoreboard of photos -->\n<!-- end of scoreboard -->\n")
    assert call("--check", "--folder", tmp_path, program=figures_app)[0] == 1
    assert call("--folder", tmp_path, program=figures_app)[0] == 0
    assert call("--check", "--folder", tmp_path, program=figures_app)[0] == 0
    assert "| Tan et al. 2024 |" in (tmp_path / "README.md").read_text()
    page = (tmp_path / "docs/figures/beyond.md").read_text()
    assert "(../../results/reference/photos/figures/beyond/shapes.png)" in page
    assert "](figures/beyond.md#beyond-shapes)" in (tmp_path / "docs/figures.md").read_text()


def test_a_scoreboard_of_two_runs_counts_a_figure_by_the_later_one(tmp_path):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    rows = storage.read_rows(ROOT / "results/reference/photos/claims.parquet", sealed=False)
    rows = rows[(rows["paper"] == "wang2020") | (rows["figure"] == "fig10")]
    for name, kept in {"one": rows, "two": rows[:3].assign(verdict="mixed")}.items():
        storage.write_rows(tmp_path / "results/reference" / name / "claims.parquet", kept, sealed=False)
    counts = {}
    for names in ("one", "one+two", "two+one"):
        (tmp_path / "README.md").write_text(f"<!-- scoreboard of {names} -->\n<!-- end of scoreboard -->\n")
        assert call("--folder", tmp_path, program=figures_app)[0] == 0
        counts[names] = (tmp_path / "README.md").read_text().splitlines()[-2]
    assert counts["two+one"] == counts["one"] != counts["one+two"]
    (tmp_path / "README.md").write_text("<!-- scoreboard of one -->\n")
    with pytest.raises(ValueError, match="end of scoreboard"):
        call("--folder", tmp_path, program=figures_app)


def test_perceptrons_and_twins_do_not_count_for_a_paper():
    homes = [ROOT / "results/reference" / name for name in ("photos", "networks", "resnet10", "gpu_networks", "pmidp")]
    claims = kept_claims(*homes)
    counted = claims[claims["printed"] & ~claims["exact"]]
    on = counted[counted["dataset"] != "all"].groupby("paper")["model"].agg(set)
    assert on["tan2024"] - {"", "all"} == {"lenet", "resnet10", "alexnet"}
    assert on["pmidp"] <= {"mlp", "cnn"}
    assert not counted["figure"].str.contains("_").any()  # twins are fig10_gain, fig15_recipes, ...
    assert not {"beyond"} & set(counted["paper"])


def test_a_figure_of_a_paper_shows_the_papers_networks_where_a_run_has_them():
    text = (ROOT / "docs/figures/tan2024.md").read_text(encoding="utf-8")
    sections = {part.split(":")[0]: part for part in text.split("\n## ")}
    for key in ("fig09", "fig11", "fig16", "fig18", "fig23_gain", "fig29"):
        for run, rounds in (("paper_lenet", "1,000"), ("gpu_networks", "600")):
            assert f"results/reference/{run}/figures/tan2024/{key}.png" in sections[key]
            assert f"{rounds} of 10,000 rounds; 3 of 10 repeats" in sections[key]
        assert "results/reference/photos" not in sections[key]
    for key in ("fig09", "fig11", "fig18", "fig23_gain", "fig29"):  # the whole length, of as many repeats, comes first
        first = sections[key].split("The same in another run")[0]
        assert f"results/reference/lenet_full/figures/tan2024/{key}.png" in first
        assert not {"rounds;", "repeats"} & {*first.split()}
    for key in ("fig15", "fig16"):  # the comparison at the paper's length has fewer blocks, and comes later
        assert f"results/reference/paper_full_dp/figures/tan2024/{key}.png" in sections[key]
    assert "results/reference/paper_gradients/figures/tan2024/fig06.png" in sections["fig06"]


KEPT = ROOT / "results" / "reference"
KEPT_RUNS = sorted(path.parent.name for path in KEPT.glob("*/claims.parquet"))


@pytest.mark.parametrize("preset", KEPT_RUNS)
def test_no_kept_verdict_contradicts_its_interval_or_has_too_few_blocks(preset):
    claims = kept_claims(KEPT / preset)
    tested = claims[~claims["exact"] & claims["claimed"].ne(0)]
    for verdict, way in (("reproduced", 1), ("contradicted", -1)):
        shown = tested[tested["verdict"] == verdict]
        side = shown["claimed"] * way
        ends = shown["low"].where(side > 0, -shown["high"])
        assert (ends > 0).all(), shown.loc[ends <= 0, ["figure", "claim", "dataset", "effect", "low", "high"]]
    decided = tested[tested["verdict"] != "undecided"]
    assert (decided["blocks"] >= 6).all(), decided.loc[decided["blocks"] < 6, ["figure", "claim", "dataset", "blocks"]]


def test_no_kept_figure_draws_two_series_alike():
    catalogue = reading.load_catalogue(ROOT / "config/figures", reading.load(ROOT / "config/config.yaml"))
    columns = {f"{one.paper}/{one.id}": one.options.get("series") for one in catalogue.figures}
    alike = []
    for table in sorted(KEPT.glob("*/figures/*/*.parquet")):
        key = f"{table.parent.name}/{table.stem}"
        rows = storage.read_rows(table, sealed=False)
        if isinstance(column := columns.get(key), str) and column in rows:
            names = [name for name in rows[column].dropna().unique() if isinstance(name, str)]
            styles = [(style_of(name).color, style_of(name).marker) for name in names]
            alike += [(str(table), names)] if len(set(styles)) < len(names) else []
    assert not alike
