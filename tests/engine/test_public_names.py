"""``import leakbound`` costs nothing until a name is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import leakbound


def test_names_load_what_they_need_and_the_package_nothing():
    steps = [
        ("__version__", "numpy"),
        ("LeakageAccountant", "torch"),
        ("Leakage", "torch"),
        ("ChannelEngine", "sklearn"),
    ]
    script = "import sys, leakbound\n"
    script += "\n".join(f"leakbound.{name}; assert {module!r} not in sys.modules" for name, module in steps)
    subprocess.run([sys.executable, "-c", script], check=True)


def test_readers_load_scikit_learn_only_for_texts_and_missing_values():
    script = "import sys, leakbound.records.collection; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_names_are_listed_and_others_refused():
    assert {*leakbound.__all__} <= {*dir(leakbound)}
    with pytest.raises(AttributeError, match="no attribute 'Chanel'"):
        _ = leakbound.Chanel


def test_type_checkers_are_told_of_the_same_objects():
    """The stub's imports, run as they stand, give what the package gives."""
    told: dict[str, object] = {}
    exec(Path(leakbound.__file__).with_suffix(".pyi").read_text(), told)
    named = {name for name in told if not name.startswith("__")} | set(told["__annotations__"])
    assert named == set(leakbound.__all__)
    assert all(told[name] is getattr(leakbound, name) for name in named - {"__version__"})
