"""Tables as files hold them: read with the type of each column, and written in the same form.

Formats: text with commas, semicolons or tabs (``.csv``, ``.tsv``, also ``.gz``), Parquet in one file or in shards, and
what ``datasets.save_to_disk`` writes.
"""

import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int

from leakbound.records.records import DatasetError
from leakbound.storage import limits
from leakbound.storage.parquet import opened, shards
from leakbound.words import shown

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
"""Suffixes of tables as text."""
MISSING = ("", "NA", "N/A", "NaN", "nan", "None", "null", "NULL")
"""Texts that mean a missing value among numbers, and are names of classes elsewhere."""
_MOST = 60  # characters of a line that a message shows
_LISTED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)


def kind_of(path: Path) -> str:
    """Return the suffix of a file in lower case, with the one before ``.gz``."""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() + last if last == ".gz" else last


@dataclass(frozen=True)
class Frame:
    """A table as its file holds it.

    Attributes:
        origin: File or folder.
        table: Its columns, without the index that pandas stored with it unless that is the label.
        separator: Separator of a text, empty for other formats.
        decimal: Sign before the decimals in a text.
    """

    origin: Path
    table: pa.Table
    separator: str = ""
    decimal: str = "."


@dataclass(frozen=True)
class StoredTable:
    """Form in which a table is stored, so that copies of its records are written alike.

    Attributes:
        frame: The table without rows: its origin, and names and types of its columns, in their order.
        label: Column of the labels.
        classes: Label of each class, in the type of its column.
        widths: Names of the columns of values that are written, to the number of values of each.
        before: How many of these columns lie before that of the labels.
    """

    frame: Frame
    label: str
    classes: pa.Array
    widths: Mapping[str, int]
    before: int

    @property
    def name(self) -> str:
        """Name of a file in this form."""
        origin = self.frame.origin
        return origin.name if kind_of(origin) in (*TEXTS, ".parquet") else f"{origin.stem}.parquet"

    def write(
        self,
        path: Path,
        values: Float[np.ndarray, "n columns"],
        labels: Int[np.ndarray, " n"],
        more: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Write values and labels. Floating columns keep their type, others become that of the values.

        Args:
            path: File to write, as text or Parquet by its suffix.
            values: Values of each record, in the order of ``widths``.
            labels: Class of each.
            more: Further columns, which are no values, by their names.
        """
        places = np.cumsum([0, *self.widths.values()])
        schema = self.frame.table.schema
        columns = {}
        for start, (name, width) in zip(places[:-1].tolist(), self.widths.items(), strict=True):
            place = schema.get_field_index(name)
            kind = schema.field(place).type if place >= 0 else pa.float64()
            columns[name] = _column(values[:, start : start + width], kind)
        names = [*columns]
        names.insert(self.before, self.label)
        columns[self.label] = self.classes.take(pa.array(labels))
        texts = {name: pa.array(column) for name, column in more.items()}
        table = pa.table({name: columns[name] for name in names} | texts)
        if kind_of(path) in TEXTS:
            form = {"sep": self.frame.separator or ",", "decimal": self.frame.decimal}
            table.to_pandas().to_csv(path, index=False, **form)
        else:
            pq.write_table(table, path)


def _column(values: Float[np.ndarray, "n width"], kind: pa.DataType) -> pa.Array:
    """Make a column of values, floating as its type is."""
    inner = kind
    while hasattr(inner, "value_type") and not pa.types.is_dictionary(inner):
        inner = inner.value_type
    flat = values.ravel()
    if pa.types.is_floating(inner):
        flat = flat.astype(inner.to_pandas_dtype())
    made = pa.array(flat)
    if inner is kind:
        return made
    fixed = pa.FixedSizeListArray.from_arrays(made, values.shape[1])
    return fixed if pa.types.is_fixed_size_list(kind) else fixed.cast(pa.list_(made.type))


def read_frame(path: Path, label: str) -> Frame:
    """Read a table.

    Args:
        path: File or folder of shards.
        label: Column of the labels.

    Raises:
        DatasetError: If it has no line with names of columns, something else above its rows, or a column of structures.
        TooLargeError: If it would take more memory than is allowed.
        ArrowException, OSError, ValueError: If it is damaged.
    """
    if not path.is_dir() and kind_of(path) in TEXTS:
        return _text(path, label)
    tables = [_shard(shard, label) for shard in shards(path)]
    return Frame(path, pa.concat_tables(tables, promote_options="permissive"))


def _shard(path: Path, label: str) -> pa.Table:
    """Read one file without the index that pandas stored with it, unless that is the label."""
    with pa.memory_map(str(path)) as mapped:
        source = opened(mapped, path)
        _refuse_structures(path, source.schema)
        table = pa.Table.from_batches(list(source.batches(lists=True)), source.schema)
        return table.drop_columns(
            [name for name in source.index if name != label and name in table.column_names]
        )


def _refuse_structures(path: Path, schema: pa.Schema) -> None:
    """Refuse columns whose values are no numbers and no texts but made of several, with the call that undoes them.

    Raises:
        DatasetError: If there is one.
    """
    if depths := {field.name: _depth(field.type) for field in schema if pa.types.is_struct(field.type)}:
        flat = f"{_reader_of(path)}{'.flatten()' * max(depths.values())}"
        raise DatasetError(
            f"{path}: columns of structures: {', '.join(map(shown, depths))}, and only numbers can get noise. "
            f"Make a column of each field: pyarrow.parquet.write_table({flat}, 'mine.parquet')"
        )
    listed = {
        field.name: _innermost(field.type)
        for field in schema
        if _is_list(field.type) or pa.types.is_map(field.type)
    }
    if events := [name for name, kind in listed.items() if pa.types.is_struct(kind)]:
        # One column alone: several have lists of different lengths, whose rows do not belong together.
        name = events[0]
        rows = f"{_reader_of(path)}.to_pandas().explode({name!r}, ignore_index=True).dropna(subset={name!r})"
        fields = f"pandas.json_normalize(rows.pop({name!r}).tolist()).set_index(rows.index)"
        raise DatasetError(
            f"{path}: columns of lists of structures: {', '.join(map(shown, events))}, and only numbers can get noise. "
            "Make a row of each structure, and name the column that says whose it is as the owner: "
            f"rows = {rows}; fields = {fields}.add_prefix({f'{name}.'!r}); "
            "rows.join(fields).to_parquet('mine.parquet')"
        )
    if structures := [name for name, kind in listed.items() if not any(is_kind(kind) for is_kind in _LISTED)]:
        left = f"{_reader_of(path)}.drop_columns({structures!r})"
        raise DatasetError(
            f"{path}: columns of lists or maps of something else than numbers: {', '.join(map(shown, structures))}. "
            f"Embed them with your encoder, or leave them out: pyarrow.parquet.write_table({left}, 'mine.parquet')"
        )


def _depth(kind: pa.DataType) -> int:
    """Count the structures in each other."""
    return 1 + max((_depth(field.type) for field in kind), default=0) if pa.types.is_struct(kind) else 0


def _is_list(kind: pa.DataType) -> bool:
    """Return True for lists of any length and of one length."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in kinds)


def _innermost(kind: pa.DataType) -> pa.DataType:
    """Return what lists of lists hold in the end."""
    return _innermost(kind.value_type) if _is_list(kind) else kind


def _reader_of(path: Path) -> str:
    """Return the call that reads a file as a table of pyarrow."""
    arrow = path.suffix.lower() == ".arrow"
    return "pyarrow.ipc.open_stream(path).read_all()" if arrow else "pyarrow.parquet.read_table(path)"


def _text(path: Path, label: str) -> Frame:
    """Read a table with commas, semicolons or tabs between values. Names of classes are texts, even NA."""
    content = io.BytesIO(_content(path))
    with io.TextIOWrapper(content, encoding="utf-8") as file:
        first = file.readline(2**20).rstrip("\r\n")
        if first.startswith("#"):
            raise DatasetError(
                f"{path}: begins with a comment, {first[:_MOST]!r}, and not with names of columns: remove it, e.g. by "
                "pandas.read_csv(path, comment='#').to_csv('mine.csv', index=False)"
            )
        comma = max(",;\t", key=first.count)
        file.seek(0)
        names = pd.read_csv(file, sep=comma, nrows=0).columns.drop(label, errors="ignore")
        if len(names) > 1 and all(_is_number(str(name)) for name in names):
            raise DatasetError(
                f"{path}: its first line, {first[:_MOST]!r}, holds numbers and no names of columns: add a line of "
                "names, e.g. by pandas.read_csv(path, header=None).add_prefix('column').to_csv('mine.csv', index=False)"
            )
        form: dict[str, Any] = {
            "sep": comma,
            "dtype": {label: str},
            "na_values": {name: [*MISSING] for name in names},
            "keep_default_na": False,
        }
        file.seek(0)
        table = pd.read_csv(file, **form)
        decimal = "."
        if comma == ";" and not all(kind.kind in "biuf" for kind in table[names].dtypes):
            file.seek(0)
            table = pd.read_csv(file, decimal=",", **form)
            decimal = ","
    texts = [name for name in names if table[name].dtype.kind not in "biuf"]
    rest = table[texts].iloc[1:].apply(pd.to_numeric, errors="coerce")
    if len(texts) > 1 and len(rest) > 1 and rest.notna().all(axis=None):
        raise DatasetError(
            f"{path}: has two lines of names: the second is {shown(table[texts].iloc[0].tolist())}. Keep one, e.g. by "
            "pandas.read_csv(path, skiprows=[1]).to_csv('mine.csv', index=False)"
        )
    return Frame(path, pa.Table.from_pandas(table, preserve_index=False), comma, decimal)


def _content(path: Path) -> bytes:
    """Read a text, unpacked."""
    limits.check_limit(path, "bytes", path.stat().st_size, limits.WHOLE)
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    with gzip.open(path) as file:
        content = file.read(limits.WHOLE * limits.factor() + 1)
    limits.check_limit(path, "bytes or more once unpacked", len(content), limits.WHOLE)
    return content


def _is_number(name: str) -> bool:
    """Return True for the text of a number, also one that pandas has made different from an equal one (1.5.1)."""
    try:
        float(name)
    except ValueError:
        return name.count(".") > 1 and name.replace(".", "").isdigit()
    return True
