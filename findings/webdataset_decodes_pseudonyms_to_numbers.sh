#!/usr/bin/env bash
# Expected: a pseudonym that is stored as 007.id comes back as it was written.
# Seen:     .decode() reads the ending .id, as .cls and .count, as a whole number: 007 and 7 are both 7. As .txt it stays
#           a text.
# Versions: webdataset 1.0.2, numpy 2.4.6
# Date:     2026-11-29
# Means:    owners whose names differ by leading zeros are one owner in every count of uses; store names as .txt.
# Source:   webdataset/autodecode.py, decoders
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet webdataset==1.0.2 numpy==2.4.6
cd "$folder"
venv/bin/python -W ignore - <<'PY'
import webdataset as wds

names = ["007", "7"]
with wds.TarWriter("records.tar") as writer:
    for number, name in enumerate(names):
        writer.write({"__key__": f"record{number}", "id": name.encode(), "txt": name})
read = list(wds.WebDataset("records.tar", shardshuffle=False).decode())
as_id, as_txt = [record["id"] for record in read], [record["txt"] for record in read]
print(f"written {names}: as .id {as_id}, as .txt {as_txt}")
assert as_id == [7, 7], "the behaviour has changed"
assert as_txt == names
PY
