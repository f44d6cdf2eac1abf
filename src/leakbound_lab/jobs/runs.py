"""Runs: one (dataset, model, defense, level, rounds, batch size) each, with the same name everywhere."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from leakbound_lab.config.defenses import level_text
from leakbound_lab.config.studies import StudyConfig


@dataclass(frozen=True, order=True)
class Run:
    """One training with all its replicas, or one untrained network with 0 rounds.

    Attributes:
        dataset: Name of the dataset.
        model: Name of the network.
        defense: Name of the defense.
        level: Level in the unit of the defense, e.g. capacity κ in nats for channels. None for an undefended
            run.
        rounds: Number of local optimisation steps.
        batch_size: Records in a step.
        replicas: Number of replicas. It is not part of the run's name.
    """

    dataset: str
    model: str
    defense: str
    level: float | None
    rounds: int
    batch_size: int
    replicas: int = field(default=1, compare=False)

    @property
    def arm(self) -> str:
        """Return the defense at its level, e.g. ``natural-50`` or ``none``."""
        return self.defense if self.level is None else f"{self.defense}-{level_text(self.level)}"

    @property
    def slug(self) -> str:
        """Return the name of the run, e.g. ``cifar10/lenet/natural-50/n10000-b64``."""
        return f"{self.dataset}/{self.model}/{self.arm}/n{self.rounds}-b{self.batch_size}"

    def facts(self) -> dict[str, Any]:
        """Return the name, the coordinates and the number of replicas of the run."""
        return {"slug": self.slug, **vars(self)}

    def coordinates(self) -> dict[str, Any]:
        """Return what distinguishes the run from others, by the names of the columns of tables."""
        return {name: value for name, value in vars(self).items() if name != "replicas"}


def runs_of(study: StudyConfig, replicas: int) -> Iterator[Run]:
    """Yield the runs of one study, each defense at its own levels.

    Args:
        study: Study of a configuration.
        replicas: Number of replicas if the study sets none.
    """
    for dataset, model, rounds, batch_size in product(
        study.datasets, study.models, study.rounds, study.batch_sizes
    ):
        count = study.replicas or replicas
        for defense, levels in study.defenses.items():
            for level in levels or (None,):
                yield Run(dataset, model, defense, level, rounds, batch_size, count)
