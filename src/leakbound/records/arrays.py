"""Arrays of records with or without labels, as NumPy, MedMNIST, MNIST's IDX and MATLAB's files hold them.

Arrays of uint8 with two axes for each record, or three of which one is of colors, are pictures.
"""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import Int, Shaped, UInt8

from leakbound.records.conversions import conversion
from leakbound.records.records import DatasetError
from leakbound.storage import TooLargeError, limits

_PAIRS = (
    ("records", "labels"),
    ("x_train", "y_train"),
    ("X_train", "y_train"),
    ("train_images", "train_labels"),
    ("images", "labels"),
    ("X", "y"),
    ("x", "y"),
    ("data", "labels"),
    ("data", "target"),
)
"""Names of records and labels in one file: ours, Keras', MedMNIST's, scikit-learn's and SVHN's."""
_IDX = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}  # third byte of a file to its type
_IDX_SUFFIXES = ("-ubyte", ".idx", "-ubyte.gz", ".idx.gz")
_COLORS = (1, 3)  # planes of a grey and of a colour picture
Axes = Literal["", "hw", "chw", "hwc"]


@dataclass(frozen=True)
class StoredArrays:
    """Form in which arrays are stored, so that copies of their records are written alike.

    Attributes:
        origin: The file.
        names: Names of the array of records and of that of labels.
        shape: Shape of a record.
        axes: Order of the axes of a picture, empty for other records.
        classes: Label of each class, in the type of the file. None without labels.
        last: Whether records lie along the last axis, as MATLAB's files may have them.
    """

    origin: Path
    names: tuple[str, str]
    shape: tuple[int, ...]
    axes: Axes
    classes: Shaped[np.ndarray, " classes"] | None = None
    last: bool = False

    @property
    def name(self) -> str:
        """Name of a file in this form: NumPy's for those of other programs."""
        numpy = self.origin.suffix.lower() in (".npz", ".npy")
        return (
            self.origin.name if numpy else f"{self.origin.name.removesuffix('.gz').removesuffix('.mat')}.npz"
        )

    def write(
        self,
        path: Path,
        values: Shaped[np.ndarray, "n ..."],
        labels: Int[np.ndarray, " n"] | None,
        more: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Write values and labels.

        Args:
            path: File to write.
            values: Values of each record. Those of pictures are (n, colors, height, width).
            labels: Class of each, None without labels.
            more: Further arrays, which are no values, by their names. A file ``.npy`` has none.
        """
        values = np.moveaxis(values, 1, -1) if self.axes == "hwc" else values
        values = np.ascontiguousarray(values.reshape(len(values), *self.shape))
        if path.suffix.lower() == ".npy":
            np.save(path, values)
            return
        arrays: dict[str, Any] = {name: np.asarray(texts) for name, texts in more.items()}
        arrays[self.names[0]] = values
        if labels is not None and self.classes is not None:
            arrays[self.names[1]] = self.classes[labels]
        np.savez(path, **arrays)


@dataclass(frozen=True)
class Arrays:
    """Records and labels as a file holds them.

    Attributes:
        origin: The file.
        values: (n, ...), as they are stored, records along the first axis.
        labels: (n,), of any type. None without labels.
        names: Names of both arrays.
        unread: Names of the other arrays of the file.
        last: Whether records lie along the last axis in the file.
    """

    origin: Path
    values: Shaped[np.ndarray, "n ..."]
    labels: Shaped[np.ndarray, " n"] | None
    names: tuple[str, str]
    unread: tuple[str, ...] = ()
    last: bool = False

    @property
    def axes(self) -> Axes:
        """Order of the axes of a picture, empty for other records.

        Raises:
            DatasetError: If colors may be the first axis of a record or the last, or records the last axis of all.
        """
        return _axes_of(self.origin, self.values.shape, self.values.dtype)

    def pictures(self) -> UInt8[np.ndarray, "n colors height width"]:
        """Return pictures with colors first."""
        values = self.values[:, None] if self.axes == "hw" else self.values
        return np.ascontiguousarray(np.moveaxis(values, -1, 1) if self.axes == "hwc" else values)

    def stored(self, classes: Shaped[np.ndarray, " classes"] | None) -> StoredArrays:
        """Return the form of the file.

        Args:
            classes: Label of each class.
        """
        shape = self.values.shape[1:]
        return StoredArrays(self.origin, self.names, shape, self.axes, classes, self.last)


def is_array_file(path: Path) -> bool:
    """Return True for the name of a file of arrays: .npz, .npy, .mat or IDX."""
    return path.suffix.lower() in (".npz", ".npy", ".mat") or path.name.lower().endswith(_IDX_SUFFIXES)


def holds_pictures(path: Path) -> bool:
    """Return True for a file of arrays whose records are pictures. False if it cannot be read."""
    try:
        return bool(read_arrays(path).axes)
    except (OSError, ValueError):
        return False  # the reader says what is wrong


def read_arrays(path: Path, *, labelled: bool = False) -> Arrays:
    """Read records and labels.

    Args:
        path: File ``.npz``, ``.npy`` without labels, ``.mat``, or IDX, whose labels lie in a file next to it.
        labelled: Whether labels are needed.

    Raises:
        DatasetError: If the file cannot be read, or lacks records or labels.
        TooLargeError: If it would take more memory than is allowed.
    """
    try:
        with _opened(path) as arrays:
            if isinstance(arrays, np.ndarray):
                return Arrays(path, arrays, _idx_labels(path, arrays, labelled), ("records", "labels"))
            names = _pair(path, arrays, labelled=labelled)
            values = arrays[names[0]]
            labels = arrays.get(names[1])
            unread = tuple(name for name in arrays if name not in names and not name.startswith("__"))
    except (DatasetError, TooLargeError):
        raise
    except NotImplementedError as error:  # MATLAB's files from version 7.3 on
        raise DatasetError(f"{path}: {conversion(path) or error}") from error
    except (OSError, ValueError, EOFError, SyntaxError, BadZipFile) as error:
        raise DatasetError(
            f"{path}: cannot be read as arrays ({error}). Write it by numpy.savez or numpy.save, without Python "
            "objects (as columns of pandas hold them), e.g. labels.astype(str)."
        ) from error
    if labels is not None and labels.ndim == 2 and 1 in labels.shape:  # (n, 1) of Keras, (1, n) of MATLAB
        labels = labels.ravel()
    last = labels is not None and values.ndim > 1 and values.shape[-1] == len(labels) != values.shape[0]
    values = np.moveaxis(values, -1, 0) if last else values
    if labels is not None and labels.shape != values.shape[:1]:
        raise DatasetError(
            f"{path}: records are {values.dtype} of shape {values.shape} and labels of shape {labels.shape}; allowed "
            "are records along the first axis, with a label for each"
        )
    return Arrays(path, values, labels, names, unread, last)


def read_owners(path: Path, name: str, count: int) -> list[str]:
    """Read whose each record of a file of arrays is.

    Args:
        path: File that :func:`read_arrays` has read.
        name: Name of the array of owners in it.
        count: Number of records.

    Raises:
        DatasetError: If the file has no such array, or one of another form.
    """
    with _opened(path) as file:
        arrays = {} if isinstance(file, np.ndarray) else file
        if name not in arrays:
            listed = ", ".join(each for each in arrays if not each.startswith("__"))
            array = name if name.isidentifier() else "owners"
            raise DatasetError(
                f"{path}: has no array {name!r} of owners; it holds {listed or 'one array without a name'}. Write "
                f"it by numpy.savez('mine.npz', records=..., labels=..., {array}=...)"
            )
        owners = np.asarray(arrays[name])
    owners = owners.ravel() if owners.ndim == 2 and 1 in owners.shape else owners
    if owners.shape != (count,) or owners.dtype.kind not in "iuUSb":
        raise DatasetError(
            f"{path}: owners {name!r} are {owners.dtype} of shape {owners.shape}; allowed are whole numbers or texts, "
            f"one for each of the {count} records"
        )
    return [str(owner) for owner in owners.tolist()]


def _pair(path: Path, arrays: Mapping[str, np.ndarray], *, labelled: bool) -> tuple[str, str]:
    """Choose the names of records and labels."""
    for names in _PAIRS:
        if names[0] in arrays and (names[1] in arrays or (names == _PAIRS[0] and not labelled)):
            return names
    listed = ", ".join(f"{name} {arrays[name].shape}" for name in arrays if not name.startswith("__"))
    lacking = [name for name in _PAIRS[0] if name not in arrays]
    raise DatasetError(
        f"{path}: lacks {' and '.join(lacking)}; it holds {listed[:500] or 'nothing'}. Write it by "
        "numpy.savez('mine.npz', records=..., labels=...)"
    )


@contextmanager
def _opened(path: Path) -> Iterator[np.ndarray | Mapping[str, np.ndarray]]:
    """Open a file as one array, or as arrays by name that are read when they are asked for."""
    size = path.stat().st_size
    limits.check_limit(path, "bytes", size, limits.ARRAYS)
    if path.name.lower().endswith(_IDX_SUFFIXES):
        yield _idx(path)
    elif path.suffix.lower() == ".mat":
        yield _mat(path, size)
    elif path.suffix.lower() == ".npz":
        with ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        most = max(limits.TABLE, limits.EXPANSION * size)
        limits.check_limit(path, "bytes once unpacked", unpacked, most)
        with np.load(path, allow_pickle=False) as file:
            yield file
    else:
        yield np.load(path, mmap_mode="r", allow_pickle=False)


def _mat(path: Path, size: int) -> dict[str, np.ndarray]:
    """Read the arrays of MATLAB's file that are records or labels by their names."""
    from scipy import io

    shapes = {name: shape for name, shape, _ in io.whosmat(path)}
    most = max(limits.TABLE, limits.EXPANSION * size)
    limits.check_limit(
        path, "bytes once unpacked", sum(8 * int(np.prod(shape)) for shape in shapes.values()), most
    )
    return {name: value for name, value in io.loadmat(path).items() if isinstance(value, np.ndarray)}


def _idx(path: Path) -> np.ndarray:
    """Read an array of MNIST's format."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        return _idx_array(path, file)


def _idx_array(path: Path, file: Any) -> np.ndarray:
    """Read the head of an open file, which states type and shape, and then as many values."""
    head = file.read(4)
    if len(head) < 4:
        raise ValueError("it does not begin as IDX does")
    zeros = int.from_bytes(head[:2], "big")
    kind = head[2]
    axes = head[3]
    if zeros or kind not in _IDX or axes == 0:
        raise ValueError("it does not begin as IDX does")
    shape = np.frombuffer(file.read(4 * axes), ">u4").astype(np.int64)
    form = np.dtype(_IDX[kind])
    size = int(form.itemsize * np.prod(shape.astype(object)))
    limits.check_limit(
        path, "bytes once unpacked", size, max(limits.TABLE, limits.EXPANSION * path.stat().st_size)
    )
    content = file.read(size)
    if len(shape) != axes or len(content) < size:
        raise ValueError("it ends before its values do")
    return np.frombuffer(content, form).reshape(shape).astype(form.newbyteorder("="))


def _idx_labels(path: Path, values: np.ndarray, labelled: bool) -> np.ndarray | None:
    """Read the labels of MNIST's format, which lie next to the pictures."""
    name = path.name
    for images, labels in (("images", "labels"), ("idx3", "idx1")):
        name = name.replace(images, labels)
    partner = path.with_name(name)
    if name != path.name and partner.is_file():
        return _idx(partner)
    if labelled:
        where = f"no labels lie next to it, as {name}" if name != path.name else "one array has no labels"
        raise DatasetError(
            f"{path}: {where}. Give arrays with labels, written by numpy.savez('mine.npz', records=..., labels=...)"
        )
    return None


def _axes_of(path: Path, shape: tuple[int, ...], kind: np.dtype) -> Axes:
    """Return the order of the axes of a picture, empty for other records."""
    if len(shape) == 4 and shape[2] in _COLORS and shape[0] == shape[1] < shape[3]:
        raise DatasetError(
            f"{path}: has the shape {shape}: {shape[3]} pictures along the last axis, or {shape[0]} along the first? "
            "Write records along the first axis: numpy.moveaxis(records, -1, 0)"
        )
    if kind != np.uint8 or len(shape) not in (3, 4):
        return ""
    if len(shape) == 3:
        return "hw"
    first = shape[1] in _COLORS
    last = shape[3] in _COLORS
    if first and last and shape[1:] != (1, 1, 1):
        raise DatasetError(
            f"{path}: has the shape {shape}: are colors the first axis of a picture or its last? Write them first: "
            "numpy.moveaxis(records, -1, 1), or without an axis of one color"
        )
    return "chw" if first else "hwc" if last else ""
