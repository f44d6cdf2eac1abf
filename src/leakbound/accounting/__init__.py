"""Accounting: from the uses of records in a training to the most that it can have leaked."""

from leakbound.accounting.dp import (
    composed_epsilon,
    dp_capacity,
    dp_capacity_from_epsilon,
    dp_noise_multiplier,
    epsilon,
    poisson_epsilon,
    record_information,
)
from leakbound.accounting.leakage import Leakage, composed_leakage, leakage
from leakbound.accounting.reconstruction import (
    EmpiricalBayes,
    batch_capacity,
    dequantized_error_bound,
    dropped_coordinate_capacity,
    empirical_bayes,
    fano_error,
    gaussian_surrogate_error,
    posterior,
)

__all__ = [
    "EmpiricalBayes",
    "Leakage",
    "batch_capacity",
    "composed_epsilon",
    "composed_leakage",
    "dequantized_error_bound",
    "dp_capacity",
    "dp_capacity_from_epsilon",
    "dp_noise_multiplier",
    "dropped_coordinate_capacity",
    "empirical_bayes",
    "epsilon",
    "fano_error",
    "gaussian_surrogate_error",
    "leakage",
    "poisson_epsilon",
    "posterior",
    "record_information",
]
