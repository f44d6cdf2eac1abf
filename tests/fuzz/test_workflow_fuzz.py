"""A broken configuration ends Snakemake with its mistakes, one line each, before any job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
STUDY = {"datasets": ["digits"], "models": ["lenet"], "defenses": {"none": []}, "rounds": [2], "batch_sizes": [8]}
GOOD = yaml.safe_dump({"preset": "tiny", "datasets": {"digits": {"members": 40}}, "studies": {"capacity": STUDY}})


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (GOOD, ["--config", "replicas=2", "alpha=high"], "alpha = 'high': should be a valid number"),
        (f"{GOOD}preset: other\n", [], "'preset' is set twice"),
    ],
    ids=["overrides", "key twice"],
)
def test_snakemake_ends_with_the_mistake_and_makes_nothing(tmp_path, text, options, message):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "figures").symlink_to(REPOSITORY / "config" / "figures")
    (tmp_path / "broken.yaml").write_text(text)
    command = [sys.executable, "-m", "snakemake", "-n", "--snakefile", str(REPOSITORY / "workflow/Snakefile")]
    done = subprocess.run(
        [*command, "--configfile", "broken.yaml", *options],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / ".cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "results").exists()
