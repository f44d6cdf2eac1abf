"""VGG16 for 32×32 images: thirteen convolutions and the head of the original."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.models.classifier import Classifier

_GROUPS = 32
_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_SIDE = 7


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
