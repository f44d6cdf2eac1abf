import copy
import importlib
import inspect
from collections import Counter
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound_lab.config import reading
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.config.catalogue import Catalogue, ClaimConfig, FigureConfig
from leakbound_lab.config.consensus import AveragingConfig, ConsensusConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, level_text
from leakbound_lab.config.federated import FederatedConfig
from leakbound_lab.config.studies import EfficiencyConfig, StudyConfig
from leakbound_lab.config.theory import DependentCase, IndependentCase
from leakbound_lab.config.training import LENGTHS, TrainingConfig, TrainingSettings
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.job import JobList
from leakbound_lab.jobs.runs import Run, runs_of
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.steps.job_list import all_steps
from leakbound_lab.training.request import training_request
from whole_catalogue import whole_catalogue

ROOT = Path(__file__).parents[2]
QUICK = reading.quick()
CATALOGUE = whole_catalogue()
PLAIN_RUN = f"digits/mlp/none/n{QUICK.studies['capacity'].rounds[0]}-b32"
"""The undefended run of several studies."""
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


def table(config=QUICK) -> RunTable:
    return RunTable(config, Catalogue(figures=()))


def job_list(config=QUICK, figures=None) -> JobList:
    return JobList(RunTable(config, CATALOGUE if figures is None else Catalogue(figures=figures)), all_steps())


def settings_of(jobs: JobList, step: str, name: str):
    return jobs.job(step, name).settings


RUNS = st.builds(
    Run,
    dataset=NAMES,
    model=NAMES,
    defense=NAMES,
    level=st.none() | st.floats(0, 1e9, allow_nan=False),
    rounds=st.integers(0, 10**7),
    batch_size=st.integers(1, 10**5),
)


@given(RUNS, RUNS, st.floats(0, 1e9), st.floats(0, 1e9))
def test_runs_have_one_name_only_if_they_are_one(run, other, level, near):
    assert (run.slug == other.slug) == (run == other)
    one, two = (replace(run, level=number) for number in (level, near))
    assert (one.slug == two.slug) == (level == near)
    assert float(level_text(level)) == level


def test_study_is_the_product_of_its_lists():
    study = StudyConfig(
        datasets=("a", "b"),
        models=("m",),
        defenses={"none": (), "natural": (1.0, 2.0)},
        rounds=(10, 20),
        batch_sizes=(4, 8),
    )
    runs = list(runs_of(study, 5))
    assert len(runs) == len(set(runs)) == 2 * 1 * 3 * 2 * 2
    assert {run.replicas for run in runs} == {5}


def test_run_of_two_studies_is_trained_once_with_the_most_replicas():
    studies = dict(QUICK.studies)
    most = QUICK.replicas + 5
    studies["comparison"] = studies["comparison"].model_copy(update={"replicas": most})
    shared = table(QUICK.model_copy(update={"studies": studies}))
    assert shared.runs[PLAIN_RUN].replicas == most
    assert PLAIN_RUN in {*shared.studies["capacity"]} & {*shared.studies["comparison"]}


def test_run_of_a_study_with_all_rates_and_of_one_with_the_chosen_is_trained_once_and_keeps_all():
    jobs = job_list()
    candidates = QUICK.replicas * len(QUICK.training.learning_rates)
    assert settings_of(jobs, "train", PLAIN_RUN)["keeps_all"] is True
    assert jobs.table.kept(jobs.table.runs[PLAIN_RUN]) == candidates * len(LENGTHS)
    assert [settings_of(jobs, "tabulate", study)["rates"] for study in ("capacity", "comparison")] == ["chosen", "all"]
    alone = table()
    chosen = next(slug for slug in alone.studies["capacity"] if slug not in alone.studies["comparison"])
    assert alone.kept(alone.runs[chosen]) == QUICK.replicas
    assert settings_of(jobs, "train", chosen)["keeps_all"] is False


def test_lengths_that_one_study_asks_for_are_kept_by_one_training_and_cost_nobody_else():
    """A run of two studies keeps them; its settings name them, those of runs without them are what they were."""
    studies = {name: study.model_copy(update={"lengths": "full"}) for name, study in QUICK.studies.items()}
    arms = {**studies["comparison"].defenses, "early_stopping": (), "stopped": (0.5,)}
    plain, every = (
        job_list(QUICK.model_copy(update={"studies": {**studies, "comparison": recipes}}))
        for recipes in (
            studies["comparison"].model_copy(update={"defenses": arms, "lengths": lengths})
            for lengths in ("full", "all")
        )
    )
    networks = QUICK.replicas * len(QUICK.training.learning_rates)
    for slug in every.table.studies["comparison"]:
        several = every.table.runs[slug].defense not in ("early_stopping", "stopped")
        assert every.table.kept(every.table.runs[slug]) == networks * (3 if several else 1)
        for step in ("train", "references"):
            own, other = settings_of(every, step, slug), settings_of(plain, step, slug)
            assert own == {**other, **({"lengths": ["half", "best", "full"]} if several else {})}
    assert PLAIN_RUN in every.table.studies["capacity"]
    assert settings_of(every, "tabulate", "capacity") == settings_of(plain, "tabulate", "capacity")
    assert settings_of(every, "tabulate", "comparison")["lengths"] == "all"
    others = {slug for slug in every.table.runs if slug not in every.table.studies["comparison"]}
    assert {every.table.lengths[slug] for slug in others} == {("full",)}


def test_untrained_networks_have_no_candidates():
    study = QUICK.studies["gradient_inversion"].model_copy(update={"rates": "all"})
    alone = table(QUICK.model_copy(update={"studies": {"gradient_inversion": study}}))
    assert {alone.kept(run) / run.replicas for run in alone.runs.values()} == {1.0}


def test_channels_are_those_of_their_shape_weights_and_capacity_whatever_uses_them():
    box = ChannelDefense(shape="personalized", weights={"weight": 5.0})  # type: ignore[arg-type]
    runs = table(QUICK.model_copy(update={"defenses": {**QUICK.defenses, "mild": box}}))

    def files(*arm: object) -> dict[str, str]:
        return runs.channel_files(Run("digits", "lenet", *arm, 10, 8))

    assert files("natural", 4.0) == files("natural_frozen", 4.0)
    assert files("channel_dpsgd", 0.5) == files("channel_dpsgd", 2.0) == files("natural", 300.0)
    assert files("mild", 4.0)["spectrum"] != files("personalized", 4.0)["spectrum"]


def test_runs_of_other_studies_stand_in_a_table_that_asks_for_them():
    capacity = QUICK.studies["capacity"].model_copy(update={"also": ("gradient_inversion",)})
    joined = job_list(QUICK.model_copy(update={"studies": QUICK.studies | {"capacity": capacity}}))
    tables = [jobs.job("tabulate", "capacity") for jobs in (joined, job_list())]
    inverted = job_list().job("tabulate", "gradient_inversion")
    assert tables[0].settings["runs"] == tables[1].settings["runs"] | inverted.settings["runs"]
    assert {*tables[0].inputs["runs"]} == {*tables[1].inputs["runs"], *inverted.inputs["runs"]}


def test_delta_is_that_of_the_dataset():
    defense = DPSGD(delta=1e-5, deltas={"celeba": 3e-6})
    own = table(QUICK.model_copy(update={"defenses": {"dpsgd": defense}}))
    runs = [Run(name, "lenet", "dpsgd", 1.0, 10, 8) for name in ("celeba", "digits")]
    assert [own.defense_of(run).delta for run in runs] == [3e-6, 1e-5]


def figure(name, **source) -> FigureConfig:
    return FigureConfig(id=name, paper="beyond", title="t", plot="lines", caption="Times.", **source)


def test_a_table_of_a_section_has_a_file_and_a_figure_whose_table_is_not_made_is_left_out():
    figures = Catalogue(figures=[figure(name, table=f"theory/{name}") for name in ("case1", "case2")])
    both, alone = (RunTable(with_theory(case2), figures) for case2 in (DependentCase(), None))
    assert both.rows_file(both.figures["beyond/case2"]) == "results/quick/tables/theory/case2.parquet"
    assert set(alone.figures) == {"beyond/case1"}


def test_table_of_a_section_depends_on_its_own_settings_alone():
    alone, both, other = (
        {name: plain for name, _, plain in table(with_theory(case2, case1)).section("theory")}
        for case2, case1 in (
            (None, IndependentCase()),
            (DependentCase(n_clients=9), IndependentCase()),
            (None, IndependentCase(n_clients=9)),
        )
    )
    assert both["case1"] == alone["case1"] != other["case1"]


@pytest.mark.parametrize(
    ("step", "section", "changed"),
    [
        ("federate", "federated", {"mi_budgets": (3.0,), "budget_spreads": (7.0,), "client_counts": (9,)}),
        ("federated", "federated", {"budget_means": (3.0,), "local_epochs": 9}),
        ("theory", "theory", {"surface": None}),
        ("consensus", "consensus", {"averaging": AveragingConfig(runs=20)}),
    ],
)
def test_a_step_is_called_with_no_setting_that_its_hash_leaves_out(step, section, changed):
    """What it cannot read cannot change its result unnoticed."""
    federated = FederatedConfig(models={"digits": "mlp"}, sweeps=("means", "composition"))
    config = QUICK.model_copy(update={"federated": federated, "consensus": ConsensusConfig()})
    other = config.model_copy(update={section: getattr(config, section).model_copy(update=changed)})
    one, two = (
        {job.name: job for job in importlib.import_module(f"leakbound_lab.steps.{step}").STEP.jobs(table(each))}
        for each in (config, other)
    )
    alike = [key for key in one if key in two and one[key].settings == two[key].settings]
    assert alike
    assert all(one[key].arguments == two[key].arguments for key in alike)


def with_theory(case2, case1=QUICK.theory.case1) -> Config:
    return QUICK.model_copy(update={"theory": QUICK.theory.model_copy(update={"case1": case1, "case2": case2})})


def test_table_of_times_is_there_only_if_they_are_measured():
    shown = figure("table02", table="efficiency")
    efficiency = EfficiencyConfig(dataset="digits", models=("lenet",), defenses={"none": ()}, repeats=7)
    measured = RunTable(QUICK.model_copy(update={"efficiency": efficiency}), Catalogue(figures=(shown,)))
    assert measured.rows_file(shown) == "results/quick/tables/efficiency.parquet"
    assert measured.caption("beyond/table02") == "Times. Data: digits. Networks: lenet. n = 7 repetitions."
    unmeasured = RunTable(QUICK.model_copy(update={"efficiency": None}), Catalogue(figures=(shown,)))
    assert unmeasured.figures == {}


def test_verdicts_are_counted_only_if_a_figure_claims_something():
    board = figure("scoreboard", table="scoreboard")
    claim = ClaimConfig(id="rises", text="It rises.", test="increasing")
    claiming = figure("fig09", study="capacity", claims=(claim,))
    both = RunTable(QUICK, Catalogue(figures=(board, claiming)))
    assert both.rows_file(both.figures["beyond/scoreboard"]) == "results/quick/tables/scoreboard.parquet"
    assert RunTable(QUICK, Catalogue(figures=(board,))).figures == {}


def test_figures_of_all_rates_are_drawn_only_from_studies_that_keep_them():
    recipes = figure("recipes", study="comparison", rates="all")
    for rates, shown in (("all", {"beyond/recipes"}), ("chosen", set())):
        study = QUICK.studies["comparison"].model_copy(update={"rates": rates})
        config = QUICK.model_copy(update={"studies": {"comparison": study}})
        assert set(RunTable(config, Catalogue(figures=(recipes,))).figures) == shown


@pytest.mark.parametrize(("datasets", "shown"), [(["mine"], set()), (["digits", "mine"], {"beyond/similarity"})])
def test_similarity_of_images_is_not_drawn_of_tables_alone(datasets, shown):
    similarity = figure("similarity", study="gradient_inversion", select={"metric": "ssim"})
    tables = {"mine": DatasetConfig(reader="table", path="mine.csv")}
    study = QUICK.studies["gradient_inversion"].model_copy(update={"datasets": datasets})
    parts = {"datasets": QUICK.datasets | tables, "studies": {"gradient_inversion": study}}
    assert set(RunTable(QUICK.model_copy(update=parts), Catalogue(figures=(similarity,))).figures) == shown


def test_inversion_behind_a_channel_reads_the_learned_estimate_of_its_dataset_alone():
    attacks = QUICK.attacks.model_copy(update={"gradient_inversion": GradientInversionConfig()})
    learned = job_list(QUICK.model_copy(update={"attacks": attacks}), figures=())
    (training,) = learned.of("estimator")
    assert training.name == "digits"
    assert {*training.inputs["spectra"]} == {"natural", "white", "personalized"}
    assert not any("/members." in path for path in training.input_files())
    for job in learned.of("attack"):
        behind = "gradient_inversion" in job.name and "/none/" not in job.name
        assert job.inputs.get("estimator") == (training.outputs["out"] if behind else None)
    assert not job_list(figures=()).of("estimator")  # the quick preset trains none


def test_attack_on_gradients_is_told_the_size_of_a_batch():
    study = QUICK.studies["gradient_inversion"].model_copy(update={"batch_sizes": (1, 8), "defenses": {"none": ()}})
    jobs = job_list(QUICK.model_copy(update={"studies": {"batch": study, "capacity": QUICK.studies["capacity"]}}))
    one, eight = (f"digits/mlp/none/n0-b{size}/gradient_inversion" for size in (1, 8))
    assert settings_of(jobs, "attack", eight)["batch_size"] == 8
    assert "batch_size" not in settings_of(jobs, "attack", one)
    assert settings_of(jobs, "attack", f"{PLAIN_RUN}/membership")["batch_size"] == jobs.table.runs[PLAIN_RUN].batch_size


def test_origin_of_noise_reaches_exactly_the_jobs_that_draw_noise():
    jobs = job_list(QUICK.model_copy(update={"privacy_noise": "secure"}))
    # Clipping draws no noise, but its batches are secret.
    noisy = {"natural", "natural_frozen", "white", "personalized", "dpsgd", "dppsac", "clipping"}
    for job in jobs.of("train", "attack"):
        run = jobs.table.runs[job.settings["slug"]]
        draws = run.defense in noisy and (job.step != "attack" or run.rounds == 0)
        assert job.settings.get("privacy_noise") == ("secure" if draws else None), job.name
    assert settings_of(jobs, "consensus", "averaging")["privacy_noise"] == "secure"
    assert "privacy_noise" not in settings_of(jobs, "consensus", "privacy")
    assert "privacy_noise" not in settings_of(jobs, "theory", "case1")
    for defenses, told in (({"none": (), "natural": (4.0,)}, True), ({"none": ()}, False)):
        efficiency = EfficiencyConfig(dataset="digits", models=("lenet",), defenses=defenses)
        timed = job_list(QUICK.model_copy(update={"efficiency": efficiency}))
        assert ("privacy_noise" in settings_of(timed, "measure", "efficiency")) is told


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_is_told_what_its_command_accepts_and_reads_what_exactly_one_other_job_writes(path):
    """What a command takes by name is made by one half of a step's file and read by the other."""
    jobs = job_list(reading.load(path))
    for job in jobs:
        parameters = inspect.signature(jobs.steps[job.step].command).parameters
        assert {*job.arguments} <= {*parameters}, f"{job.step} {job.name}"
    written = Counter(file for job in jobs for file in job.outputs.values())
    assert set(written.values()) == {1}
    assert all(file in written for job in jobs for file in job.input_files())


def test_every_channel_is_made_from_the_dataset_of_its_run():
    jobs = job_list(reading.load(ROOT / "config" / "small.yaml"))
    maker = {file: job for job in jobs for file in job.outputs.values()}

    def origins(job) -> set[str]:
        """Datasets that a job's inputs come from, by whatever way."""
        if job.step == "prepare":
            return {job.name}
        return set().union(*(origins(maker[file]) for file in job.input_files()))

    trained = [job for job in jobs.of("train") if "channel" in job.inputs]
    assert len({jobs.table.runs[job.name].dataset for job in trained}) == 5
    for job in trained:
        assert origins(job) == {jobs.table.runs[job.name].dataset}, job.name


def test_only_jobs_that_a_final_one_needs_are_made():
    unused = QUICK.datasets["digits"].model_copy(update={"reader": "digits"})
    jobs = job_list(QUICK.model_copy(update={"datasets": {**QUICK.datasets, "unused": unused}}))
    assert [job.name for job in jobs.of("prepare")] == list(QUICK.datasets)


def test_references_are_trained_for_runs_whose_members_are_attacked_and_for_no_others():
    jobs, slug = job_list(), PLAIN_RUN.replace("none", "natural-4")
    attacked = {name for name, attacks in jobs.table.attacks.items() if "membership" in attacks}
    assert {job.name for job in jobs.of("references")} == attacked
    made = jobs.job("references", slug)
    assert made.settings["replicas"] == QUICK.attacks.membership.references
    assert made.inputs["rates"] == jobs.job("train", slug).outputs["rates"]
    read = jobs.job("attack", f"{slug}/membership").inputs
    assert (read["references"], read["trained"]) == (made.outputs["weights"], made.outputs["trained"])
    assert not {"references", "channel"} & jobs.job("attack", f"{slug}/model_inversion").inputs.keys()


def test_uploads_are_made_again_by_the_settings_of_the_training_and_the_training_is_the_same():
    jobs, slug = job_list(), "digits/mlp/dpsgd-0.5/n400-b32"
    train, made = jobs.job("train", slug), jobs.job("attack", f"{slug}/membership_uploads")
    asked = {name: value for name, value in train.settings.items() if name not in ("dataset", "keeps_all", "plugins")}
    assert made.settings["training"] == asked
    assert made.inputs == jobs.job("attack", f"{slug}/gradient_capacity").inputs | {
        role: train.outputs[role] for role in ("weights", "rates")
    }
    studies = {name: study for name, study in QUICK.studies.items() if name != "uploads"}
    without = job_list(QUICK.model_copy(update={"studies": studies}))
    assert [job.settings for job in without.of("train")] == [job.settings for job in jobs.of("train")]


OTHERWISE = {
    "model": "cnn",
    "defense": DPSGD(learning_rates=(0.5,)),
    "slug": "digits/mlp/other",
    "level": 0.25,
    "batch_size": 7,
    "seed": 1,
    "privacy_noise": "secure",
    "lengths": ("half", "full"),
    "device": "cuda",
    "config": TrainingConfig(precision="tf32"),
    "rounds": 3,
    "replicas": 9,
}


@pytest.mark.parametrize("name", [one.name for one in fields(TrainingSettings)])
def test_all_that_a_training_reads_is_hashed(name):
    """What a training takes is made from these settings, so nothing that it reads is missing there."""
    run = job_list().job("train", "digits/mlp/dpsgd-0.5/n400-b32")
    training = run.arguments["training"]
    told = training.plain()
    assert told.items() <= run.settings.items()
    assert replace(training, **{name: OTHERWISE[name]}).plain() != told
    request = training_request(training, None, None, Path("checkpoint"))
    assert getattr(request, name) is getattr(training, name)


def test_references_of_candidates_are_trained_for_each_network_and_those_of_the_pool_have_the_settings_they_had():
    """Every replica at every rate is a network, with a set of references of its own."""
    own = QUICK.attacks.membership.model_copy(update={"reference_records": "candidates"})
    config = QUICK.model_copy(update={"attacks": QUICK.attacks.model_copy(update={"membership": own})})
    made, plain = job_list(config), job_list()
    asked = made.job("references", PLAIN_RUN).settings
    assert asked == {**plain.job("references", PLAIN_RUN).settings, "reference_records": "candidates"}
    networks = QUICK.replicas * len(QUICK.training.learning_rates)
    assert made.table.reference_networks(PLAIN_RUN) == networks * own.references
    assert plain.table.reference_networks(PLAIN_RUN) == len(QUICK.training.learning_rates) * own.references


def test_without_references_none_are_trained_and_trainings_are_the_same():
    few = QUICK.attacks.membership.model_copy(update={"references": 0})
    config = QUICK.model_copy(update={"attacks": QUICK.attacks.model_copy(update={"membership": few})})
    without, jobs = job_list(config), job_list()
    assert without.of("references") == []
    assert "references" not in without.job("attack", f"{PLAIN_RUN}/membership").inputs
    for job in jobs.of("train"):
        assert without.job("train", job.name).settings_text() == job.settings_text()


def all_settings(config) -> str:
    """All that any job of a configuration is told, as one text."""
    jobs = job_list(config)
    told = [(job.step, job.name, job.settings) for job in jobs if job.step != "report"]
    # The report's job is told the whole configuration; of that its page uses the address of MLflow.
    return repr([told, config.resources.model_dump(), config.catalogue, config.tracking.ui])


unchanged_settings = cache(lambda: all_settings(QUICK))
"""The same of the quick preset as it is."""
written = cache(lambda: reading.yaml.safe_load(reading.as_yaml(QUICK)))


def plain_values() -> dict:
    """The quick preset as its file has it, to be changed."""
    return copy.deepcopy(written())


def leaves(values, trail=()):
    """Every plain setting of nested values with the way to it."""
    if isinstance(values, dict) and values:
        for key, item in values.items():
            yield from leaves(item, (*trail, key))
    else:
        yield trail, values


def changed(value):
    """Another valid value of the same kind, or None where a plain change is not valid."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 1 if value >= 1 else value / 2 + 0.01
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        return [*value[:-1], changed(value[-1])]
    return None


SPELT_OUT = {
    ("device",): "cuda",
    ("attacks", "audit", "sample_rate"): 0.5,
    ("privacy_noise",): "secure",
    ("preset",): "other",
    ("catalogue",): "config/./figures",
    ("training", "max_stack"): 2,
    ("training", "precision"): "bfloat16",
    ("attacks", "membership_uploads", "precision"): "bfloat16",
    ("attacks", "membership", "reference_records"): "candidates",
    ("illustrations", "shapes", "covariance"): "aux",
    ("illustrations", "covariance_leak", "covariance"): "members",
    ("illustrations", "reconstructions", "covariance"): "members",
    ("tracking", "uri"): "http://127.0.0.1:5000",
    ("tracking", "ui"): "http://127.0.0.1:5001",
    ("datasets", "digits", "side"): 12,
    ("datasets", "digits_canaries", "side"): 12,
    ("datasets", "digits_canaries", "reader"): "mnist",
    ("studies", "comparison", "lengths"): "full",
    ("studies", "canaries", "lengths"): "full",
}
PLAIN = QUICK.model_dump(mode="json", exclude_defaults=True) | {
    name: getattr(QUICK, name).model_dump(mode="json") for name in ("training", "attacks", "tracking", "resources")
}
PLAIN |= {
    name: getattr(QUICK, name)
    for name in ("preset", "seed", "privacy_noise", "replicas", "device", "catalogue", "alpha", "accept_capacity")
}
MUST_BE_ZERO = {("studies", name, "rounds") for name in ("gradient_inversion", "naming", "audit", "uses", "spear")}
CHANGES = {
    trail: new
    for trail, value in leaves(PLAIN)
    if trail not in MUST_BE_ZERO and (new := SPELT_OUT.get(trail, changed(value))) is not None
}


def test_illustrations_take_the_moments_that_channels_are_made_from_unless_they_name_others():
    """Those of the members are a statistic of records that may be secret."""
    for covariance in ("aux", "members"):
        jobs = job_list(QUICK.model_copy(update={"covariance": covariance}))
        inputs = {job.name: job.inputs for job in jobs.of("illustrate")}
        for name in ("noisy_images", "compression"):
            assert str(inputs[name]["moments"]).endswith(f"digits/{covariance}.safetensors")
        assert str(inputs["shapes"]["moments"]).endswith("digits/members.safetensors")


def test_settings_that_are_not_changed_are_names_or_empty():
    """What names and mappings stand for is tested by the other tests of the run table."""
    left = {trail: value for trail, value in leaves(PLAIN) if trail not in CHANGES and trail not in MUST_BE_ZERO}
    names = {"dataset", "datasets", "models", "attacks", "rates"}
    assert all(value in ([], {}, None) or trail[-1] in names for trail, value in left.items())


def test_the_usual_precision_is_no_setting_of_a_job():
    """So that results of before keep their settings."""
    assert "precision" not in settings_of(job_list(), "train", PLAIN_RUN)["training"]


def with_change(values: dict, trail: tuple[str, ...]) -> str:
    """What jobs are told if one setting is another one."""
    inner = values
    for key in trail[:-1]:
        inner = inner.setdefault(key, {})
    inner[trail[-1]] = CHANGES[trail]
    return all_settings(reading.config_of(values, "test"))


@pytest.mark.parametrize("trail", [one for one in CHANGES if one[:2] != ("attacks", "van_trees")], ids=".".join)
def test_every_setting_reaches_a_job(trail):
    assert with_change(plain_values(), trail) != unchanged_settings(), f"{trail} reaches no job"


@pytest.mark.parametrize("name", ["axes", "draws"])
def test_settings_of_a_bound_that_the_quick_preset_does_not_have_reach_its_jobs(name):
    values = plain_values()
    values["studies"]["gradient_inversion"]["attacks"] = ["gradient_inversion", "van_trees"]
    unchanged = all_settings(reading.config_of(copy.deepcopy(values), "test"))
    assert with_change(values, ("attacks", "van_trees", name)) != unchanged


@pytest.mark.parametrize(("device", "gpus", "used"), [("auto", 0, "cpu"), ("auto", 1, "auto"), ("cuda", 0, "cuda")])
def test_a_job_that_asks_for_no_gpu_takes_one_only_if_it_is_told_to(device, gpus, used):
    values = plain_values()
    values["device"] = device
    for step in ("train", "covariance"):
        values["resources"][step]["gpu"] = gpus
    jobs = job_list(reading.config_of(values, "test"))
    assert {job.settings["device"] for job in jobs.of("train")} == {used}
    moments = {job.settings["device"] for job in jobs.of("covariance")}
    assert moments == {"auto" if used == "cuda" else used}  # which a machine without a GPU can make as well
    assert {job.settings["device"] for job in jobs.of("attack")} == {"cpu" if device == "auto" else device}
