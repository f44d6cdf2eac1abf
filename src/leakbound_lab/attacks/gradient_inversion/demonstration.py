"""A few records, what a client uploads of them with and without a channel, and what an attacker makes of it.

Each record is a batch of its own, the network is untrained and its labels are known, which is the attacker's
best case. The attacker solves the equations of the gradient for the picture that the network saw, and takes
the best linear estimate of the record. That takes a second for each, so a few gradients are solved. Much
noise saturates the network, which makes solving inexact. Errors behind a channel are therefore those of
estimates from what the network saw itself, for many more records. No attack on gradients knows more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from leakbound.accounting.risk import naming_bound
from leakbound.channels.channel import channel_capacity, linear_estimate
from leakbound.channels.covariance import Moments
from leakbound.channels.shapes import Natural
from leakbound.randomness.seeding import torch_generator
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.gradient_inversion.closed_form import solved_images
from leakbound_lab.attacks.search_images import LARGEST_PIXEL
from leakbound_lab.config.defenses import ChannelDefense, Undefended
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models import build
from leakbound_lab.training.client_steps import client_step

_MODEL = "lenet_sigmoid"  # its gradients can be solved for their picture
_SCALE = 4.0  # squared units of pixels on [-1, 1] in one of [0, 1]


@dataclass(frozen=True)
class AttackedUploads:
    """Uploads behind one channel, and what an attacker has made of them.

    Attributes:
        capacity: κ, nats of a use, or None for an upload without a channel.
        seen: What the network saw of the first records, on [-1, 1] and beyond it.
        recovered: The attacker's estimates of them, solved from gradients, on [-1, 1].
        missed: Largest relative error of a picture that was solved for, ‖solved − seen‖/‖seen‖.
        mse: Mean squared error of estimates of all records, or of the first ones without a channel, on the
            scale [0, 1].
        least: Error of the best linear estimate of what the network saw, in expectation, or 0 without a
            channel.
        identified: Share of the records that are identified among all of them, by what the network saw.
        most: Largest probability of that for any attacker, or 1 without a channel.
    """

    capacity: float | None
    seen: metrics.Pictures
    recovered: metrics.Pictures
    missed: float
    mse: float
    least: float
    identified: float
    most: float


def demonstration(
    dataset: ImageDataset,
    moments: Moments,
    capacities: Sequence[float],
    *,
    pictures: int = 5,
    trials: int = 300,
    seed: int = 0,
    each: Callable[[int], None] = lambda count: None,
) -> tuple[metrics.Pictures, list[AttackedUploads]]:
    """Attack single records' gradients, first without a defense and then behind natural noise.

    Args:
        dataset: Prepared images. The first members of the first replica are attacked.
        moments: Mean and covariance of its auxiliary records, to which noise is calibrated.
        capacities: κ of each channel, nats, > 0.
        pictures: Records whose gradients are solved.
        trials: Records, these among them, that errors are measured on, and candidates of an identification,
            not more than there are members.
        seed: Seed of the network and the noise.
        each: Called with 1 when one of the 1 + len(capacities) attacks is done.

    Returns:
        The first records, on [-1, 1], and what is shown of each attack.
    """
    members = dataset.members(0)
    truth = members.images[:trials]
    labels = torch.from_numpy(members.labels[:trials])[:, None]
    words = (dataset.name, "demonstration")
    network = build(
        _MODEL, dataset.colors, len(dataset.classes), torch_generator(seed, *words, "network"), dataset.side
    ).eval()
    spectrum = Natural.decompose(moments)
    attacked = []
    for capacity in (None, *capacities):
        channel = None if capacity is None else Natural.calibrate(spectrum, capacity)
        defense = Undefended() if channel is None else ChannelDefense(shape="natural")
        # The client's uploads, of which a few are solved for the pictures that the network saw.
        client = client_step(defense, capacity, channel)
        source = torch_generator(seed, *words, "noise")
        sent = client.upload(network, torch.from_numpy(truth)[:, None], labels, source)
        gradients = {name: values[:pictures] for name, values in sent.gradients.items()}
        seen = sent.images.numpy()
        solved = solved_images(network, gradients, truth.shape[1:]).numpy()
        # Estimates of the records, and the limits that the channel sets to them.
        estimates = [solved, seen]
        least = 0.0
        most = 1.0
        if channel is not None:
            estimates = [linear_estimate(images, channel, moments) for images in estimates]
            noise = channel.variances[0]
            least = float(np.mean(spectrum.eigenvalues * noise / (spectrum.eigenvalues + noise))) / _SCALE
            most = naming_bound(channel_capacity(channel, spectrum), len(truth))
        from_gradients, from_images = (np.clip(images, -LARGEST_PIXEL, LARGEST_PIXEL) for images in estimates)
        missed = max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(solved, seen, strict=False))
        guesses = from_gradients if channel is None else from_images
        error = float(metrics.mse(truth[: len(guesses)], guesses).mean())
        numbers = (float(missed), error, least, _identified(truth, seen), most)
        attacked.append(AttackedUploads(capacity, seen[:pictures], from_gradients, *numbers))
        each(1)
    return truth[:pictures], attacked


def _identified(truth: metrics.Pictures, noisy: metrics.Pictures) -> float:
    """Compute the share of noisy pictures whose nearest record, the most probable one, is their own."""
    flat, seen = (pictures.reshape(len(pictures), -1).astype(np.float64) for pictures in (truth, noisy))
    distances = np.square(flat).sum(axis=1) - 2 * seen @ flat.T
    return float(np.mean(distances.argmin(axis=1) == np.arange(len(flat))))
