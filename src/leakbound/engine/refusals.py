"""Errors when a guarantee would not hold: each says in one sentence what is wrong and what to do."""


class GuaranteeError(ValueError):
    """Refusal of something that would make the stated leakage untrue.

    Example:
        >>> import leakbound
        >>> try:
        ...     leakbound.Leakage(-1.0, uses=3)
        ... except leakbound.GuaranteeError as error:
        ...     print(error)
        Leakage(nats=-1.0): give a finite number above 0
    """


class BudgetError(GuaranteeError):
    """Refusal of a batch whose records have no uses left. Nothing of it was released or counted.

    Example:
        >>> import leakbound
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(100, 4))
        >>> channel = leakbound.Channel(leakbound.Leakage(2.0, uses=1)).fit(rows)
        >>> released = channel.transform(rows)
        >>> try:
        ...     channel.transform(rows)
        ... except leakbound.BudgetError:
        ...     print("each row has had its one use")
        each row has had its one use
    """


class CapacityWarning(UserWarning):
    """Records that may reveal more than is stated: by their own moments, 5 % or more, or as copies of others."""
