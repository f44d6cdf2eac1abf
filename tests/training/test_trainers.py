import dataclasses
from typing import ClassVar, Literal

import numpy as np
import pytest
from torch import nn

from leakbound.registry import UnknownNameError
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, Compression, Defense, LargeBatch
from leakbound_lab.models import Classifier
from leakbound_lab.registries import MODELS
from leakbound_lab.training import UntrainableError, train
from leakbound_lab.training.sgd import train_sgd


class Normalised(Classifier):
    """A small network with a normalisation layer of choice."""

    def __init__(self, colors, classes, norm):
        super().__init__(colors, classes)
        self.conv = nn.Conv2d(colors, 4, 3, stride=4)
        self.norm = norm
        self.head = nn.Linear(4 * 8 * 8, classes)

    def features(self, images):
        return self.norm(self.conv(images)).flatten(1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 401}, "batch_size = 401 but there are 400 members"),
        ({"batch_size": 0, "rounds": -1}, "batch_size = 0, rounds = -1, replicas = 1: must be at least 1, 0 and 1"),
        ({"learning_rates": (0.0,)}, r"learning_rates = \[0\.0\]: give at least one, all positive"),
        ({"learning_rates": (0.1, float("nan"))}, r"learning_rates = \[0\.1, nan\]"),
        ({"learning_rates": ()}, r"learning_rates = \[\]: give at least one"),
        ({"training": {"precision": "tf32"}}, "'tf32' on the device 'cpu': only a GPU .* 'float32'"),
        ({"level": 1.0}, "level = 1.0: without a defense there is none"),
        ({"defense": ChannelDefense(), "level": 8.0}, "channel = None: a channel defense needs both"),
        ({"defense": DPSGD()}, "level = None: dpsgd needs its noise multiplier"),
        ({"defense": LargeBatch(), "level": 13.0}, "batch_size = 32, 416 with its factor, but there are 400 members"),
        ({"defense": Compression(), "level": 1024.0}, "level = 1024.0: compression .* colors, 1024"),
    ],
)
def test_training_refuses_what_it_cannot_do(request_for, changes, message):
    with pytest.raises(UntrainableError, match=message):
        train(request_for(**changes))


def test_training_names_every_reason_at_once(request_for):
    with pytest.raises(UntrainableError) as error:
        train(request_for(batch_size=401, level=1.0))
    assert len(str(error.value).splitlines()) == 2
    assert str(error.value).startswith("digits/lenet/test: batch_size = 401")


@pytest.mark.parametrize(
    ("defense", "level", "message"),
    [
        (ChannelDefense(), 9.0, r"3072 dimensions, the images 1024 values(.|\n)*to 8\.0 nats, the level is 9"),
        (ChannelDefense(shape="white"), 8.0, "the channel is of shape 'natural', the defense of shape 'white'"),
        (DPSGD(), 1.0, r"a channel \(natural\) was given, but dpsgd has none"),
    ],
)
def test_training_refuses_a_channel_of_another_size_or_level(request_for, channel, defense, level, message):
    large = dataclasses.replace(channel("natural", 8.0), variances=np.ones(3072))
    with pytest.raises(UntrainableError, match=message):
        train(request_for(defense=defense, level=level, channel=large))


def test_training_refuses_a_pool_that_is_too_small_for_what_a_replica_draws(request_for, digits):
    drawing = dataclasses.replace(digits.drawing, members=451)
    with pytest.raises(UntrainableError, match=r"draws 451 members, as many others and 100 validation .* pool of 1000"):
        train(request_for(dataset=dataclasses.replace(digits, drawing=drawing)))


def test_training_refuses_labels_that_are_no_class(request_for, digits):
    few = dataclasses.replace(digits, classes=("0", "1"))
    with pytest.raises(UntrainableError, match="pool labels reach from 0 to 9, but there are 2 classes"):
        train(request_for(dataset=few))


@pytest.mark.parametrize(
    ("norm", "layer"), [(lambda: nn.BatchNorm2d(4), "BatchNorm2d"), (lambda: nn.Dropout(0.5), "Dropout")]
)
def test_training_refuses_layers_that_mix_records_or_draw_on_their_own(request_for, monkeypatch, norm, layer):
    monkeypatch.setitem(MODELS._entries, "normalised", lambda colors, classes: Normalised(colors, classes, norm()))
    with pytest.raises(UntrainableError, match=rf"normalised\.norm is a {layer}"):
        train(request_for(model="normalised"))


def test_private_training_passes_on_what_opacus_refuses(request_for, monkeypatch):
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    monkeypatch.setitem(MODELS._entries, "normalised", lambda colors, classes: Normalised(colors, classes, norm))
    with pytest.raises(UntrainableError, match=r"normalised cannot be trained by Opacus: .* running stats"):
        train(request_for(model="normalised", defense=DPSGD(), level=1.0))


def test_unknown_model_is_named_before_any_step(request_for):
    with pytest.raises(UnknownNameError, match="did you mean 'lenet'"):
        train(request_for(model="lenett"))


class Careful(Defense):
    trainer: ClassVar[str] = f"{__name__}:train_carefully"

    mechanism: Literal["careful"] = "careful"
    care: int


def train_carefully(request):
    ASKED.append(request.defense.care)
    return train_sgd(request)


ASKED = []


def test_outside_trainer_is_the_one_that_its_defense_names(request_for):
    result = train(request_for(defense=Careful(care=3), level=2.0))
    assert ASKED == [3]
    assert result.events[0].mechanism == "careful"
