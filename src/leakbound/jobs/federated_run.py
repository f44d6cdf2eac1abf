"""One setting of federated averaging, by which a run is known."""

from __future__ import annotations

from dataclasses import dataclass

BASIC = ("client", "server")
"""Schemes with one budget for all and a fixed threshold."""
ADAPTED = ("personalized", "uniform")
"""Schemes with a budget for each client and thresholds that follow the norms."""


@dataclass(frozen=True, order=True)
class FederatedRun:
    """One setting of federated averaging, with all its seeds.

    Attributes:
        dataset: Name of the dataset.
        model: Name of the network.
        scheme: ``none`` (neither noise nor clipping); ``client`` or ``server`` (Corollary 1 or Theorem 1, one budget
            for all, a fixed threshold); ``personalized`` (Corollary 2) or ``uniform`` (its baseline with equal weights
            and noise), both with a budget for each client and thresholds that follow the norms.
        n_clients: Number of clients.
        max_param_norm: Clipping threshold, the first one where it follows the norms; None without clipping.
        mi_budget: Budget in nats for one round, the mean of personal ones; None without noise.
        budget_spread: Standard deviation of personal budgets; None where all have one.
    """

    dataset: str
    model: str
    scheme: str
    n_clients: int
    max_param_norm: float | None = None
    mi_budget: float | None = None
    budget_spread: float | None = None

    @property
    def slug(self) -> str:
        """Name of the run, e.g. ``mnist/mlp/personalized-m20-s10-c10/n100``."""
        named = {"m": self.mi_budget, "s": self.budget_spread, "c": self.max_param_norm}
        parts = [f"{letter}{repr(value).removesuffix('.0')}" for letter, value in named.items() if value is not None]
        return f"{self.dataset}/{self.model}/{'-'.join([self.scheme, *parts])}/n{self.n_clients}"
