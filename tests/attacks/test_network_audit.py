"""Audit of a network: overfitted and untrained perceptrons, references, canaries, and what is refused."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from leakbound.accounting.coin_limits import StatedBound
from leakbound_lab.attacks.membership.audited_records import ReferenceScores
from leakbound_lab.attacks.membership.network_audit import audit_network
from leakbound_lab.attacks.membership.signals import signals_of_outputs

MEMBERS = 240


def trained(images, labels, steps):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(network(torch.from_numpy(images)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.requires_grad_(False)


@pytest.fixture(scope="module")
def digits():
    """Records with a third of wrong labels, 240 members and 240 others."""
    draw, bunch = np.random.default_rng(1), load_digits()
    rows = draw.permutation(len(bunch.data))[: 2 * MEMBERS]
    images = (bunch.data[rows] / 16).astype(np.float32)
    labels = np.where(draw.random(len(rows)) < 0.3, draw.integers(0, 10, len(rows)), bunch.target[rows])
    return (images[:MEMBERS], labels[:MEMBERS]), (images[MEMBERS:], labels[MEMBERS:])


def scorer(network):
    return lambda records, labels: network(torch.from_numpy(records))


@pytest.fixture(scope="module")
def overfitted(digits):
    return scorer(trained(*digits[0], 150))


def test_an_overfitted_network_contradicts_a_small_epsilon(digits, overfitted):
    """Memorized wrong labels are recognised."""
    bound = StatedBound("epsilon", 0.2)
    audit = audit_network(overfitted, *digits, bound=bound)
    assert audit.areas[audit.choices[None]].low > 0.6
    assert audit.contradicted
    assert audit.verdict.startswith("epsilon = 0.2 at delta = 1e-05 is contradicted at confidence 0.95")
    assert audit.rates[0.01] is not None
    assert audit.rates[0.001] is None
    assert audit.needed == {0.01: 200, 0.001: 1120}
    assert audit.counts["evaluated_others"] == 120
    assert audit.warnings == []
    assert audit.curve[0][-1] == audit.curve[1][-1] == 1.0


def test_an_untrained_network_shows_nothing(digits):
    audit = audit_network(scorer(trained(*digits[0], 0)), *digits, bound=StatedBound("nats", 0.001))
    assert all(area.low < 0.5 < area.high for area in audit.areas.values())
    assert not audit.contradicted
    assert audit.limits[1].demonstrated == 0.0


def test_losses_and_references_are_used(digits, overfitted):
    """References on halves of all records; losses order records as the logits that they come from do."""
    images, labels = (np.concatenate(parts) for parts in zip(*digits, strict=True))
    draw = np.random.default_rng(2)
    inside = np.array([draw.permutation(2 * MEMBERS) < MEMBERS for _ in range(3)])

    def losses(network):
        return lambda records, classes: nn.functional.cross_entropy(
            network(torch.from_numpy(records)), torch.from_numpy(classes), reduction="none"
        )

    networks = [trained(images[rows], labels[rows], 40) for rows in inside]
    answers = np.stack([losses(one)(images, labels).numpy() for one in networks])
    references = ReferenceScores(answers[:, :MEMBERS], answers[:, MEMBERS:], inside[:, :MEMBERS], inside[:, MEMBERS:])
    target = trained(*digits[0], 150)
    audit = audit_network(losses(target), *digits, references=references)
    assert {"lira_offline", "lira_online", "rmia", "learned_with_references"} < {*audit.areas}
    logits = signals_of_outputs(scorer(target)(images, labels).numpy(), labels).confidence
    assert torch.allclose(
        signals_of_outputs(losses(target)(images, labels).double().numpy(), labels).confidence.clamp(-8, 8),
        logits.clamp(-8, 8),
        atol=1e-2,
    )
    told = ReferenceScores(references.members, references.others, np.zeros((3, 240)), np.ones((3, 240)))
    with pytest.raises(ValueError, match="draw their records without regard to who is a member"):
        audit_network(losses(target), *digits, references=told)


@pytest.mark.shapes
def test_numbers_of_networks_may_differ_by_four_standard_errors_of_both_kinds_of_records():
    """Two networks, 40 members and 10 others: means .75 apart are 3.65 standard errors, .85 are 4.35."""
    others = np.stack([np.arange(10) < 5, np.zeros(10)])
    near, far = (
        ReferenceScores(np.zeros((2, 40)), np.zeros((2, 10)), np.arange(40) < np.array([[20], [second]]), others)
        for second in (30, 34)
    )
    near.check(40, 10)
    with pytest.raises(ValueError, match="draw their records without regard to who is a member"):
        far.check(40, 10)


@pytest.mark.shapes
def test_memorized_canaries_show_more_than_pairs(digits):
    """A function that recognises all that it was trained on."""
    draw = np.random.default_rng(3)
    records, included = draw.normal(size=(300, 64)).astype(np.float32), draw.random(300) < 0.5
    held = {record.tobytes() for record in [*digits[0][0], *records[included]]}
    audit = audit_network(
        lambda rows, labels: [0.0 if row.tobytes() in held else 3.0 for row in rows],
        *digits,
        canaries=(records, np.zeros(300), included),
        bound=StatedBound("epsilon", 3.0),
    )
    canaries, pairs, nats = audit.limits
    assert (canaries.source, canaries.coins, canaries.correct) == ("canaries", 300, canaries.guesses)
    assert canaries.demonstrated > 3.0 > pairs.demonstrated > 1.0
    assert 0.03 < nats.demonstrated < 0.035
    assert audit.contradicted


def test_records_of_another_distribution_and_scores_of_a_batch_are_doubted(digits):
    members, (images, labels) = digits
    noisy = images + np.random.default_rng(4).normal(0, 0.3, images.shape).astype(np.float32)
    audit = audit_network(lambda rows, _: rows.mean(1) - rows.mean() + 1, members, (noisy, labels))
    assert any("a classifier that never saw the network" in warning for warning in audit.warnings)
    assert any("bring the network into evaluation mode" in warning for warning in audit.warnings)


MANGLED = {
    "few": (lambda m, o: ((m[0][:19], m[1][:19]), o), "members: 19 records, at least 20 are needed"),
    "shape": (lambda m, o: (m, (o[0][:, 1:], o[1])), r"others: records of shape \(63,\), members have \(64,\)"),
    "labels": (lambda m, o: (m, (o[0], o[1][1:])), "a label for each is needed"),
    "finite": (lambda m, o: (m, (o[0] / np.float32(0), o[1])), "others: some values of the records are not finite"),
    "class": (lambda m, o: ((m[0], m[1] + 1), o), "whole numbers from 0 to 9 are needed"),
}


@pytest.mark.filterwarnings("ignore:.* encountered in divide")
@pytest.mark.parametrize("name", MANGLED)
def test_records_that_cannot_be_audited_are_refused(digits, overfitted, name):
    mangle, message = MANGLED[name]
    with pytest.raises(ValueError, match=message):
        audit_network(overfitted, *mangle(*digits))


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda rows, _: np.zeros((len(rows), 2, 2)), r"score gives shape \(240, 2, 2\) for 240 members"),
        (lambda rows, _: np.where(np.arange(len(rows)) < 7, np.nan, 1.0), "not finite for 7 of 240 members"),
    ],
)
def test_scores_that_say_nothing_are_refused(digits, score, message):
    with pytest.raises(ValueError, match=message):
        audit_network(score, *digits)
