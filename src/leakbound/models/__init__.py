"""Networks, found by name, and how their weights are drawn."""

from leakbound.models.classifier import Classifier, ImageShapeError, build
from leakbound.models.initialization import initialize

__all__ = ["Classifier", "ImageShapeError", "build", "initialize"]
