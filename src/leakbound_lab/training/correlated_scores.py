"""Scores of candidates from uploads whose noise is correlated over steps, as they are and after a matched filter.

The server chooses between both by records that it knows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound_lab.training.matched_filter import MatchedFilter
from leakbound_lab.training.request import TrainingRequest
from leakbound_lab.training.upload_scores import UploadScores, detached_copies


class FilteredScores(UploadScores):
    """Likelihood ratios from sums of uploads over nearby steps, in which correlated noise is least.

    Arguments are those of :class:`~leakbound_lab.training.upload_scores.UploadScores`.
    """

    def __init__(self, request: TrainingRequest, *rest: Any) -> None:
        factor = request.client.noise_factor
        if factor is None:
            raise ValueError(f"{request.defense.mechanism} has independent noise: take UploadScores")
        self._filter = MatchedFilter(factor)
        super().__init__(request, *rest)

    def _relative_noise(self, factor: Float[np.ndarray, " bands"] | None) -> float:
        """Return the variance of filtered noise, as a part of how often others are counted."""
        return self._filter.noise / self._filter.others

    def _take(self, sums: Mapping[str, Tensor], params: Mapping[str, Tensor], *, last: bool) -> None:
        """Filter the sums of a step's gradients, and score the steps that no later upload adds to."""
        state = self._state
        for start, total in self._filter.completed_by(state["start"], sums, last=last):
            state |= {"start": start, "total": total, "steps": 1}
            self._score()
        state["start"] = detached_copies(params)

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        return {**super().state(), "filter": self._filter.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        super().restore(state)
        self._filter.restore(self._state.pop("filter"))


class BothScores:
    """Scores of uploads with correlated noise as they are, and of their sums over nearby steps.

    Arguments are those of :class:`~leakbound_lab.training.upload_scores.UploadScores`.
    """

    def __init__(self, *arguments: Any) -> None:
        self._scores = [FilteredScores(*arguments), UploadScores(*arguments)]

    def add(self, params: Mapping[str, Tensor], *, last: bool) -> None:
        """Take the uploads of one step."""
        for scores in self._scores:
            scores.add(params, last=last)

    def values(self) -> Float[Tensor, "slots statistics n"]:
        """Return log likelihood ratios of both, and plain inner products with the uploads as they are."""
        summed, as_sent = (scores.values() for scores in self._scores)
        return torch.cat([summed[:, :-1], as_sent], dim=1)

    def state(self) -> dict[str, Any]:
        """Return all that the next scores depend on."""
        summed, as_sent = (scores.state() for scores in self._scores)
        return {"filtered": summed, "as_sent": as_sent}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for scores, saved in zip(self._scores, (state["filtered"], state["as_sent"]), strict=True):
            scores.restore(saved)
