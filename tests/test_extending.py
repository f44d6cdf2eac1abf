"""The worked example of docs/extending.md is read as it stands: its modules are imported and its jobs are listed."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.registry import load

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
PLACED = re.findall(r"^```(?:python|yaml)\n# ((?:mine/)?[\w/]+\.(?:py|yaml))([^\n]*)\n(.*?)^```", PAGE, re.M | re.S)
MODULES = ("my_data", "my_settings", "my_training", "my_attack")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Write the files of the page where it says, and have its modules found."""
    texts: dict[str, str] = {}
    for name, _, text in PLACED:
        path = name if name.startswith("mine/") else f"mine/{name}"
        texts[path] = texts.get(path, "") + text
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_worked_example_is_whole(place):
    written = {path.name for path in (place / "mine").rglob("*.*")}
    assert written >= {*(f"{name}.py" for name in MODULES), "config.yaml", "mine.yaml"}
    jobs = list(job_list(reading.load(Path("mine/config.yaml"))))
    assert {"prepare", "train", "attack", "plot", "claims"} <= {job.step for job in jobs}
    assert sum(job.step == "attack" for job in jobs) == 3


def test_its_defense_rounds_and_its_reader_reads(place):
    step = load("my_training:RoundedStep", "step")(defense=None, level=1)
    (rounded,) = step.disguised([torch.tensor([1.0, 0.3, -0.2])], None)
    assert rounded.tolist() == [1.0, 0.5, 0.0]
    raw = load("my_data:read", "reader")("dark", None)
    assert raw.train.decode(np.arange(3)).shape == (3, 8, 8, 1)
