"""Commands: images of a dataset, and their mean and covariance."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import (
    DatasetOption,
    SettingsOption,
    check_outputs,
    plain_settings,
    read_dataset,
    read_settings,
)
from leakbound.cli.jobs import PrepareJob


def prepare(
    settings: SettingsOption,
    out: Annotated[Path, typer.Option(help="Images, safetensors.")],
    provenance: Annotated[Path, typer.Option(help="Provenance, JSON.")],
) -> None:
    """Read a dataset's images and split them into members, test and the attacker's own."""
    from leakbound import datasets
    from leakbound.datasets.originals import describe_originals
    from leakbound.storage.provenance import collect

    began = time.time()
    check_outputs(out, provenance)
    job = read_settings(settings, PrepareJob)
    originals = describe_originals(job.dataset, job.config) or {}
    dataset = datasets.prepare(job.dataset, job.config, job.seed)
    metadata = {"name": dataset.name, "classes": json.dumps(dataset.classes), "content": dataset.content_hash()}
    storage.write_arrays(out, dataset.arrays(), metadata)
    sizes = {name: len(getattr(dataset, name).labels) for name in ("train", "test", "aux")}
    facts = {"started": began, "content": dataset.content_hash(), "sizes": sizes, "classes": list(dataset.classes)}
    facts["originals"] = originals
    seconds = time.time() - began
    storage.write_json(provenance, collect(plain_settings(settings), inputs={}, device="cpu", seconds=seconds, **facts))


def covariance(
    dataset: DatasetOption,
    out: Annotated[Path, typer.Option(help="Mean and covariance, safetensors.")],
) -> None:
    """Estimate mean and covariance of the members' images, float64, 1/N."""
    from leakbound.channels.covariance import estimate_moments

    check_outputs(out)
    images = read_dataset(dataset).train.images
    chunk = 2000
    parts = (images[start : start + chunk] for start in range(0, len(images), chunk))
    storage.write_arrays(out, estimate_moments(parts).arrays())
