"""Bridges to other frameworks; each needs an environment of its own."""
