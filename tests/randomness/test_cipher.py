import os
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from leakbound.randomness import sources
from leakbound.randomness.sources import Keystream, keystream


def encrypted_counters(key: bytes, count: int) -> bytes:
    """The cipher of the numbers 0, 1, ... one by one: counter mode as NIST SP 800-38A writes it down."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(encryptor.update(number.to_bytes(16, "big")) for number in range(count))


@pytest.fixture
def stream_of(monkeypatch):
    """The key stream of a key in place of a new one."""

    def found(key: bytes, count: int) -> bytes:
        with monkeypatch.context() as patched:
            patched.setattr(os, "urandom", lambda length: key[:length])
            return bytes(keystream(count))

    return found


def test_stream_of_key_zero_is_the_published_one(stream_of):
    """H, the tag and the ciphertext of AES-256-GCM in McGrew and Viega's test cases 13 and 14: counters 0, 1 and 2."""
    published = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738bcea7403d4d606b6e074ec5d3baf39d18"
    assert stream_of(bytes(32), 48).hex() == published


def test_stream_equals_the_cipher_written_out_block_by_block(stream_of):
    key = bytes(range(7, 39))
    blocks = encrypted_counters(key, 9)
    for count in (0, 1, 15, 16, 17, 9 * 16):
        assert stream_of(key, count) == blocks[:count]


def test_pieces_of_a_stream_follow_one_another():
    key = bytes(range(7, 39))
    stream, whole = Keystream(key), bytearray(2**20 + 50)
    Keystream(key).fill(whole)
    pieces = [bytearray(count) for count in (5, 0, 2**20, 45)]  # the third is longer than what is encrypted at once
    for piece in pieces:
        stream.fill(piece)
    assert b"".join(pieces) == whole
    assert whole[-2:] == encrypted_counters(key, len(whole) // 16 + 1)[len(whole) - 2 : len(whole)]


def test_one_key_gives_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(sources, "_MOST_BYTES", 100)
    stream = Keystream()
    stream.fill(bytearray(90))
    with pytest.raises(ValueError, match="11 bytes asked, 10 left: one key gives 100 bytes at most"):
        stream.fill(bytearray(11))


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
