"""Bytes that nobody can foretell: keys of the operating system, stretched by ChaCha20.

Every call takes a new key and forgets it. So there is no state that a checkpoint could hold, a forked process or a
restored virtual machine could repeat, or two threads could share, and whoever reads the memory of a process later finds
no key of noise that it drew before.
"""

import os

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

KEY_BYTES = 32
_MOST_BYTES = 2**32  # far below the 2³⁸ after which the cipher's block counter would repeat


def keystream(count: int) -> bytearray:
    """Random bytes, independent of all others.

    Args:
        count: How many, at most 2³².

    Raises:
        ValueError: If there are too many.

    Source:
        RFC 8439, ChaCha20 with nonce and block counter 0, of OpenSSL.
    """
    if not 0 <= count <= _MOST_BYTES:
        raise ValueError(f"count = {count}: one key gives 0 to {_MOST_BYTES} bytes; ask for them in parts")
    cipher = Cipher(algorithms.ChaCha20(os.urandom(KEY_BYTES), bytes(16)), mode=None)
    stream = bytearray(count)
    cipher.encryptor().update_into(bytes(count), stream)
    return stream
