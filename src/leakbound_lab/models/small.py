"""Small networks: LeNet-5, the sigmoid network of Zhu et al., and two for noise on every parameter.

Federated averaging under a mutual-information budget adds noise whose squared norm grows in proportion to the
number of parameters. PMIDP-FL names only "MLP" and "CNN" and does not print their architectures.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound_lab.models.classifier import Classifier, Side


class LeNet(Classifier):
    """LeNet-5 with ReLU and max-pooling.

    It has 62,006 parameters for 3 colors and 10 classes, and 61,706 for 1 color.

    Source:
        LeCun et al. 1998, in the form of Tan et al. 2024.
    """

    def __init__(self, colors: int, classes: int) -> None:
        super().__init__(colors, classes)
        self.conv1 = nn.Conv2d(colors, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.head = nn.Linear(84, classes)

    def features(self, images: Float[Tensor, "n colors 32 32"]) -> Float[Tensor, "n 84"]:
        """Compute the activations of the second fully connected layer, each >= 0."""
        trained = torch.is_grad_enabled() and self.conv1.weight.requires_grad
        # ReLU and max-pooling commute; pooling first leaves a quarter of the work.
        x = F.relu(_pooled(self.conv1(images if trained else self.arranged(images))))
        x = F.relu(_pooled(self.conv2(x)))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.relu(self.fc2(x))

    def arranged(
        self, images: Float[Tensor, "n colors height width"]
    ) -> Float[Tensor, "n colors height width"]:
        """Return the same images, on a CPU with the channels of a pixel next to each other in memory.

        With few channels, pooling and convolution then take half to three quarters of the time. With many
        channels, or on a GPU, nothing is gained. In training the gradients of weights would get this order, too,
        and hooks and optimizers of other packages assume contiguous values.
        """
        if images.device.type != "cpu":
            return images
        pixels = images.permute(0, 2, 3, 1)
        _, height, width, colors = pixels.shape
        if pixels.stride() == (height * width * colors, width * colors, colors, 1):
            return images
        return pixels.clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)


class SigmoidLeNet(Classifier):
    """Network of 'Deep Leakage from Gradients': three convolutions, sigmoids, no pooling.

    It is smooth, so that gradients can be matched by gradient descent. For 32×32 pixels and 10 classes it has
    15,826 parameters with 3 colors, and 15,226 with 1 color. Sides are multiples of 4.

    Source:
        Zhu et al. 2019, with the strides 2, 2, 1 and the 768 features of the authors' code.
    """

    def __init__(self, colors: int, classes: int, size: int = 32) -> None:
        super().__init__(colors, classes, size)
        self.conv1 = nn.Conv2d(colors, 12, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(12, 12, 5, stride=2, padding=2)
        self.conv3 = nn.Conv2d(12, 12, 5, stride=1, padding=2)
        self.head = nn.Linear(12 * (size // 4) ** 2, classes)

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw every parameter uniformly from [-0.5, 0.5], as Zhu et al. do.

        With smaller weights the sigmoids pass almost no signal.
        """
        for parameter in self.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)

    def features(self, images: Float[Tensor, "n colors side side"]) -> Float[Tensor, "n width"]:
        """Compute the activations of the third convolution, each in (0, 1)."""
        x = torch.sigmoid(self.conv1(images))
        x = torch.sigmoid(self.conv2(x))
        return torch.sigmoid(self.conv3(x)).flatten(1)


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


class WideMLP(Classifier):
    """Perceptron with five hidden layers of 200 units and ReLU, on which exact inversion of batches was published.

    For 32×32 pixels and 10 classes it has 777,410 parameters with 3 colors. It also takes records that are no
    images, e.g. rows of a table.

    Source:
        Dimitrov et al. 2024, L = 6 linear layers of width m = 200.
    """

    any_shape = True

    def __init__(self, colors: int, classes: int, size: Side = 32) -> None:
        super().__init__(colors, classes, size)
        self.fc1 = nn.Linear(math.prod(self.image_shape), 200)
        self.fc2 = nn.Linear(200, 200)
        self.fc3 = nn.Linear(200, 200)
        self.fc4 = nn.Linear(200, 200)
        self.fc5 = nn.Linear(200, 200)
        self.head = nn.Linear(200, classes)

    def features(self, images: Float[Tensor, "n colors height width"]) -> Float[Tensor, "n 200"]:
        """Compute the activations of the last hidden layer, each >= 0."""
        x = images.flatten(1)
        for layer in (self.fc1, self.fc2, self.fc3, self.fc4, self.fc5):
            x = F.relu(layer(x))
        return x


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


def _pooled(outputs: Float[Tensor, "n maps height width"]) -> Float[Tensor, "n maps half_height half_width"]:
    """Return the largest of each 2×2 values, for even height and width.

    Where nothing is differentiated on a CPU, it is the larger of two rows and then of two columns. That has
    the same values as ``max_pool2d``, and takes a sixth of its time where channels lie next to each other. A
    gradient needs the place of the largest value, as ``max_pool2d`` gives it to the first of equal ones.
    Tensors within ``vmap`` do not say whether they are differentiated.
    """
    if outputs.device.type != "cpu" or torch.is_grad_enabled():
        return F.max_pool2d(outputs, 2)
    rows = torch.maximum(outputs[..., ::2, :], outputs[..., 1::2, :])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])
