"""Rows of figures that need no training: closed forms, spectra, and pictures after a channel.

Every function takes the settings of an illustration and returns a tidy table. It has the columns ``metric``
and ``value``, and columns that identify what was measured. Functions about data also take the dataset, whose
name is a column, its moments, to which channels are calibrated, and the seed of draws. They raise a
``ValueError`` if the levels in the settings are missing. All functions ignore arguments that they do not
need. Capacities are in nats, variances in squared pixel units of the scale [-1, 1].
"""
