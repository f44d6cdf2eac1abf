"""Work of this checkout over the same work of another one, in pairs of processes: CPU seconds, user and system.

    python tests/benchmarks/builds.py OTHER [--pairs 5] [--cases help risk ...] [--out FILE]

OTHER is the folder of another checkout of this repository, whose sources run with the packages of this environment.
The processes of a pair run one after the other, every second pair backwards, so that other load slows both alike.
Prints the median and the range of the ratios, and the load of the machine before and after. Each case runs in both
builds from the same text, so it takes only names that both have.

The cases ``quick``, ``planning`` and ``tests`` take minutes each, and only run if they are named. They run what is
committed in both checkouts, each with its own environment (``make .venv/ready``), in a new clone each time: the quick
preset of OTHER in both, a plan of 4,000 jobs, and the tests that ``make test`` runs. Their wall time is compared, too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from sizes import wide_config

HERE = Path(__file__).resolve().parents[2]
FORWARD = """
import torch
from leakbound_lab import models
torch.set_num_threads(1)
network = models.build("lenet", 3, 10, torch.Generator().manual_seed(0)).eval()
images = torch.rand(IMAGES, 3, 32, 32)
def work():
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=BFLOAT16):
        for _ in range(10_000 // IMAGES):
            network(images)
"""
UPLOADS = """
import numpy as np, torch
from leakbound_lab.models.gradients import Factors
from leakbound_lab import models
from torch.func import functional_call
torch.set_num_threads(1)
network = models.build("lenet", 3, 10, torch.Generator().manual_seed(0)).eval()
weights = {name: value.detach() for name, value in network.named_parameters()}
factors = Factors(lambda batch: functional_call(network, weights, (batch,)), {"fc1": network.fc1})
images, labels = torch.rand(500, 3, 32, 32), torch.arange(500) % 10
def work():
    for _ in range(10):
        factors.constant(images, labels)
"""
MOMENTS = """
import numpy as np, torch
from leakbound.channels import Natural, population_moments
torch.set_num_threads(1)
records = np.cumsum(np.random.default_rng(0).normal(size=(1000, 3072)), axis=1).astype(np.float32)
def work():
    Natural.calibrate(Natural.decompose(population_moments(records)), 4.0)
"""
ATTACKS = """
import numpy as np, pandas as pd, torch
from leakbound_lab import datasets, models
from leakbound_lab.attacks.attack_request import AttackRequest, Networks, attack_networks
from leakbound_lab.config.attacks import MembershipConfig, ModelInversionConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound.registry import load_attribute
torch.set_num_threads(1)
dataset = datasets.prepare("digits", DatasetConfig(members=100, validation=300, test=300, aux=500, side=8), seed=0)
rates = pd.DataFrame([(replica, rate, length) for replica in range(8) for rate in (.002, .006, .02, .06, .2)
                      for length in ("half", "best", "full")], columns=["replica", "learning_rate", "length"])
rates["chosen"] = (rates["learning_rate"] == .02) & (rates["length"] == "full")
drawn = [models.build("mlp", 1, 10, torch.Generator().manual_seed(seed), 8) for seed in range(len(rates))]
weights = {name: torch.stack([dict(one.named_parameters())[name].detach() for one in drawn]) for name, _ in
           drawn[0].named_parameters()}
CONFIG = {"membership": MembershipConfig(epochs=3, learning_rates=(1e-3,)),
          "model_inversion": ModelInversionConfig(iterations=8, tv_weights=(0.0,))}[ATTACK]
request = AttackRequest(model="mlp", dataset=dataset, config=CONFIG, seed=0, slug="benchmark")
function = load_attribute(CONFIG.function, "attack")
def work():
    attack_networks(Networks(weights, rates), function, request)
"""
TRAINED_RUN = """
import os
from pathlib import Path
import torch, yaml
import leakbound
from leakbound_lab.config.reading import config_of
from leakbound_lab.jobs.job import code_of
try:
    from leakbound_lab.steps.job_list import job_list
    from leakbound_lab.steps.step_command import make_result
except ModuleNotFoundError:  # of before the library and the lab were two packages
    from leakbound.cli.steps.job_list import job_list
    from leakbound.cli.steps.several import make_result
torch.set_num_threads(1)
values = yaml.safe_load(Path(PRESET).read_text())
catalogue = Path(leakbound.__file__).parents[2] / "config" / "figures"
jobs = job_list(config_of({**values, "catalogue": str(catalogue)}, PRESET))
run = "digits/mlp/natural-1/n400-b32"
for step, name in {"prepare": "digits", "covariance": "digits/aux", "spectrum": "digits/natural",
                   "calibrate": "digits/natural-1", "train": run}.items():
    for job in jobs.of(step):
        if job.name in (name, "digits/members"):
            make_result(job)
made = [(job, code_of(job)) for step in ("references", "attack") for job in jobs.of(step)
        if f"{job.name}/".startswith(f"{run}/")]
def work():
    for job, code in made:
        for path in job.outputs.values():
            Path(path).unlink(missing_ok=True)
        make_result(job, code)
"""
ENGINE = """
import numpy as np, torch
from torch.utils.data import DataLoader, TensorDataset
from leakbound import ChannelEngine, Leakage
torch.set_num_threads(1)
generator = np.random.default_rng(0)
def walks(number):
    return torch.from_numpy(np.cumsum(generator.normal(size=(number, 768)), axis=1).astype(np.float32))
batches = DataLoader(TensorDataset(walks(3200), torch.arange(3200) % 10), batch_size=64)
engine = ChannelEngine.for_data(walks(2000), Leakage(50.0, uses=20))
protected = engine.protect(batches)
def work():
    for _ in protected:
        pass
"""
CLOCK = """
import time
work() if WARM else None
began = time.process_time()
work()
print(time.process_time() - began)
"""
COMMAND = "import sys\nsys.argv = ['leakbound', *WORDS]\nmain()\n"
INSIDE = {
    "forward, 1,000 images": "BFLOAT16, IMAGES = False, 1_000" + FORWARD,
    "forward, 500 images": "BFLOAT16, IMAGES = False, 500" + FORWARD,
    "forward, bfloat16": "BFLOAT16, IMAGES = True, 500" + FORWARD,
    "factors of uploads": UPLOADS,
    "moments, 1,000 of 3,072": MOMENTS,
    "membership, 120 networks": "ATTACK = 'membership'" + ATTACKS,
    "model inversion, 120 networks": "ATTACK = 'model_inversion'" + ATTACKS,
    "attacks of a trained run": TRAINED_RUN,
    "engine, 50 batches of 64": ENGINE,
}
"""Work that a process times by itself, after what it imports, and once before."""
WHOLE = {"help": ["--help"], "risk": ["risk", "--nats", "2", "--records", "1000"]}
"""Commands that are timed from the start of their process to its end."""
JOBS = 4_000
PLANNED = "config/planned.yaml"
CLONED = {
    "quick": ["snakemake", "-j", "2", "--quiet", "all", "--configfile", PLANNED],
    "planning": ["snakemake", "-j", "2", "--quiet", "all", "--configfile", PLANNED, "--dry-run"],
    "tests": ["make", "--assume-old", ".venv/ready", "test"],
}
"""Commands in a new clone, with the environment of the checkout that it is of."""


def _code(case: str, checkout: Path, other: Path) -> str:
    """Write the program of a case for a checkout, which may be of before the library and the lab were two packages.

    The preset of both is that of the other checkout.
    """
    if case in WHOLE:
        module, _, function = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["scripts"][
            "leakbound"
        ].partition(":")
        return f"from {module} import {function} as main\nWORDS = {WHOLE[case]!r}\n{COMMAND}"
    work = f"WARM, PRESET = True, {str(other / 'config' / 'config.yaml')!r}\n{INSIDE[case]}{CLOCK}"
    one_package = not (checkout / "src" / "leakbound_lab").is_dir()
    return work.replace("leakbound_lab", "leakbound") if one_package else work


def seconds(case: str, checkout: Path, other: Path) -> tuple[float, float]:
    """CPU seconds, user and system, and wall seconds of a case with the sources of a checkout.

    The preset is that of the other checkout.
    """
    began = time.monotonic()
    if case not in CLONED:
        return _process_seconds(case, checkout, other), time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        clone = _clone(checkout, Path(folder) / "clone")
        if case == "quick":
            shutil.copy(other / "config" / "config.yaml", clone / PLANNED)
        elif case == "planning":
            (clone / PLANNED).write_text(yaml.safe_dump(wide_config(JOBS)), encoding="utf-8")
        path = os.pathsep.join([str(clone / ".venv" / "bin"), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(clone / "src"), "OMP_NUM_THREADS": "1"}
        before, began = _children(), time.monotonic()
        done = subprocess.run(CLONED[case], env=environment, cwd=clone, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case} with {checkout}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return _children() - before, time.monotonic() - began


def _clone(checkout: Path, folder: Path) -> Path:
    """Clone what is committed in a checkout, with a link to its environment; returns the clone."""
    if not (checkout / ".venv" / "ready").exists():
        raise SystemExit(f"{checkout}: has no environment of its own; make .venv/ready makes it")
    subprocess.run(["git", "-c", "advice.detachedHead=false", "clone", "--quiet", checkout, folder], check=True)
    (folder / ".venv").symlink_to(checkout / ".venv")
    return folder


def _children() -> float:
    """CPU seconds of all ended children of this process, user and system."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _process_seconds(case: str, checkout: Path, other: Path) -> float:
    """CPU seconds, user and system, of a case that runs the sources of a checkout in this environment."""
    path = os.pathsep.join([str(checkout / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    code = _code(case, checkout, other)
    before = _children()
    with tempfile.TemporaryDirectory() as folder:  # so that no folder is imported by chance
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"{case} with {checkout}:\n{done.stderr}")
    return float(done.stdout.split()[-1]) if case in INSIDE else _children() - before


def _compared(this: Sequence[float], other: Sequence[float]) -> str:
    """Write the medians of both builds, and that of their ratios with its range."""
    ratios = np.divide(this, other)
    medians = f"{np.median(other):8.3f} {np.median(this):8.3f}"
    return f"{medians}   {np.median(ratios):.3f} ({ratios.min():.3f} to {ratios.max():.3f})"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="folder of another checkout")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of processes of each case")
    cases = [*INSIDE, *WHOLE, *CLONED]
    parser.add_argument("--cases", nargs="+", choices=cases, default=[*INSIDE, *WHOLE])
    parser.add_argument("--out", type=Path, help="JSON file for all times")
    asked = parser.parse_args()
    if not (asked.other / "src" / "leakbound").is_dir():
        raise SystemExit(f"{asked.other}: is no checkout, it has no src/leakbound")
    found: dict[str, dict[str, list[float]]] = {}
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for case in asked.cases:
        times: dict[str, list[tuple[float, float]]] = {"this": [], "other": []}
        for pair in range(asked.pairs):
            order = [("this", HERE), ("other", asked.other.resolve())]
            for name, checkout in order if pair % 2 else order[::-1]:
                times[name].append(seconds(case, checkout, asked.other.resolve()))
        # Processes that time their own work have no wall time of it.
        for column, kind in enumerate(["", ", wall"] if case in CLONED else [""]):
            both = {name: [pair[column] for pair in pairs] for name, pairs in times.items()}
            print(f"{case + kind:<30} {_compared(**both)}", flush=True)
            found[case + kind] = both
    print(f"load after: {os.getloadavg()[0]:.1f}")
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
