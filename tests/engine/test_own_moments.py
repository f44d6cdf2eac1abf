"""What passes a channel is compared with its calibration, before it is released."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from gaussians import gaussian, precision
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from torch.utils.data import DataLoader, Dataset, TensorDataset

from leakbound import BudgetError, Capacity, Channel, ChannelEngine, GuaranteeError, Leakage
from leakbound.channels import GaussianChannel, population_moments
from leakbound.channels.observed import REFUSED, WARNED, own_capacity, sample_size
from leakbound.channels.shapes import shape_named
from leakbound.engine.calibrations import OwnMoments
from leakbound.engine.refusals import CapacityWarning
from leakbound.registry import SHAPES

DIGITS = load_digits().data / 16.0
PUBLIC, OWN = DIGITS[:900], DIGITS[900:]
VARYING = PUBLIC.std(axis=0) > 0.05


def released(public, own, target, **options):
    """One epoch of an engine over all private records."""
    engine = ChannelEngine.for_data(public, target, **{"seed": 1, "value_range": (-1e9, 1e9), **options})
    list(engine.protect(DataLoader(TensorDataset(torch.from_numpy(own)), batch_size=64)))
    return engine


def true_nats(own, channel, uses):
    """½ ln det(I + k Σ Σ_ξ⁻¹) of the records themselves, computed apart."""
    seen = uses * np.cov(np.asarray(own, np.float64).T, bias=True) @ precision(channel)
    return 0.5 * np.linalg.slogdet(np.eye(len(seen)) + seen)[1]


def solved(target, moments, shape="natural"):
    """Calibration of a shape to moments."""
    form = SHAPES.get(shape)
    return target.solve(form, form.decompose(moments), moments, target.uses or 1)


# -- the estimate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["natural", "white", "least_power", "rate_distortion"])
@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
def test_the_capacity_of_many_records_is_that_of_their_covariance(shape, scale):
    public, own = gaussian(4000).astype(float), scale * gaussian(4000, 1).astype(float)
    moments = population_moments(public)
    calibration = solved(Leakage(6.0, 3), moments, shape)
    channel = calibration.channel
    exact = true_nats(own, channel, 3)
    found = own_capacity(own, channel, calibration.ratios, 3)
    assert exact * (1 - 1e-12) <= found.nats <= 1.01 * exact
    assert found.promised == pytest.approx(6.0)
    assert found.certain <= found.nats
    assert found.exceeds(REFUSED) == (scale == 2.0)


LAWS = {
    "gaussian": lambda n, d, rng: rng.normal(size=(n, d)) * np.arange(1, d + 1.0) ** -0.75,
    "skewed": lambda n, d, rng: np.exp(rng.normal(size=(n, d)) * np.arange(1, d + 1.0) ** -0.5),
    "heavy tails": lambda n, d, rng: rng.standard_t(3, size=(n, 1)) * rng.normal(size=(n, d)),
    "flags": lambda n, d, rng: (rng.random((n, d)) < np.linspace(0.02, 0.5, d)).astype(float),
}


@pytest.mark.parametrize("shape", ["natural", "white"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("width", "known"), [(64, 20), (64, 100), (64, 1000), (784, 100)])
def test_records_of_the_law_of_the_public_ones_are_never_refused(law, shape, width, known):
    """Their own capacity may come out larger by chance; at 25 % more, beyond chance, one of 10,000 would be refused."""
    rng = np.random.default_rng(width + known)
    moments = population_moments(LAWS[law](known, width, rng))
    form = SHAPES.get(shape)
    spectrum = form.decompose(moments)
    for target in (Leakage(2.0, 1), Leakage(width, 10)):
        calibration = target.solve(form, spectrum, moments, target.uses)
        for count in (20, 100) if width > 64 else (20, 100, 1000):
            own = LAWS[law](count, width, rng)
            found = own_capacity(own, calibration.channel, calibration.ratios, target.uses, calibrated=known)
            assert not found.exceeds(REFUSED), (target, count)


@pytest.mark.parametrize("count", [12, 20, 100])
def test_few_records_on_another_scale_are_refused(count):
    rng = np.random.default_rng(count)
    moments = population_moments(LAWS["gaussian"](1000, 64, rng))
    calibration = solved(Leakage(60, 10), moments)
    own = 3.0 * LAWS["gaussian"](count, 64, rng)
    assert own_capacity(own, calibration.channel, calibration.ratios, 10, calibrated=1000).exceeds(REFUSED)


@pytest.mark.parametrize("shape", ["natural", "white"])
@pytest.mark.parametrize("known", [5, 30, 300])
def test_honest_records_raise_no_warning_and_a_dozen_on_twice_the_scale_do(shape, known):
    """However few public records there are; of 400 honest comparisons, one in 200 may warn by chance, and here none."""
    rng = np.random.default_rng(known)
    digits = rng.permutation(DIGITS[:, VARYING])
    warned = {1.0: 0, 2.0: 0}
    for _ in range(10):
        moments = population_moments(rng.permutation(digits[:900])[:known])
        calibration = solved(Leakage(20, 10), moments, shape)
        for scale, count in ((1.0, 12), (1.0, 300), (2.0, 12)):
            own = scale * rng.permutation(digits[900:])[:count]
            found = own_capacity(own, calibration.channel, calibration.ratios, 10, calibrated=known)
            warned[scale] += found.seems_to_exceed()
    assert warned == {1.0: 0, 2.0: 10}


def test_what_chance_explains_is_written_out():
    """Two standard errors of Gaussian records, those of 30 calibration records and more included."""
    rng = np.random.default_rng(0)
    own, variances = rng.normal(size=(20, 3)), np.array([4.0, 1.0, 0.25])
    channel = GaussianChannel("natural", 1.0, np.ones(3))
    along = np.square(own - own.mean(axis=0)).mean(axis=0)
    sample = np.linalg.eigvalsh(np.cov(own.T, bias=True))[::-1]
    mixed = 20 / 23 * sample + 3 / 23 * sample.sum() / variances.sum() * variances
    lengths = np.square(own - own.mean(axis=0)).sum(axis=1)
    gaussian = math.sqrt(2 * np.square(variances).sum()) / variances.sum()

    def nats(share):
        """Capacity of four uses for variances that are lowered to a share."""
        largest = max(np.log1p(4 * share * of).sum() for of in (mixed, sample))
        return 0.5 * min(largest, np.log1p(4 * share * along).sum())

    for known in (29, 30, 500):
        found = own_capacity(own, channel, variances, 4, calibrated=known)
        error = math.sqrt(1 / 20 + (1 / known if known >= 30 else 0))
        assert found.likely == pytest.approx(nats(math.exp(-2 * gaussian * error)), rel=1e-12)
        spread, quantile = max(lengths.std() / lengths.mean(), gaussian), stats.t.isf(1e-4, min(20, known) - 1)
        kept = math.exp(-quantile * spread * math.sqrt(1 / 20 + 1 / known))
        assert found.certain == pytest.approx(nats(kept), rel=1e-12)
        assert found.nats == pytest.approx(nats(1.0), rel=1e-12)
        assert found.promised == pytest.approx(0.5 * np.log1p(4 * variances).sum(), rel=1e-12)


def test_one_record_says_nothing_and_two_on_a_thousandfold_scale_raise_a_warning():
    moments = population_moments(gaussian(100).astype(float))
    calibration = solved(Capacity(1.0), moments)
    for count in (1, 2):
        found = own_capacity(1e3 * gaussian(count, 3).astype(float), calibration.channel, calibration.ratios)
        assert found.seems_to_exceed() == (count == 2)
        assert not found.exceeds(REFUSED)


def test_records_that_vary_where_there_is_no_noise_leak_without_bound():
    channel = GaussianChannel("natural", 1.0, np.array([1.0, 0.0]))
    found = own_capacity(np.random.default_rng(0).normal(size=(50, 2)), channel, np.array([1.0, 0.0]))
    assert found.nats == found.certain == math.inf


# -- the engine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [2.0, 255.0])
def test_private_records_on_a_larger_scale_are_refused_before_the_first_release(scale):
    """Once, the engine stated 60 nats, where 134 of records in [−2, 2] passed."""
    engine = ChannelEngine.for_data(PUBLIC, Leakage(60, uses=10), seed=1, value_range=(-300, 300))
    loader = DataLoader(TensorDataset(torch.from_numpy(scale * OWN)), batch_size=64)
    with pytest.raises(GuaranteeError, match="bring them to the scale of the calibration records"):
        engine.protect(loader)
    assert engine.uses == {}
    assert engine.own_capacity.nats == pytest.approx(true_nats(scale * OWN, engine.calibration.channel, 10), rel=0.1)
    assert engine.own_capacity.nats > 1.25 * 60


def test_what_the_user_accepts_is_released_and_stated():
    with pytest.raises(GuaranteeError, match="accept_capacity=") as caught:
        released(PUBLIC, 2.0 * OWN, Leakage(60, uses=10))
    accepted = float(str(caught.value).rpartition("accept_capacity=")[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = released(PUBLIC, 2.0 * OWN, Leakage(60, uses=10), accept_capacity=1.1 * accepted)
    assert engine.own_capacity.nats == pytest.approx(true_nats(2.0 * OWN, engine.calibration.channel, 10), rel=0.05)
    assert "by the moments of the private records" in str(engine)
    with pytest.raises(GuaranteeError, match="accept_capacity"):
        released(PUBLIC, 2.0 * OWN, Leakage(60, uses=10), accept_capacity=61)


def test_records_a_little_larger_raise_a_warning_once():
    with pytest.warns(CapacityWarning, match="accept_capacity=") as caught:
        engine = released(PUBLIC, 1.2 * OWN, Leakage(60, uses=10))  # at 1.15 few records decide by chance
    assert len(caught) == 1
    assert WARNED < engine.own_capacity.nats / 60 < REFUSED
    assert engine.uses["train"].tolist() == [1] * len(OWN)


@pytest.mark.parametrize(("scale", "rate"), [(1.0, 0.0), (1.2, 1.0)])
def test_the_end_of_an_epoch_compares_once_more(scale, rate):
    """Records on a slightly larger scale are noticed once many have passed; those of the law are never warned of."""
    rng = np.random.default_rng(0)
    warned = 0
    for _ in range(20):
        calibration = Leakage(30, 10).calibrate(LAWS["gaussian"](2000, 24, rng), shape_named("natural"), None, 10)
        compared, own = OwnMoments(calibration, 10, None), scale * LAWS["gaussian"](900, 24, rng)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for start in range(0, 900, 60):
                compared.add(own[start : start + 60], range(start, start + 60))
            compared.compare_epoch()
            compared.compare_epoch()
        warned += len(caught)
    assert warned == 20 * rate


@pytest.mark.parametrize("size", [7, 60])
def test_which_records_are_compared_depends_on_their_values_alone(size):
    """Where not all are: once they were drawn anew in each call, and the same files had 3 nats or 18."""
    rng = np.random.default_rng(0)
    own = rng.standard_t(3, size=(5000, 6))
    calibration = Leakage(30, 10).calibrate(rng.normal(size=(400, 6)), shape_named("natural"), None, 10)
    found = set()
    for order in (np.arange(5000), np.arange(5000)[::-1], rng.permutation(5000)):
        compared = OwnMoments(calibration, 10, 1e9)
        for start in range(0, 5000, size):
            rows = own[order[start : start + size]]
            compared.add(rows, [*order[start : start + size]])
        shown, given = compared.capacity, OwnMoments(calibration, 10, 1e9)
        given.check(given.sample(np.concatenate([own[order], own[:50]])))
        found |= {(shown.records, shown.nats), (given.capacity.records, given.capacity.nats)}
    assert len(found) == 1
    ((count, nats),) = found
    assert count == sample_size(6) < 5000
    assert nats == pytest.approx(true_nats(own, calibration.channel, 10), rel=0.02)


def test_white_noise_of_one_law_of_pictures_does_not_protect_another():
    """Digits against digits with contrast turned round: as MNIST and Fashion-MNIST, 60 nats stated, 190 true."""
    public, own = PUBLIC[:, VARYING], 1.0 - np.random.default_rng(0).permuted(OWN[:, VARYING], axis=1)
    with pytest.raises(GuaranteeError, match="calibrate to records like them"):
        released(public, own, Leakage(60, uses=1), shape="white")
    engine = released(public, own, Leakage(60, uses=1), shape="white", accept_capacity=1e4)
    assert true_nats(own, engine.calibration.channel, 1) > 1.25 * 60
    assert engine.own_capacity.nats == pytest.approx(true_nats(own, engine.calibration.channel, 1), rel=0.15)


class Late(Dataset):
    """Records that grow after they were protected."""

    factor = 1.0

    def __len__(self):
        return len(OWN)

    def __getitem__(self, index):
        return torch.from_numpy(self.factor * OWN[index])


def test_records_that_grow_after_they_were_protected_are_refused_while_they_pass():
    engine = ChannelEngine.for_data(PUBLIC, Leakage(60, uses=10), seed=1, value_range=(-300, 300))
    data = Late()
    loader = engine.protect(DataLoader(data, batch_size=64))
    data.factor = 3.0
    with pytest.raises(GuaranteeError, match="by the moments of 64 different records"):
        list(loader)
    assert engine.uses["train"].sum() == 0
    data.factor = 1.0
    assert len(list(loader)) == len(loader)  # what was refused does not count as shown


def test_another_client_of_the_process_is_compared_by_its_own_records():
    engine = released(PUBLIC, OWN, Leakage(60, uses=10))
    engine.take_up(None)
    assert engine.own_capacity is None
    with pytest.raises(GuaranteeError, match="by the moments of"):
        engine.protect(TensorDataset(torch.from_numpy(3.0 * OWN)))


def test_a_state_holds_nothing_of_the_moments():
    engine = released(PUBLIC, OWN, Leakage(60, uses=10))
    other = released(PUBLIC, OWN[::-1] * 1.0, Leakage(60, uses=10))
    assert repr(engine.own_capacity.nats) not in repr(engine.state_dict())
    assert engine.state_dict()["law"] == other.state_dict()["law"]


@pytest.mark.parametrize("accepted", [0, -1.0, math.inf, True, "60"])
def test_a_wrong_accepted_capacity_is_refused(accepted):
    with pytest.raises(GuaranteeError, match=r"accept_capacity = .*: give a finite number of nats above 0"):
        Channel(accept_capacity=accepted).fit(PUBLIC)


# -- directions and digits ---------------------------------------------------------------------------------------------


def salaries(count, seed, flags):
    """Twelve flags beside a salary."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, 2, (count, 12)) * flags, rng.normal(5e4, 4e4, count)])


def engine_release(public, own, **options):
    return ChannelEngine.for_data(public, Capacity(0.5), value_range=(-1e9, 1e9), **options).protect(
        TensorDataset(torch.from_numpy(own))
    )[0]


def channel_release(public, own, **options):
    return Channel(0.5, auxiliary=public, value_range=(-1e9, 1e9), **options).fit(own).transform(own)


@pytest.mark.parametrize("release", [engine_release, channel_release])
@pytest.mark.parametrize("shape", ["white", "least_power"])
def test_flags_that_no_public_record_has_are_not_shown_in_clear(release, shape):
    """Once, white noise of .5 nats showed all twelve flags of every record, 8.32 nats."""
    public, own = salaries(500, 0, 0), salaries(60, 1, 1)
    with pytest.raises(GuaranteeError, match="calibrate to records that vary there too, or leave out the columns"):
        release(public, own, shape=shape)
    release(salaries(500, 0, 1), own, shape=shape)  # flags that public records have are noised
    release(public, salaries(60, 1, 0), shape=shape)


def times(count, seed):
    """Ten columns of unix times with a standard deviation of 20 s."""
    return 1.7e9 + 20.0 * np.random.default_rng(seed).normal(size=(count, 10))


def test_whole_numbers_beyond_float32_are_released_from_their_own_value():
    """All are within half a step of one float32 number, so that rounding them first takes all of their variance."""
    public, own = (
        torch.from_numpy(np.rint(times(count, seed)).astype(np.int64)) for count, seed in ((500, 0), (4000, 1))
    )
    engine = ChannelEngine.for_data(public, Capacity(0.05), seed=1)
    loader = engine.protect(DataLoader(TensorDataset(own), batch_size=1000))
    noise = torch.cat([batch for (batch,) in loader]).double() - own
    deviations = own - 1.7e9
    slope = float((noise * deviations).mean() / deviations.square().mean())
    assert abs(slope) < 0.3  # standard error 0.05; rounded first: -1


# -- scikit-learn ----------------------------------------------------------------------------------------------------


def test_a_channel_compares_range_and_moments():
    """Public records in 0..1 and private ones in 0..16 were once stated to leak 20 nats; it was 137."""
    channel = Channel(Leakage(20, uses=1), auxiliary=PUBLIC).fit(OWN)
    with pytest.raises(GuaranteeError, match="leave the range from"):
        channel.transform(16 * OWN)
    wide = Channel(Leakage(20, uses=1), auxiliary=PUBLIC, value_range=(0, 16)).fit(OWN)
    with pytest.raises(GuaranteeError, match="bring them to the scale of the calibration records"):
        wide.transform(16 * OWN)
    assert wide.transform(OWN).shape == OWN.shape  # what was refused is not counted
    assert wide.own_capacity_ == pytest.approx(20, rel=0.1)


def test_a_use_beyond_the_plan_is_refused_and_not_counted():
    channel = Channel(Leakage(20, uses=2), auxiliary=PUBLIC)
    channel.fit_transform(OWN[:50])
    channel.transform(OWN[:40])
    with pytest.raises(BudgetError, match="row 0 would be used 3 times, over all fits and clones"):
        channel.transform(OWN[35:60])
    channel.transform(OWN[40:60])
    assert channel.leakage() <= 20


def test_refits_copies_and_clones_add_up():
    channel = Channel(Leakage(20, uses=1), auxiliary=PUBLIC).fit(OWN)
    channel.transform(OWN)
    others = [copy.deepcopy(channel), copy.copy(channel), pickle.loads(pickle.dumps(channel)), clone(channel)]
    for other in (*others, channel):
        with pytest.raises(BudgetError, match="1 are planned"):
            other.fit_transform(OWN)


def test_shares_of_two_plans_leak_together_what_one_promises():
    """Half of the uses of each of two plans for 20 nats: precisions add to those of one whole plan."""
    channel = Channel(Leakage(20, uses=2), auxiliary=PUBLIC)
    channel.fit_transform(OWN[:9])
    channel.set_params(target=Leakage(20, uses=10))
    channel.transform(OWN[20:29])
    channel.transform(OWN[20:29])
    with pytest.raises(BudgetError, match="2 are planned"):  # another target without another fit
        channel.transform(OWN[20:29])
    channel.fit(OWN)
    for _ in range(5):
        channel.transform(OWN[:9])
    with pytest.raises(BudgetError, match=r"10 are planned.* counts for more"):
        channel.transform(OWN[:9])


@pytest.mark.parametrize("uses", [2, 8])
def test_folds_of_a_search_are_uses(uses):
    """Once, a search showed a row 31 times under a statement for one use, 56.7 nats for 20."""
    labels = load_digits().target[900:] > 4
    channel = Channel(Leakage(20, uses=uses), auxiliary=PUBLIC)
    search = GridSearchCV(
        make_pipeline(channel, LogisticRegression(max_iter=30)), {"logisticregression__C": [0.1, 1.0]}, cv=3, refit=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of folds that failed, and of few iterations
        if uses < 7:  # two candidates: two folds of training and one of validation each, and the last fit
            with pytest.raises(Exception, match=r"fits failed|are planned"):
                search.set_params(error_score="raise").fit(OWN, labels)
        else:
            search.fit(OWN, labels)
    ledger = channel._common_ledger()
    assert ledger.exposure(1, ledger.records()).fresh_uses.max() <= uses


def test_a_seeded_copy_that_comes_again_is_one_use_and_another_channel_draws_anew():
    channel = Channel(Leakage(20, uses=2), auxiliary=PUBLIC, random_state=0).fit(OWN)
    first = channel.transform(OWN)
    np.testing.assert_array_equal(clone(channel).fit_transform(OWN), first)
    other = clone(channel).set_params(target=Leakage(40, uses=2), auxiliary=PUBLIC).fit(OWN)
    # One draw on two scales would give the records away: x = (b·y − a·z)/(b − a).
    small, large = (one.calibration_.channel.variances[0] ** 0.5 for one in (channel, other))
    solved = (large * first - small * other.transform(OWN)) / (large - small)
    assert np.abs(solved - OWN).mean() > small


def test_auxiliary_records_that_are_the_private_ones_in_another_order_are_refused():
    with pytest.raises(GuaranteeError, match="records equal public ones, the first is record 0"):
        Channel(auxiliary=OWN[::-1]).fit(OWN)
    Channel(auxiliary=np.eye(2)[np.arange(60) % 2]).fit(np.eye(2)[np.arange(40) % 2])  # equal rows by nature


def test_calibration_records_with_long_tails_are_said_to_leave_the_variance_uncertain():
    tails = np.random.default_rng(3).standard_t(2.1, size=(4000, 4))
    for made in (ChannelEngine.for_data, lambda rows, target: Channel(target, auxiliary=rows).fit(rows[::-1] + 0.01)):
        with pytest.warns(CapacityWarning, match="a few of the 4000 calibration records hold much of their variance"):
            made(tails, 3.0)
        made(np.random.default_rng(3).normal(size=(50, 4)), 3.0)  # a warning would be an error
        with pytest.warns(CapacityWarning, match="only 100 of the 1000 calibration records differ"):
            made(np.tile(np.random.default_rng(3).normal(size=(100, 16)), (10, 1)), 3.0)
