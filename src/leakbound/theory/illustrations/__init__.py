"""Rows of figures that need no training: closed forms, spectra, and what channels do to pictures.

Every function takes an illustration's settings and returns a tidy table with the columns ``metric`` and ``value`` and
those that say what was measured. Capacities are in nats, variances in squared pixel units of the scale [-1, 1].
"""
