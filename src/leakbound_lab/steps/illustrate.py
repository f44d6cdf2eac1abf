"""Rows of figures that need no training."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from leakbound import storage
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import read_dataset, read_moments

_PRODUCTS = {"covariance_leak": 70, "personalized_cost": 12, "shapes": 13}
"""Time on CIFAR-10 in products of its covariance with itself. The first is for each replica."""

_WITHOUT_DATA = ("capacity_surface", "toy_example", "weights")


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each illustration."""
    config = table.config
    for name, settings in config.illustrations.items():
        inputs = {}
        if settings.dataset is not None:
            inputs["dataset"] = table.file("prepare", settings.dataset)
            inputs["moments"] = table.moments(settings.dataset, settings.covariance)
        yield new_job(
            config,
            "illustrate",
            name,
            {},
            arguments={"illustration": name, "config": settings, "seed": config.seed},
            inputs=inputs,
            # Some compare all built-in shapes, whether levels lists them or not.
            uses={"illustrations": [name], "shapes": ["natural", *settings.levels]},
            purpose="figures",
            work=partial(_work, table, name, settings),
        )


def _work(table: RunTable, name: str, settings: IllustrationConfig) -> Iterable[Work]:
    """Yield decompositions of covariances, counted as products. Without a dataset the work is little."""
    if settings.dataset is not None:
        products = _PRODUCTS.get(name, 1) * (settings.replicas if name == "covariance_leak" else 1)
        yield Work("product", products * table.size(settings.dataset).pixels ** 3)


def illustrate(
    illustration: str,
    config: IllustrationConfig,
    seed: int,
    out: Path,
    dataset: Path | None = None,
    moments: Path | None = None,
) -> None:
    """Compute the rows of a figure that needs no training."""
    from leakbound_lab.registries import ILLUSTRATIONS

    needs_data = illustration in ILLUSTRATIONS.builtin and illustration not in _WITHOUT_DATA
    if needs_data and None in (dataset, moments):
        raise ValueError(
            f"illustrations.{illustration}.dataset is missing: name the dataset that is to be shown"
        )
    rows = ILLUSTRATIONS.get(illustration)(
        config,
        dataset=None if dataset is None else read_dataset(dataset),
        moments=None if moments is None else read_moments(moments),
        seed=seed,
    )
    storage.write_rows(out, rows)


STEP = Step(illustrate, jobs)
