"""Whatever lies in the folder of images, `prepare` writes a dataset or says what is wrong with which file."""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from calling import assert_refused, files_in, step_called, written_to
from fuzz.tally import tried
from fuzz.values import damaged
from leakbound.records.collection import png
from leakbound_lab.steps.inputs import read_dataset

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


PIXELS = np.random.default_rng(0).integers(0, 256, (52, 1, 8, 8), dtype=np.uint8)
GRAY = [{"bytes": png(picture), "path": None} for picture in PIXELS]


def described(names: Any) -> bytes:
    """What the Hugging Face library writes of a column of labels."""
    label = {"_type": "ClassLabel", "names": names}
    return json.dumps({"info": {"features": {"image": {"_type": "Image"}, "label": label}}}).encode()


def table(images: list, labels: Any = None, metadata: bytes = described(["a", "b", "c"])) -> pa.Table:
    """Rows of a file as it should be, or with other labels or another description of them."""
    labels = [row % 3 for row in range(len(images))] if labels is None else labels
    made = pa.table({"image": pa.array(images, IMAGE), "label": labels})
    return made.replace_schema_metadata({"huggingface": metadata})


def parquet(**options: Any) -> bytes:
    """The bytes of a file as it should be."""
    file = pa.BufferOutputStream()
    pq.write_table(table(GRAY[:22]), file, **options)
    return file.getvalue().to_pybytes()


CONTENTS = (
    parquet(),
    parquet(row_group_size=7, compression="zstd", use_dictionary=False),
    parquet(version="1.0", compression="none", write_statistics=False),
)


@dataclass(frozen=True)
class Prepared:
    """A folder of images, and what `prepare` makes of it."""

    folder: Path
    out: Path

    def write(self, split: str, content: bytes | pa.Table) -> None:
        path = self.folder / f"pets_{split}.parquet"
        path.write_bytes(content) if isinstance(content, bytes) else pq.write_table(content, path)

    def assert_written_or_named(self, name: str) -> None:
        """A dataset is written, or the message names the file."""
        for file in files_in(self.out):
            (self.out / file).unlink()
        given = {"dataset": "pets", "config": {"reader": "parquet", "aux": 10}, "seed": 0}
        files = {"out": self.out / "pets.safetensors", "provenance": self.out / "pets.json"}
        outcome = step_called("prepare", given, files)
        if outcome.code == 0:
            assert written_to(self.out) == {"pets.json", "pets.safetensors"}
            assert len(read_dataset(self.out / "pets.safetensors").pool)
        else:
            assert_refused(outcome, self.out)
            assert name in outcome.message


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path / "images"))
    made = Prepared(tmp_path / "images", tmp_path / "out")
    made.folder.mkdir()
    made.out.mkdir()
    return made


LABELS = {
    "as they should be": None,
    "half": [row + 0.5 for row in range(22)],
    "no number": [float("nan")] * 22,
    "long text": ["x" * 100_000] * 22,
    "lists": [[row % 3] for row in range(22)],
    "structures": [{"label": row % 3} for row in range(22)],
    "dates": pa.array(range(22), pa.int32()).cast(pa.date32()),
    "decimals": pa.array(range(22)).cast(pa.decimal128(20, 0)),
    "huge": pa.array([2**64 - 1 - row for row in range(22)], pa.uint64()),
    "bytes": [bytes([row % 3]) for row in range(22)],
}


NO_DESCRIPTIONS = (b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b'{"info": 1}')
ODD_NAMES = (7, "abc", ["a"], ["a", None, {"b": 1}])


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("metadata", [*NO_DESCRIPTIONS, *map(described, ODD_NAMES)])
def test_labels_and_their_descriptions_that_nobody_means_are_read_or_refused_by_name(pets, labels, metadata):
    pets.write("train", table(GRAY[:22], labels, metadata))
    pets.write("test", table(GRAY[30:]))
    pets.assert_written_or_named("pets_")


OTHER_CONTENTS = (
    b"",
    b"PAR1",
    b"PAR1PAR1",
    b"PAR1" + b"\xff" * 40 + b"PAR1",
    b"image,label\nx,0\n",
    pickle.dumps([1, 2]),
    png(PIXELS[0]),
    b"\x00" * 1000,
    described(["a"]),
)


@tried(
    "files of images",
    content=damaged(CONTENTS) | st.sampled_from(OTHER_CONTENTS),
    where=st.sampled_from(("train", "test")),
)
def test_files_that_are_no_parquet_are_named(pets, content, where):
    for name in ("train", "test"):
        pets.write(name, content if name == where else CONTENTS[0])
    pets.assert_written_or_named(f"pets_{where}.parquet")
