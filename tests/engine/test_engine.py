"""Uses are counted by record before a release, noise belongs to record and use, and a restart changes neither."""

import io

import numpy as np
import pytest
import torch
from gaussians import batches, by_record, engine_of, private
from torch.utils.data import ConcatDataset, DataLoader, Subset

from leakbound import BudgetError, Capacity, ChannelEngine, GuaranteeError, Leakage


def seeded(target=None, **options) -> ChannelEngine:
    return engine_of(target, **{"seed": 5, **options})


def test_what_workers_fetched_and_nobody_took_is_not_counted(engine):
    loader = engine.protect(batches(private(), num_workers=2, prefetch_factor=4))
    taken = next(iter(loader))[1]
    assert engine.uses["train"].sum() == 6
    assert engine.uses["train"][taken].tolist() == [1] * 6


def test_fresh_noise_differs_from_use_to_use_and_frozen_noise_does_not(engine):
    assert "NOISE IS SEEDED" in str(engine)
    fresh = engine.protect(batches(private()))
    first, second = by_record(fresh), by_record(fresh)
    assert not any(torch.equal(row, second[record]) for record, row in first.items())
    for seed in (5, None):
        frozen = seeded(Leakage(3.0), noise="frozen", seed=seed)
        loader = frozen.protect(batches(private()))
        first = by_record(loader)
        assert all(torch.equal(row, first[record]) for _ in range(4) for record, row in by_record(loader).items())
        assert len({tuple(row.tolist()) for row in first.values()}) == 20
        account = frozen.leakage()
        assert (account.uses, account.fresh_uses) == (5, 1)
        assert account.record == pytest.approx(3.0, rel=1e-9)


def test_secure_draws_differ_from_engine_to_engine_and_lie_on_a_grid():
    first, second = (by_record(seeded(seed=None).protect(batches(private()))) for _ in range(2))
    assert not any(torch.equal(first[record], second[record]) for record in first)
    spacing = 2.0 ** np.floor(np.log2(np.sqrt(seeded().calibration.channel.variances[0]) / 16))
    ratios = torch.stack(list(first.values())).double() / spacing
    assert torch.equal(ratios, ratios.round())


def test_noise_has_the_covariance_of_the_channel():
    # Mean square of 60,000 normal numbers: standard error 0.6 %; false alarm below 1e-6.
    engine = seeded(Capacity(2.0))
    data = engine.protect(list(private(1000).tensors[0]))
    noise = torch.cat([torch.stack(data.__getitems__(list(range(1000)))) for _ in range(15)])
    noise -= private(1000).tensors[0].repeat(15, 1)
    covariance = torch.from_numpy(np.cov(noise.T.numpy(), bias=True)) / engine.calibration.channel.variances[0]
    torch.testing.assert_close(covariance, torch.eye(4, dtype=torch.float64), rtol=0, atol=0.06)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exhausted_budget_refuses_before_it_releases_or_counts(engine, workers):
    loader = engine.protect(batches(private(), num_workers=workers))
    for epoch in (1, 2, 3):
        assert sorted(by_record(loader)) == list(range(20))
        assert engine.uses["train"].tolist() == [epoch] * 20
        assert (engine.remaining, engine.steps) == (3 - epoch, 4 * epoch)
    before = engine.leakage()
    with pytest.raises(BudgetError, match="has had its 3 planned uses"):
        next(iter(loader))
    assert engine.leakage() == before
    assert before.record <= 3.0


def test_a_record_twice_in_a_batch_is_used_twice_with_other_noise(engine):
    data = engine.protect(private())
    (one, _), (other, _) = data.__getitems__([4, 4])
    assert not torch.equal(one, other)
    assert engine.uses["train"][4] == 2
    with pytest.raises(BudgetError):
        data.__getitems__([4, 4])
    assert engine.uses["train"][4] == 2


def test_subsets_and_concatenations_are_the_records_behind_them(engine):
    base = private()
    first = engine.protect(batches(Subset(base, range(10))))
    second = engine.protect(batches(ConcatDataset([Subset(base, [9, 3]), base])))
    by_record(first), by_record(second)
    assert engine.uses["train"].tolist() == [2] * 3 + [3] + [2] * 5 + [3] + [1] * 10
    assert list(engine.uses) == ["train"]


def test_other_records_have_names_of_their_own(engine):
    one, other = private(), private(seed=8)
    engine.protect(batches(one))
    with pytest.raises(GuaranteeError, match="give other records another name"):
        engine.protect(batches(other))
    by_record(engine.protect(batches(other), name="more"))
    assert {name: int(uses.sum()) for name, uses in engine.uses.items()} == {"train": 0, "more": 20}


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_a_restart_in_the_middle_of_an_epoch_goes_on_with_the_same_noise(noise):
    target = Leakage(3.0, uses=3 if noise == "fresh" else None)
    whole = seeded(target, noise=noise).protect(batches(private()))
    expected = [by_record(whole) for _ in range(2)]
    first = seeded(target, noise=noise)
    cut = iter(first.protect(batches(private())))
    seen = {int(label) for _ in range(2) for label in next(cut)[1]}
    stored = io.BytesIO()
    torch.save(first.state_dict(), stored)
    state = torch.load(io.BytesIO(stored.getvalue()), weights_only=True)
    second = seeded(target, noise=noise)
    second.load_state_dict(state)
    assert second.leakage().record == first.leakage().record > 0
    data = private()
    rest = second.protect(Subset(data, [record for record in range(20) if record not in seen]))
    for noisy, label in rest.__getitems__(list(range(len(rest)))):
        torch.testing.assert_close(noisy, expected[0][int(label)], rtol=0, atol=1e-6)
    for record, row in by_record(second.protect(batches(data))).items():
        torch.testing.assert_close(row, expected[1][record], rtol=0, atol=1e-6)
    assert second.uses["train"].tolist() == [2] * 20
    assert second.steps == 2 + 1 + 4


class OnDevice(torch.Tensor):
    """A tensor that NumPy cannot read, as those of a GPU."""

    def numpy(self, *, force=False):
        raise TypeError("can't convert a device's tensor to numpy")

    def cpu(self, *args, **kwargs):
        return self.as_subclass(torch.Tensor)


def test_a_checkpoint_that_was_loaded_onto_a_device_is_gone_on_from():
    first, second = (seeded(Leakage(3.0), noise="frozen", seed=None) for _ in range(2))
    seen = by_record(first.protect(batches(private())))
    saved = first.state_dict()
    ledgers = saved["ledgers"].items()
    moved = {name: {part: held.as_subclass(OnDevice) for part, held in kept.items()} for name, kept in ledgers}
    loader = second.protect(batches(private()))
    second.load_state_dict({**saved, "ledgers": moved})
    assert second.uses["train"].tolist() == [1] * 20
    again = by_record(loader)
    assert all(type(row) is torch.Tensor and torch.equal(row, seen[record]) for record, row in again.items())
    assert second.leakage().fresh_uses == 1


def test_a_state_that_forgets_secure_uses_takes_nothing_from_the_count_and_a_seeded_one_repeats_them():
    """As the search for a learning rate does, which restores what it saved before."""
    for seed in (None, 5):
        engine = seeded(seed=seed)
        loader = engine.protect(DataLoader(private(), batch_size=20))
        state, (first, _) = engine.state_dict(), next(iter(loader))
        engine.load_state_dict(state)
        assert engine.uses["train"].tolist() == [1 if seed is None else 0] * 20
        assert engine.steps == (1 if seed is None else 0)
        assert torch.equal(next(iter(loader))[0], first) is (seed is not None)
        assert engine.uses["train"].tolist() == [2 if seed is None else 1] * 20
