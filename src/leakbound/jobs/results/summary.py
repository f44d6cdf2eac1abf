"""Origin and cost of a configuration's results, as its finished jobs state them."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from leakbound import storage
from leakbound.jobs.job import JobList
from leakbound.jobs.paths import output
from leakbound.jobs.shared_jobs import made_together
from leakbound.storage import limits
from leakbound.storage.provenance import settings_hash, versions


class Usage(NamedTuple):
    """Time and memory of a job. Unknown values are 0.

    Attributes:
        seconds: Wall time in seconds.
        max_rss_mib: Most memory at once in MiB.
        cpu_seconds: CPU time in seconds, up to the last sample.
    """

    seconds: float
    max_rss_mib: float
    cpu_seconds: float


def read_usage(path: Path) -> Usage:
    """Read the time and memory of a job from the benchmark file that Snakemake wrote.

    Snakemake samples a job every half second, and every 30 s after the first 15 s. It writes ``NA`` or ``-``
    for a job that ends before the first sample.

    Raises:
        DamagedFileError: If the file is no such table.
    """
    text = storage.read_bytes(path, sealed=False, most=limits.TEXT).decode(errors="replace")
    try:
        header, row = (line.split("\t") for line in text.splitlines())
        cells = dict(zip(header, row, strict=True))
        needed = (cells[column] for column in ("s", "max_rss", "cpu_time"))
        return Usage(*(0.0 if cell in ("NA", "-") else float(cell) for cell in needed))
    except (KeyError, ValueError) as error:
        raise storage.DamagedFileError(path, f"no table of time and memory: {error!r}") from error


def summary(root: Path, made: JobList) -> dict[str, Any]:
    """Collect the origin of a configuration's results, and the time of each step.

    Args:
        root: Folder of the configuration's results.
        made: Its jobs, all finished.

    Returns:
        Plain values, as the report shows them.
    """
    from leakbound.jobs.results.dataset_leakage import composed

    config = made.table.config
    computed = [
        job for job in made if "provenance" in job.outputs and job.step not in ("prepare", "calibrate")
    ]
    jobs = [storage.read_json(output(root, job.step, job.name, "provenance")) for job in computed]
    written = ((job.name, output(root, "prepare", job.name, "provenance")) for job in made.of("prepare"))
    # Large files may have been left elsewhere.
    prepared = {name: path for name, path in written if path.is_file()}
    return {
        "preset": config.preset,
        "config_hash": settings_hash(config.model_dump(mode="json")),
        "jobs": len(jobs),
        "commits": dict(Counter(str(job["commit"]) for job in jobs)),
        "dirty": any(job["dirty"] for job in jobs),
        "devices": dict(Counter(job["device"] for job in jobs)),
        "versions": versions(),
        "diverged_replicas": sum(sum(job.get("diverged", [])) for job in jobs),
        "data": {name: storage.read_json(path)["content"] for name, path in prepared.items()},
        "leakage": composed(root, made),
        "steps": _costs(root, made),
    }


def _costs(root: Path, made: JobList) -> dict[str, dict[str, int | float]]:
    """Return the jobs, wall seconds, CPU seconds and largest memory (MiB) of each rule, as Snakemake measured them."""
    costs = {}
    every = made_together(made)
    for step in dict.fromkeys(rule for rule, _ in every):
        files = [root / f"benchmarks/{'/'.join(filter(None, key))}.tsv" for key in every if key[0] == step]
        if usages := [read_usage(path) for path in files if path.is_file()]:
            costs[step] = {
                "jobs": len(usages),
                "seconds": round(sum(used.seconds for used in usages), 1),
                "cpu_seconds": round(sum(used.cpu_seconds for used in usages), 1),
                "max_rss_mib": round(max(used.max_rss_mib for used in usages), 1),
            }
    return costs
