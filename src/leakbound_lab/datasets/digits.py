"""The handwritten digits of scikit-learn: 1,797 grey images of 8×8 pixels, without a download."""

import numpy as np

from leakbound.records.records import DatasetError, Records
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets.records import RawDataset


class DigitsReader:
    """Reader of the digits, which may be published. ``reader(name, config)`` gives the original records."""

    publishable = True

    def __call__(self, name: str, config: DatasetConfig) -> RawDataset:
        """Read the digits, one pool without an original test split.

        Resized to 32×32 they span few dimensions (rank 61 of 1,024). Capacities that are strict for
        photographs hardly affect them.

        Raises:
            DatasetError: If the settings request a source or a label column, of which there is none.
        """
        from sklearn.datasets import load_digits

        for field, only in (("source", "auto"), ("label", None)):
            if (value := getattr(config, field)) != only:
                raise DatasetError(
                    f"datasets.{name}.{field} = {value!r}: the digits have but one {field}; remove it"
                )
        bunch = load_digits()
        pixels = (bunch.images * (255 / 16)).astype(np.float32)[..., None]  # they go up to 16
        pool = Records("scikit-learn's digits", bunch.target.astype(np.int64), lambda rows: pixels[rows])
        return RawDataset(classes=tuple("0123456789"), train=pool, test=None)


read = DigitsReader()
