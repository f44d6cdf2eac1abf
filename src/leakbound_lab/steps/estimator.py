"""Network that estimates images from their noisy versions, one for each dataset with inverted gradients."""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.commands.files import read_spectrum
from leakbound_lab.config.attacks import EstimatorConfig
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import covariance_of, read_dataset, read_moments, write_provenance

_FOLDS = 4  # parts of the records, each with moments and axes of its own


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each dataset with channels whose gradients are inverted."""
    config = table.config
    for dataset, families in table.estimators().items():
        yield new_job(
            config,
            "estimator",
            dataset,
            {},
            arguments={"config": config.attacks.gradient_inversion.estimator, "seed": config.seed},
            inputs={
                "dataset": table.file("prepare", dataset),
                "moments": table.moments(dataset, "aux"),
                "spectra": {family: table.file("spectrum", f"{dataset}/{family}") for family in families},
            },
            uses={"shapes": sorted({*families.values()})},
            purpose="data and channels",
            work=partial(_work, table, dataset, len(families)),
        )


def _work(table: RunTable, dataset: str, families: int) -> Iterable[Work]:
    """Yield training steps in records, with float32 products, moments of each part, and axes of each family."""
    size = table.size(dataset)
    config = table.config.attacks.gradient_inversion.estimator
    records = config.steps * config.batch_size
    yield Work("denoise", records * config.width**2)
    yield Work("product", records * size.pixels**2)
    yield Work("product", _FOLDS * (size.aux * size.pixels**2 + 2 * families * size.pixels**3))


def estimator(
    config: EstimatorConfig,
    seed: int,
    plain: dict[str, Any],
    dataset: Path,
    moments: Path,
    spectra: dict[str, Path],
    out: Path,
    provenance: Path,
) -> None:
    """Train a network that estimates images from noisy ones, on the attacker's own records alone."""
    from leakbound.accounting.releases import estimator_releases
    from leakbound_lab.attacks.learned_estimate.estimator_training import train_estimator

    began = time.time()
    images = read_dataset(dataset)
    sources = [read_spectrum(path) for path in spectra.values()]
    shrinkage = read_moments(moments).shrinkage
    trained = train_estimator(
        images.aux.images, sources, config, shrinkage=shrinkage, seed=seed, dataset=images.name
    )
    storage.write_arrays(out, trained.arrays(), trained.metadata())
    inputs = {
        "dataset": dataset,
        "moments": moments,
        **{f"spectrum of {name}": path for name, path in spectra.items()},
    }
    from_members = any(covariance_of(path) != "aux" for path in spectra.values())
    released = [release.to_dict() for release in estimator_releases(from_members)]
    write_provenance(provenance, plain, inputs, None, began, released=released)


STEP = Step(estimator, jobs)
