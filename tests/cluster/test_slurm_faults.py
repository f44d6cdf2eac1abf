"""Tables are the same whatever is killed on a real SLURM: jobs, their processes, and the coordinator."""

import json
import subprocess
import sys

from project_copy import ROOT
from slurm_settings import CHAIN


def test_tables_are_the_same_whatever_is_killed(slurm, tmp_path):
    config = tmp_path / "chain.yaml"
    config.write_text(json.dumps(CHAIN))
    script = ROOT / "tests" / "benchmarks" / "slurm_faults.py"
    options = ["--configfile", str(config), "--kills", "6", "--coordinators", "1", "--pause", "8", "--jobs", "1"]
    found = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr[-5000:]
    report = json.loads(found.stdout)
    assert report["faults"] == {"scancel": 3, "kill": 3, "coordinator": 1}
    assert report["retries"] >= 3
    assert report["tables"] > 20
