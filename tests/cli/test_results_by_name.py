"""`leakbound step RULE NAME`: results of a configuration, which are kept while nothing behind them changes."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from calling import refusal, succeeded
from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import ANEW, WITHOUT_FIGURES, jobs_by_rule
from leakbound_lab.steps import step_command
from leakbound_lab.steps.job_list import job_list

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path, monkeypatch) -> dict:
    """The quick preset, in mine.yaml, with so few steps that its tables of consensus take a moment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(ROOT / "config")
    quick = (ROOT / "src/leakbound_lab/config/quick.yaml").read_text("utf-8")
    assert "\nconsensus: {}\n" in quick
    Path("mine.yaml").write_text(quick.replace("\nconsensus: {}\n", "\nconsensus: {steps: 10}\n"))
    return reading.load("mine.yaml").model_dump(mode="json")


def command(config: dict, rule: str, *words: str) -> list[str]:
    """The words of a command, with the configuration in a file as a run writes it."""
    storage.write_text(".configuration.json", json.dumps(config))
    return ["step", rule, "--configfile", ".configuration.json", *words]


def made(config: dict, *words: str) -> dict[str, int]:
    """Time of change of each table after the command."""
    succeeded(*command(config, "consensus", *words))
    tables = sorted(Path("results/quick/tables/consensus").glob("*.parquet"))
    assert [path.stem for path in tables] == ["averaging", "privacy"]
    return {str(path): path.stat().st_mtime_ns for path in tables}


def test_results_are_made_again_only_if_settings_or_files_are_others(config, monkeypatch):
    first = made(config)
    one, other = sorted(first)
    assert made(config) == first

    Path(one).unlink()
    assert made(config) == first  # as Snakemake removes the files of a job that runs again

    Path(one).write_bytes(Path(other).read_bytes())  # the kept file is the same one
    damaged = made(config)
    assert (damaged[one] > first[one], damaged[other]) == (True, first[other])

    config["privacy_noise"] = "secure"  # of which the table of closed forms has none
    noisy = made(config)
    assert (noisy[one] > damaged[one], noisy[other]) == (True, first[other])

    monkeypatch.setenv(ANEW, "1")
    forced = made(config)
    assert all(forced[name] > noisy[name] for name in forced)


def test_results_that_are_put_back_are_no_older_than_what_they_were_made_from(config):
    """Snakemake would make them again in each run."""
    config["replicas"] = 1
    config["studies"] = {"audit": {**config["studies"]["audit"], "defenses": {"dpsgd": [2.0]}, "attacks": ["audit"]}}
    for rule in ("prepare", "covariance"):
        succeeded(*command(config, rule, "digits"))
    words = command(config, "attack", "digits/mlp/dpsgd-2/n0-b1")
    succeeded(*words)
    rows = Path("results/quick/attacks/digits/mlp/dpsgd-2/n0-b1/audit.parquet")
    first = rows.read_bytes(), rows.stat().st_mtime_ns
    rows.unlink()
    succeeded(*words)
    assert (rows.read_bytes(), rows.stat().st_mtime_ns) == first
    (images := Path("results/quick/data/digits.safetensors")).touch()
    succeeded(*words)
    assert rows.read_bytes() == first[0]
    assert images.stat().st_mtime_ns <= rows.stat().st_mtime_ns


def test_results_of_other_code_are_made_again_and_those_of_the_code_that_the_rule_states_are_not(config):
    first = made(config, "--code", "read,read")
    assert made(config, "--code", "read,read") == first
    edited = made(config, "--code", "read,edited")
    assert [edited[name] > first[name] for name in sorted(first)] == [False, True]


@pytest.mark.parametrize("given", ["read", "read,read,read", "read,"])
def test_several_names_take_a_fingerprint_each(config, given):
    names = ["averaging", "privacy"]
    first = made(config, *names, "--code", "read,read")
    assert made(config, *reversed(names), "privacy", "--code", "read,read") == first  # named twice, made once
    if given == "read,":  # the second is computed, so it is another one
        again = made(config, *names, "--code", given)
        assert [again[name] > first[name] for name in sorted(first)] == [False, True]
    else:
        said = refusal(*command(config, "consensus", *names, "--code", given))
        assert f"--code: {given.count(',') + 1} fingerprints for 2 results; give one for each" in said


def test_nothing_of_earlier_settings_stays_among_what_is_kept(config):
    made(config)
    config["privacy_noise"] = "secure"
    made(config)
    kept = Path("results/quick/.kept/consensus")
    assert {path.name: len([*path.iterdir()]) for path in kept.iterdir()} == {"averaging": 1, "privacy": 1}


def test_without_hard_links_nothing_is_kept_and_all_is_made_again(config, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    first = made(config)
    again = made(config)
    assert all(again[name] > first[name] for name in first)


def test_a_result_that_cannot_be_made_leaves_those_before_it(config):
    Path("results/quick/tables/consensus/privacy.parquet").mkdir(parents=True)
    assert "privacy.parquet: is a folder" in refusal(*command(config, "consensus"))
    assert Path("results/quick/tables/consensus/averaging.parquet").is_file()


def test_a_person_makes_one_result_by_its_name_and_gets_the_bytes_of_the_workflow(config):
    first = made(config)
    one, other = map(Path, sorted(first))
    content = one.read_bytes(), other.read_bytes()
    one.unlink()
    other.unlink()
    succeeded("step", "consensus", one.stem, "--configfile", "mine.yaml")
    assert (one.read_bytes(), other.exists()) == (content[0], False)
    succeeded("step", "consensus", "--configfile", "mine.yaml")
    assert (one.read_bytes(), other.read_bytes()) == content


def test_results_that_the_configuration_has_not_are_refused_with_the_nearest_names(config):
    said = refusal(*command(config, "train", "digits/mlp/none/n1-b1"))
    assert "quick has no result 'digits/mlp/none/n1-b1' of the rule train; nearest: digits/mlp/none/n" in said
    said = refusal(*command(config, "federated"))
    assert "quick has no results of the rule federated" in said


def test_a_damaged_configuration_of_a_run_is_refused(config):
    words = command(config, "consensus")
    path = Path(".configuration.json")
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert ".configuration.json: cannot be read (its SHA-256 is" in refusal(*words)


@pytest.mark.parametrize("preset", ["quick", "full_digits", "small"])
def test_results_of_rules_without_figures_are_listed_without_reading_any(preset, monkeypatch):
    monkeypatch.chdir(ROOT)
    settings = reading.quick() if preset == "quick" else reading.load(f"config/{preset}.yaml")
    whole, few = (jobs_by_rule(job_list(settings, figures=figures)) for figures in (True, False))
    for listed in (few, whole):
        listed.update({key: [replace(job, work=tuple) for job in jobs] for key, jobs in listed.items()})
    of = {key: jobs for key, jobs in whole.items() if key[0] in WITHOUT_FIGURES}
    assert {key: jobs for key, jobs in few.items() if key[0] in WITHOUT_FIGURES} == of
    assert {"prepare", "covariance", "train", "attack"} <= {rule for rule, *_ in of} <= {*WITHOUT_FIGURES}


@pytest.mark.parametrize("name", ["celeba", None])
def test_results_that_only_illustrations_read_are_those_that_the_workflow_asks_for(name, monkeypatch):
    """A configuration without studies: each rule finds its results by a name, and all of them without one."""
    monkeypatch.chdir(ROOT)
    settings = reading.load("config/faces.yaml")
    for (rule, of), jobs in jobs_by_rule(job_list(settings)).items():
        if rule in ("prepare", "covariance") and name in (of, None):
            results = step_command._jobs_of(settings, rule, [] if name is None else [name], checked=False)
            assert [(job.step, job.name, job.outputs) for job in results] == [
                (job.step, job.name, job.outputs) for job in jobs
            ]


def test_attacks_are_found_by_the_name_of_their_job_of_a_result_and_by_its_beginning(monkeypatch):
    monkeypatch.chdir(ROOT)

    def names(rule: str, *words: str) -> list[str]:
        return [f"{job.step} {job.name}" for job in step_command._jobs_of(reading.quick(), rule, words, checked=False)]

    run = "digits/mlp/natural-4/n0-b1"
    attacks = [f"attack {run}/{attack}" for attack in ("gradient_inversion", "naming")]
    assert names("attack", run) == attacks
    assert names("attack", f"{run}/naming", run) == [*reversed(attacks)]
    whole = names("attack", "digits/mlp/untrained")
    assert {*attacks} < {*whole}
    assert not any("/n400-" in name for name in whole)
    with pytest.raises(typer.BadParameter, match="no result 'digits/mlp/natural-4/n0-b' of the rule attack; nearest"):
        names("attack", run[:-1])
