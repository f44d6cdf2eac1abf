"""Start of the command line, which loads nothing that another process of the run has loaded already."""

import time

from leakbound.cli.launch.handover import hand_over


def main() -> None:
    """Have the warm process of the run do the command; without one, do it here."""
    began = time.monotonic()
    hand_over()
    from leakbound.cli.application import run

    run(began)
