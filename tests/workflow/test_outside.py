"""Things from outside the package run through the whole workflow by one line of configuration each."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from studies import study

PLUGINS = {
    "datasets": {"mine": "outside:read"},
    "models": {"tiny": "outside:Tiny"},
    "shapes": {"cautious": "outside:Cautious"},
    "mechanisms": {"homemade": "outside_settings:Homemade"},
    "attacks": {"guess": "outside_settings:Guess"},
    "plots": {"dots": "outside:draw"},
    "illustrations": {"numbers": "outside:table"},
    "claim_tests": {"always": "outside:always"},
}
DEFENSES = {"careful": [16.0], "homemade": [1.0]}
STUDY = study(DEFENSES, ["guess"], datasets=["mine"], models=["tiny"], rounds=4, batch_size=16)
CLAIM = {"id": "holds", "text": "It holds.", "test": "always"}
FIGURE = {"paper": "beyond", "title": "Mine", "plot": "dots", "options": {"marker": "o"}, "caption": "Mine."}


@pytest.mark.slow
def test_one_of_each_kind_from_outside_runs_through_the_workflow(fresh):
    for name in ("outside.py", "outside_settings.py"):
        shutil.copy(Path(__file__).with_name(name), fresh.folder / "src")
    figures = [
        {"id": "guesses", "study": "own_study", "select": {"metric": "auc"}, "claims": [CLAIM], **FIGURE},
        {"id": "numbers", "illustration": "numbers", **FIGURE},
    ]
    (fresh.folder / "config" / "own.yaml").write_text(yaml.safe_dump({"figures": figures}))
    defenses = {
        "careful": {"mechanism": "channel", "shape": "cautious"},
        "homemade": {"mechanism": "homemade", "care": 3},
    }
    fresh.configure(
        {
            "preset": "tiny",
            "replicas": 2,
            "catalogue": "config/own.yaml",
            "plugins": PLUGINS,
            "datasets": {"mine": {"members": 60, "pool": 150, "test": 60, "aux": 60}},
            "defenses": defenses,
            "training": {"learning_rates": [0.01], "evaluations": 1},
            "attacks": {"custom": {"guess": {"auc": 0.75}}},
            "studies": {"own_study": STUDY},
            "illustrations": {"numbers": {}},
            "tracking": {"enabled": False},
        }
    )
    result = fresh.snakemake()
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    rows = pd.read_parquet(fresh.results / "tables" / "own_study.parquet")
    assert set(rows[rows["source"] == "guess"]["value"]) == {0.75}
    assert set(rows["model"]) == {"tiny"}
    assert pd.read_parquet(fresh.results / "claims.parquet")["verdict"].eq("holds").all()
    assert (fresh.results / "figures" / "beyond" / "guesses.svg").is_file()
    provenance = json.loads((fresh.results / "runs/mine/tiny/careful-16/n4-b16/provenance.json").read_text())
    assert provenance["settings"]["plugins"]["models"] == {"tiny": "outside:Tiny"}

    provenance = json.loads((fresh.results / "runs/mine/tiny/homemade-1/n4-b16/provenance.json").read_text())
    assert provenance["settings"]["defense"] == {"mechanism": "homemade", "learning_rates": None, "care": 3}

    module = fresh.folder / "src" / "outside.py"
    module.write_text(module.read_text().replace("torch.relu", "torch.tanh"))
    assert fresh.planned()["train"] == 2  # an edit of an outside module reruns what uses it
