"""Images of a dataset: a private pool, test records and the attacker's own records."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound import storage
from leakbound_lab import registries
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.settings import PrivacyNoise
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import write_provenance

if TYPE_CHECKING:
    from leakbound_lab.datasets import ImageDataset


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each dataset."""
    config = table.config
    for name, settings in config.datasets.items():
        # Left out unless it is set, so that earlier datasets are not prepared again.
        unset = {option for option in ("label_nats", "owner") if getattr(settings, option) is None}
        yield new_job(
            config,
            "prepare",
            name,
            {"dataset": name, "config": settings.model_dump(mode="json", exclude=unset)},
            arguments={
                "dataset": name,
                "config": settings,
                "seed": config.seed,
                "privacy_noise": config.privacy_noise,
            },
            uses={"datasets": [settings.reader or name]},
            purpose="data and channels",
            work=partial(_work, table, name),
        )


def _work(table: RunTable, dataset: str) -> Iterable[Work]:
    """Yield the images, each of which is read, resized and kept."""
    size = table.size(dataset)
    yield Work("image", size.images)
    yield Work("disk", 4 * size.images * size.pixels)


def originals(job: Job, table: RunTable) -> str:
    """Hash the Parquet files of the images, so that an edit is noticed. Readers from plugins name no files."""
    config = table.config
    settings = config.datasets[job.name]
    reader = settings.reader or job.name
    target = config.plugins.datasets.get(reader) or registries.DATASETS.path(reader)
    if not target.startswith(("leakbound.", "leakbound_lab.")):
        return "{}"
    from leakbound_lab.datasets.originals import original_hashes

    return json.dumps(original_hashes(job.name, settings, Path(job.outputs["provenance"])), sort_keys=True)


def prepare(
    dataset: str,
    config: DatasetConfig,
    seed: int,
    plain: dict[str, Any],
    out: Path,
    provenance: Path,
    privacy_noise: PrivacyNoise = "seeded",
) -> None:
    """Read the images of a dataset and split them into a private pool, test records and the attacker's own.

    With secure noise, records are secret. Only the owner can read the files. Their hashes are keyed with a
    secret that is drawn each time and stays with the records. The labels do not influence which other records
    are members. All copies of a record have one response, that of the first. If the file is made again, its
    responses to labels are others, whose nats add up.

    Args:
        dataset: Name of the dataset.
        config: Its settings.
        seed: Seed of the configuration.
        plain: These settings as plain values, for the provenance.
        out: Images to write.
        provenance: Record to write.
        privacy_noise: Whether noise that protects records is ``seeded`` or ``secure``.
    """
    from leakbound_lab import datasets
    from leakbound_lab.datasets.originals import describe_originals

    began = time.time()
    originals = describe_originals(dataset, config) or {}
    private = privacy_noise == "secure"
    images = datasets.prepare(dataset, config, seed, stratified=not private)
    images = replace(images, secret=secrets.token_hex(32) if private else "")
    if config.label_nats is not None:
        images = _responded(images, config.label_nats, seed, privacy_noise)
    content = images.content_hash()
    drawing = asdict(images.drawing)
    metadata = {
        "name": images.name,
        "classes": json.dumps(images.classes),
        "drawing": json.dumps(drawing),
        "content": content,
        **({} if images.label_nats is None else {"label_nats": repr(images.label_nats)}),
        **({"scale": json.dumps(images.scale)} if images.scale else {}),
    }
    storage.write_arrays(out, images.arrays(), {**metadata, "secret": images.secret}, private=private)
    sizes = {name: len(getattr(images, name).labels) for name in ("pool", "test", "aux")}
    sizes["copies"] = 0 if images.copies is None else sizes["pool"] - len({*images.copies.tolist()})
    if images.owners is not None:
        sizes["owners"] = len({*images.owners.tolist()})
    facts = {"sizes": sizes, "drawing": drawing, "classes": list(images.classes), "originals": originals}
    write_provenance(provenance, plain, {}, None, began, private=private, content=content, **facts)


def _responded(
    dataset: ImageDataset, label_nats: float, seed: int, privacy_noise: PrivacyNoise
) -> ImageDataset:
    """Replace each label of the pool by a randomized response of at most so many nats.

    Raises:
        DatasetError: If the responses may reveal as much as a label of so many classes contains.
    """
    from leakbound.channels.randomized_response import RandomizedResponse
    from leakbound.randomness.seeding import numpy_generator
    from leakbound.randomness.sources import SecureDraws
    from leakbound_lab.datasets import DatasetError

    try:
        response = RandomizedResponse.calibrate(len(dataset.classes), label_nats)
    except ValueError as error:
        raise DatasetError(f"datasets.{dataset.name}.label_nats: {error}") from error
    secure = privacy_noise == "secure"
    draws = SecureDraws() if secure else numpy_generator(seed, "datasets", dataset.name, "response")
    labels = response.randomize(dataset.pool.labels, draws.random((2, len(dataset.pool))))
    if dataset.copies is not None:  # a second response to the label of a copy would add its nats
        labels = labels[dataset.copies]
    return replace(dataset, pool=replace(dataset.pool, labels=labels), label_nats=response.capacity)


STEP = Step(prepare, jobs)
