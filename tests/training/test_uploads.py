from functools import partial

import pytest
import torch

from leakbound.randomness.seeding import torch_generator
from leakbound_lab.config.defenses import GradientCompression, ParameterNoise, Undefended
from leakbound_lab.models import memory
from leakbound_lab.training.client_steps import ClientStep, NoisyAverageStep, client_step, keep_largest
from leakbound_lab.training.sgd import StackUploads

SHAPES = [(4, 3, 5), (4,), (7, 2)]


def gradients(slots=2, seed=0):
    return [torch.randn(slots, *shape, generator=torch_generator(seed, str(shape))) for shape in SHAPES]


def noisy(std):
    return StackUploads(client_step(ParameterNoise(), std), [torch_generator(slot, "noise") for slot in range(2)])


def largest(fraction, slots=range(2), **settings):
    sources = [torch_generator(slot, "noise") for slot in slots]
    return StackUploads(client_step(GradientCompression(**settings), fraction), sources)


def whole(parts):
    return torch.cat([part.flatten(1) for part in parts], dim=1)


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.25, 1.0])
def test_keeping_the_largest_keeps_exactly_these(fraction):
    values = whole(gradients())
    kept = keep_largest(values, fraction)
    count = max(1, round(fraction * values.shape[1]))
    for before, after in zip(values, kept, strict=True):
        order = before.abs().argsort(descending=True)
        assert torch.equal(after[order[:count]], before[order[:count]])
        assert not after[order[count:]].any()


def test_largest_coordinates_are_chosen_over_all_parameters_of_a_slot():
    sent = gradients(slots=1)
    sent[0] *= 1e-3
    largest(0.2, [0], error_feedback=False).apply(sent)
    assert not sent[0].any()
    assert sum(int((part != 0).sum()) for part in sent) == round(0.2 * whole(sent).shape[1])


def test_error_feedback_conserves_the_sum_of_all_gradients():
    uploads = largest(0.1)
    given, received = torch.zeros(2, 78), torch.zeros(2, 78)
    for step in range(12):
        parts = gradients(seed=step)
        given += whole(parts)
        uploads.apply(parts)
        received += whole(parts)
    kept = whole(uploads.state()["kept"][0])
    torch.testing.assert_close(received + kept, given, rtol=0, atol=1e-5)
    assert kept.abs().max() > 0.5


def test_without_error_feedback_nothing_is_kept():
    uploads = largest(0.1, error_feedback=False)
    first, second = gradients(), gradients()
    uploads.apply(first)
    uploads.apply(second)
    assert torch.equal(whole(first), whole(second))
    assert uploads.state()["kept"] == {}


@pytest.mark.parametrize("make", [partial(noisy, 0.1), partial(largest, 0.1)])
def test_uploads_go_on_in_the_middle_of_noise_that_was_drawn_ahead(make, monkeypatch):
    """As on a GPU: for three steps at a time here."""
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(3 * 78 + 5, 3 * 78 + 5))
    uploads = make()
    for step in range(8):
        state = uploads.state()
        expected = gradients(seed=step)
        uploads.apply(expected)
        other = make()
        other.restore(state)
        again = gradients(seed=step)
        other.apply(again)
        assert torch.equal(whole(again), whole(expected)), f"after {step} steps"


def test_noise_that_is_drawn_ahead_is_given_out_once(monkeypatch):
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(3 * 78, 3 * 78))
    uploads, seen = noisy(0.5), []
    for _ in range(6):
        parts = [torch.zeros(2, *shape) for shape in SHAPES]
        uploads.apply(parts)
        seen.append(whole(parts))
    drawn = torch.cat(seen, dim=1)
    assert len(drawn.unique()) == drawn.numel()
    for slot, row in enumerate(drawn):
        generator = torch_generator(slot, "noise")
        own = torch.cat([torch.randn(3 * 78, generator=generator) for _ in range(2)])
        torch.testing.assert_close(row, 0.5 * own, rtol=1e-6, atol=0)


class RoundedNoise(NoisyAverageStep):
    """A step from outside that overrides a marked one."""

    def disguised(self, gradients, source):
        assert {len(gradient) for gradient in gradients} == {1}
        return super().disguised([gradient.round() for gradient in gradients], source)


def test_a_step_that_overrides_another_gets_one_slot_after_another():
    uploads = StackUploads(RoundedNoise(ParameterNoise(), 0.1), [torch_generator(slot, "noise") for slot in range(2)])
    together, alone = gradients(), [part.round() for part in gradients()]
    uploads.apply(together)
    noisy(0.1).apply(alone)
    assert torch.equal(whole(together), whole(alone))


class FirstStep(ClientStep):
    """A step from outside that uploads the gradient of one parameter."""

    def disguised(self, gradients, source):
        return gradients[:1]


def test_uploads_that_are_not_one_tensor_for_each_parameter_are_refused():
    with pytest.raises(ValueError, match=r"FirstStep\.disguised returned 1 tensors; return one for each of the 3"):
        StackUploads(FirstStep(Undefended(), None), [torch_generator(0, "noise")]).apply(gradients(1))
