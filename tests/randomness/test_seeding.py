from leakbound.randomness.seeding import derive_seed


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
