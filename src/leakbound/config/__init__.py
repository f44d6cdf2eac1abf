"""Every setting: its name, type, unit, bounds and default. The default YAML and the JSON schema are made from here."""

from leakbound.config.attacks import (
    TRAINED_ATTACKS,
    TRAINED_MEASURES,
    AttackConfig,
    GradientCapacityConfig,
    GradientInversionConfig,
    MembershipConfig,
    ModelInversionConfig,
)
from leakbound.config.catalogue import EFFICIENCY, SCOREBOARD, WORLDS, Catalogue, ClaimConfig, FigureConfig
from leakbound.config.consensus import AveragingConfig, ConsensusConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.defenses import (
    DPPSAC,
    DPSGD,
    BoxWeights,
    ChannelDefense,
    Compression,
    CustomDefense,
    Defense,
    GradientCompression,
    LargeBatch,
    ParameterNoise,
    Undefended,
    default_defenses,
    draws_noise,
)
from leakbound.config.execution import ComputeConfig, PluginsConfig, ResourceConfig, ResourcesConfig, TrackingConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.levels import level_problem, records_in_step
from leakbound.config.settings import Levels, Name, Names, PrivacyNoise, Rates, Settings, Span, Weights
from leakbound.config.studies import EfficiencyConfig, IllustrationConfig, StudyConfig
from leakbound.config.theory import (
    CorrelatedCase,
    DependentCase,
    GeneralCase,
    IndependentCase,
    NoiseSurface,
    TheoryConfig,
)
from leakbound.config.training import TrainingConfig
from leakbound.config.whole import Config

__all__ = [
    "DPPSAC",
    "DPSGD",
    "EFFICIENCY",
    "SCOREBOARD",
    "TRAINED_ATTACKS",
    "TRAINED_MEASURES",
    "WORLDS",
    "AttackConfig",
    "AveragingConfig",
    "BoxWeights",
    "Catalogue",
    "ChannelDefense",
    "ClaimConfig",
    "Compression",
    "ComputeConfig",
    "Config",
    "ConsensusConfig",
    "CorrelatedCase",
    "CustomDefense",
    "DatasetConfig",
    "Defense",
    "DependentCase",
    "EfficiencyConfig",
    "FederatedConfig",
    "FigureConfig",
    "GeneralCase",
    "GradientCapacityConfig",
    "GradientCompression",
    "GradientInversionConfig",
    "IllustrationConfig",
    "IndependentCase",
    "LargeBatch",
    "Levels",
    "MembershipConfig",
    "ModelInversionConfig",
    "Name",
    "Names",
    "NoiseSurface",
    "ParameterNoise",
    "PluginsConfig",
    "PrivacyNoise",
    "Rates",
    "ResourceConfig",
    "ResourcesConfig",
    "Settings",
    "Span",
    "StudyConfig",
    "TheoryConfig",
    "TrackingConfig",
    "TrainingConfig",
    "Undefended",
    "Weights",
    "default_defenses",
    "draws_noise",
    "level_problem",
    "records_in_step",
]
