"""Settings of sweeps, of illustrations without training, and of the table of training times."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from leakbound_lab.config.data import BoxWeights, CovarianceOf
from leakbound_lab.config.defenses import NOISE_BATCHES
from leakbound_lab.config.settings import (
    Count,
    Levels,
    Listed,
    Name,
    Names,
    Records,
    Replicas,
    Seconds,
    Settings,
    Steps,
)


class StudyConfig(Settings):
    """A sweep: the product of its lists, each defense at its own levels."""

    datasets: Names
    models: Names
    defenses: dict[Name, Levels]
    """Defense to its levels: capacities in nats for channels, noise multipliers for DP, an empty list for ``none``."""
    rounds: Listed[Annotated[int, Field(ge=0, le=10**8)]]
    """Local optimisation steps. 0 leaves the network untrained, which gradient inversion needs."""
    batch_sizes: Listed[Records] = (64,)
    """Records in a step."""
    attacks: Names = ()
    replicas: Replicas | None = None
    """Replicas of each run. Default: ``replicas`` of the configuration."""
    rates: Literal["chosen", "all"] = "chosen"
    """Candidate learning rates whose networks are kept and attacked: the one that validation records choose
    for a replica, or all, for fronts of recipes."""
    lengths: Literal["full", "all"] = "full"
    """Points of each training whose networks are kept and attacked. full is the end alone. all adds half of
    the steps and the best point on validation records, the same for every defense, for fronts of recipes. It
    needs ``rates: all``. Controls that are themselves such a point of plain SGD (early_stopping, stopped)
    have one."""
    also: Names = ()
    """Studies whose runs stand in its table, too, e.g. inverted gradients of the same defenses and levels."""

    @model_validator(mode="after")
    def _lengths_of_all_rates(self) -> "StudyConfig":
        if self.lengths == "all" and self.rates != "all":
            raise ValueError("lengths = 'all' needs rates: all: a recipe is a learning rate and a length")
        return self


class IllustrationConfig(Settings):
    """Rows of a figure that need no training."""

    dataset: Name | None = None
    """Dataset whose images or spectrum are shown, if any."""
    levels: dict[Name, Levels] = {}
    """Channel shape to capacities in nats."""
    images: Annotated[int, Field(ge=1, le=16)] = 3
    """Images shown."""
    pictures: Literal["dataset", "portrait"] = "dataset"
    """What ``noisy_images`` shows after the channels of the dataset: its own images, or a portrait of the
    astronaut Eileen Collins (NASA, public domain) where those may not be published."""
    weights: BoxWeights = BoxWeights()
    """β of the personalized shapes."""
    covariance: CovarianceOf | None = None
    """Records whose mean and covariance are shown, by default those that channels are made from."""
    replicas: Replicas = 10
    """Draws of records, for illustrations that draw any."""


class EfficiencyConfig(Settings):
    """Training times, measured step by step in one process, in which all defenses of a network take turns."""

    dataset: Name
    """Dataset whose images are used."""
    models: Names
    defenses: dict[Name, Levels]
    """Defense to its levels, of which the first is timed. The list of ``none``, the reference for all, is
    empty."""
    batch_size: Records = 64
    """Records in a step."""
    steps: Annotated[Steps, Field(multiple_of=NOISE_BATCHES)] = NOISE_BATCHES
    """Steps of a defense's turn, a multiple of eight, because noise along principal directions is drawn for
    eight steps at once."""
    repeats: Count = 5
    """Turns of each defense that count, after one that does not. Every second round of turns is in reverse
    order."""
    max_seconds: Seconds = 60.0
    """Seconds after which a turn ends, with at least eight steps (one for DP), for large networks on a
    CPU."""
    epochs: Steps = 25
    """Epochs that times are stated for (Tan et al. 2024, Table 2)."""
    records: Records = 50000
    """Records of an epoch that times are stated for."""
