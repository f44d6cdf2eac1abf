import copy
import re
import warnings
from pathlib import Path
from typing import ClassVar, Literal, get_args

import pytest
import yaml

from leakbound.randomness.seeding import PrivacyNoise
from leakbound_lab.claims import tabulation
from leakbound_lab.config import reading
from leakbound_lab.config.attacks import Attack, AttackConfig
from leakbound_lab.config.catalogue import STUDY_COLUMNS, admitted
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.reading import ConfigError
from leakbound_lab.config.settings import Settings
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.registries import ATTACKS, MECHANISMS
from whole_catalogue import whole_catalogue

REPOSITORY = Path(__file__).parents[2]
PLAIN = yaml.safe_load(reading.as_yaml(reading.quick()))


class Mine(Defense):
    """A defense from outside."""

    stronger_with: ClassVar = "larger level"

    mechanism: Literal["mine"] = "mine"
    strength: int


class Guess(Attack):
    """An attack from outside."""

    function: ClassVar[str] = f"{__name__}:mistakes_of"

    auc: float = 0.5


TIMED = {"dataset": "digits", "models": ["lenet"], "defenses": {"none": []}}
MANY = [*range(1, 1001)]
OUTSIDE = {"mechanisms": {"mine": f"{__name__}:Mine"}, "attacks": {"guess": f"{__name__}:Guess"}}
OWN = {"plugins": OUTSIDE, "defenses": {"own": {"mechanism": "mine", "strength": 3}}}


def mistakes_of(**changes) -> str:
    """Message for the quick configuration with settings changed, dots written as ``__``."""
    values = copy.deepcopy(PLAIN)
    for key, value in changes.items():
        inner = values
        *way, last = key.split("__")
        for part in way:
            inner = inner[part]
        inner[last] = value
    with pytest.raises(ConfigError) as caught:
        reading.config_of(values, "some.yaml")
    return str(caught.value)


def test_generated_default_reads_back_as_itself():
    assert reading.config_of(PLAIN, "generated") == reading.quick()


def test_committed_default_and_schema_are_what_the_models_say():
    assert (REPOSITORY / "config" / "config.yaml").read_text() == reading.as_yaml(reading.quick())
    assert (REPOSITORY / "workflow/schemas/config.schema.json").read_text() == reading.schema()


def test_catalogue_is_one_file_or_all_of_a_folder():
    folder = REPOSITORY / "config" / "figures"
    parts = [reading.load_catalogue(path, reading.quick()).figures for path in sorted(folder.glob("*.yaml"))]
    assert len(parts) > 1
    assert reading.load_catalogue(folder, reading.quick()).figures == tuple(f for part in parts for f in part)


def test_unknown_key_names_the_nearest():
    message = mistakes_of(training__momentun=0.9)
    assert message.startswith("some.yaml: training.momentun: unknown setting; known: ")
    assert message.endswith("did you mean 'momentum'?")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"privacy_noise": "secured"}, "some.yaml: privacy_noise = 'secured': should be 'seeded' or 'secure'"),
        ({"replicas": "3"}, "replicas = '3': should be a valid integer"),
        ({"studies__capacity__lengths": "all"}, "lengths = 'all' needs rates: all"),
        ({"studies__capacity__models": ["lenett"]}, "studies.capacity.models[0] = 'lenett': unknown model"),
        ({"studies__capacity__defenses": {"natural": [-50.0]}}, "studies.capacity.defenses.natural[0] = -50.0"),
        ({"studies__capacity__defenses": {"natural": []}}, "needs at least one level"),
        ({"studies__capacity__defenses": {"none": [1.0]}}, "an undefended run has no level; give []"),
        ({"studies__capacity__defenses": {"natural": [1.0, 1.0]}}, "a level appears twice"),
        ({"studies__capacity__rounds": [0]}, "give rounds of at least 1"),
        ({"studies__gradient_inversion__rounds": [5]}, "give rounds: [0]"),
        ({"studies__capacity__batch_sizes": [101]}, "batch_sizes[0] = 101: digits has only 100 members"),
        ({"studies__capacity__defenses": {"large_batch": [2.0, 13.0]}}, "large_batch[1] = 13.0: makes batches of 416"),
        ({"studies__capacity__defenses": {"gradient_compression": [1.1]}}, "fraction of coordinates that is sent"),
        ({"studies__capacity__defenses": {"compression": [0.5]}}, "compression[0] = 0.5: compression needs the index"),
        ({"datasets": {"digts": {}}}, "datasets.digts = 'digts': unknown dataset"),
        ({"defenses": {"x": {"mechanism": "chanel"}}}, "did you mean 'channel'?"),
        ({"defenses": {"x": {"mechanism": "dpsgd", "learning_rates": [0.1]}}}, "tries equally many learning rates"),
        ({"defenses": {"x": {"mechanism": "channel", "weights": {"rows": [12, 40]}}}}, "0 <= first < after <= 32"),
        ({"studies__capacity__defenses": {"compression": [1024.0]}}, "compression[0] = 1024.0"),
        ({"studies__capacity__rounds": MANY, "studies__capacity__batch_sizes": MANY[:100]}, "runs, allowed are 100000"),
        ({"federated": {"models": {"digits": "mlp"}}}, "200 clients of at least 1 records each need 200"),
        ({"studies__capacity__datasets": ["digit"]}, "did you mean 'digits'?"),
        ({"studies__capacity__defenses": {"naturl": [1.0]}}, "did you mean 'natural'?"),
        ({"studies__capacity__attacks": ["membrship"]}, "did you mean 'membership'?"),
        ({"studies__capacity__defenses": {"large_batch": [1.5]}}, "large_batch[0] = 1.5: large_batch needs a factor"),
        ({"studies__capacity__defenses": {"channel_dpsgd": [0.0]}}, "channel_dpsgd needs its noise multiplier, > 0"),
        ({"defenses": {"x": {"mechanism": "channel", "shape": "natrual"}}}, "did you mean 'natural'?"),
        ({"defenses": {"dpsgd": {"mechanism": "dpsgd", "deltas": {"digts": 1e-6}}}}, "did you mean 'digits'?"),
        ({"illustrations__noisy_images__dataset": "digitz"}, "did you mean 'digits'?"),
        ({"efficiency": {**TIMED, "models": ["lenett"]}}, "efficiency.models[0] = 'lenett': unknown model"),
        ({"studies__capacity__also": ["canarys"]}, "capacity.also[0] = 'canarys': unknown study"),
        ({"tracking__uri": "file:./mlruns"}, "give a database"),
        ({"defenses": {"x": {"mechanism": "dpsgd", "learning_rates": [0.1, 0.1, 0.1]}}}, "appears twice"),
        ({"studies__gradient_inversion__attacks": []}, "nobody attacks"),
        ({"efficiency": {**TIMED, "dataset": "digts"}}, "efficiency.dataset = 'digts': unknown dataset"),
        ({"efficiency": {**TIMED, "defenses": {"natural": [1.0]}}}, "efficiency.defenses: lacks none"),
        ({**OWN, "efficiency": {**TIMED, "defenses": {"none": [], "own": [1.0]}}}, "cannot be timed step by step"),
        ({"studies__efficiency": PLAIN["studies"]["capacity"]}, "give the study another name"),
    ],
)
def test_mistake_is_named_with_key_value_and_what_is_allowed(changes, expected):
    assert expected in mistakes_of(**changes)


def test_all_mistakes_are_told_at_once():
    message = mistakes_of(replicas=0, seed=-1, device="tpu")
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize(
    ("budgets", "told"),
    [
        ([], ["should have at least 1 item"]),
        (["a"], ["[0] = 'a': should be a valid"]),
        (["a", "b"], ["[0] = 'a': should be a valid", "[1] = 'b': should be a valid"]),
    ],
)
def test_a_list_is_too_short_only_where_it_was_written_so(budgets, told):
    lines = mistakes_of(federated={"mi_budgets": budgets}).splitlines()
    assert len(lines) == len(told)
    assert all(expected in line for expected, line in zip(told, lines, strict=True))


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1\n", ""])
def test_file_that_is_no_mapping_is_named(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        reading.load(path)


def catalogue_of(tmp_path, **changes):
    """Read a catalogue of one figure of the quick preset's study of capacities, with changes."""
    figure = {"id": "x", "paper": "beyond", "title": "x", "study": "capacity", "plot": "levels", "caption": "x"}
    path = tmp_path / "figures.yaml"
    path.write_text(yaml.safe_dump({"figures": [figure | changes]}))
    return reading.load_catalogue(path, reading.quick())


def test_catalogue_with_an_unknown_plot_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'levels'"):
        catalogue_of(tmp_path, plot="levls")


@pytest.mark.parametrize("table", ["efficency", "theoy/case2", "capacity"])
def test_catalogue_with_a_table_that_nothing_makes_is_refused(tmp_path, table):
    with pytest.raises(ConfigError, match=rf"figures.beyond/x.table = '{table}': unknown table; known: .*theory/TABLE"):
        catalogue_of(tmp_path, study=None, table=table)


def claim_of(test="greater", **options) -> dict:
    return {"id": "c", "text": "x", "test": test, "delta": 0.01, "unit": "accuracy", "options": options}


NONE, NATURAL = {"defense": "none"}, {"defense": "natural"}


@pytest.mark.parametrize(
    ("claim", "select", "match"),
    [
        (claim_of(a=NONE, b=NATURAL), {}, "['level']"),
        (claim_of(a=NATURAL, b=NONE, match=["strength", "rounds"]), {}, "['strength', 'rounds']"),
        (claim_of("ordered", series=[NATURAL, NONE]), {}, "['level']"),
    ],
)
def test_a_claim_that_matches_levels_with_a_defense_that_has_none_is_refused(tmp_path, claim, select, match):
    said = re.escape(f"figures.beyond/x.claims.c.options.match = {match}: none, without a level, and natural")
    with pytest.raises(ConfigError, match=rf"{said}.* share no level, so nothing .* write match: \["):
        catalogue_of(tmp_path, claims=[claim], select=select)


@pytest.mark.parametrize("claim", [claim_of(a=NONE, b=NATURAL, match=[]), claim_of(a=NATURAL, b={"defense": "white"})])
def test_claims_that_can_match_are_read(tmp_path, claim):
    assert catalogue_of(tmp_path, claims=[claim]).figures[0].claims


def test_levels_that_a_study_has_in_part_are_read(tmp_path):
    level = reading.quick().studies["capacity"].defenses["natural"][0]
    for wanted in ([level, 5.5], [None, 5.5], level * (1 + 1e-12), {"not": 5.5}):
        assert catalogue_of(tmp_path, select={"level": wanted}).figures


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"select": {"defence": "none"}}, "select = 'defence': unknown column; known: .*did you mean 'defense'"),
        ({"select": {"source": "membershp"}}, "select.source = 'membershp': unknown source; .*mean 'membership'"),
        ({"select": {"source": ["training", "trained"]}}, "select.source = 'trained': unknown source; .*'training'"),
        (
            {"select": NATURAL, "claims": [claim_of(where=NATURAL, a={"metric": "x"}, b={"defense": "natrual"})]},
            "claims.c.options.b.defense = 'natrual': the figure's select.defense = 'natural' leaves no such row",
        ),
        ({"select": {"metric": "auc"}, "options": {"where": {"metric": "aux"}}}, "options.where.metric = 'aux': the "),
    ],
)
def test_conditions_that_no_row_can_meet_are_refused_before_a_run(tmp_path, changes, expected):
    with pytest.raises(ConfigError, match=rf"figures.beyond/x.{expected}"):
        catalogue_of(tmp_path, **changes)


def test_columns_that_a_figure_may_select_are_those_of_its_table():
    assert {*STUDY_COLUMNS} == {*tabulation.COLUMNS, "length"}


def test_settings_from_outside_are_parsed_by_their_own_class():
    values = {**PLAIN, **OWN}
    values["attacks"] = {**PLAIN["attacks"], "custom": {"guess": {"auc": 0.75}}}
    config = reading.config_of(values, "x")
    assert config.defense("own") == Mine(strength=3)
    assert config.attacks.all()["guess"] == Guess(auc=0.75)
    dumped = config.model_dump(mode="json")
    assert dumped["defenses"]["own"] == {"mechanism": "mine", "learning_rates": None, "strength": 3}
    assert dumped["attacks"]["custom"]["guess"] == {"auc": 0.75}
    assert reading.config_of(dumped, "x") == config


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"defenses": {"own": {"mechanism": "mine"}}}, "defenses.own.strength: is missing"),
        ({"defenses": {"own": {"strength": 3}}}, "defenses.own: mechanism is missing and has no default; known: "),
        ({"attacks": {"custom": {"uses": {}}}}, "attacks.custom: uses is built in: its settings are attacks.uses"),
        ({"defenses": {"own": {"mechanism": "mine", "strenght": 3}}}, "own.strenght: .*did you mean 'strength'"),
        (
            {"defenses": {"own": {"mechanism": "odd"}}},
            "mechanism 'odd' is no subclass of leakbound_lab.config.defenses.D",
        ),
        ({"defenses": {"own": {"mechanism": "gone"}}}, "mechanism 'gone' cannot be imported: .*no_such_module"),
        ({"attacks": {"custom": {"gues": {}}}}, "attacks.custom: unknown attack 'gues'; known: .*did you mean 'guess'"),
    ],
)
def test_mistake_in_settings_from_outside_is_named(changes, expected):
    mechanisms = {**OUTSIDE["mechanisms"], "odd": f"{__name__}:Guess", "gone": "no_such_module:Gone"}
    with pytest.raises(ConfigError, match=expected):
        reading.config_of({**PLAIN, "plugins": {**OUTSIDE, "mechanisms": mechanisms}, **changes}, "x")


class Reversed(Mine):
    """A defense whose fact has no value that is allowed."""

    stronger_with: ClassVar = "larger"


class Misspelt(Mine):
    """A defense whose client step has another name."""

    client_step: ClassVar[str] = "leakbound_lab.training.client_steps:ClientSteps"


with warnings.catch_warnings(action="ignore"):  # pydantic says that the field shadows an attribute

    class Unmarked(Mine):
        """A defense that states a fact like a setting."""

        draws_noise: bool = False


class Idle(Attack):
    """An attack without a function."""


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("mechanism", "Reversed", "Reversed.stronger_with = 'larger': should be 'larger level' or 'smaller level'"),
        ("mechanism", "Misspelt", "Misspelt.client_step = .*has no 'ClientSteps'; known: .*did you mean 'ClientStep'"),
        ("mechanism", "Unmarked", "Unmarked.draws_noise is a fact of the class .*annotate it as draws_noise: ClassVar"),
        ("attack", "Idle", "attack 'mine': Idle.function is missing; state it on the class"),
    ],
)
def test_facts_of_a_class_from_outside_are_checked_when_a_configuration_is_read(kind, name, expected):
    values = {**PLAIN, "plugins": {f"{kind}s": {"mine": f"{__name__}:{name}"}}}
    if kind == "attack":
        values["attacks"] = {**PLAIN["attacks"], "custom": {"mine": {}}}
    else:
        values["defenses"] = {"own": {"mechanism": "mine", "strength": 3}}
    with pytest.raises(ConfigError, match=expected):
        reading.config_of(values, "x")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("no_such_module:read", "there is no module 'no_such_module'; put the folder that holds it on PYTHONPATH"),
        ("leakbound_lab.datasets.digits:raad", "leakbound_lab.datasets.digits has no 'raad'; .*; did you mean 'read'"),
    ],
)
def test_plugin_that_does_not_exist_is_refused_before_a_job_imports_it(target, expected):
    with pytest.raises(ConfigError, match=f"plugins.datasets.mine = {target!r}: {expected}"):
        reading.config_of({**PLAIN, "plugins": {"datasets": {"mine": target}}}, "x")


def test_plugin_whose_package_lacks_a_library_is_refused_with_its_name(tmp_path, monkeypatch):
    (tmp_path / "needy").mkdir()
    (tmp_path / "needy/__init__.py").write_text("import no_such_library\n")
    (tmp_path / "needy/readers.py").write_text("def read(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    expected = "needy.readers cannot be imported: No module named 'no_such_library'"
    with pytest.raises(ConfigError, match=expected):
        reading.config_of({**PLAIN, "plugins": {"datasets": {"mine": "needy.readers:read"}}}, "x")


def test_every_built_in_class_of_settings_is_found_by_its_name():
    for name in MECHANISMS.builtin:
        assert MECHANISMS.get(name)().mechanism == name
    assert set(ATTACKS.builtin) == set(AttackConfig.model_fields) - {"custom"}
    for name in ATTACKS.builtin:
        assert type(AttackConfig().all()[name]) is ATTACKS.get(name)


def test_configuration_names_every_origin_of_noise():
    assert get_args(Config.model_fields["privacy_noise"].annotation) == get_args(PrivacyNoise)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, (1.0, 4.0, "natural")),
        (4.0, (4.0,)),
        ([1.0, "natural"], (1.0, "natural")),
        ({"not": 4.0}, (1.0, "natural")),
        ({"not": [1.0, "natural"]}, (4.0,)),
    ],
)
def test_conditions_choose_numbers_and_names_alike(wanted, chosen):
    assert admitted(wanted, (1.0, 4.0, "natural")) == chosen


def test_only_the_named_studies_are_run_and_drawn():
    config = reading.config_of({**PLAIN, "only": ["gradient_inversion"]}, "some.yaml")
    made = RunTable(config, whole_catalogue())
    assert [*config.studies] == [*made.studies] == ["gradient_inversion"]
    assert {run.rounds for run in made.runs.values()} == {0}  # no network is trained for it
    assert {figure.study for figure in made.figures.values()} == {"gradient_inversion", None}
    assert reading.config_of(config.model_dump(mode="json"), "again.yaml") == config  # as jobs read it
    assert reading.config_of({**PLAIN, "only": []}, "some.yaml") == reading.quick()


def test_an_unknown_study_of_only_is_refused_with_the_nearest_name():
    assert "only[1] = 'upload': unknown study" in (said := mistakes_of(only=["capacity", "upload"]))
    assert "did you mean 'uploads'" in said


def test_a_text_under_what_is_no_setting_is_no_description():
    class Own(Settings):
        kind: ClassVar[str] = "own"
        """A fact about the class."""

        size: int = 1
        """Number of records."""

        bare: int = 2

    assert Own.descriptions() == {"size": "Number of records."}
    properties = Own.model_json_schema()["properties"]
    assert {name: facts.get("description") for name, facts in properties.items()} == {
        "size": "Number of records.",
        "bare": None,
    }
