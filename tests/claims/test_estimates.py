import math

import numpy as np
import pytest
from scipy import stats

from leakbound.claims.statistics import mean_interval


def test_mean_interval_is_students():
    values = np.array([0.61, 0.64, 0.58, 0.66])
    interval = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=values.std(ddof=1) / 2)
    assert (interval.low, interval.value, interval.high) == pytest.approx((low, values.mean(), high))


def test_mean_of_one_value_has_no_interval():
    interval = mean_interval(np.array([0.5]))
    assert interval.value == 0.5
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


@pytest.mark.parametrize("values", [np.array([]), np.array([0.5, np.nan])])
def test_mean_of_nothing_or_of_a_diverged_replica_is_refused(values):
    with pytest.raises(ValueError, match="diverged"):
        mean_interval(values)
