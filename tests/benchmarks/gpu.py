"""Everything that only a GPU can show, in one call of at most four minutes: is it right, and how fast.

    python tests/benchmarks/gpu.py [--minutes 4] [--sections correct fast] [--out DIRECTORY]
    python tests/benchmarks/gpu.py --wheels build/gpu-wheels    # on a machine without the package and a network
    python tests/benchmarks/gpu.py --device cpu --quick         # rehearsal of all sections, in seconds
    python tests/benchmarks/gpu.py --cases private --cases precision    # only cases with one of these words
    python tests/benchmarks/gpu.py --keep results/gpu           # take these tables into results/reference/gpu

Each section is a process of its own with its own deadline, so that one that hangs or breaks the device leaves the
others alone. Rows are written as they come, to ``gpu_<section>.parquet`` with ``gpu_<section>.json``, their provenance.
A table of all is printed last; the exit status is 1 if a value is wrong or a section ended early.

This file needs nothing but Python and `tools/gpu_run.py`: what it calls may have to be installed first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from gpu_run import installed

SHARES = {"correct": 0.35, "fast": 0.65}
"""Section to its share of the time; what one leaves goes to those after it."""
OUT, KEPT = Path("results/gpu"), Path("results/reference/gpu")
COLUMNS = ("section", "group", "case", "metric", "value", "low", "high", "expected", "status")
OK, WRONG, LEFT_OUT = "ok", "wrong", "left out"
"""Statuses of rows: compared and right; compared and not; no time was left, or the machine lacks what it takes."""
FAILED = "failed"
"""Beginning of the status of a case that ended in an error."""
_FLUSHED = 5.0  # seconds between two writes of a section's rows
_SPARE = 15.0  # seconds of the whole time that no section is given: the start, the table
_QUICK = 0.3  # seconds of a case in a rehearsal
_PARTS = {"correct": 3}  # processes side by side of a section that takes no times, on a machine with cores to spare
_GRACE = 15.0  # seconds after its deadline at which a section is killed

Values = Iterable[dict[str, Any]]
"""Rows of a case: ``metric`` and ``value``; ``low``, ``high``, ``expected``, ``status``, another ``case``, if any."""


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        group: What it belongs to.
        name: Its name.
        work: Does it, in about the given seconds.
        weight: Of its part of the section's time.
    """

    group: str
    name: str
    work: Callable[[float], Values]
    weight: float = 1.0


@dataclass(frozen=True)
class Asked:
    """Options that the sections know.

    Attributes:
        device: ``cuda`` or ``cpu``.
        quick: Whether all sizes are small, for a rehearsal.
        until: Monotonic clock at the section's deadline.
        part: Number of the part of the cases that this process measures.
        parts: Number of parts.
        words: Only cases with one of them in ``group/name``, all without any.
    """

    device: str
    quick: bool
    until: float
    words: tuple[str, ...] = ()
    part: int = 0
    parts: int = 1

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.until - time.monotonic()


def rows_of(section: str, cases: Iterable[Case], asked: Asked) -> Iterator[dict[str, Any]]:
    """Rows of a section's cases, in order; those that no time is left for say so, and errors are rows as well."""
    named = ((case, f"{case.group}/{case.name}") for case in cases)
    chosen = [case for case, name in named if not asked.words or any(word in name for word in asked.words)]
    waiting = chosen[asked.part :: asked.parts]
    empty = dict.fromkeys(COLUMNS, float("nan")) | {"section": section, "metric": "", "status": ""}
    while waiting:
        case = waiting.pop(0)
        known = {**empty, "group": case.group, "case": case.name}
        seconds = asked.left() * case.weight / (case.weight + sum(one.weight for one in waiting))
        if seconds <= 0:
            yield {**known, "status": LEFT_OUT}
            continue
        try:
            for row in case.work(min(seconds, _QUICK) if asked.quick and section == "fast" else seconds):
                yield {**known, **row}
        except Exception as error:  # of one case, after which the others go on
            said = str(error).strip().splitlines() or [""]
            yield {**known, "status": f"{FAILED}: {type(error).__name__}: {said[0][:160]}"}


def run_section(section: str, asked: Asked, out: Path) -> None:
    """Do a section in this process, and write its rows as they come."""
    import importlib

    import torch

    from leakbound import storage

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # as the library trains
    began, written = time.time(), 0.0
    module = importlib.import_module(f"gpu_{section}")
    rows: list[dict[str, Any]] = []
    for row in rows_of(section, module.cases(asked), asked):
        rows.append(row)
        if time.monotonic() - written > _FLUSHED:
            _write(section, rows, asked, out, began)
            written = time.monotonic()
    _write(section, rows, asked, out, began)
    sys.stderr.write(f"{section}: {len(rows)} rows in {time.time() - began:.0f} s\n")
    storage.check(out / f"gpu_{section}.parquet")


def _write(section: str, rows: list[dict[str, Any]], asked: Asked, out: Path, began: float) -> None:
    """Write what a section has found so far, and where it comes from."""
    import pandas as pd

    from leakbound import storage
    from leakbound.storage import provenance

    out.mkdir(parents=True, exist_ok=True)
    storage.write_rows(out / f"gpu_{section}.parquet", pd.DataFrame(rows, columns=list(COLUMNS)))
    settings = {"section": section, "quick": asked.quick, "device": asked.device}
    facts = machine(asked.device)
    record = provenance.collect(
        settings, inputs={}, device=str(facts["name"]), seconds=time.time() - began, started=began, machine=facts
    )
    storage.write_json(out / f"gpu_{section}.json", record)


def machine(device: str) -> dict[str, Any]:
    """Facts of the device and its software; as far as the driver's own program tells them, without using the device."""
    import platform

    import torch

    found: dict[str, Any] = {"name": platform.machine(), "cores": len(os.sched_getaffinity(0))}
    if device == "cuda":
        asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
        try:
            told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
            name, driver, mib = (word.strip() for word in told[0].split(","))
            found |= {"name": name, "driver": driver, "mib": mib, "gpus": len(told)}
        except (OSError, subprocess.SubprocessError, LookupError, ValueError):
            found |= {"name": torch.cuda.get_device_name(), "gpus": torch.cuda.device_count()}
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return found


def run_all(asked: argparse.Namespace, environment: dict[str, str], began: float) -> bool:
    """Run the sections one after another, each in a process of its own; True if all ended by themselves."""
    end, whole = began + 60 * asked.minutes, True
    waiting = list(asked.sections)
    while waiting:
        section = waiting.pop(0)
        share = SHARES[section] / (SHARES[section] + sum(SHARES[one] for one in waiting))
        seconds = max(1.0, (end - _SPARE - time.monotonic()) * share)
        parts = _PARTS.get(section, 1) if len(os.sched_getaffinity(0)) > 4 else 1
        folders = [asked.out / f"part{part}" for part in range(parts)] if parts > 1 else [asked.out]
        processes = []
        for part, folder in enumerate(folders):
            words = [sys.executable, __file__, "--section", section, "--within", f"{seconds:.0f}", "--out", str(folder)]
            words += ["--device", asked.device, *(["--quick"] if asked.quick else []), "--part", f"{part}/{parts}"]
            words += [f"--cases={word}" for word in asked.cases]
            processes.append(subprocess.Popen(words, env=environment, start_new_session=True))
        until = min(time.monotonic() + seconds + _GRACE, end)
        for process in processes:
            try:
                whole &= process.wait(timeout=max(0.0, until - time.monotonic())) == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                whole = False
                sys.stderr.write(f"{section}: killed after {seconds + _GRACE:.0f} s; what it had written stays\n")
        if parts > 1:
            joined(section, folders, asked.out)
    return whole


def joined(section: str, folders: Iterable[Path], out: Path) -> None:
    """Write the tables of a section's parts as one, with the provenance of the first, and remove the parts."""
    import pandas as pd

    from leakbound import storage

    name = f"gpu_{section}"
    if written := [folder for folder in folders if (folder / f"{name}.json").exists()]:
        tables = [storage.read_rows(folder / f"{name}.parquet") for folder in written]
        storage.write_rows(out / f"{name}.parquet", pd.concat(tables, ignore_index=True))
        storage.write_json(out / f"{name}.json", storage.read_json(written[0] / f"{name}.json"))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def show(out: Path, sections: Iterable[str]) -> bool:
    """Print a short table of what was written; True if nothing is wrong."""
    import pandas as pd

    tables = [pd.read_parquet(path) for name in sections if (path := out / f"gpu_{name}.parquet").exists()]
    if not tables:
        return False
    rows = pd.concat(tables, ignore_index=True)
    bad = rows["status"].str.startswith(FAILED) | (rows["status"] == WRONG)
    for section, own in rows.groupby("section", sort=False):
        counts = own["status"].str.partition(":")[0].replace("", "measured").value_counts()
        print(f"\n{section}: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
        shown = own[bad[own.index]] if section == "correct" else own[own["metric"] != "host_ms"]
        for row in shown.itertuples():
            spread = "" if pd.isna(row.low) else f" ({row.low:.4g} to {row.high:.4g})"
            bound = "" if pd.isna(row.expected) else f"  expected {row.expected:.4g}"
            value = "" if pd.isna(row.value) else f"{row.value:10.4g}"
            print(f"{row.group:<26} {row.case:<30} {row.metric:<16} {value}{spread}{bound}  {row.status}".rstrip())
    return not bad.any()


def keep(found: Path, kept: Path, sections: Iterable[str]) -> int:
    """Replace tables of a folder by those of another one and where they come from, and print them; the exit status."""
    from replaced_folders import replaced_folder

    replaced = {f"gpu_{name}" for name in sections}
    with replaced_folder(kept) as folder:
        for path in kept.glob("gpu_*"):
            if path.stem not in replaced:
                shutil.copy(path, folder)
        for name in sections:
            for path in (found / f"gpu_{name}.parquet", found / f"gpu_{name}.json"):
                shutil.copy(path, folder)
    return 0 if show(kept, sections) else 1


def main(words: list[str] | None = None) -> int:
    """Measure, write and print; the exit status."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0, help="time for everything")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--sections", nargs="+", choices=list(SHARES), default=list(SHARES))
    parser.add_argument("--cases", action="append", default=[], help="only cases with this in group/name")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--keep", type=Path, help="measure nothing, and keep the tables of this folder")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install first, without a network")
    parser.add_argument("--section", choices=list(SHARES), help=argparse.SUPPRESS)
    parser.add_argument("--within", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--part", default="0/1", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.section:
        until = time.monotonic() + asked.within
        options = Asked(asked.device, asked.quick, until, tuple(asked.cases), *map(int, asked.part.split("/")))
        run_section(asked.section, options, asked.out)
        return 0
    if asked.keep:
        return keep(asked.keep, KEPT, asked.sections)
    here, environment = Path(__file__).resolve(), dict(os.environ)
    site = [str(installed(asked.wheels))] if asked.wheels else []
    paths = [*site, str(here.parents[2] / "src"), str(here.parent), *environment.get("PYTHONPATH", "").split(":")]
    environment["PYTHONPATH"] = ":".join(path for path in paths if path)
    environment.setdefault("OMP_NUM_THREADS", "1")
    sys.path[:0] = [path for path in paths if path]
    print(
        {"python": sys.version.split()[0], **machine(asked.device), "installed_s": round(time.monotonic() - began, 1)}
    )
    whole = run_all(asked, environment, began)
    right = show(asked.out, asked.sections)
    print(f"\none file to bring back: {shutil.make_archive(str(asked.out), 'gztar', asked.out)}")
    return 0 if whole and right else 1


if __name__ == "__main__":
    sys.exit(main())
