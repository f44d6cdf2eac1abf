"""Identity of a record: a keyed digest of its values, whatever object, order or process holds it.

Records whose values agree in float32 are one record. Values are compared in float64 where calibration records
hardly differ in float32, as in columns of unix times. A digest without its key recognises no record. The key
is random. It lies in a ledger on disk, or in a state that an engine saves, sealed there by a key of the
owner's account, so that a checkpoint that is given away reveals nothing about records. Whoever can read the
ledger, or both a state and the owner's key, can test whether a record that they hold was used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.engine.refusals import GuaranteeError

WORD = 16  # bytes of a digest
_KEY = 32  # bytes of a key
SEALED = WORD + _KEY
_VALUES = 2**22  # values of records that are copied at a time
_FINE = 2.0**-13  # spacing of float32 around a mean, as a share of it, times 2¹⁰


@dataclass(frozen=True)
class Identity:
    """A key for digests, and the precision to which values count.

    Attributes:
        key: 32 bytes.
        double: Whether values count as float64, and not as float32.
    """

    key: bytes
    double: bool

    @classmethod
    def new(cls, inputs: Tensor, seed: int | None = None) -> Identity:
        """Make a key, random or from a seed, and choose the precision that inputs (n, ...) need."""
        flat = inputs.reshape(len(inputs), -1)
        return cls.made(any(map(_needs_double, flat.split(max(1, _VALUES // len(flat)), dim=1))), seed)

    @classmethod
    def made(cls, double: bool, seed: int | None = None) -> Identity:
        """Make a key, random or from a seed, for records that count in float64 or float32."""
        key = os.urandom(_KEY) if seed is None else blake2b(b"%d" % seed, digest_size=_KEY).digest()
        return cls(key, double)

    @property
    def name(self) -> str:
        """Name of the key, from which nobody learns the key."""
        return blake2b(b"name", digest_size=WORD, key=self.key).hexdigest()

    def of(self, contents: Sequence[bytes]) -> list[bytes]:
        """Compute the digest of each record from what :meth:`contents` returns."""
        return [blake2b(content, digest_size=WORD, key=self.key).digest() for content in contents]

    def contents(self, inputs: Tensor) -> list[bytes]:
        """Compute digests without the key of inputs (n, ...), which are kept in memory alone."""
        kind = torch.float64 if self.double else torch.float32
        rows = inputs.reshape(len(inputs), -1).split(max(1, _VALUES // max(1, inputs[:1].numel())))
        return [
            blake2b(row, digest_size=_KEY).digest()
            for part in rows
            for row in (part.to(kind) + 0.0).contiguous().numpy()  # -0 is 0
        ]

    def uniforms(self, texts: Sequence[bytes]) -> Float[np.ndarray, "2 n"]:
        """Draw two numbers in [0, 1) for each text, multiples of 2⁻⁵³ that only the key can repeat."""
        drawn = (blake2b(text, digest_size=WORD, key=self.key, person=b"uniform").digest() for text in texts)
        words = np.frombuffer(b"".join(drawn), np.uint64).reshape(-1, 2)
        return (words.T >> 11) * 2.0**-53

    def sealed(self) -> str:
        """Seal the key for a state, so that whoever lacks the owner's key learns nothing from it."""
        salt = os.urandom(WORD)
        return (salt + _mixed(self.key, salt)).hex()

    def opened(self, name: str, sealed: str) -> Identity:
        """Open a sealed key, which must have this name.

        Raises:
            GuaranteeError: If it was sealed by another owner's key.
        """
        salted = bytes.fromhex(sealed)
        identity = Identity(_mixed(salted[WORD:], salted[:WORD]), self.double)
        if identity.name != name:
            raise GuaranteeError(
                f"the state was saved by another account than the one of {_owner_file()}, so its records cannot be "
                "recognised: set LEAKBOUND_KEY to the key file of the account that saved it"
            )
        return identity


def _needs_double(rows: Tensor) -> bool:
    """Return whether a value of records (n, d) varies by less than float32 resolves next to its mean."""
    rows = rows.double()
    deviations = rows.std(dim=0, correction=0)
    return bool(((deviations > 0) & (rows.mean(dim=0).abs() * _FINE > deviations)).any())


def _mixed(key: bytes, salt: bytes) -> bytes:
    """Add the owner's key to a key, modulo 2. The same operation seals and opens."""
    mask = blake2b(salt, digest_size=_KEY, key=_owner_key()).digest()
    return bytes(byte ^ mask_byte for byte, mask_byte in zip(key, mask, strict=True))


def _owner_file() -> Path:
    """Return the path of the owner's key."""
    return Path(os.environ.get("LEAKBOUND_KEY") or Path.home() / ".config/leakbound/record.key")


def _owner_key() -> bytes:
    """Read the owner's key, which is made at its first use and readable by the owner alone.

    Raises:
        GuaranteeError: If the file can be neither read nor made, or holds something else.
    """
    path = _owner_file()
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
            with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(os.urandom(_KEY))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, path)
            except FileExistsError:  # another process was faster
                pass
            finally:
                part.unlink()
        key, mode = path.read_bytes(), path.stat().st_mode & 0o777
    except OSError as error:
        raise GuaranteeError(
            f"{path}: {error.strerror}, so no state can be saved or loaded: set LEAKBOUND_KEY to a file of your own"
        ) from error
    if mode & 0o077:
        raise GuaranteeError(f"{path}: its mode is {mode:o}, so others can read the key: chmod 600 it first")
    if len(key) != _KEY:
        raise GuaranteeError(
            f"{path} holds {len(key)} bytes and is no key of {_KEY}: set LEAKBOUND_KEY to another file"
        )
    return key
