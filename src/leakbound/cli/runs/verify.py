"""Command: compare the files of a configuration's results with their seals, and with its settings."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.job_settings import ConfigOption
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.config.messages import printable
from leakbound.jobs.results.verification import findings, sealed_files
from leakbound.jobs.shared_jobs import snakemake_target


def verify(
    configfile: ConfigOption = Path("config/config.yaml"),
    remove: Annotated[
        bool,
        typer.Option(help="Delete damaged and outdated files, and print the command that makes them again."),
    ] = False,
) -> None:
    """Compare every file of the results with its seal, and its settings with those of the configuration.

    Exit with code 1 if a file is damaged, was made by other settings, or has no seal.
    """
    config = reading.load(configfile)
    root = Path(config.root)
    if not root.is_dir():
        raise typer.BadParameter(f"{root} does not exist: run snakemake --configfile {configfile} first")
    files = list(sealed_files(root))
    jobs = job_list(config)
    settings = {
        Path(job.outputs["provenance"]): json.loads(job.settings_text())
        for job in jobs
        if "provenance" in job.outputs
    }
    faults = findings(root, files, settings)
    for fault in faults:
        deleted = remove and fault.kind != "unsealed"
        if deleted:
            fault.path.unlink()
            storage.seal_of(fault.path).unlink(missing_ok=True)
        line = f"{fault.path}: {fault.kind}{' and removed' if deleted else ''}: {fault.reason}"
        sys.stdout.write(printable(line) + "\n")
    wrong = [fault for fault in faults if fault.kind != "stale"]
    sys.stdout.write(f"{root}: {len(files) - len(wrong)} of {len(files)} files are as they were written\n")
    if remove:
        removed = {fault.path for fault in faults if fault.kind in ("damaged", "outdated")}
        made = {Path(path): snakemake_target(job, path) for job in jobs for path in job.outputs.values()}
        _say_how_to_remake(removed, made, configfile)
    if wrong:
        raise typer.Exit(1)


def _say_how_to_remake(removed: set[Path], made: Mapping[Path, str], configfile: Path) -> None:
    """Print the Snakemake command that makes removed files again, and name files that no job makes."""
    if not removed:
        return
    for path in sorted(removed - made.keys()):  # Snakemake would reject their names
        sys.stdout.write(f"{path}: from an earlier version of {configfile}, which no longer makes it\n")
    # Without its name here, a file that no job needs now would be made only when a job needs it.
    targets = " ".join(["all", *sorted({made[path] for path in removed & made.keys()})])
    sys.stdout.write(f"make them again: snakemake -j 2 --configfile {configfile} -- {targets}\n")
