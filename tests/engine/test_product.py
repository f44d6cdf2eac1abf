"""The table of the product: each front end in each everyday situation, stated against true (``pytest -rP``)."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from gaussians import precision
from situations import ALL, PEOPLE, PUBLIC, ROWS, SITUATIONS, WIDE, Front, outcome
from sklearn.base import clone
from torch.utils.data import DataLoader, TensorDataset

from calling import called
from leakbound import Capacity, Channel, ChannelEngine


class Engine(Front):
    """Records in a loader of an engine."""

    name = "ChannelEngine"
    has = frozenset({"owners", "labels", "uncounted", "states", "loaders"})

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
    has = frozenset({"owners", "labels", "uncounted", "states", "loaders"})

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


@dataclass
class Copies:
    """Calls of ``leakbound protect`` with the same public records and ledger, and what the last of them said."""

    public: np.ndarray
    ledger: Path
    written: dict = field(default_factory=dict)
    said: str = ""


class Protect(Front):
    """Files of records, of which noisy copies are made by the command line, all with one ledger."""

    name = "protect, ledger in a file"
    has = frozenset({"owners", "labels", "file"})

    def make(self, target=None, public=PUBLIC, *, ledger="", **options):
        return Copies(public, self.file if ledger == "" else ledger)

    def release(self, made, rows=ROWS, views=ALL, *, owners=None, labels=None, name=None):
        self.calls = getattr(self, "calls", 0) + 1
        folder = self.folder / f"call{self.calls}"
        folder.mkdir()
        kinds = {} if owners is None else {"owner": owners}
        classes = {"mine": np.zeros(len(rows), int) if labels is None else labels}  # of one class they say nothing
        classes["others"] = np.resize(np.unique(classes["mine"]), len(made.public))
        for name, values, more in (("mine", rows, kinds), ("others", made.public, {})):
            np.savez(folder / f"{name}.npz", records=values, labels=classes[name], **more)
        words = ("protect", folder / "mine.npz", "--public", folder / "others.npz", "--kappa", 3, "--uses", 10)
        words = (*words, "--no-standardize", "--ledger", made.ledger, "--out", folder / "copies")
        done = called(*words, *(() if owners is None else ("--owner", "owner")))
        if done.code:
            raise SystemExit(done.message)
        made.said, made.written = done.out, json.loads((folder / "copies/protection.json").read_text())
        std = made.written["channel"]["std"]
        assert std["least"] == pytest.approx(std["largest"])  # natural noise is the same for all values
        views = views[: len(views) - made.written["repeated"] // PEOPLE]  # equal records have one noisy copy
        self.note(np.eye(rows.shape[1]) / std["root_mean_square"] ** 2, views)

    def stated(self, made):
        return max(one.written["statement"]["nats"] for one in (made if isinstance(made, list) else [made]))

    def line(self, made):
        return "\n".join(one.said for one in (made if isinstance(made, list) else [made]))


FRONTS = (Engine, FiledEngine, Transformer, FiledTransformer, Protect)
CELLS = [(front, name) for front in FRONTS for name, each in SITUATIONS.items() if each.needs <= front.has]


@pytest.mark.parametrize(("kind", "name"), CELLS, ids=[f"{kind.name}-{name}" for kind, name in CELLS])
def test_no_cell_is_silent_and_false(kind, name, tmp_path):
    sys.stdout.write(f"| {kind.name} | {name} | {outcome(kind(tmp_path), SITUATIONS[name])} |\n")
