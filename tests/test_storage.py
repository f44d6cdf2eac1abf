import json
import os

import numpy as np
import pandas as pd
import pytest

from leakbound import storage


def test_arrays_come_back_as_they_were(tmp_path):
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([1, 2], dtype=np.int64)}
    storage.write_arrays(tmp_path / "x.safetensors", arrays, {"name": "x"})
    found = storage.read_arrays(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    assert all(found[name].dtype == arrays[name].dtype for name in arrays)
    assert storage.read_metadata(tmp_path / "x.safetensors") == {"name": "x"}


def test_arrays_that_are_views_are_stored_by_value(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    storage.write_arrays(tmp_path / "x.safetensors", {"t": array.T})
    assert np.array_equal(storage.read_arrays(tmp_path / "x.safetensors")["t"], array.T)


@pytest.mark.parametrize("kind", ["arrays", "rows", "json"])
def test_equal_contents_give_equal_bytes(tmp_path, kind):
    for name in ("one", "two"):
        if kind == "arrays":
            strings = {str(index): "x" for index in range(20)}
            storage.write_arrays(tmp_path / name, {"a": np.ones(3), "b": np.zeros(2)}, strings)
        elif kind == "rows":
            storage.write_rows(tmp_path / name, pd.DataFrame({"x": [1.5, np.nan], "y": ["a", "b"]}))
        else:
            storage.write_json(tmp_path / name, {"b": 1, "a": [1, 2]})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "x.json"
    storage.write_json(path, {"old": True})

    def write_half() -> None:
        with storage.atomic(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert json.loads(path.read_text()) == {"old": True}
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.parametrize("reader", [storage.read_arrays, storage.read_metadata, storage.read_rows, storage.read_json])
@pytest.mark.parametrize("damage", ["missing", "empty", "noise", "truncated"])
def test_damaged_files_are_named(tmp_path, reader, damage):
    path = tmp_path / "x.file"
    storage.write_rows(path, pd.DataFrame({"x": range(100)}))
    if reader in (storage.read_arrays, storage.read_metadata):
        storage.write_arrays(path, {"x": np.arange(100.0)})
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "noise": b"\x00\xff" * 50, "truncated": whole[: len(whole) // 2]}[damage])
    with pytest.raises(storage.DamagedFileError, match=r"x\.file"):
        reader(path)


def test_hash_of_arrays_sees_values_names_and_types():
    base = {"a": np.array([1.0, 2.0])}
    others = [{"a": np.array([1.0, 3.0])}, {"b": base["a"]}, {"a": base["a"].astype(np.float32)}]
    assert storage.arrays_hash(base) == storage.arrays_hash({"a": np.array([1.0, 2.0])})
    assert len({storage.arrays_hash(arrays) for arrays in [base, *others]}) == 4
