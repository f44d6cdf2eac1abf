"""Measured times of elementary work, and what stands in for those that were not measured."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from leakbound import storage

COLUMNS = ("device", "unit", "model", "colors", "slots", "value", "source")
"""Of a table of costs: a key of five, seconds (or a number of parameters), and what they were measured on."""
PACKAGED = Path(__file__).with_name("costs.csv")
"""Times that come with the package; its column ``source`` says on what they were measured."""
_BATCH = 64
_GPU_SPEEDUP = 200.0  # guess: float32 work of one large GPU over that of one CPU thread
# Guess: seconds of the least step on a GPU, which is bound by starting its kernels.
_GPU_FLOOR = 3e-3
_GPU_FLOORS = {"match": 1e-2, "dpsgd": 6e-3, "dppsac": 6e-3}  # where there are many kernels in a step
_GPU_START = 4.0  # guess: seconds until a process has its GPU
_LIKE = {"lenet_sigmoid": "lenet"}  # equal work under another name
_PLAIN = "step_none"
_ON_IMAGES = ("step_natural", "step_white")


class UnitCosts:
    """Seconds of elementary work on one device.

    Args:
        rows: Entries with ``device``, ``unit``, ``model`` (empty for none), ``colors``, ``slots`` and ``value``; later
            ones replace earlier ones of the same key.
        device: ``cpu`` or ``cuda``.

    Attributes:
        notes: What was not measured, and what stands in for it.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], device: str) -> None:
        self.device = device
        self.notes: set[str] = set()
        self._values: dict[tuple[str, str, str, int, int], float] = {}
        for row in rows:
            key = (row["device"], row["unit"], row["model"], int(row["colors"] or 0), int(row["slots"] or 1))
            self._values[key] = float(row["value"])

    def job(self, kind: str) -> float:
        """CPU seconds that a job of a kind takes beside the work that grows: start, reading, writing."""
        value = self._values.get(("cpu", f"job_{kind}", "", 0, 1))
        if value is None:
            self.notes.add(f"jobs of kind {kind}: not measured, taken as short")
            return 5.0
        return value

    @property
    def start(self) -> float:
        """Seconds that a job needs on top of that to get its device."""
        return 0.0 if self.device == "cpu" else _GPU_START

    def step(self, defense: str, model: str, colors: int, records: int, replicas: int) -> float:
        """Seconds of one training step of all replicas.

        Args:
            defense: Kind of the work: ``none``, ``natural``, ``white``, ``dpsgd``, ...
            model: Registered network.
            colors: 1 or 3.
            records: Records in the step.
            replicas: Networks that take it.
        """
        if records != _BATCH:
            self.notes.add(f"steps of other than {_BATCH} records: extrapolated in proportion")
        share = records / _BATCH
        measured = self._measured("cuda", f"step_{defense}", model, colors) if self.device == "cuda" else {}
        if measured:
            return _between(measured, replicas) * max(1.0, share)
        alone = self._cpu(f"step_{defense}", model, colors)
        if self.device == "cpu":
            return alone * share * replicas
        self._guess_gpu()
        if defense in ("dpsgd", "dppsac"):  # replicas one after another
            return replicas * max(_GPU_FLOORS[defense], alone * share / _GPU_SPEEDUP)
        return max(_GPU_FLOOR, replicas * alone * share / _GPU_SPEEDUP)

    def iteration(self, unit: str, model: str, colors: int, images: int) -> float:
        """Seconds of one iteration of work on some images at once: ``predict``, ``invert`` or ``match``."""
        if self.device == "cuda":
            measured = self._measured("cuda", unit, model, colors)
            if measured:
                return measured[1] * max(images, 1 if unit == "match" else _BATCH)
            self._guess_gpu()
            return max(_GPU_FLOORS.get(unit, _GPU_FLOOR), images * self._cpu(unit, model, colors) / _GPU_SPEEDUP)
        return images * self._cpu(unit, model, colors)

    def attack_step(self, model: str, colors: int) -> float:
        """Seconds of one step of the attack network of membership inference."""
        if self.device == "cuda":
            measured = self._measured("cuda", "membership", model, colors)
            if measured:
                return measured[1]
            self._guess_gpu()
            return max(_GPU_FLOOR, self._cpu("membership", model, colors) / _GPU_SPEEDUP)
        return self._cpu("membership", model, colors)

    def parameters(self, model: str, colors: int) -> float:
        """Number of parameters of a network."""
        return self._cpu("parameters", model, colors)

    def _guess_gpu(self) -> None:
        """Say that no GPU has been measured."""
        self.notes.add(
            f"no time was measured on a GPU: extrapolated, taken as {_GPU_SPEEDUP:g} CPU threads and at least "
            f"{1e3 * _GPU_FLOOR:g} to {1e3 * max(_GPU_FLOORS.values()):g} ms a step; measure there with --measure"
        )

    def _cpu(self, unit: str, model: str, colors: int) -> float:
        """Value on a CPU, from another defense, another number of colors or another network if need be."""
        name = _LIKE.get(model, model)
        for candidate in dict.fromkeys((model, name)):
            if found := self._measured("cpu", unit, candidate, colors):
                return found[1]
        others = (1, 3) if colors not in (1, 3) else (4 - colors,)
        for other in others:
            if found := self._measured("cpu", unit, name, other):
                self.notes.add(f"{name} on images of {colors} colors: extrapolated from {other}")
                return found[1]
        if unit.startswith("step_") and unit != _PLAIN and self._knows(name):
            return self._like_lenet(unit, name, colors)
        if name != "lenet":
            self.notes.add(f"network {name}: not measured, taken as LeNet; measure it with --measure")
            return self._cpu(unit, "lenet", colors)
        raise ValueError(f"the table of costs has no {unit} of lenet: measure it with `leakbound costs`")

    def _knows(self, model: str) -> bool:
        """Whether plain steps of a network were measured."""
        return any(self._measured("cpu", _PLAIN, model, colors) for colors in (1, 3))

    def _like_lenet(self, unit: str, model: str, colors: int) -> float:
        """Step of a defense that was measured with LeNet alone: noise on images costs the same with every network."""
        if unit == "step_dppsac" and self._measured("cpu", "step_dpsgd", model, colors):
            return self._cpu("step_dpsgd", model, colors)
        plain = self._cpu(_PLAIN, model, colors)
        own, reference = (self._measured("cpu", one, "lenet", 3) for one in (unit, _PLAIN))
        if not own or not reference:
            self.notes.add(f"{unit.removeprefix('step_')}: not measured, taken as SGD")
            return plain
        if unit in _ON_IMAGES:
            return plain + max(0.0, own[1] - reference[1])
        self.notes.add(f"{unit.removeprefix('step_')} with {model}: extrapolated by its ratio to SGD with LeNet")
        return plain * own[1] / reference[1]

    def _measured(self, device: str, unit: str, model: str, colors: int) -> dict[int, float]:
        """Slots to value."""
        key = (device, unit, model, colors)
        return {slots: value for (*found, slots), value in self._values.items() if tuple(found) == key}


def _between(measured: Mapping[int, float], slots: int) -> float:
    """Seconds of a stack of some slots, on the line through the measured sizes."""
    sizes = sorted(measured)
    if len(sizes) == 1:
        return measured[sizes[0]] * slots / sizes[0]
    low, high = sizes[0], sizes[-1]
    slope = (measured[high] - measured[low]) / (high - low)
    return max(measured[low], measured[low] + slope * (slots - low))


def read_costs(path: Path = PACKAGED) -> list[dict[str, Any]]:
    """Rows of a table of costs.

    Raises:
        ValueError: If it is no such table; the message names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is no table of costs ({error})") from error
    if not rows or set(COLUMNS) - rows[0].keys():
        raise ValueError(f"{path}: must have rows with the columns {', '.join(COLUMNS)}")
    for line, row in enumerate(rows, 2):
        if not _is_cost(row):
            raise ValueError(
                f"{path}: line {line}: colors and slots must be whole numbers, value a number of at least 0"
            )
    return rows


def _is_cost(row: Mapping[str, Any]) -> bool:
    """Whether a row has numbers where it needs them."""
    try:
        numbers = int(row["colors"] or 0), int(row["slots"] or 1), float(row["value"])
    except (TypeError, ValueError):
        return False
    return all(math.isfinite(number) and number >= 0 for number in numbers)


def write_costs(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table of costs, the last row of each key, in order."""
    kept = {tuple(str(row[name]) for name in COLUMNS[:5]): row for row in rows}
    with storage.atomic(path, sealed=False) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for key in sorted(kept):
            row = kept[key]
            writer.writerow({**{name: row[name] for name in COLUMNS}, "value": f"{float(row['value']):.4g}"})
