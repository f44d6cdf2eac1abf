from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.config import reading
from leakbound.config.catalogue import Catalogue, ClaimConfig, FigureConfig
from leakbound.config.defenses import DPSGD, ChannelDefense
from leakbound.config.settings import Settings
from leakbound.config.studies import EfficiencyConfig, StudyConfig
from leakbound.config.whole import Config
from leakbound.jobs.runs import Run, level_text, runs_of
from leakbound.jobs.table import RunTable

QUICK = reading.quick()
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


def table(config=QUICK) -> RunTable:
    return RunTable(config, Catalogue(figures=()))


@given(
    st.builds(
        Run,
        dataset=NAMES,
        model=NAMES,
        defense=NAMES,
        level=st.none() | st.floats(0, 1e9, allow_nan=False),
        rounds=st.integers(0, 10**7),
        batch_size=st.integers(1, 10**5),
    )
)
def test_run_comes_back_from_its_slug(run):
    assert Run.from_slug(run.slug) == run


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_different_levels_have_different_texts(one, other):
    assert (level_text(one) == level_text(other)) == (one == other)


@pytest.mark.parametrize("slug", ["", "a/b/c", "a/b/natural-50/n10", "a/b/natural-50/n10-b64/x", "A/b/none/n1-b1"])
def test_malformed_slug_is_refused(slug):
    with pytest.raises(ValueError, match="is no run"):
        Run.from_slug(slug)


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
    studies["comparison"] = studies["comparison"].model_copy(update={"replicas": 7})
    shared = table(QUICK.model_copy(update={"studies": studies}))
    slug = "digits/lenet/none/n300-b32"
    assert shared.runs[slug].replicas == 7
    assert slug in shared.members["capacity"]
    assert slug in shared.members["comparison"]


def test_fresh_and_frozen_noise_share_one_calibrated_channel():
    fresh = Run("digits", "lenet", "natural", 4.0, 10, 8)
    frozen = Run("digits", "lenet", "natural_frozen", 4.0, 10, 8)
    assert table().channel_files(fresh) == table().channel_files(frozen)
    assert fresh.slug != frozen.slug


def test_channel_with_own_weights_has_its_own_files():
    box = ChannelDefense(shape="personalized", weights={"weight": 5.0})  # type: ignore[arg-type]
    config = QUICK.model_copy(update={"defenses": {"mild": box}})
    own, usual = (Run("digits", "lenet", name, 4.0, 10, 8) for name in ("mild", "personalized"))
    files = table(config)
    assert files.channel_files(own)["spectrum"] != files.channel_files(usual)["spectrum"]


def test_delta_is_that_of_the_dataset():
    defense = DPSGD(delta=1e-5, deltas={"celeba": 3e-6})
    jobs = table(QUICK.model_copy(update={"defenses": {"dpsgd": defense}}))
    runs = [Run(name, "lenet", "dpsgd", 1.0, 10, 8) for name in ("celeba", "digits")]
    assert [jobs.training_settings(run)["defense"]["delta"] for run in runs] == [3e-6, 1e-5]
    other = table(QUICK.model_copy(update={"defenses": {"dpsgd": DPSGD(delta=1e-5)}}))
    assert jobs.training_settings(runs[1]) == other.training_settings(runs[1])


def test_run_without_channel_reads_no_channel_files():
    assert table().channel_files(Run("digits", "lenet", "dpsgd", 1.0, 10, 8)) == {}


class Part(Settings):
    points: int = 3


class World(Settings):
    """A section of a world with what its parts share, and two parts of which one may be left out."""

    servers: int = 20
    first: Part = Part()
    second: Part | None = None

    def tables(self) -> tuple[str, ...]:
        return ("first",) if self.second is None else ("first", "second")


class ConfigWithWorld(Config):
    consensus: World | None = None  # type: ignore[assignment,unused-ignore]


def world_of(**settings) -> RunTable:
    figures = [figure(name, table=f"consensus/{name}") for name in ("first", "second")]
    config = ConfigWithWorld(**{**dict(QUICK), "consensus": World(**settings)})
    return RunTable(config, Catalogue(figures=tuple(figures)))


def figure(name, **source) -> FigureConfig:
    return FigureConfig(id=name, paper="beyond", title="t", plot="lines", caption="Times.", **source)


def test_every_part_of_a_world_has_a_table():
    both = world_of(second=Part())
    assert both.tables["consensus/second"] == "results/quick/tables/consensus/second.parquet"
    assert both.rows_file(both.figures["beyond/second"]) == both.tables["consensus/second"]
    assert {"capacity", "consensus/first"} <= both.tables.keys()


def test_figure_whose_table_is_not_made_is_left_out():
    assert set(world_of().figures) == {"beyond/first"}


def test_part_of_a_world_depends_on_no_other_part():
    alone, both = world_of(), world_of(second=Part(points=9))
    first = both.world_settings("consensus", "first")
    assert first == alone.world_settings("consensus", "first")
    assert first == {"part": "first", "config": {"servers": 20, "first": {"points": 3}}, "seed": 0}
    assert first != world_of(servers=5).world_settings("consensus", "first")


def test_table_of_times_is_there_only_if_they_are_measured():
    shown = figure("table02", table="efficiency")
    efficiency = EfficiencyConfig(dataset="digits", models=("lenet",), defenses={"none": ()}, repeats=7)
    measured = RunTable(QUICK.model_copy(update={"efficiency": efficiency}), Catalogue(figures=(shown,)))
    assert measured.tables["efficiency"] == "results/quick/tables/efficiency.parquet"
    assert measured.caption("beyond/table02") == "Times. Data: digits. Networks: lenet. n = 7 repetitions."
    unmeasured = RunTable(QUICK.model_copy(update={"efficiency": None}), Catalogue(figures=(shown,)))
    assert unmeasured.figures == {}
    assert "efficiency" not in unmeasured.tables


def test_verdicts_are_counted_only_if_a_figure_claims_something():
    board = figure("scoreboard", table="scoreboard")
    claim = ClaimConfig(id="rises", text="It rises.", test="increasing")
    claiming = figure("fig09", study="capacity", claims=(claim,))
    both = RunTable(QUICK, Catalogue(figures=(board, claiming)))
    assert both.rows_file(both.figures["beyond/scoreboard"]) == "results/quick/tables/scoreboard.parquet"
    assert RunTable(QUICK, Catalogue(figures=(board,))).figures == {}


def test_attack_on_gradients_is_told_the_size_of_a_batch():
    study = QUICK.studies["gradient_inversion"].model_copy(update={"batch_sizes": (1, 8), "defenses": {"none": ()}})
    jobs = table(QUICK.model_copy(update={"studies": {"batch": study}}))
    one, eight = (jobs.runs[f"digits/lenet_sigmoid/none/n0-b{size}"] for size in (1, 8))
    assert jobs.attack_settings("gradient_inversion", eight)["batch_size"] == 8
    assert "batch_size" not in jobs.attack_settings("gradient_inversion", one)
    trained = jobs.attack_settings("membership", Run("digits", "lenet", "none", None, 10, 8))
    assert "batch_size" not in trained


def test_origin_of_noise_reaches_exactly_the_jobs_that_draw_noise():
    jobs = table(QUICK.model_copy(update={"privacy_noise": "secure"}))
    noisy = {"natural", "white", "personalized", "dpsgd", "dppsac"}
    for run in jobs.runs.values():
        told = {"privacy_noise": "secure"} if run.defense in noisy else {}
        if run.rounds > 0:
            found = [jobs.tuning_settings(run), jobs.training_settings(run)]
            assert "privacy_noise" not in jobs.attack_settings("membership", run)
        else:
            found = [jobs.attack_settings("gradient_inversion", run)]
        for settings in found:
            assert {name: settings[name] for name in settings if name == "privacy_noise"} == told, run.slug
    assert jobs.world_settings("consensus", "averaging")["privacy_noise"] == "secure"
    assert "privacy_noise" not in jobs.world_settings("consensus", "privacy")
    assert "privacy_noise" not in jobs.world_settings("theory", "case1")


def test_origin_of_noise_reaches_the_table_of_times():
    for defenses, told in (({"none": (), "natural": (4.0,)}, True), ({"none": ()}, False)):
        efficiency = EfficiencyConfig(dataset="digits", models=("lenet",), defenses=defenses)
        jobs = table(QUICK.model_copy(update={"efficiency": efficiency}))
        assert ("privacy_noise" in jobs.efficiency_settings()) is told


def job_settings(config) -> str:
    """All that any job of a configuration is told, as one text."""
    jobs = RunTable(config, CATALOGUE)
    runs = [run for run in jobs.runs.values() if run.rounds > 0]
    parts = [jobs.prepare_settings(name) for name in config.datasets]
    parts += [jobs.tuning_settings(run) for run in runs] + [jobs.training_settings(run) for run in runs]
    parts += [jobs.attack_settings(attack, run) for run in jobs.runs.values() for attack in jobs.attacks[run.slug]]
    families = {jobs.family(run.defense) for run in runs} - {None}
    parts += [jobs.spectrum_settings(family) for family in sorted(families)]
    parts += [jobs.channel_settings(key) for key in sorted({jobs.channel_key(run) for run in runs} - {None})]
    parts += [jobs.illustration_settings(name) for name in config.illustrations]
    parts += [jobs.table_settings(name) for name in config.studies]
    parts += [jobs.world_settings(*name.split("/")) for name in jobs.tables if "/" in name]
    parts += [jobs.tracking_settings(slug) for slug in jobs.runs] if config.tracking.enabled else []
    parts += [jobs.claims_settings(), sorted(jobs.figures), config.resources.model_dump(), config.catalogue]
    parts.append(config.tracking.ui)  # the report's links; its rule is told the whole configuration
    return repr(parts)


CATALOGUE = reading.load_catalogue(Path(__file__).parents[2] / "config" / "figures", QUICK)


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
    ("device",): "cpu",
    ("privacy_noise",): "secure",
    ("preset",): "other",
    ("catalogue",): "config/./figures",
    ("training", "max_stack"): 2,
    ("tracking", "uri"): "http://127.0.0.1:5000",
    ("tracking", "ui"): "http://127.0.0.1:5001",
}
PLAIN = QUICK.model_dump(mode="json", exclude_defaults=True) | {
    name: getattr(QUICK, name).model_dump(mode="json") for name in ("training", "attacks", "tracking", "resources")
}
PLAIN |= {
    name: getattr(QUICK, name)
    for name in ("preset", "seed", "privacy_noise", "replicas", "device", "catalogue", "alpha")
}
MUST_BE_ZERO = ("studies", "gradient_inversion", "rounds")
CHANGES = {
    trail: new
    for trail, value in leaves(PLAIN)
    if trail != MUST_BE_ZERO and (new := SPELT_OUT.get(trail, changed(value))) is not None
}


def test_settings_that_are_not_changed_are_names_or_empty():
    """What names and mappings stand for is tested by the other tests of the run table."""
    left = {trail: value for trail, value in leaves(PLAIN) if trail not in CHANGES and trail != MUST_BE_ZERO}
    names = {"dataset", "datasets", "models", "attacks"}
    assert all(value in ([], {}, None) or trail[-1] in names for trail, value in left.items())


@pytest.mark.parametrize("trail", CHANGES, ids=".".join)
def test_every_setting_reaches_a_job(trail):
    values = reading.yaml.safe_load(reading.as_yaml(QUICK))
    inner = values
    for key in trail[:-1]:
        inner = inner.setdefault(key, {})
    inner[trail[-1]] = CHANGES[trail]
    assert job_settings(reading.check(values, "test")) != job_settings(QUICK), f"{trail} reaches no job"
