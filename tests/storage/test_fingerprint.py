import ast
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

import leakbound
import leakbound_lab
from leakbound_lab.jobs import fingerprint

PACKAGES = (leakbound, leakbound_lab)
uncached = fingerprint.code_fingerprint.__wrapped__
STEPS = {
    "prepare": "leakbound_lab.datasets.digits",
    "calibrate": "leakbound.channels.shapes",
    "train": "leakbound_lab.models.small leakbound_lab.training.sgd",
    "attack": "leakbound_lab.attacks.membership.attack",
    "plot": "leakbound_lab.figures.plots.lines",
    "consensus": "leakbound.storage",
    "theory": "leakbound.storage",
    "log": "leakbound.storage",
}
PROBE = '''"""A step."""

from __future__ import annotations

from leakbound import registry
from leakbound.channels.shapes import Natural
from leakbound_lab.steps.added import read
from leakbound_lab.figures import style
from leakbound_lab.jobs.runs import Run

SIZE = 3


def jobs(table):
    """The jobs of a configuration."""
    from leakbound_lab.claims import trends

    return [Run(style, trends, _work)]


def _work():
    """The work in a job."""
    return 1


def probe(settings):
    """Compute."""
    from leakbound_lab.attacks.metrics import ssim

    return read(settings), Natural, ssim, registry, SIZE


STEP = (probe, jobs)
'''
ADDED = '''"""Readers of several commands."""

from leakbound_lab.papers.zeng2022.releases import allocate
from leakbound.randomness.seeding import derive_seed


def read(settings):
    """Read one thing."""
    return allocate(settings)


def read_other(settings):
    """Read another thing."""
    return derive_seed(settings)
'''


KNOWN: dict[tuple, object] = {}


def by_content(function: Callable) -> Callable:
    """A function of a module that is computed again when the module's file has changed, not once in a process."""

    def computed(module: str) -> object:
        path = fingerprint._path(module)
        key = function.__name__, module, path and path.read_bytes()
        if key not in KNOWN:
            KNOWN[key] = function.__wrapped__(module)
        return KNOWN[key]

    return computed


COMPUTED = {name: by_content(getattr(fingerprint, name)) for name in ("_definitions", "_read")}


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """A copy of the packages, with a step of its own."""
    copy = tmp_path_factory.mktemp("copied")
    for package in PACKAGES:
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "leakbound_lab/steps/probe.py").write_text(PROBE)
    (copy / "leakbound_lab/steps/added.py").write_text(ADDED)
    return copy


@pytest.fixture
def package(copied, monkeypatch) -> Iterator[Path]:
    """The copy, which may be edited and is restored, read in the place of the packages."""
    for one in PACKAGES:
        monkeypatch.setattr(one.__spec__, "submodule_search_locations", [str(copied / one.__name__)])
    for name, function in COMPUTED.items():
        monkeypatch.setattr(fingerprint, name, function)
    monkeypatch.setattr(fingerprint, "_path", fingerprint._path.__wrapped__)
    before = {path: path.read_bytes() for path in copied.rglob("*.py")}
    yield copied
    for path, content in before.items():
        if path.read_bytes() != content:
            path.write_bytes(content)


def fingerprints() -> dict[str, str]:
    """Fingerprint of each step with something that it looks up."""
    return {step: uncached(f"leakbound_lab.steps.{step}", *looked_up.split()) for step, looked_up in STEPS.items()}


untouched = cache(fingerprints)
"""The same before anything is edited: so it is called first."""


def probed(*others: str) -> str:
    """Fingerprint of the added step."""
    return uncached("leakbound_lab.steps.probe", *others)


def edit(path: Path, addition: str) -> None:
    path.write_text(path.read_text() + addition)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_comments_and_docstrings_change_no_fingerprint(package):
    before = untouched()
    for path in package.rglob("*.py"):
        edit(path, "\n# a remark\n")
    replace(package / "leakbound" / "channels" / "shapes.py", '"""', '"""Said otherwise. ')
    assert fingerprints() == before


@pytest.mark.parametrize(
    ("edited", "reached"),
    [
        ("leakbound/accounting/gaussian.py", {"calibrate", "train", "attack", "theory", "log"}),
        ("leakbound_lab/datasets/digits.py", {"prepare"}),
        ("leakbound_lab/training/sgd.py", {"train"}),
        ("leakbound_lab/training/per_sample.py", set()),
        ("leakbound/channels/shapes.py", {"calibrate"}),
        ("leakbound_lab/figures/style.py", {"plot"}),
        ("leakbound_lab/config/consensus.py", {"consensus"}),
        ("leakbound_lab/config/whole.py", set()),
        ("leakbound/storage/files.py", set(STEPS)),
        ("leakbound_lab/tracking/run_records.py", {"log"}),
        ("leakbound_lab/registries.py", set()),
    ],
)
def test_edit_changes_the_fingerprints_of_what_reaches_it(package, edited, reached):
    before = untouched()
    edit(package / edited, "\n_ADDED = 1\n")
    after = fingerprints()
    assert {step for step in STEPS if after[step] != before[step]} == reached


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return [Run(style, trends, _work)]", "return []"),
        ("    return 1\n", "    return 2\n"),
        ("STEP = (probe, jobs)", "STEP = (probe, jobs, 'local')"),
        ("from leakbound_lab.figures import style", "from leakbound_lab.papers.zeng2022 import general as style"),
    ],
)
def test_edit_of_how_a_step_lists_and_plans_its_jobs_changes_nothing(package, old, new):
    before = probed()
    replace(package / "leakbound_lab/steps/probe.py", old, new)
    assert probed() == before


def test_edit_of_the_command_and_of_what_it_uses_beside_it_counts(package):
    found = [probed()]
    for old, new in (("SIZE = 3", "SIZE = 4"), ("ssim, registry", "registry, ssim")):
        replace(package / "leakbound_lab/steps/probe.py", old, new)
        found.append(probed())
    for old, new in (("allocate(settings)", "allocate(*settings)"), ("derive_seed(settings)", "derive_seed(0)")):
        replace(package / "leakbound_lab/steps/added.py", old, new)
        found.append(probed())
    assert len(set(found[:4])) == 4
    assert found[4] == found[3]  # another reader of the same file


def test_a_name_more_among_the_exports_changes_nothing(package):
    before = probed()
    edit(
        package / "leakbound" / "channels" / "__init__.py", "\nfrom leakbound.channels.shapes import White as Whitest\n"
    )
    assert probed() == before


@pytest.mark.parametrize(
    "statement",
    ["from leakbound.channels import Named", "import leakbound.channels.sampling", "from leakbound.channels import *"],
)
def test_whoever_imports_a_package_reaches_its_exports(package, statement):
    exports = "\nfrom leakbound.channels.randomized_response import RandomizedResponse as "
    edit(package / "leakbound" / "channels" / "__init__.py", f"{exports}Named\n")
    edit(package / "leakbound_lab" / "attacks" / "metrics.py", f"\n{statement}\n")
    before = probed()
    edit(package / "leakbound" / "channels" / "randomized_response.py", "\n_ADDED = 1\n")
    after = probed()
    assert after != before
    edit(package / "leakbound" / "channels" / "__init__.py", f"{exports}More\n")
    assert probed() != after


def test_a_name_that_comes_to_mean_something_else_counts_even_if_both_are_reached(package):
    edit(
        package / "leakbound_lab" / "attacks" / "metrics.py", "\nfrom leakbound.channels.shapes import White as Shape\n"
    )
    before = probed()
    replace(package / "leakbound_lab" / "attacks" / "metrics.py", "import White as Shape", "import Natural as Shape")
    assert probed() != before


def test_imports_for_type_checkers_alone_reach_nothing(package):
    before = probed()
    edit(
        package / "leakbound" / "channels" / "shapes.py",
        "\nif TYPE_CHECKING:\n    from leakbound_lab.papers.zeng2022 import general\n",
    )
    assert probed() == before
    edit(package / "leakbound_lab" / "papers" / "zeng2022" / "general.py", "\n_ADDED = 1\n")
    edit(package / "leakbound" / "channels" / "shapes.py", "\nif TYPE_CHECKING:\n    pass\nelse:\n    _ADDED = 1\n")
    assert probed() != before


def test_modules_that_are_looked_up_by_name_count_even_if_others_of_their_kind_do_not(package):
    before = probed()
    named = probed("leakbound_lab.tracking.store")
    assert named != before
    edit(package / "leakbound_lab" / "tracking" / "store.py", "\n_ADDED = 1\n")
    assert probed() == before
    assert probed("leakbound_lab.tracking.store") != named


def test_module_from_outside_counts_alone_unless_it_is_installed(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "outside")
    plugin = tmp_path / "outside" / "mine" / "nets.py"
    plugin.parent.mkdir(parents=True)
    (plugin.parent / "__init__.py").write_text("raise RuntimeError('was imported')\n")
    plugin.write_text("import leakbound_lab.papers.zeng2022.general\n")
    before = probed("mine.nets")
    assert before != probed() == probed("json") == probed("math") == probed("pandas.core.frame")
    edit(package / "leakbound_lab" / "papers" / "zeng2022" / "general.py", "\n_ADDED = 1\n")
    assert probed("mine.nets") == before
    edit(plugin, "ADDED = 1\n")
    assert probed("mine.nets") != before
    assert "mine" not in sys.modules


def test_what_is_not_there_is_named(package):
    with pytest.raises(ModuleNotFoundError, match=r"leakbound_lab\.models\.none"):
        probed("leakbound_lab.models.none")
    replace(package / "leakbound_lab/steps/probe.py", "def probe(", "def prove(")
    with pytest.raises(ValueError, match="probe has no function probe"):
        probed()


def test_imports_are_those_that_an_independent_reader_finds():
    graph = grimp.build_graph("leakbound", "leakbound_lab", exclude_type_checking_imports=True, cache_dir=None)
    names = {"leakbound", "leakbound_lab"}
    for module in graph.modules:
        expected = graph.find_modules_directly_imported_by(module) - names
        assert fingerprint._read(module)[1] - names == expected, module


def test_fingerprint_is_the_same_in_all_versions_of_python():
    """Python 3.12 added a field to functions and classes, and 3.13 leaves out empty ones."""
    tree = ast.parse("class One: ...\nasync def two(): ...\ndef three(): ...")
    written = fingerprint._text(ast.Module(fingerprint._executed(tree.body)))
    for node in tree.body:
        node._fields = (*(name for name in node._fields if name != "type_params"), "type_params")
        node.type_params = []
    assert "type_params" in fingerprint._text(tree)
    assert fingerprint._text(ast.Module(fingerprint._executed(tree.body))) == written
