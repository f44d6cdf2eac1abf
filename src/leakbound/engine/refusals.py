"""Errors of whoever would break the guarantee: each says in one sentence what is wrong and what to do."""


class GuaranteeError(ValueError):
    """Refusal of something that would make the stated leakage untrue."""


class BudgetError(GuaranteeError):
    """Refusal of a batch whose records have no uses left; nothing of it was released or counted."""


class CapacityWarning(UserWarning):
    """Records whose own moments give a channel a larger capacity than the promised one, by 5 % to 25 %."""
