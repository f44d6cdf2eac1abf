"""Settings and fixtures that tests of several folders share, and which tests stay together on one process."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# mutmut imports once for all mutants, where pytest's option for checks of shapes and types would come too late.
if "MUTANT_UNDER_TEST" in os.environ and not any(name.startswith("leakbound") for name in sys.modules):
    install_import_hook(["leakbound", "leakbound_lab"], "beartype.beartype")

# A suite in the background of a shell ignores Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Sums of several threads depend on how many there are and on what else the machine does; jobs have one each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples everywhere: a test that fails does so for everybody. HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

FIRST = (
    *("workflow", "test_planted_bugs.py", "attacks", "figures", "test_false_alarms.py", "training", "security"),
    *("storage", "fuzz", "tracking", "test_kept_results.py", "cli", "tan2024", "jobs", "models"),
)
"""Folders and files that take longest, in the order in which they begin, so that none of them is left for last."""
SLOW = {"whole"}
"""Fixtures that take long: the finished chain of all defenses."""
LONG = {
    *("test_kept_results.py", "test_pooled_results.py", "test_stacked_inversion.py", "test_arguments_fuzz.py"),
    *("test_serving.py", "test_people.py", "test_photos.py", "test_compare_command.py", "test_damage.py"),
    *("test_folders_that_are_replaced.py", "test_published_moments.py", "test_false_alarms.py", "test_rates.py"),
    *("test_network_audit.py", "test_estimator.py", "test_composition.py"),
    *("test_small_files_that_grow.py", "test_plan.py", "test_per_sample.py", "test_report.py", "test_secure_job.py"),
    *("test_job_list.py", "test_stacked_membership.py", "test_catalogue.py", "test_packs.py"),
}
"""Files of long tests: without them `make test` takes minutes, and what they hold is also seen by CI."""
CHAIN = tuple(f"tests/workflow/test_{name}.py" for name in ("chain", "chaos", "damage", "packs"))
"""Files whose tests need that chain, or a small one, which also takes a minute or two."""
STUDIES = ("tests/figures/test_catalogue.py", "tests/figures/test_panels.py", "tests/figures/test_report.py")
"""Files whose tests need the rows of all studies."""


def pytest_configure(config: pytest.Config) -> None:
    """Say what marks mean to `make test-shapes`, and there see to it that every function with arrays is checked."""
    for mark in (
        "no_shapes: seconds of what cheaper tests call with the same kinds of arguments; left out of it",
        "shapes: a slow test that is alone in calling something; in it as well",
    ):
        config.addinivalue_line("markers", mark)
    if (config.getoption("jaxtyping_packages", None) or "").endswith("checked_functions.checked"):
        from checked_functions import EveryFunction

        config.pluginmanager.register(EveryFunction())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and mark what is slow."""
    rank = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, rank.get(item.path.parent.name, len(FIRST))))
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if "finished" in used:
            used.add(item.callspec.params["finished"])
        if used & SLOW or item.path.name in LONG:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file, and those of one expensive fixture, on one process."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(CHAIN):
                return "whole"
            return "studies" if nodeid.startswith(STUDIES) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def image_folder() -> Path:
    """Folder of real images that LEAKBOUND_DATA names; without it the tests that need real images are skipped."""
    folder = os.environ.get("LEAKBOUND_DATA")
    if not folder:
        pytest.skip("set LEAKBOUND_DATA to the folder of image datasets to run this test")
    return Path(folder)


@pytest.fixture(scope="session")
def digits() -> Any:
    """Handwritten digits with 400 members, for tests that only read them."""
    from leakbound_lab.config.data import DatasetConfig
    from leakbound_lab.datasets import prepare

    return prepare("digits", DatasetConfig(members=400, aux=200), seed=0)


@pytest.fixture(scope="session")
def moments(digits: Any) -> Any:
    """Mean and covariance of the pool of these digits."""
    from leakbound.channels import estimate_moments

    return estimate_moments([digits.pool.images])
