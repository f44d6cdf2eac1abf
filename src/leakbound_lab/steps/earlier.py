"""Networks that a job has trained before: with more replicas it trains only those that are missing."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from leakbound import storage
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.storage.provenance import versions
from leakbound.storage.tables import CURVES, RATES, read_table
from leakbound_lab.jobs.job import ANEW
from leakbound_lab.steps import inputs

if TYPE_CHECKING:
    from leakbound_lab.training.request import Slot, TrainingRequest

logger = logging.getLogger("leakbound")
_SLOT = ["replica", "learning_rate"]


@dataclass(frozen=True)
class TrainedNetworks:
    """Networks of a job as its files hold them.

    Attributes:
        rates: As in :class:`leakbound_lab.training.request.TrainingResult`, and ``kept``, whether weights are.
        arrays: Parameter name to weights (kept rows of ``rates``, ...).
        curves: As there, or None where no file holds them.
        events: Privacy event of each slot, in the order of ``rates``.
        frozen: Hash of the frozen weights of each network, empty without any.
    """

    rates: pd.DataFrame
    arrays: dict[str, np.ndarray]
    curves: pd.DataFrame | None
    events: list[PrivacyEvent]
    frozen: str

    @property
    def kept(self) -> pd.DataFrame:
        """Rows of ``rates`` whose weights are kept."""
        return self.rates[self.rates["kept"]]

    @property
    def slots(self) -> pd.DataFrame:
        """First row of each slot."""
        return self.rates.drop_duplicates(_SLOT)


class Earlier:
    """Copies of a job's files that outlive these, which Snakemake removes before it runs the job again.

    They are hard links in a hidden folder, so that they need no space. A file system without hard links keeps
    nothing, and all networks are trained again.

    Args:
        files: Role to file of the job: ``weights``, ``rates``, ``provenance``, and ``rows`` (curves) if it writes them.
        settings: Plain settings of the job.
        read: Role to input that the networks depend on, None for files that were not given.
        device: Torch device.
        code: Fingerprint of the code of the job. Without one, nothing is kept or read.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        settings: Mapping[str, Any],
        read: Mapping[str, Path | None],
        device: str,
        code: str,
    ) -> None:
        self._files = files
        self._settings = settings
        self._read = read
        self._device = device
        self._code = code
        self._folder = files["weights"].with_name(".earlier")

    def networks(self) -> TrainedNetworks | None:
        """Read the networks of the earlier call, or None if more than the number of replicas has changed."""
        if self._code == inputs.BARE or ANEW in os.environ:
            return None
        files = {role: self._folder / path.name for role, path in self._files.items()}
        try:
            record = storage.read_json(files["provenance"])
            if self._identity(record) != self._identity(self._now()):
                return None
            arrays, about = storage.read_arrays_and_metadata(files["weights"])
            return TrainedNetworks(
                read_table(files["rates"], RATES, "train"),
                arrays,
                read_table(files["rows"], CURVES, "train") if "rows" in files else None,
                [PrivacyEvent(**event) for event in record["events"]],
                about.get("frozen", ""),
            )
        except (OSError, KeyError, storage.DamagedFileError):
            return None

    def _now(self) -> dict[str, Any]:
        """Return everything that the networks of this call depend on, as its provenance will state it."""
        return {
            "settings": self._settings,
            "inputs": {
                role: storage.file_hash(path) for role, path in self._read.items() if path is not None
            },
            "device": inputs.device_label(self._device),
            "versions": versions(),
            "code": self._code,
        }

    def _identity(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a provenance that more replicas do not change."""
        read = {role: digest for role, digest in record["inputs"].items() if role in self._read}
        settings = {name: value for name, value in record["settings"].items() if name != "replicas"}
        return {**{name: record[name] for name in self._now()}, "settings": settings, "inputs": read}

    def keep(self) -> None:
        """Leave the files of this call for a later one, its provenance last."""
        rmtree(self._folder, ignore_errors=True)
        if self._code == inputs.BARE:
            return
        with suppress(OSError):
            self._folder.mkdir(mode=0o700)
            for path in self._files.values():
                for file in (path, storage.seal_of(path)):
                    (self._folder / file.name).hardlink_to(file)


def train_missing(
    request: TrainingRequest, earlier: TrainedNetworks | None, *, keeps_all: bool
) -> TrainedNetworks:
    """Train the networks of a request that were not trained earlier, and join them with those that were.

    Args:
        request: The run with all its networks.
        earlier: Networks of an earlier call, or None.
        keeps_all: Whether all weights are kept, not only those of chosen learning rates.

    Returns:
        All networks of the request, in the order of its slots.

    Raises:
        UntrainableError: As :func:`leakbound_lab.training.trainers.train`, if any is missing.
    """
    from leakbound_lab.models.classifier import frozen_hash
    from leakbound_lab.training.request import initial_network
    from leakbound_lab.training.trainers import train

    if earlier is not None and earlier.frozen != frozen_hash(initial_network(request, 0)):
        earlier = None
    trained = set() if earlier is None else {*_index(earlier.slots)}
    missing = tuple(slot for slot in request.slots if astuple(slot) not in trained)
    parts = []
    if missing:
        result = train(replace(request, only=missing) if trained else request)
        rates = result.rates.assign(kept=result.rates["chosen"] | keeps_all)
        arrays = {name: tensor.numpy()[rates["kept"].to_numpy()] for name, tensor in result.weights.items()}
        parts = [TrainedNetworks(rates, arrays, result.curves, result.events, result.frozen)]
    if earlier is None:
        return parts[0]
    done = len(request.slots) - len(missing)
    logger.info("%s: %d of %d networks were trained before", request.slug, done, len(request.slots))
    return _joined([earlier, *parts], request.slots)


def _joined(parts: Sequence[TrainedNetworks], slots: Sequence[Slot]) -> TrainedNetworks:
    """Join networks in the order of the slots, and leave out those of other slots."""
    from leakbound_lab.training.request import with_choice

    wanted = pd.MultiIndex.from_tuples([astuple(slot) for slot in slots])
    rates = _stacked([part.rates for part in parts], wanted)
    kept = _order(pd.concat([part.kept for part in parts]), wanted)
    events = [event for part in parts for event in part.events]
    curves = [part.curves for part in parts if part.curves is not None]
    return TrainedNetworks(
        with_choice(rates),
        {name: np.concatenate([part.arrays[name] for part in parts])[kept] for name in parts[0].arrays},
        _by_length(_stacked(curves, wanted)) if curves else None,
        [events[row] for row in _order(pd.concat([part.slots for part in parts]), wanted)],
        parts[0].frozen,
    )


def _index(table: pd.DataFrame) -> pd.MultiIndex:
    """Return the slot of each row."""
    return pd.MultiIndex.from_frame(table[_SLOT])


def _order(table: pd.DataFrame, wanted: pd.MultiIndex) -> np.ndarray:
    """Return the numbers of the rows of the wanted slots, in their order."""
    numbers = wanted.get_indexer(_index(table))
    order = np.argsort(numbers, kind="stable")
    return order[numbers[order] >= 0]


def _stacked(tables: Sequence[pd.DataFrame], wanted: pd.MultiIndex) -> pd.DataFrame:
    """Return the rows of the wanted slots from all tables."""
    rows = pd.concat(tables, ignore_index=True)
    return rows.iloc[_order(rows, wanted)].reset_index(drop=True)


def _by_length(curves: pd.DataFrame) -> pd.DataFrame:
    """Put the points of the full length before those of the others, as :class:`TrainingResult` has them."""
    if "length" not in curves:
        return curves
    places = curves["length"].map({"full": 0, "half": 1, "best": 2})
    return curves.iloc[np.argsort(places.to_numpy(), kind="stable")].reset_index(drop=True)
