"""Real images: the spectra that Tan et al. (2024) print, and what is known of each dataset."""

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, eigsh

from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError, prepare


def leading_eigenvalues(images: np.ndarray, count: int) -> np.ndarray:
    flat = images.reshape(len(images), -1)
    flat = flat - flat.mean(axis=0)
    size = flat.shape[1]
    product = LinearOperator((size, size), lambda v: flat.T @ (flat @ v.ravel().astype(np.float32)), dtype=np.float64)
    return eigsh(product, k=count, tol=1e-6, return_eigenvectors=False)[::-1] / len(images)


@pytest.mark.parametrize(
    ("name", "pool", "measured", "printed"),
    [
        ("cifar10", 10_000, (221.45, 85.71, 9.98), (222.21, 85.08, 9.91)),
        ("fashion_mnist", 10_000, (101.79, 61.69, 3.20), (101.88, 61.80, 3.21)),
    ],
)
def test_the_leading_eigenvalues_are_the_papers(image_folder, name, pool, measured, printed):
    # The paper has all training images, here is a sample: a tolerance of 4 % is about twice the largest sampling error.
    dataset = prepare(name, DatasetConfig(pool=pool, test=10, aux=10), seed=0)
    found = leading_eigenvalues(dataset.pool.images, 11)[[0, 1, 10]]
    assert found == pytest.approx(measured, rel=0.04)
    assert found == pytest.approx(printed, rel=0.04)


@pytest.mark.parametrize(
    ("name", "colors", "first", "classes", "available"),
    [
        ("mnist", 1, "0", 10, 60_000),
        ("fashion_mnist", 1, "T-shirt/top", 10, 60_000),
        ("cifar10", 3, "airplane", 10, 50_000),
        ("svhn", 3, "0", 10, 9_083),
        ("celeba", 3, "not_smiling", 2, 8_000),
    ],
)
def test_each_dataset_has_its_colors_classes_and_size(image_folder, name, colors, first, classes, available):
    dataset = prepare(name, DatasetConfig(pool=40, test=20, aux=20), seed=0)
    assert (dataset.colors, len(dataset.classes), dataset.classes[0]) == (colors, classes, first)
    assert set(np.unique(dataset.pool.labels)) == set(range(classes))
    images = np.concatenate([dataset.pool.images, dataset.aux.images, dataset.test.images])
    assert len(np.unique(images.reshape(80, -1), axis=0)) == 80
    with pytest.raises(DatasetError, match=f"only {available} images"):
        prepare(name, DatasetConfig(pool=available, aux=10), seed=0)


def test_faces_can_be_labelled_by_any_attribute(image_folder):
    dataset = prepare("faces", DatasetConfig(reader="celeba", label="Male", pool=500, test=100, aux=20), seed=0)
    assert dataset.classes == ("not_male", "male")
    assert 0.3 < dataset.pool.labels.mean() < 0.5


def test_faces_cannot_be_labelled_by_who_they_are(image_folder):
    with pytest.raises(DatasetError, match=r"column 'identity' has labels up to \d+ but never 0"):
        prepare("celeba", DatasetConfig(label="identity"), seed=0)
