#!/usr/bin/env bash
# Expected: four pictures named by their DICOM UIDs (1.2.840.113619.0.dcm, with .cls beside each) are four samples.
# Seen:     a key ends at the first dot of the name, so that all files are one sample of key 1, with fields such as
#           2.840.113619.0.dcm. TarWriter takes such keys without a word and writes the same merged shard.
# Versions: webdataset 1.0.2, numpy 2.4.6
# Date:     2026-11-29
# Means:    a shard of studies named by UID holds one record for the loader; count records before a bound per record is stated.
# Source:   https://webdataset.github.io/webdataset/FAQ/ (base name up to the first dot)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet webdataset==1.0.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import webdataset

with webdataset.TarWriter("by_uid.tar") as shard:
    for number in range(4):
        shard.write({"__key__": f"1.2.840.113619.{number}", "dcm": b"picture", "cls": number})
with webdataset.TarWriter("by_number.tar") as shard:
    for number in range(4):
        shard.write({"__key__": f"{number:04d}", "dcm": b"picture", "cls": number})
found = {name: list(webdataset.WebDataset(name, shardshuffle=False)) for name in ("by_uid.tar", "by_number.tar")}
fields = sorted(key for key in found["by_uid.tar"][0] if not key.startswith("__"))
print(f"four records named by UID: {len(found['by_uid.tar'])} sample with {fields}")
print(f"four records named by number: {len(found['by_number.tar'])} samples")
assert len(found["by_number.tar"]) == 4
assert len(found["by_uid.tar"]) == 1, "the behaviour has changed: records named by UID are told apart"
assert found["by_uid.tar"][0]["__key__"] == "1"
assert len(fields) == 8
PY
