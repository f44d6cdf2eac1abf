"""Calibrated engines on disk, and calibrations that are kept: files of a channel and facts, with a checksum.

The file holds arrays and strings, nothing that runs when it is read. It holds no key, no use, no noisy copy
and nothing that was computed from private records: the mean, covariance and digests in it are those of the
calibration records.

A cached calibration is found by the digest of all that it depends on. It is a statistic of the calibration
records, so it is cached on request alone, and for the protected records themselves only in a folder that the
user names. Its file name is a digest of the records, so whoever lists the folder can test whether a whole set
was used.
"""

import io
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from leakbound import __version__, storage
from leakbound.channels.channel import GaussianChannel, Spectrum
from leakbound.channels.covariance import DENSE, Moments, unshrunk
from leakbound.channels.directions import Directions
from leakbound.channels.shapes import shape_named
from leakbound.engine.calibrations import Calibration, Stage
from leakbound.engine.identity import Identity, seal, unseal
from leakbound.engine.ledger import Ledger
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import Capacity, Identification, Leakage, Reconstruction, Target
from leakbound.storage.provenance import commit, settings_hash, versions

ENGINE = "leakbound engine"
_CACHED = "leakbound calibration"
_FORMAT = 1
TARGETS = {kind.__name__: kind for kind in (Capacity, Leakage, Reconstruction, Identification)}
_DIGEST = 32  # bytes of the digest of a calibration record
ROUNDING = 1e-9  # relative, of sums over the eigenvalues of a covariance


class UncountedWarning(UserWarning):
    """A loaded engine does not know the uses of earlier runs."""


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


def calibrate_or_load(
    target: Target,
    records: np.ndarray,
    shape: str,
    weights: np.ndarray | None,
    uses: int,
    folder: Path | None,
    progress: Stage,
) -> Calibration:
    """Return a calibration from the cache if it is there and whole, or else calibrate by :meth:`Target.calibrate`.

    Args:
        target: Limit that the channel meets.
        records: (n, ...), public or auxiliary ones.
        shape: Name of the shape of the noise.
        weights: Relative noise variances, for the shape ``personalized``.
        uses: Uses of each record with independent noise.
        folder: Folder of kept calibrations, None to keep none.
        progress: Called when a stage begins.
    """
    if folder is None:
        return target.calibrate(records, shape_named(shape), weights, uses, progress)
    depends = {
        "target": target_facts(target),
        "shape": shape,
        "uses": uses,
        "version": __version__,
        "format": _FORMAT,
    }
    arrays = {"records": records} if weights is None else {"records": records, "weights": np.asarray(weights)}
    digest = storage.arrays_hash(arrays, settings_hash(depends))
    path = folder / f"{digest}.safetensors"
    if path.exists():
        try:
            kept, facts, _, _ = read_calibration(path, _CACHED)
            if facts == {"digest": digest} and target.excess(kept, uses) <= ROUNDING:
                progress("found in the cache", 1.0)
                return kept
        except GuaranteeError:
            pass  # damaged: it is made again
    made = target.calibrate(records, shape_named(shape), weights, uses, progress)
    try:
        write_calibration(path, made, _CACHED, {"digest": digest})
    except (GuaranteeError, OSError, storage.FullDiskError):
        progress("the cache cannot be written", 1.0)
    return made


def write_calibration(
    path: Path, calibration: Calibration, kind: str, facts: Mapping[str, Any], public: Collection[bytes] = ()
) -> None:
    """Write a calibration, facts about it and digests of its records as one file with a checksum.

    Raises:
        GuaranteeError: If the covariance or its axes are never formed, and so cannot be written.
    """
    moments = calibration.moments
    arrays, described = _parts(calibration)
    arrays["digests"] = np.frombuffer(b"".join(sorted(public)), np.uint8).reshape(-1, _DIGEST)
    provenance = {
        **commit(),
        "versions": versions(),
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "records": moments.count,
        "shrinkage": moments.shrinkage,
    }
    strings = {
        "kind": kind,
        "format": str(_FORMAT),
        **described,
        "facts": json.dumps(facts),
        "provenance": json.dumps(provenance),
    }
    strings["checksum"] = _checksum(arrays, strings)
    storage.write_arrays(path, arrays, strings, private=True, sealed=False)


def read_calibration(
    path: Path, kind: str
) -> tuple[Calibration, dict[str, Any], list[bytes], dict[str, Any]]:
    """Read calibration, facts, digests and provenance from a file of :func:`write_calibration`.

    Raises:
        GuaranteeError: If it is missing, damaged, changed, of another kind or format, or inconsistent.
    """
    try:
        arrays, strings = storage.read_arrays_and_metadata(path, sealed=False)
    except (storage.DamagedFileError, storage.TooLargeError) as error:
        raise GuaranteeError(f"{error}: give a file that leakbound has saved") from error
    # The file as a whole: its kind, its format, its checksum.
    if strings.get("kind") != kind:
        raise GuaranteeError(f"{path}: this is no {kind}: give a file that leakbound has saved as one")
    if strings.get("format") != str(_FORMAT):
        raise GuaranteeError(
            f"{path}: format {strings.get('format')}, this version reads {_FORMAT}: calibrate again"
        )
    if strings.pop("checksum", None) != _checksum(arrays, strings):
        raise GuaranteeError(
            f"{path}: its checksum does not match, so it was damaged or changed: save it again"
        )
    # Its contents: channel, spectrum and moments, which must belong together.
    try:
        digests = arrays.pop("digests")
        calibration = _assemble(arrays, strings)
        if digests.dtype != np.uint8 or digests.shape[1:] != (_DIGEST,):
            raise ValueError(f"digests: {digests.dtype} of shape {digests.shape}")
        _check_agreement(calibration)
        public = [row.tobytes() for row in digests]
        return calibration, json.loads(strings["facts"]), public, json.loads(strings["provenance"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GuaranteeError(
            f"{path}: its contents are inconsistent ({error}): save the engine again"
        ) from error


def pack(calibration: Calibration, facts: Mapping[str, Any], *, sealed: bool) -> Any:
    """Pack a calibration and facts into plain values for a pickle.

    Args:
        calibration: The channel, with the moments that it was calibrated to.
        facts: Plain values for JSON.
        sealed: Whether the key of the owner's account seals it, as a statistic of the protected records.

    Raises:
        GuaranteeError: If it is to be sealed, and would hold the records themselves.
    """
    try:
        arrays, strings = _parts(calibration)
    except GuaranteeError:
        if sealed:
            raise
        return {"calibration": calibration, "facts": json.dumps(facts)}
    strings["facts"] = json.dumps(facts)
    if not sealed:
        return {"arrays": arrays, "strings": strings}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, strings=np.array(json.dumps(strings)), **arrays)
    return {"sealed": seal(buffer.getvalue())}


def unpack(kept: Mapping[str, Any]) -> tuple[Calibration, dict[str, Any]]:
    """Return a calibration and facts of :func:`pack`.

    Raises:
        GuaranteeError: If another account has sealed it.
    """
    if "calibration" in kept:
        return kept["calibration"], json.loads(kept["facts"])
    arrays = dict(kept.get("arrays", {}))
    strings = dict(kept.get("strings", {}))
    if "sealed" in kept:
        with np.load(io.BytesIO(unseal(kept["sealed"])), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        strings = json.loads(str(arrays.pop("strings")))
    return _assemble(arrays, strings), json.loads(strings["facts"])


def _parts(calibration: Calibration) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of a calibration, and strings that describe its channel and spectrum.

    Raises:
        GuaranteeError: If the covariance or its axes are never formed.
    """
    channel = calibration.channel
    spectrum = calibration.spectrum
    moments = calibration.moments
    if isinstance(channel.basis, Directions) or moments.dimension > DENSE:
        raise GuaranteeError(
            f"{channel.shape} noise for {moments.count} records of {moments.dimension} values is computed from these "
            f"records, and a file would hold them: keep the public records, or take shape='natural' and at most "
            f"{DENSE} values"
        )
    parts = {"moments": moments.arrays(), "spectrum": spectrum.arrays(), "channel": channel.arrays()}
    arrays = {f"{part}.{name}": array for part, of_part in parts.items() for name, array in of_part.items()}
    return arrays, {"channel": json.dumps(channel.metadata()), "spectrum": json.dumps(spectrum.metadata())}


def _assemble(arrays: Mapping[str, np.ndarray], strings: Mapping[str, str]) -> Calibration:
    """Make a calibration of the parts that :func:`_parts` returns."""
    parts: dict[str, dict[str, np.ndarray]] = {"moments": {}, "spectrum": {}, "channel": {}}
    for name, array in arrays.items():
        part, _, of = name.partition(".")
        parts[part][of] = array
    spectrum = Spectrum.from_arrays(parts["spectrum"], json.loads(strings["spectrum"]))
    channel = GaussianChannel.from_arrays(parts["channel"], json.loads(strings["channel"]), spectrum.basis)
    return Calibration(channel, spectrum, Moments.from_arrays(parts["moments"]))


def _checksum(arrays: Mapping[str, np.ndarray], strings: Mapping[str, str]) -> str:
    """Compute the SHA-256 of all that a file holds."""
    return settings_hash({"arrays": storage.arrays_hash(arrays), "strings": dict(strings)})


def _check_agreement(calibration: Calibration) -> None:
    """Refuse a spectrum that does not belong to the stored covariance, without decomposing that again."""
    spectrum = calibration.spectrum
    moments = calibration.moments
    channel = calibration.channel
    if not spectrum.dimension == moments.dimension == channel.dimension or spectrum.shape != channel.shape:
        raise ValueError("channel, spectrum and covariance differ in shape")
    covariance = moments.covariance
    eigenvalues = spectrum.eigenvalues
    agreements = [np.array_equal(spectrum.mean, moments.mean)]
    if spectrum.basis is not None:
        if spectrum.data_eigenvalues is None:
            raise ValueError("a spectrum with axes needs the variances along them")
        eigenvalues = spectrum.data_eigenvalues
        vector = np.random.default_rng(0).normal(size=len(eigenvalues))
        turned = spectrum.basis @ vector
        along = covariance @ turned
        stated = spectrum.basis @ (eigenvalues * vector)
        agreements.append(bool(np.isclose(turned @ turned, vector @ vector, rtol=ROUNDING)))
        agreements.append(np.allclose(along, stated, rtol=ROUNDING, atol=ROUNDING * np.abs(along).max()))
        if channel.gain is not None:
            before = unshrunk(eigenvalues, moments)
            agreements.append(np.allclose(spectrum.eigenvalues, before, rtol=ROUNDING, atol=0.0))
    elif spectrum.weights is not None:
        root = np.sqrt(spectrum.weights)
        covariance = covariance / np.outer(root, root)
    agreements.append(bool(np.isclose(eigenvalues.sum(), np.trace(covariance), rtol=ROUNDING)))
    agreements.append(bool(np.isclose((eigenvalues**2).sum(), (covariance**2).sum(), rtol=ROUNDING)))
    if not all(agreements):
        raise ValueError("the spectrum is not that of the covariance")


def target_facts(target: Target) -> dict[str, Any]:
    """List the class and the arguments of a target.

    Raises:
        GuaranteeError: If its class is none of this package's.
    """
    name = type(target).__name__
    if TARGETS.get(name) is not type(target):
        raise GuaranteeError(f"{target}: only targets of leakbound can be saved: {', '.join(TARGETS)}")
    arguments = {field.name: getattr(target, field.name) for field in fields(target) if field.init}
    return {"class": name, **arguments}


def ledger_of(
    path: Path, counted_in: str | None, ledger: Ledger | str | Path | None, identity: Identity
) -> Ledger:
    """Open the ledger of a loaded engine, and refuse any but the one that it counted in."""
    if counted_in is not None and ledger is None:
        raise GuaranteeError(
            f"{path}: the engine counts in a ledger on disk: give load the same one, ledger=PATH"
        )
    counted = Ledger.at(ledger, identity.key)
    if counted_in is not None and Identity(counted.key, identity.double).name != counted_in:
        raise GuaranteeError(
            f"ledger = {counted.path}: it is not the one that {path} was saved with, and would forget the uses that "
            "that one counts: give that one"
        )
    return counted
