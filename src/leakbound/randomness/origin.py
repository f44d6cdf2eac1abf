"""Origins of privacy noise, as the configuration names them; loads without torch."""

from typing import Literal

PrivacyNoise = Literal["seeded", "secure"]
"""Noise that a seed repeats, or noise that nobody can repeat."""
