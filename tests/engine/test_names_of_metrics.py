"""The name under which each framework is shown nats, with stand-ins for its classes: none of them is a dependency."""

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gaussians import batches, engine_of, private

CLASSES = {
    "lightning": {"lightning": {}, "lightning.pytorch": {"Callback": object}},
    "huggingface": {"transformers": {"TrainerCallback": object}},
    "flower": {
        "flwr": {},
        "flwr.app": {
            **dict.fromkeys(("ArrayRecord", "ConfigRecord", "Context", "Message", "MetricRecord", "RecordDict"), dict),
            "Array": lambda values: values,
        },
        "flwr.clientapp": {},
        "flwr.clientapp.typing": {"ClientAppCallable": object},
        "flwr.serverapp": {},
        "flwr.serverapp.strategy": {},
        "flwr.serverapp.strategy.strategy_utils": {"aggregate_metricrecords": None},
    },
}
"""Modules of each framework that its file imports, with what it takes from them."""
ENDS = {
    "": {"classes": 20},
    "_plus_labels_not_counted": {},
    "_if_noise_were_secret": {"classes": 20, "seed": 5},
    "_plus_labels_not_counted_if_noise_were_secret": {"seed": 5},
}
"""What a name ends in, and the options of an engine whose numbers are so."""


def lightning(own: Any, engine: Any) -> Mapping[str, float]:
    logged: dict[str, float] = {}
    trainer = SimpleNamespace(train_dataloader=engine.protect(batches(private())), should_stop=False)
    own.ChannelCallback(engine).on_train_epoch_end(trainer, SimpleNamespace(log=logged.__setitem__))
    return logged


def huggingface(own: Any, engine: Any) -> Mapping[str, float]:
    logs: dict[str, float] = {}
    state = SimpleNamespace(log_history=[{}])
    own.ChannelCallback(engine).on_log(None, state, None, logs=logs)
    assert state.log_history == [logs]
    return logs


def flower(own: Any, engine: Any) -> Mapping[str, float]:
    def train(message: Any, context: Any) -> Any:
        for _ in engine.protect(batches(private())):
            pass
        return SimpleNamespace(content={}, has_error=lambda: False)

    class State(dict):
        config_records: Mapping[str, Any] = {}

    reply = own.ChannelMod(engine)(None, SimpleNamespace(state=State()), train)
    ((name, nats),) = reply.content["leakage-nats"].items()
    return {name.replace("-", "_"): nats}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shown_by", [lightning, huggingface, flower])
def test_a_name_says_what_its_number_leaves_out_and_that_a_seed_makes_it_no_bound(shown_by, end, monkeypatch):
    framework = shown_by.__name__
    for name, attributes in CLASSES[framework].items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    file = f"leakbound.engine.{framework}"
    monkeypatch.delitem(sys.modules, file, raising=False)
    own = importlib.import_module(file)
    sys.modules.pop(file)  # other tests import it with the framework, or not at all
    engine = engine_of(**ENDS[end])
    for _ in engine.protect(batches(private())):
        pass
    logged = shown_by(own, engine)
    assert logged == {f"leakage_nats{end}": pytest.approx(engine.leakage().record)}
