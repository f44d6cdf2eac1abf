"""Check that a Parquet file fits into memory before it is decoded, by the sizes that its description states.

Rows are read in batches, because a dictionary may repeat a long value, which the description does not show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leakbound.storage import limits
from leakbound.storage.arrow import ArrowSource, FormError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_NUMBERS = {"NONE", "INT", "TIMESTAMP", "FLOAT16"}
_OBJECT = 64  # bytes of a value that becomes a Python object: text, bytes, a date, a decimal number
_MOST_ROWS = 1024  # of a batch
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.parquet|\.arrow)")
_SAVED, _SPLITS = "dataset_info.json", "dataset_dict.json"  # that datasets.save_to_disk writes


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

    def batches(
        self, columns: Sequence[str] | None = None, *, lists: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns, or of all, in batches.

        Args:
            columns: Names of columns, or of fields within one (``image.bytes``). None for all.
            lists: Whether columns may hold lists of numbers.

        Raises:
            TooLargeError: If they would take more than is allowed.
            ValueError, OSError: If the file is damaged, a column holds lists that are not allowed, or all columns are
                read and one holds structures.
        """
        described = self._file.metadata
        leaves = self._file.schema
        columns_read = self._leaves(columns, lists)
        most = max(limits.TABLE, limits.EXPANSION * self._source.size())
        width = sum(_width(leaves.column(index)) for index in columns_read)
        rows = described.num_rows * max(width, limits.ROW)
        limits.check_limit(self._path, "bytes in its rows", rows, most)
        groups = [described.row_group(number) for number in range(described.num_row_groups)]
        listed = [index for index in columns_read if leaves.column(index).max_repetition_level]
        values = sum(8 * group.column(index).num_values for group in groups for index in listed)
        limits.check_limit(self._path, "bytes in its lists", values, most)
        stated = sum(
            group.column(index).total_uncompressed_size for group in groups for index in columns_read
        )
        limits.check_limit(self._path, "bytes once decompressed", stated, most)
        memory = 0
        for batch in self._file.iter_batches(_MOST_ROWS, columns=columns):
            memory += batch.nbytes
            limits.check_limit(self._path, "bytes or more once decoded", memory, most)
            yield batch

    def _leaves(self, columns: Sequence[str] | None, lists: bool) -> list[int]:
        """List the indices of the chosen columns.

        Raises:
            ValueError: If a column holds lists that are not allowed, or all columns are read and one holds
                structures.
        """
        leaves = []
        listed = {field.name for field in self.schema if lists and _lists_numbers(field.type)}
        for index in range(len(self._file.schema)):
            leaf = self._file.schema.column(index)
            if columns is not None and not any(f"{leaf.path}.".startswith(f"{name}.") for name in columns):
                continue
            name = leaf.path.partition(".")[0]
            if leaf.max_repetition_level and name not in listed:
                expected = "lists of something else than numbers" if lists else "lists, each of any length"
                raise ValueError(f"column {name!r} holds {expected}")
            if columns is None and leaf.name != leaf.path and name not in listed:
                raise ValueError(
                    f"column {name!r} holds structures, of which each row would become many objects"
                )
            leaves.append(index)
        return leaves


def shards(path: Path) -> tuple[Path, ...]:
    """List the files of a dataset that is stored in several, or the file alone, whether or not they exist.

    Args:
        path: One of the files, ``NAME-00000-of-00002.parquet`` and so on, a folder of them or of one that
            ``datasets.save_to_disk`` wrote, or a single file.

    Raises:
        ValueError: If a folder holds several datasets, or not all files of one.
    """
    if path.is_dir():
        return _stored_in(path)
    shard = _SHARD.fullmatch(path.name)
    if shard is None:
        return (path,)
    name, count, suffix = shard.groups()
    return tuple(path.with_name(f"{name}-{number:05}-of-{count}{suffix}") for number in range(int(count)))


def holds_shards(folder: Path) -> bool:
    """Return True for a folder of Parquet files, or one that ``datasets.save_to_disk`` wrote."""
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    return not {_SAVED, _SPLITS}.isdisjoint(names) or any(name.endswith(".parquet") for name in names)


def _stored_in(folder: Path) -> tuple[Path, ...]:
    """List the files of the one dataset that a folder holds."""
    if (splits := folder / _SPLITS).is_file():
        names = json.loads(splits.read_bytes()[: limits.HEAD])["splits"]
        raise ValueError(
            f"{folder}: holds the splits {', '.join(map(str, names))}; name one, e.g. {folder / str(names[0])}"
        )
    suffix = ".arrow" if (folder / _SAVED).is_file() else ".parquet"
    paths = sorted(
        path for path in folder.iterdir() if path.suffix == suffix and not path.name.startswith(".")
    )
    matches = [_SHARD.fullmatch(path.name) for path in paths]
    stems = {match[1] if match else path.stem for match, path in zip(matches, paths, strict=True)}
    if len(stems) > 1 and any(matches):
        raise ValueError(
            f"{folder}: holds several tables, {', '.join(sorted(stems))}; name one file of the table that is meant, "
            "whose shards are read with it"
        )
    if paths and all(matches) and {*paths} != {*shards(paths[0])}:
        lacking = sorted({*shards(paths[0])} - {*paths})
        raise ValueError(f"{folder}: lacks {lacking[0].name if lacking else 'shards'}; copy the table again")
    return tuple(paths)


def opened(source: pa.NativeFile, path: Path) -> ParquetSource | ArrowSource:
    """Open a table by the suffix of its file.

    Args:
        source: The file.
        path: Its path.

    Raises:
        TooLargeError: If its description is too large.
        FormError: If it has integers of 128 bits.
        ValueError, OSError: If it is no such table.
    """
    import pyarrow as pa

    stream = path.suffix.lower() == ".arrow"
    try:
        return (ArrowSource if stream else ParquetSource)(source, path)
    except pa.ArrowNotImplementedError as error:
        if "Integers with more than 64 bits" not in str(error):
            raise
        # Only polars writes them so far.
        read = "read_ipc_stream" if stream else "read_parquet"
        raise FormError(
            "it has integers of 128 bits (Int128 or UInt128 of polars), which Arrow cannot read; write "
            f"polars.{read}(path).cast({{polars.Int128: polars.Int64, polars.UInt128: polars.Int64}})"
            ".write_parquet('mine.parquet'), with Float64 for larger numbers"
        ) from error


def _lists_numbers(kind: pa.DataType) -> bool:
    """Return True for lists of numbers, and for lists of such lists."""
    import pyarrow as pa

    inner = getattr(kind, "value_type", None)
    if inner is None or pa.types.is_dictionary(kind) or pa.types.is_map(kind):
        return False
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(is_kind(inner) for is_kind in plain) or _lists_numbers(inner)


def _width(leaf: pq.ColumnSchema) -> int:
    """Return the least number of bytes that a value of a column counts."""
    plain = (
        leaf.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        and leaf.logical_type.type in _NUMBERS
    )
    return 8 if plain else _OBJECT + max(leaf.length or 0, 0)
