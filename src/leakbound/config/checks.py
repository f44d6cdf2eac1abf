"""What is wrong with a configuration whose values are all of the right type: unknown names, levels, sizes, sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from leakbound import registry
from leakbound.config.attacks import TRAINED_ATTACKS, TRAINED_MEASURES
from leakbound.config.catalogue import EFFICIENCY, SCOREBOARD
from leakbound.config.data import COLORS
from leakbound.config.defenses import DPSGD, ChannelDefense, CustomDefense, Defense, Undefended, default_defenses
from leakbound.config.federated import FederatedConfig
from leakbound.config.levels import level_problem, records_in_step
from leakbound.config.messages import known_names, shown, unknown_name
from leakbound.config.studies import EfficiencyConfig, StudyConfig
from leakbound.config.whole import Config

STORES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")
"""Kinds of tracking stores that MLflow keeps runs in."""
MOST_RUNS = 100_000
"""Runs of a configuration; a larger product of lists is a typing error, and nobody could wait for its jobs."""


def mistakes_of(config: Config) -> Iterator[str]:
    """What the types cannot see: names that nothing answers to, and settings that contradict each other."""
    yield from _product_mistakes(config)
    readers = known_names(registry.DATASETS, config.plugins.datasets)
    for name, dataset in config.datasets.items():
        key = f"datasets.{name}" if dataset.reader is None else f"datasets.{name}.reader"
        yield from unknown_name(key, dataset.reader or name, "dataset", readers)
    for name, defense in config.defenses.items():
        yield from _defense_mistakes(f"defenses.{name}", defense, config)
    for name in config.attacks.custom:
        known = known_names(registry.ATTACKS, config.plugins.attacks)
        yield from unknown_name(f"attacks.custom.{name}", name, "attack", known)
    if config.efficiency is not None:
        yield from _efficiency_mistakes(config.efficiency, config)
    for name, study in config.studies.items():
        if name == EFFICIENCY:
            yield f"studies.{name}: its table would be that of the section efficiency; give the study another name"
        if name == SCOREBOARD:
            yield f"studies.{name}: its table would be that of all verdicts; give the study another name"
        yield from _study_mistakes(f"studies.{name}", study, config)
    known = known_names(registry.ILLUSTRATIONS, config.plugins.illustrations)
    for name, illustration in config.illustrations.items():
        yield from unknown_name(f"illustrations.{name}", name, "illustration", known)
        if illustration.dataset is not None:
            key = f"illustrations.{name}.dataset"
            yield from unknown_name(key, illustration.dataset, "dataset", sorted(config.datasets))
        for shape in illustration.levels:
            shapes = known_names(registry.SHAPES, config.plugins.shapes)
            yield from unknown_name(f"illustrations.{name}.levels.{shape}", shape, "shape", shapes)
    if config.federated is not None:
        yield from _federated_mistakes(config.federated, config)
    if config.tracking.uri.partition(":")[0].partition("+")[0] not in STORES:
        yield (
            f"tracking.uri = {config.tracking.uri!r}: MLflow no longer keeps runs in plain folders; "
            "give a database (sqlite:///results/mlflow.db) or a server (http://127.0.0.1:5000)"
        )


def _product_mistakes(config: Config) -> Iterator[str]:
    """Sweeps whose product of lists nobody can have meant."""
    for name, study in config.studies.items():
        lists = (study.datasets, study.models, study.rounds, study.batch_sizes)
        count = math.prod(map(len, lists)) * sum(len(levels) or 1 for levels in study.defenses.values())
        if count > MOST_RUNS:
            yield f"studies.{name}: makes {count} runs, allowed are {MOST_RUNS}; split it, or shorten its lists"
    if (federated := config.federated) is not None:
        sweeps = (federated.mi_budgets, federated.client_counts, federated.max_param_norms)
        personal = (federated.budget_means, federated.budget_spreads)
        count = len(federated.models) * 2 * sum(map(len, (*sweeps, *personal)))
        if count > MOST_RUNS:
            yield f"federated: makes up to {count} runs, allowed are {MOST_RUNS}; shorten its lists"


def _federated_mistakes(federated: FederatedConfig, config: Config) -> Iterator[str]:
    """Names that federated averaging uses and nobody declared, and more clients than the members suffice for."""
    clients, each = federated.most_clients(), federated.records or 1
    for source, model in federated.models.items():
        yield from unknown_name(f"federated.models.{source}", source, "dataset", sorted(config.datasets))
        models = known_names(registry.MODELS, config.plugins.models)
        yield from unknown_name(f"federated.models.{source}", model, "model", models)
        members = config.datasets[source].members if source in config.datasets else None
        if members is not None and clients * each > members:
            yield (
                f"federated: {clients} clients of at least {each} records each need {clients * each}, but {source} has "
                f"only {members} members; take fewer clients, or raise datasets.{source}.members"
            )


def _defense_mistakes(key: str, defense: Defense, config: Config) -> Iterator[str]:
    """Unknown shapes and trainers, and learning-rate searches of unequal budget."""
    if isinstance(defense, ChannelDefense):
        yield from unknown_name(
            f"{key}.shape", defense.shape, "shape", known_names(registry.SHAPES, config.plugins.shapes)
        )
    if isinstance(defense, CustomDefense):
        trainers = known_names(registry.TRAINERS, config.plugins.trainers)
        yield from unknown_name(f"{key}.trainer", defense.trainer, "trainer", trainers)
    if isinstance(defense, DPSGD):
        for name in defense.deltas:
            yield from unknown_name(f"{key}.deltas.{name}", name, "dataset", sorted(config.datasets))
    rates = defense.learning_rates or ()
    if len(set(rates)) < len(rates):
        yield f"{key}.learning_rates = {shown(rates)}: a candidate appears twice"
    budget = len(config.training.learning_rates)
    if defense.learning_rates is not None and len(defense.learning_rates) != budget:
        yield (
            f"{key}.learning_rates = {shown(defense.learning_rates)}: every defense tries equally many learning "
            f"rates; give {budget}, as training.learning_rates has"
        )


def _study_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Names that a study uses and nobody declared, and levels or attacks that do not fit."""
    for index, name in enumerate(study.datasets):
        yield from unknown_name(f"{key}.datasets[{index}]", name, "dataset", sorted(config.datasets))
    for index, name in enumerate(study.models):
        models = known_names(registry.MODELS, config.plugins.models)
        yield from unknown_name(f"{key}.models[{index}]", name, "model", models)
    for field in ("datasets", "models", "defenses", "rounds", "batch_sizes"):
        if not getattr(study, field):
            yield f"{key}.{field}: is empty; give at least one"
    yield from _sweep_mistakes(key, study.defenses, study.datasets, config)
    if 0 in study.rounds and not study.attacks:
        yield f"{key}.rounds = {shown(study.rounds)}: an untrained network that nobody attacks shows nothing"
    need_training = (*TRAINED_ATTACKS, *TRAINED_MEASURES)
    attacks = sorted({*need_training, "gradient_inversion", *config.attacks.custom})
    for index, name in enumerate(study.attacks):
        where = f"{key}.attacks[{index}]"
        yield from unknown_name(where, name, "attack", attacks)
        if name in need_training and 0 in study.rounds:
            yield f"{where} = {name!r}: attacks trained networks; give rounds of at least 1, not {shown(study.rounds)}"
        if name == "gradient_inversion" and any(study.rounds):
            yield f"{where} = {name!r}: attacks the untrained network; give rounds: [0], not {shown(study.rounds)}"
    if "gradient_capacity" in study.attacks:
        yield from _capacity_mistakes(key, study, config)
    yield from _size_mistakes(key, study, config)


def _capacity_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Defenses whose steps have no capacity of the kind that ``gradient_capacity`` measures."""
    declared = {*default_defenses(), *config.defenses}
    for name, levels in study.defenses.items():
        if name in declared and (not isinstance(config.defense(name), DPSGD) or 0.0 in levels):
            yield (
                f"{key}.defenses.{name} = {shown(levels)}: gradient_capacity measures steps of dpsgd and dppsac with "
                "noise; give it a study of its own"
            )


def _level_mistakes(key: str, defense: Defense, levels: tuple[float, ...], colors: int | None) -> Iterator[str]:
    """Levels that a defense cannot have on images of so many colors."""
    if isinstance(defense, Undefended):
        if levels:
            yield f"{key} = {shown(levels)}: an undefended run has no level; give []"
        return
    if not levels:
        yield f"{key}: needs at least one level"
    for index, level in enumerate(levels):
        if (problem := level_problem(defense, level, colors)) is not None:
            yield f"{key}[{index}] = {level}: {problem}"
    if len(set(levels)) < len(levels):
        yield f"{key} = {shown(levels)}: a level appears twice"


def _efficiency_mistakes(efficiency: EfficiencyConfig, config: Config) -> Iterator[str]:
    """Names that the table of training times uses and nobody declared, levels that do not fit, nothing to compare."""
    yield from unknown_name("efficiency.dataset", efficiency.dataset, "dataset", sorted(config.datasets))
    models = known_names(registry.MODELS, config.plugins.models)
    for index, name in enumerate(efficiency.models):
        yield from unknown_name(f"efficiency.models[{index}]", name, "model", models)
    yield from _sweep_mistakes("efficiency", efficiency.defenses, [efficiency.dataset], config)
    for name in efficiency.defenses:
        if isinstance(config.defenses.get(name), CustomDefense):
            yield f"efficiency.defenses.{name}: a trainer from outside cannot be timed step by step; leave it out"
    if "none" not in efficiency.defenses:
        yield "efficiency.defenses: lacks none, which all times are compared with; add none: []"


def _sweep_mistakes(
    key: str, sweep: dict[str, tuple[float, ...]], datasets: Iterable[str], config: Config
) -> Iterator[str]:
    """Defenses that nobody declared, and levels that a defense cannot have on one of the datasets."""
    declared = sorted({*default_defenses(), *config.defenses})
    readers = [config.datasets[name].reader or name for name in datasets if name in config.datasets]
    colors = min((COLORS[reader] for reader in readers if reader in COLORS), default=None)
    for name, levels in sweep.items():
        where = f"{key}.defenses.{name}"
        if name not in declared:
            yield from unknown_name(where, name, "defense", declared)
        else:
            yield from _level_mistakes(where, config.defense(name), levels, colors)


def _size_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Batches larger than the members that they, and those of the learning-rate search, are drawn from."""
    declared = {*default_defenses(), *config.defenses}
    for dataset in study.datasets:
        members = config.datasets[dataset].members if dataset in config.datasets else None
        if members is None:
            continue
        left, where = members, f"{dataset} has only {members} members"
        if any(study.rounds):
            left = members - math.ceil(config.training.validation_fraction * members)
            where = f"the learning-rate search on {dataset} has only {left} of {members} members"
        advice = f"{where}; raise datasets.{dataset}.members or use smaller batches"
        for index, size in enumerate(study.batch_sizes):
            if size > left:
                yield f"{key}.batch_sizes[{index}] = {size}: {advice}"
        largest = max((size for size in study.batch_sizes if size <= left), default=0)
        for name, levels in study.defenses.items():
            for index, level in enumerate(levels if name in declared else ()):
                records = records_in_step(config.defense(name), level, largest)
                if records > left:
                    yield f"{key}.defenses.{name}[{index}] = {level}: makes batches of {records}, but {advice}"
