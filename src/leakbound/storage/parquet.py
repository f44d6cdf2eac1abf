"""Check that a Parquet file fits into memory before it is decoded.

The size that a file states can be false, and a page of a few bytes can expand to gigabytes: pages are
compressed, a dictionary may repeat a long value without limit, and lists have any number of values in a row.
Therefore the header of every page is read first, which the decoder obeys too. Rows are then read in batches
that stay small even if each value is as long as the longest page.

Source of the layout: Apache Parquet (``parquet.thrift``) and Apache Thrift (compact protocol).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound.storage import limits

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_NUMBERS = {"NONE", "INT", "TIMESTAMP", "FLOAT16"}
_OBJECT = 64  # bytes of a value that becomes a Python object: text, bytes, a date, a decimal number
_MOST_ROWS = 65_536  # of a batch
_MOST_PAGES = 10**6
_LONGEST_HEADER = 2**20
# Encodings in which a count inside the page takes memory.
_COUNTED_INSIDE = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}


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
        groups = [
            group for group in map(described.row_group, range(described.num_row_groups)) if group.num_rows
        ]
        rows = max(described.num_rows, sum(group.num_rows for group in groups))
        width = sum(_width(leaves.column(index)) for index in chosen)
        limits.check_limit(self._path, "bytes in its rows", rows * max(width, limits.ROW), most)
        longest = sum(
            max((self._longest_page(group.column(index)) for group in groups), default=0) for index in chosen
        )
        limits.check_limit(self._path, "bytes in single pages", longest, most)
        held = 0
        for batch in self._file.iter_batches(
            max(1, min(_MOST_ROWS, most // max(4 * longest, 1))), columns=columns
        ):
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

    def _longest_page(self, chunk: pq.ColumnChunkMetaData) -> int:
        """Find the decompressed bytes of the longest page of a column in one group of rows.

        Pages are read from the place where the decoder starts.
        """
        first = chunk.data_page_offset
        if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < first:
            first = chunk.dictionary_page_offset
        at = first
        end = first + chunk.total_compressed_size
        pages = 0
        longest = 0
        while at < end:
            header, length = self._header(at)
            size = header.get(2, -1)
            packed = header.get(3, -1)
            kinds = header.get(5, {}), header.get(8, {})  # of data in the first and the second version
            if not (isinstance(size, int) and isinstance(packed, int) and min(size, packed) >= 0):
                raise ValueError("a page has no size")
            if not all(isinstance(kind, dict) for kind in kinds):
                raise ValueError("a page has no header")
            encoding = kinds[0].get(2, kinds[1].get(4))
            if isinstance(encoding, int) and encoding in _COUNTED_INSIDE:
                kind = _COUNTED_INSIDE[encoding]
                raise ValueError(f"column {chunk.path_in_schema!r} is encoded as {kind}; encode it plainly")
            longest = max(longest, size)
            pages += 1
            at += length + packed
            limits.check_limit(self._path, "pages or more in one column", pages, _MOST_PAGES)
        return longest

    def _header(self, at: int) -> tuple[dict[int, Any], int]:
        """Parse the header of the page that begins at a byte, and return its fields and length."""
        window = 512
        while True:
            try:
                return _struct(self._source.read_at(window, at), 0)
            except IndexError:
                if window > _LONGEST_HEADER or at + window > self._source.size():
                    raise ValueError("a page has no header") from None
                window *= 16
            except RecursionError:
                raise ValueError("a page has no header") from None


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


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Parse a structure in Thrift's compact form, and return its fields by number and the place after it.

    Raises:
        IndexError: If the structure is cut off.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        kind = head & 15
        step = head >> 4
        raw, at = (0, at + 1) if step else _varint(data, at + 1)
        number = number + step if step else raw >> 1
        value: Any = None
        if kind in (1, 2):
            value = kind == 1
        elif kind in (4, 5, 6):
            raw, at = _varint(data, at)
            value = raw >> 1 ^ -(raw & 1)
        elif kind == 12:
            value, at = _struct(data, at)
        elif kind == 8:
            raw, at = _varint(data, at)
            at += raw
        elif kind in (3, 7):
            at += 1 if kind == 3 else 8
        else:
            raise ValueError("the header of a page holds lists")
        fields[number] = value
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Parse a whole number of at most 64 bits in groups of seven, and return it and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("the header of a page holds a number without end")
