"""Runs: one (dataset, model, defense, level, rounds, batch size) each, with the same name everywhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from leakbound.config.defenses import level_text
from leakbound.config.studies import StudyConfig

_SLUG = re.compile(
    r"(?P<dataset>[a-z][a-z0-9_]*)/(?P<model>[a-z][a-z0-9_]*)/"
    r"(?P<defense>[a-z][a-z0-9_]*)(-(?P<level>[0-9.e+-]+))?/n(?P<rounds>[0-9]+)-b(?P<batch_size>[0-9]+)"
)


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
        """Return the name and coordinates of the run in MLflow."""
        return {"slug": self.slug, **vars(self)}

    @classmethod
    def from_slug(cls, slug: str) -> "Run":
        """Parse the name of a run, with one replica.

        Raises:
            ValueError: If ``slug`` has another form.
        """
        match = _SLUG.fullmatch(slug)
        if match is None:
            raise ValueError(
                f"{slug!r} is not the name of a run: the form is dataset/model/defense-level/nROUNDS-bBATCH"
            )
        parts = match.groupdict()
        level = None if parts["level"] is None else float(parts["level"])
        return cls(
            parts["dataset"],
            parts["model"],
            parts["defense"],
            level,
            int(parts["rounds"]),
            int(parts["batch_size"]),
        )


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
