"""Tables, arrays and time series as records: their scale, what it depends on, the way to an attack, and refusals."""

import io

import numpy as np
import pandas as pd
import pytest

from leakbound.channels import Natural, channel_capacity, population_moments
from leakbound.records.tables import DEVIATIONS, is_table, load_table
from leakbound_lab.attacks.attack_request import AttackRequest
from leakbound_lab.attacks.gradient_inversion.attack import invert_gradients
from leakbound_lab.attacks.search_images import total_variation
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import ChannelDefense, Undefended
from leakbound_lab.datasets import DatasetError, ImageDataset, prepare
from leakbound_lab.datasets.originals import describe_originals
from leakbound_lab.datasets.own import copy_table
from leakbound_lab.datasets.splits import draw
from leakbound_lab.datasets.tabular import read_table

ROWS = 200
SIZES = {"members": 30, "pool": 90, "test": 40, "aux": 60}


def patients(seed: int = 0) -> pd.DataFrame:
    """Columns with units, one of them far from 0, one-hot and whole ones, and one that never varies."""
    generator = np.random.default_rng(seed)
    site = generator.integers(0, 3, ROWS)
    return pd.DataFrame(
        {
            "pressure": generator.normal(101_325, 900, ROWS),
            "creatinine": generator.lognormal(-4, 0.5, ROWS),
            "age": generator.integers(18, 95, ROWS),
            **{f"site_{number}": site == number for number in range(3)},
            "version": 0.1,
            "outcome": np.where(generator.normal(size=ROWS) > 0, "well", "ill"),
        }
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    return tmp_path


def prepared(home, table: pd.DataFrame, **settings) -> ImageDataset:
    table.to_csv(home / "mine.csv", index=False)
    return prepare("mine", DatasetConfig(reader="table", path="mine.csv", label="outcome", **SIZES, **settings), 0)


def values_of(dataset: ImageDataset) -> np.ndarray:
    return np.concatenate([dataset.pool.images, dataset.test.images, dataset.aux.images])[:, 0, 0]


def test_units_change_nothing(home):
    table = patients()
    given = values_of(prepared(home, table))
    other = table.assign(pressure=table.pressure / 133.3 - 700, creatinine=88.4 * table.creatinine, age=12 * table.age)
    np.testing.assert_allclose(values_of(prepared(home, other)), given, atol=2e-6)


def test_a_private_record_moves_no_other_record_and_one_of_the_attackers_moves_all(home):
    table = patients()
    first = prepared(home, table)
    config = DatasetConfig(reader="table", path="mine.csv", label="outcome", **SIZES)
    drawn = draw("mine", read_table("mine", config), config, 0)
    order = np.concatenate([drawn.pool, drawn.test, drawn.aux])
    private, known = drawn.pool[0], drawn.aux[0]
    kept = values_of(first)
    for row, moved in ((private, False), (known, True)):
        changed = table.copy()
        changed.loc[row, "pressure"] += 5_000.0
        found = values_of(prepared(home, changed))
        others = order != row
        assert np.array_equal(found[others], kept[others]) is not moved
        assert not np.array_equal(found[~others], kept[~others])


def test_the_attackers_records_are_standard_and_far_values_are_clipped(home):
    table = patients()
    table.loc[:3, "creatinine"] = 1e6
    dataset = prepared(home, table)
    aux = dataset.aux.images[:, 0, 0].astype(np.float64)
    np.testing.assert_allclose(aux[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(aux[:, 0].std(), 1 / DEVIATIONS, rtol=1e-3)
    assert np.abs(values_of(dataset)).max() == 1.0
    assert not values_of(dataset)[:, 6].any()  # what is the same for all attacker's records carries nothing
    assert dataset.classes == ("ill", "well")
    assert dataset.side == (1, 7)


def test_all_formats_give_the_same_records(home):
    table = patients()
    table.to_csv(home / "a.csv", index=False)
    table.to_parquet(home / "b.parquet")
    numbers = table.drop(columns="outcome").astype(float).to_numpy()
    np.savez(home / "c.npz", records=numbers, labels=table.outcome.to_numpy(str))
    found = [load_table(home / name, "outcome") for name in ("a.csv", "b.parquet", "c.npz")]
    for one in found:
        np.testing.assert_allclose(one.values[:, 0], numbers, rtol=1e-15)
        assert [one.classes[label] for label in one.labels] == table.outcome.tolist()
    assert [is_table(home / name) for name in ("a.csv", "b.parquet", "c.npz")] == [True] * 3
    assert "3 hold 0 and 1 (one-hot) and 1 other whole numbers" in found[0].advice()


def test_the_index_of_a_frame_is_no_column_unless_it_is_the_label(home):
    table = patients()
    columns = [*table.columns.drop("outcome")]
    frames = {
        "filtered": table[table.age > 40].sort_values("outcome"),
        "label": table.set_index("outcome"),
        "two": table.assign(ward=1).set_index(["ward", "version"]),
    }
    for name, frame in frames.items():
        frame.to_parquet(home / f"{name}.parquet")
        kept = [column for column in columns if name != "two" or column != "version"]
        assert [*load_table(home / f"{name}.parquet", "outcome").columns] == kept, name


def test_codes_of_classes_keep_their_zeros_and_a_missing_one_is_refused(tmp_path):
    path = tmp_path / "codes.csv"
    rows = [f"{30.5 + row},{1.7 - row / 9:.2f},{'007' if row % 2 else '12'}" for row in range(6)]
    path.write_text("\n".join(["age,height,label", *rows, ""]))
    table = load_table(path, "label")
    assert table.classes == ("007", "12")
    path.write_text(path.read_text() + "41,1.6,NA\n")
    with pytest.raises(DatasetError, match=r"row 6: 'label' is missing"):
        load_table(path, "label")


@pytest.mark.parametrize("other", ["None", "NA", "null"])
def test_a_class_may_have_the_name_of_nothing(home, other):
    patients().replace({"outcome": {"well": other}}).to_csv(home / "x.csv", index=False)
    assert load_table(home / "x.csv", "outcome").classes == tuple(sorted(("ill", other)))


@pytest.mark.parametrize(("sep", "decimal"), [(";", ","), (";", "."), ("\t", ".")])
def test_tables_of_spreadsheets_are_read_as_they_are_meant(home, sep, decimal):
    table = patients()
    table.to_csv(home / "X.CSV", index=False, sep=sep, decimal=decimal)
    found = load_table(home / "X.CSV", "outcome")
    np.testing.assert_allclose(found.values[:, 0], table.drop(columns="outcome").astype(float), rtol=1e-12)
    assert is_table(home / "X.CSV")


def test_all_shards_of_a_table_are_read_and_copied(home):
    table = patients()
    for number in range(2):
        table[number::2].to_parquet(home / f"train-{number:05}-of-00002.parquet")
    found = load_table(home / "train-00001-of-00002.parquet", "outcome")
    assert len(found.values) == ROWS
    name, train, test = copy_table(home / "copy", found)
    assert (load_table(home / "copy" / name, "outcome").values == found.values).all()
    assert train + test == ROWS
    assert {path.stat().st_mode & 0o777 for path in (home / "copy").iterdir()} == {0o600}
    assert (home / "copy").stat().st_mode & 0o777 == 0o700


def test_an_edited_file_is_noticed(home):
    prepared(home, patients())
    config = DatasetConfig(reader="table", path="mine.csv")
    before = describe_originals("mine", config)
    prepared(home, patients(seed=1))
    assert before.keys() == {"mine.csv"}
    assert describe_originals("mine", config) != before


def series(home) -> ImageDataset:
    generator = np.random.default_rng(1)
    waves = np.sin(np.linspace(0, 6, 20) + generator.uniform(0, 6, (ROWS, 3, 1)))
    waves = (waves + generator.normal(0, 0.1, waves.shape)).astype(np.float32)
    np.savez(home / "ecg.npz", records=waves, labels=np.arange(ROWS) % 2)
    return prepare("ecg", DatasetConfig(reader="table", path="ecg.npz", **SIZES), 0)


def inverted(dataset: ImageDataset, channel=None) -> pd.DataFrame:
    config = GradientInversionConfig(images=3, iterations=2, search_iterations=2, tv_weights=(0.0,))
    defense, level = (Undefended(), None) if channel is None else (ChannelDefense(), channel.capacity)
    flat = dataset.aux.images.reshape(len(dataset.aux), -1)
    request = AttackRequest(
        model="mlp", dataset=dataset, config=config, seed=0, slug="x", defense=defense, level=level, channel=channel,
        moments=population_moments(flat),
    )  # fmt: skip
    rows, pictures = invert_gradients(request)
    assert pictures["truth"].shape[2:] == dataset.pool.images.shape[1:]
    assert "ssim" not in set(rows.metric)
    return rows[(rows.variant == "attack") & (rows.metric == "mse")].value


@pytest.mark.parametrize("kind", ["table", "series"])
def test_a_gradient_gives_the_record_away_until_a_channel_hides_it(home, kind):
    dataset = prepared(home, patients()) if kind == "table" else series(home)
    assert dataset.aux.images.shape[1:] == ((1, 1, 7) if kind == "table" else (1, 3, 20))
    moments = population_moments(dataset.aux.images.reshape(len(dataset.aux), -1))
    channel = Natural.calibrate(Natural.decompose(moments), 0.1)
    assert channel_capacity(channel, moments) == pytest.approx(0.1, rel=1e-6)
    assert inverted(dataset).max() < 1e-10  # the first linear layer has a bias: its input is a quotient of gradients
    prior = ((dataset.members(0).images[:3] - dataset.aux.images.mean(0)) ** 2).mean() / 4
    assert inverted(dataset, channel).mean() > 0.5 * prior


def test_one_row_has_differences_along_it_alone():
    import torch

    assert total_variation(torch.tensor([[[[0.0, 1.0, 3.0]]]])).tolist() == [1.5]


def saved(records: np.ndarray, labels: np.ndarray | None = None) -> bytes:
    file = io.BytesIO()
    np.savez(file, records=records, labels=np.arange(len(records)) % 2 if labels is None else labels)
    return file.getvalue()


TOKENS = np.random.default_rng(0).integers(0, 30_000, (60, 16))
NUMBERS = np.random.default_rng(0).normal(size=(60, 16))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"a,b,label\n1,2,0\n3,,1\n", "row 1: 'b' has no finite value"),
        ("x.csv", b"a,b,label\n", "holds 0 records of 2 values"),
        ("x.csv", b"a,b,label\n1,u,0\n3,v,1\n", "'u', and only numbers can get .* or leave it out: --exclude 'b'"),
        ("x.csv", b"a,b,diagnosis\n1,2,0\n3,4,1\n", "has no column 'label' to use as the label; known: a, b"),
        ("x.csv", b"a,b,label\n1,2,\n3,4,x\n", "row 0: 'label' is missing"),
        ("x.csv", "größe,b,label\n1,2,0\n".encode("latin-1"), "cannot be read .*utf-8.* byte 0xf6.* tables as UTF-8"),
        ("x.npz", saved(NUMBERS, np.array([0, "b"] * 30, object)), r"Object arrays.*labels.astype\(str\)"),
        ("x.csv", b",a,label\n0,2,0\n1,4,1\n", r"use to_csv\(..., index=False\)"),
        ("x.csv", b"a,label\n2,0\n4,1\n", "2 records of 1 values; allowed are at least 2 records of 2 to 20000"),
        ("x.npz", saved(TOKENS), "look like token ids.*Embed them with your encoder first"),
        ("x.npz", saved(NUMBERS, np.arange(59)), r"labels of shape \(59,\); allowed"),
        ("x.csv", b"a,b,label\n1,2,0\n3,4,inf\n", "column 'label' holds inf, which is no class"),
        ("x.npz", saved(NUMBERS[:, 0]), "allowed are real numbers"),
        ("x.npy", b"", "numpy.savez"),
    ],
)
def test_what_is_no_labelled_table_of_numbers_is_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=words):
        load_table(tmp_path / name)


ONE_HOT = np.column_stack([TOKENS % 2, TOKENS[:, 0]])


@pytest.mark.parametrize("records", [TOKENS.astype(np.float32), TOKENS % 17, TOKENS.astype(np.uint8), ONE_HOT])
def test_measurements_pixels_and_one_hot_columns_are_no_tokens(tmp_path, records):
    (tmp_path / "x.npz").write_bytes(saved(records))
    np.testing.assert_array_equal(load_table(tmp_path / "x.npz").values[:, 0], records)


def test_values_that_are_not_standardized_lie_on_the_networks_scale(home):
    table = patients()[["age", "site_0", "outcome"]]
    with pytest.raises(DatasetError, match="'age' reaches 94 in size; without standardize all values lie in -1 to 1"):
        prepared(home, table, standardize=False)
    scaled = table.assign(age=table.age / 100)
    dataset = prepared(home, scaled, standardize=False)
    assert {*np.round(values_of(dataset)[:, 0] * 100).astype(int)} <= {*table.age}
