"""Mean and covariance of some records of a dataset."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

from leakbound import storage
from leakbound.cli.inputs import read_dataset
from leakbound.cli.job_settings import JobSettings
from leakbound.config.data import CovarianceOf
from leakbound.jobs.job import Job, RunTable, Step, Work, new_job

_CHUNK = 2000  # images held as float64 at once


class CovarianceSettings(JobSettings):
    """Records whose moments are estimated."""

    covariance: CovarianceOf = "aux"


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield two jobs for each dataset.

    Whatever records channels are made from, the capacity under the members' moments is computed too.
    """
    for name in table.config.datasets:
        for records in get_args(CovarianceOf):
            yield new_job(
                table.config,
                "covariance",
                f"{name}/{records}",
                {"covariance": records},
                inputs={"dataset": table.file("prepare", name)},
                purpose="data and channels",
                work=partial(_work, table, name, records),
            )


def _work(table: RunTable, dataset: str, records: CovarianceOf) -> Iterable[Work]:
    """Yield products of the covariance with itself.

    For the attacker's few records there are five times as many, because their covariance is decomposed.
    """
    size = table.size(dataset)
    if records == "members":
        yield Work("product", size.pool * size.pixels**2)
    else:
        yield Work("product", 5 * size.aux * size.pixels**2 + 10 * size.pixels**3)
    yield Work("disk", 8 * size.pixels**2)


def covariance(settings: CovarianceSettings, dataset: Path, out: Path) -> None:
    """Estimate mean and covariance in float64: of the pool itself, or of the distribution of the aux records.

    Example: leakbound step covariance --dataset digits.safetensors --out aux.safetensors
    """
    from leakbound.channels.covariance import estimate_moments, population_moments

    prepared = read_dataset(dataset)
    metadata = {"covariance_of": settings.covariance}
    if settings.covariance == "aux":
        storage.write_arrays(out, population_moments(prepared.aux.images).arrays(), metadata)
        return
    images = prepared.pool.images
    moments = estimate_moments(images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK))
    storage.write_arrays(
        out, moments.arrays(), {**metadata, "secret": prepared.secret}, private=bool(prepared.secret)
    )


STEP = Step(CovarianceSettings, covariance, jobs)
