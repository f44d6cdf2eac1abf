"""Command: compare the files of a configuration's results with their seals."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.config.messages import printable
from leakbound.jobs.results.verification import findings, sealed_files


def verify(
    configfile: Annotated[Path, typer.Option(help="Configuration whose results are meant.")] = Path(
        "config/config.yaml"
    ),
    remove: Annotated[bool, typer.Option(help="Delete what is damaged, so that snakemake makes it again.")] = False,
) -> None:
    """Compare every file of a configuration's results with its seal; ends with code 1 if one is damaged or has none."""
    config = reading.load(configfile)
    root = Path(config.root)
    if not root.is_dir():
        raise typer.BadParameter(f"{root} does not exist: run snakemake --configfile {configfile} first")
    files = list(sealed_files(root))
    found = findings(root, files)
    for finding in found:
        deleted = remove and finding.kind != "unsealed"
        if deleted:
            finding.path.unlink()
            storage.seal_of(finding.path).unlink(missing_ok=True)
        told = f"{finding.path}: {finding.kind}{' and removed' if deleted else ''}: {finding.reason}"
        sys.stdout.write(printable(told) + "\n")
    wrong = [finding for finding in found if finding.kind != "stale"]
    sys.stdout.write(f"{root}: {len(files) - len(wrong)} of {len(files)} files are as they were written\n")
    if removed := [finding.path for finding in found if remove and finding.kind == "damaged"]:
        known = {Path(path) for path in job_list(config).files()}
        again = [path for path in removed if path in known]  # Snakemake rejects the names of files that no job makes
        for path in sorted({*removed} - {*again}):
            sys.stdout.write(f"{path}: of an earlier form of {configfile}, which does not make it any more\n")
        # Left out of the command, one that nothing needs at present would be made when something does.
        wanted = " ".join(["all", *(path.as_posix() for path in again)])
        sys.stdout.write(f"make them again: snakemake -j 2 --configfile {configfile} -- {wanted}\n")
    if wrong:
        raise typer.Exit(1)
