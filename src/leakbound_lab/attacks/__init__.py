"""Attacks on released weights or gradients, each scored against its own controls.

An attack is a function of an :class:`~leakbound_lab.attacks.attack_request.AttackRequest`. It returns rows, with
the columns of :mod:`leakbound_lab.attacks.rows`, and arrays for storage. Settings and facts of each attack are in
``leakbound_lab.config.attacks``.
"""
