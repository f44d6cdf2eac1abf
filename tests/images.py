"""Datasets that tests make of images of their own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from leakbound_lab.datasets import Drawing, ImageDataset, Split


def gathered(
    pool: Split,
    *,
    members: int,
    validation: int,
    test: Split | None = None,
    aux: Split | None = None,
    name: str = "made",
    classes: tuple[str, ...] = tuple("0123456789"),
    seed: int = 0,
    stratified: bool = True,
    secret: str = "",
    canaries: int = 0,
) -> ImageDataset:
    """Dataset whose replicas draw from a pool; the pool is its test and auxiliary split too unless others are given."""
    drawing = Drawing(members, validation, seed, stratified, canaries)
    return ImageDataset(name, classes, pool, test or pool, aux or pool, drawing, secret)


def repooled(dataset: ImageDataset, images: np.ndarray | None = None, labels: np.ndarray | None = None) -> ImageDataset:
    """The dataset with other images or labels in its pool; its replicas draw the same rows if the labels stay."""
    pool = Split(dataset.pool.images if images is None else images, dataset.pool.labels if labels is None else labels)
    return replace(dataset, pool=pool)


def class_folders(folder: Path, classes: tuple[str, ...], count: int, shape: tuple[int, ...], seed: int = 0) -> Path:
    """Write random pictures into a folder for each class, and return the folder of them all."""
    generator = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(0, 256, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder
