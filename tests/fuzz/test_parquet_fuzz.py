"""Whatever lies in the folder of images, `prepare` writes a dataset or says what is wrong with which file."""

import io
import json
import pickle
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example
from hypothesis import strategies as st
from PIL import Image

from calling import Outcome, assert_refused, called, files_in, written_to
from fuzz.tally import tried
from fuzz.values import damaged
from leakbound.cli.inputs import read_dataset

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
NAMED = {
    "info": {"features": {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b", "c"]}}}
}


def encoded(pixels: np.ndarray, kind: str = "PNG", mode: str | None = None) -> bytes:
    """Bytes of an image file."""
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, kind)
    return file.getvalue()


def claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims a size that its few bytes do not hold."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


GENERATOR = np.random.default_rng(0)
GRAY = [encoded(GENERATOR.integers(0, 256, (8, 8), dtype=np.uint8)) for _ in range(60)]
COLORED = GENERATOR.integers(0, 256, (8, 8, 3), dtype=np.uint8)
ODD_IMAGES: dict[str, Any] = {
    "none": None,
    "empty": b"",
    "text": b"no image at all",
    "cut": GRAY[0][:40],
    "RGB": encoded(COLORED),
    "palette": encoded(COLORED, mode="P"),
    "16 bit": encoded(np.full((8, 8), 40_000, dtype=np.uint16)),
    "other size": encoded(np.zeros((9, 8), dtype=np.uint8)),
    "large": encoded(np.zeros((2049, 2049), dtype=np.uint8)),
    "claims 100,000 × 100,000": claiming(100_000, 100_000),
    "claims 12,000 × 12,000": claiming(12_000, 12_000),
    "JPEG": encoded(COLORED[..., 0], "JPEG"),
    "WebP": encoded(COLORED, "WEBP"),
}
GOOD = {"JPEG"}  # gray and of the size of the others
ODD_LABELS = (-1, 3, 10**6, 2**62, None)
LABEL_KINDS: dict[str, Any] = {
    "int64": lambda labels: pa.array(labels, pa.int64()),
    "uint8": lambda labels: pa.array(labels, pa.uint8()),
    "dictionary": lambda labels: pa.array(labels, pa.int64()).dictionary_encode(),
    "float": lambda labels: pa.array([label + 0.5 for label in labels]),
    "whole float": lambda labels: pa.array(labels, pa.float64()),
    "nan": lambda labels: pa.array([float("nan")] * len(labels)),
    "text": lambda labels: pa.array([f"class {label}" for label in labels]),
    "large text": lambda labels: pa.array(["x" * 100_000] * len(labels)),
    "bool": lambda labels: pa.array([bool(label) for label in labels]),
    "null": lambda labels: pa.nulls(len(labels)),
    "list": lambda labels: pa.array([[label] for label in labels]),
    "struct": lambda labels: pa.array([{"label": label} for label in labels]),
    "date": lambda labels: pa.array(labels, pa.int32()).cast(pa.date32()),
    "decimal": lambda labels: pa.array(labels, pa.int64()).cast(pa.decimal128(20, 0)),
    "huge": lambda labels: pa.array([2**64 - 1 - label for label in labels], pa.uint64()),
    "one class": lambda labels: pa.array([0] * len(labels)),
    "binary": lambda labels: pa.array([bytes([label]) for label in labels]),
}
IMAGE_KINDS: dict[str, Any] = {
    "bytes alone": lambda images: pa.array(images, pa.binary()),
    "text": lambda images: pa.array([{"bytes": "x", "path": ""}] * len(images)),
    "no bytes": lambda images: pa.array([{"path": "x.png"}] * len(images)),
    "nested": lambda images: pa.array([{"bytes": {"bytes": image}} for image in images]),
    "list": lambda images: pa.array([[image] for image in images]),
    "pixels": lambda images: pa.array([[[0] * 8] * 8] * len(images)),
    "null": lambda images: pa.nulls(len(images)),
    "large": lambda images: pa.array([{"bytes": i} for i in images], pa.struct({"bytes": pa.large_binary()})),
    "more": lambda images: pa.array([{"bytes": image, "path": None, "more": 1} for image in images]),
    "reversed": lambda images: pa.array([{"path": "x", "bytes": image} for image in images]),
}
METADATA = (
    *(NAMED, None, {}, [], "x", {"info": 1}, {"info": {"features": {"label": 5}}}),
    {"info": {"features": {"label": {"_type": "ClassLabel", "names": 7}}}},
    {"info": {"features": {"label": {"_type": "ClassLabel", "names": "abc"}}}},
    {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a"]}}}},
    {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", None, {"b": 1}]}}}},
)
OTHER_NAMES = (("img", "label"), ("image", "labels"), ("label", "image"), ("image", "image"), ("", ""))
RAW_METADATA = (b"{", b"\xff\xfe", b"[" * 100_000, b"")


@dataclass
class Split:
    """What one file is made of."""

    images: list[Any]
    labels: list[Any]
    image_kind: str | None = None
    label_kind: str = "int64"
    metadata: bytes | None = json.dumps(NAMED).encode()
    names: tuple[str, str] = ("image", "label")
    more: dict[str, Any] = field(default_factory=dict)
    row_group: int = 1000
    odd: dict[int, str] = field(default_factory=dict)

    def table(self) -> pa.Table:
        structs = [None if image is None else {"bytes": image, "path": None} for image in self.images]
        images = IMAGE_KINDS[self.image_kind](self.images) if self.image_kind else pa.array(structs, IMAGE)
        whole = None not in self.labels and max([0, *self.labels]) < 256 and min([0, *self.labels]) >= 0
        labels = LABEL_KINDS[self.label_kind if whole else "int64"](self.labels)
        columns = [(self.names[0], images), (self.names[1], labels), *self.more.items()]
        table = pa.Table.from_arrays([array for _, array in columns], [name for name, _ in columns])
        return table.replace_schema_metadata(None if self.metadata is None else {"huggingface": self.metadata})


def good(rows: int, first: int = 0) -> Split:
    """A file as it should be."""
    return Split(GRAY[first : first + rows], [row % 3 for row in range(rows)])


@dataclass(frozen=True)
class Prepared:
    """A folder of images, and what `prepare` makes of it."""

    folder: Path
    out: Path

    def write(self, name: str, split: Split) -> None:
        pq.write_table(split.table(), self.folder / f"pets_{name}.parquet", row_group_size=split.row_group)

    def prepare(self, **config: Any) -> Outcome:
        for name in files_in(self.out):
            (self.out / name).unlink()
        given = {"dataset": "pets", "config": {"reader": "parquet", "aux": 10, **config}, "seed": 0}
        out = ["--out", self.out / "pets.safetensors", "--provenance", self.out / "pets.json"]
        return called("step", "prepare", "--settings", json.dumps(given), *out)

    def assert_written_or_named(self, outcome: Outcome, *names: str) -> bool:
        """Whether a dataset was written; if not, the message names the file and all else that it should."""
        if outcome.code == 0:
            assert written_to(self.out) == {"pets.json", "pets.safetensors"}
            assert len(read_dataset(self.out / "pets.safetensors").pool)
            return True
        assert_refused(outcome, self.out)
        for name in names:
            assert name in outcome.message
        return False


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path / "images"))
    made = Prepared(tmp_path / "images", tmp_path / "out")
    made.folder.mkdir()
    made.out.mkdir()
    return made


@st.composite
def odd_images(draw: st.DrawFn) -> Split:
    """A file of images of which some are no good."""
    split = good(draw(st.integers(22, 30)))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 5)))):
        row, kind = draw(st.integers(0, len(split.images) - 1)), draw(st.sampled_from(sorted(ODD_IMAGES)))
        split.images[row], split.odd[row] = ODD_IMAGES[kind], kind
    if draw(st.booleans()):
        row = draw(st.integers(0, len(split.images) - 1))
        split.images[row], split.odd[row] = draw(damaged((*GRAY, ODD_IMAGES["WebP"], ODD_IMAGES["JPEG"]))), "damaged"
    split.row_group = draw(st.sampled_from((1000, 7, 1)))
    return split


def test_images_that_are_none_are_named_by_file_and_row(pets):
    refused = 0

    @tried("images", odd_images(), st.sampled_from(("train", "test")))
    def check(split, where):
        nonlocal refused
        pets.write("train", split if where == "train" else good(22, 30))
        pets.write("test", split if where == "test" else good(22, 30))
        outcome = pets.prepare()
        written = pets.assert_written_or_named(outcome, f"pets_{where}.parquet")
        refused += not written
        if not written and len(split.odd) == 1:
            assert f"row {next(iter(split.odd))}" in outcome.message
        if written:
            assert set(split.odd.values()) <= GOOD | {"damaged"}

    check()
    assert refused


@st.composite
def odd_tables(draw: st.DrawFn) -> Split:
    """A file whose rows, columns or schema are not as they should be."""
    split = good(draw(st.sampled_from((0, 1, 5, 22, 22, 22, 22))))
    rows = len(split.images)
    for part in draw(st.sets(st.sampled_from(("labels", "label kind", "image kind", "names", "more", "metadata")))):
        if part == "labels" and rows:
            split.labels[draw(st.integers(0, rows - 1))] = draw(st.sampled_from(ODD_LABELS))
        elif part == "label kind":
            split.label_kind = draw(st.sampled_from(sorted(LABEL_KINDS)))
        elif part == "image kind":
            split.image_kind = draw(st.sampled_from(sorted(IMAGE_KINDS)))
        elif part == "names":
            split.names = draw(st.sampled_from(OTHER_NAMES))
        elif part == "more":
            split.more = {draw(st.sampled_from(("label", "image", "extra", "é"))): pa.array([[{"x": 1}]] * rows)}
        elif part == "metadata":
            plain = st.sampled_from(METADATA).map(lambda value: json.dumps(value).encode())
            split.metadata = draw(plain | st.sampled_from(RAW_METADATA) | st.none())
    split.row_group = draw(st.sampled_from((1000, 7)))
    return split


def test_tables_of_other_rows_columns_and_types_are_refused_by_name(pets):
    written = 0

    @tried(
        "tables",
        odd_tables(),
        st.sampled_from(("train", "test")),
        st.sampled_from(({}, {"members": 10, "test": 10}, {"members": 10**9}, {"test": 10**9}, {"aux": 10**9})),
        st.sampled_from((None, None, None, "label", "image", "bytes", "é", "extra")),
    )
    @example(good(30), "train", {}, None)  # of few odd ones all may be refused; this one is not
    def check(split, where, sizes, label):
        nonlocal written
        pets.write("train", split if where == "train" else good(22, 30))
        pets.write("test", split if where == "test" else good(22, 30))
        outcome = pets.prepare(**sizes, **({"label": label} if label else {}))
        # Whatever is asked, the message says where the images come from.
        written += pets.assert_written_or_named(outcome, "pets_")

    check()
    assert written


def parquet(split: Split, **options: Any) -> bytes:
    """A file's bytes."""
    file = pa.BufferOutputStream()
    pq.write_table(split.table(), file, **options)
    return file.getvalue().to_pybytes()


CONTENTS = (
    parquet(good(22)),
    parquet(good(22), row_group_size=7, compression="zstd", use_dictionary=False),
    parquet(good(22), version="1.0", compression="none", write_statistics=False),
)
OTHER_CONTENTS = (
    b"",
    b"PAR1",
    b"PAR1PAR1",
    b"PAR1" + b"\xff" * 40 + b"PAR1",
    b"image,label\nx,0\n",
    pickle.dumps([1, 2]),
    GRAY[0],
    b"\x00" * 1000,
    json.dumps(NAMED).encode(),
)


@tried(
    "files of images",
    content=damaged(CONTENTS) | st.sampled_from(OTHER_CONTENTS),
    where=st.sampled_from(("train", "test")),
)
def test_files_that_are_no_parquet_are_named(pets, content, where):
    for name in ("train", "test"):
        (pets.folder / f"pets_{name}.parquet").write_bytes(content if name == where else CONTENTS[0])
    pets.assert_written_or_named(pets.prepare(), f"pets_{where}.parquet")


def test_a_folder_in_the_place_of_a_file_is_named(pets):
    pets.write("test", good(22, 30))
    (pets.folder / "pets_train.parquet").mkdir()
    assert not pets.assert_written_or_named(pets.prepare(), "pets_train.parquet: there is no such file")


def test_a_file_that_links_to_itself_is_named(pets):
    pets.write("test", good(22, 30))
    (pets.folder / "pets_train.parquet").symlink_to(pets.folder / "pets_train.parquet")
    assert not pets.assert_written_or_named(pets.prepare(), "pets_train.parquet")


def test_dictionary_encoded_labels_are_read(pets):
    split = good(22)
    split.label_kind = "dictionary"
    pets.write("train", split)
    pets.write("test", good(22, 30))
    assert pets.assert_written_or_named(pets.prepare())


@pytest.mark.parametrize("claimed", ["claims 100,000 × 100,000", "claims 12,000 × 12,000", "large"])
def test_an_image_that_would_fill_the_memory_is_not_decoded(pets, claimed):
    split = good(22)
    split.images[7] = ODD_IMAGES[claimed]
    pets.write("train", split)
    pets.write("test", good(22, 30))
    assert not pets.assert_written_or_named(pets.prepare(), "pets_train.parquet: row 7: the image")
