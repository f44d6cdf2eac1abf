"""`leakbound audit --checkpoint`: the example of the page, its JSON, and what is refused before anything is written."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from calling import called, files_in, refusal
from images import class_folders

EXAMPLE = Path(__file__).parents[2] / "examples/audit/digits.py"
SCORE = """
import numpy as np
from neighbour import SHIFT

def score(network, records, labels):
    return np.abs(records.mean(1) - float(network["weight"])) + SHIFT

def broken(network, records, labels):
    raise KeyError("no such layer")

def printing(network, records, labels):
    print("scoring", len(records))
    return score(network, records, labels)

def ending(network, records, labels):
    raise SystemExit(0)
"""


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """Weights, a script with a neighbour, and random records."""
    monkeypatch.chdir(tmp_path)
    Path("neighbour.py").write_text("SHIFT = 1.0\n")
    Path("my_score.py").write_text(SCORE)
    torch.save({"weight": torch.tensor(0.5)}, "net.pt")
    draw = np.random.default_rng(0)
    for name in ("members", "others"):
        np.savez(f"{name}.npz", records=draw.normal(size=(40, 4)).astype(np.float32), labels=np.zeros(40, int))
    return tmp_path


def audit(*options, **changed):
    given = {"checkpoint": "net.pt", "script": "my_score.py:score", "members": "members.npz", "others": "others.npz"}
    words = [word for name, value in (given | changed).items() if value for word in (f"--{name}", value)]
    return called("audit", *words, *options)


def test_the_example_contradicts_an_epsilon_and_writes_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE))["main"](["audited", "--members", "300"])
    parts = {name: f"audited/{name}.npz" for name in ("members", "others")}
    network = {"checkpoint": "audited/network.pt", "script": f"{EXAMPLE}:score"}
    result = audit("--epsilon", "0.5", "--json", "--out", "audit.html", **network, **parts)
    assert result.code == 1, result.err
    facts = json.loads(result.out)
    assert facts["measures"][0]["low"] > 0.6
    assert facts["limits"][0]["demonstrated"] > 0.5
    assert (facts["limits"][0]["bound"], facts["contradicted"]) == (0.5, True)
    page = Path("audit.html").read_text(encoding="utf-8")
    assert "Epsilon = 0.5 at delta = 1e-05 is contradicted at confidence 0.95" in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    lines = re.findall(r'<polyline class="(\w+)" points="([^"]+)"', page)
    assert [name for name, _ in lines] == ["curve", "chance", "bound"]


def test_weights_go_to_the_script_and_a_table_is_shown(files):
    result = audit("--nats", "60", "--uses", "10")
    assert result.code == 0, result.err
    assert "40 members, 40 others; evaluated on 20 and 20" in result.out
    assert re.search(r"TPR at 0.1 % FPR +needs 1020 others", result.out)
    assert "nats = 600 is not contradicted at confidence 0.95: the lower limit is 0, and one network" in result.out


def test_tables_and_folders_are_audited_as_the_same_arrays_are(files):
    expected = {name: dict(np.load(f"{name}.npz")) for name in ("members", "others")}
    draw = np.random.default_rng(1)
    for name, held in expected.items():
        labels = draw.integers(2, size=len(held["records"]))
        table = pd.DataFrame(held["records"], columns=list("abcd")).assign(patient=range(len(labels)), kind=labels)
        table.to_csv(f"{name}.csv", index=False)
        np.savez(f"{name}.npz", records=held["records"], labels=labels)
    words = ("--json", "--label", "kind", "--exclude", "patient")
    tables, arrays = audit(*words, members="members.csv", others="others.csv"), audit("--json")
    assert tables.code == arrays.code == 0, tables.err
    assert json.loads(tables.out) == json.loads(arrays.out)
    for seed, name in enumerate(("members", "others")):
        class_folders(Path(name), ("a", "b"), 15, (6, 6, 3), seed)
    Path("my_score.py").write_text("def score(network, records, labels): return records.mean((1, 2, 3)) + labels\n")
    folders = audit("--json", "--resize", "4", "--color", "gray", members="members", others="others")
    assert folders.code == 0, folders.err
    assert json.loads(folders.out)["members"] == 30
    Path("others/b").rename("others/c")
    mixed = audit(members="members", others="others")
    assert (mixed.code, "--others others: classes ['a', 'c']" in mixed.message) == (2, True), mixed.message


REFUSED = {
    "no records": ({"members": None}, "for a network of your own also --members"),
    "no script": ({"script": "other.py:score"}, "--script other.py: there is no such Python file"),
    "no function": ({"script": "my_score.py:scores"}, "defines no function scores(network, records, labels)"),
    "no name": ({"script": "my_score.py"}, "give FILE:FUNCTION, e.g. my_score.py:score"),
    "no checkpoint": ({"checkpoint": "other.pt"}, "--checkpoint other.pt: there is no such file"),
    "no weights": ({"checkpoint": "my_score.py"}, "is no file of weights alone: define load(path) in the script"),
    "no npz": ({"members": "net.pt"}, "--members: net.pt: is a file of torch"),
    "no array": ({"others": "my_score.py"}, "--others: my_score.py: give a folder of images"),
    "uses alone": ({"uses": "3"}, "--uses 3 belongs to --nats"),
    "lacks": ({"canaries": "members.npz"}, "--canaries members.npz: lacks included (it holds records, labels)"),
    "two bounds": ({"epsilon": "1", "nats": "1"}, "an audit holds limits against one bound"),
    "delta alone": ({"delta": "1e-5"}, "--delta 1e-05 belongs to --epsilon"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_audited_is_refused_before_anything_is_written(files, name):
    changed, message = REFUSED[name]
    before = set(files_in(files))
    result = audit("--out", "page.html", **changed)
    assert result.code == 2, result.out
    assert message in result.message
    assert "Traceback" not in result.err
    assert {name for name in set(files_in(files)) - before if "__pycache__" not in name} == set()


def test_an_error_of_the_script_is_shown_with_its_line(files):
    result = audit(script="my_score.py:broken")
    assert 'raise KeyError("no such layer")' in result.err
    assert "--script my_score.py:broken: failed on 40 records: KeyError: 'no such layer'" in result.message


def test_what_a_script_prints_is_no_result_and_its_end_no_success(files):
    printing, plain = audit("--json", script="my_score.py:printing"), audit("--json")
    assert printing.code == plain.code == 0, printing.err
    assert json.loads(printing.out) == json.loads(plain.out) | {"script": "my_score.py:printing"}
    assert "scoring 40" in printing.err
    ended = audit("--json", script="my_score.py:ending")
    assert (ended.code, ended.out) == (2, "")
    assert "--script my_score.py:ending: failed on 40 records: SystemExit: 0" in ended.message


def test_a_run_and_a_network_do_not_go_together(files):
    said = refusal("audit", "digits/lenet/none/n0-b1", "--checkpoint", "net.pt")
    assert "is a run of the workflow; for a network of your own leave it out" in said


OUTPUTS = """
import torch

def plain(network, records, labels):
    return torch.from_numpy(records[:, :2]).bfloat16().double().numpy()

def bare(network, records, labels):
    return torch.from_numpy(records[:, :2]).bfloat16().requires_grad_()

def mapping(network, records, labels):
    return {"loss": None, "logits": bare(network, records, labels)}

"""


@pytest.mark.parametrize("name", ["bare", "mapping"])
def test_logits_of_a_models_output_are_read(files, name):
    Path("my_outputs.py").write_text(OUTPUTS)
    read, plain = (audit("--json", script=f"my_outputs.py:{function}") for function in (name, "plain"))
    assert read.code == 0, read.err
    assert json.loads(read.out) | {"script": ""} == json.loads(plain.out) | {"script": ""}


def test_of_each_owner_one_record_is_audited_and_the_bound_is_about_all_of_them(files):
    draw = np.random.default_rng(1)
    for name, each in (("members", 3), ("others", 2)):
        whose = np.repeat([f"{name}{number}" for number in range(40)], each)
        values = draw.normal(size=(40 * each, 4)).astype(np.float32)
        np.savez(f"{name}.npz", records=values, labels=np.zeros(40 * each, int), patient=whose)
    alone = audit("--nats", "2", "--owner", "patient", "--json")
    assert alone.code == 0, alone.err
    facts = json.loads(alone.out)
    assert (facts["members"], facts["others"]) == (40, 40)
    told = facts["statement"]
    assert (told["unit"], told["group"], told["nats"]) == ("owner", 3, 2.0)
    about = "about all records of one owner together (at most 3) at most 2 nats on average over owners"
    assert about in told["sentence"]
    np.savez("others.npz", records=values, labels=np.zeros(80, int), patient=np.repeat("members7", 80))
    assert "'members7'" in audit("--owner", "patient").message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--epsilon", 2, "--delta", 1e-6), "ε = 2 at δ = 1e-06 (add or remove one record), for every record"),
        (("--nats", 3, "--uses", 2), "at most 6 nats on average over records, labels included"),
    ],
)
def test_the_bound_that_is_tested_is_said_as_every_other(options, said, files):
    done = audit(*options)
    (line,) = (line for line in done.out.splitlines() if line.startswith("as given: "))
    assert line == f"as given: {json.loads(audit(*options, '--json').out)['statement']['sentence']}"
    assert said in line
    assert "as given: " not in audit().out
