"""The callback in Hugging Face's ``Trainer``; transformers is no dependency, so it is tested where it is installed."""

import pytest
import torch
from gaussians import engine_of, gaussian
from torch import nn
from torch.utils.data import Dataset

from leakbound import GuaranteeError, Leakage

transformers = pytest.importorskip("transformers", reason="it is no dependency: run `make test-frameworks`")
pytest.importorskip("accelerate", reason="it is no dependency: run `make test-frameworks`")
pytestmark = pytest.mark.filterwarnings("ignore")

from leakbound.engine.huggingface import COUNTS, ChannelCallback  # noqa: E402


class Records(Dataset):
    def __init__(self, count=20, seed=1):
        self.inputs = torch.from_numpy(gaussian(count, seed))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return {"inputs": self.inputs[index], "labels": index % 2}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs, labels=None):
        return {"loss": (self.layer(inputs).squeeze(1) - labels.float()).square().mean(), "logits": self.layer(inputs)}


def made(**options):
    return engine_of(Leakage(3.0, uses=3), public=Records(400, 0), key="inputs", **options)


def trained(folder, engine, train, test=None, epochs=1, resume=None):
    """The trainer after its epochs."""
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 6}
    every = {"save_strategy": "epoch", "eval_strategy": "no" if test is None else "epoch"}
    args = transformers.TrainingArguments(str(folder), num_train_epochs=epochs, **quiet, **every)
    trainer = transformers.Trainer(
        Model(), args, train_dataset=train, eval_dataset=test, callbacks=[ChannelCallback(engine)]
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_the_trainer_stops_once_the_planned_uses_are_done_and_logs_them(tmp_path):
    for options, name in (
        ({}, "leakage_nats_plus_labels_not_counted"),
        ({"classes": 2}, "leakage_nats"),
        ({"classes": 2, "seed": 5}, "leakage_nats_if_noise_were_secret"),
    ):
        engine = made(**options)
        trainer = trained(tmp_path / name, engine, engine.protect(Records()), Records(20, 5), epochs=9)
        assert engine.uses["train"].tolist() == [3] * 20
        assert trainer.state.log_history[-1][name] == pytest.approx(engine.leakage().record)


def test_checkpoints_keep_the_counts_and_one_without_them_is_refused(tmp_path):
    engine = made()
    trained(tmp_path, engine, engine.protect(Records()))
    engine = made()
    trained(tmp_path, engine, engine.protect(Records()), epochs=2, resume=True)
    assert engine.uses["train"].tolist() == [2] * 20
    (tmp_path / "checkpoint-8" / COUNTS).unlink()
    engine = made()
    with pytest.raises(GuaranteeError, match="checkpoint-8 holds weights of an earlier training and no counts"):
        trained(tmp_path, engine, engine.protect(Records()), epochs=3, resume=True)


def test_clean_records_are_refused_in_training_and_in_evaluation(tmp_path):
    engine = made()
    with pytest.raises(GuaranteeError, match="the trainer reads clean records"):
        trained(tmp_path, engine, Records())
    engine = made()
    with pytest.raises(GuaranteeError, match="the evaluation loader reads 20 records that are trained on"):
        trained(tmp_path, engine, engine.protect(Records()), Records())
    other = made()
    with pytest.raises(GuaranteeError, match="the trainer reads clean records"):
        trained(tmp_path, engine, other.protect(Records()))
