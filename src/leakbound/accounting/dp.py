"""Differentially private training in ε, by Opacus' accountants, and in nats, by the capacity of its noise."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from leakbound.accounting.correlated import sensitivity, square_root_bands
from leakbound.accounting.leakage import CORRELATED_MECHANISMS, DP_MECHANISMS, PrivacyEvent, composed_leakage
from leakbound.accounting.risk import bound_text, check_rows, check_steps, step_log_ratio

Accountant = Literal["rdp", "prv"]

ORDERS = (*(1 + tenths / 10 for tenths in range(1, 100)), *range(12, 64))
"""Rényi orders by which ε is bounded where none are given: those of Opacus."""
# Points of an integral over 26 standard deviations and a shift, where sums over equal steps converge at once.
_POINTS = 20_001
_MOST_POINTS = 500_000


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

    It is that of adding or removing one record with all its copies, or all records of an owner. Where a record
    is replaced by another, ε is up to twice that, at (1 + e^ε) δ. Of DP-MF, whose batches are fixed, it is that of
    leaving out the record's gradients, without credit for sampling.

    Args:
        event: Use of the records.
        delta: δ, in (0, 1), and below 1 / number of records: publishing one at random meets a larger one.
        accountant: ``rdp`` (Rényi orders) or ``prv`` (numerical convolution, tighter and slower).

    Raises:
        ValueError: If the event is neither that of DP-SGD or DP-PSAC with Poisson sampling, which the accountants
            assume, nor that of DP-MF with cyclic batches, or an argument is out of range.
    """
    return composed_epsilon([event], delta, accountant)


def composed_epsilon(events: Sequence[PrivacyEvent], delta: float, accountant: Accountant = "rdp") -> float:
    """Compute ε at δ of several DP trainings on the same records, e.g. of all replicas of a run.

    The accountant composes their steps: R equal trainings have the ε of one with R times the steps. Arguments
    and errors are those of :func:`epsilon`. Of records with copies, and of owners, ε is that of Rényi orders
    of the mixture of shifts (:func:`group_divergence`), with any accountant.
    """
    for event in events:
        if delta * event.population >= 1:
            raise ValueError(
                f"delta = {delta} for {event.population} records: publishing one of them at random has "
                f"such a delta; it must be below 1 / {event.population}"
            )
    history = [gaussian_steps(event) for event in events]
    rows = max((event.rows for event in events), default=1)
    return _history_epsilon(history, delta, accountant, rows=rows)


def record_information(event: PrivacyEvent) -> float:
    """Bound the nats that a DP training reveals about one record.

    They are n KL((1−q) N(0, m²) + q N(1, m²) ‖ N(0, m²)), of a record with copies, or of an owner, with the
    mixture of all shifts by its rows. For every distribution of a record X_i that is
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
    multiplier, rate, steps = gaussian_steps(event)
    check_steps(multiplier, rate, steps)
    if not steps or not multiplier:
        return math.inf if steps else 0.0
    return steps * _sampled_divergence(multiplier, rate, event.rows)


def private_nats(
    events: Sequence[PrivacyEvent], ratios: Float[np.ndarray, " d"] | None, labels: float
) -> dict[str, float]:
    """Bound the nats of DP trainings together about one record, ``record``, also behind a channel.

    The nats of DP are those of :func:`record_information`. Behind a channel they are
    ``gradients``, what the noisy sums reveal. All is computed from images that the channel released, which
    reveal ``images`` nats, and from labels, so that ``images`` and ``labels`` together are a bound, too, by
    data processing. Each holds on its own, and ``record`` is the tighter one.

    Args:
        events: Privacy event of each training.
        ratios: (d,) variance ratios of one use of the channel in front, None without one.
        labels: Nats that labels reveal.
    """
    gradients = sum(map(record_information, events))
    images = math.inf if ratios is None else composed_leakage(events, ratios).record
    if images == math.inf:
        return {"record": gradients}
    nats = {"gradients": gradients, "images": images, "labels": labels}
    return {"record": min(gradients, images + labels), **nats}


def _sampled_divergence(multiplier: float, rate: float, rows: int) -> float:
    """Compute the KL divergence of Σ_j P(J = j) N(j, m²) from N(0, m²), J binomial, in nats, rounded up."""
    x = np.linspace(-13.0 * multiplier, rows + 13.0 * multiplier, _POINTS)
    ratio = step_log_ratio(x, multiplier, rate, rows)
    base = -0.5 * (x / multiplier) ** 2
    # p ln(p/b) − p + b has the same integral as p ln(p/b) and is never negative, so that nothing cancels.
    values = np.exp(base + ratio) * (ratio - 1.0) + np.exp(base)
    total = float(values.sum()) * (x[1] - x[0]) / (multiplier * math.sqrt(2.0 * math.pi))
    return float(total * (1.0 + 1e-9) + 1e-15)


def gaussian_steps(event: PrivacyEvent) -> tuple[float, float, int]:
    """Return noise multiplier, sample rate and steps of the Gaussian mechanisms that a DP training is composed of.

    All uploads with correlated noise together are one, of sample rate 1, whose noise multiplier is that of the white
    noise over the sensitivity.

    Raises:
        ValueError: If the accountants were not derived for the event, or it is incomplete.
    """
    if event.mechanism not in DP_MECHANISMS:
        raise ValueError(
            f"mechanism {event.mechanism!r}: epsilon is defined for {' and '.join(DP_MECHANISMS)}; for a channel use "
            "`accounting.leakage`; for all others no guarantee was derived"
        )
    correlated = event.mechanism in CORRELATED_MECHANISMS
    if correlated and event.sampling != "cyclic":
        raise ValueError(
            f"sampling {event.sampling!r}: the noise of {event.mechanism} was derived for cyclic batches, in which a "
            "record takes part again after a whole epoch"
        )
    if not correlated and event.sampling != "poisson":
        raise ValueError(
            f"sampling {event.sampling!r}: Opacus' accountants assume Poisson sampling, and shuffled batches are less "
            f"private than they would say; train with Poisson sampling{_unamplified(event)}"
        )
    if event.noise_multiplier is None:
        raise ValueError(
            "the event states no noise_multiplier; the file is incomplete, run the training again"
        )
    if event.population < 1:
        raise ValueError(f"population = {event.population}: it must be >= 1")
    if not correlated:
        return event.noise_multiplier, event.sample_rate, event.steps
    if event.bands is None:
        raise ValueError("the event states no bands; the file is incomplete, run the training again")
    of_record = sensitivity(square_root_bands(event.bands), event.population // event.batch_size, event.steps)
    return (event.noise_multiplier / of_record, 1.0, 1) if event.steps else (event.noise_multiplier, 1.0, 0)


def _unamplified(event: PrivacyEvent) -> str:
    """Say which bounds hold for batches that are no Poisson samples, or nothing where none does.

    Whoever knows the batches sees, in a step with c of a unit's rows, a sum that they moved by c clipping bounds at
    most: c²/(2m²) nats. Over a training Σ c² is at most the most used unit's uses times its rows. The batches do not
    depend on the records, so that whoever does not know them learns no more.
    """
    if not event.noise_multiplier:
        return ""
    uses = event.uses * event.rows
    nats = bound_text(uses / (2.0 * event.noise_multiplier**2), digits=4)
    return (
        f". Without credit for sampling hold {nats} nats (uses/(2m²)) and "
        f"ε = poisson_epsilon({event.noise_multiplier:g}, 1.0, {uses}, delta), of a record whose gradient is left out"
    )


def poisson_epsilon(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: Accountant = "rdp",
    orders: Sequence[float] | None = None,
    rows: int = 1,
) -> float:
    """Compute ε at δ of ``steps`` Poisson-subsampled Gaussian mechanisms, by Opacus.

    Args:
        noise_multiplier: Noise standard deviation over the clipping bound, >= 0.
        sample_rate: Probability that a record takes part in a step, in (0, 1].
        steps: Number of steps.
        delta: δ, in (0, 1).
        accountant: ``rdp`` or ``prv``.
        orders: Rényi orders of the ``rdp`` accountant, each > 1, or None for Opacus' own.
        rows: How often the record stands in the data. More than once: by :func:`group_divergence`.

    Returns:
        ε >= 0, or ∞ where it cannot be bounded, as after any step without noise.

    Raises:
        ValueError: If an argument is out of range, or ``orders`` are given for another accountant.
    """
    return _history_epsilon([(noise_multiplier, sample_rate, steps)], delta, accountant, orders, rows)


def _history_epsilon(
    history: Sequence[tuple[float, float, int]],
    delta: float,
    accountant: Accountant,
    orders: Sequence[float] | None = None,
    rows: int = 1,
) -> float:
    """Compute ε of Gaussian mechanisms in turn, each (noise multiplier, sample rate, steps)."""
    _check_history(history, delta, accountant, orders, rows)
    # Equal steps of several trainings cost as much as those of one.
    totals: Counter[tuple[float, float]] = Counter()
    for noise_multiplier, sample_rate, steps in history:
        totals[noise_multiplier, sample_rate] += steps
    totals = +totals
    if not totals:
        return 0.0
    if not all(noise_multiplier for noise_multiplier, _ in totals):
        return math.inf
    if find_spec("opacus") is None:
        message = "ε is computed by opacus, which is not installed: pip install 'leakbound[workflow]'"
        raise ModuleNotFoundError(message, name="opacus")
    if rows > 1 or accountant == "rdp":
        return _epsilon_by_orders(totals, rows, delta, tuple(orders or ORDERS))
    from opacus.accountants import create_accountant

    opacus_accountant = create_accountant(mechanism=accountant)
    done = [(*kind, steps) for kind, steps in totals.items()]
    opacus_accountant.load_state_dict({"history": done, "mechanism": accountant})
    # prv takes ln(1 − q) of every rate q, and uses none at q = 1.
    with np.errstate(divide="ignore"):
        try:
            return max(0.0, float(opacus_accountant.get_epsilon(delta=delta)))
        except ValueError as error:
            bound = _history_epsilon(history, delta, "rdp")
            holds = bound_text(bound, digits=4) if math.isfinite(bound) else "inf"
            raise ValueError(
                f"delta = {delta}: 'prv' cannot compute ε there, its errors of rounding are as large; "
                f"'rdp' bounds it by {holds}"
            ) from error


def _check_history(
    history: Sequence[tuple[float, float, int]],
    delta: float,
    accountant: Accountant,
    orders: Sequence[float] | None,
    rows: int,
) -> None:
    """Refuse arguments of :func:`_history_epsilon` that are out of range or do not go together."""
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}: it must be in (0, 1), usually below 1 / number of records")
    check_rows(rows)
    for mechanism in history:
        check_steps(*mechanism)
    if accountant not in ("rdp", "prv"):
        raise ValueError(f"accountant = {accountant!r}: 'rdp' or 'prv'")
    if orders is not None and accountant != "rdp":
        raise ValueError("orders belong to the 'rdp' accountant; leave them out")


def group_divergence(noise_multiplier: float, sample_rate: float, rows: int, order: float | int) -> float:
    """Compute the Rényi divergence of one step between data with and without a record that stands there c times.

    J of its rows are in the Poisson sample, J binomial. They move the sum by at most J clipping bounds, so
    the step is dominated by P = Σ_j P(J = j) N(j, m²) and Q = N(0, m²), in both directions.

    Args:
        noise_multiplier: m, noise standard deviation over the clipping bound, > 0.
        sample_rate: q, probability that a row takes part in a step, in (0, 1].
        rows: c, how often the record stands in the data, >= 1.
        order: α > 1.

    Returns:
        The larger of D_α(P ‖ Q) and D_α(Q ‖ P), in nats, ∞ where the integral takes too many points.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Ganesh 2024, "Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians
        mechanisms".
    """
    from scipy import special  # slow import

    check_steps(noise_multiplier, sample_rate, 1)
    check_rows(rows)
    if not (noise_multiplier > 0 and 1 < order < math.inf):
        raise ValueError(f"noise_multiplier = {noise_multiplier} must be > 0 and order = {order} > 1")
    # The integrand is largest at shifts of α · c at most, or 1 − α of it in the other direction.
    reach = rows * order
    half = reach + 13.0 * noise_multiplier
    points = max(_POINTS, math.ceil(8.0 * half / noise_multiplier))  # at least four in a standard deviation
    if points > _MOST_POINTS:
        return math.inf
    x = np.linspace(-half, half, points)
    ratio = step_log_ratio(x, noise_multiplier, sample_rate, rows)
    base = -0.5 * (x / noise_multiplier) ** 2 - math.log(noise_multiplier * math.sqrt(2.0 * math.pi))
    spacing = math.log(x[1] - x[0])
    both = (special.logsumexp(base + power * ratio) + spacing for power in (order, 1.0 - order))
    return max(0.0, float(max(both)) / (order - 1.0))


def _epsilon_by_orders(
    totals: Mapping[tuple[float, float], int], rows: int, delta: float, orders: tuple[float | int, ...]
) -> float:
    """Compute ε of Gaussian mechanisms, each with its number of steps, by Rényi orders.

    It is ∞ where no order has a divergence that was computed.
    """
    parts = (steps * _step_divergences(*kind, rows, orders) for kind, steps in totals.items())
    divergences = sum(parts, np.zeros(len(orders)))
    computed = np.isfinite(divergences)
    if not computed.any():
        return math.inf
    with warnings.catch_warnings():
        # At an end of the range of orders ε is still a valid bound, only not the tightest.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        epsilon_spent, _ = _opacus_orders().get_privacy_spent(
            orders=np.array(orders)[computed], rdp=divergences[computed], delta=delta
        )
    # The conversion from Rényi orders falls below 0 for a large δ, where 0 holds.
    return max(0.0, float(epsilon_spent))


# A training states ε at each point of its curves, and so does a batch of an engine: only the steps are others.
@lru_cache(maxsize=256)
def _step_divergences(
    noise_multiplier: float, sample_rate: float, rows: int, orders: tuple[float | int, ...]
) -> Float[np.ndarray, " orders"]:
    """Compute Rényi divergences of one step, for a record that stands once in the data by Opacus."""
    if rows > 1:
        return np.array([group_divergence(noise_multiplier, sample_rate, rows, order) for order in orders])
    compute_rdp = _opacus_orders().compute_rdp
    return np.asarray(
        compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=1, orders=[*orders])
    )


@cache
def _opacus_orders() -> Any:
    """Load Opacus' functions of Rényi orders, alone.

    They need NumPy and SciPy. The package around them loads torch, its distributed tensors and sympy, for seconds.
    """
    package = find_spec("opacus")
    (folder,) = (package and package.submodule_search_locations) or [""]
    alone = spec_from_file_location("_opacus_orders", Path(folder, "accountants", "analysis", "rdp.py"))
    if alone is None or alone.loader is None:
        raise ImportError(f"{folder}: Opacus has no accountants/analysis/rdp.py there")
    module = module_from_spec(alone)
    alone.loader.exec_module(module)
    return module


def _check(**values: float | int | None) -> None:
    """Refuse a named value that is given and not positive and finite."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} = {value}: it must be positive and finite")
