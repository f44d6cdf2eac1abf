"""Studies of small configurations, as plain values."""

from collections.abc import Iterable
from typing import Any


def study(
    defenses: dict[str, list[float]],
    attacks: Iterable[str] = (),
    *,
    datasets: Iterable[str] = ("digits",),
    models: Iterable[str] = ("lenet",),
    rounds: int = 20,
    batch_size: int = 32,
    **more: Any,
) -> dict[str, Any]:
    """A study of one length and one size of batches."""
    sizes = {"rounds": [rounds], "batch_sizes": [batch_size]}
    lists = {"datasets": [*datasets], "models": [*models], "attacks": [*attacks]}
    return {**lists, "defenses": defenses, **sizes, **more}
