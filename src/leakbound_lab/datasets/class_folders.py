"""Reader of datasets that are folders of image files with a subfolder for each class."""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Int

from leakbound.records.class_folders import ClassFolders, owners_of_paths
from leakbound.records.records import DatasetError
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets.images import FOLDER_VARIABLE
from leakbound_lab.datasets.records import RawDataset, number_owners


class FolderReader:
    """Reader of class folders, whose images may not be published. ``reader(name, config)`` gives the records."""

    publishable = False

    def __call__(self, name: str, config: DatasetConfig) -> RawDataset:
        """List the images of ``<name>_train`` and ``<name>_test``, or of ``<name>`` alone.

        Raises:
            DatasetError: If a folder is missing or is no folder of class folders, the classes of both splits
                differ, or the settings request a source or a label column, of which there is none.
        """
        if config.source == "hub" or config.label is not None:
            field, value = ("source", config.source) if config.source == "hub" else ("label", config.label)
            raise DatasetError(
                f"datasets.{name}.{field} = {value!r}: class folders lie on this machine, and their names are the "
                f"labels; leave {field} out"
            )
        if not os.environ.get(FOLDER_VARIABLE):
            raise DatasetError(
                f"datasets.{name}: the environment variable {FOLDER_VARIABLE} is not set. Set it to the folder that "
                f"holds {name}, or {name}_train and {name}_test, with a subfolder of images for each class."
            )
        folders = self.originals(name, config)
        splits = [ClassFolders.of(folder) for folder in folders]
        if len({split.classes for split in splits}) > 1:
            odd = min(set(splits[0].classes) ^ set(splits[1].classes))
            raise DatasetError(
                f"{folders[0]} and {folders[1]}: only one has the class {odd!r}. Both need all classes."
            )
        train, *test = (split.records(folder) for split, folder in zip(splits, folders, strict=True))
        owners: list[Int[np.ndarray, " _"] | None] = [None, None]
        if config.owner is not None:
            names = [split.names(folder) for split, folder in zip(splits, folders, strict=True)]
            names_of_owners = [
                owners_of_paths(folder, paths, config.owner)
                for folder, paths in zip(folders, names, strict=True)
            ]
            owners[: len(names_of_owners)] = number_owners(*names_of_owners)
        return RawDataset(
            splits[0].classes, train, test[0] if test else None, owners=owners[0], test_owners=owners[1]
        )

    def originals(self, name: str, config: DatasetConfig) -> tuple[Path, ...]:
        """List the folders that are read, training split first, whether or not they exist."""
        home = os.environ.get(FOLDER_VARIABLE)
        if not home:
            return ()
        split = tuple(Path(home) / f"{name}_{part}" for part in ("train", "test"))
        return split if any(folder.exists() for folder in split) else (Path(home) / name,)


read_folders = FolderReader()
