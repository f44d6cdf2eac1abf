"""Command: find results that differ from their seals, or were made by other settings."""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from leakbound import storage
from leakbound.words import printable, shown
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import Job
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.job_settings import ConfigOption


def verify(
    configfile: ConfigOption = Path("config/config.yaml"),
    remove: Annotated[
        bool,
        typer.Option(help="Delete damaged and outdated files, and print the command that makes them again."),
    ] = False,
) -> None:
    """Compare every file of the results with its seal, and its settings with those of the configuration.

    Exit with code 1 if a file is damaged, was made by other settings, has no seal, or is missing while others of its
    result are there.

    Example: leakbound verify --configfile config/small.yaml

    Example: leakbound verify --remove
    """
    config = reading.load(configfile)
    root = Path(config.root)
    if not root.is_dir():
        raise typer.BadParameter(f"{root} does not exist: run snakemake --configfile {configfile} first")
    files = [*_sealed_files(root)]
    jobs = job_list(config)
    recorded = [job for job in jobs if "provenance" in job.outputs]
    settings = {Path(job.outputs["provenance"]): json.loads(job.settings_text()) for job in recorded}
    missing = [*_missing(jobs)]
    gone = {fault.path for fault in missing}
    faults = [
        *filter(None, (_fault_of(path, settings.get(path)) for path in files)),
        *missing,
        *_stale(root, gone),
    ]
    for fault in faults:
        deleted = remove and fault.kind not in ("unsealed", "missing")
        if deleted:
            fault.path.unlink()
            storage.seal_of(fault.path).unlink(missing_ok=True)
        line = f"{fault.path}: {fault.kind}{' and removed' if deleted else ''}: {fault.reason}"
        sys.stdout.write(printable(line) + "\n")
    wrong = [fault for fault in faults if fault.kind != "stale"]
    sys.stdout.write(
        f"{root}: {len(files) + len(gone) - len(wrong)} of {len(files) + len(gone)} files are as they were written\n"
    )
    if remove:
        removed = {fault.path for fault in faults if fault.kind in ("damaged", "outdated", "missing")}
        _say_how_to_remake(removed, {*map(Path, jobs.files())}, configfile)
    if wrong:
        raise typer.Exit(1)


def _say_how_to_remake(removed: set[Path], made: set[Path], configfile: Path) -> None:
    """Print the Snakemake command that makes removed files again, and name files that no job makes."""
    for path in sorted(removed - made):  # Snakemake would reject their names
        sys.stdout.write(f"{path}: from an earlier version of {configfile}, which no longer makes it\n")
    # Without its name here, a file that no job needs now would be made only when a job needs it.
    targets = " ".join(["all", *map(str, sorted(removed & made))])
    if removed:
        sys.stdout.write(f"make them again: snakemake -j 2 --configfile {configfile} -- {targets}\n")


_UNSEALED = {"logs", "benchmarks"}
_OWN_DIGEST = "checkpoint-*.pt"


class Finding(NamedTuple):
    """A file that differs from its seal, or lacks one.

    Attributes:
        path: The file. For a stale seal, the seal.
        kind: ``damaged``, ``outdated`` if other settings made it, ``unsealed`` for a file without a seal,
            ``missing`` for one that was written together with others that are there, or ``stale`` for any other seal
            without a file.
        reason: Description of the fault.
    """

    path: Path
    kind: str
    reason: str


def _sealed_files(root: Path) -> Iterator[Path]:
    """Yield the files that are sealed when they are written, in order."""
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        ours = inside.parts[0] not in _UNSEALED and not path.match(_OWN_DIGEST)
        if ours and path.is_file() and not any(part.startswith(".") for part in inside.parts):
            yield path


def _fault_of(path: Path, settings: Any) -> Finding | None:
    """Return the fault of a file, None if it has none. ``settings`` are those that it should state, if any."""
    if not storage.seal_of(path).is_file():
        reason = "no checksum file, so its integrity cannot be verified; if a job made it, delete it"
        return Finding(path, "unsealed", reason)
    try:
        storage.check(path)
        recorded = storage.read_json(path).get("settings") if settings else None
    except storage.DamagedFileError as error:
        return Finding(path, "damaged", error.reason)
    others = "; ".join(_differences(recorded, settings)) if recorded else ""
    return Finding(path, "outdated", f"other settings made it: {others}") if others else None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that differ between the settings of a result and those of the configuration."""
    flat = dict(_flatten(before))
    wanted = dict(_flatten(now))
    for place in sorted({*flat, *wanted}):
        if (was := flat.get(place)) != (value := wanted.get(place)):
            yield f"{place} was {shown(was)}, is {shown(value)}"


def _flatten(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings with the path to each, in points."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _missing(jobs: Iterable[Job]) -> Iterator[Finding]:
    """Yield the files of results that are there in part."""
    for job in jobs:
        paths = [Path(path) for path in job.outputs.values()]
        there = [path for path in paths if path.exists()]
        for path in paths:
            if there and path not in there:
                yield Finding(
                    path, "missing", f"it was written together with {there[0].name}, which is there"
                )


def _stale(root: Path, missing: Collection[Path]) -> Iterator[Finding]:
    """Yield the seals of files that no longer exist, but of those known to be missing."""
    for seal in sorted(root.rglob(".*.sha256")):
        path = seal.with_name(seal.stem[1:])
        if not path.exists() and path not in missing:
            yield Finding(seal, "stale", "its file is gone")
