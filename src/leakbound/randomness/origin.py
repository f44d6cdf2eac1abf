"""Origins of privacy noise, as in the configuration. This module does not load torch."""

from typing import Literal

PrivacyNoise = Literal["seeded", "secure"]
"""Noise that a seed reproduces, or noise that nobody can reproduce."""
