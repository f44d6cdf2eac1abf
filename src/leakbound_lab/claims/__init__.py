"""Statements of the papers about figures, tested on the rows that the figures show.

A test computes one number for each block. A block is a replica of one dataset and network, so all runs that a
claim compares have the same problem (:mod:`~leakbound_lab.claims.outcomes`). Sign flips over the blocks of all
datasets compare these numbers with the smallest effect of interest of the claim
(:mod:`~leakbound_lab.claims.judging`). The spread between blocks also predicts which effects a test can detect
(:mod:`~leakbound_lab.claims.judging`).
"""
