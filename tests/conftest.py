"""What tests of several folders share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("busy machines", deadline=None)
settings.load_profile("busy machines")


@pytest.fixture(scope="session")
def image_folder() -> Path:
    """Folder of real images that LEAKBOUND_DATA names; without it the tests that need real images are skipped."""
    folder = os.environ.get("LEAKBOUND_DATA")
    if not folder:
        pytest.skip("set LEAKBOUND_DATA to the folder of image datasets to run this test")
    return Path(folder)
