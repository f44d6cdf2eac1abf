"""`tools/pool.py` adds the blocks of a repeat to a kept run, each study once, and refuses what is no repeat."""

from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from leakbound import storage
from leakbound_lab.config import reading
from pool import app
from repeats import differences
from replaced_folders import write_manifest

ROOT = Path(__file__).parents[1]
PHOTOS = ROOT / "results/reference/photos"
RATES = [0.1, 0.2, 0.3, 0.4, 0.5]  # as many as the kept run has
STUDY, OTHER = "compression", "uses"  # few rows, and figures that take little time to draw


def pooled(first: Path, repeat: Path, out: Path) -> tuple[int, str]:
    """Exit code and output of the command, without the frame of its messages."""
    result = CliRunner().invoke(app, [str(first), str(repeat), "--out", str(out)])
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


def kept(folder: Path, seed: int, replicas: range, *studies: str) -> Path:
    """Folder of a kept run that has some studies of the kept photos, for some of the replicas numbered from 0."""
    values = yaml.safe_load((PHOTOS / "config.yaml").read_text())
    values = {
        key: values[key] for key in ("privacy_noise", "covariance", "alpha", "training", "attacks", "datasets")
    } | {
        "preset": folder.name,
        "seed": seed,
        "catalogue": str(ROOT / "config/figures"),
        "studies": {study: {**values["studies"][study], "replicas": len(replicas)} for study in studies},
    }
    (folder / "tables").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    for study in studies:
        rows = pd.read_parquet(PHOTOS / f"tables/{study}.parquet")
        rows = rows[rows["replica"].isin(replicas)]
        rows = rows.assign(replica=rows["replica"] - replicas.start)
        storage.write_rows(folder / f"tables/{study}.parquet", rows, sealed=False)
    claims = pd.read_parquet(PHOTOS / "claims.parquet").drop(columns=["first", "repeat"], errors="ignore")
    other = claims[claims["paper"] == "wang2020"]
    storage.write_rows(folder / "claims.parquet", other, sealed=False)
    storage.write_json(folder / "provenance.json", {"jobs": len(replicas)}, sealed=False)
    return folder


@pytest.fixture
def runs(tmp_path):
    return kept(tmp_path / "first", 0, range(4), STUDY, OTHER), kept(tmp_path / "again", 1, range(4, 8), STUDY)


def test_blocks_of_both_runs_are_in_tables_figures_and_claims(runs, tmp_path):
    stale = runs[0] / "figures/tan2024/fig08.png"  # this figure was kept as PNG, too
    stale.parent.mkdir(parents=True)
    stale.touch()
    code, output = pooled(*runs, tmp_path / "both")
    assert code == 0, output
    both = tmp_path / "both"
    rows = pd.read_parquet(both / f"tables/{STUDY}.parquet")
    whole = pd.read_parquet(PHOTOS / f"tables/{STUDY}.parquet")
    whole = whole[whole["replica"] < 8]
    key = ["run", "replica", "source", "variant", "unit", "metric"]
    assert rows.sort_values(key, ignore_index=True).equals(whole.sort_values(key, ignore_index=True))
    claims = pd.read_parquet(both / "claims.parquet")
    untouched = claims[claims["paper"] == "wang2020"]
    assert len(untouched)
    assert (untouched["first"] == untouched["verdict"]).all()
    assert (untouched["repeat"] == "").all()
    tested = claims[(claims["paper"] != "wang2020") & ~claims["exact"] & (claims["dataset"] == "all")]
    assert set(tested["blocks"]) == {8}
    drawn = {path.name: path.stat().st_size for path in both.glob("figures/tan2024/*.*")}
    assert {*drawn} == {
        "fig08.png",
        *(f"{of}.{kind}" for of in tested["figure"].unique() for kind in ("svg", "parquet")),
    }
    assert all(drawn.values())
    counts = pd.read_parquet(both / "tables/scoreboard.parquet")
    assert counts["value"].sum() == len(claims[claims["dataset"] == "all"])
    facts = storage.read_json(both / "provenance.json", sealed=False)
    assert (facts["jobs"], facts["repeats"]["again"]["jobs"]) == (4, 4)
    assert yaml.safe_load((both / "repeats/again.yaml").read_text())["seed"] == 1
    assert not [path for path in both.rglob("*") if path.name.startswith(".")]


def test_each_study_is_repeated_once_and_others_keep_the_verdicts_of_their_repeat(runs, tmp_path):
    both, all_three = tmp_path / "both", tmp_path / "all"
    assert pooled(*runs, both)[0] == 0
    code, output = pooled(both, runs[1], all_three)
    assert code == 2
    assert "has the blocks of again already" in output
    code, output = pooled(both, kept(tmp_path / "renamed", 2, range(4, 8), STUDY), all_three)
    assert code == 2
    assert f"studies.{STUDY} has a repeat already" in output
    assert not all_three.exists()

    code, output = pooled(both, kept(tmp_path / "other", 2, range(4, 8), OTHER), all_three)
    assert code == 0, output
    earlier, later = (pd.read_parquet(folder / "claims.parquet") for folder in (both, all_three))
    names = ["paper", "figure", "claim", "dataset", "model"]
    merged = earlier.merge(later, on=names, suffixes=("_earlier", ""))
    assert len(merged) == len(earlier) < len(later)
    for column in ("verdict", "first", "repeat", "effect", "blocks"):
        assert merged[column].tolist() == merged[f"{column}_earlier"].tolist(), column
    assert len(later[later["repeat"] != ""]) > len(earlier[earlier["repeat"] != ""]) > 0
    assert {*storage.read_json(all_three / "provenance.json", sealed=False)["repeats"]} == {"again", "other"}
    assert {path.name for path in (all_three / "repeats").iterdir()} == {"again.yaml", "other.yaml"}
    assert pd.read_parquet(all_three / f"tables/{OTHER}.parquet")["replica"].max() == 7


def test_levels_that_only_the_repeat_has_are_added(runs, tmp_path):
    path = runs[0] / "config.yaml"
    values = yaml.safe_load(path.read_text())
    values["studies"][STUDY]["defenses"]["compression"] = [0.0, 1.0]
    path.write_text(yaml.safe_dump(values))
    table = runs[0] / f"tables/{STUDY}.parquet"
    storage.write_rows(table, pd.read_parquet(table).query("level != 10"), sealed=False)
    code, output = pooled(*runs, tmp_path / "both")
    assert code == 0, output
    rows = pd.read_parquet(tmp_path / f"both/tables/{STUDY}.parquet").query("defense == 'compression'")
    assert rows.groupby("level")["replica"].nunique().to_dict() == {0.0: 8, 1.0: 8, 10.0: 4}


def test_the_pooled_run_may_replace_the_first_as_it_was_left(runs):
    assert pooled(*runs, runs[0])[0] != 0  # nothing says that nobody changed it
    assert pd.read_parquet(runs[0] / f"tables/{STUDY}.parquet")["replica"].max() == 3
    write_manifest(runs[0])
    assert pooled(*runs, runs[0])[0] == 0
    assert pd.read_parquet(runs[0] / f"tables/{STUDY}.parquet")["replica"].max() == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seed", 0), "seed = 0 in both"),
        (("covariance", "members"), "covariance differs"),
        (("datasets", "cifar10", {"members": 100, "test": 100, "aux": 100}), "datasets.cifar10 differs"),
        (("studies", STUDY, "defenses", {"none": []}), f"studies.{STUDY}.defenses lacks levels of compression"),
        (("defenses", {"compression": {"mechanism": "compression", "learning_rates": RATES}}), "defenses.compression"),
        (("attacks", {"gradient_inversion": {"images": 3}}), "attacks.gradient_inversion differs"),
        (("studies", STUDY, "models", ["mlp"]), f"studies.{STUDY}.models has mlp, which the first run lacks"),
        (("studies", STUDY, "batch_sizes", [2]), f"studies.{STUDY} differs"),
    ],
)
def test_what_is_no_repeat_is_refused_with_the_setting(runs, tmp_path, change, message):
    path = runs[1] / "config.yaml"
    values = yaml.safe_load(path.read_text())
    *way, last, value = change
    inner = values
    for key in way:
        inner = inner[key]
    inner[last] = value
    path.write_text(yaml.safe_dump(values))
    code, output = pooled(*runs, tmp_path / "both")
    assert code == 2
    assert message in output
    assert not (tmp_path / "both").exists()


def test_a_repeat_may_leave_out_datasets_and_networks_of_a_study():
    config = reading.load(ROOT / "config" / "paper_gradients.yaml")
    repeat = reading.load(ROOT / "config" / "paper_gradients_repeat.yaml")
    study, again = (each.studies["gradient_inversion"] for each in (config, repeat))
    assert {*again.models} < {*study.models}
    assert {*again.datasets} < {*study.datasets}
    assert [*differences(config, repeat)] == []
    told = [
        *differences(
            repeat.model_copy(update={"seed": 1}), config.model_copy(update={"studies": {"gradient_inversion": study}})
        )
    ]
    assert told == [
        "studies.gradient_inversion.datasets has celeba, fashion_mnist, svhn, which the first run lacks",
        "studies.gradient_inversion.models has lenet_sigmoid, which the first run lacks",
    ]
