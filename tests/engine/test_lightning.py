"""The callback in Lightning's own trainer; Lightning is no dependency, so it is tested where it is installed."""

import pytest
import torch
from gaussians import batches, engine_of, private
from torch import nn

from leakbound import GuaranteeError, Leakage

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is no dependency: run `make test-frameworks`")
pytestmark = pytest.mark.filterwarnings("ignore")

from leakbound.engine.lightning import ChannelCallback  # noqa: E402


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 1), []

    def training_step(self, batch, _):
        inputs, labels = batch["one"] if isinstance(batch, dict) else batch
        self.seen.append(inputs)
        return (self.layer(inputs).squeeze(1) - labels).square().mean()

    def validation_step(self, batch, _):
        self.log("loss", self.layer(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-4)


def trainer(folder, callback, epochs, **options) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return lightning.Trainer(default_root_dir=folder, max_epochs=epochs, callbacks=[callback], **quiet, **options)


def test_trainer_stops_once_the_planned_uses_are_done(tmp_path):
    engine, model = engine_of(seed=5), Model()
    run = trainer(tmp_path, ChannelCallback(engine), 10)
    run.fit(model, engine.protect(batches(private())))
    assert run.current_epoch == 3
    assert engine.uses["train"].tolist() == [3] * 20
    assert float(run.logged_metrics["leakage_nats_plus_labels_not_counted_if_noise_were_secret"]) == pytest.approx(
        3.0, rel=1e-6
    )


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
    mixed = {"one": engine.protect(batches(private())), "two": batches(private(seed=3))}
    with pytest.raises(GuaranteeError, match="1 of 2 training loaders read clean records"):
        trainer(tmp_path, ChannelCallback(engine), 1).fit(Model(), mixed)


def test_several_protected_loaders_are_trained_on(tmp_path):
    """They were once said to be clean."""
    engine = engine_of()
    loaders = {name: engine.protect(batches(private(seed=len(name))), name=name) for name in ("one", "three")}
    trainer(tmp_path, ChannelCallback(engine), 2).fit(Model(), loaders)
    assert {name: uses.tolist() for name, uses in engine.uses.items()} == {"one": [2] * 20, "three": [2] * 20}


def test_labels_that_are_counted_are_in_the_metric(tmp_path):
    engine = engine_of(classes=20)
    run = trainer(tmp_path, ChannelCallback(engine), 1)
    run.fit(Model(), engine.protect(batches(private())))
    assert float(run.logged_metrics["leakage_nats"]) == pytest.approx(engine.leakage().record, rel=1e-6)


@pytest.mark.parametrize("again", ["the same dataset", "an equal one"])
def test_a_validation_on_clean_records_of_the_training_is_refused(again, tmp_path):
    """18 nats were once told where the validation losses were those of the records themselves."""
    engine, records = engine_of(), private()
    clean = batches(records if again == "the same dataset" else private(), shuffle=False)
    with pytest.raises(GuaranteeError, match="the validation loader reads 20 records that are trained on"):
        trainer(tmp_path, ChannelCallback(engine), 2).fit(Model(), engine.protect(batches(records)), clean)
    whole = private(40)
    train, rest = torch.utils.data.random_split(whole, [20, 20])
    for other in (batches(private(seed=9)), batches(rest), engine_of().protect(batches(private(seed=9)))):
        engine = engine_of()
        trainer(tmp_path, ChannelCallback(engine), 1).fit(Model(), engine.protect(batches(train)), other)
    engine = engine_of()
    behind = engine.protect(batches(train, shuffle=False))
    trainer(tmp_path, ChannelCallback(engine), 1).fit(Model(), engine.protect(batches(train)), behind)
    assert engine.uses["train"].max() >= 2


def test_predictions_for_clean_records_of_the_training_are_refused(tmp_path):
    """Those of a test were, and predictions of the same records were given out beside the same bound."""
    engine, model = engine_of(seed=5), Model()
    model.predict_step = lambda batch: model.layer(batch[0])
    run = trainer(tmp_path, ChannelCallback(engine), 1)
    run.fit(model, engine.protect(batches(private())))
    with pytest.raises(GuaranteeError, match="the prediction loader reads 20 records that are trained on"):
        run.predict(model, batches(private()))
    assert len(run.predict(model, engine.protect(batches(private())))) > 0
    assert engine.uses["train"].tolist() == [2] * 20


def test_a_checkpoint_without_counts_is_not_resumed(tmp_path):
    """19.1 nats were once told where 20.7 had been released."""
    run = trainer(tmp_path, ChannelCallback(first := engine_of()), 1)
    run.fit(Model(), first.protect(batches(private())))
    run.save_checkpoint(tmp_path / "whole.ckpt")
    held = torch.load(tmp_path / "whole.ckpt", weights_only=False)
    torch.save({**held, "callbacks": {}}, tmp_path / "bare.ckpt")
    engine = engine_of()
    with pytest.raises(GuaranteeError, match=r"bare\.ckpt holds weights of an earlier training and no counts"):
        trainer(tmp_path, ChannelCallback(engine), 2).fit(
            Model(), engine.protect(batches(private())), ckpt_path=tmp_path / "bare.ckpt"
        )
    engine = engine_of()
    trainer(tmp_path, ChannelCallback(engine), 2).fit(
        Model(), engine.protect(batches(private())), ckpt_path=tmp_path / "whole.ckpt"
    )
    assert engine.uses["train"].tolist() == [2] * 20


def test_batches_to_overfit_are_those_of_a_loader_in_order(tmp_path):
    engine = engine_of()
    trainer(tmp_path, ChannelCallback(engine), 2, overfit_batches=1).fit(
        Model(), engine.protect(batches(private(), shuffle=False))
    )
    assert engine.uses["train"].tolist() == [2] * 6 + [0] * 14
    with pytest.raises(GuaranteeError, match="protect a loader with shuffle=False"):
        trainer(tmp_path, ChannelCallback(engine), 2, overfit_batches=1).fit(
            Model(), engine.protect(batches(private(seed=4)), name="shuffled")
        )


def test_a_search_of_the_rate_counts_and_the_training_goes_on(tmp_path):
    """It was once refused: the state forgets uses."""
    engine, model = engine_of(Leakage(3.0, uses=9)), Model()
    run = trainer(tmp_path, ChannelCallback(engine), 2)
    model.lr = 1e-3
    loader = engine.protect(batches(private()))
    lightning.tuner.Tuner(run).lr_find(model, loader, num_training=4)
    searched = engine.uses["train"].copy()
    run.fit(model, loader)
    assert searched.tolist() == [1] * 20
    assert engine.uses["train"].tolist() == [3] * 20


def test_a_dataset_that_is_made_again_in_each_epoch_is_the_same_one(tmp_path):
    engine = engine_of()

    class Reloading(Model):
        def train_dataloader(self):
            return engine.protect(batches(private()))

    trainer(tmp_path, ChannelCallback(engine), 3, reload_dataloaders_every_n_epochs=1).fit(Reloading())
    assert engine.uses["train"].tolist() == [3] * 20
