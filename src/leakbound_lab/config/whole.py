"""A whole configuration, with the settings of MLflow, of resources of jobs, and of plugins."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from leakbound_lab.config.attacks import AttackConfig
from leakbound_lab.config.consensus import ConsensusConfig
from leakbound_lab.config.data import TABLES, CovarianceOf, DatasetConfig
from leakbound_lab.config.defenses import Defense, default_defenses
from leakbound_lab.config.federated import FederatedConfig
from leakbound_lab.config.settings import (
    Address,
    Line,
    Listed,
    Name,
    Names,
    PrivacyNoise,
    Replicas,
    Seed,
    Settings,
    TableSection,
    Target,
)
from leakbound_lab.config.studies import EfficiencyConfig, IllustrationConfig, StudyConfig
from leakbound_lab.config.theory import TheoryConfig
from leakbound_lab.config.training import TrainingConfig

FigureFormat = Literal["png", "pdf"]


class TrackingConfig(Settings):
    """Settings of MLflow's store of runs."""

    enabled: bool = True
    """Whether finished jobs are logged."""
    uri: Address = "sqlite:///results/mlflow.db"
    """Tracking store: a database or a server, with its password in the environment. Files remain the
    truth."""
    ui: Annotated[Address, Field(pattern=r"^https?://[^\s]+$")] = "http://127.0.0.1:5000"
    """Address of MLflow's pages on a database, for links from the report. A server shows its own pages."""

    @property
    def pages(self) -> str:
        """Address of MLflow's pages: the server's own, or that of `leakbound ui` for a database."""
        return (self.uri if self.uri.startswith("http") else self.ui).rstrip("/")


class ResourceConfig(Settings):
    """Resources that one job of a rule requests."""

    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPU threads."""
    mem_mb: Annotated[int, Field(ge=100, le=10**8)] = 1500
    """Memory in MiB, as much again at each retry."""
    runtime: Annotated[int, Field(ge=1, le=10**6)] = 30
    """Minutes, as many again at each retry."""


class ComputeConfig(ResourceConfig):
    """Resources that one job requests whose work a GPU can do."""

    gpu: Annotated[int, Field(ge=0, le=8)] = 0
    """GPUs."""


class ResourcesConfig(Settings):
    """Resources of the jobs of each step of the chain."""

    prepare: ResourceConfig = ResourceConfig(mem_mb=3000)
    covariance: ComputeConfig = ComputeConfig(mem_mb=3000)
    calibrate: ResourceConfig = ResourceConfig()
    estimator: ResourceConfig = ResourceConfig(mem_mb=3000, runtime=120)
    train: ComputeConfig = ComputeConfig(runtime=720)
    attack: ComputeConfig = ComputeConfig(runtime=720)
    efficiency: ComputeConfig = ComputeConfig(mem_mb=4000, runtime=120)
    figures: ResourceConfig = ResourceConfig()


class PluginsConfig(Settings):
    """Additions from outside the package: name to ``module:attribute``, imported when a job uses them.

    Settings of mechanisms and attacks are imported when a configuration that uses them is read.
    """

    datasets: dict[Name, Target] = {}
    models: dict[Name, Target] = {}
    shapes: dict[Name, Target] = {}
    mechanisms: dict[Name, Target] = {}
    attacks: dict[Name, Target] = {}
    plots: dict[Name, Target] = {}
    illustrations: dict[Name, Target] = {}
    claim_tests: dict[Name, Target] = {}


class Config(Settings):
    """A whole configuration: what ``snakemake --configfile FILE`` runs."""

    preset: Name = "quick"
    """Name of the configuration. Results are stored under ``results/<preset>``."""
    seed: Seed = 0
    """Seed from which every random number derives, except secure noise."""
    privacy_noise: PrivacyNoise = "seeded"
    """Origin of the noise that protects records. seeded is reproducible, so whoever knows the seed can
    subtract it. secure comes from the operating system and is released on a grid, for real records
    (docs/noise.md)."""
    covariance: CovarianceOf = "aux"
    """Records whose mean and covariance define the channels. aux are the attacker's public records. members,
    the pool that these are drawn from, as published, makes channels that reveal them (docs/guide.md)."""
    accept_capacity: Annotated[float, Field(ge=1.0, le=1e6)] = 1.25
    """Largest capacity under the images' own moments, as a multiple of the channel's. A job stops above
    it."""
    replicas: Replicas = 3
    """Number of replicas of each run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for training and attacks. auto takes a GPU for jobs that request one by
    ``resources.<step>.gpu``."""
    catalogue: Line = "config/figures"
    """Catalogue of figures, a file or a folder. A figure is drawn if the configuration produces its rows."""
    figure_formats: Listed[FigureFormat] = ()
    """Formats, of png and pdf, in which figures are drawn besides SVG, each in about half of its time.
    `leakbound export` writes them for single figures of a finished run."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Level of the claim tests, Holm-corrected within a figure."""
    plugins: PluginsConfig = PluginsConfig()
    datasets: dict[Name, DatasetConfig]
    defenses: dict[Name, Defense] = {}
    """Defenses in addition to the default ones, or these with other settings; see ``default_defenses``."""
    training: TrainingConfig = TrainingConfig()
    attacks: AttackConfig = AttackConfig()
    studies: dict[Name, StudyConfig]
    only: Names = ()
    """Studies of these that are run, with the figures that show them. Default: all."""
    illustrations: dict[Name, IllustrationConfig] = {}
    efficiency: EfficiencyConfig | None = None
    """Training times that table02 measures. Default: none."""
    consensus: ConsensusConfig | None = None
    """Private average consensus, ``{}`` for the paper's settings. Default: none."""
    federated: FederatedConfig | None = None
    """Federated averaging under a mutual-information budget (PMIDP-FL). Default: none."""
    theory: TheoryConfig | None = None
    """Utility against privacy in closed form, ``{}`` for the paper's settings. Default: none."""
    tracking: TrackingConfig = TrackingConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def root(self) -> PurePosixPath:
        """Folder of the configuration's results."""
        return PurePosixPath("results") / self.preset

    def plain(self) -> dict[str, Any]:
        """Return all settings as plain values, by the names of the sections."""
        return self.model_dump(mode="json")

    def restricted(self) -> "Config":
        """Return the configuration with the studies that ``only`` names, itself if that is empty."""
        if not self.only:
            return self
        return self.model_copy(update={"studies": {name: self.studies[name] for name in self.only}})

    @property
    def tables(self) -> set[Name]:
        """Datasets whose records are no images."""
        return {name for name, dataset in self.datasets.items() if dataset.reader in TABLES}

    def known_defenses(self) -> dict[Name, Defense]:
        """Map every defense that a study may sweep, declared or default, to its settings."""
        return {**default_defenses(), **self.defenses}

    def stated_strength(self) -> dict[Name, str]:
        """Map each defense whose ``stronger_with`` differs from the default of its name to that value."""
        default = {name: defense.stronger_with for name, defense in default_defenses().items()}
        return {
            name: defense.stronger_with
            for name, defense in self.defenses.items()
            if defense.stronger_with != default.get(name, Defense.stronger_with)
        }

    def device_of(
        self, resources: Literal["covariance", "train", "attack", "efficiency"]
    ) -> Literal["auto", "cpu", "cuda"]:
        """Choose the device of a job. A job that requests no GPU takes none of those that others wait for."""
        return "cpu" if self.device == "auto" and getattr(self.resources, resources).gpu == 0 else self.device

    def defense(self, name: str) -> Defense:
        """Return the declared defense ``name``, or the default of that name.

        Raises:
            KeyError: If there is none. A loaded configuration has been checked for this.
        """
        return self.known_defenses()[name]


SECTIONS = tuple(
    name
    for name, field in Config.model_fields.items()
    if any(isinstance(kind, type) and issubclass(kind, TableSection) for kind in get_args(field.annotation))
)
"""Sections of a configuration that make tables, named ``<section>/<table>``."""
