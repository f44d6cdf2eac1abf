"""Attacks on released weights or gradients, each scored against its own controls.

An attack is a function of an :class:`~leakbound.attacks.attack_request.AttackRequest` that returns rows, with the columns
of :mod:`leakbound.attacks.rows`, and arrays for storage. ``leakbound.config.attacks`` has the settings and facts of each.
"""
