"""Command: the leakage that attacks on a run or on the user's network demonstrate, compared with its bound."""

import json
import math
import sys
from dataclasses import astuple
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound.accounting.risk import bound_text
from leakbound.commands import record_options
from leakbound.commands.option_groups import Offered
from leakbound.commands.terminal import text_table
from leakbound.registry import nearest
from leakbound.storage.tables import SCORES, read_record, read_table
from leakbound.words import printable
from leakbound_lab.commands.audit_options import NETWORK, BoundOptions, NetworkOptions, network_option
from leakbound_lab.config.reading import load
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.job_settings import ConfigOption
from leakbound_lab.steps.tabulate import MEMBERSHIP, membership_scores

if TYPE_CHECKING:
    from leakbound.accounting.lower_limits import Evidence

_COLUMNS = ("release", "uses", "quantity", "demonstrated", "allowed", "trials", "attacker")
_READING = Offered(("label", "image", "resize", "color", "span", "exclude", "owner"))


def audit(
    run: Annotated[
        str | None,
        typer.Argument(help="Name of a run of the workflow, e.g. digits/lenet/natural-4/n300-b32."),
    ] = None,
    *,
    configfile: ConfigOption = Path("config/config.yaml"),
    confidence: Annotated[
        float, typer.Option(help="Confidence of each lower limit.", min=0.5, max=0.9999)
    ] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
    network: NetworkOptions,
    bound: BoundOptions,
    out: Annotated[Path | None, network_option("FILE", "Page to write, HTML. It must not exist.")] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**32 - 1,
            rich_help_panel=NETWORK,
            help="Seed of the split into halves and of the attack networks.",
        ),
    ] = 0,
    reading: Annotated[record_options.ReadingOptions, _READING],
) -> None:
    """Compare the leakage that attacks demonstrate with its bound. Exit with code 1 if the bound is exceeded.

    Audit a run of the workflow, RUN, from the results of its attacks. Or audit a network of your own, from
    --checkpoint, --script, --members and --others. The script is executed, so use only files that you trust.

    Example: leakbound audit digits/mlp/natural-4/n400-b32

    Example: leakbound audit --checkpoint network.pt --script my_score.py:score --members mine --others
    public
    """
    of_network = [*astuple(network), bound.epsilon, bound.delta, bound.nats, out]
    of_network += [reading.resize, reading.color, reading.span, reading.exclude, reading.owner]
    if run is not None:
        if any(value is not None for value in of_network):
            raise typer.BadParameter(
                f"RUN = {run!r}: is a run of the workflow; for a network of your own leave it out"
            )
        _audit_run(run, configfile, confidence, as_json)
    else:
        from leakbound_lab.commands.audit_checkpoint import audit_checkpoint, network_files, stated_bound

        files = network_files(network)
        audit_checkpoint(files, stated_bound(bound), confidence, seed, out, as_json, reading)


def _audit_run(run: str, configfile: Path, confidence: float, as_json: bool) -> None:
    """Compare the leakage that attacks on a run demonstrate with the bound of its accountant."""
    limits, statements = _limits_of(run, configfile, confidence)
    listed = [limit.to_dict() for limit in limits]
    if as_json:
        facts = {"run": run, "confidence": confidence, "statement": statements, "evidence": listed}
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{each['sentence']}\n" for each in statements.values())
        if statements and not statements["replica"]["secure"]:
            sys.stdout.write("allowed: what would be allowed if the noise were secret\n")
        cells = [[_text(name, limit[name]) for name in _COLUMNS] for limit in listed]
        sys.stdout.write(text_table([_COLUMNS, *cells], left=len(_COLUMNS)))
    if alarms := [limit for limit in limits if limit.alarming]:
        sys.stderr.write(
            f"leakbound: alarm: {len(alarms)} of {len(limits)} lower limits lie above what the accountant of {run} "
            "allows. A limit is wrong by chance in 1 - confidence of all cases; if more data agree, the noise or the "
            "accountant is wrong.\n"
        )
        raise typer.Exit(1)


def _limits_of(run: str, configfile: Path, confidence: float) -> tuple[list["Evidence"], dict[str, Any]]:
    """Return the lower limits that attacks on a run demonstrate, and the statements of its training.

    Raises:
        BadParameter: If the run was not attacked yet.
    """
    from leakbound.accounting.lower_limits import evidence

    table = job_list(load(configfile)).table
    root = Path(table.config.root)
    attacks = _demonstrating_attacks(table, run, configfile)
    files = {name: output(root, "attack", f"{run}/{name}", "rows") for name in attacks}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise typer.BadParameter(
            f"RUN = {run!r} was not attacked yet: {', '.join(missing)} does not exist; make it by snakemake "
            f"-j 2 --configfile {configfile} -- {' '.join(missing)}"
        )
    rows = {name: read_table(path, SCORES, "attack") for name, path in files.items()}
    leakage: Any = None
    statements: dict[str, Any] = {}
    if table.runs[run].rounds:
        record = read_record(output(root, "train", run, "provenance"), "train")
        leakage = record.get("leakage")
        statements = record.get("statement") or {}
    scores, uploads = (membership_scores(root, run, attacks, name) for name in MEMBERSHIP)
    return evidence(rows, scores, leakage, confidence, uploads), statements


def _demonstrating_attacks(table: RunTable, run: str, configfile: Path) -> list[str]:
    """List the attacks on a run that demonstrate leakage.

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
            f"RUN = {run!r}: no study of {configfile} asks for an attack on it that demonstrates anything; "
            f"add one of {', '.join(demonstrating)} to attacks of {table.first_study[run]}"
        )
    return attacks


def _text(name: str, value: object) -> str:
    """Write a cell of the table: what is allowed rounded up, what is demonstrated rounded down."""
    if value is None or value == -1:
        return "-"
    if isinstance(value, float) and math.isfinite(value):
        return bound_text(value, ROUND_CEILING if name == "allowed" else ROUND_FLOOR, 4)
    return printable(str(value))
