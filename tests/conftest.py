"""What tests of several folders share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Sums of several threads depend on how many there are and on what else the machine does; jobs have one each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples everywhere: a test that fails does so for everybody. HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def image_folder() -> Path:
    """Folder of real images that LEAKBOUND_DATA names; without it the tests that need real images are skipped."""
    folder = os.environ.get("LEAKBOUND_DATA")
    if not folder:
        pytest.skip("set LEAKBOUND_DATA to the folder of image datasets to run this test")
    return Path(folder)
