"""The defense for a training loop of one's own: channels around data loaders, and what has leaked so far.

Public names are those of :mod:`leakbound` itself.
"""
