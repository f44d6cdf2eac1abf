import numpy as np
import pytest
import torch
import torch.nn.functional as F

from asking import attack_of
from leakbound.channels import Natural
from leakbound_lab.attacks.gradient_inversion.spear import RECOVERED_MSE, first_layer, invert_batches, solve_batch
from leakbound_lab.config.attacked_runs import AttackedRun
from leakbound_lab.config.attacks import SpearConfig
from leakbound_lab.config.data import DatasetSize
from leakbound_lab.config.defenses import DPSGD, ChannelDefense
from leakbound_lab.models import build


def gradient_of(network, images, labels):
    names = [name for name, _ in network.named_parameters()]
    loss = F.cross_entropy(network(images), labels)
    return dict(zip(names, torch.autograd.grad(loss, list(network.parameters())), strict=True))


def problem(records, seed=0, side=16, model="mlp_wide"):
    generator = torch.Generator().manual_seed(seed)
    network = build(model, 3, 10, torch.Generator().manual_seed(100 + seed), side).eval()
    images = torch.randn(records, 3, side, side, generator=generator)
    labels = torch.randint(10, (records,), generator=generator)
    return network, images, gradient_of(network, images, labels)


def errors(images, found):
    """Mean squared error of each record's nearest solution, on pixels in [0, 1]."""
    truth = images.flatten(1).double().numpy()
    return ((truth[:, None] - found.inputs[None]) ** 2).mean(axis=2).min(axis=1) / 4


@pytest.mark.parametrize("records", [1, 2, 7, 12])
def test_every_record_of_a_batch_comes_back_from_the_published_network(records):
    """Dimitrov et al. 2024: exact for batches on a perceptron of 200 units and six layers."""
    network, images, gradients = problem(records)
    found = solve_batch(network, "fc1", gradients, records, np.random.default_rng(0), 200_000)
    assert found.explained == 1.0
    assert found.inputs.shape == (records, 768)
    assert errors(images, found).max() < 1e-9


@pytest.mark.slow
def test_batches_of_sixteen_come_back_as_published():
    network, images, gradients = problem(16)
    found = solve_batch(network, "fc1", gradients, 16, np.random.default_rng(0), 4_000_000)
    assert errors(images, found).max() < 1e-9


def test_the_sets_of_rows_that_are_needed_grow_with_the_batch():
    """A set is of one record's zeros with a probability of about 2 to the -(B - 1)."""
    tried = []
    for records in (8, 12):
        network, _, gradients = problem(records, seed=1)
        tried.append(solve_batch(network, "fc1", gradients, records, np.random.default_rng(0), 200_000).tried)
    assert 2 * tried[0] <= tried[1]
    network, _, gradients = problem(14, seed=1)
    assert solve_batch(network, "fc1", gradients, 14, np.random.default_rng(0), 4096) is None


def test_a_sum_over_records_and_a_weighted_one_come_back_as_well():
    """Clipping weighs records, which the lengths of the directions take up."""
    network, images, _ = problem(5)
    labels = torch.arange(5)
    losses = F.cross_entropy(network(images), labels, reduction="none") * torch.tensor([0.1, 1.0, 3.0, 0.5, 2.0])
    parameters = [network.fc1.weight, network.fc1.bias]
    gradients = dict(zip(("fc1.weight", "fc1.bias"), torch.autograd.grad(losses.sum(), parameters), strict=True))
    found = solve_batch(network, "fc1", gradients, 5, np.random.default_rng(0), 50_000)
    assert errors(images, found).max() < 1e-9


@pytest.mark.no_shapes
def test_noise_far_below_the_slopes_leaves_the_records_known_and_noise_above_them_hides_them():
    network, images, gradients = problem(4)
    for relative, bound in ((1e-4, 1e-2), (1e-1, None)):
        noise = torch.Generator().manual_seed(7)
        std = relative * float(gradients["fc1.weight"].abs().max())
        noisy = {name: value + std * torch.randn(value.shape, generator=noise) for name, value in gradients.items()}
        found = solve_batch(network, "fc1", noisy, 4, np.random.default_rng(0), 20_000)
        if bound is None:
            assert found is None or errors(images, found).min() > 100 * RECOVERED_MSE
        else:
            assert errors(images, found).max() < bound


def test_no_set_of_rows_is_solved_where_noise_hides_the_span_of_the_records():
    network, _, gradients = problem(4)
    noise = torch.Generator().manual_seed(7)
    noisy = {name: value + torch.randn(value.shape, generator=noise) for name, value in gradients.items()}
    generator = np.random.default_rng(0)
    assert solve_batch(network, "fc1", noisy, 4, generator, 10**8) is None
    assert generator.random() == np.random.default_rng(0).random()


class Counted(np.random.Generator):
    """Generator that counts the numbers that it draws."""

    sets = rows = 0

    def random(self, size):
        self.sets, self.rows = self.sets + size[0], self.rows + size[0] * size[1]
        return super().random(size)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_planned_work_is_that_of_the_sets_of_rows_that_are_drawn(size):
    """Weights of the layer that explain nothing, so that all sets are tried, and 200 rows that no other set avoids."""
    generator, drawn = np.random.default_rng(1), Counted(np.random.PCG64(0))
    network = build("mlp_wide", 1, 10, torch.Generator().manual_seed(0), 16)
    gradient = torch.from_numpy(generator.standard_normal((200, size)) @ generator.standard_normal((size, 256)))
    gradients = {"fc1.weight": gradient, "fc1.bias": torch.from_numpy(generator.standard_normal(200))}
    solve_batch(network, "fc1", gradients, size, drawn, samples=5000)
    assert (drawn.sets, drawn.rows) == ((5000, 5000 * 200) if size > 1 else (0, 0))
    sizes = DatasetSize(members=40, validation=10, pool=100, test=10, aux=10, colors=1, classes=10, known=True, side=16)
    run = AttackedRun("spear", "mlp_wide", 3, 3, 3, sizes, size, False, False, 0, 64, 0)
    gradients, sets = SpearConfig(batches=8, samples=5000).work(run)
    batches = 3 * min(8, 40 // size)
    assert gradients[1] == batches * size / 64
    assert sets[1] == pytest.approx(batches * (drawn.sets * 10 * size**3 / 3 + drawn.rows * (size + 250)))


def attacked(dataset, batch_size, **changes):
    config = SpearConfig(batches=3, samples=40_000)
    table, arrays = invert_batches(attack_of(dataset, config, model="mlp_wide", batch_size=batch_size, **changes))
    return table.pivot_table(index="unit", columns=["variant", "metric"], values="value"), arrays


def test_an_undefended_client_gives_its_batches_away(few_digits):
    values, arrays = attacked(few_digits, 6)
    assert (values["attack", "recovered"] == 1).all()
    assert values["attack", "mse"].max() < RECOVERED_MSE < values["prior", "mse"].min()
    assert arrays["truth"].shape == arrays["attack"].shape == (1, 3, 6, *few_digits.aux.images.shape[1:])


def test_behind_a_channel_the_noisy_images_come_back_and_the_records_as_well_as_the_oracle_knows_them(
    few_digits, moments
):
    channel = Natural.calibrate(Natural.decompose(moments), 20.0)
    values, _ = attacked(
        few_digits, 6, defense=ChannelDefense(mechanism="channel", shape="natural"), level=20.0, channel=channel,
        moments=moments,
    )  # fmt: skip
    assert (values["attack", "recovered"] == 1).all()
    assert values["attack", "mse"].to_numpy() == pytest.approx(values["oracle", "mse"].to_numpy(), rel=1e-4)
    assert values["attack", "mse"].min() > 100 * RECOVERED_MSE


def test_behind_the_noise_of_dp_sgd_nothing_comes_back(few_digits):
    values, _ = attacked(few_digits, 6, defense=DPSGD(), level=0.5)
    assert (values["attack", "recovered"] == 0).all()


def test_what_it_cannot_attack_is_refused(few_digits):
    with pytest.raises(ValueError, match="begins with a linear layer of more than 2 inputs"):
        invert_batches(attack_of(few_digits, SpearConfig(), model="cnn", batch_size=2))
    with pytest.raises(ValueError, match="of more than 32 inputs and ReLUs"):
        invert_batches(attack_of(few_digits, SpearConfig(), model="mlp", batch_size=32))
    with pytest.raises(ValueError, match="a batch of 100 records: there are only 60 members"):
        invert_batches(attack_of(few_digits, SpearConfig(), model="mlp_wide", batch_size=100))
    sigmoid = build("lenet_sigmoid", 1, 10, torch.Generator(), 8).eval()
    assert first_layer(sigmoid, (1, 8, 8)) is None
