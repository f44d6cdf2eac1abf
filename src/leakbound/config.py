"""Every setting: its name, type, unit, bounds and default. The default YAML and the JSON schema are made from here."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Names = Annotated[tuple[Name, ...], Strict(False)]
Levels = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Strict(False)]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=100)], ...], Strict(False), Field(min_length=1)]
Weights = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Strict(False), Field(min_length=1)]
Span = Annotated[tuple[int, int], Strict(False)]

TRAINED_ATTACKS = ("membership", "model_inversion")
"""Built-in attacks that need a trained network; the other one attacks gradients of an untrained one."""


class Settings(BaseModel):
    """Base of all sections: immutable, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class DatasetConfig(Settings):
    """Which images are members, non-members and the attacker's own."""

    reader: Name | None = None
    """Registered reader; by default the one of the dataset's own name."""
    source: Literal["auto", "folder", "hub"] = "auto"
    """Where images come from: the folder LEAKBOUND_DATA, the Hugging Face hub, or (auto) the folder if it is set."""
    members: Annotated[int, Field(ge=10)] | None = None
    """Training records (the members), drawn from the original training split; all that are left if not given."""
    test: Annotated[int, Field(ge=10)] | None = None
    """Test records (the non-members), drawn from the original test split; all if not given."""
    aux: Annotated[int, Field(ge=10)] = 1000
    """Records that the attacker owns, disjoint from both, drawn from the original training split."""
    label: str | None = None
    """Column to use as the label instead of ``label``, e.g. a CelebA attribute."""


class BoxWeights(Settings):
    """Per-pixel noise weights β of the personalized channel: one rectangle of the 32×32 image weighs more."""

    rows: Span = (12, 20)
    """First row of the rectangle and the row after its last."""
    columns: Span = (8, 24)
    """First column of the rectangle and the column after its last."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 50.0
    """β inside the rectangle; it is 1 outside."""

    @model_validator(mode="after")
    def _inside_the_image(self) -> BoxWeights:
        for name in ("rows", "columns"):
            first, after = getattr(self, name)
            if not 0 <= first < after <= 32:
                raise ValueError(f"{name} = [{first}, {after}] must satisfy 0 <= first < after <= 32")
        return self


class Undefended(Settings):
    """Plain SGD on the clean images."""

    mechanism: Literal["none"] = "none"
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class ChannelDefense(Settings):
    """SGD on noisy images; a run's level is the capacity κ in nats per use."""

    mechanism: Literal["channel"] = "channel"
    shape: Name = "natural"
    """Registered channel shape."""
    noise: Literal["fresh", "frozen"] = "fresh"
    """Noise drawn anew at each use, or once per record and kept."""
    weights: BoxWeights = BoxWeights()
    """β of the personalized shapes; the others ignore it."""
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class DPSGD(Settings):
    """DP-SGD (Abadi et al. 2016) by Opacus; a run's level is the noise multiplier, 0 for clipping alone."""

    mechanism: Literal["dpsgd"] = "dpsgd"
    max_grad_norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Clipping bound S of a record's gradient, Euclidean norm."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ at which ε is reported."""
    accountant: Literal["rdp", "prv"] = "rdp"
    """Opacus accountant that computes ε."""
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class DPPSAC(DPSGD):
    """DP-PSAC (Xia et al. 2023): per-sample adaptive clipping, otherwise as DP-SGD."""

    mechanism: Literal["dppsac"] = "dppsac"  # type: ignore[assignment]
    r: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    """Regulariser of the weight S / (‖g‖ + r / (‖g‖ + r))."""


class CustomDefense(Settings):
    """A trainer from outside the package; its level and options mean what it says they mean."""

    mechanism: Literal["custom"]
    trainer: Name
    """Registered trainer."""
    options: dict[str, Any] = {}
    """Passed to the trainer as they are."""
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


Defense = Annotated[Undefended | ChannelDefense | DPSGD | DPPSAC | CustomDefense, Field(discriminator="mechanism")]


def default_defenses() -> dict[Name, Defense]:
    """The defenses that every configuration knows without declaring them."""
    shapes = ("natural", "white", "personalized", "personalized_printed", "least_power", "rate_distortion")
    fresh: dict[Name, Defense] = {shape: ChannelDefense(shape=shape) for shape in shapes}
    frozen: dict[Name, Defense] = {f"{shape}_frozen": ChannelDefense(shape=shape, noise="frozen") for shape in shapes}
    return {"none": Undefended(), **fresh, **frozen, "dpsgd": DPSGD(), "dppsac": DPPSAC()}


class TrainingConfig(Settings):
    """How target models are trained, the same for every defense."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    learning_rates: Rates = (0.003, 0.01, 0.03)
    """Candidates of the learning-rate search; every defense and level tries equally many."""
    search_rounds: Annotated[int, Field(ge=1)] = 300
    """Steps of each trial of the learning-rate search."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Part of the members that the search holds out to judge a trial."""
    evaluations: Annotated[int, Field(ge=1)] = 10
    """Points of the accuracy and loss curves, the last one at the end."""
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Least time between two checkpoints, in seconds."""
    max_stack: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Models trained as one batch: auto takes 1 on a CPU and all that fit the memory of a GPU."""


class MembershipConfig(Settings):
    """White-box membership inference with partial knowledge (Tan et al. 2024, Sec. 6.1)."""

    known_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Part of the members, and of the non-members, that the attacker knows and learns from; the rest is scored."""
    epochs: Annotated[int, Field(ge=1)] = 60
    """Most passes of the attack network over what the attacker knows."""
    learning_rates: Rates = (1e-4, 1e-3)
    """Candidates of the attacker's own search, judged on a held-out part of what it knows."""
    batch_size: Annotated[int, Field(ge=2)] = 64
    """Records in a step of the attack network."""


class ModelInversionConfig(Settings):
    """Model inversion from the mean auxiliary image (Tan et al. 2024, Sec. 6.1), and a tuned attacker."""

    iterations: Annotated[int, Field(ge=1)] = 600
    """Adam steps."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.01
    """Adam's learning rate."""
    tv_weights: Weights = (0.0, 1e-3, 1e-2, 1e-1)
    """Total-variation weights that the tuned attacker tries."""
    checkpoints: Annotated[int, Field(ge=1)] = 6
    """Moments of the optimisation at which the tuned attacker may stop."""


class GradientInversionConfig(Settings):
    """Gradient inversion by cosine distance and total variation (Geiping et al. 2020)."""

    images: Annotated[int, Field(ge=1)] = 30
    """Records whose gradients are inverted, for each replica; metrics are means over them."""
    tuning_images: Annotated[int, Field(ge=1)] = 4
    """Auxiliary records on which the total-variation weight is chosen for each level."""
    iterations: Annotated[int, Field(ge=1)] = 1200
    """Signed Adam steps."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.1
    """Adam's learning rate, multiplied by 0.1 after 3/8, 5/8 and 7/8 of the steps."""
    tv_weights: Weights = (1e-3, 1e-2, 1e-1)
    """Total-variation weights that the attacker tries at each level."""
    untuned_tv_weight: Annotated[float, Field(ge=0)] = 1e-2
    """Weight of the attacker that is not tuned, shown beside the tuned one."""


class AttackConfig(Settings):
    """Settings of the attackers."""

    membership: MembershipConfig = MembershipConfig()
    model_inversion: ModelInversionConfig = ModelInversionConfig()
    gradient_inversion: GradientInversionConfig = GradientInversionConfig()
    custom: dict[Name, dict[str, Any]] = {}
    """Attack from outside the package to its options."""


class StudyConfig(Settings):
    """A sweep: the product of its lists, each defense at its own levels."""

    datasets: Names
    models: Names
    defenses: dict[Name, Levels]
    """Defense to its levels: capacities in nats for channels, noise multipliers for DP, an empty list for ``none``."""
    rounds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Strict(False)]
    """Local optimisation steps; 0 leaves the network untrained, which gradient inversion needs."""
    batch_sizes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Strict(False)] = (64,)
    """Records in a step."""
    attacks: Names = ()
    replicas: Annotated[int, Field(ge=1)] | None = None
    """Seeds of each run; by default the configuration's ``replicas``."""


class IllustrationConfig(Settings):
    """Rows of a figure that needs no training."""

    dataset: Name | None = None
    """Dataset whose images or spectrum are shown, if any."""
    levels: dict[Name, Levels] = {}
    """Channel shape to capacities in nats."""
    images: Annotated[int, Field(ge=1, le=16)] = 3
    """Images shown."""
    weights: BoxWeights = BoxWeights()
    """β of the personalized shapes."""


class TrackingConfig(Settings):
    """Where MLflow keeps runs."""

    enabled: bool = True
    """Whether finished jobs are logged at all."""
    uri: str = "sqlite:///results/mlflow.db"
    """Tracking store: a database or a server; files stay the truth whatever happens to it."""


class ResourceConfig(Settings):
    """What one job of a rule asks for."""

    threads: Annotated[int, Field(ge=1)] = 1
    """CPU threads."""
    mem_mb: Annotated[int, Field(ge=100)] = 1500
    """Memory in MiB, as much again at each retry."""
    runtime: Annotated[int, Field(ge=1)] = 30
    """Minutes, as many again at each retry."""


class ComputeConfig(ResourceConfig):
    """What one job that trains or attacks asks for."""

    gpu: Annotated[int, Field(ge=0, le=8)] = 0
    """GPUs."""


class ResourcesConfig(Settings):
    """Resources per box of the chain."""

    prepare: ResourceConfig = ResourceConfig(mem_mb=3000)
    covariance: ResourceConfig = ResourceConfig(mem_mb=3000)
    calibrate: ResourceConfig = ResourceConfig()
    tune: ComputeConfig = ComputeConfig(runtime=240)
    train: ComputeConfig = ComputeConfig(runtime=720)
    attack: ComputeConfig = ComputeConfig(runtime=720)
    figures: ResourceConfig = ResourceConfig()


class PluginsConfig(Settings):
    """Things from outside the package: name to ``module:attribute``, imported when a job uses them."""

    datasets: dict[Name, str] = {}
    models: dict[Name, str] = {}
    shapes: dict[Name, str] = {}
    trainers: dict[Name, str] = {}
    attacks: dict[Name, str] = {}
    plots: dict[Name, str] = {}
    illustrations: dict[Name, str] = {}
    claim_tests: dict[Name, str] = {}


class ClaimConfig(Settings):
    """A paper's statement about a figure, as a test on the figure's own rows."""

    id: Name
    text: str
    """The statement, in one sentence."""
    test: Name
    """Registered claim test."""
    options: dict[str, Any] = {}
    """What the test compares: selections, columns, margins."""


class FigureConfig(Settings):
    """One figure or table of a paper."""

    id: Name
    paper: Literal["tan2024", "zeng2022", "pmidp", "wang2020", "beyond"]
    title: str
    """A few words for lists and the report."""
    study: Name | None = None
    """Study whose rows it shows; exactly one of ``study`` and ``illustration``."""
    illustration: Name | None = None
    """Illustration whose rows it shows."""
    select: dict[str, Any] = {}
    """Column to the value, or list of values, that its rows have."""
    plot: Name
    """Registered plot."""
    options: dict[str, Any] = {}
    """Passed to the plot."""
    caption: str
    """Text under the figure: what is shown, what the paper leaves open and how it was decided."""
    claims: Annotated[tuple[ClaimConfig, ...], Strict(False)] = ()

    @model_validator(mode="after")
    def _has_one_source(self) -> FigureConfig:
        if (self.study is None) == (self.illustration is None):
            raise ValueError(f"figure {self.id}: give exactly one of study and illustration")
        return self


class Catalogue(Settings):
    """All figures and tables (``config/figures.yaml``)."""

    figures: Annotated[tuple[FigureConfig, ...], Strict(False)]

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Catalogue:
        seen: set[tuple[str, str]] = set()
        for figure in self.figures:
            if (key := (figure.paper, figure.id)) in seen:
                raise ValueError(f"figure {figure.paper}/{figure.id} appears twice")
            seen.add(key)
        return self


class Config(Settings):
    """A whole configuration: what ``snakemake --configfile FILE`` runs."""

    preset: Name = "quick"
    """Name of the configuration; results lie under ``results/<preset>``."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every random number derives from it."""
    replicas: Annotated[int, Field(ge=1, le=1000)] = 3
    """Seeds of each run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models are trained and attacked."""
    catalogue: str = "config/figures.yaml"
    """Catalogue of figures; those are drawn whose study or illustration the configuration has."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Level of the claim tests, Holm-corrected within a figure."""
    plugins: PluginsConfig = PluginsConfig()
    datasets: dict[Name, DatasetConfig]
    defenses: dict[Name, Defense] = {}
    """Defenses beside the known ones, or known ones with other settings; see ``default_defenses``."""
    training: TrainingConfig = TrainingConfig()
    attacks: AttackConfig = AttackConfig()
    studies: dict[Name, StudyConfig]
    illustrations: dict[Name, IllustrationConfig] = {}
    tracking: TrackingConfig = TrackingConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def root(self) -> PurePosixPath:
        """Folder of the configuration's results."""
        return PurePosixPath("results") / self.preset

    def defense(self, name: str) -> Defense:
        """The declared defense ``name``, or the default of that name.

        Raises:
            KeyError: If there is none; a loaded configuration has been checked for that.
        """
        return {**default_defenses(), **self.defenses}[name]
