"""What the rules of the workflow ask: which runs a list of attacks has, what a job reads, and names that no job has."""

import re
from pathlib import Path

import pytest

from leakbound_lab.config import reading
from leakbound_lab.jobs.job_costs import SHORT_JOB, planned_seconds
from leakbound_lab.jobs.rules import Rules, beginnings
from leakbound_lab.steps.job_list import job_list

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made():
    return job_list(reading.load(ROOT / "config/small.yaml"), figures=False)


def test_each_attacked_run_has_one_list_that_names_all_of_its_attacks_or_is_one_of_several_untrained_ones(made):
    rules = Rules(made)
    lists, several = rules.attack_lists(), rules.untrained()
    assert len({attacked.rule for attacked in (*lists, *several)}) == len(lists) + len(several) > 6
    joined = {job.settings["slug"] for one in several for job in rules.results("attack", one.name)}
    assert 10 < len(joined) < len(made.table.attacks)
    for slug, attacks in made.table.attacks.items():
        own = [attacked for attacked in lists if re.fullmatch(attacked.runs, slug)]
        assert len(own) == (slug not in joined)
        if own:
            assert list(own[0].attacks) == attacks
            assert own[0].references == bool(made.table.references(slug))


def test_several_untrained_networks_are_attacked_by_one_job_if_that_is_short(made):
    """Whatever the machine, and each attack once; those of an hour run side by side."""
    rules = Rules(made)
    alone = {slug for slug, run in made.table.runs.items() if run.rounds == 0}
    for one in rules.untrained():
        jobs = rules.results("attack", one.name)
        slugs = {job.settings["slug"] for job in jobs}
        assert len(slugs) > 1
        assert {slug.split("/")[0] + "/" + slug.split("/")[1] for slug in slugs} == {one.name.rpartition("/")[0]}
        assert sum(planned_seconds(job.work()) for job in jobs) <= SHORT_JOB
        assert sorted(job.name for job in jobs) == sorted(
            f"{slug}/{attack}" for slug in slugs for attack in made.table.attacks[slug]
        )
        assert one.priority == max(rules.attack_priority({"run": slug}) for slug in slugs)
        alone -= slugs
    for slug in alone:
        work = [each for job in rules.results("attack", slug) for each in job.work()]
        assert planned_seconds(work) > SHORT_JOB, slug


def test_untrained_networks_with_an_attack_or_a_network_from_outside_have_a_job_each():
    plain = reading.load(ROOT / "config/config.yaml").model_dump(mode="json")
    studies = {name: plain["studies"][name] for name in ("gradient_inversion", "uses")}

    def names(**plugins: dict[str, str]) -> set[str]:
        config = reading.config_of({**plain, "studies": studies, "plugins": plugins}, "mine.yaml")
        return {one.name for one in Rules(job_list(config, figures=False)).untrained()}

    assert names() == {"digits/mlp/untrained", "digits/mlp/untrained-2"}
    assert names(models={"mlp": "leakbound_lab.models.small:MLP"}) == set()


def test_beginnings_are_those_of_the_names_and_of_no_others():
    names = [
        "a/b/none/n1-b2",
        "a/b/dpsgd-1e+02/n1-b2",
        "a/c/dpsgd-0.5/n0-b1",
        "a/c/white-1e-05/n0-b1",
        "d/b/none/n1-b2",
    ]
    others = [
        "a/b/none/n1-b20",
        "a/b/dpsgd-1e02/n1-b2",
        "a/c/dpsgd-0x5/n0-b1",
        "a/c/white-1e-04/n0-b1",
        "d/c/none/n1-b2",
    ]
    pattern = re.compile(beginnings(names, others))
    assert all(map(pattern.match, names))
    assert not any(map(pattern.match, others))


def test_an_expression_does_not_grow_with_the_levels_of_a_defense():
    """Snakemake reads it again for each output of each job."""
    few, many = ([f"a/b/natural-{level}/n4-b2" for level in range(count)] for count in (2, 200))
    other = ["a/b/none/n4-b2", "a/b/natural-1/n0-b1"]
    assert beginnings(few, other[:1]) == beginnings(many, other[:1])
    assert beginnings(many, []) == ""
    assert beginnings(other[:1], many) == r"a/b/none/"


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
