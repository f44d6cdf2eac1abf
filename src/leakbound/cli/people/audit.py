"""Command: what a run's attackers demonstrably learned, beside what its accountant allows."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.settings import ConfigOption
from leakbound.cli.steps.job_list import job_list
from leakbound.cli.steps.tabulate import membership_scores
from leakbound.config import reading
from leakbound.config.messages import printable
from leakbound.jobs.paths import output
from leakbound.registry import nearest
from leakbound.storage.tables import SCORES, read_record, read_table

_TELLING = ("audit", "membership", "naming")  # attacks that demonstrate something
_COLUMNS = ("release", "uses", "quantity", "demonstrated", "allowed", "trials", "attacker")


def audit(
    run: Annotated[str, typer.Argument(help="Name of the run, e.g. digits/lenet/natural-4/n300-b32.")],
    configfile: ConfigOption = Path("config/config.yaml"),
    confidence: Annotated[float, typer.Option(help="Of each lower limit.", min=0.5, max=0.9999)] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Show lower limits of what a run tells beside its bounds; ends with code 1 if a limit is above its bound."""
    from leakbound.accounting.lower_limits import evidence

    config = reading.load(configfile)
    table = job_list(config).table
    known = sorted(table.runs)
    if run not in known:
        raise typer.BadParameter(f"RUN = {run!r}: {configfile} makes no such run; {nearest(run, known)}")
    attacks = [name for name in table.attacks[run] if name in _TELLING]
    if not attacks:
        raise typer.BadParameter(
            f"RUN = {run!r}: no study of {configfile} asks for an attack on it that demonstrates anything; add one of "
            f"{', '.join(_TELLING)} to attacks of {table.first_study[run]}"
        )
    root = Path(config.root)
    files = {name: output(root, "attack", f"{run}/{name}", "rows") for name in attacks}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise typer.BadParameter(
            f"RUN = {run!r} was not attacked yet: {', '.join(missing)} does not exist; make it by snakemake -j 2 "
            f"--configfile {configfile} -- {' '.join(missing)}"
        )
    rows = {name: read_table(path, SCORES, "attack") for name, path in files.items()}
    trained = table.runs[run].rounds > 0
    leakage = read_record(output(root, "train", run, "provenance"), "train").get("leakage") if trained else None
    found = evidence(rows, membership_scores(root, run, attacks), leakage, confidence)
    listed = [one.to_dict() for one in found]
    if as_json:
        sys.stdout.write(json.dumps({"run": run, "confidence": confidence, "evidence": listed}, indent=2) + "\n")
    else:
        sys.stdout.write(_table([[_text(one[name]) for name in _COLUMNS] for one in listed]))
    if alarms := [one for one in found if one.alarming]:
        sys.stderr.write(
            f"leakbound: alarm: {len(alarms)} of {len(found)} lower limits lie above what the accountant of {run} "
            "allows. A limit is wrong by chance in 1 - confidence of all cases; if more data agree, the noise or the "
            "accountant is wrong.\n"
        )
        raise typer.Exit(1)


def _text(value: object) -> str:
    """Cell of the table."""
    if value is None or value == -1:
        return "-"
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:.4g}"
    return printable(str(value))


def _table(cells: Sequence[Sequence[str]]) -> str:
    """Aligned columns under their names."""
    lines = [_COLUMNS, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
