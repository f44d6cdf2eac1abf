"""The list of what a run leaves follows from its facts, and the documentation explains every item of it."""

import dataclasses
import re

import pytest
from chain import ROOT

from leakbound.accounting import statement
from leakbound.accounting.statement import TrainingFacts, training_releases

SAFE = TrainingFacts(
    mechanism="channel",
    bounded=True,
    clips=False,
    secure=True,
    replicas=3,
    candidates=1,
    classes=10,
    covariance_of="aux",
)
ALWAYS_OPEN = {"labels", "candidate learning rates", "curves, divergence", "times", "capacity under the members' law"}


def uncovered(**changes: object) -> set[str]:
    """Items that the bounds of a run with these facts do not cover."""
    return {one.item for one in training_releases(dataclasses.replace(SAFE, **changes)) if not one.covered}


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, set()),
        ({"secure": False}, {"weights", "seeds", "hashes of inputs"}),
        ({"bounded": False, "secure": None}, {"weights", "seeds", "hashes of inputs"}),
        ({"covariance_of": "members"}, {"channel"}),
        ({"candidates": 2}, {"learning rate"}),
    ],
)
def test_each_fact_uncovers_what_it_gives_away(changes, more):
    found = uncovered(**changes)
    assert found - {"labels"} == (ALWAYS_OPEN | more) - {"labels"}
    assert ("labels" in found) == changes.get("bounded", True)


def test_clipping_covers_labels_and_has_no_channel():
    assert uncovered(clips=True, covariance_of=None) == ALWAYS_OPEN - {"labels", "capacity under the members' law"}


def test_only_what_is_covered_is_published():
    assert statement.refusals(list(training_releases(SAFE)), channel=True) == []
    open_ = dataclasses.replace(SAFE, secure=False, candidates=3, covariance_of="members")
    reasons = statement.refusals(list(training_releases(open_)), channel=True)
    assert sorted(reason.partition(":")[0] for reason in reasons) == ["channel", "learning rate", "weights"]


def test_every_item_is_explained_in_the_documentation():
    page = (ROOT / "docs/privacy-statement.md").read_text(encoding="utf-8")
    explained = ", ".join(re.findall(r"^\| ([^|]+) \|", page.partition("## The list")[2], re.MULTILINE))
    items = [
        *training_releases(SAFE),
        *statement.dataset_releases(secure=True),
        *statement.attack_releases(targets=True),
    ]
    items += statement.federated_releases(adapted=True)
    assert {one.item for one in items if one.item not in explained} == set()
