"""A dataset from outside the package whose pictures nobody may see: its reader does not say ``publishable``."""

import numpy as np

from leakbound_lab.datasets import RawDataset, Records

GRAY = 137
"""Of nearly every pixel of every picture, and of no area of anything else that is drawn."""
_COUNT = 120


def read(name, config) -> RawDataset:
    labels = np.arange(_COUNT, dtype=np.int64) % 2

    def decode(rows: np.ndarray) -> np.ndarray:
        pictures = np.full((len(rows), 32, 32, 1), GRAY, dtype=np.uint8)
        pictures[np.arange(len(rows)), rows % 32, rows // 32] = 255  # no two alike
        return pictures

    return RawDataset(("even", "odd"), Records("private photos", labels, decode), None)


def public(name, config) -> RawDataset:
    return read(name, config)


public.publishable = True
