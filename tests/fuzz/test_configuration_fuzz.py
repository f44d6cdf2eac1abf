"""Whatever stands in a configuration, it either makes a run table or is refused with one line for each mistake."""

import inspect
import json
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import yaml

from calling import assert_refused, called
from fuzz.tally import tried
from fuzz.values import changed, damaged, odd_values
from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import Catalogue
from leakbound_lab.config.messages import ConfigError, read_yaml
from leakbound_lab.jobs.job import Job, JobList, Step
from leakbound_lab.jobs.job_costs import job_cost
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.jobs.unit_costs import UnitCosts, read_costs
from leakbound_lab.steps.job_list import all_steps
from whole_catalogue import whole_catalogue

REPOSITORY = Path(__file__).parents[2]
PRESETS = sorted((REPOSITORY / "config").glob("*.yaml"))
QUICK = reading.quick()
TREES = tuple(read_yaml(path) for path in PRESETS)
PLAIN = read_yaml(REPOSITORY / "config" / "config.yaml")
FIGURES = sorted((REPOSITORY / "config" / "figures").glob("*.yaml"))
CATALOGUES = tuple(read_yaml(path) for path in FIGURES)
TEXTS = tuple(path.read_bytes() for path in PRESETS)
WORDS = (
    *(b"&a ", b"*a", b"<<: ", b"!!int x", b"!!timestamp x", b"!!python/name:os.system ", b"2024-13-45", b"0x_", b"? "),
    *(b"- ", b": ", b"{", b"[" * 30, b"'", b'"', b"|\n", b"%YAML 9\n", b"---\n", b"on: 1\n", b"a: &a [*a]\n"),
)
SOURCE = "some.yaml"
STEPS = all_steps()
COSTS = UnitCosts(read_costs(), "cpu")
FIRST = 20
"""Jobs of each step whose settings are read again; wide configurations have thousands."""


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return whole_catalogue()


def lines_of(error: ConfigError, source: str) -> list[str]:
    """The lines of a refusal, after a look at their form: each names the source, none dumps a value."""
    lines = str(error).splitlines()
    assert lines
    for line in lines:
        assert line.startswith(f"{source}: ")
        assert len(line) < len(source) + 1100
        assert line.isprintable()
    assert len(lines) <= 51
    return lines


def first_jobs(table: RunTable) -> Iterator[tuple[Step, Job]]:
    """The first jobs of each step, as the workflow would call them."""
    for step in STEPS:
        yield from ((step, job) for job in islice(step.jobs(table), FIRST))


@tried("configuration", case=changed(TREES, odd_values))
def test_every_configuration_is_refused_or_makes_jobs_that_take_their_settings(catalogue, case):
    values, changes = case
    try:
        config = reading.config_of(values, SOURCE)
    except ConfigError as error:
        lines = lines_of(error, SOURCE)
        if [kind for kind, _ in changes] == ["replace"]:
            names = [part for part in changes[0][1] if isinstance(part, str)]
            assert any(name in line for line in lines for name in names[-2:])
        return
    table = RunTable(config, catalogue)
    for step, job in first_jobs(table):
        assert isinstance(json.loads(job.settings_text()), dict)
        inspect.signature(step.command).bind_partial(**job.arguments)
        if step.name == "report":
            assert reading.config_of(dict(job.settings), "settings") == job.arguments["config"] == config
    if len(table.runs) <= 50:
        found = [job_cost(job, COSTS) for job in JobList(table, STEPS)]
        assert all(math.isfinite(one.cpu_seconds) and one.cpu_seconds >= 0 for one in found)


@tried("configuration text", content=damaged(TEXTS, WORDS))
def test_every_text_is_read_or_refused(tmp_path, content):
    path = tmp_path / "damaged.yaml"
    path.write_bytes(content)
    try:
        reading.load(path)
    except ConfigError as error:
        lines_of(error, str(path))
        outcome = called("plan", "--configfile", path)
        path.unlink()
        assert_refused(outcome, tmp_path)


@tried("catalogue", case=changed(CATALOGUES, odd_values))
def test_every_catalogue_is_refused_or_chooses_figures(tmp_path, case):
    path = tmp_path / "figures.yaml"
    path.write_text(yaml.safe_dump(case[0], allow_unicode=True), encoding="utf-8", errors="replace")
    try:
        found = reading.load_catalogue(path, QUICK)
    except ConfigError as error:
        lines_of(error, str(path))
        return
    table = RunTable(QUICK, found)
    for job in (job for step in STEPS if step.name in ("plot", "claims") for job in step.jobs(table)):
        json.dumps(job.settings, allow_nan=False)
    assert all(table.caption(key) for key in table.figures)


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "line 1, column 41: more than 40 mappings and lists are inside each other"),
        ("\n".join(" " * depth + "a:" for depth in range(60)), "line 41, column 41: more than 40 mappings"),
        (BOMB, "more than 100000 values, aliases counted"),
        ("seed: 1\nreplicas: 2\nseed: 3\n", "line 3, column 1: 'seed' is set twice, first in line 1"),
        ("seed: 2024-13-45", "line 1, column 7: '2024-13-45' is no timestamp"),
        ("a: " + "9" * 5000, "is no int"),
        ("a" * 2**20 + ": 1", "has more than 1048576 bytes"),
        ("levels: [1:30]", "line 1, column 10: 1:30 means 90 in YAML, to the base of 60"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed"),
    ],
)
def test_texts_that_would_crash_a_reader_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        reading.load(path)
    assert message in str(caught.value)
    assert lines_of(caught.value, str(path)) == [str(caught.value)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicas": "1e2"}, "should be a valid integer; this is read as text: write 100"),
        ({"training": {"learning_rates": 0.1}}, "training.learning_rates = 0.1: should be a valid list; write [0.1]"),
        ({"training": {"learning_rates": ["0.1"]}}, "Snakemake's --config makes text of numbers inside lists"),
        ({"training": {"learning_rates": ["1e-3"]}}, "this is read as text: write 0.001"),
        ({"replicas": 10**9}, "replicas = 1000000000: should be less than or equal to 1000"),
        ({"seed": 2**63}, "seed = 9223372036854775808: is too large a number"),
        ({"alpha": float("nan")}, "alpha = nan: must be a finite number"),
        ({True: 1}, "top: has the key True; keys are text"),
        ({"plugins": {"models": {"mine": "os.path"}}}, "plugins.models.mine = 'os.path': should match pattern"),
        ({"x" * 5000: 1}, f"{'x' * 80}...: unknown setting"),
        ({f"x{index}": 1 for index in range(99)}, "some.yaml: and 49 more mistakes"),
    ],
)
def test_values_that_nobody_means_are_refused_by_name(changes, message):
    with pytest.raises(ConfigError) as caught:
        reading.config_of({**PLAIN, **changes}, SOURCE)
    assert message in str(caught.value)
    lines_of(caught.value, SOURCE)


def test_jobs_of_all_steps_are_tried():
    """A step whose jobs the fuzz above does not list would escape it."""
    config = reading.load(REPOSITORY / "config" / "small.yaml")
    table = RunTable(config, reading.load_catalogue(REPOSITORY / config.catalogue, config))
    assert {step.name for step, _ in first_jobs(table)} == {step.name for step in STEPS}
