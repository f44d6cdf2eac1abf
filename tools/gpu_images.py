"""The first records of the images of a configuration, to be carried to a machine that has none.

    python tools/gpu_images.py --configfile FILE [--out build/gpu-images]

Reads the Parquet files of ``LEAKBOUND_DATA`` and writes as many records as the configuration draws from, for a folder
``LEAKBOUND_DATA`` there and here. Each file states what it is a part of, and so does the provenance of what is
prepared from it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq

from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets.originals import PART
from leakbound_lab.registries import DATASETS

_ROWS = 2000  # of a group, as in the originals


def shorten(name: str, settings: DatasetConfig, out: Path) -> None:
    """Write the first records of a dataset's files.

    Args:
        name: Dataset.
        settings: Its settings, with the records of each split.
        out: Folder to write to.

    Raises:
        SystemExit: If the settings leave open how many records they take, or the dataset has no such files.
    """
    reader = DATASETS.get(settings.reader or name)
    paths = reader.originals(name, settings) if hasattr(reader, "originals") else ()
    if not paths or settings.pool is None or settings.aux is None or settings.test is None:
        sys.exit(f"datasets.{name}: needs Parquet files in LEAKBOUND_DATA, and pool, aux and test, to be shortened")
    for path, records in zip(paths, (settings.pool + settings.aux, settings.test), strict=True):
        table = pq.read_table(path)
        stated = f"the first {records:,} of {len(table):,} records of a file with SHA-256 {storage.file_hash(path)}"
        part = table.slice(0, records).replace_schema_metadata({**(table.schema.metadata or {}), PART: stated.encode()})
        pq.write_table(part, out / path.name, compression="zstd", row_group_size=_ROWS)
        print(f"{(out / path.name).stat().st_size / 2**20:7.2f} MiB  {path.name}: {stated}")


def main() -> None:
    """Fill the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", type=Path, required=True, help="configuration")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-images"), help="folder, emptied first")
    asked = parser.parse_args()
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    for name, settings in reading.load(asked.configfile).datasets.items():
        if (settings.reader or name) != "digits":
            shorten(name, settings, asked.out)


if __name__ == "__main__":
    main()
