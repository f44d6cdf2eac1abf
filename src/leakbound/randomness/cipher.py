"""Unpredictable bytes: keys of the operating system, stretched by AES-256 in counter mode.

By default every stream takes a new key and discards it at the end. There is no state that a checkpoint could
hold, that a forked process or a restored virtual machine could repeat, or that two threads could share. The
memory of a process holds no key of noise that it drew earlier.
"""

import os

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
# In 2²⁸ blocks, of which the cipher repeats none. They are distinguished from random ones with an advantage of 2⁻⁷³.
_MOST_BYTES = 2**32
_ZEROS = bytes(2**20)


class Keystream:
    """Random bytes of one key, in pieces.

    Args:
        key: 32 bytes, from which the stream can be repeated. By default new ones from the operating system.

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
            ValueError: If more than 2³² bytes would be drawn under one key.
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
    """Draw random bytes under a new key, independent of all others.

    Args:
        count: Number of bytes, at most 2³².

    Raises:
        ValueError: If ``count`` is out of range.
    """
    if not 0 <= count <= _MOST_BYTES:
        raise ValueError(f"count = {count}: one key gives 0 to {_MOST_BYTES} bytes; ask for them in parts")
    stream = bytearray(count)
    Keystream().fill(stream)
    return stream
