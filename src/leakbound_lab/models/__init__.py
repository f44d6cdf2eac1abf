"""Networks by their registered names, and the initialization of their weights."""

from leakbound_lab.models.classifier import Classifier, ImageShapeError, build, initialize

__all__ = ["Classifier", "ImageShapeError", "build", "initialize"]
