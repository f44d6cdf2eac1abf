"""Settings of attacks and their facts, and presets with the settings of published attacks."""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import ConfigDict, Field, Strict, TypeAdapter, WithJsonSchema, field_validator, model_validator
from typing_extensions import TypedDict

from leakbound.registry import nearest
from leakbound_lab.config.attacked_runs import Amount, AttackedRun
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.settings import (
    Count,
    Line,
    Name,
    Rates,
    Records,
    Settings,
    Steps,
    Target,
    Weights,
    class_of,
)
from leakbound_lab.registries import ATTACKS

MOST_REFERENCES = 256
"""Most reference networks that a network is compared with."""
ReferenceRecords = Literal["pool", "candidates"]
"""Records that reference networks are trained on."""


class AttackPreset(Settings):
    """A published attack, a file of the folder ``published_attacks`` under its name."""

    attack: Name
    """Attack that implements it."""
    citation: Line
    """Paper."""
    differences: Line
    """Differences between the paper's attack and the one that is run."""
    settings: dict[Name, Any]
    """Settings of the attack; all others keep their defaults."""


@cache
def published_attacks() -> Mapping[str, AttackPreset]:
    """Read the published attacks, by name."""
    files = sorted(Path(__file__).with_name("published_attacks").glob("*.yaml"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {name: AttackPreset.model_validate(yaml.safe_load(text)) for name, text in texts.items()}


def with_preset(attack: str, values: Any) -> Any:
    """Replace the name of a preset by the preset's settings.

    Args:
        attack: Name of the attack.
        values: Plain values. Those given with ``preset`` override the preset's settings.

    Raises:
        ValueError: If the attack has no such preset.

    Example:
        >>> with_preset("membership", {"preset": "carlini2022", "epochs": 10})["epochs"]
        10
    """
    if not isinstance(values, Mapping) or "preset" not in values:
        return values
    presets = {name: preset for name, preset in published_attacks().items() if preset.attack == attack}
    chosen = values["preset"]
    if not isinstance(chosen, str) or chosen not in presets:
        raise ValueError(f"unknown preset {chosen!r} of {attack}; {nearest(str(chosen), [*presets])}")
    return presets[chosen].settings | {name: value for name, value in values.items() if name != "preset"}


OverUnits = Literal["mean", "median", "separate"] | None
Confidence = Annotated[float, Field(gt=0, lt=1)]
PositiveLevel = Annotated[float, Field(gt=0, le=1e12)]


_PATIENT = 25  # epochs after which the attack network of membership inference stops, on average
_FOLDS = 0.8  # part of the known records that each attack network learns from
_EXTENDED = 2  # settings that are added to an attacker's grid, on average
_ONE_LAYER = 0.5  # time to score a record by one layer, over that of its gradient in DP-SGD
_SOLVED = 600  # iterations of matching that take as long as solving for an image
_SOLVABLE = ("lenet_sigmoid", "mlp")  # networks whose gradient of a single record can be solved for the image
_REGRESSED = 5e10  # products of a regression on gradients of 10⁵ parameters, of images of one class
_METHODS = 3  # searches for a record of a batch, on average
_RELUS = 200  # in the first layer of the widest perceptron
_ROW = 250  # products of a matrix that take as long as drawing a number for a row, and comparing it with a direction
_SYSTEM = 10  # the same for a product in a system of as many equations as a batch has records
_DECOMPOSED = 20  # products for d³: eigenvectors, an inverse, what a channel tells
_KINKED = 9  # searches for a single record behind ReLU and pooling


def _with_preset(schema: dict[str, Any]) -> None:
    """Add the key by which a configuration names a published attack."""
    text = "Published attack whose settings stand in place of the defaults; others given here replace them."
    schema["properties"]["preset"] = {"type": "string", "description": text}


class Attack(Settings):
    """Settings of any attack, with the facts about it that the rest of the package needs.

    An attack is a subclass, found by its name in ``registries.ATTACKS`` or in ``plugins.attacks``.

    Attributes:
        function: Function that attacks a run, ``module:attribute``. It takes a
            :class:`~leakbound_lab.attacks.attack_request.AttackRequest`.
        trained: Whether it attacks a trained network, or the gradients of an untrained one.
        replays: Function that trains the networks once more from the same seeds, to see their uploads,
            ``module:attribute``, empty for none. It takes the request of the attack, the settings of the
            training, the rates of the kept networks, and a file for checkpoints.
        demonstrates: Whether its results are lower limits of leakage, or arrays of scores that give some.
        over_units: How tables summarise its rows over units (classes, images). ``separate`` if each unit,
            such as a number of uses, stands for itself. None if its rows have no units.
    """

    model_config = ConfigDict(polymorphic_serialization=True, json_schema_extra=_with_preset)

    function: ClassVar[Target]
    trained: ClassVar[bool] = True
    replays: ClassVar[str] = ""
    demonstrates: ClassVar[bool] = False
    over_units: ClassVar[OverUnits] = None

    @classmethod
    def modules(cls) -> tuple[str, ...]:
        """List the modules of its settings and its functions, for fingerprints of code."""
        functions = (cls.function, cls.replays) if cls.replays else (cls.function,)
        return cls.__module__, *(function.partition(":")[0] for function in functions)

    def needs(self, defense: Defense) -> tuple[str, ...]:
        """List the files that it reads in addition to images: weights, or what gradients are computed with.

        An attack on trained networks may add ``channel``, that of the defense, and ``references``, networks
        trained with the same defense on other records. One on untrained networks may add
        ``estimator``, the learned estimate of the dataset's images.

        Args:
            defense: Defense that is attacked.
        """
        return ("weights",) if self.trained else (*defense.needs, "moments")

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield the elementary work of an attack on a run, from which the plan estimates its time.

        An attack that does not state its work is counted in replicas. If the table of costs has no seconds
        for a replica of it, the plan takes some, and says so.

        Args:
            run: Run that is attacked.
        """
        yield f"attack_{run.attack}", run.replicas, "", 0, 1

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Say why it cannot attack a defense at a level, or return None if it can."""
        return None

    @classmethod
    def unsummarised(cls, units: Iterable[int]) -> str | None:
        """Say so if an attack has rows of single units and states no summary over them, or return None.

        Args:
            units: Units of its rows.
        """
        if cls.over_units is not None or all(unit < 0 for unit in units):
            return None
        return (
            f"{cls.__name__} has rows of single units, which no table would summarise: state over_units on the class, "
            '"mean" or "median", or "separate" if each unit stands for itself'
        )


def _no_noisy_dp(defense: Defense, level: float | None, purpose: str) -> str | None:
    """Refuse anything but DP with noise on clean images. The message begins with the attack's purpose."""
    problem = f"{purpose} dpsgd and dppsac with noise; give it a study of its own"
    allowed = defense.clips and level and defense.channel is None and defense.independent_steps
    return None if allowed else problem


def _unknown_upload(attack: str, defense: Defense) -> str | None:
    """Refuse a defense that does not state what its clients upload."""
    unknown = defense.client_step == Defense.client_step
    return f"{attack} needs the client_step of the defense; its class states none" if unknown else None


class MembershipConfig(Attack):
    """Membership inference with partial knowledge (Tan et al. 2024, Sec. 6.1) and reference networks."""

    function: ClassVar[str] = "leakbound_lab.attacks.membership.attack:infer_membership"
    demonstrates: ClassVar[bool] = True

    def needs(self, defense: Defense) -> tuple[str, ...]:
        """List weights, the channel, and reference networks unless their number is 0."""
        return ("weights", *defense.needs, *(("references",) if self.references else ()))

    known_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Fraction of the members, and of the non-members, that the attacker knows and learns from. The rest is scored."""
    epochs: Steps = 60
    """Largest number of epochs of the attack network on the records that the attacker knows."""
    learning_rates: Rates = (1e-4, 1e-3)
    """Learning rates that the attacker tries and compares on a held-out part of the records that it knows."""
    batch_size: Annotated[Records, Field(ge=2)] = 64
    """Records in a step of the attack network."""
    references: Annotated[int, Field(ge=0, le=MOST_REFERENCES)] = 4
    """Number of reference networks for each attacked learning rate: 0, or at least 2. They are trained by the same
    defense on other records, and cost as much as so many replicas."""
    reference_records: ReferenceRecords = "pool"
    """Records of the reference networks. pool: draws from the pool, one set for all replicas, of which few
    hold a tested record if the pool is large. candidates: random halves of the members and non-members of the
    attacked network, a set for each network, of which half hold each tested record."""
    draws: Annotated[int, Field(ge=0, le=1000)] = 4
    """Draws of a channel's noise that the attacker adds to each record of a network that was trained behind it."""

    @field_validator("references")
    @classmethod
    def _none_or_several(cls, value: int) -> int:
        if value == 1:
            raise ValueError("one reference network has no spread to compare with; give 0 or at least 2")
        return value

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield steps of the attack networks, and forward passes through targets and references."""
        steps = math.ceil(_FOLDS * 2 * self.known_fraction * run.size.members / self.batch_size)
        passes = min(self.epochs, _PATIENT) * len(self.learning_rates) * (2 if self.references else 1)
        yield run.stacked("membership", passes * steps)
        views = 1 + (self.draws if run.has_channel else 0)
        records = run.replicas * 2 * run.size.members + run.references * run.size.pool
        yield "predict", views * records, run.model, run.size.colors, 1


class UploadMembershipConfig(Attack):
    """Membership inference by a server that sees every upload, scored while the networks train once more."""

    function: ClassVar[str] = "leakbound_lab.attacks.membership.upload_attack:infer_from_uploads"
    replays: ClassVar[str] = "leakbound_lab.attacks.membership.upload_attack:replayed_training"
    demonstrates: ClassVar[bool] = True

    candidates: Annotated[Records, Field(ge=20)] = 400
    """Members, and as many others, that are scored, at most half of all."""
    calibration: Annotated[Records, Field(ge=10)] = 100
    """Members, and as many others, at most half of all, by which the server chooses a score."""
    public: Annotated[Records, Field(ge=20)] = 1000
    """Auxiliary records, at most all, by which the server learns what uploads are like."""
    draws: Annotated[int, Field(ge=0, le=1000)] = 4
    """Draws of a channel's noise over which gradients are averaged, behind layers that see no images."""
    window: Count = 1
    """Steps whose uploads are scored together, as where a client sends weights after so many local steps."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the products in the gradients of candidates. The training is in its own."""
    rates: Literal["all", "chosen"] = "all"
    """Networks that train once more: those of all learning rates that are kept, or of the chosen one."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse a defense that does not state what its clients upload."""
        return _unknown_upload("membership_uploads", defense)

    def needs(self, defense: Defense) -> tuple[str, ...]:
        """List weights and the channel."""
        return "weights", *defense.needs

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield gradients of the training, and those of candidates, for each draw of noise if layers see no images."""
        views = 1 if run.noisy_gradients else _ONE_LAYER
        if run.has_channel and run.model != "mlp":  # whose first layer sees the image
            views *= max(1, self.draws)
        scored = 2 * (self.candidates + self.calibration) * views / self.window
        networks = run.chosen if self.rates == "chosen" else run.full
        yield run.gradients(round(run.rounds * (run.batch_size + scored)), networks=networks)


class ModelInversionConfig(Attack):
    """Model inversion from the mean auxiliary image (Tan et al. 2024, Sec. 6.1), and a tuned attacker."""

    function: ClassVar[str] = "leakbound_lab.attacks.model_inversion.attack:invert_models"
    over_units: ClassVar[OverUnits] = "median"  # over classes, as the paper's metric

    iterations: Steps = 600
    """Adam steps."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.01
    """Adam's learning rate."""
    tv_weights: Weights = (0.0, 1e-3, 1e-2, 1e-1)
    """Total-variation weights that the tuned attacker tries. The grid is extended as long as the largest is
    best."""
    step: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Step of the attacker who starts from the class means of its own records, as a share of the expected
    distance to the members' means. The attacker gains if the cosine of its direction is above half of this
    share."""

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield iterations of inversion."""
        images = run.size.classes * (1 + len(self.tv_weights) + _EXTENDED)
        yield run.stacked("invert", self.iterations * images + run.size.aux)


class EstimatorConfig(Settings):
    """Network that estimates images from noisy ones, trained on the attacker's own records."""

    steps: Annotated[int, Field(ge=0, le=10**7)] = 2500
    """Training steps, or 0 for no such network."""
    batch_size: Records = 32
    """Records in a step."""
    width: Annotated[int, Field(ge=4, le=512)] = 32
    """Channels of the finest features."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    """Adam's highest learning rate."""
    capacities: Annotated[tuple[PositiveLevel, PositiveLevel], Strict(False)] = (40.0, 2000.0)
    """Lowest and highest capacity that it is trained on. For other capacities the linear estimate is used."""

    @model_validator(mode="after")
    def _ascending(self) -> "EstimatorConfig":
        if self.capacities[0] >= self.capacities[1]:
            raise ValueError(f"capacities = {list(self.capacities)}: the first must be below the second")
        return self


class GradientInversionConfig(Attack):
    """Gradient inversion by an attacker who knows the defense, and as published (Geiping et al. 2020)."""

    function: ClassVar[str] = "leakbound_lab.attacks.gradient_inversion.attack:invert_gradients"
    trained: ClassVar[bool] = False
    over_units: ClassVar[Literal["mean", "median", "separate"] | None] = "mean"

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse a defense that does not state what its clients upload."""
        return _unknown_upload("gradient_inversion", defense)

    images: Count = 30
    """Records whose gradients are inverted, for each replica; metrics are means over them."""
    tuning_images: Annotated[Count, Field(ge=8)] = 8
    """Auxiliary records on which attackers are tuned and chosen at each level. With fewer than 8, chance
    decides."""
    search_iterations: Steps = 300
    """Steps of the search for the images of a gradient where they cannot be solved for."""
    most_records: Count = 16
    """Largest batch whose single records are reconstructed. Beyond it the published attack reconstructs the mean."""
    gradient_weights: Annotated[Weights, Field(min_length=1)] = (1e2, 1e4, 1e6)
    """Weights of the gradient, relative to the distribution of images, that a search tries on a network with
    kinks."""
    iterations: Steps = 1200
    """Signed Adam steps of the published attack."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.1
    """Adam's learning rate, multiplied by 0.1 after 3/8, 5/8 and 7/8 of the steps."""
    tv_weights: Weights = (1e-2, 1e-1)
    """Total-variation weights that the attacker tries at each level, in addition to the untuned one. The grid
    is extended as long as its smallest or largest weight is best."""
    untuned_tv_weight: Annotated[float, Field(ge=0, le=1e12)] = 1e-2
    """Weight of the attacker that is not tuned, shown next to the tuned one."""
    estimator: EstimatorConfig = EstimatorConfig()
    """Learned estimate of images behind a channel, one network for each dataset."""

    def needs(self, defense: Defense) -> tuple[str, ...]:
        """List the files that gradients are computed with, and for a channel the learned estimate, if any."""
        learned = defense.channel is not None and self.estimator.steps > 0
        return (*super().needs(defense), *(("estimator",) if learned else ()))

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield iterations of the published attack and of searches for single records, and the pictures."""
        grid = {*self.tv_weights, self.untuned_tv_weight}
        images = self.tuning_images * (len(grid) + _EXTENDED if len(grid) > 1 else 1) + 2 * self.images
        yield run.stacked("match", self.iterations * images)
        if run.batch_size <= self.most_records:
            searched = self.images + max(2, self.tuning_images // run.batch_size)
            if run.noisy_gradients:
                yield run.single("match", searched * run.batch_size * self.search_iterations)
                if run.batch_size == 1:
                    yield "product", run.replicas * min(searched, run.size.classes) * _REGRESSED, "", 0, 1
            elif run.batch_size == 1 and run.model in _SOLVABLE:
                yield run.single("match", searched * _SOLVED)
            else:
                searches = _KINKED if run.batch_size == 1 else _METHODS * run.batch_size
                yield run.single("match", searched * searches * self.search_iterations)
        yield "disk", 24 * run.replicas * self.images * run.size.pixels, "", 0, 1


class UsesConfig(Attack):
    """Gradient inversion from several uses of a channel on the same records."""

    function: ClassVar[str] = "leakbound_lab.attacks.gradient_inversion.several_uses:invert_several_uses"
    trained: ClassVar[bool] = False
    over_units: ClassVar[Literal["mean", "median", "separate"] | None] = "separate"

    uses: Annotated[tuple[Count, ...], Strict(False), Field(min_length=1, max_length=20)] = (1, 4, 16, 64)
    """Numbers k of uses."""
    images: Count = 8
    """Records for each replica. Each result is a mean over them."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse any defense but a channel alone."""
        alone = defense.channel is not None and not defense.clips
        return None if alone else "uses are those of a channel alone; give it a study of its own"

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield images that are solved for."""
        yield run.single("match", self.images * max(self.uses) * _SOLVED)


class SpearConfig(Attack):
    """Exact inversion of the gradients of batches, by the zeros that ReLUs leave (Dimitrov et al. 2024)."""

    function: ClassVar[str] = "leakbound_lab.attacks.gradient_inversion.spear:invert_batches"
    trained: ClassVar[bool] = False
    over_units: ClassVar[OverUnits] = "mean"  # over batches

    batches: Count = 8
    """Batches that are inverted, for each replica, as far as there are members."""
    samples: Annotated[int, Field(ge=1, le=10**8)] = 200_000
    """Most sets of rows that are solved for each batch. The number that is needed doubles with each record."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse a defense that does not state what its clients upload."""
        return _unknown_upload("spear", defense)

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield gradients of the batches, and the sets of rows that are drawn, solved and compared, if none is skipped.

        Most of the time is that of drawing and comparing rows. A batch of one record needs no set.
        """
        size = run.batch_size
        batches = min(self.batches, run.size.members // size)
        yield run.gradients(batches * size)
        products = self.samples * (_SYSTEM * size**3 / 3 + _RELUS * (size + _ROW)) if size > 1 else 0
        yield "product", run.replicas * batches * products, "", 0, 1


class NamingConfig(Attack):
    """Identification of the true record among candidates, from releases of a channel and from gradients."""

    function: ClassVar[str] = "leakbound_lab.attacks.lower_bounds.identification:identify_records"
    demonstrates: ClassVar[bool] = True
    trained: ClassVar[bool] = False
    over_units: ClassVar[Literal["mean", "median", "separate"] | None] = "separate"

    candidates: Annotated[
        tuple[Annotated[int, Field(ge=2, le=100_000)], ...], Strict(False), Field(min_length=1, max_length=20)
    ] = (2, 10, 100)
    """Numbers M of equally likely candidates."""
    uses: Annotated[tuple[Count, ...], Strict(False), Field(min_length=1, max_length=20)] = (1, 4, 16)
    """Numbers k of uploads of the same record, with fresh noise unless it is frozen."""
    trials: Annotated[int, Field(ge=20, le=100_000)] = 200
    """Independent trials of each number of uses, for each replica."""
    gradients: Annotated[int, Field(ge=2, le=2000)] = 100
    """Largest number of candidates whose gradients are compared. More are compared by released images
    alone."""
    draws: Annotated[int, Field(ge=2, le=1000)] = 16
    """Noisy versions of each candidate from which the attacker learns the distribution of gradients, for a channel."""
    confidence: Confidence = 0.95
    """Confidence of each lower limit."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse a defense that does not state what its clients upload, correlated noise, and DP behind a channel."""
        if not defense.independent_steps:
            return f"identification compares uploads of independent noise, unlike {defense.mechanism}; leave it out"
        if defense.clips and defense.channel is not None:
            return f"identification has no likelihood for the two noises of {defense.mechanism}; leave it out"
        return _unknown_upload("naming", defense)

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield gradients of single records."""
        yield run.gradients(self.trials * max(self.uses) + self.gradients * self.draws)


class AuditConfig(Attack):
    """Lower limit of ε from the uploads of a client, with canaries that fair coins include."""

    function: ClassVar[str] = "leakbound_lab.attacks.lower_bounds.dp_audit:audit_uploads"
    demonstrates: ClassVar[bool] = True
    trained: ClassVar[bool] = False

    canaries: Annotated[int, Field(ge=10, le=1024)] = 1000
    """Canaries of each client: images of one lit pixel, whose clipped gradients are orthogonal and of full length."""
    clients: Count = 10
    """Clients of each replica, with coins and noise of their own."""
    steps: Steps = 1
    """Uploads of each client."""
    sample_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that an included canary takes part in a step."""
    guessed: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Part of the canaries whose coin is guessed, those with the clearest scores."""
    confidence: Confidence = 0.95
    """Confidence of each lower limit."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse anything but DP with noise, because no other defense has an ε."""
        return _no_noisy_dp(defense, level, "audit measures the ε of")

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield gradients of canaries, of a linear network."""
        yield run.gradients(self.canaries * self.clients * self.steps, "mlp")


class GradientCapacityConfig(Attack):
    """Capacity of one step of DP training, from gradients of a trained network.

    It is not an attack, but is evaluated like one.
    """

    function: ClassVar[str] = "leakbound_lab.attacks.lower_bounds.gradient_capacity:measure_capacity"

    records: Annotated[int, Field(ge=2, le=5000)] = 1000
    """Members whose gradients are computed and held in memory at once, 4 bytes for each parameter of the
    network."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse anything but DP with noise, because other steps have no capacity of this kind."""
        return _no_noisy_dp(defense, level, "gradient_capacity measures steps of")

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield gradients of single members."""
        yield run.gradients(min(self.records, run.size.members))


class VanTreesConfig(Attack):
    """Least error of any reconstruction from one upload, over a prior of blended public records (van Trees 1968).

    It is not an attack, but is evaluated like one.
    """

    function: ClassVar[str] = "leakbound_lab.attacks.lower_bounds.van_trees:bound_errors"
    trained: ClassVar[bool] = False

    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share s of the variance of a record that nobody knows but its owner: noise with the covariance of the auxiliary
    records, in which one of these is blended. By default what the best multiple of another auxiliary record leaves."""
    axes: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Leading principal axes along which errors are counted where noise is on the gradient, at most all."""
    draws: Annotated[int, Field(ge=2, le=100_000)] = 16
    """Records of the prior at which such gradients are differentiated, for each replica."""

    @classmethod
    def problem(cls, defense: Defense, level: float | None) -> str | None:
        """Refuse noise but that of a channel, and noise on clipped gradients that is fresh in each step."""
        suited = defense.channel is not None or (defense.clips and defense.independent_steps)
        if defense.draws_noise and not suited:
            return (
                "van_trees needs normal noise of one known variance, on images or clipped gradients: take a channel, "
                f"dpsgd or dppsac instead of {defense.mechanism}"
            )
        return _unknown_upload("van_trees", defense)

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        """Yield the comparison of public records, their principal axes, and derivatives of gradients along these."""
        aux = run.size.aux
        pixels = run.size.pixels
        compared = aux**2 * pixels if self.share is None else 0
        yield "product", compared + aux * pixels**2 + _DECOMPOSED * pixels**3, "", 0, 1
        if run.noisy_gradients:
            axes = min(self.axes, pixels)
            yield run.gradients(self.draws * axes)


class AttackConfig(Settings):
    """Settings of the attackers."""

    membership: MembershipConfig = MembershipConfig()
    membership_uploads: UploadMembershipConfig = UploadMembershipConfig()
    model_inversion: ModelInversionConfig = ModelInversionConfig()
    gradient_inversion: GradientInversionConfig = GradientInversionConfig()
    uses: UsesConfig = UsesConfig()
    spear: SpearConfig = SpearConfig()
    van_trees: VanTreesConfig = VanTreesConfig()
    gradient_capacity: GradientCapacityConfig = GradientCapacityConfig()
    naming: NamingConfig = NamingConfig()
    audit: AuditConfig = AuditConfig()
    custom: dict[Name, Annotated[Attack, WithJsonSchema({"type": "object"})]] = {}
    """Attack from outside the package to its settings."""

    @field_validator(*ATTACKS.builtin, mode="before")
    @classmethod
    def _with_preset(cls, values: Any, info: Any) -> Any:
        return with_preset(info.field_name, values)

    @field_validator("custom", mode="before")
    @classmethod
    def _of_their_classes(cls, values: Any, info: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if taken := sorted({*values} & {*ATTACKS.builtin}):
            raise ValueError(f"{taken[0]} is built in: its settings are attacks.{taken[0]}")
        kinds = {
            name: type(value) if isinstance(value, Attack) else class_of(ATTACKS, name, Attack, info.context)
            for name, value in values.items()
        }
        adapter: TypeAdapter[Any] = TypeAdapter(TypedDict("custom", kinds))  # type: ignore[operator]
        return adapter.validate_python(values, context=info.context)

    def all(self) -> dict[str, Attack]:
        """Map the name of every attack that a study may use to its settings."""
        return {name: getattr(self, name) for name in ATTACKS.builtin} | self.custom
