"""Image datasets in the Hugging Face layout, from a folder of Parquet files or from the hub."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from leakbound.records.parquet_images import owners_of, records_of, table_of_file
from leakbound.records.records import DatasetError
from leakbound.storage import limits
from leakbound_lab.config.data import ORIGINALS, DatasetConfig
from leakbound_lab.datasets.records import RawDataset, number_owners

FOLDER_VARIABLE = "LEAKBOUND_DATA"
"""Environment variable that names the folder of Parquet files."""

_SPLITS = ("train", "test")


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
    """Reader of one dataset. ``reader(name, config)`` gives its original records.

    Attributes:
        files: Prefix of the Parquet files ``<files>_train.parquet`` and ``<files>_test.parquet``. None for
            the name of the dataset.
        hub: Place on the hub, or None if it is not there.
        publishable: Whether its images may be published. False if its terms forbid it or are not known.
    """

    files: str | None = None
    hub: HubSource | None = None
    publishable: bool = False

    def __call__(self, name: str, config: DatasetConfig) -> RawDataset:
        """Read labels and encoded images of both original splits.

        Raises:
            DatasetError: If the source is missing, or a file is damaged or has another layout.
        """
        if config.source == "folder" and not os.environ.get(FOLDER_VARIABLE):
            raise DatasetError(
                f"datasets.{name}.source = 'folder': the environment variable {FOLDER_VARIABLE} is not set. "
                f"Set it to the folder that holds {self.files or name}_train.parquet and _test.parquet."
            )
        if paths := self.originals(name, config):
            label = config.label or "label"
            for path in paths:
                if not path.exists():
                    raise DatasetError(
                        f"{path}: there is no such file. {FOLDER_VARIABLE} must name a folder with the Parquet files; "
                        "unset it to download from the Hugging Face hub."
                    )
            tables = {str(path): table_of_file(path, "image", label, config.owner) for path in paths}
            return _dataset_of(tables, "image", label, config.owner)
        return self._from_hub(name, config)

    def _from_hub(self, name: str, config: DatasetConfig) -> RawDataset:
        """Read labels and encoded images of both splits from the hub at a commit."""
        files = f"{self.files or name}_train.parquet and {self.files or name}_test.parquet"
        if self.hub is None:
            raise DatasetError(
                f"datasets.{name}: its reader knows no copy on the hub. Set {FOLDER_VARIABLE} to the folder that holds "
                f"{files}."
            )
        if config.revision is None:
            raise DatasetError(
                f"datasets.{name}.revision: is missing. The files of {self.hub.repository} on the hub can be replaced, "
                "so the commit must be named that is meant: 40 digits, on the page of the dataset under Files and "
                f"versions, History. Or set {FOLDER_VARIABLE} to a folder with {files}."
            )
        original = ORIGINALS.get(config.reader or name)
        sizes = (original.train, original.test) if original else (None, None)
        tables = {
            f"{self.hub.repository} ({split})": _table_of_hub(name, self.hub, split, config.revision, size)
            for split, size in zip(_SPLITS, sizes, strict=True)
        }
        return _dataset_of(tables, self.hub.image, config.label or self.hub.label, config.owner)

    def originals(self, name: str, config: DatasetConfig) -> tuple[Path, ...]:
        """List the files that are read, training split first, whether or not they exist. Empty for the hub."""
        folder = os.environ.get(FOLDER_VARIABLE)
        if not folder or config.source == "hub":
            return ()
        return tuple(Path(folder) / f"{self.files or name}_{split}.parquet" for split in _SPLITS)


read_parquet = ImageReader()  # any images
read_shown_parquet = ImageReader(publishable=True)  # images that their owner wants in figures
read_mnist = ImageReader("mnist", HubSource("ylecun/mnist"), publishable=True)
read_fashion_mnist = ImageReader(
    "fashion_mnist", HubSource("zalando-datasets/fashion_mnist"), publishable=True
)
read_cifar10 = ImageReader("cifar10", HubSource("uoft-cs/cifar10", image="img"), publishable=True)
read_svhn = ImageReader(
    "svhn", HubSource("ufldl-stanford/svhn", configuration="cropped_digits"), publishable=True
)
# Its agreement forbids publishing the pictures.
read_celeba = ImageReader("celeba", HubSource("flwrlabs/celeba", label="Smiling"))


def _dataset_of(tables: Mapping[str, pa.Table], image: str, label: str, owner: str | None) -> RawDataset:
    """Make the dataset of a training and a test table, with owners if a column of them is named."""
    classes, (train, test) = records_of(tables, image, label)
    if owner is None:
        return RawDataset(classes, train, test)
    owners, test_owners = number_owners(
        *(owners_of(table, owner, origin) for origin, table in tables.items())
    )
    return RawDataset(classes, train, test, owners=owners, test_owners=test_owners)


def _table_of_hub(name: str, hub: HubSource, split: str, revision: str, size: int | None) -> pa.Table:
    """Load one split from the hub at a commit, with encoded images. The number of records must be as known."""
    import datasets

    origin = f"{hub.repository} ({split})"
    try:
        loaded = datasets.load_dataset(hub.repository, hub.configuration, split=split, revision=revision)
    except Exception as error:
        raise DatasetError(
            f"datasets.{name}: {hub.repository} cannot be loaded from the Hugging Face hub ({error}). Check the "
            f"connection and the revision {revision}, or set {FOLDER_VARIABLE} to a folder with {name}_train.parquet "
            f"and {name}_test.parquet."
        ) from error
    if size not in (None, len(loaded)):
        raise DatasetError(
            f"datasets.{name}: {origin} has {len(loaded)} images at revision {revision}, known are {size}. Name the "
            "commit of the dataset that is meant."
        )
    limits.check_limit(origin, "bytes", loaded.data.nbytes, limits.ARRAYS)
    return loaded.with_format("arrow")[:].replace_schema_metadata(loaded.features.arrow_schema.metadata)
