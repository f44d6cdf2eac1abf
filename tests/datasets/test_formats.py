"""Files as libraries write them: what is read of them, and that copies leave in the types in which records came."""

import base64
import decimal
import gzip
import io
import json
import struct
import zlib

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy import io as matlab

from leakbound.records.arrays import read_arrays
from leakbound.records.collection import read_collection, write_pictures
from leakbound.records.pixels import PictureForm
from leakbound.records.records import DatasetError
from leakbound.records.tables import is_table, load_table

ROWS = 40
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(ROWS, 3))
SIDES = np.arange(ROWS) % 3
PIXELS = DRAW.integers(0, 256, (ROWS, 8, 6, 3), dtype=np.uint8)


def written(path, folder, *, named=True):
    """What is read of a table and of a copy with the values that it holds."""
    table = load_table(path)
    folder.mkdir()
    copy = folder / table.stored.name
    table.stored.write(copy, table.values[:, 0].astype(np.float32), table.labels)
    again = load_table(copy)
    np.testing.assert_allclose(again.values, table.values, rtol=1e-6)
    assert again.columns == table.columns
    assert again.classes == table.classes or not named
    assert (again.labels == table.labels).all()
    return table, copy


LABELS = {
    "bool": pa.array(SIDES > 0),
    "text of numbers": pa.array([str(side % 2) for side in SIDES]),
    "large text": pa.array([f"k{side}" for side in SIDES], pa.large_string()),
    "int8": pa.array(SIDES, pa.int8()),
    "float": pa.array(SIDES.astype(float)),
    "decimal": pa.array([decimal.Decimal(int(side)) for side in SIDES], pa.decimal128(5, 2)),
    "ordered category": pa.DictionaryArray.from_arrays(
        pa.array(SIDES, pa.int8()), pa.array(["mild", "bad", "fatal", "unused"]), ordered=True
    ),
    # polars 2.1.0 writes Categorical as this, and Enum with an order
    "category": pa.DictionaryArray.from_arrays(pa.array(SIDES, pa.uint32()), pa.array(["z", "y", "x"])),
    "list of one": pa.FixedSizeListArray.from_arrays(pa.array(SIDES), 1),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_leave_in_the_type_in_which_they_came(tmp_path, kind):
    """A bool once left as the text False, which a cast back makes True."""
    table = pa.table({"a": X[:, 0], "label": LABELS[kind], "b": X[:, 1]})
    pq.write_table(table, tmp_path / "mine.parquet")
    found, copy = written(tmp_path / "mine.parquet", tmp_path / "out")
    before, after = (pq.read_table(path) for path in (tmp_path / "mine.parquet", copy))
    assert after.column_names == ["a", "label", "b"]
    assert after["label"].type == before["label"].type
    assert after["label"].to_pylist() == table["label"].to_pylist()
    if "category" in kind:
        assert after.schema.field("label").type.ordered == table.schema.field("label").type.ordered
        assert after["label"].chunk(0).dictionary.to_pylist() == LABELS[kind].dictionary.to_pylist()
    if kind == "ordered category":
        assert found.classes == ("mild", "bad", "fatal")


def test_pandas_finds_the_columns_of_a_frame_again(tmp_path):
    frame = pd.DataFrame(X.astype(np.float32), columns=list("abc")).assign(
        label=pd.Categorical.from_codes(SIDES, ["low", "mid", "high"], ordered=True), flag=SIDES > 1
    )
    frame.to_parquet(tmp_path / "mine.parquet")
    _, copy = written(tmp_path / "mine.parquet", tmp_path / "out")
    after = pd.read_parquet(copy)
    assert after.dtypes["label"] == frame.dtypes["label"]
    assert (after.label == frame.label).all()
    assert [str(kind) for kind in after.dtypes[["a", "flag"]]] == ["float32", "float32"]  # noisy flags are no flags


def test_numbers_of_databases_are_numbers(tmp_path):
    """DuckDB 2.0.1 writes ``i * 0.5`` as decimal128(21, 1), hugeint as double, lists and arrays as lists."""
    halves = [decimal.Decimal(row) / 2 for row in range(ROWS)]
    pairs = X[:, :2]
    table = pa.table(
        {
            "half": pa.array(halves, pa.decimal128(21, 1)),
            "tiny": pa.array(SIDES, pa.int8()),
            "pair": pa.array(pairs.tolist(), pa.list_(pa.float64())),
            "fixed": pa.FixedSizeListArray.from_arrays(pa.array(pairs.ravel().astype(np.float32)), 2),
            "large": pa.array(pairs.tolist(), pa.large_list(pa.float64())),  # polars' List
            "label": [f"k{row % 2}" for row in range(ROWS)],
        }
    )
    pq.write_table(table, tmp_path / "duck.parquet")
    found, copy = written(tmp_path / "duck.parquet", tmp_path / "out")
    assert found.columns == ("half", "tiny", "pair[0]", "pair[1]", "fixed[0]", "fixed[1]", "large[0]", "large[1]")
    np.testing.assert_array_equal(found.values[:, 0, 0], np.arange(ROWS) / 2)
    np.testing.assert_array_equal(found.values[:, 0, 2:4], pairs)
    assert pq.read_table(copy).schema.field("fixed").type == pa.list_(pa.float32(), 2)
    ragged = pa.table({"x": [[1.0], *[[1.0, 2.0]] * 5], "y": [1.0] * 6, "label": [0, 1] * 3})
    pq.write_table(ragged, tmp_path / "ragged.parquet")
    with pytest.raises(DatasetError, match="column 'x' holds lists of different lengths; columns need one"):
        load_table(tmp_path / "ragged.parquet")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_column_of_structures_is_named_with_the_call_that_makes_columns_of_it(tmp_path, monkeypatch, suffix):
    """As polars 2.1.0 writes Struct, DuckDB 2.0.1 STRUCT and ``datasets`` a dictionary: all as a structure of Arrow."""
    monkeypatch.chdir(tmp_path)
    vitals = pa.StructArray.from_arrays([pa.array(X[:, 0]), pa.array(SIDES)], ["pulse", "side"])
    table = pa.table({"age": X[:, 1], "vitals": vitals, "label": (SIDES % 2).tolist()})
    path = tmp_path / f"nested.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    assert is_table(path)
    with pytest.raises(DatasetError, match=r"nested\.\w+: columns of structures: 'vitals'") as refused:
        load_table(path)
    exec(str(refused.value).partition("of each field: ")[2], {"pyarrow": pa, "path": path})
    found = load_table(tmp_path / "mine.parquet")
    assert found.columns == ("age", "vitals.pulse", "vitals.side")
    np.testing.assert_array_equal(found.values[:, 0], np.column_stack([X[:, 1], X[:, 0], SIDES]))


def refused_with_a_call(path, words, before, call=""):
    """The call that a refusal names is made, and what it writes is read."""
    with pytest.raises(DatasetError, match=words) as refused:
        load_table(path)
    exec(call + str(refused.value).partition(before)[2], {"pyarrow": pa, "pandas": pd, "path": path})
    return load_table(path.with_name("mine.parquet"))


def test_a_structure_in_a_structure_gets_columns_in_one_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inner = pa.StructArray.from_arrays([pa.array(X[:, 0]), pa.array(X[:, 1])], ["low", "high"])
    outer = pa.StructArray.from_arrays([inner, pa.array(SIDES)], ["pressure", "side"])
    pq.write_table(pa.table({"vitals": outer, "label": (SIDES % 2).tolist()}), tmp_path / "x.parquet")
    found = refused_with_a_call(tmp_path / "x.parquet", "columns of structures: 'vitals'", "of each field: ")
    assert found.columns == ("vitals.pressure.low", "vitals.pressure.high", "vitals.side")
    np.testing.assert_array_equal(found.values[:, 0], np.column_stack([X[:, :2], SIDES]))


def test_a_list_of_structures_gets_a_row_for_each(tmp_path, monkeypatch):
    """As FHIR's bulk export and DuckDB's LIST of STRUCT: the visits of a patient in one row, of some none."""
    monkeypatch.chdir(tmp_path)
    visits = [[{"pulse": 60.0 + row + 100 * visit, "side": visit} for visit in range(row % 3)] for row in range(ROWS)]
    kind = pa.list_(pa.struct([("pulse", pa.float64()), ("side", pa.int64())]))
    ages = X[:, 0].tolist()
    table = pa.table({"age": ages, "visits": pa.array(visits, kind), "label": [row // 3 % 2 for row in range(ROWS)]})
    pq.write_table(table, tmp_path / "x.parquet")
    found = refused_with_a_call(tmp_path / "x.parquet", "columns of lists of structures: 'visits'", "as the owner: ")
    assert found.columns == ("age", "visits.pulse", "visits.side")
    rows = [(ages[row], visit["pulse"], visit["side"]) for row in range(ROWS) for visit in visits[row]]
    np.testing.assert_array_equal(found.values[:, 0], rows)


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.map_(pa.string(), pa.float64())])
def test_lists_of_texts_and_maps_are_left_out_by_the_call_that_is_named(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    held = [[("a", 1.0)] if pa.types.is_map(kind) else ["a", "b"] for _ in range(ROWS)]
    table = pa.table({"x": X[:, 0], "y": X[:, 1], "tags": pa.array(held, kind), "label": (SIDES % 2).tolist()})
    pq.write_table(table, tmp_path / "x.parquet")
    found = refused_with_a_call(tmp_path / "x.parquet", "something else than numbers: 'tags'", "leave them out: ")
    assert found.columns == ("x", "y")


@pytest.mark.parametrize("text", ["{'pulse': 61.5, 'side': 1}", "[1, 2]"])
def test_a_structure_written_as_text_is_no_category(tmp_path, text):
    """DuckDB 2.0.1 writes STRUCT and LIST to CSV in this form."""
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "vitals": text, "label": SIDES % 2})
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DatasetError, match="structure written as text: write the table as Parquet") as refused:
        load_table(tmp_path / "x.csv")
    assert "--categories" not in str(refused.value)


def test_structures_with_bytes_are_pictures_under_any_name(tmp_path):
    for number, kind in enumerate((pa.binary(), pa.large_binary(), pa.binary(4))):
        photos = pa.StructArray.from_arrays([pa.array([b"1234"] * 2, kind), pa.array(["a", "b"])], ["bytes", "path"])
        pq.write_table(pa.table({"photo": photos, "label": [0, 1]}), tmp_path / f"{number}.parquet")
        assert not is_table(tmp_path / f"{number}.parquet")


def hub(**more):
    facts = {"x": X.tolist(), "label": (SIDES % 2).tolist(), **more}
    return datasets.Dataset.from_dict(facts).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))


def test_what_datasets_saves_is_read_as_a_table_or_as_pictures(tmp_path):
    hub().save_to_disk(tmp_path / "saved", num_shards=2)
    found, copy = written(tmp_path / "saved", tmp_path / "out", named=False)
    np.testing.assert_array_equal(found.values[:, 0], X)
    assert (found.classes, copy.name) == (("no", "yes"), "saved.parquet")
    datasets.DatasetDict(train=hub(), test=hub()).save_to_disk(tmp_path / "splits")
    with pytest.raises(DatasetError, match=r"holds the splits train, test; name one, e.g. .*splits/train"):
        load_table(tmp_path / "splits")
    pictures = datasets.Dataset.from_dict({"image": [*map(Image.fromarray, PIXELS)], "label": SIDES.tolist()})
    pictures.cast_column("image", datasets.Image()).save_to_disk(tmp_path / "pictures")
    held = read_collection(tmp_path / "pictures")
    np.testing.assert_array_equal(np.moveaxis(held.values, 1, -1), PIXELS)
    assert (held.kind, held.file_name) == ("parquet", "pictures.parquet")


def test_a_compressed_stream_and_a_feather_are_refused_with_the_line_that_converts_them(tmp_path):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "label": SIDES})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(file, table.schema, options=options) as stream:
            stream.write_table(table)
    with pytest.raises(DatasetError, match=r"it is compressed; write it by datasets.load_from_disk"):
        load_table(tmp_path / "x.arrow")
    table.to_pandas().to_feather(tmp_path / "y.feather")
    (tmp_path / "y.arrow").write_bytes((tmp_path / "y.feather").read_bytes())
    for name in ("y.arrow", "y.feather"):
        with pytest.raises(DatasetError, match=r"pandas.read_feather"):
            read_collection(tmp_path / name)


# pl.DataFrame({"a": [1, 2], "label": [0, 1]}, schema={"a": pl.Int128, "label": pl.Int8}) as polars 2.1.0 writes it
INT128 = {
    "x.parquet": (
        "c-nnZO-|cT5FS6=C<|1jlzFlx3waX@)QBb~kOaZvrA2C5w}iA6ViU>1F^MoXibJ41O_wY<L63l{9-=4c5jtaA{ZrMEHGkiH-;AZ#SAzxudg#"
        "?qr=)}>0098Hroo>k{;KhzS%s2mXg-3}Wh`T-3?x#)ipN^Hu?p#~;7TpSeqXR8P?+0Ls+h)u$RCZPOlT;F&b{V*(!jK28DmMql-+CC<di6TF"
        "Z5ZG%u%Ns&_+QgP`fG$mFk*z_qhCsW~FXgX3bex|GZUx7Ptz|t+4)ohWsi}g8ZUM-6>O8<$H`}H5eQo@201d@r7@E*PgQNB#P{SU3)?G%~4T"
        "jtyfB=>RA?#)RR8p*Vo+dDRoxN^*A=!b=i3zX{denQ#7CJ=7I5djAta3t$NRJdUE_S8gY4;@tegGf`0Ky?=6!k4hr4Zx#;sc|4P2%prD@fJ-"
        "xi{PL$f;2jfjYiTqh=uU~$cPm*}UUW{kyG>L6@v$0vX*GE^=D6m^$r|yn|tuPGSRv5P3pwV<&ZNJ{}-OhFxx?#&72OW3AtXTl`!8dv{eR`Ka"
        "0CT{EPX"
    ),
    "x.arrow": (
        "c-o~<I}XAy41Ebj3XmZ{2gV+Qk%O=liLHm=NDPde2z9C$*ut}Gq^bgSz>z=iJ==1dbIw-)1-)ZkYV8=8SRpVLc#)4}0-va!ac?tsY87)*9dI"
        "JjZsZly=k%sNog3zsyv)kX&iWHJ+?BA_4N>Qx?7P@}z=C?vy6)E_5AJTQSFFE(#w}aj8;Ks&?JOMaR{6e?S|lp)+bYY45&yw{!1)oz7wjhVN"
        "ptwi<iAON1O0Y0Rs"
    ),
}


@pytest.mark.parametrize(("name", "reader"), [("x.parquet", "read_parquet"), ("x.arrow", "read_ipc_stream")])
def test_integers_that_arrow_cannot_read_are_named_with_the_line_that_converts_them(tmp_path, name, reader):
    (tmp_path / name).write_bytes(zlib.decompress(base64.b85decode(INT128[name])))
    for read in (load_table, read_collection):
        with pytest.raises(DatasetError, match="integers of 128 bits") as refused:
            read(tmp_path / name)
        said = str(refused.value)
        assert f"polars.{reader}(path).cast({{polars.Int128: polars.Int64, polars.UInt128: polars.Int64}})" in said
        assert "UTF-8" not in said
        assert "download" not in said


def test_the_lines_for_tables_of_stata_and_orc_convert_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=list("abc")).assign(label=SIDES.astype("int8"))
    frame.to_stata("x.dta", write_index=False)
    frame.to_orc("x.orc")
    for name in ("x.dta", "x.orc"):
        found = refused_with_a_call(tmp_path / name, r"pandas\.read_", ": pandas", "pandas")
        np.testing.assert_array_equal(found.values[:, 0], X)
        assert found.classes == ("0", "1", "2")


def test_a_folder_of_shards_is_one_table_and_of_two_tables_none(tmp_path):
    frame = pd.DataFrame(X, columns=list("abc")).assign(label=SIDES)
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        frame[number::3].to_parquet(folder / f"train-{number:05}-of-00003.parquet")
    assert is_table(folder)
    assert sorted(load_table(folder).values[:, 0, 0]) == sorted(X[:, 0])
    frame.to_parquet(folder / "test-00000-of-00001.parquet")
    with pytest.raises(DatasetError, match="holds several tables, test, train; name one file"):
        load_table(folder)
    (folder / "test-00000-of-00001.parquet").unlink()
    (folder / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(DatasetError, match=r"lacks train-00001-of-00003.parquet"):
        load_table(folder)


@pytest.mark.parametrize("name", ["x.tsv", "x.csv.gz", "x.tsv.gz", "x.csv"])
def test_texts_are_written_as_they_came(tmp_path, name):
    frame = pd.DataFrame(X, columns=list("abc")).assign(label=[f"{side:03}" for side in SIDES])
    separator = "\t" if "tsv" in name else ";" if name == "x.csv" else ","
    frame.to_csv(tmp_path / name, index=False, sep=separator)
    found, copy = written(tmp_path / name, tmp_path / "out")
    assert found.classes == ("000", "001", "002")
    content = copy.read_bytes()
    first = (gzip.decompress(content) if name.endswith("gz") else content).split(b"\n")[0]
    assert first == separator.join(frame.columns).encode()


def test_a_packed_text_may_not_unfold_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("leakbound.storage.limits.WHOLE", 2**16)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b,label\n" + b"1,2,0\n" * 2**16))
    with pytest.raises(ValueError, match="bytes or more once unpacked, allowed are 65536"):
        load_table(tmp_path / "x.csv.gz")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("# from the clinic\na,b,label\n1,2,0\n3,4,1\n", "begins with a comment, '# from the clinic'"),
        ("5.1,3.5,0\n4.9,3.0,1\n4.7,3.2,0\n", "its first line, '5.1,3.5,0', holds numbers and no names of columns"),
        ("a,b,label\nmm,kg,\n1,2,0\n3,4,1\n5,6,1\n", r"two lines of names: the second is \['mm', 'kg'\]"),
    ],
)
def test_what_lies_above_the_rows_of_a_text_is_called_so(tmp_path, content, words):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(DatasetError, match=words):
        load_table(tmp_path / "x.csv")


def clinic(count=ROWS, seed=1):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.normal(50, 9, (count, 2)), columns=["age", "dose"])
    return frame.assign(
        site=np.resize(["north", "south"], count), note=[f"n{row}" for row in range(count)],
        day=pd.date_range("2020-01-01", periods=count), label=np.arange(count) % 2,
    )  # fmt: skip


def test_all_problems_of_a_table_are_in_one_message(tmp_path):
    frame = clinic()
    frame.loc[3, "age"], frame.loc[[5, 6], "dose"] = np.nan, -999
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DatasetError) as caught:
        load_table(tmp_path / "x.parquet")
    for words in (
        "5 problems:",
        "row 3: 'age' has no finite value, which 1 of 40 records lack",
        "row 5: 'dose' holds -999, far from all others",
        "in 2 of 40 records",
        "--categories 'site' makes columns of 0 and 1 of its 2 texts",
        "column 'note' holds 'n0', and only numbers can get noise",
        "column 'day' holds times (timestamp",
    ):
        assert words in str(caught.value), words


def test_categories_and_gaps_are_taken_from_the_public_records(tmp_path):
    frame = clinic().drop(columns=["note", "day"])
    frame.loc[3, "age"], frame.loc[5, "age"] = np.nan, -999
    frame.to_csv(tmp_path / "mine.csv", index=False)
    public = clinic(60, 2).drop(columns=["note", "day"])
    public.to_csv(tmp_path / "public.csv", index=False)
    options = {"categories": ["site"], "missing": "median"}
    known = load_table(tmp_path / "public.csv", **options)
    found = load_table(tmp_path / "mine.csv", **options, encoding=known.encoding)
    assert found.columns == known.columns == ("age", "dose", "site=north", "site=south")
    np.testing.assert_array_equal(found.values[[3, 5], 0, 0], np.median(public.age))
    np.testing.assert_array_equal(found.values[:, 0, 2:].sum(axis=1), 1)
    dropped = load_table(tmp_path / "mine.csv", categories=["site"], missing="drop")
    assert (len(dropped.values), dropped.left_out) == (ROWS - 2, 2)
    frame.assign(site="west").to_csv(tmp_path / "west.csv", index=False)
    with pytest.raises(DatasetError, match="holds 'west', which no public record has; known: 'north', 'south'"):
        load_table(tmp_path / "west.csv", **options, encoding=known.encoding)
    kept = frame.fillna(0.0)
    kept.to_csv(tmp_path / "kept.csv", index=False)
    assert load_table(tmp_path / "kept.csv", categories=["site"], missing="keep").values[5, 0, 0] == -999


@pytest.mark.parametrize("values", [np.arange(1000), np.r_[DRAW.normal(900, 300, 500), 999], np.r_[-99, 18:95]])
def test_extremes_that_others_lie_near_are_no_stand_ins_unless_far_off(tmp_path, values):
    frame = pd.DataFrame({"a": values.astype(float), "b": 1.0 * np.arange(len(values)), "label": 0})
    frame.loc[0, "label"] = 1
    frame.to_csv(tmp_path / "x.csv", index=False)
    if -99 in values:
        with pytest.raises(DatasetError, match="'a' holds -99, far from all others"):
            load_table(tmp_path / "x.csv")
    else:
        assert len(load_table(tmp_path / "x.csv").values) == len(values)


ARRAYS = {
    "keras": lambda path: np.savez(path, x_train=PIXELS, y_train=SIDES[:, None], x_test=PIXELS, y_test=SIDES[:, None]),
    "medmnist": lambda path: np.savez(path, train_images=PIXELS, train_labels=SIDES[:, None], val_images=PIXELS[:2]),
    "colors first": lambda path: np.savez(path, records=np.moveaxis(PIXELS, -1, 1), labels=SIDES),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_bytes_are_pictures_and_leave_as_they_came(tmp_path, kind):
    ARRAYS[kind](tmp_path / "mine.npz")
    assert not is_table(tmp_path / "mine.npz")
    held = read_collection(tmp_path / "mine.npz")
    assert (held.kind, held.pictures, held.classes) == ("images", True, ("0", "1", "2"))
    np.testing.assert_array_equal(np.moveaxis(held.values, 1, -1), PIXELS)
    (tmp_path / "out").mkdir()
    write_pictures(tmp_path / "out", held, [held.values])
    with np.load(tmp_path / "mine.npz") as before, np.load(tmp_path / "out/mine.npz") as after:
        assert len(after.files) == 2
        for name in after.files:
            np.testing.assert_array_equal(after[name], before[name].reshape(after[name].shape))
            assert after[name].dtype == before[name].dtype
    small = read_collection(tmp_path / "mine.npz", form=PictureForm(side=4, color="gray"))
    assert small.values.shape == (ROWS, 1, 4, 4)


def test_grey_arrays_without_labels_are_pictures_too(tmp_path):
    np.save(tmp_path / "x.npy", PIXELS[..., 0])
    held = read_collection(tmp_path / "x.npy")
    assert (held.pictures, held.labels) == (True, None)
    (tmp_path / "out").mkdir()
    write_pictures(tmp_path / "out", held, [held.values])
    np.testing.assert_array_equal(np.load(tmp_path / "out/x.npy"), PIXELS[..., 0])


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_the_format_of_mnist_is_read_with_the_labels_beside_it(tmp_path, packed):
    for name, array in (("images-idx3", PIXELS[..., 0]), ("labels-idx1", SIDES.astype(np.uint8))):
        head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
        content = head + array.tobytes()
        (tmp_path / f"train-{name}-ubyte{packed}").write_bytes(gzip.compress(content) if packed else content)
    held = read_collection(tmp_path / f"train-images-idx3-ubyte{packed}")
    np.testing.assert_array_equal(held.values[:, 0], PIXELS[..., 0])
    assert (held.labels == SIDES).all()
    assert held.file_name == "train-images-idx3-ubyte.npz"
    (tmp_path / f"train-labels-idx1-ubyte{packed}").unlink()
    with pytest.raises(DatasetError, match="no labels lie next to it, as train-labels-idx1-ubyte"):
        read_collection(tmp_path / f"train-images-idx3-ubyte{packed}", labelled=True)


def test_records_along_the_last_axis_are_taken_with_labels_and_asked_about_without(tmp_path):
    """SVHN's X is (32, 32, 3, n), and was taken as 32 records."""
    turned = np.moveaxis(np.repeat(PIXELS, 2, axis=2)[:, :8, :8], 0, -1)
    matlab.savemat(tmp_path / "train_32x32.mat", {"X": turned, "y": (SIDES + 1)[:, None].astype(np.uint8)})
    held = read_collection(tmp_path / "train_32x32.mat")
    np.testing.assert_array_equal(np.moveaxis(np.moveaxis(held.values, 1, -1), 0, -1), turned)
    assert held.classes == ("1", "2", "3")
    np.save(tmp_path / "x.npy", turned)
    with pytest.raises(DatasetError, match=r"40 pictures along the last axis, or 8 along the first\?"):
        read_collection(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros((5, 3, 8, 3), np.uint8))
    with pytest.raises(DatasetError, match="are colors the first axis of a picture or its last"):
        read_collection(tmp_path / "y.npy")


def test_keys_that_are_there_are_named(tmp_path):
    np.savez(tmp_path / "x.npz", features=X, outcome=SIDES)
    with pytest.raises(DatasetError, match=r"lacks records and labels; it holds features \(40, 3\), outcome \(40,\)"):
        read_arrays(tmp_path / "x.npz", labelled=True)


def pictures(folder, suffix, make, count=3):
    folder.mkdir()
    for number in range(count):
        make(number).save(folder / f"{number}{suffix}")
    return folder


def test_tiff_of_8_and_16_bits_is_read_in_folders_and_from_the_hub(tmp_path):
    levels = DRAW.integers(0, 4096, (3, 8, 6), dtype=np.uint16)
    grey = pictures(tmp_path / "grey", ".tif", lambda n: Image.fromarray(PIXELS[n, ..., 0]))
    np.testing.assert_array_equal(read_collection(grey).values[:, 0], PIXELS[:3, ..., 0])
    deep = pictures(tmp_path / "deep", ".tiff", lambda n: Image.fromarray(levels[n]))
    with pytest.raises(DatasetError, match=r"and 'RGB'\. Give --range, the levels that become black and white"):
        read_collection(deep)
    expected = np.rint(levels * (255 / 4095)).astype(np.uint8)
    ranged = PictureForm(span=(0, 4095))
    held = read_collection(deep, form=ranged)
    np.testing.assert_array_equal(held.values[:, 0], expected)
    assert held.deep
    # datasets stores what is not L, LA, RGB or RGBA as TIFF
    made = datasets.Dataset.from_dict({"image": [*map(Image.fromarray, levels)], "label": [0, 1, 0]})
    made.cast_column("image", datasets.Image()).to_parquet(tmp_path / "hub.parquet")
    stored = pq.read_table(tmp_path / "hub.parquet")["image"][0].as_py()["bytes"]
    assert Image.open(io.BytesIO(stored)).format == "TIFF"
    np.testing.assert_array_equal(read_collection(tmp_path / "hub.parquet", form=ranged).values[:, 0], expected)


@pytest.mark.parametrize("suffix", [".png", ".webp", ".tif"])
def test_pictures_behind_the_first_are_not_dropped_in_silence(tmp_path, suffix):
    frames = [Image.fromarray(PIXELS[number]) for number in range(3)]
    frames[0].save(tmp_path / f"several{suffix}", save_all=True, append_images=frames[1:])
    with pytest.raises(DatasetError, match=r"holds 3 pictures, and a record is one: write each to a file"):
        read_collection(tmp_path)


HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(40)
FOREIGN = {
    "x.h5": (HDF5, "is HDF5.*with h5py: "),
    "packed.nc": (HDF5, r"is NetCDF.*xarray.load_dataset\(path\)"),  # h5py would give the integers as they are stored
    "classic": (b"CDF\x02" + bytes(28), r"is NetCDF.*xarray.load_dataset\(path\)"),
    "x.mat": (b"MATLAB 7.3 MAT-file" + bytes(105) + b"\x00\x02IM" + bytes(384) + HDF5, "."),
    "x.db": (b"SQLite format 3\0" + bytes(84), r"database .*pandas.read_sql"),
    "x.bin": (bytes(128) + b"DICM" + bytes(8), "is DICOM.*pydicom"),
    "x.nii.gz": (gzip.compress(bytes(400)), "is NIfTI.*nibabel"),
    "data_batch_1": (b"\x80\x02}q\x01.", "is a pickle, which runs whatever code"),
    "leaf.json": (json.dumps({"users": ["u"], "user_data": {}}).encode(), "is JSON, e.g. of clients as in LEAF"),
    "x.xlsx": (b"PK\x03\x04", "pandas.read_excel"),
    "x.heic": (bytes(12), "pillow-heif"),
    "x.bmp": (b"BM", "Image.open"),
    "x.avro": (b"", r"is Avro; with polars: polars.read_avro\(path\).write_parquet"),
    "old.dta": (b"r\x02\x01\x00", r"is a table of Stata: pandas.read_stata\(path\).to_parquet"),  # 114 has no magic
    "part-00000": (b"ORC\x0a", r"is ORC: pandas.read_orc\(path\).to_parquet"),  # as Spark names files
    "records": (b"Obj\x01", r"pandas.DataFrame\(fastavro.reader\(open\(path, 'rb'\)\)\).to_parquet"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_read_is_called_by_its_name_with_a_line_that_converts_it(tmp_path, name):
    content, words = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=words):
        read_collection(tmp_path / name)
    if "." in name and name != "x.mat":
        with pytest.raises(DatasetError, match=words):
            read_collection(tmp_path)  # among pictures
