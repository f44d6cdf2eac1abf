"""The handwritten digits of scikit-learn: 1,797 grey images of 8×8 pixels, without a download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import Float

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
        for field, only in (("source", "auto"), ("label", None)):
            if (value := getattr(config, field)) != only:
                raise DatasetError(
                    f"datasets.{name}.{field} = {value!r}: the digits have but one {field}; remove it"
                )
        table = _rows()
        images = table[:, :-1].reshape(-1, 8, 8)
        labels = table[:, -1]
        pixels = (images * (255 / 16)).astype(np.float32)[..., None]  # they go up to 16
        pool = Records("scikit-learn's digits", labels.astype(np.int64), lambda rows: pixels[rows])
        return RawDataset(classes=tuple("0123456789"), train=pool, test=None)


def _rows() -> Float[np.ndarray, "n 65"]:
    """Read 64 pixels and a label of each digit from scikit-learn's file: its import takes seconds.

    Raises:
        ModuleNotFoundError: If scikit-learn is not installed.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "the digits are a file of scikit-learn: pip install scikit-learn", name="sklearn"
        )
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")


read = DigitsReader()
