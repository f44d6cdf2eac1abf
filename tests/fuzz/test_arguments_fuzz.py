"""Whatever follows `leakbound` on the command line, it does its work or says what is wrong, and leaves nothing half."""

import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import assume
from hypothesis import strategies as st

from calling import Outcome, assert_refused, called, done, files_in, step_called, written_to
from fuzz.tally import tried
from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import Files, JobList
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.steps.job_list import all_steps
from studies import study
from whole_catalogue import whole_catalogue

REPOSITORY = Path(__file__).parents[2]
SMALL = {
    "preset": "fuzzed",
    "replicas": 1,
    "datasets": {"digits": {"members": 40, "pool": 100, "test": 20, "aux": 20}},
    "training": {"learning_rates": [0.1], "evaluations": 1},
    "studies": {
        "capacity": study(
            {"none": [], "natural": [4.0], "dpsgd": [1.0], "compression": [3.0]},
            ["membership", "model_inversion"],
            rounds=2,
            batch_size=8,
        ),
        "gradient_inversion": study({"natural": [4.0]}, ["gradient_inversion"], rounds=0, batch_size=1),
    },
    "illustrations": {"toy_example": {}, "weights": {}, "shapes": {"dataset": "digits", "levels": {"natural": [4.0]}}},
    "efficiency": {"dataset": "digits", "models": ["lenet"], "defenses": {"none": [], "natural": [4.0]}, "steps": 8},
    "consensus": {"servers": 4, "contributors": 3, "steps": 5, "averaging": {"runs": 20, "batches": 2}},
    "theory": {"case1": {"n_clients": 5, "draws": 2}, "case2": {}, "case3": None, "surface": None, "general": None},
    "federated": {
        "models": {"digits": "mlp"},
        "sweeps": ["means", "composition"],
        "n_clients": 4,
        "communication_rounds": 1,
    },
}
LONG = ("train", "references", "attack", "measure", "federate", "log", "log-figures")
"""Commands that take long, or that start MLflow, once all is right: only tried with something that is not."""
KIND_OF = {"attacks": "table", "channels": "channel", "curves": "table", "federated": "table", "provenance": "record"}
KIND_OF |= {"members": "moments", "rows": "table", "spectra": "spectrum", "references": "weights", "trained": "rates"}
"""Option to the kind of file that it reads, where its name does not say it."""


@dataclass(frozen=True)
class Example:
    """A step as the workflow calls it.

    Attributes:
        settings: Its plain settings.
        arguments: What its function takes by name, values of the configuration.
        inputs: Parameter, of files by name with the name, to the kind of file that it reads.
        outputs: Options of what it writes.
    """

    command: str
    settings: dict
    arguments: Mapping[str, Any]
    inputs: dict[str, str]
    outputs: tuple[str, ...]

    def name_of(self, option: str) -> str:
        """Name of the file that it writes for an option."""
        return "picture.svg" if option == "svg" else option


def inputs_of(role: str, files: Files) -> Iterator[tuple[str, str]]:
    """Options of what a job reads, with the kind of file."""
    kind = KIND_OF.get(role, role)
    if isinstance(files, str):
        yield role, kind
    elif isinstance(files, dict):
        yield from ((f"{role}={name}", kind) for name in files)
    else:
        yield "root", "root"


def examples() -> Iterator[Example]:
    """The first jobs of each step, attack and set of options that a small configuration has."""
    config = reading.config_of(SMALL, "small")
    table = RunTable(config, whole_catalogue())
    alike: Counter[tuple[str, ...]] = Counter()
    for job in JobList(table, all_steps()):
        inputs = dict(pair for role, files in job.inputs.items() for pair in inputs_of(role, files))
        command, key = job.step.replace("_", "-"), (job.step, job.settings.get("attack", ""), *inputs)
        alike[key] += 1
        if command != "report" and alike[key] <= (1 if command in LONG else 2):
            yield Example(command, json.loads(job.settings_text()), job.arguments, inputs, tuple(job.outputs))


EXAMPLES = tuple(examples())


@dataclass(frozen=True)
class Place:
    """A folder with good and bad files, and one for what commands write."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def file(self, kind: str) -> Path:
        return self.folder / "files" / kind

    def keep(self, kind: str, content: bytes) -> None:
        """Write a file with its seal, so that readers look at what is in it."""
        with storage.atomic(self.file(kind)) as path:
            path.write_bytes(content)

    def clear(self) -> None:
        for name in files_in(self.out):
            (self.out / name).unlink()

    def call(self, example: Example, settings: dict, inputs: dict[str, str], **others: Path) -> Outcome:
        """Call a step with files of this folder, and write into it."""
        self.clear()
        read = {option: self.file(kind) for option, kind in inputs.items()}
        written = {option: self.out / example.name_of(option) for option in example.outputs}
        return step_called(example.command, settings, {**read, **written, **others}, example.arguments)


KINDS = ("dataset", "moments", "spectrum", "channel", "rates", "weights", "table", "record", "costs", "configuration")
WRONG = ("missing", "empty", "noise", "folder", "no-parquet.parquet", "cut", "arrays", "list", "below-a-file")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A file of each kind that a command reads, made by the commands, and files that none would read."""
    made = Place(tmp_path_factory.mktemp("place") / "deep" / "deeper" / "deepest")
    files = made.file("")
    files.mkdir(parents=True)
    made.out.mkdir()
    first = {example.command: example for example in reversed(EXAMPLES)}

    def make(command: str, **outputs: str) -> None:
        example = first[command]
        done(made.call(example, example.settings, example.inputs))
        for option, kind in outputs.items():
            made.keep(kind, (made.out / option).read_bytes())

    make("prepare", out="dataset", provenance="record")
    make("covariance", out="moments")
    make("spectrum", out="spectrum")
    make("calibrate", out="channel")
    plain = next(one for one in EXAMPLES if one.command == "train" and "channel" not in one.inputs)
    done(made.call(plain, plain.settings, plain.inputs))
    made.keep("weights", (made.out / "weights").read_bytes())
    made.keep("rates", (made.out / "rates").read_bytes())
    made.keep("table", (made.out / "rows").read_bytes())
    made.keep("costs", (REPOSITORY / "src/leakbound_lab/jobs/costs.csv").read_bytes())
    made.keep("configuration", yaml.safe_dump(SMALL).encode())
    made.keep("empty", b"")
    made.keep("noise", bytes(range(256)) * 20)
    made.keep("no-parquet.parquet", b"a,b\n1,2\n")
    made.keep("cut", made.file("dataset").read_bytes()[:5000])
    made.file("folder").mkdir()
    made.file("root").mkdir()
    made.file("below-a-file").symlink_to(made.file("empty") / "x")
    storage.write_json(made.file("list"), [1, "x", None])
    storage.write_arrays(made.file("arrays"), {"x": np.zeros((2, 2))}, {"classes": "7", "name": "x"})
    made.clear()
    return made


@pytest.fixture(autouse=True)
def _apart(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths lead into the folder; images are not downloaded."""
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("LEAKBOUND_DATA", str(place.file("folder")))


def assert_done_or_refused(place: Place, outcome: Outcome, example: Example) -> bool:
    """Whether a step did its work; otherwise it said why not."""
    if outcome.code:
        assert_refused(outcome, place.out)
        return False
    assert written_to(place.out) == {example.name_of(option) for option in example.outputs}
    return True


@tried("input files", example=st.sampled_from([one for one in EXAMPLES if one.inputs]), data=st.data())
def test_files_of_another_kind_are_refused(place, example, data):
    option = data.draw(st.sampled_from(sorted(example.inputs)))
    kind = data.draw(st.sampled_from([one for one in (*KINDS, *WRONG) if one != example.inputs[option]]))
    assume((example.command, kind) not in {("plot", "rates"), ("log-figures", "folder")})  # these they can read
    outcome = place.call(example, example.settings, {**example.inputs, option: kind})
    assert_refused(outcome, place.out)
    if not (option == "root" or "give both" in outcome.message):
        assert any(str(place.file(one)) in outcome.message for one in {kind, *example.inputs.values()})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.command)
@pytest.mark.parametrize("wrong", ["folder", "empty/x", "/proc/x"])
def test_outputs_that_cannot_be_written_are_refused_before_anything_is_computed(place, example, wrong):
    """The first command of a long chain says it, not the last one after hours."""
    for option in example.outputs:
        missing = dict.fromkeys(example.inputs, "missing")
        outcome = place.call(example, example.settings, missing, **{option: place.file(wrong)})
        assert_refused(outcome, place.out)
        assert str(place.file(wrong)) in outcome.message


def test_every_step_has_an_example():
    assert {step.name.replace("_", "-") for step in all_steps()} == {one.command for one in EXAMPLES} | {"report"}


@pytest.mark.parametrize("kind", [*KINDS, *WRONG])
@pytest.mark.parametrize(
    "words", [("plan", "--configfile"), ("config", "--configfile"), ("report", "--configfile"), ("plan", "--table")]
)
def test_configurations_and_tables_of_costs_are_read_or_refused(place, words, kind):
    configuration = ["--configfile", place.file("configuration")] if words[1] == "--table" else []
    (place.folder / "config").mkdir(exist_ok=True)
    if not (place.folder / "config" / "figures").exists():
        (place.folder / "config" / "figures").symlink_to(REPOSITORY / "config" / "figures")
    outcome = called(*words, place.file(kind), *configuration)
    good = kind == ("costs" if words[1] == "--table" else "configuration")
    if good and words[0] != "report":
        assert outcome.code == 0
        assert outcome.out
    else:
        assert_refused(outcome, place.out)
        assert str(place.file(kind)) in outcome.message or good


def test_a_table_of_costs_with_other_numbers_is_refused_by_line(place):
    lines = place.file("costs").read_text().splitlines()
    table = pd.DataFrame([line.split(",", 6) for line in lines[1:4]], columns=lines[0].split(","))
    table.loc[1, "value"] = "fast"
    table.to_csv(place.file("slow"), index=False)
    outcome = called("plan", "--configfile", place.file("configuration"), "--table", place.file("slow"))
    assert_refused(outcome, place.out)
    assert f"{place.file('slow')}: line 3" in outcome.message


@pytest.mark.parametrize(
    ("kind", "strings"),
    [("BF16", "{}"), ("F8_E4M3", "{}"), ("F32", "[1]"), ("F32", '{"a": 1}'), ("F32", "[" * 100_000)],
)
def test_arrays_of_foreign_types_and_strings_are_refused(place, kind, strings):
    size = {"BF16": 2, "F8_E4M3": 1, "F32": 4}[kind]
    header = {"__metadata__": {"strings": strings}, "x": {"dtype": kind, "shape": [1], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    place.keep("foreign", struct.pack("<Q", len(text)) + text + bytes(size))
    place.clear()
    outcome = step_called("covariance", {}, {"dataset": place.file("foreign"), "out": place.out / "out"})
    assert_refused(outcome, place.out)
    assert f"{place.file('foreign')}: cannot be read" in outcome.message
