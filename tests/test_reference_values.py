"""The library against numbers that were computed independently of it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference import TOPICS, evaluate

CASES = json.loads((Path(__file__).parent / "data" / "reference_values.json").read_text())["cases"]


def _assert_close(found: Any, expected: Any, rtol: float, where: str) -> None:
    if expected is None:
        return
    if isinstance(expected, dict):
        for name, value in expected.items():
            _assert_close(found[name], value, rtol, f"{where}.{name}")
        return
    wanted = math.inf if expected == "inf" else expected
    np.testing.assert_allclose(
        found, wanted, rtol=rtol, atol=1e-12 if np.any(np.equal(wanted, 0)) else 0, err_msg=where
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_library_gives_the_reference_values(case):
    found = evaluate(case["topic"], case["inputs"])
    _assert_close(found, case["expected"], case["rtol"], case["id"])


def test_every_topic_is_evaluated_and_has_a_case():
    assert set(TOPICS) == {case["topic"] for case in CASES}
