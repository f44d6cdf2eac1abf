"""The run table: which jobs a configuration stands for, where their files lie, and what each depends on.

A run is one (dataset, model, defense, level, rounds, batch size) with all its replicas; its slug names it in paths,
in MLflow and in messages. Nothing here imports torch: Snakemake parses this for every job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from leakbound import registry
from leakbound.config.catalogue import EFFICIENCY, SCOREBOARD, WORLDS, Catalogue, FigureConfig
from leakbound.config.defenses import ChannelDefense, Defense
from leakbound.config.whole import Config
from leakbound.jobs.runs import Run, level_text, runs_of

_NOISY = {("consensus", "averaging")}  # parts of worlds whose rows hold noise; the others are closed forms


class RunTable:
    """All jobs of a configuration.

    Args:
        config: A checked configuration.
        catalogue: The figures to choose from; those are kept whose study, illustration or table the configuration has.

    Attributes:
        runs: Slug to run; a run that several studies share is there once, with the most replicas that one asks for.
        searches: Name of a learning-rate search to the run that it stands for, the shortest if it stands for several.
        attacks: Slug to the names of the attacks on that run, sorted.
        tables: Name to path of every table: each study's, ``efficiency``, ``<world>/<part>`` of each world, and
            ``scoreboard`` where a figure makes claims.
        figures: ``paper/id`` to figure.
    """

    def __init__(self, config: Config, catalogue: Catalogue) -> None:
        self.config = config
        self.runs: dict[str, Run] = {}
        self.attacks: dict[str, list[str]] = {}
        self.members: dict[str, list[str]] = {}
        for name, study in config.studies.items():
            self.members[name] = []
            for run in runs_of(study, config.replicas):
                known = self.runs.get(run.slug)
                if known is None or known.replicas < run.replicas:
                    self.runs[run.slug] = run
                self.attacks[run.slug] = sorted({*self.attacks.get(run.slug, []), *study.attacks})
                self.members[name].append(run.slug)
        self.searches: dict[str, Run] = {}
        for run in sorted(self.runs.values(), key=lambda run: run.rounds, reverse=True):
            self.searches[self.tuning_name(run)] = run
        self.tables = {name: self.path("tables", name, ".parquet") for name in self._table_names()}
        if any(figure.claims and self._can_show(figure) for figure in catalogue.figures):
            self.tables[SCOREBOARD] = self.path("tables", SCOREBOARD, ".parquet")
        self.figures = {f"{figure.paper}/{figure.id}": figure for figure in catalogue.figures if self._can_show(figure)}

    def _table_names(self) -> Iterator[str]:
        """Names of all tables that the configuration makes."""
        yield from self.members
        if self.config.efficiency is not None:
            yield EFFICIENCY
        for world in WORLDS:
            section = getattr(self.config, world, None)
            yield from (f"{world}/{part}" for part in (section.parts() if section else ()))

    def _can_show(self, figure: FigureConfig) -> bool:
        """Whether the configuration has what a figure shows: its illustration, its table, or its study's rows."""
        if figure.illustration is not None:
            return figure.illustration in self.config.illustrations
        if figure.study is None:
            return figure.table in self.tables
        study = self.config.studies.get(figure.study)
        if study is None:
            return False
        asked = {"dataset": study.datasets, "model": study.models, "defense": set(study.defenses) - {"none"}}
        missing = set(registry.ATTACKS.names()) - set(study.attacks)
        wanted = figure.admitted("source", registry.ATTACKS.names()) if "source" in figure.select else ()
        return not missing & set(wanted) and all(figure.admitted(column, names) for column, names in asked.items())

    # -- names -----------------------------------------------------------------------------------------------------

    @property
    def root(self) -> PurePosixPath:
        """Folder of all results of the configuration."""
        return self.config.root

    def trained(self) -> list[str]:
        """Slugs of the runs that are trained."""
        return [slug for slug, run in self.runs.items() if run.rounds > 0]

    def channel_key(self, run: Run) -> str | None:
        """Name of the run's calibrated channel, ``dataset/family-level``, or none without a channel."""
        family = self.family(run.defense)
        return None if family is None or run.level is None else f"{run.dataset}/{family}-{level_text(run.level)}"

    def family(self, defense: str) -> str | None:
        """Name that all channels of one shape and weights share, or none for a defense without a channel."""
        channel = self.config.defense(defense).channel
        return None if channel is None else channel.family

    def _family_defense(self, family: str) -> ChannelDefense:
        """Settings of a defense of ``family``."""
        used = {name for study in self.config.studies.values() for name in study.defenses} | set(self.timed_runs())
        for name in sorted(used):
            channel = self.config.defense(name).channel
            if channel is not None and channel.family == family:
                return channel
        return ChannelDefense(shape=family)

    def timed_runs(self) -> dict[str, Run]:
        """Defense to a run as the table of training times measures it, with the first of its networks."""
        timed = self.config.efficiency
        if timed is None:
            return {}
        return {
            name: Run(timed.dataset, timed.models[0], name, next(iter(levels), None), 1, timed.batch_size)
            for name, levels in timed.defenses.items()
        }

    # -- files -----------------------------------------------------------------------------------------------------

    def path(self, kind: str, name: str, suffix: str) -> str:
        """``results/<preset>/<kind>/<name><suffix>``."""
        return str(self.root / kind / f"{name}{suffix}")

    def channel_files(self, run: Run) -> dict[str, str]:
        """The channel and spectrum files that a run reads: none without a channel."""
        key, family = self.channel_key(run), self.family(run.defense)
        if key is None:
            return {}
        return {
            "channel": self.path("channels", key, ".safetensors"),
            "spectrum": self.path("spectra", f"{run.dataset}/{family}", ".safetensors"),
        }

    def tuning_name(self, run: Run) -> str:
        """Name of the learning-rate search that a run shares with those of other lengths."""
        return f"{run.dataset}/{run.model}/{run.variant}/b{run.batch_size}"

    def run_files(self, run: Run) -> dict[str, list[str]]:
        """What a finished run has written, by kind: weights, curves, provenance, tables of attacks."""
        trained = {"weights": "weights.safetensors", "training": "training.parquet", "provenance": "provenance.json"}
        files = {
            kind: [] if run.rounds == 0 else [self.path("runs", run.slug, f"/{name}")] for kind, name in trained.items()
        }
        attacks = [self.path("attacks", run.slug, f"/{attack}.parquet") for attack in self.attacks[run.slug]]
        return {**files, "attacks": attacks}

    def rows_file(self, figure: FigureConfig) -> str:
        """File of the rows that a figure shows."""
        if figure.illustration is not None:
            return self.path("illustrations", figure.illustration, ".parquet")
        return self.tables[figure.study or figure.table or ""]

    # -- what each job depends on ----------------------------------------------------------------------------------

    def prepare_settings(self, dataset: str) -> dict[str, Any]:
        """Everything that the images of ``dataset`` depend on."""
        settings = self.config.datasets[dataset]
        reader = settings.reader or dataset
        return {
            "dataset": dataset,
            "config": settings.model_dump(mode="json"),
            "seed": self.config.seed,
            "plugins": self._plugins(datasets=reader),
        }

    def spectrum_settings(self, family: str) -> dict[str, Any]:
        """Everything but the covariance that the spectrum of ``family`` depends on."""
        defense = self._family_defense(family)
        return {
            "shape": defense.shape,
            "weights": defense.weights.model_dump(mode="json"),
            "plugins": self._plugins(shapes=defense.shape),
        }

    def channel_settings(self, key: str) -> dict[str, Any]:
        """Everything but the spectrum that the channel ``dataset/family-level`` depends on."""
        family, _, level = key.partition("/")[2].partition("-")
        defense = self._family_defense(family)
        return {"shape": defense.shape, "capacity": float(level), "plugins": self._plugins(shapes=defense.shape)}

    def tuning_settings(self, run: Run) -> dict[str, Any]:
        """Everything but files that the learning-rate search of ``run`` depends on."""
        keep = {"momentum", "learning_rates", "search_rounds", "validation_fraction", "max_stack"}
        return {**self._model_settings(run), "training": self.config.training.model_dump(mode="json", include=keep)}

    def training_settings(self, run: Run) -> dict[str, Any]:
        """Everything but files that the training of ``run`` depends on."""
        keep = {"momentum", "evaluations", "checkpoint_seconds", "max_stack"}
        return {
            **self._model_settings(run),
            "slug": run.slug,
            "rounds": run.rounds,
            "replicas": run.replicas,
            "training": self.config.training.model_dump(mode="json", include=keep),
        }

    def _model_settings(self, run: Run) -> dict[str, Any]:
        """What searching and training share."""
        defense = self._defense_of(run)
        return {
            "dataset": run.dataset,
            "model": run.model,
            "defense": defense.model_dump(mode="json"),
            "variant": run.variant,
            "level": run.level,
            "batch_size": run.batch_size,
            "seed": self.config.seed,
            **self._noise_settings(defense),
            "device": self.config.device,
            "plugins": self._plugins(models=run.model, mechanisms=defense.mechanism),
        }

    def _noise_settings(self, *defenses: Defense) -> dict[str, str]:
        """Where noise comes from, if one of the defenses draws any."""
        return {"privacy_noise": self.config.privacy_noise} if any(defense.draws_noise for defense in defenses) else {}

    def _defense_of(self, run: Run) -> Defense:
        """Settings of the run's defense, as they hold on its dataset."""
        return self.config.defense(run.defense).on(run.dataset)

    def attack_settings(self, attack: str, run: Run) -> dict[str, Any]:
        """Everything but files that ``attack`` on ``run`` depends on."""
        defense = self._defense_of(run)
        untrained: dict[str, Any] = {}
        if run.rounds == 0:  # else weights say how many they are, and hold the noise
            untrained = {"replicas": run.replicas, **self._noise_settings(defense)}
        if run.rounds == 0 and run.batch_size > 1:  # attacks take single records unless told otherwise
            untrained["batch_size"] = run.batch_size
        return {
            "attack": attack,
            "slug": run.slug,
            **untrained,
            "model": run.model,
            "defense": defense.model_dump(mode="json"),
            "level": run.level,
            "config": self.config.attacks.all()[attack].model_dump(mode="json"),
            "seed": self.config.seed,
            "device": self.config.device,
            "plugins": self._plugins(models=run.model, mechanisms=defense.mechanism, attacks=attack),
        }

    def illustration_settings(self, name: str) -> dict[str, Any]:
        """Everything but files that the rows of illustration ``name`` depend on."""
        config = self.config.illustrations[name]
        declared = self.config.plugins.shapes
        shapes = {shape: declared[shape] for shape in config.levels if shape in declared}
        return {
            "illustration": name,
            "config": config.model_dump(mode="json"),
            "seed": self.config.seed,
            "plugins": self._plugins(illustrations=name) | ({"shapes": shapes} if shapes else {}),
        }

    def table_settings(self, study: str) -> dict[str, Any]:
        """Runs and attacks that the table of ``study`` gathers, in order, and where their files lie below the root."""
        return {"study": study, "runs": {slug: self.attacks[slug] for slug in self.members[study]}}

    def efficiency_settings(self) -> dict[str, Any]:
        """Everything but files that the table of training times depends on."""
        timed = self.config.efficiency
        if timed is None:
            return {}
        declared = self.config.plugins.models
        return {
            "config": timed.model_dump(mode="json"),
            "defenses": {name: self.config.defense(name).model_dump(mode="json") for name in timed.defenses},
            "momentum": self.config.training.momentum,
            "seed": self.config.seed,
            **self._noise_settings(*map(self.config.defense, timed.defenses)),
            "device": self.config.device,
            "plugins": {"models": {name: declared[name] for name in timed.models if name in declared}},
        }

    def world_settings(self, world: str, part: str) -> dict[str, Any]:
        """What the table ``<world>/<part>`` depends on: its world's section without what belongs to other parts."""
        section = getattr(self.config, world)
        others = {name for name in section.parts() if name != part}
        return {
            "part": part,
            "config": section.model_dump(mode="json", exclude=others, exclude_none=True),
            "seed": self.config.seed,
            **({"privacy_noise": self.config.privacy_noise} if (world, part) in _NOISY else {}),
        }

    def figure_settings(self, key: str) -> dict[str, Any]:
        """What the figure ``paper/id`` depends on beside its rows; claims do not change its looks."""
        figure = self.figures[key]
        return {
            "figure": figure.model_dump(mode="json", exclude={"claims"}),
            "plugins": self._plugins(plots=figure.plot),
        }

    def caption(self, key: str) -> str:
        """Caption of the figure ``paper/id`` with the data, networks and number of seeds that it is drawn from."""
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
        seeds = study.replicas or self.config.replicas
        datasets, models = figure.admitted("dataset", study.datasets), figure.admitted("model", study.models)
        return f"{text} Data: {', '.join(datasets)}. Network: {', '.join(models)}. n = {seeds} seeds."

    def claims_settings(self) -> dict[str, Any]:
        """All figures with claims, and the level of the tests."""
        figures = [figure.model_dump(mode="json", exclude={"plot", "options", "caption"}) for figure in self.claiming()]
        tests = sorted({claim.test for figure in self.claiming() for claim in figure.claims})
        found = {
            name: path for name in tests for path in self._plugins(claim_tests=name).get("claim_tests", {}).values()
        }
        return {
            "preset": self.config.preset,
            "alpha": self.config.alpha,
            "figures": figures,
            "plugins": {"claim_tests": found} if found else {},
        }

    def claiming(self) -> list[FigureConfig]:
        """Figures that make claims."""
        return [figure for figure in self.figures.values() if figure.claims]

    def tracking_settings(self, slug: str) -> dict[str, Any]:
        """Everything but files that the MLflow run of ``slug`` depends on."""
        run = self.runs[slug]
        studies = [name for name, members in self.members.items() if slug in members]
        shown = [key for key, figure in self.figures.items() if figure.study in studies]
        return {
            "preset": self.config.preset,
            "slug": slug,
            "replicas": run.replicas,
            "attacks": self.attacks[slug],
            "mechanism": self.config.defense(run.defense).mechanism,
            "channel": f"channels/{key}.safetensors" if (key := self.channel_key(run)) else None,
            "papers": sorted({key.partition("/")[0] for key in shown}),
            "figures": shown,
            "uri": self.config.tracking.uri,
        }

    def _plugins(self, **names: str | None) -> dict[str, dict[str, str]]:
        """Of the outside things that the configuration declares, those that a job uses."""
        declared = self.config.plugins.model_dump()
        used = {kind: {name: declared[kind][name]} for kind, name in names.items() if name and name in declared[kind]}
        return {kind: entries for kind, entries in used.items() if entries}


def module_of(kind: registry.Registry, name: str, plugins: dict[str, str]) -> str:
    """Module that holds a registered thing, for its code fingerprint."""
    return (plugins.get(name) or kind.path(name)).partition(":")[0]


def as_text(settings: dict[str, Any]) -> str:
    """Settings as one line of JSON, as a rule's parameter and a command's ``--settings``."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))
