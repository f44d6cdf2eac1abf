"""Mean and covariance of some records of a dataset."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

from leakbound import storage
from leakbound_lab.config.data import CovarianceOf
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import device_label, device_name, read_dataset
from leakbound_lab.steps.job_settings import Device


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield two jobs for each dataset.

    Whatever records channels are made from, the capacity under the members' moments is computed too.
    """
    # Moments are alike on all devices, so a machine without a GPU may make those of results from one with a GPU.
    device: Device = "cpu" if table.config.device_of("covariance") == "cpu" else "auto"
    for name in table.config.datasets:
        for records in get_args(CovarianceOf):
            yield new_job(
                table.config,
                "covariance",
                f"{name}/{records}",
                {},
                arguments={"covariance": records, "device": device},
                inputs={"dataset": table.file("prepare", name)},
                purpose="data and channels",
                work=partial(_work, table, name, records),
                part_of=name,
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


def covariance(dataset: Path, out: Path, covariance: CovarianceOf = "aux", device: Device = "cpu") -> None:
    """Estimate mean and covariance in float64: of the pool itself, or of the distribution of the aux records.

    Args:
        dataset: Images to read.
        out: Mean and covariance to write.
        covariance: Records whose moments are estimated.
        device: Where they are: ``cpu``, ``cuda``, or ``auto`` for a GPU if there is one.
    """
    from leakbound.channels.covariance import exact_moments, population_moments

    prepared = read_dataset(dataset)
    used = "cpu" if device == "cpu" else device_name(device)
    place = {} if used == "cpu" else {"device": device_label(used)}
    metadata: dict[str, str] = {"covariance_of": covariance, **place}
    if covariance == "aux":
        moments = population_moments(prepared.aux.images, device=used)
    else:
        moments = exact_moments(prepared.pool.images, used)
        metadata["secret"] = prepared.secret
    storage.write_arrays(out, moments.arrays(), metadata, private=bool(metadata.get("secret")))


STEP = Step(covariance, jobs)
