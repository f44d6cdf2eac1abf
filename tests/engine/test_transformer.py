"""The transformer as scikit-learn's own checks see it, and its guarantee."""

import copy
import math
import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from gaussians import RANGE, forked, gaussian
from joblib import parallel_backend
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from leakbound import BudgetError, Capacity, Channel, GuaranteeError, Leakage, Ledger
from leakbound.channels import channel_capacity, population_moments
from leakbound.engine.refusals import CapacityWarning
from leakbound.engine.saved import UncountedWarning
from leakbound.registry import SHAPES

PUBLIC = gaussian(2000).astype(np.float64)
ROWS = gaussian(20, 1)
NAMES = ["age", "mass", "size", "time"]
FRAME, AUXILIARY = (pd.DataFrame(rows, columns=NAMES) for rows in (ROWS, PUBLIC))
LABELS = np.arange(20) % 2


def channel(target=3.0, **options) -> Channel:
    return Channel(target, **{"auxiliary": PUBLIC, "value_range": RANGE, **options})


# Seeded noise belongs to the record, so that every check holds.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [Channel(random_state=0), Channel(Leakage(2.0, uses=3), shape="rate_distortion", random_state=0)]
)
def test_channel_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("shape", SHAPES.names())
def test_noise_has_the_capacity_under_the_moments_of_the_records(shape):
    weights = np.linspace(1, 4, 4) if shape.startswith("personalized") else None
    channel = Channel(3.0, shape=shape, weights=weights, random_state=0).fit(PUBLIC)
    expected = channel_capacity(channel.calibration_.channel, population_moments(PUBLIC))
    assert channel.leakage() == pytest.approx(expected, rel=1e-7)
    assert channel.leakage() <= 3.0
    assert channel.leakage(5) < 5 * channel.leakage()
    # The mean square of 8,000 numbers that are normal after whitening: false alarm below 1e-6.
    if channel.calibration_.channel.gain is None:
        noise = channel.transform(PUBLIC) - PUBLIC
        assert np.square(noise).sum(axis=1).mean() == pytest.approx(channel.calibration_.channel.noise_power, rel=0.25)


def test_seeded_noise_belongs_to_the_record_and_secure_noise_is_new_each_time():
    seeded, secure = Channel(random_state=1).fit(PUBLIC), Channel().fit(PUBLIC)
    noisy = seeded.transform(PUBLIC)
    np.testing.assert_array_equal(seeded.transform(PUBLIC[::-1])[::-1], noisy)
    np.testing.assert_array_equal(clone(seeded).fit_transform(PUBLIC), noisy)
    assert len(np.unique(noisy - PUBLIC, axis=0)) == len(PUBLIC)
    assert not np.any(np.all(secure.transform(PUBLIC) == secure.transform(PUBLIC), axis=1))
    assert not np.any(np.all(Channel(random_state=2).fit_transform(PUBLIC) == noisy, axis=1))


def test_columns_in_very_different_units_are_warned_of_where_noise_is_the_same_for_all():
    units = np.array([1.0, 1.0, 70.0, 1e4])
    with pytest.warns(UserWarning, match=r"columns are .* to .*e\+04, and natural noise .* standardize columns"):
        Channel(3.0).fit(PUBLIC * units)
    Channel(3.0, shape="white").fit(PUBLIC * units)  # follows the data: a warning would be an error
    rare = np.where(np.arange(2000)[:, None] % 50 == 0, PUBLIC, 0.0)
    Channel(3.0).fit(np.hstack([PUBLIC, rare[:, :1] / 20]))  # one value that hardly varies is no other unit


# -- owners ------------------------------------------------------------------------------------------------------------
PATIENTS = np.repeat(np.arange(10), 2)


@pytest.mark.parametrize("way", ["column", "index", "array", "named index of numbers"])
def test_rows_of_an_owner_add_up_whatever_says_whose_they_are(way):
    """The values of an owner's rows may depend on each other, so their nats are added and not their precisions."""
    options, rows, owners = {}, FRAME, None
    if way == "column":
        options, rows = {"owner": "patient"}, FRAME.assign(patient=PATIENTS)
    elif way == "index":
        rows = FRAME.set_index(PATIENTS)
    elif way == "array":
        owners = PATIENTS
    else:
        rows = FRAME.set_index(pd.RangeIndex(20, name="patient"))
    made = channel(**options)
    noisy = made.fit_transform(rows, owner=owners)
    assert noisy.shape == (20, 4)
    assert made.feature_names_in_.tolist() == NAMES
    several = 1 if way == "named index of numbers" else 2
    assert made.leakage() == pytest.approx(several * made.leakage(1))
    assert f"all records of one owner together (at most {several})" in str(made.leakage())
    assert "about one record at most 3 nats on average over records" in str(made.leakage(1))  # once of an owner's rows
    planned = clone(made).set_params(target=Leakage(3.0, uses=1))
    with pytest.warns(CapacityWarning, match="no use of each fit") if several == 2 else nullcontext():
        planned.fit(rows, owner=owners)
    with pytest.raises(BudgetError):
        planned.transform(rows, owner=owners)


def test_an_index_that_numbers_the_rows_from_0_names_nobody_and_false_leaves_any_out():
    for made, rows in ((channel(), FRAME), (channel(owner=False), FRAME.set_index(PATIENTS))):
        made.fit_transform(rows)
        assert made.leakage() == pytest.approx(made.leakage(1))
        assert "views of one record are not known" in str(made.leakage())


def test_parts_scales_and_folds_of_a_patient_are_uses_of_it(tmp_path):
    """5 nats were once told where two channels on columns of one row had released 8.5."""
    ledger = Ledger.create(tmp_path / "uses.db").path
    whose = FRAME.set_index(np.arange(100, 120))
    parts = [
        (str(at), channel(auxiliary=AUXILIARY[part], ledger=ledger), part)
        for at, part in enumerate((NAMES[:3], NAMES[1:]))
    ]
    both = ColumnTransformer(parts).fit(whose)
    made = both.transformers_[0][1]
    assert made.leakage() == pytest.approx(2 * made.leakage(1))
    planned = channel(Leakage(3.0, uses=1), auxiliary=None)
    scaled = make_pipeline(StandardScaler().set_output(transform="pandas"), planned).fit(whose)
    scaled.transform(whose)
    fold = clone(scaled).fit(whose.iloc[1:])
    with pytest.raises(BudgetError, match="all rows of the owner 101"):
        fold.transform(whose.iloc[1:])


def test_owners_pass_through_pipelines_by_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        made = channel().set_fit_request(owner=True).set_transform_request(owner=True)
        model = make_pipeline(made, LogisticRegression()).fit(ROWS, LABELS, owner=PATIENTS)
    assert model[0].leakage() == pytest.approx(2 * model[0].leakage(1))


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"owner": "who"}, {}, "columns 'age', 'mass', 'size', 'time', so give a frame with this column"),
        ({"owner": 3}, {}, "give the name of a column, None for the index of a frame, or False"),
        ({}, {"owner": PATIENTS[:3]}, r"owner of shape \(3,\): give one for each of the 20 rows"),
        ({}, {"owner": np.where(PATIENTS > 3, PATIENTS, np.nan)}, "that of record 0 is nan"),
    ],
)
def test_owners_that_are_none_are_refused(options, arguments, message):
    with pytest.raises(GuaranteeError, match=message):
        channel(**options).fit_transform(FRAME, **arguments)


# -- labels ------------------------------------------------------------------------------------------------------------
def test_labels_that_a_classifier_sees_are_counted_or_said_not_to_be():
    """5 nats were once told where the label had added its own."""
    made = make_pipeline(channel(classes=2), LogisticRegression()).fit(ROWS, LABELS)[0]
    assert made.leakage() == pytest.approx(made.calibration_.information(1) + math.log(2))
    assert "of them by labels" in str(made.leakage())
    once = float(made.leakage())
    again = clone(made).fit(ROWS, LABELS.astype(float))  # the same labels
    assert again.leakage() == pytest.approx(once)
    names = clone(made).fit(ROWS, np.where(LABELS, "ill", "well"))  # others
    assert names.leakage() == pytest.approx(once + math.log(2))
    for target in (LABELS, ROWS[:, 0]):  # a regression target is a value
        made = make_pipeline(channel(), LogisticRegression() if target is LABELS else StandardScaler())
        made = made.fit(ROWS, target)[0]
        assert made.leakage() == pytest.approx(made.calibration_.information(1))
        assert "plus labels, not counted" in str(made.leakage())


def test_labels_that_were_released_uncounted_stay_so():
    first = channel()
    first.fit_transform(ROWS, LABELS)
    counted = clone(first).set_params(classes=2)
    counted.fit_transform(ROWS, LABELS)
    assert "plus labels, not counted" in str(counted.leakage())


def test_more_labels_than_classes_are_refused():
    with pytest.raises(GuaranteeError, match="y has 20 different values: classes = 2 counts no more"):
        channel(classes=2).fit(ROWS, ROWS[:, 0])


# -- auxiliary records -------------------------------------------------------------------------------------------------
def test_auxiliary_columns_are_found_by_name():
    """3 nats were once told where columns in another order let 4.1 pass."""
    made = channel(auxiliary=AUXILIARY[NAMES[::-1]], shape="rate_distortion").fit(FRAME)
    in_order = channel(auxiliary=AUXILIARY, shape="rate_distortion").fit(FRAME)
    np.testing.assert_array_equal(made.calibration_.moments.mean, in_order.calibration_.moments.mean)
    with pytest.raises(GuaranteeError, match="auxiliary: lacks the columns 'age' of X"):
        channel(auxiliary=AUXILIARY.rename(columns={"age": "years"})).fit(FRAME)


def test_one_private_row_among_the_auxiliary_ones_is_refused():
    with pytest.raises(
        GuaranteeError, match="record 7 equals a public one: either the channel was calibrated on records"
    ):
        channel(auxiliary=np.concatenate([PUBLIC, ROWS[7:8]])).fit(ROWS)
    with pytest.raises(GuaranteeError, match="record 1 equals a public one: either"):
        channel().fit(ROWS).transform(np.concatenate([ROWS[:1], PUBLIC[3:4]]))


# -- copies in other processes -----------------------------------------------------------------------------------------
def served(held: bytes, rows: np.ndarray) -> str:
    """What another process says that serves rows."""
    try:
        return str(pickle.loads(held).transform(rows).shape)
    except GuaranteeError as error:
        return str(error)


def test_a_fitted_channel_serves_new_rows_in_another_process_and_no_others():
    made = channel(Leakage(3.0, uses=1)).fit(ROWS)
    held = pickle.dumps(made)
    rows = (gaussian(5, 7), gaussian(5, 7), ROWS[:2])
    new, again, old = forked(lambda: [served(held, each) for each in rows])()
    assert new == "(5, 4)"
    assert "row 0 would be used 2 times" in again  # copies in one process know of each other
    assert "row 0 was given to this channel in the process that fitted it" in old


def test_under_another_account_rows_that_were_used_are_not_recognised_which_is_warned_of(monkeypatch, tmp_path):
    held = pickle.dumps(channel().fit(ROWS))

    def elsewhere():
        monkeypatch.setenv("LEAKBOUND_KEY", str(tmp_path / "other.key"))
        with pytest.warns(UncountedWarning, match="fitted under another account"):
            return pickle.loads(held).transform(gaussian(5, 7)).shape

    assert forked(elsewhere)() == (5, 4)


def test_a_pickle_holds_no_row_and_no_moments_of_rows_in_the_clear(monkeypatch, tmp_path):
    """Who knew all rows but one once computed the last one from the mean in the pickle."""
    made = channel(auxiliary=None).fit(ROWS)
    noisy = made.transform(ROWS)
    held, moments = pickle.dumps(made), made.calibration_.moments
    for array in (moments.mean, moments.covariance[0], ROWS[3].astype(np.float64), ROWS[3]):
        assert array.tobytes() not in held
    assert pickle.loads(held).transform(ROWS).shape == noisy.shape
    assert pickle.loads(held).leakage() == pytest.approx(made.leakage())  # in this process they count together
    monkeypatch.setenv("LEAKBOUND_KEY", str(tmp_path / "other.key"))
    with pytest.raises(GuaranteeError, match="was sealed by another account"):
        pickle.loads(held)


def test_a_copy_counts_in_the_ledger_by_its_path(tmp_path):
    path = Ledger.create(tmp_path / "uses.db").path
    made = channel(Leakage(3.0, uses=2), ledger=path).fit(ROWS)
    for one in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        one.transform(ROWS)
    with pytest.raises(BudgetError):
        made.transform(ROWS)
    assert f"counted in {path} since " in str(made.leakage())


def test_a_state_holds_plain_values_alone(tmp_path):
    """So that skops writes it: neither a lock, nor a connection, nor objects but the target."""
    plain = int | float | str | bytes | bool | np.ndarray | np.generic | Leakage | type(None)

    def check(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple):
            for part in value:
                check(part)
        else:
            assert isinstance(value, plain), value

    for options in ({}, {"ledger": str(Ledger.create(tmp_path / "uses.db").path)}, {"auxiliary": None}):
        check(channel(Leakage(3.0, uses=2), classes=2, **options).fit(ROWS, LABELS).__getstate__())


def test_searches_in_other_processes_are_refused():
    model = make_pipeline(channel(), LogisticRegression())
    with pytest.raises(GuaranteeError, match="give it a ledger=PATH"):
        cross_val_score(model, ROWS, LABELS, cv=2, n_jobs=2, error_score="raise")


@pytest.mark.parametrize("where", [pytest.param("processes with a file", marks=pytest.mark.slow), "threads"])
def test_searches_in_parallel_count_each_use_of_each_fold(where, tmp_path):
    """Of three folds each row is fitted in two and scored in one: three uses, as NumPy composes them."""
    options = {"ledger": str(Ledger.create(tmp_path / "uses.db").path)} if where != "threads" else {}
    model = make_pipeline(channel(Capacity(0.3), **options), LogisticRegression())
    with parallel_backend("threading" if where == "threads" else "loky"):
        cross_val_score(model, ROWS, LABELS, cv=3, n_jobs=2, error_score="raise")
    counted = clone(model[0]).fit(ROWS)
    ratios = counted.calibration_.ratios
    assert float(counted.leakage()) == pytest.approx(0.5 * np.log1p(3 * ratios).sum())


# -- types -------------------------------------------------------------------------------------------------------------
def test_float32_stays_float32_and_a_frame_a_frame():
    made = channel().set_output(transform="pandas").fit(FRAME)
    assert (made.transform(FRAME).dtypes == np.float32).all()
    assert channel().fit_transform(ROWS).dtype == np.float32
    assert channel().fit_transform(ROWS.astype(np.float64)).dtype == np.float64


DISPATCH = """
import sys
sys.path.insert(0, sys.argv[1])
import sklearn, torch
from gaussians import RANGE, gaussian
from leakbound import Channel
rows = torch.from_numpy(gaussian(20, 1))
for dispatches in (False, True):
    with sklearn.config_context(array_api_dispatch=dispatches):
        made = Channel(3.0, auxiliary=gaussian(400), value_range=RANGE).fit_transform(rows)
        print(type(made).__name__, made.dtype)
"""


def test_a_tensor_stays_one_where_scikit_learn_dispatches():
    """SciPy reads the variable that this needs once, so it is another process."""
    command = [sys.executable, "-c", DISPATCH, str(Path(__file__).parent)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"SCIPY_ARRAY_API": "1"}
    )
    assert done.stdout.splitlines() == ["ndarray float32", "Tensor torch.float32"]


def few_categories(count: int, seed: int) -> np.ndarray:
    """Rows of three columns of four categories, of which many are equal."""
    return np.random.default_rng(seed).integers(0, 4, (count, 3)).astype(np.float64)


def test_auxiliary_rows_that_repeat_private_ones_are_refused_and_equal_rows_by_nature_are_not():
    """Private rows that stand twice among the auxiliary ones once passed, as nine of ten must differ to be compared."""
    private, public = np.random.default_rng(0).normal(size=(2, 60, 4))
    for auxiliary in (np.tile(private, (2, 1)), np.concatenate([public, np.tile(private[:20], (4, 1))])):
        with pytest.raises(GuaranteeError, match="records equal public ones, the first is record"):
            Channel(1.0, auxiliary=auxiliary).fit(private)
    for count in (60, 1000):
        Channel(1.0, auxiliary=few_categories(count, 1)).fit(few_categories(200, 2))
    sparse = (
        np.random.default_rng(3).integers(0, 10**5, (40_000, 1)).astype(np.float64)
    )  # few of the private ones repeat
    Channel(1.0, auxiliary=sparse[1000:]).fit(sparse[:1000])


def test_an_ensemble_gives_secure_noise_no_seed():
    """BaggingClassifier sets random_state on all that it holds, also on a channel, whose noise then repeated."""
    channel = Channel(3.0, auxiliary=gaussian(400)).fit(gaussian(24, 1))
    rows, labels = gaussian(24, 1), np.arange(24) % 2
    ensemble = BaggingClassifier(make_pipeline(channel, LogisticRegression()), n_estimators=3, random_state=0)
    with pytest.warns(UserWarning, match="noise stays secure"):
        ensemble.fit(rows, labels)
    first = [one[0] for one in ensemble.estimators_]
    assert all("secure noise" in str(one.leakage()) for one in [channel, *first])
    assert not np.array_equal(first[0].transform(rows), first[0].transform(rows))
    seeded = clone(Channel(3.0, auxiliary=gaussian(400), random_state=5)).set_params(random_state=6).fit(rows)
    assert np.array_equal(seeded.transform(rows), seeded.transform(rows))
    assert "no bound: noise from a seed" in str(seeded.leakage())
