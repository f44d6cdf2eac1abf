import math

import pytest

import unit_costs
from leakbound_lab.jobs.paths import OUTPUTS
from leakbound_lab.jobs.unit_costs import PACKAGED, UnitCosts, Work, read_costs
from unit_costs import write_costs


def row(unit, model="lenet", colors=3, value=1.0, device="cpu", slots=1):
    return {"device": device, "unit": unit, "model": model, "colors": colors, "slots": slots, "value": value}


PLAIN = [
    row("step_none", value=0.01),
    row("step_white", value=0.015),
    row("step_dpsgd", value=0.03),
    row("predict", value=1e-4),
]


def step(kind, model="lenet", colors=3, amount=1.0, slots=1) -> Work:
    return Work(f"step_{kind}", amount, model, colors, slots)


def test_replicas_take_their_steps_one_after_another_on_a_cpu():
    costs = UnitCosts(PLAIN, "cpu")
    assert costs.seconds(step("dpsgd", amount=5, slots=5)) == pytest.approx(5 * 0.03)
    assert costs.notes == set()


@pytest.mark.parametrize(
    ("asked", "expected", "note"),
    [
        (step("none", colors=1), 0.01, "taken from 3"),
        (step("none", "unheard_of"), 0.01, "taken as lenet"),
        (step("dpsgd", "big"), 6.0, "200 times that of lenet"),
    ],
)
def test_what_was_not_measured_is_taken_from_something_else_and_said(asked, expected, note):
    costs = UnitCosts([*PLAIN, row("step_none", model="big", value=2.0)], "cpu")
    assert costs.seconds(asked) == pytest.approx(expected)
    assert note in " ".join(costs.notes)


def test_stack_on_a_gpu_lies_on_the_line_through_the_measured_sizes():
    measured = [row("step_none", value=0.002, device="cuda"), row("step_none", value=0.004, device="cuda", slots=9)]
    costs = UnitCosts([*PLAIN, *measured], "cuda")
    assert costs.seconds(step("none", amount=5, slots=5)) == pytest.approx(0.003)
    assert costs.seconds(step("none", amount=17, slots=17)) == pytest.approx(0.006)
    assert costs.notes == set()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (step("dpsgd", "big", slots=4), 0.03 * 20),  # by its own plain step on the GPU
        (step("dpsgd", "wide", slots=4), 0.03 * 7),  # by its plain step on a CPU
        (step("dpsgd", "tiny", slots=4), (0.03 + 0.03 / 3) / 4),  # launches as many kernels, and stacks
    ],
)
def test_network_that_no_gpu_measured_is_taken_from_lenet_and_said_to_be_about_right(asked, expected):
    on_cpu = [row("step_none", model=name, value=0.01 * ratio) for name, ratio in (("wide", 7), ("tiny", 0.1))]
    on_gpu = [row("step_none", value=0.002), row("step_none", model="big", value=0.04)]
    on_gpu += [row("step_dpsgd", value=0.03), row("step_dpsgd", value=0.06, slots=10)]
    costs = UnitCosts([*PLAIN, *on_cpu, *({**one, "device": "cuda"} for one in on_gpu)], "cuda")
    assert costs.seconds(asked) == pytest.approx(expected)
    assert costs.about
    assert f"step_dpsgd of {asked.model} on a GPU: not measured" in " ".join(costs.notes)


KINDS = ("none", "natural", "white", "dpsgd", "parameter_noise", "gradient_compression")
OF_A_NETWORK = (*(f"step_{kind}" for kind in KINDS), "predict", "invert", "match", "membership")


def test_packaged_table_knows_every_kind_of_work():
    costs = UnitCosts(read_costs(PACKAGED), "cpu")
    units = [costs.seconds(Work(unit, 1.0, "lenet", 3)) for unit in OF_A_NETWORK]
    others = [costs.seconds(Work(unit, 1.0)) for unit in ("image", "product")]
    starts = [costs.start(name) for name in OUTPUTS]
    assert min(*units, *others, *starts) > 0
    assert costs.notes == set()


def test_packaged_stack_on_a_gpu_takes_no_less_time_than_fewer_networks():
    found = [one for one in read_costs(PACKAGED) if one["device"] == "cuda"]
    for work in {(one["unit"], one["model"]) for one in found}:
        stacks = {int(one["slots"]): float(one["value"]) for one in found if (one["unit"], one["model"]) == work}
        seconds = [stacks[slots] for slots in sorted(stacks)]
        assert seconds == sorted(seconds), work


@pytest.mark.parametrize("slots", [1, 10])
def test_packaged_step_of_dp_sgd_on_a_gpu_is_the_captured_one(slots):
    costs = UnitCosts(read_costs(PACKAGED), "cuda")
    private, plain = (costs.seconds(step(kind, slots=slots)) for kind in ("dpsgd", "none"))
    assert 1 < private / plain < 2.5
    assert not costs.about


def test_written_table_reads_back_and_one_of_another_form_is_refused(tmp_path):
    path = tmp_path / "costs.csv"
    write_costs(path, [{**one, "source": "here"} for one in [*PLAIN, row("predict", value=2e-4)]])
    assert UnitCosts(read_costs(path), "cpu").seconds(Work("predict", 10.0, "lenet", 3)) == pytest.approx(2e-3)
    assert {one["source"] for one in read_costs(path)} == {"here"}
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"costs\.csv: must have rows with the columns"):
        read_costs(path)


def test_measured_costs_answer_every_question_of_a_plan():
    measured = unit_costs.measure_unit_costs("mlp", 1, "cpu", max_seconds=0.05)
    costs = UnitCosts(measured.to_dict("records"), "cpu")
    seconds = [costs.seconds(Work(unit, 1.0, "mlp", 1)) for unit in OF_A_NETWORK]
    assert all(second > 0 and math.isfinite(second) for second in seconds)
    assert costs.on_cpu("parameters", "mlp", 1) == 1024 * 32 + 32 + 32 * 10 + 10
    assert costs.notes == set()
