"""Statements of the papers about figures, tested on the rows that the figures show.

A test finds one number for each block, a replica of one dataset and network, which is the same problem for
all that is compared (:mod:`~leakbound.claims.outcomes`; trends, differences, associations, fronts). Sign
flips over the blocks of all datasets judge it against the claim's smallest effect of interest
(:mod:`~leakbound.claims.judging`), by which the spread between blocks also says beforehand what can be seen
(:mod:`~leakbound.claims.design`).
"""
