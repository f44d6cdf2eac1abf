"""All steps, all jobs of a configuration, and a trial of its networks before any of them."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

from leakbound_lab.config.catalogue import Catalogue
from leakbound_lab.config.data import size_of
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.config.reading import load_catalogue
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.job import JobList, RunTable, Step
from leakbound_lab.jobs.paths import OUTPUTS
from leakbound_lab.registries import MODELS


def all_steps() -> list[Step]:
    """List the steps in the order of the chain. The file of each has its name."""
    return [importlib.import_module(f"leakbound_lab.steps.{name}").STEP for name in OUTPUTS]


def job_list(config: Config, *, figures: bool = True, checked: bool = False) -> JobList:
    """List all jobs of a configuration.

    Args:
        config: A checked configuration.
        figures: Whether its catalogue is read. Without it there are no results that show figures, and all
            others are the same.
        checked: Whether the catalogue was checked when the run began.
    """
    catalogue = (
        load_catalogue(config.catalogue, config, checked=checked) if figures else Catalogue(figures=())
    )
    return JobList(RunTable(config, catalogue), all_steps())


def try_networks(config: Config, source: str) -> None:
    """Build each network from outside for its data, and let it compute, as its jobs will.

    That takes torch, and so a process of its own. Without such networks there is none.

    Args:
        config: A checked configuration.
        source: Its name for messages.

    Raises:
        ConfigError: If a network cannot be trained or attacked as asked.
    """
    cases = [*_cases(config)]
    if not cases:
        return
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from leakbound_lab.training import trainers; trainers.print_network_problems()",
        ],
        input=json.dumps([dict(config.plugins.models), cases]),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    failed = [f"plugins.models: their trial failed: {done.stderr.strip()[-500:]}"]
    if mistakes := failed if done.returncode else json.loads(done.stdout):
        raise ConfigError(source, mistakes)


def _cases(
    config: Config,
) -> Iterator[tuple[str, list[tuple[int, int, int] | None], str, int, bool, list[bool]]]:
    """Yield dataset, possible shapes of its records, network, classes and whether gradients are clipped.

    The last is given for all runs together, and for those whose uploads are scored.
    """
    studies = config.studies.values()
    clips = any(config.defense(arm).clips for study in studies for arm in study.defenses)
    uses = {(model, dataset) for study in studies for model in study.models for dataset in study.datasets}
    if config.efficiency is not None:
        uses |= {(model, config.efficiency.dataset) for model in config.efficiency.models}
    if config.federated is not None:
        uses |= {(model, dataset) for dataset, model in config.federated.models.items()}
    for model, dataset in sorted(use for use in uses if use[0] not in MODELS.builtin):
        size = size_of(dataset, config.datasets[dataset])
        shapes = [(colors, size.side, size.side) for colors in ((size.colors,) if size.known else (3, 1))]
        scored = _scored(config, model)
        yield dataset, [None] if dataset in config.tables else [*shapes], model, size.classes, clips, scored


def _scored(config: Config, model: str) -> list[bool]:
    """Return whether gradients are clipped, for each kind of a network's runs whose uploads are scored."""
    attacks = config.attacks.all()
    studies = [study for study in config.studies.values() if model in study.models]
    replayed = [study for study in studies if any(attacks[name].replays for name in study.attacks)]
    return sorted({config.defense(arm).clips for study in replayed for arm in study.defenses})
