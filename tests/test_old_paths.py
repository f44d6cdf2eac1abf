"""Modules and names that have moved are found by their old paths, in a process of their own."""

import importlib.util
import pickle
import subprocess
import sys

from leakbound import moved
from leakbound_lab.datasets.splits import Drawing


def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=False)


def test_an_old_path_is_a_second_name_of_the_module_and_a_warning_says_the_new_one():
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from leakbound.datasets.splits import Drawing
    import leakbound.cli.people.protect
    from leakbound.config import data
said = [str(warning.message) for warning in caught]
assert "leakbound.datasets.splits is now leakbound_lab.datasets.splits" in said, said
assert "leakbound.cli.people.protect is now leakbound.commands.protect" in said, said
assert {warning.filename for warning in caught} == {"<string>"}, [warning.filename for warning in caught]
import leakbound_lab.config.data, leakbound_lab.datasets.splits, leakbound.commands.protect
assert Drawing is leakbound_lab.datasets.splits.Drawing
assert leakbound.cli.people.protect is leakbound.commands.protect
assert data is leakbound_lab.config.data and data.__spec__.name == "leakbound_lab.config.data"
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_a_pickle_of_before_opens(tmp_path):
    drawing = Drawing(members=3, validation=2, seed=1, stratified=False, canaries=1)
    old = pickle.dumps(drawing, 0).replace(b"leakbound_lab.datasets.splits", b"leakbound.datasets.splits")
    (tmp_path / "old.pickle").write_bytes(old)
    done = run(f"import pickle; print(pickle.load(open({str(tmp_path / 'old.pickle')!r}, 'rb')))")
    assert done.stdout.strip() == repr(drawing), done.stderr


def test_every_old_path_leads_to_a_module():
    assert [old for old, new in moved.MOVED.items() if importlib.util.find_spec(new) is None] == []


def test_the_longest_old_path_decides():
    assert moved.place_now("leakbound.datasets.collection") == "leakbound.records.collection"
    assert moved.place_now("leakbound.datasets.originals") == "leakbound_lab.datasets.originals"
    assert moved.place_now("leakbound.cli.people.compare") == "leakbound_lab.commands.compare"
    assert moved.place_now("leakbound.cli.inputs") == "leakbound_lab.steps.inputs"
    assert moved.place_now("leakbound.engine.engine") == "leakbound.engine.engine"
    assert moved.place_now("outside.datasets") == "outside.datasets"


def test_the_exported_name_that_moved_is_still_there():
    code = "from leakbound import load_run as old; from leakbound_lab import load_run; assert old is load_run"
    done = run(code, "-W", "always")
    assert done.returncode == 0, done.stderr
    assert "leakbound.load_run is now leakbound_lab.load_run" in done.stderr


def test_what_never_was_there_is_not_found():
    done = run("import leakbound.nothing")
    assert "ModuleNotFoundError: No module named 'leakbound.nothing'" in done.stderr


def test_importing_the_library_loads_nothing_of_the_lab_and_no_package_from_outside():
    """And its engine none of the packages of the extra ``workflow``."""
    code = "import sys; before = set(sys.modules); import leakbound; print(*sorted({*sys.modules} - before))"
    new = set(run(code).stdout.split())
    assert {name.partition(".")[0] for name in new} - sys.stdlib_module_names == {"leakbound"}
    assert {name for name in new if name.startswith("leakbound")} == {"leakbound", "leakbound.moved"}
    code = "import sys, leakbound; leakbound.ChannelEngine; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run(code).stdout.split()}
    extra = {"leakbound_lab", "pandas", "pydantic", "yaml", "mlflow", "opacus", "matplotlib", "snakemake"}
    assert "torch" in loaded
    assert loaded & extra == set()
