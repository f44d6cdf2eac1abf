"""Style of all figures: sizes, fonts, and a fixed colour and marker for each series."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from leakbound_lab.config.data import ORIGINALS
from leakbound_lab.config.defenses import default_defenses, level_text
from leakbound_lab.config.series_style import SeriesStyle
from leakbound_lab.registries import MECHANISMS

ONE_COLUMN = 5.0
"""Width in inches of a figure that fits next to another one on a screen, and on a telephone."""
TWO_COLUMNS = 8.0
HEIGHT = 2.6
FONT_SIZE = 8.0
SMALL = 6.5
CONTROL_COLOR = "#707070"
LEAST_CONTRAST = 3.0
"""Least contrast of a line with the page (WCAG 2.2, 1.4.11)."""

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "image.cmap": "cividis",
    "figure.dpi": 160.0,
    "savefig.dpi": 160.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "leakbound",
}


# Paul Tol's "bright" and "muted" sets. They are distinct with common colour blindness and, by marker, without colour.
_STYLES = {
    **{
        name: style
        for mechanism in MECHANISMS.builtin
        for name, style in MECHANISMS.get(mechanism).styles.items()
    },
    "lenet": SeriesStyle("LeNet", "#4477AA", "o"),
    "lenet_sigmoid": SeriesStyle("LeNet of Zhu et al.", "#66CCEE", "8"),
    "resnet10": SeriesStyle("ResNet10", "#228833", "^"),
    "alexnet": SeriesStyle("AlexNet", "#CC6677", "s"),
    "vgg16": SeriesStyle("VGG16", "#AA3377", "D"),
    "auc": SeriesStyle("membership AUC", "#B8860B", "X"),
    "white_box": SeriesStyle("white-box attack", "#4477AA", "o"),
    "loss_threshold": SeriesStyle("loss threshold", "#CC6677", "s"),
    "lira_offline": SeriesStyle("LiRA, offline", "#66CCEE", "v"),
    "lira_online": SeriesStyle("LiRA, online", "#228833", "^"),
    "rmia": SeriesStyle("RMIA", "#B8860B", "X"),
    "white_box_references": SeriesStyle("white-box with references", "#AA3377", "D"),
    "strongest": SeriesStyle("strongest attack", "#332288", "*"),
    "likelihood": SeriesStyle("likelihood ratio", "#555555", "P"),
    "all_messages": SeriesStyle("all messages", "#555555", "o"),
    "last_message": SeriesStyle("last message alone", "#555555", "s"),
    "printed": SeriesStyle("as printed", "#4477AA", "o"),
    "tuned": SeriesStyle("tuned attacker", "#AA3377", "D"),
    "attack": SeriesStyle("attack", "#AA3377", "D"),
    "linear": SeriesStyle("attack, linear estimate", "#66CCEE", "v"),
    "unstaged": SeriesStyle("attack without stages", "#66CCEE", "v"),
    "geiping": SeriesStyle("Geiping et al., tuned", "#4477AA", "o"),
    "released": SeriesStyle("as the network received it", "#555555", "s"),
    "train_accuracy": SeriesStyle("training", "#CC6677", "s"),
    "test_accuracy": SeriesStyle("test", "#4477AA", "o"),
    "untuned": SeriesStyle("Geiping et al., one weight", "#228833", "^"),
    "printed_total": SeriesStyle("n·κ, as printed", "#CC6677", "s"),
    "added_uses": SeriesStyle("k·κ, uses added", "#B8860B", "X"),
    "joint": SeriesStyle("k uses together", "#4477AA", "o"),
    "drawn_once": SeriesStyle("noise drawn once", "#228833", "^"),
    "measured": SeriesStyle("gradients as measured", "#B8860B", "X"),
    "trace": SeriesStyle("their total variance", "#228833", "^"),
    "corrected": SeriesStyle("corrected", "#AA3377", "D"),
    "common": SeriesStyle("one variance for all, as published", "#4477AA", "o"),
    "own": SeriesStyle("each client's own variance", "#AA3377", "D"),
    "exact": SeriesStyle("exact", "#AA3377", "D"),
    "search": SeriesStyle("search", "#66CCEE", "x"),
    "boxed": SeriesStyle("search in a box", "#4477AA", "o"),
    "boxed_printed": SeriesStyle("search in a box, printed constraint", "#B8860B", "X"),
    "optimum": SeriesStyle("optimal noise", "#AA3377", "D"),
    "exchangeable": SeriesStyle("exchangeable noise", "#4477AA", "o"),
    "independent": SeriesStyle("independent noise", "#228833", "^"),
    "initial": SeriesStyle("scheme 1: first states only", "#4477AA", "o"),
    "zero_sum": SeriesStyle("scheme 2: zero-sum", "#CC6677", "s"),
    "bounded": SeriesStyle("scheme 3: bounded", "#228833", "^"),
    "masks": SeriesStyle("pairwise masks", "#AA3377", "D"),
    "client": SeriesStyle("noise at the clients", "#4477AA", "o"),
    "server": SeriesStyle("noise at the server", "#CC6677", "s"),
    "uniform": SeriesStyle("equal weights and noise", "#CC6677", "s"),
    "sampled": SeriesStyle("equal noise, sampled by budget", "#4477AA", "o"),
    "composed": SeriesStyle("sum over the rounds", "#AA3377", "D"),
    "static": SeriesStyle("with constant parameters", "#228833", "^"),
    "members": SeriesStyle("exact, of the members", "#CC6677", "s"),
    "shrunk": SeriesStyle("shrunk, of the members", "#AA3377", "D"),
    "mean": SeriesStyle("mean of the members alone", "#B8860B", "X"),
    "aux": SeriesStyle("of the attacker's records", "#228833", "^"),
    "uploads": SeriesStyle("to an observer of the uploads", "#B8860B", "X"),
    "allowed": SeriesStyle("allowed by the accountant", "#4477AA", "o"),
    "bound": SeriesStyle("allowed by the accountant", "#4477AA", "o"),
    "images": SeriesStyle("from the noisy images", "#228833", "^"),
    "gradients": SeriesStyle("from the gradients", "#AA3377", "D"),
    "exact_images": SeriesStyle("by the distribution of the noise", "#66CCEE", "x"),
    "exact_gradients": SeriesStyle("by the distribution of the noise", "#66CCEE", "x"),
    "demonstrated": SeriesStyle("demonstrated by an attacker", "#AA3377", "D"),
    "one_run": SeriesStyle("demonstrated, for any mechanism", "#228833", "^"),
    "gaussian": SeriesStyle("demonstrated, for Gaussian noise", "#AA3377", "D"),
}
_SPARE_COLORS = ("#44AA99", "#DDCC77", "#661100", "#0077BB")
_SPARE_MARKERS = ("H", "8", "<", ">")

NAMES = {
    **{name: original.label for name, original in ORIGINALS.items()},
    **{name: _STYLES[name].label for name in ("lenet_sigmoid", "lenet", "resnet10", "alexnet", "vgg16")},
    "mlp": "perceptron of 32 units",
    "mlp_wide": "perceptron of 5 × 200 units",
}
"""Datasets in the paper's order, models by their number of parameters."""

PAPERS = {
    "tan2024": "Tan et al. 2024",
    "zeng2022": "Zeng, Yang, Dai 2022",
    "pmidp": "PMIDP-FL",
    "wang2020": "Wang, Ishii, He, Cheng 2020",
    "beyond": "Beyond the papers",
}
"""Papers in the order of lists. The first is the one that the project began with."""

_AXIS_LABELS = {
    "level": "capacity per use κ (nats)",
    "rounds": "rounds n (local steps)",
    "batch_size": "batch size B",
    "test_accuracy": "test accuracy",
    "train_accuracy": "training accuracy",
    "auc": "membership AUC",
    "mse": "MSE (pixel scale [0, 1])",
    "bounded_mse": "min(MSE, prior's MSE)",
    "relative_mse": "MSE / prior's MSE",
    "accuracy_gap": "training minus test accuracy",
    "gain": "gain over the start (MSE)",
    "gain_over_aux": "gain over own class mean (part of its MSE)",
    "gain_on_others": "the same for non-members",
    "psnr": "PSNR (dB)",
    "ssim": "SSIM",
    "cosine": "cosine similarity",
    "member_accuracy": "accuracy on members",
    "nonmember_accuracy": "accuracy on others",
    "epsilon": "privacy budget ε",
    "imp_mia": "improvement against membership inference",
    "imp_dra": "improvement against model inversion",
    "imp_dra_gain": "improvement against model inversion, by gain",
    "gdc": "general defense capability (both attacks)",
    "gdc_gain": "general defense capability, by gain",
}
_BOUNDS = {
    r"\w*accuracy|auc|correct|share|recovered|explained|rate_\d+|tpr_at_fpr_.*": (0.0, 1.0),
    r"\w*mse|residual|\w*nats\w*|\w*loss|\w*leak\w*|\w*epsilon|seconds\w*|ratio": (0.0, math.inf),
    r"ssim|cosine": (-1.0, 1.0),
    r"imp_\w+|gdc\w*|gain_over_aux|gain_on_others": (-math.inf, 1.0),
}
"""Pattern of metrics to their possible range. A metric without a pattern can be any number."""


def bounds(metric: str) -> tuple[float, float]:
    """Return the range of a metric, e.g. (0, 1) for an accuracy, or all numbers if it is not known."""
    return next(
        (ends for pattern, ends in _BOUNDS.items() if re.fullmatch(pattern, metric)), (-math.inf, math.inf)
    )


def level_label(defense: str, level: float, *, unit: bool = False) -> str:
    """Write a level, with its unit if asked, or nothing for a defense without a level or with a single one."""
    if not math.isfinite(level) or defense == "clipping":
        return ""
    settings = default_defenses().get(defense)
    return settings.level_label(level, unit=unit) if settings else level_text(level)


def epsilon_text(epsilon: float) -> str:
    """Write a privacy budget ε with three digits, or ∞ for clipping without noise."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"


def style_of(series: str) -> SeriesStyle:
    """Return the fixed style of a series. An unknown series gets a style that depends only on its name."""
    if series in _STYLES:
        return _STYLES[series]
    if series.endswith("_frozen"):
        fresh = style_of(series.removesuffix("_frozen"))
        return SeriesStyle(f"{fresh.label}, frozen", fresh.color, fresh.marker, dashed=True)
    if series in MECHANISMS.names() and series in (styles := MECHANISMS.get(series).styles):
        return styles[series]
    index = hashlib.sha256(series.encode()).digest()[0]
    color = _SPARE_COLORS[index % len(_SPARE_COLORS)]
    marker = _SPARE_MARKERS[index // 8 % len(_SPARE_MARKERS)]
    return SeriesStyle(series.replace("_", " "), color, marker)


def ordered(names: Iterable[object], first: Iterable[str] = _STYLES) -> list[str]:
    """Sort distinct names in the order of legends: those of ``first`` in its order, then all others by name."""
    ranks = {name: rank for rank, name in enumerate(first)}
    return sorted({str(name) for name in names}, key=lambda name: (ranks.get(name, len(ranks)), name))


def axis_label(quantity: str, defenses: Iterable[str] = ()) -> str:
    """Return the axis label of a metric or column, with its unit.

    Args:
        quantity: Metric or column.
        defenses: Defenses whose levels lie along the axis. If all are default channels, the label is a
            capacity.

    Example:
        >>> axis_label("level", ["natural"]), axis_label("level", ["gradient_compression"])
        ('capacity per use κ (nats)', 'level of gradient compression')
    """
    default = default_defenses()
    names = {*defenses}
    if quantity == "level" and not all(name in default and default[name].channel for name in names):
        return f"level of {style_of(names.pop()).label}" if len(names) == 1 else "level"
    return _AXIS_LABELS.get(quantity, quantity.replace("_", " "))


def written(name: str) -> str:
    """Write the name of a dataset or model for people.

    Example:
        >>> written("svhn"), written("cifar10_canaries"), written("clients_05"), written("my_photos")
        ('SVHN', 'CIFAR-10, canaries', 'clients: 5', 'my photos')
    """
    if name in NAMES:
        return NAMES[name]
    dataset = max((key for key in NAMES if name.startswith(f"{key}_")), key=len, default="")
    rest = name[len(dataset) + 1 :] if dataset else name
    numbered = re.fullmatch(r"(\w*[a-z])_(\d+)", rest)
    words = f"{numbered[1]}: {int(numbered[2])}" if numbered else rest
    return (f"{NAMES[dataset]}, " if dataset else "") + words.replace("_", " ")


def contrast(color: str, other: str) -> float:
    """Compute the ratio of contrast of two colours, from 1 to 21.

    Args:
        color: Hexadecimal code.
        other: Another.

    Source:
        WCAG 2.2, definitions of contrast ratio and relative luminance.

    Example:
        >>> contrast("#000000", "#ffffff")
        21.0
    """
    bright, dark = sorted((_luminance(color), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    """Return the relative luminance of a colour."""
    parts = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def visible_on(color: str, background: str) -> str:
    """Mix a colour with white or black until a line in it has enough contrast on a background.

    Args:
        color: Hexadecimal code.
        background: That of the page.

    Returns:
        The colour itself if its contrast is at least ``LEAST_CONTRAST``, else the nearest mixture that has it.
    """
    away = 255 if _luminance(background) < 0.18 else 0
    parts = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    for share in range(0, 101, 2):
        mixed = "#" + "".join(f"{round(part + (away - part) * share / 100):02x}" for part in parts)
        if contrast(mixed, background) >= LEAST_CONTRAST:
            return mixed
    raise ValueError(f"no mixture of {color} has a contrast of {LEAST_CONTRAST} on {background}")


_WIDEST = ContextVar("_WIDEST", default=TWO_COLUMNS)


def at_most(width: float) -> float:
    """Return a width in inches, or the largest one if that is smaller (:func:`within`)."""
    return min(width, _WIDEST.get())


def panels_in_a_row() -> int:
    """Return how many panels stand side by side before a single row of them is broken."""
    return max(1, min(2, int(_WIDEST.get() / 1.9)))


@contextmanager
def within(width: float) -> Iterator[None]:
    """Draw all figures at most so many inches wide."""
    token = _WIDEST.set(width)
    try:
        yield
    finally:
        _WIDEST.reset(token)


@contextmanager
def applied() -> Iterator[None]:
    """Draw and save with these settings, independent of the user's own."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield
