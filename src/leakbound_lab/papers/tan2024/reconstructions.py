"""Pictures of reconstructions: what a network saw behind a channel, and what attackers reconstruct."""

import math
from functools import partial

import numpy as np
import pandas as pd
import torch

from leakbound.channels.channel import linear_estimate
from leakbound.channels.covariance import Moments
from leakbound.channels.shapes import shape_named
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.gradient_inversion.closed_form import solved_images
from leakbound_lab.attacks.gradient_inversion.published import Geiping, inverted
from leakbound_lab.attacks.scheduling import side_by_side
from leakbound_lab.attacks.search_images import LARGEST_PIXEL
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.config.defenses import ChannelDefense
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models import build
from leakbound_lab.papers.tan2024.closed_forms import capacities, decompose
from leakbound_lab.papers.tan2024.noisy_pictures import picture_rows
from leakbound_lab.training.client_steps import client_step

_MODEL = "lenet_sigmoid"
_ITERATIONS = 600


def reconstructions(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, seed: int
) -> pd.DataFrame:
    """Reconstruct pictures of a few members from single gradients of an untrained LeNet of Zhu et al. 2019.

    Records that are no square images are reconstructed from gradients of a perceptron. The settings need
    ``levels``, which maps one shape to capacities, and ``images``, the number of pictures. A picture has the
    same standard normal draws at every level.

    Returns:
        Columns as for pictures after channels, with ``defense`` one of ``none`` (the clean picture),
        ``released`` (what the gradient was computed on), ``geiping`` (the published attack with its usual
        weight of the total variation) and ``attack`` (solved for the noisy picture, then the best linear
        estimate), and metrics ``pixel`` and, with color, row and column -1, ``mse``, all on the scale [0, 1].

    Raises:
        ValueError: If there is not exactly one shape.
    """
    capacities("reconstructions", settings)
    if len(settings.levels) != 1:
        raise ValueError(
            f"reconstructions: levels = {dict(settings.levels)}: give the capacities of one shape"
        )
    ((shape, levels),) = settings.levels.items()
    members = dataset.members(0)
    clean = members.images[: settings.images]
    labels = torch.from_numpy(members.labels[: settings.images])
    words = (dataset.name, "reconstructions")
    model = _MODEL if isinstance(dataset.side, int) else "mlp"
    network = build(
        model, dataset.colors, len(dataset.classes), torch_generator(seed, *words, "network"), dataset.side
    ).eval()
    prior = torch.from_numpy(dataset.aux.images.mean(axis=0))
    config = GradientInversionConfig(iterations=_ITERATIONS)
    published = Geiping(network, prior, config, partial(numpy_generator, seed, *words))
    spectrum = decompose(shape, moments, settings.weights)
    frames = [picture_rows("none", math.nan, clean)]
    for level in levels:
        channel = shape_named(shape).calibrate(spectrum, level)
        client = client_step(ChannelDefense(shape=shape), level, channel)
        source = torch_generator(seed, *words, "noise")
        sent = client.upload(network, torch.from_numpy(clean)[:, None], labels[:, None], source)
        solved = solved_images(network, sent.gradients, clean.shape[1:]).numpy()
        attacker = published.solve(sent.gradients, labels, [config.untuned_tv_weight], "images")
        ((smooth, _),) = side_by_side([attacker], inverted)
        seen = {
            "released": sent.images.numpy(),
            "geiping": smooth[0],
            "attack": linear_estimate(solved, channel, moments),
        }
        for name, images in seen.items():
            clipped = np.clip(images, -LARGEST_PIXEL, LARGEST_PIXEL)
            errors = pd.DataFrame({"replica": range(len(clean)), "value": metrics.mse(clean, clipped)})
            errors = errors.assign(defense=name, level=level, color=-1, row=-1, column=-1, metric="mse")
            frames += [picture_rows(name, level, clipped), errors]
    return pd.concat(frames, ignore_index=True).assign(dataset=dataset.name)
