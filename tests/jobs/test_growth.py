import numpy as np
import pytest
from growth import boxes as growing_boxes
from growth import in_turns, round_box

from images import gathered
from leakbound.config.defenses import Undefended
from leakbound.config.training import TrainingConfig
from leakbound.datasets import Split
from leakbound.training import TrainingRequest


@pytest.fixture(scope="module")
def plain() -> TrainingRequest:
    """Training of the smallest network on random images."""
    generator = np.random.default_rng(0)
    split = Split(generator.uniform(-1, 1, (900, 1, 32, 32)).astype(np.float32), generator.integers(0, 10, 900))
    dataset = gathered(split, test=split, aux=split, members=400, validation=100, name="random", secret="s" * 64)
    return TrainingRequest(
        dataset=dataset,
        model="mlp",
        defense=Undefended(),
        level=None,
        rounds=1,
        batch_size=32,
        learning_rates=(1e-4,),
        config=TrainingConfig(),
        seed=0,
        slug="growth",
        replicas=2,
    )


def test_every_box_has_work_over_its_sizes_and_the_exponent_of_its_algorithm(plain):
    boxes = {(box.over, box.name): box for box in (*growing_boxes(plain), round_box(plain))}
    assert {key: box.exponent for key, box in boxes.items()} == {
        ("values of a record", "calibration"): 3,
        ("values of a record", "natural noise"): 1,
        ("values of a record", "white noise"): 2,
        ("records", "covariance"): 1,
        ("records", "step of DP-SGD"): 1,
        ("replicas", "step"): 1,
        ("levels", "channels of one spectrum"): 1,
        ("clients", "federated round"): 1,
    }
    assert set(boxes["values of a record", "calibration"].work) == {256, 512, 768, 1024}
    for box in boxes.values():
        times = in_turns(box.cases(), 1e-9)
        assert (times["seconds"] > 0).all()
        assert set(times.groupby("case").size()) == {3}
