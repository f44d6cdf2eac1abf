"""A small file cannot fill the memory: readers compare the sizes that it states with a bound before they take it."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image

from leakbound import storage
from leakbound.commands.own_records import read_both
from leakbound.records.collection import png
from leakbound.records.pixels import decode
from leakbound.records.records import DatasetError
from leakbound.storage import TooLargeError, limits
from leakbound_lab import datasets
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.jobs.unit_costs import read_costs

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
MIB = 2**20


def image(side: int = 8, value: int = 0) -> bytes:
    """An image file of one grey."""
    return png(np.full((1, side, side), value, np.uint8))


def repeated(value: bytes, rows: int) -> pa.Table:
    """Rows of one image and the labels 0 and 1; in Parquet a dictionary has the image once."""
    content = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value])).cast(pa.binary())
    images = pa.StructArray.from_arrays([content, pa.nulls(rows, pa.string())], fields=list(IMAGE))
    return pa.table({"image": images, "label": pa.array(np.arange(rows) % 2)})


def dataset(folder: Path, table: pa.Table, groups: int = 1, **options: object) -> int:
    """Write both splits of the dataset ``mine``, its rows as often as there are groups; returns the bytes of one."""
    path = folder / "mine_train.parquet"
    with pq.ParquetWriter(path, table.schema, compression="zstd", **options) as file:
        for _ in range(groups):
            file.write_table(table, row_group_size=len(table))
    shutil.copy(path, folder / "mine_test.parquet")
    return path.stat().st_size


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))


def prepared() -> None:
    datasets.prepare("mine", DatasetConfig(reader="parquet", members=10, pool=40, test=10, aux=10), 0)


def test_millions_of_rows_of_one_image_are_refused_before_they_are_read(tmp_path):
    assert dataset(tmp_path, repeated(image(), 1_000_000), groups=20) < MIB
    with pytest.raises(TooLargeError) as caught:
        prepared()
    assert "mine_train.parquet: has 1440000000 bytes in its rows, allowed are 1073741824" in str(caught.value)
    assert "LEAKBOUND_READ_LIMIT=2" in str(caught.value)


def sparse(path: Path, shape: tuple[int, ...], kind: type = np.float32) -> int:
    """An array of zeros, of which the file system keeps the head alone; returns the bytes that it keeps."""
    np.lib.format.open_memmap(path, "w+", kind, shape).flush()
    return 512 * path.stat().st_blocks


def test_records_that_are_too_large_are_refused_by_the_first_of_them(tmp_path):
    assert dataset(tmp_path, repeated(image(2000), 530)) < 20_000
    assert sparse(tmp_path / "mine.npy", (1000, 1_000_000)) < MIB  # of 3.7 GiB
    for name, width in (("mine_train.parquet", 4_000_000), ("mine.npy", 1_000_000)):
        with pytest.raises(typer.BadParameter, match=f"a record has {width} values"):
            read_both(tmp_path / name, None)


def test_values_that_no_bytes_of_a_file_stand_for_are_not_taken(tmp_path):
    dataset(tmp_path, repeated(image(200), 100_000), compression_level=20)
    held = sparse(tmp_path / "mine.npy", (200_000, 10_000), np.uint8)
    assert max(held, (tmp_path / "mine_train.parquet").stat().st_size) < MIB
    for name, bytes_ in (("mine_train.parquet", 4 * 10**9), ("mine.npy", 8 * 10**9)):
        with pytest.raises(TooLargeError, match=f"has {bytes_} bytes"):
            read_both(tmp_path / name, None)


def test_bytes_that_a_table_states_once_decompressed_are_bounded(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": [bytes(8 * MIB)]}), path, compression="zstd", use_dictionary=False)
    monkeypatch.setattr(limits, "TABLE", 4 * MIB)
    with pytest.raises(TooLargeError, match="bytes once decompressed"):
        storage.read_rows(path, sealed=False)


def test_long_value_that_a_dictionary_repeats_is_refused_after_the_first_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "TABLE", 16 * MIB)
    long = repeated(image() + bytes(MIB // 64), 4_000)
    assert dataset(tmp_path, long, dictionary_pagesize_limit=2**30) < MIB
    with pytest.raises(TooLargeError, match="bytes or more once decoded, allowed are 16777216"):
        prepared()
    pq.write_table(pa.table({"text": long["image"].combine_chunks().field("bytes")}), tmp_path / "rows.parquet")
    with pytest.raises(TooLargeError, match=r"rows\.parquet: has .* once decoded"):
        storage.read_rows(tmp_path / "rows.parquet", sealed=False)


def test_lists_of_any_length_and_structures_of_which_pandas_would_make_objects_are_refused(tmp_path):
    for value, problem in (([0.0] * 1000, "lists, each of any length"), ({"inner": 0}, "structures")):
        pq.write_table(pa.table({"value": [value]}), tmp_path / "rows.parquet")
        with pytest.raises(storage.DamagedFileError, match=f"column 'value(.list.element)?' holds {problem}"):
            storage.read_rows(tmp_path / "rows.parquet", sealed=False)


def test_description_of_a_file_is_bounded(tmp_path):
    path = tmp_path / "given"
    pq.write_table(pa.table({"x": [1.0]}).replace_schema_metadata({"filling": "x" * 8 * MIB}), path)
    with pytest.raises(TooLargeError, match="bytes of description"):
        storage.read_rows(path, sealed=False)
    names = {f"{i:09}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
    head = json.dumps(names).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(TooLargeError, match="bytes of description"):
        storage.read_arrays(path, sealed=False)


@pytest.mark.parametrize(("reader", "size"), [("read_arrays", 2**40), ("read_json", 2**30), ("read_rows", 2**40)])
def test_file_with_holes_is_refused_by_its_size(tmp_path, reader, size):
    path = tmp_path / "given"
    with path.open("wb") as file:
        file.truncate(size)
    assert path.stat().st_blocks < 100
    with pytest.raises(TooLargeError, match=f"has {size} bytes"):
        getattr(storage, reader)(path, sealed=False)


@pytest.mark.parametrize("kind", ["device without an end", "pipe that nobody writes to"])
@pytest.mark.parametrize("reader", ["read_arrays", "read_json", "read_rows", "read_bytes", "check"])
def test_what_has_no_end_is_no_file_and_is_not_waited_for(tmp_path, reader, kind):
    path = tmp_path / "given"
    if kind == "device without an end":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    options = {} if reader == "check" else {"sealed": False}
    with pytest.raises(storage.DamagedFileError, match="it is no regular file"):
        getattr(storage, reader)(path, **options)


def test_table_of_costs_is_bounded(tmp_path):
    path = tmp_path / "costs.csv"
    with path.open("wb") as file:
        file.truncate(2**34)
    with pytest.raises(TooLargeError, match="bytes"):
        read_costs(path)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
def test_dimensions_are_known_before_an_image_is_decoded(kind):
    file = io.BytesIO()
    Image.new("L" if kind != "WEBP" else "RGB", (2049, 2048)).save(file, kind)
    assert len(file.getvalue()) < 2 * MIB
    with pytest.raises(DatasetError, match="2049×2048 pixels, allowed are 4194304"):
        decode(file.getvalue(), "mine, row 0")


def test_factor_of_the_bounds_must_be_a_whole_number(tmp_path, monkeypatch):
    storage.write_rows(tmp_path / "rows", pd.DataFrame({"x": [1.0]}))
    for wrong in ("0", "-1", "1e3", "many", ""):
        monkeypatch.setenv(limits.VARIABLE, wrong)
        with pytest.raises(ValueError, match=f"{limits.VARIABLE} = '{wrong}': must be a whole number"):
            storage.read_rows(tmp_path / "rows")
