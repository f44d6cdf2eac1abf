"""The run table: runs, attacks, tables and figures of a configuration.

Nothing here imports torch, because Snakemake parses this for every job.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from leakbound_lab import registries
from leakbound_lab.config.catalogue import (
    EFFICIENCY,
    IMPROVEMENTS,
    SCOREBOARD,
    SOURCES,
    Catalogue,
    FigureConfig,
    plain_values,
)
from leakbound_lab.config.data import CovarianceOf, DatasetSize, size_of
from leakbound_lab.config.defenses import ChannelDefense, Defense, level_text
from leakbound_lab.config.federated import FederatedRun, federated_runs
from leakbound_lab.config.settings import part_of
from leakbound_lab.config.studies import StudyConfig
from leakbound_lab.config.training import LENGTHS, Length
from leakbound_lab.config.whole import SECTIONS, Config
from leakbound_lab.jobs.paths import OUTPUTS, P, output
from leakbound_lab.jobs.runs import Run, runs_of
from leakbound_lab.jobs.unit_costs import STEP_RECORDS, Work

_CHOSEN = 1.5  # learning rates that the replicas of a run choose, on average


class RunChannel(NamedTuple):
    """Channel of a run.

    Attributes:
        dataset: Name of the dataset whose records it is for.
        spectrum: Name of its spectrum, ``dataset/family``.
        name: Its own name, ``dataset/family-level``.
        settings: Its shape and weights.
        capacity: Its capacity in nats.
    """

    dataset: str
    spectrum: str
    name: str
    settings: ChannelDefense
    capacity: float


class RunTable:
    """All runs of a configuration, and the tables and figures that show them.

    Args:
        config: A checked configuration.
        catalogue: The figures to choose from. A figure is kept if the configuration has its study,
            illustration or table.

    Attributes:
        config: The configuration.
        runs: Slug to run. If several studies share a run, it is there once, with the largest number of
            replicas.
        attacks: Slug to the names of the attacks on that run, sorted.
        rates: Slug to the candidate learning rates whose networks are kept, ``all`` if one study needs them.
        lengths: Slug to the points of each training whose networks are kept, all if one study needs them.
        studies: Study to the slugs of its runs.
        first_study: Slug to the first study that the run belongs to.
        federated: Table of federated averaging to its runs.
        tables: Names of all tables: each study's, ``efficiency``, ``<section>/<table>`` of the sections that
            have tables of their own, and ``scoreboard`` if a figure makes claims.
        figures: ``paper/id`` to figure.
        left_out: Figures of the configuration's studies that select what these do not have.
    """

    def __init__(self, config: Config, catalogue: Catalogue) -> None:
        self.config = config
        self._root = str(config.root)
        self.runs: dict[str, Run] = {}
        self.attacks: dict[str, list[str]] = {}
        self.rates: dict[str, Literal["chosen", "all"]] = {}
        self.lengths: dict[str, tuple[Length, ...]] = {}
        self.studies: dict[str, list[str]] = {}
        for name, study in config.studies.items():
            self.studies[name] = []
            for run in runs_of(study, config.replicas):
                listed = self.runs.get(run.slug)
                if listed is None or listed.replicas < run.replicas:
                    self.runs[run.slug] = run
                self.attacks[run.slug] = sorted({*self.attacks.get(run.slug, []), *study.attacks})
                self.rates[run.slug] = "all" if "all" in (study.rates, self.rates.get(run.slug)) else "chosen"
                every = study.lengths == "all" and run.rounds > 0 and config.defense(run.defense).has_lengths
                self.lengths[run.slug] = LENGTHS if every else self.lengths.get(run.slug, LENGTHS[-1:])
                self.studies[name].append(run.slug)
        self.first_study = {slug: name for name, slugs in reversed(self.studies.items()) for slug in slugs}
        self.federated = federated_runs(config.federated)
        self.tables = list(self._table_names())
        if any(figure.claims and self._can_show(figure) for figure in catalogue.figures):
            self.tables.append(SCOREBOARD)
        self.figures = {
            f"{figure.paper}/{figure.id}": figure for figure in catalogue.figures if self._can_show(figure)
        }
        self.left_out = [
            figure
            for figure in catalogue.figures
            if figure.study in config.studies and f"{figure.paper}/{figure.id}" not in self.figures
        ]

    def _table_names(self) -> Iterator[str]:
        """Yield the names of all tables except the scoreboard."""
        yield from self.studies
        if self.config.efficiency is not None:
            yield EFFICIENCY
        for section in SECTIONS:
            settings = getattr(self.config, section, None)
            yield from (f"{section}/{table}" for table in (settings.tables() if settings else ()))

    def _can_show(self, figure: FigureConfig) -> bool:
        """Return True if the configuration has the illustration, the table or the study that a figure shows."""
        if figure.illustration is not None:
            return figure.illustration in self.config.illustrations
        if figure.study is None:
            return figure.table in self.tables
        study = self.config.studies.get(figure.study)
        if study is None or (figure.rates == "all" and study.rates != "all"):
            return False
        if figure.select.get("metric") == "ssim" and {*study.datasets} <= self.config.tables:
            return False  # the similarity index is defined for images
        if not _has_improvements(figure, study):
            return False
        needed = {
            "dataset": study.datasets,
            "model": study.models,
            "defense": set(study.defenses) - {"none"} or {"none"},
        }
        attacks = registries.ATTACKS.names(self.config.plugins.attacks)
        wanted = figure.admitted("source", attacks) if "source" in figure.select else ()
        return set(wanted) <= set(study.attacks) and all(
            figure.admitted(column, names) for column, names in needed.items()
        )

    def all_federated(self) -> dict[str, FederatedRun]:
        """Return the slug of each federated run with the run. A run of several tables is there once."""
        return {run.slug: run for runs in self.federated.values() for run in runs}

    def claiming(self) -> list[FigureConfig]:
        """List the figures that make claims."""
        return [figure for figure in self.figures.values() if figure.claims]

    def defense_of(self, run: Run) -> Defense:
        """Return the settings of a run's defense on its dataset.

        Args:
            run: Run of the configuration.
        """
        return self.config.defense(run.defense).on(run.dataset)

    def noise_settings(self, *defenses: Defense) -> dict[str, str]:
        """Return the setting ``privacy_noise`` if one of the defenses draws noise.

        Args:
            defenses: Settings of defenses.
        """
        drawn = any(defense.draws_noise for defense in defenses)
        return {"privacy_noise": self.config.privacy_noise} if drawn else {}

    def file(self, step: str, name: str, role: str = "out") -> str:
        """Return a file that a job writes.

        Args:
            step: Name of the step.
            name: Name of the job.
            role: Option of the command, without dashes.
        """
        return f"{self._root}/{OUTPUTS[step][role].format(name=name)}"

    def drawn(self, key: str) -> list[str]:
        """List the files of a figure: its pictures, and the rows that it shows.

        Args:
            key: ``paper/id`` of the figure.
        """
        wanted = {"svg", *self.config.figure_formats, "shown"}
        return [self.file("plot", key, role) for role in OUTPUTS["plot"] if role in wanted]

    def size(self, dataset: str) -> DatasetSize:
        """Return the sizes of a dataset's splits, known without reading it.

        Args:
            dataset: Name of the dataset.
        """
        return size_of(dataset, self.config.datasets[dataset])

    def readers(self) -> dict[str, str]:
        """Return the name of each dataset's reader."""
        return {name: settings.reader or name for name, settings in self.config.datasets.items()}

    def moments(self, dataset: str, of: CovarianceOf | None = None) -> str:
        """Return the file of mean and covariance of a dataset.

        Args:
            dataset: Name of the dataset.
            of: Records whose moments they are. By default these are the records that channels are made from.
        """
        return self.file("covariance", f"{dataset}/{of or self.config.covariance}")

    def candidates(self, run: Run) -> tuple[float, ...]:
        """Return the learning rates that a run is trained with.

        Args:
            run: Run of the configuration.
        """
        return self.config.defense(run.defense).learning_rates or self.config.training.learning_rates

    def kept(self, run: Run) -> int:
        """Count the networks of a run that are stored and attacked.

        Args:
            run: Run of the configuration.
        """
        every = self.rates[run.slug] == "all" and run.rounds > 0
        return run.replicas * (len(self.candidates(run)) if every else 1) * len(self.lengths[run.slug])

    def references(self, slug: str) -> int:
        """Count the trainings of a run's reference networks at each rate, or for each network, that it keeps.

        Args:
            slug: Name of the run.
        """
        needed = "references" in self._needs(slug) and self.runs[slug].rounds > 0
        return self.config.attacks.membership.references if needed else 0

    def _needs(self, slug: str) -> set[str]:
        """Return the kinds of files that the attacks on a run read."""
        attacks = self.config.attacks.all()
        defense = self.config.defense(self.runs[slug].defense)
        return {file for name in self.attacks[slug] for file in attacks[name].needs(defense)}

    def reference_networks(self, slug: str) -> int:
        """Count the trainings of a run's reference networks at all learning rates that it keeps.

        If only chosen rates are kept, the count assumes their usual number.

        Args:
            slug: Name of the run.
        """
        if self.config.attacks.membership.reference_records == "candidates":
            return self.references(slug) * self.kept(self.runs[slug]) // len(self.lengths[slug])
        rates = len(self.candidates(self.runs[slug]))
        return round(self.references(slug) * (rates if self.rates[slug] == "all" else min(_CHOSEN, rates)))

    def records(self, slug: str) -> dict[str, str]:
        """Return the files of a finished run that tables are made from, by the name of their content.

        Args:
            slug: Name of the run.
        """
        trained = self.runs[slug].rounds > 0
        files = {role: self.file("train", slug, role) for role in ("rows", "rates", "provenance") if trained}
        if "membership" in self.attacks[slug]:
            files["scores"] = self.file("attack", f"{slug}/membership", "arrays")
        return files | {name: self.file("attack", f"{slug}/{name}", "rows") for name in self.attacks[slug]}

    def section(self, name: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Yield each table that a section of the configuration makes, with the settings that it depends on.

        Args:
            name: Name of the section, ``theory`` or ``consensus``.

        Yields:
            Name of the table, the section without what is set for other tables, and this as plain values.
        """
        section = getattr(self.config, name)
        tables = () if section is None else section.tables()
        for table in tables:
            names = {*type(section).model_fields} - {other for other in section.TABLES if other != table}
            plain = section.model_dump(mode="json", include=names, exclude_none=True)
            yield table, part_of(section, names), plain

    def over_units(self, attacks: Iterable[str]) -> dict[str, str]:
        """Return the summary over units of each attack that has one.

        Args:
            attacks: Names of attacks.
        """
        summaries = {name: self.config.attacks.all()[name].over_units for name in attacks}
        return {name: how for name, how in summaries.items() if how in ("mean", "median")}

    # -- channels --------------------------------------------------------------------------------------------------

    def channel_of(self, run: Run) -> RunChannel | None:
        """Return the calibrated channel of a run, None without one.

        Args:
            run: Run of the configuration.
        """
        defense = self.config.defense(run.defense)
        capacity = defense.capacity_at(run.level)
        if defense.channel is None or capacity is None:
            return None
        spectrum = f"{run.dataset}/{defense.channel.family}"
        name = f"{spectrum}-{level_text(capacity)}"
        return RunChannel(run.dataset, spectrum, name, defense.channel, capacity)

    def channel_files(self, run: Run) -> dict[str, str]:
        """Return the channel and spectrum files that a run reads, none without a channel.

        Args:
            run: Run of the configuration.
        """
        channel = self.channel_of(run)
        if channel is None:
            return {}
        return {
            "channel": self.file("calibrate", channel.name),
            "spectrum": self.file("spectrum", channel.spectrum),
        }

    def channels(self) -> dict[str, RunChannel]:
        """Return every channel that a run needs, by its name. Channels of one name are alike."""
        channels = map(self.channel_of, (*self.runs.values(), *self.timed_runs().values()))
        return {channel.name: channel for channel in channels if channel is not None}

    def step_work(self, run: Run, steps: int, slots: int = 1) -> Work:
        """Return the work of training steps of a run's defense on its batches.

        Args:
            run: Run of the configuration.
            steps: Number of training steps.
            slots: Networks that one process trains at once on a GPU.
        """
        defense = self.config.defense(run.defense)
        colors = self.size(run.dataset).colors
        records = defense.records_in_step(run.level, run.batch_size)
        steps = steps // run.rounds * defense.steps(run.level, run.rounds)
        return Work(f"step_{defense.timed_as}", steps * records / STEP_RECORDS, run.model, colors, slots)

    def timed_runs(self) -> dict[str, Run]:
        """Return a run for each defense in the table of training times, with the first of its networks."""
        timed = self.config.efficiency
        if timed is None:
            return {}
        return {
            name: Run(timed.dataset, timed.models[0], name, next(iter(levels), None), 1, timed.batch_size)
            for name, levels in timed.defenses.items()
        }

    def estimators(self) -> dict[str, dict[str, str]]:
        """Return the shape of each family of channels for every dataset that needs a learned estimate."""
        learned: dict[str, dict[str, str]] = {}
        for slug, run in self.runs.items():
            channel = self.config.defense(run.defense).channel
            if channel is not None and "estimator" in self._needs(slug) and self.estimator_file(run):
                learned.setdefault(run.dataset, {})[channel.family] = channel.shape
        return learned

    def estimator_file(self, run: Run) -> dict[str, str]:
        """Return the learned estimate that inversion of a run's gradients reads.

        Args:
            run: Run of the configuration.

        Returns:
            Role to file, empty without a channel or without training of the estimate.
        """
        steps = self.config.attacks.gradient_inversion.estimator.steps
        return {"estimator": self.file("estimator", run.dataset)} if steps and self.channel_of(run) else {}

    # -- captions --------------------------------------------------------------------------------------------------

    def caption(self, key: str) -> str:
        """Write the caption of a figure with its data, networks and number of replicas.

        Args:
            key: ``paper/id`` of the figure.
        """
        figure = self.figures[key]
        text = " ".join(figure.caption.split())
        efficiency = self.config.efficiency
        if figure.table == EFFICIENCY and efficiency is not None:
            return (
                f"{text} Data: {efficiency.dataset}. Networks: {', '.join(efficiency.models)}. "
                f"n = {efficiency.repeats} repetitions."
            )
        if figure.study is None:
            return text
        study = self.config.studies[figure.study]
        replicas = study.replicas or self.config.replicas
        datasets = ", ".join(figure.admitted("dataset", study.datasets))
        models = ", ".join(figure.admitted("model", study.models))
        return f"{text} Data: {datasets}. Network: {models}. n = {replicas} replicas."

    def rows_file(self, figure: FigureConfig) -> str:
        """Return the file of the rows that a figure shows.

        Args:
            figure: Entry of the catalogue.
        """
        return str(rows_file(self.config.root, figure))


def _has_improvements(figure: FigureConfig, study: StudyConfig) -> bool:
    """Return True unless a figure is about improvements, and no network of a study has any.

    They compare attacks on networks of every defense with the same attacks on undefended ones. Rows of attacks
    can be shown without them, those of trainings are their second axis.
    """
    metrics = plain_values(figure.select.get("metric", ()))
    attacks = [{attack for attack, _ in IMPROVEMENTS[name]} for name in metrics if name in IMPROVEMENTS]
    alone = len(attacks) == len(metrics)
    sources = plain_values(figure.select.get("source", ()))
    if not attacks or not (alone or (sources and {*sources} <= {*SOURCES})):
        return True
    return "none" in study.defenses and any(needed <= {*study.attacks} for needed in attacks)


def rows_file(root: P, figure: FigureConfig) -> P:
    """Return the file of the rows that a figure shows.

    Args:
        root: Folder of the configuration's results.
        figure: Entry of the catalogue.
    """
    if figure.illustration is not None:
        return output(root, "illustrate", figure.illustration, "out")
    return output(root, "tabulate", figure.study or figure.table or "", "out")
