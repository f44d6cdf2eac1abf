import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from leakbound_lab.commands.plan import plan_text
from leakbound_lab.config import reading
from leakbound_lab.config.attacks import Attack
from leakbound_lab.config.data import DatasetConfig, size_of
from leakbound_lab.config.training import LENGTHS
from leakbound_lab.jobs.job import jobs_by_rule
from leakbound_lab.jobs.job_costs import JobCost, job_cost, wall_seconds
from leakbound_lab.jobs.unit_costs import PACKAGED, UnitCosts, read_costs
from leakbound_lab.steps.job_list import job_list

REPOSITORY = Path(__file__).parents[2]
ROWS = read_costs(PACKAGED)
QUICK = reading.quick()
ON_DEVICE = {"train", "references", "attack", "measure", "federate"}


class Guess(Attack):
    function = "somewhere:attack"


def estimates(config=QUICK, device="cpu", rows=ROWS) -> list[JobCost]:
    costs = UnitCosts(rows, device)
    return [job_cost(job, costs) for job in job_list(config)]


quick_jobs = cache(lambda: job_list(QUICK))
quick_estimates = cache(estimates)
"""Those of the quick preset on a CPU."""


def seconds(found, step) -> float:
    return sum(one.cpu_seconds for one in found if one.job.step == step)


def on_gpu() -> list[dict]:
    """Times as a GPU might have that is a hundred times as fast."""
    measured = [row for row in ROWS if row["device"] == "cpu" and row["model"] and row["unit"] != "parameters"]
    return [*ROWS, *({**row, "device": "cuda", "value": float(row["value"]) / 100} for row in measured)]


def test_shared_run_counts_for_the_first_study_alone():
    table = quick_jobs().table
    shared = sum(table.first_study[slug] != "comparison" for slug in table.studies["comparison"])
    alone = QUICK.model_copy(update={"studies": {"comparison": QUICK.studies["comparison"]}})
    own = [one for one in quick_estimates() if one.job.purpose == "comparison" and one.job.step == "train"]
    assert len(own) + shared == sum(one.job.step == "train" for one in estimates(alone))
    assert shared > 0
    assert all(table.first_study[slug] == "capacity" for slug in table.studies["capacity"])


@pytest.mark.parametrize("factor", [2, 3])
def test_training_time_is_proportional_to_rounds_and_replicas(factor):
    studies = {
        name: study.model_copy(update={"rounds": tuple(factor * one for one in study.rounds)})
        for name, study in QUICK.studies.items()
    }
    found = quick_estimates()
    fixed = UnitCosts(ROWS, "cpu").start("train") * sum(one.job.step == "train" for one in found)
    once = seconds(found, "train") - fixed
    longer = seconds(estimates(QUICK.model_copy(update={"studies": studies})), "train") - fixed
    wider = seconds(estimates(QUICK.model_copy(update={"replicas": factor * QUICK.replicas})), "train") - fixed
    assert once < longer <= factor * once  # curves take no longer
    assert wider == pytest.approx(factor * once)


def test_weights_take_the_disk_of_their_parameters():
    parameters = UnitCosts(ROWS, "cpu").on_cpu("parameters", "mlp", 1)
    table = quick_jobs().table
    recipes = [name for name, study in QUICK.studies.items() if study.rates == study.lengths == "all"]
    assert recipes
    kept = {one.job.name: one.disk / (4 * parameters) for one in quick_estimates() if one.job.step == "train"}
    candidates = len(QUICK.training.learning_rates)
    for slug, networks in kept.items():
        every = any(slug in table.studies[name] for name in recipes)
        assert networks == pytest.approx(QUICK.replicas * (candidates * len(LENGTHS) if every else 1))
    assert len(set(kept.values())) == 2


def test_gpu_does_what_trains_and_attacks_and_nothing_else():
    for one in estimates(device="cuda", rows=on_gpu()):
        assert (one.gpu_seconds > 0) == (one.job.step in ON_DEVICE), one.job.name


def test_attacks_on_replicas_share_the_stacks_of_a_gpu():
    """Where a stack of any size is as fast as one network, replicas cost nothing but what is done one by one."""
    stacks = [*on_gpu(), *({**row, "slots": 100} for row in on_gpu() if row["device"] == "cuda")]
    wide = QUICK.model_copy(update={"replicas": 4 * QUICK.replicas})
    once, longer = Counter(), Counter()
    costs = UnitCosts(stacks, "cuda")
    for config, found in ((QUICK, once), (wide, longer)):
        for one in estimates(config, "cuda", stacks):
            if one.job.step == "attack":
                attack = one.job.settings["attack"]
                found[attack] += one.gpu_seconds
                found.update({(attack, work.kind): costs.seconds(work) for work in one.job.work() if work.model})
    assert once.keys() == longer.keys()
    ratios = {attack: longer[attack] / seconds for attack, seconds in once.items() if seconds}
    assert ratios["model_inversion"] == 1
    assert ratios["membership", "membership"] == 1
    assert 1 < ratios["membership"] < ratios["membership", "predict"] < 4  # records, of references no more of them
    assert 1 < ratios["gradient_inversion"] < 4  # the published one shares a stack, other searches do not
    assert ratios["naming"] == ratios["uses"] == 4  # one replica after another


def test_time_on_a_gpu_that_nobody_measured_is_unknown_and_not_guessed():
    rows = [row for row in ROWS if row["device"] == "cpu"]
    found = estimates(device="cuda", rows=rows)
    assert {one.gpu_seconds for one in found if one.job.step in ON_DEVICE} == {None}
    assert wall_seconds(found) is None
    text = plan_text(quick_jobs(), UnitCosts(rows, "cuda"), "of a test")
    assert "Wall time with 2 jobs side by side, 1 of them on the GPU: unknown" in text
    assert "on a GPU: not measured" in text


def test_plan_for_a_gpu_has_hours_of_an_h200_and_says_about_where_networks_were_not_measured():
    text = plan_text(quick_jobs(), UnitCosts(ROWS, "cuda"), "of a test")
    assert "about GPU hours" in text
    assert "1 of them on the GPU: about " in text
    assert "step_natural of mlp on a GPU: not measured, taken as lenet" in text


def test_plan_as_text_adds_up():
    jobs = quick_jobs()
    text = plan_text(jobs, UnitCosts(ROWS, "cpu"), "of a test")
    body = {line.split()[0]: line for line in text.splitlines() if line}
    assert int(body["total"].split()[1]) == len(jobs_by_rule(jobs)) < 70
    rows = re.findall(r"^(\S.*?)  +(\d+) ", text, re.MULTILINE)
    assert sum(int(number) for purpose, number in rows if purpose != "total") == len(jobs_by_rule(jobs))
    counts = dict(pair.split()[::-1] for pair in body["Jobs:"].removeprefix("Jobs: ").split(", "))
    assert sum(map(int, counts.values())) == len(jobs_by_rule(jobs))
    trained = [run for run in jobs.table.runs.values() if run.rounds]
    assert counts["attack"] == str(len(trained) + 2)  # one for each of them, and two for all untrained networks
    assert "runs are those of studies above" in body["comparison:"]
    assert "Wall time with 2 jobs" in text
    for name in QUICK.datasets:
        assert f"* dataset {name}: networks are taken to be those for images of side 32" in text.splitlines()


def test_docs_say_of_the_quick_preset_what_its_plan_says():
    page = (REPOSITORY / "docs" / "performance.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| the quick preset |")]
    _, _, jobs, cpu, _, wall, *_ = (cell.strip() for cell in row.split("|"))
    found = list(quick_estimates())
    assert jobs == str(len(jobs_by_rule(quick_jobs())))
    assert cpu == f"{sum(one.cpu_seconds for one in found) / 60:.0f} min"
    assert wall == f"{wall_seconds(found) / 60:.1f} min"


def test_attack_that_no_table_of_costs_knows_is_estimated_and_said_so():
    studies = {"own": QUICK.studies["capacity"].model_copy(update={"attacks": ("guess",)})}
    attacks = QUICK.attacks.model_copy(update={"custom": {"guess": Guess()}})
    plugins = QUICK.plugins.model_copy(update={"attacks": {"guess": "somewhere:Guess"}})
    config = QUICK.model_copy(update={"studies": studies, "attacks": attacks, "plugins": plugins})
    costs = UnitCosts(ROWS, "cpu")
    guessed = [job_cost(job, costs) for job in job_list(config).of("attack")]
    assert sum(one.cpu_seconds - costs.start("attack") for one in guessed) == pytest.approx(
        10 * len(guessed) * QUICK.replicas
    )
    (note,) = [note for note in costs.notes if note.startswith("attack_guess: not measured, taken as 10 s")]
    assert "state work on the class of the attack" in note
    assert "the line cpu,attack_guess,,,1,SECONDS,SOURCE as --table" in note
    row = {"device": "cpu", "unit": "attack_guess", "model": "", "colors": "", "slots": "1", "value": "5"}
    known = [one for one in estimates(config, rows=[*ROWS, row]) if one.job.step == "attack"]
    assert seconds(guessed, "attack") - seconds(known, "attack") == pytest.approx(5 * len(known) * QUICK.replicas)


@pytest.mark.parametrize(
    "path",
    sorted(path for home in ("", "gpu") for path in (REPOSITORY / "config" / home).glob("*.yaml")),
    ids=lambda path: path.name,
)
def test_every_committed_preset_can_be_planned(path):
    config = reading.load(path)
    costs = UnitCosts(ROWS, "cpu")
    found = [job_cost(job, costs) for job in job_list(config)]
    assert all(one.cpu_seconds > 0 for one in found)
    assert {one.job.purpose for one in found} >= set(config.studies)
    assert not any("start is not measured" in note for note in costs.notes)
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    for hours in re.findall(rf"^\| `config/{path.name}` .*\| about (\d+) hours \(planned\) \|$", guide, re.MULTILINE):
        assert wall_seconds(found) / 3600 == pytest.approx(int(hours), rel=0.15)


def test_sizes_are_those_of_the_configuration_or_of_the_original():
    digits = size_of("digits", QUICK.datasets["digits"])
    assert (digits.pool, digits.validation) == (997, 300)
    assert (digits.members, digits.test, digits.aux, digits.pixels) == (100, 300, 500, 64)
    usual = size_of("digits", DatasetConfig(members=400, test=300, aux=500))
    assert (usual.pool, usual.validation, usual.pixels) == (997, 100, 1024)
    whole = size_of("cifar10", DatasetConfig(aux=2000))
    assert (whole.pool, whole.aux, whole.test, whole.pixels) == (48_000, 2000, 10_000, 3072)
    assert (whole.members, whole.validation) == (21_333, 5333)
