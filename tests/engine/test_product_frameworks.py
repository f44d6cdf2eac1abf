"""The table of the product behind frameworks: Lightning, Hugging Face's ``Trainer``, Accelerate, Flower and ranks.

Those that are not installed are skipped: ``make test-frameworks`` and ``make test-flower``.
"""

import importlib
import sys

import pytest
import torch
import torch.distributed as dist
from gaussians import forked
from situations import SITUATIONS, outcome
from test_product import Engine, FiledEngine
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    """One layer for records of any width, as each framework wants its loss."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs, labels=None):
        return {"loss": (self.weight * inputs).square().mean(), "logits": inputs[:, :1]}


class Trainer(FiledEngine):
    """A framework that logs the bound by a callback."""

    logged: dict

    def stated(self, made):
        last = self.logged[next(name for name in self.logged if name.startswith("leakage"))]
        return max(float(last), super().stated(made)) if isinstance(made, list) else float(last)

    def line(self, made):
        return "\n".join([*(f"{name} {value}" for name, value in self.logged.items()), super().line(made)])


class Lightning(Trainer):
    name, needs = "Lightning", "lightning"

    def passed(self, made, loader):
        import lightning.pytorch as lightning

        from leakbound.engine.lightning import ChannelCallback

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = Model()

            def training_step(self, batch, _):
                return self.model(batch[0])["loss"]

            def validation_step(self, batch, _):
                self.log("loss", self.model(batch[0])["loss"])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 1e-4)

        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        run = lightning.Trainer(max_epochs=1, enable_checkpointing=False, callbacks=[ChannelCallback(made)], **quiet)
        run.fit(Module(), made.protect(loader, **self.options), loader if self.clean else None)
        self.logged = {name: float(value) for name, value in run.logged_metrics.items()}


class HuggingFace(Trainer):
    name, needs = "Hugging Face's Trainer", "transformers"

    def passed(self, made, loader):
        import transformers

        from leakbound.engine.huggingface import ChannelCallback

        def collate(records):
            return {"inputs": torch.stack([record[0] for record in records]), "labels": torch.zeros(len(records))}

        quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
        args = transformers.TrainingArguments(
            str(self.folder), num_train_epochs=1, eval_strategy="epoch" if self.clean else "no", **quiet
        )
        data = {"train_dataset": made.protect(loader.dataset, **self.options), "eval_dataset": loader.dataset}
        run = transformers.Trainer(Model(), args, data_collator=collate, callbacks=[ChannelCallback(made)], **data)
        run.train()
        self.logged = {name: value for name, value in run.state.log_history[-1].items() if name.startswith("leakage")}


class Accelerate(FiledEngine):
    name, needs = "Accelerate", "accelerate"

    def passed(self, made, loader):
        accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
        for inputs, *_ in made.protect(accelerator.prepare(loader), **self.options):
            accelerator.backward(accelerator.prepare(Model())(inputs)["loss"])


class Flower(Trainer):
    name, needs = "Flower", "flwr"

    def make(self, target=None, *arguments, **options):
        made = super().make(target, *arguments, **options)
        self.node = getattr(self, "node", None) or self.of_node()
        return made

    def of_node(self):
        from flwr.app import Context, RecordDict

        return Context(1, 1, {}, RecordDict(), {})

    def restarted(self, made):
        self.node = self.of_node()  # its state is gone
        return made

    def passed(self, made, loader):
        from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        from leakbound.engine.flower import LEAKAGE, ChannelMod

        TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = 1

        def client(message, context):
            for _ in made.protect(loader, **self.options):
                pass
            return Message(content=RecordDict({"metrics": MetricRecord({"num-examples": 20})}), reply_to=message)

        request = Message(RecordDict({"config": ConfigRecord()}), dst_node_id=1, message_type="train")
        self.logged = dict(ChannelMod(made)(request, self.node, client).content[LEAKAGE])


class Ranks(Engine):
    name, needs = "two ranks of torch.distributed", "torch"

    def passed(self, made, loader):
        sampler = DistributedSampler(loader.dataset, shuffle=False, drop_last=True)
        for _ in made.protect(DataLoader(loader.dataset, batch_size=7, sampler=sampler), **self.options):
            pass


class FiledRanks(Ranks):
    """Both ranks name one file."""

    name = "two ranks of torch.distributed, ledger in a file"
    has = FiledEngine.has

    def once(self, work):
        if dist.get_rank() == 0:
            work()
        dist.barrier()


FRONTS = (Lightning, HuggingFace, Accelerate, Flower, Ranks, FiledRanks)
CELLS = [
    pytest.param(front, name, id=f"{front.name}-{name}", marks=[pytest.mark.slow] if issubclass(front, Ranks) else [])
    for front in FRONTS
    for name, each in SITUATIONS.items()
    if each.needs <= front.has
]


@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_no_cell_behind_a_framework_is_silent_and_false(kind, name, tmp_path):
    pytest.importorskip(kind.needs, reason="it is no dependency")

    def played() -> str:
        return outcome(kind(tmp_path), SITUATIONS[name])

    def in_rank(rank: int) -> str:
        dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=rank, world_size=2)
        try:
            return played()
        finally:
            dist.destroy_process_group()

    if issubclass(kind, Ranks):
        said, other = (wait() for wait in [forked(lambda rank=rank: in_rank(rank)) for rank in range(2)])
        assert said == other
        assert "Error" not in said
    else:
        said = played()
    sys.stdout.write(f"| {kind.name} | {name} | {said} |\n")
