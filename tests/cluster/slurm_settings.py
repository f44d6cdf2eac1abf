"""Configurations of one small training, which tests on SLURM share."""

from studies import study

DATASETS = {"digits": {"members": 120, "pool": 300, "test": 120, "aux": 120}}
STUDY = study({"none": []}, ["membership"], rounds=2000, batch_size=16)
SEARCH = {"learning_rates": [0.03]}
TRAINING = {
    "preset": "training",
    "replicas": 1,
    "datasets": DATASETS,
    "training": {**SEARCH, "evaluations": 4, "checkpoint_seconds": 0.1},
    "studies": {"capacity": STUDY},
    "tracking": {"enabled": False},
}
