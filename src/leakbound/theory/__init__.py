"""Utility against privacy of releases with Gaussian noise, in bits, after Zeng et al. 2022, corrected and extended."""

from leakbound.theory.budget import allowed_ratio, allowed_ratios
from leakbound.theory.convex import Optimum, optimal_release
from leakbound.theory.correlated import ExchangeableOptimum, optimal_exchangeable_noise, threshold_bits
from leakbound.theory.dependent import independent_noise, independent_noise_variance
from leakbound.theory.determinants import privacy_bits, unconditional_leak_bits, utility_bits
from leakbound.theory.exchangeable import (
    Exchangeable,
    exchangeable_dual_total_correlation_bits,
    exchangeable_privacy_bits,
    exchangeable_unconditional_leak_bits,
    exchangeable_utility_bits,
)
from leakbound.theory.general import (
    Problem,
    closed_form_precision,
    conditional_variances,
    dual_total_correlation_bits,
    independent_noise_variances,
    noise_covariance,
    release_matrix,
    release_privacy_bits,
    release_utility_bits,
    utility_cap_bits,
)
from leakbound.theory.independent import common_noise_utility_bits, common_noise_variance, own_noise_variances
from leakbound.theory.printed import joint_bracket, joint_determinant, printed_privacy_bits
from leakbound.theory.search import Found, search_exchangeable_noise
from leakbound.theory.shared_noise import best_exchangeable_precision
from leakbound.theory.tables import theory_rows

__all__ = [
    "Exchangeable",
    "ExchangeableOptimum",
    "Found",
    "Optimum",
    "Problem",
    "allowed_ratio",
    "allowed_ratios",
    "best_exchangeable_precision",
    "closed_form_precision",
    "common_noise_utility_bits",
    "common_noise_variance",
    "conditional_variances",
    "dual_total_correlation_bits",
    "exchangeable_dual_total_correlation_bits",
    "exchangeable_privacy_bits",
    "exchangeable_unconditional_leak_bits",
    "exchangeable_utility_bits",
    "independent_noise",
    "independent_noise_variance",
    "independent_noise_variances",
    "joint_bracket",
    "joint_determinant",
    "noise_covariance",
    "optimal_exchangeable_noise",
    "optimal_release",
    "own_noise_variances",
    "printed_privacy_bits",
    "privacy_bits",
    "release_matrix",
    "release_privacy_bits",
    "release_utility_bits",
    "search_exchangeable_noise",
    "theory_rows",
    "threshold_bits",
    "unconditional_leak_bits",
    "utility_bits",
    "utility_cap_bits",
]
