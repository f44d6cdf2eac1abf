"""Larger networks for 32×32 images: AlexNet, VGG16 and ResNet10."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound_lab.models.classifier import Classifier

_GROUPS = 32
_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_SIDE = 7


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


class VGG16(Classifier):
    """VGG16 (configuration D) with GroupNorm after each convolution, and no dropout.

    It has 134,309,962 parameters for 3 colors and 10 classes, and 134,308,810 for 1 color. Five poolings
    leave one position of a 32×32 image, but the first linear layer expects 7×7 positions, as from an image of
    224×224. The one position is repeated, as torchvision's adaptive pooling does. So 100 million of the
    parameters add nothing to the function, but belong to the published count.

    Source:
        Simonyan and Zisserman 2015. The size is that of Tan et al. 2024, Table 2 (1.34e8).
    """

    def __init__(self, colors: int, classes: int) -> None:
        super().__init__(colors, classes)
        inputs = (colors, *(widths[-1] for widths in _BLOCKS))
        self.blocks = nn.ModuleList(_block(*pair) for pair in zip(inputs, _BLOCKS, strict=False))
        self.fc1 = nn.Linear(_BLOCKS[-1][-1] * _SIDE * _SIDE, 4096)
        self.fc2 = nn.Linear(4096, 4096)
        self.head = nn.Linear(4096, classes)

    def features(self, images: Float[Tensor, "n colors 32 32"]) -> Float[Tensor, "n 4096"]:
        """Compute the activations of the second fully connected layer, each >= 0."""
        x = images
        for block in self.blocks:
            x = F.max_pool2d(block(x), 2)
        x = x.expand(-1, -1, _SIDE, _SIDE).flatten(1)
        x = F.relu(self.fc1(x))
        return F.relu(self.fc2(x))


def _block(inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Make 3×3 convolutions one after another, each normalised and rectified."""
    layers: list[nn.Module] = []
    for outputs in widths:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(_GROUPS, outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers)


class ResNet10(Classifier):
    """Residual network of width 64 with one block a stage, a 3×3 stem without pooling, and GroupNorm.

    It has 4,903,242 parameters for 3 colors and 10 classes, and 4,902,090 for 1 color.

    Source:
        He et al. 2016. The size is that of Tan et al. 2024, Table 2 (4.90e6).
    """

    def __init__(self, colors: int, classes: int) -> None:
        super().__init__(colors, classes)
        self.stem = nn.Conv2d(colors, 64, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(_GROUPS, 64)
        self.blocks = nn.Sequential(_Block(64, 64), _Block(64, 128), _Block(128, 256), _Block(256, 512))
        self.head = nn.Linear(512, classes)

    def features(self, images: Float[Tensor, "n colors 32 32"]) -> Float[Tensor, "n 512"]:
        """Compute the mean activations of the last block over its 4×4 positions, each >= 0."""
        return self.blocks(F.relu(self.norm(self.stem(images)))).mean((2, 3))


class _Block(nn.Module):
    """Two 3×3 convolutions and a shortcut. A block that widens halves height and width.

    Args:
        inputs: Number of input channels.
        outputs: Number of output channels.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(_GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(_GROUPS, outputs)
        self.shortcut = (
            nn.Identity()
            if stride == 1
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.GroupNorm(_GROUPS, outputs)
            )
        )

    def forward(
        self, x: Float[Tensor, "n inputs height width"]
    ) -> Float[Tensor, "n outputs new_height new_width"]:
        """Compute the rectified sum of the convolutions and the shortcut."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))
