"""Command: compare the files of a configuration's results with their seals."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from leakbound import storage
from leakbound.cli.results import job_list
from leakbound.config import reading
from leakbound.jobs.job import Job

_OF_SNAKEMAKE = {"logs", "benchmarks"}
_OWN_DIGEST = "checkpoint-*.pt"


@dataclass(frozen=True)
class Finding:
    """A file that is not as it was written.

    Attributes:
        path: The file; of a stale seal, the seal.
        kind: ``damaged``; ``unsealed`` if it has no seal; ``stale`` for a seal without a file.
        reason: What is wrong.
    """

    path: Path
    kind: Literal["damaged", "unsealed", "stale"]
    reason: str


def verify(
    configfile: Annotated[Path, typer.Option(help="Configuration whose results are meant.")] = Path(
        "config/config.yaml"
    ),
    remove: Annotated[bool, typer.Option(help="Delete what is damaged, so that snakemake makes it again.")] = False,
) -> None:
    """Compare every file of a configuration's results with its seal; ends with code 1 if one is damaged or has none."""
    config = reading.load(configfile)
    root = Path(config.root)
    if not root.is_dir():
        raise typer.BadParameter(f"{root} does not exist: run snakemake --configfile {configfile} first")
    files = list(_files(root))
    made = {Path(path): job for job in job_list(config) for path in job.outputs.values()}
    found = [*(finding for path in files if (finding := _examined(path, made))), *_stale(root)]
    for finding in found:
        deleted = remove and finding.kind != "unsealed"
        if deleted:
            finding.path.unlink()
            storage.seal_of(finding.path).unlink(missing_ok=True)
        sys.stdout.write(f"{finding.path}: {finding.kind}{' and removed' if deleted else ''}: {finding.reason}\n")
    wrong = [finding for finding in found if finding.kind != "stale"]
    sys.stdout.write(f"{root}: {len(files) - len(wrong)} of {len(files)} files are as they were written\n")
    if removed := [finding.path for finding in found if remove and finding.kind == "damaged"]:
        again = [path for path in removed if path in made]  # Snakemake rejects the names of files that no job makes
        for path in sorted({*removed} - {*again}):
            sys.stdout.write(f"{path}: of an earlier form of {configfile}, which does not make it any more\n")
        # Left out of the command, one that nothing needs at present would be made when something does.
        wanted = " ".join(["all", *(path.as_posix() for path in again)])
        sys.stdout.write(f"make them again: snakemake -j 2 --configfile {configfile} -- {wanted}\n")
    if wrong:
        raise typer.Exit(1)


def _files(root: Path) -> Iterator[Path]:
    """Files that are sealed when they are written, in order."""
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        ours = inside.parts[0] not in _OF_SNAKEMAKE and not path.match(_OWN_DIGEST)
        if ours and path.is_file() and not path.name.startswith("."):
            yield path


def _examined(path: Path, made: Mapping[Path, Job]) -> Finding | None:
    """The fault of a file; none if it has none."""
    if not storage.seal_of(path).is_file():
        return Finding(path, "unsealed", "nobody knows whether it is whole; if a job made it, delete it")
    try:
        storage.check(path)
        owner = _owner(path, made.get(path))
    except storage.DamagedFileError as error:
        return Finding(path, "damaged", error.reason)
    return Finding(path, "damaged", f"its folder is that of {owner}, moved here") if owner else None


def _owner(path: Path, job: Job | None) -> str | None:
    """The run whose provenance this is if it lies where a job of another one writes: a moved folder is whole."""
    if job is None or path != Path(job.outputs.get("provenance", "")):
        return None
    slug = storage.read_json(path).get("settings", {}).get("slug")
    return slug if slug not in (None, job.settings.get("slug")) else None


def _stale(root: Path) -> Iterator[Finding]:
    """Seals of files that are gone."""
    for seal in sorted(root.rglob(".*")):
        path = storage.sealed_by(seal)
        if path is not None and not path.exists():
            yield Finding(seal, "stale", "its file is gone")
