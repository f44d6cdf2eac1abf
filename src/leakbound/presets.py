"""Read, check and write configurations: one message per mistake, with the key, the value and what is allowed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from leakbound import registry
from leakbound.config import (
    DPPSAC,
    DPSGD,
    EFFICIENCY,
    SCOREBOARD,
    TRAINED_ATTACKS,
    TRAINED_MEASURES,
    WORLDS,
    AttackConfig,
    Catalogue,
    ChannelDefense,
    Config,
    ConsensusConfig,
    CorrelatedCase,
    CustomDefense,
    DatasetConfig,
    Defense,
    EfficiencyConfig,
    FigureConfig,
    GeneralCase,
    GradientInversionConfig,
    IllustrationConfig,
    IndependentCase,
    MembershipConfig,
    ModelInversionConfig,
    NoiseSurface,
    StudyConfig,
    TheoryConfig,
    TrainingConfig,
    Undefended,
    default_defenses,
    level_problem,
    records_in_step,
)
from leakbound.mistakes import ConfigError, known_names, parse, read_yaml, unknown_name

STORES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")
"""Kinds of tracking stores that MLflow keeps runs in."""


def load(path: Path | str) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: If the file cannot be read, or with every mistake found in it.
    """
    return check(read_yaml(Path(path)), str(path))


def check(values: dict[str, Any], source: str) -> Config:
    """Check plain values as a configuration.

    Args:
        values: Nested plain values, e.g. Snakemake's ``config``.
        source: Name for messages.

    Raises:
        ConfigError: With every mistake found.
    """
    config = parse(Config, values, source)
    if mistakes := list(_mistakes(config)):
        raise ConfigError(source, mistakes)
    return config


def load_catalogue(path: Path | str, config: Config) -> Catalogue:
    """Read the catalogue of figures, a file or all YAML files of a folder, and check its names.

    Raises:
        ConfigError: If a file cannot be read, or with every mistake found in them.
    """
    catalogue = _read_catalogue(Path(path))
    plots = known_names(registry.PLOTS, config.plugins.plots)
    tests = known_names(registry.CLAIM_TESTS, config.plugins.claim_tests)
    mistakes = []
    for figure in catalogue.figures:
        where = f"figures.{figure.paper}/{figure.id}"
        mistakes += unknown_name(f"{where}.plot", figure.plot, "plot", plots)
        for claim in figure.claims:
            mistakes += unknown_name(f"{where}.claims.{claim.id}.test", claim.test, "claim test", tests)
        if figure.table is not None:
            mistakes += _table_mistakes(f"{where}.table", figure.table, config)
        mistakes += _option_mistakes(where, figure)
        study = config.studies.get(figure.study or "")
        for field, column in (("rounds", "rounds"), ("batch_sizes", "batch_size")):
            if study is not None and len(getattr(study, field)) > 1 and not figure.compares(column):
                mistakes.append(
                    f"{where}: compares runs of one length and batch size, but studies.{figure.study}.{field} = "
                    f"{list(getattr(study, field))}; put the others into a study of their own, or draw them, e.g. "
                    f"by options.x: {column}"
                )
    if mistakes:
        raise ConfigError(str(path), mistakes)
    return catalogue


def _option_mistakes(key: str, figure: FigureConfig) -> Iterator[str]:
    """Options of a figure's plot and claims that these do not understand; those of outside ones are not known here."""
    owners = [(f"{key}.options", registry.PLOT_OPTIONS, figure.plot, figure.options)]
    for claim in figure.claims:
        owners.append((f"{key}.claims.{claim.id}.options", registry.CLAIM_OPTIONS, claim.test, claim.options))
    for where, models, name, options in owners:
        if name in models.names():
            try:
                parse(models.get(name), options, where)
            except ConfigError as error:
                yield from str(error).splitlines()


def _table_mistakes(key: str, table: str, config: Config) -> list[str]:
    """The message for a figure's table if no configuration can make it, or if this one's world has no such part."""
    world, _, part = table.partition("/")
    if part and world in WORLDS:
        section = getattr(config, world, None)
        parts = getattr(type(section), "PARTS", ()) or (section.parts() if section else ())
        return unknown_name(key, part, f"part of {world}", sorted(parts)) if parts else []
    alone = (EFFICIENCY, SCOREBOARD)
    known = [*alone, *(f"{name}/PART" for name in WORLDS)]
    return unknown_name(key, table, "table", known) if table not in alone else []


def _read_catalogue(path: Path) -> Catalogue:
    """The figures of one file, or of all files of a folder by name."""
    if not path.is_dir():
        return parse(Catalogue, read_yaml(path), str(path))
    parts = [parse(Catalogue, read_yaml(part), str(part)) for part in sorted(path.glob("*.yaml"))]
    return parse(Catalogue, {"figures": [figure for part in parts for figure in part.figures]}, str(path))


def quick() -> Config:
    """The default configuration: the whole chain on scikit-learn's handwriting, in minutes on two cores."""
    channels: dict[str, tuple[float, ...]] = {
        "natural": (1.0, 4.0, 16.0),
        "white": (4.0, 16.0),
        "personalized": (4.0, 16.0),
    }
    shown: dict[str, tuple[float, ...]] = dict.fromkeys(channels, (4.0, 16.0, 60.0))
    faster = (0.01, 0.03, 0.1)  # clipped gradients are small
    trained = StudyConfig(
        datasets=("digits",),
        models=("lenet",),
        defenses={"none": (), **channels},
        rounds=(300,),
        batch_sizes=(32,),
        attacks=TRAINED_ATTACKS,
    )
    compared = {**trained.defenses, "natural": (4.0, 16.0)}  # as many levels of each, or fronts are not comparable
    private = {"dpsgd": (0.5, 2.0), "dppsac": (0.5, 2.0)}
    return Config(
        datasets={"digits": DatasetConfig(members=400, test=600, aux=600)},
        defenses={"dpsgd": DPSGD(learning_rates=faster), "dppsac": DPPSAC(learning_rates=faster)},
        training=TrainingConfig(search_rounds=50, evaluations=3),
        attacks=AttackConfig(
            membership=MembershipConfig(epochs=20),
            model_inversion=ModelInversionConfig(iterations=100, tv_weights=(0.0, 1e-2)),
            gradient_inversion=GradientInversionConfig(
                images=2, tuning_images=2, iterations=250, tv_weights=(1e-2, 1e-1)
            ),
        ),
        studies={
            "capacity": trained,
            "comparison": trained.model_copy(update={"defenses": {**compared, **private}}),
            "dp_capacity": trained.model_copy(
                update={"defenses": {"dpsgd": (0.5,)}, "rounds": (100, 300), "attacks": TRAINED_MEASURES}
            ),
            "gradient_inversion": StudyConfig(
                datasets=("digits",),
                models=("lenet_sigmoid",),
                defenses={"none": (), **channels},
                rounds=(0,),
                batch_sizes=(1,),
                attacks=("gradient_inversion",),
            ),
        },
        illustrations={
            "capacity_surface": IllustrationConfig(),
            "toy_example": IllustrationConfig(),
            "noisy_images": IllustrationConfig(dataset="digits", levels=shown),
            "compression": IllustrationConfig(dataset="digits", levels={"natural": (16.0,)}),
            "weights": IllustrationConfig(),
            "shapes": IllustrationConfig(dataset="digits", levels={"natural": (1.0, 4.0, 16.0)}),
        },
        theory=_quick_theory(),
        consensus=ConsensusConfig(),
    )


def _quick_theory() -> TheoryConfig:
    """Closed forms with the paper's parameters, but fewer budgets, draws and searches."""
    return TheoryConfig(
        case1=IndependentCase(draws=3),
        case3=CorrelatedCase(mi_budgets=(1.0, 2.0, 4.0, 6.0, 8.0, 10.0), boxes=(0.01,)),
        surface=NoiseSurface(mi_budgets=(1.0, 4.0, 10.0), points=15),
        general=GeneralCase(n_clients=12, draws=3),
    )


def schema() -> str:
    """JSON schema of a configuration, for editors."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"


def as_yaml(config: Config) -> str:
    """A configuration as commented YAML: every setting with its meaning."""
    head = [
        "# yaml-language-server: $schema=schema.json",
        f"# All settings of the preset {config.preset}, as `leakbound config` writes them.",
        "# A configuration may leave out whatever has a built-in default; schema.json has them.",
        "",
    ]
    return "\n".join([*head, *_section_lines(config, "", set())]) + "\n"


def _section_lines(section: BaseModel, pad: str, explained: set[type]) -> Iterator[str]:
    """Lines of one section, each setting under its description unless an equal section has shown it."""
    explain = type(section) not in explained
    explained.add(type(section))
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if field.description and explain:
            yield f"{pad}# {' '.join(field.description.split())}"
        if isinstance(value, BaseModel):
            yield f"{pad}{name}:"
            yield from _section_lines(value, f"{pad}  ", explained)
        else:
            plain = section.model_dump(mode="json", include={name}, exclude_defaults=isinstance(value, dict)).get(
                name, {}
            )
            for key, item in value.items() if isinstance(value, dict) else ():
                if hasattr(item, "mechanism"):  # tells which defense is meant, default or not
                    plain[key] = {"mechanism": item.mechanism, **plain[key]}
            yield from _value_lines(name, plain, pad)


def _value_lines(key: str, value: Any, pad: str) -> Iterator[str]:
    """Lines of one plain value: mappings in block form, all else in one line."""
    if isinstance(value, dict) and value:
        yield f"{pad}{key}:"
        for inner, item in value.items():
            yield from _value_lines(inner, item, f"{pad}  ")
    else:
        text = yaml.safe_dump(value, default_flow_style=True, width=1_000_000).removesuffix("...\n").strip()
        yield f"{pad}{key}: {text}"


def _mistakes(config: Config) -> Iterator[str]:
    """What the types cannot see: names that nothing answers to, and settings that contradict each other."""
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
    for source, model in (config.federated.models if config.federated else {}).items():
        yield from unknown_name(f"federated.models.{source}", source, "dataset", sorted(config.datasets))
        models = known_names(registry.MODELS, config.plugins.models)
        yield from unknown_name(f"federated.models.{source}", model, "model", models)
    if config.tracking.uri.partition(":")[0].partition("+")[0] not in STORES:
        yield (
            f"tracking.uri = {config.tracking.uri!r}: MLflow no longer keeps runs in plain folders; "
            "give a database (sqlite:///results/mlflow.db) or a server (http://127.0.0.1:5000)"
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
        yield f"{key}.learning_rates = {list(rates)}: a candidate appears twice"
    budget = len(config.training.learning_rates)
    if defense.learning_rates is not None and len(defense.learning_rates) != budget:
        yield (
            f"{key}.learning_rates = {list(defense.learning_rates)}: every defense tries equally many learning rates; "
            f"give {budget}, as training.learning_rates has"
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
    yield from _sweep_mistakes(key, study.defenses, config)
    if 0 in study.rounds and not study.attacks:
        yield f"{key}.rounds = {list(study.rounds)}: an untrained network that nobody attacks shows nothing"
    need_training = (*TRAINED_ATTACKS, *TRAINED_MEASURES)
    attacks = sorted({*need_training, "gradient_inversion", *config.attacks.custom})
    for index, name in enumerate(study.attacks):
        where = f"{key}.attacks[{index}]"
        yield from unknown_name(where, name, "attack", attacks)
        if name in need_training and 0 in study.rounds:
            yield f"{where} = {name!r}: attacks trained networks; give rounds of at least 1, not {list(study.rounds)}"
        if name == "gradient_inversion" and any(study.rounds):
            yield f"{where} = {name!r}: attacks the untrained network; give rounds: [0], not {list(study.rounds)}"
    if "gradient_capacity" in study.attacks:
        yield from _capacity_mistakes(key, study, config)
    yield from _size_mistakes(key, study, config)


def _capacity_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Defenses whose steps have no capacity of the kind that ``gradient_capacity`` measures."""
    declared = {*default_defenses(), *config.defenses}
    for name, levels in study.defenses.items():
        if name in declared and (not isinstance(config.defense(name), DPSGD) or 0.0 in levels):
            yield (
                f"{key}.defenses.{name} = {list(levels)}: gradient_capacity measures steps of dpsgd and dppsac with "
                "noise; give it a study of its own"
            )


def _level_mistakes(key: str, defense: Defense, levels: tuple[float, ...]) -> Iterator[str]:
    """Levels that a defense cannot have."""
    if isinstance(defense, Undefended):
        if levels:
            yield f"{key} = {list(levels)}: an undefended run has no level; give []"
        return
    if not levels:
        yield f"{key}: needs at least one level"
    for index, level in enumerate(levels):
        if (problem := level_problem(defense, level)) is not None:
            yield f"{key}[{index}] = {level}: {problem}"
    if len(set(levels)) < len(levels):
        yield f"{key} = {list(levels)}: a level appears twice"


def _efficiency_mistakes(efficiency: EfficiencyConfig, config: Config) -> Iterator[str]:
    """Names that the table of training times uses and nobody declared, levels that do not fit, nothing to compare."""
    yield from unknown_name("efficiency.dataset", efficiency.dataset, "dataset", sorted(config.datasets))
    models = known_names(registry.MODELS, config.plugins.models)
    for index, name in enumerate(efficiency.models):
        yield from unknown_name(f"efficiency.models[{index}]", name, "model", models)
    yield from _sweep_mistakes("efficiency", efficiency.defenses, config)
    for name in efficiency.defenses:
        if isinstance(config.defenses.get(name), CustomDefense):
            yield f"efficiency.defenses.{name}: a trainer from outside cannot be timed step by step; leave it out"
    if "none" not in efficiency.defenses:
        yield "efficiency.defenses: lacks none, which all times are compared with; add none: []"


def _sweep_mistakes(key: str, sweep: dict[str, tuple[float, ...]], config: Config) -> Iterator[str]:
    """Defenses that nobody declared, and levels that a defense cannot have."""
    declared = sorted({*default_defenses(), *config.defenses})
    for name, levels in sweep.items():
        where = f"{key}.defenses.{name}"
        if name not in declared:
            yield from unknown_name(where, name, "defense", declared)
        else:
            yield from _level_mistakes(where, config.defense(name), levels)


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
