import pytest

from leakbound.cli.plan.costs import PACKAGED, UnitCosts, read_costs, write_costs


def row(unit, model="lenet", colors=3, value=1.0, device="cpu", slots=1):
    return {"device": device, "unit": unit, "model": model, "colors": colors, "slots": slots, "value": value}


PLAIN = [
    row("step_none", value=0.01),
    row("step_white", value=0.015),
    row("step_dpsgd", value=0.03),
    row("predict", value=1e-4),
]


def test_replicas_take_their_steps_one_after_another_on_a_cpu():
    costs = UnitCosts(PLAIN, "cpu")
    assert costs.step("dpsgd", "lenet", 3, 64, 5) == pytest.approx(5 * 0.03)
    assert costs.notes == set()


def test_later_entry_replaces_an_earlier_one():
    costs = UnitCosts([*PLAIN, row("step_none", value=0.5)], "cpu")
    assert costs.step("none", "lenet", 3, 64, 1) == 0.5


@pytest.mark.parametrize(
    ("asked", "expected", "note"),
    [
        (("none", "lenet", 3, 128, 1), 0.02, "in proportion"),
        (("none", "lenet", 1, 64, 1), 0.01, "extrapolated from 3"),
        (("none", "unheard_of", 3, 64, 1), 0.01, "taken as LeNet"),
        (("dpsgd", "big", 3, 64, 1), 6.0, "by its ratio to SGD"),
        (("white", "big", 3, 64, 1), 2.005, None),
        (("none", "lenet_sigmoid", 3, 64, 1), 0.01, None),
    ],
)
def test_what_was_not_measured_is_extrapolated_and_said(asked, expected, note):
    costs = UnitCosts([*PLAIN, row("step_none", model="big", value=2.0)], "cpu")
    assert costs.step(*asked) == pytest.approx(expected)
    assert (note is None and not costs.notes) or note in " ".join(costs.notes)


def test_stack_on_a_gpu_lies_on_the_line_through_the_measured_sizes():
    measured = [row("step_none", value=0.002, device="cuda"), row("step_none", value=0.004, device="cuda", slots=9)]
    costs = UnitCosts([*PLAIN, *measured], "cuda")
    assert costs.step("none", "lenet", 3, 64, 5) == pytest.approx(0.003)
    assert costs.step("none", "lenet", 3, 64, 17) == pytest.approx(0.006)
    assert costs.notes == set()


def test_gpu_that_nobody_measured_is_a_guess_that_is_said():
    costs = UnitCosts(PLAIN, "cuda")
    assert costs.step("none", "lenet", 3, 64, 10) < UnitCosts(PLAIN, "cpu").step("none", "lenet", 3, 64, 10)
    assert "extrapolated" in " ".join(costs.notes)


def test_packaged_table_knows_every_kind_of_work():
    costs = UnitCosts(read_costs(PACKAGED), "cpu")
    kinds = ("none", "natural", "white", "dpsgd", "dppsac", "parameter_noise", "gradient_compression")
    steps = [costs.step(kind, "lenet", 3, 64, 1) for kind in kinds]
    units = [costs.iteration(unit, "lenet", 3, 1) for unit in ("predict", "invert", "match")]
    jobs = [costs.job(kind) for kind in ("prepare", "tune", "train", "attack", "plot", "theory", "federated")]
    assert min(*steps, *units, *jobs, costs.attack_step("lenet", 3)) > 0
    assert costs.notes == set()


def test_written_table_reads_back(tmp_path):
    path = tmp_path / "costs.csv"
    write_costs(path, [{**one, "source": "here"} for one in [*PLAIN, row("predict", value=2e-4)]])
    assert UnitCosts(read_costs(path), "cpu").iteration("predict", "lenet", 3, 10) == pytest.approx(2e-3)
    assert {one["source"] for one in read_costs(path)} == {"here"}


def test_table_of_another_form_is_refused(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"costs\.csv: must have rows with the columns"):
        read_costs(path)
