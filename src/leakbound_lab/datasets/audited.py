"""Checks of the records of a membership audit."""

import numpy as np

LEAST = 20
"""Smallest number of members, of non-members and of canaries in an audit."""

Records = tuple[np.ndarray, np.ndarray]
"""Records (n, ...), numbers or texts, and their labels (n)."""


def check_records(members: Records, others: Records) -> None:
    """Refuse records that cannot be audited.

    Raises:
        ValueError: If there are too few, their shapes differ, a value is not finite, or a record is in both.
    """
    for name, (records, labels) in (("members", members), ("others", others)):
        check_shape(name, records, labels, members[0].shape[1:])
    common = np.result_type(members[0], others[0])
    contents = {record.tobytes() for record in members[0].astype(common)}
    shared = sum(record.tobytes() in contents for record in others[0].astype(common))
    if shared:
        raise ValueError(
            f"others: {shared} of {len(others[0])} are exact copies of members, so they are no non-members: leave them "
            "out"
        )


def check_shape(name: str, records: np.ndarray, labels: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuse records of one kind that are too few, lack labels, or hold anything but finite numbers or texts."""
    if records.ndim < 1 or labels.shape != records.shape[:1]:
        raise ValueError(
            f"{name}: records of shape {records.shape} with labels of shape {labels.shape}: a label for each is needed"
        )
    if records.shape[1:] != shape:
        raise ValueError(
            f"{name}: records of shape {records.shape[1:]}, members have {shape}: all need one shape"
        )
    if len(records) < LEAST:
        raise ValueError(f"{name}: {len(records)} records, at least {LEAST} are needed")
    if records.dtype.kind not in "biufUS":
        raise ValueError(f"{name}: records of type {records.dtype}: give numbers or texts")
    if records.dtype.kind == "f" and not np.isfinite(records).all():
        raise ValueError(f"{name}: some values of the records are not finite")
