#!/usr/bin/env bash
# Expected: a picture that is read, given a new SOPInstanceUID and written carries the new one alone.
# Seen:     save_as writes the file meta information as it was read: MediaStorageSOPInstanceUID is still the old UID. With
#           enforce_file_format=True it is set to the new one.
# Versions: pydicom 3.0.2
# Date:     2026-11-29
# Means:    files that were pseudonymized tag by tag still name the original picture; set the file meta before they become records.
# Source:   https://pydicom.github.io/pydicom/stable/guides/writing_files.html; DICOM PS3.10, 7.1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pydicom==3.0.2
"$folder/venv/bin/python" - <<'PY'
import io

import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

original = Dataset()
original.file_meta = FileMetaDataset()
original.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
original.SOPClassUID, original.SOPInstanceUID = CTImageStorage, "1.2.3.4"
file = io.BytesIO()
original.save_as(file, enforce_file_format=True)
found = {}
for enforce in (False, True):
    file.seek(0)
    picture = pydicom.dcmread(file)
    picture.SOPInstanceUID = "9.9.9"
    written = io.BytesIO()
    picture.save_as(written, enforce_file_format=enforce)
    written.seek(0)
    again = pydicom.dcmread(written)
    found[enforce] = again.file_meta.MediaStorageSOPInstanceUID
    print(f"enforce_file_format={enforce}: picture {again.SOPInstanceUID}, file meta {found[enforce]}")
    assert again.SOPInstanceUID == "9.9.9"
assert found[False] == "1.2.3.4", "the behaviour has changed"
assert found[True] == "9.9.9"
PY
