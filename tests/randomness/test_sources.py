"""Secure draws have no seed, so thresholds are those of a false alarm in less than one of 10⁷ runs for each test."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from leakbound.randomness import sources
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import (
    Keystream,
    SecureDraws,
    SecureNoise,
    SeededNoise,
    StackedNoise,
    as_source,
    box_muller,
    noise_source,
)

ALARM = 1e-8


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    return SecureNoise().normal((2**20,)).numpy()


def test_secure_numbers_are_standard_normal(drawn):
    assert stats.kstest(drawn[: 2**18], "norm").pvalue > ALARM


def test_the_two_numbers_of_a_pair_and_neighbours_are_independent(drawn):
    chunk = drawn[: 2**16]  # all cosines before all sines
    first, second = chunk[: 2**15], chunk[2**15 :]
    for one, other in ((first, second), (drawn[1:], drawn[:-1]), (first**2 - 1, second**2 - 1)):
        scale = math.sqrt((one**2).mean() * (other**2).mean() * len(one))
        assert abs((one * other).sum()) / scale < 7


def test_no_number_is_drawn_twice(drawn):
    assert len(np.unique(drawn)) == drawn.size


def test_numbers_beyond_those_of_one_key_repeat_none_of_its_chunks():
    several = SecureNoise().normal((2**24 + 2**16,)).numpy()
    assert not (several[2**24 :] == several[: 2**16]).any()


def column(*words: int) -> np.ndarray:
    return np.array(words, dtype=np.int64)[:, None]


def test_tails_end_beyond_thirteen_standard_deviations_and_nothing_is_infinite():
    largest, _ = box_muller(column(0, 0, 0)).tolist()
    assert largest == pytest.approx(math.sqrt(2 * 127 * math.log(2)))
    assert largest > 13
    # The lowest and highest words, and those next to them, with and without the bit that is not used.
    edges = [0, 1, 2**63 - 1, -1, -(2**63), -(2**63) + 1]
    for first in edges:
        for second in edges:
            for third in edges:
                found = box_muller(column(first, second, third))
                assert np.isfinite(found).all()
                assert (np.abs(found) < 13.3).all()


def test_secure_uniform_numbers_are_uniform_multiples_of_the_smallest_one():
    numbers = SecureNoise().uniform(2**17).numpy()
    assert numbers.dtype == np.float64
    assert (numbers * 2.0**53 % 1 == 0).all()
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert stats.kstest(numbers, "uniform").pvalue > ALARM


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 3), (70_001,), (5, 1, 2**14)])
def test_secure_numbers_come_in_every_shape(shape):
    for dtype in (torch.float32, torch.float64):
        numbers = SecureNoise().normal(shape, dtype)
        assert (tuple(numbers.shape), numbers.dtype) == (shape, dtype)
        assert numbers.isfinite().all()


def test_secure_draws_depend_on_no_seed_and_keep_no_state():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    first = noise_source("secure", 0, "run", "noise")
    one = first.normal((100,))
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    second = noise_source("secure", 0, "run", "noise")
    assert np.isin(one.numpy(), second.normal((100,)).numpy()).sum() <= 2  # by chance, in float32
    assert first.state() is None
    assert set(vars(first)) == {"device"}
    for twin in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert not torch.equal(twin.normal((100,)), first.normal((100,)))


def test_seeded_source_draws_what_its_generator_draws_and_goes_on_from_its_state():
    source, generator = noise_source("seeded", 3, "run", 0, "noise"), torch_generator(3, "run", 0, "noise")
    assert torch.equal(source.normal((40,)), torch.randn(40, generator=generator))
    assert torch.equal(source.uniform(9), torch.rand(9, generator=generator, dtype=torch.float64))
    state = source.state()
    following = source.normal((5, 2))
    other = SeededNoise(torch.Generator())
    other.restore(state)
    assert torch.equal(other.normal((5, 2)), following)


def test_states_of_one_kind_are_no_states_of_the_other():
    seeded, secure = SeededNoise(torch.Generator()), SecureNoise()
    secure.restore(None)
    with pytest.raises(ValueError, match="that of a generator"):
        secure.restore(seeded.state())
    with pytest.raises(ValueError, match="that of secure noise"):
        seeded.restore(None)


def test_a_generator_stands_for_seeded_noise_and_a_source_for_itself():
    assert not as_source(torch.Generator()).secure
    source = SecureNoise()
    assert as_source(source) is source


@pytest.mark.parametrize("origin", ["Secure", "secured", ""])
def test_misspelled_origin_never_gives_seeded_noise(origin):
    with pytest.raises(ValueError, match=f"privacy_noise = '{origin}': must be 'seeded' or 'secure'"):
        noise_source(origin, 0, "noise")


def test_secure_draws_of_numpy_have_shapes_and_laws():
    assert SecureDraws().standard_normal(7).shape == (7,)
    for numbers, law in ((SecureDraws().standard_normal((9, 99)), "norm"), (SecureDraws().random((9, 99)), "uniform")):
        assert numbers.shape == (9, 99)
        assert stats.kstest(numbers.ravel(), law).pvalue > ALARM


def test_rows_of_stacked_noise_are_what_each_source_draws_alone():
    stacked = StackedNoise([SeededNoise(torch_generator(slot)) for slot in range(3)])
    alone = [SeededNoise(torch_generator(slot)) for slot in range(3)]
    for shape in ((3, 40, 5), (3, 7), (3,)):
        drawn = stacked.normal(shape)
        for row, source in zip(drawn, alone, strict=True):
            assert torch.equal(row, source.normal(shape[1:]))
    assert torch.equal(stacked.uniform(4)[1], alone[1].uniform(4))


def test_stacked_noise_refuses_other_slots_and_sources_of_both_kinds():
    with pytest.raises(ValueError, match="asked for 2 slots"):
        StackedNoise([SeededNoise(torch_generator(slot)) for slot in range(2)]).normal((3, 4))
    with pytest.raises(ValueError, match="some sources are secure"):
        StackedNoise([SeededNoise(torch_generator(0)), SecureNoise()])


def test_stacked_secure_noise_keeps_nothing_that_repeats_it():
    stacked = StackedNoise([SecureNoise(), SecureNoise()])
    stacked.reserve(100)
    first = stacked.normal((2, 10))
    state = stacked.state()
    assert state["sources"] == [None, None]
    other = StackedNoise([SecureNoise(), SecureNoise()])
    other.restore(state)
    other.reserve(100)
    # In float32 two of so many numbers agree by chance once in thousands of runs.
    assert np.isin(other.normal((2, 60)).numpy(), stacked.normal((2, 60)).numpy()).sum() <= 2
    assert len(torch.cat([first[0], first[1]]).unique()) == 20


def test_stream_of_key_zero_is_the_published_one():
    """H, the tag and the ciphertext of AES-256-GCM in McGrew and Viega's test cases 13 and 14: counters 0, 1 and 2."""
    published = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738bcea7403d4d606b6e074ec5d3baf39d18"
    stream = bytearray(48)
    Keystream(bytes(32)).fill(stream)
    assert stream.hex() == published


def test_pieces_of_a_stream_follow_one_another():
    key = bytes(range(7, 39))
    stream, whole = Keystream(key), bytearray(2**20 + 50)
    Keystream(key).fill(whole)
    pieces = [bytearray(count) for count in (5, 0, 2**20, 45)]  # the third is longer than what is encrypted at once
    for piece in pieces:
        stream.fill(piece)
    assert b"".join(pieces) == whole


def test_one_key_gives_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(sources, "_MOST_BYTES", 100)
    stream = Keystream()
    stream.fill(bytearray(90))
    with pytest.raises(ValueError, match="11 bytes asked, 10 left: one key gives 100 bytes at most"):
        stream.fill(bytearray(11))


def test_every_call_takes_a_key_of_its_own_from_the_operating_system(keys):
    drawn = [SecureNoise().uniform(4).tolist() for _ in range(50)]
    assert len(keys) == len(set(keys)) == len(set(map(tuple, drawn))) == 50
    for key, numbers in zip(keys, drawn, strict=True):
        stream = bytearray(32)
        Keystream(key).fill(stream)
        assert numbers == [(word >> 11) / 2**53 for word in np.frombuffer(stream, np.uint64).tolist()]


FORKED = """
import os, sys
import torch
from leakbound.randomness.sources import SecureNoise

torch.set_num_threads(1)
source = SecureNoise()
source.normal((8,))
child = os.fork()
with open(sys.argv[1 if child else 2], "wb") as file:
    file.write(source.normal((4096,)).numpy().tobytes())
if child == 0:
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_forked_processes_draw_other_noise_from_the_same_source(tmp_path):
    """In a process of its own: one whose libraries have started threads, as that of the tests, may hang when forked."""
    files = [tmp_path / "parent", tmp_path / "child"]
    subprocess.run([sys.executable, "-c", FORKED, *files], check=True, timeout=300)
    own, other = (np.frombuffer(path.read_bytes()) for path in files)
    assert len(own) == len(other) == 4096
    assert not np.isin(own, other).any()
    # The sum of 4,096 products of independent normal numbers, in standard errors: false alarm below 1e-8.
    assert abs((own * other).sum()) / 64 < 6
