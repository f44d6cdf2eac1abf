"""Configurations that tests on SLURM share: one small training, and a chain from data to figures."""

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
CHAIN = {
    "preset": "chain",
    "replicas": 2,
    "datasets": DATASETS,
    "training": {**SEARCH, "evaluations": 2, "checkpoint_seconds": 0.5},
    "attacks": {
        "membership": {"epochs": 2, "learning_rates": [1e-3]},
        "gradient_inversion": {"images": 2, "iterations": 8, "tv_weights": [1e-2]},
    },
    "studies": {
        "capacity": {**STUDY, "defenses": {"none": [], "natural": [4.0]}, "rounds": [500]},
        "gradient_inversion": study(
            {"none": []}, ["gradient_inversion"], models=["lenet_sigmoid"], rounds=0, batch_size=1
        ),
    },
}
