"""What the rules of the workflow ask: which runs a list of attacks has, what a job reads, and names that no job has."""

import re
from pathlib import Path

import pytest

from leakbound_lab.config import reading
from leakbound_lab.jobs.rules import Rules, alternatives
from leakbound_lab.steps.job_list import job_list

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made():
    return job_list(reading.load(ROOT / "config/small.yaml"), figures=False)


def test_each_attacked_run_has_one_list_that_names_all_of_its_attacks(made):
    lists = Rules(made).attack_lists()
    assert len({attacked.rule for attacked in lists}) == len(lists) > 3
    for slug, attacks in made.table.attacks.items():
        (own,) = [attacked for attacked in lists if re.fullmatch(attacked.runs, slug)]
        assert list(own.attacks) == attacks
        assert own.references == bool(made.table.references(slug))


def test_alternatives_are_the_given_names_and_no_others():
    names = ["a/b/none/n1-b2", "a/b/none/n1-b20", "a/b/dpsgd-1e+02/n1-b2", "a/c/dpsgd-0.5/n0-b1", "d/b/none/n1-b2"]
    pattern = re.compile(alternatives(names))
    assert all(map(pattern.fullmatch, names))
    others = [
        "a/b/none/n1-b2000",
        "a/b/none/n1",
        "a/b/dpsgd-1e02/n1-b2",
        "a/c/dpsgd-0x5/n0-b1",
        "d/b",
        "d/c/none/n1-b2",
    ]
    assert not any(map(pattern.fullmatch, others))


def test_a_job_reads_the_files_of_the_steps_that_a_rule_names(made):
    rules = Rules(made)
    run = next(run for run in made.table.runs.values() if run.rounds and made.table.channel_of(run) is not None)
    of = {"run": run.slug}
    assert rules.reads("train", "{run}", "prepare")(of) == [f"results/small/data/{run.dataset}.safetensors"]
    both = rules.reads("train", "{run}", "calibrate", "spectrum")(of)
    assert sorted(both) == sorted(made.table.channel_files(run).values())
    assert rules.reads("train", "{run}", "attack")(of) == []


def test_a_hash_is_that_of_its_own_results(made):
    rules = Rules(made)
    one, other = [slug for slug, run in made.table.runs.items() if run.rounds][:2]
    compute = rules.results_hash("train", "{run}")
    assert compute({"run": one}) == compute({"run": one}) != compute({"run": other})
    assert compute({"run": one}) != rules.results_hash("attack", "{run}")({"run": one})


def test_a_name_that_no_job_has_is_refused_with_the_nearest_ones(made):
    class RefusedError(Exception):
        pass

    slug = next(slug for slug, run in made.table.runs.items() if run.rounds)
    with pytest.raises(RefusedError, match=rf"^small has no job '{slug}0' of the rule train; nearest: {slug}"):
        Rules(made, RefusedError).codes("train", "{run}")({"run": f"{slug}0"})


def test_retries_ask_for_more(made):
    rules = Rules(made)
    attack, train = made.table.config.resources.attack, made.table.config.resources.train
    asked = rules.memory("train", "attack"), rules.minutes("train", "attack")
    assert [function({}, 2) for function in asked] == [
        2 * max(train.mem_mb, attack.mem_mb),
        2 * (train.runtime + attack.runtime),
    ]
