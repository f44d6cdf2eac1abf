"""Work of this checkout over the same work of another one, in pairs of processes: CPU seconds, user and system.

    python tests/benchmarks/builds.py OTHER [--pairs 5] [--cases forward risk ...] [--out FILE]

OTHER is the folder of another checkout of this repository, whose sources run with the packages of this environment.
The processes of a pair run one after the other, every second pair backwards, so that other load slows both alike.
Prints the median and the range of the ratios, and the load of the machine before and after. Each case runs in both
builds from the same text, so it takes only names that both have.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[2]
FORWARD = """
import torch
from leakbound_lab import models
torch.set_num_threads(1)
network = models.build("lenet", 3, 10, torch.Generator().manual_seed(0)).eval()
images = torch.rand(500, 3, 32, 32)
def work():
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=BFLOAT16):
        for _ in range(20):
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
    "forward": "BFLOAT16 = False" + FORWARD,
    "forward, bfloat16": "BFLOAT16 = True" + FORWARD,
    "factors of uploads": UPLOADS,
    "moments, 1,000 of 3,072": MOMENTS,
    "membership, 120 networks": "ATTACK = 'membership'" + ATTACKS,
    "model inversion, 120 networks": "ATTACK = 'model_inversion'" + ATTACKS,
    "engine, 50 batches of 64": ENGINE,
}
"""Work that a process times by itself, after what it imports, and once before."""
WHOLE = {"help": ["--help"], "risk": ["risk", "--nats", "2", "--records", "1000"]}
"""Commands that are timed from the start of their process to its end."""


def _code(case: str, checkout: Path) -> str:
    """Write the program of a case for a checkout, which may be of before the library and the lab were two packages."""
    if case in WHOLE:
        module, _, function = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["scripts"][
            "leakbound"
        ].partition(":")
        return f"from {module} import {function} as main\nWORDS = {WHOLE[case]!r}\n{COMMAND}"
    work = f"WARM = True\n{INSIDE[case]}{CLOCK}"
    one_package = not (checkout / "src" / "leakbound_lab").is_dir()
    return work.replace("leakbound_lab", "leakbound") if one_package else work


def seconds(case: str, checkout: Path) -> float:
    """CPU seconds, user and system, of a case with the sources of a checkout."""
    path = os.pathsep.join([str(checkout / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    code = _code(case, checkout)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:  # so that no folder is imported by chance
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"{case} with {checkout}:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(done.stdout.split()[-1]) if case in INSIDE else whole


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="folder of another checkout")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of processes of each case")
    parser.add_argument("--cases", nargs="+", choices=[*INSIDE, *WHOLE], default=[*INSIDE, *WHOLE])
    parser.add_argument("--out", type=Path, help="JSON file for all times")
    asked = parser.parse_args()
    if not (asked.other / "src" / "leakbound").is_dir():
        raise SystemExit(f"{asked.other}: is no checkout, it has no src/leakbound")
    found: dict[str, dict[str, list[float]]] = {}
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for case in asked.cases:
        times = found.setdefault(case, {"this": [], "other": []})
        for pair in range(asked.pairs):
            order = [("this", HERE), ("other", asked.other.resolve())]
            for name, checkout in order if pair % 2 else order[::-1]:
                times[name].append(seconds(case, checkout))
        ratios = np.divide(times["this"], times["other"])
        other, this = (float(np.median(times[name])) for name in ("other", "this"))
        text = f"{other:8.3f} {this:8.3f}   {np.median(ratios):.3f} ({ratios.min():.3f} to {ratios.max():.3f})"
        print(f"{case:<30} {text}", flush=True)
    print(f"load after: {os.getloadavg()[0]:.1f}")
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
