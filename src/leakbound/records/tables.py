"""Records that are no images: tables with a column of labels, arrays such as embeddings, and time series.

A record has the shape (rows, columns): one row of a table or of an embedding, or the channels of a time
series by its steps. Values have their own units.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Bool, Float, Int, Shaped

from leakbound.records.arrays import (
    Arrays,
    StoredArrays,
    holds_pictures,
    is_array_file,
    read_arrays,
    read_owners,
)
from leakbound.records.conversions import conversion
from leakbound.records.frames import MISSING, TEXTS, Frame, StoredTable, kind_of, read_frame
from leakbound.records.parquet_images import class_names, holds_bytes
from leakbound.records.records import DatasetError
from leakbound.records.token_ids import are_token_ids
from leakbound.registry import nearest, nearest_path
from leakbound.storage import TooLargeError
from leakbound.storage.arrow import FormError
from leakbound.storage.parquet import holds_shards, opened, shards
from leakbound.words import owner_text, shown

if TYPE_CHECKING:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

DEVIATIONS = 3.0
"""Standard deviations of the attacker's records that become 1. Values beyond them are clipped."""
Missing = Literal["drop", "median", "keep"]
"""What happens to missing values: their records are left out, or medians take their place, or, for ``keep``, there
are none, and numbers such as -999 are measurements."""
_MOST_VALUES = 20_000  # of a record, because its covariance is computed
_LEAST_VALUES = 2
_IDS = 256  # most different numbers that are looked at for the meaning of a rare one
_STAND_INS = (-9, -99, -999, -9999, -99999, 999, 9999, 99999)  # that files have where a value is missing
_MOST_CATEGORIES = 100  # of a column of texts
# DuckDB writes STRUCT and LIST to CSV in this form, and pandas dictionaries and lists.
_BRACKETS = re.compile(r"\s*(\{.*\}|\[.*\])\s*", re.DOTALL)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
_EXPECTED = (
    "give a table .csv or .parquet with a column of labels, or arrays with labels, written by "
    "numpy.savez('mine.npz', records=records, labels=labels)"
)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


@dataclass(frozen=True)
class Encoding:
    """Values that replace texts and missing values in columns, which public records determine where there are any.

    Attributes:
        categories: Column to the encoder that makes columns of 0 and 1 of its texts.
        medians: Imputer of missing values, None if they are not filled in.
    """

    categories: Mapping[str, OneHotEncoder]
    medians: SimpleImputer | None


@dataclass(frozen=True)
class Table:
    """Labelled records that are no images.

    Attributes:
        origin: File, for messages.
        values: (n, rows, columns) in their own units, float64, finite.
        labels: Class of each.
        classes: Names of the classes, sorted.
        columns: Name of each value of a record.
        stored: Form in which it is stored, for copies of its records.
        encoding: What texts and missing values were replaced by.
        left_out: How many records were left out, because a value or the label is missing.
        filled: How many missing values medians have taken the place of.
        rows: Row of the file that each record is, None if each row is one.
    """

    origin: str
    values: Float[np.ndarray, "n rows columns"]
    labels: Int[np.ndarray, " n"]
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    stored: StoredTable | StoredArrays
    encoding: Encoding
    left_out: int = 0
    filled: int = 0
    rows: Int[np.ndarray, " n"] | None = None

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


def is_table(path: Path) -> bool:
    """Return True for a table or for arrays without pictures, False for files and folders of images."""
    if path.is_dir() and not holds_shards(path):
        return False
    if kind_of(path) in TEXTS:
        return True
    if path.is_dir() or path.suffix.lower() in (".parquet", ".arrow"):
        try:
            with pa.memory_map(str(file := shards(path)[0])) as mapped:
                schema = opened(mapped, file).schema
                return "image" not in schema.names and not any(map(holds_bytes, schema.types))
        except (pa.ArrowException, OSError, ValueError):
            return False  # the reader of images reports what is wrong
    return is_array_file(path) and not holds_pictures(path)


def load_table(
    path: Path,
    label: str = "label",
    exclude: Sequence[str] = (),
    *,
    categories: Sequence[str] = (),
    missing: Missing | None = None,
    encoding: Encoding | None = None,
    absent_ok: bool = False,
) -> Table:
    """Read labelled records.

    Args:
        path: Table of numbers and a column of labels (:mod:`leakbound.records.frames`), or a file of arrays
            (:mod:`leakbound.records.arrays`) of shape (n, values) or (n, channels, steps), with labels.
        label: Column of the labels, for tables.
        exclude: Columns that are left out, for tables.
        categories: Columns of texts, of which columns of 0 and 1 are made, for tables.
        missing: What happens to missing values. None refuses them.
        encoding: That of other records, which these need too. None makes one of these.
        absent_ok: Whether columns that are left out may be absent.

    Raises:
        DatasetError: If the file cannot be read, a value is missing or no number, labels are no classes, or
            the records are token ids. All columns that cannot be used are named.
        TooLargeError: If it would take more memory than is allowed.
    """
    arrays = not path.is_dir() and is_array_file(path)
    if not (arrays or holds_shards(path) or kind_of(path) in (*TEXTS, ".parquet", ".arrow")):
        raise DatasetError(f"{path}: {conversion(path) or _EXPECTED}")
    if not path.exists():
        raise DatasetError(f"{path}: there is no such file{nearest_path(path)}")
    if arrays and ((exclude and not absent_ok) or categories or missing):
        raise DatasetError(
            f"{path}: arrays have no named columns to leave out or encode; write the file without them"
        )
    try:
        if arrays:
            return _of_arrays(read_arrays(path, labelled=True))
        frame = read_frame(path, label)
        if absent_ok:
            exclude = [name for name in exclude if name in frame.table.column_names]
        return _of_frame(frame, label, exclude, categories, missing, encoding)
    except (DatasetError, TooLargeError):
        raise
    except FormError as error:
        raise DatasetError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise DatasetError(
            f"{path}: cannot be read ({error}). Write it again: tables as UTF-8, arrays without Python objects (as "
            "columns of pandas hold them), e.g. labels.astype(str)."
        ) from error


def owner_column(path: Path, column: str) -> pd.Series:
    """Read whose each row of a table is, as the table holds it.

    Args:
        path: Table that :func:`load_table` has read, or Parquet with images.
        column: Column of the owners, of any values.

    Returns:
        A value for each row, missing where the table names no owner.

    Raises:
        DatasetError: If the table has no such column.
    """
    if path.is_dir() or path.suffix.lower() == ".parquet":  # whose other columns may be images
        parts = [_stored_column(shard, column) for shard in shards(path)]
        owners = pd.concat(parts, ignore_index=True)
    else:
        table = read_frame(path, column).table
        if column not in table.column_names:
            raise _no_owners(path, column, table.column_names)
        owners = table[column].to_pandas()
    return owners.mask(owners.isin(MISSING))


def _stored_column(shard: Path, column: str) -> pd.Series:
    """Read one column of a Parquet file.

    Raises:
        DatasetError: If there is none.
    """
    columns = pq.read_schema(shard).names
    if column not in columns:
        raise _no_owners(shard, column, columns)
    return pq.read_table(shard, columns=[column])[column].to_pandas()


def _no_owners(path: Path, column: str, columns: Sequence[str]) -> DatasetError:
    """Return the error that a table has no such column."""
    return DatasetError(
        f"{path}: has no column {column!r} of owners; columns: {', '.join(map(shown, columns))}"
    )


def load_owners(path: Path, column: str, count: int) -> Int[np.ndarray, " n"]:
    """Read whose each record of a table is, as numbers that records of one owner share.

    Args:
        path: Table or arrays that :func:`load_table` has read.
        column: Column of the owners, of any values, or name of their array.
        count: Number of records.

    Raises:
        DatasetError: If an owner is missing.
    """
    if not path.is_dir() and is_array_file(path):
        owners = [owner_text(name) for name in read_owners(path, column, count)]
        return pd.factorize(np.array(owners))[0].astype(np.int64)
    numbers, _ = pd.factorize(owner_column(path, column).map(owner_text, na_action="ignore"))
    if (missing := numbers < 0).any():
        row = int(missing.argmax())
        raise DatasetError(
            f"{path}: row {row}: column {column!r} names no owner. Fill it in, or leave the record out."
        )
    return numbers.astype(np.int64)


def _of_arrays(arrays: Arrays) -> Table:
    """Make a table of arrays and their labels."""
    path = arrays.origin
    stored = arrays.values
    labels = np.asarray(arrays.labels)
    if stored.dtype.kind not in "biuf" or stored.ndim not in (2, 3, 4):
        raise DatasetError(
            f"{path}: records are {stored.dtype} of shape {stored.shape}; allowed "
            "are real numbers (n, values) or (n, channels, steps) with a label for each"
        )
    values = stored.reshape(len(stored), -1, stored.shape[-1])
    names = tuple(f"{row}, {column}" for row, column in np.ndindex(*values.shape[1:]))
    numbers = _checked_size(path, values, names)
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers.reshape(len(numbers), -1)))[0]
        raise DatasetError(
            f"{path}: row {row}: {names[column]!r} has no finite value. Fill it in, or leave the record out."
        )
    _check_no_tokens(path, values)
    numbered, classes = _classes(path, arrays.names[1], pd.Series(labels))
    first = np.unique(numbered, return_index=True)[1]
    return Table(
        str(path), numbers, numbered, classes, names, arrays.stored(labels[first]), Encoding({}, None)
    )


def _checked_size(
    path: Path, values: np.ndarray, names: Sequence[str]
) -> Float[np.ndarray, "n rows columns"]:
    """Return values as float64, if there are neither too few nor too many."""
    if not _LEAST_VALUES <= len(names) <= _MOST_VALUES or len(values) < 2:
        raise DatasetError(
            f"{path}: holds {len(values)} records of {len(names)} values; allowed are at least 2 records of "
            f"{_LEAST_VALUES} to {_MOST_VALUES} values"
        )
    return np.asarray(values, np.float64)


def _of_frame(
    frame: Frame,
    label: str,
    exclude: Sequence[str],
    categories: Sequence[str],
    missing: Missing | None,
    encoding: Encoding | None,
) -> Table:
    """Make a table of numbers of a frame.

    Raises:
        DatasetError: With all its problems.
    """
    path = frame.origin
    table = frame.table
    _check_names(frame, label, exclude, categories)
    used = [name for name in table.column_names if name != label and name not in exclude]
    if not len(table):
        _checked_size(path, np.zeros((0, 1, len(used))), used)
    columns = _read_columns(table, used, categories, encoding)
    flat = {inner: values for made in columns.parts.values() for inner, values in made.items()}
    holes, in_holes = _holes(flat, missing)
    classes_of = _as_labels(table[label].combine_chunks())
    labels = _label_series(classes_of, text=bool(frame.separator))
    absent = (labels.isna() | (labels == "")).to_numpy(bool)
    problems = [*columns.problems, *in_holes]
    if missing != "drop" and absent.any():
        problems.append(f"row {int(absent.argmax())}: {label!r} is missing")
    _refuse(path, problems)
    values = np.column_stack([*flat.values()]) if flat else np.zeros((len(table), 0))
    _check_no_tokens(path, values[:, None])
    numbers = _checked_size(path, values[:, None], [*flat])[:, 0]
    numbers[holes] = np.nan
    # Missing values: their records go, or medians take their place.
    rows = np.ones(len(numbers), bool)
    medians = None if encoding is None else encoding.medians
    if missing == "drop":
        rows = ~(holes.any(axis=1) | absent)
        numbers = _checked_size(path, numbers[rows][:, None], [*flat])[:, 0]
    elif missing == "median":
        medians = _fitted_medians(path, numbers, medians)
        numbers = medians.transform(numbers)
    # Labels as classes, and the form of copies.
    numbered, classes = _named_classes(frame, label, labels[rows].reset_index(drop=True), classes_of)
    first = np.flatnonzero(rows)[np.unique(numbered, return_index=True)[1]]
    return Table(
        str(path),
        numbers[:, None],
        numbered,
        classes,
        tuple(flat),
        _stored_as(frame, label, first, columns.parts, columns.encoders.keys()),
        Encoding(columns.encoders, medians),
        left_out=int((~rows).sum()),
        filled=int(holes.sum()) if missing == "median" else 0,
        rows=None if rows.all() else np.flatnonzero(rows),
    )


def _refuse(path: Path | str, problems: Sequence[str]) -> None:
    """Refuse a table with problems, all of which the message lists."""
    if problems:
        said = problems[0] if len(problems) == 1 else "\n  - ".join([f"{len(problems)} problems:", *problems])
        raise DatasetError(f"{path}: {said}")


def _fitted_medians(path: Path | str, numbers: np.ndarray, medians: SimpleImputer | None) -> SimpleImputer:
    """Return the medians of the public records, or of these numbers without any.

    Raises:
        DatasetError: If the public records have another number of columns.
    """
    from sklearn.impute import SimpleImputer  # slow import

    columns = numbers.shape[1]
    if medians is not None and medians.n_features_in_ != columns:
        raise DatasetError(
            f"{path}: has {columns} columns of values, the public records {medians.n_features_in_}; both need "
            "the same in the same order"
        )
    return medians or SimpleImputer(strategy="median").fit(numbers)


def _check_names(frame: Frame, label: str, exclude: Sequence[str], categories: Sequence[str]) -> None:
    """Check that a frame has the columns that are named, and none without a name.

    Raises:
        DatasetError: With the name of the column, and the nearest one that there is.
    """
    path = frame.origin
    names = frame.table.column_names
    if names.count(label) != 1:
        raise DatasetError(f"{path}: has no column {label!r} to use as the label; {nearest(label, names)}")
    for name in (*exclude, *categories):
        if name not in names or name == label:
            action = "leave out" if name in exclude else "encode"
            raise DatasetError(
                f"{path}: has no column {name!r} of values to {action}; {nearest(name, names)}"
            )
    if "Unnamed: 0" in names:
        raise DatasetError(
            f"{path}: has a column without a name, as pandas writes numbers of rows: use to_csv(..., index=False)"
        )


@dataclass(frozen=True)
class _Columns:
    """Numbers of the columns of a frame.

    Attributes:
        parts: Column to the names and values of those that are made of it: itself, or one of 0 and 1 for each category.
        encoders: Column of texts to its encoder.
        problems: What cannot be used, for messages.
    """

    parts: Mapping[str, Mapping[str, np.ndarray]]
    encoders: Mapping[str, OneHotEncoder]
    problems: Sequence[str]


def _read_columns(
    table: pa.Table, used: Sequence[str], categories: Sequence[str], encoding: Encoding | None
) -> _Columns:
    """Read the columns that are used: numbers as they are, categories as columns of 0 and 1."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    encoders: dict[str, OneHotEncoder] = {}
    problems: list[str] = []
    for name in used:
        try:
            column = table[name].combine_chunks()
            if name in categories:
                fitted = None if encoding is None else encoding.categories.get(name)
                encoders[name], parts[name] = _encoded(name, column, fitted)
            else:
                parts[name] = _numbers(name, column)
        except DatasetError as error:
            problems.append(str(error))
    return _Columns(parts, encoders, problems)


def _stored_as(
    frame: Frame,
    label: str,
    first: Int[np.ndarray, " classes"],
    parts: Mapping[str, Mapping[str, np.ndarray]],
    encoded: Collection,
) -> StoredTable:
    """Return the form of copies: a column that was encoded becomes its columns of 0 and 1."""
    widths: dict[str, int] = {}
    before = 0
    names = frame.table.column_names
    for name, made in parts.items():
        added = dict.fromkeys(made, 1) if name in encoded else {name: len(made)}
        widths |= added
        before += len(added) if names.index(name) < names.index(label) else 0
    classes = frame.table[label].combine_chunks().take(pa.array(first))
    return StoredTable(replace(frame, table=frame.table.slice(0, 0)), label, classes, widths, before)


def _numbers(name: str, column: pa.Array) -> dict[str, np.ndarray]:
    """Return the numbers of a column, or of each place of its lists, by name. NaN where there is none.

    Raises:
        DatasetError: If it holds something else.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if any(is_kind(kind) for is_kind in _NUMBERS):
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        if pa.types.is_decimal(kind) or column.null_count:
            column = column.cast(pa.float64())
        return {name: column.to_numpy(zero_copy_only=False)}
    if pa.types.is_null(kind):
        return {name: np.full(len(column), np.nan)}
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(is_kind(kind) for is_kind in lists):
        return _numbers_of_lists(name, column)
    raise _no_numbers(name, column)


def _numbers_of_lists(name: str, column: pa.Array) -> dict[str, np.ndarray]:
    """Return the numbers of each place of a column's lists, by name.

    Raises:
        DatasetError: If lists differ in length, or hold something else.
    """
    lengths = pc.list_value_length(column)
    if column.null_count or pc.count_distinct(lengths).as_py() > 1:
        raise DatasetError(
            f"column {name!r} holds lists of different lengths; columns need one: pad or shorten them, or leave it "
            f"out: --exclude {name!r}"
        )
    inner = _numbers(name, pc.list_flatten(column))
    width = lengths[0].as_py()
    return {
        f"{name}[{place}]{rest.removeprefix(name)}": values[place::width]
        for place in range(width)
        for rest, values in inner.items()
    }


def _no_numbers(name: str, column: pa.Array) -> DatasetError:
    """Return the error of a column that holds no numbers, with what makes numbers of its values."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return DatasetError(
            f"column {name!r} holds times ({kind}), and only numbers can get noise: make numbers of them, e.g. "
            f"(frame[{name!r}] - frame[{name!r}].min()).dt.total_seconds(), or leave it out: --exclude {name!r}"
        )
    remedy = "embed texts with your encoder;"
    first = shown(column.slice(0, 1).to_pylist()[0])
    if any(is_kind(kind) for is_kind in _TEXTS):
        count = pc.count_distinct(column).as_py()
        if any(_BRACKETS.fullmatch(text) for text in column.drop_null().slice(0, 1).to_pylist()):
            remedy = (
                "a list or structure written as text: write the table as Parquet, where it keeps its type;"
            )
        elif count <= _MOST_CATEGORIES:
            remedy = f"--categories {name!r} makes columns of 0 and 1 of its {count} texts; {remedy}"
    return DatasetError(
        f"column {name!r} holds {first}, and only numbers can get noise: {remedy} or leave it out: --exclude {name!r}"
    )


def _encoded(
    name: str, column: pa.Array, fitted: OneHotEncoder | None
) -> tuple[OneHotEncoder, dict[str, np.ndarray]]:
    """Make a column of 0 and 1 of each category. Missing ones are one of them.

    Raises:
        DatasetError: If there are too many, or one that the known encoder lacks.
    """
    from sklearn.preprocessing import OneHotEncoder  # slow import

    texts = np.array([["" if value is None else str(value)] for value in column.to_pylist()], object)
    encoder = fitted or OneHotEncoder(sparse_output=False, dtype=np.uint8).fit(texts)
    (accepted,) = encoder.categories_
    if len(accepted) > _MOST_CATEGORIES:
        raise DatasetError(
            f"column {name!r} holds {len(accepted)} different texts; --categories takes at most {_MOST_CATEGORIES}: "
            f"merge some, or leave it out: --exclude {name!r}"
        )
    if unknown := sorted({*texts[:, 0]} - {*accepted}):
        raise DatasetError(
            f"column {name!r} holds {shown(unknown[0])}, which no public record has; known: "
            f"{', '.join(map(shown, accepted))}"
        )
    columns = encoder.transform(texts).T
    return encoder, {f"{name}={text}": values for text, values in zip(accepted, columns, strict=True)}


def _holes(
    columns: Mapping[str, np.ndarray], missing: Missing | None
) -> tuple[Bool[np.ndarray, "n columns"], list[str]]:
    """Find missing values, and say what is wrong with those that are not allowed."""
    problems = []
    holes = [
        np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        for values in columns.values()
    ]
    for number, (name, values) in enumerate(columns.items()):
        remedy = (
            f"--missing drop leaves such records out, --missing median fills it in; or --exclude {name!r}"
        )
        if (infinite := np.isinf(values.astype(np.float64))).any():
            problems.append(
                f"row {infinite.argmax()}: {name!r} has no finite value, but an infinite one: correct it"
            )
        elif missing in (None, "keep") and (count := holes[number].sum()):
            problems.append(
                f"row {holes[number].argmax()}: {name!r} has no finite value, which {count} of {len(values)} "
                f"records lack: {remedy}"
            )
        if missing == "keep":
            continue
        for stand_in in stand_ins(values):
            same = values == stand_in
            holes[number] |= same
            if missing is None:
                problems.append(
                    f"row {same.argmax()}: {name!r} holds {stand_in}, far from all others, as files have it "
                    f"where a value is missing, in {same.sum()} of {len(values)} records: {remedy}; "
                    "--missing keep takes it as measured"
                )
    return (np.column_stack(holes) if holes else np.zeros((0, 0), bool)), problems


def stand_ins(values: Shaped[np.ndarray, " n"]) -> list[int]:
    """List numbers such as -999 that are farther from all other values than those are from each other.

    Args:
        values: A column. NaN counts as no value.
    """
    listed: list[int] = []
    numbers = values.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    for stand_in in _STAND_INS:
        rest = numbers[numbers != stand_in]
        if len(rest) < len(numbers) and len({*rest[:_IDS]}) > 2:
            low = rest.min()
            high = rest.max()
            if max(low - stand_in, stand_in - high) > high - low:
                listed.append(stand_in)
    return listed


def _as_labels(column: pa.Array) -> pa.Array:
    """Return labels, out of lists of one, as frameworks hold them (n, 1)."""
    if hasattr(column.type, "value_field") and pc.all(pc.equal(pc.list_value_length(column), 1)).as_py():
        return pc.list_flatten(column)
    return column


def _label_series(column: pa.Array, *, text: bool) -> pd.Series:
    """Return labels as pandas holds them. Texts of a file of texts are numbers where all are, and not codes as 007."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    labels = pd.Series(column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column)
    labels = labels.astype(object) if labels.dtype.kind not in "biufO" and not text else labels
    if not text:
        return labels
    numbers = pd.to_numeric(labels, errors="coerce")
    texts = labels[numbers.isna()]
    if len(texts) < len(labels) and (texts.isin(MISSING) | texts.isna()).all():
        codes = labels.str.match(r"\s*-?0\d").any()
        return labels.mask(numbers.isna()) if codes else numbers
    return labels


def _check_no_tokens(path: Path, values: Shaped[np.ndarray, "n rows columns"]) -> None:
    """Refuse sequences of token ids, to which noise cannot be added in a meaningful way."""
    if are_token_ids(values):
        raise DatasetError(
            f"{path}: whole numbers from {values.min()} to {values.max()} in {values[0].size} places look like token "
            "ids, and noise on an id means nothing. Embed them with your encoder first and give its vectors; if they "
            "are measurements, write them as floats."
        )


def _named_classes(
    frame: Frame, label: str, labels: pd.Series, stored: pa.Array
) -> tuple[Int[np.ndarray, " n"], tuple[str, ...]]:
    """Return the class of each record and the names of the classes, in the order and by the names of the file.

    Args:
        frame: The file.
        label: Column of the labels.
        labels: Labels of the records that are kept.
        stored: The column as it is stored.
    """
    order = stored.dictionary.to_pylist() if getattr(stored.type, "ordered", False) else None
    numbered, classes = _classes(frame.origin, label, labels, order)
    if (meanings := class_names(frame.table.schema, label)) and labels.dtype.kind in "iu":
        classes = tuple(meanings[int(name)] if 0 <= int(name) < len(meanings) else name for name in classes)
    return numbered, classes


def _classes(
    path: Path, label: str, labels: pd.Series, order: Sequence[Any] | None = None
) -> tuple[Int[np.ndarray, " n"], tuple[str, ...]]:
    """Return the class of each record, and the names of the classes: sorted, or as an ordered category has them."""
    if (missing := labels.isna() | (labels == "")).any():
        raise DatasetError(f"{path}: row {int(missing.to_numpy().argmax())}: {label!r} is missing")
    if labels.dtype.kind == "f":
        if (odd := (labels != np.rint(labels)) | np.isinf(labels)).any():
            raise DatasetError(
                f"{path}: column {label!r} holds {labels[odd].iloc[0]:g}, which is no class. Name another column "
                "as the label, or make classes of this one, e.g. by pandas.qcut."
            )
        labels = labels.astype(np.int64)
    if order is not None:
        held = pd.Categorical(labels, order).remove_unused_categories()
        return held.codes.astype(np.int64), tuple(map(str, held.categories))
    numbers, names = pd.factorize(labels, sort=True)
    return numbers.astype(np.int64), tuple(map(str, names))


def remarks(
    classes: Sequence[str], labels: Int[np.ndarray, " n"], values: Mapping[str, np.ndarray]
) -> list[str]:
    """Say what is odd about classes and columns: names that nearly agree, and a column that says the label.

    Args:
        classes: Names of the classes.
        labels: Class of each record.
        values: Columns by name.
    """
    said = []
    plain: dict[str, str] = {}
    for name in classes:
        other = plain.setdefault("".join(name.casefold().split()).strip(".,;:'\""), name)
        if other != name:
            said.append(
                f"the classes {shown(other)} and {shown(name)} differ in case, spaces or punctuation alone: "
                "if one is meant, merge them"
            )
    for name, column in values.items():
        pairs = {*zip(column.tolist(), labels.tolist(), strict=True)}
        if len(classes) > 1 and len(pairs) == len({value for value, _ in pairs}) == len(classes):
            said.append(
                f"column {name!r} says the label, one value for each class: leave it out, --exclude {name!r}"
            )
    return said
