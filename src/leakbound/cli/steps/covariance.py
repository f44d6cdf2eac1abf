"""Mean and covariance of a dataset's members."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from leakbound import storage
from leakbound.cli.files import JobSettings, read_dataset
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.table import RunTable
from leakbound.jobs.work import Work

_CHUNK = 2000  # images held as float64 at once


class CovarianceSettings(JobSettings):
    """Nothing beside the images."""


def jobs(table: RunTable) -> Iterator[Job]:
    """One job for each dataset."""
    for name in table.config.datasets:
        inputs = {"dataset": table.file("prepare", name)}
        work = partial(_work, table, name)
        yield new_job(table.config, "covariance", name, {}, inputs=inputs, purpose="data and channels", work=work)


def _work(table: RunTable, dataset: str) -> Iterable[Work]:
    """The matrix of the members' images, times itself."""
    size = table.size(dataset)
    yield Work("product", size.members * size.pixels**2)
    yield Work("disk", 8 * size.pixels**2)


def covariance(asked: CovarianceSettings, dataset: Path, out: Path) -> None:
    """Estimate mean and covariance of the members' images, float64, 1/N."""
    from leakbound.channels.covariance import estimate_moments

    images = read_dataset(dataset).train.images
    chunks = (images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK))
    storage.write_arrays(out, estimate_moments(chunks).arrays())


STEP = Step(CovarianceSettings, covariance, jobs, resources="covariance", group="data")
