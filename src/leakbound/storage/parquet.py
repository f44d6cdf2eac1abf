"""Check that a Parquet file fits into memory before it is decoded, by the sizes that its description states.

Rows are read in batches, because a dictionary may repeat a long value, which the description does not show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leakbound.storage import limits

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_NUMBERS = {"NONE", "INT", "TIMESTAMP", "FLOAT16"}
_OBJECT = 64  # bytes of a value that becomes a Python object: text, bytes, a date, a decimal number
_MOST_ROWS = 1024  # of a batch


class ParquetSource:
    """An open Parquet file with only its description in memory.

    Args:
        source: The file, or its bytes.
        path: Path for messages.

    Raises:
        TooLargeError: If the description is too large.
        ValueError, OSError: If it is no Parquet.
    """

    def __init__(self, source: pa.NativeFile, path: Path | str) -> None:
        import pyarrow.parquet as pq

        self._source = source
        self._path = path
        tail = source.read_at(8, max(source.size() - 8, 0))
        if tail[4:] == _MAGIC:
            limits.check_limit(path, "bytes of description", int.from_bytes(tail[:4], "little"), limits.HEAD)
        self._file: pq.ParquetFile = pq.ParquetFile(source)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._file.schema_arrow

    @property
    def index(self) -> list[str]:
        """Columns that pandas stored as the index of a frame, which are no values of its records."""
        described = self.schema.pandas_metadata
        columns = described.get("index_columns") if isinstance(described, dict) else None
        return [name for name in columns if isinstance(name, str)] if isinstance(columns, list) else []

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns, or of all, in batches.

        Args:
            columns: Names of columns, or of fields within one (``image.bytes``). None for all.

        Raises:
            TooLargeError: If they would take more than is allowed.
            ValueError, OSError: If the file is damaged, a column holds lists, or all columns are read and one
                holds structures.
        """
        described = self._file.metadata
        leaves = self._file.schema
        chosen = self._leaves(columns)
        most = max(limits.TABLE, limits.EXPANSION * self._source.size())
        width = sum(_width(leaves.column(index)) for index in chosen)
        rows = described.num_rows * max(width, limits.ROW)
        limits.check_limit(self._path, "bytes in its rows", rows, most)
        groups = map(described.row_group, range(described.num_row_groups))
        stated = sum(group.column(index).total_uncompressed_size for group in groups for index in chosen)
        limits.check_limit(self._path, "bytes once decompressed", stated, most)
        held = 0
        for batch in self._file.iter_batches(_MOST_ROWS, columns=columns):
            held += batch.nbytes
            limits.check_limit(self._path, "bytes or more once decoded", held, most)
            yield batch

    def _leaves(self, columns: Sequence[str] | None) -> list[int]:
        """List the indices of the chosen columns.

        Raises:
            ValueError: If a column holds lists, or all columns are read and one holds structures.
        """
        chosen = []
        for index in range(len(self._file.schema)):
            leaf = self._file.schema.column(index)
            if columns is not None and not any(f"{leaf.path}.".startswith(f"{name}.") for name in columns):
                continue
            if leaf.max_repetition_level:
                raise ValueError(f"column {leaf.path!r} holds lists, each of any length")
            if columns is None and leaf.name != leaf.path:
                name = leaf.path.partition(".")[0]
                raise ValueError(
                    f"column {name!r} holds structures, of which each row would become many objects"
                )
            chosen.append(index)
        return chosen


def shards(path: Path) -> tuple[Path, ...]:
    """List the files of a dataset that is stored in several, or the file alone, whether or not they exist.

    Args:
        path: One of the files, ``NAME-00000-of-00002.parquet`` and so on, or a single file.
    """
    shard = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.parquet", path.name)
    if shard is None:
        return (path,)
    name, count = shard.groups()
    return tuple(path.with_name(f"{name}-{number:05}-of-{count}.parquet") for number in range(int(count)))


def _width(leaf: pq.ColumnSchema) -> int:
    """Return the least number of bytes that a value of a column counts."""
    plain = (
        leaf.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        and leaf.logical_type.type in _NUMBERS
    )
    return 8 if plain else _OBJECT + max(leaf.length or 0, 0)
