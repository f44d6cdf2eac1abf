import pytest
import torch

from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import SeededNoise
from leakbound_lab.models import memory
from leakbound_lab.training.batches import FreshInputs

INDICES = torch.tensor([[3, 1, 3, 7], [0, 2, 5, 9]])


def generators():
    return [torch_generator(0, slot, "noise") for slot in range(2)]


@pytest.fixture
def members(digits):
    return torch.from_numpy(digits.pool.images[:60])


@pytest.fixture
def rows():
    """Both slots have the same members, in the order of the images."""
    return torch.arange(60).expand(2, -1)


@pytest.fixture(params=["natural", "white", "rate_distortion"])
def sampler(request, channel):
    return ChannelSampler(channel(request.param, 8.0), (1, 32, 32))


def test_fresh_inputs_have_new_noise_at_each_use_and_in_each_slot(members, rows, sampler):
    inputs = FreshInputs(members, rows, sampler, generators())
    same = torch.full((2, 20), 4)
    seen = torch.cat([inputs.take(same).flatten(0, 1).flatten(1) for _ in range(3)])
    assert len(seen.unique(dim=0)) == 2 * 20 * 3


def test_fresh_inputs_are_the_channel_applied_to_the_images(members, rows, sampler):
    record = members[4:5].expand(3000, -1, -1, -1)
    inputs = FreshInputs(members, rows[:1], sampler, generators()[:1])
    taken = inputs.take(torch.full((1, 3000), 4))[0]
    applied = sampler.apply(record, torch_generator(5, "other"))
    deviation = applied.std(0)
    # 1,024 pixels, each mean within 5.5 standard errors: false alarm 4e-5; variances to 12 % (4.6 standard errors).
    assert ((taken.mean(0) - applied.mean(0)).abs() <= 5.5 * deviation * (2 / 3000) ** 0.5 + 1e-6).all()
    torch.testing.assert_close(taken.var(0), applied.var(0), rtol=0.2, atol=1e-7)


def test_fresh_inputs_go_on_from_their_state(members, rows, sampler):
    inputs = FreshInputs(members, rows, sampler, generators())
    for uses in range(20):
        state = inputs.state()
        expected = inputs.take(INDICES)
        other = FreshInputs(members, rows, sampler, [torch_generator(9, slot) for slot in range(2)])
        other.restore(state)
        assert torch.equal(other.take(INDICES), expected), f"after {uses} uses"
    following = inputs.take(INDICES)
    assert torch.equal(other.take(INDICES), following)


@pytest.mark.parametrize("block", [1, 5, 32])
def test_noise_of_a_slot_does_not_depend_on_the_block(members, rows, channel, block, monkeypatch):
    """Natural noise is drawn row by row, so that blocks of any length hold the same numbers."""
    sampler = ChannelSampler(channel("natural", 8.0), (1, 32, 32))
    usual = FreshInputs(members, rows, sampler, generators())
    monkeypatch.setattr(memory, "NOISE_STEPS", memory.DeviceLimit(block, block))
    inputs = FreshInputs(members, rows, sampler, generators())
    assert all(torch.equal(inputs.take(INDICES), usual.take(INDICES)) for _ in range(7))


def test_noise_of_all_slots_by_one_product_is_that_of_each(sampler):
    alone = torch.stack([sampler.noise(6, generator) for generator in generators()])
    sampler.device = torch.device("cuda")  # where products are made for all slots at once
    together = sampler.stacked_noise(6, [SeededNoise(generator) for generator in generators()])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
