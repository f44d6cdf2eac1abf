"""Sequences of token ids, whose mean and covariance mean nothing."""

import numpy as np
from jaxtyping import Num

_IDS = 256  # most different whole numbers among measurements or categories
_PLACES = 8  # least values of a sequence of token ids


def are_token_ids(records: Num[np.ndarray, "n *shape"]) -> bool:  # noqa: F821
    """Return whether records look like sequences of token ids.

    They do if each has at least eight whole numbers >= 0 of more than a byte, these have a similar range in most
    places, and there are more than 256 different ones.
    """
    if (
        records.dtype.kind not in "iu"
        or records.itemsize == 1
        or records[0].size < _PLACES
        or records.min() < 0
    ):
        return False
    most = records.reshape(len(records), -1).max(axis=0)
    return bool((most > most.max() / 2).mean() > 0.5) and len(np.unique(records)) > _IDS
