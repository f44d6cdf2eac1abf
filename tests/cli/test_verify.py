"""`leakbound verify`: what it finds, what it deletes, and what it leaves alone."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from calling import called
from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import Job
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.results import of_other_settings

FIGURES = Path(__file__).parents[2] / "config/figures"


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """Results of a configuration: three whole files, and what has no seal of its own."""
    monkeypatch.chdir(tmp_path)
    study = {"datasets": ["digits"], "models": ["lenet"], "rounds": [20], "defenses": {"none": [], "natural": [4.0]}}
    config = {"preset": "shown", "catalogue": str(FIGURES), "datasets": {"digits": {}}, "studies": {"capacity": study}}
    Path("shown.yaml").write_text(yaml.safe_dump(config))
    root = Path("results/shown")
    storage.write_json(root / "data/photos.json", {"content": "a"})  # without settings, as before they were recorded
    storage.write_rows(root / "tables/capacity.parquet", pd.DataFrame({"value": range(100)}))
    storage.write_json(root / "tracking/run.json", {"status": "stored"})
    for name in ("logs/train.log", "benchmarks/train.tsv", "runs/a/checkpoint-0123.pt", "tracking/.lock"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


def verify(*options: str) -> tuple[int, list[str]]:
    """Exit code and lines of the command."""
    result = called("verify", "--configfile", "shown.yaml", *options)
    return result.code, f"{result.out}{result.err}".splitlines()


def content(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_whole_results_are_said_to_be_whole(results):
    assert verify() == (0, ["results/shown: 3 of 3 files are as they were written"])


def test_damaged_files_are_named_and_deleted_with_their_seals_on_demand_only(results):
    path = results / "tables/capacity.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    before = content(results)
    code, lines = verify()
    assert code == 1
    assert lines[0].startswith("results/shown/tables/capacity.parquet: damaged: its SHA-256 is ")
    assert lines[1:] == ["results/shown: 2 of 3 files are as they were written"]
    assert content(results) == before
    code, lines = verify("--remove")
    assert code == 1
    assert lines[-1] == f"make them again: snakemake -j 2 --configfile shown.yaml -- all {path}"
    assert before.keys() - content(results).keys() == {path, storage.seal_of(path)}
    assert verify()[0] == 0


def test_damaged_file_of_an_earlier_configuration_is_not_asked_of_snakemake(results):
    job = job_list(reading.load(Path("shown.yaml"))).of("train")[0]
    recorded(job)
    run = job.outputs["rows"]
    damaged = [Path(run), Path(run.replace("/n20", "/n40")), results / "tables/capacity.parquet"]
    for path in damaged:
        storage.write_rows(path, pd.DataFrame({"value": range(100)}))
        path.write_bytes(b"PAR1")
    *_, other, command = verify("--remove")[1]
    assert other == f"{damaged[1]}: from an earlier version of shown.yaml, which no longer makes it"
    assert command.split(" -- ")[1].split() == ["all", str(damaged[0]), str(damaged[2])]


def recorded(job: Job) -> Path:
    """The provenance of a result that was made with the settings of the configuration in force."""
    for path in job.outputs.values():
        storage.write_rows(Path(path), pd.DataFrame({"value": range(3)}))
    path = Path(job.outputs["provenance"])
    storage.write_json(path, {"settings": json.loads(job.settings_text())})
    return path


def test_results_of_other_settings_are_named_with_what_differs_and_can_be_made_again(results):
    """Copied without Snakemake's notes, which alone remember the settings of what was made."""
    jobs = job_list(reading.load(Path("shown.yaml")))
    path = recorded(jobs.of("train")[0])
    (images,) = map(recorded, jobs.of("prepare"))
    assert verify()[0] == 0
    config = yaml.safe_load(Path("shown.yaml").read_text())
    config["training"] = {"learning_rates": [0.25]}
    Path("shown.yaml").write_text(yaml.safe_dump(config))
    now = job_list(reading.load(Path("shown.yaml"))).of("train")[0]
    told = storage.read_json(path)
    assert [*of_other_settings([now], [told])] == [now]  # which the page of the report counts
    assert not [*of_other_settings([jobs.of("train")[0]], [told])]
    code, (line, whole) = verify()
    assert code == 1
    assert line.startswith(f"{path}: outdated: other settings made it: training.learning_rates was [0.0")
    assert line.endswith(", is [0.25]")
    assert whole == "results/shown: 8 of 9 files are as they were written"
    assert str(path) in verify("--remove")[1][-1].split(" -- ")[1]
    assert (path.exists(), images.exists()) == (False, True)


def test_damaged_seal_counts_as_damage(results):
    storage.seal_of(results / "data/photos.json").write_bytes(b"\xff\x00")
    code, lines = verify("--remove")
    assert (code, "and removed" in lines[0]) == (1, True)
    assert not (results / "data/photos.json").exists()


def test_file_without_a_seal_is_named_and_left_to_the_user(results):
    (results / "tables/mine.csv").write_text("a,b\n")
    for options in ([], ["--remove"]):
        code, lines = verify(*options)
        assert code == 1
        assert lines[0].startswith("results/shown/tables/mine.csv: unsealed: ")
        assert (results / "tables/mine.csv").exists()


def test_weights_that_are_gone_are_named_and_made_again(results):
    job = job_list(reading.load(Path("shown.yaml"))).of("train")[0]
    recorded(job)
    weights = Path(job.outputs["weights"])
    assert verify()[0] == 0
    weights.unlink()  # with its seal, or without
    for _ in range(2):
        code, (line, whole) = verify()
        assert code == 1
        assert line == f"{weights}: missing: it was written together with rates.parquet, which is there"
        assert whole == "results/shown: 6 of 7 files are as they were written"
        storage.seal_of(weights).unlink(missing_ok=True)
    command = verify("--remove")[1][-1]
    assert command == f"make them again: snakemake -j 2 --configfile shown.yaml -- all {weights}"
    for path in set(job.outputs.values()) - {str(weights)}:  # a run that is gone as a whole has not been made
        Path(path).unlink()
        storage.seal_of(Path(path)).unlink()
    assert verify()[0] == 0


def test_seal_without_a_file_is_no_damage_and_can_be_removed(results):
    (results / "tracking/run.json").unlink()
    seal = storage.seal_of(results / "tracking/run.json")
    assert verify() == (0, [f"{seal}: stale: its file is gone", "results/shown: 2 of 2 files are as they were written"])
    assert verify("--remove")[0] == 0
    assert not seal.exists()


def test_configuration_that_has_not_been_run_has_nothing_to_verify(results):
    (results.parent / "shown").rename(results.parent / "other")
    code, lines = verify()
    assert code == 2
    assert "run snakemake" in " ".join(lines)
