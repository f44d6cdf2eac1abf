"""`leakbound step several`: results of one job, which are kept while nothing behind them changes."""

import json
from pathlib import Path

import pytest

from calling import called
from leakbound import storage
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.jobs.batches import ANEW, batches, parts_of


@pytest.fixture
def parts(tmp_path, monkeypatch) -> dict:
    """The tables of consensus of the quick preset, which take a moment, as one job makes them."""
    quick = job_list(reading.quick())
    monkeypatch.chdir(tmp_path)
    return parts_of(quick, "consensus")


def made(parts: dict) -> dict[str, int]:
    """Time of change of each table after the command."""
    outcome = called("step", "several", "--settings", json.dumps(parts), "--out", "list.json")
    assert outcome.code == 0, outcome.err
    return {name: Path(name).stat().st_mtime_ns for name in sorted(storage.read_json(Path("list.json")))}


def test_list_names_every_file_with_its_hash(parts):
    first = made(parts)
    assert set(first) == {path for part in parts["parts"] for path in part["outputs"].values()}
    assert len(first) == 2
    assert storage.read_json(Path("list.json")) == {name: storage.file_hash(name) for name in first}


def test_results_are_made_again_only_if_settings_code_or_files_are_others(parts, monkeypatch):
    first = made(parts)
    one, other = sorted(first)
    assert made(parts) == first

    Path("list.json").unlink()
    Path(one).unlink()
    lost = made(parts)
    assert (lost[one] > first[one], lost[other]) == (True, first[other])

    Path(one).write_bytes(Path(other).read_bytes())
    damaged = made(parts)
    assert (damaged[one] > lost[one], damaged[other]) == (True, first[other])

    by_name = {next(iter(part["outputs"].values())): part for part in parts["parts"]}
    by_name[one]["code"] = "0" * 16
    edited = made(parts)
    assert (edited[one] > damaged[one], edited[other]) == (True, first[other])

    by_name[other]["settings"]["seed"] += 1
    seeded = made(parts)
    assert (seeded[one], seeded[other] > first[other]) == (edited[one], True)

    monkeypatch.setenv(ANEW, "1")  # who forces a job means all of it
    forced = made(parts)
    assert all(forced[name] > seeded[name] for name in forced)


def test_first_mistake_of_several_ends_them_without_a_list(parts):
    parts["parts"][1]["settings"]["seed"] = -1
    outcome = called("step", "several", "--settings", json.dumps(parts), "--out", "list.json")
    assert outcome.code == 2
    assert "seed = -1" in outcome.message
    assert not Path("list.json").exists()
    assert Path(parts["parts"][0]["outputs"]["rows"]).exists()


def test_parts_are_those_of_the_rule_whether_they_are_given_or_taken_from_the_configuration(tmp_path, monkeypatch):
    config = reading.quick()
    monkeypatch.chdir(Path(__file__).parents[2])
    names = {job.name for job in batches(job_list(config))["consensus", ""]}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(Path(__file__).parents[2] / "config")
    words = ["--settings", json.dumps(config.model_dump(mode="json")), "--rule", "consensus"]
    outcome = called("step", "several", *words)
    assert outcome.code == 0, outcome.err
    assert {path.stem for path in (tmp_path / config.root / "tables/consensus").glob("*.parquet")} == names
