"""Command: write one replica of a run for release, with its leakage, or say why nothing may be released."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from leakbound.accounting.sheet import Release, StatedData
from leakbound.accounting.statement import Statement
from leakbound.commands import own_records, record_options, sheets
from leakbound.engine.sheets import digest
from leakbound.registry import nearest
from leakbound.storage.seals import created
from leakbound.storage.tables import read_record
from leakbound_lab.config import reading
from leakbound_lab.jobs.paths import output
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.job_settings import ConfigOption


def publish(
    run: Annotated[str, typer.Argument(help="Name of the run, e.g. digits/lenet/natural-4/n300-b32.")],
    out: Annotated[Path, typer.Option(help="Folder to write. It must be empty or not exist.")],
    replica: Annotated[
        int, typer.Option(help="Number of the replica. Choose it without looking at its results.", min=0)
    ] = 0,
    sheet: record_options.StatementOption = None,
    configfile: ConfigOption = Path("config/config.yaml"),
) -> None:
    """Write one replica of a run with its channel, privacy event and leakage. Refuse data without a bound.

    Example: leakbound publish digits/mlp/natural-4/n400-b32 --out released
    """
    from leakbound_lab.steps.results import publication

    made = job_list(reading.load(configfile))
    trained = [job.name for job in made.of("train")]
    if run not in trained:
        raise typer.BadParameter(f"RUN = {run!r}: {configfile} trains no such run; {nearest(run, trained)}")
    own_records.check_new_folder(out)
    if sheet is not None:
        sheets.check(sheet, out)
    files = publication(Path(made.table.config.root), made, run, replica)
    with created(out) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o644)
    if sheet is not None:
        _write_sheet(sheet, files, Path(made.table.config.root), made.table.runs[run].dataset, run, out)
    sys.stdout.write((out / "README.md").read_text(encoding="utf-8"))


def _write_sheet(
    page: Path, files: Mapping[str, bytes], root: Path, dataset: str, run: str, out: Path
) -> None:
    """Write the statement on paper of a published replica, from the published statements themselves."""
    published, event = (json.loads(files[name]) for name in ("statement.json", "event.json"))
    statement = Statement.from_numbers(published["statement"])
    every = Statement.from_numbers(published["statements"][-1])
    bounds = {"this network": statement}
    if len(published["statements"]) > 1:
        bounds[f"all {len(published['statements'])} networks together, if they are published"] = every
    prepared = read_record(output(root, "prepare", dataset, "provenance"), "prepare")
    weights = "the weights of one network, the number of records, the steps"
    has_channel = "channel.safetensors" in files
    records = "noisy records alone" if has_channel else "clipped gradients with noise"
    sees = (
        ("Whoever has the folder", f"{weights}{', and the noise of the channel' if has_channel else ''}"),
        ("You alone", "the records, curves, seeds, attacks, provenance, and this page"),
    )
    public = "the attacker's records are public, and the records have the covariance of these"
    sheets.of_networks(
        page,
        bounds,
        StatedData(
            f"{dataset} (members of one network)",
            event["population"],
            None,
            prepared["content"],
            "the prepared records",
        ),
        Release(f"a network trained on {records}, {run}", str(out), digest(out)[0], sees),
        (public, "no other network of these records is published besides those named here"),
    )
