"""Private records, compared with what their channel was calibrated with."""

import numpy as np

from asking import calibrated
from leakbound.channels import Moments
from leakbound.channels.observed import different_rows, unspanned
from leakbound.registry import SHAPES

MOMENTS = Moments(np.array([1.0, 0.0, 0.0]), np.diag([4.0, 1.0, 0.0]), 100)


def test_rows_of_equal_content_are_one_and_a_negative_zero_is_a_zero():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    assert sorted(row.tolist() for row in different_rows(rows).values()) == [[0.0, 1.0], [2.0, 1.0]]
    assert different_rows(rows).keys() == different_rows(rows[::-1]).keys()


def test_a_record_off_the_axes_of_the_calibration_has_no_noise_there():
    spectrum = SHAPES.get("white").decompose(MOMENTS)
    channel = calibrated(MOMENTS, 2.0, "white")
    within, beyond = np.array([[3.0, -1.0, 0.0], [-5.0, 2.0, 0.0]]), np.array([[1.0, 0.0, 0.5]])
    assert not unspanned(within, channel, spectrum)
    assert unspanned(np.concatenate([within, beyond]), channel, spectrum)
