"""Records that are no images: tables with a column of labels, arrays such as embeddings, and time series.

A record has the shape (rows, columns): one row of a table or of an embedding, or the channels of a time
series by its steps. Values have their own units. They are standardized by the attacker's records, so that
nothing depends on a statistic of private ones.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float, Int, Shaped

from leakbound.config.data import DatasetConfig
from leakbound.config.messages import shown
from leakbound.datasets.images import FOLDER_VARIABLE
from leakbound.datasets.records import DatasetError, RawDataset, Records
from leakbound.registry import nearest, nearest_path
from leakbound.storage import TooLargeError, limits
from leakbound.storage.parquet import ParquetSource, shards

SUFFIXES = (".csv", ".parquet", ".npz")
"""Suffixes of files with tables, arrays and time series."""
DEVIATIONS = 3.0
"""Standard deviations of the attacker's records that become 1. Values beyond them are clipped."""
_MOST_VALUES = 20_000  # of a record, because its covariance is computed
_LEAST_VALUES = 2
_IDS = 256  # most different whole numbers in a table of measurements or categories
_PLACES = 8  # least columns of a sequence of token ids
_MISSING = {"", "NA", "N/A", "NaN", "nan", "None", "null", "NULL"}  # among numbers; else names of classes


@dataclass(frozen=True)
class Table:
    """Labelled records that are no images.

    Attributes:
        origin: File, for messages.
        values: (n, rows, columns) in their own units, float64, finite.
        labels: Class of each.
        classes: Names of the classes, sorted.
        columns: Name of each value of a record.
    """

    origin: str
    values: Float[np.ndarray, "n rows columns"]
    labels: Int[np.ndarray, " n"]
    classes: tuple[str, ...]
    columns: tuple[str, ...]

    def advice(self) -> str | None:
        """Say which noise suits columns of zeros and ones, or of whole numbers. None if there are none."""
        flat = self.values.reshape(len(self.values), -1)
        binary = ((flat == 0) | (flat == 1)).all(axis=0)
        whole = (flat == np.rint(flat)).all(axis=0) & ~binary
        if not (binary | whole).any():
            return None
        return (
            f"{self.origin}: of {len(binary)} columns {binary.sum()} hold 0 and 1 (one-hot) and {whole.sum()} other "
            "whole numbers. Natural noise suits them once they are standardized: the same for all. Shapes that "
            "follow public variances (white, least_power, rate_distortion) add next to none to a rare category. "
            "Noisy values are no longer 0, 1 or whole; train on them as they are."
        )


@dataclass(frozen=True)
class TableReader:
    """Reader of tables, arrays and time series. ``reader(name, config)`` gives the original records.

    Attributes:
        publishable: Whether values of single records may be shown in figures.
    """

    publishable: bool = False

    def __call__(self, name: str, config: DatasetConfig) -> RawDataset:
        """Read the file that ``config.path`` names.

        Raises:
            DatasetError: If it cannot be read, or holds no labelled table of numbers.
            TooLargeError: If it would take more memory than is allowed.
        """
        path = self.originals(name, config)[0]
        label = config.label or "label"
        owner = [] if config.owner is None else [config.owner]
        table = load_table(path, label, owner)
        owners = load_owners(path, config.owner, label) if config.owner is not None else None
        records = Records(table.origin, table.labels, lambda rows: table.values[rows])
        return RawDataset(table.classes, records, None, columns=table.columns, owners=owners)

    def originals(self, name: str, config: DatasetConfig) -> tuple[Path, ...]:
        """Return the files that are read, whether or not they exist."""
        return shards(Path(os.environ.get(FOLDER_VARIABLE, "")) / (config.path or name))


read_table = TableReader()  # any records
read_shown_table = TableReader(publishable=True)  # records that their owner wants in figures


def is_table(path: Path) -> bool:
    """Return True for a file of a table or arrays: .csv, .npz, .npy, or Parquet without images."""
    if path.suffix.lower() == ".parquet" and path.is_file():
        try:
            with pa.memory_map(str(path)) as mapped:
                schema = ParquetSource(mapped, path).schema
                return "image" not in schema.names and not any(map(pa.types.is_struct, schema.types))
        except (pa.ArrowException, OSError, ValueError):
            return False  # the reader of images reports what is wrong
    return path.suffix.lower() in (".csv", ".npz", ".npy")


def load_table(path: Path, label: str = "label", exclude: Sequence[str] = ()) -> Table:
    """Read labelled records.

    Args:
        path: Table ``.csv`` or ``.parquet`` of numbers and a column of labels, of which the other shards are
            read, too, or ``.npz`` with the arrays
            ``records`` (n, values) or (n, channels, steps), and ``labels`` (n).
        label: Column of the labels, for tables.
        exclude: Columns that are left out, for tables.

    Raises:
        DatasetError: If the file cannot be read, a value is missing or no number, labels are no classes, or
            the records are token ids.
        TooLargeError: If it would take more memory than is allowed.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise DatasetError(
            f"{path}: give a table .csv or .parquet with a column of labels, or arrays with labels, written by "
            "numpy.savez('mine.npz', records=records, labels=labels)"
        )
    if not path.is_file():
        raise DatasetError(f"{path}: there is no such file{nearest_path(path)}")
    if exclude and kind == ".npz":
        raise DatasetError(f"{path}: arrays have no named columns to leave out; write the file without them")
    limits.check_limit(path, "bytes", path.stat().st_size, limits.WHOLE if kind == ".csv" else limits.ARRAYS)
    try:
        values, labels, columns = _arrays(path) if kind == ".npz" else _columns(path, label, exclude)
    except (DatasetError, TooLargeError):
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, BadZipFile) as error:
        raise DatasetError(
            f"{path}: cannot be read ({error}). Write it again: tables as UTF-8, arrays without Python objects (as "
            "columns of pandas hold them), e.g. labels.astype(str)."
        ) from error
    if len(columns) < _LEAST_VALUES or len(columns) > _MOST_VALUES or len(values) < 2:
        raise DatasetError(
            f"{path}: holds {len(values)} records of {len(columns)} values; allowed are at least 2 records of "
            f"{_LEAST_VALUES} to {_MOST_VALUES} values"
        )
    numbers = np.asarray(values, np.float64)
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers.reshape(len(numbers), -1)))[0]
        raise DatasetError(
            f"{path}: row {row}: {columns[column]!r} has no finite value. Fill it in, or leave the record out."
        )
    _check_no_tokens(path, values)
    return Table(str(path), numbers, *_classes(path, label, labels), columns)


def _columns(
    path: Path, label: str, exclude: Sequence[str]
) -> tuple[Shaped[np.ndarray, "n 1 columns"], pd.Series, tuple[str, ...]]:
    """Read values, labels and names of the columns of a table."""
    if path.suffix.lower() == ".csv":
        table = _csv(path, label)
    else:
        table = pd.concat([_frame(shard, label) for shard in shards(path)], ignore_index=True)
    names = [*map(str, table.columns)]
    if names.count(label) != 1:
        raise DatasetError(f"{path}: has no column {label!r} to use as the label; {nearest(label, names)}")
    for name in exclude:
        if name not in names or name == label:
            raise DatasetError(
                f"{path}: has no column {name!r} of values to leave out; {nearest(name, names)}"
            )
    values = table.drop(columns=[label, *exclude])
    if "Unnamed: 0" in names:
        raise DatasetError(
            f"{path}: has a column without a name, as pandas writes numbers of rows: use to_csv(..., index=False)"
        )
    for name in values:
        if len(values) and values[name].dtype.kind not in "biuf":
            raise DatasetError(
                f"{path}: column {str(name)!r} holds {shown(values[name].iloc[0])}, and only numbers can get noise. "
                "Encode it, e.g. by pandas.get_dummies; embed texts with your encoder; or leave it out: "
                f"--exclude {str(name)!r}."
            )
    truths = dict.fromkeys(values.select_dtypes(bool), np.uint8)
    return values.astype(truths).to_numpy()[:, None], table[label], tuple(map(str, values.columns))


def load_owners(path: Path, column: str, label: str) -> Int[np.ndarray, " n"]:
    """Read whose each record of a table is, as numbers that records of one owner share.

    Args:
        path: Table that :func:`load_table` has read.
        column: Column of the owners, of any values.
        label: Column of the labels.

    Raises:
        DatasetError: If an owner is missing.
    """
    if path.suffix.lower() == ".csv":
        table = _csv(path, label)
    else:
        table = pd.concat([_frame(shard, label) for shard in shards(path)], ignore_index=True)
    numbers, _ = pd.factorize(table[column])
    if (missing := numbers < 0).any():
        row = int(missing.argmax())
        raise DatasetError(
            f"{path}: row {row}: column {column!r} names no owner. Fill it in, or leave the record out."
        )
    return numbers.astype(np.int64)


def _csv(path: Path, label: str) -> pd.DataFrame:
    """Read a table with commas, semicolons or tabs between values. Names of classes are texts, even NA."""
    with path.open(encoding="utf-8") as file:
        comma = max(",;\t", key=file.readline(2**20).count)
    names = pd.read_csv(path, sep=comma, nrows=0).columns.drop(label, errors="ignore")
    missing = dict.fromkeys(names, _MISSING)
    form: dict[str, Any] = {"dtype": {label: str}, "na_values": missing, "keep_default_na": False}
    table = pd.read_csv(path, sep=comma, **form)
    if comma == ";" and not all(kind.kind in "biuf" for kind in table[names].dtypes):
        table = pd.read_csv(path, sep=comma, decimal=",", **form)
    if label in table:
        numbers = pd.to_numeric(table[label], errors="coerce")
        texts = table[label][numbers.isna()]
        if len(texts) < len(table) and texts.isin(_MISSING).all():
            codes = table[label].str.match(r"\s*-?0\d").any()  # 007 is a name
            table[label] = table[label].mask(numbers.isna()) if codes else numbers
    return table


def _frame(path: Path, label: str) -> pd.DataFrame:
    """Read a table in Parquet without the index that pandas stored with it, unless that is the label."""
    with pa.memory_map(str(path)) as mapped:
        source = ParquetSource(mapped, path)
        table = pa.Table.from_batches(list(source.batches()), source.schema).to_pandas(ignore_metadata=True)
        return table.drop(columns=[name for name in source.index if name != label], errors="ignore")


def _arrays(path: Path) -> tuple[Shaped[np.ndarray, "n rows columns"], pd.Series, tuple[str, ...]]:
    """Read values, labels and names of the places of the arrays of a file."""
    with ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    limits.check_limit(
        path, "bytes once unpacked", size, max(limits.TABLE, limits.EXPANSION * path.stat().st_size)
    )
    with np.load(path, allow_pickle=False) as file:
        if lacking := [name for name in ("records", "labels") if name not in file.files]:
            raise DatasetError(
                f"{path}: lacks {' and '.join(lacking)}; write it by numpy.savez(path, records=..., labels=...)"
            )
        values, labels = (file[name] for name in ("records", "labels"))
    if values.dtype.kind not in "biuf" or values.ndim not in (2, 3) or labels.shape != values.shape[:1]:
        raise DatasetError(
            f"{path}: records are {values.dtype} of shape {values.shape} and labels of shape {labels.shape}; allowed "
            "are real numbers (n, values) or (n, channels, steps) with a label for each"
        )
    values = values.reshape(len(values), -1, values.shape[-1])
    places = [f"{row}, {column}" for row, column in np.ndindex(*values.shape[1:])]
    return values, pd.Series(labels), tuple(places)


def _check_no_tokens(path: Path, values: Shaped[np.ndarray, "n rows columns"]) -> None:
    """Refuse sequences of token ids, to which noise cannot be added in a meaningful way."""
    if values.dtype.kind not in "iu" or values.itemsize == 1 or values[0].size < _PLACES or values.min() < 0:
        return
    most = values.reshape(len(values), -1).max(axis=0)
    alike = (most > most.max() / 2).mean() > 0.5  # ids have a similar range in all places
    if alike and len(np.unique(values)) > _IDS:
        raise DatasetError(
            f"{path}: whole numbers from {values.min()} to {values.max()} in {values[0].size} places look like token "
            "ids, and noise on an id means nothing. Embed them with your encoder first and give its vectors; if they "
            "are measurements, write them as floats."
        )


def _classes(path: Path, label: str, labels: pd.Series) -> tuple[Int[np.ndarray, " n"], tuple[str, ...]]:
    """Return the class of each record, and the sorted names of the classes."""
    if (missing := labels.isna() | (labels == "")).any():
        raise DatasetError(f"{path}: row {int(missing.to_numpy().argmax())}: {label!r} is missing")
    if labels.dtype.kind == "f":
        if (odd := (labels != np.rint(labels)) | np.isinf(labels)).any():
            raise DatasetError(
                f"{path}: column {label!r} holds {labels[odd].iloc[0]:g}, which is no class. Name another column "
                "as the label, or make classes of this one, e.g. by pandas.qcut."
            )
        labels = labels.astype(np.int64)
    numbers, names = pd.factorize(labels, sort=True)
    return numbers.astype(np.int64), tuple(map(str, names))


def scaling(
    raw: RawDataset, parts: Sequence[Float[np.ndarray, "_ 1 rows columns"]], standardize: bool
) -> tuple[Float[np.ndarray, "1 rows columns"], Float[np.ndarray, "1 rows columns"]]:
    """Compute the scale that brings records to the networks' range [-1, 1]: (value − mean) · factor, clipped.

    Each value is standardized by mean and standard deviation of the attacker's records. Three standard
    deviations become 1, and values beyond are clipped. A value that all of the attacker's records share
    becomes 0. Linear changes of units therefore change nothing, and nothing depends on private records.

    Args:
        raw: Records as a reader returns them.
        parts: The private, the test and, last, the attacker's records.
        standardize: False for values that are in [-1, 1] already.

    Returns:
        Mean and factor of each value, 0 and 1 of values that are not standardized.

    Raises:
        DatasetError: If values are not standardized and one is outside of [-1, 1].
    """
    public = parts[-1]
    if standardize:
        deviation = public.std(axis=0)
        varies = deviation > 1e-9 * np.abs(public).max(axis=0)  # constant values vary by rounding
        factor = np.divide(1.0, DEVIATIONS * deviation, out=np.zeros_like(deviation), where=varies)
        return public.mean(axis=0), factor
    largest = np.max([np.abs(part).max(axis=0).ravel() for part in parts], axis=0)
    if largest.max() > 1:
        column = int(largest.argmax())
        raise DatasetError(
            f"{raw.train.origin}: {raw.columns[column]!r} reaches {largest[column]:g} in size; without standardize "
            "all values lie in -1 to 1. Standardize them, or bring them there."
        )
    return np.zeros_like(public[0]), np.ones_like(public[0])
