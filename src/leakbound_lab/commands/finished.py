"""A finished run of the workflow, read back into Python."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from leakbound import storage
from leakbound_lab import models, registries
from leakbound_lab.attacks.attack_request import Networks, load_weights
from leakbound_lab.jobs.paths import output


@dataclass(frozen=True)
class FinishedRun:
    """A training that the workflow has finished, and the attacks on it.

    Attributes:
        model: Name of its network.
        images: File of the prepared dataset.
        networks: Its trained networks.
        curves: Learning curves, columns ``replica``, ``learning_rate``, ``step``, ``metric``, ``value``.
        attacks: Attack to its rows, with ``metric``, ``value``, and the network in ``replica``,
            ``learning_rate`` and, where several are kept, ``length``.
        provenance: Settings, versions, commit, privacy events, and the statement of leakage.
    """

    model: str
    images: Path
    networks: Networks
    curves: pd.DataFrame
    attacks: Mapping[str, pd.DataFrame]
    provenance: Mapping[str, Any]

    def network(
        self, replica: int = 0, learning_rate: float | None = None, length: str = "full"
    ) -> nn.Module:
        """Build one trained network, which takes records as the prepared dataset holds them, in [-1, 1].

        A network from outside is imported, so its module has to be on the path, as for the workflow. The run
        says which, so open runs of people whose code you would run.

        Args:
            replica: As in :meth:`leakbound_lab.attacks.attack_request.Networks.state_dict`.
            learning_rate: As there.
            length: As there.

        Raises:
            KeyError: If no such network is kept.
            ImportError: If a network from outside is not where the run found it.
            ValueError: If another network has its name.
            DamagedFileError: If the file of the dataset does not match its seal.
        """
        weights = self.networks.state_dict(replica, learning_rate, length)
        arrays, metadata = storage.read_arrays_and_metadata(self.images)
        _, colors, height, width = arrays["test_images"].shape
        side = height if height == width else (height, width)
        for name, target in self.provenance["settings"]["plugins"].get("models", {}).items():
            registries.MODELS.add(name, target)
        classes = len(json.loads(metadata["classes"]))
        network = models.build(self.model, colors, classes, torch.Generator(), side)
        load_weights(network, weights)
        return network.eval()


def load_run(results: str | Path, run: str) -> FinishedRun:
    """Read a finished run of the workflow.

    Args:
        results: Folder of a preset, e.g. ``results/quick``.
        run: Path of the run below its folder ``runs``, e.g. ``digits/mlp/natural-1/n400-b32``.

    Raises:
        FileNotFoundError: If the run is not finished there. The message lists the runs that are.
        DamagedFileError: If a file does not match its seal.

    Example:
        >>> from leakbound_lab import load_run
        >>> load_run("results/quick", "digits/mlp/natural-1/n400-b32")
        Traceback (most recent call last):
        FileNotFoundError: ...weights.safetensors is not there: finished runs of results/quick are none
    """
    folder = Path(results)
    files = {role: output(folder, "train", run, role) for role in ("weights", "rates", "rows", "provenance")}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        finished = sorted(path.parent for path in folder.glob("runs/*/*/*/*/provenance.json"))
        names = ", ".join(str(path.relative_to(folder / "runs")) for path in finished) or "none"
        raise FileNotFoundError(f"{missing[0]} is not there: finished runs of {folder} are {names}")
    networks = storage.read_rows(files["rates"]).query("kept").reset_index(drop=True)
    weights = {name: torch.from_numpy(array) for name, array in storage.read_arrays(files["weights"]).items()}
    tables = sorted((folder / "attacks" / run).glob("*.parquet"))
    dataset, model, *_ = run.split("/")
    return FinishedRun(
        model,
        output(folder, "prepare", dataset, "out"),
        Networks(weights, networks),
        storage.read_rows(files["rows"]),
        {path.stem: storage.read_rows(path) for path in tables},
        storage.read_json(files["provenance"]),
    )
