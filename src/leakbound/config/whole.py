"""A whole configuration."""

from pathlib import PurePosixPath
from typing import Annotated, Literal, get_args

from pydantic import Field

from leakbound.config.attacks import AttackConfig
from leakbound.config.consensus import ConsensusConfig
from leakbound.config.data import TABLES, CovarianceOf, DatasetConfig
from leakbound.config.defenses import Defense, default_defenses
from leakbound.config.execution import ComputeConfig, PluginsConfig, ResourcesConfig, TrackingConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.settings import Line, Name, PrivacyNoise, Replicas, Seed, Settings, TableSection
from leakbound.config.studies import EfficiencyConfig, IllustrationConfig, StudyConfig
from leakbound.config.theory import TheoryConfig
from leakbound.config.training import TrainingConfig


class Config(Settings):
    """A whole configuration: what ``snakemake --configfile FILE`` runs."""

    preset: Name = "quick"
    """Name of the configuration; results lie under ``results/<preset>``."""
    seed: Seed = 0
    """Seed from which every random number derives, except secure noise."""
    privacy_noise: PrivacyNoise = "seeded"
    """Origin of the noise that protects records. seeded is reproducible, and whoever knows the seed can subtract it.
    secure comes from the operating system and is released on a grid, for real records (docs/noise.md)."""
    covariance: CovarianceOf = "aux"
    """Records whose mean and covariance channels are made from. aux are the attacker's public records. members, as
    published, makes channels that reveal their members (docs/guide.md)."""
    accept_capacity: Annotated[float, Field(ge=1.0, le=1e6)] = 1.25
    """Largest capacity for the images' own moments, as a multiple of the channel's. Above it a job stops."""
    replicas: Replicas = 3
    """Number of replicas of each run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for training and attacks. auto takes a GPU for jobs whose resources request one by gpu."""
    catalogue: Line = "config/figures"
    """Catalogue of figures, a file or a folder. A figure is drawn if the configuration makes its rows."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Level of the claim tests, Holm-corrected within a figure."""
    plugins: PluginsConfig = PluginsConfig()
    datasets: dict[Name, DatasetConfig]
    defenses: dict[Name, Defense] = {}
    """Defenses in addition to the default ones, or these with other settings; see ``default_defenses``."""
    training: TrainingConfig = TrainingConfig()
    attacks: AttackConfig = AttackConfig()
    studies: dict[Name, StudyConfig]
    illustrations: dict[Name, IllustrationConfig] = {}
    efficiency: EfficiencyConfig | None = None
    """Training times that table02 measures; nothing if not given."""
    consensus: ConsensusConfig | None = None
    """Private average consensus; nothing if not given, ``{}`` for the paper's settings."""
    federated: FederatedConfig | None = None
    """Federated averaging under a mutual-information budget (PMIDP-FL); nothing if not given."""
    theory: TheoryConfig | None = None
    """Utility against privacy in closed form; nothing if not given, ``{}`` for the paper's settings."""
    tracking: TrackingConfig = TrackingConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def root(self) -> PurePosixPath:
        """Folder of the configuration's results."""
        return PurePosixPath("results") / self.preset

    @property
    def tables(self) -> set[Name]:
        """Datasets whose records are no images."""
        return {name for name, dataset in self.datasets.items() if dataset.reader in TABLES}

    def known_defenses(self) -> dict[Name, Defense]:
        """Name to settings of every defense that a study may sweep: the declared ones, and the defaults of others."""
        return {**default_defenses(), **self.defenses}

    def stated_strength(self) -> dict[Name, str]:
        """Defense to the level that it calls strongest, for those of which the default of their name says another."""
        default = {name: defense.stronger_with for name, defense in default_defenses().items()}
        return {
            name: defense.stronger_with
            for name, defense in self.defenses.items()
            if defense.stronger_with != default.get(name, Defense.stronger_with)
        }

    def device_of(
        self, resources: Literal["train", "attack", "efficiency"]
    ) -> Literal["auto", "cpu", "cuda"]:
        """Device of jobs with some resources: a job that asks for no GPU takes none of those that others wait for."""
        asked: ComputeConfig = getattr(self.resources, resources)
        return "cpu" if self.device == "auto" and asked.gpu == 0 else self.device

    def defense(self, name: str) -> Defense:
        """The declared defense ``name``, or the default of that name.

        Raises:
            KeyError: If there is none. A loaded configuration has been checked for that.
        """
        return self.known_defenses()[name]


SECTIONS = tuple(
    name
    for name, field in Config.model_fields.items()
    if any(isinstance(kind, type) and issubclass(kind, TableSection) for kind in get_args(field.annotation))
)
"""Sections of a configuration that make tables of their own, ``<section>/<table>``."""
