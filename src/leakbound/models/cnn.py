"""A convolutional network of two strided layers for 32×32 images, small enough for noise on every parameter."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.models.classifier import Classifier


class CNN(Classifier):
    """Two strided convolutions with ReLU and a linear head.

    26,346 parameters for 3 colors and 10 classes; 25,546 for 1 color. Federated averaging under a mutual-information
    budget adds noise of a squared norm in proportion to the number of parameters, so it is kept small.

    Source:
        The architecture is not printed in PMIDP-FL, which names only "CNN".
    """

    def __init__(self, colors: int, classes: int) -> None:
        super().__init__(colors, classes)
        self.conv1 = nn.Conv2d(colors, 16, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32 * 8 * 8, classes)

    def features(self, images: Float[Tensor, "n colors 32 32"]) -> Float[Tensor, "n 2048"]:
        """Activations of the second convolution, each >= 0."""
        return F.relu(self.conv2(F.relu(self.conv1(images)))).flatten(1)
