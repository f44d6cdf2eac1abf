"""Paths of results below ``results/<preset>``, for everything besides the rules."""

from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import TypeVar

P = TypeVar("P", bound=PurePath)

OUTPUTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "prepare": {"out": "data/{name}.safetensors", "provenance": "data/{name}.json"},
        "covariance": {"out": "covariance/{name}.safetensors"},
        "spectrum": {"out": "spectra/{name}.safetensors"},
        "calibrate": {"out": "channels/{name}.safetensors", "provenance": "channels/{name}.json"},
        "estimator": {"out": "estimators/{name}.safetensors", "provenance": "estimators/{name}.json"},
        "train": {
            "weights": "runs/{name}/weights.safetensors",
            "rates": "runs/{name}/rates.parquet",
            "rows": "runs/{name}/training.parquet",
            "provenance": "runs/{name}/provenance.json",
        },
        "references": {
            "weights": "references/{name}/weights.safetensors",
            "trained": "references/{name}/rates.parquet",
            "provenance": "references/{name}/provenance.json",
        },
        "attack": {
            "rows": "attacks/{name}.parquet",
            "arrays": "attacks/{name}.safetensors",
            "provenance": "attacks/{name}.json",
        },
        "measure": {"rows": "tables/efficiency.parquet", "provenance": "tables/efficiency.json"},
        "theory": {"rows": "tables/theory/{name}.parquet"},
        "consensus": {"rows": "tables/consensus/{name}.parquet"},
        "federate": {
            "rows": "federated/{name}/rows.parquet",
            "provenance": "federated/{name}/provenance.json",
        },
        "federated": {"rows": "tables/federated/{name}.parquet"},
        "illustrate": {"out": "illustrations/{name}.parquet"},
        "tabulate": {"out": "tables/{name}.parquet"},
        "plot": {
            "svg": "figures/{name}.svg",
            "png": "figures/{name}.png",
            "pdf": "figures/{name}.pdf",
            "shown": "figures/{name}.parquet",
        },
        "claims": {
            "out": "claims.parquet",
            "scoreboard": "scoreboard.md",
            "counts": "tables/scoreboard.parquet",
        },
        "log": {"marker": "tracking/{name}.json"},
        "log_figures": {"marker": "tracking/figures.json"},
        "report": {"out": "report.html"},
    }
)
"""Step, in chain order, to parameter to the file that a job writes, ``png`` and ``pdf`` only where the configuration
asks for them. ``{name}`` is the name of the job."""
RULES: Mapping[str, str] = MappingProxyType({"references": "attack", "plot": "figures"})
"""Step to the rule that makes its results, where it is not the rule of its name."""


def output(root: P, step: str, name: str, role: str) -> P:
    """Return the file that a job writes for one option of its command.

    Args:
        root: Folder of all results.
        step: Name of the step.
        name: Name of the job.
        role: Option of the command, without dashes.
    """
    return root / OUTPUTS[step][role].format(name=name)
