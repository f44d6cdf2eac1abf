"""A small image dataset in the Hugging Face layout, written to a temporary folder."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image


@dataclass(frozen=True)
class Pets:
    """Files of the dataset ``pets``; each method writes one anew."""

    folder: Path
    classes: tuple[str, ...] = ("cat", "dog", "owl")

    @staticmethod
    def encoded(pixels: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()

    def images(self, count: int, size: tuple[int, ...] = (8, 8), seed: int = 0) -> list[bytes]:
        generator = np.random.default_rng(seed)
        return [self.encoded(generator.integers(0, 256, size, dtype=np.uint8)) for _ in range(count)]

    def write(self, split: str, images: list | None = None, named: bool = True, **columns: list) -> Path:
        images = self.images(60) if images is None else images
        columns = columns or {"label": ([0, 1, 2] * 60)[: len(images)]}
        structs = [value if value is None else {"bytes": value, "path": None} for value in images]
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        table = pa.table({"image": pa.array(structs, kind), **columns})
        if named:
            features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": list(self.classes)}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        path = self.folder / f"pets_{split}.parquet"
        pq.write_table(table, path)
        return path


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pets:
    """60 training and 30 test images, 8×8 grey, three classes of which the first is the most frequent in training."""
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    files = Pets(tmp_path)
    files.write("train", files.images(60), label=[0] * 30 + [1] * 20 + [2] * 10)
    files.write("test", files.images(30, seed=1))
    return files
