"""Commands on records of one's own: what they write is what the channel releases, and what they tell is what leaks."""

import base64
import hashlib
import io
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from calling import assert_refused, called, files_in, refusal, succeeded
from leakbound import ChannelEngine, Ledger, storage
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.risk import identification_information
from leakbound.accounting.runs import stated_bounds
from leakbound.commands import calibrate, terminal
from leakbound.commands.files import read_channel
from leakbound.records.collection import read_collection
from leakbound_lab.commands import demo

COUNT = 120


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Digits as class folders, as a Parquet file and as arrays; others of them in ``public``."""
    monkeypatch.chdir(tmp_path)
    digits = load_digits()
    pixels = (digits.images * 15.9375).astype(np.uint8)
    about = PngInfo()
    about.add_text("Author", "somebody")
    for name, first in (("mine", 0), ("public", COUNT)):
        rows = []
        for number in range(first, first + COUNT):
            folder = tmp_path / name / f"digit {digits.target[number]}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{number}.png"
            Image.fromarray(pixels[number]).save(path, pnginfo=about)
            image = {"bytes": path.read_bytes(), "path": path.name}
            rows.append({"image": image, "label": digits.target[number], "name": "x"})
        pd.DataFrame(rows).to_parquet(f"{name}.parquet")
        np.save(f"{name}.npy", digits.data[first : first + COUNT])
    return tmp_path


def told(*words) -> dict:
    """What a command states, in JSON."""
    return json.loads(succeeded(*words).out)


def protected(*words) -> dict:
    """The statement of what was written to ``out``."""
    succeeded("protect", *words, *(() if "--public" in words else ("--calibrate-to-own",)), "--out", "out")
    with open("out/protection.json", encoding="utf-8") as file:
        return json.load(file)


def test_pictures_are_the_released_values_clipped_and_rounded_under_the_same_names(place):
    shape = ("--shape", "personalized", "--box", 0, 8, 0, 4, 9)
    stated = protected("mine", "--kappa", 20, *shape, "--seed", 5, "--values", "npy")
    values, labels = np.load("out/images.npy"), np.load("out/labels.npy")
    assert (stated["noise"], values.shape) == ("seeded", (COUNT, 1, 8, 8))
    shutil.rmtree("out")
    stated = protected("mine", "--kappa", 20, *shape, "--seed", 5)
    assert files_in(place / "out") == sorted([*files_in(place / "mine"), "protection.json"])
    after, before = read_collection(place / "out"), read_collection(place / "mine")
    assert np.array_equal(after.labels, labels)
    assert np.array_equal(after.values, np.clip(np.rint(values * 255), 0, 255))
    assert stated["written"]["clipped"] == pytest.approx(np.mean((values < 0) | (values > 1)))
    for path in (place / "out").rglob("*.png"):
        with Image.open(path) as picture:
            assert picture.info == {}  # who made it stays at home
    assert "no bound gets worse" in stated["written"]["remark"]
    left, right = (np.std((values - before.values / 255)[..., part]) for part in (slice(4), slice(4, None)))
    assert 2.5 < left / right < 3.5  # three times the standard deviation, on 3,840 values
    names = [name for name in files_in(place / "out") if name != "protection.json"]
    listed = "".join(f"{storage.file_hash(place / 'out' / name)}  {name}\n" for name in names)
    assert stated["digest"] == hashlib.sha256(listed.encode()).hexdigest()


def test_equal_records_get_one_noisy_copy_and_are_said_to_be_equal(place):
    shutil.copy(*(f"mine/digit 0/{name}" for name in ("0.png", "copy.png")))
    stated = protected("mine", "--kappa", 20, "--values", "npy")
    names = [Path(name).name for name in read_collection(place / "mine").names]
    first, again = (names.index(name) for name in ("0.png", "copy.png"))
    values = np.load("out/images.npy")
    assert np.array_equal(values[first], values[again])
    assert len(np.unique(values, axis=0)) == COUNT
    assert (stated["records"], stated["repeated"], stated["uses"]) == (COUNT + 1, 1, 1)
    assert any("1 records are copies of others, and have the same noisy copy" in one for one in stated["assumed"])
    deviation = values - read_collection(place / "mine").values / 255
    assert deviation.std() == pytest.approx(stated["channel"]["std"]["root_mean_square"], rel=0.05)


@pytest.mark.parametrize(
    ("records", "kappa", "faint"), [("mine", 250, True), ("mine.npy", 400, True), ("mine", 20, False)]
)
def test_noise_that_nobody_sees_is_said_to_hide_nothing(place, records, kappa, faint):
    outcome = called("protect", records, "--kappa", kappa, "--calibrate-to-own", "--out", "out")
    assert ("warning: the copies are nearly the originals" in outcome.message) is faint, outcome.err


def test_copies_that_rounding_makes_the_originals_again_are_refused_before_they_are_counted(place):
    succeeded("ledger", "new", "uses.db")
    words = ("protect", "mine", "--kappa", 600, "--calibrate-to-own", "--ledger", "uses.db")
    assert "the copies would be the originals" in refusal(*words, "--out", "out")
    assert not Path("out").exists()
    assert "0 records" in succeeded("ledger", "show", "uses.db").out
    succeeded(*words, "--out", "out", "--values", "npy")


def test_copies_that_name_one_ledger_are_counted_together(place):
    """Two copies were once stated with the nats of one each."""
    words = ("mine.npy", "--public", "public.npy", "--target-leakage", 8, "--uses", 2, "--ledger", "uses.db")
    refused = called("protect", *words, "--out", "one")
    assert (refused.code, Path("uses.db").exists(), Path("one").exists()) == (2, False, False)
    assert f"leakbound ledger new {Path.cwd() / 'uses.db'}" in refused.message
    assert "a ledger, since" in succeeded("ledger", "new", "uses.db").out
    assert "it is there already" in called("ledger", "new", "uses.db").message
    outcomes = []
    for out in ("one", "two"):
        succeeded("protect", *words, "--out", out)
        outcomes.append(json.loads(Path(out, "protection.json").read_text(encoding="utf-8")))
    first, second = (outcome["leakage"]["values"] for outcome in outcomes)
    assert first < second == pytest.approx(8.0)
    one, two = (outcome["leakage"]["mse_linear"] for outcome in outcomes)  # the second knows of both copies
    assert two < 0.9 * one
    stronger = succeeded("protect", *words[:4], 30, *words[5:], "--out", "other")
    assert "the best linear estimate after several channels is not computed" in stronger.out
    assert "all copies and trainings that uses.db has counted" in str(outcomes[1]["assumed"])
    third = called("protect", *words, "--out", "three")
    assert (third.code, Path("three").exists()) == (2, False)
    assert "has had its 2 planned uses" in third.message
    shown = succeeded("ledger", "show", "uses.db").out
    assert f"3 runs, {COUNT} records" in shown
    assert f"{COUNT} records, at most 2 uses of one" in shown


def test_labels_of_other_copies_and_trainings_in_the_ledger_are_part_of_the_statement(place):
    """Pictures without classes were stated as *no label is released* after copies of them with their labels."""
    Path("flat").mkdir()
    for path in Path("mine").rglob("*.png"):
        shutil.copy(path, "flat")
    trained = ChannelEngine.for_data(np.load("public.npy"), 2.0, ledger=Ledger.create("clear.db"))
    data = TensorDataset(torch.from_numpy(np.load("mine.npy")), torch.arange(COUNT) % 10)
    list(trained.protect(DataLoader(data, batch_size=COUNT)))
    succeeded("ledger", "new", "uses.db")
    words = ("--public", "public", "--kappa", 2, "--uses", 3, "--values", "npy", "--ledger", "uses.db")
    succeeded("protect", "mine", *words, "--out", "first")
    cases = {
        "counted": (("flat", *words), math.log(10)),
        "none": (("flat", *words[:-2]), 0.0),
        "uncounted": (("mine.npy", "--public", "public.npy", *words[2:5], 9, "--ledger", "clear.db"), None),
    }
    for name, (command, nats) in cases.items():
        out = succeeded("protect", *command, "--out", name).out
        with open(f"{name}/protection.json", encoding="utf-8") as file:
            stated = json.load(file)
        leakage = stated["leakage"]
        assert leakage["label"] == (None if nats is None else pytest.approx(nats))
        assert stated["statement"]["nats"] == pytest.approx(leakage["record"])
        assert leakage["record"] == pytest.approx(leakage["values"] + (nats or 0))
        assert stated["planned"]["record"] == pytest.approx(stated["planned"]["values"] + (nats or 0))
        assert stated["statement"]["label_kind"] == name
        assert ("by the values, the label is not counted" in out) == (nats is None)


def test_accepted_nats_are_those_of_every_line_and_of_calibrate(place):
    """8 nats of ten copies were stated as planned, and by calibrate, where 14 were accepted and stated of one."""
    words = ("mine.npy", "--public", "public.npy", "--target-leakage", 8, "--uses", 10, "--accept-capacity", 14)
    out = succeeded("protect", *words, "--out", "out").out
    assert "10 uses with fresh noise together: 14 nats by the values" in out
    assert "several channels" not in out
    stated = json.loads(Path("out/protection.json").read_text(encoding="utf-8"))
    (row,) = told("calibrate", *words, "--shape", "natural", "--json")["shapes"]
    assert stated["planned"]["values"] == stated["leakage"]["values"] == row["values"] == row["capacity"] == 14.0
    assert 0 < row["mse"] < stated["leakage"]["mse_linear"]


def test_refusals_of_the_library_name_options(place):
    """The command line has no ``calibrate_to_own=True``."""
    public = np.load("public.npy")
    public[3] = np.load("mine.npy")[5]
    np.save("shared.npy", public)
    said = refusal("protect", "mine.npy", "--public", "shared.npy", "--kappa", 2, "--out", "out")
    assert "or allow it by --calibrate-to-own of protect, without --public" in said


def test_secure_noise_is_the_default_and_no_two_copies_are_alike(place):
    first = protected("mine.npy", "--kappa", 5)
    copy = np.load("out/mine.npy")
    shutil.rmtree("out")
    assert protected("mine.npy", "--kappa", 5)["noise"] == first["noise"] == "secure"
    assert not (copy == np.load("out/mine.npy")).all(axis=1).any()
    noise = (copy - np.load("mine.npy")).std()
    assert noise == pytest.approx(first["channel"]["std"]["root_mean_square"], rel=0.11)  # rounded up to two digits
    outcome = called("protect", "mine.npy", "--kappa", 5, "--seed", 1, "--calibrate-to-own", "--out", "again")
    assert "warning: --seed 1: THE NOISE IS SEEDED" in outcome.message


def test_the_numbers_of_seeded_copies_stand_behind_a_line_that_they_are_no_bound(place):
    """They stood behind *no bound* and *by parts*, as if they were parts of one."""
    words = ("protect", "mine.npy", "--kappa", 5, "--uses", 2, "--public", "public.npy", "--out")
    line = "no bound         the numbers below would hold if the noise were secret"
    secret = succeeded(*words, "secret").out.splitlines()
    assert not any(said.startswith("no bound") or "if the noise were secret" in said for said in secret)
    seeded = succeeded(*words, "seeded", "--seed", 1).out.splitlines()
    at = seeded.index(line)
    numbers = ("by parts", "planned", "reconstruction", "identification")
    assert [said.split()[0] for said in seeded[at + 1 : at + 5]] == [name.split()[0] for name in numbers]
    assert not any(" nats" in said for said in seeded[:at])
    assert [said for said in seeded if said.startswith(numbers)] == [
        said for said in secret if said.startswith(numbers)
    ]
    assert any(said.startswith("  - THE NOISE IS SEEDED") for said in seeded)


def test_parquet_keeps_its_labels_and_loses_all_other_columns(place):
    stated = protected("mine.parquet", "--target-leakage", 30, "--uses", 3, "--public", "public.parquet")
    table = pq.read_table("out/mine.parquet")
    assert table.column_names == ["image", "label"]
    before, after = read_collection(place / "mine.parquet"), read_collection(place / "out" / "mine.parquet")
    assert np.array_equal(before.labels, after.labels)
    assert before.values.shape == after.values.shape
    assert {one["path"] for one in table["image"].to_pylist()} == {None}
    assert stated["channel"]["calibrated_to"] == "public records"


@pytest.mark.parametrize("public", [[], ["--public", "public"]])
def test_leakage_told_is_that_of_the_eigenvalues_and_the_noise(place, public):
    words = ("mine", "--target-leakage", 30, "--uses", 3, *public)
    stated = protected(*words)
    law = read_collection(place / (public[1] if public else "mine")).values.reshape(COUNT, -1) / 255
    covariance, shrinkage = np.cov(law.T, bias=True), stated["channel"]["shrinkage"]
    lengths = np.square(law - law.mean(axis=0)).sum(axis=1)
    error = lengths.var() / lengths.mean() ** 2 / COUNT  # squared and relative, of the total variance
    covariance *= COUNT / (COUNT - 1) / (1 - error)
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / 64 * np.eye(64)
    row = told("calibrate", *words, "--json", "--shape", "natural")["shapes"][0]
    ratios = np.linalg.eigvalsh(covariance).clip(0) / row["std"] ** 2
    one, three = (0.5 * np.log1p(uses * ratios).sum() for uses in (1, 3))
    near = 1e-6 if public else 0.1  # numbers of the records themselves are rounded up to two digits
    assert three == pytest.approx(30, rel=near)
    assert (row["capacity"], row["values"]) == pytest.approx((one, 30), rel=near)
    leakage = stated["leakage"]
    assert leakage["values"] == pytest.approx(one, rel=near)
    assert leakage["record"] == pytest.approx(one + math.log(10), rel=near)
    assert leakage["all_records"] == pytest.approx(COUNT * leakage["record"], rel=near)
    assert ("no bound holds against whoever knows the other records" in stated["assumed"][0]) == (not public)
    assert row["std"] == pytest.approx(stated["channel"]["std"]["root_mean_square"], rel=near)
    assert ("own" in row) == bool(public)


@pytest.mark.parametrize(
    ("target", "column", "value"),
    [
        ("--kappa 12", "capacity", 12),
        ("--target-mse 0.02 --uses 4", "mse", 0.02),
        ("--target-identification 0.5 --candidates 50 --uses 2", "values", identification_information(0.5, 50)),
    ],
)
def test_every_shape_reaches_every_target(place, target, column, value):
    found = {row["shape"]: row[column] for row in told("calibrate", "mine", *target.split(), "--json")["shapes"]}
    shapes = ("natural", "white", "least_power", "rate_distortion")
    assert found == pytest.approx(dict.fromkeys(shapes, value), rel=1e-6)


def test_a_channel_is_kept_as_the_workflow_keeps_it_on_its_scale(place):
    words = ("calibrate", "mine", "--kappa", 12, "--shape", "white", "--out", "c.safetensors")
    row = told(*words, "--json")["shapes"][0]
    channel, spectrum = read_channel(place / "c.safetensors", place / "c.spectrum.safetensors")
    assert (channel.shape, spectrum.shape, channel.capacity) == ("white", "white", 12.0)
    assert math.sqrt(channel.noise_power / 64) == pytest.approx(2 * row["std"])  # pixels from -1 to 1
    assert "c.safetensors: is there already" in refusal(*words)


OWN = ("--out", "out", "--kappa", "1", "--calibrate-to-own")
GOOD = ("protect", "mine", "--out", "out", "--calibrate-to-own")
PUBLIC = ("protect", "mine", "--out", "out", "--kappa", "1", "--public")
RECORDS = {
    "none": "none: there is no such file or folder",
    "full/text.txt": "give a folder of images, or with a subfolder of images",
    "twice": "two files would both become a/1.png",
    "equal.npy": "all records are equal",
    "one.npy": "one.npy: holds 1 record",
    "words.npy": "cannot be read as arrays",
    "no.parquet": "cannot be read as Parquet",
    "line.npy": "holds float64 of shape (3,)",
    "gaps.npy": "record 1 holds NaN",
    "large.npy": "to at most 786432 values",
}
BAD = [
    *((("protect", name, *OWN), message) for name, message in RECORDS.items()),
    ((*GOOD, "--kappa", "1", "--target-mse", "1"), "given by --kappa and --target-mse: give exactly one"),
    ((*GOOD, "--target-identification", "0.001", "--candidates", "100"), "give one between 0.01"),
    ((*GOOD, "--target-mse", "0.9"), "--target-mse 0.9: guessing the mean of mine already errs by 0.07"),
    ((*GOOD, "--kappa", "nan"), "--kappa nan: Capacity(nats=nan): give a finite number above 0"),
    ((*GOOD, "--kappa", "1", "--shape", "personalized", "--box", "0", "9", "0", "9", "1"), "--box: rows = (0, 9)"),
    ((*GOOD, "--kappa", "1e300"), "capacity = 1e+300 nats needs a noise variance of e^-3.125e+298,"),
    ((*GOOD, "--kappa", "1", "--box", "0", "1", "0", "1", "2"), "no other shape takes one"),
    (("protect", "mine", *OWN, "--out", "mine/out"), "--out mine/out: lies in mine"),
    ((*PUBLIC, "mine"), "these are the records to protect"),
    ((*PUBLIC, "wide"), "images of 8×9 with 1 color, mine holds images of 8×8 with 1 color"),
    (("protect", "mine.npy", *PUBLIC[2:], "scaled.npy"), "bring both into the same units"),
    ((*PUBLIC[:-1],), "give either --public PATH, records that an attacker"),
    ((*PUBLIC, "reversed"), "120 of 120 records equal public ones, the first is record 0: either"),
    (("protect", "mine", *OWN, "--out", "full"), "--out: full: is there already"),
    (("protect", "none", *OWN, "--out", "mine.npy/out"), "mine.npy is not a folder, so nothing can be written"),
    (("protect", "mine", *OWN, "--out", ""), "'' is no path"),
    (("calibrate", "mine", "--kappa", "1", "--out", "c"), "a file holds one channel; give --shape, too"),
]


@pytest.fixture
def wrong(place):
    """Files and folders with one thing wrong in each."""
    for number, path in enumerate(sorted(place.glob("mine/*/*.png"))):
        (place / "reversed" / "a").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place / "reversed" / "a" / f"{999 - number}.png")
    for shade, name in enumerate(("wide/a/1.png", "wide/a/2.png", "twice/a/1.png", "twice/a/1.jpg")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 8), 60 * shade).save(place / name)
    (place / "full").mkdir()
    (place / "full/text.txt").write_text("x")
    (place / "no.parquet").write_bytes(bytes(range(256)) * 20)
    arrays = {"equal": np.ones((3, 2)), "one": np.ones((1, 2)), "line": np.arange(3.0)}
    arrays |= {"words": np.array([["a"], [None]], dtype=object), "gaps": np.array([[1.0], [math.nan]])}
    arrays |= {"large": np.zeros((2, 786_433), np.uint8), "scaled": np.load("public.npy") / 255}
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    return place


def test_mistakes_are_named_before_anything_is_written(wrong, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # or a message breaks where the path is long
    before = files_in(wrong)
    for words, message in BAD:
        outcome = called(*words)
        assert_refused(outcome, wrong / "out")
        assert message in outcome.message, words
        assert files_in(wrong) == before, words


@pytest.mark.filterwarnings("ignore:a few of the 120 calibration records")
def test_arrays_on_another_scale_than_the_public_ones_are_refused(place):
    """Once, 3 nats were stated where 6.14 were revealed: the range of a few large values said nothing."""
    public = np.load("public.npy")
    public[2:] /= 4
    public[0, 0], public[1, 0] = -3.0, 20.0  # no value of the records is out of range
    np.save("scaled.npy", public)
    words = ("mine.npy", "--kappa", "3", "--public", "scaled.npy")
    for command in (("protect", *words, "--out", "out"), ("calibrate", *words, "--shape", "natural")):
        said = refusal(*command)
        assert (place / "out").exists() == (command[0] == "calibrate")
        assert "reveals" in said
        accepted = re.search(r"--accept-capacity ([0-9.]+)", said)[1]
        succeeded(*command, "--accept-capacity", accepted)
        assert float(accepted) > 3 * 1.25
    stated = json.loads(Path("out/protection.json").read_text(encoding="utf-8"))
    assert stated["leakage"]["values"] == float(accepted)  # which their owner chose to state


def test_calibrated_to_themselves_records_are_not_named_by_the_statement(place):
    """Once, ``mse_mean`` in full named the true one of 897 candidates, 12 of 12."""
    stated = protected("mine.npy", "--kappa", 1)
    records, others = np.load("mine.npy").astype(np.float32), np.load("public.npy").astype(np.float32)
    stds = stated["channel"]["std"].values()
    for value in (stated["leakage"]["mse_mean"], stated["leakage"]["mse_linear"], *stds):
        assert float(f"{value:.1e}") == value
    with_others = {float(np.vstack([records[1:], one]).var(axis=0).mean()) for one in others}
    assert len({f"{one:.1e}" for one in with_others}) < 5
    assert "--calibrate-to-own" in refusal("protect", "mine.npy", "--kappa", "1", "--out", "again")


def test_a_file_that_appears_meanwhile_is_not_replaced(place, monkeypatch):
    words = ("calibrate", "mine", "--kappa", "8", "--shape", "natural", "--out", "c.safetensors")
    appears = {"shape": "natural"}
    monkeypatch.setattr(calibrate, "_row", lambda *given: Path("c.safetensors").write_text("theirs") and appears)
    assert "c.safetensors: has appeared meanwhile" in refusal(*words)
    assert Path("c.safetensors").read_text() == "theirs"


def test_demo_is_one_page_whose_pictures_decode_and_whose_errors_grow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_PICTURES", 1)
    monkeypatch.setattr(demo, "_CAPACITIES", {1: (30.0, 2.0)})
    succeeded("demo")
    succeeded("demo", "--out", "again.html")
    page = (tmp_path / "demo.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "again.html").read_text(encoding="utf-8")
    pictures = [base64.b64decode(one) for one in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]
    true, same, again, _, strong, _, weak = (np.asarray(Image.open(io.BytesIO(one)), float) for one in pictures)
    assert true.shape == (32, 32)
    assert np.abs(true - again).max() <= 1  # solved from the gradient; one level of 255
    assert np.array_equal(true, same)
    assert 0 < np.abs(true - strong).mean() < np.abs(true - weak).mean()
    assert not re.search(r"(src|href)=\"(?!data:)|https?:", page)
    cells = re.findall(r"<td>([0-9.]+)</td><td>([0-9.]+)</td><td>([0-9]+)%</td><td>([0-9]+)%</td>", page)
    errors, least, named, most = np.array(cells, float).T
    assert errors[0] == 0 < errors[1] < errors[2]
    assert np.all(np.abs(errors - least) < 0.2 * least + 1e-9)
    assert np.all(named <= most)


HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "datasets", "mlflow", "snakemake", "pynvml"):
            raise ModuleNotFoundError(f"{name} is hidden", name=name)
sys.meta_path.insert(0, Hidden())
if sys.argv[1] == "demo":
    from leakbound_lab.commands import demo
    demo._PICTURES, demo._CAPACITIES = 1, {1: (2.0,)}
from leakbound.commands.command_line import main
main()
"""


@pytest.mark.parametrize(
    "words", ["protect mine.npy --out out --kappa 3 --calibrate-to-own", "calibrate mine --target-mse 0.02", "demo"]
)
def test_the_package_without_extras_is_enough(place, words):
    done = subprocess.run([sys.executable, "-c", HIDDEN, *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warned = "leakbound: warning: (single values|more nats|mine.npy: standard deviations) .*"
    said = re.compile(rf"[a-z ]+: \d+( of \d+)?(, \d+ s)?|leakbound: mine: classes: .*|{warned}")
    assert not [line for line in done.stderr.splitlines() if not said.fullmatch(line)]


def test_bar_is_shown_on_a_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with terminal.progress_bar("reading [/x]", 3) as each:
        each(3)
    assert "reading [/x]" in stream.getvalue()
    assert "3/3" in stream.getvalue()


def test_account_says_of_each_file_that_it_cannot_take_what_it_is_and_what_to_give(tmp_path, monkeypatch):
    """None of them is damaged, so nothing is to be deleted."""
    monkeypatch.chdir(tmp_path)
    event = PrivacyEvent("none", sampling="shuffled", population=40, batch_size=8, steps=15, uses=3)
    Path("config.yaml").write_text("preset: mine\n")
    storage.write_json("undefended.json", {"events": [event.to_dict()], "leakage": None})
    storage.write_json("prepared.json", {"originals": {}})
    told = {
        "config.yaml": "is no file that a training wrote",
        "nowhere.json": "there is no such file; give results/PRESET/runs/RUN/provenance.json",
        "undefended.json": "no bound was derived for 'none' at this level, so there is nothing to account for",
        "prepared.json": "of no training: give that of a training",
        "finished": "is a folder; give finished/provenance.json",
        ".": "is a folder; give results/PRESET/runs/RUN/provenance.json",
        "protection.json": "noisy copies in protection.json, a published network in statement.json",
    }
    storage.write_json("finished/provenance.json", {})
    Path("protection.json").write_text("{}")
    for name, words in told.items():
        done = called("account", name)
        assert (done.code, "Delete" in done.message) == (2, False)
        assert f"{name}: " in done.message
        assert words in done.message


def test_account_says_what_it_takes_as_the_file_has_it(tmp_path):
    event = PrivacyEvent("dpsgd", "poisson", 40, 8, 15, 15, noise_multiplier=1.0, max_grad_norm=1.0)
    stated = stated_bounds([event], None, 1e-5, "rdp", labels=math.log(10))
    storage.write_json(tmp_path / "dp.json", {"events": [event.to_dict()], "leakage": stated})
    done = succeeded("account", tmp_path / "dp.json")
    assert "events and the number of labels: as the file states them" in done.out


def test_tables_never_print_less_than_a_bound(place):
    """Numbers of the table are those of the JSON, rounded up. Least errors are rounded down."""
    event = PrivacyEvent("channel", "shuffled", 400, 32, 300, 24, shape="natural", capacity=4.0, noise="fresh")
    stated = stated_bounds([event], np.ones(3), labels=math.log(10))
    storage.write_json("run.json", {"events": [event.to_dict()], "leakage": stated})
    exact, *_ = json.loads(succeeded("account", "run.json", "--json").out)["replay"]
    shown = succeeded("account", "run.json").out
    for words, name in (("uses added up", "linear"), ("labels, on top", "labels"), ("smallest valid bound", "record")):
        printed = float(re.search(rf"{words}\D*([\d.]+)", shown)[1])
        assert exact[name] * (1 - 1e-9) <= printed <= exact[name] * (1 + 1e-4), name
    words = ("calibrate", "mine", "--target-leakage", math.pi, "--uses", 3)
    rows = json.loads(succeeded(*words, "--json").out)["shapes"]
    lines = {line.split()[0]: line.split() for line in succeeded(*words).out.splitlines() if line}
    for exact in rows:
        *_, one, every, labelled, error, _ = map(float, lines[exact["shape"]][1:])
        for printed, name in ((one, "capacity"), (every, "values"), (labelled, "record")):
            assert exact[name] * (1 - 1e-9) <= printed <= exact[name] * (1 + 1e-3), name
        assert exact["mse"] * (1 - 1e-3) <= error <= exact["mse"] * (1 + 1e-9)


def test_work_is_told_in_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "_PAUSE", 0.0)
    with terminal.progress_bar("attacking", 5) as each:
        each(2)
        each(3)
    with terminal.progress_bar("reading", None) as each:
        each(7)
    lines = ["attacking: 2 of 5, 0 s", "attacking: 5 of 5, 0 s", "reading: 7, 0 s"]
    assert capsys.readouterr().err.splitlines() == lines


def test_pictures_of_the_demo_span_black_to_white():
    shown = demo._strip(np.array([-1.0, 0.0, 1.0], np.float32).reshape(1, 1, 1, 3))
    assert np.asarray(Image.open(io.BytesIO(base64.b64decode(shown["source"])))).tolist() == [[0, 128, 255]]
