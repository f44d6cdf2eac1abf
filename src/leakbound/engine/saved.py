"""Calibrated engines on disk, and calibrations that are kept: files of a channel and facts, with a checksum.

The file holds arrays and strings, nothing that runs when it is read. It holds no key, no use, no noisy copy
and nothing that was computed from private records: the mean, covariance and digests in it are those of the
calibration records.

A kept calibration is found by the digest of all that it depends on. It is a statistic of the calibration
records, kept only where the user asks for it, and never unasked for records that are protected themselves.
Its name is a digest of the records: whoever can list the folder can test whether a whole set was used.
"""

import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from leakbound import __version__, storage
from leakbound.channels.channel import GaussianChannel, Spectrum
from leakbound.channels.covariance import DENSE, Moments, unshrunk
from leakbound.channels.directions import Directions
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.channels.shapes import shape_named
from leakbound.engine.calibrations import Calibration, Stage
from leakbound.engine.counting import Counter
from leakbound.engine.identity import Identity, LabelCount
from leakbound.engine.ledger import Ledger
from leakbound.engine.records import Key, Layout
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import Capacity, Identification, Leakage, Naming, Reconstruction, Target
from leakbound.storage.provenance import commit, settings_hash, versions

_KIND = "leakbound engine"
_KEPT = "leakbound calibration"
_FORMAT = 1
_TARGETS = {kind.__name__: kind for kind in (Capacity, Leakage, Reconstruction, Naming, Identification)}
_DIGEST = 32  # bytes of the digest of a calibration record
_ROUNDING = 1e-9  # relative, of sums over the eigenvalues of a covariance


class Saved:
    """An engine that can be saved and loaded."""

    calibration: Calibration
    layout: Layout
    target: Target
    calibrate_to_own: bool
    provenance: Mapping[str, Any] | None = None
    _seed: int | None
    _key: Key
    labels: LabelCount
    _public: frozenset[bytes]
    _counter: Counter

    @property
    def noise(self) -> str:
        """``fresh`` at each use, or ``frozen``: one noisy copy of each record."""
        return "frozen" if self._counter.plan.frozen else "fresh"

    def save(self, path: str | Path) -> None:
        """Write the calibrated channel to one file, from which :meth:`load` makes this engine without the records.

        The file states shape, target, layout, classes, seed, versions and time. Uses are not in it. They lie
        in the ledger, or in :meth:`state_dict`. The file appears whole or not at all, with mode 0600, and
        replaces an older one.

        Args:
            path: File to write, e.g. ``engine.safetensors``.

        Raises:
            GuaranteeError: If the channel is a statistic of the private records, if the target is of a class
                of your own, or if records were released and no ledger counts them.

        Example:
            >>> ChannelEngine.for_data(public, Leakage(60, uses=10)).save("engine.safetensors")  # doctest: +SKIP
        """
        if self.calibrate_to_own:
            raise GuaranteeError(
                "the engine was calibrated to the records that it protects, and a file would hold their mean and "
                "covariance: calibrate to public records to save it"
            )
        if self._counter.file is None and not self._counter.pristine:
            raise GuaranteeError(
                "the engine has released records, and one that is loaded would count from zero: save it before the "
                "first release and its state_dict() with each checkpoint, or give for_data a ledger"
            )
        facts = {
            "target": _target_facts(self.target),
            "noise": self.noise,
            "seed": self._seed,
            "classes": self.labels.classes,
            "labels": None if self.labels.response is None else asdict(self.labels.response),
            "key": self._key,
            "layout": asdict(self.layout),
            "double": self._counter.identity.double,
            "ledger": None if self._counter.file is None else self._counter.identity.name,
        }
        digests = np.frombuffer(b"".join(sorted(self._public)), np.uint8).reshape(-1, _DIGEST)
        _write(Path(path), self.calibration, _KIND, facts, digests)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        ledger: str | Path | None = None,
        state: Mapping[str, Any] | None = None,
        accept_capacity: float | int | None = None,
    ) -> Any:
        """Make an engine from a file of :meth:`save`, without calibration or public records.

        Counts do not come from the file, so that loading it twice gives no second budget unnoticed. An engine
        that had a ledger needs the same ledger. Any other warns that it counts from zero unless it gets a
        ledger, or the state to resume from.

        Args:
            path: File of an engine.
            ledger: File in which uses of records are counted for all runs, as in :meth:`for_data`.
            state: :meth:`state_dict` to resume from.
            accept_capacity: As in :meth:`for_data`. It is yours to decide, so it is not in the file.

        Returns:
            The engine, whose ``provenance`` says when, from how many records and with which versions it was
            made.

        Raises:
            GuaranteeError: If the file is missing, damaged, changed or of something else, its channel does
                not meet its target, or the ledger is not the one that the engine counted in.

        Example:
            >>> engine = ChannelEngine.load("engine.safetensors", ledger="uses.ledger")  # doctest: +SKIP
        """
        path = Path(path)
        calibration, facts, digests, provenance = _read(path, _KIND)
        try:
            arguments = dict(facts["target"])
            target = _TARGETS[arguments.pop("class")](**arguments)
            layout = Layout(**facts["layout"] | {"shape": tuple(facts["layout"]["shape"])})
            seed = facts["seed"]
            identity = Identity.made(facts["double"], seed)
            uses = target.fresh_uses(facts["noise"] == "frozen")
            kept = {name: facts[name] for name in ("noise", "seed", "key")}
            response = facts.get("labels")  # files of earlier versions lack it
            labels = LabelCount(facts["classes"], response and RandomizedResponse(**response))
            counted_in = facts["ledger"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise GuaranteeError(
                f"{path}: its facts are not those of an engine ({error}): save it again"
            ) from error
        if math.prod(layout.shape) != calibration.channel.dimension:
            raise GuaranteeError(
                f"{path}: layout and channel differ in size, so it was changed: save it again"
            )
        if target.excess(calibration, uses) > _ROUNDING:
            raise GuaranteeError(
                f"{path}: the channel does not meet {target}, so the file was changed: save it again"
            )
        file = _ledger_of(path, counted_in, ledger, identity)
        made: Any = cls
        engine = made(
            *(calibration, layout, target),
            **kept,
            labels=labels,
            accept_capacity=accept_capacity,
            identity=identity if file is None else file.identity,
            ledger=file,
            public={row.tobytes() for row in digests},
        )
        engine.provenance = provenance
        if state is not None:
            engine.load_state_dict(state)
        elif file is None and seed is None:
            warnings.warn(
                f"{path}: the loaded engine counts from zero, whatever other runs have released: give load ledger=PATH "
                "or state=CHECKPOINT",
                UncountedWarning,
                stacklevel=2,
            )
        return engine


class UncountedWarning(UserWarning):
    """Warn that a loaded engine knows nothing of the uses of earlier runs."""


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
    shape: str,
    weights: np.ndarray | None,
    uses: int,
    folder: Path | None,
    progress: Stage,
) -> Calibration:
    """Calibrate by :meth:`Target.calibrate`, or read the calibration from the cache if it is there and whole.

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
        "target": _target_facts(target),
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
            kept, facts, _, _ = _read(path, _KEPT)
            if facts == {"digest": digest} and target.excess(kept, uses) <= _ROUNDING:
                progress("found in the cache", 1.0)
                return kept
        except GuaranteeError:
            pass  # damaged: it is made again
    made = target.calibrate(records, shape_named(shape), weights, uses, progress)
    try:
        _write(path, made, _KEPT, {"digest": digest}, np.zeros((0, _DIGEST), np.uint8))
    except (GuaranteeError, OSError, storage.FullDiskError):
        progress("the cache cannot be written", 1.0)
    return made


def _write(
    path: Path, calibration: Calibration, kind: str, facts: Mapping[str, Any], digests: np.ndarray
) -> None:
    """Write a calibration, facts about it and digests (n, 32) of its records as one file with a checksum.

    Raises:
        GuaranteeError: If the covariance or its axes are never formed, and so cannot be written.
    """
    channel, moments = calibration.channel, calibration.moments
    if isinstance(channel.basis, Directions) or moments.dimension > DENSE:
        raise GuaranteeError(
            f"{channel.shape} noise for {moments.count} records of {moments.dimension} values is computed from these "
            f"records, and a file would hold them: keep the public records, or take shape='natural' and at most "
            f"{DENSE} values"
        )
    spectrum = calibration.spectrum
    parts = {"moments": moments.arrays(), "spectrum": spectrum.arrays(), "channel": channel.arrays()}
    arrays = {f"{part}.{name}": array for part, held in parts.items() for name, array in held.items()}
    arrays["digests"] = digests
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
        "channel": json.dumps(channel.metadata()),
        "spectrum": json.dumps(spectrum.metadata()),
        "facts": json.dumps(facts),
        "provenance": json.dumps(provenance),
    }
    strings["checksum"] = _checksum(arrays, strings)
    storage.write_arrays(path, arrays, strings, private=True, sealed=False)


def _read(path: Path, kind: str) -> tuple[Calibration, Mapping[str, Any], np.ndarray, Mapping[str, Any]]:
    """Read calibration, facts, digests and provenance from a file of :func:`_write`.

    Raises:
        GuaranteeError: If it is missing, damaged, changed, of another kind or format, or inconsistent.
    """
    try:
        arrays, strings = storage.read_arrays_and_metadata(path, sealed=False)
    except (storage.DamagedFileError, storage.TooLargeError) as error:
        raise GuaranteeError(f"{error}: give a file that leakbound has saved") from error
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
    try:
        parts: dict[str, dict[str, np.ndarray]] = {"moments": {}, "spectrum": {}, "channel": {}}
        digests = arrays.pop("digests")
        for name, array in arrays.items():
            part, _, of = name.partition(".")
            parts[part][of] = array
        spectrum = Spectrum.from_arrays(parts["spectrum"], json.loads(strings["spectrum"]))
        channel = GaussianChannel.from_arrays(
            parts["channel"], json.loads(strings["channel"]), spectrum.basis
        )
        calibration = Calibration(channel, spectrum, Moments.from_arrays(parts["moments"]))
        if digests.dtype != np.uint8 or digests.shape[1:] != (_DIGEST,):
            raise ValueError(f"digests: {digests.dtype} of shape {digests.shape}")
        _check_agreement(calibration)
        return calibration, json.loads(strings["facts"]), digests, json.loads(strings["provenance"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GuaranteeError(
            f"{path}: its contents are inconsistent ({error}): save the engine again"
        ) from error


def _checksum(arrays: Mapping[str, np.ndarray], strings: Mapping[str, str]) -> str:
    """Compute the SHA-256 of all that a file holds."""
    return settings_hash({"arrays": storage.arrays_hash(arrays), "strings": dict(strings)})


def _check_agreement(calibration: Calibration) -> None:
    """Refuse a spectrum that is not that of the covariance stored with it, without decomposing it again."""
    spectrum, moments, channel = calibration.spectrum, calibration.moments, calibration.channel
    if not spectrum.dimension == moments.dimension == channel.dimension or spectrum.shape != channel.shape:
        raise ValueError("channel, spectrum and covariance differ in shape")
    covariance, eigenvalues = moments.covariance, spectrum.eigenvalues
    agreements = [np.array_equal(spectrum.mean, moments.mean)]
    if spectrum.basis is not None:
        if spectrum.data_eigenvalues is None:
            raise ValueError("a spectrum with axes needs the variances along them")
        eigenvalues = spectrum.data_eigenvalues
        vector = np.random.default_rng(0).normal(size=len(eigenvalues))
        turned = spectrum.basis @ vector
        along, stated = covariance @ turned, spectrum.basis @ (eigenvalues * vector)
        agreements.append(bool(np.isclose(turned @ turned, vector @ vector, rtol=_ROUNDING)))
        agreements.append(np.allclose(along, stated, rtol=_ROUNDING, atol=_ROUNDING * np.abs(along).max()))
        if channel.gain is not None:
            before = unshrunk(eigenvalues, moments)
            agreements.append(np.allclose(spectrum.eigenvalues, before, rtol=_ROUNDING, atol=0.0))
    elif spectrum.weights is not None:
        root = np.sqrt(spectrum.weights)
        covariance = covariance / np.outer(root, root)
    agreements.append(bool(np.isclose(eigenvalues.sum(), np.trace(covariance), rtol=_ROUNDING)))
    agreements.append(bool(np.isclose((eigenvalues**2).sum(), (covariance**2).sum(), rtol=_ROUNDING)))
    if not all(agreements):
        raise ValueError("the spectrum is not that of the covariance")


def _target_facts(target: Target) -> dict[str, Any]:
    """List the class and the arguments of a target.

    Raises:
        GuaranteeError: If its class is none of this package's.
    """
    name = type(target).__name__
    if _TARGETS.get(name) is not type(target):
        raise GuaranteeError(f"{target}: only targets of leakbound can be saved: {', '.join(_TARGETS)}")
    arguments = {field.name: getattr(target, field.name) for field in fields(target) if field.init}
    return {"class": name, **arguments}


def _ledger_of(
    path: Path, counted_in: str | None, ledger: str | Path | None, identity: Identity
) -> Ledger | None:
    """Open the ledger of an engine that is loaded, and refuse another one than that which it counted in."""
    if counted_in is None:
        return None if ledger is None else Ledger(identity, ledger)
    if ledger is None:
        raise GuaranteeError(
            f"{path}: the engine counts in a ledger on disk: give load the same one, ledger=PATH"
        )
    place = Path(ledger).expanduser()
    if not place.exists():
        raise GuaranteeError(
            f"ledger = {place}: it is not there, and a new one would forget the uses that {path} was saved with: give "
            "the one that the engine counted in"
        )
    file = Ledger(identity, place)
    if file.identity.name != counted_in:
        raise GuaranteeError(f"ledger = {place}: it is not the one that {path} was saved with: give that one")
    return file
