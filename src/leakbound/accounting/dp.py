"""Differentially private training in both currencies: ε by Opacus' accountants, nats by the capacity of its noise."""

import math
import warnings
from collections.abc import Sequence
from typing import Literal

from leakbound.accounting.event import PrivacyEvent

Accountant = Literal["rdp", "prv"]

_MECHANISMS = ("dpsgd", "dppsac")


def dp_capacity(
    noise_multiplier: float, batch_size: int, parameters: int | None = None, *, as_printed: bool = False
) -> float:
    """Most that one DP step tells of its batch: ½ d ln(1 + B/(d m²)), at most B/(2m²).

    A step adds noise of variance m²S² per parameter to a sum of B gradients clipped to norm S; S cancels.

    Args:
        noise_multiplier: m, noise standard deviation over the clipping bound, > 0.
        batch_size: B, records in the step.
        parameters: d, number of model parameters. None: the limit d → ∞, B/(2m²).
        as_printed: The published B/m², which loses a factor ½.

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
        _refuse_parameters(parameters)
        return ratio
    return 0.5 * ratio if parameters is None else 0.5 * parameters * math.log1p(ratio / parameters)


def dp_noise_multiplier(
    capacity: float, batch_size: int, parameters: int | None = None, *, as_printed: bool = False
) -> float:
    """Noise multiplier at which :func:`dp_capacity`, with the same arguments, is ``capacity`` nats per step, > 0.

    Raises:
        ValueError: As there, and if the capacity is so high that no noise can be measured.
    """
    _check(capacity=capacity, batch_size=batch_size, parameters=parameters)
    if as_printed:
        _refuse_parameters(parameters)
        return math.sqrt(batch_size / capacity)
    if parameters is None:
        return math.sqrt(0.5 * batch_size / capacity)
    exponent = 2.0 * capacity / parameters
    if exponent > 700.0:
        raise ValueError(f"capacity = {capacity:g} nats over {parameters} parameters needs no measurable noise")
    return math.sqrt(batch_size / (parameters * math.expm1(exponent)))


def dp_capacity_from_epsilon(epsilon: float, delta: float, batch_size: int, *, as_printed: bool = False) -> float:
    """Capacity of one step of the classical Gaussian mechanism at (ε, δ): B ε² / (4 ln(1.25/δ)).

    Args:
        epsilon: ε of a single step, in (0, 1]. The formula says nothing of composed or larger ε.
        delta: δ, in (0, 1).
        batch_size: B, records in the step.
        as_printed: The published B ε² / (2 ln(1.25/δ)), twice as much.

    Returns:
        Nats per step.

    Raises:
        ValueError: If ε is not in (0, 1], δ not in (0, 1) or B < 1.

    Source:
        Tan et al. 2024, Theorem 4 (2), with its factor ½ restored and its domain enforced.
    """
    if not 0 < epsilon <= 1:
        raise ValueError(
            f"epsilon = {epsilon}: the classical Gaussian mechanism is calibrated for one step with 0 < epsilon <= 1; "
            "for a whole training use `dp_capacity` with the noise multiplier"
        )
    _check_delta(delta)
    _check(batch_size=batch_size)
    return batch_size * epsilon**2 / ((2.0 if as_printed else 4.0) * math.log(1.25 / delta))


def epsilon(event: PrivacyEvent, delta: float, accountant: Accountant = "rdp") -> float:
    """ε of a whole DP training at δ; ∞ for one that clipped without noise.

    Args:
        event: Use of the records.
        delta: δ, in (0, 1).
        accountant: ``rdp`` (Rényi orders) or ``prv`` (numerical convolution, tighter and slower).

    Raises:
        ValueError: If the event is not that of DP-SGD or DP-PSAC with Poisson sampling, which the accountants assume.
    """
    if event.mechanism not in _MECHANISMS:
        raise ValueError(
            f"mechanism {event.mechanism!r}: epsilon is defined for {' and '.join(_MECHANISMS)}; for a channel use "
            "`accounting.leakage`; for all others no guarantee was derived"
        )
    if event.sampling != "poisson":
        raise ValueError(
            f"sampling {event.sampling!r}: Opacus' accountants assume Poisson sampling, and shuffled batches are less "
            "private than they would say; train with Poisson sampling"
        )
    if event.noise_multiplier is None:
        raise ValueError("the event states no noise_multiplier; the file is incomplete, run the training anew")
    return poisson_epsilon(event.noise_multiplier, event.sample_rate, event.steps, delta, accountant)


def poisson_epsilon(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: Accountant = "rdp",
    orders: Sequence[float] | None = None,
) -> float:
    """ε of ``steps`` Poisson-subsampled Gaussian mechanisms at δ, by Opacus.

    Args:
        noise_multiplier: Noise standard deviation over the clipping bound, >= 0.
        sample_rate: Probability that a record takes part in a step, in (0, 1].
        steps: Number of steps.
        delta: δ, in (0, 1).
        accountant: ``rdp`` or ``prv``.
        orders: Rényi orders of the ``rdp`` accountant, each > 1; None for Opacus' own.

    Returns:
        ε >= 0; ∞ where it cannot be bounded, as after any step without noise.

    Raises:
        ValueError: If an argument is out of range, or ``orders`` are given for another accountant.
    """
    if not 0 <= noise_multiplier < math.inf:
        raise ValueError(f"noise_multiplier = {noise_multiplier}: it must be >= 0 and finite")
    _check_delta(delta)
    if not 0 < sample_rate <= 1 or steps < 0:
        raise ValueError(f"sample_rate = {sample_rate} must be in (0, 1] and steps = {steps} >= 0")
    if accountant not in ("rdp", "prv"):
        raise ValueError(f"accountant = {accountant!r}: 'rdp' or 'prv'")
    if orders is not None and accountant != "rdp":
        raise ValueError("orders belong to the 'rdp' accountant; leave them out")
    if not steps:
        return 0.0
    if not noise_multiplier:
        return math.inf
    from opacus.accountants import create_accountant

    keeper = create_accountant(mechanism=accountant)
    keeper.history = [(noise_multiplier, sample_rate, steps)]
    options = {} if orders is None else {"alphas": list(orders)}
    with warnings.catch_warnings():
        # At an end of the range of orders ε is a valid bound still, only not the tightest.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        return float(keeper.get_epsilon(delta=delta, **options))


def _check(**values: float | int | None) -> None:
    """Refuse a named value that is given and not positive and finite."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} = {value}: it must be positive and finite")


def _check_delta(delta: float) -> None:
    """Refuse a δ outside (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}: it must be in (0, 1), usually below 1 / number of records")


def _refuse_parameters(parameters: int | None) -> None:
    """Refuse a number of parameters that the published formula has no place for."""
    if parameters is not None:
        raise ValueError("as_printed: the published formula has no number of parameters; leave it out")
