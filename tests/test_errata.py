"""``docs/errata.md`` prints what is computed here, and every test that it names exists.

Numbers are computed from the definitions, by NumPy and SciPy alone where that can be done, and the library is compared
with them. ``says`` puts a number into the words of the page and looks for them there.
"""

import ast
import math
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, linalg, optimize, special, stats

import formulas
from formulas import contraction
from leakbound.accounting import dp, gaussian, reconstruction
from leakbound.channels import Moments, Personalized, PersonalizedPrinted, box_weights
from leakbound_lab.papers.pmidp.noise_calibration import (
    client_noise,
    log_noise_unit,
    next_max_param_norms,
    personalized_noise,
    server_leak,
    server_noise,
    static_leak,
)
from leakbound_lab.papers.wang2020.privacy import Secret, bounded_level, zero_sum_level
from leakbound_lab.papers.wang2020.protocol import metropolis_weights, named_graph, random_graph
from leakbound_lab.papers.zeng2022 import cases
from leakbound_lab.papers.zeng2022.cases import printed_bracket
from leakbound_lab.papers.zeng2022.releases import Exchangeable, Release

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", TEXT)
ENTRIES = {text.split(".")[0]: text for text in re.split(r"^##+ (?=[A-D]-)|^## |^Right as", TEXT, flags=re.M)[1:]}
ENTRIES = {name: text for name, text in ENTRIES.items() if re.fullmatch(r"[A-D]-\d+", name)}
# Settings that the page states; all other numbers with a point or a comma are results.
GIVEN = {"0.01", "0.1", "0.2066", "0.25", "0.3", "0.46", "0.5", "0.57", "0.8", "0.9", "1.297", "1.8", "2.5", "222.21"}
GIVEN |= {"1.25", "1,500", "2,000", "3,072", "50,000"}
SAID: list[tuple[str, str]] = []


def says(name: str, *texts: str) -> None:
    """The entry prints each of the texts, whatever its line breaks."""
    page = " ".join(ENTRIES[name].split())
    for text in texts:
        assert text in page, f"{name} does not print {text!r}"
        SAID.append((name, text))


def table_row(label: str, values: list[str]) -> str:
    """Row of a table as the page writes it."""
    return f"| {label} | {' | '.join(values)} |"


def scientific(value: float, digits: int) -> str:
    """A number as 5.29·10⁻⁴."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def short(value: float, digits: int) -> str:
    """A number as 5.29e-4."""
    return f"{value:.{digits}e}".replace("e-0", "e-")


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one variable is 0."""
    return float(optimize.brentq(function, low, high, xtol=1e-14, rtol=8.9e-16))


def noise_for(ratios: np.ndarray, capacity: float) -> float:
    """σ at which ½ Σ ln(1 + μ_i/σ) is the capacity."""
    return math.exp(root(lambda t: 0.5 * float(np.log1p(ratios * math.exp(-t)).sum()) - capacity, -80.0, 80.0))


def two_point_information(half_distance: float) -> float:
    """I(X; X + Z) in nats of X = ± half_distance at even odds and Z of variance 1."""

    def integrand(y: float) -> float:
        both = 0.5 * (stats.norm.pdf(y - half_distance) + stats.norm.pdf(y + half_distance))
        return 0.0 if both == 0 else -float(both * math.log(both))

    reach = half_distance + 12.0
    return float(integrate.quad(integrand, -reach, reach, limit=400, epsabs=1e-12)[0]) - 0.5 * math.log(
        2 * math.pi * math.e
    )


def defined_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_every_test_that_the_errata_name_exists(path):
    wanted = {name for other, name in NAMED if other == path}
    assert wanted <= defined_in(ROOT / path)


def test_the_table_of_contents_lists_each_entry_once_by_kind_and_those_without_effect_apart():
    head, _, *lines = re.findall(r"^\| (.*) \|$", TEXT.partition("## A.")[0], flags=re.M)
    columns = head.split(" | ")[1:]
    cells = [cell for line in lines for cell in zip(columns, line.split("|")[1:], strict=True)]
    listed = [(name, kind) for kind, names in cells for name in re.findall(r"[A-D]-\d+", names)]
    kinds = dict(re.findall(r"^### ([A-D]-\d+)\. .*\(([a-z ]+; [a-z]+)\)$", TEXT, flags=re.M))
    stated = {name: text.split("; ") for name, text in kinds.items()}
    wanted = {name: "without effect" if effect == "none" else kind for name, (kind, effect) in stated.items()}
    assert sorted(listed) == sorted(wanted.items())


def test_every_figure_that_the_errata_name_is_in_the_catalogue():
    catalogue = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "config" / "figures").glob("*.yaml"))
    for paper, name in re.findall(r"`(zeng2022|wang2020|pmidp|beyond|tan2024)/([a-z0-9_]+)`", TEXT):
        assert re.search(rf"id: {name}\n\s+paper: {paper}\n", catalogue), f"{paper}/{name}"


@pytest.mark.slow
def test_no_number_of_the_page_is_left_unchecked():
    """All tests below say what they say again; of what is changed by an erratum nothing but settings may remain."""
    SAID.clear()
    for name, test in list(globals().items()):
        if re.match(r"test_[a-d]\d+_", name):
            test()
    for name, text in ENTRIES.items():
        rest = " ".join(text.partition("* Changes")[2].split())
        for _, said in sorted((one for one in SAID if one[0] == name), key=lambda one: -len(one[1])):
            rest = rest.replace(said, "")
        rest = re.sub(r"\(\d+\.\d+\)", "", rest)  # equations
        left = set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", rest))
        assert {number for number in left if "." in number or "," in number} <= GIVEN, name


# A. Tan et al. 2024


SIZE = 32
LEVELS = (50.0, 100.0, 200.0, 300.0, 500.0, 800.0, 1000.0, 1500.0)


def random_pictures(period: int) -> np.ndarray:
    """Covariance of grey 32×32 crops of periodic fields with power 1/f^2.5, of variance 0.25."""
    frequency = np.fft.fftfreq(period) * period
    radius = np.hypot(frequency[:, None], frequency)
    radius[0, 0] = 1.0
    correlation = np.fft.ifft2(radius**-2.5).real
    row, column = np.divmod(np.arange(SIZE**2), SIZE)
    covariance = correlation[(row[:, None] - row) % period, (column[:, None] - column) % period]
    return 0.25 * covariance / correlation[0, 0]


def published_weights() -> np.ndarray:
    """β of grey pictures: 50 in 8 rows and 16 columns around the eyes, else 1."""
    weights = np.ones((SIZE, SIZE))
    weights[12:20, 8:24] = 50.0
    return weights.ravel()


def residuals(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Innovation variances u_i, and the rows of I − A that predict each variable from the earlier ones."""
    factor = np.linalg.cholesky(covariance)
    inverse = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    return np.diag(factor) ** 2, np.diag(factor)[:, None] * inverse


def published_noise(variances: np.ndarray, u: np.ndarray, k: np.ndarray, weights: np.ndarray, capacity: float) -> float:
    """σ at which the difference that Theorem 3 means is the capacity."""

    def excess(t: float) -> float:
        scale = math.exp(t)
        hadamard = np.log1p(variances / (scale * weights)).sum()
        predicted = (np.log(k / weights) + np.log1p(u / (scale * k))).sum()
        return 0.5 * float(min(hadamard, predicted)) - capacity

    return math.exp(root(excess, -60.0, 60.0))


def test_a2_cost_of_the_published_bound_on_grey_pictures():
    weights = published_weights()
    np.testing.assert_array_equal(weights, box_weights(1, SIZE, SIZE, 50.0, (12, 20), (8, 24)))
    factors = {}
    for period in (32, 64, 128):
        covariance = random_pictures(period)
        u, prediction = residuals(covariance)
        ratios = np.linalg.eigvalsh(covariance / np.sqrt(np.outer(weights, weights))).clip(0.0)
        given = (np.diag(covariance), u, prediction**2 @ weights, weights)
        factors[period] = [published_noise(*given, level) / noise_for(ratios, level) for level in LEVELS]
    says("A-2", table_row("printed / exact", [f"{factor:.2f}" for factor in factors[64]]))
    says("A-2", f"the factor at κ = 300 is {factors[32][3]:.2f} and {factors[128][3]:.2f}")
    says("A-2", f"cost {100 * factors[64][4] - 100:.0f} to {100 * factors[64][7] - 100:.0f} % more noise")
    moments = Moments(np.zeros(SIZE**2), random_pictures(64), 9)
    exact, printed = (shape.decompose(moments, weights=weights) for shape in (Personalized, PersonalizedPrinted))
    for level, factor in zip(LEVELS, factors[64], strict=True):
        noise = PersonalizedPrinted.calibrate(printed, level).variances / Personalized.calibrate(exact, level).variances
        np.testing.assert_allclose(noise, factor, rtol=1e-6)


def test_a2_cost_of_the_published_bound_in_three_colors():
    """Colors times pixels: eigenvalues, Cholesky factors and predictors are Kronecker products."""
    grey, colors, weights = random_pictures(64), 0.9 + 0.1 * np.eye(3), published_weights()
    ratios = np.linalg.eigvalsh(grey / np.sqrt(np.outer(weights, weights)))
    ratios = np.kron(np.linalg.eigvalsh(colors), ratios)
    (u_colors, by_color), (u_pixels, by_pixel) = residuals(colors), residuals(grey)
    predictors = np.kron((by_color**2).sum(axis=1), by_pixel**2 @ weights)
    given = (np.tile(np.diag(grey), 3), np.kron(u_colors, u_pixels), predictors, np.tile(weights, 3))
    noise = {level: published_noise(*given, level) for level in (500, 1000, 1500)}
    factors = [noise[level] / noise_for(ratios, level) for level in noise]
    says(
        "A-2",
        "cost {:.2f} times the noise at κ = 500, {:.2f} times at 1,000 and {:.2f} times at 1,500".format(*factors),
    )
    passed = 0.5 * np.log1p(ratios / noise[1000]).sum()
    says("A-2", f"the noise required at κ = 1,000 reveals {passed:.0f} nats")


def test_a3_half_of_the_printed_bound_is_attained():
    """Whatever the spectrum of clipped gradients, ½ Σ ln(1 + Bλ_i/σ) is below BS²/(2σ), which many equal ones reach."""
    batch, variance = 64, 0.3
    for spectrum in np.random.default_rng(0).dirichlet(np.full(50, 0.1), size=20):
        assert 0.5 * np.log1p(batch * spectrum / variance).sum() < 0.5 * batch / variance
    many = 10**8
    reached = 0.5 * many * math.log1p(batch / (many * variance))
    assert reached == pytest.approx(0.5 * batch / variance, rel=1e-5)
    assert dp.dp_capacity(math.sqrt(variance), batch, many) == pytest.approx(reached, rel=1e-9)


def test_a3_multipliers_that_were_matched_by_the_printed_bound():
    multipliers, capacities = np.array([0.8, 0.57, 0.46, 0.2066]), np.array([100.0, 200.0, 300.0, 1500.0])
    printed = 64 / multipliers**2
    says("A-3", "which gives {:.1f}, {:.1f}, {:.1f} and {:,.1f}".format(*printed))
    says("A-3", "bounded by {:.1f}, {:.1f}, {:.1f} and {:.1f} nats".format(*printed / 2))
    says("A-3", "take {{{:.4f}, {:.4f}, {:.4f}, {:.4f}}}".format(*np.sqrt(32 / capacities)))
    for multiplier in multipliers:
        assert dp.dp_capacity(multiplier, 64, as_printed=True) == pytest.approx(64 / multiplier**2, rel=1e-12)
        assert dp.dp_capacity(multiplier, 64) == pytest.approx(32 / multiplier**2, rel=1e-12)


def formula_2(epsilon: float, delta: float) -> float:
    """Capacity of Theorem 4 (2) for a batch of one record, in nats."""
    return epsilon**2 / (2.0 * math.log(1.25 / delta))


def gaussian_std(epsilon: float, delta: float, sensitivity: float) -> float:
    """Least standard deviation of Gaussian noise with (ε, δ)-DP (Balle and Wang 2018, Theorem 8)."""

    def missed(std: float) -> float:
        shift, half = epsilon * std / sensitivity, 0.5 * sensitivity / std
        return float(stats.norm.cdf(half - shift) - math.exp(epsilon) * stats.norm.cdf(-half - shift))

    return root(lambda std: missed(std) - delta, 0.5, 500.0)


def test_a4_randomized_response_tells_more_than_formula_2():
    epsilon, delta = 1.0, 1e-5
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert honest / (1 - honest) == pytest.approx(math.exp(epsilon))  # whatever the bit that is replaced
    leaked = math.log(2) + honest * math.log(honest) + (1 - honest) * math.log(1 - honest)
    assert leaked > formula_2(epsilon, delta)
    says("A-4", f"reveals {leaked:.3f} nats; the formula with δ = 10⁻⁵ gives {formula_2(epsilon, delta):.4f}")


def test_a4_a_gaussian_mechanism_tells_more_than_formula_2():
    epsilon, delta = 0.1, 1e-5

    def leaked(epsilon: float, sensitivity: float) -> float:
        """Nats that ±1 reveals behind noise for this sensitivity."""
        return two_point_information(1.0 / gaussian_std(epsilon, delta, sensitivity))

    formula = formula_2(epsilon, delta)
    assert leaked(epsilon, 1.0) > formula > formula / 2
    says("A-4", f"its standard deviation is {gaussian_std(epsilon, delta, 1.0):.2f} S")
    says("A-4", f"reveals {scientific(leaked(epsilon, 1.0), 2)} nats; the formula gives {scientific(formula, 2)}")
    says("A-4", f"with the ½ {scientific(formula / 2, 2)}")
    equal = root(lambda e: leaked(e, 1.0) - formula_2(e, delta), 0.2, 0.8)
    says("A-4", f"below ε = {equal:.3f}")
    says("A-4", f"the same gradient reveals {scientific(leaked(epsilon, 2.0), 2)}")
    assert all(leaked(e, 2.0) < formula_2(e, delta) for e in (0.01, 0.1, 0.3, 1.0))


OPACUS_ORDERS = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))
TENSORFLOW_ORDERS = np.array([1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 128, 256, 512])
PUBLISHED = {0.8: 1.705, 0.57: 5.120, 0.46: 12.026, 0.2066: 331.668}


def renyi(multiplier: float, records: float, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of 10⁴ Poisson-sampled Gaussian steps at B = 64, by quadrature."""
    rate, step = 64 / records, 0.1 * multiplier
    x = np.arange(-14.0 * multiplier, orders.max() + 14.0 * multiplier, step)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / multiplier**2)
    base = stats.norm.logpdf(x, scale=multiplier) + math.log(step)
    return 1e4 * np.array([special.logsumexp(base + order * ratio) / (order - 1) for order in orders])


def converted(divergences: np.ndarray, orders: np.ndarray, delta: float, *, improved: bool) -> float:
    """ε of Rényi divergences, by Balle et al. 2020, Theorem 21, or by Mironov 2017, Proposition 3."""
    gained = np.log1p(-1 / orders) - np.log(orders) / (orders - 1) if improved else 0.0
    return float((divergences - math.log(delta) / (orders - 1) + gained).min())


def test_a5_epsilon_of_the_published_setting():
    found = [converted(renyi(m, 50_000, OPACUS_ORDERS), OPACUS_ORDERS, 1e-5, improved=True) for m in PUBLISHED]
    says("A-5", "gives {{{:.3f}, {:.3f}, {:.3f}, {:.3f}}} for 10⁴ steps".format(*found))
    library = [dp.poisson_epsilon(m, 64 / 50_000, 10_000, 1e-5) for m in PUBLISHED]
    assert library == pytest.approx(found, rel=1e-6)
    without_least = converted(renyi(0.2066, 50_000, TENSORFLOW_ORDERS[:9]), TENSORFLOW_ORDERS[:9], 1e-5, improved=True)
    says("A-5", f"with 1.25 instead of 1.1 it is {without_least:.1f} at N = 50,000")


@pytest.mark.slow
def test_a5_no_single_number_of_records_has_the_published_epsilons():
    """The best orders are below 20 throughout."""

    def records(multiplier: float, orders: np.ndarray, delta: float, improved: bool) -> float:
        """N at which the published ε is found."""

        def excess(t: float) -> float:
            found = converted(renyi(multiplier, math.exp(t), orders), orders, delta, improved=improved)
            return found - PUBLISHED[multiplier]

        return math.exp(float(optimize.brentq(excess, math.log(1e4), math.log(3e5), xtol=1e-6)))

    sets = [orders[orders < 20] for orders in (OPACUS_ORDERS, TENSORFLOW_ORDERS)]
    cases = [[records(m, *case) for m in PUBLISHED] for case in product(sets, (1e-5, 3e-6), (True, False))]
    says("A-5", "belong to N = {:,.0f}, {:,.0f}, {:,.0f} and {:,.0f}".format(*cases[0]))
    for multiplier, needed in zip(PUBLISHED, cases[0], strict=True):
        library = dp.poisson_epsilon(multiplier, 64 / needed, 10_000, 1e-5)
        assert library == pytest.approx(PUBLISHED[multiplier], rel=1e-4)
    apart = min(max(needed) / min(needed) - 1 for needed in cases)
    says("A-5", f"the N of the four differ by at least {100 * apart:.0f} %")


def test_a6_a_second_look_tells_less_than_the_first():
    first, both = 0.5 * math.log(2), 0.5 * math.log(3)
    says("A-6", f"a second use reveals {both - first:.4f} nats, not {first:.4f}")
    says("A-6", f"two reveal {both:.4f}, not {2 * first:.4f}")


def test_a7_leakage_of_one_record_and_of_all():
    eigenvalues = 222.21 * np.arange(1.0, 3073) ** -1.297
    uses = 10_000 * 64 / 50_000
    noise = noise_for(eigenvalues, 300.0)
    record = 0.5 * float(np.log1p(uses * eigenvalues / noise).sum())
    says("A-7", f"nκ is {scientific(1e4 * 300, 1)}", f"its {uses} uses reveal at most {record:,.0f}, and 300")
    says("A-7", f"N times {record:,.0f}, or {scientific(50_000 * record, 1)}")
    assert 50_000 * record > 1e4 * 300 > uses * 300 > record
    assert gaussian.gaussian_capacity(eigenvalues / noise, 1.0, uses) == pytest.approx(record, rel=1e-9)


def test_a7_a_step_with_two_records_tells_twice_the_capacity():
    """Two independent records, each through its own noise, and the noisy batch sent on."""
    covariance, noise = np.kron(np.eye(2), np.array([[2.0, 0.5], [0.5, 1.0]])), 0.7 * np.eye(4)
    joint = np.block([[covariance, covariance], [covariance, covariance + noise]])
    capacity = 0.5 * np.linalg.slogdet(np.eye(2) + covariance[:2, :2] / 0.7)[1]
    assert gaussian.mutual_information(joint, range(4)) == pytest.approx(2 * capacity, rel=1e-10)


def test_a8_black_and_white_pixels_are_restored_below_the_gaussian_surrogate():
    """Least error of X = ±1 in noise of variance 1/9 is 1 − E tanh(9 + 3 Z)."""
    nats = 0.5 * math.log(10)
    surrogate = math.exp(-2 * nats)

    def integrand(z: float) -> float:
        return float(stats.norm.pdf(z)) * (1 - math.tanh(9 + 3 * z))

    least, _ = integrate.quad(integrand, -12, 12, points=[-3.0], limit=400, epsabs=1e-13)
    says(
        "A-8",
        f"noise of {nats:.2f} nats each, the surrogate is {surrogate:.4f} per pixel and the least error {least:.4f}",
    )
    assert reconstruction.gaussian_surrogate_error(np.ones(1), nats) == pytest.approx(surrogate, rel=1e-12)


@pytest.mark.slow
def test_a8_known_records_are_restored_below_the_gaussian_surrogate():
    """At κ = 8 by simulation, to 5 standard errors; at κ = 20 by the sum of all mistakes between two records."""
    records = np.random.default_rng(0).normal(size=(2000, 64)) * np.sqrt(np.arange(1.0, 65) ** -1.5)
    eigenvalues = np.linalg.eigvalsh(np.cov(records.T, bias=True))
    surrogates = [math.exp(np.log(eigenvalues).mean() - 2 * level / 64) for level in (8.0, 20.0)]
    says("A-8", "it is {:.4f} at κ = 8 and {:.4f} at κ = 20".format(*surrogates))
    norms, generator = (records**2).sum(axis=1), np.random.default_rng(4)
    noise, errors = noise_for(eigenvalues, 8.0), []
    for _ in range(40):
        chosen = generator.integers(2000, size=1000)
        seen = records[chosen] + math.sqrt(noise) * generator.standard_normal((1000, 64))
        posterior = special.softmax((seen @ records.T - 0.5 * norms) / noise, axis=1)
        errors.append((posterior @ norms - ((posterior @ records) ** 2).sum(axis=1)) / 64)
    spread = np.std(errors) / math.sqrt(np.size(errors))
    at_8 = 0.0046
    assert at_8 - 0.0003 < np.mean(errors) - 5 * spread < np.mean(errors) + 5 * spread < at_8
    library = reconstruction.empirical_bayes(records, np.full(64, noise), np.random.default_rng(5), draws=4000)
    assert abs(library.error / 64 - np.mean(errors)) < 5 * math.hypot(library.error_standard_error / 64, spread)
    squares = (norms[:, None] + norms - 2 * records @ records.T).clip(0.0)
    doubt = stats.norm.sf(np.sqrt(squares / noise_for(eigenvalues, 20.0)) / 2)
    at_20 = 5e-6
    assert at_20 - 1e-6 < (squares * doubt).sum() / 2000 / 64 < at_20
    says("A-8", f"the least error below {at_8} and {at_20:.6f}")


def test_a10_determinants_and_derivative_of_the_proofs():
    factor = np.random.default_rng(1).normal(size=(5, 8))
    covariance, weights = factor @ factor.T, np.array([1.0, 3.0, 0.5, 2.0, 4.0])
    whole = covariance + np.diag(weights)
    v = [whole[i, i] - whole[i, :i] @ np.linalg.solve(whole[:i, :i], whole[:i, i]) for i in range(5)]
    assert np.log(v).sum() == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-12)
    assert np.log(v).sum() > np.linalg.slogdet(covariance)[1] + 0.1
    s, sigma, d, h = 1.7, 0.6, 5.0, 1e-3
    u = [x * math.log1p(s**2 / (x * sigma)) for x in (d - h, d, d + h)]
    curvature, below = (u[0] - 2 * u[1] + u[2]) / h**2, d * (sigma * d + s**2) ** 2
    assert curvature == pytest.approx(-(s**4) / below, rel=1e-4)
    assert curvature > -(s**2) * (2 * sigma * d + s**2) / below + 0.01


# B. Zeng, Yang, Dai 2022


def matrix(variance: float, covariance: float, n: int) -> np.ndarray:
    """Exchangeable covariance."""
    return covariance + (variance - covariance) * np.eye(n)


def log_det(covariance: np.ndarray) -> float:
    """log₂ of a determinant."""
    return float(np.linalg.slogdet(covariance)[1]) / math.log(2)


def utility(signal: np.ndarray, noise: np.ndarray) -> float:
    """I(Xⁿ; Yⁿ)/n in bits."""
    return 0.5 * (log_det(signal + noise) - log_det(noise)) / len(signal)


def told(signal: np.ndarray, noise: np.ndarray) -> float:
    """I(X₁; Yⁿ | X⁻¹) in bits, by (19)."""
    joint = np.block([[signal + noise, signal[:, 1:]], [signal[1:], signal[1:, 1:]]])
    return 0.5 * (log_det(joint) - log_det(signal[1:, 1:]) - log_det(noise))


def left_variance(variance: float, covariance: float, n: int) -> float:
    """Var(X_i | all others)."""
    whole = matrix(variance, covariance, n)
    return float(whole[0, 0] - whole[0, 1:] @ np.linalg.solve(whole[1:, 1:], whole[1:, 0]))


def printed_variance(variance: float, covariance: float, n: int) -> float:
    """The brackets of Theorem 2 as printed."""
    return variance + (n - 1) * covariance**2 / (variance + (n - 2) * covariance)


def test_b1_noise_of_theorem_2():
    factor, other = (printed_variance(*case, 101) / left_variance(*case, 101) for case in ((2.0, 1.8), (30.0, 2.0)))
    says("B-1", f"{factor:.2f} times the necessary noise", f"({100 * other - 100:.1f} % too much for 30, 2)")
    signal, eye = matrix(2.0, 1.8, 101), np.eye(101)
    right, printed = left_variance(2.0, 1.8, 101) / 3, printed_variance(2.0, 1.8, 101) / 3
    says(
        "B-1",
        f"right σ² = {right:.4f} gives a privacy of {told(signal, right * eye):.6f} "
        f"and U = {utility(signal, right * eye):.4f} bits",
        f"the printed {printed:.4f} gives {told(signal, printed * eye):.4f} "
        f"and U = {utility(signal, printed * eye):.4f}",
    )
    law = Exchangeable(2.0, 1.8, 101)
    assert cases.independent_noise(law, 1.0).variance == pytest.approx(right, rel=1e-9)
    assert cases.independent_noise(law, 1.0, as_printed=True).variance == pytest.approx(printed, rel=1e-9)


def test_b3_determinants_of_equations_22_and_24():
    a, b, s, e = 3.0, 1.0, 2.0, 0.5
    found = []
    for n in (3, 4, 7):
        signal, noise = matrix(a, b, n), matrix(s, e, n)
        exact = np.linalg.det(np.block([[signal + noise, signal[:, 1:]], [signal[1:], signal[1:, 1:]]]))
        inner = -b - e + a + s
        by_22 = (a + s) * (s - e) ** (n - 1) * (a - b) ** (n - 1)
        by_22 += (-1) ** (n + 1) * (e - a - s) * (n - 1) * e * (e - s) ** (n - 2) * (a - b) ** (n - 1)
        by_22 += b * ((n - 1) * e + (e - s) * b / inner) * (e - s) ** (n - 2) * (n - 1) * inner * (b - a) ** (n - 2)
        by_24 = (a + s) * (s - e) * (a - b) + (-1) ** (n + 1) * (n - 1) * e * (e - a - s) * (a - b)
        by_24 += (n - 1) * b**2 * (e - s) + (n - 1) ** 2 * e * b * (a + s - b - e)
        by_24 *= ((a - b) * (s - e)) ** (n - 2)
        release = Release(Exchangeable(a, b, n), Exchangeable(s, e, n))
        brackets = [printed_bracket(release, -1), printed_bracket(release, (-1) ** (n + 1))]
        brackets.append(formulas.joint_bracket(release))
        library = [bracket * ((a - b) * (s - e)) ** (n - 2) for bracket in brackets]
        assert library == pytest.approx([by_22, by_24, exact], rel=1e-12)
        found.append(f"{exact:.6g} / {by_22:.6g} / {by_24:.6g} at n = {n}")
    says("B-3", *found)


def test_b4_utility_has_no_limit():
    n, left = 101, left_variance(30.0, 2.0, 101)
    signal = matrix(30.0, 2.0, n)
    shared = 0.5 * (log_det(signal) - n * math.log2(left)) / n
    threshold = 0.5 * math.log2(left / 28.0)
    says(
        "B-4",
        f"({threshold:.4f} bits in the paper's setting)",
        f"U(8) = {8 + shared:.4f} and U(10) = {10 + shared:.4f} bits",
    )
    for budget in (threshold + 0.01, 1.0, 4.0):
        noise = np.linalg.inv(np.eye(n) * 4.0**budget / left - np.linalg.inv(signal))
        assert told(signal, noise) == pytest.approx(budget, abs=1e-8)
        assert utility(signal, noise) == pytest.approx(budget + shared, abs=1e-8)
        found = cases.optimal_exchangeable_noise(Exchangeable(30.0, 2.0, n), budget)
        assert found.utility_bits == pytest.approx(budget + shared, rel=1e-9)
    gained = 1.0 + shared - utility(signal, np.eye(n) * left / 3)
    says("B-4", f"dependent noise gains {scientific(gained, 1)} bits")
    noise = matrix(1.0, 0.99957, n)
    says("B-4", f"σ_e² = 0.99957 gives U = {utility(signal, noise):.4f} at a privacy of {told(signal, noise):.4f}")


def test_b4_searches_in_a_box_stop():
    """At the least σ², where utility is largest: by r = (n − 1) σ_e²/σ², in [−½, ½]."""
    n, signal = 101, matrix(30.0, 2.0, 101)

    def argument(variance: float, r: float) -> float:
        """Of the logarithm in Eq. (24)."""
        a, b, s, e = 30.0, 2.0, variance, variance * r / (n - 1)
        upper = (a + s) * (s - e) * (a - b) + (n - 1) * e * (e - a - s) * (a - b)
        upper += (n - 1) * b**2 * (e - s) + (n - 1) ** 2 * e * b * (a + s - b - e)
        return upper / ((a + (n - 2) * b) * (s + (n - 1) * e) * (s - e))

    stops, printed, exact = [], [], []
    for least in (1.0, 0.1, 0.01):
        r = np.linspace(-0.5, 0.5, 201)
        reached = np.array([utility(signal, matrix(least, least * x / (n - 1), n)) for x in r])
        assert max(told(signal, matrix(least, least * x / (n - 1), n)) for x in r) < 8.0
        stops.append(reached.max())
        edge = root(lambda x, least=least: argument(least, x), -0.5, 0.0)
        allowed = [0.0 < argument(least, x) <= 4.0 for x in r]
        noise = matrix(least, least * edge / (n - 1), n)
        printed.append(utility(signal, noise))
        exact.append(told(signal, noise))
        assert reached[allowed].max(initial=0.0) <= printed[-1]
        box = {"least_variance": least, "reach": 0.5}
        law = Exchangeable(30.0, 2.0, n)
        assert cases.search_exchangeable_noise(law, 8.0, **box).utility_bits == pytest.approx(stops[-1], abs=5e-5)
        searched = cases.search_exchangeable_noise(law, 1.0, as_printed=True, **box)
        assert searched.utility_bits == pytest.approx(printed[-1], abs=5e-5)
    says("B-4", "stop at {:.4f}, {:.4f} and {:.4f}".format(*stops))
    says("B-4", "it is at {:.4f}, {:.4f} and {:.4f} for ε = 1 already".format(*printed))
    says("B-4", "the exact privacy is {:.4f}, {:.4f} and {:.4f} bits".format(*exact))


def common_noise_utility(budget: float) -> float:
    """U of case 1 for many variances uniform in (0, 1): ∫ ½ log₂(1 + s (4^ε − 1)) ds."""
    return float(integrate.quad(lambda s: 0.5 * math.log2(1 + s * (4.0**budget - 1)), 0, 1, epsabs=1e-12, limit=200)[0])


def test_b5_utility_of_common_noise():
    budgets = (1.0, 2.0, 5.0, 10.0)
    found = [common_noise_utility(budget) for budget in budgets]
    says("B-5", "U is {:.3f} at ε = 1, {:.3f} at 2, {:.3f} at 5, {:.3f} at 10".format(*found))
    many = (np.arange(20_000) + 0.5) / 20_000
    library = [cases.common_noise_utility_bits(many, budget) for budget in budgets]
    assert library == pytest.approx(found, abs=2e-4)


def test_b6_an_attacker_without_side_information():
    signal, left = matrix(2.0, 1.8, 101), left_variance(2.0, 1.8, 101)
    learnt, bounds = [], []
    for budget in (0.5, 1.0, 2.0):
        noise = np.eye(101) * left / (4.0**budget - 1)
        assert told(signal, noise) == pytest.approx(budget, abs=1e-9)
        known = signal[0, 0] - signal[0] @ np.linalg.solve(signal + noise, signal[0])
        learnt.append(0.5 * math.log2(signal[0, 0] / known))
        bounds.append(budget + 0.5 * math.log2(signal[0, 0] / left))
        release = Release(Exchangeable(2.0, 1.8, 101), Exchangeable(float(noise[0, 0]), 0.0, 101))
        assert release.unconditional_leak_bits == pytest.approx(learnt[-1], rel=1e-9)
    says("B-6", "learns {:.4f}, {:.4f} and {:.4f} bits".format(*learnt))
    says("B-6", "the bounds are {:.4f}, {:.4f} and {:.4f}".format(*bounds))


def test_b7_entropies_of_equation_10():
    """h(X_i + Z_i, X⁻ⁱ) − h(X⁻ⁱ) − h(Z_i) is the information; with + h(Z_i) it is something else."""
    n, signal, noise = 5, matrix(2.0, 0.7, 5), 0.6
    seen = signal + np.diag([noise] + [0.0] * (n - 1))

    def entropy(covariance: np.ndarray) -> float:
        return 0.5 * (len(covariance) * math.log2(2 * math.pi * math.e) + log_det(covariance))

    rest, own = entropy(seen) - entropy(signal[1:, 1:]), entropy(np.array([[noise]]))
    assert rest - own == pytest.approx(told(signal, noise * np.eye(n)), rel=1e-10)
    assert abs(rest + own - told(signal, noise * np.eye(n))) > 1.0


def test_b8_utility_is_not_in_proportion_to_the_budget():
    signal, brackets = matrix(2.0, 1.8, 101), printed_variance(2.0, 1.8, 101)
    one, two = (utility(signal, np.eye(101) * brackets / (4.0**budget - 1)) for budget in (1, 2))
    case_1 = common_noise_utility(2) / common_noise_utility(1)
    says("B-8", f"multiplies U by {case_1:.2f} in case 1", f"by {two / one:.2f} in case 2")


# C. PMIDP-FL


def test_c1_information_without_pure_privacy():
    information = two_point_information(0.5)
    variation = float(stats.norm.cdf(0.5) - stats.norm.cdf(-0.5))
    says("C-1", f"reveals {information:.4f} nats", f"total variation {variation:.4f}")
    says("C-1", f"√(2I) = {math.sqrt(2 * information):.4f}")
    truth = math.e / (1 + math.e)
    says("C-1", f"reveals {math.log(2) + truth * math.log(truth) + (1 - truth) * math.log(1 - truth):.4f}.")


def test_c2_noise_that_one_dimension_needs():
    """Two antipodal points are the worst law of a bounded variable in noise of more than 0.6 its bound (Smith 1971)."""
    excess = []
    for budget in (0.5, 0.3, 0.1):
        std = 1 / math.sqrt(math.expm1(2 * budget))
        needed = 1 / root(lambda a, budget=budget: two_point_information(a) - budget, 0.05, 1.65)
        assert needed > 1 / 1.66
        excess.append(f"{100 * (std / needed) ** 2 - 100:.1f} %")
        library = server_noise(np.array([1.0]), np.array([budget]), 1).server_std
        assert library == pytest.approx(std, rel=1e-12)
    says("C-2", f"{excess[0]} too much variance at ε = 0.5, {excess[1]} at 0.3, {excess[2]} at 0.1")
    says("C-8", f"the supremum is {two_point_information(math.sqrt(math.expm1(1.0))):.4f}")


def test_c3_a_hundred_rounds_and_c4_a_hundred_clients():
    found = [0.5 * d * math.log1p(100 * math.expm1(20 / d)) for d in (1e5, 1e3)]
    says("C-3", "reveal up to 1,000 nats", "up to {:.0f} at d = 10⁵ and {:.0f} at d = 10³".format(*found))
    says("C-4", "up to {:.0f} nats at d = 10⁵, and {:.0f} at d = 10³".format(*found))
    norms = budgets = np.full(100, 10.0)
    for dimension, expected in zip((10**5, 10**3), found, strict=True):
        upload = server_leak(client_noise(norms, budgets, dimension), norms, dimension)
        np.testing.assert_allclose(upload, expected, rtol=1e-9)
        assert static_leak(10.0, dimension, 100) == pytest.approx(expected, rel=1e-9)


def test_c6_solution_of_equation_5_69():
    """The printed matrix, solved for p_1, …, p_N."""
    norms, budgets = np.array([1.0, 2.0, 5.0, 3.0]), np.array([1.0, 4.0, 9.0, 2.0])
    unit = np.exp(log_noise_unit(norms, budgets, 50))
    system = np.vstack([np.ones(4), np.column_stack([np.full(3, unit[0]), -np.diag(unit[1:])])])
    weights = np.linalg.solve(system, [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(personalized_noise(norms, budgets, 50).weights, weights, rtol=1e-10)


def test_c7_thresholds_by_either_norm():
    before = after = 10.0
    library = np.array([10.0])
    for norm in (2.0, 4.0, 30.0, 30.0, 6.0):
        before, after = 0.7 * before + 0.3 * norm, 0.7 * after + 0.3 * min(norm, after)
        library = next_max_param_norms(library, np.array([norm]), 0.3)
    says("C-7", f"becomes {before:.2f} by the one, {after:.2f} by the other")
    assert after < 10.0
    assert library[0] == pytest.approx(before, rel=1e-12)


def test_c9_bias_that_the_utility_does_not_count():
    """In units of C², with the parameters (C, 0, …) and (−C, 0, …)."""
    budgets = np.array([1.0, 20.0])
    found = {}
    for dimension in (1000, 5):
        unit = 1 / np.sqrt(dimension * np.expm1(2 * budgets / dimension))
        weights = (1 / unit) / (1 / unit).sum()
        noise, baseline = dimension / (1 / unit).sum() ** 2, dimension * (unit.max() / 2) ** 2
        found[dimension] = noise, float((weights - 0.5) @ np.array([1.0, -1.0])) ** 2, baseline
        law = personalized_noise(np.ones(2), budgets, dimension)
        assert 1 / formulas.utility(law, dimension) == pytest.approx(noise, rel=1e-9)
        np.testing.assert_allclose(law.weights, weights, rtol=1e-9)
        uniform = client_noise(np.ones(2), budgets, dimension)
        assert 1 / formulas.utility(uniform, dimension) == pytest.approx(baseline)
    says("C-9", "at d = 1,000 the optimum has {:.2f} C² of noise and {:.2f} C² of bias".format(*found[1000][:2]))
    says("C-9", f"equal weights {found[1000][2]:.2f} C² of noise")
    says("C-9", f"At d = 5 its bias of {found[5][1]:.2f} C² is more than their noise of {found[5][2]:.2f} C²")


def test_c10_products_over_clients_leave_the_range_of_floats():
    dimension = 10**5
    alpha = 10 / math.sqrt(dimension * math.expm1(40 / dimension))

    def fails(clients: int) -> bool:
        return bool(np.isnan(formulas.printed_weights(np.full(clients, alpha / math.sqrt(clients)))).any())

    first = next(
        clients for clients in range(200, 400) if np.prod(np.full(clients - 1, alpha / math.sqrt(clients))) == 0
    )
    says("C-10", f"0/0 in float64 from {first} clients on")
    assert fails(first)
    assert not fails(first - 1)
    sigma = 1999 * math.log10(alpha / math.sqrt(2000))
    says("C-10", f"its products are 10^−{-sigma:.0f}, and those of (5.30) 10^{1999 * math.log10(alpha):.0f}")


def test_c10_float32_loses_the_noise_of_large_models():
    def off(budget: float, dimension: int) -> float:
        x = np.float32(2 * budget) / np.float32(dimension)
        return abs(math.sqrt(math.expm1(2 * budget / dimension) / float(np.exp(x) - np.float32(1))) - 1)

    says("C-10", f"off by {off(5, 10**6):.2%} at d = 10⁶ and by {off(5, 10**8):.1%} at 10⁸".replace("%", " %"))
    says("C-10", f"for ε = 1 by {off(1, 10**6):.2%} at d = 10⁶".replace("%", " %"))
    exact = 10 / math.sqrt(10**8 * math.expm1(10 / 10**8))
    unit = log_noise_unit(np.array([10.0]), np.array([5.0]), 10**8)
    assert math.exp(unit[0]) == pytest.approx(exact, rel=1e-12)


# D. Wang et al. 2020


SHIFT, STATE_VARIANCE, BOUND = 0.02, 0.04, math.sqrt(27.0)  # c α, c² Σσ_ij² and a for α = 2, c = 0.01, Σσ_ij² = 400
PAPER = Secret(SHIFT, STATE_VARIANCE)


def gaussian_levels(time: int) -> tuple[float, float]:
    """Level of the last of s + 1 looks at a state, and of all of them, whose precisions add."""
    precisions = [1 / (9.0 * 0.8**u) for u in range(time + 1)]
    return tuple(SHIFT**2 / (2 * (STATE_VARIANCE + 1 / p)) for p in (precisions[-1], sum(precisions)))


def test_d1_levels_of_scheme_2():
    levels = [gaussian_levels(time) for time in (0, 1, 2, 5, 10, 20, 30)]
    limit = SHIFT**2 / (2 * STATE_VARIANCE)
    last, whole = zip(*levels, (limit, limit), strict=True)
    says("D-1", table_row("printed", [short(level, 3) for level in last]))
    says("D-1", table_row("all messages", [short(level, 3) for level in whole]))
    says("D-1", table_row("factor", [f"{a / p:.2f}" for p, a in zip(last, whole, strict=True)]))
    factors = [whole / last for last, whole in map(gaussian_levels, range(80))]
    says("D-1", f"largest at s = {np.argmax(factors)}, {max(factors):.2f}")
    for time in range(80):
        found = [zero_sum_level(PAPER, 9.0, 0.8, time, as_printed=printed) for printed in (True, False)]
        np.testing.assert_allclose(found, gaussian_levels(time), rtol=1e-9)


def test_d2_contraction_on_sparse_networks():
    networks = [metropolis_weights(random_graph(20, 0.25, np.random.default_rng(seed))) for seed in range(20)]
    says(
        "D-2",
        f"χ = 1 on {sum(contraction(weights) > 1 - 1e-12 for weights in networks)} of 20 random connected networks",
    )
    for kind, servers, expected in (("path", 4, 1.0), ("cycle", 6, 1.0), ("complete", 5, 0.0)):
        weights = metropolis_weights(named_graph(kind, servers))
        assert contraction(weights) == pytest.approx(expected, abs=1e-15)


@pytest.mark.slow
def test_d4_levels_of_scheme_3():
    """One look by the trapezoidal rule; eleven by simulation, to 4.5 standard errors."""
    spread = math.sqrt(STATE_VARIANCE)
    x = np.linspace(-BOUND - 2.5, BOUND + 2.5, 400_001)

    def density(y: np.ndarray) -> np.ndarray:
        below = -np.abs(y)
        return (special.ndtr((below + BOUND) / spread) - special.ndtr((below - BOUND) / spread)) / (2 * BOUND)

    p, q = density(x), density(x - SHIFT)
    seen = np.minimum(p, q) > 1e-290
    first = 0.5 * np.trapezoid((p - q)[seen] * np.log(p[seen] / q[seen]), x[seen])
    library = [bounded_level(PAPER, BOUND, 0.8, time) for time in (0, 10)]
    assert library[0] == pytest.approx(first, rel=1e-6)
    runs = 1_000_000
    ratios = formulas.bounded_ratios(SHIFT, spread, BOUND, 0.8, 10, np.random.default_rng(1), runs)
    error = 4.5 * ratios.std() / math.sqrt(runs)
    assert abs(ratios.mean() - library[1]) < error < 5e-6

    says("D-4", f"at s = 0 the level is {short(first, 2)} (scheme 2: {short(gaussian_levels(0)[1], 2)})")
    says("D-4", f"at s = 10 it is {short(library[1], 2)} (scheme 2: {short(gaussian_levels(10)[1], 2)})")


def test_d5_quantile_for_chebyshev():
    factor = 1 / math.sqrt(0.05) / float(stats.norm.ppf(0.975))
    says("D-5", f"{factor:.2f} times smaller at δ = 0.05")
