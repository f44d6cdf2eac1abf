"""The callback in Lightning's own trainer; Lightning is no dependency, so it is tested where it is installed."""

import pytest
import torch
from gaussians import batches, engine_of, private
from torch import nn

from leakbound import GuaranteeError

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is no dependency: run `make test-frameworks`")
pytestmark = pytest.mark.filterwarnings("ignore")

from leakbound.engine.lightning import ChannelCallback  # noqa: E402


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 1), []

    def training_step(self, batch, _):
        inputs, labels = batch
        self.seen.append(inputs)
        return (self.layer(inputs).squeeze(1) - labels).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-4)


def trainer(folder, callback, epochs) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return lightning.Trainer(default_root_dir=folder, max_epochs=epochs, callbacks=[callback], **quiet)


def test_trainer_stops_once_the_planned_uses_are_done(tmp_path):
    engine, model = engine_of(seed=5), Model()
    run = trainer(tmp_path, ChannelCallback(engine), 10)
    run.fit(model, engine.protect(batches(private())))
    assert run.current_epoch == 3
    assert engine.uses["train"].tolist() == [3] * 20
    assert float(run.logged_metrics["leakage_nats"]) == pytest.approx(3.0, rel=1e-6)


def test_checkpoints_keep_the_counts_and_the_noise_goes_on(tmp_path):
    whole, model = engine_of(seed=5), Model()
    trainer(tmp_path, ChannelCallback(whole), 2).fit(model, whole.protect(batches(private(), shuffle=False)))
    engine, first = engine_of(seed=5), Model()
    run = trainer(tmp_path, ChannelCallback(engine), 1)
    run.fit(first, engine.protect(batches(private(), shuffle=False)))
    run.save_checkpoint(tmp_path / "one.ckpt")
    engine, second = engine_of(seed=5), Model()
    run = trainer(tmp_path, ChannelCallback(engine), 2)
    run.fit(second, engine.protect(batches(private(), shuffle=False)), ckpt_path=tmp_path / "one.ckpt")
    assert engine.uses["train"].tolist() == [2] * 20
    torch.testing.assert_close(torch.cat(first.seen + second.seen), torch.cat(model.seen))


def test_clean_loaders_are_refused(tmp_path):
    engine, other = engine_of(seed=5), engine_of(seed=5)
    for loader in (batches(private()), other.protect(batches(private()))):
        with pytest.raises(GuaranteeError, match="give fit the loader that"):
            trainer(tmp_path, ChannelCallback(engine), 1).fit(Model(), loader)
