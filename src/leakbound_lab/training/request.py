"""What a trainer gets and returns: a request and its result, with the choice of learning rates.

All candidates train at full length, and validation decides for each replica.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor, nn

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import estimate_moments
from leakbound.randomness.seeding import derive_seed, torch_generator
from leakbound.randomness.sources import SecureNoise, SeededNoise, noise_source
from leakbound_lab import models
from leakbound_lab.config.attacks import MOST_REFERENCES
from leakbound_lab.config.training import Length, TrainingSettings
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.datasets.splits import reference_dataset
from leakbound_lab.models.layers import ImageTensor
from leakbound_lab.training.batches import Members
from leakbound_lab.training.client_steps import ClientStep, client_step

RATE_COLUMNS = (
    "replica",
    "learning_rate",
    "validation_accuracy",
    "validation_loss",
    "diverged",
    "chosen",
    "at_edge",
)
_CHUNK = 4096  # records of the pool whose covariance is computed at once


@dataclass(frozen=True)
class Slot:
    """One network of a run: a replica at one candidate learning rate."""

    replica: int
    learning_rate: float


@dataclass(frozen=True)
class UploadScoring:
    """Candidates whose membership the server infers.

    Attributes:
        rows: Replica to its candidates, rows of the pool, equally many for each replica.
        public: Auxiliary records from which the server learns what uploads are like.
        window: Steps whose uploads are scored together.
        draws: Draws of a channel's noise over which gradients are averaged, where no layer sees images.
        precision: Arithmetic of the products in candidates' gradients.
    """

    rows: Mapping[int, Sequence[int]]
    public: int
    window: int
    draws: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True, kw_only=True)
class TrainingRequest(TrainingSettings):
    """One run with all its replicas and candidate learning rates, as every trainer takes it.

    Attributes:
        dataset: Pool that replicas draw from, test records, and class names.
        channel: The calibrated channel, for a channel defense only.
        learning_rates: Candidate learning rates of SGD, > 0, constant. Each is trained at full length on all
            members.
        checkpoint: File to resume from and to save to, or None to do neither.
        leakage_after: Function from an event to the nats that a network has revealed about one record, or to
            None without a bound. It gives the accountant's curve.
        on_rows: Called at each point of the curves with the rows of the stack in training, for a live view.
        scoring: Candidates whose membership is scored from the uploads, or None to score none.
        only: Networks to train, by default every replica with every candidate learning rate.
    """

    dataset: ImageDataset
    channel: GaussianChannel | None = None
    learning_rates: tuple[float, ...]
    checkpoint: Path | None = None
    leakage_after: Callable[[PrivacyEvent], float | None] | None = None
    on_rows: Callable[[pd.DataFrame], None] | None = None
    scoring: UploadScoring | None = None
    only: tuple[Slot, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(colors, height, width) of the images."""
        colors, height, width = self.dataset.pool.images.shape[1:]
        return colors, height, width

    @property
    def slots(self) -> list[Slot]:
        """Networks to train: every replica with every candidate, replica by replica, candidates ascending."""
        every = (Slot(replica, rate) for replica in range(self.replicas) for rate in self.candidates)
        return [*(self.only or every)]

    @property
    def candidates(self) -> list[float]:
        """Distinct learning rates, ascending."""
        return sorted(set(self.learning_rates))

    @property
    def steps(self) -> int:
        """Optimisation steps that the defense takes."""
        return self.defense.steps(self.level, self.rounds)

    @property
    def records(self) -> int:
        """Records that a step averages over."""
        return self.defense.records_in_step(self.level, self.batch_size)

    def noise(
        self, replica: int, purpose: str = "noise", device: str | None = None
    ) -> SeededNoise | SecureNoise:
        """Return the source of a replica's noise for one purpose.

        All noise that protects records comes from it. So does the choice of records if an accountant relies
        on its secrecy.

        Args:
            replica: Number of the replica.
            purpose: Word that separates independent sources.
            device: Device of the draws. Default: the device of the training.
        """
        return noise_source(
            self.privacy_noise, self.seed, self.dataset.name, replica, purpose, device=device or self.device
        )

    def generator(self, replica: int, purpose: str) -> torch.Generator:
        """Return the CPU generator of a replica's draws for one purpose that no secret depends on."""
        return torch_generator(self.seed, self.dataset.name, replica, purpose)

    @cached_property
    def client(self) -> ClientStep:
        """Step of the client under the defense."""
        images = self.dataset.pool.images
        chunks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
        return client_step(
            self.defense, self.level, self.channel, lambda: estimate_moments(chunks), lambda: self.dataset.aux
        )

    @cached_property
    def shared_values(self) -> dict[str, Any]:
        """Values that all networks of the run share, by name. Whoever needs one first computes and stores it."""
        return {}


def training_request(
    settings: TrainingSettings, dataset: ImageDataset, channel: GaussianChannel | None, checkpoint: Path
) -> TrainingRequest:
    """Return the request of a run's training at all its candidate learning rates.

    Args:
        settings: Settings of the training, with the device that a job has chosen.
        dataset: Images of the run's dataset.
        channel: Channel of the defense, if it has one.
        checkpoint: File to resume from and to save to.
    """
    return TrainingRequest(
        **vars(settings),
        dataset=dataset,
        channel=channel,
        learning_rates=settings.defense.learning_rates or settings.config.learning_rates,
        checkpoint=checkpoint,
    )


def initial_network(request: TrainingRequest, replica: int) -> nn.Module:
    """Create the untrained network of a replica, on the CPU. It is the same for every device."""
    generator = request.generator(replica, "init")
    return models.build(
        request.model, request.dataset.colors, len(request.dataset.classes), generator, request.dataset.side
    )


@dataclass(frozen=True)
class TrainingResult:
    """Trained slots, in the order of the request, each with all lengths that the request asks for.

    Attributes:
        weights: Parameter name to values (slots · lengths, ...), on the CPU, NaN if training diverged.
        curves: Columns ``replica`` (int), ``learning_rate`` (float), ``step`` (int), ``metric`` (str),
            ``value`` (float). Metrics are ``<part>_loss`` (nats) and ``<part>_accuracy`` of train (the
            members), validation and test, all on clean images. ``epsilon`` is given for DP, and ``leakage``
            (nats about one record so far) if the request asks for it and a bound holds. ``kept_step`` is
            given at the end if a defense keeps the weights of its best point. The last rows are then those of
            the kept weights. The last step is evaluated on all records, earlier ones on at most 2,000 of each
            part. The curve of a diverged slot ends before the divergence. If the request asks for several
            lengths, there is a column ``length``. The curves belong to ``full``, and each other length has a
            single point, evaluated on all records. Its ``epsilon`` and ``leakage`` are those of the steps up
            to this point, and for the best point those of the whole training that it was chosen from.
        events: Privacy event of the whole training, for each slot.
        diverged: Whether loss or weights became infinite or NaN, for each slot. Such a slot is no result.
        rates: One row per network of ``weights``, as from :func:`leakbound_lab.training.request.chosen_rates` for
            slots, and :func:`leakbound_lab.training.request.rates_of_lengths` for several lengths.
        frozen: Hash of the frozen weights of each network, which ``weights`` leaves out, empty without any.
        scores: (slots, statistics, candidates), of
            :meth:`leakbound_lab.training.upload_scores.UploadScores.values`, NaN if training diverged. None if
            the request asks for none.
    """

    weights: dict[str, Tensor]
    curves: pd.DataFrame
    events: list[PrivacyEvent]
    diverged: list[bool]
    rates: pd.DataFrame
    frozen: str = ""
    scores: Tensor | None = None


def reference_request(
    request: TrainingRequest, count: int, learning_rates: Iterable[float], targets: Iterable[Slot] = ()
) -> TrainingRequest:
    """Make the request of the reference networks of a run: ``count`` at each rate, or for each target.

    They replace the replicas, and are trained like the networks of the run on other records, which
    :func:`leakbound_lab.datasets.splits.reference_dataset` draws. A comparison with them shows what a network has
    learned about a record beyond what such networks learn in any case.

    Records, weights, batches and noise are drawn from other seeds, equal for all defenses and levels, so that
    comparisons of defenses stay paired.

    Args:
        request: The run.
        count: Number of reference networks at each learning rate, >= 1.
        learning_rates: Learning rates of the reference networks, > 0.
        targets: Networks on halves of whose candidates they are trained. None for draws from the pool.
    """
    config = request.config
    only = tuple(
        Slot(MOST_REFERENCES * target.replica + number, target.learning_rate)
        for target in dict.fromkeys(targets)
        for number in range(count)
    )
    if not request.defense.keeps_best and "best" not in request.lengths:  # their curves are not used
        config = config.model_copy(update={"evaluations": 1})
    return replace(
        request,
        config=config,
        dataset=reference_dataset(request.dataset, of_candidates=bool(only)),
        seed=derive_seed(request.seed, "reference"),
        replicas=len({slot.replica for slot in only}) or count,
        learning_rates=tuple(sorted(set(learning_rates))),
        only=only,
    )


def unit_facts(dataset: ImageDataset) -> dict[str, Any]:
    """Return whose uses an event counts, and the most rows and records of one unit, for a ``PrivacyEvent``."""
    most = dataset.most
    records = most.records if dataset.unit == "owner" else 1
    return {"unit": dataset.unit, "rows": most.rows, "records": records}


def most_uses(uses: Int[Tensor, " members"], units: Int[np.ndarray, " members"] | None) -> int:
    """Compute the uses of the unit that was used most, of a record with all its copies, or of an owner.

    Args:
        uses: Number of uses of each member.
        units: Number of each member's unit, None if each is one of its own.
    """
    counts = uses.cpu().numpy()
    return int((counts if units is None else np.bincount(units, counts)).max())


def chosen_rates(slots: Sequence[Slot], curves: pd.DataFrame, diverged: Sequence[bool]) -> pd.DataFrame:
    """Measure the candidates of each replica at the end, and choose one, as :func:`with_choice` does.

    Args:
        slots: Replicas and candidates.
        curves: Curves of the slots, as :class:`leakbound_lab.training.request.TrainingResult` has them.
        diverged: Whether each slot diverged.

    Returns:
        One row per slot with the columns ``RATE_COLUMNS``. Accuracy and loss (nats) are NaN for a diverged
        slot.
    """
    last = curves.drop_duplicates(["replica", "learning_rate", "metric"], keep="last")
    ends = last.set_index(["replica", "learning_rate", "metric"])["value"]
    rows = []
    for slot, failed in zip(slots, diverged, strict=True):
        keys = [(slot.replica, slot.learning_rate, f"validation_{name}") for name in ("accuracy", "loss")]
        values = (np.nan, np.nan) if failed else (float(ends[key]) for key in keys)
        rows.append((slot.replica, slot.learning_rate, *values, failed))
    return with_choice(pd.DataFrame(rows, columns=list(RATE_COLUMNS[:-2])))


def with_choice(rates: pd.DataFrame) -> pd.DataFrame:
    """Choose the candidate with the best validation accuracy at the end, for each replica independently.

    If accuracies are equal, the lower loss decides, and then the smaller rate. A diverged candidate is chosen
    only if all have diverged. A grid of one candidate has no edge.

    Args:
        rates: A row per slot, or per slot and length, of which only ``full`` can be chosen.

    Returns:
        These rows, with ``chosen`` and ``at_edge``, which marks a chosen candidate that is the smallest or the
        largest one.
    """
    table = rates[rates["length"] == "full"] if "length" in rates else rates
    ranked = table.sort_values(
        ["replica", "diverged", "validation_accuracy", "validation_loss", "learning_rate"],
        ascending=[True, True, False, True, True],
        kind="stable",
    )
    chosen = rates.index.isin(ranked.drop_duplicates("replica").index)
    candidates = rates.groupby("replica")["learning_rate"]
    least = candidates.transform("min")
    most = candidates.transform("max")
    outer = (rates["learning_rate"] == least) | (rates["learning_rate"] == most)
    return rates.assign(chosen=chosen, at_edge=chosen & outer & (least < most))


def rates_of_lengths(rates: pd.DataFrame, lengths: Sequence[Length], ends: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each slot and length, in this order.

    Args:
        rates: One row per slot, as :func:`chosen_rates` returns them. They are the rows of the full length.
        lengths: All lengths, the last one ``full``.
        ends: Points of the other lengths, with the columns of curves and ``length``.

    Returns:
        The columns ``RATE_COLUMNS`` and ``length``. Only the full length can be ``chosen``. A length without
        a point counts as diverged.
    """
    points = ends.set_index(["replica", "learning_rate", "length", "metric"])["value"]
    rows = []
    for row in rates.to_dict("records"):
        for length in lengths[:-1]:
            keys = {name: (row["replica"], row["learning_rate"], length, name) for name in RATE_COLUMNS[2:4]}
            values = {name: float(points.get(key, np.nan)) for name, key in keys.items()}
            diverged = bool(np.isnan([*values.values()]).any())
            rows.append(
                {**row, **values, "diverged": diverged, "chosen": False, "at_edge": False, "length": length}
            )
        rows.append({**row, "length": lengths[-1]})
    return pd.DataFrame(rows)


def members_of(request: TrainingRequest, slots: Sequence[Slot]) -> tuple[ImageTensor, Members, Members]:
    """Return the members of some slots on the device: images, rows of each slot, and labels of each slot.

    All copies of a record are the same row of the images.
    """
    data = request.dataset
    parts = [data.parts(slot.replica) for slot in slots]
    members = np.stack([part.members for part in parts])
    used, places = np.unique(members if data.copies is None else data.copies[members], return_inverse=True)
    rows = torch.from_numpy(places.reshape(len(slots), -1))
    labels = [data.labels(slot.replica)[part.members] for slot, part in zip(slots, parts, strict=True)]
    images = torch.from_numpy(data.pool.images[used]).to(request.device)
    return images, rows.to(request.device), torch.from_numpy(np.stack(labels)).to(request.device)
