"""The same files say the same: every command, twice; and the records in another order."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from calling import called, succeeded
from leakbound import storage
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import stated_bounds
from leakbound.commands.command_line import Place, every_command
from leakbound.engine.ledger import Ledger

TESTS = Path(__file__).parents[1]
CONFIG = TESTS.parent / "config"
COUNT, WIDTH = 900, 6
TARGET = ("--target-leakage", 3)
SCORE = "import numpy as np\ndef score(network, records, labels):\n    return np.abs(records.mean(1))\n"
CASES = {
    "calibrate": ("mine.npy", "--public", "public.npy", *TARGET, "--json"),
    "risk": ("--nats", 2, "--data", "mine.npy", "--records", 100, "--json"),
    "audit": [
        "--checkpoint",
        "net.pt",
        "--script",
        "score.py:score",
        "--members",
        "members.npz",
        "--others",
        "others.npz",
        "--json",
    ],
    "account": ("provenance.json", "--json"),
}
"""Commands with JSON, each with words for it."""
TEXTS = {
    "plan": ("--configfile", "small.yaml"),
    "config": ("--configfile", "small.yaml"),
    "ledger": ("show", "uses.db"),
    **{name: [word for word in words if word != "--json"] for name, words in CASES.items()},
}
"""Commands that print a text."""
ELSEWHERE = {
    "protect": "test_the_statement_of_copies_differs_in_its_digest_alone_and_under_a_seed_in_nothing",
    "publish": "test_published_folder_holds_one_replica_its_channel_and_its_event_and_nothing_else",
    "demo": "test_demo_is_one_page_whose_pictures_decode_and_whose_errors_grow",
    "report": "test_equal_reports_give_equal_pages",
    "export": "test_a_picture_has_the_width_of_a_column_embedded_fonts_and_the_same_bytes_again",
    "compare": "test_class_folders_become_a_dataset_and_the_configuration_is_kept_when_called_again",
    "verify": "test_weights_that_are_gone_are_named_and_made_again",
    "sync": "test_push_replaces_the_run_and_leaves_every_value_once",
    "step": "test_run_that_is_killed_again_and_again_ends_as_if_nothing_had_happened",
}
"""Commands that write files or stores, and the test that looks at these after a second call."""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """More records than were once compared, heavy tails among them, so that a sample of them shows in all numbers."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name in ("mine", "public"):
        rows = draw.normal(size=(COUNT, WIDTH)) * draw.lognormal(0, 0.5, (COUNT, 1))
        np.save(f"{name}.npy", rows.astype(np.float32))
    for name in ("members", "others"):
        np.savez(f"{name}.npz", records=draw.normal(size=(60, 4)).astype(np.float32), labels=np.zeros(60, int))
    torch.save({"weight": torch.zeros(1)}, "net.pt")
    Path("score.py").write_text(SCORE)
    facts = {"sampling": "poisson", "population": 40, "batch_size": 8, "steps": 15, "uses": 15, "max_grad_norm": 1.0}
    event = PrivacyEvent("dpsgd", **facts, noise_multiplier=1.0)
    bounds = stated_bounds([event], None, 1e-5, "rdp", labels=0.7)
    Ledger.create(tmp_path / "uses.db")
    small = yaml.safe_load((CONFIG / "small.yaml").read_text(encoding="utf-8"))
    Path("small.yaml").write_text(yaml.safe_dump({**small, "catalogue": str(CONFIG / "figures")}), encoding="utf-8")
    storage.write_json(Path("provenance.json"), {"events": [event.to_dict()], "leakage": bounds})
    return tmp_path


def test_every_command_is_tried():
    places = {name: place for name, place in every_command().items() if isinstance(place, Place)}
    named = {name for name, place in places.items() if "as_json" in inspect.signature(place.function()).parameters}
    assert named == CASES.keys()
    assert every_command().keys() == TEXTS.keys() | ELSEWHERE.keys() | {"ui"}  # which writes nothing and serves pages
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    known = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert set(ELSEWHERE.values()) <= known


@pytest.mark.parametrize("command", TEXTS)
def test_a_command_twice_on_the_same_files_prints_the_same_text(files, command):
    first, second = (called(command, *TEXTS[command]) for _ in range(2))
    assert first.out, first.err
    assert first == second


@pytest.mark.parametrize("command", CASES)
def test_a_command_twice_on_the_same_files_gives_the_same_json_and_warnings(files, command):
    first, second = (called(command, *CASES[command]) for _ in range(2))
    assert first.out, first.err
    assert (json.loads(first.out), first.err) == (json.loads(second.out), second.err)


def own_nats(*words: object) -> list[tuple[str, float]]:
    """Nats of all copies by the moments of the owner's records, of each shape."""
    facts = json.loads(succeeded("calibrate", *words, "--public", "public.npy", *TARGET, "--json").out)
    assert facts["compared"] == COUNT  # 512 were, drawn anew in each call
    return [(row["shape"], row["own"]) for row in facts["shapes"]]


def test_the_order_of_records_is_no_part_of_what_is_said(files):
    np.save("turned.npy", np.load("mine.npy")[::-1])
    assert own_nats("mine.npy") == own_nats("turned.npy")


def test_the_statement_of_copies_differs_in_its_digest_alone_and_under_a_seed_in_nothing(files):
    for seed in ((), ("--seed", 1)):
        stated = []
        for number in range(2):
            out = f"out{number}{len(seed)}"
            succeeded("protect", "mine.npy", "--public", "public.npy", *TARGET, "--out", out, *seed)
            stated.append(json.loads(Path(out, "protection.json").read_text()))
        one, two = stated
        assert {name for name in one if one[name] != two[name]} == (set() if seed else {"digest"})
