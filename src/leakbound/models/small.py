"""Networks that are small enough for noise on every parameter: a perceptron and a CNN.

Federated averaging under a mutual-information budget adds noise whose squared norm grows in proportion to the
number of parameters. PMIDP-FL names only "MLP" and "CNN" and does not print their architectures.
"""

import math

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.models.classifier import Classifier, Side


class MLP(Classifier):
    """Perceptron with a hidden layer of 32 units and ReLU.

    For 32×32 pixels and 10 classes it has 33,130 parameters with 1 color, and 98,666 with 3 colors. For 8×8
    grey pixels it has 2,410. It also takes records that are no images, e.g. rows of a table.
    """

    any_shape = True

    def __init__(self, colors: int, classes: int, size: Side = 32) -> None:
        super().__init__(colors, classes, size)
        self.fc1 = nn.Linear(math.prod(self.image_shape), 32)
        self.head = nn.Linear(32, classes)

    def features(self, images: Float[Tensor, "n colors height width"]) -> Float[Tensor, "n 32"]:
        """Compute the activations of the hidden layer, each >= 0."""
        return F.relu(self.fc1(images.flatten(1)))


class CNN(Classifier):
    """Two strided convolutions with ReLU and a linear head.

    For 32×32 pixels and 10 classes it has 26,346 parameters with 3 colors, and 25,546 with 1 color. Sides are
    multiples of 4.
    """

    def __init__(self, colors: int, classes: int, size: int = 32) -> None:
        super().__init__(colors, classes, size)
        self.conv1 = nn.Conv2d(colors, 16, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32 * (size // 4) ** 2, classes)

    def features(self, images: Float[Tensor, "n colors side side"]) -> Float[Tensor, "n width"]:
        """Compute the activations of the second convolution, each >= 0."""
        return F.relu(self.conv2(F.relu(self.conv1(images)))).flatten(1)
