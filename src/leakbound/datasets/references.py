"""Datasets of reference networks."""

from dataclasses import replace

from leakbound.datasets.splits import ImageDataset
from leakbound.randomness.seeding import derive_seed


def reference_dataset(dataset: ImageDataset) -> ImageDataset:
    """The same records, of which replica k is what reference network k is trained on, all with their true labels.

    Draws depend on the seed, the dataset and k, and share no generator with those of any replica.
    """
    drawing = dataset.drawing
    seed = derive_seed(drawing.seed, "reference")
    return replace(dataset, drawing=replace(drawing, seed=seed, canaries=0))
