"""A channel around a training loop: calibrated to a target, released by record, counted, and stopped in time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader

from leakbound.channels.covariance import population_moments
from leakbound.channels.observed import OwnCapacity
from leakbound.engine.accountant import Account, LeakageAccountant, check_noise
from leakbound.engine.augmentation import refuse_random
from leakbound.engine.description import describe
from leakbound.engine.ledger import Ledger
from leakbound.engine.loaders import After, Gate, ProtectedDataset, ProtectedLoader, check_batches
from leakbound.engine.noise import CentredSampler, RecordNoise
from leakbound.engine.own_moments import OwnMoments
from leakbound.engine.places import Places
from leakbound.engine.records import Key, Layout, as_tensor, dataset_of, gathered, taken
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import Calibration, Target, as_target
from leakbound.randomness.sources import NoiseSource, SecureNoise
from leakbound.registry import SHAPES

_VERSION = 1
_READ = 256  # records that protect reads before the first release, to compare their moments with the calibration's


class ChannelEngine:
    """A channel that records pass before a training sees them, and the account of what it has told.

        engine = ChannelEngine.for_data(public, target=Leakage(300, uses=epochs))
        loader = engine.protect(loader)
        for inputs, labels in loader: ...  # trains as before
        print(engine.leakage())

    Make it by :meth:`for_data`. ``print(engine)`` says what it guarantees, and under which assumptions.

    Attributes:
        calibration: The channel, beside the moments that it was calibrated to.
        target: Limit that it meets.
        noise: ``fresh`` at each use, or ``frozen``: one noisy copy of each record.
        layout: Form of an input.
        classes: Number of labels; None if it was not said.
        steps: Batches released so far.
    """

    def __init__(
        self,
        calibration: Calibration,
        layout: Layout,
        target: Target,
        *,
        noise: str = "fresh",
        seed: int | None = None,
        classes: int | None = None,
        key: Key = None,
        accept_capacity: float | int | None = None,
    ) -> None:
        self.calibration, self.layout, self.target, self.noise = calibration, layout, target, noise
        if classes is not None and classes < 1:
            raise GuaranteeError(f"classes = {classes}: give the number of labels, at least 1, or leave it out")
        self.steps = 0
        self.classes, self._seed, self._key = classes, seed, key
        self._sampler = CentredSampler(calibration.channel, calibration.moments.mean, on_grid=seed is None)
        self._accepted = accept_capacity
        self._own = self._unseen()
        self._ledgers: dict[str, Ledger] = {}
        self._bases: list[tuple[Any, str]] = []
        self._waiting: dict[str, dict[str, Any]] = {}  # states of data that were not protected yet
        self._public: Places | None = None

    @classmethod
    def for_data(
        cls,
        data: Any,
        target: Any,
        *,
        key: Key = None,
        shape: str = "natural",
        weights: Float[np.ndarray, " d"] | None = None,
        noise: str = "fresh",
        seed: int | None = None,
        classes: int | None = None,
        value_range: tuple[float | int, float | int] | None = None,
        accept_capacity: float | int | None = None,
    ) -> ChannelEngine:
        """Engine whose channel is calibrated to public or auxiliary records of the law that the private ones have.

        Args:
            data: Array or tensor of inputs (n, ...), map-style dataset, or loader, whose inputs come in the form,
                units and order of axes that the private ones will have.
            target: ``Capacity``, ``Leakage``, ``Reconstruction`` or ``Naming``; a number is a capacity.
            key: Place of the input in a record: index in a tuple (by default 0), field, or key of a mapping.
            shape: Registered shape of noise, e.g. ``natural``, ``white``, ``rate_distortion``.
            weights: (d,), relative noise variances, for the shape ``personalized``.
            noise: ``fresh`` at each use; or ``frozen``, the same noisy copy of a record each time.
            seed: Of noise that can be repeated, which protects nobody; by default noise is secure.
            classes: Number of labels, which leave without noise, to be counted in :meth:`leakage`.
            value_range: Least and largest value that an input may have; by default half the width of the data more
                than they show on both sides.
            accept_capacity: Nats of all planned uses together that the moments of the private records may give; by
                default up to 25 % more than the calibration's are released, with a warning from 5 %.

        Raises:
            GuaranteeError: If the data are no inputs of one form, or the target cannot be met.
            ValueError: If the shape is unknown, or weights do not fit it.
        """
        asked = as_target(target)
        check_noise(noise)
        looks = asked.looks(noise == "frozen")
        form = SHAPES.get(shape)
        held = None if isinstance(data, Tensor | np.ndarray) else dataset_of(data)
        if held is not None and len(held):
            refuse_random(held, key)
        inputs = gathered(data, key)
        layout = Layout.of(inputs, value_range)
        if len(inputs) < 2:
            raise GuaranteeError("one record has no covariance: give at least two, better ten for each of their values")
        moments = population_moments(inputs.numpy())
        if not moments.total_variance > 0:
            raise GuaranteeError("all calibration records are equal, so there is nothing to hide: give other data")
        spectrum = form.decompose(moments, weights=weights)
        calibration = asked.solve(form, spectrum, moments, looks)
        engine = cls(
            calibration,
            layout,
            asked,
            noise=noise,
            seed=seed,
            classes=classes,
            key=key,
            accept_capacity=accept_capacity,
        )
        engine._public = None if held is None else Places.of(held)
        return engine

    def protect(self, data: Any, *, name: str = "train", key: Key = None, after: After = None) -> Any:
        """The same loader or dataset with noisy inputs.

        Some of the records are read, and their moments compared with those of the calibration before anything is
        released; those of all that pass are compared later (:attr:`own_capacity`). A stop can be seen by others.

        Args:
            data: ``DataLoader`` with automatic batches, with any workers, sampler and ``collate_fn``; or a map-style
                dataset, which then must be read in the process that holds this engine.
            name: Of the records, under which uses are counted and resumed; other records take another name.
            key: Place of the input in a record, if it is another than in the calibration data.
            after: Transform of each noisy input, e.g. normalisation or augmentation: it costs no leakage.

        Returns:
            ``ProtectedLoader`` or ``ProtectedDataset``: inputs are float32 tensors in the units of the data, not
            clipped; all else is as it was.

        Raises:
            GuaranteeError: If the records are not as those of the calibration, are these themselves, are not the same
                at each reading, or have moments under which the channel reveals over 25 % more than promised.
        """
        if isinstance(data, ProtectedLoader | ProtectedDataset):
            raise GuaranteeError("this loader is protected already: protect the one that reads clean records")
        if isinstance(data, DataLoader):
            check_batches(data)
        dataset, place = dataset_of(data), self._key if key is None else key
        if not len(dataset):
            raise GuaranteeError("the loader has no records: give it some")
        places = Places.of(dataset)
        if self._public is not None and self._public.meets(places):
            raise GuaranteeError(
                "the engine was calibrated on records that it shall protect, and the channel tells their mean and "
                "covariance: calibrate on public or auxiliary records"
            )
        self.layout.check(as_tensor(taken(dataset[0], place))[None])
        refuse_random(dataset, place)
        self._compare(dataset, place)
        gate = Gate(self, places, self._registered(places, name), place, after)
        return (
            ProtectedLoader(data, gate, place) if isinstance(data, DataLoader) else ProtectedDataset(data, gate, place)
        )

    def release(
        self,
        ledgers: Sequence[Ledger],
        which: Int[np.ndarray, " batch"],
        records: Int[np.ndarray, " batch"],
        inputs: Tensor,
    ) -> Tensor:
        """Noisy inputs of one batch; loaders call it. Everything is checked before anything is drawn or counted.

        Args:
            ledgers: Counts of the collections that the batch comes from.
            which: Number of the collection, for each input.
            records: Index inside it.
            inputs: (batch, ...), clean.

        Returns:
            (batch, ...), float32.

        Raises:
            BudgetError: If a record has no uses left.
            GuaranteeError: If an input has another form than calibrated for, or other values than before, or the inputs
                so far have moments under which the channel reveals over 25 % more than promised.
        """
        if any(self._ledgers.get(ledger.name) is not ledger for ledger in ledgers):
            raise GuaranteeError("the loader was protected before take_up, for another client: protect it again")
        self.layout.check(inputs)
        flat = inputs.reshape(len(inputs), -1).double()
        self.calibration.check_directions(flat.numpy())
        groups = [(ledger, np.flatnonzero(which == number)) for number, ledger in enumerate(ledgers)]
        groups = [(ledger, rows) for ledger, rows in groups if len(rows)]
        most = self.target.uses if self.noise == "fresh" else None
        uses = [ledger.numbers(records[rows], most) for ledger, rows in groups]
        new = [rows[ledger.uses[records[rows]] == 0] for ledger, rows in groups]
        self._own.show(flat.numpy()[np.concatenate(new)])
        for ledger, rows in groups:
            ledger.check_same(records[rows], inputs[torch.from_numpy(rows)])
        released = torch.empty(flat.shape)
        for (ledger, rows), numbers in zip(groups, uses, strict=True):
            at = torch.from_numpy(rows)
            released[at] = self._drawn(ledger, records[rows], numbers, flat[at])
            ledger.count(records[rows])
        self.steps += 1
        return released.reshape(inputs.shape)

    @property
    def own_capacity(self) -> OwnCapacity | None:
        """Nats of all planned uses by the moments of the private records; None before some were read.

        Beside the promised ones; a statistic of these records, to be kept by their owner.
        """
        return self._own.capacity

    def accountant(self) -> LeakageAccountant:
        """Accountant of all uses so far, to which uses of other channels can be added."""
        uses = list(self.uses.values()) or [np.zeros(1, np.int64)]
        found = LeakageAccountant(self.calibration.moments, sum(map(len, uses)))
        if self.classes is not None:
            found.add_labels(self.classes)
        channel, ratios = self.calibration.channel, self.calibration.ratios
        return found.add(channel, np.concatenate(uses), noise=self.noise, steps=self.steps, ratios=ratios)

    def leakage(self) -> Account:
        """All that has leaked so far, at most: of the record that tells most, on average, and of all together."""
        return self.accountant().account()

    @property
    def uses(self) -> dict[str, Int[np.ndarray, " records"]]:
        """Releases of each record so far, by the name of the data."""
        resumed = {name: state["uses"].numpy().copy() for name, state in self._waiting.items()}
        return {**resumed, **{name: ledger.uses.copy() for name, ledger in self._ledgers.items()}}

    @property
    def secure(self) -> bool:
        """True if no seed repeats the noise."""
        return self._seed is None

    @property
    def remaining(self) -> int | None:
        """Uses that the most used record has left; None if they are not limited."""
        if self.noise == "frozen" or self.target.uses is None:
            return None
        return self.target.uses - max((int(uses.max()) for uses in self.uses.values()), default=0)

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors to go on from, beside the weights of a checkpoint; no clean record is in it."""
        waiting = {name: state for name, state in self._waiting.items() if name not in self._ledgers}
        return {
            "version": _VERSION,
            "law": self._law(),
            "steps": self.steps,
            "ledgers": {**waiting, **{name: ledger.state() for name, ledger in self._ledgers.items()}},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, before or after the loaders were protected.

        Raises:
            GuaranteeError: If the state is of another form, channel or noise, of other data, or forgets uses with noise
                that no seed repeats.
        """
        law, own = state.get("law"), self._law()
        alike = isinstance(law, Mapping) and state.get("version") == _VERSION and law.keys() == own.keys()
        for name in own if alike else ():
            value, mine = law[name], own[name]  # type: ignore[index]
            close = isinstance(mine, float) and isinstance(value, float) and math.isclose(value, mine, rel_tol=1e-6)
            alike = alike and (close or value == mine)
        if not alike:
            raise GuaranteeError(
                f"the state is of an engine with {law}, this one has {own}: calibrate as that one was, on the same data"
            )
        try:  # tensors of a checkpoint that was loaded onto a GPU are there
            ledgers = {
                name: {part: kept[part].cpu() for part in ("uses", *kept)} for name, kept in state["ledgers"].items()
            }
            steps = int(state["steps"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise GuaranteeError("the state is not as state_dict() gave it: go on from a whole checkpoint") from error
        for name, ledger in self._ledgers.items():
            self._check_state(ledger, ledgers.get(name))
        self.steps, self._waiting = steps, ledgers
        for name, ledger in self._ledgers.items():
            ledger.restore(self._waiting[name])

    def take_up(self, state: Mapping[str, Any] | None) -> None:
        """Count for another client of this process from now on; loaders have to be protected anew.

        Args:
            state: :meth:`state_dict` of the engine as that client left it; None for a client without any uses.

        Raises:
            GuaranteeError: If the state is of another channel or noise.
        """
        self.steps, self._ledgers, self._bases, self._waiting = 0, {}, [], {}
        self._own = self._unseen()
        if state is not None:
            self.load_state_dict(state)

    def describe(self) -> str:
        """The guarantee in words: target, channel, what an attacker gets at most, and what is assumed."""
        return describe(self)

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        channel = self.calibration.channel
        return (
            f"ChannelEngine({self.target!r}, shape={channel.shape!r}, noise={self.noise!r}, inputs={self.layout.shape})"
        )

    def _drawn(
        self,
        ledger: Ledger,
        records: Int[np.ndarray, " rows"],
        uses: Int[np.ndarray, " rows"],
        clean: Float[Tensor, "rows d"],
    ) -> Float[Tensor, "rows d"]:
        """Noisy inputs of one collection."""
        if self._seed is not None:
            numbers = uses if self.noise == "fresh" else np.zeros_like(uses)
            return self._sampler.apply(clean, RecordNoise(self._seed, ledger.name, records, numbers)).float()
        source: NoiseSource = SecureNoise()
        if self.noise == "fresh":
            return self._sampler.apply(clean, source).float()
        new = ledger.unseen(records)
        if len(new):
            ledger.keep(records[new], self._sampler.apply(clean[torch.from_numpy(new)], source).float())
        return ledger.frozen(records)

    def _unseen(self) -> OwnMoments:
        """Comparison for records that have not been seen."""
        looks = self.target.looks(self.noise == "frozen")
        return OwnMoments(self.calibration, looks, self._accepted)

    def _compare(self, dataset: Any, key: Key) -> None:
        """Compare the moments of some records with the calibration's, before the first release."""
        count = len(dataset)
        chosen = np.random.default_rng().choice(count, min(_READ, count), replace=False)
        inputs = [as_tensor(taken(dataset[int(index)], key)) for index in chosen]
        # What has another form, or values out of range, is refused when it shall be released.
        fitting = [one.double().flatten().numpy() for one in inputs if self.layout.fits(one[None])]
        if fitting:
            self.calibration.check_directions(np.stack(fitting))
            self._own.check(np.stack(fitting))

    def _registered(self, places: Places, name: str) -> tuple[Ledger, ...]:
        """Ledgers of the collections of a dataset; those that are known keep theirs."""
        found = []
        for number, base in enumerate(places.bases):
            known = next((own for held, own in self._bases if held is base), None)
            own = known or (name if len(places.bases) == 1 else f"{name}.{number}")
            if known is None:
                if own in self._ledgers:
                    raise GuaranteeError(
                        f"name = {own!r}: another dataset is counted under it, so protect once, before the loop, or "
                        "give other records another name"
                    )
                ledger = Ledger(own, len(base))
                if own in self._waiting:
                    self._check_state(ledger, self._waiting[own])
                    ledger.restore(self._waiting[own])
                self._ledgers[own] = ledger
                self._bases.append((base, own))
            found.append(self._ledgers[own])
        return tuple(found)

    def _law(self) -> dict[str, Any]:
        """Facts that a state and an engine must share."""
        channel = self.calibration.channel
        return {
            "shape": channel.shape,
            "nats": float(self.calibration.information(1)),
            "power": channel.noise_power,
            "noise": self.noise,
            "seed": self._seed,
            "inputs": list(self.layout.shape),
        }

    def _check_state(self, ledger: Ledger, state: Mapping[str, Any] | None) -> None:
        """Refuse the state of other data, or one that forgets looks which nobody can repeat."""
        uses = None if state is None else state["uses"].numpy()
        if uses is None or len(uses) != len(ledger.uses):
            held = "no records" if uses is None else f"{len(uses)} records"
            raise GuaranteeError(
                f"the state has {held} under the name {ledger.name!r}, here are {len(ledger.uses)}: protect the same "
                "data under the same names"
            )
        most = 1 if self.noise == "frozen" else np.iinfo(np.int64).max
        if self.secure and np.any(np.minimum(uses, most) < np.minimum(ledger.uses, most)):
            raise GuaranteeError(
                f"the state forgets uses of {ledger.name!r} that this engine has released with noise that nobody can "
                "repeat: load it into a new engine, and save it after each release"
            )
