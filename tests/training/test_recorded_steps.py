"""A recorded step does what the step does; what a stack cannot hold is tried with half as many slots."""

import logging
from typing import ClassVar

import pytest
import torch

from leakbound_lab.training import loop, train
from leakbound_lab.training.sgd import StackLearner
from leakbound_lab.training.stack import Replayed, full_precision, passes_in


class Recorder:
    """A recording as a GPU makes it: of the work on tensors that it keeps, into which others are copied."""

    def __init__(self):
        self.recorded = self.replayed = 0
        self.earlier = []

    def __call__(self, work, tensors, *earlier):
        self.earlier.append(earlier)
        held = [one.clone() for one in tensors]
        self.recorded += 1

        def replay(*given):
            self.replayed += 1
            for own, one in zip(held, given, strict=True):
                own.copy_(one)
            work(*held)

        return replay


def test_work_is_recorded_after_three_calls_for_each_shape_in_the_memory_of_the_first():
    total, recorder = torch.zeros(()), Recorder()
    replayed = Replayed(lambda one: total.add_(one.sum()), recorder)
    for call in range(7):
        for size in (2, 3, 4):
            replayed(torch.full((size,), float(call)))
    assert float(total) == 9 * sum(range(7))
    assert (recorder.recorded, recorder.replayed) == (3, 12)
    first = replayed._replays[(torch.Size([2]),)]
    assert recorder.earlier == [(), (first,), (first,)]


def test_work_that_cannot_be_recorded_is_done_as_it_is(caplog):
    total, tried = torch.zeros(2), []

    def capture(work, tensors):
        tried.append(work)
        raise RuntimeError("operation not permitted when stream is capturing")

    replayed = Replayed(lambda one: total.add_(one), capture)
    with caplog.at_level(logging.INFO, "leakbound"):
        for _ in range(6):
            replayed(torch.ones(2))
    assert total.tolist() == [6, 6]
    assert len(tried) == 1
    assert "not captured" in caplog.text


@pytest.mark.parametrize("case", ["none", "natural", "gradient_compression"])
def test_a_recorded_training_is_the_training(request_for, under, case):
    request = request_for(learning_rates=(0.02, 0.05), training={"max_stack": 2}, **under(case))
    plain, recorded = (StackLearner(request, request.slots) for _ in range(2))
    recorder = Recorder()
    recorded._pass = Replayed(recorded._differentiate, recorder)
    for _ in range(6):
        plain.step()
        recorded.step()
    assert (recorder.recorded, recorder.replayed) == (1, 3)
    torch.testing.assert_close(recorded.params, plain.params, rtol=0, atol=0)


class Greedy(StackLearner):
    """A learner that needs more memory than there is for more than two slots, at its second step."""

    made: ClassVar[list[int]] = []

    def __init__(self, request, slots):
        super().__init__(request, slots)
        self._slots, self._steps = len(slots), 0
        self.made.append(len(slots))

    def step(self):
        self._steps += 1
        if self._slots > 2 and self._steps == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        super().step()


def test_a_stack_beyond_the_memory_is_halved_until_it_fits(request_for, caplog, tmp_path):
    request = request_for(learning_rates=(0.01, 0.02, 0.03, 0.04, 0.05), checkpoint=tmp_path / "checkpoint")
    Greedy.made = []
    with caplog.at_level(logging.WARNING, "leakbound"):
        found = loop.train_slots(request, Greedy, 5)
    assert Greedy.made == [5, 2, 2, 1]
    assert [record.message for record in caplog.records if "memory" in record.message] == [
        "digits/lenet/test: the GPU's memory does not hold 5 slots side by side; they start again, 2 at a time"
    ]
    expected = train(request_for(learning_rates=request.learning_rates))
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-3, atol=1e-5)
    assert found.events == expected.events
    keys = ["learning_rate", "step", "metric"]
    assert found.curves[keys].equals(expected.curves[keys])


def test_one_slot_beyond_the_memory_is_an_error(request_for):
    class Greediest(Greedy):
        def step(self):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        loop.train_slots(request_for(learning_rates=(0.01, 0.02)), Greediest, 2)


def precisions():
    """Flags of both kinds; the older ones cannot be read where they say something else."""
    found = []
    for flag in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul):
        found.append(flag.fp32_precision)
    for flag in (torch.backends.cudnn, torch.backends.cuda.matmul):
        try:
            found.append(flag.allow_tf32)
        except RuntimeError:
            found.append(None)
    return found


def by_older_flags(allowed):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def by_newer_flags(value):
    torch.backends.cudnn.conv.fp32_precision = torch.backends.cuda.matmul.fp32_precision = value


@pytest.mark.parametrize(
    "choose",
    [lambda: None, lambda: by_older_flags(True), lambda: by_older_flags(False), lambda: by_newer_flags("tf32")],
    ids=["default", "older, allowed", "older, not allowed", "newer"],
)
def test_a_gpu_computes_in_full_precision_and_then_as_before(choose):
    first = precisions()
    try:
        choose()
        before = precisions()
        with full_precision("cpu"):
            assert precisions() == before
        with full_precision("cuda"):
            assert precisions() == ["ieee", "ieee", "ieee", False, False]
            with passes_in("float32", "cuda"):
                assert precisions() == ["ieee", "ieee", "ieee", False, False]
            with passes_in("tf32", "cuda"):
                assert precisions() == ["tf32", "tf32", "tf32", True, True]
            assert precisions() == ["ieee", "ieee", "ieee", False, False]
            with torch.backends.cudnn.flags(enabled=False):  # as a model does that is differentiated twice
                pass
        assert precisions() == before
    finally:
        by_older_flags(False)
        torch.backends.cudnn.allow_tf32 = first[3]
        for flag, value in zip((torch.backends.cudnn.conv, torch.backends.cudnn.rnn), first, strict=False):
            flag.fp32_precision = value
        torch.backends.cuda.matmul.fp32_precision = first[2]
    assert precisions() == first
