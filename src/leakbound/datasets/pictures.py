"""Rule for all pages and stores: pictures of records are shown only if the reader of a dataset allows it."""

from collections.abc import Mapping

import pandas as pd

from leakbound.datasets.records import may_be_published
from leakbound.registry import DATASETS


def withheld(rows: pd.DataFrame, readers: Mapping[str, str]) -> list[str]:
    """List the datasets whose pictures are in the rows (metric ``pixel``) although they may not be published.

    Args:
        rows: Rows of a figure or table. Without a column ``dataset`` they may be from any dataset.
        readers: Dataset to the name of its reader. Pictures of other datasets are withheld.
    """
    if "metric" not in rows or not (rows["metric"] == "pixel").any():
        return []
    pixels = rows[rows["metric"] == "pixel"]
    shown = sorted(map(str, pixels["dataset"].unique())) if "dataset" in pixels else sorted(readers)
    return [
        name for name in shown if name not in readers or not may_be_published(DATASETS.get(readers[name]))
    ]
