"""Command: what a finished training tells of a record, added up anew from its provenance."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound.cli.inputs import read_channel
from leakbound.config.messages import printable
from leakbound.storage import seal_of
from leakbound.storage.tables import read_record

_WORDS = {
    "networks": "networks",
    "uses": "most uses of a record",
    "looks": "looks with independent noise",
    "printed": "as printed, n steps (no bound for all records)",
    "linear": "uses added up",
    "joint": "precisions added up",
    "labels": "labels, on top",
    "record": "smallest valid bound, one record",
    "epsilon": "epsilon",
    "delta": "delta",
}


def account(
    provenance: Annotated[Path, typer.Argument(help="Provenance of a training, JSON.")],
    channel: Annotated[Path | None, typer.Option(help="Its channel, to compute the joint bound anew.")] = None,
    spectrum: Annotated[Path | None, typer.Option(help="Spectrum that the channel was calibrated from.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Show what a training tells of one record: as printed, added up, and the smallest valid bound."""
    record = _provenance(provenance)
    found, source = read_channel(channel, spectrum)
    ratios = None
    if found is not None and source is not None:
        from leakbound.channels.channel import signal_to_noise

        ratios = signal_to_noise(found, source)
    from leakbound.engine.replay import replay

    try:
        rows = [asdict(one) for one in replay(record, ratios)]
    except ValueError as error:
        raise typer.BadParameter(f"{provenance}: {printable(str(error))}") from error
    if as_json:
        sys.stdout.write(json.dumps({"provenance": str(provenance), "replay": rows}, indent=2) + "\n")
        return
    lines = [f"{'nats':<48}{'one network':>14}{'all networks':>14}"]
    for name, words in _WORDS.items():
        if rows[0][name] is not None:
            lines.append(f"{words:<48}" + "".join(f"{row[name]:>14.6g}" for row in rows))
    checked = (
        "computed again from events and channel; labels as stated"
        if rows[0]["verified"]
        else "as stated: give --channel and --spectrum"
    )
    stated = "events and the number of labels: as the file states them; `leakbound verify` tells if it was altered"
    sys.stdout.write("\n".join([*lines, f"joint bound: {checked}", stated]) + "\n")


def _provenance(path: Path) -> dict[str, Any]:
    """The provenance of a training.

    Raises:
        BadParameter: If there is no such file, or no command wrote it.
        DamagedFileError: If it is not as it was written.
    """
    advice = "give results/PRESET/runs/RUN/provenance.json of a finished training"
    if not path.is_file():
        raise typer.BadParameter(f"{path}: there is no such file; {advice}")
    if not seal_of(path).exists():
        raise typer.BadParameter(f"{path}: is no file that a training wrote, for it has no seal beside it; {advice}")
    return read_record(path, "train")
