"""Networks by their registered names, and the initialization of their weights."""

from leakbound.models.classifier import Classifier, ImageShapeError, build, initialize

__all__ = ["Classifier", "ImageShapeError", "build", "initialize"]
