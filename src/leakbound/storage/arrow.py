"""Arrow streams, as ``datasets.save_to_disk`` writes them, whose size in memory is known before they are read.

Batches of an uncompressed stream are views of the file. A compressed one may unfold to any size, which its head
does not say reliably, so it is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leakbound.storage import limits

if TYPE_CHECKING:
    import pyarrow as pa

_FILE = b"ARROW1"
_BATCH = "record batch"
_DICTIONARY = "dictionary"
_COMPRESSION = 3  # place of a field in the table of a batch (Arrow's Message.fbs)


class FormError(ValueError):
    """A table is whole, and has a form that is not read. The message says how it is converted."""


class ArrowSource:
    """An open stream with only its schema in memory.

    Args:
        source: The file.
        path: Path for messages.

    Raises:
        FormError: If it is in Arrow's file format.
        ValueError, OSError: If it is no stream.
    """

    index: Sequence[str] = ()

    def __init__(self, source: pa.NativeFile, path: Path | str) -> None:
        import pyarrow as pa

        if source.read_at(len(_FILE), 0) == _FILE:
            raise FormError(
                "it is in Arrow's file format (Feather); write pandas.read_feather(path).to_parquet('mine.parquet')"
            )
        self._source = source
        self._path = path
        source.seek(0)
        self.schema: pa.Schema = pa.ipc.open_stream(source).schema

    def batches(
        self, columns: Sequence[str] | None = None, *, lists: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns, or of all.

        Args:
            columns: Names of columns. A field within one, ``image.bytes``, stands for all of it. None for all.
            lists: Lists are allowed in any case, because the file holds them as they are in memory.

        Raises:
            TooLargeError: If they would take more than is allowed.
            FormError: If the file is compressed.
            ValueError, OSError: If it is damaged.
        """
        import pyarrow as pa

        most = max(limits.TABLE, limits.EXPANSION * self._source.size())
        self._source.seek(0)
        for message in pa.ipc.MessageReader.open_stream(self._source):
            if message.type in (_BATCH, _DICTIONARY) and _compressed(message):
                raise FormError(
                    "it is compressed; write it by datasets.load_from_disk(path).to_parquet('mine.parquet')"
                )
        self._source.seek(0)
        names = None if columns is None else [name.partition(".")[0] for name in columns]
        memory = 0
        for batch in pa.ipc.open_stream(self._source):
            memory += batch.nbytes
            limits.check_limit(self._path, "bytes or more once decoded", memory, most)
            yield batch if names is None else batch.select(names)


def _compressed(message: pa.ipc.Message) -> bool:
    """Read from the head of a batch whether its body is compressed.

    Raises:
        ValueError: If the head is damaged.
    """
    head = message.metadata.to_pybytes()

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from(form, head, at)[0])

    def field(table: int, place: int) -> int:
        """Return where a field of a table lies, 0 if the table lacks it."""
        described = table - number("<i", table)
        at = 4 + 2 * place
        offset = number("<H", described + at) if at < number("<H", described) else 0
        return table + offset if offset else 0

    try:
        header = field(number("<I", 0), 2)
        batch = header + number("<I", header)
        if message.type == _DICTIONARY:
            data = field(batch, 1)
            batch = data + number("<I", data)
        return bool(field(batch, _COMPRESSION))
    except struct.error as error:
        raise ValueError("its description is damaged") from error
