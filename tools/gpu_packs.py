"""Packs of finished results from a machine that is lent for minutes: made there, merged here.

    python tools/gpu_packs.py --configfile FILE --pack FOLDER
    python tools/gpu_packs.py --configfile FILE --merge PART ... [--accept DATASET ...]
    python tools/gpu_packs.py --configfile FILE --targets    # the files that a lent machine makes

A pack holds the rows, scores, provenance, logs and times of finished trainings and attacks, with Snakemake's own notes
about them, so that merged results are not made again. It holds no images, no other arrays of attacks, which may be
pictures, and weights only of networks whose attacks are not finished. Before a merge, images and channels are made
here; they have to be the same records. Called in the folder of the project.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.jobs import coordination
from leakbound_lab.jobs.job import JobList, jobs_by_rule
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.tabulate import MEMBERSHIP

RULES = ("train", "attack", "federate", "measure")
"""Rules whose results travel: those that take a GPU."""
_BEFORE = ("prepare", "covariance", "spectrum", "calibrate", "estimator")
_PART = 15 << 20  # bytes of a part
_MOST = 58 << 20  # bytes of all that is packed
_MOST_UNPACKED = 1 << 30  # bytes
_MANIFEST = "pack.json"
_LONGEST = 255  # characters of a file name, as Snakemake reckons


@dataclass(frozen=True)
class Piece:
    """Results of one job of Snakemake that travel together.

    Attributes:
        rule: Rule of the job.
        declared: Files that the rule declares, but arrays.
        weights: Arrays that it writes: weights, pictures, scores of records.
        rows: Files that a pack holds: rows, provenance, scores of records.
        notes: Log and times.
    """

    rule: str
    declared: tuple[Path, ...]
    weights: tuple[Path, ...]
    rows: tuple[Path, ...]
    notes: tuple[Path, ...]

    @property
    def finished(self) -> bool:
        """True if Snakemake saw it end well."""
        whole = all(path.is_file() and note("metadata", path).is_file() for path in self.declared)
        return whole and not any(note("incomplete", path).exists() for path in (*self.declared, *self.weights))

    def files(self) -> list[Path]:
        """Its files that are there, with seals and Snakemake's notes, and without weights."""
        every = [*self.rows, *map(storage.seal_of, self.rows), *self.notes]
        every += [note("metadata", path) for path in (*self.declared, *self.weights)]
        return [path for path in dict.fromkeys(every) if path.is_file()]


def note(kind: str, path: Path) -> Path:
    """Snakemake's own file about a result.

    Args:
        kind: ``metadata`` or ``incomplete``.
        path: The result.
    """
    name = urlsafe_b64encode(str(path).encode()).decode()
    parts = [name[start : start + _LONGEST - 1] for start in range(0, len(name), _LONGEST - 1)]
    return Path(".snakemake", kind, *(f"@{part}" for part in parts[:-1]), parts[-1])


def pieces(made: JobList) -> dict[str, Piece]:
    """Results of a configuration that travel, by rule and name.

    Args:
        made: Its jobs.
    """
    root = Path(made.table.config.root)
    found = {}
    for (rule, of), jobs in jobs_by_rule(made).items():
        if rule not in RULES:
            continue
        outputs = {path for job in jobs for path in job.outputs.values()}
        arrays = {path for path in outputs if path.endswith(".safetensors")}
        scores = {
            job.outputs["arrays"] for job in jobs if job.step == "attack" and job.settings["attack"] in MEMBERSHIP
        }
        name = "/".join(filter(None, (rule, of)))
        found[name] = Piece(
            rule,
            declared=tuple(map(Path, sorted(outputs - arrays))),
            weights=tuple(map(Path, sorted(arrays))),
            rows=tuple(map(Path, sorted(outputs - arrays | scores))),
            notes=(root / f"logs/{name}.log", root / f"benchmarks/{name}.tsv"),
        )
    return found


def targets(made: JobList) -> list[str]:
    """Files that a lent machine is to make: attacks, and trainings that nobody attacks.

    Args:
        made: Jobs of a configuration.
    """
    every = pieces(made)
    attacked = {name.removeprefix("attack/") for name in every if name.startswith("attack/")}
    return [
        str(piece.declared[0])
        for name, piece in every.items()
        if piece.rule != "train" or name.removeprefix("train/") not in attacked
    ]


def counts(made: JobList) -> str:
    """Numbers of finished results of each rule, in words."""
    every = pieces(made).values()
    due, done = Counter(piece.rule for piece in every), Counter(piece.rule for piece in every if piece.finished)
    return ", ".join(f"{rule} {done[rule]} of {number}" for rule, number in due.items())


def chosen(made: JobList, most: int) -> list[Path]:
    """Files to pack, what says most first, as far as they fit.

    Args:
        made: Jobs of a configuration.
        most: Bytes of all of them.
    """
    every = pieces(made)
    needed = {  # by an attack that is not finished
        name: piece
        for name, piece in every.items()
        if piece.rule == "train"
        and (attack := every.get(name.replace("train/", "attack/", 1))) is not None
        and not attack.finished
    }
    groups = [piece.files() for name, piece in every.items() if piece.finished and name not in needed]
    whole = [
        [*piece.files(), *piece.weights, *map(storage.seal_of, piece.weights)]
        for piece in needed.values()
        if piece.finished and all(path.is_file() for path in piece.weights)
    ]
    begun = [
        [path]
        for piece in needed.values()
        if not piece.finished
        for folder in {path.parent for path in piece.weights}
        for path in folder.glob("checkpoint-*.pt")
    ]
    packed: list[Path] = []
    left = most
    for group in [*groups, *sorted(whole, key=_size), *sorted(begun, key=_size)]:
        if _size(group) <= left:
            left -= _size(group)
            packed += group
    return packed


def _size(files: Iterable[Path]) -> int:
    """Bytes of some files."""
    return sum(path.stat().st_size for path in files)


class Parts(io.RawIOBase):
    """A file in parts, ``NAME.0``, ``NAME.1`` and so on.

    Args:
        path: Name of the whole.
        size: Bytes of a part.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self.written = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes, into as many parts as it takes, and return how many there are."""
        waiting = memoryview(data)
        length = len(waiting)
        while len(waiting):
            part, used = divmod(self.written, self._size)
            piece = waiting[: self._size - used]
            with self._path.with_name(f"{self._path.name}.{part}").open("ab") as file:
                file.write(piece)
            self.written += len(piece)
            waiting = waiting[len(piece) :]
        return length


def pack(made: JobList, out: Path, *, most: int = _MOST, part: int = _PART) -> None:
    """Write what is finished into ``pack.tgz.0`` and so on.

    Args:
        made: Jobs of a configuration.
        out: Folder of the parts.
        most: Bytes of all that is packed.
        part: Bytes of a part.
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("pack.tgz.*"):
        old.unlink()
    files = chosen(made, most)
    manifest = {
        "preset": made.table.config.preset,
        "data": contents(made),
        "files": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    parts = Parts(out / "pack.tgz", part)
    with (
        io.BufferedWriter(parts) as stream,
        gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=3) as whole,
        tarfile.open(fileobj=whole, mode="w|") as tar,
    ):
        text = json.dumps(manifest).encode()
        head = tarfile.TarInfo(_MANIFEST)
        head.size = len(text)
        tar.addfile(head, io.BytesIO(text))
        for path in files:
            tar.add(path, recursive=False)
    print(f"{len(files)} files, {parts.written / 2**20:.1f} MiB in {out}; {counts(made)}")


def contents(made: JobList) -> dict[str, str]:
    """Dataset to the hash of its prepared records, for those that are prepared."""
    written = ((job.name, Path(job.outputs["provenance"])) for job in made.of("prepare"))
    return {name: storage.read_json(path)["content"] for name, path in written if path.is_file()}


def merge(made: JobList, configfile: Path, parts: list[Path], accept: Iterable[str], jobs: int) -> None:
    """Put the results of a pack into the folder of results, so that Snakemake makes what is missing.

    Args:
        made: Jobs of the configuration.
        configfile: Its file.
        parts: All parts of a pack.
        accept: Datasets whose records may differ from those that were packed.
        jobs: Jobs side by side that make images and channels.

    Raises:
        SystemExit: If the pack is damaged, belongs to another configuration, or holds anything else.
    """
    every = pieces(made)
    root = Path(made.table.config.root)
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".merge-", dir=root))
    try:
        manifest = unpacked(parts, folder, made)
        whole = {name for name, piece in every.items() if holds(folder, piece)}
        before = [path for job in made.of(*_BEFORE) for path in job.outputs.values()]
        command = [sys.executable, "-m", "snakemake", "--configfile", str(configfile), "-j", str(jobs)]
        if not all(map(os.path.exists, before)):
            subprocess.run([*command, "--quiet", "rules", "progress", "--", *before], check=True)
        try:
            coordination.lead(root)
        except coordination.BusyError as error:
            sys.exit(str(error))
        other = differing(manifest["data"], contents(made), accept)
        missing = {name: piece for name, piece in every.items() if not (piece.finished or _of(name, other))}
        for piece in missing.values():
            for path in [
                path for weights in piece.weights for path in (folder / weights.parent).glob("checkpoint-*.pt")
            ]:
                _move(path, path.relative_to(folder))
        added = [piece for name, piece in missing.items() if name in whole]
        for piece in added:
            place(folder, piece)
    finally:
        shutil.rmtree(folder)
    print(f"{len(added)} results merged into {root}; {counts(made)}")
    if other:
        sys.exit(
            f"Left out: {', '.join(sorted(other))}, whose records are other ones here. Set LEAKBOUND_DATA to the "
            "folder that the machine had. If only the decoder of the pictures differs, add --accept and these names"
        )


def _of(name: str, datasets: Iterable[str]) -> bool:
    """True if a piece belongs to one of some datasets."""
    return name.split("/")[1:2] in [[dataset] for dataset in datasets]


def differing(there: Mapping[str, str], here: Mapping[str, str], accept: Iterable[str]) -> set[str]:
    """Datasets whose records are other ones than those that were packed."""
    return {name for name, content in there.items() if here.get(name) != content} - {*accept}


def allowed(made: JobList) -> re.Pattern[str]:
    """Names that a pack of a configuration may hold beside its manifest.

    Args:
        made: Jobs of the configuration.
    """
    names = []
    for piece in pieces(made).values():
        files = (*piece.rows, *piece.weights)
        every = (*files, *map(storage.seal_of, files), *piece.notes, *(note("metadata", path) for path in files))
        names += [re.escape(str(path)) for path in every]
        names += [re.escape(str(path.parent)) + "/checkpoint-[0-9a-f]{16}[.]pt" for path in piece.weights]
    return re.compile("|".join(names))


def unpacked(parts: list[Path], folder: Path, made: JobList) -> dict[str, Any]:
    """Check a pack and unpack it; its manifest.

    Args:
        parts: All of its parts.
        folder: Empty folder to unpack to.
        made: Jobs of the configuration that it has to belong to.

    Raises:
        SystemExit: If it is damaged, or holds anything but results of the configuration.
    """
    for path in parts:
        if not (path.is_file() and path.suffix[1:].isdigit()):
            sys.exit(f"{path}: is no part of a pack; give all of its files pack.tgz.0, pack.tgz.1 and so on")
    what = f"{parts[0].parent}/pack.tgz"
    whole = folder / "whole.tgz"
    with whole.open("wb") as file:
        for path in sorted(parts, key=lambda path: int(path.suffix[1:])):
            file.write(path.read_bytes())
    may, left = allowed(made), _MOST_UNPACKED
    found: dict[str, str] = {}
    manifest: dict[str, Any] = {}
    try:
        with gzip.open(whole) as stream:  # its checksum comes last: a pack that lacks a part is read no further
            while stream.tell() <= _MOST_UNPACKED and stream.read(1 << 20):
                pass
        with tarfile.open(whole, mode="r|gz") as tar:
            for member in tar:
                left -= member.size
                if not member.isreg() or left < 0 or member.name in found:
                    sys.exit(f"{what}: {member.name!r} is a link, comes twice or is too large; nothing was merged")
                data = tar.extractfile(member).read()  # type: ignore[union-attr]  # a regular file
                if not manifest:
                    manifest = _manifest(data, member.name, made.table.config.preset, what)
                    continue
                if not may.fullmatch(member.name):
                    sys.exit(f"{what}: {member.name!r} is no result of this configuration; nothing was merged")
                found[member.name] = hashlib.sha256(data).hexdigest()
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        sys.exit(f"{what}: a part is missing or damaged ({error}); nothing was merged")
    if found != manifest.get("files"):
        sys.exit(f"{what}: a part is missing, or files differ from its list; nothing was merged")
    return manifest


def _manifest(data: bytes, name: str, preset: str, what: str) -> dict[str, Any]:
    """Read the manifest of a pack, which comes first."""
    try:
        manifest = json.loads(data) if name == _MANIFEST else {}
    except ValueError:
        manifest = {}
    if manifest.get("preset") != preset:
        sys.exit(
            f"{what}: is no pack of {preset}, but of {manifest.get('preset')!r}; give the --configfile that was run"
        )
    return manifest


def holds(folder: Path, piece: Piece) -> bool:
    """True if an unpacked folder holds a piece.

    Raises:
        SystemExit: If a file of it differs from its seal.
    """
    if not all((folder / path).is_file() for path in (*piece.rows, *(note("metadata", one) for one in piece.declared))):
        return False
    try:
        for path in piece.rows:
            storage.check(folder / path)
    except storage.DamagedFileError as error:
        sys.exit(f"{error}; nothing was merged")
    return True


def _move(path: Path, target: Path) -> None:
    """Move a file, and let it be as old as if it were made now."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    os.utime(target)


def place(folder: Path, piece: Piece) -> None:
    """Move a piece to its place. It counts as made now: what was made here before is older, as its inputs have to be.

    Args:
        folder: Folder that it was unpacked to.
        piece: The piece.
    """
    files = (*piece.weights, *piece.rows)
    every = (*map(storage.seal_of, files), *piece.notes, *files, *(note("metadata", path) for path in files))
    for path in every:
        if (folder / path).is_file():
            _move(folder / path, path)


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", type=Path, required=True, help="configuration")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="pack what is finished, into this folder")
    parser.add_argument(
        "--merge", type=Path, nargs="+", metavar="PART", help="merge a pack, of which these are all parts"
    )
    parser.add_argument(
        "--accept", nargs="*", default=[], metavar="DATASET", help="whose records may be other ones here"
    )
    parser.add_argument("--targets", action="store_true", help="list the files that a lent machine makes")
    parser.add_argument("--jobs", type=int, default=2, help="jobs side by side that make images and channels")
    asked = parser.parse_args()
    made = job_list(reading.load(asked.configfile))
    if asked.targets:
        print(*targets(made), sep="\n")
    if asked.pack:
        pack(made, asked.pack)
    if asked.merge:
        merge(made, asked.configfile, asked.merge, asked.accept, asked.jobs)


if __name__ == "__main__":
    main()
