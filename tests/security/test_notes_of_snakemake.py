"""Snakemake notes what a job depends on, the hashes of the original files too, and lets the owner's group read it."""

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from chain import ROOT, small_study

from leakbound.records.collection import Collection, write_pictures

CONFIG = small_study("notes", "mlp", {"dpsgd": [1.0]}, catalogue="config/figures.yaml")
CONFIG["datasets"] = {"mine": {"reader": "parquet", "members": 10, "test": 10, "aux": 10}}
CONFIG["studies"]["small"] |= {"datasets": ["mine"], "rounds": [1], "batch_sizes": [8]}


def original(path: Path, seed: int) -> None:
    """Private pictures as a reader takes them."""
    pixels = np.random.default_rng(seed).integers(256, size=(40, 1, 8, 8), dtype=np.uint8)
    write_pictures(path.parent, Collection(path, "parquet", pixels, np.arange(40) % 2, ("a", "b")), [pixels])


def readable_by_others(path: Path, top: Path) -> bool:
    """True if another account may read a file: its own bits, and those of all folders on the way."""
    allowed = stat.S_IMODE(path.stat().st_mode) & 0o044
    folders = [folder for folder in path.parents if folder != top and folder.is_relative_to(top)]
    return bool(allowed) and all(stat.S_IMODE(folder.stat().st_mode) & 0o011 for folder in folders)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_hashes_of_secret_originals_are_in_no_file_that_others_may_read(tmp_path, noise):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/figures.yaml").write_text("figures: []\n")
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump({**CONFIG, "privacy_noise": noise}))
    for seed, split in enumerate(("train", "test")):
        original(tmp_path / f"mine_{split}.parquet", seed)
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "workflow/Snakefile", "--directory", tmp_path]
    command += ["--configfile", tmp_path / "config/config.yaml", "-j", "1", "--", "results/notes/data/mine.json"]
    own = os.environ | {"LEAKBOUND_DATA": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=400, umask=0o022)
    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256((tmp_path / "mine_train.parquet").read_bytes()).hexdigest().encode()
    found = [path for path in tmp_path.rglob("*") if path.is_file() and digest in path.read_bytes()]
    assert len(found) >= 2  # the provenance and Snakemake's notes
    assert any(readable_by_others(path, tmp_path) for path in found) == (noise == "seeded")
