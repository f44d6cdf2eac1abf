"""Calibrations kept on disk, by the digest of all that they depend on.

An entry is a statistic of the calibration records: their mean and covariance. It is kept only where the user
asks for it, in files that only their owner may read, and never unasked for records that are protected
themselves. The name of an entry is a digest of the records: whoever can list the folder can test whether a
whole set of records was used.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from leakbound import __version__
from leakbound.channels.shapes import Shape
from leakbound.engine.progress import Stage
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.saved import FORMAT, ROUNDING, read_calibration, target_facts, write_calibration
from leakbound.engine.targets import Calibration, Target
from leakbound.storage import FullDiskError, arrays_hash
from leakbound.storage.provenance import settings_hash

_KIND = "leakbound calibration"


def cache_folder(cache: bool | str | Path, private: bool) -> Path | None:
    """Find or make the folder of kept calibrations.

    Args:
        cache: A folder, True for the user's own (``XDG_CACHE_HOME``), or False for none.
        private: Whether the calibration records are those that are protected.

    Raises:
        GuaranteeError: If a statistic of private records would be kept in a place that nobody named, or
            others can write to the folder.
    """
    if cache is False:
        return None
    if cache is True and private:
        raise GuaranteeError(
            "cache=True would keep the mean and covariance of the records that are protected: name a folder of yours "
            "if they may lie there, cache=PATH"
        )
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "leakbound" / "calibrations" if cache is True else Path(cache).expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        raise GuaranteeError(f"cache = {folder}: {error.strerror}, so give a folder of yours") from error
    if mode & 0o022:
        raise GuaranteeError(
            f"cache = {folder}: its mode is {mode:o}, so others can write to it: chmod 700 it first"
        )
    return folder


def calibrated(
    target: Target,
    records: np.ndarray,
    shape: Shape,
    weights: Any,
    looks: int,
    *,
    name: str,
    folder: Path | None,
    progress: Stage,
) -> Calibration:
    """Calibrate by :meth:`Target.calibrate`, or read the calibration from the cache if it is there and whole.

    Args:
        target: Limit that the channel meets.
        records: (n, ...), public or auxiliary ones.
        shape: Shape of the noise.
        weights: Relative noise variances, for the shape ``personalized``.
        looks: Uses of each record with independent noise.
        name: Name of the shape.
        folder: Folder of kept calibrations, None to keep none.
        progress: Called when a stage begins.
    """
    if folder is None:
        return target.calibrate(records, shape, weights, looks, progress)
    depends = {
        "target": target_facts(target),
        "shape": name,
        "looks": looks,
        "version": __version__,
        "format": FORMAT,
    }
    arrays = {"records": records} if weights is None else {"records": records, "weights": np.asarray(weights)}
    digest = arrays_hash(arrays, settings_hash(depends))
    path = folder / f"{digest}.safetensors"
    if path.exists():
        try:
            kept, facts, _, _ = read_calibration(path, _KIND)
            if facts == {"digest": digest} and target.excess(kept, looks) <= ROUNDING:
                progress("found in the cache", 1.0)
                return kept
        except GuaranteeError:
            pass  # damaged: it is made again
    made = target.calibrate(records, shape, weights, looks, progress)
    try:
        write_calibration(path, made, _KIND, {"digest": digest}, np.zeros((0, 32), np.uint8))
    except (GuaranteeError, OSError, FullDiskError):
        progress("the cache cannot be written", 1.0)
    return made
