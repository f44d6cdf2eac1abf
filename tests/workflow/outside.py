"""One of each kind from outside the package, as docs/extending.md describes them; settings in outside_settings.py."""

import dataclasses

import numpy as np
import pandas as pd
import torch

from leakbound.channels import GaussianChannel, Natural, Spectrum
from leakbound_lab.claims.outcomes import Exact
from leakbound_lab.datasets import RawDataset
from leakbound_lab.datasets.digits import read as read_digits
from leakbound_lab.models.classifier import Classifier
from leakbound_lab.training.sgd import train_sgd


def read(name, config) -> RawDataset:
    return read_digits(name, config)


class Tiny(Classifier):
    def __init__(self, colors: int, classes: int) -> None:
        super().__init__(colors, classes)
        self.convolution = torch.nn.Conv2d(colors, 4, 3, stride=4)
        self.head = torch.nn.Linear(4 * 8 * 8, classes)

    def features(self, images):
        return torch.relu(self.convolution(images)).flatten(1)


class Cautious(Natural):
    """Twice the noise that the natural channel needs."""

    @staticmethod
    def decompose(moments, *, weights=None) -> Spectrum:
        return dataclasses.replace(Natural.decompose(moments, weights=weights), shape="cautious")

    @staticmethod
    def calibrate(spectrum, capacity) -> GaussianChannel:
        found = Natural.calibrate(spectrum, capacity)
        return dataclasses.replace(found, shape="cautious", variances=2 * found.variances)


def train(request):
    assert request.defense.care == 3
    return train_sgd(request)


def attack(request):
    assert {len(value) for value in request.weights.values()} == {len(request.replicas)}
    columns = {"replica": request.replicas, "variant": "guess", "unit": -1, "metric": "auc"}
    columns["value"] = request.config.auc
    return pd.DataFrame(columns).assign(low=np.nan, high=np.nan), {}


def draw(rows, *, options):
    from matplotlib.figure import Figure

    picture = Figure()
    picture.add_subplot().plot(rows["level"], rows["value"], options["marker"])
    return picture


def table(settings, *, dataset, moments, seed):
    return pd.DataFrame({"metric": "number", "value": [1.0, 2.0], "level": [1.0, 2.0]})


def always(rows, *, options):
    return Exact(1.0, True, "by definition")
