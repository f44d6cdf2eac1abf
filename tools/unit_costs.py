"""Times of the elementary work of training and attacks on this machine, for ``leakbound plan --table FILE``.

    python tools/unit_costs.py --out FILE --model lenet resnet10 [--colors 1 3] [--device cuda]

Other entries of FILE are kept; a new file begins with the packaged ones. Images are random: what
is in them costs no time.
"""

from __future__ import annotations

import argparse
import csv
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from leakbound import storage
from leakbound.channels.channel import GaussianChannel
from leakbound.commands.files import check_outputs
from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.attacks.gradient_inversion.published import PublishedReconstruction, inverted
from leakbound_lab.attacks.membership.attack import View, scores_of
from leakbound_lab.attacks.membership.signals import read_signals
from leakbound_lab.attacks.model_inversion.queries import invert
from leakbound_lab.config.attacks import GradientInversionConfig, MembershipConfig
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, GradientCompression, ParameterNoise, Undefended
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import Drawing, ImageDataset, Split
from leakbound_lab.jobs.unit_costs import COLUMNS, PACKAGED, read_costs
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.steps.inputs import device_label, device_name
from leakbound_lab.training.efficiency import clock_of, measure_steps
from leakbound_lab.training.request import TrainingRequest
from leakbound_lab.training.stack import stacked

logger = logging.getLogger("leakbound")
BATCH = 64
"""Records of the steps that are timed."""
_COLUMNS = ["device", "unit", "model", "colors", "slots", "value"]
_RECORDS = 640
_DRAWING = Drawing(members=280, validation=80, seed=0)
_CLASSES = 10
_STACK = 8
_LARGE = 1_000_000  # parameters above which all learners together would not fit the memory of a CPU
_CAREFUL = 1e-4  # learning rate: keeps weights finite, and costs what any other does


def measure_unit_costs(name: str, colors: int, device: str, *, max_seconds: float = 10.0) -> pd.DataFrame:
    """Time the elementary work on one network.

    Args:
        name: Registered network.
        colors: 1 or 3.
        device: ``cpu`` or ``cuda``.
        max_seconds: Longest turn of a defense, seconds.

    Returns:
        Columns of a table of costs without its source. The value is a number of parameters for ``parameters``, else
        seconds: of a training step of 64 records for ``step_<defense>``, for each image of a forward pass
        (``predict``), for each image and iteration of model inversion (``invert``) and gradient inversion (``match``),
        and for each step of the attack network of membership inference (``membership``); all but ``predict`` of all
        ``slots`` together.
    """
    network = models.build(name, colors, _CLASSES, torch_generator(0, "costs")).to(device).eval()
    parameters = sum(parameter.numel() for parameter in network.parameters())
    large = parameters > _LARGE
    rows: list[tuple[str, int, float]] = [("parameters", 1, float(parameters))]
    stacks = (1,) if device == "cpu" else (1, _STACK)
    for slots in stacks:
        requests = _requests(name, colors, device, slots)
        groups = [[kind] for kind in requests] if large else [list(requests)]
        for kinds in groups:
            chosen = {kind: requests[kind] for kind in kinds}
            times = measure_steps(chosen, steps=8, repeats=1 if large else 2, max_seconds=max_seconds)
            for defense, seconds in times.groupby("defense")["seconds"]:
                rows.append((f"step_{defense}", slots, float(seconds.min())))
        found = attack_costs(network, colors, device, 8 if large else BATCH, slots)
        rows += [(unit, slots, seconds) for unit, seconds in found]
    for unit, slots, value in rows:
        logger.info("%s, %d colors, %s, %d slots: %.4g", name, colors, unit, slots, value)
    table = pd.DataFrame(rows, columns=["unit", "slots", "value"])
    return table.assign(device=device, model=name, colors=colors)[_COLUMNS]


def _requests(name: str, colors: int, device: str, slots: int) -> dict[str, TrainingRequest]:
    """A run of each kind of defense on random images."""
    generator = np.random.default_rng(0)
    images = generator.uniform(-1, 1, (_RECORDS, colors, 32, 32)).astype(np.float32)
    split = Split(images, generator.integers(0, _CLASSES, _RECORDS))
    pixels = images[0].size
    variances = np.full(pixels, 0.04)
    axes = np.eye(pixels)  # the product with them takes as long as with any others
    settings: dict[str, dict[str, Any]] = {
        "none": {"defense": Undefended(), "level": None},
        "natural": {"defense": ChannelDefense(), "level": 50.0, "channel": GaussianChannel("natural", 50.0, variances)},
        "white": {
            "defense": ChannelDefense(shape="white"),
            "level": 50.0,
            "channel": GaussianChannel("white", 50.0, variances, basis=axes),
        },
        "dpsgd": {"defense": DPSGD(), "level": 1.0},
        "parameter_noise": {"defense": ParameterNoise(), "level": 1e-3},
        "gradient_compression": {"defense": GradientCompression(), "level": 0.1},
    }
    return {
        kind: TrainingRequest(
            dataset=ImageDataset("random", tuple(map(str, range(_CLASSES))), split, split, split, _DRAWING),
            model=name,
            rounds=1,
            batch_size=BATCH,
            learning_rates=(_CAREFUL,),
            config=TrainingConfig(),
            seed=0,
            slug=f"random/{name}/{kind}/costs",
            replicas=slots,
            device=device,
            **values,
        )
        for kind, values in settings.items()
    }


def attack_costs(
    network: torch.nn.Module, colors: int, device: str, count: int, slots: int
) -> Iterator[tuple[str, float]]:
    """Units of the attacks on some networks side by side, measured on some images at once."""
    images = torch.rand(count, colors, 32, 32, device=device) * 2 - 1
    labels = torch.arange(count, device=device) % _CLASSES
    clock = clock_of(device)
    weights = torch.full((count,), 1e-2, device=device)
    networks = [network] * slots  # one is as fast as another
    parameters = {name: value.detach() for name, value in stacked(networks, device).items()}  # as attackers hold them
    rows = [value.repeat_interleave(slots, 0) for value in (labels, images, weights, torch.ones_like(weights))]

    def inversions(iterations: int) -> None:
        """Iterations of model inversion."""
        *begun, bounds = rows
        invert(network, parameters, *begun, bounds=bounds, learning_rate=0.01, moments=[iterations])

    def predictions(passes: int) -> None:
        """Forward passes."""
        for _ in range(passes):
            read_signals(network, images, labels)

    if slots == 1:  # each network looks at records by itself
        yield "predict", _slope(predictions, clock) / count
    yield "invert", _slope(inversions, clock) / count
    few = min(4, count // 4)  # as many as the presets attack at once; gradients of large networks fill the memory
    observed, places = record_gradients(network, images[:few], labels[:few]), torch.arange(few, device=device)
    begun = (observed, labels[:few], places, images[:few], weights[:few])

    def matches(iterations: int) -> None:
        """Iterations of gradient inversion."""
        config = GradientInversionConfig(iterations=iterations)
        inverted([PublishedReconstruction(one, *begun, config) for one in networks])

    yield "match", _slope(matches, clock) / few
    known = read_signals(network, images.repeat(640 // count, 1, 1, 1), labels.repeat(640 // count))

    def epochs(passes: int) -> None:
        """Passes of the attack network of membership inference over 8 of 10 batches."""
        config = MembershipConfig(epochs=passes, learning_rates=(1e-5,), batch_size=BATCH)
        scores_of([([View(known), View(known)], torch_generator(0, "costs")) for _ in networks], config)

    yield "membership", _slope(epochs, clock, few=2, many=6) / 8


def _slope(work: Callable[[int], None], clock: Callable[[], float], few: int = 1, many: int = 3) -> float:
    """Seconds of one more unit of work, the fixed part left out; the less disturbed of two measurements."""
    work(few)
    found = []
    for _ in range(2):
        moments = [clock()]
        for count in (few, many):
            work(count)
            moments.append(clock())
        found.append(((moments[2] - moments[1]) - (moments[1] - moments[0])) / (many - few))
    return max(min(found), 1e-9)


def write_costs(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a table of costs, the last row of each key, in order."""
    kept = {tuple(str(row[name]) for name in COLUMNS[:5]): row for row in rows}
    with storage.atomic(path, sealed=False) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for key in sorted(kept):
            row = kept[key]
            writer.writerow({**{name: row[name] for name in COLUMNS}, "value": f"{float(row['value']):.4g}"})


def main() -> None:
    """Measure the networks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="table of times, CSV")
    parser.add_argument("--model", nargs="+", required=True, help="registered networks")
    parser.add_argument("--colors", nargs="+", type=int, choices=(1, 3), default=[3], help="colors of their images")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="device that does the work")
    parser.add_argument("--max-seconds", type=float, default=10.0, help="longest turn of a defense")
    asked = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    check_outputs(asked.out)
    rows = read_costs(asked.out if asked.out.is_file() else PACKAGED)
    torch.set_num_threads(1)  # a plan counts jobs of one thread each
    label, day = device_label(device_name(asked.device)), datetime.now(UTC).date()
    source = f"{label}, torch {torch.__version__.partition('+')[0]}, {day}"
    for name in asked.model:
        for colors in asked.colors:
            found = measure_unit_costs(name, colors, asked.device, max_seconds=asked.max_seconds).to_dict("records")
            rows += [{**row, "source": source} for row in found]
    write_costs(asked.out, rows)


if __name__ == "__main__":
    main()
