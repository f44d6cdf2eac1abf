"""Utility and privacy of releases with Gaussian noise, in bits (Zeng et al. 2022, corrected and extended)."""
