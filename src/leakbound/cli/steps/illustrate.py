"""Rows of figures that need no training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import (
    JobSettings,
    MomentsOption,
    SettingsOption,
    check_outputs,
    read_dataset,
    read_moments,
    read_settings,
)
from leakbound.config.settings import Name, Seed
from leakbound.config.studies import IllustrationConfig
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.table import RunTable


class IllustrateSettings(JobSettings):
    """An illustration."""

    illustration: Name
    config: IllustrationConfig
    seed: Seed


def jobs(table: RunTable) -> Iterator[Job]:
    """One job for each illustration."""
    config = table.config
    for name, settings in config.illustrations.items():
        inputs = {}
        if settings.dataset is not None:
            inputs["dataset"] = table.file("prepare", settings.dataset)
            inputs["moments"] = table.file("covariance", settings.dataset)
        yield new_job(
            config,
            "illustrate",
            name,
            {"illustration": name, "config": settings.model_dump(mode="json"), "seed": config.seed},
            inputs=inputs,
            # Some compare all built-in shapes, named or not.
            uses={"illustrations": [name], "shapes": ["natural", *settings.levels]},
            purpose="figures",
        )


def illustrate(
    settings: SettingsOption,
    out: Annotated[Path, typer.Option(help="Rows, Parquet.")],
    dataset: Annotated[Path | None, typer.Option(help="Prepared images, if it shows any.")] = None,
    moments: MomentsOption = None,
) -> None:
    """Compute the rows of a figure that needs no training."""
    from leakbound.registry import ILLUSTRATIONS

    check_outputs(out)
    asked = read_settings(settings, IllustrateSettings)
    rows = ILLUSTRATIONS.get(asked.illustration)(
        asked.config,
        dataset=None if dataset is None else read_dataset(dataset),
        moments=None if moments is None else read_moments(moments),
        seed=asked.seed,
    )
    storage.write_rows(out, rows)


STEP = Step(IllustrateSettings, illustrate, jobs, group="figures")
