"""Likelihood ratios of having taken part in uploads, from scores of records, step by step.

A score is a Gaussian of variance 1 around 0 for a record that takes no part, and around a multiple of its gradient's
norm for one that does. Few records take part in a step, so the bulk of the scores says where 0 and 1 are.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_MEMORY = 0.98  # part of the earlier uploads in mean and variance of a candidate's scores
_FAR = 3.0  # deviations at which a score counts no more for either: most likely the candidate took part
_SCALE = 1.4826  # standard deviation of a Gaussian, in median absolute deviations


class Classes(NamedTuple):
    """Records of each class, listed once, so that medians of all classes take one call in each step.

    Attributes:
        of_record: (n,) class of each record, a row of ``records``.
        records: (classes, most) numbers of the records of each class, and n where it has fewer than the largest.
    """

    of_record: Int[Tensor, " n"]
    records: Int[Tensor, "classes most"]


def classes_of(labels: Int[Tensor, " n"]) -> Classes:
    """Return the classes of records with these labels."""
    of_record = labels.unique(return_inverse=True)[1]
    groups = [torch.nonzero(of_record == row).flatten() for row in range(int(of_record.max()) + 1)]
    records = torch.nn.utils.rnn.pad_sequence(groups, batch_first=True, padding_value=len(labels))
    return Classes(of_record, records)


class RunningScale:
    """Mean and variance of each candidate's scores over the uploads so far, by which the next ones are scaled.

    Args:
        zeros: Zeros (slots, candidates) on the device.
    """

    def __init__(self, zeros: Float[Tensor, "slots n"]) -> None:
        self._state = {"means": zeros.clone(), "variances": torch.ones_like(zeros)}

    def standardised(
        self, slot: int, scores: Float[Tensor, " n"], norms: Float[Tensor, " n"], classes: Classes
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Scale scores to mean 0 and variance 1 of candidates that take no part, and their norms alike."""
        weights = torch.where(_above_rounding(norms), 1 - _MEMORY, 0.0)
        scores, norms = by_bulk(scores, norms, classes)
        means, variances = (self._state[name][slot] for name in ("means", "variances"))
        means.lerp_(scores.clamp(-_FAR, _FAR), weights)
        scores = scores - means
        variances.lerp_(scores.clamp(-_FAR, _FAR).square(), weights)
        return scores / variances.sqrt(), norms / variances.sqrt()

    def state(self) -> dict[str, Tensor]:
        """Return all that the next scales depend on."""
        return self._state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from :meth:`state`."""
        self._state = dict(state)


class ParticipationRatios:
    """Log likelihood ratios of membership of each candidate, from those of having taken part in each upload.

    A Poisson sample holds a member independently of the others. Of shuffled batches, exactly one in each epoch
    does, of cyclic ones always the same.

    Args:
        zeros: Zeros (slots, shares, candidates) on the device.
        members: Number of the client's records.
        cycle: Steps of an epoch if each repeats the same batches, otherwise 0.
        poisson: Whether batches are Poisson samples.
    """

    def __init__(
        self, zeros: Float[Tensor, "slots shares n"], *, members: int, cycle: int, poisson: bool
    ) -> None:
        self._members = members
        self._cycle = cycle
        self._poisson = poisson
        self._state: dict[str, Any] = {
            "uploads": 0,
            "passed": 0,  # records of the open epoch whose uploads have been scored
            "ratios": zeros,
            "epoch": torch.full_like(zeros, -math.inf),
            "phases": zeros.new_zeros(cycle, *zeros.shape),
        }

    @property
    def uploads(self) -> int:
        """Number of uploads that were scored."""
        return int(self._state["uploads"])

    def add(self, slot: int, ratios: Float[Tensor, "shares n"], records: int) -> None:
        """Add the likelihood ratios of having taken part in an upload, by how likely that was before.

        Args:
            slot: Slot of the stack.
            ratios: Log likelihood ratios.
            records: Records of the upload.
        """
        if self._cycle:
            self._state["phases"][self.uploads % self._cycle, slot] += ratios
            return
        total, epoch = (self._state[name][slot] for name in ("ratios", "epoch"))
        share = min(1.0, records / self._members)
        if self._poisson:
            total += (ratios + math.log(share)).logaddexp(ratios.new_tensor(_log_rest(share)))
            return
        left = 1.0 - self._state["passed"] / self._members
        torch.logaddexp(epoch, ratios + math.log(min(share, left)), out=epoch)
        if share >= left:
            total += epoch
            epoch.fill_(-math.inf) if share == left else epoch.copy_(ratios + math.log(share - left))

    def close_upload(self, records: int) -> None:
        """Count an upload of some records, whose ratios were added for all slots."""
        state = self._state
        state["uploads"] += 1
        state["passed"] = 0 if self._poisson else (state["passed"] + records) % self._members

    def values(self) -> Float[Tensor, "slots shares n"]:
        """Return the log likelihood ratios of all uploads so far, with those of the open epoch."""
        epoch = self._state["epoch"]
        if self._cycle:
            open_epoch = self._state["phases"].logsumexp(0) - math.log(self._cycle)
        else:
            open_epoch = epoch.logaddexp(epoch.new_tensor(_log_rest(self._state["passed"] / self._members)))
        ratios: Tensor = self._state["ratios"] + open_epoch
        return ratios

    def state(self) -> dict[str, Any]:
        """Return all that the next ratios depend on."""
        return self._state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._state = dict(state)


def over_norms(products: Float[Tensor, " n"], squares: Float[Tensor, " n"]) -> tuple[Tensor, Tensor]:
    """Divide inner products by norms. Return norms, too."""
    norms = squares.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
    return products / norms, norms


def by_bulk(
    scores: Float[Tensor, " n"], norms: Float[Tensor, " n"], classes: Classes
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Centre scores at the median of their class, and scale scores and norms by the bulk's deviation.

    Gradients of 0 have the score 0, and are no part of the bulk.
    """
    usable = _above_rounding(norms)
    bulk = torch.cat([scores.where(usable, math.nan), scores.new_full((1,), math.nan)])
    medians = bulk[classes.records].nanmedian(1).values
    centred = scores - medians[classes.of_record]
    deviation = _SCALE * centred[usable].abs().median()  # NaN if a score of the bulk is
    deviation = deviation.where(deviation != 0, math.inf)  # a bulk without spread has no scale
    return (centred / deviation).where(usable, 0), (norms / deviation).where(usable, 0)


def _above_rounding(norms: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Return where a norm is above rounding or NaN. It is 0 for records at which all units of a layer are off."""
    return ~(norms <= torch.finfo(norms.dtype).tiny ** 0.5)


def _log_rest(share: float) -> float:
    """Return ln(1 − share), finite for a share of 1."""
    return math.log(max(1.0 - share, torch.finfo(torch.float32).tiny))
