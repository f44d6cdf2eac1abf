"""Attackers: what they learn from released weights or gradients, scored against the controls of each attack.

Every attack is given ``weights``, the parameters (replicas, ...) of the trained replicas by name, unless it attacks
untrained networks; ``model``, the registered network; ``dataset``; ``config``, its settings; ``seed`` of the
configuration and ``slug``, the name of the run, which make its random draws; and ``device``, where it computes. It
returns rows (replica, variant, unit, metric, value, low, high), and arrays for storage.
"""
