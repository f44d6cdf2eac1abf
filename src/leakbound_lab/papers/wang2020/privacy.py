"""KL-DP levels of one contributor towards an observer of all messages, per time as printed and jointly.

The level is the supremum over adjacent data of the symmetrised KL divergence ½[D(P‖P') + D(P'‖P)] between
what the observer sees, in nats. When one contributor of server i changes by α, the server's first state
shifts by Δ = c α. The reports that the observer does not see give this state a variance v = c² Σ_j σ_ij².
Everything below is a function of Δ and v. The observer knows the weights and all messages, so it computes
every y(t + 1) = W ỹ(t), hence every noise increment, hence y_i(0) + φ_i(u) for all u: as many looks at one
secret as there were messages, and their precisions add (Wang et al., Assumption 1).
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import networkx as nx
import numpy as np
from jaxtyping import Float
from scipy import linalg
from scipy.special import log_ndtr

_TAIL = 10.0  # standard deviations beyond which a Gaussian edge adds nothing in float64
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(300)


@dataclass(frozen=True)
class Secret:
    """One contributor's share of the first state of its server.

    Attributes:
        shift: Δ = c α, how far the state moves when the contributor's value moves by the adjacent distance, >
            0.
        state_variance: v = c² Σ_j σ_ij², from the noise that the server's contributors have added, > 0.
    """

    shift: float
    state_variance: float

    def __post_init__(self) -> None:
        for name in ("shift", "state_variance"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise ValueError(f"{name} = {value}: must be positive and finite")

    @property
    def limit(self) -> float:
        """Δ²/(2v), the level once the servers' own noise is gone (Wang et al. 2020, Eq. (13))."""
        return self.level(0.0)

    def level(self, noise_variance: float) -> float:
        """Compute Δ²/(2(v + σ²)), the level of one message with further Gaussian noise: all messages of scheme 1.

        Source:
            Wang et al. 2020, Theorem 1.
        """
        return self.shift**2 / (2.0 * (self.state_variance + noise_variance))


def contributor_variance(adjacent_distance: float, kl_budget: float) -> float:
    """Compute σ_ij² = α²/(2ε), the noise that a contributor needs for a level ε towards its own server.

    The level under noise σ_ij² is α²/(2σ_ij²) (Wang et al. 2020, Lemma 1): level and variance are exchanged.

    Raises:
        ValueError: If the budget or the distance is not positive.
    """
    return Secret(adjacent_distance, kl_budget).limit


def zero_sum_level(
    secret: Secret, noise_variance: float, decay: float, time: int, *, as_printed: bool = False
) -> float:
    """Compute the level of scheme 2 after all messages up to a time.

    Message u has variance ρᵘ σ_i². Averaged best, all of them leave σ_i² ρˢ (1 − ρ)/(1 − ρˢ⁺¹), because their
    precisions add to Σ_u ρ⁻ᵘ/σ_i².

    Args:
        secret: The contributor's share.
        noise_variance: σ_i² of its server, > 0.
        decay: ρ, in (0, 1).
        time: s, steps after T₀, >= 0.
        as_printed: The published Δ²/(2(v + ρˢ σ_i²)), the level of the last message alone, which is too low
            for s > 0.

    Raises:
        ValueError: If the variance is not positive or ρ is outside (0, 1).

    Source:
        Wang et al. 2020, Theorem 2; ``docs/errata.md``, D-1.
    """
    _check_spread(noise_variance, "noise_variance", decay)
    if as_printed:
        return secret.level(noise_variance * decay**time)
    log_decay = math.log(decay)
    left = noise_variance * math.exp(time * log_decay) * math.expm1(log_decay)
    return secret.level(left / math.expm1((time + 1) * log_decay))


def bounded_level(secret: Secret, bound: float, decay: float, time: int, *, single: bool = False) -> float:
    """Compute the level of scheme 3 with uniform noise after all messages up to a time, by quadrature.

    Message u confines y_i(0) to an interval of half-width a ρᵘ, and every point of the intersection of these
    intervals is equally likely, so the intersection holds all information. Given its width t, y_i(0) lies
    uniformly in it: the level is that of one message with half-width t/2, averaged over t. With G(t) = Π_u (1
    − t/(2aρᵘ)), t has the density t G''(t) below t* = 2aρˢ, and equals t* with the probability that the last
    interval lies inside all others. The paper gives only the limit.

    Args:
        secret: The contributor's share.
        bound: a of its server, > 0.
        decay: ρ, in (0, 1).
        time: s, steps after T₀, >= 0.
        single: The level of the last message alone.

    Returns:
        Nats, relative error below 1e-9, at most ``secret.limit``.

    Raises:
        ValueError: If the bound is not positive or ρ is outside (0, 1).
    """
    _check_spread(bound, "bound", decay)
    widest = 2.0 * bound * decay**time
    last = float(uniform_level(secret, np.array([widest / 2.0]))[0])
    if single or time == 0:
        return last
    widths = 0.5 * widest * (_NODES + 1.0)
    value = np.ones_like(widths)
    slope = np.zeros_like(widths)
    curve = np.zeros_like(widths)
    contained = 1.0
    for step in range(time + 1):
        full = 2.0 * bound * decay**step
        left = 1.0 - widths / full
        curve = curve * left - 2.0 * slope / full
        value, slope = value * left, slope * left - value / full
        contained *= 1.0 - decay ** (time - step) if step < time else 1.0
    density = 0.5 * widest * _WEIGHTS * widths * curve
    return float(density @ uniform_level(secret, widths / 2.0)) + contained * last


def uniform_level(secret: Secret, half_widths: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Compute the level of one message with noise that is uniform on ±h, for several h at once, by quadrature.

    The message has the density [Φ((x + h)/√v) − Φ((x − h)/√v)]/(2h), whose ends alone reveal a shift.
    """
    spread = math.sqrt(secret.state_variance)
    shift = secret.shift
    reach = _TAIL * spread + shift
    low = np.maximum(half_widths - reach, 0.0)
    high = half_widths + reach
    points = low[:, None] + 0.5 * (high - low)[:, None] * (_NODES + 1.0)
    after, before = (
        _log_density(points + side * shift / 2.0, half_widths[:, None], spread) for side in (1.0, -1.0)
    )
    gaps = (np.exp(after) - np.exp(before)) * (after - before)
    # The integrand is even, and ½ of the symmetrised divergence cancels the two halves of the line.
    return 0.5 * (high - low) * (gaps @ _WEIGHTS)


def _log_density(
    x: Float[np.ndarray, "k nodes"], half_widths: Float[np.ndarray, "k 1"], spread: float
) -> Float[np.ndarray, "k nodes"]:
    """Logarithm of the density of N(0, spread²) plus uniform noise, from the tail on which it loses no digits."""
    upper = (half_widths - np.abs(x)) / spread
    width = 2.0 * half_widths / spread
    narrow = (
        width < 1e-6
    )  # where a difference of two values of Φ has lost its digits, the middle of Φ' has not
    with np.errstate(divide="ignore", invalid="ignore"):
        top = log_ndtr(upper)
        wide = (
            top
            + np.log(-np.expm1(np.minimum(log_ndtr(upper - width) - top, 0.0)))
            - np.log(2.0 * half_widths)
        )
    gaussian = -0.5 * (x / spread) ** 2 - 0.5 * math.log(2.0 * math.pi) - math.log(spread)
    return np.where(narrow, gaussian, wide)


def masked_level(
    secret: Secret, graph: nx.Graph, mask_variance: float, server: int, colluders: Collection[int] = ()
) -> float:
    """Compute the level of pairwise masks after all messages, ½ Δ² [(v I + σ_r² L)⁻¹]_ii at any time.

    Servers that collude know the masks on their own edges, so L is the Laplacian of the graph without them,
    and the others' states keep only the masks among themselves.

    Args:
        secret: The contributor's share. Every server's state has its variance.
        graph: On 0..n − 1.
        mask_variance: σ_r², > 0.
        server: i, the contributor's own.
        colluders: Servers that pool what they know, without i.

    Returns:
        Nats, between ``secret.limit`` / (number of servers joined to i by honest ones), the price of
        publishing the average, and ``secret.limit``.

    Raises:
        ValueError: If the variance is not positive, or the server is not in the graph or colludes itself.
    """
    _check_spread(mask_variance, "mask_variance")
    if server not in graph or server in colluders:
        raise ValueError(
            f"server = {server}: must be in the graph and not among the colluders {sorted(colluders)}"
        )
    honest = [node for node in graph if node not in colluders]
    laplacian = nx.laplacian_matrix(graph.subgraph(honest), nodelist=honest).toarray().astype(np.float64)
    covariance = secret.state_variance * np.eye(len(honest)) + mask_variance * laplacian
    shift = np.zeros(len(honest))
    shift[honest.index(server)] = secret.shift
    return 0.5 * float(shift @ linalg.cho_solve(linalg.cho_factor(covariance), shift))


def _check_spread(size: float, name: str, decay: float = 0.5) -> None:
    """Refuse noise without spread, or that does not fade.

    Raises:
        ValueError: If the size is not positive and finite, or the decay is not inside (0, 1).
    """
    if not 0.0 < size < math.inf:
        raise ValueError(f"{name}: {size:g} is not positive and finite; every server's noise needs a spread")
    if not 0.0 < decay < 1.0:
        raise ValueError(
            f"decay = {decay}: ρ lies inside (0, 1), so that the noise fades; for scheme 1 add none later"
        )
