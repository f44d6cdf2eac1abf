"""Loaders stay as they were but for the noise: any form of record, collate functions, samplers, transforms behind."""

from collections import namedtuple

import datasets
import numpy as np
import pytest
import torch
from gaussians import RANGE, batches, gaussian, private
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler, default_collate

from leakbound import Capacity, ChannelEngine, GuaranteeError, Leakage

PUBLIC, ROWS = gaussian(200), gaussian(12, 4)
Named = namedtuple("Named", ["label", "pixels"])
FORMS = {
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


def test_all_attributes_of_the_loader_can_be_read(engine):
    options = {"num_workers": 1, "drop_last": True, "timeout": 7, "prefetch_factor": 3, "persistent_workers": True}
    loader = batches(private(), pin_memory=False, **options)
    protected = engine.protect(loader)
    left_out = {"dataset", "check_worker_number_rationality", "multiprocessing_context"}
    names = {name for name in dir(loader) if not name.startswith("_")} - left_out
    assert {"batch_size", "collate_fn", "generator", "pin_memory", "sampler"} <= names
    for name in sorted(names):
        assert getattr(protected, name) == getattr(loader, name), name
    with pytest.raises(AttributeError, match="before protect"):
        protected.num_workers = 0


def test_datasets_of_hugging_face_are_read_by_column():
    pixels = np.random.default_rng(0).integers(0, 256, size=(90, 4, 4), dtype=np.uint8)
    columns = {"image": [Image.fromarray(one) for one in pixels], "label": [1] * 90}
    given = datasets.Dataset.from_dict(columns)
    engine = engine_of(given.select(range(60)), key="image")
    loader = engine.protect(DataLoader(given.select(range(60, 90)), batch_size=30))
    batch = next(iter(loader))
    torch.testing.assert_close(batch["image"], noisy_bytes(engine_of(pixels[:60]), pixels[60:]))
    assert batch["label"].tolist() == [1] * 30


def test_hugging_face_records_are_counted_through_select_shuffle_and_map():
    """They are recognised by their values, whichever object, order or copy on disk holds them."""
    columns = {"x": gaussian(20, 1).tolist(), "label": [*range(20)]}
    kinds = {"x": datasets.List(datasets.Value("float32")), "label": datasets.Value("int64")}
    whole = datasets.Dataset.from_dict(columns, datasets.Features(kinds))
    engine = ChannelEngine.for_data(gaussian(400), Leakage(3.0, uses=3), seed=5, value_range=RANGE)
    parts = {
        "train": whole,
        "part": whole.select(range(5, 15)).shuffle(seed=2),
        "same": whole.map(lambda one: {"label": one["label"] + 0}),
    }
    for name, part in parts.items():
        protected = engine.protect(part, name=name, key="x")
        labels = [protected[index]["label"] for index in range(len(part))]
        assert labels == part["label"][:]
    assert engine.uses["train"].tolist() == [2] * 5 + [3] * 10 + [2] * 5
    assert engine.uses["part"].tolist() == [3] * 10
    assert engine.leakage().dataset == pytest.approx(10 * 3.0 + 10 * engine.calibration.information(2))
    noisy = whole.with_transform(lambda rows: rows | {"x": np.asarray(rows["x"]) + np.random.default_rng().normal()})
    with pytest.raises(GuaranteeError, match="move it behind the channel"):
        engine.protect(noisy, name="random", key="x")


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_an_empty_batch_of_a_poisson_sample_stays_empty(noise):
    engine = ChannelEngine.for_data(gaussian(400), Capacity(3.0), noise=noise, value_range=RANGE)
    loader = DataLoader(private(), batch_sampler=[[0, 1], [], [2]], collate_fn=list)
    assert [len(batch) for batch in engine.protect(loader)] == [2, 0, 1]
    assert engine.uses["train"].sum() == 3


def test_several_protected_loaders_are_protected_and_a_clean_one_among_them_is_not():
    engine = engine_of()
    clean = DataLoader(private(), batch_size=4)
    first, second = engine.protect(clean), engine.protect(batches(private()))
    for both in ({"a": first, "b": second}, [first, second], (first, {"c": [second]})):
        assert engine.protects(both)
    for mixed in ({"a": first, "b": clean}, [], clean, engine_of().protect(clean)):
        assert not engine.protects(mixed)


WHOLE = torch.from_numpy(np.random.default_rng(5).integers(0, 16, (60, 4)))
TENSORS = {
    "uint16": (torch.int64, lambda rows: rows.to(torch.uint16)),
    "uint32": (torch.int64, lambda rows: rows.to(torch.uint32)),
    "uint64": (torch.int64, lambda rows: rows.to(torch.uint64)),
    "int8": (torch.int64, lambda rows: rows.to(torch.int8)),
    "float8": (torch.float32, lambda rows: rows.to(torch.float8_e4m3fn)),
    "bfloat16": (torch.float32, lambda rows: rows.to(torch.bfloat16)),
    "float64": (torch.float32, lambda rows: rows.double()),
    "columns first": (torch.float32, lambda rows: rows.float().T.contiguous().T),
    "parameters": (torch.float32, lambda rows: torch.nn.Parameter(rows.float())),
    "conjugate": (torch.float32, lambda rows: torch.complex(rows.float(), -rows.float()).conj().imag),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_record_is_the_same_in_whatever_kind_of_tensor_it_lies(name):
    kind, form = TENSORS[name]
    released = []
    for rows in (WHOLE.to(kind), form(WHOLE)):
        data = engine_of(rows[20:]).protect(TensorDataset(rows[:20], torch.arange(20)))
        released.append(next(iter(DataLoader(data, batch_size=20)))[0])
    assert torch.equal(*released)
