"""Two processes of torch.distributed, through gloo: one count, one verdict for both, and nobody waits for ever."""

import pickle
import re
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gaussians import RANGE, by_record, engine_of, forked, gaussian, private
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from leakbound import Capacity, ChannelEngine, GuaranteeError, Identification, Leakage, Ledger, RandomizedResponse

RANKS = 2
PUBLIC = gaussian(400)
DATA = private()


def sharded(data=DATA) -> DataLoader:
    return DataLoader(data, batch_size=3, sampler=DistributedSampler(data, shuffle=True, seed=1))


def gaussian_rows(count, seed):
    """Records of so many values that near copies are looked for."""
    return np.concatenate([gaussian(count, 10 * seed + part) for part in range(5)], axis=1)


def said(work) -> str:
    """What a refusal says."""
    with pytest.raises(GuaranteeError) as caught:
        work()
    return f"{type(caught.value).__name__}: {caught.value}"


def on_ranks(work, tmp_path) -> list:
    """What a function of the rank gives in each of two processes."""

    def joined(rank):
        options = {"init_method": f"file://{tmp_path}/meeting", "world_size": RANKS, "timeout": timedelta(seconds=60)}
        dist.init_process_group("gloo", rank=rank, **options)
        return work(rank)

    ranks = [forked(partial(joined, rank)) for rank in range(RANKS)]
    return [result() for result in ranks]


def test_ranks_count_together_and_stop_at_the_same_batch(tmp_path):
    def work(rank):
        engine = engine_of()
        loader = engine.protect(sharded())
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            by_record(loader)
        counts = engine.uses["train"].tolist(), engine.leakage().uses, engine.steps
        text = said(lambda: next(iter(loader)))
        fresh = engine_of()
        fresh.load_state_dict(pickle.loads(pickle.dumps(engine.state_dict())))
        return counts, text, fresh.leakage().uses

    for (uses, most, steps), text, resumed in on_ranks(work, tmp_path):
        assert uses == [3] * 20
        assert (most, steps, resumed) == (3, 3 * 4, 3)
        assert text.startswith("BudgetError")


def test_a_refusal_on_one_rank_is_one_on_all_and_uneven_ranks_end(tmp_path):
    rows = DATA.tensors[0].clone()
    rows[0] = torch.nan

    def work(rank):
        engine = engine_of()
        loader = engine.protect(DataLoader(Subset(DATA, range(4 if rank else 16)), batch_size=2))
        by_record(loader)
        uses = engine.uses["train"].tolist()
        bad = engine.protect([*rows[1:], rows[0]], name="bad")
        text = said(lambda: bad.__getitems__([19 if rank else 0]))
        return uses, text, engine.uses["bad"].tolist()

    for rank, (uses, text, bad) in enumerate(on_ranks(work, tmp_path)):
        assert uses == [2] * 4 + [1] * 12 + [0] * 4
        assert ("rank 1: " in text) == (rank == 0)
        assert "NaN" in text
        assert sum(bad) == 0


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_ranks_share_frozen_copies_and_one_ledger(noise, tmp_path):
    Ledger.create(tmp_path / "uses.db")

    def work(rank):
        engine = engine_of(Leakage(3.0, uses=2 if noise == "fresh" else None), noise=noise, ledger=tmp_path / "uses.db")
        loader, seen = engine.protect(sharded()), []
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            seen.append({record: row.tolist() for record, row in by_record(loader).items()})
        again = said(lambda: next(iter(loader))) if noise == "fresh" else ""
        return seen, engine.leakage().fresh_uses, again

    (first, *told), (second, *others) = on_ranks(work, tmp_path)
    assert told[0] == others[0] == (2 if noise == "fresh" else 1)
    if noise == "frozen":
        epochs = [{**one, **other} for one, other in zip(first, second, strict=True)]
        assert epochs[0] == epochs[1]
    else:
        assert "BudgetError" in told[1]
        assert "rank 0" in others[1]


def test_a_record_has_one_response_of_its_label_on_whichever_rank(tmp_path):
    inputs = torch.from_numpy(gaussian(12, 1))
    data = TensorDataset(inputs, torch.arange(12) % 4, torch.arange(12))

    def work(rank):
        engine = engine_of(labels=RandomizedResponse(4, keep=0.4))
        loader, seen = engine.protect(sharded(data), uncounted=[2]), []
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            seen += [pair for _, labels, rows in loader for pair in zip(rows.tolist(), labels.tolist(), strict=True)]
        return seen

    first, second = on_ranks(work, tmp_path)
    assert {row for row, _ in first} & {row for row, _ in second}  # the shuffled sampler moves records
    assert len(first + second) == 36
    assert len(set(first + second)) == 12


def test_labels_that_are_released_alone_are_counted_of_all_ranks(tmp_path):
    """Those of other ranks were once counted by nobody: of six second labels three were told."""
    rows = torch.from_numpy(gaussian(20, 1))
    data = TensorDataset(rows, torch.arange(20) % 3)

    def work(rank):
        engine = engine_of(classes=3)
        by_record(engine.protect(sharded(data)))
        engine.count_labels(rows[3 * rank : 3 * rank + 3], [1, 2, 0])
        said_by = said(lambda: engine.count_labels(rows[:rank], [7][:rank]))
        engine.count_labels(rows[:0], [])
        account = engine.leakage()
        resumed = engine_of(classes=3)
        resumed.load_state_dict(pickle.loads(pickle.dumps(engine.state_dict())))
        return account.labels, account.average - engine.nats(1), resumed.leakage().average - engine.nats(1), said_by

    for labels, average, resumed, said_by in on_ranks(work, tmp_path):
        assert labels == pytest.approx(2 * np.log(3))
        assert average == pytest.approx(26 / 20 * np.log(3)) == resumed
        assert "is the label 7" in said_by


def test_a_near_copy_of_what_another_rank_has_released_is_told(tmp_path):
    public, rows = (gaussian_rows(count, seed) for count, seed in ((200, 0), (12, 1)))
    parts = ([*rows[:4], *(rows[4:8] * np.float32(1.000001))], rows[4:12])

    def work(rank):
        engine = ChannelEngine.for_data(public, Capacity(1.0), value_range=RANGE)
        loader = DataLoader([torch.from_numpy(row) for row in parts[rank]], batch_size=4)
        said = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in engine.protect(loader, name=f"train{rank}"):
                said.append(sum("nearly another private one" in str(one.message) for one in caught))
        return said

    assert on_ranks(work, tmp_path)[0] == [0, 1]  # by the rank that counts, in the second batch


def test_a_rank_that_takes_no_batch_is_no_endless_wait(tmp_path):
    def work(rank):
        loader = engine_of().protect(sharded())
        return said(lambda: next(iter(loader))) if rank else ""

    assert "let all ranks iterate" in on_ranks(work, tmp_path)[1]


def test_ranks_that_counted_apart_are_refused(tmp_path):
    def work(rank):
        data = engine_of().protect(DATA)
        dist.destroy_process_group()
        _ = data[0]
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/again", rank=rank, world_size=RANKS)
        dist.barrier()
        return said(lambda: data[1])

    assert all("have counted apart" in text for text in on_ranks(work, tmp_path))


DIFFERENT = {
    "target": (lambda rank, folder: engine_of(Leakage(3.0 if rank else 30.0, uses=3)), "another channel or plan"),
    "public records": (lambda rank, folder: engine_of(public=gaussian(400, 5 * rank)), "another channel or plan"),
    "ledger": (lambda rank, folder: engine_of(ledger=folder / f"{rank}.db"), "name one file on all ranks"),
}


@pytest.mark.parametrize("differs", DIFFERENT)
def test_ranks_that_differ_are_refused_before_a_record_is_released(differs, tmp_path):
    made, told = DIFFERENT[differs]

    def work(rank):
        engine = made(rank, tmp_path)
        loader = engine.protect(sharded())
        return said(lambda: next(iter(loader))), engine.uses["train"].sum()

    for text, uses in on_ranks(work, tmp_path):
        assert told in text
        assert uses == 0


@pytest.mark.parametrize("loaded", ["before protect", "after protect"])
def test_a_state_of_one_rank_counts_the_records_of_all(loaded, tmp_path):
    rows = DATA.tensors[0]
    parts = [DataLoader(list(rows[:12]), batch_size=6), DataLoader(list(rows[12:]), batch_size=4)]

    def work(rank):
        engine = engine_of(Leakage(3.0, uses=1))
        _ = list(engine.protect(parts[rank], name=f"train{rank}"))
        return pickle.dumps(engine.state_dict()), engine.leakage().dataset

    (state, total), (other, same) = on_ranks(work, tmp_path)
    assert total == same == pytest.approx(20 * 3.0)
    for saved, rank in ((state, 1), (other, 0)):
        engine = engine_of(Leakage(3.0, uses=1))
        if loaded == "before protect":
            engine.load_state_dict(pickle.loads(saved))
        loader = engine.protect(parts[rank], name=f"train{rank}")
        if loaded == "after protect":
            engine.load_state_dict(pickle.loads(saved))
        assert "1 planned uses" in said(lambda loader=loader: next(iter(loader)))


@pytest.mark.parametrize("sizes", [(10, 10), (12, 8)])
def test_different_records_of_ranks_under_one_name_are_refused_with_the_remedy(sizes, tmp_path):
    def work(rank):
        begin = rank * sizes[0]
        rows = DATA.tensors[0][begin : begin + sizes[rank]]
        loader = engine_of().protect(DataLoader(list(rows), batch_size=4))
        return said(lambda: next(iter(loader)))

    assert all("name them apart" in text for text in on_ranks(work, tmp_path))


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_ranks_that_load_states_of_different_batches_are_refused(noise, tmp_path):

    def work(rank):
        options = {"target": Leakage(3.0, uses=3 if noise == "fresh" else None), "noise": noise}
        engine = engine_of(**options)
        loader = iter(engine.protect(sharded()))
        states = []
        for _ in range(2):
            next(loader)
            states.append(engine.state_dict())
        resumed = engine_of(**options)
        resumed.load_state_dict(states[rank])
        return said(lambda: list(resumed.protect(sharded())))

    assert all("load one state on all ranks" in text for text in on_ranks(work, tmp_path))


def test_the_loop_of_several_processes_runs_as_its_page_shows_it(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/your_loop.md").read_text(encoding="utf-8")
    block = re.search(r"## Several processes.*?```python\n(.*?)```", page, re.S)[1]
    monkeypatch.chdir(tmp_path)

    def work(rank):
        names = {"dist": dist, "torch": torch, "DistributedSampler": DistributedSampler, "DataLoader": DataLoader}
        names |= {"ChannelEngine": ChannelEngine, "Identification": Identification, "public": PUBLIC, "epochs": 2}
        names |= {"records": private(21), "train_step": lambda images, labels: None}
        exec(block.replace('dist.init_process_group("gloo")', ""), names)
        return names["engine"].leakage().uses

    assert on_ranks(work, tmp_path) == [2, 2]
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["engine"]["steps"] == 2
