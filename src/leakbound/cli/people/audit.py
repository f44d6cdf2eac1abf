"""Command: what the attacks on a run demonstrate, compared with what its accountant allows."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.job_settings import ConfigOption
from leakbound.cli.steps.job_list import job_list
from leakbound.cli.steps.tabulate import membership_scores
from leakbound.cli.text_table import text_table
from leakbound.config import reading
from leakbound.config.messages import printable
from leakbound.jobs.paths import output
from leakbound.jobs.table import RunTable
from leakbound.registry import nearest
from leakbound.storage.tables import SCORES, read_record, read_table

_COLUMNS = ("release", "uses", "quantity", "demonstrated", "allowed", "trials", "attacker")


def audit(
    run: Annotated[str, typer.Argument(help="Name of the run, e.g. digits/lenet/natural-4/n300-b32.")],
    configfile: ConfigOption = Path("config/config.yaml"),
    confidence: Annotated[
        float, typer.Option(help="Confidence of each lower limit.", min=0.5, max=0.9999)
    ] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Compare lower limits of a run's leakage with its bounds; exit with code 1 if a limit is above its bound."""
    from leakbound.accounting.lower_limits import evidence

    table = job_list(reading.load(configfile)).table
    root = Path(table.config.root)
    attacks = _demonstrating(table, run, configfile)
    rows = {
        name: read_table(path, SCORES, "attack")
        for name, path in _files(root, run, attacks, configfile).items()
    }
    trained = table.runs[run].rounds > 0
    leakage = (
        read_record(output(root, "train", run, "provenance"), "train").get("leakage") if trained else None
    )
    limits = evidence(rows, membership_scores(root, run, attacks), leakage, confidence)
    listed = [limit.to_dict() for limit in limits]
    if as_json:
        sys.stdout.write(
            json.dumps({"run": run, "confidence": confidence, "evidence": listed}, indent=2) + "\n"
        )
    else:
        cells = [[_text(limit[name]) for name in _COLUMNS] for limit in listed]
        sys.stdout.write(text_table([_COLUMNS, *cells], left=len(_COLUMNS)))
    if alarms := [limit for limit in limits if limit.alarming]:
        sys.stderr.write(
            f"leakbound: alarm: {len(alarms)} of {len(limits)} lower limits lie above what the accountant of {run} "
            "allows. A limit is wrong by chance in 1 - confidence of all cases; if more data agree, the noise or the "
            "accountant is wrong.\n"
        )
        raise typer.Exit(1)


def _demonstrating(table: RunTable, run: str, configfile: Path) -> list[str]:
    """Attacks on a run that demonstrate a leakage.

    Raises:
        BadParameter: If the configuration has no such run, or no such attack on it.
    """
    if run not in table.runs:
        raise typer.BadParameter(
            f"RUN = {run!r}: {configfile} makes no such run; {nearest(run, sorted(table.runs))}"
        )
    demonstrating = sorted(name for name, attack in table.config.attacks.all().items() if attack.demonstrates)
    attacks = [name for name in table.attacks[run] if name in demonstrating]
    if not attacks:
        raise typer.BadParameter(
            f"RUN = {run!r}: no study of {configfile} asks for an attack on it that demonstrates anything; add one of "
            f"{', '.join(demonstrating)} to attacks of {table.first_study[run]}"
        )
    return attacks


def _files(root: Path, run: str, attacks: Sequence[str], configfile: Path) -> dict[str, Path]:
    """Rows of each attack on a run.

    Raises:
        BadParameter: If some were not made yet.
    """
    files = {name: output(root, "attack", f"{run}/{name}", "rows") for name in attacks}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise typer.BadParameter(
            f"RUN = {run!r} was not attacked yet: {', '.join(missing)} does not exist; make it by snakemake -j 2 "
            f"--configfile {configfile} -- {' '.join(missing)}"
        )
    return files


def _text(value: object) -> str:
    """Cell of the table."""
    if value is None or value == -1:
        return "-"
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:.4g}"
    return printable(str(value))
