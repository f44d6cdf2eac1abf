"""AlexNet for 32×32 images: five convolutions and a wide head."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.models.classifier import Classifier

_GROUPS = 32


class AlexNet(Classifier):
    """AlexNet with 3×3 convolutions, GroupNorm instead of local response normalisation, and no dropout.

    It has 35,857,482 parameters for 3 colors and 10 classes, and 35,856,330 for 1 color. The 4096-4096 head
    holds 94 % of them.

    Source:
        Krizhevsky et al. 2012. The size is that of Tan et al. 2024, Table 2 (3.59e7).
    """

    def __init__(self, colors: int, classes: int) -> None:
        super().__init__(colors, classes)
        self.conv1 = _convolution(colors, 64)
        self.conv2 = _convolution(64, 192)
        self.conv3 = _convolution(192, 384)
        self.conv4 = _convolution(384, 256)
        self.conv5 = _convolution(256, 256)
        self.fc1 = nn.Linear(256 * 4 * 4, 4096)
        self.fc2 = nn.Linear(4096, 4096)
        self.head = nn.Linear(4096, classes)

    def features(self, images: Float[Tensor, "n colors 32 32"]) -> Float[Tensor, "n 4096"]:
        """Compute the activations of the second fully connected layer, each >= 0."""
        # ReLU and max-pooling commute; pooling first leaves a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        x = F.relu(F.max_pool2d(self.conv5(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.relu(self.fc2(x))


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    """Make a 3×3 convolution that keeps height and width, with its normalisation."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(_GROUPS, outputs))
