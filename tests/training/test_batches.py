import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakbound.randomness.seeding import torch_generator
from leakbound_lab.training.batches import ShuffledBatches, StackedBatches


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 60))
def test_shuffled_batches_use_every_record_equally_often_give_or_take_one(population, size, steps):
    batches = ShuffledBatches(population, min(size, population), torch_generator(0, "batches"))
    drawn = [batches.draw() for _ in range(steps)]
    assert all(len(batch) == min(size, population) for batch in drawn)
    counts = np.bincount(torch.cat(drawn).numpy(), minlength=population) if drawn else np.zeros(population, int)
    assert counts.max() - counts.min() <= 1
    assert counts.max() == -(-steps * min(size, population) // population)
    np.testing.assert_array_equal(batches.uses.numpy(), counts)


def orders():
    return [ShuffledBatches(30, 8, torch_generator(slot, "batches")) for slot in range(3)]


def test_batches_of_a_stack_are_those_of_each_slot_drawn_step_by_step():
    together, alone = StackedBatches(orders(), "cpu"), orders()
    for step in range(300):  # beyond the first 256, which are drawn at once
        drawn = together.draw()
        assert torch.equal(drawn, torch.stack([one.draw() for one in alone]))
        if step in (0, 40, 255, 256, 299):
            assert all(torch.equal(together.uses(slot), one.uses) for slot, one in enumerate(alone))


@pytest.mark.parametrize("steps", [0, 3, 255, 256, 258])
def test_batches_of_a_stack_go_on_from_their_state(steps):
    together, other = StackedBatches(orders(), "cpu"), StackedBatches(orders(), "cpu")
    for _ in range(steps):
        together.draw()
    other.draw()
    other.restore(copy.deepcopy(together.state()))
    for _ in range(5):
        assert torch.equal(other.draw(), together.draw())
    assert all(torch.equal(other.uses(slot), together.uses(slot)) for slot in range(3))
