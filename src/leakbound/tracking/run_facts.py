"""Name and coordinates of a run in MLflow."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunFacts:
    """Name and coordinates of a run.

    Attributes:
        preset: Name of the configuration.
        slug: Name of the run, e.g. ``digits/lenet/natural-4/n600-b64``.
        dataset: Name of the dataset.
        model: Name of the network.
        defense: Name of the defense, ``none`` without one.
        level: Level in the unit of the defense, e.g. capacity κ in nats. None without a level.
        rounds: Training steps, or communication rounds of a federated run.
        batch_size: Records of a training step.
        replicas: Number of seeds.
        level_label: The level with its unit, e.g. ``4 nats``. Empty without a level.
        papers: Papers whose figures show the run.
        figures: Keys ``paper/id`` of these figures.

    Example:
        >>> facts = RunFacts("quick", "digits/lenet/natural-4/n600-b64", "digits", "lenet", "natural", 4.0, 600, 64, 3)
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
    level_label: str = ""
    papers: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

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
        """Name in lists, which begins with the defense, so that its levels are sorted together."""
        arm = f"{self.defense} {self.level_label}".strip()
        return f"{arm}, {self.model}, n{self.rounds} b{self.batch_size}"
