import numpy as np
import torch

from leakbound.randomness.seeding import derive_seed


def test_torch_on_a_cpu_reads_the_low_32_bits_of_a_seed_as_the_docstring_says():
    low, high = (torch.Generator().manual_seed(seed) for seed in (5, 5 + (7 << 32)))
    assert torch.equal(torch.rand(9, generator=low), torch.rand(9, generator=high))


def test_seeds_differ_by_every_word_and_by_type():
    seeds = {
        derive_seed(0, "run", 0, "noise"),
        derive_seed(1, "run", 0, "noise"),
        derive_seed(0, "run", 1, "noise"),
        derive_seed(0, "run", 0, "batches"),
        derive_seed(0, "run", "0", "noise"),
        derive_seed(0, "run0", "noise"),
    }
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_are_the_same_on_every_machine():
    assert derive_seed(0, "cifar10/lenet/natural-50/n10000-b64", 3, "noise") == 3320324457408993570


def test_bits_of_seeds_are_balanced():
    """Each of the 63 bits over 4,096 seeds; false alarm below 1e-6 by a union bound on 6.1 standard deviations."""
    seeds = np.array([derive_seed(0, "run", index) for index in range(4096)])
    shares = [((seeds >> bit) & 1).mean() for bit in range(63)]
    assert np.abs(np.array(shares) - 0.5).max() < 6.1 * 0.5 / np.sqrt(4096)
