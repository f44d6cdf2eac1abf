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
from leakbound.engine.refusals import GuaranteeError


class ChannelCallback(Callback):
    """Keep an engine's counts with a trainer's checkpoints, log what has leaked, and stop in time.

    Args:
        engine: Engine whose loader is trained on.
        metric: Name under which the smallest valid bound of the most used record, in nats, is logged at the
            end of each epoch.
    """

    def __init__(self, engine: ChannelEngine, metric: str = "leakage_nats") -> None:
        self.engine, self.metric = engine, metric

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse a training whose records do not pass the channel.

        Raises:
            GuaranteeError: If its loader is not a protected one of this engine.
        """
        if not self.engine.protects(trainer.train_dataloader):
            raise GuaranteeError(
                "the trainer reads clean records: give fit the loader that engine.protect returns"
            )

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what has leaked, and stop once records have no uses left."""
        pl_module.log(self.metric, self.engine.leakage().record)
        if self.engine.remaining == 0:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, for the checkpoint."""
        return self.engine.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.engine.load_state_dict(state_dict)
