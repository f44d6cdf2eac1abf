"""The table of the product: each front end in each everyday situation, stated against true (``pytest -rP``)."""

import sys

import numpy as np
import pytest
import torch
from gaussians import precision
from situations import ALL, PUBLIC, ROWS, SITUATIONS, WIDE, Front, outcome
from sklearn.base import clone
from torch.utils.data import DataLoader, TensorDataset

from leakbound import Capacity, Channel, ChannelEngine


class Engine(Front):
    """Records in a loader of an engine."""

    name = "ChannelEngine"
    has = frozenset({"owners", "labels", "states"})

    def make(self, target=None, public=PUBLIC, *, ledger="", **options):
        options = {"value_range": WIDE, "ledger": self.file if ledger == "" else ledger, **options}
        self.engine = ChannelEngine.for_data(public, target or Capacity(3.0), **options)
        return self.engine

    def restarted(self, made):
        return made

    def passed(self, made, loader):
        """Take one epoch of a loader of clean records, behind the channel."""
        for _ in made.protect(loader, **self.options):
            pass

    def release(self, made, rows=ROWS, views=ALL, *, owners=None, labels=None, name=None):
        values = torch.from_numpy(np.ascontiguousarray(rows))
        data = TensorDataset(values) if labels is None else TensorDataset(values, torch.from_numpy(labels))
        self.options = {"name": name or "train"} | ({} if owners is None else {"owner": owners})
        self.passed(made, DataLoader(data, batch_size=7))
        self.note(precision(made.calibration.channel), views)

    def stated(self, made):
        return max(one.leakage().record for one in (made if isinstance(made, list) else [made]))

    def line(self, made):
        return "\n".join(f"{one.leakage()}\n{one}" for one in (made if isinstance(made, list) else [made]))


class FiledEngine(Engine):
    name = "ChannelEngine, ledger in a file"
    has = Engine.has | {"file"}


class Transformer(Front):
    """Rows through a transformer, and the clones that a search makes of it."""

    name = "Channel"
    has = frozenset({"owners", "labels", "states"})

    def make(self, target=None, public=PUBLIC, *, ledger="", **options):
        options = {"value_range": WIDE, "ledger": self.file if ledger == "" else ledger, **options}
        options |= {"target": target or Capacity(3.0), "auxiliary": public}
        self.family = clone(self.family).set_params(**options) if hasattr(self, "family") else Channel(**options)
        return self.family

    def restarted(self, made):
        return Channel(**made.get_params())

    def release(self, made, rows=ROWS, views=ALL, *, owners=None, labels=None, name=None):
        made.fit(rows, labels)
        made.transform(rows, **({} if owners is None else {"owner": owners}))
        self.note(precision(made.calibration_.channel), views)

    def stated(self, made):
        return max(float(one.leakage()) for one in (made if isinstance(made, list) else [made]))

    def line(self, made):
        return "\n".join(str(one.leakage()) for one in (made if isinstance(made, list) else [made]))


class FiledTransformer(Transformer):
    name = "Channel, ledger in a file"
    has = Transformer.has | {"file"}


FRONTS = (Engine, FiledEngine, Transformer, FiledTransformer)
CELLS = [(front, name) for front in FRONTS for name, each in SITUATIONS.items() if each.needs <= front.has]


@pytest.mark.parametrize(("kind", "name"), CELLS, ids=[f"{kind.name}-{name}" for kind, name in CELLS])
def test_no_cell_is_silent_and_false(kind, name, tmp_path):
    sys.stdout.write(f"| {kind.name} | {name} | {outcome(kind(tmp_path), SITUATIONS[name])} |\n")
