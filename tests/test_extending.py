"""The worked example of docs/extending.md is read as it stands: its modules are imported and its jobs are listed."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

from calling import done, job_called
from leakbound import storage
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import SeededNoise
from leakbound_lab.config import reading
from leakbound_lab.config.defenses import Undefended
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.steps.job_list import job_list, try_networks
from leakbound_lab.training.client_steps import ClientStep

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
PLACED = re.findall(r"^```(?:python|yaml)\n# ((?:mine/)?[\w/]+\.(?:py|yaml))([^\n]*)\n(.*?)^```", PAGE, re.M | re.S)
MODULES = ("my_data", "my_models", "my_settings", "my_training", "my_attack")


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


def test_its_jobs_run_and_its_attack_scores_networks_of_its_dataset(place):
    jobs = job_list(reading.load(Path("mine/config.yaml")))
    for job in jobs.of("prepare", "train", "attack"):
        done(job_called(job))
    for job in jobs.of("attack"):
        assert storage.read_rows(Path(job.outputs["rows"]))["value"].between(0.3, 0.7).all()


def test_its_defense_rounds(place):
    step = importlib.import_module("my_training").RoundedStep(defense=None, level=1)
    (rounded,) = step.disguised([torch.tensor([1.0, 0.3, -0.2])], None)
    assert rounded.tolist() == [1.0, 0.5, 0.0]


def with_networks(**targets):
    """The configuration of the page with networks of its own, and a quick attack."""
    path = Path("mine/config.yaml")
    text = path.read_text().replace("models: [mlp]", f"models: [{', '.join(targets)}]")
    names = ", ".join(f'{name}: "my_models:{target}"' for name, target in targets.items())
    text = text.replace("plugins:\n", f"plugins:\n  models: {{{names}}}\n")
    text = text.replace("attacks: [guess]", "attacks: [model_inversion]")
    path.write_text(text.replace("attacks:\n", "attacks:\n  model_inversion: {iterations: 1}\n"))
    return reading.load(path)


def test_a_dry_run_tells_of_networks_that_jobs_could_not_make(place):
    torch.save(torch.nn.Conv2d(1, 8, 3).state_dict(), "pretrained.pt")
    with (place / "mine" / "my_models.py").open("a") as file:
        file.write("print('said')\nclass Fixed(Tuned):\n    def __init__(self, colors, classes): pass\n")
    config = with_networks(tiny="Tiny", tuned="Tuned", fixed="Fixed")
    table = config.datasets["dark"].model_copy(update={"reader": "table", "path": "rows.csv"})
    study = config.studies["tried"].model_copy(update={"datasets": ("dark", "rows")})
    changes = {"datasets": {**config.datasets, "rows": table}, "studies": {"tried": study}}
    with pytest.raises(ConfigError) as told:
        try_networks(config.model_copy(update=changes), "mine.yaml")
    fixed, *tables = str(told.value).splitlines()
    assert fixed.startswith("mine.yaml: datasets.dark: fixed cannot be built")
    assert fixed.endswith("for others the constructor needs the keyword size")
    assert [line.partition(" takes images, not tables")[0] for line in tables] == [
        f"mine.yaml: datasets.rows: {name}" for name in ("fixed", "tiny", "tuned")
    ]


def test_a_dry_run_refuses_networks_whose_uploads_cannot_be_scored_where_they_are(place):
    with (place / "mine" / "my_models.py").open("a") as file:
        file.write(
            "class Normed(Tiny):\n    def __init__(self, colors, classes, size=32):\n"
            "        super().__init__(colors, classes, size)\n"
            "        self.head = torch.nn.utils.parametrizations.weight_norm(self.head)\n"
        )
    config = with_networks(tiny="Tiny", normed="Normed")
    try_networks(config, "mine.yaml")
    study = config.studies["tried"].model_copy(update={"attacks": ("membership_uploads",)})
    with pytest.raises(ConfigError) as refused:
        try_networks(config.model_copy(update={"studies": {"tried": study}}), "mine.yaml")
    (line,) = str(refused.value).splitlines()
    assert line.startswith("mine.yaml: datasets.dark: normed: trains no linear layer that sees each record once")
    assert line.endswith("leave out membership_uploads for this network")


def test_frozen_weights_that_changed_after_the_training_are_refused(place):
    first = torch.nn.Conv2d(1, 8, 3).state_dict()
    torch.save(first, "pretrained.pt")
    jobs = job_list(with_networks(tuned="Tuned"))
    attack = next(job for job in jobs.of("attack") if "/none/" in job.name)
    for job in (*jobs.of("prepare"), *(job for job in jobs.of("train") if "/none/" in job.name), attack):
        done(job_called(job))
    torch.save({name: value + 0.1 for name, value in first.items()}, "pretrained.pt")
    result = job_called(attack)
    assert result.code != 0
    assert "the frozen weights of tuned are no longer those that it was trained with" in result.message


def test_the_step_on_images_keeps_their_shape_and_type():
    (body,) = re.findall(r"^```python\n(def released.*?)^```", PAGE, re.M | re.S)
    names: dict[str, object] = {}
    exec(body, names)
    step = type("Boxed", (ClientStep,), {"released": names["released"]})(Undefended(), 0.5)
    images = torch.linspace(-1, 1, 128).view(2, 1, 8, 8)
    seen = step.inputs(images, torch.tensor([[0, 1]]), [SeededNoise(torch_generator(0, "x"))]).take(
        torch.tensor([[0, 1]])
    )
    assert (seen[0] - images.clamp(-0.9, 0.9)).abs().max() <= 0.5
