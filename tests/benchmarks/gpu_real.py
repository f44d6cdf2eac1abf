"""Cases of the section ``real``: jobs of the preset ``one_gpu_hour`` through the command line, several sharing the GPU.

One dataset's jobs run twice for a while, in the same order, without and with CUDA's multi-process service (MPS). From
the times of each kind of job follows what the whole preset would take. Snakemake is not needed: jobs, their order and
their words come from the package's own list, and they are forked from a warm process as under Snakemake.

    python tests/benchmarks/gpu_real.py phase CONFIG ORDER SECONDS WIDTH      # what a case calls for each way
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from gpu import FAILED, LEFT_OUT, Asked, Case, Values
from result_command import words_of

PRESET = Path(__file__).parents[2] / "config" / "one_gpu_hour.yaml"
WIDTH = 8
"""Jobs that share the GPU."""
_GPU_STEPS = ("train", "references", "attack")
_STUDIES = ("capacity", "gradient_inversion", "defenses", "comparison")
_IMAGES = (
    "svhn",
    "celeba",
    "cifar10",
    "fashion_mnist",
    "svhn_mini",
    "celeba_mini",
    "cifar10_mini",
    "fashion_mnist_mini",
)
_SIZES = {"members": 2000, "validation": 500, "pool": 12000, "test": 2000, "aux": 8000}  # of the preset
_PREPARED = 1.0  # of its own time in addition, at most, for images, covariances and channels
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")}
_ONE_THREAD |= {"VECLIB_MAXIMUM_THREADS": "1"}  # as Snakemake has it for jobs of one thread
_COMMAND = "from leakbound.cli.launch.main import main; main()"


def cases(asked: Asked) -> Iterator[Case]:
    """Preparation, then both ways."""
    part = Part(asked)
    yield Case("one_gpu_hour", "preparation", part.prepared, weight=1.0)
    for way in ("without MPS", "with MPS"):
        yield Case("one_gpu_hour", way, partial(part.measured, way), weight=1.5)


class Part:
    """Jobs of one dataset, in a folder that is thrown away with this object."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._kept = tempfile.TemporaryDirectory(prefix="leakbound-real-", ignore_cleanup_errors=True)
        self._folder = Path(self._kept.name)
        self._width = 2 if asked.quick else WIDTH
        self._config = self._folder / "config.yaml"

    def prepared(self, seconds: float) -> Values:
        """Write the configuration, and do all jobs that no GPU is needed for."""
        name, values = configuration(self._asked)
        self._config.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        began = time.monotonic()
        done, _ = self._phase("cpu", seconds * (1 + _PREPARED), {})
        yield {"metric": "jobs", "value": float(sum(not one["code"] for one in done)), "case": f"preparation, {name}"}
        yield from _failures(done)
        yield {"metric": "seconds", "value": time.monotonic() - began, "case": f"preparation, {name}"}

    def measured(self, way: str, seconds: float) -> Values:
        """Jobs that are done in some seconds, their times by kind, and those of the whole preset at this speed."""
        for kind in ("runs", "references", "attacks"):
            shutil.rmtree(self._folder / "results" / PRESET.stem / kind, ignore_errors=True)
        with service(way == "with MPS") as environment, _watched(self._asked.device) as seen:
            if environment is None:
                yield {"metric": "", "status": f"{LEFT_OUT}: nvidia-cuda-mps-control does not start here"}
                return
            done, passed = self._phase("gpu", seconds, environment)
        yield from summarized(done, passed, self._width, self._whole())
        if seen:
            for place, metric in enumerate(("gpu_percent", "gpu_mib")):
                yield {"metric": metric, "value": statistics.fmean(one[place] for one in seen)}

    def _phase(self, kind: str, seconds: float, environment: dict[str, str]) -> tuple[list[dict[str, Any]], float]:
        """Jobs done by a process that ends in time, and all its jobs with it; seconds from their beginning."""
        width = len(os.sched_getaffinity(0)) if kind == "cpu" else self._width
        words = [sys.executable, __file__, "phase", str(self._config), kind, f"{seconds:.1f}", str(width)]
        more = {"LEAKBOUND_DATA": str(self._asked.data)} if self._asked.data else {}
        told = subprocess.run(
            words, env=os.environ | more | environment, stdout=subprocess.PIPE, text=True, cwd=self._folder, check=True
        ).stdout
        ready, *done, ended = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        return done, ended["seconds"] - ready["seconds"]

    def _whole(self) -> Counter[str]:
        """Number of jobs of each kind in the preset as it is."""
        from leakbound.cli.steps.job_list import job_list
        from leakbound.config import reading

        values = yaml.safe_load(PRESET.read_text(encoding="utf-8"))
        values["catalogue"] = str(PRESET.parent / "figures")
        found = job_list(reading.check(values, str(PRESET)))
        return Counter(kind_of(job.step, job.name) for job in found.of(*_GPU_STEPS))


def configuration(asked: Asked) -> tuple[str, dict[str, Any]]:
    """Name of the first dataset that is there, and the preset with it alone; smaller for few images or a rehearsal."""
    values = yaml.safe_load(PRESET.read_text(encoding="utf-8"))
    name, dataset = _dataset(asked.data)
    values["datasets"] = {name: dataset}
    for section in ("illustrations", "efficiency"):
        values.pop(section)
    values["studies"] = {one: {**values["studies"][one], "datasets": [name]} for one in _STUDIES}
    for defense in ("dpsgd", "dppsac"):
        values["defenses"][defense].pop("deltas")  # of another dataset
    values |= {"device": asked.device, "tracking": {"enabled": False}, "catalogue": str(PRESET.parent / "figures")}
    if asked.quick:
        values |= {"replicas": 2, "studies": {"capacity": _small(values["studies"]["capacity"])}}
        values["attacks"] |= {"membership": {"epochs": 2}, "model_inversion": {"iterations": 4}}
    return name, values


def _small(study: dict[str, Any]) -> dict[str, Any]:
    """A study of few runs."""
    return {**study, "defenses": {"none": [], "natural": [50.0]}, "rounds": [4], "attacks": ["model_inversion"]}


def _dataset(data: Path | None) -> tuple[str, dict[str, Any]]:
    """Name and settings of the first dataset that a folder has; handwriting if it has none."""
    from pyarrow import parquet

    for name in _IMAGES if data else ():
        files = [Path(data or "", f"{name}_{part}.parquet") for part in ("train", "test")]
        if all(file.exists() for file in files):
            train, test = (parquet.read_metadata(file).num_rows for file in files)
            part = min(1.0, train / (_SIZES["pool"] + _SIZES["aux"]))
            sizes = {key: int(value * part) for key, value in _SIZES.items()} | {"test": min(_SIZES["test"], test)}
            return name, {**sizes, "reader": "parquet"} if name.endswith("_mini") else sizes
    return "digits", {"members": 200, "validation": 100, "pool": 600, "test": 200, "aux": 400}


def kind_of(step: str, name: str) -> str:
    """Kind of jobs that take about the same time: those of a step, apart by defense under DP and by attack."""
    words = name.split("/")
    if step == "attack":
        return f"{step} {words[-1]}"
    return f"{step} dp" if words[2].startswith(("dpsgd", "dppsac")) else step


def summarized(done: Sequence[dict[str, Any]], seconds: float, width: int, whole: Counter[str]) -> Values:
    """Rows of a phase: jobs done and failed, the median time of each kind, and the hours of all at this speed."""
    sound = [one for one in done if not one["code"]]
    yield {"metric": "jobs", "value": float(len(sound))}
    yield {"metric": "jobs_a_minute", "value": 60 * len(sound) / seconds}
    yield from _failures(done)
    times: dict[str, list[float]] = {}
    for one in sound:
        times.setdefault(kind_of(one["step"], one["name"]), []).append(one["seconds"])
    for kind, own in sorted(times.items()):
        yield {"metric": f"s {kind}", "value": statistics.median(own), "low": min(own), "high": max(own)}
    if times:
        missing = sorted(kind for kind in whole if kind not in times)
        mean = statistics.fmean(one["seconds"] for one in sound)
        total = sum(count * statistics.fmean(times.get(kind, [mean])) for kind, count in whole.items())
        status = "" if not missing else "taken for mean ones: " + ", ".join(missing)
        yield {"metric": "whole_minutes", "value": total / width / 60, "expected": 60.0, "status": status}


def _failures(done: Sequence[dict[str, Any]]) -> Values:
    """Rows of the first jobs that failed."""
    for one in [one for one in done if one["code"]][:3]:
        yield {"metric": "job", "status": f"{FAILED}: {one['step']} {one['name']}: {one['said']}"}


@contextmanager
def service(wanted: bool) -> Iterator[dict[str, str] | None]:
    """Environment in which processes share the GPU's contexts, if that is wanted; None where it cannot be had."""
    if not wanted:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="mps-")
    environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    control = ["nvidia-cuda-mps-control"]
    try:
        subprocess.run([*control, "-d"], env=os.environ | environment, check=True, timeout=20, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        yield None
        return
    try:
        yield environment
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                control, input="quit\n", text=True, env=os.environ | environment, timeout=20, capture_output=True
            )


@contextmanager
def _watched(device: str) -> Iterator[list[tuple[float, float]]]:
    """Use of the GPU, in per cent and MiB, once a second; nothing on a CPU."""
    found: list[tuple[float, float]] = []
    words = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--loop=1"]
    if device != "cuda" or shutil.which(words[0]) is None:
        yield found
        return
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def read() -> None:
        """All lines until it ends."""
        for line in process.stdout or ():
            with suppress(ValueError):
                percent, mib = map(float, line.split(",")[:2])
                found.append((percent, mib))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield found
    finally:
        process.terminate()
        reader.join(5)


class Phase:
    """Jobs of a configuration that are done side by side until time is up, one line of JSON for each.

    Args:
        config: The configuration.
        kind: ``cpu`` for all that others need and no GPU takes, else ``gpu``.
        seconds: After which those at work are killed.
        width: Jobs side by side.
    """

    def __init__(self, config: Path, kind: str, seconds: float, width: int) -> None:
        from leakbound.cli.steps.job_list import job_list
        from leakbound.config import reading

        self._began = time.monotonic()
        self._until, self._width = self._began + seconds, width
        found = job_list(reading.load(config))
        made_by = {path: job for job in found for path in job.outputs.values()}
        wanted = list(found.of(*_GPU_STEPS))
        for job in wanted:  # grows
            wanted += [made_by[path] for path in job.input_files() if made_by[path] not in wanted]
        chosen = [job for job in wanted if (job.step in _GPU_STEPS) == (kind == "gpu")]
        self._jobs = _spread(chosen)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Do them."""
        from leakbound.cli.launch import warm
        from leakbound.cli.launch.handover import WARM
        from leakbound.jobs.processes import coordination
        from leakbound.storage.fingerprint import modules_behind

        os.environ |= _ONE_THREAD | {coordination.COORDINATOR: str(os.getpid())}
        if self._jobs and warm.available():
            found = [(f"leakbound.cli.steps.{job.step}", job) for job in self._jobs]
            warm.start({name for step, job in found for name in (step, *modules_behind(step, *job.modules))})
        else:
            os.environ[WARM] = "0"
        subprocess.run([sys.executable, "-c", _COMMAND, "--version"], stdout=subprocess.DEVNULL, check=True)  # loaded
        self._tell(time.monotonic())
        waiting, busy = list(self._jobs), 0
        ended = threading.Condition()
        with ThreadPoolExecutor(self._width) as pool, ended:

            def do(job: Any) -> None:
                """One job."""
                self._one(job)
                nonlocal busy
                with ended:
                    busy -= 1
                    ended.notify()

            while waiting and time.monotonic() < self._until:
                ready = next((job for job in waiting if all(map(os.path.exists, job.input_files()))), None)
                if ready is None or busy == self._width:
                    if not busy:
                        break  # what the others need has failed
                    ended.wait(max(0.0, self._until - time.monotonic()))
                    continue
                waiting.remove(ready)
                busy += 1
                pool.submit(do, ready)
            while busy and ended.wait(max(0.0, self._until - time.monotonic())):
                pass
            self._tell(min(time.monotonic(), self._until))
            self._kill()

    def _tell(self, now: float) -> None:
        """Line with the seconds so far."""
        print(json.dumps({"seconds": now - self._began}), flush=True)

    def _one(self, job: Any) -> None:
        """One job, as a rule calls it."""
        for path in job.outputs.values():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        words = [sys.executable, "-c", _COMMAND, *words_of(job)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with self._lock:
            self._running.add(process)
        said = process.communicate()[0]
        with self._lock:
            self._running.discard(process)
        if time.monotonic() >= self._until:
            return  # killed, or too late
        lines = said.strip().splitlines() or [""]
        facts = {"step": job.step, "name": job.name, "seconds": time.monotonic() - began}
        print(json.dumps({**facts, "code": process.returncode, "said": lines[-1][:200]}), flush=True)

    def _kill(self) -> None:
        """End what is still at work."""
        with self._lock:
            for process in self._running:
                process.kill()


def _spread(jobs: Sequence[Any]) -> list[Any]:
    """Jobs so that each kind comes early: the first of each kind, the second of each, and so on."""
    seen: Counter[str] = Counter()
    ranked = []
    for job in jobs:
        kind = kind_of(job.step, job.name) if job.step in _GPU_STEPS else job.step
        ranked.append((seen[kind], job))
        seen[kind] += 1
    return [job for _, job in sorted(ranked, key=lambda pair: pair[0])]


if __name__ == "__main__":
    _, _, given, order, within, side = sys.argv
    Phase(Path(given), order, float(within), int(side)).run()
