"""What the size of a user's own work costs: records, images, jobs, runs in MLflow, rows of verdicts and of the page.

    python tests/benchmarks/sizes.py [--cases protect planning] [--most 100000] [--out DIRECTORY]

Each size runs in a process of its own. Counted are the CPU seconds of the work (user and system, with the processes
that it starts), the largest resident memory, in which the input lies too, and the bytes that it leaves on disk.
Writes ``sizes.parquet``, ``sizes.json`` with the provenance and ``growth.svg``, and prints the exponents between the
two largest sizes, where constants weigh least.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from bench_pictures import draw
from project_copy import ROOT, copied_project, environment

from leakbound.storage import provenance

if TYPE_CHECKING:
    from judging import KeptRun
    from leakbound_lab.config.catalogue import FigureConfig

logger = logging.getLogger("leakbound")
OUT = Path("results/reference/sizes")
VALUES, SIDE = 64, 16
PUBLIC = 1000
KEPT = ROOT / "results" / "reference" / "paper_lenet"
FIGURE = "fig09"
"""A figure of that run whose rows are judged, and shown on a page, as often as a size says."""


@contextmanager
def counted(counts: dict[str, float]) -> Iterator[None]:
    """Add the CPU seconds of the block, and of the processes that it ran, to ``counts``."""
    before = _cpu_seconds()
    yield
    counts["seconds"] = _cpu_seconds() - before


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its ended children, user and system."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def records(size: int, folder: Path, counts: dict[str, float]) -> None:
    """An epoch of records of 64 values through an engine, in batches of 256, each use counted in a ledger."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from leakbound import Capacity, ChannelEngine, Ledger

    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(size, VALUES, generator=generator), torch.arange(size) % 10)
    public = TensorDataset(torch.randn(PUBLIC, VALUES, generator=generator), torch.arange(PUBLIC) % 10)
    Ledger.create(folder / "uses.db")
    engine = ChannelEngine.for_data(public, Capacity(1.0, uses=2), ledger=folder / "uses.db", progress=False)
    loader = engine.protect(DataLoader(data, batch_size=256, shuffle=True))
    with counted(counts):
        for _ in loader:
            pass
    counts["bytes"] = sum(path.stat().st_size for path in folder.glob("uses.db*"))


def images(size: int, folder: Path, counts: dict[str, float]) -> None:
    """``leakbound protect`` on gray images of 16×16 pixels in one file, with 1,000 public ones."""
    generator = np.random.default_rng(0)
    for name, count in (("mine", size), ("public", PUBLIC)):
        drawn = generator.integers(0, 256, (count, SIDE, SIDE), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", records=drawn, labels=np.arange(count) % 10)
    words = ["protect", "mine.npz", "--public", "public.npz", "--kappa", "4", "--values", "npy", "--out", "out"]
    with counted(counts):
        _called("leakbound", *words, folder=folder)
    counts["bytes"] = sum(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())


def wide_config(jobs: int) -> dict[str, Any]:
    """Return the configuration of a study with so many jobs: a channel, a training and two attacks of each level."""
    levels = [round(1 + number / 100, 2) for number in range(jobs // 4)]
    arms = ("natural", "white", "personalized", "second")  # a defense has at most 1,000 levels
    study = {
        **{"datasets": ["digits"], "models": ["mlp"], "rounds": [20], "batch_sizes": [32]},
        **{"defenses": {arm: levels[number :: len(arms)] for number, arm in enumerate(arms[: len(levels)])}},
        **{"attacks": ["membership", "model_inversion"]},
    }
    return {
        **{"preset": "wide", "datasets": {"digits": {"members": 120, "pool": 300, "test": 120, "aux": 120}}},
        **{"defenses": {"second": {"mechanism": "channel"}}},
        **{"studies": {"capacity": study}, "illustrations": {}, "tracking": {"enabled": False}},
    }


def jobs(size: int, folder: Path, counts: dict[str, float]) -> None:
    """``snakemake -n`` for a study with so many jobs."""
    project = copied_project(folder / "project")
    config = wide_config(size)
    (project / "config" / "wide.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    words = ["--dry-run", "--quiet", "all", "-j", "2", "--configfile", "config/wide.yaml"]
    with counted(counts):
        _called("snakemake", *words, folder=project, variables=environment(project))


def runs(size: int, folder: Path, counts: dict[str, float]) -> None:
    """Runs with two replicas each sent to MLflow, one after another, into one database."""
    from leakbound_lab.tracking.run_description import describe_run
    from leakbound_lab.tracking.run_records import RunFacts
    from leakbound_lab.tracking.sending import push
    from leakbound_lab.tracking.store import connect

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    connect(uri)
    metrics = ("test_accuracy", "train_loss")
    rows = [(replica, step, name, 0.5) for replica in range(2) for step in range(0, 100, 10) for name in metrics]
    curves = pd.DataFrame(rows, columns=["replica", "step", "metric", "value"])
    facts = {"started": 1.7e9, "seconds": 20.0, "inputs": {"dataset": "0" * 64}}
    with counted(counts):
        for number in range(size):
            slug = f"digits/lenet/natural-{number}/n200-b64"
            run = RunFacts(
                *("sizes", slug, "digits", "lenet", "natural", float(number), 200, 64, 2),
                *("natural noise", f"{number} nats", ("tan2024",)),
            )
            push(describe_run(run, curves, {}, facts), uri)
    counts["bytes"] = (folder / "mlflow.db").stat().st_size


def _repeated(copies: int) -> tuple[KeptRun, FigureConfig, pd.DataFrame]:
    """A kept run, one of its figures, and the rows of that figure's study repeated, each copy with its own replicas."""
    sys.path.append(str(ROOT / "tools"))
    from judging import KeptRun

    run = KeptRun(KEPT)
    figure = next(figure for figure in run.figures() if figure.id == FIGURE)
    rows = run.rows(figure)
    step = int(rows["replica"].max()) + 1
    moved = (rows["replica"].where(rows["replica"] < 0, rows["replica"] + step * copy) for copy in range(copies))
    return run, figure, pd.concat([rows.assign(replica=replica) for replica in moved], ignore_index=True)


def claims(size: int, folder: Path, counts: dict[str, float]) -> None:
    """The verdicts of a figure on the rows of a kept study, and on copies of them."""
    run, figure, rows = _repeated(size)
    with counted(counts):
        _judged(run, figure, rows)
    counts["size"] = len(rows)


def _judged(run: KeptRun, figure: FigureConfig, rows: pd.DataFrame) -> pd.DataFrame:
    """Verdicts of a figure as the command reaches them."""
    from leakbound.randomness.seeding import numpy_generator
    from leakbound_lab.claims.evaluation import evaluate

    return evaluate(figure, rows, run.config.alpha, partial(numpy_generator, 0))


def page(size: int, folder: Path, counts: dict[str, float]) -> None:
    """The page of a run of one figure, whose study has the rows of a kept one and copies of them."""
    from leakbound_lab.figures.report.page import Report, ReportFigure
    from leakbound_lab.figures.report.page import page as written

    run, figure, rows = _repeated(size)
    verdicts = _judged(run, figure, run.rows(figure))
    provenance = {"commits": {}, "dirty": False, "config_hash": "", "devices": {}, "diverged_replicas": 0}
    provenance |= {"data": {}, "versions": {}, "steps": {}}
    shown = ReportFigure(figure, "Caption.", b"<svg/>", rows)
    with counted(counts):
        text = written(Report(run.config, [shown], verdicts, provenance, tables={str(figure.study): rows}))
    counts |= {"size": len(rows), "bytes": len(text.encode())}


@dataclass(frozen=True)
class Case:
    """Work that grows with a size.

    Attributes:
        work: Does it, and enters what it counted: ``seconds``, and where there are any, ``bytes`` and another ``size``.
        over: What the size counts.
        sizes: The sizes, smallest first.
        exponent: Power of the size that the time should grow with.
    """

    work: Callable[[int, Path, dict[str, float]], None]
    over: str
    sizes: tuple[int, ...]
    exponent: float = 1.0


CASES = {
    "engine with a ledger": Case(records, "records", (10_000, 100_000, 1_000_000)),
    "protect": Case(images, "images", (1_000, 10_000, 100_000)),
    "planning": Case(jobs, "jobs", (1_000, 4_000, 15_000)),
    "MLflow": Case(runs, "runs", (30, 100, 300, 1_000)),
    "verdicts": Case(claims, "rows", (1, 3, 10)),
    "page": Case(page, "rows", (1, 3, 10)),
}
"""The sizes of the last two are copies of the rows of one study."""


def _called(program: str, *words: str, folder: Path, variables: dict[str, str] | None = None) -> None:
    """Run a program of this environment in a folder; what it says is shown if it fails."""
    path = str(Path(sys.executable).with_name(program))
    done = subprocess.run([path, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} {' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def measure(name: str, size: int) -> dict[str, float]:
    """Counts of a case at a size, in this process and in an empty folder."""
    counts: dict[str, float] = {"size": float(size)}
    with tempfile.TemporaryDirectory() as place:
        CASES[name].work(size, Path(place), counts)
    both = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return counts | {"memory": 1024.0 * max(both)}


def rows_of(name: str, measured: Sequence[Mapping[str, float]]) -> Iterator[dict[str, object]]:
    """Rows of a case: each count at each size, and its exponent between the two largest sizes."""
    group = f"{name} over {CASES[name].over}"
    for counts in measured:
        for metric in ("seconds", "memory", "bytes"):
            if metric in counts:
                yield _row(group, metric, counts["size"], counts[metric])
    before, last = measured[-2:]
    for metric in ("seconds", "memory", "bytes"):
        if metric in last:
            power = np.log(last[metric] / before[metric]) / np.log(last["size"] / before["size"])
            expected = CASES[name].exponent if metric == "seconds" else np.nan
            label = "exponent" if metric == "seconds" else f"exponent of {metric}"
            yield {**_row(group, label, np.nan, float(power)), "expected": expected}


def _row(group: str, metric: str, size: float, value: float) -> dict[str, object]:
    """A row as those of ``bench.py``; a size is measured once."""
    places = {"section": "growth", "group": group, "case": f"{size:g}", "size": size, "metric": metric, "turns": 1}
    return {**places, "expected": np.nan, "value": value, "low": value, "high": value}


def main() -> None:
    """Measure each size in a process of its own, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--most", type=int, default=10**9, help="leave out larger sizes, but not the first two")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "SIZE"), help="print the counts of one size as JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one[0], int(asked.one[1]))))
        return
    logging.basicConfig(format="%(message)s", level=logging.INFO, force=True)
    sys.path.append(str(ROOT / "tools"))
    from replaced_folders import replaced_folder

    began, load = time.perf_counter(), os.getloadavg()[0]
    facts = provenance.collect({"cases": asked.cases, "most": asked.most}, inputs={}, device="cpu", seconds=0.0)
    rows: list[dict[str, object]] = []
    for name in asked.cases:
        sizes = CASES[name].sizes
        measured = []
        for size in (size for place, size in enumerate(sizes) if place < 2 or size <= asked.most):
            words = [sys.executable, __file__, "--one", name, str(size)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
            logger.info("%s: %s", name, measured[-1])
        rows += rows_of(name, measured)
    facts |= {"seconds": round(time.perf_counter() - began, 3), "load": [round(load, 1), round(os.getloadavg()[0], 1)]}
    asked.out.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(rows)
    with replaced_folder(asked.out) as folder:
        draw(table, folder)
        table.to_parquet(folder / "sizes.parquet", index=False, compression="zstd")
        (folder / "sizes.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for row in table.itertuples():
        bounds = "" if np.isnan(row.expected) else f"   expected {row.expected:g}"
        print(f"{row.group:<36} {row.case:>8} {row.metric:<20} {row.value:12.5g}{bounds}")


if __name__ == "__main__":
    main()
