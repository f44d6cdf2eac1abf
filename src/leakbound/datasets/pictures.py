"""Gate of all pages and stores: pictures of records are shown if the reader of their dataset says that they may be."""

from collections.abc import Mapping

import pandas as pd

from leakbound.datasets.records import may_be_published
from leakbound.registry import DATASETS


def withheld(rows: pd.DataFrame, readers: Mapping[str, str]) -> list[str]:
    """Datasets whose pictures the rows hold, metric ``pixel``, although nobody says that they may be published.

    Args:
        rows: Rows of a figure or table; without a column ``dataset`` they may be of any.
        readers: Dataset to the name of its reader; pictures of one that is not there are withheld.
    """
    if "metric" not in rows or not (rows["metric"] == "pixel").any():
        return []
    pixels = rows[rows["metric"] == "pixel"]
    shown = sorted(map(str, pixels["dataset"].unique())) if "dataset" in pixels else sorted(readers)
    return [
        name for name in shown if name not in readers or not may_be_published(DATASETS.get(readers[name]))
    ]
