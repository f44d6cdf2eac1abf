"""Run a configuration on a machine that is lent for minutes, until the clock ends it, and pack what is finished.

    python3 tools/gpu_run.py --config FILE [--minutes 9] [--out results/packs] [--wheels build/gpu-wheels]
                                        [--images build/gpu-images] [--packs PART ...] [--jobs 16] [--gpu 4]

Called in the folder of the project. The machine needs no network, and nothing but Python with PyTorch and what such
machines usually have; the wheels that ``make gpu-wheels`` carries are installed into a temporary folder. The same
command goes on where an earlier one on this machine was stopped. ``--packs`` merges what other machines have finished.

This file needs nothing but Python: what it calls has to be installed first.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "source.json"
"""File among the wheels: commit of the checkout that carried them, and a hash of its source."""
_RESERVED = 25.0  # seconds for stopping and packing
_PATIENCE = 5.0  # seconds within which Snakemake should end by itself, and again after it was killed
_BETWEEN = 0.05  # seconds between two looks


def source_hash(folder: Path) -> str:
    """Hash the names and bytes of all files of the package.

    Args:
        folder: Folder ``src`` of a checkout.
    """
    files = sorted(path for path in folder.glob("leakbound*/**/*") if path.suffix in (".py", ".yaml", ".csv"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.relative_to(folder)}" for path in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def installed(wheels: Path) -> Path:
    """Folder below which the carried wheels are installed, with no network and nothing else touched.

    Raises:
        SystemExit: If there are none.
    """
    found = sorted(map(str, wheels.glob("*.whl")))
    if not found:
        sys.exit(f"{wheels}: holds no wheels; make gpu-wheels writes them")
    site = Path(tempfile.mkdtemp(prefix="leakbound-gpu-"))
    atexit.register(shutil.rmtree, site, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade"]
    subprocess.run([*pip, "--target", str(site), *found], check=True)
    return site


def environment(wheels: Path | None, images: Path | None) -> dict[str, str]:
    """Variables with which the package and its command run here, after the wheels are installed.

    Args:
        wheels: Folder of wheels. None if everything is installed.
        images: Folder of images. None for the one of ``LEAKBOUND_DATA``.
    """
    variables = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    paths = [str(ROOT / "src")]
    programs = [str(Path(sys.executable).parent)]
    if wheels is not None:
        site = installed(wheels)
        paths.append(str(site))
        programs.insert(0, str(site / "bin"))
        variables["LEAKBOUND_COMMIT"] = _commit(wheels / SOURCE)
    if images is not None:
        variables["LEAKBOUND_DATA"] = str(images.resolve())
    variables["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    variables["PATH"] = os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)])
    return variables


def _commit(record: Path) -> str:
    """Commit of the checkout that carried the wheels; a word after it says that the source has changed since."""
    carried = json.loads(record.read_text(encoding="utf-8"))
    changed = carried["dirty"] or carried["source"] != source_hash(ROOT / "src")
    return f"{carried['commit']}{' dirty' if changed else ''}"


def run_until(words: list[str], variables: dict[str, str], log: Path, until: float) -> int | None:
    """Run a command until it ends or the clock does; the exit status, None if the clock ended it.

    Args:
        words: The command.
        variables: Its environment.
        log: File for its output.
        until: Monotonic clock at which it is stopped, with all that it has started.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            words,
            env=variables,
            cwd=ROOT,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        return process.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            process.send_signal(signal.SIGINT)
            process.wait(timeout=_PATIENCE)
        patience = time.monotonic() + _PATIENCE
        while (living := [*_session(process.pid)]) and time.monotonic() < patience:
            for pid in living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_BETWEEN)
        process.wait()


def _session(leader: int) -> Iterator[int]:
    """Processes of a session that have not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(words[3]) == leader and words[0] != "Z":
                yield int(path.parent.name)


def workflow(asked: argparse.Namespace, targets: list[str]) -> list[str]:
    """Command that runs the configuration.

    Args:
        asked: Options.
        targets: Files to make.
    """
    words = [sys.executable, "-m", "snakemake", "--configfile", str(asked.config), "-j", str(asked.jobs)]
    words += ["--resources", f"gpu={asked.gpu}", "tracking=1", "--scheduler", "greedy", "--keep-going"]
    return [*words, "--rerun-incomplete", "--", *targets]


def main() -> int:
    """Install, run, stop, pack and say what is done; the exit status."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration to run")
    parser.add_argument("--minutes", type=float, default=9.0, help="time for everything")
    parser.add_argument("--out", type=Path, default=Path("results/packs"), help="folder of the packs")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install first, without a network")
    parser.add_argument("--images", type=Path, help="folder of images; by default that of LEAKBOUND_DATA")
    parser.add_argument("--packs", type=Path, nargs="*", default=[], help="parts of packs to go on from")
    parser.add_argument("--jobs", type=int, default=16, help="jobs side by side")
    parser.add_argument("--gpu", type=int, default=4, help="of these on the GPU")
    asked = parser.parse_args()
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    until = began + 60 * asked.minutes
    variables = environment(asked.wheels, asked.images)
    packs = [sys.executable, str(Path(__file__).with_name("gpu_packs.py")), "--configfile", str(asked.config)]
    if asked.packs:
        subprocess.run(
            [*packs, "--jobs", str(asked.jobs), "--merge", *map(str, asked.packs)], env=variables, cwd=ROOT, check=True
        )
    listed = subprocess.run(
        [*packs, "--targets"], env=variables, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
    log = asked.out / "run.log"
    status = run_until(workflow(asked, listed.stdout.split()), variables, log, until - _RESERVED)
    stopped = time.monotonic()
    print(f"{'stopped' if status is None else 'ended'} after {stopped - began:.1f} s", flush=True)
    if status:
        print("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]), flush=True)
    packed = subprocess.run([*packs, "--pack", str(asked.out)], env=variables, cwd=ROOT)
    print(f"packed in {time.monotonic() - stopped:.1f} s; {time.monotonic() - began:.1f} s in all", flush=True)
    return int(bool(status or packed.returncode))


if __name__ == "__main__":
    sys.exit(main())
