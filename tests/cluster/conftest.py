"""A SLURM to send jobs to, or the reason why there is none."""

import os
from collections.abc import Callable

import pytest
import yaml
from slurm_queue import Queue, configured_project, why_no_slurm


@pytest.fixture(scope="session")
def slurm() -> None:
    """Skips the test and says why, unless `make test-slurm` runs it where SLURM takes jobs; fails where one must."""
    asked = os.environ.get("LEAKBOUND_SLURM")
    if not asked:
        pytest.skip("sends jobs to SLURM: `make test-slurm` runs it")
    if reason := why_no_slurm():
        assert asked != "must", reason
        pytest.skip(f"{reason}; docs/cluster.md says how to make a queue of one machine")


@pytest.fixture(scope="module")
def queue(slurm, tmp_path_factory) -> Callable[..., Queue]:
    """Makes a copy of the project with a configuration of its own, and a queue for its jobs.

    Jobs that no figure asks for are none; ``figures`` is a catalogue in place of the project's.
    """

    def make(config: dict, figures: dict | None = None) -> Queue:
        folder = tmp_path_factory.mktemp(config["preset"]).resolve()
        given, catalogue = folder / "given.yaml", folder / "figures.yaml"
        if figures is not None:
            catalogue.write_text(yaml.safe_dump(figures))
            config = {**config, "catalogue": catalogue.name}
        given.write_text(yaml.safe_dump(config))
        return Queue(configured_project(folder, given))

    return make
