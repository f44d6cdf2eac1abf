"""Where privacy noise can come from."""

from typing import Literal

PrivacyNoise = Literal["seeded", "secure"]
"""Noise that a seed repeats, or noise that nobody can repeat."""
