import os
import subprocess
import sys

import numpy as np
import pytest

from leakbound.randomness.cipher import keystream


def chacha20_block(key: bytes, counter: int) -> bytes:
    """One block of the key stream with nonce 0, as RFC 8439 writes it down."""
    constants = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    words = [int.from_bytes(key[4 * index : 4 * index + 4], "little") for index in range(8)]
    state = [*constants, *words, counter, 0, 0, 0]
    working = list(state)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for first, second, third, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            working[first] = (working[first] + working[second]) & 0xFFFFFFFF
            mixed = working[third] ^ working[first]
            working[third] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter(diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4)
    return b"".join(
        ((one + other) & 0xFFFFFFFF).to_bytes(4, "little") for one, other in zip(working, state, strict=True)
    )


@pytest.fixture
def stream_of(monkeypatch):
    """The key stream of a key in place of a new one."""

    def found(key: bytes, count: int) -> bytes:
        with monkeypatch.context() as patched:
            patched.setattr(os, "urandom", lambda length: key[:length])
            return bytes(keystream(count))

    return found


def test_stream_of_key_zero_is_the_published_one(stream_of):
    """RFC 8439, Appendix A.1, test vector 1."""
    published = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert stream_of(bytes(32), 64).hex() == published


def test_stream_equals_the_cipher_written_out_block_by_block(stream_of):
    key = bytes(range(7, 39))
    blocks = b"".join(chacha20_block(key, counter) for counter in range(9))
    for count in (0, 1, 63, 64, 65, 9 * 64):
        assert stream_of(key, count) == blocks[:count]


def test_every_call_takes_a_key_of_its_own_from_the_operating_system(monkeypatch, stream_of):
    keys = []
    urandom = os.urandom

    def watched(count: int) -> bytes:
        keys.append(urandom(count))
        return keys[-1]

    monkeypatch.setattr(os, "urandom", watched)
    streams = [bytes(keystream(32)) for _ in range(50)]
    assert [len(key) for key in keys] == [32] * 50
    assert len(set(keys)) == len(set(streams)) == 50
    assert streams == [stream_of(key, 32) for key in keys]


@pytest.mark.parametrize("count", [-1, 2**32 + 1])
def test_more_than_one_key_may_give_is_refused(count):
    with pytest.raises(ValueError, match=r"one key gives 0 to 4294967296 bytes"):
        keystream(count)


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
