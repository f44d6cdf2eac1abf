import pytest

from leakbound.config.catalogue import admitted


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, (1.0, 4.0, "natural")),
        (4.0, (4.0,)),
        ([1.0, "natural"], (1.0, "natural")),
        ({"not": 4.0}, (1.0, "natural")),
        ({"not": [1.0, "natural"]}, (4.0,)),
    ],
)
def test_conditions_choose_numbers_and_names_alike(wanted, chosen):
    assert admitted(wanted, (1.0, 4.0, "natural")) == chosen
