"""The column of the workflow in the table of the product: a table, a training on it, stated against true."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chain import run_jobs, small_study

from leakbound import storage
from leakbound_lab.steps.inputs import read_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from situations import ALL, PUBLIC, ROWS, SITUATIONS, Front, outcome

pytestmark = pytest.mark.slow
ALONE = ("correlated owners", "windows", "copies of rows")
NAMES = [*ALONE, *(f"{name}, owners given" for name in ALONE[:2]), "labels uncounted"]
STEPS = {"prepare", "covariance", "spectrum", "calibrate", "train"}


class Workflow(Front):
    """A table of the rows among those of others, and a network that uses each record of its members once."""

    name, has = "workflow", frozenset({"owners", "labels"})

    def make(self, target=None, public=PUBLIC, **options):
        return {"public": public}

    def release(self, made, rows=ROWS, views=ALL, *, owners=None, labels=None, name=None):
        others, count = made["public"][: 900 - len(rows)], len(rows)
        whose = np.arange(900)
        whose[:count] = np.arange(count) if owners is None else owners
        whose[count:] += 900
        frame = pd.DataFrame(np.concatenate([rows, others]), columns=[f"x{place}" for place in range(rows.shape[1])])
        label = np.resize(np.arange(10), 900)
        label[:count] = label[:count] if labels is None else labels
        frame.assign(person=whose, label=label).to_csv(self.folder / "table.csv", index=False)
        sizes = {"members": 250, "validation": 40, "pool": 560, "test": 100, "aux": 240}
        data = {"people": {**sizes, "reader": "table", "path": "table.csv", "owner": "person"}}
        if owners is None:
            del data["people"]["owner"]
            frame.assign(label=label).to_csv(self.folder / "table.csv", index=False)
        config = small_study("product", "mlp", {"natural": [3.0]}, replicas=1, datasets=data, privacy_noise="secure")
        config["studies"]["small"] |= {"datasets": ["people"], "rounds": [1], "batch_sizes": [250]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LEAKBOUND_DATA", str(self.folder))
            root, _ = run_jobs(self.folder, config, patch, STEPS)
        channel = storage.read_arrays(root / "channels/people/natural-3.safetensors")
        assert np.ptp(channel["variances"]) == 0  # natural noise is the same for all values
        # Values were divided by three deviations of the attacker's records.
        scale = np.asarray(read_dataset(root / "data/people.safetensors").scale["factor"])
        self.note(np.diag(scale**2) / channel["variances"][0], views)
        made["told"] = storage.read_json(root / "runs/people/mlp/natural-3/n1-b250/provenance.json")["statement"]

    def truth(self, covariance=None, labels=0.0):
        # Labels are always released.
        return super().truth(*(() if covariance is None else (covariance,)), labels=np.log(10))

    def stated(self, made):
        return made["told"]["replica"]["nats"]

    def line(self, made):
        return made["told"]["replica"]["sentence"]


@pytest.mark.parametrize("name", NAMES)
def test_no_cell_of_the_workflow_is_silent_and_false(name, tmp_path):
    sys.stdout.write(f"| {Workflow.name} | {name} | {outcome(Workflow(tmp_path), SITUATIONS[name])} |\n")
