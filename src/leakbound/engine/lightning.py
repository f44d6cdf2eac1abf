"""The engine in Lightning, which is no dependency: a callback that checks, logs, saves and stops.

In a script::

    trainer = Trainer(callbacks=[ChannelCallback(engine)], max_epochs=epochs)
    trainer.fit(model, engine.protect(loader))
"""

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # the older name of the same
    from pytorch_lightning import Callback

from leakbound.engine.engine import ChannelEngine
from leakbound.engine.loaders import check_evaluation, check_resumed, check_training
from leakbound.engine.refusals import GuaranteeError


class ChannelCallback(Callback):
    """Keep an engine's counts with a trainer's checkpoints, log what has leaked, and stop in time.

    Args:
        engine: Engine whose loader is trained on.
        metric: Name under which the smallest valid bound of the most used record, in nats, is logged at the
            end of each epoch. Where labels or other values are not counted, ``_plus_labels_not_counted`` is added
            to it, and ``_if_noise_were_secret`` where a seed repeats the noise.
    """

    def __init__(self, engine: ChannelEngine, metric: str = "leakage_nats") -> None:
        self.engine = engine
        self.metric = metric

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse a training whose records do not pass the channel, or whose earlier uses are not known.

        Raises:
            GuaranteeError: If one of its loaders is not a protected one of this engine, or its checkpoint has
                no counts.
        """
        check_training(self.engine, trainer.train_dataloader)
        if trainer.ckpt_path is not None:
            check_resumed(self.engine, trainer.ckpt_path)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse a validation on the records of the training as they are.

        Raises:
            GuaranteeError: If a loader reads some.
        """
        check_evaluation(self.engine, trainer.val_dataloaders, "validation")

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse a test on the records of the training as they are.

        Raises:
            GuaranteeError: If a loader reads some.
        """
        check_evaluation(self.engine, trainer.test_dataloaders, "test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse predictions for the records of the training as they are.

        Raises:
            GuaranteeError: If a loader reads some.
        """
        check_evaluation(self.engine, trainer.predict_dataloaders, "prediction")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what has leaked, and stop once records have no uses left."""
        check_training(self.engine, trainer.train_dataloader)  # it may have been loaded again
        account = self.engine.leakage()
        pl_module.log(account.metric(self.metric), account.record)
        if self.engine.remaining == 0:
            trainer.should_stop = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Say why a protected loader cannot be overfitted to shuffled batches.

        Raises:
            GuaranteeError: If Lightning has tried to build another loader of the clean records.
        """
        if trainer.overfit_batches and "needs to subclass" in str(exception):
            raise GuaranteeError(
                f"overfit_batches = {trainer.overfit_batches}: Lightning turns shuffling off by a loader of its own, "
                "which would read clean records: protect a loader with shuffle=False"
            ) from exception

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, for the checkpoint."""
        return self.engine.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.engine.load_state_dict(state_dict)
