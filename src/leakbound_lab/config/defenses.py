"""Settings of defenses, and facts about them. The levels that they are swept over are set in the studies."""

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticKnownError

from leakbound.registry import SHAPES
from leakbound.words import in_nats
from leakbound_lab.config.data import IMAGE_SIDE, MOST_COLORS, BoxWeights
from leakbound_lab.config.series_style import SeriesStyle, Styles
from leakbound_lab.config.settings import Name, Rates, Settings, Target, class_of
from leakbound_lab.registries import MECHANISMS

NOISE_BATCHES = 8
"""Batches whose noise along principal directions is drawn at once. One matrix product for all is twice as
fast."""
_NATS = "{} nats"
_STEPS = "leakbound_lab.training.client_steps"
_ALONG_AXES = {"white", "least_power", "rate_distortion"}  # shapes whose noise needs a matrix product


def level_text(level: float) -> str:
    """Write the shortest text that reads back as ``level``, whole numbers without a point and 0 without a sign."""
    return repr(float(level) or 0.0).removesuffix(".0")


class Defense(Settings):
    """Settings of any defense, with the facts about it that the rest of the package needs, by default plain SGD's.

    A mechanism is a subclass, found by its name in ``registries.MECHANISMS`` or in ``plugins.mechanisms``.
    Where settings are declared as ``Defense``, values become the class of their ``mechanism``.

    Attributes:
        draws_noise: Whether training draws noise that protects records.
        secure_noise: Whether all of that noise comes from ``request.noise(replica)``, which may be secure.
        has_level: Whether it is swept over a level.
        stronger_with: Level that protects most. Levels of different defenses are matched by their rank.
        clips: Whether a step bounds the gradient of each record, as DP does, before it adds noise.
        changes_gradients: Whether the server receives anything but the mean gradient of the images used.
        trainer: Function that trains a request, ``module:attribute``.
        client_step: Class of what a client computes in a step, ``module:attribute``. Training and attacks use
            it.
        needs: Files that training and attacks on gradients read in addition to the images: a channel and its
            spectrum.
        keeps_best: Whether training ends with the weights of the point that did best on validation records.
        independent_steps: Whether the noise of each step is independent of that of the others.
        has_lengths: Whether several lengths of its training are recipes. False if the defense is itself a
            length of plain SGD.
        styles: Label, colour and marker in figures, by the name of a defense. Other names get spare styles.
        level_form: Level with its unit, e.g. ``{} nats``.
        timed_as: Kind of training steps in the plan's table of costs that take as long as its own.
    """

    model_config = ConfigDict(polymorphic_serialization=True)

    draws_noise: ClassVar[bool] = True
    secure_noise: ClassVar[bool] = False
    has_level: ClassVar[bool] = True
    stronger_with: ClassVar[Literal["larger level", "smaller level"]] = "smaller level"
    clips: ClassVar[bool] = False
    changes_gradients: ClassVar[bool] = False
    trainer: ClassVar[Target] = "leakbound_lab.training.sgd:train_sgd"
    client_step: ClassVar[Target] = f"{_STEPS}:UnknownStep"
    needs: ClassVar[tuple[str, ...]] = ()
    keeps_best: ClassVar[bool] = False
    independent_steps: ClassVar[bool] = True
    has_lengths: ClassVar[bool] = True
    styles: ClassVar[Styles] = {}
    level_form: ClassVar[str] = "{}"
    timed_as: ClassVar[str] = "none"

    mechanism: str
    learning_rates: Rates | None = None
    """Candidate learning rates, by default those of ``training``."""

    @property
    def channel(self) -> "ChannelDefense | None":
        """Settings of the channel that adds noise to the images, or None."""
        return None

    def capacity_at(self, level: float | None) -> float | None:
        """Return the capacity of its channel at a level, in nats per use, or None without a channel."""
        return None

    @property
    def budget(self) -> dict[str, Any]:
        """δ and accountant of ε, arguments of :func:`leakbound.accounting.runs.stated_bounds`, if it has an ε."""
        return {}

    @classmethod
    def modules(cls) -> tuple[str, ...]:
        """List the modules of its settings, trainer and client step, for fingerprints of code."""
        return cls.__module__, cls.trainer.partition(":")[0], cls.client_step.partition(":")[0]

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Say which levels are allowed if ``level`` is not, or return None.

        Args:
            level: Level in the defense's own unit.
            pixels: Values of an image, if known. Compression drops one of their principal directions.
        """
        return None

    def level_label(self, level: float | None, *, unit: bool = True) -> str:
        """Write a level for people.

        Args:
            level: Level in the defense's own unit.
            unit: Whether to write the unit.

        Returns:
            The text, empty without a level.

        Example:
            >>> ChannelDefense().level_label(4.0)
            '4 nats'
        """
        if level is None:
            return ""
        text = level_text(level)
        if not unit:
            return text
        return in_nats(text) if self.level_form == _NATS else self.level_form.format(text)

    def records_in_step(self, level: float | None, batch_size: int) -> int:
        """Return the number of records that one step averages over."""
        return batch_size

    def batch_problem(self, members: int, batch_size: int) -> str | None:
        """Say which batches are allowed if those of ``batch_size`` of some members are not, or return None."""
        return None

    def steps(self, level: float | None, rounds: int) -> int:
        """Return how many of a run's rounds training takes."""
        return rounds

    def on(self, dataset: str) -> "Defense":
        """Return these settings as they hold on one dataset."""
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_mechanism(cls, values: Any, handler: Any, info: Any) -> Any:
        if cls is not Defense or isinstance(values, Defense):
            return handler(values)
        if not isinstance(values, Mapping):
            raise PydanticKnownError("dict_type")
        if "mechanism" not in values:
            raise ValueError(
                f"mechanism is missing and has no default; known: {', '.join(MECHANISMS.names())}"
            )
        mechanism = class_of(MECHANISMS, str(values["mechanism"]), Defense, info.context)
        return mechanism.model_validate(values, context=info.context)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of the class.

        The schema of ``Defense`` itself admits each built-in defense, and any other mechanism by its name.
        """
        if cls is not Defense:
            return super().__get_pydantic_json_schema__(core_schema, handler)
        names = MECHANISMS.builtin
        other = {
            "properties": {"mechanism": {"not": {"enum": [*names]}, "type": "string"}},
            "required": ["mechanism"],
        }
        builtin = map(MECHANISMS.get, names)
        schemas = [
            mechanism.__get_pydantic_json_schema__(mechanism.__pydantic_core_schema__, handler)
            for mechanism in builtin
        ]
        return {"anyOf": [*schemas, other]}


def _unless(allowed: bool, problem: str) -> str | None:
    """Return the problem of a level that is not allowed, or None."""
    return None if allowed else problem


class Undefended(Defense):
    """Plain SGD on the clean images."""

    draws_noise: ClassVar[bool] = False
    has_level: ClassVar[bool] = False
    client_step: ClassVar[str] = f"{_STEPS}:ClientStep"
    styles: ClassVar[Styles] = {"none": SeriesStyle("undefended", "#555555", "h")}

    mechanism: Literal["none"] = "none"

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse any level but None."""
        return None if level is None else "without a defense there is none"


class EarlyStopping(Undefended):
    """Plain SGD that ends with the weights of its best point on validation records: a control for every defense."""

    keeps_best: ClassVar[bool] = True
    has_lengths: ClassVar[bool] = False
    styles: ClassVar[Styles] = {"early_stopping": SeriesStyle("undefended, best validation", "#000000", "+")}

    mechanism: Literal["early_stopping"] = "early_stopping"  # type: ignore[assignment]


class Stopped(Undefended):
    """Plain SGD for a part of the rounds, a control for all defenses. A run's level is the part, in (0, 1]."""

    has_level: ClassVar[bool] = True
    has_lengths: ClassVar[bool] = False
    styles: ClassVar[Styles] = {"stopped": SeriesStyle("undefended, stopped early", "#AAAAAA", "x")}

    mechanism: Literal["stopped"] = "stopped"  # type: ignore[assignment]

    def level_label(self, level: float | None, *, unit: bool = True) -> str:
        """Write the part of the rounds, in percent with and without ``unit``."""
        return "" if level is None else f"{100 * level:g} %"

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no part of the rounds."""
        return _unless(
            level is not None and 0 < level <= 1,
            "stopped needs the part of the rounds after which training ends, in (0, 1]",
        )

    def steps(self, level: float | None, rounds: int) -> int:
        """Return the level's part of the rounds, rounded to a whole number of at least one."""
        return rounds if level is None else min(rounds, max(1, round(level * rounds)))


class ChannelDefense(Defense):
    """SGD on noisy images. A run's level is the capacity κ in nats per use."""

    secure_noise: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("channel", "spectrum")
    client_step: ClassVar[str] = f"{_STEPS}:ChannelStep"
    styles: ClassVar[Styles] = {
        "natural": SeriesStyle("natural", "#4477AA", "o"),
        "white": SeriesStyle("white", "#CC6677", "s"),
        "personalized": SeriesStyle("personalized", "#228833", "^"),
        "personalized_printed": SeriesStyle("personalized, as printed", "#66CCAA", "v"),
        "least_power": SeriesStyle("least power", "#66CCEE", "D"),
        "rate_distortion": SeriesStyle("rate-distortion", "#AA3377", "P"),
    }
    level_form: ClassVar[str] = _NATS

    mechanism: Literal["channel"] = "channel"
    shape: Name = "natural"
    """Registered channel shape."""
    noise: Literal["fresh", "frozen"] = "fresh"
    """Noise drawn again at each use, or once per record and kept."""
    weights: BoxWeights = BoxWeights()
    """β of the personalized shapes. Others ignore it."""

    @property
    def channel(self) -> "ChannelDefense":
        """These settings."""
        return self

    def capacity_at(self, level: float | None) -> float | None:
        """Return the level, which is the capacity."""
        return level

    @property
    def timed_as(self) -> str:  # type: ignore[override]
        """Kind of its steps: fresh noise with or without a matrix product, or none for frozen noise."""
        if self.noise == "frozen":
            return "none"
        return "white" if self.shape in _ALONG_AXES else "natural"

    @property
    def family(self) -> str:
        """Name shared by all channels of one shape and weights."""
        if self.weights == BoxWeights():
            return self.shape
        return f"{self.shape}_{hashlib.sha256(self.weights.model_dump_json().encode()).hexdigest()[:8]}"

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no positive capacity."""
        return _unless(
            level is not None and 0 < level < math.inf,
            'a capacity must be > 0 nats. For no noise use the defense "none"',
        )


class DPSGD(Defense):
    """DP-SGD (Abadi et al. 2016) by Opacus. A run's level is the noise multiplier, 0 for clipping alone."""

    secure_noise: ClassVar[bool] = True
    stronger_with: ClassVar[Literal["larger level", "smaller level"]] = "larger level"
    clips: ClassVar[bool] = True
    changes_gradients: ClassVar[bool] = True
    trainer: ClassVar[str] = "leakbound_lab.training.per_sample:train_per_sample"
    client_step: ClassVar[str] = f"{_STEPS}:ClippedStep"
    styles: ClassVar[Styles] = {"dpsgd": SeriesStyle("DP-SGD", "#B8860B", "X")}
    level_form: ClassVar[str] = "noise {}"
    timed_as: ClassVar[str] = "dpsgd"

    mechanism: Literal["dpsgd"] = "dpsgd"
    max_grad_norm: Annotated[float, Field(ge=1e-12, le=1e12)] = 1.0
    """Clipping bound S of a record's gradient, Euclidean norm."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ at which ε is reported."""
    deltas: dict[Name, Annotated[float, Field(gt=0, lt=1)]] = {}
    """Dataset to a δ that replaces ``delta`` there."""
    accountant: Literal["rdp", "prv"] = "rdp"
    """Opacus accountant that computes ε."""

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no noise multiplier."""
        return _unless(
            level is not None and 0 <= level < math.inf,
            f"{self.mechanism} needs its noise multiplier, >= 0 (0 clips without noise)",
        )

    @property
    def budget(self) -> dict[str, Any]:
        """δ and accountant of ε."""
        return {"delta": self.delta, "accountant": self.accountant}

    def on(self, dataset: str) -> "DPSGD":
        """Return these settings with the δ of one dataset."""
        return self.model_copy(update={"delta": self.deltas.get(dataset, self.delta), "deltas": {}})


class DPPSAC(DPSGD):
    """DP-PSAC (Xia et al. 2023): per-sample adaptive clipping, otherwise as DP-SGD."""

    client_step: ClassVar[str] = f"{_STEPS}:AdaptivelyClippedStep"
    styles: ClassVar[Styles] = {
        "dppsac": SeriesStyle("DP-PSAC", "#332288", "*"),
        # The control of all defenses that clip, last in legends.
        "clipping": SeriesStyle("clipping, no noise", "#7A5BD0", "1"),
    }

    mechanism: Literal["dppsac"] = "dppsac"  # type: ignore[assignment]
    r: Annotated[float, Field(ge=1e-12, le=1e12)] = 0.1
    """Regulariser of the weight S / (‖g‖ + r / (‖g‖ + r))."""


class ChannelDPSGD(DPSGD, ChannelDefense):
    """DP-SGD on noisy images: a channel protects contents, noise on clipped gradients protects membership.

    A run's level is the noise multiplier. The capacity of the channel is a setting.
    """

    client_step: ClassVar[str] = f"{_STEPS}:NoisyClippedStep"
    styles: ClassVar[Styles] = {"channel_dpsgd": SeriesStyle("channel and DP-SGD", "#EE3377", "H")}

    mechanism: Literal["channel_dpsgd"] = "channel_dpsgd"  # type: ignore[assignment]
    capacity: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """Capacity κ of the channel, nats per use."""

    def capacity_at(self, level: float | None) -> float:
        """Return the capacity, the same at all levels."""
        return self.capacity

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level without noise on gradients."""
        return _unless(
            level is not None and 0 < level < math.inf,
            "channel_dpsgd needs its noise multiplier, > 0. For a channel alone use mechanism: channel",
        )


class DPMF(DPSGD):
    """DP-MF: clipped gradients in cyclic batches with noise that is correlated over steps (DP-FTRL by banded factors).

    A run's level is the multiplier of the white noise Z, of which step t adds row t of C⁻¹Z. C is the banded square
    root of the matrix of prefix sums.

    Source:
        Choquette-Choo et al. 2023, "(Amplified) banded matrix factorization: a unified approach to private training".
        Kalinin and Lampert 2024, "Banded square root matrix factorization".
    """

    trainer: ClassVar[str] = "leakbound_lab.training.correlated:train_correlated"
    client_step: ClassVar[str] = "leakbound_lab.training.correlated:CorrelatedStep"
    independent_steps: ClassVar[bool] = False
    styles: ClassVar[Styles] = {"dpmf": SeriesStyle("DP-MF", "#0077BB", "p")}

    mechanism: Literal["dpmf"] = "dpmf"  # type: ignore[assignment]
    bands: Annotated[int, Field(ge=1, le=1000)] = 8
    """Bands of C, at most the steps of an epoch. One is independent noise. bands − 1 steps' noise is held in memory."""

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level without noise."""
        return _unless(
            level is not None and 0 < level < math.inf,
            'dpmf needs the multiplier of its white noise, > 0. For no noise use the defense "clipping"',
        )

    def batch_problem(self, members: int, batch_size: int) -> str | None:
        """Refuse batches that do not divide the members, and epochs that are shorter than the bands."""
        if members % batch_size:
            return (
                f"dpmf repeats the same batches in each epoch, so that {members} members need batches of equal size; "
                "take a divisor"
            )
        return _unless(
            self.bands <= members // batch_size,
            f"dpmf has bands = {self.bands}, and a record of {members} members takes part again after "
            f"{members // batch_size} steps; take at most as many bands, or smaller batches",
        )


class ParameterNoise(Defense):
    """SGD with Gaussian noise on the averaged gradient. A run's level is the noise's standard deviation.

    The noise is constant: it depends neither on the batch size nor on the data, and nothing is clipped.
    """

    secure_noise: ClassVar[bool] = True
    stronger_with: ClassVar[Literal["larger level", "smaller level"]] = "larger level"
    changes_gradients: ClassVar[bool] = True
    client_step: ClassVar[str] = f"{_STEPS}:NoisyAverageStep"
    styles: ClassVar[Styles] = {"parameter_noise": SeriesStyle("parameter noise", "#EE7733", "<")}
    level_form: ClassVar[str] = "std {}"
    timed_as: ClassVar[str] = "parameter_noise"

    mechanism: Literal["parameter_noise"] = "parameter_noise"

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no standard deviation."""
        return _unless(
            level is not None and 0 <= level < math.inf,
            "parameter_noise needs the standard deviation of its noise, >= 0",
        )


class GradientCompression(Defense):
    """SGD that uploads the largest coordinates of its gradient. A run's level is their fraction, in (0, 1].

    Source:
        Lin et al. 2018, "Deep gradient compression".
    """

    draws_noise: ClassVar[bool] = False
    changes_gradients: ClassVar[bool] = True
    client_step: ClassVar[str] = f"{_STEPS}:LargestCoordinatesStep"
    styles: ClassVar[Styles] = {"gradient_compression": SeriesStyle("gradient compression", "#999933", "p")}
    level_form: ClassVar[str] = "fraction {}"
    timed_as: ClassVar[str] = "gradient_compression"

    mechanism: Literal["gradient_compression"] = "gradient_compression"
    error_feedback: bool = True
    """Keep what was not sent, and add it to the next gradient."""

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no fraction."""
        return _unless(
            level is not None and 0 < level <= 1,
            "gradient_compression needs the fraction of coordinates that is sent, in (0, 1]",
        )


class LargeBatch(Defense):
    """SGD on batches that are ``level`` times as large as the study's. Its level is a whole number of at least 1."""

    draws_noise: ClassVar[bool] = False
    stronger_with: ClassVar[Literal["larger level", "smaller level"]] = "larger level"
    client_step: ClassVar[str] = f"{_STEPS}:ClientStep"
    styles: ClassVar[Styles] = {"large_batch": SeriesStyle("large batch", "#882255", "d")}
    level_form: ClassVar[str] = "factor {}"

    mechanism: Literal["large_batch"] = "large_batch"

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no whole factor."""
        return _unless(
            level is not None and level >= 1 and level % 1 == 0,
            "large_batch needs a factor on the batch size, a whole number >= 1",
        )

    def records_in_step(self, level: float | None, batch_size: int) -> int:
        """Return the batch size times the level."""
        return batch_size if level is None or self.level_problem(level) else batch_size * int(level)


class Compression(Defense):
    """SGD on images without one principal direction. A run's level is its index, 0 for the largest eigenvalue.

    Source:
        Tan et al. 2024, Sec. 5 and Appendix D (Fig. 8).
    """

    draws_noise: ClassVar[bool] = False
    client_step: ClassVar[str] = f"{_STEPS}:DroppedDirectionStep"
    styles: ClassVar[Styles] = {"compression": SeriesStyle("compression", "#663311", ">")}
    level_form: ClassVar[str] = "direction {}"

    mechanism: Literal["compression"] = "compression"

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no index of a principal direction of images of so many values."""
        directions = pixels or MOST_COLORS * IMAGE_SIDE**2
        return _unless(
            level is not None and 0 <= level < directions and level % 1 == 0,
            "compression needs the index of a principal direction, a whole number from 0 (the largest "
            f"eigenvalue) to below the number of pixels times colors, {directions}",
        )


class PACPrivacy(Defense):
    """SGD whose uploads get Gaussian noise fitted to how much uploads vary over draws of records (PAC privacy).

    A run's level is a number of nats κ for each record of an upload: an upload of n records reveals at most nκ nats of
    all records of the client together, with their labels. Means and noise come from the auxiliary records.

    Source:
        Xiao and Devadas 2023, "PAC privacy: automatic privacy measurement and control of data processing".
    """

    secure_noise: ClassVar[bool] = True
    changes_gradients: ClassVar[bool] = True
    trainer: ClassVar[str] = "leakbound_lab.training.pac:train_pac"
    client_step: ClassVar[str] = "leakbound_lab.training.pac:MeasuredNoiseStep"
    styles: ClassVar[Styles] = {"pac": SeriesStyle("PAC privacy", "#009988", "P")}
    level_form: ClassVar[str] = _NATS
    timed_as: ClassVar[str] = "dpsgd"

    mechanism: Literal["pac"] = "pac"
    public: Annotated[int, Field(ge=4, le=10**6)] = 500
    """Auxiliary records, at most all, from which everybody computes what uploads are like."""
    groups: Annotated[int, Field(ge=2, le=10**4)] = 20
    """Groups of these records, over whose gradients the variance of each coordinate is measured."""

    def level_problem(self, level: float | None, pixels: int | None = None) -> str | None:
        """Refuse a level that is no positive number of nats."""
        return _unless(
            level is not None and 0 < level < math.inf,
            'pac needs the nats of an upload for each of its records, > 0. For no noise use the defense "none"',
        )

    @model_validator(mode="after")
    def _two_records_in_a_group(self) -> "PACPrivacy":
        if self.groups > self.public:
            raise ValueError(
                f"groups = {self.groups}, public = {self.public}: each group needs a record; take fewer groups"
            )
        return self


@cache
def default_defenses() -> dict[Name, Defense]:
    """Return the defenses that every configuration knows without declaring them."""
    channels: dict[Name, Defense] = {shape: ChannelDefense(shape=shape) for shape in SHAPES.builtin}
    frozen = {f"{shape}_frozen": ChannelDefense(shape=shape, noise="frozen") for shape in SHAPES.builtin}
    clipping: dict[Name, Defense] = {"clipping": DPSGD()}  # at multiplier 0, the control for all that clips
    others = {name: MECHANISMS.get(name)() for name in MECHANISMS.builtin if name != "channel"}
    return others | clipping | channels | frozen
