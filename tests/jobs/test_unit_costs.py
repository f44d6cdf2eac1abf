import math

import pytest
import unit_costs

from leakbound import models
from leakbound.jobs.unit_costs import UnitCosts, Work
from leakbound.randomness.seeding import torch_generator


@pytest.fixture(scope="module")
def measured():
    return unit_costs.measure_unit_costs("mlp", 1, "cpu", max_seconds=0.05)


def test_measured_costs_answer_every_question_of_a_plan(measured):
    costs = UnitCosts(measured.to_dict("records"), "cpu")
    kinds = ("none", "natural", "white", "dpsgd", "parameter_noise", "gradient_compression")
    units = [*(f"step_{kind}" for kind in kinds), "predict", "invert", "match", "membership"]
    seconds = [costs.seconds(Work(unit, 1.0, "mlp", 1)) for unit in units]
    assert all(second > 0 and math.isfinite(second) for second in seconds)
    assert costs.notes == set()


def test_parameters_are_counted(measured):
    assert UnitCosts(measured.to_dict("records"), "cpu").on_cpu("parameters", "mlp", 1) == 1024 * 32 + 32 + 32 * 10 + 10


def test_attacks_on_a_stack_are_measured_as_one(monkeypatch):
    network, sizes = models.build("mlp", 1, 10, torch_generator(0, "costs")).eval(), {}

    def seen(name, size):
        original = getattr(unit_costs, name)

        def work(*given, **named):
            sizes.setdefault(name, set()).add(size(*given))
            return original(*given, **named)

        monkeypatch.setattr(unit_costs, name, work)

    seen("answered", len)
    seen("white_box_scores", len)
    seen("invert", lambda network, parameters, labels, *_: (len(parameters["head.bias"]), len(labels)))
    units = dict(unit_costs.attack_costs(network, 1, "cpu", 8, 3))
    assert units.keys() == {"invert", "match", "membership"}
    assert sizes == {"answered": {3}, "white_box_scores": {3}, "invert": {(3, 3 * 8)}}
