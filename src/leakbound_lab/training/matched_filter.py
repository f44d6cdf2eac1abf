"""Uploads with correlated noise as a server compares them with a record's gradient: filtered along the steps.

The server knows C, and C times all uploads has white noise. There a record that took part in step t with gradient g
shows as column t of C times g. Its likelihood ratio against not having taken part rests on the inner product with
that column, which is a weighted sum of the uploads of bands − 1 steps before and after.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

Sums = dict[str, Tensor]


class MatchedFilter:
    """Sums of uploads around each step, in which that step's gradients have weight 1 and noise the least variance.

    Args:
        coefficients: First column c of C, its diagonal first.

    Attributes:
        noise: Variance of the noise on a filtered upload, over that of the white noise: 1/‖c‖².
        others: Squared weights of all gradients in it, added up.

    Source:
        The log likelihood ratio of g in step t is (⟨g, filtered⟩ − ½‖g‖²) ‖c‖²/σ², if all others are known.
    """

    def __init__(self, coefficients: Float[np.ndarray, " bands"]) -> None:
        self._coefficients = [*map(float, coefficients)]
        self._squares = np.cumsum(np.square(coefficients))
        self.noise = 1.0 / float(self._squares[-1])
        self.others = float(np.square(np.correlate(coefficients, coefficients, "full") * self.noise).sum())
        self._uploads: list[Sums] = []  # the latest first
        self._open: list[tuple[Any, Sums]] = []  # what the server sent at a step, and its sum so far

    def completed_by(
        self, sent: Any, upload: Mapping[str, Tensor], *, last: bool
    ) -> Iterator[tuple[Any, Sums]]:
        """Yield the steps whose sums the upload of a step completes, each with what the server had sent before it.

        Args:
            sent: What the server had sent before the upload.
            upload: Name of a layer to the sum of a step's gradients with noise.
            last: Whether no step follows. Then all steps are complete, with columns of C that end there.
        """
        white = {name: value * self._coefficients[0] for name, value in upload.items()}
        for coefficient, earlier in zip(self._coefficients[1:], self._uploads, strict=False):
            for name, value in earlier.items():
                white[name] += coefficient * value
        self._uploads = [dict(upload), *self._uploads][: len(self._coefficients) - 1]
        self._open.append((sent, {name: value.new_zeros(value.shape) for name, value in white.items()}))
        for coefficient, (_, total) in zip(self._coefficients, reversed(self._open), strict=False):
            for name, value in white.items():
                total[name] += coefficient * value
        while self._open and (last or len(self._open) == len(self._coefficients)):
            square = float(self._squares[len(self._open) - 1])
            sent, total = self._open.pop(0)
            yield sent, {name: value / square for name, value in total.items()}

    def state(self) -> dict[str, Any]:
        """Return all that the next sums depend on."""
        return {"uploads": list(self._uploads), "open": list(self._open)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._uploads = list(state["uploads"])
        self._open = [(sent, total) for sent, total in state["open"]]
