"""What each command is told by ``--settings``: the part of a configuration that its job depends on.

The workflow writes these from a checked configuration. They are checked again, because a command can be called by hand.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Strict, model_validator

from leakbound.config.catalogue import FigureConfig
from leakbound.config.consensus import ConsensusConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.defenses import BoxWeights, Defense
from leakbound.config.federated import FederatedConfig
from leakbound.config.settings import Count, Level, Line, Name, Names, Records, Replicas, Seed, Settings, Steps, Target
from leakbound.config.studies import EfficiencyConfig, IllustrationConfig
from leakbound.config.theory import TheoryConfig
from leakbound.config.training import TrainingConfig
from leakbound.randomness.origin import PrivacyNoise

Device = Literal["auto", "cpu", "cuda"]
Lines = Annotated[tuple[Line, ...], Strict(False)]


class Job(Settings):
    """What all of them may hold."""

    model_config = ConfigDict(defer_build=True)  # each command needs one of them

    plugins: dict[Name, dict[Name, Target]] = Field(default_factory=dict)
    """Things from outside the package that the job uses: kind to name to ``module:attribute``."""


class PrepareJob(Job):
    """One dataset."""

    dataset: Name
    config: DatasetConfig
    seed: Seed


class SpectrumJob(Job):
    """A shape of noise, and the weights that it may take."""

    shape: Name
    weights: BoxWeights


class CalibrateJob(Job):
    """A shape of noise at one capacity, nats."""

    shape: Name
    capacity: Annotated[Level, Field(gt=0)]


class DefendedJob(Job):
    """A network under a defense at one of its levels."""

    model: Name
    defense: Defense
    level: Level | None
    seed: Seed
    device: Device

    @model_validator(mode="after")
    def _has_a_possible_level(self) -> DefendedJob:
        if (problem := self.defense.level_problem(self.level)) is not None:
            raise ValueError(f"level = {self.level}: {problem}")
        return self


class TuneJob(DefendedJob):
    """A learning-rate search."""

    dataset: Name
    variant: Line
    batch_size: Records
    privacy_noise: PrivacyNoise = "seeded"
    training: TrainingConfig


class TrainJob(TuneJob):
    """A training with all its replicas."""

    slug: Line
    rounds: Steps
    replicas: Replicas


class AttackJob(DefendedJob):
    """An attack on all replicas of a run; without weights it is told how many there are, and what makes the noise."""

    attack: Name
    slug: Line
    config: dict[str, Any]
    replicas: Replicas | None = None
    batch_size: Records | None = None
    privacy_noise: PrivacyNoise | None = None


class MeasureJob(Job):
    """Training times of some defenses."""

    config: EfficiencyConfig
    defenses: dict[Name, Defense]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    seed: Seed
    privacy_noise: PrivacyNoise = "seeded"
    device: Device

    @model_validator(mode="after")
    def _knows_its_defenses(self) -> MeasureJob:
        if missing := sorted(set(self.config.defenses) - set(self.defenses)):
            raise ValueError(f"defenses: lacks {', '.join(missing)}")
        return self


class IllustrateJob(Job):
    """An illustration."""

    illustration: Name
    config: IllustrationConfig
    seed: Seed


class TabulateJob(Job):
    """A study's runs, each with its attacks."""

    study: Name
    runs: dict[Line, Names]


class PlotJob(Job):
    """A figure."""

    figure: FigureConfig


class ClaimsJob(Job):
    """Figures with claims, without what draws them."""

    preset: Name
    alpha: Annotated[float, Field(gt=0, lt=0.5)]
    figures: Annotated[tuple[dict[str, Any], ...], Strict(False), Field(min_length=1)]


class LogJob(Job):
    """What MLflow is told of a run beside its files."""

    preset: Name
    slug: Line
    replicas: Replicas
    attacks: Names
    mechanism: Name
    channel: Line | None
    papers: Lines
    figures: Lines
    uri: Line


class ConsensusJob(Job):
    """A table of private average consensus."""

    part: Name
    config: ConsensusConfig
    seed: Seed
    privacy_noise: PrivacyNoise = "seeded"


class TheoryJob(Job):
    """A table of closed forms."""

    part: Name
    config: TheoryConfig
    seed: Seed


class FederatedSetting(Settings):
    """A federated run, as ``FederatedRun`` states it."""

    dataset: Name
    model: Name
    scheme: Literal["none", "client", "server", "personalized", "uniform"]
    n_clients: Count
    max_param_norm: Annotated[Level, Field(gt=0)] | None = None
    mi_budget: Annotated[Level, Field(gt=0)] | None = None
    budget_spread: Level | None = None

    @model_validator(mode="after")
    def _has_what_its_scheme_needs(self) -> FederatedSetting:
        spread = ("budget_spread",) if self.scheme in ("personalized", "uniform") else ()
        for name in () if self.scheme == "none" else ("max_param_norm", "mi_budget", *spread):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: is missing, and the scheme {self.scheme} needs it")
        return self


class FederateJob(Job):
    """A federated run with all its seeds."""

    run: FederatedSetting
    most_clients: Count | None
    replicas: Replicas
    federated: FederatedConfig
    seed: Seed
    privacy_noise: PrivacyNoise = "seeded"
    device: Device

    @model_validator(mode="after")
    def _knows_how_many_records(self) -> FederateJob:
        if self.most_clients is None and self.federated.records is None:
            raise ValueError("most_clients: is missing, and federated.records does not say how many each client has")
        return self


class FederatedJob(Job):
    """A table of federated runs, or of closed forms about their networks."""

    part: Name
    runs: Annotated[tuple[FederatedSetting, ...], Strict(False)] = ()
    federated: FederatedConfig | None = None

    @model_validator(mode="after")
    def _has_its_source(self) -> FederatedJob:
        if (self.part == "composition") != (self.federated is not None) or bool(self.runs) == bool(self.federated):
            raise ValueError(f"part = {self.part!r}: composition has federated, all others have runs, at least one")
        return self


class LogFederatedJob(Job):
    """What MLflow is told of a federated run beside its files."""

    preset: Name
    run: FederatedSetting
    communication_rounds: Steps
    batch_size: Records
    replicas: Replicas
    figures: Lines
    uri: Line
