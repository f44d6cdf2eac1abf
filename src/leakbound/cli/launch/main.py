"""Start of the command line. It loads nothing that the warm process of the run has loaded already."""

import time

from leakbound.cli.launch.handover import hand_over


def main() -> None:
    """Let the warm process of the run execute the command. Without one, execute it here."""
    began = time.monotonic()
    hand_over()
    from leakbound.cli.command_line import run

    run(began)
