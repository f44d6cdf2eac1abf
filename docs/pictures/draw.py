"""Draw the pictures of docs/concepts.md from numbers that the library computes on scikit-learn's digits.

    python docs/pictures/draw.py

writes the SVG files beside this script, or into the folder that is given. They are committed; a test draws them again
and compares what they say.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

from leakbound import Capacity, Channel
from leakbound.accounting.dp import record_information
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.reconstruction import empirical_bayes
from leakbound.accounting.risk import demonstrated_information

BLUE, RED, GREY = "#4477AA", "#EE6677", "0.55"
STYLE = {
    **{"font.size": 9, "font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "leakbound"},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9, "legend.frameon": False},
}


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Public and private rows (n, 64) in [0, 1], and labels of the private ones."""
    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order[:800]] / 16, rows[order[800:]] / 16, labels[order[800:]]


def channel(nats: float) -> Channel:
    """A natural channel for the private digits, calibrated to the public ones, with noise that can be repeated."""
    public, private, _ = digits()
    return Channel(Capacity(nats), auxiliary=public, random_state=0).fit(private)


def gradient(record: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (10, 64) and (10,) of a linear classifier's weights and bias."""
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    output = model(torch.from_numpy(record).float()[None])
    nn.functional.cross_entropy(output, torch.tensor([int(label)])).backward()
    return model.weight.grad.double().numpy(), model.bias.grad.double().numpy()


def inverted(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The input (64,) that the gradient was computed on."""
    row = np.abs(bias).argmax()
    return weight[row] / bias[row]


def channel_before_the_gradient() -> Figure:
    """Record, what the training sees, its gradient, and the attacker's estimate; without a channel and with one."""
    _, private, labels = digits()
    record, label, four = private[10], labels[10], channel(4.0)
    moments, variance = four.calibration_.moments, four.calibration_.channel.variances[0]
    gain = np.linalg.solve(moments.covariance + variance * np.eye(64), moments.covariance)
    rows = []
    for seen in (record, four.transform(record[None])[0]):
        uploaded = gradient(seen, label)
        recovered = inverted(*uploaded)
        estimate = recovered if seen is record else moments.mean + (recovered - moments.mean) @ gain
        rows.append((record, seen, uploaded[0], estimate))
    figure, axes = plt.subplots(2, 4, figsize=(7, 3.6), gridspec_kw={"width_ratios": [1, 1, 2.2, 1]})
    titles = ("record", "what the training sees", "gradient that is uploaded", "attacker's estimate")
    # Of all draws: which one a seed gives depends on the processor, by the signs of eigenvectors.
    left = np.trace(moments.covariance - gain.T @ moments.covariance) / moments.covariance.shape[0]
    for line, pictures, name, error in zip(axes, rows, ("no channel", "4 nats"), (0.0, left), strict=True):
        for place, picture in zip(line, pictures, strict=True):
            shown = picture.reshape(8, 8) if picture.size == 64 else picture
            largest = 1.0 if picture.size == 64 else np.abs(picture).max()
            low = 0.0 if picture.size == 64 else -largest
            place.imshow(shown, cmap="gray_r" if picture.size == 64 else "PiYG", aspect="auto", vmin=low, vmax=largest)
            place.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
        line[3].set_xlabel(f"average MSE {error:.3f}")
    for place, title in zip(axes[0], titles, strict=True):
        place.set_title(title)
    return figure


def capacity_leakage_error() -> Figure:
    """Nats of k uses together, and the squared error that they leave the best linear attacker."""
    uses = np.unique(np.geomspace(1, 100, 25).astype(int))
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
    mean_error = channel(1.0).calibration_.linear_error(0)
    for nats, color in ((0.25, "#66CCEE"), (1.0, BLUE), (4.0, "#222255")):
        calibration = channel(nats).calibration_
        leaked = [calibration.information(int(count)) for count in uses]
        left.plot(uses, leaked, color=color, label=f"κ = {nats:g} nats")
        left.plot(uses, nats * uses, ":", color=color)
        left.annotate(f"{leaked[-1]:.0f}", (uses[-1], leaked[-1]), (3, -3), textcoords="offset points", color=color)
        right.plot(leaked, [calibration.linear_error(int(count)) / mean_error for count in uses], color=color)
    left.plot([], [], ":", color=GREY, label="k·κ")
    left.set(xscale="log", yscale="log", xlabel="uses k of a record", ylabel="leakage, nats")
    left.legend()
    right.set(xscale="log", xlabel="leakage, nats", ylabel="error, of the mean image's", ylim=(0, 1.03))
    return figure


def bounds_and_attacks() -> Figure:
    """Nats about which of 256 digits it was: the bound, all that there is, and what an attack demonstrates."""
    _, private, _ = digits()
    listed, trials = private[:256], 1000
    levels = np.geomspace(0.25, 32, 15)
    all_there_is, shown = [], []
    for number, nats in enumerate(levels):
        variances = channel(float(nats)).calibration_.channel.variances
        estimate = empirical_bayes(listed, variances, np.random.default_rng(number), draws=trials)
        all_there_is.append(estimate.information)
        shown.append(demonstrated_information(round(estimate.identification_rate * trials), trials, len(listed)))
    figure, axes = plt.subplots(figsize=(5, 3.2))
    most = np.minimum(levels, np.log(256))
    axes.fill_between(levels, shown, most, color="0.93")
    axes.plot(levels, most, "--", color="0.35", label="bound: the capacity, and ln 256")
    axes.plot(levels, all_there_is, color=BLUE, label="what the upload reveals about the list")
    axes.plot(levels, shown, "o-", markersize=3, color=RED, label="demonstrated by identification, 95 %")
    axes.set(xscale="log", yscale="log", xlabel="capacity, nats", ylabel="nats", ylim=(0.01, 10))
    axes.legend()
    axes.annotate(f"{shown[-1]:.1f}", (levels[-1], shown[-1]), (4, -8), textcoords="offset points", color=RED)
    return figure


def average_and_every_record() -> Figure:
    """Draw the nats that one use reveals about each digit and about negatives, and what DP promises to all."""
    _, private, _ = digits()
    calibration = channel(4.0).calibration_
    moments, variance = calibration.moments, calibration.channel.variances[0]
    total = moments.covariance + variance * np.eye(64)

    def revealed(rows: np.ndarray) -> np.ndarray:
        """KL divergence of what the record releases from the Gaussian that has the moments of all releases."""
        apart = rows - moments.mean
        ratio = np.linalg.slogdet(total)[1] - 64 * np.log(variance)
        inverse = np.linalg.inv(total)
        return 0.5 * (ratio - 64 + variance * np.trace(inverse) + np.einsum("ij,jk,ik->i", apart, inverse, apart))

    event = PrivacyEvent("dpsgd", "poisson", 1, 1, 1, 1, noise_multiplier=8**-0.5, max_grad_norm=1.0)
    promised = record_information(event)
    figure, axes = plt.subplots(figsize=(5, 3))
    bins = np.geomspace(2, 80, 60)
    axes.hist(revealed(private), bins=bins, color=BLUE, alpha=0.8, label="digits, each by itself")
    axes.hist(revealed(1 - private), bins=bins, color=RED, alpha=0.8, label="their negatives")
    average, other = float(revealed(private).mean()), float(revealed(1 - private).mean())
    top = axes.get_ylim()[1]
    axes.text(average * 1.1, top * 0.3, f"average {average:.2f}", color=BLUE)
    axes.text(other * 1.15, top * 0.9, f"average {other:.1f}", color=RED)
    axes.axvline(promised, color="0.2", linestyle="--", label=f"DP: {promised:.2f} nats for every record")
    axes.set(xscale="log", xlabel="nats that one use reveals about the record", ylabel="records")
    axes.set_xticks([2, 4, 10, 20, 40])
    axes.set_xticks([], minor=True)
    axes.set_xticklabels(["2", "4", "10", "20", "40"])
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)  # above: bars and their averages fill the panel
    return figure


PICTURES: tuple[Callable[[], Figure], ...] = (
    channel_before_the_gradient,
    capacity_leakage_error,
    bounds_and_attacks,
    average_and_every_record,
)


def draw(folder: Path) -> None:
    """Write all pictures into a folder."""
    matplotlib.use("svg")
    with matplotlib.rc_context(STYLE):
        for picture in PICTURES:
            figure = picture()
            figure.tight_layout()
            figure.savefig(folder / f"{picture.__name__}.svg", metadata={"Date": None}, transparent=False)
            plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
