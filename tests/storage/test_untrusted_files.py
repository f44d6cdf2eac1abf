"""Files from others: weights, checkpoints, tables, images and configurations that try to run something are refused."""

import hashlib
import io
import logging
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import EpsImagePlugin, Image

from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError, prepare
from leakbound_lab.training.checkpoint import Checkpoint

IDENTITY = "0" * 64
READERS = [storage.read_arrays, storage.read_metadata, storage.read_rows, storage.read_json]


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.path,)


def of_torch(payload: Payload) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": payload}, file)
    return file.getvalue()


FORMS = {"pickle": pickle.dumps, "torch": of_torch}


@pytest.fixture
def made(tmp_path: Path):
    """The file that a payload makes if something runs it; after the test it must not be there."""
    path = tmp_path / "made"
    yield path
    assert not path.exists(), "something ran the payload"


@pytest.fixture(params=FORMS)
def evil(request, made: Path) -> bytes:
    """Bytes that run the payload when they are unpickled."""
    content = FORMS[request.param](Payload(made))
    if request.param == "pickle":
        pickle.loads(content)
    else:
        torch.load(io.BytesIO(content), weights_only=False)
    assert made.exists()
    made.unlink()
    return content


def offered(path: Path, content: bytes) -> Path:
    """A file with a seal: who writes the one can write the other."""
    with storage.atomic(path) as temporary:
        temporary.write_bytes(content)
    return path


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_pickle_is_no_weights_no_table_and_no_record(tmp_path, evil, reader, sealed):
    path = offered(tmp_path / "given", evil)
    with pytest.raises(storage.DamagedFileError, match="given"):
        reader(path, sealed=sealed)


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_folder_is_no_file_even_one_without_a_name(path):
    with pytest.raises(storage.DamagedFileError, match="no regular file"):
        storage.read_json(Path(path))


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    with pytest.raises(storage.DamagedFileError, match="its values are nested too deeply"):
        storage.read_json(offered(tmp_path / "given", b"[" * 100_000))


def test_pickle_is_no_checkpoint_though_its_identity_and_digest_are_right(tmp_path, evil, caplog):
    path = tmp_path / "checkpoint"
    path.write_bytes(IDENTITY.encode() + hashlib.sha256(evil).digest() + evil)
    with caplog.at_level(logging.WARNING, "leakbound"):
        assert Checkpoint(path, IDENTITY, 1.0).load() is None
    assert "foreign checkpoint" in caplog.text
    assert "weights_only" not in caplog.text  # torch's message says how to load it all the same


def test_pickle_is_no_dataset(tmp_path, evil, monkeypatch):
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    for split in ("train", "test"):
        (tmp_path / f"mine_{split}.parquet").write_bytes(evil)
    with pytest.raises(DatasetError, match=r"mine_train\.parquet: cannot be read as Parquet"):
        prepare("mine", DatasetConfig(reader="parquet"), 0)


@pytest.mark.parametrize("extension", ["arrow.py_extension_type", "pandas.object", "leakbound.thing"])
def test_types_and_objects_of_a_foreign_table_stay_bytes(tmp_path, evil, extension, monkeypatch):
    hints = {b"ARROW:extension:name": extension.encode(), b"ARROW:extension:metadata": evil}
    columns = {"x": [evil, evil], "label": [0, 1]}
    fields = [pa.field("x", pa.binary(), metadata=hints), pa.field("label", pa.int64(), metadata=hints)]
    table = pa.table(columns, pa.schema(fields))
    described = pa.Table.from_pandas(pd.DataFrame(columns)).schema.metadata
    path = tmp_path / "mine_train.parquet"
    pq.write_table(table.replace_schema_metadata({**described, b"evil": evil}), path)
    assert list(storage.read_rows(path, sealed=False)["x"]) == [evil, evil]

    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    (tmp_path / "mine_test.parquet").write_bytes(path.read_bytes())
    with pytest.raises(DatasetError, match="has no column 'image'"):
        prepare("mine", DatasetConfig(reader="parquet"), 0)


def test_picture_that_pillow_would_hand_to_another_program_is_refused(tmp_path, made, monkeypatch):
    from leakbound.records.pixels import decode

    script = tmp_path / "bin" / "gs"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\n: > '{made}'\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow remembers whether there is one
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    with pytest.raises(subprocess.CalledProcessError), Image.open(io.BytesIO(drawing)) as image:
        image.load()
    assert made.exists()
    made.unlink()
    with pytest.raises(DatasetError, match=r"mine\.parquet: row 3: the image cannot be decoded"):
        decode(drawing, "mine.parquet: row 3")


def test_configuration_makes_plain_values_only(tmp_path, made):
    text = f"preset: !!python/object/apply:os.system [\": > '{made}'\"]\n"
    yaml.load(text, yaml.UnsafeLoader)
    assert made.exists()
    made.unlink()
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(reading.ConfigError, match="cannot be read"):
        reading.load(tmp_path / "config.yaml")
