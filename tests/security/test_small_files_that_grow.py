"""A small file cannot fill the memory: each reader is given one that would, in a process of its own."""

import hashlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from leakbound import storage
from leakbound.datasets.pixels import decode
from leakbound.datasets.records import DatasetError
from leakbound.jobs.plan.unit_costs import read_costs
from leakbound.storage import TooLargeError, limits
from leakbound.storage.parquet import ParquetSource
from leakbound.training.checkpoint import Checkpoint

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
MIB = 2**20


def image(side: int = 8, value: int = 0) -> bytes:
    """An image file of one grey."""
    file = io.BytesIO()
    Image.fromarray(np.full((side, side), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


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


FORKING = """
import json, os, resource, sys
from leakbound import datasets, storage
from leakbound.config.data import DatasetConfig
import leakbound.cli.people.own_records, leakbound.datasets.collection, leakbound.engine.records
import leakbound.datasets.images, leakbound.datasets.pixels, pandas, pyarrow.compute, pyarrow.parquet, sklearn

peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024  # of no parent
for line in sys.stdin:
    code, folder, environment = json.loads(line)
    if child := os.fork():
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.environ.update(environment)
    os.chdir(folder)
    pandas.DataFrame({"x": [1.0]}).to_parquet("warm")
    storage.read_rows("warm", sealed=False)
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + 6 * 2**30,) * 2)
    before = peak()
    try:
        exec(code)
        said = "ran"
    except (Exception, MemoryError) as error:
        said = f"{type(error).__name__}: {error}"
    print(peak() - before, json.dumps(said), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def grown() -> Iterator[Callable[..., tuple[int, str]]]:
    """MiB that a process takes for some code beyond what it has after the imports, and what it says.

    Its address space ends 6 GiB further on, so that a bound that is missing ends the process and not the machine. The
    processes are forked from one that has made the imports.
    """
    own = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", FORKING], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forking:

        def measured(code: str, folder: Path, **environment: str) -> tuple[int, str]:
            given = [code, str(folder), {"LEAKBOUND_DATA": str(folder), **environment}]
            forking.stdin.write(json.dumps(given) + "\n")
            forking.stdin.flush()
            taken, _, said = forking.stdout.readline().partition(" ")
            assert taken != "ended", f"the process ended with {said}"
            assert forking.stdout.readline() == "ended 0\n"
            return int(taken), json.loads(said)

        yield measured
        forking.stdin.close()


PREPARE = "datasets.prepare('mine', DatasetConfig(reader='parquet', members=10, pool=40, test=10, aux=10), 0)"


def test_millions_of_rows_of_one_image_are_refused_before_they_are_read(grown, tmp_path):
    assert dataset(tmp_path, repeated(image(), 1_000_000), groups=20) < MIB
    taken, said = grown(PREPARE, tmp_path)
    assert "TooLargeError" in said
    assert "mine_train.parquet: has 1440000000 bytes in its rows, allowed are 1073741824" in said
    assert "LEAKBOUND_READ_LIMIT=2" in said
    assert taken < 100


OWN = "from pathlib import Path; from leakbound.cli.people.own_records import read_both; "
OWN += "read_both(Path('{}'), None, 'label')"


def sparse(path: Path, shape: tuple[int, ...], kind: type = np.float32) -> int:
    """An array of zeros, of which the file system keeps the head alone; returns the bytes that it keeps."""
    np.lib.format.open_memmap(path, "w+", kind, shape).flush()
    return 512 * path.stat().st_blocks


def test_records_that_are_too_large_are_refused_by_the_first_of_them(grown, tmp_path):
    assert dataset(tmp_path, repeated(image(2000), 530)) < 20_000
    assert sparse(tmp_path / "mine.npy", (1000, 1_000_000)) < MIB  # of 3.7 GiB
    for name, width in (("mine_train.parquet", 4_000_000), ("mine.npy", 1_000_000)):
        taken, said = grown(OWN.format(name), tmp_path)
        assert f"a record has {width} values" in said
        assert taken < 100


def test_values_that_no_bytes_of_a_file_stand_for_are_not_taken(grown, tmp_path):
    dataset(tmp_path, repeated(image(200), 100_000), compression_level=20)
    held = sparse(tmp_path / "mine.npy", (200_000, 10_000), np.uint8)
    assert max(held, (tmp_path / "mine_train.parquet").stat().st_size) < MIB
    for name, bytes_ in (("mine_train.parquet", 4 * 10**9), ("mine.npy", 8 * 10**9)):
        taken, said = grown(OWN.format(name), tmp_path)
        assert f"has {bytes_} bytes" in said
        assert "TooLargeError" in said
        assert taken < 200


def test_large_pictures_after_small_ones_are_not_decoded_together(grown, tmp_path):
    """As many as are decoded at once are small, and the next ones would fit the memory one by one only."""
    rows = np.ones(768, np.int32)
    rows[:256] = 0
    values = pa.DictionaryArray.from_arrays(pa.array(rows), pa.array([image(8), image(2000)])).cast(pa.binary())
    images = pa.StructArray.from_arrays([values, pa.nulls(len(rows), pa.string())], fields=list(IMAGE))
    dataset(tmp_path, pa.table({"image": images, "label": pa.array(np.arange(len(rows)) % 2)}))
    taken, said = grown(OWN.format("mine_train.parquet"), tmp_path)
    assert "2000×2000 with 1 color, but" in said
    assert taken < 150


@pytest.mark.slow
def test_bound_can_be_raised_by_the_variable_that_the_message_names(grown, tmp_path):
    dataset(tmp_path, repeated(image(), 1_000_000), groups=16)
    assert "TooLargeError" in grown(PREPARE, tmp_path)[1]
    assert grown(PREPARE, tmp_path, LEAKBOUND_READ_LIMIT="2")[1] == "ran"


def test_long_value_that_a_dictionary_repeats_is_not_repeated_in_memory(grown, tmp_path):
    assert (
        dataset(tmp_path, repeated(image() + bytes(MIB // 2), 2_000), groups=3, dictionary_pagesize_limit=2**30) < MIB
    )
    taken, said = grown(PREPARE, tmp_path)
    assert "bytes or more once decoded, allowed are 1073741824" in said
    assert taken < 2_000


def test_table_of_results_is_held_to_the_same_bounds(grown, tmp_path):
    rows = pa.table({"text": repeated(bytes(MIB // 2), 2_000)["image"].combine_chunks().field("bytes")})
    with pq.ParquetWriter(tmp_path / "rows.parquet", rows.schema, compression="zstd") as file:
        for _ in range(3):
            file.write_table(rows)
    taken, said = grown("storage.read_rows('rows.parquet', sealed=False)", tmp_path)
    assert "rows.parquet: has" in said
    assert "once decoded" in said
    assert taken < 2_000


def test_images_that_are_large_once_decoded_are_resized_before_the_next_ones(grown, tmp_path):
    assert dataset(tmp_path, repeated(image(2048), 100)) < MIB
    wanted = "DatasetConfig(reader='parquet', pool=90, test=10, aux=10)"
    taken, said = grown(f"datasets.prepare('mine', {wanted}, 0)", tmp_path)
    assert said == "ran"
    assert taken < 250


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_encodings_that_state_counts_inside_a_page_are_refused(grown, tmp_path, encoding):
    options = {"use_dictionary": False, "column_encoding": {"image.bytes": encoding}}
    dataset(tmp_path, repeated(image(), 1_000), **options)
    taken, said = grown(PREPARE, tmp_path)
    assert f"column 'image.bytes' is encoded as {encoding}" in said
    assert taken < 100


def test_list_of_any_length_in_one_row_is_refused(grown, tmp_path):
    rows = pa.table({"value": pa.LargeListArray.from_arrays([0, 10**7], pa.array(np.zeros(10**7)))})
    pq.write_table(rows, tmp_path / "rows.parquet", compression="zstd")
    assert (tmp_path / "rows.parquet").stat().st_size < MIB
    taken, said = grown("storage.read_rows('rows.parquet', sealed=False)", tmp_path)
    assert "holds lists, each of any length" in said
    assert taken < 50


def test_structures_of_which_pandas_would_make_objects_row_by_row_are_refused(grown, tmp_path):
    values: pa.Array = pa.array(np.zeros(200_000, np.int64))
    for _ in range(30):
        values = pa.StructArray.from_arrays([values], names=["inner"])
    pq.write_table(pa.table({"value": values}), tmp_path / "rows.parquet", compression="zstd")
    assert (tmp_path / "rows.parquet").stat().st_size < MIB / 100
    taken, said = grown("storage.read_rows('rows.parquet', sealed=False)", tmp_path)
    assert "column 'value' holds structures" in said
    assert taken < 50


def varint(value: int, length: int) -> bytes:
    """A whole number in groups of seven bits, zigzag, longer than need be: Thrift reads that, and never writes it."""
    value *= 2
    return bytes([value >> 7 * i & 127 | 128 for i in range(length - 1)]) + bytes([value >> 7 * (length - 1)])


def plain_varint(value: int) -> bytes:
    return next(varint(value, length) for length in range(1, 10) if 2 * value < 128**length)


def test_sizes_that_the_description_understates_are_found_in_the_pages(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": [bytes(8 * MIB)]}), path, compression="zstd", use_dictionary=False)
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    true = plain_varint(chunk.total_uncompressed_size)
    content = path.read_bytes()
    assert content.count(true) >= 1
    path.write_bytes(content.replace(true, varint(100, len(true))))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == 100
    monkeypatch.setattr(limits, "TABLE", 4 * MIB)
    with pytest.raises(TooLargeError, match="bytes in single pages"):
        next(ParquetSource(pa.memory_map(str(path)), path).batches())


def test_rows_that_the_description_of_the_whole_understates_are_counted_by_group(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": np.zeros(300_000)}), path, row_group_size=100_000)
    true = plain_varint(300_000)
    content = path.read_bytes()
    assert content.count(true) == 1
    path.write_bytes(content.replace(true, varint(1, len(true))))
    assert pq.ParquetFile(path).metadata.num_rows == 1
    monkeypatch.setattr(limits, "TABLE", 16 * MIB)
    with pytest.raises(TooLargeError, match=f"has {300_000 * limits.ROW} bytes in its rows"):
        next(ParquetSource(pa.memory_map(str(path)), path).batches())


def test_description_of_a_parquet_file_is_bounded(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"x": [1.0]}).replace_schema_metadata({"filling": "x" * 8 * MIB})
    pq.write_table(table, path)
    with pytest.raises(TooLargeError, match="bytes of description"):
        storage.read_rows(path, sealed=False)


def test_description_of_arrays_is_bounded(tmp_path):
    path = tmp_path / "arrays.safetensors"
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


@pytest.mark.parametrize("reader", ["read_arrays", "read_json", "read_rows", "read_bytes", "check"])
def test_device_without_an_end_is_no_file(tmp_path, reader):
    path = tmp_path / "given"
    path.symlink_to("/dev/zero")
    options = {} if reader == "check" else {"sealed": False}
    with pytest.raises(storage.DamagedFileError, match="given"):
        getattr(storage, reader)(path, **options)


@pytest.mark.parametrize("reader", ["read_arrays", "read_json", "read_rows", "read_bytes", "check"])
def test_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path, reader):
    os.mkfifo(tmp_path / "given")
    options = {} if reader == "check" else {"sealed": False}
    with pytest.raises(storage.DamagedFileError, match="it is no regular file"):
        getattr(storage, reader)(tmp_path / "given", **options)


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


class Calls:
    """Pickled, a call of something with one argument."""

    def __init__(self, function: object, argument: object) -> None:
        self.call = function, (argument,)

    def __reduce__(self) -> tuple:
        return self.call


def saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": content}, file)
    return file.getvalue()


def deflated(payload: bytes) -> bytes:
    """The same archive, compressed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return packed.getvalue()


BOMBS = {
    "bytes of any number": lambda: saved(Calls(bytearray, 64 * MIB)),
    "a tensor of any size": lambda: saved(Calls(torch.Tensor, 16 * MIB)),
    "a dictionary copied": lambda: saved([Calls(OrderedDict, SHARED) for _ in range(1500)]),
    "compressed zeros": lambda: deflated(saved(torch.zeros(16 * MIB))),
}
SHARED = [(number, number) for number in range(1000)]


@pytest.mark.parametrize("bomb", BOMBS)
def test_checkpoint_takes_no_more_memory_than_it_has_bytes(tmp_path, bomb, caplog):
    payload = BOMBS[bomb]()
    grown = torch.load(io.BytesIO(payload), weights_only=True)["weight"]
    held = sum(map(sys.getsizeof, grown)) if isinstance(grown, list) else getattr(grown, "nbytes", 64 * MIB)
    assert held >= 64 * MIB > 50 * len(payload)  # torch lets it grow
    path = tmp_path / "checkpoint.pt"
    identity = "0" * 64
    path.write_bytes(identity.encode() + hashlib.sha256(payload).digest() + payload)
    with caplog.at_level(logging.WARNING, "leakbound"):
        assert Checkpoint(path, identity, 1.0).load() is None
    assert "foreign checkpoint" in caplog.text


def test_factor_of_the_bounds_must_be_a_whole_number(tmp_path, monkeypatch):
    storage.write_rows(tmp_path / "rows", pd.DataFrame({"x": [1.0]}))
    for wrong in ("0", "-1", "1e3", "many", ""):
        monkeypatch.setenv(limits.VARIABLE, wrong)
        with pytest.raises(ValueError, match=f"{limits.VARIABLE} = '{wrong}': must be a whole number"):
            storage.read_rows(tmp_path / "rows")
