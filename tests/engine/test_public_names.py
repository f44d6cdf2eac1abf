"""``import leakbound`` costs nothing until a name is used."""

import subprocess
import sys

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


def test_every_public_name_leads_somewhere():
    for name in leakbound.__all__:
        assert getattr(leakbound, name) is not None
        assert name in dir(leakbound)
    with pytest.raises(AttributeError, match="no attribute 'Chanel'"):
        _ = leakbound.Chanel
