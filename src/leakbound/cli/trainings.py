"""Settings, requests and work that all steps share which train, time or attack a network under a defense."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from leakbound.cli.inputs import JobSettings, device_name, read_dataset
from leakbound.config.defenses import Defense
from leakbound.config.settings import Level, Line, Listed, Name, Records, Replicas, Seed, Steps
from leakbound.config.training import Length, TrainingConfig
from leakbound.jobs.runs import Run
from leakbound.jobs.table import RunTable
from leakbound.randomness.origin import PrivacyNoise

if TYPE_CHECKING:
    from leakbound.channels.channel import Channel
    from leakbound.training.request import TrainingRequest

Device = Literal["auto", "cpu", "cuda"]


class DefendedSettings(JobSettings):
    """A network under a defense at one of its levels."""

    model: Name
    defense: Defense
    level: Level | None
    seed: Seed
    device: Device

    @model_validator(mode="after")
    def _has_a_possible_level(self) -> DefendedSettings:
        if (problem := self.defense.level_problem(self.level)) is not None:
            raise ValueError(f"level = {self.level}: {problem}")
        return self


class TrainingSettings(DefendedSettings):
    """A network that is trained."""

    dataset: Name
    slug: Line
    batch_size: Records
    privacy_noise: PrivacyNoise = "seeded"
    training: TrainingConfig
    rounds: Steps
    replicas: Replicas
    rates: Literal["chosen", "all"] = "chosen"
    lengths: Listed[Length] = ("full",)


def training_settings(table: RunTable, run: Run, kept: set[str]) -> dict[str, Any]:
    """Plain values that a training of a run depends on; ``kept`` are the settings of training that count."""
    config, defense = table.config, table.defense_of(run)
    return {
        "dataset": run.dataset,
        "model": run.model,
        "defense": defense.model_dump(mode="json"),
        "slug": run.slug,
        "level": run.level,
        "batch_size": run.batch_size,
        "seed": config.seed,
        **table.noise_settings(defense),
        **table.recipe_settings(run),
        "device": config.device_of("train"),
        "training": config.training.model_dump(mode="json", include=kept),
    }


def looked_up(table: RunTable, run: Run) -> dict[str, Any]:
    """Things that the training of a run looks up, as :func:`leakbound.jobs.job.new_job` takes them."""
    defense = table.config.defense(run.defense)
    return {"uses": {"models": [run.model], "mechanisms": [defense.mechanism]}, "modules": defense.modules()}


def training_request(asked: TrainingSettings, dataset: Path, channel: Channel | None, **more: Any) -> TrainingRequest:
    """Request of a training."""
    from leakbound.training.request import TrainingRequest

    return TrainingRequest(
        dataset=read_dataset(dataset),
        model=asked.model,
        defense=asked.defense,
        level=asked.level,
        batch_size=asked.batch_size,
        rounds=asked.rounds,
        replicas=asked.replicas,
        learning_rates=asked.defense.learning_rates or asked.training.learning_rates,
        lengths=asked.lengths,
        config=asked.training,
        seed=asked.seed,
        slug=asked.slug,
        privacy_noise=asked.privacy_noise,
        device=device_name(asked.device),
        channel=channel,
        **more,
    )
