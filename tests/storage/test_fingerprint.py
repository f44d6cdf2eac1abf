import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "prepare": ("leakbound.cli.data:prepare", "leakbound.datasets.digits"),
    "calibrate": ("leakbound.cli.channels:calibrate", "leakbound.channels.shapes"),
    "train": ("leakbound.cli.training:train", "leakbound.models.lenet"),
    "attack": ("leakbound.cli.attacks:attack", "leakbound.attacks.membership"),
    "plot": ("leakbound.cli.figures:plot", "leakbound.figures.plots.lines"),
    "consensus": ("leakbound.cli.consensus:consensus", "leakbound.storage"),
    "theory": ("leakbound.cli.theory:theory", "leakbound.storage"),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """The package as it stands when the tests begin."""
    source = tmp_path_factory.mktemp("original") / "src"
    subprocess.run(["cp", "-r", str(ROOT / "src"), str(source)], check=True)
    return source / "leakbound"


@pytest.fixture
def copy(tmp_path, original) -> Path:
    """A copy of the package that may be edited."""
    subprocess.run(["cp", "-r", str(original.parent), str(tmp_path / "src")], check=True)
    return tmp_path / "src" / "leakbound"


def fingerprints(package: Path) -> dict[str, str]:
    """Fingerprint of each command as a fresh process sees it."""
    lines = "; ".join(f"print(code_fingerprint({c!r}, {m!r}))" for c, m in COMMANDS.values())
    script = f"from leakbound.storage.fingerprint import code_fingerprint; {lines}"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
        cwd=package,
    )
    return dict(zip(COMMANDS, found.stdout.split(), strict=True))


@pytest.fixture(scope="module")
def plain(original) -> dict[str, str]:
    """Fingerprints of the package as it stands; every copy has the same."""
    return fingerprints(original)


def edit(path: Path, addition: str) -> None:
    path.write_text(path.read_text() + addition)


def test_comments_and_docstrings_change_no_fingerprint(copy, plain):
    for path in copy.rglob("*.py"):
        edit(path, "\n# a remark\n")
    shapes = copy / "channels" / "shapes.py"
    shapes.write_text(shapes.read_text().replace('"""', '"""Said otherwise. ', 1))
    assert fingerprints(copy) == plain


@pytest.mark.parametrize(
    ("edited", "reached"),
    [
        ("gaussian.py", {"calibrate", "train", "attack", "theory"}),
        ("datasets/digits.py", {"prepare"}),
        ("training/loop.py", {"train"}),
        ("training/stack.py", {"train", "attack"}),
        ("channels/shapes.py", {"calibrate"}),
        ("channels/sampling.py", {"train"}),
        ("attacks/membership.py", {"attack"}),
        ("attacks/gradient_inversion.py", set()),
        ("figures/style.py", {"plot"}),
        ("figures/plots/heatmaps.py", set()),
        ("theory/exchangeable.py", {"theory"}),
        ("consensus/privacy.py", {"consensus"}),
        ("config/theory.py", {"theory"}),
        ("config/consensus.py", {"consensus"}),
        ("config/training.py", {"train"}),
        ("config/catalogue.py", {"plot"}),
        ("config/execution.py", set()),
        ("config/whole.py", set()),
        ("storage.py", set(COMMANDS)),
        ("studies.py", set()),
        ("tracking/store.py", set()),
        ("registry.py", set()),
    ],
)
def test_edit_changes_the_fingerprints_of_what_reaches_it(copy, plain, edited, reached):
    edit(copy / edited, "\n_ADDED = 1\n")
    after = fingerprints(copy)
    assert {name for name in COMMANDS if after[name] != plain[name]} == reached


def test_edit_of_one_command_leaves_its_neighbours_alone(copy, plain):
    path = copy / "cli" / "data.py"
    path.write_text(path.read_text().replace("began = time.time()", "began = time.time() + 0", 1))
    after = fingerprints(copy)
    assert {name for name in COMMANDS if after[name] != plain[name]} == {"prepare"}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in COMMANDS if after[name] != before[name]}


def test_a_name_more_among_the_exports_changes_nothing(copy, plain):
    edit(copy / "config" / "__init__.py", "\nfrom leakbound.config.execution import PluginsConfig as Plugins\n")
    edit(copy / "channels" / "__init__.py", "\nfrom leakbound.channels.shapes import White as Whitest\n")
    assert fingerprints(copy) == plain


def test_whoever_imports_the_whole_configuration_reaches_every_section(copy):
    edit(copy / "cli" / "channels.py", "\nfrom leakbound.config.whole import Config\n_ADDED = Config\n")
    path = copy / "cli" / "channels.py"
    path.write_text(
        path.read_text().replace("read_settings(settings, CalibrateJob)", "read_settings(_ADDED, CalibrateJob)")
    )
    before = fingerprints(copy)
    edit(copy / "config" / "execution.py", "\n_ADDED = 1\n")
    assert changed(before, fingerprints(copy)) == {"calibrate"}


@pytest.mark.parametrize(
    "statement",
    [
        "_ADDED = 1",
        "import leakbound.channels.sampling",
        "from leakbound.channels.weights import *",
        "from .weights import box_weights",
        "for _ADDED in (): pass",
        "__all__ += ['more']",
        "import os",
    ],
)
def test_any_statement_but_a_plain_export_makes_a_package_count_as_a_whole(copy, plain, statement):
    """An edit of the shapes reaches training only through the package's own file."""
    edit(copy / "channels" / "__init__.py", f"\n{statement}\n")
    before = fingerprints(copy)
    assert {"calibrate", "train", "attack"} <= changed(plain, before)
    edit(copy / "channels" / "shapes.py", "\n_ADDED = 1\n")
    assert {"calibrate", "train", "attack"} <= changed(before, fingerprints(copy))


@pytest.mark.parametrize(
    "statement",
    [
        "np.seterr(all='raise')",
        "np.random.shared = 1",
        "with np.errstate(): pass",
        "@np.vectorize\ndef _added(): pass",
        "if True:\n    np.seterr(all='raise')",
    ],
)
def test_a_module_that_acts_when_imported_counts_wherever_its_package_is_imported(copy, statement):
    edit(copy / "channels" / "shapes.py", f"\n{statement}\n")
    before = fingerprints(copy)
    edit(copy / "channels" / "shapes.py", "\n_ADDED = 1\n")
    assert {"calibrate", "train", "attack"} <= changed(before, fingerprints(copy))


def test_a_name_that_comes_to_mean_something_else_counts_even_if_both_are_reached(copy, plain):
    path = copy / "channels" / "__init__.py"
    text = path.read_text()
    path.write_text(text.replace("import Moments, estimate_moments", "import Moments as Moments_, estimate_moments", 1))
    edit(path, "\nfrom leakbound.channels.channel import Channel as Moments\n")
    assert "calibrate" in changed(plain, fingerprints(copy))


def test_imports_for_type_checkers_alone_reach_nothing(copy):
    edit(copy / "channels" / "shapes.py", "\nif TYPE_CHECKING:\n    from leakbound.metrics import ssim\n")
    before = fingerprints(copy)
    edit(copy / "metrics.py", "\n_ADDED = 1\n")
    assert "calibrate" not in changed(before, fingerprints(copy))


def test_a_registered_thing_may_be_given_by_its_attribute(copy):
    lines = "print(code_fingerprint('leakbound.cli.data:prepare', {}))"
    found = []
    for given in ("'leakbound.datasets.digits'", "'leakbound.datasets.digits:read'", "'json:dumps'", "'json'"):
        script = f"from leakbound.storage.fingerprint import code_fingerprint; {lines.format(given)}"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": str(copy.parent)},
            capture_output=True,
            text=True,
            check=True,
            cwd=copy,
        )
        found.append(done.stdout)
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0] != found[2]
