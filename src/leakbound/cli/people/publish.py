"""Command: write one replica of a run for release, with its leakage, or say why nothing may be released."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.job_settings import ConfigOption
from leakbound.cli.people import own_records
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.registry import nearest
from leakbound.storage.seals import created


def publish(
    run: Annotated[str, typer.Argument(help="Name of the run, e.g. digits/lenet/natural-4/n300-b32.")],
    out: Annotated[Path, typer.Option(help="Folder to write. It must be empty or not exist.")],
    replica: Annotated[
        int, typer.Option(help="Number of the replica. Choose it without looking at its results.", min=0)
    ] = 0,
    configfile: ConfigOption = Path("config/config.yaml"),
) -> None:
    """Write one replica of a run with its channel, privacy event and leakage. Refuse data without a bound.

    Example: leakbound publish digits/mlp/natural-4/n400-b32 --out released
    """
    from leakbound.cli.results import publication

    made = job_list(reading.load(configfile))
    trained = [job.name for job in made.of("train")]
    if run not in trained:
        raise typer.BadParameter(f"RUN = {run!r}: {configfile} trains no such run; {nearest(run, trained)}")
    own_records.check_new_folder(out)
    files = publication(Path(made.table.config.root), made, run, replica)
    with created(out) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o644)
    sys.stdout.write((out / "README.md").read_text(encoding="utf-8"))
