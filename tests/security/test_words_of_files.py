"""Words that a file or a database chose reach a terminal as text, not as codes that rule it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calling import called
from leakbound import storage
from leakbound.records.collection import png
from leakbound.words import printable

RULE = "\x1b]0;owned\x07\x1b[2J\x9b1A"
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


PICTURES = (np.full((1, 4, 4), value, np.uint8) for value in range(0, 240, 20))
IMAGES = pa.array([{"bytes": png(picture), "path": RULE} for picture in PICTURES], IMAGE)
LABELS = pa.array([value % 2 for value in range(12)])
TABLES = {
    "other columns": {f"{RULE}image": IMAGES, RULE: LABELS},
    "a structure": {"image": pa.array([{RULE: 1}] * 12), "label": LABELS},
    "text": {"image": IMAGES, "label": pa.array([RULE] * 12)},
    "classes": {"image": IMAGES, "label": LABELS},
}


@pytest.mark.parametrize("name", TABLES)
def test_names_in_a_parquet_file_do_nothing_to_a_terminal(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    label = {"_type": "ClassLabel", "names": [f"{RULE}a", f"{RULE}b"]}
    about = {"huggingface": json.dumps({"info": {"features": {"label": label}}})} if name == "classes" else None
    pq.write_table(pa.table(TABLES[name]).replace_schema_metadata(about), "mine.parquet")
    done = called("protect", "mine.parquet", "--calibrate-to-own", "--kappa", 4, "--out", "out")
    assert done.code == (0 if name in ("classes", "text") else 2), done.err
    assert all(line.isprintable() for line in f"{done.out}\n{done.err}".split("\n"))


def test_a_table_with_such_names_is_refused_in_words_that_can_be_printed(tmp_path):
    pq.write_table(pa.table({f"{RULE}x": pa.array([[1]])}), tmp_path / "rows")
    with pytest.raises(storage.DamagedFileError, match="holds lists") as caught:
        storage.read_rows(tmp_path / "rows", sealed=False)
    assert str(caught.value).isprintable()


def test_what_is_escaped_is_the_codes_alone():
    assert printable("größe 8×8\x1b[2J\n") == "größe 8×8\\x1b[2J\\n"
