"""Commands: make a ledger of uses, and show what one has counted."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.commands import record_options
from leakbound.words import in_nats

_PathArgument = Annotated[
    Path, typer.Argument(metavar="FILE", parser=record_options.path_of, help="File of the ledger.")
]


def new(path: _PathArgument) -> None:
    """Make a ledger, in which all runs that name it count what they reveal of each record.

    Make one for a collection of private records, once, before the first release, and name it in every run:
    `--ledger FILE` of `leakbound protect`, `ledger=FILE` of an engine or channel. It is private: it holds a key
    that recognises records.

    Example: leakbound ledger new uses.db
    """
    from leakbound.engine.ledger import Ledger

    made = Ledger.create(path)
    sys.stdout.write(
        f"{made.path}: a ledger, {made.about()}. Name it in every run, and never make a second one.\n"
    )


def show(path: _PathArgument) -> None:
    """Show since when a ledger counts, in how many runs, which channels were used, and where noise is seeded.

    Example: leakbound ledger show uses.db
    """
    from leakbound.accounting.statement import upper_bound
    from leakbound.engine.ledger import Ledger

    opened = Ledger.open(path)
    lines = [f"{opened.path}: a ledger, {opened.about()}, number {opened.number.hex()[:8]}"]
    for mechanism, records, most in opened.channels():
        lines.append(
            f"{mechanism.name} noise, at most {in_nats(upper_bound(mechanism.nats(1)))} a use: {records} records, "
            f"at most {most} uses of one"
        )
    lines += [opened.about_noise(), opened.about_labels()]
    sys.stdout.write("\n".join(lines) + "\n")
