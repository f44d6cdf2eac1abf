"""A channel around a training loop: calibrated to a target, counted by record, and stopped in time."""

from __future__ import annotations

import datetime
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.utils.data import DataLoader

from leakbound import __version__
from leakbound.accounting.sheet import Release, StatedData, sheet
from leakbound.accounting.statement import EARLIER_SEEDS, EQUAL_RECORDS, OWN_NOISE
from leakbound.channels.observed import OwnCapacity
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.channels.shapes import shape_named
from leakbound.engine import saved
from leakbound.engine.accountant import (
    Account,
    LeakageAccountant,
    assumptions,
    check_noise,
    facts_of,
    guarantee,
)
from leakbound.engine.calibrations import (
    Calibration,
    OwnMoments,
    Progress,
    warn_of_owners,
    warn_of_records,
    warn_of_samples,
)
from leakbound.engine.counted_records import CountedRecords, parse_state
from leakbound.engine.counting import Counter
from leakbound.engine.identity import Identity, LabelCount, PublicRecords
from leakbound.engine.ledger import Ledger
from leakbound.engine.records import (
    Key,
    Layout,
    Places,
    dataset_of,
    input_of,
    read_inputs,
    refuse_random,
    with_input,
)
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.release import (
    BatchNoise,
    ProtectedDataset,
    ProtectedLoader,
    gather_over_ranks,
    in_ranks,
)
from leakbound.engine.sheets import SEES, check_sheet, digest, today, write_sheet
from leakbound.engine.targets import Target, as_target

_COMPARED = 256  # records of a dataset that an evaluation reads


class ChannelEngine:
    """Add calibrated noise to records before a training sees them, and account for what they leak.

    Make it by :meth:`for_data`. ``print(engine)`` says what it guarantees, and under which assumptions.

    Attributes:
        calibration: The channel and the moments that it was calibrated to.
        target: Limit that it meets.
        layout: Form of an input.
        steps: Batches released so far.
        calibrate_to_own: Whether it may protect the records that it was calibrated to.
        labels: Labels, as they are counted and released.
        provenance: When, from how many records and with which versions a loaded engine was made, else None.

    Example:
        >>> public, private = np.random.default_rng(0).normal(size=(2, 500, 4))
        >>> engine = ChannelEngine.for_data(public, 3.0)
        >>> for batch in engine.protect(DataLoader(torch.from_numpy(private), batch_size=50)):
        ...     pass  # train as before
        >>> round(engine.leakage().record, 6)
        3.0
    """

    def __init__(
        self,
        calibration: Calibration,
        layout: Layout,
        target: Target,
        identity: Identity,
        ledger: Ledger,
        labels: LabelCount,
        accept_capacity: float | int | None,
        *,
        noise: str,
        seed: int | None,
        key: Key,
        public: Collection[bytes] | None,
    ) -> None:
        self.calibration = calibration
        self.layout = layout
        self.target = target
        self.steps = 0
        self._seed = seed
        self._key = key
        self.labels = labels
        frozen = noise == "frozen"
        self._batch_noise = BatchNoise(calibration.channel, calibration.moments.mean, noise, seed)
        draws = self._batch_noise.name
        self._own = OwnMoments(calibration, target.fresh_uses(frozen), accept_capacity)
        self._near = ledger.near_copies(calibration.moments, private=public is None)
        most = target.uses or (1 if frozen and target.needs_uses else None)
        plan = target.plan(calibration, most, accept_capacity, frozen=frozen, draws=draws)
        repeated = {} if draws is None else {"draws": draws}
        inputs = list(layout.shape)
        self._facts = facts_of(
            calibration, labels.response, noise=noise, seed=seed, inputs=inputs, **repeated
        )
        facts = {**self._facts, "planned uses": most, "records": target.records, "classes": labels.classes}
        self._counter = Counter(plan, facts, identity, ledger, labels)
        self._public = PublicRecords(public or (), "calibrate_to_own=True")
        self.calibrate_to_own = public is None
        self.provenance: Mapping[str, Any] | None = None

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
        labels: RandomizedResponse | None = None,
        value_range: tuple[float | int, float | int] | None = None,
        accept_capacity: float | int | None = None,
        ledger: str | Path | Ledger | None = None,
        calibrate_to_own: bool = False,
        cache: bool | str | Path = False,
        progress: bool | None = None,
    ) -> ChannelEngine:
        """Calibrate an engine to public or auxiliary records from the distribution of the private ones.

        Args:
            data: Array or tensor of inputs (n, ...), map-style dataset, or loader, whose inputs come in the
                form, units and order of axes that the private ones will have.
            target: ``Capacity``, ``Leakage``, ``Reconstruction`` or ``Identification``, or nats of a use.
            key: Place of the input in a record: index in a tuple (by default 0), field, or key of a mapping.
            shape: Registered shape of noise, e.g. ``natural``, ``white``, ``rate_distortion``.
            weights: (d,), relative noise variances, for the shape ``personalized``.
            noise: ``fresh`` noise at each use, or ``frozen``: the same noisy copy of a record each time.
            seed: Seed for reproducible noise, which gives no protection. Default: secure noise.
            classes: Number of labels, which are released without noise. Without it they are not counted.
            labels: Randomized response that labels pass, once for each record, instead of ``classes``.
            value_range: Least and largest value of inputs. Default: the data's, and half their range beyond.
            accept_capacity: Nats that the private records' own moments may give. Default: a quarter more.
            ledger: File in which all runs, processes and engines that name it count uses together. It is made
                once, by ``leakbound ledger new PATH`` or ``Ledger.create(PATH)``, and holds a key, so its owner
                alone may read it. Default: one in memory, which a :class:`leakbound.Ledger` can be, too.
            calibrate_to_own: Allow to protect these very records. The channel is an uncounted statistic then.
            cache: Folder in which calibrations are kept and found again. True for that of your account.
            progress: Whether progress is shown. By default for records of 500 values and more.

        Raises:
            GuaranteeError: If the data have several forms, or target or ledger cannot be used.
            ValueError: If the shape is unknown, or weights do not fit it.
        """
        limit = as_target(target)
        folder = saved.cache_folder(cache, calibrate_to_own)
        check_noise(noise)
        uses = limit.fresh_uses(noise == "frozen")
        shape_named(shape)  # or it is unknown
        label_count = LabelCount(classes, labels)
        if not isinstance(data, Tensor | np.ndarray) and len(dataset := dataset_of(data)):
            refuse_random(dataset, key)
        inputs = read_inputs(data, key)
        layout = Layout.of(inputs, value_range)
        if len(inputs) < 2:
            raise GuaranteeError(
                "one record has no covariance: give at least two, better ten for each of their values"
            )
        identity = Identity.new(inputs, seed)
        counted = Ledger.at(ledger, identity.key)
        identity = Identity(counted.key, counted.double(inputs[0].numel(), identity.double))
        bar = Progress(len(inputs), inputs[0].numel(), progress)
        calibration = saved.calibrate_or_load(limit, inputs.numpy(), shape, weights, uses, folder, bar)
        warn_of_records(inputs.numpy(), calibration)
        public = None if calibrate_to_own else identity.contents(inputs)
        options: dict[str, Any] = {"noise": noise, "seed": seed, "key": key, "public": public}
        engine = cls(calibration, layout, limit, identity, counted, label_count, accept_capacity, **options)
        if public is not None:
            engine._near.add_public(inputs.reshape(len(inputs), -1).numpy(), public)
        return engine

    def save(self, path: str | Path) -> None:
        """Write the calibrated channel to one file, from which :meth:`load` makes this engine without the records.

        The file states shape, target, layout, classes, seed, versions and time. Uses are not in it. They lie
        in the ledger, or in :meth:`state_dict`. The file appears whole or not at all, with mode 0600, and
        replaces an older one.

        Args:
            path: File to write, e.g. ``engine.safetensors``.

        Raises:
            GuaranteeError: If the channel is a statistic of the private records, if the target is of a class
                of your own, or if records were released and no ledger counts them.

        Example:
            >>> ChannelEngine.for_data(public, Leakage(60, uses=10)).save("engine.safetensors")  # doctest: +SKIP
        """
        if self.calibrate_to_own:
            raise GuaranteeError(
                "the engine was calibrated to the records that it protects, and a file would hold their mean and "
                "covariance: calibrate to public records to save it"
            )
        if self.ledger is None and not self._counter.pristine:
            raise GuaranteeError(
                "the engine has released records, and one that is loaded would count from zero: save it before the "
                "first release and its state_dict() with each checkpoint, or give for_data a ledger"
            )
        facts = {
            "target": saved.target_facts(self.target),
            "noise": self.noise,
            "seed": self._seed,
            "classes": self.labels.classes,
            "labels": None if self.labels.response is None else asdict(self.labels.response),
            "key": self._key,
            "layout": asdict(self.layout),
            "double": self._counter.identity.double,
            "ledger": None if self.ledger is None else self._counter.identity.name,
        }
        saved.write_calibration(
            Path(path), self.calibration, saved.ENGINE, facts, [*self._public.counts.elements()]
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        ledger: str | Path | Ledger | None = None,
        state: Mapping[str, Any] | None = None,
        accept_capacity: float | int | None = None,
    ) -> ChannelEngine:
        """Make an engine from a file of :meth:`save`, without calibration or public records.

        Counts do not come from the file, so that loading it twice gives no second budget unnoticed. An engine
        that had a ledger needs the same ledger. Any other warns that it counts from zero unless it gets a
        ledger, or the state to resume from.

        Args:
            path: File of an engine.
            ledger: File in which uses of records are counted for all runs, as in :meth:`for_data`.
            state: :meth:`state_dict` to resume from.
            accept_capacity: As in :meth:`for_data`. It is yours to decide, so it is not in the file.

        Returns:
            The engine, whose ``provenance`` says when, from how many records and with which versions it was
            made.

        Raises:
            GuaranteeError: If the file is missing, damaged, changed or of something else, its channel does
                not meet its target, or the ledger is not the one that the engine counted in.

        Example:
            >>> engine = ChannelEngine.load("engine.safetensors", ledger="uses.ledger")  # doctest: +SKIP
        """
        path = Path(path)
        calibration, facts, public, provenance = saved.read_calibration(path, saved.ENGINE)
        try:
            arguments = dict(facts["target"])
            target = saved.TARGETS[arguments.pop("class")](**arguments)
            layout = Layout(**facts["layout"] | {"shape": tuple(facts["layout"]["shape"])})
            seed = facts["seed"]
            identity = Identity.generate(facts["double"], seed)
            uses = target.fresh_uses(facts["noise"] == "frozen")
            options = {name: facts[name] for name in ("noise", "seed", "key")}
            response = facts.get("labels")  # files of earlier versions lack it
            labels = LabelCount(facts["classes"], response and RandomizedResponse(**response))
            counted_in = facts["ledger"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise GuaranteeError(
                f"{path}: its facts are not those of an engine ({error}): save it again"
            ) from error
        if math.prod(layout.shape) != calibration.channel.dimension:
            raise GuaranteeError(
                f"{path}: layout and channel differ in size, so it was changed: save it again"
            )
        if target.excess(calibration, uses) > saved.ROUNDING:
            raise GuaranteeError(
                f"{path}: the channel does not meet {target}, so the file was changed: save it again"
            )
        counted = saved.ledger_of(path, counted_in, ledger, identity)
        identity = Identity(counted.key, counted.double(math.prod(layout.shape), identity.double))
        engine = cls(
            calibration, layout, target, identity, counted, labels, accept_capacity, public=public, **options
        )
        engine.provenance = provenance
        if state is not None:
            engine.load_state_dict(state)
        elif counted.path is None and seed is None and not counted.counted:
            warnings.warn(
                f"{path}: the loaded engine counts from zero, whatever other runs have released: give load ledger=PATH "
                "or state=CHECKPOINT",
                saved.UncountedWarning,
                stacklevel=2,
            )
        return engine

    def protect(
        self,
        data: Any,
        *,
        name: str = "train",
        key: Key = None,
        after: Callable[[Tensor], Any] | None = None,
        uncounted: Collection[str | int] = (),
        owner: Sequence[Any] | np.ndarray | None = None,
    ) -> Any:
        """Return the same loader or dataset with noisy inputs.

        Some records are read first, for their moments. Others can see whether this stops a training.

        Args:
            data: ``DataLoader`` with automatic batches, with any workers, sampler and ``collate_fn``, or a
                map-style dataset, which then must be read in the process that holds this engine.
            name: Name of the records, by which uses are counted and resumed. Others take another name.
            key: Place of the input in a record, if it is another than in the calibration data.
            after: Transform of each noisy input, e.g. normalisation or augmentation: it costs no leakage.
            uncounted: Places of a record to release as they are and uncounted, e.g. ``[2]`` or ``["boxes"]``.
            owner: Names or numbers of whom each record of the dataset is about, in its order, e.g.
                ``frame["patient"]``. What all records of an owner reveal is then added up and limited together,
                whatever columns, scales, crops or windows of it they are. Only digests of them are kept.

        Returns:
            ``ProtectedLoader`` or ``ProtectedDataset``, with float32 inputs in the data's units, not clipped.

        Raises:
            GuaranteeError: If the records are not as those of the calibration, are these themselves, are not
                the same at each reading, hold more than input and labels, lack some of a loaded state, or
                reveal too much.
        """
        if isinstance(data, ProtectedLoader | ProtectedDataset):
            raise GuaranteeError("this loader is protected already: protect the one that reads clean records")
        if isinstance(data, DataLoader) and data.batch_sampler is None:
            raise GuaranteeError("batch_size=None: let the DataLoader make batches to count uses by record")
        dataset = dataset_of(data)
        place = self._key if key is None else key
        if not len(dataset):
            raise GuaranteeError("the loader has no records: give it some")
        places = Places.of(dataset)
        first = dataset[0]
        self._check_inputs(input_of(first, place)[None])
        records = sum(map(len, places.bases))
        (labels,) = self.labels.check([with_input(first, place, None)], uncounted, records)
        owners = None if owner is None else self._owners(owner, places)
        refuse_random(dataset, place)
        read = self._own.check_dataset(
            len(dataset), lambda index: input_of(dataset[index], place), self.layout.fits
        )
        self._check_sample(read)
        collections = self._register(places, name, place)
        release = partial(
            self._release_batch, places, collections, place, after, tuple(uncounted), len(labels), owners
        )
        if (
            isinstance(data, DataLoader)
            and self._counter.plan.most is not None
            and not self._counter.plan.frozen
        ):
            warn_of_samples(data.batch_sampler, len(dataset), self._counter.plan.most)
        if not isinstance(data, DataLoader):
            return ProtectedDataset(data, release, place, self)
        return ProtectedLoader(data, release, place, self.end_epoch)

    def protects(self, loader: Any) -> bool:
        """Return whether :meth:`protect` returned a loader or dataset, or all of a mapping or list of them."""
        if isinstance(loader, Mapping):
            loader = [*loader.values()]
        if isinstance(loader, list | tuple):
            return len(loader) > 0 and all(map(self.protects, loader))
        if isinstance(loader, ProtectedDataset):
            return loader.engine is self
        return isinstance(loader, ProtectedLoader) and loader.end == self.end_epoch

    def count_recognised(self, dataset: Any, key: Key = None) -> int:
        """Count the records of a dataset that this engine protects or has counted, among at most 256 of it.

        They are compared by their values, and by their places in a dataset that is protected. A stream, and
        records of another form, are not compared.

        Args:
            dataset: Map-style dataset of clean records.
            key: Place of the input in a record, if it is another than in the calibration data.
        """
        try:
            count = len(dataset_of(dataset))
        except GuaranteeError:
            return 0
        places = Places.of(dataset)
        place = self._key if key is None else key
        sample = np.random.default_rng().permutation(count)[:_COMPARED]
        counted = np.zeros(len(sample), bool)
        # By their places in datasets that are protected.
        for number, base in enumerate(places.bases):
            records = self._counter.collections.values()
            protected = next((each.in_loader for each in records if each.base and each.base[0] is base), None)
            if protected is not None:
                here = np.flatnonzero(places.which[sample] == number)
                counted[here] = protected[places.records[sample[here]]]
        # By their values.
        for at in np.flatnonzero(~counted):
            try:
                values = input_of(dataset[int(sample[at])], place)[None]
            except (GuaranteeError, TypeError):
                continue
            if self.layout.fits(values):
                counted[at] = self._counter.any_released(self._counter.identity.contents(values))
        return int(counted.sum())

    def _release_batch(
        self,
        places: Places,
        collections: Sequence[CountedRecords],
        key: Key,
        after: Callable[[Tensor], Any] | None,
        uncounted: Collection[str | int],
        labels: int,
        owners: list[Any] | None,
        positions: list[int],
        inputs: Tensor | list[Tensor],
        rests: list[Any],
    ) -> list[Any]:
        """Count the uses of a batch, add noise to its inputs, and respond to its labels.

        All is checked before anything is drawn or counted. Where torch.distributed runs, all ranks call it
        together, and all refuse if one does.

        Args:
            places: Origins of the dataset's records.
            collections: Records of each of its collections.
            key: Place of the input in a record.
            after: Transform of each noisy input.
            uncounted: Places of a record that are released as they are.
            labels: Number of labels of each record.
            owners: Owner of each record of the dataset.
            positions: Places of the records in the dataset.
            inputs: Clean inputs, one tensor (batch, ...) if they are of one form.
            rests: Records without their inputs.
        """
        if not positions:  # a Poisson sample may be empty
            inputs = torch.zeros(0, *self.layout.shape)
        if not isinstance(inputs, Tensor):  # they are not of one form
            for single in inputs:
                self.layout.check(single[None])
            inputs = torch.stack(inputs)
        clean = inputs
        at = np.asarray(positions, np.int64)
        counter = self._counter
        labels_of: list[list[int]] = []
        unkeyed: list[bytes] = []

        def contents() -> tuple[list[bytes], list[list[int]], list[tuple[bytes, ...]]]:
            nonlocal labels_of, unkeyed
            if not positions:
                return [], [], []
            labels_of = self.labels.check(rests, uncounted)
            if self.labels.classes is not None and {*map(len, labels_of)} != {labels}:
                raise GuaranteeError(
                    f"records have {labels} and other numbers of labels, and where one is missing reveals "
                    "more than classes counts: give missing labels a class of their own"
                )
            if any(counter.collections.get(each.name) is not each for each in collections):
                raise GuaranteeError(
                    "the loader was protected before take_up, for another client: protect it again"
                )
            unkeyed = self._check_inputs(clean, positions)
            self.labels.check_same(unkeyed, labels_of)
            rows = clean.reshape(len(clean), -1).numpy()
            self._own.add(rows, unkeyed)
            return unkeyed, labels_of, self._near.new_cells(rows, unkeyed)

        whose = None if owners is None else [owners[position] for position in positions]
        with counter.turn():
            batch = counter.count(
                collections,
                places.which[at],
                places.records[at],
                contents,
                owners=whose,
                extra=len(uncounted) > 0,
            )
            self._near.note(unkeyed)
            flat = clean.reshape(len(clean), 1, 1, self.calibration.channel.dimension)
            noisy = self._batch_noise.apply(flat, batch, counter.copies).reshape(clean.shape)
            digests = batch.digests[batch.of_rank]
            answered = self.labels.responses(rests, labels_of, digests, counter.identity, uncounted)
            self.steps += 1
        values = noisy if after is None else map(after, noisy)
        return [with_input(rest, key, value) for rest, value in zip(answered, values, strict=True)]

    def count_labels(self, inputs: Tensor, labels: Sequence[int]) -> None:
        """Count labels that are released with inputs of which no other noisy copy is made.

        Labels that a protected loader returns are counted there. Equal records with different labels, of which one
        copy is released, need this after that release. Where torch.distributed runs, all ranks call it together,
        with their own inputs or none.

        Args:
            inputs: (n, ...), clean, each equal to a record that was released.
            labels: Label of each, from 0 to ``classes`` - 1.

        Raises:
            GuaranteeError: If inputs or labels are none that this engine is for or that it has released, or if
                labels pass a randomized response, which covers one label of a record.
        """
        if self.labels.response is not None:
            raise GuaranteeError(
                "labels pass a randomized response, which covers one label of a record, and others would be released "
                "as they are: keep one of equal records, or leave labels=RandomizedResponse out"
            )
        none = np.zeros(0, np.int64)

        def labelled() -> list[tuple[bytes, list[int]]]:
            if len(labels) != len(inputs):
                raise GuaranteeError(f"{len(labels)} labels of {len(inputs)} inputs: give one of each")
            if not len(labels):
                return []
            listed = self.labels.check([{"label": label} for label in labels], ())
            return list(zip(self._check_inputs(inputs), listed, strict=True))

        with self._counter.turn():
            self._counter.count((), none, none, lambda: ([], [], []), labelled=labelled)

    def end_epoch(self) -> None:
        """Take part in the batches of other ranks until theirs end too, then compare moments.

        Raises:
            GuaranteeError: If a batch of another rank is refused, or all records so far reveal over 25 % more
                than promised.
        """
        none = np.zeros(0, np.int64)
        done = not in_ranks()
        clean = torch.zeros(0, 1, 1, self.calibration.channel.dimension)
        while not done:
            with self._counter.turn():
                batch = self._counter.count((), none, none, lambda: ([], [], []), done=True)
                self._batch_noise.apply(clean, batch, self._counter.copies)
                done = batch.done
                self.steps += not done
        gather_over_ranks(self._own.compare_epoch)

    @property
    def own_capacity(self) -> OwnCapacity | None:
        """Nats by the moments of the private records, None before some were read. Keep it private."""
        return self._own.capacity

    def accountant(self) -> LeakageAccountant:
        """Make an accountant of all uses so far, to which uses of other channels can be added."""
        uses, fresh_uses, others, labels, distinct, groups = self._counter.columns()
        seeded, unknown = self._counter.seeded()
        calibration = self.calibration
        accountant = LeakageAccountant(
            calibration.moments,
            len(uses),
            distinct=distinct,
            uncovered=(
                *((OWN_NOISE,) if self.calibrate_to_own else ()),
                *((EQUAL_RECORDS,) if self._counter.shows_equal else ()),
                *((EARLIER_SEEDS,) if unknown else ()),
                *self._counter.ledger.uncovered(),
            ),
            secure=self.secure and not seeded,
        )
        if np.isfinite(labels).all() and (self.labels.nats is not None or labels.any()):
            accountant.add_labels(nats=labels)
        accountant.add(
            calibration.channel, uses, fresh_uses=fresh_uses, steps=self.steps, ratios=calibration.ratios
        )
        owned = distinct.any() and groups[distinct].all()
        return accountant.add_nats(others).of_owners(groups, int(groups.max()) if owned else None)

    def leakage(self) -> Account:
        """Account for all that has leaked so far, as upper bounds."""
        return self.accountant().account()

    @property
    def uses(self) -> dict[str, Int[np.ndarray, " records"]]:
        """Releases of each record so far, by the name of the data."""
        return self._counter.uses()

    @property
    def released_uncounted_labels(self) -> bool:
        """True if a label of its records was released uncounted, by this run or another of its ledger."""
        return bool(np.isinf(self._counter.columns()[3]).any())

    @property
    def public_records_repeat(self) -> bool:
        """True if many calibration records are equal by nature, so that private ones may equal some by chance."""
        return self._public.repetitive

    def nats(self, uses: int) -> float:
        """Bound the nats that uses with independent noise reveal of a record, as they are counted."""
        return self._counter.plan.mechanism.nats(uses)

    @property
    def noise(self) -> str:
        """``fresh`` at each use, or ``frozen``: one noisy copy of each record."""
        return "frozen" if self._counter.plan.frozen else "fresh"

    @property
    def secure(self) -> bool:
        """True if no seed repeats the noise of this engine. For all uses in its ledger, see :meth:`leakage`."""
        return self._seed is None

    def write_statement(
        self,
        path: str | Path,
        *,
        data: str | Path,
        release: str = "all that is computed from the noisy records",
        sees: Sequence[tuple[str, str]] = SEES,
        date: datetime.date | None = None,
    ) -> dict[str, Any]:
        """Write what the release reveals on one page of A4 to sign, and the same as JSON next to it.

        Args:
            path: The page, a new file ``.html``. Only you can read it, since a digest identifies the data
                among candidates.
            data: File or folder of the records, whose digest the page then has, or their name.
            release: What is given away.
            sees: Who, and what they see, in pairs.
            date: Date of the statement. Default: today, UTC.

        Returns:
            The values of the page (:func:`leakbound.accounting.sheet.sheet`).

        Raises:
            GuaranteeError: If nothing was released yet, or the file is there already.
        """
        page = Path(path)
        check_sheet(page)
        account = self.leakage()
        if not account.uses:
            raise GuaranteeError(f"{page}: nothing was released yet, so there is nothing to state")
        digits, of = digest(Path(data)) if Path(data).exists() else (None, "")
        facts = sheet(
            {release: account.statement()},
            StatedData(str(data), *self._counter.released(), digits, of),
            Release(release, sees=sees, limit=str(self.target)),
            version=__version__,
            date=date or today(),
            assumptions=[*assumptions(self)],
        )
        write_sheet(page, facts)
        return facts

    def counts(self) -> str:
        """Say since when its ledger counts, in how many runs, and how many records."""
        return self._counter.ledger.about()

    @property
    def ledger(self) -> Path | None:
        """File that counts for all runs."""
        return self._counter.ledger.path

    @property
    def remaining(self) -> int | None:
        """Uses that the most used record has left, None without a limit."""
        return self._counter.uses_left()

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors to resume from, for a checkpoint.

        It holds no clean record. It holds a keyed digest and the uses of each, and its noisy copy if secure
        noise is frozen. The key of the digests is sealed by that of your account,
        ``~/.config/leakbound/record.key`` or the file that ``LEAKBOUND_KEY`` names. With a ledger the key is
        in that file alone.

        Raises:
            GuaranteeError: If the key of your account can be neither read nor made.
        """
        with self._counter.turn():
            return {"law": self._facts, "steps": self.steps, **self._counter.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state_dict`, before or after loaders are protected, with records in any order.

        Uses that the state does not know stay counted. Those whose noise a seed repeats are taken back, unless a
        ledger on disk counts them.
        All records of a collection that the state has counted are read once, to find those in it.

        Raises:
            GuaranteeError: If the state is of another form, channel or noise, or of other data or another run.
        """
        self._resume(state, adds=False)

    def take_up(self, state: Mapping[str, Any] | None) -> None:
        """Count for another client of this process from now on. Loaders have to be protected again.

        Uses that this process has counted of a record stay with it, whatever client holds it and whatever the
        state says. A copy in another process counts by the states alone: where one may be lost, give a ledger.

        Args:
            state: :meth:`state_dict` of the engine as that client left it. None for a client without any
                uses.

        Raises:
            GuaranteeError: If the state is of another channel or noise.
        """
        self._counter.adopt()
        self.steps = 0
        self._own.forget()
        self._near.forget()
        if state is not None:
            self._resume(state, adds=True)

    def __str__(self) -> str:
        """Describe the guarantee: target, channel, what an attacker gets at most, and what is assumed."""
        return guarantee(self)

    def __repr__(self) -> str:
        shape = f"shape={self.calibration.channel.shape!r}, noise={self.noise!r}"
        return f"ChannelEngine({self.target!r}, {shape}, inputs={self.layout.shape})"

    def _check_inputs(self, inputs: Tensor, positions: Sequence[int] | None = None) -> list[bytes]:
        """Return the digests of inputs without a key, or refuse inputs that the channel is not for.

        Args:
            inputs: (n, ...).
            positions: Places of the records in their dataset. None if these are all of it.
        """
        self.layout.check(inputs)
        self.calibration.check_directions(inputs.reshape(len(inputs), -1).numpy())
        contents = self._counter.identity.contents(inputs)
        self._public.refuse_one(contents, positions)
        return contents

    def _check_sample(self, read: Mapping[int, Num[np.ndarray, " d"]]) -> None:
        """Refuse records that are public ones, by a random sample of a dataset, where some of it are equal.

        Of different records it is not clear whether others have the same values by chance, or copies were left out.

        Args:
            read: Records by their places.
        """
        contents = (
            self._counter.identity.contents(torch.from_numpy(np.stack([*read.values()]))) if read else []
        )
        if len({*contents}) < len(contents):
            self._public.refuse_many(contents, [*read])

    def _owners(self, owner: Sequence[Any] | np.ndarray, places: Places) -> list[Any]:
        """Return the owner of each record of a dataset. Warn of owners with more records than the plan is for.

        Raises:
            GuaranteeError: If there is not one for each, or one is missing.
        """
        count = len(places.records)
        if not isinstance(owner, str | bytes) and np.ndim(owner) > 1:
            raise GuaranteeError(
                f"owner of the shape {np.shape(owner)}: give one name or number for each of the {count} records of the "
                "dataset"
            )
        if isinstance(owner, str | bytes) or len(owner) != count:
            raise GuaranteeError(
                f"owner of {len(owner)} entries: give one for each of the {count} records of the dataset, in its order"
            )
        owners = np.asarray(owner).tolist()
        words = self._counter.identity.owners(owners)
        once = np.unique(np.stack([words, places.which, places.records]), axis=1)[0]
        warn_of_owners(once, self._counter.plan)
        return owners

    def _register(self, places: Places, name: str, key: Key) -> tuple[CountedRecords, ...]:
        """Return the records of each of a dataset's collections, the same ones where it was registered before."""
        registered = []
        for number, base in enumerate(places.bases):
            full_name = name if len(places.bases) == 1 else f"{name}.{number}"
            records = self._counter.register(full_name, base, key)
            records.in_loader[places.records[places.which == number]] = True
            registered.append(records)
        return tuple(registered)

    def _resume(self, state: Mapping[str, Any], *, adds: bool) -> None:
        """Resume from a state, with ``adds`` as in :meth:`Counter.load`."""
        copied = self.noise == "frozen" and self.secure
        key, steps, collections = parse_state(state, self._facts, self.calibration.channel.dimension, copied)
        with self._counter.turn():
            self._counter.load(key, collections, adds=adds)
            self.steps = steps if self._counter.plan.seeded else max(self.steps, steps)
