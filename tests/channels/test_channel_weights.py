import numpy as np
import pytest

from leakbound.channels import box_weights
from leakbound.config.data import BoxWeights


def test_default_box_is_the_published_one():
    box = BoxWeights()
    mask = box_weights(3, 32, 32, box.weight, box.rows, box.columns).reshape(3, 32, 32)
    assert set(np.unique(mask)) == {1.0, 50.0}
    rows, columns = np.nonzero(mask[0] == 50)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (12, 19, 8, 23)
    assert (mask == 50).sum() == 3 * 8 * 16
    assert np.array_equal(mask[0], mask[2])
    assert np.array_equal(mask, mask[:, :, ::-1])  # centred horizontally


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": (2, 2)}, "rows"),
        ({"columns": (0, 7)}, "columns"),
        ({"rows": (-1, 2)}, "rows"),
        ({"weight": 0.0}, "weight = 0"),
        ({"weight": float("inf")}, "finite"),
    ],
)
def test_box_weights_refuse_a_box_outside_the_image(changes, message):
    setting = {"colors": 1, "height": 4, "width": 6, "weight": 2.0, "rows": (0, 4), "columns": (1, 3)}
    with pytest.raises(ValueError, match=message):
        box_weights(**(setting | changes))
