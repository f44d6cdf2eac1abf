"""One statement of a bound: its numbers are those of the accountants, and no form of it leaves out what it rests on."""

import json
import math

import numpy as np
import pytest
from scipy import integrate, stats

from leakbound.accounting import dp
from leakbound.accounting.leakage import Mechanism, PrivacyEvent, composed_leakage, composed_nats
from leakbound.accounting.risk import dp_naming_bound
from leakbound.accounting.runs import stated_bounds
from leakbound.accounting.statement import Statement, state

RATIOS = np.array([3.0, 1.0, 0.25])
NATURAL, WHITE = Mechanism("natural", RATIOS), Mechanism("white", np.array([1.0, 1.0, 1.0]))
SIZES = {"population": 60, "batch_size": 16, "steps": 8}
CHANNEL = PrivacyEvent("channel", "shuffled", **SIZES, uses=3, shape="natural", capacity=1.2, noise="fresh")
PRIVATE = PrivacyEvent("dpsgd", "poisson", **SIZES, uses=8, noise_multiplier=0.8, max_grad_norm=1.0)
FACTS = {"secure": True, "labels": math.log(10)}


def changed(event: PrivacyEvent, **values) -> PrivacyEvent:
    return PrivacyEvent(**{**event.to_dict(), **values})


def nats(uses: float, ratios: np.ndarray = RATIOS) -> float:
    return 0.5 * float(np.log1p(uses * ratios).sum())


# -- what it adds up ---------------------------------------------------------------------------------------------------


def test_uses_of_the_record_that_leaks_most_are_added_along_common_axes_and_nats_along_others():
    told = state("copies", uses=[[(NATURAL, 1)], [(NATURAL, 3), (WHITE, 2)], [(WHITE, 4)]], **FACTS)
    assert told.values == pytest.approx(nats(3) + nats(2, np.ones(3)), rel=1e-12)
    assert told.nats == pytest.approx(told.values + math.log(10), rel=1e-12)
    assert state("copies", **FACTS).values == 0.0


def test_two_strengths_along_the_same_axes_are_one_sum_of_precisions():
    """Ratios of half the strength are worth half a use."""
    weak, other = Mechanism("natural", 0.5 * RATIOS), nats(1, np.ones(3))
    assert composed_nats([(NATURAL, 2), (weak, 3)]) == pytest.approx(nats(3.5), rel=1e-12)
    assert composed_nats([(weak, 3), (NATURAL, 2)]) == pytest.approx(nats(3.5), rel=1e-12)
    assert composed_nats([(NATURAL, 2), (weak, 0), (WHITE, 1)]) == pytest.approx(nats(2) + other, rel=1e-12)


def test_the_determinant_is_taken_where_axes_are_known_and_only_if_it_is_below_the_sum():
    seen = []

    def determinant(uses):
        seen.append([count for _, count in uses])
        return 1.5

    both = [(NATURAL, 2), (WHITE, 1), (Mechanism("other", RATIOS), 0)]
    assert composed_nats(both, determinant) == 1.5
    assert seen == [[2, 1]]
    assert composed_nats(both, lambda uses: 99.0) == composed_nats(both)
    assert composed_nats([(NATURAL, 2)], lambda uses: 0.0) == nats(2)  # one mechanism has its own axes


def test_uses_of_an_owner_may_each_be_of_another_record():
    told = state("copies", uses=[[(NATURAL, 4), (WHITE, 1)]], unit="owner", group=5, **FACTS)
    assert told.values == pytest.approx(4 * nats(1) + nats(1, np.ones(3)), rel=1e-12)
    assert "about all records of one owner together (at most 5)" in told.sentence
    assert "records of one owner may depend on each other" in told.sentence


def test_uses_beyond_the_accepted_plan_count_as_often_as_the_plan_was_exceeded():
    accepted = Mechanism("natural", RATIOS, planned=2, accepted=9.0)
    assert [accepted.nats(uses) for uses in (0, 1, 2, 5)] == [0.0, 9.0, 9.0, 22.5]


# -- copies and owners of trainings ------------------------------------------------------------------------------------


def test_all_uses_of_copies_are_uses_of_one_record_and_frozen_noise_is_one_copy():
    event = changed(CHANNEL, uses=9, rows=3)
    assert composed_leakage([event], RATIOS).record == pytest.approx(nats(9), rel=1e-12)
    assert composed_leakage([changed(event, noise="frozen")] * 2, RATIOS).record == pytest.approx(nats(2), rel=1e-12)


def test_records_of_an_owner_leak_at_most_what_each_does_with_its_share_of_the_uses():
    event = changed(CHANNEL, uses=10, rows=6, records=4, unit="owner")
    assert composed_leakage([event], RATIOS).record == pytest.approx(4 * nats(2.5), rel=1e-12)
    assert nats(1) + nats(2) + nats(3) + nats(4) <= composed_leakage([event], RATIOS).record
    frozen = changed(event, noise="frozen")
    assert composed_leakage([frozen], RATIOS).record == pytest.approx(4 * nats(1), rel=1e-12)


def test_events_of_units_that_cannot_be_are_refused():
    for change in ({"rows": 0}, {"records": 2, "rows": 2}, {"unit": "owner", "rows": 2, "records": 3}):
        with pytest.raises(ValueError, match="units of at least one row"):
            composed_leakage([changed(CHANNEL, **change)], RATIOS)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_divergence_of_copies_is_the_integral_of_the_binomial_mixture(rows):
    m, q, order = 0.8, 0.25, 3.0

    def mixed(x):
        return sum(p * stats.norm.pdf(x, j, m) for j, p in enumerate(stats.binom.pmf(np.arange(rows + 1), rows, q)))

    def bare(x):
        return stats.norm.pdf(x, 0, m)

    both = []
    for first, second in ((mixed, bare), (bare, mixed)):
        ends = (order * -rows - 8, order * rows + 8)
        whole, _ = integrate.quad(
            lambda x, p=first, q=second: p(x) ** order * q(x) ** (1 - order), *ends, points=[0.0], limit=500
        )
        both.append(math.log(whole) / (order - 1))
    assert dp.group_divergence(m, q, rows, order) == pytest.approx(max(both), rel=1e-6)


def test_epsilon_of_copies_lies_between_that_of_one_and_that_of_all_drawn_together():
    """Without sampling both are known: three copies have a third of the noise."""
    event = changed(PRIVATE, rows=3)
    whole = changed(event, batch_size=60)
    third = changed(PRIVATE, batch_size=60, noise_multiplier=0.8 / 3)
    assert dp.epsilon(whole, 1e-5) == pytest.approx(dp.epsilon(third, 1e-5), rel=1e-6)
    assert dp.record_information(whole) == pytest.approx(8 * 9 / (2 * 0.8**2), rel=1e-6)
    assert dp.epsilon(PRIVATE, 1e-5) < dp.epsilon(event, 1e-5) < dp.epsilon(whole, 1e-5)
    assert dp.record_information(PRIVATE) < dp.record_information(event) < dp.record_information(whole)
    assert dp_naming_bound(2.0, 1.0, 4, 50, 3) == pytest.approx(stats.norm.cdf(stats.norm.ppf(0.02) + 3.0), rel=1e-12)


def test_epsilon_of_three_copies_is_above_that_of_the_privacy_loss_distribution():
    """Own composition of the losses on a grid, rounded down: no smaller ε is valid."""
    m, q, steps, delta, rows = 0.8, 32 / 60, 60, 1e-5, 3
    event = changed(PRIVATE, batch_size=32, steps=steps, uses=steps, rows=rows)
    x = np.linspace(-8, 12, 100_001)
    chances = stats.binom.pmf(np.arange(rows + 1), rows, q)
    density = sum(p * stats.norm.pdf(x, j, m) for j, p in enumerate(chances))
    spacing, size = 2e-3, 2**20
    losses = np.floor(np.log(density / stats.norm.pdf(x, 0, m)) / spacing).astype(np.int64)
    mass = np.bincount(losses % size, density / density.sum(), size)
    total = np.maximum(np.fft.irfft(np.fft.rfft(mass) ** steps, size), 0.0)

    def needed(epsilon: float) -> float:
        return float((total * np.maximum(0.0, -np.expm1(epsilon - spacing * np.arange(size)))).sum())

    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if needed(middle) > delta else (low, middle)
    found = dp.epsilon(event, delta)
    assert dp.epsilon(changed(event, rows=1), delta) < low < found < 1.1 * low


# -- what its forms say ------------------------------------------------------------------------------------------------


FORMS = {
    "secure": state("the weights", events=[CHANNEL], ratios=RATIOS, **FACTS),
    "seeded": state("the weights", events=[CHANNEL], ratios=RATIOS, **FACTS | {"secure": False}),
    "uncounted": state("the copies", uses=[[(NATURAL, 2)]], secure=True, labels="uncounted"),
    "none": state("the copies", uses=[[(NATURAL, 2)]], secure=True, labels="none"),
    "dp": state("the weights", events=[PRIVATE], delta=1e-5, **FACTS),
    "unbounded": state("the weights", secure=True, labels="uncounted", why_not="clipping adds no noise"),
    "uncovered": state("the weights", events=[CHANNEL], ratios=RATIOS, uncovered=["learning rate"], **FACTS),
}
WORDS = {
    "secure": ["about one record", "on average over records", "of them by labels", "independent", "secure noise"],
    "seeded": ["no bound: noise from a seed"],
    "uncounted": ["plus labels, not counted", "on average", "independent", "secure noise"],
    "none": ["no label is released", "secure noise"],
    "dp": ["ε = ", "at δ = 1e-05", "add or remove one record", "for every record", "labels included", "secure noise"],
    "unbounded": ["no bound: clipping adds no noise"],
    "uncovered": ["not covered: learning rate"],
}


@pytest.mark.parametrize("name", WORDS)
def test_one_line_says_what_is_bounded_for_whom_with_which_labels_under_which_noise(name):
    sentence = FORMS[name].sentence
    assert "\n" not in sentence
    assert [word for word in WORDS[name] if word not in sentence] == []


def test_seeded_noise_has_no_bound_in_any_form():
    told = FORMS["seeded"]
    assert not told.bounded
    assert not any(character.isdigit() for character in told.sentence)
    assert told.short.startswith("no bound: noise from a seed (if it were secret: ")
    assert told.numbers()["bounded"] is False
    assert {name.partition("/")[0] for name in told.metrics()} == {"if_noise_were_secret"}
    assert told.tags("bound")["bound_noise"] == "seeded"


def test_metrics_of_different_meaning_have_different_names():
    names = {name: set(told.metrics()) for name, told in FORMS.items()}
    assert names["unbounded"] == set()
    assert names["dp"] == {
        "stated_bound/nats_per_record_each_with_labels",
        "stated_bound/epsilon_per_record_each_with_labels",
    }
    kinds = [names[name] for name in ("secure", "seeded", "uncounted", "none", "dp")]
    assert len(set().union(*kinds)) == sum(map(len, kinds))
    copies = state("the weights", events=[changed(CHANNEL, rows=2)], ratios=RATIOS, **FACTS)
    assert not set(copies.metrics()) & names["secure"]


@pytest.mark.parametrize("told", FORMS.values(), ids=FORMS)
def test_numbers_are_plain_and_make_the_statement_again(told):
    again = Statement.from_numbers(json.loads(json.dumps(told.numbers(), allow_nan=False)))
    assert (again.sentence, again.short, again.numbers()) == (told.sentence, told.short, told.numbers())


def test_numbers_are_those_of_the_accountants():
    assert FORMS["secure"].values == composed_leakage([CHANNEL], RATIOS).record
    assert FORMS["dp"].epsilon == dp.epsilon(PRIVATE, 1e-5)
    assert FORMS["dp"].nats == dp.record_information(PRIVATE)
    bounds = stated_bounds([CHANNEL], RATIOS, labels=1.0)
    assert (bounds["replica"]["record"], bounds["labels"]) == (FORMS["secure"].values, 1.0)
    for wrong in ({"labels": -1.0}, {"added": -1.0}):
        with pytest.raises(ValueError, match="nats are >= 0"):
            state("the weights", **{**FACTS, **wrong})
