"""The engine in Hugging Face's ``Trainer``, which is no dependency: a callback that checks, logs, saves and stops.

In a script, with ``key="pixel_values"`` or where else the input lies::

    trainer = Trainer(model, args, train_dataset=engine.protect(records), callbacks=[ChannelCallback(engine)])
    trainer.train()
"""

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from leakbound.engine.engine import ChannelEngine
from leakbound.engine.loaders import check_evaluation, check_resumed, check_training

COUNTS = "leakbound.pt"
"""File in the folder of a checkpoint that holds the counts."""


class ChannelCallback(TrainerCallback):
    """Keep an engine's counts with a trainer's checkpoints, log what has leaked, and stop in time.

    Args:
        engine: Engine whose dataset is trained on.
        metric: Name under which the smallest valid bound of the most used record, in nats, is logged. Where
            labels or other values are not counted, ``_plus_labels_not_counted`` is added to it, and
            ``_if_noise_were_secret`` where a seed repeats the noise.
    """

    def __init__(self, engine: ChannelEngine, metric: str = "leakage_nats") -> None:
        self.engine = engine
        self.metric = metric
        self._compared: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **shown: Any) -> None:
        """Refuse a training whose records do not pass the channel. Take up the counts of its checkpoint.

        Raises:
            GuaranteeError: If its dataset is not a protected one of this engine, or its checkpoint has no
                counts.
        """
        check_training(self.engine, shown.get("train_dataloader"))
        if state.global_step:
            checkpoint = self._checkpoint(args, state)
            if (counts := checkpoint / COUNTS).exists():
                self.engine.load_state_dict(torch.load(counts, weights_only=True))
            check_resumed(self.engine, checkpoint)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **shown: Any) -> None:
        """Refuse an evaluation on the records of the training as they are, before it gives a result.

        Raises:
            GuaranteeError: If its dataset holds some.
        """
        loader = shown.get("eval_dataloader")
        if loader is not self._compared:
            check_evaluation(self.engine, loader, "evaluation")
            self._compared = loader

    def on_epoch_end(self, args: Any, state: Any, control: Any, **shown: Any) -> None:
        """Compare the next evaluation again, and stop once records have no uses left."""
        self._compared = None
        if self.engine.remaining == 0:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **shown: Any) -> None:
        """Add what has leaked to what is logged."""
        account = self.engine.leakage()
        name = account.metric(self.metric)
        if logs is not None:
            logs[name] = account.record
        if state.log_history:
            state.log_history[-1][name] = account.record

    def on_save(self, args: Any, state: Any, control: Any, **shown: Any) -> None:
        """Write the counts into the folder of the checkpoint."""
        if state.is_world_process_zero:
            torch.save(self.engine.state_dict(), self._checkpoint(args, state) / COUNTS)

    @staticmethod
    def _checkpoint(args: Any, state: Any) -> Path:
        """Return the folder of the current checkpoint."""
        return Path(args.output_dir) / f"checkpoint-{state.global_step}"
