"""Finished results that wait for the job that makes them again: after a kill, and when other results join theirs.

Snakemake removes the files of a job before it runs again, and one job makes many results. So each of them is kept
as hard links, which need no space, in a folder that is named by everything that the result depends on. A file system
without hard links keeps nothing, and all results of the job are made again.
"""

import os
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from leakbound import storage
from leakbound.storage.provenance import settings_hash
from leakbound_lab.jobs.job import ANEW, Job, code_of

KEPT = ".kept"
"""Folder in that of a configuration's results."""
_TOGETHER = {
    *("attack", "references", "theory", "consensus", "federated", "illustrate"),
    *("tabulate", "plot", "log"),
}
"""Steps of which one job makes several results."""


def restore(job: Job, code: str) -> bool:
    """Put the files of a finished result in their places.

    Args:
        job: Result of a configuration.
        code: Fingerprint of the code behind it. Computed if empty.

    Returns:
        False if it has to be made: nothing of it is kept, something that it depends on has changed, a kept file is
        damaged, or the job is forced.
    """
    folder = _folder(job, code)
    if folder is None or ANEW in os.environ:
        return False
    kept = {folder / Path(path).name: Path(path) for path in job.outputs.values()}
    try:
        for file in kept:
            storage.check(file)
    except (OSError, storage.DamagedFileError):
        return False
    for file, path in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        for source, target in ((file, path), (storage.seal_of(file), storage.seal_of(path))):
            target.unlink(missing_ok=True)
            target.hardlink_to(source)
    # Snakemake would make files again and again that are older than those they were made from.
    newest = max((Path(path).stat().st_mtime for path in job.input_files()), default=0.0)
    for path in kept.values():
        if path.stat().st_mtime < newest:
            path.touch()
    return True


def keep(job: Job, code: str) -> None:
    """Keep the files of a finished result, in place of those that it had before.

    Args:
        job: Result of a configuration.
        code: Fingerprint of the code behind it. Computed if empty.
    """
    folder = _folder(job, code)
    if folder is None:
        return
    rmtree(folder.parent, ignore_errors=True)
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True)
        for path in map(Path, job.outputs.values()):
            for file in (path, storage.seal_of(path)):
                (folder / file.name).hardlink_to(file)


def _folder(job: Job, code: str) -> Path | None:
    """Return the folder of a result, None if it is not kept or an input has no seal."""
    if job.step not in _TOGETHER:
        return None
    try:
        read = [storage.seal_of(path).read_text(encoding="utf-8") for path in job.input_files()]
    except OSError:
        return None
    return Path(
        job.root, KEPT, job.step, job.name, settings_hash([job.settings_text(), code or code_of(job), read])
    )
