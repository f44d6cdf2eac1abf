"""All networks of a run, those of the chosen learning rates and others if they are kept, and attacks on them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from leakbound import models, storage
from leakbound.attacks.attack_request import Attacked, AttackRequest
from leakbound.config.training import Length
from leakbound.jobs.paths import output


@dataclass(frozen=True)
class Networks:
    """Trained networks of a run.

    Attributes:
        weights: Parameter name to its values (networks, ...).
        rates: A row for each network: columns ``replica``, ``learning_rate`` and ``chosen``, and ``length``
            where several lengths of a training are kept. Without it all are ``full``.
    """

    weights: Mapping[str, Tensor]
    rates: pd.DataFrame

    def state_dict(
        self, replica: int = 0, learning_rate: float | None = None, length: Length = "full"
    ) -> dict[str, Tensor]:
        """Return copies of the parameters of one network, as ``torch.nn.Module.load_state_dict`` takes them.

        Args:
            replica: Number of the replica.
            learning_rate: Candidate learning rate. Default: the one that validation records chose.
            length: Point of the training.

        Raises:
            KeyError: If no such network is kept. The message lists those that are.
        """
        rates = self.rates if "length" in self.rates else self.rates.assign(length="full")
        rate = rates["chosen"] if learning_rate is None else rates["learning_rate"] == learning_rate
        places = rates.index[rate & (rates["replica"] == replica) & (rates["length"] == length)]
        if not len(places):
            columns = ["replica", "learning_rate", "length", "chosen"]
            raise KeyError(
                f"replica {replica}, learning rate {learning_rate or 'chosen'}, length {length}: no such network is "
                f"kept, only\n{rates[columns].to_string(index=False)}"
            )
        return {name: values[places[0]].clone() for name, values in self.weights.items()}


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
        self, replica: int = 0, learning_rate: float | None = None, length: Length = "full"
    ) -> nn.Module:
        """Build one trained network, which takes images as the prepared dataset holds them, in [-1, 1].

        Args:
            replica: As in :meth:`Networks.state_dict`.
            learning_rate: As there.
            length: As there.

        Raises:
            KeyError: If no such network is kept.
            DamagedFileError: If the file of the dataset does not match its seal.
        """
        weights = self.networks.state_dict(replica, learning_rate, length)
        arrays, metadata = storage.read_arrays_and_metadata(self.images)
        _, colors, side, _ = arrays["test_images"].shape
        network = models.build(
            self.model, colors, len(json.loads(metadata["classes"])), torch.Generator(), side
        )
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
        >>> from leakbound import load_run
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
    kept = storage.read_rows(files["rates"]).query("kept").reset_index(drop=True)
    weights = {name: torch.from_numpy(array) for name, array in storage.read_arrays(files["weights"]).items()}
    tables = sorted((folder / "attacks" / run).glob("*.parquet"))
    dataset, model, *_ = run.split("/")
    return FinishedRun(
        model,
        output(folder, "prepare", dataset, "out"),
        Networks(weights, kept),
        storage.read_rows(files["rows"]),
        {path.stem: storage.read_rows(path) for path in tables},
        storage.read_json(files["provenance"]),
    )


@torch.no_grad()
def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Replace the parameters of a network by ``weights``, name to values."""
    for name, parameter in network.named_parameters():
        parameter.copy_(weights[name])


def attack_networks(
    networks: Networks, function: Callable[[AttackRequest[Any]], Attacked], request: AttackRequest[Any]
) -> Attacked:
    """Attack networks in groups that hold at most one of each replica: the chosen ones, then recipe by recipe.

    Args:
        networks: The networks.
        function: Attack.
        request: Its arguments, except those that say which networks are attacked.

    Returns:
        Rows of all, with the columns of ``networks.rates`` that say which, and the arrays of the chosen ones.
    """
    rates = networks.rates.reset_index(drop=True)
    recipe = [name for name in ("learning_rate", "length") if name in rates]
    others = rates[~rates["chosen"]].groupby(recipe, sort=True)
    tables, kept = [], []
    for group in (rates[rates["chosen"]], *(group for _, group in others)):
        group_request = replace(
            request,
            weights={name: values[group.index.tolist()] for name, values in networks.weights.items()},
            replicas=group["replica"].tolist(),
            learning_rates=group["learning_rate"].tolist(),
            lengths=group["length"].tolist() if "length" in group else (),
        )
        rows, arrays = function(group_request)
        tables.append(rows.merge(group[["replica", *recipe, "chosen"]], on="replica", how="left"))
        kept.append(arrays)
    return pd.concat(tables, ignore_index=True), kept[0]
