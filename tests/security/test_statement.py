"""The list of what a run leaves follows from its facts, and the documentation explains every item of it."""

import dataclasses
import re

import pytest
from chain import ROOT

from asking import training_of
from leakbound.accounting import releases
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, Undefended
from leakbound_lab.datasets import prepare
from leakbound_lab.training.leakage_statement import training_releases

DIGITS = prepare("digits", DatasetConfig(members=40, pool=100, test=40, aux=40), 0)
SAFE = training_of(
    DIGITS, defense=ChannelDefense(), level=4.0, rounds=5, batch_size=16, privacy_noise="secure", replicas=3
)
ALWAYS_OPEN = {"labels", "candidate learning rates", "curves, divergence", "times", "capacity under the members' law"}


def listed(bounded=True, covariance_of: str | None = "aux", **changes: object) -> list[releases.ReleasedItem]:
    """Items that a run with these facts releases."""
    return [*training_releases(dataclasses.replace(SAFE, **changes), bounded, covariance_of)]


def uncovered(**changes: object) -> set[str]:
    """Items of which its bounds cover nothing."""
    return {one.item for one in listed(**changes) if not one.covered}


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, set()),
        ({"privacy_noise": "seeded"}, {"weights", "seeds", "hashes of inputs"}),
        ({"bounded": False, "defense": Undefended()}, {"weights", "seeds", "hashes of inputs"}),
        ({"covariance_of": "members"}, {"channel"}),
        ({"learning_rates": (0.1, 0.2)}, {"learning rate"}),
    ],
)
def test_each_fact_uncovers_what_it_gives_away(changes, more):
    found = uncovered(**changes)
    assert found - {"labels"} == (ALWAYS_OPEN | more) - {"labels"}
    assert ("labels" in found) == changes.get("bounded", True)


def test_clipping_covers_labels_and_has_no_channel():
    assert uncovered(defense=DPSGD(), covariance_of=None) == ALWAYS_OPEN - {"labels", "capacity under the members' law"}


def coverage(releases) -> dict[str, bool]:
    """Item to whether it is covered."""
    return {one.item: one.covered for one in releases}


def test_what_jobs_leave_beside_weights_is_covered_only_where_it_follows_from_settings_or_a_secret():
    kept = dict.fromkeys(("mean and covariance of members", "pictures of members"), False)
    kept["claims on pictures of members"] = False
    for secure in (True, False):
        assert coverage(releases.dataset_releases(secure)) == {"hash of prepared images": secure, **kept}
    for targets in (True, False):
        assert coverage(releases.attack_releases(targets)) == {"scores of attacks": False, "arrays of attacks": False}
    for adapted in (True, False):
        expected = {"curves, divergence": False, "thresholds and leaks": not adapted}
        assert coverage(releases.federated_releases(adapted)) == expected


def test_what_a_provenance_does_not_speak_of_is_refused():
    weights = [one for one in listed() if one.item == "weights"]
    for channel, expected in ((True, ["learning rate", "channel"]), (False, ["learning rate"])):
        reasons = releases.refusals(weights, channel=channel)
        assert [reason.partition(":")[0] for reason in reasons] == expected
        assert all("train again" in reason for reason in reasons)


def test_every_item_is_explained_in_the_documentation():
    page = (ROOT / "docs/privacy-statement.md").read_text(encoding="utf-8")
    explained = ", ".join(re.findall(r"^\| ([^|]+) \|", page.partition("## The list")[2], re.MULTILINE))
    items = [*listed(), *releases.dataset_releases(secure=True), *releases.attack_releases(targets=True)]
    items += releases.federated_releases(adapted=True)
    assert {one.item for one in items if one.item not in explained} == set()
