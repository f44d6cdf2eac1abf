from growth import boxes, in_turns, round_box
from training_step import requests


def test_every_box_has_work_over_its_sizes():
    plain = requests("mlp", 32, ["none"], (1, 32, 32))["none"]
    for box in (*boxes(plain), round_box(plain)):
        times = in_turns(box.cases(), 1e-9)
        assert (times["seconds"] > 0).all()
        assert set(times.groupby("case").size()) == {3}
