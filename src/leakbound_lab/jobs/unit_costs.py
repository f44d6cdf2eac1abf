"""Elementary work in a job, and measured times of it, for the plan."""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakbound.storage import limits

STEP_RECORDS = 64
"""Records of one training step in the unit of costs."""
COLUMNS = ("device", "unit", "model", "colors", "slots", "value", "source")
"""Columns of a table of costs: five of a key, seconds (or a number of parameters), and their origin."""
PACKAGED = Path(__file__).with_name("costs.csv")
"""Times that come with the package. The column ``source`` says where they were measured."""
_REFERENCE = "lenet"  # network that stands in for those that were not measured
_START = 0.3  # CPU seconds of a job before and after its work, if they were not measured
_REPLICA = 10.0  # CPU seconds of an attack from outside on a replica, if they were not measured
_PLAIN = "step_none"  # unit whose time scales those that were not measured
_MEASURE = "see tools/unit_costs.py"


@dataclass(frozen=True)
class Work:
    """An amount of one kind of elementary work.

    Attributes:
        kind: ``step_<kind>`` (training steps of 64 records), ``predict`` (forward passes of an image),
            ``invert`` and ``match`` (iterations of model and of gradient inversion on an image),
            ``membership`` (steps of the attack network), ``denoise`` (records in training steps of the
            learned estimate, times the square of its width), ``image`` (images read, resized and written),
            ``product`` (multiplications of a float64 matrix product), ``attack_<name>`` (replicas in an
            attack of a plugin), ``disk`` (bytes of outputs), or ``parameters`` (bytes of outputs for each
            parameter).
        amount: Number of units.
        model: Network of the work. Empty for none.
        colors: Colors of the images. 0 for none.
        slots: Networks that one process trains or attacks at once on a GPU.
    """

    kind: str
    amount: int | float
    model: str = ""
    colors: int = 0
    slots: int = 1


class UnitCosts:
    """Seconds of elementary work on one device.

    Args:
        rows: Entries with ``device``, ``unit``, ``model`` (empty for none), ``colors``, ``slots`` and
            ``value``. Later entries replace earlier ones with the same key.
        device: ``cpu`` or ``cuda``.

    Attributes:
        notes: Work that was not measured, and how it is estimated.
        about: Whether times on a GPU are among these.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], device: str) -> None:
        self.device = device
        self.notes: set[str] = set()
        self.about = False
        self._values: dict[tuple[str, str, str, int], dict[int, float]] = {}
        for row in rows:
            key = (row["device"], row["unit"], row["model"], int(row["colors"] or 0))
            self._values.setdefault(key, {})[int(row["slots"] or 1)] = float(row["value"])

    def start(self, step: str) -> float:
        """Return the CPU seconds that a job takes in addition to its work: imports, reading, writing.

        Args:
            step: Kind of the job.
        """
        seconds = self._values.get(("cpu", f"job_{step}", "", 0))
        if seconds is None:
            self.notes.add(f"jobs of the step {step}: their start is not measured, taken as {_START} s")
            return _START
        return seconds[1]

    def seconds(self, work: Work) -> float | None:
        """Estimate the seconds of some work on the device.

        Work that was not measured on a network is estimated as LeNet's time, times the ratio of their plain
        steps. On a GPU this is the ratio on a GPU, or that on a CPU, and at least 1: the step of a smaller network
        takes as many kernels.

        Args:
            work: Elementary work.

        Returns:
            Seconds, None if such work was not measured on a GPU.

        Raises:
            ValueError: If such work was not measured on LeNet either.
        """
        if self.device == "cpu" or not work.model:
            return work.amount * self.on_cpu(work.kind, work.model, work.colors)
        stack = self._stack(work.kind, work.model, work.colors)
        if stack is not None:
            return work.amount / work.slots * _between(stack, work.slots)
        reference = self._stack(work.kind, _REFERENCE, work.colors)
        plain = self._stack(_PLAIN, _REFERENCE, work.colors)
        if reference is None or plain is None:
            self.notes.add(f"{work.kind} of {work.model} on a GPU: not measured, {_MEASURE}")
            return None
        measured = self._stack(_PLAIN, work.model, work.colors)
        if measured is None:
            ratio = self.on_cpu(_PLAIN, work.model, work.colors) / self.on_cpu(
                _PLAIN, _REFERENCE, work.colors
            )
        else:
            ratio = measured[1] / plain[1]
        self.about = True
        if ratio <= 1.0:
            self.notes.add(f"{work.kind} of {work.model} on a GPU: not measured, taken as {_REFERENCE}")
            return work.amount / work.slots * _between(reference, work.slots)
        self.notes.add(
            f"{work.kind} of {work.model} on a GPU: not measured, taken as {ratio:.3g} times that of one {_REFERENCE}"
        )
        return work.amount * ratio * reference[1]

    def on_cpu(self, unit: str, model: str, colors: int) -> float:
        """Return the value of a unit on a CPU, scaled from the reference network if this one was not measured.

        Args:
            unit: Kind of work, whose seconds are returned, or ``parameters`` for their number.
            model: Name of the network. Empty for work without one.
            colors: Colors of its images, 1 or 3.

        Raises:
            ValueError: If the unit was not measured on LeNet either.
        """
        value = self._measured(unit, model, colors)
        if value is not None:
            return value
        line = f"cpu,{unit},{model},{colors or ''},1,SECONDS,SOURCE"
        if unit.startswith("attack_"):
            self.notes.add(
                f"{unit}: not measured, taken as {_REPLICA:g} s for each replica; state work on the class of "
                f"the attack, or give a copy of {PACKAGED} with the line {line} as --table"
            )
            return _REPLICA
        if model in ("", _REFERENCE):
            raise ValueError(
                f"the table of costs has no {unit}{f' of {model}' if model else ''}: "
                f"give a copy of {PACKAGED} with the line {line} as --table"
            )
        plain = self._measured(_PLAIN, model, colors)
        if plain is None:
            self.notes.add(f"network {model}: not measured, taken as {_REFERENCE}, {_MEASURE}")
            return self.on_cpu(unit, _REFERENCE, colors)
        ratio = plain / self.on_cpu(_PLAIN, _REFERENCE, colors)
        self.notes.add(
            f"{unit} of {model}: not measured, taken as {ratio:.3g} times that of {_REFERENCE}, {_MEASURE}"
        )
        return ratio * self.on_cpu(unit, _REFERENCE, colors)

    def _measured(self, unit: str, model: str, colors: int) -> float | None:
        """Return the value on a CPU, None if the unit was not measured on images of any colors."""
        stack = self._stack(unit, model, colors if model else 0, "cpu")
        return None if stack is None else stack[1]

    def _stack(
        self, unit: str, model: str, colors: int, device: str | None = None
    ) -> Mapping[int, float] | None:
        """Return the values by slots on images of these colors, or of others. None if there is neither."""
        for other in (colors, 4 - colors):
            if stack := self._values.get((device or self.device, unit, model, other if model else 0)):
                if other != colors:
                    self.notes.add(f"{model} on images of {colors} colors: taken from {other}")
                return stack
        return None


def _between(measured: Mapping[int, float], slots: int) -> float:
    """Interpolate the seconds of a stack of some slots from the measured sizes."""
    low = min(measured)
    high = max(measured)
    if low == high:
        return measured[low] * slots / low
    slope = (measured[high] - measured[low]) / (high - low)
    return max(measured[low], measured[low] + slope * (slots - low))


def read_costs(path: Path = PACKAGED) -> list[dict[str, Any]]:
    """Read a table of costs.

    Args:
        path: CSV file with the columns ``COLUMNS``.

    Raises:
        ValueError: If the file is no such table. The message names the line.
    """
    limits.check_limit(path, "bytes", path.stat().st_size, limits.TEXT)
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
    """Return True if a row has numbers where it needs them."""
    try:
        numbers = int(row["colors"] or 0), int(row["slots"] or 1), float(row["value"])
    except (TypeError, ValueError):
        return False
    return all(math.isfinite(number) and number >= 0 for number in numbers)
