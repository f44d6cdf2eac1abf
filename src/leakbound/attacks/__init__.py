"""Attacks on released weights or gradients, each scored against its own controls.

An attack is a function of an :class:`~leakbound.attacks.attack_request.AttackRequest`. It returns rows, with
the columns of :mod:`leakbound.attacks.rows`, and arrays for storage. Settings and facts of each attack are in
``leakbound.config.attacks``.
"""
