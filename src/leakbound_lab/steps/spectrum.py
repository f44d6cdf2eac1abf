"""Spectrum of the data for a shape of noise, computed once for all capacities."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from leakbound import storage
from leakbound.commands.files import refusing
from leakbound_lab.config.data import BoxWeights, image_shape
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import covariance_of, read_moments


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each dataset and family of channels."""
    for name, channel in {channel.spectrum: channel for channel in table.channels().values()}.items():
        shape = channel.settings.shape
        yield new_job(
            table.config,
            "spectrum",
            name,
            {},
            arguments={"shape": shape, "weights": channel.settings.weights},
            inputs={"moments": table.moments(channel.dataset)},
            uses={"shapes": [shape]},
            purpose="data and channels",
            work=partial(_work, table, channel.dataset),
        )


def _work(table: RunTable, dataset: str) -> Iterable[Work]:
    """Yield a decomposition of the covariance, counted as one product with itself."""
    pixels = table.size(dataset).pixels
    yield Work("product", pixels**3)
    yield Work("disk", 8 * pixels**2)


def spectrum(shape: str, weights: BoxWeights, moments: Path, out: Path) -> None:
    """Decompose a covariance as far as a shape of noise needs it, once for all capacities.

    Args:
        shape: Name of the shape.
        weights: Rectangle with more noise, for a shape that takes weights.
        moments: Mean and covariance to read.
        out: Spectrum to write.
    """
    from leakbound.channels.shapes import box_weights
    from leakbound.registry import SHAPES

    kind = SHAPES.get(shape)
    estimated = read_moments(moments)
    relative_variances = None
    if kind.takes_weights:
        with refusing(moments):
            colors, side = image_shape(estimated.dimension)
        rows, columns = weights.on(side)
        relative_variances = box_weights(
            colors, side, side, rows=rows, columns=columns, weight=weights.weight
        )
    result = kind.decompose(estimated, weights=relative_variances)
    storage.write_arrays(out, result.arrays(), {**result.metadata(), "covariance_of": covariance_of(moments)})


STEP = Step(spectrum, jobs)
