"""Readers of original images, and the disjoint splits of members, non-members and attackers."""

from leakbound.datasets.canaries import Canaries
from leakbound.datasets.records import DatasetError, RawDataset, Records, may_be_published
from leakbound.datasets.splits import Drawing, ImageDataset, Parts, Split, prepare

__all__ = [
    "Canaries",
    "DatasetError",
    "Drawing",
    "ImageDataset",
    "Parts",
    "RawDataset",
    "Records",
    "Split",
    "may_be_published",
    "prepare",
]
