"""Differentially private training in ε, by Opacus' accountants, and in nats, by the capacity of its noise."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from leakbound.accounting.leakage import DP_MECHANISMS, PrivacyEvent
from leakbound.accounting.risk import check_steps

Accountant = Literal["rdp", "prv"]

# Points of an integral over 26 standard deviations and a shift, where sums over equal steps converge at once.
_POINTS = 20_001


def dp_capacity(
    noise_multiplier: float, batch_size: int, parameters: int | None = None, *, as_printed: bool = False
) -> float:
    """Compute the most that one DP step reveals about its batch: ½ d ln(1 + B/(d m²)), at most B/(2m²).

    A step adds noise of variance m²S² per parameter to a sum of B gradients clipped to norm S, which cancels.

    Args:
        noise_multiplier: m, noise standard deviation over the clipping bound, > 0.
        batch_size: B, records in the step.
        parameters: d, number of model parameters. None: the limit d → ∞, B/(2m²).
        as_printed: Return the published B/m², which is a bound too, twice as large as its proof gives.

    Returns:
        Nats per step.

    Raises:
        ValueError: If an argument is not positive, or ``as_printed`` comes with ``parameters``.

    Source:
        Tan et al. 2024, Theorem 4, with its factor ½ restored.
    """
    _check(noise_multiplier=noise_multiplier, batch_size=batch_size, parameters=parameters)
    ratio = batch_size / noise_multiplier**2
    if as_printed:
        if parameters is not None:
            raise ValueError("as_printed: the published formula has no number of parameters; leave it out")
        return ratio
    return 0.5 * ratio if parameters is None else 0.5 * parameters * math.log1p(ratio / parameters)


def epsilon(event: PrivacyEvent, delta: float, accountant: Accountant = "rdp") -> float:
    """Compute ε at δ of a whole DP training, ∞ for one that clipped without noise.

    It is that of adding or removing one record. Where a record is replaced by another, ε is up to twice that,
    at (1 + e^ε) δ.

    Args:
        event: Use of the records.
        delta: δ, in (0, 1), and below 1 / number of records: publishing one at random meets a larger one.
        accountant: ``rdp`` (Rényi orders) or ``prv`` (numerical convolution, tighter and slower).

    Raises:
        ValueError: If the event is not that of DP-SGD or DP-PSAC with Poisson sampling, which the accountants
            assume, or an argument is out of range.
    """
    return composed_epsilon([event], delta, accountant)


def composed_epsilon(events: Sequence[PrivacyEvent], delta: float, accountant: Accountant = "rdp") -> float:
    """Compute ε at δ of several DP trainings on the same records, e.g. of all replicas of a run.

    The accountant composes their steps: R equal trainings have the ε of one with R times the steps. Arguments
    and errors are those of :func:`epsilon`.
    """
    for event in events:
        if delta * event.population >= 1:
            raise ValueError(
                f"delta = {delta} for {event.population} records: publishing one of them at random has "
                f"such a delta; it must be below 1 / {event.population}"
            )
    return _history_epsilon([_steps(event) for event in events], delta, accountant)


def record_information(event: PrivacyEvent) -> float:
    """Bound the nats that a DP training reveals about one record.

    They are n KL((1−q) N(0, m²) + q N(1, m²) ‖ N(0, m²)). For every distribution of a record X_i that is
    independent of the noise, I(X_i; M | X_−i) is at most the mean of KL(M(X) ‖ M(X without i)), because the
    distribution of M given X_−i is the one that is nearest to all M(X) on average. That divergence is the
    Rényi divergence at order → 1, which the analysis of the Poisson-sampled Gaussian bounds by the
    distribution of one coordinate. It adds over steps. It covers labels too, and adds to the nats of
    channels.

    Returns:
        Nats, rounded up beyond the error of the integral, or ∞ without noise.

    Raises:
        ValueError: As :func:`epsilon`.

    Source:
        Cuff and Yu 2016, "Differential privacy as a mutual information constraint"; Mironov, Talwar and Zhang
        2019, "Rényi differential privacy of the sampled Gaussian mechanism", Theorem 4.
    """
    multiplier, rate, steps = _steps(event)
    check_steps(multiplier, rate, steps)
    if not steps or not multiplier:
        return math.inf if steps else 0.0
    return steps * _sampled_divergence(multiplier, rate)


def _sampled_divergence(multiplier: float, rate: float) -> float:
    """Compute the KL divergence of (1−q) N(0, m²) + q N(1, m²) from N(0, m²), in nats, rounded up."""
    x = np.linspace(-13.0 * multiplier, 1.0 + 13.0 * multiplier, _POINTS)
    with np.errstate(divide="ignore"):
        ratio = np.logaddexp(np.log1p(-rate), math.log(rate) + (2.0 * x - 1.0) / (2.0 * multiplier**2))
    base = -0.5 * (x / multiplier) ** 2
    # p ln(p/b) − p + b has the same integral as p ln(p/b) and is never negative, so that nothing cancels.
    values = np.exp(base + ratio) * (ratio - 1.0) + np.exp(base)
    total = float(values.sum()) * (x[1] - x[0]) / (multiplier * math.sqrt(2.0 * math.pi))
    return total * (1.0 + 1e-9) + 1e-15


def _steps(event: PrivacyEvent) -> tuple[float, float, int]:
    """Return noise multiplier, sample rate and steps of an event that the accountants were derived for."""
    if event.mechanism not in DP_MECHANISMS:
        raise ValueError(
            f"mechanism {event.mechanism!r}: epsilon is defined for {' and '.join(DP_MECHANISMS)}; for a channel use "
            "`accounting.leakage`; for all others no guarantee was derived"
        )
    if event.sampling != "poisson":
        raise ValueError(
            f"sampling {event.sampling!r}: Opacus' accountants assume Poisson sampling, and shuffled batches are less "
            "private than they would say; train with Poisson sampling"
        )
    if event.noise_multiplier is None:
        raise ValueError(
            "the event states no noise_multiplier; the file is incomplete, run the training again"
        )
    if event.population < 1:
        raise ValueError(f"population = {event.population}: it must be >= 1")
    return event.noise_multiplier, event.sample_rate, event.steps


def poisson_epsilon(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: Accountant = "rdp",
    orders: Sequence[float] | None = None,
) -> float:
    """Compute ε at δ of ``steps`` Poisson-subsampled Gaussian mechanisms, by Opacus.

    Args:
        noise_multiplier: Noise standard deviation over the clipping bound, >= 0.
        sample_rate: Probability that a record takes part in a step, in (0, 1].
        steps: Number of steps.
        delta: δ, in (0, 1).
        accountant: ``rdp`` or ``prv``.
        orders: Rényi orders of the ``rdp`` accountant, each > 1, or None for Opacus' own.

    Returns:
        ε >= 0, or ∞ where it cannot be bounded, as after any step without noise.

    Raises:
        ValueError: If an argument is out of range, or ``orders`` are given for another accountant.
    """
    return _history_epsilon([(noise_multiplier, sample_rate, steps)], delta, accountant, orders)


def _history_epsilon(
    history: Sequence[tuple[float, float, int]],
    delta: float,
    accountant: Accountant,
    orders: Sequence[float] | None = None,
) -> float:
    """Compute ε of Gaussian mechanisms in turn, each (noise multiplier, sample rate, steps)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}: it must be in (0, 1), usually below 1 / number of records")
    for mechanism in history:
        check_steps(*mechanism)
    if accountant not in ("rdp", "prv"):
        raise ValueError(f"accountant = {accountant!r}: 'rdp' or 'prv'")
    if orders is not None and accountant != "rdp":
        raise ValueError("orders belong to the 'rdp' accountant; leave them out")
    # Equal steps of several trainings cost as much as those of one.
    totals: Counter[tuple[float, float]] = Counter()
    for noise_multiplier, sample_rate, steps in history:
        totals[noise_multiplier, sample_rate] += steps
    totals = +totals
    if not totals:
        return 0.0
    if not all(noise_multiplier for noise_multiplier, _ in totals):
        return math.inf
    try:
        from opacus.accountants import create_accountant
    except ModuleNotFoundError as error:
        message = "ε is computed by opacus, which is not installed: pip install 'leakbound[workflow]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    opacus_accountant = create_accountant(mechanism=accountant)
    opacus_accountant.history = [(*kind, steps) for kind, steps in totals.items()]
    options = {} if orders is None else {"alphas": list(orders)}
    with warnings.catch_warnings():
        # At an end of the range of orders ε is still a valid bound, only not the tightest.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        # The conversion from Rényi orders falls below 0 for a large δ, where 0 holds.
        return max(0.0, float(opacus_accountant.get_epsilon(delta=delta, **options)))


def _check(**values: float | int | None) -> None:
    """Refuse a named value that is given and not positive and finite."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} = {value}: it must be positive and finite")
