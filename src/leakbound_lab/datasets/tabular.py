"""Reader of datasets that are no images, and the scale of their values.

Values are standardized by the attacker's records, so that nothing depends on a statistic of private ones.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from leakbound.records.arrays import is_array_file
from leakbound.records.records import DatasetError, Records
from leakbound.records.tables import DEVIATIONS, load_owners, load_table
from leakbound.storage.parquet import shards
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets.images import FOLDER_VARIABLE
from leakbound_lab.datasets.records import RawDataset


@dataclass(frozen=True)
class TableReader:
    """Reader of tables, arrays and time series. ``reader(name, config)`` gives the original records.

    Attributes:
        publishable: Whether values of single records may be shown in figures.
    """

    publishable: bool = False

    def __call__(self, name: str, config: DatasetConfig) -> RawDataset:
        """Read the file that ``config.path`` names.

        Raises:
            DatasetError: If it cannot be read, or holds no labelled table of numbers.
            TooLargeError: If it would take more memory than is allowed.
        """
        path = self.originals(name, config)[0]
        label = config.label or "label"
        column = [] if config.owner is None or is_array_file(path) else [config.owner]
        table = load_table(path, label, column)
        owners = None
        if config.owner is not None:
            owners = load_owners(path, config.owner, len(table.values))
        records = Records(table.origin, table.labels, lambda rows: table.values[rows])
        return RawDataset(table.classes, records, None, columns=table.columns, owners=owners)

    def originals(self, name: str, config: DatasetConfig) -> tuple[Path, ...]:
        """Return the files that are read, whether or not they exist."""
        return shards(Path(os.environ.get(FOLDER_VARIABLE, "")) / (config.path or name))


read_table = TableReader()  # any records
read_shown_table = TableReader(publishable=True)  # records that their owner wants in figures


def scaling(
    raw: RawDataset, parts: Sequence[Float[np.ndarray, "_ 1 rows columns"]], standardize: bool
) -> tuple[Float[np.ndarray, "1 rows columns"], Float[np.ndarray, "1 rows columns"]]:
    """Compute the scale that brings records to the networks' range [-1, 1]: (value − mean) · factor, clipped.

    Each value is standardized by mean and standard deviation of the attacker's records. Three standard
    deviations become 1, and values beyond are clipped. A value that all of the attacker's records share
    becomes 0. Linear changes of units therefore change nothing, and nothing depends on private records.

    Args:
        raw: Records as a reader returns them.
        parts: The private, the test and, last, the attacker's records.
        standardize: False for values that are in [-1, 1] already.

    Returns:
        Mean and factor of each value, 0 and 1 of values that are not standardized.

    Raises:
        DatasetError: If values are not standardized and one is outside of [-1, 1].
    """
    public = parts[-1]
    if standardize:
        deviation = public.std(axis=0)
        varies = deviation > 1e-9 * np.abs(public).max(axis=0)  # constant values vary by rounding
        factor = np.divide(1.0, DEVIATIONS * deviation, out=np.zeros_like(deviation), where=varies)
        return public.mean(axis=0), factor
    largest = np.max([np.abs(part).max(axis=0).ravel() for part in parts], axis=0)
    if largest.max() > 1:
        column = int(largest.argmax())
        raise DatasetError(
            f"{raw.train.origin}: {raw.columns[column]!r} reaches {largest[column]:g} in size; without standardize "
            "all values lie in -1 to 1. Standardize them, or bring them there."
        )
    return np.zeros_like(public[0]), np.ones_like(public[0])
