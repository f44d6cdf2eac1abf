"""Command: write what may leave of a run, one replica and what it tells, or say why nothing may."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.settings import ConfigOption
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.registry import nearest
from leakbound.storage.scratch import scratch, sweep


def publish(
    run: Annotated[str, typer.Argument(help="Name of the run, e.g. digits/lenet/natural-4/n300-b32.")],
    out: Annotated[Path, typer.Option(help="Folder to write, absent or empty.")],
    replica: Annotated[int, typer.Option(help="Replica, chosen without a look at its results.", min=0)] = 0,
    configfile: ConfigOption = Path("config/config.yaml"),
) -> None:
    """Write one replica of a run with its channel, its event and what it tells; refuse what no bound covers."""
    from leakbound.jobs.results.publication import publication

    made = job_list(reading.load(configfile))
    known = [job.name for job in made.of("train")]
    if run not in known:
        raise typer.BadParameter(f"RUN = {run!r}: {configfile} trains no such run; {nearest(run, known)}")
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise typer.BadParameter(f"--out {out}: must not exist, or be an empty folder")
    _write_folder(out, publication(Path(made.table.config.root), made, run, replica))
    sys.stdout.write((out / "README.md").read_text(encoding="utf-8"))


def _write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder of files that all may read; it gets its name once they are whole and on the disk."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    with scratch(folder) as temporary:
        temporary.mkdir()
        for name, content in files.items():
            with (temporary / name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            (temporary / name).chmod(0o644)
        temporary.chmod(0o755)
        temporary.replace(folder)
