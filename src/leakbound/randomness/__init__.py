"""Seeds by purpose, and the origins of privacy noise: seeded or secure (docs/noise.md)."""
