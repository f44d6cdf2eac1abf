"""The user's own records as they are stored: folders or a Parquet file of images, a table, or an array.

Unlike the datasets of the workflow they keep their size, and noisy copies are written in the same form.
"""

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int, Shaped, UInt8
from PIL import Image

from leakbound.records.arrays import Axes, StoredArrays, is_array_file, read_arrays
from leakbound.records.class_folders import ClassFolders
from leakbound.records.conversions import conversion
from leakbound.records.frames import StoredTable
from leakbound.records.parquet_images import read_file
from leakbound.records.pixels import AS_STORED, PictureForm
from leakbound.records.records import DatasetError, Records
from leakbound.records.tables import Encoding, Missing, Table, is_table, load_table
from leakbound.registry import nearest_path
from leakbound.storage import limits
from leakbound.storage.parquet import holds_shards, shards

Kind = Literal["folders", "parquet", "images", "table", "array"]
WHITE = 255
"""Level of a white pixel. Black is 0."""
OWNER = "owner"
"""Column of the owners in a file of pictures that is written with them."""
_UNIT = 1.0 / WHITE
_CHUNK = 256  # images that are decoded at a time
_VALUES = 2**24  # values of these images, which limit their number


@dataclass(frozen=True)
class Collection:
    """The user's own records.

    Attributes:
        origin: File or folder of the records.
        kind: Form of this file or folder.
        values: Pixels (n, colors, height, width), uint8 from 0 to 255, or an array or table (n, ...), finite
            floats, in its own units, or float32 and standardized.
        labels: Class of each record. None for an array, and for images without class folders.
        classes: Names of the classes, empty without labels.
        names: Path of each picture below the folder, for folders. Name of each value, for tables.
        column: Column of the labels, for Parquet and tables.
        unit: Size of one unit of the values in reported units. Pixels are reported from 0 (black) to 1
            (white).
        scale: Mean and standard deviation of each value that standardized ones were made with.
        stored: Form of a table or of arrays, for copies.
        encoding: What texts and missing values of a table were replaced by.
        left_out: How many records were left out, because something is missing.
        filled: How many missing values of a table medians have taken the place of.
        deep: Whether pictures have 16 bits in their files.
        rows: Row of the file that each record of a table is, None if each row is one.
        owners: Whose each record is, which a file of pictures then says in a column ``owner``. None if it does not.
    """

    origin: Path
    kind: Kind
    values: Shaped[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"] | None = None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    column: str = "label"
    unit: float = 1.0
    scale: tuple[np.ndarray, np.ndarray] | None = None
    stored: StoredTable | StoredArrays | None = None
    encoding: Encoding | None = None
    left_out: int = 0
    filled: int = 0
    deep: bool = False
    rows: Int[np.ndarray, " n"] | None = None
    owners: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def pictures(self) -> bool:
        """True for images, whose scale is known."""
        return self.kind in ("folders", "parquet", "images")

    @property
    def file_name(self) -> str:
        """Name of the file that holds copies."""
        if self.stored is not None:
            return self.stored.name
        return (
            self.origin.name if self.origin.suffix in (".parquet", ".npy") else f"{self.origin.stem}.parquet"
        )

    @property
    def counts(self) -> dict[str, int]:
        """Number of records of each class."""
        if self.labels is None:
            return {}
        counts = np.bincount(self.labels, minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, counts, strict=True))

    def standardized(self, by: "Collection") -> "Collection":
        """Standardize an array or table by mean and standard deviation of each value of some records.

        Args:
            by: Those records, in the same units. A value that is constant in them is only centred.
        """
        values = by.values.astype(np.float64)
        center = values.mean(axis=0)
        spread = values.std(axis=0)
        spread = np.where(spread > 1e-9 * np.abs(values).max(axis=0), spread, 1.0)
        return replace(
            self, values=((self.values - center) / spread).astype(np.float32), scale=(center, spread)
        )

    def restored(self, values: Float[np.ndarray, "k ..."]) -> Float[np.ndarray, "k ..."]:
        """Bring standardized values back into the units of the file, as float32."""
        center, spread = self.scale or (0.0, 1.0)
        return np.asarray(values * spread + center, np.float32)


def read_collection(
    path: Path,
    *,
    label: str = "label",
    image: str = "image",
    form: PictureForm = AS_STORED,
    exclude: Sequence[str] = (),
    categories: Sequence[str] = (),
    missing: Missing | None = None,
    encoding: Encoding | None = None,
    absent_ok: bool = False,
    labelled: bool = False,
    each: Callable[[int], None] = lambda count: None,
    fits: Callable[[tuple[int, ...]], object] = lambda shape: None,
) -> Collection:
    """Read the user's own records.

    Args:
        path: Folder of images or of class folders, images in the Hugging Face layout, or a table of numbers with a
            column of labels, as Parquet (one file, shards, or a folder of them), as ``datasets.save_to_disk`` or, for
            tables, as text, or a file of arrays (:mod:`leakbound.records.arrays`).
        label: Column of the labels, for Parquet and tables.
        image: Column of the images, for Parquet.
        form: Form that pictures are converted to.
        exclude: Columns of a table that are left out.
        categories: Columns of a table whose texts become columns of 0 and 1.
        missing: What happens to missing values of a table.
        encoding: That of other records, which a table needs too.
        absent_ok: Whether columns that are left out may be absent.
        labelled: Whether labels are needed.
        each: Called with the number of images that have been read since the last call.
        fits: Called with the shape of the first record before the others are read. It raises to refuse the
            shape.

    Raises:
        DatasetError: If the path is something else or damaged, or has fewer than two records or different
            shapes.
        TooLargeError: If the records would take more memory than is allowed.
    """
    form.depths.clear()
    if path.is_dir() and not holds_shards(path):
        folders = ClassFolders.of(path, flat=not labelled)
        names = folders.names(path)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DatasetError(f"{path}: two files would both become {twice}. Rename one of them.")
        stored = sum(file.stat().st_size for file in folders.files)
        pixels = _pixels(folders.records(path, form.decode), stored, each, fits)
        labels = folders.labels if folders.classes else None
        return Collection(path, "folders", pixels, labels, folders.classes, names, unit=_UNIT, deep=form.deep)
    if not path.exists():
        raise DatasetError(f"{path}: there is no such file or folder{nearest_path(path)}")
    if is_table(path) and path.suffix.lower() != ".npy":
        encoded: Any = {"categories": categories, "missing": missing, "encoding": encoding}
        table = load_table(path, label, exclude, absent_ok=absent_ok, **encoded)
        return _table_of(path, table, label, fits)
    if path.is_dir() or path.suffix.lower() in (".parquet", ".arrow"):
        classes, records = read_file(path, label, form.decode, image)
        pixels = _pixels(records, sum(shard.stat().st_size for shard in shards(path)), each, fits)
        return Collection(
            path, "parquet", pixels, records.labels, classes, column=label, unit=_UNIT, deep=form.deep
        )
    if is_array_file(path):
        return _arrays(path, form, labelled, each, fits)
    raise DatasetError(
        f"{path}: "
        + (
            conversion(path)
            or "give a folder of images, or with a subfolder of images for each class, a file .parquet in the "
            "Hugging Face layout, a table .csv or .parquet of numbers, or an array .npy or .npz"
        )
    )


def _table_of(path: Path, table: Table, label: str, fits: Callable[[tuple[int, ...]], object]) -> Collection:
    """Return a table as a collection."""
    shape = table.values.shape[1:]
    fits(shape)
    values = table.values.reshape(len(table.values), *(shape if shape[0] > 1 else shape[1:]))
    facts: dict[str, Any] = {
        "stored": table.stored,
        "encoding": table.encoding,
        "left_out": table.left_out,
        "filled": table.filled,
        "rows": table.rows,
    }
    return Collection(
        path, "table", values, table.labels, table.classes, table.columns, column=label, **facts
    )


def _arrays(
    path: Path,
    form: PictureForm,
    labelled: bool,
    each: Callable[[int], None],
    fits: Callable[[tuple[int, ...]], object],
) -> Collection:
    """Read pictures of a file of arrays, or one array of other values, as float32."""
    arrays = read_arrays(path, labelled=labelled)
    if not arrays.axes:
        return Collection(path, "array", _array(path, arrays.values, fits))
    stored_pixels = arrays.pictures()
    numbers = names = None
    if arrays.labels is not None:
        if len(arrays.labels) != len(stored_pixels):
            raise DatasetError(f"{path}: holds {len(stored_pixels)} pictures and {len(arrays.labels)} labels")
        names, numbers = np.unique(arrays.labels, return_inverse=True)

    def decode(rows: np.ndarray) -> np.ndarray:
        return np.stack(
            [form.converted(stored_pixels[row], f"{path}: record {row}") for row in rows.tolist()]
        )

    records = Records(
        str(path), np.zeros(len(stored_pixels), np.int64) if numbers is None else numbers, decode
    )
    pixels = _pixels(records, stored_pixels.nbytes, each, fits)
    stored = arrays.stored(names)
    stored = replace(stored, shape=_shaped(pixels.shape[1:], stored.axes))
    classes = () if names is None else tuple(map(str, names.tolist()))
    labels = None if numbers is None else numbers.astype(np.int64)
    return Collection(path, "images", pixels, labels, classes, unit=_UNIT, stored=stored)


def _shaped(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    """Return the shape of a picture (colors, height, width) with other axes. Grey needs none for its color."""
    colors, height, width = shape
    if axes == "hw" and colors == 1:
        return height, width
    return (height, width, colors) if axes == "hwc" else shape


def _pixels(
    records: Records, stored: int, each: Callable[[int], None], fits: Callable[[tuple[int, ...]], object]
) -> UInt8[np.ndarray, "n colors height width"]:
    """Decode all images of files of so many bytes, as levels from 0 to 255."""
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


def _array(
    path: Path, stored: Shaped[np.ndarray, "n ..."], fits: Callable[[tuple[int, ...]], object]
) -> Float[np.ndarray, "n ..."]:
    """Return an array as float32, if it holds finite real numbers."""
    if stored.dtype.kind not in "biuf" or stored.ndim < 2 or not stored.size:
        raise DatasetError(
            f"{path}: holds {stored.dtype} of shape {stored.shape}; allowed are real numbers of shape (records, ...), "
            "at least one each"
        )
    fits(stored.shape[1:])
    size = path.stat()
    stored_bytes = (
        512 * getattr(size, "st_blocks", 0) or size.st_size
    )  # a sparse file takes less space than its size
    most = min(max(limits.TABLE, limits.EXPANSION * stored_bytes), limits.ARRAYS // 2)
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
    """Return the values if there are at least two records."""
    if len(values) < 2:
        raise DatasetError(
            f"{path}: holds {len(values)} record; a covariance takes at least 2, better 10 for each value"
        )
    return values


def pixel_levels(
    values: Float[np.ndarray, "n colors height width"],
) -> UInt8[np.ndarray, "n colors height width"]:
    """Round and clip pixels to whole numbers from 0 to 255."""
    return np.clip(np.rint(values), 0, WHITE).astype(np.uint8)


def write_pictures(folder: Path, like: Collection, batches: Iterable[UInt8[np.ndarray, "_ ..."]]) -> None:
    """Write pictures as PNG in the layout of a collection, folders or one Parquet file, or as arrays.

    Args:
        folder: Existing folder for the files.
        like: Collection with the names, labels and order of the pictures.
        batches: Consecutive arrays (_, colors, height, width), pixels from 0 to 255.
    """
    if isinstance(like.stored, StoredArrays):
        like.stored.write(folder / like.file_name, np.concatenate([*batches]), like.labels)
        return
    encoded: list[bytes] = []
    for row, picture in enumerate(picture for batch in batches for picture in batch):
        if like.kind == "parquet":
            encoded.append(png(picture))
        else:
            (folder / like.names[row]).parent.mkdir(exist_ok=True)
            (folder / like.names[row]).write_bytes(png(picture))
    if like.kind == "parquet":
        pq.write_table(_table(encoded, like), folder / like.file_name)


def png(picture: UInt8[np.ndarray, "colors height width"], **options: Any) -> bytes:
    """Encode a picture as PNG.

    Args:
        picture: Pixels from 0 to 255.
        **options: Options of Pillow.
    """
    plain = np.moveaxis(picture, 0, -1)
    file = io.BytesIO()
    Image.fromarray(plain[..., 0] if plain.shape[-1] == 1 else plain).save(file, "PNG", **options)
    return file.getvalue()


def _table(encoded: list[bytes], like: Collection) -> pa.Table:
    """Make a table of images and labels in the Hugging Face layout, without other columns of the original."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns: dict[str, Any] = {
        "image": pa.array([{"bytes": image, "path": None} for image in encoded], kind),
        like.column: pa.array(like.labels),
        **({} if like.owners is None else {OWNER: pa.array(like.owners)}),
    }
    features = {
        "image": {"_type": "Image"},
        like.column: {"_type": "ClassLabel", "names": list(like.classes)},
    }
    return pa.table(columns).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
