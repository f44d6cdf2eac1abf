#!/usr/bin/env bash
# Expected: pa.table of ten selected records of a polars frame holds ten names, and so does a Feather file or a pickle of it: write_ipc of polars
#           and to_arrow() write ten.
# Seen:     the texts arrive as string views, whose buffers are those of the whole frame: the file has all 1,000 names, of a slice of an Arrow
#           table of string views, too. Texts of at most twelve bytes lie in the views themselves, and stay out.
# Versions: polars 2.1.0, pyarrow 25.0.1, numpy 2.4.6
# Date:     2026-11-30
# Means:    who sends a client's share, or the records that may be published, sends the others' names and notes: the file reads as ten records.
#           Use to_arrow(), or cast string_view to string before writing.
# Source:   https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet polars==2.1.0 pyarrow==25.0.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import pickle
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyarrow import feather


def held(content):
    """How many of the names are in the bytes."""
    return sum(name.encode() in content for name in names)


def written(table):
    feather.write_feather(table, "share.feather", compression="uncompressed")
    assert feather.read_table("share.feather").num_rows == 10
    return held(Path("share.feather").read_bytes())


names = [f"pseudonym {number:04d}" for number in range(1000)]
frame = pl.DataFrame({"name": names, "site": [number % 100 for number in range(1000)]})
share = frame.filter(pl.col("site") == 7)
share.write_ipc("polars.feather")
found = {
    "write_ipc of polars": held(Path("polars.feather").read_bytes()),
    "to_arrow(), Feather": written(share.to_arrow()),
    "pa.table, Feather": written(pa.table(share)),
    "pa.table, pickle": held(pickle.dumps(pa.table(share))),
    "slice of pyarrow, string": written(pa.table({"name": pa.array(names)}).slice(0, 10)),
    "slice of pyarrow, string_view": written(pa.table({"name": pa.array(names, pa.string_view())}).slice(0, 10)),
    "pa.table cast, Feather": written(pa.table(share).cast(pa.schema([("name", pa.string()), ("site", pa.int64())]))),
}
for how, count in found.items():
    print(f"{how}: {count} of 1,000 names for 10 records")
safe = ("write_ipc of polars", "to_arrow(), Feather", "slice of pyarrow, string", "pa.table cast, Feather")
assert all(found[how] <= 16 for how in safe)
assert all(found[how] == 1000 for how in found if how not in safe), "the behaviour has changed"

short = pl.DataFrame({"name": [f"name {number:04d}" for number in range(1000)]})
names = short["name"].to_list()
assert written(pa.table(short[:10])) == 10
PY
