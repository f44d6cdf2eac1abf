"""Settings and fixtures that tests of several folders share, and which tests stay together on one process."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Sums of several threads depend on how many there are and on what else the machine does; jobs have one each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples everywhere: a test that fails does so for everybody. HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

FIRST = ("workflow", "attacks", "training", "storage", "fuzz", "tracking")
"""Folders whose files take longest, in the order in which they begin, so that none of them is left for last."""
SLOW = {"whole", "team"}
"""Fixtures that take long: the finished chain of all defenses, and a server on PostgreSQL."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, keep the tests of a file or of a finished chain together, and mark what is slow."""
    rank = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(FIRST)))
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if "finished" in used:
            used.add(item.callspec.params["finished"])
        chains = sorted(used & {"small", "whole"})
        item.add_marker(pytest.mark.xdist_group(chains[0] if chains else item.path.stem))
        if used & SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def image_folder() -> Path:
    """Folder of real images that LEAKBOUND_DATA names; without it the tests that need real images are skipped."""
    folder = os.environ.get("LEAKBOUND_DATA")
    if not folder:
        pytest.skip("set LEAKBOUND_DATA to the folder of image datasets to run this test")
    return Path(folder)
