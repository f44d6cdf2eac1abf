"""Content of one MLflow run as a plain value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Point(NamedTuple):
    """One value of a metric. ``timestamp`` is in milliseconds since 1970 and comes from the job's files."""

    key: str
    step: int
    timestamp: int
    value: float


@dataclass(frozen=True)
class RunRecord:
    """Content of one MLflow run.

    Attributes:
        key: Permanent name, unique within the experiment.
        experiment: Name of the experiment.
        name: Name in the list of runs.
        start: Milliseconds since 1970.
        end: Milliseconds since 1970.
        about: Description of the experiment, one sentence.
        status: FINISHED, or FAILED for a run that diverged.
        params: Name to text.
        tags: Name to text.
        metrics: All values, of all steps.
        artifacts: Files to upload, each with its folder below the run's artifacts, empty for the top.
        data: Dataset that it read: its name, the beginning of the SHA-256 of its prepared images, of which
            MLflow keeps 36 digits, and the use that the run made of it, e.g. ``training``.
        children: Runs nested below, one for each replica.
    """

    key: str
    experiment: str
    name: str
    start: int
    end: int
    about: str = ""
    status: str = "FINISHED"
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[Point, ...] = ()
    artifacts: tuple[tuple[Path, str], ...] = ()
    data: tuple[str, str, str] | None = None
    children: "tuple[RunRecord, ...]" = ()


@dataclass(frozen=True)
class RunFacts:
    """Name and coordinates of a run.

    Attributes:
        preset: Name of the configuration.
        slug: Name of the run, e.g. ``digits/lenet/natural-4/n600-b64``.
        dataset: Name of the dataset.
        model: Name of the network.
        defense: Name of the defense, ``none`` without one.
        defense_label: Its name in figures and in the report.
        level: Level in the unit of the defense, e.g. capacity κ in nats. None without a level.
        rounds: Training steps, or communication rounds of a federated run.
        batch_size: Records of a training step.
        replicas: Number of seeds.
        level_label: The level with its unit, e.g. ``4 nats``. Empty without a level.
        papers: Papers whose figures show the run.
        figures: Keys ``paper/id`` of these figures.

    Example:
        >>> facts = RunFacts("quick", "digits/mlp/natural-4/n9-b8", "digits", "mlp", "natural", 4.0, 9, 8, 3, "natural")
        >>> facts.experiment
        'quick/digits'
    """

    preset: str
    slug: str
    dataset: str
    model: str
    defense: str
    level: float | None
    rounds: int
    batch_size: int
    replicas: int
    defense_label: str
    level_label: str = ""
    papers: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the attributes as plain values, by their names."""
        return dict(vars(self))

    @property
    def experiment(self) -> str:
        """Experiment of the run, one for each preset and dataset."""
        return f"{self.preset}/{self.dataset}"

    @property
    def about(self) -> str:
        """Description of the experiment."""
        return f"Runs on {self.dataset} under preset {self.preset}: means over replicas, with a child run for each"

    @property
    def name(self) -> str:
        """Name in lists, as the report has it."""
        arm = f"{self.defense_label} {self.level_label}".strip()
        return f"{arm}, {self.model}, n{self.rounds} b{self.batch_size}"

    @property
    def order(self) -> str:
        """Text by which MLflow, which compares texts, sorts defenses, and their levels as numbers.

        What is undefended comes first, and untrained networks, which have no accuracy, come last.
        """
        group = 2 if self.rounds == 0 else 0 if self.defense == "none" else 1
        defense = f"{group} {self.defense}"
        return defense if self.level is None else f"{defense} {self.level:018.6f}"
