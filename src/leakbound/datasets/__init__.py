"""Datasets: readers of original images, and the disjoint splits that members, non-members and attackers get."""

from leakbound.datasets.records import DatasetError, RawDataset, Records, may_be_published
from leakbound.datasets.splits import ImageDataset, Split, prepare

__all__ = ["DatasetError", "ImageDataset", "RawDataset", "Records", "Split", "may_be_published", "prepare"]
