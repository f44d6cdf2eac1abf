"""Where a result comes from: code, configuration, data, device, versions, and what was done to the private records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

_PACKAGES = ("leakbound", "torch", "numpy", "scipy", "pandas", "opacus", "scikit-learn", "scikit-image", "snakemake")


@dataclass(frozen=True)
class PrivacyEvent:
    """What a training did to private records; all that an accountant may read.

    Attributes:
        mechanism: ``none``, ``channel``, ``dpsgd``, ``dppsac``, ``parameter_noise``, ``gradient_compression``,
            ``large_batch``, ``compression``, or the name of an outside trainer.
        sampling: How batches were drawn: ``shuffled`` epochs, or ``poisson``.
        population: Records that could be drawn.
        batch_size: Records in a step; the expected number under Poisson sampling.
        steps: Optimisation steps done.
        uses: Most often that any one record was used, counted.
        shape: Channel shape, if a channel.
        capacity: κ in nats per use, if a channel.
        noise: ``fresh`` or ``frozen``, if a channel.
        noise_multiplier: Noise standard deviation over ``max_grad_norm``, if DP.
        max_grad_norm: Clipping bound of a record's gradient, if DP.
    """

    mechanism: str
    sampling: Literal["shuffled", "poisson"]
    population: int
    batch_size: int
    steps: int
    uses: int
    shape: str | None = None
    capacity: float | None = None
    noise: Literal["fresh", "frozen"] | None = None
    noise_multiplier: float | None = None
    max_grad_norm: float | None = None

    @property
    def sample_rate(self) -> float:
        """Probability that a record takes part in a step."""
        return self.batch_size / self.population

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PrivacyEvent:
        """The event that :meth:`to_dict` wrote."""
        return cls(**values)


def settings_hash(settings: Any) -> str:
    """SHA-256 of plain values, independent of the order of their keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def commit() -> dict[str, Any]:
    """Git commit of this package's source and whether it had uncommitted changes; nulls if git does not track it."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


def _git(*words: str) -> str:
    """Output of a git command in the package's folder."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def collect(settings: Any, *, inputs: dict[str, Path], device: str, seconds: float, **facts: Any) -> dict[str, Any]:
    """Provenance record of one job.

    Args:
        settings: Plain values that the job depended on.
        inputs: Role to input file; recorded by content hash, not by path.
        device: Name of the device that computed.
        seconds: Wall time.
        **facts: Anything else worth keeping, plain values.
    """
    from leakbound.storage import file_hash

    return {
        **commit(),
        "settings": settings,
        "settings_hash": settings_hash(settings),
        "inputs": {role: file_hash(path) for role, path in sorted(inputs.items())},
        "device": device,
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
        "seconds": round(seconds, 3),
        **facts,
    }
