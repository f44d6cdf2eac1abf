"""Loaders stay as they were but for the noise: any form of record, collate functions, samplers, transforms behind."""

from collections import namedtuple

import datasets
import numpy as np
import pytest
import torch
from gaussians import RANGE, gaussian, private
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler, default_collate

from leakbound import Capacity, ChannelEngine

PUBLIC, ROWS = gaussian(200), gaussian(12, 4)
Named = namedtuple("Named", ["label", "pixels"])
FORMS = {
    "input alone": ([*ROWS], None, lambda batch: batch),
    "tensor": ([*torch.from_numpy(ROWS)], None, lambda batch: batch),
    "tuple": ([(row, 3) for row in ROWS], None, lambda batch: batch[0]),
    "list": ([[row, 3] for row in ROWS], 0, lambda batch: batch[0]),
    "last place": ([(3, row) for row in ROWS], 1, lambda batch: batch[1]),
    "mapping": ([{"label": 3, "pixels": row} for row in ROWS], "pixels", lambda batch: batch["pixels"]),
    "field": ([Named(3, row) for row in ROWS], "pixels", lambda batch: batch.pixels),
    "numbers": ([(row.tolist(), 3) for row in ROWS], None, lambda batch: batch[0]),
}


def engine_of(data=PUBLIC, target=None, **options):
    return ChannelEngine.for_data(data, target or Capacity(20.0), seed=1, **options)


def noisy_bytes(engine, pixels):
    """The same pixels through an engine, from memory."""
    return next(iter(engine.protect(DataLoader(TensorDataset(torch.from_numpy(pixels)), batch_size=len(pixels)))))[0]


@pytest.mark.parametrize("form", FORMS)
def test_records_of_any_form_keep_it(form):
    records, key, inputs = FORMS[form]
    loader = engine_of(value_range=RANGE).protect(DataLoader(records, batch_size=12), key=key)
    (batch,), (clean,) = list(loader), list(DataLoader(records, batch_size=12))
    assert type(batch) is type(clean)
    reference = engine_of(value_range=RANGE).protect(DataLoader([*ROWS], batch_size=12))
    torch.testing.assert_close(inputs(batch), next(iter(reference)))
    assert (inputs(batch) - torch.from_numpy(ROWS)).abs().max() > 0.01
    if len(batch) == 2:
        labels = batch["label"] if isinstance(batch, dict) else next(one for one in batch if one.ndim == 1)
        assert labels.tolist() == [3] * 12


@pytest.mark.parametrize("shape", [(3, 4, 2), (4, 2, 3), (24,), (4, 6)])
def test_inputs_keep_their_shape_and_order_of_axes(shape):
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(90, 24)) * np.linspace(0.1, 5, 24)
    public, rows = flat[:60].reshape(-1, *shape), flat[60:].reshape(-1, *shape)
    engine = engine_of(public, Capacity(1.0), shape="white", value_range=RANGE)
    noise = next(iter(engine.protect(DataLoader(list(rows), batch_size=30)))) - torch.from_numpy(rows)
    assert noise.shape == (30, *shape)
    reference = engine_of(flat[:60], Capacity(1.0), shape="white", value_range=RANGE)
    other = next(iter(reference.protect(DataLoader(list(flat[60:]), batch_size=30)))) - torch.from_numpy(flat[60:])
    torch.testing.assert_close(noise.reshape(30, 24), other, rtol=1e-5, atol=1e-4)


def test_pictures_are_their_bytes():
    pixels = np.random.default_rng(0).integers(0, 256, size=(80, 4, 4, 3), dtype=np.uint8)
    pictures = [(Image.fromarray(one), 0) for one in pixels]
    engine = engine_of(pixels[:60])
    noisy, _ = next(iter(engine.protect(DataLoader(pictures[60:], batch_size=20))))
    assert noisy.shape == (20, 4, 4, 3)
    torch.testing.assert_close(noisy, noisy_bytes(engine_of(pixels[:60]), pixels[60:]))


def test_collate_functions_and_transforms_see_noisy_records_alone():
    seen = []

    def mixed(records):
        seen.extend(row for row, _ in records)
        inputs, labels = default_collate(records)
        return inputs + inputs.flip(0), labels

    engine = engine_of(value_range=RANGE)
    loader = DataLoader(private(), batch_size=10, collate_fn=mixed, num_workers=1)
    batches = [inputs for inputs, _ in engine.protect(loader, after=lambda row: row * 0.5)]
    noisy = torch.stack(seen)
    plain = engine_of(value_range=RANGE).protect(DataLoader(private(), batch_size=20))
    torch.testing.assert_close(noisy, 0.5 * next(iter(plain))[0])
    torch.testing.assert_close(torch.cat(batches), torch.cat([part + part.flip(0) for part in noisy.split(10)]))


def test_samplers_and_lengths_stay():
    sampler = WeightedRandomSampler([1.0] * 10 + [0.0] * 10, 40, generator=torch.Generator().manual_seed(0))
    engine = engine_of(value_range=RANGE)
    loader = engine.protect(DataLoader(private(), batch_size=7, sampler=sampler, drop_last=True))
    assert (len(loader), len(loader.dataset), loader.batch_size) == (5, 20, 7)
    assert loader.sampler is sampler
    drawn = torch.cat([labels for _, labels in loader])
    assert engine.uses["train"].tolist() == drawn.bincount(minlength=20).tolist()
    assert engine.leakage().uses == int(drawn.bincount().max()) > 1


@pytest.mark.parametrize("column", ["image", "array"])
def test_datasets_of_hugging_face_are_read_by_column(column):
    pixels = np.random.default_rng(0).integers(0, 256, size=(90, 4, 4), dtype=np.uint8)
    if column == "image":
        given = datasets.Dataset.from_dict(
            {"image": [Image.fromarray(one) for one in pixels], "label": [1] * 90},
            features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
        )
    else:
        given = datasets.Dataset.from_dict({"array": pixels.tolist(), "label": [1] * 90})
    engine = engine_of(given.select(range(60)), key=column)
    loader = engine.protect(DataLoader(given.select(range(60, 90)), batch_size=30))
    batch = next(iter(loader))
    torch.testing.assert_close(batch[column], noisy_bytes(engine_of(pixels[:60]), pixels[60:]))
    assert batch["label"].tolist() == [1] * 30


def test_a_protected_dataset_can_be_given_to_other_loaders():
    engine = engine_of(value_range=RANGE)
    data = engine.protect(private())
    inputs, labels = next(iter(DataLoader(data, batch_size=20)))
    loader = engine_of(value_range=RANGE).protect(DataLoader(private(), batch_size=20))
    torch.testing.assert_close(inputs, next(iter(loader))[0])
    assert labels.tolist() == list(range(20))
    assert engine.uses["train"].tolist() == [1] * 20
