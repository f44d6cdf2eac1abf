"""Every job of a configuration with its time and disk, as far as they can be told before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from leakbound.cli.plan.costs import UnitCosts
from leakbound.cli.plan.sizes import DatasetSize, size_of
from leakbound.config.catalogue import EFFICIENCY
from leakbound.config.whole import Config
from leakbound.jobs.runs import Run
from leakbound.jobs.table import RunTable

_CURVE_RECORDS = 2000  # records of each split in all points of a curve but the last
_PATIENT = 25  # guess: passes after which the attack network of membership inference has stopped, on average
_FOLDS = 0.8  # part of the known records that each attack network learns from
_ALONG_AXES = {"white", "least_power", "rate_distortion"}  # shapes whose noise needs a matrix product
_PREPARED = 2e-4  # seconds to read and resize one image
_FLOPS = 2e10  # products of a matrix with itself on one thread, operations per second
_FLOAT = 4.0
_DOUBLE = 8.0


@dataclass(frozen=True)
class Job:
    """One job and what it asks for.

    Attributes:
        study: Study that it is made for first, or what else: ``data and channels``, ``figures``, a table.
        kind: Rule.
        name: What tells it from others of its kind.
        cpu_seconds: On one thread of a CPU.
        gpu_seconds: On a GPU, 0 for a job without one.
        disk: Bytes of its outputs.
    """

    study: str
    kind: str
    name: str
    cpu_seconds: float
    gpu_seconds: float = 0.0
    disk: float = 0.0


def jobs_of(table: RunTable, costs: UnitCosts) -> list[Job]:
    """All jobs of a configuration; a run that several studies share belongs to the first of them.

    Args:
        table: The run table of the configuration.
        costs: Times of elementary work on the device that trains and attacks.
    """
    parts = (_channel_jobs, _run_jobs, _federated_jobs, _table_jobs, _figure_jobs)
    return [job for part in parts for job in part(table, costs)]


class _Estimator:
    """Times of the jobs on one run."""

    def __init__(self, table: RunTable, costs: UnitCosts, run: Run) -> None:
        self.config, self.costs, self.run = table.config, costs, run
        self.size = _size(table.config, run.dataset, costs)

    def tune(self) -> float:
        """Seconds of the learning-rate search: one replica a candidate."""
        training, defense = self.config.training, self.config.defense(self.run.defense)
        rates = defense.learning_rates or training.learning_rates
        return len(rates) * (training.search_rounds * self._step(1) + self._predictions(self.size.members))

    def train(self) -> float:
        """Seconds of training and of the curves."""
        training, size, replicas = self.config.training, self.size, self.run.replicas
        points = (training.evaluations - 1) * (min(_CURVE_RECORDS, size.members) + min(_CURVE_RECORDS, size.test))
        shown = replicas * (points + size.members + size.test)
        return self.run.rounds * self._step(replicas) + self._predictions(shown)

    def attack(self, name: str) -> float:
        """Seconds of an attack on all replicas."""
        known = {
            "membership": self._membership,
            "model_inversion": self._model_inversion,
            "gradient_inversion": self._gradient_inversion,
            "gradient_capacity": self._gradient_capacity,
        }
        if name not in known:
            self.costs.notes.add(f"attack {name}: from outside, its time is not known")
            return 0.0
        return known[name]()

    def _membership(self) -> float:
        """All replicas one after another: signals of the records, then the attack networks."""
        config, count = self.config.attacks.membership, min(self.size.members, self.size.test)
        steps = math.ceil(_FOLDS * 2 * config.known_fraction * count / config.batch_size)
        passes = min(config.epochs, _PATIENT) * len(config.learning_rates)
        one = passes * steps * self.costs.attack_step(self.run.model, self.size.colors)
        return self.run.replicas * (one + self._predictions(2 * count))

    def _model_inversion(self) -> float:
        """All classes and attackers in one batch, replicas one after another."""
        config = self.config.attacks.model_inversion
        images = self.size.classes * (1 + len(config.tv_weights))
        return self.run.replicas * config.iterations * self._iteration("invert", images)

    def _gradient_inversion(self) -> float:
        """Tuning on auxiliary records, then two attackers, one image for each batch; replicas one after another."""
        config = self.config.attacks.gradient_inversion
        problems = config.tuning_images * len(config.tv_weights) + 2 * config.images
        return self.run.replicas * config.iterations * self._iteration("match", problems)

    def _gradient_capacity(self) -> float:
        """Gradients of single records, as a DP step takes them; replicas one after another."""
        records = min(self.config.attacks.gradient_capacity.records, self.size.members)
        step = self.costs.step("dpsgd", self.run.model, self.size.colors, self.run.batch_size, 1)
        return self.run.replicas * step * records / self.run.batch_size

    def _step(self, replicas: int) -> float:
        """Seconds of a training step of some replicas."""
        defense = self.config.defense(self.run.defense)
        records = defense.records_in_step(self.run.level, self.run.batch_size)
        kind = step_kind(self.config, self.run.defense)
        return self.costs.step(kind, self.run.model, self.size.colors, records, replicas)

    def _predictions(self, images: int) -> float:
        """Seconds of forward passes."""
        return self._iteration("predict", images)

    def _iteration(self, unit: str, images: int) -> float:
        """Seconds of work on some images at once."""
        return self.costs.iteration(unit, self.run.model, self.size.colors, images)


def step_kind(config: Config, name: str) -> str:
    """What a step of a defense does beyond a plain one, as the table of costs calls it."""
    defense = config.defense(name)
    if (channel := defense.channel) is not None:
        return "none" if channel.noise == "frozen" else "white" if channel.shape in _ALONG_AXES else "natural"
    return defense.mechanism if defense.changes_gradients else "none"


def _size(config: Config, name: str, costs: UnitCosts) -> DatasetSize:
    """Sizes of a dataset, with a note if they are guessed."""
    size = size_of(name, config.datasets[name])
    if not size.known:
        costs.notes.add(f"dataset {name}: colors, classes and what is not configured are guessed")
    return size


def _run_jobs(table: RunTable, costs: UnitCosts) -> Iterator[Job]:
    """Searches, trainings, attacks and logging of all runs."""
    searched: set[str] = set()
    owner = {slug: study for study, members in reversed(table.members.items()) for slug in members}
    for slug, run in table.runs.items():
        estimate, study = _Estimator(table, costs, run), owner[slug]
        weights = _FLOAT * run.replicas * costs.parameters(run.model, estimate.size.colors)
        if run.rounds > 0:
            search = table.tuning_name(run)
            if search not in searched:
                searched.add(search)
                yield _computed(costs, study, "tune", search, estimate.tune())
            yield _computed(costs, study, "train", slug, estimate.train(), weights)
        for attack in table.attacks[slug]:
            seconds, disk = estimate.attack(attack), _kept(attack, run, estimate)
            yield _computed(costs, study, "attack", f"{slug}/{attack}", seconds, disk)
        if table.config.tracking.enabled:
            yield Job(study, "log", slug, costs.job("log"))


def _computed(costs: UnitCosts, study: str, kind: str, name: str, seconds: float, disk: float = 0.0) -> Job:
    """A job that trains or attacks, on the device of the costs."""
    fixed = costs.job(kind)
    if costs.device == "cpu":
        return Job(study, kind, name, fixed + seconds, 0.0, disk)
    return Job(study, kind, name, fixed + costs.start, seconds, disk)


def _kept(attack: str, run: Run, estimate: _Estimator) -> float:
    """Bytes of the scores and pictures that an attack keeps."""
    config, size = estimate.config.attacks, estimate.size
    if attack == "membership":
        scored = min(size.members, size.test) * (1 - config.membership.known_fraction)
        return 4 * _DOUBLE * run.replicas * scored
    if attack == "model_inversion":
        return 5 * _FLOAT * size.classes * size.pixels
    if attack == "gradient_inversion":
        return 6 * _FLOAT * run.replicas * config.gradient_inversion.images * size.pixels
    return 0.0


def _channel_jobs(table: RunTable, costs: UnitCosts) -> Iterator[Job]:
    """Images, covariances, spectra and channels that any run or time measurement needs."""
    study, config = "data and channels", table.config
    runs = [*table.runs.values(), *table.timed_runs().values()]
    shown = {one.dataset for one in config.illustrations.values() if one.dataset}
    averaged = set(config.federated.models) if config.federated else set()
    for name in sorted({run.dataset for run in runs} | shown | averaged):
        size = _size(config, name, costs)
        square = _DOUBLE * size.pixels**2
        seconds = costs.job("prepare") + size.images * _PREPARED
        yield Job(study, "prepare", name, seconds, 0.0, _FLOAT * size.images * size.pixels)
        if name in averaged - shown - {run.dataset for run in runs}:
            continue
        seconds = costs.job("covariance") + 2 * size.members * size.pixels**2 / _FLOPS
        yield Job(study, "covariance", name, seconds, 0.0, square)
    families = {(run.dataset, table.family(run.defense) or "") for run in runs} - {(run.dataset, "") for run in runs}
    for dataset, family in sorted(families):
        pixels = _size(config, dataset, costs).pixels
        along_axes = table.spectrum_settings(family)["shape"] in _ALONG_AXES
        seconds = costs.job("spectrum") + 2 * pixels**3 / _FLOPS
        yield Job(study, "spectrum", f"{dataset}/{family}", seconds, 0.0, _DOUBLE * pixels**2 * along_axes)
    for key in sorted({key for run in runs if (key := table.channel_key(run))}):
        pixels = _size(config, key.partition("/")[0], costs).pixels
        yield Job(study, "calibrate", key, costs.job("calibrate"), 0.0, _DOUBLE * pixels)


def _table_jobs(table: RunTable, costs: UnitCosts) -> Iterator[Job]:
    """Tables of studies, of training times and of the worlds."""
    for name in table.members:
        yield Job(name, "tabulate", name, costs.job("tabulate"))
    config = table.config
    timed = config.efficiency
    if timed is not None:
        colors = _size(config, timed.dataset, costs).colors
        seconds = 0.0
        for model in timed.models:
            for defense in timed.defenses:
                step = costs.step(step_kind(config, defense), model, colors, timed.batch_size, 1)
                seconds += (timed.repeats + 1) * max(step, min(timed.steps * step, timed.max_seconds))
        yield _computed(costs, EFFICIENCY, "measure", EFFICIENCY, seconds)
    for name in table.tables:
        world, _, part = name.partition("/")
        if part:
            yield Job(name, world, part, costs.job(world))


def _federated_jobs(table: RunTable, costs: UnitCosts) -> Iterator[Job]:
    """Runs of federated averaging, each with its record in MLflow."""
    from leakbound.jobs.federated_runs import all_runs

    config, section, study = table.config, table.config.federated, "federated"
    if section is None:
        return
    costs.notes.add("federated averaging: extrapolated from single steps; evaluations are left out")
    for slug, run in all_runs(section).items():
        size = _size(config, run.dataset, costs)
        records = section.records or max(1, size.members // section.most_clients())
        batch = min(section.batch_size, records)
        rounds = (section.replicas or config.replicas) * section.communication_rounds
        steps = rounds * section.local_epochs * math.ceil(records / batch)
        seconds = steps * costs.step("none", run.model, size.colors, batch, run.n_clients)
        yield _computed(costs, study, "federate", slug, seconds)
        if config.tracking.enabled:
            yield Job(study, "log_federated", slug, costs.job("log"))


def _figure_jobs(table: RunTable, costs: UnitCosts) -> Iterator[Job]:
    """Rows of illustrations, pictures, verdicts, and their record in MLflow."""
    study = "figures"
    for name in table.config.illustrations:
        yield Job(study, "illustrate", name, costs.job("illustrate"))
    for key in table.figures:
        yield Job(study, "plot", key, costs.job("plot"), 0.0, 2e5)
    if table.claiming():
        yield Job(study, "claims", "claims", costs.job("claims"))
    if table.config.tracking.enabled and table.runs and table.figures:
        yield Job(study, "log_figures", "figures", costs.job("log"))
    yield Job(study, "report_page", "report", costs.job("report_page"), 0.0, 5e6)


def shared_runs(table: RunTable, study: str) -> int:
    """Runs of a study that an earlier study has too."""
    names = list(table.members)
    earlier = {slug for name in names[: names.index(study)] for slug in table.members[name]}
    return len(earlier & set(table.members[study]))


def networks(table: RunTable) -> list[tuple[str, int]]:
    """Networks that are trained, attacked or timed, with the colors of their images."""
    config, timed = table.config, table.config.efficiency
    found = {(run.model, size_of(run.dataset, config.datasets[run.dataset]).colors) for run in table.runs.values()}
    if timed is not None:
        found |= {(model, size_of(timed.dataset, config.datasets[timed.dataset]).colors) for model in timed.models}
    return sorted(found)
