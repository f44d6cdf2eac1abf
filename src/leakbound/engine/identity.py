"""Identity of records and labels: keyed digests of values, whatever object, order or process holds them.

Records whose values agree in float32 are one record. Values are compared in float64 where calibration records
hardly differ in float32, as in columns of unix times. A digest without its key recognises no record. The key
is random. It lies in a ledger on disk, or in a state that an engine saves, sealed there by a key of the
owner's account, so that a checkpoint that is given away reveals nothing about records. Whoever can read the
ledger, or both a state and the owner's key, can test whether a record that they hold was used.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from hmac import compare_digest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound import storage
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.engine.records import is_numbers, is_whole
from leakbound.engine.refusals import GuaranteeError
from leakbound.words import owner_text

WORD = 16  # bytes of a digest
KEY = 32  # bytes of a key
SEALED = WORD + KEY
_VALUES = 2**22  # values of records that are copied at a time
_FINE = 2.0**-13  # spacing of float32 around a mean, as a share of it, times 2¹⁰
_SURE = 3.0  # standard deviations that chance does not explain
_RARE = 6  # records of one digest, public and private, that hide no others
_NOBODY = ("", "None", "nan", "NaN", "NaT", "<NA>")  # as text
_DISTINCT = 0.9  # share of different records, from which on equal ones are no coincidence
Label = tuple[int, int, float]
"""A released label: words of the record and of the label with its response, and its nats, ∞ if they are uncounted."""
UNCOUNTED = 0
VALUES = 1
"""Words of a record's labels, and of other values, that were released uncounted."""


def words(digests: Sequence[bytes]) -> Int[np.ndarray, " digests"]:
    """Return the number of each digest by which a ledger knows its record, label or owner."""
    return np.frombuffer(b"".join(digests), "<i8")[:: WORD // 8].astype(np.int64)


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
        return cls.generate(any(map(_needs_double, flat.split(max(1, _VALUES // len(flat)), dim=1))), seed)

    @classmethod
    def generate(cls, double: bool, seed: int | None = None) -> Identity:
        """Make a key, random or from a seed, for records that count in float64 or float32."""
        key = os.urandom(KEY) if seed is None else blake2b(b"%d" % seed, digest_size=KEY).digest()
        return cls(key, double)

    @property
    def name(self) -> str:
        """Name of the key, from which nobody learns the key."""
        return blake2b(b"name", digest_size=WORD, key=self.key).hexdigest()

    def digests(self, contents: Sequence[bytes]) -> list[bytes]:
        """Compute the digest of each record from what :meth:`contents` returns."""
        return [blake2b(content, digest_size=WORD, key=self.key).digest() for content in contents]

    def contents(self, inputs: Tensor) -> list[bytes]:
        """Compute digests without the key of inputs (n, ...), which are kept in memory alone."""
        kind = torch.float64 if self.double else torch.float32
        rows = inputs.reshape(len(inputs), -1).split(max(1, _VALUES // max(1, inputs[:1].numel())))
        return [
            blake2b(row, digest_size=KEY).digest()
            for part in rows
            for row in (part.to(kind) + 0.0).contiguous().numpy()  # -0 is 0
        ]

    def owners(self, names: Sequence[Any]) -> Int[np.ndarray, " records"]:
        """Compute the word of each owner, the same for each form in which files and tables hold its name.

        Whole floats are whole numbers, and these their digits, without zeros in front. Text counts without spaces
        around it, in the normal form of Unicode.

        Raises:
            GuaranteeError: If one is missing.
        """
        texts = [owner_text(name) for name in names]
        if missing := [place for place, text in enumerate(texts) if text in _NOBODY]:
            raise GuaranteeError(
                f"owner: that of record {missing[0]} is {names[missing[0]]!r}, so give each record the name or number "
                "of whom it is about, and records of nobody else one of their own"
            )
        return words(self.digests([b"owner " + text.encode() for text in texts]))

    def owner_pairs(
        self, records: Int[np.ndarray, " records"], owners: Sequence[Any] | None
    ) -> list[tuple[int, int]]:
        """Pair records with the word of the owner of each, if owners are given."""
        return (
            []
            if owners is None
            else sorted({*zip(records.tolist(), self.owners(owners).tolist(), strict=True)})
        )

    def cell_pairs(
        self, records: Int[np.ndarray, " records"], listed: Sequence[Sequence[bytes]]
    ) -> list[tuple[int, int]]:
        """Pair records with the word of each cell that they lie in."""
        lying = [
            (record, cell) for record, cells in zip(records.tolist(), listed, strict=True) for cell in cells
        ]
        hashed = words(self.digests([cell for _, cell in lying])).tolist()
        return [(record, word) for (record, _), word in zip(lying, hashed, strict=True)]

    def uniforms(self, texts: Sequence[bytes]) -> Float[np.ndarray, "2 n"]:
        """Draw two numbers in [0, 1) for each text, multiples of 2⁻⁵³ that only the key can repeat."""
        drawn = (blake2b(text, digest_size=WORD, key=self.key, person=b"uniform").digest() for text in texts)
        words = np.frombuffer(b"".join(drawn), np.uint64).reshape(-1, 2)
        return (words.T >> 11) * 2.0**-53

    def sealed_key(self) -> str:
        """Seal the key for a state, so that whoever lacks the owner's key learns nothing from it."""
        salt = os.urandom(WORD)
        return (salt + _xor_owner_key(self.key, salt)).hex()

    def of_state(self, key: Mapping[str, Any], filed: bool) -> Identity:
        """Return the identity under which a state counts: this one, or that of the sealed key in the state.

        Args:
            key: Name of the state's key, and the sealed key or None.
            filed: Whether a ledger on disk counts, so that its key alone is valid.

        Raises:
            GuaranteeError: If there is no such key, or it was sealed by another owner's key.
        """
        if key["name"] == self.name:
            return self
        if filed or key["sealed"] is None:
            raise GuaranteeError(
                "the state counts under another key than this engine: go on with the ledger that the state was saved "
                "with, or without one if there was none"
            )
        salted = bytes.fromhex(key["sealed"])
        identity = Identity(_xor_owner_key(salted[WORD:], salted[:WORD]), self.double)
        if identity.name != key["name"]:
            raise GuaranteeError(
                f"the state was saved by another account than the one of {owner_file()}, so its records cannot be "
                "recognised: set LEAKBOUND_KEY to the key file of the account that saved it"
            )
        return identity


def _needs_double(rows: Tensor) -> bool:
    """Return whether a value of records (n, d) varies by less than float32 resolves next to its mean."""
    rows = rows.double()
    deviations = rows.std(dim=0, correction=0)
    return bool(((deviations > 0) & (rows.mean(dim=0).abs() * _FINE > deviations)).any())


def _xor_owner_key(key: bytes, salt: bytes) -> bytes:
    """Add the owner's key to a key, modulo 2. The same operation seals and opens."""
    mask = blake2b(salt, digest_size=KEY, key=_owner_key()).digest()
    return bytes(byte ^ mask_byte for byte, mask_byte in zip(key, mask, strict=True))


def seal(data: bytes) -> bytes:
    """Seal data by the owner's key, so that no other account can read them."""
    salt = os.urandom(WORD)
    key = _owner_key()
    hidden = _xor_stream(data, key + salt)
    return salt + blake2b(salt + hidden, digest_size=WORD, key=key).digest() + hidden


def unseal(data: bytes) -> bytes:
    """Return the data that :func:`seal` has sealed.

    Raises:
        GuaranteeError: If another account has sealed them, or they were changed.
    """
    salt = data[:WORD]
    mark = data[WORD : 2 * WORD]
    hidden = data[2 * WORD :]
    key = _owner_key()
    if not compare_digest(mark, blake2b(salt + hidden, digest_size=WORD, key=key).digest()):
        raise GuaranteeError(
            f"what was calibrated to the records that it protects was sealed by another account than the one of "
            f"{owner_file()}: calibrate to public records to hand it on, or set LEAKBOUND_KEY to the key file of that "
            "account"
        )
    return _xor_stream(hidden, key + salt)


def _xor_stream(data: bytes, secret: bytes) -> bytes:
    """Add a stream that only the secret can repeat, modulo 2. The same operation seals and opens."""
    stream = np.frombuffer(shake_256(secret).digest(len(data)), np.uint8)
    return (np.frombuffer(data, np.uint8) ^ stream).tobytes()


def owner_file() -> Path:
    """Return the path of the owner's key."""
    return Path(os.environ.get("LEAKBOUND_KEY") or Path.home() / ".config/leakbound/record.key")


def _owner_key() -> bytes:
    """Read the owner's key, which is made at its first use and readable by the owner alone.

    Raises:
        GuaranteeError: If the file can be neither read nor made, or holds something else.
    """
    path = owner_file()
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = storage.atomic(path, sealed=False, private=True, replace=False)
            with suppress(FileExistsError), made as part:  # another process may be faster
                part.write_bytes(os.urandom(KEY))
        key = path.read_bytes()
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise GuaranteeError(
            f"{path}: {error.strerror or error}, so no state can be saved or loaded: set LEAKBOUND_KEY to a file of "
            "your own"
        ) from error
    if mode & 0o077:
        raise GuaranteeError(f"{path}: its mode is {mode:o}, so others can read the key: chmod 600 it first")
    if len(key) != KEY:
        raise GuaranteeError(
            f"{path} holds {len(key)} bytes and is no key of {KEY}: set LEAKBOUND_KEY to another file"
        )
    return key


class PublicRecords:
    """Recognise private records among the public ones that a channel was calibrated to, in any order.

    Where nearly all public records differ, a private one that equals one of them is no coincidence. Where many are
    equal, as rows of few categories are, only more equal ones than among private records are none.

    Args:
        contents: Digests of the public records without a key, equal for equal records.
        allowed_by: What allows to protect the public records themselves.

    Attributes:
        counts: Number of public records of each digest.
        repetitive: Whether many public records are equal by nature, so that one equal record proves nothing.
    """

    def __init__(self, contents: Iterable[bytes], allowed_by: str) -> None:
        self._allowed_by = allowed_by
        self.counts = Counter(contents)
        # A table that stands twice in its file repeats nothing by nature, a few records that all stand often do.
        times = math.gcd(*self.counts.values())
        different = len(self.counts) * (times if times < len(self.counts) else 1)
        self.repetitive = different < _DISTINCT * self.counts.total()

    def refuse_one(self, contents: Sequence[bytes], places: Sequence[int] | None = None) -> None:
        """Refuse any private record that equals a public one, unless these are equal by nature.

        Args:
            contents: Digests of private records.
            places: Place of each in its dataset. None if these are all of it.

        Raises:
            GuaranteeError: If there is one.
        """
        if not self.repetitive and not self.counts.keys().isdisjoint(contents):
            raise GuaranteeError(self._reason(contents, places))

    def refuse_many(self, contents: Sequence[bytes], places: Sequence[int] | None = None) -> None:
        """Refuse private records of which one equals a public one, or too many where these are equal by nature.

        Pairs of a public and a private record are as often equal as pairs of private ones, if both are from one
        distribution. Frequent records vary in number and hide others, so rare ones are also compared alone.

        Args:
            contents: Digests of all private records, or of a random sample.
            places: As in :meth:`refuse_one`.

        Raises:
            GuaranteeError: If there are.
        """
        self.refuse_one(contents, places)
        private = Counter(contents)
        of_both = self.counts + private
        for most in (_RARE, of_both.total()) if self.repetitive and len(contents) > 1 else ():
            if _excess_pairs(self.counts, private, [c for c, n in of_both.items() if n <= most]) > _SURE:
                raise GuaranteeError(self._reason(contents, places))

    def _reason(self, contents: Sequence[bytes], places: Sequence[int] | None) -> str:
        """Say what was seen, both possible reasons, and what to do."""
        at = range(len(contents)) if places is None else places
        equal = [place for place, content in zip(at, contents, strict=True) if content in self.counts]
        seen = f"record {equal[0]} equals a public one"
        if len(equal) > 1:
            seen = (
                f"{len(equal)} of {len(contents)} records equal public ones, the first is record {equal[0]}"
            )
        oftener = ", more often than they equal each other" if self.repetitive else ""
        return (
            f"{seen}{oftener}: either the channel was calibrated on records that it shall protect, and reveals their "
            "mean and covariance, or different records agree in all values: calibrate to others, leave these out of "
            f"those to protect, or allow it by {self._allowed_by}"
        )


def _excess_pairs(public: Counter[bytes], private: Counter[bytes], among: Sequence[bytes]) -> float:
    """Compute by how many standard deviations more public and private records are equal than private ones.

    Rates of equal pairs are compared. With p the probability of a record's values, their difference has the variance
    (1/N + 1/M) (E p² - (E p)²) + E p (1/NM + 2/M²) for N public and M private records of one distribution.

    Args:
        public: Number of public records of each digest.
        private: Number of private ones, more than one in all.
        among: Digests of the records that are compared.
    """
    publics = public.total()
    privates = private.total()
    records = publics + privates
    of_public = np.array([public[content] for content in among], np.float64)
    of_private = np.array([private[content] for content in among], np.float64)
    of_both = of_public + of_private
    # Unbiased estimates of E p and E p² from all records.
    pairs = float((of_both * (of_both - 1)).sum()) / (records * (records - 1))
    triples = float((of_both * (of_both - 1) * (of_both - 2)).sum())
    triples /= records * (records - 1) * max(1, records - 2)
    spread = (1 / publics + 1 / privates) * max(0.0, triples - pairs**2)
    variance = spread + pairs * (1 / (publics * privates) + 2 / privates**2)
    across = float(of_public @ of_private) / (publics * privates)
    within = float((of_private * (of_private - 1)).sum()) / (privates * (privates - 1))
    excess = across - within
    return excess / math.sqrt(variance) if variance > 0 else 0.0


class LabelCount:
    """Count the labels of the records that an engine releases, and refuse whatever else records hold.

    Args:
        classes: Number of labels, None if they are not counted.
        response: Randomized response that labels pass, once for each record. None if they are released as
            they are.

    Attributes:
        classes: As given, or those of the response.
        response: As given.
        uncounted: Places of records that are released too, whatever they hold, as their owner allowed.
        names: Name of each label, which distinguishes it from those of other columns and files. None for its number.

    Raises:
        GuaranteeError: If there is no class, or the response is for another number of them.
    """

    def __init__(self, classes: int | None, response: RandomizedResponse | None = None) -> None:
        if classes is not None and classes < 1:
            raise GuaranteeError(
                f"classes = {classes}: give the number of labels, at least 1, or leave it out"
            )
        if response is not None and classes not in (None, response.classes):
            raise GuaranteeError(
                f"classes = {classes}, and labels is a response over {response.classes} classes: leave classes out"
            )
        self.classes = response.classes if response else classes
        self.uncounted: set[str | int] = set()
        self.names: Sequence[str] | None = None
        self.response = response
        self._records = 0
        self._labels: dict[bytes, list[int]] = {}

    def check(
        self, rests: Sequence[Any], uncounted: Collection[str | int], records: int = 0
    ) -> list[list[int]]:
        """List the labels of records, and refuse records that hold more than input and labels.

        Args:
            rests: Records without their inputs.
            uncounted: Places that are allowed.
            records: Number of records of the collections that they come from. Without ``classes`` a record has
                one label below it: a larger number may say who somebody is.

        Raises:
            GuaranteeError: If there is something else than single whole numbers, or a label that ``classes``
                does not count.
        """
        self._records = max(self._records, records)
        single = None if uncounted else _single_labels(rests)
        if single is not None and all(0 <= label < (self.classes or self._records) for label in single):
            return [[label] for label in single]
        listed = []
        for rest in rests:
            allowed = _allowed_places(rest, uncounted) if uncounted else ()
            labels: list[int] = []
            for place, part in _parts(rest) or ():
                if part is not None and place not in allowed:
                    labels += _labels(part, place, "", self.classes)
            listed.append(labels)
        for labels in listed if self.classes is None else ():
            if len(labels) > 1 or any(abs(label) >= self._records for label in labels):
                raise GuaranteeError(
                    f"a record holds the whole numbers {labels}, which would be released without noise: give "
                    f"classes=K if each is a label from 0 to K - 1, which also counts them (without it a record has "
                    f"one label, below the {self._records} records), leave them out, or allow them by "
                    "protect(..., uncounted=[place]), which does not count them"
                )
        self.uncounted.update(uncounted)
        return listed

    def check_same(self, contents: Sequence[bytes], listed: Sequence[list[int]]) -> None:
        """Refuse equal records with different labels, of which one response would reveal more than counted.

        Args:
            contents: Digest of each record, without a key.
            listed: Labels of each.

        Raises:
            GuaranteeError: If there are some, in this batch or since the engine was made.
        """
        for content, labels in zip(contents, listed, strict=True) if self.response else ():
            if self._labels.setdefault(content, labels) != labels:
                raise GuaranteeError(
                    f"a record has the labels {labels} here and {self._labels[content]} elsewhere, and a response "
                    "covers one label of a record: keep one of these records, or leave labels=RandomizedResponse out"
                )

    def responses(
        self,
        rests: Sequence[Any],
        listed: Sequence[Sequence[int]],
        digests: Sequence[bytes],
        identity: Identity,
        uncounted: Collection[str | int],
    ) -> list[Any]:
        """Replace each label by its response, which is the same at every use and wherever the key is.

        Draws are a function of the key, the record, the label, its number in the record and the response, so
        that those of different responses are independent and their nats add up.

        Args:
            rests: Checked records without their inputs.
            listed: Labels of each.
            digests: Keyed digests of the records.
            identity: Key.
            uncounted: Places that stay as they are.
        """
        if self.response is None:
            return list(rests)
        clean = np.array([label for labels in listed for label in labels], dtype=np.int64)
        uniforms = identity.uniforms(self._texts(digests, listed))
        drawn = iter(self.response.randomize(clean, uniforms).tolist())
        return [_with_responses(rest, drawn, _allowed_places(rest, uncounted)) for rest in rests]

    @property
    def nats(self) -> float | None:
        """Nats that one label reveals, None if labels are not counted."""
        if self.response is not None:
            return self.response.capacity
        return None if self.classes is None else math.log(self.classes)

    def rows(
        self,
        digests: Sequence[bytes],
        listed: Sequence[Sequence[int]],
        extra: Sequence[bool],
        identity: Identity,
    ) -> list[Label]:
        """List the labels of records as a ledger counts them: each label once for each response.

        A record without one counts as if it had one, since ``classes`` says that its label is released elsewhere.
        What is not counted has a row, too, so that no later run can state what the ledger does not know.

        Args:
            digests: Keyed digests of the records.
            listed: Labels of each.
            extra: Whether other values of it are released, uncounted, as its owner allowed.
            identity: Key.
        """
        records = words(digests).tolist()
        rows = [(record, VALUES, 0.0) for record, more in zip(records, extra, strict=True) if more]
        if (nats := self.nats) is None:
            unlimited = zip(records, listed, strict=True)
            return rows + [(record, UNCOUNTED, math.inf) for record, labels in unlimited if labels]
        listed = [labels or [-1] for labels in listed]
        labelled = [record for record, labels in zip(records, listed, strict=True) for _ in labels]
        keys = words(identity.digests(self._texts(digests, listed))).tolist()
        return rows + [(record, key, nats) for record, key in zip(labelled, keys, strict=True)]

    def _texts(self, digests: Sequence[bytes], listed: Sequence[Sequence[int]]) -> list[bytes]:
        """Name each label by its record, its number in it, its value and its response."""
        name = f"{self.classes}" if self.response is None else f"{self.classes} {self.response.keep:.17g}"
        return [
            digest + f"{name} {number} {self._name(label)}".encode()
            for digest, labels in zip(digests, listed, strict=True)
            for number, label in enumerate(labels)
        ]

    def _name(self, label: int) -> str | int:
        """Return the name of a label, or its number. The missing label of a record, -1, has no name."""
        return label if self.names is None or label < 0 else self.names[label]


def _allowed_places(rest: Any, uncounted: Collection[str | int]) -> set[str | int]:
    """Return the keys or numbers of the places of a record that hold no labels."""
    fields = getattr(rest, "_fields", ())
    return {fields.index(place) if place in fields else place for place in uncounted}


def _with_responses(whole: Any, drawn: Iterator[int], kept: Collection[Any] = ()) -> Any:
    """Replace each label of a checked record by the next response, as the same type of number."""
    if whole is None:
        return None
    if (parts := _parts(whole)) is not None:
        answered = [part if place in kept else _with_responses(part, drawn) for place, part in parts]
        if isinstance(whole, Mapping):
            return dict(zip(whole, answered, strict=True))
        return type(whole)(*answered) if hasattr(whole, "_fields") else type(whole)(answered)
    if isinstance(whole, int | float):
        return type(whole)(next(drawn))
    answered = [next(drawn) for _ in range(math.prod(whole.shape))]
    if isinstance(whole, Tensor):
        return torch.tensor(answered, dtype=whole.dtype, device=whole.device).reshape(whole.shape)
    return np.array(answered, whole.dtype).reshape(whole.shape)[()]


def _single_labels(rests: Sequence[Any]) -> list[int] | None:
    """List the labels of records in the usual form, of which each has one in the same place. None for other forms."""
    if {*map(type, rests)} != {tuple} or len({*map(len, rests)}) > 1:
        return None
    columns = [column for column in zip(*rests, strict=True) if any(part is not None for part in column)]
    if len(columns) != 1 or not all(type(part) is Tensor and not part.ndim for part in columns[0]):
        return None
    labels = columns[0]
    kinds = {(label.dtype, label.device, label.layout) for label in labels}
    if len(kinds) > 1 or labels[0].layout is not torch.strided or not is_whole(labels[0]):
        return None
    return list(map(int, torch.stack(labels).tolist()))  # a truth value is a number


def _labels(part: Any, place: Any, inside: str, classes: int | None) -> list[int]:
    """List the labels in a part of a record, at a place of it and below this place."""
    if part is None:
        return []
    tensor = isinstance(part, Tensor)
    if type(part) is int or (tensor and not part.ndim and is_whole(part)):  # the usual forms
        label = int(part)
        if classes is None or 0 <= label < classes:
            return [label]
    parts = None if tensor else _parts(part)
    if parts is not None and not (isinstance(part, Sequence) and is_numbers(part)):
        inner = [_labels(value, place, f"{inside}[{at!r}]", classes) for at, value in parts]
        return [label for labels in inner for label in labels]
    return _whole_numbers(part, place, inside, classes)


def _whole_numbers(part: Any, place: Any, inside: str, classes: int | None) -> list[int]:
    """Read the labels of a part that holds numbers.

    Raises:
        GuaranteeError: If they are no whole numbers, or classes are named that do not have them.
    """
    form: Any = part if isinstance(part, Tensor) else np.asarray(part)
    single = math.prod(form.shape) == 1
    labels = form.reshape(-1).tolist() if single or len(form.shape) == 1 else []
    whole, floating = _kinds_of_numbers(form)
    countable = len(labels) > 0 and (whole or (floating and all(label.is_integer() for label in labels)))
    # One whole number, or a vector of them where classes are named, which may be floats then.
    if not countable or (classes is None and not (whole and single)):
        array = isinstance(part, Tensor | np.ndarray)
        kind = f"{form.dtype} of shape {tuple(form.shape)}" if array else f"of type {type(part).__name__}"
        counted = ", or count it by classes=K" if countable else ""
        raise GuaranteeError(
            f"place {place!r}{inside} of a record is {kind}, no label of one whole number, and would be released "
            f"without noise: leave it out{counted}, or allow it by protect(..., uncounted=[{place!r}]), which does not "
            "count it"
        )
    if classes is not None:
        _check_classes(labels, f"place {place!r}{inside}", classes)
    return [int(label) for label in labels]


def _kinds_of_numbers(form: Any) -> tuple[bool, bool]:
    """Return whether a tensor or an array holds whole numbers, and whether it holds floats."""
    if isinstance(form, Tensor):
        return is_whole(form), form.is_floating_point()
    return form.dtype.kind in "biu", form.dtype.kind == "f"


def _check_classes(labels: Sequence[float], place: str, classes: int) -> None:
    """Refuse labels that a number of classes does not count.

    Raises:
        GuaranteeError: If there is one.
    """
    for label in labels:
        if not 0 <= label < classes:
            raise GuaranteeError(
                f"{place} of a record is the label {label}: classes = {classes} counts labels from 0 to {classes - 1}, "
                "so give their real number, or leave it out if it is no label"
            )


def _parts(whole: Any) -> list[tuple[Any, Any]] | None:
    """List the names and parts of a mapping, tuple or list. None for anything else."""
    if isinstance(whole, tuple | list):
        return list(enumerate(whole))
    return list(whole.items()) if isinstance(whole, Mapping) else None
