"""Read, check and write configurations: one message per mistake, with the key, the value and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from leakbound import registry
from leakbound.config.attacks import (
    TRAINED_ATTACKS,
    TRAINED_MEASURES,
    AttackConfig,
    GradientInversionConfig,
    MembershipConfig,
    ModelInversionConfig,
)
from leakbound.config.catalogue import EFFICIENCY, SCOREBOARD, WORLDS, Catalogue, FigureConfig
from leakbound.config.checks import mistakes_of
from leakbound.config.consensus import ConsensusConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.defenses import DPPSAC, DPSGD
from leakbound.config.messages import ConfigError, known_names, parse, read_yaml, shown, unknown_name
from leakbound.config.studies import IllustrationConfig, StudyConfig
from leakbound.config.theory import CorrelatedCase, GeneralCase, IndependentCase, NoiseSurface, TheoryConfig
from leakbound.config.training import TrainingConfig
from leakbound.config.whole import Config


def load(path: Path | str) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: If the file cannot be read, or with every mistake found in it.
    """
    return check(read_yaml(Path(path)), str(path))


def check(values: dict[Any, Any], source: str) -> Config:
    """Check plain values as a configuration.

    Args:
        values: Nested plain values, e.g. Snakemake's ``config``.
        source: Name for messages.

    Raises:
        ConfigError: With every mistake found.
    """
    config = parse(Config, values, source)
    if mistakes := list(mistakes_of(config)):
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
                    f"{shown(getattr(study, field))}; put the others into a study of their own, or draw them, e.g. "
                    f"by options.x: {column}"
                )
    if mistakes:
        raise ConfigError(str(path), mistakes)
    return catalogue


def _option_mistakes(key: str, figure: FigureConfig) -> Iterator[str]:
    """Options of a figure's plot and claims that these do not understand; those of outside ones are not known here."""
    owners = [(f"{key}.options", registry.PLOTS, figure.plot, figure.options)]
    for claim in figure.claims:
        owners.append((f"{key}.claims.{claim.id}.options", registry.CLAIM_TESTS, claim.test, claim.options))
    for where, known, name, options in owners:
        if name in known.names() and (model := getattr(known.get(name), "settings", None)):
            try:
                parse(model, options, where)
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
