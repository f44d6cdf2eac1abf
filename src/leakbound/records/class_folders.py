"""Folders of image files with a subfolder for each class."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from leakbound.records.conversions import conversion
from leakbound.records.pixels import Decoder, decode
from leakbound.records.records import DatasetError, Records, check_alike
from leakbound.storage import limits

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")
"""Suffixes of image files, in lower case."""


@dataclass(frozen=True)
class ClassFolders:
    """Image files below a folder.

    Attributes:
        classes: Names of the subfolders, sorted.
        files: Image files, sorted by class and by name.
        labels: Class of each file, an index into ``classes``.
    """

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, folder: Path, *, flat: bool = False) -> "ClassFolders":
        """List the image files of a folder. Hidden files and folders are ignored.

        Args:
            folder: Folder with a subfolder for each class.
            flat: Whether it may hold images without subfolders instead, which then have no classes.

        Raises:
            DatasetError: If there are no subfolders, a subfolder holds no image or other files, images lie
                next to subfolders, or a link leads out of the folder.
        """
        if not folder.is_dir():
            raise DatasetError(
                f"{folder}: there is no such folder. Images lie in subfolders, one for each class."
            )
        inside = list(_visible(folder, folder))
        homes = [path for path in inside if path.is_dir()]
        loose = [path for path in inside if path.suffix.lower() in SUFFIXES and not path.is_dir()]
        if flat and loose and not homes:
            return cls((), tuple(_files(folder, folder)), np.zeros(len(inside), np.int64))
        if loose or not homes:
            raise DatasetError(_without_classes(folder, inside, loose, has_classes=bool(homes)))
        by_folder = [_files(home, folder) for home in homes]
        labels = np.repeat(np.arange(len(homes), dtype=np.int64), [len(files) for files in by_folder])
        return cls(
            tuple(home.name for home in homes), tuple(path for files in by_folder for path in files), labels
        )

    def names(self, folder: Path) -> tuple[str, ...]:
        """Return the path of each picture below the folder, as PNG, which copies are written as."""
        return tuple(file.relative_to(folder).with_suffix(".png").as_posix() for file in self.files)

    def records(self, folder: Path, decoder: Decoder = decode) -> Records:
        """Return the images as records, which are decoded on request."""
        return Records(str(folder), self.labels, partial(self._decoded, decoder))

    def _decoded(self, decoder: Decoder, rows: np.ndarray) -> np.ndarray:
        """Decode some files, which must be alike."""
        files = [self.files[row] for row in rows.tolist()]
        pixels: list[np.ndarray] = []
        for file in files:
            pixels.append(decoder(_content(file), str(file)))
            check_alike(pixels[-1].shape, str(file), pixels[0].shape, str(files[0]))
        return np.stack(pixels)


def owners_of_paths(folder: Path, names: Sequence[str], pattern: str) -> list[str]:
    """Return what the group of a pattern is in each path.

    Args:
        folder: Folder of the pictures, for messages.
        names: Path of each picture below it.
        pattern: Regular expression with one group, which is the owner.

    Raises:
        DatasetError: If it is none, or is not in one of the paths.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise DatasetError(f"{pattern!r} is no regular expression ({error})") from error
    if expression.groups != 1:
        raise DatasetError(
            f"{pattern!r} has {expression.groups} groups; put the owner in brackets, e.g. '(p[0-9]+)_'"
        )
    matches = [expression.search(name) for name in names]
    for name, match in zip(names, matches, strict=True):
        if match is None or not match[1]:
            raise DatasetError(f"{pattern!r} is not in the path {name} of {folder}")
    return [match[1] for match in matches if match is not None]


def _visible(folder: Path, top: Path) -> Iterator[Path]:
    """Yield the entries of a folder by name, without hidden ones. No link may lead out of the top folder."""
    inside = os.path.join(os.path.realpath(top), "")
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be read ({error.strerror}).") from error
    for name in names:
        if not name.startswith("."):
            if not name.isprintable():
                raise DatasetError(f"{folder}: holds the name {name!r}, which cannot be printed. Rename it.")
            if not os.path.realpath(folder / name).startswith(inside):
                raise DatasetError(
                    f"{folder / name}: is a link out of {top}. Put its target into that folder."
                )
            yield folder / name


def _without_classes(
    folder: Path, inside: Sequence[Path], loose: Sequence[Path], *, has_classes: bool
) -> str:
    """Say what is wrong with a folder whose images lie in no subfolder, or that has neither.

    Args:
        folder: The folder.
        inside: What lies in it.
        loose: Image files among that.
        has_classes: Whether there are subfolders, too.
    """
    if loose and has_classes:
        return f"{loose[0]}: lies next to the class folders. Move it into the folder of its class."
    if loose:
        return (
            f"{folder}: has no subfolders, so its images have no labels, which are needed here. Put them into one "
            f"subfolder for each class, e.g. {folder / 'cats'} and {folder / 'dogs'}."
        )
    if other := next((path for path in inside if conversion(path)), None):
        return _no_image(other)
    return (
        f"{folder}: has no subfolders and no images. Put images into one subfolder for each class; "
        "of Parquet, name a file."
    )


def _files(home: Path, top: Path) -> list[Path]:
    """List the image files of a class."""
    files = list(_visible(home, top))
    for path in files:
        if path.suffix.lower() not in SUFFIXES or not path.is_file():
            raise DatasetError(_no_image(path))
    if not files:
        raise DatasetError(f"{home}: is a class without images. Put some into it, or remove it.")
    return files


def _no_image(path: Path) -> str:
    """Say what to do with something that lies where images are expected."""
    remedy = "move it elsewhere"
    if not path.is_dir() and (said := conversion(path)):
        return f"{path}: {said}"
    if path.is_dir():
        remedy = f"if the folders in {path.parent} are the classes, name {path.parent}"
    elif path.suffix.lower() == ".parquet":
        remedy = "name this file, whose shards are read with it, instead of the folder"
    suffixes = ", ".join(SUFFIXES)
    return f"{path}: is no image file. A folder of images holds only files with {suffixes}; {remedy}."


def _content(path: Path) -> bytes:
    """Read the bytes of an image file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            limits.check_limit(path, "bytes", size, limits.TEXT)
            return file.read(size)
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}). Replace it or leave it out."
        ) from error
