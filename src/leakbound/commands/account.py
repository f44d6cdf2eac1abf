"""Command: bounds on what a finished training reveals about a record, computed again from its provenance."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound.accounting.runs import replay
from leakbound.accounting.statement import Statement, upper_bound
from leakbound.channels.channel import signal_to_noise
from leakbound.commands.files import read_channel
from leakbound.commands.terminal import text_table
from leakbound.registry import nearest_path
from leakbound.storage import seal_of
from leakbound.storage.tables import read_record
from leakbound.words import printable

_WORDS = {
    "networks": "networks",
    "uses": "most uses of one",
    "fresh_uses": "releases with independent noise",
    "printed": "as published, n steps (no bound for all records)",
    "linear": "uses added up",
    "gradients": "noisy sums of gradients",
    "images": "images behind the channel, without labels",
    "joint": "precisions added up",
    "labels": "labels, on top",
    "record": "smallest valid bound, labels included",
    "epsilon": "epsilon",
    "delta": "delta",
}
_NAME = "provenance.json"
_ELSEWHERE = (
    "What else is released states its bound itself: noisy copies in protection.json, a published network in "
    "statement.json, the uses that a ledger counts by `leakbound ledger show`"
)
_NO_BOUNDS = ("networks", "uses", "fresh_uses", "delta")


def account(
    provenance: Annotated[Path, typer.Argument(help="File provenance.json of a training.")],
    channel: Annotated[
        Path | None, typer.Option(help="Channel of the training, to compute the joint bound again.")
    ] = None,
    spectrum: Annotated[
        Path | None, typer.Option(help="Spectrum that the channel was calibrated from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Show bounds on what a training reveals about one record: as published, as a sum of uses, and jointly.

    Example: leakbound account results/quick/runs/digits/mlp/natural-4/n400-b32/provenance.json
    """
    advice = f"give results/PRESET/runs/RUN/{_NAME} of a finished training"
    if provenance.is_dir():
        inside = provenance / _NAME
        raise typer.BadParameter(
            f"{provenance}: is a folder; {f'give {inside}' if inside.is_file() else f'{advice}. {_ELSEWHERE}'}"
        )
    if not provenance.is_file():
        raise typer.BadParameter(
            f"{provenance}: there is no such file; {advice}{nearest_path(provenance)}. {_ELSEWHERE}"
        )
    if not seal_of(provenance).exists():
        raise typer.BadParameter(
            f"{provenance}: is no file that a training wrote: it has no checksum file; {advice}. {_ELSEWHERE}"
        )
    record = read_record(provenance, "train")
    noise, source = read_channel(channel, spectrum)
    ratios = None if noise is None or source is None else signal_to_noise(noise, source)
    try:
        rows = replay(record, ratios)
        numbers = record.get("statement") or {}  # earlier versions wrote none
        statements = {of: Statement.from_numbers(each) for of, each in numbers.items()}
    except ValueError as error:
        raise typer.BadParameter(f"{provenance}: {printable(str(error))}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{provenance}: holds a statement of another form: train again") from error
    if as_json:
        facts = {"provenance": str(provenance), "replay": rows, "statement": numbers}
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return
    sys.stdout.write(_table(rows, statements))


def _number(name: str, value: int | float) -> str:
    """Write a count, δ, or a bound, which is rounded up."""
    return f"{value:.6g}" if name in _NO_BOUNDS else upper_bound(float(value), 6)


def _table(rows: Sequence[Mapping[str, Any]], statements: Mapping[str, Statement]) -> str:
    """Write what the training stated, and its bounds counted again, for one network and for all of them."""
    about = statements["replica"].subject if statements else "one record"
    cells = [[f"nats about {about}", "one network", "all networks"]]
    for name, words in _WORDS.items():
        if rows[0][name] is not None:
            cells.append([words, *(_number(name, row[name]) for row in rows)])
    joint = "as stated: give --channel and --spectrum"
    if rows[0]["verified"]:
        joint = "computed again from events and channel; labels as stated"
    lines = [statement.sentence for statement in statements.values()]
    if not statements:
        lines = ["the provenance states no bound in words: an earlier version wrote it; train again"]
    elif not statements["replica"].secure:
        lines.append("the numbers below would hold if the noise were secret: privacy_noise: secure")
    return "".join(f"{line}\n" for line in lines) + (
        f"{text_table(cells)}joint bound: {joint}\n"
        "events and the number of labels: as the file states them; `leakbound verify` says whether it was altered\n"
    )
