"""Every wrong use is refused before anything leaves, in one sentence that says what to do."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from gaussians import batches, by_record, gaussian, private
from scipy.sparse import csr_array
from torch.masked import masked_tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from leakbound import Channel, ChannelEngine, GuaranteeError, Leakage, LeakageAccountant, Reconstruction
from leakbound.channels import GaussianChannel, population_moments

PUBLIC, PRIVATE = gaussian(200), gaussian(200, 1)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(PUBLIC)


class RandomCrop:
    def __call__(self, row):
        return row


class Transformed(Dataset):
    """Records behind a transform that is named, or behind noise that is not."""

    def __init__(self, transform=None, jitter=0.0, late=0):
        self.transform, self.jitter, self.late, self.read = transform, jitter, late, 0

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.read += 1
        extra = self.jitter * np.random.default_rng(self.read).normal() if self.read > self.late else 0.0
        return torch.from_numpy(PRIVATE[index] + np.float32(extra)), index


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)


def engine_of(data=PUBLIC, target=None, **options):
    return ChannelEngine.for_data(data, target or Leakage(3.0, uses=2), **{"seed": 1, **options})


def twice(engine):
    return engine.protect(engine.protect(batches(private())))


def scaled(factor):
    return TensorDataset(factor * private().tensors[0], torch.arange(20))


def whole():
    return TensorDataset(private().tensors[0].long(), torch.arange(20))


def of_form(form):
    return engine_of().protect([(form(row), 0) for row in private().tensors[0]])


def ragged(row):
    return torch.nested.nested_tensor([row, row[:2]], layout=torch.jagged)


def tokens(places, most=30_000, kind=np.int64):
    return np.random.default_rng(0).integers(0, most, (200, places)).astype(kind)


MOMENTS = population_moments(PUBLIC)
Named = namedtuple("Named", ["pixels", "label"])
MAPPINGS = [{"pixels": row, "label": 0} for row in PUBLIC[:20]]
WRONG = {
    "uses missing": (lambda: engine_of(target=Leakage(3.0)), "give the planned uses of a record"),
    "uses of frozen": (lambda: engine_of(noise="frozen"), "leave uses out"),
    "unknown noise": (lambda: engine_of(noise="thawed"), "give 'fresh', drawn at each use, or 'frozen'"),
    "no target": (lambda: engine_of(target="300 nats"), "give Capacity"),
    "half a use": (lambda: engine_of(target=Leakage(3.0, uses=0)), "give a whole number of at least 1"),
    "error of guessing": (lambda: engine_of(target=Reconstruction(1e6, uses=1)), "ask for less than that"),
    "one public record": (lambda: engine_of(PUBLIC[:1]), "give at least two"),
    "equal public records": (lambda: engine_of(np.ones((5, 4), np.float32)), "give other data"),
    "public nan": (lambda: engine_of(np.full((5, 4), np.nan, np.float32)), "clean the calibration data"),
    "public outside of the range": (lambda: engine_of(value_range=(0.0, 1.0)), "widen it"),
    "too many values": (lambda: engine_of(np.zeros((2, 786_433), np.float32)), "make it smaller"),
    "public of two shapes": (lambda: engine_of([np.zeros(4), np.zeros(5)]), "bring all to one before the channel"),
    "text": (lambda: engine_of(["a", "b"]), "give `key`, the place of the input"),
    "sparse": (lambda: of_form(torch.Tensor.to_sparse), "is sparse (torch.sparse_coo), and noise leaves no value 0"),
    "sparse rows": (lambda: engine_of(torch.from_numpy(PUBLIC).to_sparse()), "give it as a dense one, to_dense()"),
    "of SciPy": (lambda: engine_of(csr_array(PUBLIC)), "is sparse (csr_array), and noise leaves no value 0"),
    "rows of SciPy": (lambda: of_form(lambda row: csr_array(row[None])), "give it as a dense one, toarray()"),
    "nested": (
        lambda: of_form(lambda row: torch.nested.nested_tensor([row, row[:2]], layout=torch.jagged)),
        "give records of one shape",
    ),
    "without values": (lambda: of_form(lambda row: row.to("meta")), "load the data first"),
    "masked": (lambda: of_form(lambda row: masked_tensor(row, row > 0)), "give filled ones, e.g. to_tensor(0)"),
    "masked by NumPy": (lambda: engine_of(np.ma.masked_less(PUBLIC, 0)), "give filled ones, e.g. filled(0)"),
    "complex": (lambda: of_form(lambda row: row + 1j), "give their real and imaginary parts"),
    "token ids": (lambda: engine_of(tokens(16)), "embed them first and protect the vectors"),
    "fewer token ids": (lambda: engine_of(torch.from_numpy(tokens(8, 300, np.uint16))), "give them as floats"),
    "stream": (lambda: engine_of().protect(DataLoader(Stream())), "use a map-style dataset"),
    "no batches": (lambda: engine_of().protect(DataLoader(private(), batch_size=None)), "let the DataLoader"),
    "protected twice": (lambda: twice(engine_of()), "protect the one that reads clean records"),
    "another shape": (lambda: engine_of().protect(TensorDataset(torch.zeros(9, 5))), "bring both into one form"),
    "another kind": (lambda: engine_of().protect(whole()), "convert and scale both alike"),
    "another range": (lambda: engine_of().protect(scaled(255)), "scale the data as the calibration data were"),
    "augmentation": (lambda: engine_of().protect(Transformed(Compose(RandomCrop()))), "RandomCrop acts before the"),
    "unnamed augmentation": (lambda: engine_of().protect(Transformed(jitter=0.1)), "move it behind the channel"),
    "own records": (
        lambda: self_calibrated(),
        "calibrate to others, leave these out of those to protect, or allow it by calibrate_to_own=True",
    ),
    "no key": (lambda: engine_of().protect(MAPPINGS), "has the keys 'pixels', 'label': give one as key, not None"),
    "no such place": (lambda: engine_of().protect(private(), key=2), "give key as 0 to 1, not 2"),
    "no classes": (lambda: engine_of(classes=0), "or leave it out"),
    "no such field": (lambda: engine_of().protect([Named(PUBLIC[0], 1)], key="x"), "has the fields pixels, label"),
    "no places": (lambda: engine_of().protect(list(PUBLIC), key=1), "leave key out"),
    "account of no classes": (lambda: LeakageAccountant(MOMENTS).add_labels(0), "at least 1"),
    "no records": (lambda: engine_of().protect([]), "give it some"),
    "an autoencoder": (lambda: engine_of().protect(TensorDataset(*private().tensors[:1] * 2)), "leave it out"),
    "too few classes": (lambda: engine_of(classes=2).protect([(PRIVATE[0], 2)] * 9), "so give their real number"),
    "clean records": (lambda: engine_of().protect(batches(private())).dataset[0], "iterate over the loader"),
    "other features": (lambda: Channel(auxiliary=PUBLIC[:, :2]).fit(PUBLIC), "give rows of 4 features"),
    "sparse features": (lambda: Channel(auxiliary=PUBLIC).fit(csr_array(PRIVATE)), "dense one, toarray()"),
    "sparse public rows": (lambda: Channel(auxiliary=csr_array(PUBLIC)).fit(PRIVATE), "dense one, toarray()"),
    "masked features": (lambda: Channel(auxiliary=PUBLIC).fit(np.ma.masked_less(PRIVATE, 0)), "filled(0)"),
    "masked public rows": (lambda: Channel(auxiliary=np.ma.masked_less(PUBLIC, 0)).fit(PRIVATE), "filled(0)"),
    "account of no records": (lambda: LeakageAccountant(MOMENTS, 0), "give the number of records"),
    "uses of other records": (lambda: account_of(np.array([1, 2])), "or one for each of 3 records"),
    "parts of a use": (lambda: account_of(np.array([0.5, -1.0, 1.0])), "give one whole number >= 0"),
    "account of another width": (lambda: account_of(1, width=5), "account for each kind of records"),
    "neither": (lambda: LeakageAccountant(MOMENTS).add_labels(), "give the number of classes, or nats"),
    "nats below 0": (lambda: LeakageAccountant(MOMENTS).add_labels(nats=-1.0), "finite and at least 0"),
}


def account_of(uses, width=4, **options):
    LeakageAccountant(MOMENTS, 3).add(GaussianChannel("c", 1.0, np.ones(width)), uses, **options)


def self_calibrated():
    base = private(60)
    engine = engine_of(Subset(base, range(30)))
    engine.protect(Subset(base, range(30, 60)))  # others of the same collection may be protected
    return engine.protect(Subset(base, range(29, 60)))


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused_in_one_sentence_that_says_what_to_do(name):
    wrong, told = WRONG[name]
    with pytest.raises(GuaranteeError) as caught:
        wrong()
    text = str(caught.value)
    assert told in text
    assert "\n" not in text
    assert not text.endswith(".")
    assert ". " not in text.replace("e.g. ", "")
    assert len(text) < 400


@pytest.mark.parametrize(
    "records",
    [
        tokens(7),  # too few places
        tokens(64, 250),  # pixels of digits
        tokens(64, kind=np.float32),
        tokens(64) - 1,
        tokens(64).reshape(200, 1, 8, 8),  # pictures of 16 bits
        tokens(64) // np.logspace(0, 4, 64).astype(int),  # counts of different sizes
    ],
)
def test_whole_numbers_that_are_measurements_are_taken(records):
    engine_of(records)


def test_augmentation_that_hides_at_first_is_caught_at_the_second_use():
    engine = engine_of(value_range=(-50, 50))
    data = engine.protect(Transformed(jitter=1.0, late=1 + 9 + 20))
    data.__getitems__(list(range(20)))
    with pytest.raises(GuaranteeError, match="other values than at its first use"):
        data[7]
    assert engine.uses["train"].tolist() == [1] * 20


def test_a_bad_record_refuses_its_whole_batch():
    rows = torch.from_numpy(PRIVATE.copy())
    rows[17, 2] = np.nan
    rows[18] *= 1000
    engine = engine_of()
    data = engine.protect(TensorDataset(rows, torch.arange(len(rows))))
    for bad, told in ((17, "holds NaN or infinity"), (18, "leave the range")):
        with pytest.raises(GuaranteeError, match=told):
            data.__getitems__([0, bad])
    assert engine.uses["train"].sum() == 0


@pytest.mark.parametrize("shape", ["white", "least_power", "rate_distortion", "natural"])
def test_directions_in_which_no_public_record_varies_are_refused_where_noise_follows_the_data(shape):
    flat, own = PUBLIC.copy(), PRIVATE[:30].copy()
    flat[:, 3], own[:, 3] = flat[:, 0], own[:, 0]
    engine = engine_of(flat, shape=shape, value_range=(-50.0, 50.0))
    rows = torch.from_numpy(own)
    data = engine.protect(TensorDataset(rows, torch.arange(30)))
    rows[29, 3] += 0.5  # before, protect would have refused it
    data.__getitems__(list(range(29)))
    if shape in ("natural", "rate_distortion"):  # noise in all directions, or nothing passes
        data[29]
    else:
        with pytest.raises(GuaranteeError, match="take shape='natural'"):
            data[29]
        assert engine.uses["train"][29] == 0


def test_a_dataset_in_a_worker_is_refused():
    data = engine_of().protect(private())
    with pytest.raises(GuaranteeError, match="protect the DataLoader instead of its dataset"):
        next(iter(DataLoader(data, num_workers=1)))
    assert len(by_record(DataLoader(data, batch_size=5))) == 20


def test_a_batch_of_two_shapes_is_refused():
    data = engine_of(value_range=(-50, 50)).protect([PRIVATE[0], PRIVATE[1], PRIVATE[2, :3]])
    with pytest.raises(GuaranteeError, match=r"has the shape \(3,\)"):
        data.__getitems__([0, 2])
