"""ResNet10 for 32×32 images: four residual blocks."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.models.classifier import Classifier

_GROUPS = 32


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
