"""The same files say the same: every command that writes JSON, twice; and the records in another order."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from calling import called, succeeded
from leakbound import storage
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import stated_bounds
from leakbound.commands.command_line import Place, every_command

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
    storage.write_json(Path("provenance.json"), {"events": [event.to_dict()], "leakage": bounds})
    return tmp_path


def test_every_command_with_json_is_tried():
    places = {name: place for name, place in every_command().items() if isinstance(place, Place)}
    named = {name for name, place in places.items() if "as_json" in inspect.signature(place.function()).parameters}
    assert named == CASES.keys()


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


def test_the_statement_of_copies_differs_in_its_digest_alone_where_noise_is_secure_and_not_at_all_where_it_is_seeded(
    files,
):
    for seed in ((), ("--seed", 1)):
        stated = []
        for number in range(2):
            out = f"out{number}{len(seed)}"
            succeeded("protect", "mine.npy", "--public", "public.npy", *TARGET, "--out", out, *seed)
            stated.append(json.loads(Path(out, "protection.json").read_text()))
        one, two = stated
        assert {name for name in one if one[name] != two[name]} == (set() if seed else {"digest"})
