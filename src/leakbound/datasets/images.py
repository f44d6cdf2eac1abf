"""Image datasets in the Hugging Face layout, from a folder of Parquet files or from the hub."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from leakbound.config.data import DatasetConfig
from leakbound.datasets.pixels import decode
from leakbound.datasets.records import DatasetError, RawDataset, Records, checked_labels, checked_rows
from leakbound.registry import nearest

FOLDER_VARIABLE = "LEAKBOUND_DATA"
"""Environment variable that names the folder of Parquet files."""

_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


@dataclass(frozen=True)
class HubSource:
    """Place of a dataset on the Hugging Face hub, and the names of its columns there.

    Attributes:
        repository: Hub id, ``owner/name``.
        configuration: Name of the subset, if the repository has several.
        image: Column of the images.
        label: Column of the labels.
    """

    repository: str
    configuration: str | None = None
    image: str = "image"
    label: str = "label"


@dataclass(frozen=True)
class ImageReader:
    """Reader of one dataset: ``reader(name, config)`` gives its original records.

    Attributes:
        files: Prefix of the Parquet files ``<files>_train.parquet`` and ``<files>_test.parquet``; None takes the
            dataset's own name.
        hub: Where the hub has it; None if it has not.
        publishable: Whether its images may be shown in public: not if its terms forbid it, or if nobody knows.
    """

    files: str | None = None
    hub: HubSource | None = None
    publishable: bool = True

    def __call__(self, name: str, config: DatasetConfig) -> RawDataset:
        """Read labels and encoded images of both original splits.

        Raises:
            DatasetError: If there is no such source, or a file is damaged or not of the expected layout.
        """
        if config.source == "folder" and not os.environ.get(FOLDER_VARIABLE):
            raise DatasetError(
                f"datasets.{name}.source = 'folder': the environment variable {FOLDER_VARIABLE} is not set. "
                f"Set it to the folder that holds {self.files or name}_train.parquet and _test.parquet."
            )
        if paths := self.originals(name, config):
            column = config.label or "label"
            train, test = (_table_of_file(path, column) for path in paths)
            return _dataset(train, test, image="image", label=column, origins=(str(paths[0]), str(paths[1])))
        if self.hub is None:
            raise DatasetError(
                f"datasets.{name}: its reader knows no copy on the hub. Set {FOLDER_VARIABLE} to the folder that holds "
                f"{self.files or name}_train.parquet and {self.files or name}_test.parquet."
            )
        train, test = (_table_of_hub(name, self.hub, split) for split in ("train", "test"))
        origins = (f"{self.hub.repository} (train)", f"{self.hub.repository} (test)")
        return _dataset(train, test, image=self.hub.image, label=config.label or self.hub.label, origins=origins)

    def originals(self, name: str, config: DatasetConfig) -> tuple[Path, ...]:
        """Files that are read, training split first, whether or not they are there; none if the hub is asked."""
        folder = os.environ.get(FOLDER_VARIABLE)
        if not folder or config.source == "hub":
            return ()
        return tuple(Path(folder) / f"{self.files or name}_{split}.parquet" for split in ("train", "test"))


read_parquet = ImageReader(publishable=False)  # anybody's images
read_mnist = ImageReader("mnist", HubSource("ylecun/mnist"))
read_fashion_mnist = ImageReader("fashion_mnist", HubSource("zalando-datasets/fashion_mnist"))
read_cifar10 = ImageReader("cifar10", HubSource("uoft-cs/cifar10", image="img"))
read_svhn = ImageReader("svhn", HubSource("ufldl-stanford/svhn", configuration="cropped_digits"))
# Its agreement forbids to publish the pictures.
read_celeba = ImageReader("celeba", HubSource("flwrlabs/celeba", label="Smiling"), publishable=False)


def _table_of_file(path: Path, label: str) -> pa.Table:
    """Columns ``image`` and ``label`` of a Parquet file."""
    if not path.is_file():
        raise DatasetError(
            f"{path}: there is no such file. {FOLDER_VARIABLE} must name a folder with the Parquet files; "
            "unset it to download from the Hugging Face hub."
        )
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(file.schema_arrow, "image", label, str(path))
            return file.read(columns=sorted({"image", label}))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as Parquet ({error}). Copy or download it again.") from error


def _table_of_hub(name: str, hub: HubSource, split: str) -> pa.Table:
    """One split as the hub has it, images still encoded."""
    import datasets

    try:
        found = datasets.load_dataset(hub.repository, hub.configuration, split=split)
    except Exception as error:
        raise DatasetError(
            f"datasets.{name}: {hub.repository} cannot be loaded from the Hugging Face hub ({error}). Check the "
            f"connection, or set {FOLDER_VARIABLE} to a folder with {name}_train.parquet and {name}_test.parquet."
        ) from error
    return table_of(found)


def table_of(found: Any) -> pa.Table:
    """Arrow table of a ``datasets.Dataset``, images still encoded, class names in its schema metadata."""
    table = found.with_format("arrow")[:]
    return table.replace_schema_metadata(found.features.arrow_schema.metadata)


def _dataset(train: pa.Table, test: pa.Table, *, image: str, label: str, origins: tuple[str, str]) -> RawDataset:
    """Both splits with one list of classes, which the training split decides."""
    for table, origin in zip((train, test), origins, strict=True):
        _check_columns(table.schema, image, label, origin)
    named = _class_names(train.schema, label)
    labels = checked_labels(
        _column(train, label), classes=len(named) if named else None, column=label, origin=origins[0]
    )
    classes = named or _made_up_names(label, int(labels.max()) + 1)
    test_labels = checked_labels(_column(test, label), classes=len(classes), column=label, origin=origins[1])
    return RawDataset(
        classes, _records(train, image, labels, origins[0]), _records(test, image, test_labels, origins[1])
    )


def _check_columns(schema: pa.Schema, image: str, label: str, origin: str) -> None:
    """Raise unless the image column holds encoded images and the label column exists, both once."""
    for column in (image, label):
        if schema.names.count(column) > 1:
            raise DatasetError(f"{origin}: has {schema.names.count(column)} columns {column!r}. Keep one.")
    if image not in schema.names:
        raise DatasetError(f"{origin}: has no column {image!r}; {nearest(image, schema.names)}. Write images there.")
    kind = schema.field(image).type
    encoded = kind.get_field_index("bytes") if pa.types.is_struct(kind) else -1
    if encoded < 0 or not any(is_kind(kind.field(encoded).type) for is_kind in _BINARY):
        raise DatasetError(
            f"{origin}: column {image!r} is {kind}, expected is struct<bytes: binary, path: string> with encoded "
            "PNG, WebP or JPEG files, as Hugging Face datasets writes images."
        )
    if label not in schema.names:
        raise DatasetError(f"{origin}: has no column {label!r} to use as the label; {nearest(label, schema.names)}")


def _column(table: pa.Table, name: str) -> np.ndarray:
    """A label column as numpy; a missing value or text makes it an object array, which the label check refuses."""
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return np.array([*column.to_pylist(), None], dtype=object)[:-1]
    return column.to_numpy()


def _class_names(schema: pa.Schema, label: str) -> tuple[str, ...] | None:
    """Class names that Hugging Face ``datasets`` stores in the schema, or None."""
    raw = (schema.metadata or {}).get(b"huggingface")
    if raw is None:
        return None
    try:
        feature = json.loads(raw)["info"]["features"][label]
        names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return tuple(str(name) for name in names) if names and isinstance(names, list) else None


def _made_up_names(label: str, count: int) -> tuple[str, ...]:
    """Names for unnamed classes: ``not_male``, ``male`` for an attribute, else their numbers."""
    if count <= 2 and label != "label":
        return f"not_{label.lower()}", label.lower()
    return tuple(str(number) for number in range(count))


def _records(table: pa.Table, image: str, labels: np.ndarray, origin: str) -> Records:
    """Records that decode an image when asked for it."""
    encoded = table[image]

    def decode_rows(rows: np.ndarray) -> np.ndarray:
        found = encoded.take(pa.array(rows)).to_pylist()
        pixels = [
            decode((value or {}).get("bytes"), row=int(row), origin=origin)
            for row, value in zip(rows, found, strict=True)
        ]
        return checked_rows(pixels, rows, origin)

    return Records(origin, labels, decode_rows)
