from collections import Counter
from pathlib import Path

import pytest

from leakbound.cli.plan.costs import PACKAGED, UnitCosts, read_costs
from leakbound.cli.plan.estimates import Job, jobs_of, networks, shared_runs
from leakbound.cli.plan.report import Machine, as_text
from leakbound.cli.plan.sizes import size_of
from leakbound.config import reading
from leakbound.config.studies import EfficiencyConfig
from leakbound.jobs.table import RunTable

REPOSITORY = Path(__file__).parents[2]
ROWS = read_costs(PACKAGED)
QUICK = reading.quick()


def plan(config=QUICK, device="cpu") -> list[Job]:
    return jobs_of(table(config), UnitCosts(ROWS, device))


def table(config=QUICK) -> RunTable:
    return RunTable(config, reading.load_catalogue(REPOSITORY / config.catalogue, config))


def hours(jobs, kind) -> float:
    return sum(job.cpu_seconds + job.gpu_seconds for job in jobs if job.kind == kind)


def test_plan_has_every_run_search_and_attack_once():
    jobs, runs = plan(), table()
    counts = Counter(job.kind for job in jobs)
    assert len({(job.kind, job.name) for job in jobs}) == len(jobs)
    assert counts["train"] == len(runs.trained())
    assert counts["tune"] == len({runs.tuning_name(runs.runs[slug]) for slug in runs.trained()})
    assert counts["attack"] == sum(map(len, runs.attacks.values()))
    assert counts["plot"] == len(runs.figures)
    assert counts["tabulate"] == len(QUICK.studies)


def test_shared_run_counts_for_the_first_study_alone():
    alone = QUICK.model_copy(update={"studies": {"comparison": QUICK.studies["comparison"]}})
    both = [job for job in plan() if job.study == "comparison" and job.kind == "train"]
    assert len(both) + shared_runs(table(), "comparison") == sum(job.kind == "train" for job in plan(alone))
    assert shared_runs(table(), "comparison") > 0
    assert shared_runs(table(), "capacity") == 0


@pytest.mark.parametrize("factor", [2, 3])
def test_training_time_is_proportional_to_rounds_and_replicas(factor):
    studies = {
        name: study.model_copy(update={"rounds": tuple(factor * one for one in study.rounds)})
        for name, study in QUICK.studies.items()
    }
    fixed = UnitCosts(ROWS, "cpu").job("train") * sum(job.kind == "train" for job in plan())
    once = hours(plan(), "train") - fixed
    longer = hours(plan(QUICK.model_copy(update={"studies": studies})), "train") - fixed
    wider = hours(plan(QUICK.model_copy(update={"replicas": factor * QUICK.replicas})), "train") - fixed
    assert once < longer <= factor * once  # curves take no longer
    assert wider == pytest.approx(factor * once)


def test_weights_take_the_disk_of_their_parameters():
    parameters = UnitCosts(ROWS, "cpu").parameters("lenet", 1)
    disks = [job.disk for job in plan() if job.kind == "train"]
    assert disks == [4 * parameters * QUICK.replicas] * len(disks)


def test_gpu_does_what_trains_and_attacks_and_nothing_else():
    for job in plan(device="cuda"):
        assert (job.gpu_seconds > 0) == (job.kind in {"tune", "train", "attack", "measure", "federate"}), job


def test_measuring_of_times_is_bounded_by_its_longest_turn():
    timed = {"dataset": "digits", "models": ("lenet",), "defenses": {"none": ()}, "repeats": 3, "steps": 10**6}
    config = QUICK.model_copy(update={"efficiency": EfficiencyConfig(**timed, max_seconds=5.0)})
    assert hours(plan(config), "measure") == pytest.approx(UnitCosts(ROWS, "cpu").job("measure") + 4 * 5.0)
    assert networks(table(config)) == [("lenet", 1), ("lenet_sigmoid", 1)]


def test_more_jobs_side_by_side_take_less_time_down_to_the_longest():
    jobs = [Job("s", "train", str(index), 100.0) for index in range(8)]
    one, four, many = (Machine(count).wall_seconds(jobs) for count in (1, 4, 100))
    assert 100 <= many < four < one
    assert one == pytest.approx(4 * four, rel=0.1)


def test_jobs_on_the_gpu_wait_for_each_other():
    jobs = [Job("s", "train", str(index), 1.0, 99.0) for index in range(8)]
    assert Machine(8, 1).wall_seconds(jobs) > 7 * Machine(8, 8).wall_seconds(jobs)


def test_plan_as_text_adds_up():
    costs = UnitCosts(ROWS, "cpu")
    jobs = jobs_of(table(), costs)
    text = as_text(table(), jobs, costs, Machine(2), "of a test")
    body = {line.split()[0]: line for line in text.splitlines() if line}
    assert int(body["total"].split()[1]) == len(jobs)
    assert "runs are those of studies above" in body["comparison:"]
    assert "Wall time with 2 jobs" in text


@pytest.mark.parametrize("path", sorted((REPOSITORY / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_committed_preset_can_be_planned(path):
    config = reading.load(path)
    jobs = plan(config, "cuda" if config.resources.train.gpu else "cpu")
    assert all(job.cpu_seconds > 0 for job in jobs)
    assert {job.study for job in jobs} >= set(config.studies)


def test_sizes_are_those_of_the_configuration_or_of_the_original():
    digits = size_of("digits", QUICK.datasets["digits"])
    assert (digits.members, digits.test, digits.aux, digits.pixels) == (400, 600, 600, 1024)
    whole = size_of("cifar10", QUICK.datasets["digits"].model_copy(update={"members": None, "test": None, "aux": 2000}))
    assert (whole.members, whole.test) == (48000, 10000)
