"""Loaders as frameworks show them, without a framework, and how long a plan lasts with Poisson samples."""

import math
import re

import pytest
import torch
from gaussians import batches, engine_of, private
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader, TensorDataset

from leakbound import GuaranteeError, Leakage
from leakbound.engine.loaders import check_evaluation, check_resumed, check_training
from leakbound.engine.refusals import CapacityWarning


def test_an_evaluation_on_clean_records_of_the_training_is_refused():
    engine, records = engine_of(), private(40)
    train, rest = torch.utils.data.random_split(records, [20, 20])
    loader = engine.protect(batches(train))
    for other in (batches(rest), batches(private(seed=9)), [loader, {"more": batches(rest)}], None):
        check_evaluation(engine, other, "validation")
    with pytest.raises(GuaranteeError, match="the validation loader reads 20 records that are trained on"):
        check_evaluation(engine, {"one": batches(rest), "two": [batches(train)]}, "validation")
    for _ in loader:
        pass
    again = TensorDataset(torch.stack([row for row, _ in train]), torch.zeros(20))
    with pytest.raises(GuaranteeError, match="the test loader reads 20 records"):  # by their values
        check_evaluation(engine, batches(again), "test")


def test_all_loaders_of_a_training_are_protected():
    engine = engine_of()
    loaders = {"one": engine.protect(batches(private())), "two": [engine.protect(batches(private(seed=2)), name="two")]}
    check_training(engine, loaders)
    check_training(engine, DataLoader(engine.protect(private(seed=3), name="three")))
    for clean in ({**loaders, "clean": batches(private())}, engine_of().protect(batches(private())), []):
        with pytest.raises(GuaranteeError, match="clean records: give fit the loader"):
            check_training(engine, clean)


def test_a_training_without_its_counts_is_not_resumed(tmp_path):
    engine = engine_of()
    with pytest.raises(GuaranteeError, match=r"last\.ckpt holds weights of an earlier training and no counts"):
        check_resumed(engine, "last.ckpt")
    check_resumed(engine_of(ledger=tmp_path / "uses.db"), "last.ckpt")
    engine.protect(private()).__getitems__([0])
    check_resumed(engine, "last.ckpt")


def exceeded(uses: int, steps: int, rate: float, records: int) -> float:
    """Probability that one of the records is in more batches than planned, by the sum of the binomial."""
    seldom = sum(math.comb(steps, k) * rate**k * (1 - rate) ** (steps - k) for k in range(uses + 1))
    return 1.0 - seldom**records


def test_poisson_samples_say_how_many_uses_a_record_needs():
    """A training of five uses once ended in the seventh batch, and nobody had said that it would."""
    sampler = UniformWithReplacementSampler(num_samples=900, sample_rate=1 / 9)
    loader = DataLoader(private(900), batch_sampler=sampler)
    for uses in (5, 16):
        with pytest.warns(CapacityWarning, match="batches are Poisson samples of rate 0.111") as caught:
            engine_of(Leakage(3.0, uses=uses)).protect(loader)
        (text,) = (str(one.message) for one in caught)
        lasts, epochs, enough = map(
            int, re.search(r"lasts (\d+) epochs.*; (\d+) epochs need uses=(\d+)", text).groups()
        )
        assert epochs == uses
        for planned, length, right in ((uses, lasts, True), (uses, lasts + 1, False)):
            assert (exceeded(planned, 9 * length, 1 / 9, 900) <= 0.01) == right
        assert exceeded(enough, 9 * epochs, 1 / 9, 900) <= 0.01 < exceeded(enough - 1, 9 * epochs, 1 / 9, 900)
