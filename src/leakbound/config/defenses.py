"""Settings of defenses; the level that each is swept over stands in the studies."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from leakbound.config.settings import Name, Rates, Settings, Span


class BoxWeights(Settings):
    """Per-pixel noise weights β of the personalized channel: one rectangle of the 32×32 image weighs more."""

    rows: Span = (12, 20)
    """First row of the rectangle and the row after its last."""
    columns: Span = (8, 24)
    """First column of the rectangle and the column after its last."""
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 50.0
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
    max_grad_norm: Annotated[float, Field(ge=1e-12, le=1e12)] = 1.0
    """Clipping bound S of a record's gradient, Euclidean norm."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ at which ε is reported."""
    deltas: dict[Name, Annotated[float, Field(gt=0, lt=1)]] = {}
    """Dataset to a δ of its own."""
    accountant: Literal["rdp", "prv"] = "rdp"
    """Opacus accountant that computes ε."""
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""

    def on(self, dataset: str) -> DPSGD:
        """These settings on one dataset, with the δ that holds there."""
        return self.model_copy(update={"delta": self.deltas.get(dataset, self.delta), "deltas": {}})


class DPPSAC(DPSGD):
    """DP-PSAC (Xia et al. 2023): per-sample adaptive clipping, otherwise as DP-SGD."""

    mechanism: Literal["dppsac"] = "dppsac"  # type: ignore[assignment]
    r: Annotated[float, Field(ge=1e-12, le=1e12)] = 0.1
    """Regulariser of the weight S / (‖g‖ + r / (‖g‖ + r))."""


class ParameterNoise(Settings):
    """SGD with Gaussian noise on the averaged gradient; a run's level is the noise's standard deviation.

    The noise is constant: it depends neither on the batch size nor on the data, and nothing is clipped.
    """

    mechanism: Literal["parameter_noise"] = "parameter_noise"
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class GradientCompression(Settings):
    """SGD that uploads the largest coordinates of its gradient; a run's level is the fraction of them, in (0, 1].

    Source:
        Lin et al. 2018, "Deep gradient compression".
    """

    mechanism: Literal["gradient_compression"] = "gradient_compression"
    error_feedback: bool = True
    """Whether what was not sent is kept and added to the next gradient."""
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class LargeBatch(Settings):
    """SGD on batches that are ``level`` times as large as the study's; its level is a whole number of at least 1."""

    mechanism: Literal["large_batch"] = "large_batch"
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class Compression(Settings):
    """SGD on images without one principal direction; a run's level is its index, 0 for the largest eigenvalue.

    Source:
        Tan et al. 2024, Sec. 5 and Appendix D (Fig. 8).
    """

    mechanism: Literal["compression"] = "compression"
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


class CustomDefense(Settings):
    """A trainer from outside the package; its level and options mean what it says they mean."""

    mechanism: Literal["custom"]
    trainer: Name
    """Registered trainer."""
    options: dict[str, Any] = {}
    """Passed to the trainer as they are."""
    learning_rates: Rates | None = None
    """Candidates of the learning-rate search; by default those of ``training``."""


Defense = Annotated[
    Undefended
    | ChannelDefense
    | DPSGD
    | DPPSAC
    | ParameterNoise
    | GradientCompression
    | LargeBatch
    | Compression
    | CustomDefense,
    Field(discriminator="mechanism"),
]


def draws_noise(defense: Defense) -> bool:
    """Whether a defense adds noise, or may, as a trainer from outside."""
    return isinstance(defense, ChannelDefense | DPSGD | ParameterNoise | CustomDefense)


@cache
def default_defenses() -> dict[Name, Defense]:
    """The defenses that every configuration knows without declaring them."""
    shapes = ("natural", "white", "personalized", "personalized_printed", "least_power", "rate_distortion")
    fresh: dict[Name, Defense] = {shape: ChannelDefense(shape=shape) for shape in shapes}
    frozen: dict[Name, Defense] = {f"{shape}_frozen": ChannelDefense(shape=shape, noise="frozen") for shape in shapes}
    return {
        "none": Undefended(),
        **fresh,
        **frozen,
        "dpsgd": DPSGD(),
        "dppsac": DPPSAC(),
        "parameter_noise": ParameterNoise(),
        "gradient_compression": GradientCompression(),
        "large_batch": LargeBatch(),
        "compression": Compression(),
    }
