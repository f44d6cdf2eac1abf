"""What is released besides noisy inputs and is in no number is named in each line that states a bound."""

import pytest
import torch
from gaussians import batches, engine_of, gaussian
from torch.utils.data import DataLoader, TensorDataset

from leakbound import Channel, Leakage, Ledger

RECORDS = torch.from_numpy(gaussian(20, 1))
TARGETS = TensorDataset(RECORDS, torch.linspace(0, 1, 20))
LABELLED = TensorDataset(RECORDS, torch.arange(20) % 4)
VALUES = "values besides inputs and labels that were released as they are"
NOISE = "the noise itself, a statistic of these records"


def used(engine, data, **given):
    """The engine after one epoch."""
    for _ in engine.protect(DataLoader(data, batch_size=5), **given):
        pass
    return engine


def lines(engine) -> list[str]:
    """All lines that state nats of an engine with their unit."""
    account = engine.leakage()
    told = [line for line in str(engine).splitlines() if "reveal about" in line]
    assert len(told) == 3  # one use, planned uses, so far
    return [*told, str(account), account.statement(secure=True).sentence]


def test_targets_that_are_released_as_they_are_are_named_in_each_line(tmp_path):
    """A bound of 4.39 nats, 1.39 of them by labels, once stood alone next to targets in the clear."""
    engine = used(engine_of(classes=4), TARGETS, uncounted=[1])
    assert all(f"not covered: {VALUES}" in line for line in lines(engine))
    assert engine.leakage().statement(secure=True).uncovered == (VALUES,)
    assert engine.write_statement(tmp_path / "sheet.html", data="mine")["not_covered"] == [VALUES]
    assert VALUES in (tmp_path / "sheet.html").read_text()
    assert not engine.leakage().counts_labels
    assert used(engine_of(classes=4), LABELLED).leakage().uncovered == ()


@pytest.mark.parametrize("place", ["memory", "file", "state"])
def test_later_runs_name_what_an_earlier_one_released(place, tmp_path):
    ledger = {"memory": Ledger(), "file": tmp_path / "uses.db", "state": None}[place]
    first = used(engine_of(classes=4, ledger=ledger), TARGETS, uncounted=[1])
    later = engine_of(classes=4, ledger=ledger)
    if place == "state":
        later.load_state_dict(first.state_dict())
    used(later, LABELLED)
    assert all(VALUES in line for line in lines(later))
    if place != "state":
        channel = Channel(Leakage(9.0, uses=9), auxiliary=gaussian(400), ledger=ledger, classes=4)
        assert VALUES in str(channel.fit(RECORDS.numpy()).leakage())


def test_a_metric_is_named_by_what_it_leaves_out():
    assert used(engine_of(classes=4), LABELLED).leakage().counts_labels
    assert not used(engine_of(), LABELLED).leakage().counts_labels
    names = {
        "leakage-nats": {"classes": 4},
        "leakage-nats-plus-labels-not-counted": {},
        "leakage-nats-if-noise-were-secret": {"classes": 4, "seed": 5},
        "leakage-nats-plus-labels-not-counted-if-noise-were-secret": {"seed": 5},
    }
    for name, options in names.items():
        account = used(engine_of(**options), LABELLED).leakage()
        assert account.metric("leakage-nats", "-") == name
        assert account.metric("leakage_nats") == name.replace("-", "_")


def test_noise_that_is_a_statistic_of_the_records_is_named_in_each_line():
    engine = used(engine_of(public=RECORDS.numpy(), calibrate_to_own=True), LABELLED)
    assert all(NOISE in line for line in lines(engine))
    rows = gaussian(60, 2)
    assert NOISE in str(Channel(Leakage(3.0, uses=3)).fit(rows).leakage())
    public = Channel(Leakage(3.0, uses=3), auxiliary=gaussian(400)).fit(rows)
    assert NOISE not in str(public.leakage())
    assert NOISE not in str(used(engine_of(), LABELLED))


def test_frozen_copies_that_equal_records_share_are_named_in_each_line():
    """By how many share one, whoever knows how frequent values are recognises them under any noise."""
    twice = TensorDataset(torch.cat([RECORDS, RECORDS[:1]]), torch.arange(21) % 4)
    frozen = {"target": Leakage(3.0), "noise": "frozen", "classes": 4}
    engine = used(engine_of(**frozen), twice)
    told = [line for line in str(engine).splitlines() if "reveal about" in line]
    told += [str(engine.leakage()), engine.leakage().statement(secure=True).sentence]
    assert len(told) == 4  # one use, so far
    assert all("not covered: which records are equal" in line for line in told)
    assert "which records are equal" not in str(used(engine_of(**frozen), LABELLED))
    assert "which records are equal" not in str(used(engine_of(classes=4), twice))  # each use has new noise


def test_numbers_of_seeded_noise_are_called_no_bound_wherever_they_stand():
    """An account once called them the *smallest valid bound*, next to *no bound* in the engine's own lines."""
    engine = used(engine_of(classes=4, seed=5), LABELLED)
    account = str(engine.leakage()).splitlines()
    assert account[0] == "no bound: noise from a seed; the numbers below would hold if it were secret"
    (after,) = (line for line in str(engine).splitlines() if line.startswith("after "))
    assert after.endswith("on average over records like the calibration's, if the noise were secret:")
    secret = used(engine_of(classes=4), LABELLED)
    assert str(secret.leakage()).splitlines() == account[1:]
    assert "if the noise were secret" not in str(secret)


def test_several_owners_of_a_record_are_refused_with_that_reason():
    owners = [(number, number + 1) for number in range(20)]
    with pytest.raises(ValueError, match=r"owner of the shape \(20, 2\): give one name or number for each of the 20"):
        engine_of().protect(batches(LABELLED), owner=owners)
