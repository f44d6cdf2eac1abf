"""Paths of results. Only this module spells paths below ``results/<preset>``."""

from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import TypeVar

P = TypeVar("P", bound=PurePath)

_WORD = r"[a-z][a-z0-9_]*"
_RUN = rf"{_WORD}/{_WORD}/[a-z0-9_.e+-]+/n[0-9]+-b[0-9]+"
_FEDERATED = rf"{_WORD}/{_WORD}/[a-z0-9.e+-]+/n[0-9]+"

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
        "plot": {"svg": "figures/{name}.svg", "png": "figures/{name}.png", "shown": "figures/{name}.parquet"},
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
"""Step, in chain order, to option to the file that a job writes. ``{name}`` is the name of the job."""

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "covariance": rf"{_WORD}/(aux|members)",
        "spectrum": rf"{_WORD}/{_WORD}",
        "calibrate": rf"{_WORD}/{_WORD}-[0-9.e+-]+",
        "train": _RUN,
        "references": _RUN,
        "attack": rf"{_RUN}/{_WORD}",
        "federate": _FEDERATED,
        "tabulate": rf"(?!efficiency\b|scoreboard\b){_WORD}",
        "plot": rf"[a-z0-9]+/{_WORD}",
        "log": rf"{_RUN}|federated/{_FEDERATED}",
    }
)
"""Step to the form of its jobs' names, a regular expression. Other steps have names of one word."""


def names_of(step: str) -> str:
    """Return the form of the names of a step's jobs, a regular expression.

    Args:
        step: Name of the step.
    """
    return NAMES.get(step, _WORD)


def output(root: P, step: str, name: str, role: str) -> P:
    """Return the file that a job writes for one option of its command.

    Args:
        root: Folder of all results.
        step: Name of the step.
        name: Name of the job.
        role: Option of the command, without dashes.
    """
    return root / inside(step, name, role)


def inside(step: str, name: str, role: str) -> str:
    """Return the path of :func:`output` below the root, as text.

    Lists of thousands of jobs would spend half of their time on path objects.

    Args:
        step: Name of the step.
        name: Name of the job.
        role: Option of the command, without dashes.
    """
    return OUTPUTS[step][role].format(name=name)


def log_and_benchmark(step: str) -> tuple[str, str]:
    """Return the patterns of a step's logs, and of the files with the time and memory of its jobs.

    Args:
        step: Name of the step.

    Returns:
        Both patterns below the root. ``{name}`` stands for the name of the job.
    """
    inside = f"{step}/{{name}}" if any("{name}" in pattern for pattern in OUTPUTS[step].values()) else step
    return f"logs/{inside}.log", f"benchmarks/{inside}.tsv"
