"""Attackers: what they learn from released weights or gradients, scored against the controls of each attack.

Every attack is given ``weights``, the parameters (networks, ...) of trained networks by name, and ``replicas``, the
replica of each of them, unless it attacks untrained networks, of which ``replicas`` is the number; ``model``, the
registered network; ``dataset``, which knows each replica's records; ``config``, its settings; ``seed`` of the
configuration, from which its random draws derive with dataset and replica, so that all defenses are attacked alike;
``slug``, the name of the run; and ``device``, where it computes. Those on untrained networks are also given what the
client does: ``defense``, at a ``level`` as it means it; ``channel``, the calibrated channel, None for a defense without
one; ``moments``, the mean and covariance that the channel was made from; and ``privacy_noise``, whether the client's
noise is ``seeded`` or ``secure``. An attack returns rows (replica, variant, unit, metric, value, low, high, status),
and arrays for storage.
"""
