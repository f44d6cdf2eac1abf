"""Start of the command line. It loads nothing that the warm process of the run has loaded already."""

import sys
import time

from leakbound.cli.launch.handover import hand_over

INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended, as shells count it."""


def main() -> None:
    """Let the warm process of the run execute the command. Without one, execute it here.

    Raises:
        SystemExit: In all cases except a defect of the program.
    """
    began = time.monotonic()
    try:
        hand_over()
        from leakbound.cli.command_line import run

        run(began)
    except (KeyboardInterrupt, SystemExit) as ended:
        if getattr(ended, "code", INTERRUPTED) != INTERRUPTED:
            raise
        sys.stderr.write("\nleakbound: interrupted; the same command goes on, or begins again\n")
        raise SystemExit(INTERRUPTED) from None
