"""Records of one's own as they lie on the disk: folders of images, a Parquet file of images, or an array.

Unlike the datasets of the workflow they keep their size, and others can be written in their place.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int, Shaped, UInt8
from PIL import Image

from leakbound.datasets.class_folders import ClassFolders
from leakbound.datasets.images import read_file
from leakbound.datasets.pixels import AS_STORED, PictureForm
from leakbound.datasets.records import DatasetError, Records
from leakbound.storage import limits

Kind = Literal["folders", "parquet", "array"]
WHITE = 255
"""Level of a white pixel; black is 0."""
_UNIT = 1.0 / WHITE
_CHUNK = 256  # images decoded at a time
_VALUES = 2**24  # of all of them, if those are more


@dataclass(frozen=True)
class Collection:
    """Records of one's own.

    Attributes:
        origin: Where they lie.
        kind: Form that they have there.
        values: (n, colors, height, width), uint8, pixels from 0 to 255; or an array (n, ...) in its own units,
            float32, finite.
        labels: Class of each. None of an array, and of images that lie in no class folders.
        classes: Names of the classes; none without labels.
        names: Path of each picture below the folder, of folders.
        column: Column of the labels, of Parquet.
        unit: One unit of the values in those that people are told, of pixels from 0, black, to 1, white.
    """

    origin: Path
    kind: Kind
    values: Shaped[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"] | None = None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    column: str = "label"
    unit: float = 1.0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def pictures(self) -> bool:
        """True of images, whose scale is known."""
        return self.kind != "array"


def read_collection(
    path: Path,
    *,
    label: str = "label",
    form: PictureForm = AS_STORED,
    labelled: bool = False,
    each: Callable[[int], None] = lambda count: None,
    fits: Callable[[tuple[int, ...]], object] = lambda shape: None,
) -> Collection:
    """Records of one's own.

    Args:
        path: Folder of images or of class folders, file ``.parquet`` with images in the Hugging Face layout, or file
            ``.npy``.
        label: Column of the labels, of Parquet.
        form: Form that pictures are brought to.
        labelled: Whether a folder needs a subfolder for each class.
        each: Told how many images more have been read.
        fits: Called with the shape of a record before others are read; raises if it is not wanted.

    Raises:
        DatasetError: If it is something else, damaged, holds records of different forms, or fewer than two.
        TooLargeError: If it would take more memory than is allowed.
    """
    if path.is_dir():
        found = ClassFolders.of(path, flat=not labelled)
        names = tuple(file.relative_to(path).with_suffix(".png").as_posix() for file in found.files)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DatasetError(f"{path}: two files would both become {twice}. Rename one of them.")
        stored = sum(file.stat().st_size for file in found.files)
        pixels = _pixels(found.records(path, form.decode), stored, each, fits)
        return Collection(
            path, "folders", pixels, found.labels if found.classes else None, found.classes, names, unit=_UNIT
        )
    if not path.is_file():
        raise DatasetError(f"{path}: there is no such file or folder.")
    if path.suffix == ".parquet":
        classes, records = read_file(path, label, form.decode)
        pixels = _pixels(records, path.stat().st_size, each, fits)
        return Collection(path, "parquet", pixels, records.labels, classes, column=label, unit=_UNIT)
    if path.suffix == ".npy":
        return Collection(path, "array", _array(path, fits))
    raise DatasetError(
        f"{path}: give a folder of images, or with a subfolder of images for each class, a file .parquet in the "
        "Hugging Face layout, or an array .npy"
    )


def _pixels(
    records: Records, stored: int, each: Callable[[int], None], fits: Callable[[tuple[int, ...]], object]
) -> UInt8[np.ndarray, "n colors height width"]:
    """All images, as levels from 0 to 255, of files of so many bytes."""
    tall, wide, colors = records.decode(np.arange(1)).shape[1:]
    fits((colors, tall, wide))
    most = min(max(limits.TABLE, limits.PICTURES * stored), limits.ARRAYS // 2)
    limits.check_limit(records.origin, "bytes of pixels to give", len(records) * tall * wide * colors, most)
    values = np.empty((len(records), colors, tall, wide), np.uint8)
    chunk = max(1, min(_CHUNK, _VALUES // values[0].size))
    for start in range(0, len(records), chunk):
        pixels = records.like(0, np.arange(start, min(start + chunk, len(records))))
        values[start : start + chunk] = np.moveaxis(pixels, -1, 1)
        each(len(pixels))
    return _several(Path(records.origin), values)


def _array(path: Path, fits: Callable[[tuple[int, ...]], object]) -> Float[np.ndarray, "n ..."]:
    """An array as float32."""
    size = path.stat()
    limits.check_limit(path, "bytes", size.st_size, limits.ARRAYS)
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise DatasetError(
            f"{path}: cannot be read as an array ({error}). Write it by numpy.save."
        ) from error
    if (
        not isinstance(stored, np.ndarray)
        or stored.dtype.kind not in "biuf"
        or stored.ndim < 2
        or not stored.size
    ):
        held = (
            f"{stored.dtype} of shape {stored.shape}" if isinstance(stored, np.ndarray) else "several arrays"
        )
        raise DatasetError(
            f"{path}: holds {held}; allowed are real numbers of shape (records, ...), at least one each"
        )
    fits(stored.shape[1:])
    kept = 512 * getattr(size, "st_blocks", 0) or size.st_size  # a file may have holes, which read as zeros
    most = min(max(limits.TABLE, limits.EXPANSION * kept), limits.ARRAYS // 2)
    limits.check_limit(path, "bytes as float32 to give", 4 * stored.size, most)
    with np.errstate(over="ignore"):
        values = stored.astype(np.float32, order="C")
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        raise DatasetError(
            f"{path}: record {int(np.argmin(finite))} holds NaN, infinity or more than float32 can hold"
        )
    return _several(path, values)


def _several(path: Path, values: np.ndarray) -> np.ndarray:
    """The values, if they are at least two records."""
    if len(values) < 2:
        raise DatasetError(
            f"{path}: holds {len(values)} record; a covariance takes at least 2, better 10 for each value"
        )
    return values


def levels(values: Float[np.ndarray, "n colors height width"]) -> UInt8[np.ndarray, "n colors height width"]:
    """Pixels as whole numbers from 0 to 255: rounded, and clipped at both ends."""
    return np.clip(np.rint(values), 0, WHITE).astype(np.uint8)


def write_pictures(folder: Path, like: Collection, batches: Iterable[UInt8[np.ndarray, "_ ..."]]) -> None:
    """Write pictures, PNG, in the layout of a collection of pictures: folders, or one Parquet file.

    Args:
        folder: Where they go. It is there.
        like: The collection whose names, labels and order they have.
        batches: Arrays (_, colors, height, width), pixels from 0 to 255, one after another.
    """
    encoded: list[bytes] = []
    for row, picture in enumerate(picture for batch in batches for picture in batch):
        plain = np.moveaxis(picture, 0, -1)
        file = io.BytesIO()
        Image.fromarray(plain[..., 0] if plain.shape[-1] == 1 else plain).save(file, "PNG")
        if like.kind == "parquet":
            encoded.append(file.getvalue())
        else:
            (folder / like.names[row]).parent.mkdir(exist_ok=True)
            (folder / like.names[row]).write_bytes(file.getvalue())
    if like.kind == "parquet":
        pq.write_table(_table(encoded, like), folder / like.origin.name)


def _table(encoded: list[bytes], like: Collection) -> pa.Table:
    """Images and labels in the Hugging Face layout; no other column of the original."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns: dict[str, Any] = {
        "image": pa.array([{"bytes": one, "path": None} for one in encoded], kind),
        like.column: pa.array(like.labels),
    }
    label = {"_type": "ClassLabel", "names": list(like.classes)}
    features = {"info": {"features": {"image": {"_type": "Image"}, like.column: label}}}
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(features)})
