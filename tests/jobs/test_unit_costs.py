import math

import pytest
from unit_costs import measure_unit_costs

from leakbound.jobs.costs import UnitCosts
from leakbound.jobs.work import Work


@pytest.fixture(scope="module")
def measured():
    return measure_unit_costs("mlp", 1, "cpu", max_seconds=0.05)


def test_measured_costs_answer_every_question_of_a_plan(measured):
    costs = UnitCosts(measured.to_dict("records"), "cpu")
    kinds = ("none", "natural", "white", "dpsgd", "dppsac", "parameter_noise", "gradient_compression")
    units = [*(f"step_{kind}" for kind in kinds), "predict", "invert", "match", "membership"]
    seconds = [costs.seconds(Work(unit, 1.0, "mlp", 1)) for unit in units]
    assert all(second > 0 and math.isfinite(second) for second in seconds)
    assert costs.notes == set()


def test_parameters_are_counted(measured):
    assert UnitCosts(measured.to_dict("records"), "cpu").parameters("mlp", 1) == 1024 * 32 + 32 + 32 * 10 + 10
