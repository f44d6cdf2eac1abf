"""Utility and privacy of releases with Gaussian noise, in bits (Zeng et al. 2022, corrected and extended)."""

from leakbound.theory.cases import (
    common_noise_utility_bits,
    common_noise_variance,
    independent_noise,
    optimal_exchangeable_noise,
    own_noise_variances,
)
from leakbound.theory.convex import optimal_release
from leakbound.theory.determinants import (
    printed_privacy_bits,
    privacy_bits,
    unconditional_leak_bits,
    utility_bits,
)
from leakbound.theory.exchangeable import Exchangeable, Release
from leakbound.theory.general import (
    Problem,
    best_exchangeable_precision,
    closed_form_precision,
    conditional_variances,
    dual_total_correlation_bits,
    independent_noise_variances,
    noise_covariance,
    release_matrix,
    release_utility_bits,
    utility_cap_bits,
)
from leakbound.theory.search import search_exchangeable_noise

__all__ = [
    "Exchangeable",
    "Problem",
    "Release",
    "best_exchangeable_precision",
    "closed_form_precision",
    "common_noise_utility_bits",
    "common_noise_variance",
    "conditional_variances",
    "dual_total_correlation_bits",
    "independent_noise",
    "independent_noise_variances",
    "noise_covariance",
    "optimal_exchangeable_noise",
    "optimal_release",
    "own_noise_variances",
    "printed_privacy_bits",
    "privacy_bits",
    "release_matrix",
    "release_utility_bits",
    "search_exchangeable_noise",
    "unconditional_leak_bits",
    "utility_bits",
    "utility_cap_bits",
]
