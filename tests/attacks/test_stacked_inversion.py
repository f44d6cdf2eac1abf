"""Gradients of several networks are inverted in one stack on a GPU, and each network gets what it gets alone."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from leakbound import datasets
from leakbound.attacks.attack_request import AttackRequest
from leakbound.attacks.gradient_inversion import attack as gradient_inversion
from leakbound.attacks.gradient_inversion import closed_form as recursive
from leakbound.attacks.gradient_inversion import map_estimate as recovery
from leakbound.attacks.gradient_inversion import published as geiping
from leakbound.attacks.gradient_inversion import searches, staged
from leakbound.attacks.gradient_inversion import several_uses as uses
from leakbound.attacks.gradient_inversion.closed_form import Solving
from leakbound.attacks.gradient_inversion.gradient_matching import GradientMatching, Matching
from leakbound.attacks.gradient_inversion.map_estimate import Law, MapProblem, Method, Recovering, StackedProblem
from leakbound.attacks.gradient_inversion.published import PublishedReconstruction, reconstruct
from leakbound.attacks.gradient_inversion.searches import Part, interleaved, parts
from leakbound.channels import estimate_moments
from leakbound.config.attacks import GradientInversionConfig, UsesConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.defenses import DPSGD, ChannelDefense, GradientCompression, ParameterNoise, Undefended
from leakbound.models import build, memory
from leakbound.models.gradients import record_gradients
from leakbound.randomness.seeding import torch_generator
from leakbound.registry import SHAPES
from leakbound.training.client_steps import client_step
from leakbound.training.stack import stack_of, stacked
from operations import Operations, waits

SHAPE = (1, 32, 32)


@pytest.fixture(scope="module")
def digits():
    return datasets.prepare("digits", DatasetConfig(members=60, aux=100, pool=200, test=10), seed=0)


def networks(name, count, dtype=torch.float64):
    return [build(name, 1, 10, torch_generator(0, slot, name)).to(dtype).eval() for slot in range(count)]


def pictures(*shape, dtype=torch.float64):
    return torch.rand(*shape, *SHAPE, generator=torch_generator(0, "pictures"), dtype=dtype) * 2 - 1


def refused(search):
    raise AssertionError("no search is done alone")


def near(found, expected, rounding):
    """True of tensors that differ by rounding, over the largest value."""
    return bool((found - expected).abs().max() <= rounding * expected.abs().max())


def inversion(model, count, first=0, **config):
    """Problems of one network, the later records first; its records, labels and weights are those of no other."""
    dtype, records = next(model.parameters()).dtype, torch.arange(first, first + count)
    labels = (records * 3) % 10
    observed = record_gradients(model, pictures(first + count, dtype=dtype)[first:], labels)
    weights = 10.0 ** -(1 + records % 3).to(dtype)
    start = 0.2 * pictures(count, dtype=dtype)
    known = (torch.arange(count).flip(0), start, weights, GradientInversionConfig(learning_rate=0.05, **config))
    return PublishedReconstruction(model, observed, labels, *known)


@pytest.mark.parametrize("name", ["lenet_sigmoid", "lenet", "mlp", "resnet10"])
def test_distances_slopes_and_gradients_of_a_stack_are_those_of_each_network(name):
    dtype, count, rounding = (torch.float32, 1, 1e-4) if name == "resnet10" else (torch.float64, 2, 1e-10)
    models, (images, others) = networks(name, 2, dtype), pictures(2, 2, count, dtype=dtype)
    labels = torch.tensor([[1, 2], [3, 4]])[:, :count]
    observed = [record_gradients(*one) for one in zip(models, others, labels, strict=True)]
    factors = stack_of(models, SHAPE).factors(range(2))
    matching = Matching(factors, {name: interleaved(one[name] for one in observed) for name in observed[0]})
    rows = interleaved(images).requires_grad_()
    distances = matching.distances(rows, interleaved(labels))
    (slopes,) = torch.autograd.grad(distances.sum(), rows)
    formed = factors.gradients(rows, interleaved(labels))
    for slot, model in enumerate(models):
        own = images[slot].clone().requires_grad_()
        alone = GradientMatching(model, observed[slot], SHAPE).distances(own, labels[slot])
        (slope,) = torch.autograd.grad(alone.sum(), own)
        assert near(distances[slot::2], alone, rounding)
        assert near(slopes[slot::2], slope, rounding)
        for parameter, gradients in record_gradients(model, own.detach(), labels[slot]).items():
            assert near(formed[parameter][slot::2], gradients, rounding)


@pytest.mark.parametrize("name", ["lenet_sigmoid", "lenet", "mlp"])
def test_inversions_of_different_numbers_of_problems_end_in_a_stack_where_they_end_alone(name, monkeypatch):
    counts = (3, 1, 2)
    asked = [
        inversion(model, count, 2 * slot, iterations=8)
        for slot, (model, count) in enumerate(zip(networks(name, 3), counts, strict=True))
    ]
    monkeypatch.setattr(geiping, "problems_at_once", lambda *_: 5)  # so that the last problems go without some networks
    alone = [one.alone() for one in asked]
    monkeypatch.setattr(PublishedReconstruction, "alone", refused)
    for own, together in zip(alone, searches.answered(asked), strict=True):
        torch.testing.assert_close(together[0], own[0], rtol=0, atol=1e-6)
        assert together[1].tolist() == own[1].tolist()


@pytest.mark.parametrize(("name", "steps"), [("lenet", 3), ("resnet10", 1)])
def test_a_stack_of_single_precision_comes_as_near_as_rounding_lets_it(name, steps):
    models = networks(name, 2, torch.float32)
    asked = [inversion(model, 1, slot, iterations=steps) for slot, model in enumerate(models)]
    for own, (ends, _) in zip(asked, searches.answered(asked), strict=True):
        assert ((ends - own.alone()[0]).abs() < 1e-4).float().mean() > 0.99  # elsewhere a sign of nearly 0 differs


class Shared(nn.Module):
    """Network that uses one layer twice, which factors of single calls would get wrong."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 1, 3, padding=1), nn.Linear(32 * 32, 10)

    def forward(self, images):
        return self.head(self.conv(torch.tanh(self.conv(images))).flatten(1))


class Mixing(nn.Module):
    """Records of a batch are compared with their mean, as those of networks side by side would be."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32 * 32, 10)

    def forward(self, images):
        return self.head((images - images.mean(0)).flatten(1))


@pytest.mark.parametrize("kind", [Shared, Mixing])
def test_networks_that_make_no_stack_are_inverted_one_after_another(kind):
    models = []
    for slot in range(2):
        models.append(kind())
        for parameter in models[-1].parameters():
            nn.init.normal_(parameter, std=0.1, generator=torch_generator(slot, parameter.numel()))
    assert stack_of(models, SHAPE) is None
    asked = [inversion(model, 2, iterations=2) for model in models]
    for own, (ends, _) in zip(asked, searches.answered(asked), strict=True):
        assert torch.equal(ends, own.alone()[0])


@pytest.mark.parametrize("name", ["lenet_sigmoid", "mlp"])
def test_equations_of_several_networks_have_the_solutions_of_each(name, monkeypatch):
    monkeypatch.setattr(recursive, "_ITERATIONS", 10)  # which rounding does not lead apart yet
    models, counts = networks(name, 2, torch.float32), (2, 1, 2)
    asked, truth = [], pictures(5, dtype=torch.float32).split(counts)
    for slot, images in enumerate(truth):
        model = models[slot % 2]  # the first network is used twice
        labels = torch.arange(len(images)) + slot
        asked.append(Solving(model, record_gradients(model, images, labels), SHAPE))
    alone = [one.alone() for one in asked]
    monkeypatch.setattr(recursive, "problems_at_once", lambda *_: 3)
    monkeypatch.setattr(Solving, "alone", refused)
    for own, together, images in zip(alone, searches.answered(asked), truth, strict=True):
        assert near(together, own, 1e-6)
        assert name == "lenet_sigmoid" or near(together, images, 1e-4)


def test_gradients_that_cannot_be_solved_are_refused_as_one_by_one():
    models = networks("lenet", 2)
    asked = [Solving(model, record_gradients(model, pictures(1), torch.tensor([1])), SHAPE) for model in models]
    with pytest.raises(ValueError, match="no equations lead"):
        searches.answered(asked)


def problem(model, defense, level, count, records=2):
    """Uploads of some batches in double precision."""
    client = client_step(defense, level)
    images, labels = pictures(count, records), torch.arange(count * records).view(count, records)
    sent = client.upload(model, images, labels, torch_generator(count))
    return MapProblem(model, client, {name: one.double() for name, one in sent.gradients.items()}, labels, SHAPE)


DEFENSES = {"dpsgd": (DPSGD(), 0.1), "compression": (GradientCompression(), 0.1), "noise": (ParameterNoise(), 0.01)}


@pytest.mark.parametrize("name", ["lenet_sigmoid", "lenet", "mlp"])
@pytest.mark.parametrize("defense", DEFENSES)
def test_searches_under_a_law_end_in_a_stack_where_they_end_alone(name, defense, monkeypatch):
    law = Law(torch.zeros(1024), 0.5 * torch.eye(1024))
    client = client_step(*DEFENSES[defense])
    asked = []
    for model, count in zip(networks(name, 2), (3, 1), strict=True):
        known = dataclasses.replace(problem(model, *DEFENSES[defense], count), client=client)
        asked.append(Recovering(known, Method("adam", 10.0**count), law, 4))
    monkeypatch.setattr(recovery, "problems_at_once", lambda *_: 8)
    alone = [one.alone() for one in asked]
    monkeypatch.setattr(Recovering, "alone", refused)
    for own, together in zip(alone, searches.answered(asked), strict=True):
        np.testing.assert_allclose(together.images, own.images, rtol=0, atol=1e-5)
        np.testing.assert_allclose(together.residuals, own.residuals, rtol=1e-6)


def test_regression_is_the_best_linear_estimate_with_the_moments_of_its_draws():
    (model,) = networks("mlp", 1)
    whole = problem(model, *DEFENSES["dpsgd"], 3)
    few = dataclasses.replace(whole, gradients={"head.bias": whole.gradients["head.bias"]}).to(torch.float32)
    law = Law(torch.full((1024,), 0.1), 0.3 * torch.eye(1024))
    found = recovery._regressed(few, law, 0.02)
    draws = 0.1 + 0.3 * torch.randn(recovery._DRAWS, 1024, generator=torch.Generator().manual_seed(0))
    for row, label in enumerate(few.labels[:, 0]):
        alike = dataclasses.replace(few, labels=label.expand(len(draws), 1))
        seen = alike.averaged(draws.view(-1, 1, *SHAPE))
        images, gradients = draws - draws.mean(0), seen - seen.mean(0)
        weights = (gradients.T @ gradients / len(draws) + 0.02 * torch.eye(10)).inverse()
        expected = draws.mean(0) + images.T @ gradients / len(draws) @ weights @ (few.flat[row] - seen.mean(0))
        np.testing.assert_allclose(found[row].flatten(), expected.flatten(), rtol=0, atol=1e-5)


def test_noise_on_the_gradient_of_a_smooth_image_leaves_what_the_linear_estimate_finds():
    frequencies = torch.fft.fftfreq(32, dtype=torch.float64).abs().clamp(min=1 / 64)
    axes = torch.fft.fft2(torch.eye(1024, dtype=torch.float64).view(-1, 32, 32)).view(-1, 1024)
    deviations = 1 / torch.hypot(frequencies[:, None], frequencies).flatten()
    root = (axes.real + axes.imag) * deviations / deviations.norm() / 2  # a Hartley transform; variance 1/4
    images = torch.randn(16, 1024, generator=torch.Generator().manual_seed(4)).double() @ root.T
    images, labels = images.float().view(16, 1, *SHAPE), torch.arange(16)[:, None] % 2
    (model,), client = networks("mlp", 1, torch.float32), client_step(*DEFENSES["dpsgd"])
    sent = client.upload(model, images, labels, torch_generator(1))
    known = MapProblem(model, client, sent.gradients, labels, SHAPE)
    law = Law(torch.zeros(1024, dtype=torch.float64), root)
    recoveries = [
        Recovering(known, method, law, 200).alone() for method in recovery.methods(known, GradientInversionConfig())
    ]
    errors = [4 * np.square(found.images - images.numpy()).mean() for found in recoveries]
    assert min(errors) < 0.8  # the most probable images, which fit the noise, hardly err less than their mean


def operations(search) -> Operations:
    with Operations() as found:
        search()
    return found.counts


def of_a_step(search):
    """Operations and waits of a search that two more steps add, half of each."""
    asked, waited = (count(lambda: search(4)) - count(lambda: search(2)) for count in (operations, waits))
    return {name: count / 2 for name, count in asked.items()}, waited


def matched(models, records):
    """Published search in networks side by side."""
    observed = [record_gradients(model, pictures(records), torch.arange(records)) for model in models]
    factors = stack_of(models, SHAPE).factors(range(len(models)))
    matching = Matching(factors, {name: interleaved(one[name] for one in observed) for name in observed[0]})
    rows, labels = pictures(records * len(models)), interleaved([torch.arange(records)] * len(models))
    weights = torch.full(labels.shape, 1e-2, dtype=torch.float64)
    return lambda steps: reconstruct(matching, labels, rows, weights, iterations=steps, learning_rate=0.1)


def climbed(models, records):
    """Search under a law in networks side by side."""
    law = Law(torch.zeros(1024), 0.5 * torch.eye(1024))
    problems = [problem(model, *DEFENSES["dpsgd"], records) for model in models]
    (part,) = parts([records] * len(models), 100, "cpu")
    stacked = StackedProblem.of(problems, stack_of(models, SHAPE), part)
    return lambda steps: recovery._climbed(stacked, law, [1.0] * len(stacked.labels), steps)


def in_stages(models, records):
    """Staged search in networks side by side."""
    asked = [record_gradients(model, pictures(records), torch.arange(records)) for model in models]
    pairs = [staged.features_of(model, one, SHAPE) for model, one in zip(models, asked, strict=True)]
    known = staged.Features(*(interleaved(one[field] for one in pairs) for field in (0, 1)))
    observed = {name: interleaved(one[name] for one in asked) for name in asked[0]}
    encoder = staged.Encoder(staged.stages_of(models[0], SHAPE), stacked(models, "cpu"))
    law = torch.zeros(1024), 0.5 * torch.eye(1024)
    return lambda steps: staged.search(encoder, known, observed, law, SHAPE, steps)


@pytest.mark.parametrize(
    ("make", "name"),
    [*((make, name) for make in (matched, climbed) for name in ("lenet_sigmoid", "lenet")), (in_stages, "lenet")],
)
def test_operations_of_a_step_grow_neither_with_the_networks_nor_with_the_records(make, name):
    first, *others = (of_a_step(make(networks(name, slots), records)) for slots, records in ((2, 1), (4, 1), (2, 3)))
    assert others == [first] * 2
    assert sum(first[0].values()) < 350
    values = torch.zeros(2, requires_grad=True)
    values.grad = torch.ones(2)
    adam = torch.optim.Adam([values])
    assert first[1] == waits(lambda: [adam.step() for _ in range(2)])  # of its own step number, which is on the host


def test_operations_of_equations_do_not_grow_with_the_networks(monkeypatch):
    """As many steps of conjugate gradients for all."""
    monkeypatch.setattr(recursive, "_TOLERANCE", 0.0)
    counts = []
    for slots in (2, 4):
        asked = []
        for model in networks("lenet_sigmoid", slots, torch.float32):
            gradients = record_gradients(model, pictures(1, dtype=torch.float32), torch.tensor([1]))
            asked.append(Solving(model, gradients, SHAPE))
        found = []
        for steps in (2, 6):
            monkeypatch.setattr(recursive, "_ITERATIONS", steps)
            found.append(operations(lambda asked=asked: searches.answered(asked)))
        counts.append(found[1] - found[0])
    assert counts[0] == counts[1]
    assert counts[0]["bmm"] > 0


def test_parts_hold_each_problem_once_and_equally_many_of_each_search():
    counts = [5, 1, 3]
    for at_once in (1, 2, 4, 7, 100):
        found = [torch.zeros(count) for count in counts]
        for part in parts(counts, at_once, "cpu"):
            (length,) = {len(rows) for rows in part.rows}
            assert length * len(part.searches) <= at_once
            for place, rows in zip(part.searches, part.rows, strict=True):
                assert set(rows.tolist()) <= set(range(counts[place]))
            marks = interleaved(10 * place + rows + 1.0 for place, rows in zip(part.searches, part.rows, strict=True))
            part.put(marks, found)
        expected = [10 * place + torch.arange(count) + 1.0 for place, count in enumerate(counts)]
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert isinstance(part, Part)


def test_halves_of_a_part_hold_its_problems_once():
    counts = [5, 1, 3]
    (whole,) = parts(counts, 100, "cpu")
    waiting, seen = [whole], []
    while waiting:
        part = waiting.pop()
        waiting += part.halves()
        if not part.halves():
            ((search,), (row,)) = part.searches, part.rows
            assert part.counts == [1]
            assert row.tolist() == [part.first]
            seen.append((search, part.first))
    assert sorted(seen) == [(search, row) for search, count in enumerate(counts) for row in range(count)]


def crowded(monkeypatch, owner, name, held, rows):
    """Let a step of a search fail where it has more rows than memory holds; numbers of those that it had."""
    original, seen = getattr(owner, name), []

    def step(*given, **named):
        seen.append(len(rows(*given)))
        if seen[-1] > held:
            raise torch.OutOfMemoryError
        return original(*given, **named)

    monkeypatch.setattr(owner, name, step)
    return seen


@pytest.mark.parametrize("held", [1, 2, 4])
def test_problems_that_memory_does_not_hold_are_solved_by_halves(held, monkeypatch):
    counts, models = (3, 1, 2), networks("mlp", 3)
    published = [inversion(model, count, count, iterations=4) for model, count in zip(models, counts, strict=True)]
    law, client = Law(torch.zeros(1024), 0.5 * torch.eye(1024)), client_step(*DEFENSES["dpsgd"])
    climbing, solving = [], []
    for model, count in zip(models, counts, strict=True):
        known = dataclasses.replace(problem(model, *DEFENSES["dpsgd"], count, records=1), client=client)
        climbing.append(Recovering(known, Method("adam", 1.0), law, 3))
    for model, count in zip(networks("lenet_sigmoid", 3, torch.float32), counts, strict=True):
        gradients = record_gradients(model, pictures(count, dtype=torch.float32), torch.arange(count))
        solving.append(Solving(model, gradients, SHAPE))
    monkeypatch.setattr(recursive, "_ITERATIONS", 4)
    for module in (geiping, recovery, recursive):
        monkeypatch.setattr(module, "problems_at_once", lambda *_: 100)
    together, alone = searches.answered([*published, *climbing, *solving]), (published[0].alone(), climbing[0].alone())
    seen = [
        crowded(monkeypatch, geiping, "reconstruct", held, lambda matching, labels, *_: labels),
        crowded(monkeypatch, recovery, "_climbed", held, lambda part, *_: part.labels),
        crowded(monkeypatch, recursive, "_bottom", held, lambda chain, weights, gradients: gradients["head.bias"]),
    ]
    divided = searches.answered([*published, *climbing, *solving])
    assert all(min(some) <= held < max(some) for some in seen)
    for one, other in zip(together[:3], divided[:3], strict=True):
        torch.testing.assert_close(other[0], one[0], rtol=0, atol=1e-6)
        assert other[1].tolist() == one[1].tolist()
    for one, other in zip(together[3:6], divided[3:6], strict=True):
        np.testing.assert_allclose(other.images, one.images, rtol=0, atol=1e-5)
    for one, other in zip(together[6:], divided[6:], strict=True):
        assert near(other, one, 1e-6)
    torch.testing.assert_close(published[0].alone()[0], alone[0][0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(climbing[0].alone().images, alone[1].images, rtol=0, atol=1e-5)
    crowded(monkeypatch, geiping, "reconstruct", 0, lambda matching, labels, *_: labels)
    with pytest.raises(torch.OutOfMemoryError):
        searches.answered(published)


def channel(moments):
    shape = SHAPES.get("natural")()
    return shape.calibrate(shape.decompose(moments), 20.0)


ATTACKED = {
    "natural": (1, ChannelDefense(), 20.0),
    "noise": (2, ParameterNoise(), 0.01),
    "none": (1, Undefended(), None),
}


@pytest.mark.parametrize("case", ATTACKED)
def test_attack_on_replicas_in_a_stack_finds_what_it_finds_one_by_one(case, digits, monkeypatch):
    """Replicas need different numbers of searches, as each extends a grid of its own."""
    size, defense, level = ATTACKED[case]
    moments = estimate_moments([digits.aux.images])
    config = GradientInversionConfig(images=2, iterations=3, search_iterations=3, tv_weights=(1e-2,))
    named = {"dataset": digits, "moments": moments, "config": config, "seed": 0, "slug": "run"}
    named |= {"defense": defense, "level": level, "channel": channel(moments) if case == "natural" else None}
    asked = AttackRequest(model="mlp", replicas=range(3), batch_size=size, **named)
    alone, shown = gradient_inversion.invert_gradients(asked)
    waiting, answered = [], searches.answered
    monkeypatch.setattr(searches, "answered", lambda some: (waiting.append(len(some)), answered(some))[1])
    # the third replica is alone
    monkeypatch.setattr(memory, "SEARCHES_SIDE_BY_SIDE", memory.DeviceLimit(cpu=2, cuda=1000))
    stacked, seen = gradient_inversion.invert_gradients(asked)
    assert set(waiting) == {1, 2}
    pd.testing.assert_frame_equal(stacked.drop(columns="value"), alone.drop(columns="value"))
    np.testing.assert_allclose(stacked.value.astype(float), alone.value.astype(float), rtol=1e-2, atol=1e-6)
    assert stacked[stacked.replica == 2].equals(alone[alone.replica == 2])
    assert shown.keys() == seen.keys()
    assert all(np.array_equal(shown[name], seen[name]) for name in ("truth", "released", "prior"))


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_uses_of_all_replicas_in_a_stack_tell_what_they_tell_one_by_one(noise, digits, monkeypatch):
    moments = estimate_moments([digits.aux.images])
    named = {
        "dataset": digits,
        "moments": moments,
        "channel": channel(moments),
        "level": 20.0,
        "seed": 0,
        "slug": "run",
    }
    named |= {"defense": ChannelDefense(noise=noise), "config": UsesConfig(uses=(1, 2), images=1)}
    monkeypatch.setattr(recursive, "_ITERATIONS", 30)
    alone = uses.invert_several_uses(AttackRequest(model="lenet_sigmoid", replicas=range(2), **named))
    monkeypatch.setattr(memory, "SEARCHES_SIDE_BY_SIDE", memory.DeviceLimit(cpu=100, cuda=1000))
    monkeypatch.setattr(Solving, "alone", refused)
    stacked = uses.invert_several_uses(AttackRequest(model="lenet_sigmoid", replicas=range(2), **named))
    pd.testing.assert_frame_equal(stacked[0], alone[0], rtol=1e-4)
    np.testing.assert_allclose(stacked[1]["errors"], alone[1]["errors"], rtol=1e-3)
