"""Read, check and write configurations, with one message for each mistake."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from leakbound_lab.config.catalogue import Catalogue, FigureConfig
from leakbound_lab.config.checks import figure_mistakes, mistakes_of
from leakbound_lab.config.messages import ConfigError, mapping_of, parse, read_text, read_yaml
from leakbound_lab.config.settings import Settings
from leakbound_lab.config.whole import Config


def load(path: Path | str) -> Config:
    """Read and check a configuration file.

    Args:
        path: YAML file.

    Raises:
        ConfigError: If the file cannot be read, or with every mistake found in it.

    Example:
        >>> load("config/small.yaml").preset  # doctest: +SKIP
        'small'
    """
    return config_of(read_yaml(Path(path)), str(path))


def config_of(values: dict[Any, Any], source: str) -> Config:
    """Check plain values as a configuration, and leave out the studies that ``only`` does not name.

    Args:
        values: Nested plain values, e.g. Snakemake's ``config``.
        source: Name for messages.

    Raises:
        ConfigError: With every mistake found.
    """
    config = parse(Config, values, source)
    if mistakes := list(mistakes_of(config)):
        raise ConfigError(source, mistakes)
    return config.restricted()


def load_catalogue(path: Path | str, config: Config, *, checked: bool = False) -> Catalogue:
    """Read the catalogue of figures, one file or all YAML files of a folder, and check it.

    Args:
        path: File or folder.
        config: Configuration whose runs its figures show.
        checked: Whether its figures were checked for this configuration, when a run began. Files are then only parsed.

    Raises:
        ConfigError: If a file cannot be read, or with every mistake found in them.
    """
    path = Path(path)
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    figures = [figure for file in files for figure in _figures_of(read_text(file), str(file))]
    catalogue = parse(Catalogue, {"figures": figures}, str(path))  # ids are unique in all files together
    if checked:
        return catalogue
    if mistakes := [mistake for figure in catalogue.figures for mistake in figure_mistakes(figure, config)]:
        raise ConfigError(str(path), mistakes)
    return catalogue


@lru_cache(maxsize=64)
def _figures_of(text: str, source: str) -> tuple[FigureConfig, ...]:
    """Parse a file of figures, once for all configurations that a process checks it for."""
    return parse(Catalogue, mapping_of(text, source), source).figures


def quick() -> Config:
    """Load the default configuration, ``quick.yaml`` in this folder."""
    return load(Path(__file__).with_name("quick.yaml"))


def schema() -> str:
    """Write the JSON schema of a configuration, for editors."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"


def as_yaml(config: Config) -> str:
    """Write a configuration as commented YAML: every setting with its meaning."""
    head = [
        "# yaml-language-server: $schema=../workflow/schemas/config.schema.json",
        f"# All settings of the preset {config.preset}, as `leakbound config` writes them.",
        "# A configuration may leave out whatever has a built-in default; the schema has them.",
        "",
    ]
    return "\n".join([*head, *_section_lines(config, "", set())]) + "\n"


def _section_lines(section: Settings, pad: str, explained: set[type]) -> Iterator[str]:
    """Yield the lines of a section. The description of a setting is written the first time alone."""
    explain = type(section) not in explained
    explained.add(type(section))
    texts = type(section).descriptions() if explain else {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        if name in texts:
            yield f"{pad}# {' '.join(texts[name].split())}"
        if isinstance(value, Settings):
            yield f"{pad}{name}:{'' if type(value).model_fields else ' {}'}"
            yield from _section_lines(value, f"{pad}  ", explained)
        else:
            plain = section.model_dump(
                mode="json", include={name}, exclude_defaults=isinstance(value, dict)
            ).get(name, {})
            for key, item in value.items() if isinstance(value, dict) else ():
                # The mechanism identifies the defense, so it is written even if it is the default.
                if hasattr(item, "mechanism"):
                    plain[key] = {"mechanism": item.mechanism, **plain[key]}
            yield from _value_lines(name, plain, pad)


def _value_lines(key: str, value: Any, pad: str) -> Iterator[str]:
    """Yield the lines of a plain value: mappings in block form, all else in one line."""
    if isinstance(value, dict) and value:
        yield f"{pad}{key}:"
        for inner, item in value.items():
            yield from _value_lines(inner, item, f"{pad}  ")
    else:
        text = yaml.safe_dump(value, default_flow_style=True, width=1_000_000).removesuffix("...\n").strip()
        yield f"{pad}{key}: {text}"
