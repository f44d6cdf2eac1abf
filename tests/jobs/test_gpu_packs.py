"""Runs on a machine that is lent for minutes: what is carried there, when it ends, what is packed and merged."""

import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpu_packs
import gpu_run
from leakbound import storage
from leakbound.storage import provenance
from leakbound_lab.config import reading
from leakbound_lab.jobs import coordination
from leakbound_lab.steps.job_list import job_list
from studies import study

ROOT = Path(__file__).parents[2]
RUNS = tuple(
    f"{run}/n9-b16" for run in ("fashion_mnist/lenet/none", "fashion_mnist/lenet/natural-5", "mnist/lenet/none")
)
SIZES = {"members": 20, "validation": 10, "pool": 60, "test": 20, "aux": 20}
ATTACKS = ["membership", "model_inversion"]
CAPACITY = study({"none": [], "natural": [5.0]}, ATTACKS, datasets=["fashion_mnist", "mnist"], rounds=9, batch_size=16)
CONFIG = {
    **{"preset": "lent", "datasets": {"fashion_mnist": SIZES, "mnist": SIZES}, "studies": {"capacity": CAPACITY}},
    **{"illustrations": {}, "tracking": {"enabled": False}},
}


@pytest.fixture(scope="module")
def made():
    return job_list(reading.config_of(CONFIG, "lent.yaml"))


@pytest.fixture
def lent(made, tmp_path, monkeypatch):
    """A folder with three runs: one is finished, one is trained, one has begun."""
    monkeypatch.setenv(coordination.RUN, "")
    prepared(made, tmp_path / "lent", monkeypatch)
    every = gpu_packs.pieces(made)
    for name in (f"train/{RUNS[0]}", f"attack/{RUNS[0]}", f"train/{RUNS[1]}"):
        finish(every[name])
    begun = every[f"train/{RUNS[2]}"].weights[0].with_name("checkpoint-0123456789abcdef.pt")
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"half")
    return tmp_path / "lent"


def prepared(made, folder, monkeypatch, content="same"):
    """Enter a folder in which images and channels are there."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    for job in made.of("prepare", "covariance", "spectrum", "calibrate"):
        for path in map(Path, job.outputs.values()):
            storage.write_json(path, {"content": content})


def finish(piece):
    for path in (*piece.weights, *piece.rows):
        if path.suffix == ".json":
            storage.write_json(path, {"settings": {}})
        elif path.suffix == ".parquet":
            storage.write_rows(path, pd.DataFrame({"value": [0.5]}))
        else:
            storage.write_arrays(path, {"values": np.zeros(1000, np.float32)})
    for path in (*piece.declared, *piece.weights):
        note = gpu_packs.note("metadata", path)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"rule": piece.rule}))


def merged(made, parts, accept=()):
    try:
        gpu_packs.merge(made, Path("unread.yaml"), parts, accept, 1)
    finally:
        while coordination._HELD:  # as the end of the process does
            coordination._HELD.pop().close()


def test_pack_holds_rows_scores_and_what_unfinished_attacks_need(made, lent):
    names = {str(path) for path in gpu_packs.chosen(made, 1 << 20)}
    ends = {name.partition("lent/")[2] for name in names}
    for kept in ("rates.parquet", "training.parquet", "provenance.json", ".provenance.json.sha256"):
        assert f"runs/{RUNS[0]}/{kept}" in ends
    assert {f"attacks/{RUNS[0]}/membership.json", f"attacks/{RUNS[0]}/membership.safetensors"} <= ends
    assert {f"attacks/{RUNS[0]}/model_inversion.parquet", f"runs/{RUNS[2]}/checkpoint-0123456789abcdef.pt"} <= ends
    assert {name for name in ends if name.endswith("weights.safetensors")} == {f"runs/{RUNS[1]}/weights.safetensors"}
    assert f"attacks/{RUNS[0]}/model_inversion.safetensors" not in ends  # pictures
    assert not [name for name in ends if name.startswith(("data", "covariance", "spectra", "channels"))]


def test_training_whose_weights_do_not_fit_stays_behind_and_would_be_done_again(made, lent):
    whole = gpu_packs._size(gpu_packs.chosen(made, 1 << 20))
    weights = gpu_packs._size(gpu_packs.pieces(made)[f"train/{RUNS[1]}"].weights)
    names = {str(path) for path in gpu_packs.chosen(made, whole - weights)}
    assert not [name for name in names if RUNS[1] in name]
    assert f"results/lent/attacks/{RUNS[0]}/membership.json" in names


def test_result_that_snakemake_has_not_seen_end_is_not_finished(made, lent):
    piece = gpu_packs.pieces(made)[f"attack/{RUNS[0]}"]
    assert piece.finished
    unseen = gpu_packs.note("incomplete", piece.declared[0])
    unseen.parent.mkdir(parents=True)
    unseen.touch()
    assert not piece.finished
    assert not [path for path in gpu_packs.chosen(made, 1 << 20) if path == piece.declared[0]]


def test_merged_results_are_whole_without_pictures_and_taken_once(made, lent, tmp_path, monkeypatch, capsys):
    gpu_packs.pack(made, tmp_path / "packs", part=1000)
    parts = sorted((tmp_path / "packs").iterdir())
    assert len(parts) > 1
    assert {part.stat().st_size for part in parts[:-1]} == {1000}
    prepared(made, tmp_path / "here", monkeypatch)
    merged(made, parts[::-1])
    assert "3 results merged" in capsys.readouterr().out
    every = gpu_packs.pieces(made)
    for name in (f"train/{RUNS[0]}", f"attack/{RUNS[0]}", f"train/{RUNS[1]}"):
        assert every[name].finished
        for path in every[name].rows:
            assert storage.check(path) == storage.check(lent / path) or path in every[name].declared
    attacked = every[f"attack/{RUNS[0]}"]
    pictures = [path for path in attacked.weights if path not in attacked.rows]
    assert pictures
    assert not any(path.exists() for path in pictures)
    assert Path(f"results/lent/runs/{RUNS[2]}/checkpoint-0123456789abcdef.pt").read_bytes() == b"half"
    assert not [*Path("results/lent").glob(".merge-*")]
    kept = every[f"train/{RUNS[0]}"].declared[0]
    before = kept.stat().st_mtime_ns
    merged(made, parts)
    assert "0 results merged" in capsys.readouterr().out
    assert kept.stat().st_mtime_ns == before


def test_results_of_other_records_are_left_out_until_they_are_accepted(made, lent, tmp_path, monkeypatch):
    gpu_packs.pack(made, tmp_path / "packs")
    parts = [*(tmp_path / "packs").iterdir()]
    prepared(made, tmp_path / "here", monkeypatch, "other")
    with pytest.raises(SystemExit, match=r"Left out: fashion_mnist, mnist, whose records are other ones here"):
        merged(made, parts)
    assert not gpu_packs.pieces(made)[f"train/{RUNS[0]}"].finished
    merged(made, parts, ["fashion_mnist", "mnist"])
    assert gpu_packs.pieces(made)[f"train/{RUNS[0]}"].finished


def archive(folder, files, *, preset="lent", listed=None, link=""):
    """A pack by other hands: name to bytes, and a link, if any."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    head = json.dumps({"preset": preset, "data": {}, "files": hashes if listed is None else listed}).encode()
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "pack.tgz.0", "w:gz") as tar:
        for name, data in {"pack.json": head, **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        if link:
            member = tarfile.TarInfo(link)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member)
    return [folder / "pack.tgz.0"]


ROWS = f"results/lent/runs/{RUNS[0]}/rates.parquet"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"files": {"../outside": b""}}, "'../outside' is no result of this configuration"),
        ({"files": {"results/lent/data/mnist.safetensors": b""}}, "is no result of this configuration"),
        ({"files": {}, "link": ROWS}, "is a link"),
        ({"files": {}, "preset": "quick"}, "is no pack of lent, but of 'quick'"),
        ({"files": {ROWS: b"rows"}, "listed": {}}, "files differ from its list"),
        ({"files": {ROWS: b"rows"}, "listed": {ROWS: "0" * 64}}, "files differ from its list"),
    ],
)
def test_pack_with_anything_else_is_refused_and_leaves_nothing(made, tmp_path, monkeypatch, given, said):
    parts = archive(tmp_path / "packs", **given)
    prepared(made, tmp_path / "here", monkeypatch)
    before = sorted(Path().rglob("*"))
    with pytest.raises(SystemExit, match=said):
        merged(made, parts)
    assert sorted(Path().rglob("*")) == before


def test_pack_without_a_part_is_refused_and_leaves_nothing(made, lent, tmp_path, monkeypatch):
    gpu_packs.pack(made, tmp_path / "packs")
    (whole,) = (tmp_path / "packs").iterdir()
    gpu_packs.pack(made, tmp_path / "packs", part=whole.stat().st_size // 4 + 1)
    parts = sorted((tmp_path / "packs").iterdir(), key=lambda path: int(path.suffix[1:]))
    prepared(made, tmp_path / "here", monkeypatch)
    before = sorted(Path().rglob("*"))
    for given in ([*parts[:place], *parts[place + 1 :]] for place in range(len(parts))):
        with pytest.raises(SystemExit, match="a part is missing"):
            merged(made, given)
    with pytest.raises(SystemExit, match=r"is no part of a pack; give all of its files pack\.tgz\.0"):
        merged(made, [tmp_path / "packs" / "pack.tgz.*"])
    assert sorted(Path().rglob("*")) == before


def test_lent_machine_makes_attacks_and_trainings_that_nobody_attacks(made):
    assert gpu_packs.targets(made) == [f"results/lent/attacks/{run}/membership.json" for run in made.table.runs]
    alone = job_list(reading.config_of({**CONFIG, "studies": {"capacity": {**CAPACITY, "attacks": []}}}, "lent.yaml"))
    assert gpu_packs.targets(alone) == [f"results/lent/runs/{run}/provenance.json" for run in alone.table.runs]


def test_clock_ends_a_command_with_all_that_it_has_started(tmp_path):
    child = "import subprocess; one = subprocess.Popen(['sleep', '99']); print(one.pid, flush=True); one.wait()"
    status = gpu_run.run_until([sys.executable, "-c", child], dict(os.environ), tmp_path / "log", time.monotonic() + 3)
    assert status is None
    pid = int((tmp_path / "log").read_text().split()[0])
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    assert gpu_run.run_until([sys.executable, "-c", "exit(3)"], dict(os.environ), tmp_path / "log", 1e9) == 3


def test_source_that_has_changed_since_the_wheels_were_carried_is_stated_as_such(tmp_path):
    record = tmp_path / gpu_run.SOURCE
    facts = {"commit": "a" * 40, "dirty": False, "source": gpu_run.source_hash(ROOT / "src")}
    record.write_text(json.dumps(facts))
    assert gpu_run._commit(record) == "a" * 40
    record.write_text(json.dumps({**facts, "source": "0" * 64}))
    assert gpu_run._commit(record) == f"{'a' * 40} dirty"


@pytest.mark.parametrize(
    ("stated", "expected"), [("", (None, None)), ("b" * 40, ("b" * 40, False)), (f"{'b' * 40} dirty", ("b" * 40, True))]
)
def test_provenance_without_git_names_the_commit_that_is_stated(monkeypatch, stated, expected):
    monkeypatch.setenv("LEAKBOUND_COMMIT", stated)
    tracked = provenance.commit()
    assert tracked["commit"] != "b" * 40
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert tuple(provenance.commit().values()) == expected
