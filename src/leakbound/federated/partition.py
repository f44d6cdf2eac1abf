"""Division of the records among clients: drawn uniformly, or with different classes for each client."""

import numpy as np
from jaxtyping import Int


def split_records(
    labels: Int[np.ndarray, " n"],
    n_clients: int,
    records: int,
    generator: np.random.Generator,
    concentration: float | None = None,
) -> Int[np.ndarray, "clients records"]:
    """Draw disjoint sets of records, equally many for each client.

    Args:
        labels: Class of each record.
        n_clients: Number of clients.
        records: Number of records of each client.
        generator: Draws the records.
        concentration: None draws uniformly. A number draws each client's class proportions from a symmetric
            Dirichlet distribution of this concentration, and then its records class by class. Once a class is
            used up, the client's other records come from the remaining classes. Small numbers give each
            client few classes.

    Raises:
        ValueError: If there are fewer records than asked for, or the concentration is not positive.

    Source:
        PMIDP-FL, Sec. VI (uniform). Hsu et al. 2019 (Dirichlet).
    """
    if n_clients * records > len(labels):
        raise ValueError(
            f"{n_clients} clients with {records} records each need {n_clients * records} members, there are "
            f"{len(labels)}; take fewer clients or records, or more members"
        )
    if concentration is None:
        return generator.permutation(len(labels))[: n_clients * records].reshape(n_clients, records)
    if not concentration > 0:
        raise ValueError(
            f"concentration = {concentration}: must be positive; for alike clients use the split iid"
        )
    pools = [generator.permutation(np.flatnonzero(labels == label)).tolist() for label in np.unique(labels)]
    clients: list[list[int]] = [[] for _ in range(n_clients)]
    for chosen in clients:
        shares = generator.dirichlet(np.full(len(pools), concentration))
        while len(chosen) < records:
            left = np.array([len(pool) for pool in pools])
            open_shares = np.where(
                left > 0, np.maximum(shares, 1e-12), 0.0
            )  # a class of share 0 is the last resort
            counts = generator.multinomial(records - len(chosen), open_shares / open_shares.sum())
            for pool, count in zip(pools, np.minimum(counts, left), strict=True):
                chosen += [pool.pop() for _ in range(count)]
    return np.array(clients, dtype=np.int64)
