"""Accounting: from the uses of records in a training to the most that it can have leaked."""

from leakbound.accounting.dp import (
    composed_epsilon,
    dp_capacity,
    epsilon,
    poisson_epsilon,
    record_information,
)
from leakbound.accounting.leakage import ChannelLeakage, composed_leakage
from leakbound.accounting.naming import (
    demonstrated_information,
    dp_naming_bound,
    gained_information,
    identification_information,
    lower_rate,
    naming_bound,
    stated_gains,
)
from leakbound.accounting.one_run import (
    gaussian_epsilon,
    one_run_epsilon,
    one_run_gaussian,
    one_run_information,
    one_run_p_value,
)
from leakbound.accounting.reconstruction import (
    EmpiricalBayes,
    empirical_bayes,
    fano_error,
    gaussian_surrogate_error,
)

__all__ = [
    "ChannelLeakage",
    "EmpiricalBayes",
    "composed_epsilon",
    "composed_leakage",
    "demonstrated_information",
    "dp_capacity",
    "dp_naming_bound",
    "empirical_bayes",
    "epsilon",
    "fano_error",
    "gained_information",
    "gaussian_epsilon",
    "gaussian_surrogate_error",
    "identification_information",
    "lower_rate",
    "naming_bound",
    "one_run_epsilon",
    "one_run_gaussian",
    "one_run_information",
    "one_run_p_value",
    "poisson_epsilon",
    "record_information",
    "stated_gains",
]
