"""Bytes that nobody can foretell: keys of the operating system, stretched by AES-256 in counter mode.

Every stream that is not given one takes a new key and forgets it. So there is no state that a checkpoint
could hold, a forked process or a restored virtual machine could repeat, or two threads could share, and
whoever reads the memory of a process later finds no key of noise that it drew before.
"""

import os

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
_MOST_BYTES = (
    2**32
)  # in 2²⁸ blocks of a cipher that repeats none: told from random ones with a probability of 2⁻⁷³
_ZEROS = bytes(2**20)


class Keystream:
    """Random bytes of one key, in pieces.

    Args:
        key: 32 bytes, which whoever knows them repeats the stream from; by default new ones of the operating
            system.

    Source:
        NIST SP 800-38A, AES-256 in counter mode from counter 0, of OpenSSL.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._encryptor = Cipher(
            algorithms.AES(os.urandom(KEY_BYTES) if key is None else key), modes.CTR(bytes(16))
        ).encryptor()
        self._left = _MOST_BYTES

    def fill(self, buffer: bytearray | memoryview) -> None:
        """Overwrite contiguous bytes with the next ones of the stream.

        Raises:
            ValueError: If one key would give more than 2³².
        """
        view = memoryview(buffer).cast("B")
        if len(view) > self._left:
            raise ValueError(
                f"{len(view)} bytes asked, {self._left} left: one key gives {_MOST_BYTES} bytes at most"
            )
        self._left -= len(view)
        for start in range(0, len(view), len(_ZEROS)):
            piece = view[start : start + len(_ZEROS)]
            self._encryptor.update_into(memoryview(_ZEROS)[: len(piece)], piece)


def keystream(count: int) -> bytearray:
    """Random bytes under a new key, independent of all others.

    Args:
        count: How many, at most 2³².

    Raises:
        ValueError: If there are too many.
    """
    if not 0 <= count <= _MOST_BYTES:
        raise ValueError(f"count = {count}: one key gives 0 to {_MOST_BYTES} bytes; ask for them in parts")
    stream = bytearray(count)
    Keystream().fill(stream)
    return stream
