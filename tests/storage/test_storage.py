import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakbound import storage
from leakbound.storage import files, seals


def test_arrays_and_views_of_them_come_back_as_they_were(tmp_path):
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([1, 2], dtype=np.int64), "t": np.eye(3, 4).T}
    storage.write_arrays(tmp_path / "x.safetensors", arrays, {"name": "x"})
    found = storage.read_arrays(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    assert all(found[name].dtype == arrays[name].dtype for name in arrays)
    assert storage.read_metadata(tmp_path / "x.safetensors") == {"name": "x"}


def test_bytes_are_on_the_disk_before_a_name_stands_for_them(tmp_path, monkeypatch):
    """The seal's and the file's own: else a crash leaves a whole name with half of its bytes."""
    kept, flushed, flush = tmp_path / "kept.json", {}, os.fsync

    def noted(number: int) -> None:
        flush(number)
        status = os.fstat(number)
        flushed[status.st_ino] = status.st_size, kept.exists()

    monkeypatch.setattr(os, "fsync", noted)
    storage.write_json(kept, {"x": [1, 2, 3]})
    for path in (kept, seals.seal_of(kept)):
        status = path.stat()
        assert flushed.get(status.st_ino) == (status.st_size, False)


def write(path: Path, seed: int) -> None:
    """A file of the kind that its name says, of a size that depends on no seed."""
    values = np.random.default_rng(seed).random(1000)
    if path.suffix == ".safetensors":
        storage.write_arrays(path, {"x": values}, {"seed": str(seed)})
    elif path.suffix == ".parquet":
        storage.write_rows(path, pd.DataFrame({"x": values}))
    else:
        storage.write_json(path, list(values))


def test_equal_contents_give_equal_bytes(tmp_path):
    strings = {str(index): "x" for index in range(20)}
    for name in ("one", "two"):
        storage.write_arrays(tmp_path / name, {"a": np.ones(3), "b": np.zeros(2)}, strings)
        write(tmp_path / f"{name}.parquet", 0)
    for suffix in ("", ".parquet"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


KINDS = [
    ("x.safetensors", storage.read_arrays),
    ("x.safetensors", storage.read_metadata),
    ("x.safetensors", storage.read_arrays_and_metadata),
    ("x.parquet", storage.read_rows),
    ("x.json", storage.read_json),
    ("x.json", storage.read_bytes),
    ("x.json", storage.check),
]


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(("name", "reader"), KINDS[:5])
@pytest.mark.parametrize("damage", ["missing", "empty", "noise", "truncated"])
def test_damaged_files_are_named(tmp_path, name, reader, damage, sealed):
    path = tmp_path / name
    write(path, 0)
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "noise": b"\x00\xff" * 50, "truncated": whole[: len(whole) // 2]}[damage])
    with pytest.raises(storage.DamagedFileError, match=name):
        reader(path, sealed=sealed)


@pytest.mark.parametrize(("name", "reader"), KINDS)
def test_no_bit_of_a_file_may_turn(tmp_path, name, reader):
    path = tmp_path / name
    write(path, 0)
    whole = path.read_bytes()
    for position in (0, 9, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(storage.DamagedFileError, match="its seal says"):
            reader(path)
    path.write_bytes(whole)
    reader(path)


@pytest.mark.parametrize(("name", "reader"), KINDS)
@pytest.mark.parametrize("seal", [None, "", "of another name"])
def test_file_without_a_seal_of_its_own_is_refused_unless_the_caller_says_so(tmp_path, name, reader, seal):
    path, other = tmp_path / name, tmp_path / f"other-{name}"
    write(path, 0)
    write(other, 0)
    if seal is None:
        storage.seal_of(path).unlink()
    else:
        storage.seal_of(path).write_bytes(storage.seal_of(other).read_bytes() if seal else b"")
    with pytest.raises(storage.DamagedFileError, match="no checksum file" if seal is None else "its seal says"):
        reader(path)
    if reader is not storage.check:
        reader(path, sealed=False)


def test_seal_is_one_that_sha256sum_reads(tmp_path):
    write(tmp_path / "x.parquet", 0)
    seal = storage.seal_of(tmp_path / "x.parquet")
    assert seal.read_text() == f"{storage.file_hash(tmp_path / 'x.parquet')}  x.parquet\n"
    checked = subprocess.run(["sha256sum", "-c", seal.name], cwd=tmp_path, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "x.parquet: OK\n")


def test_writers_of_one_file_at_once_do_not_sweep_away_what_another_is_about_to_lock(tmp_path):
    path = tmp_path / "shared.txt"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: storage.write_text(path, str(number), sealed=False), range(600)))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_writer_that_is_killed_before_its_file_is_in_place_leaves_none_that_is_taken_as_whole(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    storage.write_json(path, {"round": 1})
    replace = Path.replace

    def killed(source: Path, target: Path) -> Path:
        if Path(target) == path:
            raise KeyboardInterrupt
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        storage.write_json(path, {"round": 2})
    assert json.loads(path.read_text()) == {"round": 1}
    with pytest.raises(storage.DamagedFileError, match="its seal says"):
        storage.read_json(path)


def test_reader_that_meets_a_writer_between_seal_and_file_looks_again(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    storage.write_json(path, {"round": 1})
    old = path.read_bytes()
    storage.write_json(path, {"round": 2})
    new = path.read_bytes()
    path.write_bytes(old)
    monkeypatch.setattr(seals.time, "sleep", lambda seconds: path.write_bytes(new))
    assert storage.read_json(path) == {"round": 2}


def test_file_that_is_exchanged_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path, other = tmp_path / "x.safetensors", tmp_path / "other.safetensors"
    write(path, 0)
    write(other, 1)
    check = storage.check
    monkeypatch.setattr(files, "check", lambda checked: (check(checked), os.replace(other, path)))
    with pytest.raises(storage.DamagedFileError, match="replaced while it was read"):
        storage.read_arrays(path)


def test_unsealed_writing_leaves_no_seal(tmp_path):
    storage.write_json(tmp_path / "x.json", {}, sealed=False)
    with storage.atomic(tmp_path / "y", sealed=False) as temporary:
        temporary.write_text("y")
    assert sorted(os.listdir(tmp_path)) == ["x.json", "y"]


def test_hash_of_arrays_sees_values_names_and_types():
    base = {"a": np.array([1.0, 2.0])}
    others = [{"a": np.array([1.0, 3.0])}, {"b": base["a"]}, {"a": base["a"].astype(np.float32)}]
    assert storage.arrays_hash(base) == storage.arrays_hash({"a": np.array([1.0, 2.0])})
    assert len({storage.arrays_hash(arrays) for arrays in [base, *others]}) == 4


KILLED = """
import os, signal, sys
from leakbound import storage
with storage.atomic(sys.argv[1]) as temporary:
    temporary.write_text("half of the n")
    (temporary.parent / ".tmp123").write_text("a library's own")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_next_writer_clears_up_after_a_killed_one(tmp_path):
    path = tmp_path / "x.json"
    storage.write_json(path, {"old": True})
    assert subprocess.run([sys.executable, "-c", KILLED, path]).returncode == -signal.SIGKILL
    assert storage.read_json(path) == {"old": True}
    storage.write_json(tmp_path / "y.json", 1)
    assert len(list(tmp_path.glob(".x.json.????????"))) == 1
    storage.write_json(path, {"new": True})
    assert sorted(os.listdir(tmp_path)) == [".x.json.sha256", ".y.json.sha256", "x.json", "y.json"]


def test_writers_of_one_file_leave_each_other_alone(tmp_path):
    path = tmp_path / "x.json"
    with storage.atomic(path) as temporary:
        temporary.write_text("1")
        storage.write_json(path, 2)
        assert storage.read_json(path) == 2
    assert storage.read_json(path) == 1
    assert sorted(os.listdir(tmp_path)) == [".x.json.sha256", "x.json"]


WITHOUT_ROOM = """
import json, resource, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np, pandas as pd
from leakbound import storage
from leakbound_lab.training.checkpoint import Checkpoint

noise = np.random.default_rng(0).random((300, 300))
writers = {
    "x.safetensors": lambda path: storage.write_arrays(path, {"noise": noise}),
    "x.parquet": lambda path: storage.write_rows(path, pd.DataFrame(noise)),
    "x.json": lambda path: storage.write_json(path, noise.tolist()),
    "x.pt": lambda path: Checkpoint(path, "0" * 64, 1.0).save({"noise": noise.tolist()}),
}
said = {}
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for name, write in writers.items():
    try:
        write(Path(sys.argv[1]) / name)
    except storage.FullDiskError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def test_writers_without_room_say_so_and_leave_the_old_file(tmp_path):
    names = ["x.json", "x.parquet", "x.pt", "x.safetensors"]
    for name in names:
        (tmp_path / name).write_text("old")
    result = subprocess.run([sys.executable, "-c", WITHOUT_ROOM, tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert sorted(said) == names
    for name, message in said.items():
        assert message.startswith(f"{tmp_path / name}: cannot be written (File too large)")
    assert sorted(os.listdir(tmp_path)) == names
    assert {(tmp_path / name).read_text() for name in names} == {"old"}
