"""Original files as the workflow sees them: by what they hold, wherever they lie."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

import gpu_images
from leakbound import storage
from leakbound.storage import file_hash
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import digits
from leakbound_lab.datasets.originals import describe_originals, original_hashes

PETS = DatasetConfig(reader="parquet", aux=10)


def recorded(pets, folder) -> tuple[dict, object]:
    """Hashes of the original files, and the provenance in which `prepare` keeps what it saw of them."""
    record = folder / "record.json"
    storage.write_json(record, {"originals": describe_originals("pets", PETS)})
    return original_hashes("pets", PETS, record), record


def test_edit_is_seen_and_a_copy_is_not(pets, tmp_path, monkeypatch):
    before, record = recorded(pets, tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in pets.folder.glob("*.parquet"):
        shutil.copyfile(path, copy / path.name)
    monkeypatch.setenv("LEAKBOUND_DATA", str(copy))
    assert original_hashes("pets", PETS, record) == before
    content = bytearray((copy / "pets_test.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "pets_test.parquet").write_bytes(bytes(content))
    after = original_hashes("pets", PETS, record)
    assert {name for name in before if before[name] != after[name]} == {"pets_test.parquet"}


def test_file_that_looks_as_it_did_is_not_read_again(pets, tmp_path):
    before, record = recorded(pets, tmp_path)
    path = pets.folder / "pets_train.parquet"
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert original_hashes("pets", PETS, record) == before
    os.utime(path)
    assert original_hashes("pets", PETS, record) != before


@pytest.mark.parametrize("sight", ["unnamed", "elsewhere"])
def test_files_out_of_sight_count_as_they_were(pets, tmp_path, monkeypatch, sight):
    before, record = recorded(pets, tmp_path)
    if sight == "unnamed":
        monkeypatch.delenv("LEAKBOUND_DATA")
    else:
        monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path / "nothing"))
    assert original_hashes("pets", PETS, record) == before
    assert original_hashes("pets", PETS, tmp_path / "none.json") == {}


def test_damaged_record_is_not_believed(pets, tmp_path):
    before, record = recorded(pets, tmp_path)
    record.write_text(record.read_text().replace(before["pets_train.parquet"], "0" * 64))
    assert original_hashes("pets", PETS, record) == before


@pytest.mark.parametrize("config", [DatasetConfig(reader="digits"), PETS.model_copy(update={"source": "hub"})])
def test_what_comes_from_no_folder_has_no_original_files(pets, tmp_path, config):
    assert original_hashes("pets", config, tmp_path / "none.json") == {}


def test_shortened_files_are_the_first_records_and_state_of_what(pets, tmp_path, monkeypatch):
    config = DatasetConfig(reader="parquet", pool=30, aux=10, test=20, members=10, validation=10)
    whole = {split: pets.folder / f"pets_{split}.parquet" for split in ("train", "test")}
    out = tmp_path / "short"
    out.mkdir()
    assert not [facts for facts in describe_originals("pets", config).values() if "part" in facts]
    gpu_images.shorten("pets", config, out)
    monkeypatch.setenv("LEAKBOUND_DATA", str(out))
    described = describe_originals("pets", config)
    for split, records, of in (("train", 40, 60), ("test", 20, 30)):
        table, part = pq.read_table(whole[split]), pq.read_table(out / whole[split].name)
        assert part.equals(table.slice(0, records))
        assert part.schema.metadata.items() >= table.schema.metadata.items()
        stated = f"the first {records} of {of} records of a file with SHA-256 {file_hash(whole[split])}"
        assert described[whole[split].name]["part"] == stated
    assert describe_originals("pets", config, described) == described


def test_digits_are_those_of_scikit_learn_without_its_import():
    bunch, pool = load_digits(), digits.read("digits", DatasetConfig(reader="digits")).train
    assert np.array_equal(pool.decode(np.arange(1797)), (bunch.images * (255 / 16)).astype(np.float32)[..., None])
    assert np.array_equal(pool.labels, bunch.target)
    code = (
        "import sys; from leakbound_lab.config.data import DatasetConfig; from leakbound_lab.datasets import digits; "
        "digits.read('digits', DatasetConfig()); assert not {'sklearn', 'scipy', 'torch'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
