"""The commands as a shell would call them: files in, files out, mistakes as one message."""

import inspect
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import snakemake.cli
import typer

import leakbound
from calling import called, done, refusal, refused, step_called, succeeded, training_arguments
from leakbound import storage
from leakbound.channels import population_moments
from leakbound.commands.command_line import Place, app, every_command
from leakbound_lab.commands.table import STEPS
from leakbound_lab.config.attacks import MembershipConfig
from leakbound_lab.config.defenses import Undefended
from leakbound_lab.steps.attack import AttackSettings
from leakbound_lab.steps.results import Usage, read_usage

ROOT = Path(__file__).parents[2]
PROGRAM = typer.main.get_command(app)
MODEL = {"dataset": "digits", "model": "lenet", "level": None, "batch_size": 16, "seed": 0, "device": "cpu"}
MODEL |= {"defense": {"mechanism": "none"}, "slug": "digits/lenet/none/n6-b16"}


def test_version_is_the_package_s():
    assert succeeded("--version").out == f"leakbound {leakbound.__version__}\n"


def test_help_shows_the_commands_for_people_and_one_line_for_the_steps():
    heads = {words[0] for line in succeeded("--help").out.splitlines() if (words := line.strip("│ ").split())}
    assert {"protect", "calibrate", "risk", "account", "audit", "demo", "publish", "plan", "report", "step"} <= heads
    assert not heads & {"prepare", "covariance", "train", "log-figures"}
    assert {"prepare", "log-figures", "report"} <= set(succeeded("step", "--help").out.split())


GROUPS = {(): PROGRAM, ("step",): PROGRAM.get_command(None, "step")}
EVERY = {
    (*path, name): group.get_command(None, name) for path, group in GROUPS.items() for name in group.list_commands(None)
}


@pytest.mark.parametrize("path", [(), *EVERY], ids=" ".join)
def test_help_ends_with_an_example_that_the_parser_takes(path, monkeypatch):
    command = EVERY.get(path, PROGRAM)
    monkeypatch.chdir(ROOT)
    for example in (command.epilog or "").split("\n\n"):
        label, program, *words = shlex.split(example)
        assert label == "Example:"
        if program == "snakemake":
            assert "step" in path
            snakemake.cli.parse_args(words[: words.index("shows")])
            continue
        assert (program, *words[: len(path)]) == ("leakbound", *path)
        command.make_context(" ".join(path), words[len(path) :])
    assert "Usage:" in succeeded(*path, "--help").out


def test_interrupted_command_ends_in_one_sentence(tmp_path):
    fifo = tmp_path / "costs.csv"
    os.mkfifo(fifo)
    words = [
        sys.executable,
        "-c",
        "from leakbound.commands.command_line import main; main()",
        "plan",
        "--table",
        str(fifo),
    ]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        with fifo.open("w"):  # waits until the command reads it
            running.send_signal(signal.SIGINT)
            running.wait()
        said = running.communicate()[1]
    assert running.returncode == 130
    assert said == "\nleakbound: interrupted; the same command goes on, or begins again\n"


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("plan --configfile config/smaller.yaml", "config/small.yaml"),
        ("plan --table src/leakbound_lab/jobs/cost.csv", "src/leakbound_lab/jobs/costs.csv"),
        ("calibrate test --target-leakage 1", "tests"),
        ("account results/reference/photos/provenanc.json", "results/reference/photos/provenance.json"),
        ("audit --checkpoint Makefile --script Containerfile:f --members MakeFil --others Makefile", "Makefile"),
        ("audit --checkpoint Makefil --script docs/conf.py:f --members {0} --others {0}", "Makefile"),
    ],
)
def test_file_that_is_not_there_gets_the_nearest_name(words, nearest, tmp_path, monkeypatch):
    np.savez(tmp_path / "records.npz", records=np.zeros((9, 2)), labels=np.zeros(9, int))
    monkeypatch.chdir(ROOT)
    said = refusal(*words.format(tmp_path / "records.npz").split())
    assert f"; did you mean {nearest!r}?" in said


def test_a_step_of_a_run_whose_configuration_nobody_wrote_names_the_handler_that_writes_it(tmp_path):
    """As in a workflow that takes this one in as a module without its handlers."""
    said = refusal("step", "prepare", "digits", "--configfile", tmp_path / ".configuration.json")
    assert "onstart: lab.onstart()" in said


def test_a_command_imports_no_other_one():
    """So that a job starts as fast whatever commands there are."""
    code = "import sys; from leakbound_lab.commands.table import STEPS; STEPS['theory'].function(); print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert loaded & {place.module for place in STEPS.values()} == {"leakbound_lab.steps.theory"}
    assert not loaded & {"torch", "pandas", "leakbound.commands.protect", "leakbound_lab.commands.plan"}


WITHOUT_COMPUTING = """
import os, sys
from leakbound.commands.command_line import main

sys.argv = ["leakbound"]
try:
    main()
finally:
    heavy = {"torch", "pandas", "mlflow", "matplotlib", "sklearn"} & {*sys.modules}
    assert not heavy, heavy
"""


def completed(line: str) -> list[str]:
    """Suggestions of bash after a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_LEAKBOUND_COMPLETE": "complete_bash"}
    script = f"import os; os.environ.update({words!r})\n{WITHOUT_COMPUTING}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_and_options_are_listed_without_loading_torch():
    assert completed("leakbound ") == [*every_command()]
    assert {"--nats", "--records"} <= {*completed("leakbound risk --")}


def loads(*words: str) -> set[str]:
    """Packages that a command has loaded when it ends."""
    code = (
        "import sys\nfrom leakbound.commands.command_line import main\ntry: main()\nfinally: print('\\n', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_the_help_of_all_commands_has_the_first_lines_of_each_and_loads_none():
    for name, place in every_command().items():
        if not isinstance(place, Place):
            continue
        first = inspect.getdoc(place.function()).split("\n\n")[0]
        assert place.line == " ".join(first.split("\n")), name
        assert place.line.split(".")[0].split()[-1] in called("--help").out, name
    assert not loads("--help") & {"numpy", "torch"}


def test_nats_are_translated_without_scipy():
    assert not loads("risk", "--nats", "2", "--records", "1000") & {"scipy", "torch", "pandas"}


def test_plan_is_made_without_torch():
    code = "import sys; from leakbound.commands.command_line import app; app(sys.argv[1:], standalone_mode=False); "
    words = ("plan", "--configfile", "config/small.yaml", "-j", "4")
    command = [sys.executable, "-c", f"{code}print('torch' in sys.modules)", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Wall time with 4 jobs side by side" in result.stdout
    assert result.stdout.endswith("False\n")


def test_device_of_the_plan_is_the_one_asked_for(monkeypatch):
    monkeypatch.chdir(ROOT)
    words = ("plan", "--configfile", "config/config.yaml")
    assert "on a CPU" in called(*words).out
    assert "on a GPU" in called(*words, "--device", "cuda").out
    assert "on a GPU" in called("plan", "--configfile", "config/one_gpu_hour.yaml").out


HEADER = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"


@pytest.mark.parametrize(
    ("row", "usage"),
    [
        ("12.5\t0:00:12\t801.25\t5000\t1\t1\t0\t-\t97.5\t11.75", Usage(12.5, 801.25, 11.75)),
        ("0.1234\t0:00:00\tNA\t-\t-\t-\t-\t-\t-\t-", Usage(0.1234, 0.0, 0.0)),  # ended before the first sample
    ],
)
def test_time_and_memory_are_those_of_the_benchmark_file(tmp_path, row, usage):
    path = tmp_path / "train.tsv"
    path.write_text(f"{HEADER}{row}\n")
    assert read_usage(path) == usage


@pytest.mark.parametrize(
    "text", ["", HEADER, "s\tmax_rss\n1\t2\n", "s\tmax_rss\tcpu_time\n1\tx\t2\n", "s\tcpu_time\n1\t2\n1\t2\n"]
)
def test_file_that_is_no_such_table_is_refused(tmp_path, text):
    path = tmp_path / "train.tsv"
    path.write_text(text)
    with pytest.raises(storage.DamagedFileError, match="no table of time and memory"):
        read_usage(path)


SHAPE = {"shape": "natural", "weights": {"rows": [12, 20], "columns": [8, 24], "weight": 50.0}}


def step(name: str, settings: dict, **files: Path) -> None:
    """Call a step with its settings and its files by their options."""
    done(step_called(name, settings, files))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with small digits, their covariance, and a natural spectrum."""
    folder = tmp_path_factory.mktemp("chain")
    settings = {"dataset": "digits", "config": {"members": 60, "pool": 160, "test": 60, "aux": 60}, "seed": 0}
    step("prepare", settings, out=folder / "digits.safetensors", provenance=folder / "digits.json")
    step("covariance", {}, dataset=folder / "digits.safetensors", out=folder / "moments.safetensors")
    step("spectrum", SHAPE, moments=folder / "moments.safetensors", out=folder / "spectrum.safetensors")
    return folder


def calibrated(folder: Path, spectrum: str, members: str, **settings: object) -> dict[str, Path]:
    """Calibrate a channel; returns its file and that of its spectrum."""
    files = {"channel": folder / "channel.safetensors", "spectrum": folder / f"{spectrum}.safetensors"}
    written = {"out": files["channel"], "provenance": folder / "channel.json"}
    read = {"spectrum": files["spectrum"], "members": folder / f"{members}.safetensors"}
    step("calibrate", {"shape": "natural", **settings}, **read, **written)
    return files


def trained(folder: Path, rates: list[float], kept: str = "chosen", files: dict | None = None, **changed) -> dict:
    """Provenance of a short training."""
    training = {"evaluations": 3 if changed else 1, "learning_rates": rates}
    settings = {**MODEL, "training": training, "keeps_all": kept == "all", "rounds": 6, "replicas": 2, **changed}
    outputs = {"weights": "w.safetensors", "rates": "rates.parquet", "rows": "rows.parquet", "provenance": "p.json"}
    written = {role: folder / name for role, name in outputs.items()}
    files = {"dataset": folder / "digits.safetensors", **written, **(files or {})}
    done(step_called("train", settings, files, training_arguments(settings)))
    return storage.read_json(folder / "p.json")


def test_training_tries_every_candidate_and_keeps_the_chosen_one_of_each_replica(prepared):
    trained(prepared, [0.01, 0.1], "all")
    every, both = storage.read_arrays(prepared / "w.safetensors"), pd.read_parquet(prepared / "rates.parquet")
    assert both[["replica", "learning_rate"]].to_numpy().tolist() == [[0, 0.01], [0, 0.1], [1, 0.01], [1, 0.1]]
    assert both["kept"].all()
    trained(prepared, [0.01, 0.1])
    kept, table = storage.read_arrays(prepared / "w.safetensors"), pd.read_parquet(prepared / "rates.parquet")
    best = table.groupby("replica")["validation_accuracy"].max()
    assert table.loc[table["chosen"], "validation_accuracy"].tolist() == best.tolist()
    assert table["kept"].tolist() == table["chosen"].tolist()
    for name, array in kept.items():
        assert np.array_equal(array, every[name][table["chosen"].to_numpy()])


def test_diverged_candidate_is_recorded_in_the_provenance(prepared):
    found = trained(prepared, [0.01, 100.0])
    told = [(row["diverged"], row["chosen"], row["validation_accuracy"] is None) for row in found["rates"]]
    assert told[:2] == [(False, True, False), (True, False, True)]
    assert found["diverged"] == [False, False]
    assert len(found["events"]) == 4  # candidates that nobody keeps have seen the records too


@pytest.mark.parametrize("mechanism", ["channel", "dpsgd", "channel_dpsgd", "none"])
def test_the_accountant_s_curve_ends_at_the_bound_that_the_provenance_states(prepared, mechanism):
    channel = calibrated(prepared, "spectrum", "moments", capacity=4.0)
    defense = {"mechanism": mechanism} | ({"capacity": 4.0} if mechanism == "channel_dpsgd" else {})
    level = {"channel": 4.0, "dpsgd": 1.0, "channel_dpsgd": 0.1, "none": None}[mechanism]
    files = channel if mechanism.startswith("channel") else {}
    found = trained(prepared, [0.01, 0.1], "all", files, defense=defense, level=level)
    rows = pd.read_parquet(prepared / "rows.parquet").query("metric == 'leakage'")
    if mechanism == "none":
        assert rows.empty
        assert found["leakage"] is None
        return
    curves = [own["value"].tolist() for _, own in rows.groupby(["replica", "learning_rate"])]
    assert len(curves) == 4
    assert all(len(curve) == 3 and curve == sorted(curve) and curve[0] > 0 for curve in curves)
    assert max(curve[-1] for curve in curves) == found["leakage"]["replica"]["record"]


def test_moments_are_those_of_the_pixels_that_pass_the_channel(prepared):
    """Estimated on pixels from 0 to 1 and used on pixels from -1 to 1, a channel has a quarter of its noise."""
    images = storage.read_arrays(prepared / "digits.safetensors")
    for of, part in (("aux", "aux_images"), ("members", "pool_images")):
        out = prepared / f"{of}.safetensors"
        step("covariance", {"covariance": of}, dataset=prepared / "digits.safetensors", out=out)
        found, rows = storage.read_arrays(out), images[part].reshape(len(images[part]), -1).astype(float)
        np.testing.assert_allclose(found["mean"], rows.mean(axis=0), atol=1e-9)
        lengths = np.square(rows - rows.mean(axis=0)).sum(axis=1)
        error = lengths.var() / lengths.mean() ** 2 / len(rows)  # squared and relative, of the total variance
        raised = len(rows) / (len(rows) - 1) / (1 - error) if of == "aux" else 1.0
        assert np.trace(found["covariance"]) == pytest.approx(raised * rows.var(axis=0).sum(), rel=1e-9)


def test_images_on_another_scale_than_the_channel_was_calibrated_to_are_refused(prepared):
    """Once, nothing noticed: capacities of aux and of members were both counted on the wrong scale."""
    images = storage.read_arrays(prepared / "digits.safetensors")
    halves = [(images[part].reshape(len(images[part]), -1) + 1) / 2 for part in ("aux_images", "pool_images")]
    for name, rows in zip(("half", "half-members"), halves, strict=True):
        storage.write_arrays(prepared / f"{name}.safetensors", population_moments(rows).arrays())
    step("spectrum", SHAPE, moments=prepared / "half.safetensors", out=prepared / "half-spectrum.safetensors")
    files = calibrated(prepared, "half-spectrum", "half-members", capacity=4.0)
    with pytest.raises(AssertionError, match="accept_capacity"):
        trained(prepared, [0.01], files=files, defense={"mechanism": "channel"}, level=4.0)
    with pytest.raises(AssertionError, match="accept_capacity"):
        calibrated(prepared, "half-spectrum", "moments", capacity=4.0)
    files = calibrated(prepared, "half-spectrum", "moments", capacity=4.0, accept_capacity=4.0)
    trained(prepared, [0.01], files=files, defense={"mechanism": "channel"}, level=4.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["step", "calibrat"], "Did you mean 'calibrate'?"), (["prepare", "digits"], "No such command")],
)
def test_command_that_is_not_there_is_named(words, message):
    assert message in refusal(*words)


@pytest.mark.parametrize(
    ("settings", "dataset", "message"),
    [
        ({}, "spectrum", "`leakbound step prepare`"),
        ({}, "none", "cannot be read"),
        ({"device": "cuda"}, "digits", "no CUDA"),
    ],
)
def test_mistake_ends_with_its_message_and_leaves_nothing(prepared, monkeypatch, settings, dataset, message):
    monkeypatch.chdir(prepared)
    assert message in refused(step_called("covariance", settings, {"dataset": f"{dataset}.safetensors", "out": "x"}))
    assert not (prepared / "x").exists()


def test_attack_on_membership_asks_for_its_references_before_it_reads_weights(prepared, monkeypatch):
    monkeypatch.chdir(prepared)
    shared = {name: MODEL[name] for name in ("model", "level", "seed", "device", "slug")}
    settings = AttackSettings(attack="membership", config=MembershipConfig(), defense=Undefended(), **shared)
    files = {"dataset": "digits.safetensors", "weights": "none", "rates": "none"}
    files |= {"rows": "x", "arrays": "y", "provenance": "z"}
    said = refused(step_called("attack", settings.plain(), files, {"settings": settings}))
    assert "membership compares with reference networks: give --references, written by `step references`" in said
    said = refused(step_called("attack", settings.plain(), files | {"references": "none"}, {"settings": settings}))
    assert "give both --references and --trained, or neither" in said


def test_defect_of_ours_keeps_its_traceback(prepared, monkeypatch):
    """Only what explains itself is turned into a message; a bug is not hidden."""
    monkeypatch.setattr(storage, "read_arrays_and_metadata", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step_called("covariance", {}, {"dataset": prepared / "digits.safetensors", "out": prepared / "x"})
