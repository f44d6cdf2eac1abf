"""Federated averaging under a mutual-information budget (PMIDP-FL): noise, weights and leaks.

Importing this module does not load torch.
"""

from leakbound.federated.noise_calibration import (
    AggregateNoise,
    aggregate_leak,
    client_noise,
    draw_budgets,
    log_noise_unit,
    next_max_param_norms,
    no_noise,
    personalized_noise,
    server_leak,
    server_noise,
    static_leak,
)
from leakbound.federated.partition import split_records

__all__ = [
    "AggregateNoise",
    "aggregate_leak",
    "client_noise",
    "draw_budgets",
    "log_noise_unit",
    "next_max_param_norms",
    "no_noise",
    "personalized_noise",
    "server_leak",
    "server_noise",
    "split_records",
    "static_leak",
]
