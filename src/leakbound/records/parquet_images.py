"""Images in Parquet files, in the layout of Hugging Face ``datasets``."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leakbound.records.pixels import Decoder, decode
from leakbound.records.records import DatasetError, Records, check_alike, checked_labels
from leakbound.registry import nearest
from leakbound.storage import TooLargeError
from leakbound.storage.arrow import FormError
from leakbound.storage.parquet import opened, shards
from leakbound.words import printable

_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_TEXTS = (pa.string(), pa.large_string())


def read_file(
    path: Path, label: str, decoder: Decoder = decode, image: str = "image"
) -> tuple[tuple[str, ...], Records]:
    """Read the names of the classes and the records of one Parquet file. Images are decoded on request.

    Args:
        path: The file. The other shards of its dataset are read with it.
        label: Column of the labels.
        decoder: Function that decodes an image.
        image: Column of the images.

    Raises:
        DatasetError: If the file is damaged or has another layout.
        TooLargeError: If it would take more memory than is allowed.
    """
    classes, (records,) = records_of({str(path): table_of_file(path, image, label)}, image, label, decoder)
    return classes, records


def table_of_file(path: Path, image: str, label: str, owner: str | None = None) -> pa.Table:
    """Read the columns of images, labels and owners of a Parquet file, and of the other shards of its dataset."""
    try:
        return pa.concat_tables(_table_of_shard(shard, image, label, owner) for shard in shards(path))
    except (DatasetError, TooLargeError):
        raise
    except FormError as error:
        raise DatasetError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(
            f"{path}: cannot be read as Parquet ({error}). Copy or download it again."
        ) from error


def _table_of_shard(path: Path, image: str, label: str, owner: str | None) -> pa.Table:
    """Read the columns of images, labels and owners of one file."""
    with pa.memory_map(str(path)) as mapped:
        source = opened(mapped, path)
        _check_columns(source.schema, image, label, str(path))
        if owner is not None:
            check_owner(source.schema, owner, str(path))
        whose = [] if owner is None else [owner]
        batches = list(source.batches([f"{image}.bytes", label, *whose]))
    schema = source.schema if not batches else batches[0].schema.with_metadata(source.schema.metadata)
    return pa.Table.from_batches(batches, schema)


def owners_of(table: pa.Table, owner: str, origin: str) -> list[str]:
    """Return whose each record of a table of pictures is.

    Args:
        table: The table.
        owner: Column of whole numbers or texts.
        origin: File or dataset, for messages.

    Raises:
        DatasetError: If there is no such column, or a record has no owner.
    """
    check_owner(table.schema, owner, origin)
    whose = table[owner].to_pylist()
    if missing := [row for row, name in enumerate(whose) if name in (None, "")]:
        raise DatasetError(
            f"{origin}: row {missing[0]}: column {owner!r} names no owner. Fill it in, or leave the record out."
        )
    return [str(name) for name in whose]


def check_owner(schema: pa.Schema, owner: str, origin: str) -> None:
    """Refuse a table of pictures without one column of owners, of whole numbers or texts."""
    if schema.names.count(owner) != 1:
        raise DatasetError(f"{origin}: has no column {owner!r} of owners; {nearest(owner, schema.names)}")
    kind = schema.field(owner).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_integer(kind) or kind in _TEXTS):
        raise DatasetError(
            f"{origin}: column {owner!r} is {printable(str(kind)[:200])}; owners are whole numbers or texts."
        )


def records_of(
    tables: Mapping[str, pa.Table], image: str, label: str, decoder: Decoder = decode
) -> tuple[tuple[str, ...], list[Records]]:
    """Make the records of each split, with the classes of the first one, the training split.

    Args:
        tables: Origin to table.
        image: Column of the images.
        label: Column of the labels.
        decoder: Function that decodes an image.
    """
    classes: tuple[str, ...] = ()
    splits = []
    for origin, table in tables.items():
        _check_columns(table.schema, image, label, origin)
        classes = classes or class_names(table.schema, label)
        classes, values = _column(table, label, classes)
        labels = checked_labels(values, classes=len(classes) or None, column=label, origin=origin)
        classes = classes or _made_up_names(label, int(labels.max()) + 1)
        splits.append(
            Records(origin, labels, partial(_decoded, table[image], origin=origin, decoder=decoder))
        )
    return classes, splits


def holds_bytes(kind: pa.DataType) -> bool:
    """Return True for structures with a field of bytes, as columns of encoded images have them."""
    return pa.types.is_struct(kind) and any(is_kind(field.type) for field in kind for is_kind in _BINARY)


def _check_columns(schema: pa.Schema, image: str, label: str, origin: str) -> None:
    """Refuse a table without exactly one column of encoded images and one of labels."""
    for column in (image, label):
        if schema.names.count(column) > 1:
            raise DatasetError(f"{origin}: has {schema.names.count(column)} columns {column!r}. Keep one.")
    if image not in schema.names:
        raise DatasetError(
            f"{origin}: has no column {image!r}; {nearest(image, schema.names)}. Write images there, or name their "
            "column by --image."
        )
    kind = schema.field(image).type
    encoded = kind.get_field_index("bytes") if pa.types.is_struct(kind) else -1
    if encoded < 0 or not any(is_kind(kind.field(encoded).type) for is_kind in _BINARY):
        raise DatasetError(
            f"{origin}: column {image!r} is {printable(str(kind)[:200])}, expected is struct<bytes: binary, "
            "path: string> with encoded PNG, WebP, JPEG or TIFF files, as Hugging Face datasets writes images."
        )
    if label not in schema.names:
        raise DatasetError(
            f"{origin}: has no column {label!r} to use as the label; {nearest(label, schema.names)}"
        )


def _column(table: pa.Table, name: str, classes: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return a label column as numpy, and the classes, which texts name if nothing else does.

    A column with a missing value or of another type ends with the first of them, as objects, which the label
    check refuses.
    """
    column = table[name]
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column if kind in _TEXTS else column.cast(kind)
    number = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    if not len(column) or (number and not column.null_count):
        return classes, column.to_numpy() if number else np.empty(0)
    if kind in _TEXTS and not column.null_count:
        return _numbered(column.dictionary_encode().unify_dictionaries().combine_chunks(), classes)
    first = pc.index(column.is_null(), True).as_py() if column.null_count else 0
    labels = np.zeros(first + 1, dtype=object)
    labels[first] = column[first].as_py()
    return classes, labels


def _numbered(texts: pa.DictionaryArray, classes: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Number the names of classes, by alphabet if no order is given. Other texts remain."""
    names = np.array(texts.dictionary.to_pylist(), object)[texts.indices.to_numpy()]
    classes = classes or tuple(sorted({*names}))
    places = {name: number for number, name in enumerate(classes)}
    labels = np.array([places.get(name, name) for name in names], object)
    return classes, labels if {*names} - {*classes} else labels.astype(np.int64)


def class_names(schema: pa.Schema, label: str) -> tuple[str, ...]:
    """Return the class names that Hugging Face ``datasets`` stores in the schema, if any."""
    try:
        feature = json.loads(schema.metadata[b"huggingface"])["info"]["features"][label]
        names = feature["names"] if feature["_type"] == "ClassLabel" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _made_up_names(label: str, count: int) -> tuple[str, ...]:
    """Make names for unnamed classes: ``not_male`` and ``male`` for an attribute, else their numbers."""
    if count <= 2 and label != "label":
        return f"not_{label.lower()}", label.lower()
    return tuple(str(number) for number in range(count))


def _decoded(encoded: pa.ChunkedArray, rows: np.ndarray, origin: str, decoder: Decoder) -> np.ndarray:
    """Decode some rows, which must be alike."""
    starts = np.cumsum([0, *map(len, encoded.chunks)])
    pixels: list[np.ndarray] = []
    for row, chunk in zip(rows.tolist(), (np.searchsorted(starts, rows, "right") - 1).tolist(), strict=True):
        value = encoded.chunk(chunk)[row - int(starts[chunk])].as_py()
        pixels.append(decoder((value or {}).get("bytes"), f"{origin}: row {row}"))
        check_alike(pixels[-1].shape, f"{origin}: row {row}", pixels[0].shape, f"row {rows[0]}")
    return np.stack(pixels)
