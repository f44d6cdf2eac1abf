"""A store whose making is cut off: MLflow cannot go on from half of its tables, so they must never be seen."""

import signal
import subprocess
import sys

from leakbound.tracking.store import connect, upgrade_store

KILLED = """
import os, signal, sys
from mlflow.store.db import utils
from leakbound.tracking.store import upgrade_store
utils._upgrade_db = lambda engine: os.kill(os.getpid(), signal.SIGKILL)  # what follows upon the first tables
upgrade_store(sys.argv[1])
"""


def test_store_whose_making_was_killed_is_made_by_the_next_one(tmp_path):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert subprocess.run([sys.executable, "-c", KILLED, uri]).returncode == -signal.SIGKILL
    assert not (tmp_path / "mlflow.db").exists()
    assert list(tmp_path.glob(".mlflow.db.*/.mlflow.db"))
    upgrade_store(uri)
    assert [experiment.name for experiment in connect(uri).search_experiments()] == ["Default"]
    assert {path.name for path in tmp_path.iterdir()} == {"mlartifacts", "mlflow.db", "mlflow.db.lock"}
