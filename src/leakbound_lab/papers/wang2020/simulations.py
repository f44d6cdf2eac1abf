"""Averaging by exchange of noisy states, simulated for all repetitions at once: tidy rows of two tables."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import networkx as nx
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.config.consensus import ConsensusConfig
from leakbound_lab.papers.wang2020.privacy import (
    Secret,
    bounded_level,
    contributor_variance,
    masked_level,
    zero_sum_level,
)
from leakbound_lab.papers.wang2020.protocol import (
    BoundedNoise,
    Draws,
    InitialNoise,
    PairwiseMasks,
    Scheme,
    ZeroSumNoise,
    graph_from_edges,
    metropolis_weights,
    named_graph,
    random_graph,
)


def simulation_rows(
    table: str, config: ConsensusConfig, seed: int, privacy_noise: str = "seeded"
) -> pd.DataFrame:
    """Compute one table, ``averaging`` or ``privacy``, which is in closed form and draws no noise.

    Raises:
        ValueError: If there is no such table or origin of noise, or the random network is not connected in
            1000 draws.
    """
    if table == "averaging":
        return averaging_rows(config, seed, privacy_noise)
    if table == "privacy":
        return privacy_rows(config, seed)
    raise ValueError(f"table = {table!r}: known: averaging, privacy")


def network(config: ConsensusConfig, seed: int) -> nx.Graph:
    """Build the configuration's network."""
    if config.edges:
        return graph_from_edges(config.servers, config.edges)
    if config.graph == "random":
        return random_graph(
            config.servers, config.edge_probability, numpy_generator(seed, "consensus", 0, "graph")
        )
    return named_graph(config.graph, config.servers)


def schemes(config: ConsensusConfig, graph: nx.Graph) -> dict[str, Scheme]:
    """Make the three published schemes and pairwise masks, all with equal variance at the start."""
    variances = np.full(config.servers, config.noise_variance)
    return {
        "initial": InitialNoise(variances),
        "zero_sum": ZeroSumNoise(variances, config.decay),
        "bounded": BoundedNoise(np.sqrt(3.0 * variances), config.decay),
        "masks": PairwiseMasks.of_mean_variance(graph, config.noise_variance),
    }


def averaging_rows(config: ConsensusConfig, seed: int, privacy_noise: str = "seeded") -> pd.DataFrame:
    """Simulate averaging on one network and one draw of reports, each scheme repeated many times.

    Returns:
        Columns ``scheme``, ``time`` (steps after T₀), ``replica`` (batch of repetitions), ``metric``,
        ``value``: mean over the batch of ``spread`` ``max_il |yᵢ − yₗ|`` and of ``deviation`` ``max_i |y_i − x̂|``.
        At the last time alone, ``final_deviation``, and how many powers of ten a quantity has fallen by since
        the start, ``spread_decades`` and ``deviation_decades``. With scheme ``reports``, time and replica 0:
        ``true_mean`` x̄, ``reported_mean`` x̂, and ``gap``, the expectation of scheme 1's last deviation.
    """
    from leakbound.randomness.sources import SecureDraws, check_origin

    check_origin(privacy_noise)
    noise = SecureDraws() if privacy_noise == "secure" else None
    graph = network(config, seed)
    weights = metropolis_weights(graph)
    draw = numpy_generator(seed, "consensus", 0, "reports")
    low, high = config.values
    values = list(draw.integers(low, high + 1, size=(config.servers, config.contributors)).astype(np.float64))
    states = collect_reports(
        values, contributor_variance(config.adjacent_distance, config.kl_budget), noise or draw
    )
    reported_mean = float(states.mean())  # x̂, what the servers are to agree on
    # E|y(∞) − x̂| of scheme 1, whose states agree on a value that is N(x̂, Σσ_i²/n²), not on x̂.
    total = float(np.full(config.servers, config.noise_variance).sum())
    gap = math.sqrt(2.0 / math.pi * total) / config.servers
    facts = {"true_mean": float(np.concatenate(values).mean()), "reported_mean": reported_mean, "gap": gap}
    rows = pd.DataFrame({"metric": facts.keys(), "value": facts.values()})
    frames = [rows.assign(scheme="reports", time=0, replica=0)]
    for name, scheme in schemes(config, graph).items():
        draws = noise or numpy_generator(seed, "consensus", name, 0, "noise")
        paths = trajectories(weights, states, scheme, config.averaging.runs, draws)
        measured = [
            _distances(current, reported_mean, config.averaging.batches)
            for current in islice(paths, config.steps + 1)
        ]
        frames.append(_distance_rows(np.stack(measured)).assign(scheme=name))
    return pd.concat(frames, ignore_index=True)[["scheme", "time", "replica", "metric", "value"]]


def _distances(
    states: Float[np.ndarray, "runs n"], mean: float, batches: int
) -> Float[np.ndarray, "2 batches"]:
    """Spread of the states and their largest deviation from x̂, averaged over each batch."""
    high = states.max(axis=1)
    low = states.min(axis=1)
    distances = np.stack([high - low, np.maximum(high - mean, mean - low)])
    return distances.reshape(2, batches, -1).mean(axis=2)


def _distance_rows(measured: Float[np.ndarray, "times 2 batches"]) -> pd.DataFrame:
    """Rows of one scheme's distances, and of their values at the end."""
    time, quantity, batch = (index.ravel() for index in np.indices(measured.shape))
    names = np.array(["spread", "deviation"])
    all_times = {"time": time, "replica": batch, "metric": names[quantity], "value": measured.ravel()}
    last = len(measured) - 1
    ends = {"final_deviation": measured[-1, 1]}
    for index, name in enumerate(names):
        first, final = (np.maximum(measured[at, index], np.finfo(float).tiny) for at in (0, -1))
        ends[f"{name}_decades"] = np.log10(first / final)
    frames = [pd.DataFrame(all_times)]
    frames += [
        pd.DataFrame({"time": last, "replica": np.arange(len(values)), "metric": name, "value": values})
        for name, values in ends.items()
    ]
    return pd.concat(frames, ignore_index=True)


def privacy_rows(config: ConsensusConfig, seed: int) -> pd.DataFrame:
    """Compute levels of one contributor towards an observer of all messages, in closed form or by quadrature.

    Returns:
        Columns ``scheme``, ``release``, ``time`` (steps after T₀), ``metric`` (``kl_level``, nats),
        ``value``. Release ``all_messages`` is the level of all messages up to the time, ``last_message`` that
        of the last one alone, and ``printed`` the published one where it is another. The level of masks is
        that of the server that they protect least. Scheme ``limit`` is Δ²/(2v) at every time, all that the
        paper gives for scheme 3. ``floor`` is the price of publishing the average, ``contributor`` the level
        towards the contributor's own server.
    """
    graph = network(config, seed)
    scale = state_scale(np.full(config.servers, config.contributors))
    reported = config.contributors * contributor_variance(config.adjacent_distance, config.kl_budget)
    secret = Secret(scale * config.adjacent_distance, scale**2 * reported)
    variance = config.noise_variance
    decay = config.decay
    bound = math.sqrt(3.0 * config.noise_variance)
    masks = PairwiseMasks.of_mean_variance(graph, variance)
    masked = max(masked_level(secret, graph, masks.variance, server) for server in graph)
    rows = []
    for time in range(config.steps + 1):
        single = zero_sum_level(secret, variance, decay, time, as_printed=True)
        levels = {
            ("initial", "all_messages"): secret.level(variance),
            ("zero_sum", "all_messages"): zero_sum_level(secret, variance, decay, time),
            ("zero_sum", "last_message"): single,
            ("zero_sum", "printed"): single,
            ("bounded", "all_messages"): bounded_level(secret, bound, decay, time),
            ("bounded", "last_message"): bounded_level(secret, bound, decay, time, single=True),
            ("masks", "all_messages"): masked,
            ("limit", "all_messages"): secret.limit,
            ("floor", "all_messages"): secret.limit / config.servers,
            ("contributor", "all_messages"): config.kl_budget,
        }
        rows += [(scheme, release, time, "kl_level", value) for (scheme, release), value in levels.items()]
    return pd.DataFrame(rows, columns=["scheme", "release", "time", "metric", "value"])


def collect_reports(
    values: Sequence[Float[np.ndarray, " _"]], noise_variance: float, draws: Draws
) -> Float[np.ndarray, " n"]:
    """Simulate step 1: every contributor adds noise to its value and reports it to its server.

    Args:
        values: The values x_ij of each server's contributors. Servers may have different numbers of them.
        noise_variance: σ_ij², the same for all, > 0.
        draws: Source of the noise.

    Returns:
        (n,) first states y_i(0) = c Σ_j x̃_ij of the servers, c = n / Σ m_i, whose mean x̂ is that of all reports.

    Source:
        Wang et al. 2020, Eq. (5) and Section 2.1.
    """
    counts = np.array([len(reports) for reports in values])
    noisy = [reports + math.sqrt(noise_variance) * draws.standard_normal(len(reports)) for reports in values]
    return state_scale(counts) * np.array([reports.sum() for reports in noisy])


def state_scale(counts: Int[np.ndarray, " n"]) -> float:
    """Compute c = n / Σ m_i by which servers scale the sum of their reports, so that states average to the mean."""
    return len(counts) / float(counts.sum())


def trajectories(
    weights: Float[np.ndarray, "n n"],
    states: Float[np.ndarray, " n"],
    scheme: Scheme,
    runs: int,
    draws: Draws,
) -> Iterator[Float[np.ndarray, "runs n"]]:
    """Yield states y(0), y(1) = W(y(0) + θ(0)), … of all repetitions, without end.

    Args:
        weights: W, symmetric and doubly stochastic.
        states: y(0), the same in every repetition.
        scheme: Distribution of the noise.
        runs: Number of repetitions.
        draws: Source of the noise.

    Source:
        Wang et al. 2020, Eq. (7).
    """
    current = np.tile(states, (runs, 1))
    for noise in scheme.noises(runs, draws):
        yield current
        current = (current + noise) @ weights.T
