"""Files that commands read and write: refusals that name them, spectra and channels."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leakbound import storage
from leakbound.storage.tables import other_file

if TYPE_CHECKING:
    from leakbound.channels.channel import GaussianChannel, Spectrum


@contextmanager
def refusing(what: object, kind: type[Exception] = ValueError) -> Iterator[None]:
    """Turn an error into a refusal of the option or file that it is about.

    Args:
        what: Option or file, for the message.
        kind: Errors that are turned.

    Raises:
        typer.BadParameter: Instead of such an error.
    """
    try:
        yield
    except kind as error:
        raise typer.BadParameter(f"{what}: {error}") from error


def check_pairs(**files: Path | None) -> None:
    """Refuse a file that is given without its partner.

    Args:
        files: Files that belong together, by their options. None for those that are not given.

    Raises:
        typer.BadParameter: If only some are given.
    """
    if len({path is None for path in files.values()}) > 1:
        raise typer.BadParameter(f"give both {' and '.join(f'--{name}' for name in files)}, or neither")


def check_outputs(*paths: Path) -> None:
    """Check that all outputs can be written, before anything is computed.

    Args:
        paths: Files that a command will write.

    Raises:
        typer.BadParameter: If a path is a folder, lies where nothing can be written, or is given twice.
    """
    for path in paths:
        if path.is_dir():
            raise typer.BadParameter(f"{path}: is a folder; give a file")
        home = next(folder for folder in path.absolute().parents if folder.exists())
        if not home.is_dir():
            raise typer.BadParameter(f"{path}: {home} is not a folder, so nothing can be written there")
        try:
            tempfile.TemporaryFile(dir=home).close()
        except OSError as error:
            reason = f"nothing can be written to {home} ({error.strerror})"
            raise typer.BadParameter(f"{path}: {reason}") from error
    if len({path.absolute() for path in paths}) < len(paths):
        raise typer.BadParameter(f"{', '.join(map(str, paths))}: each output needs its own path")


def read_spectrum(path: Path) -> Spectrum:
    """Read a spectrum that `step spectrum` wrote.

    Args:
        path: File of a spectrum.

    Raises:
        DamagedFileError: If the file does not match its seal.
        ValueError: If it is another kind of file.
    """
    from leakbound.channels.channel import Spectrum

    with expected(path, "spectrum"):
        return Spectrum.from_arrays(*storage.read_arrays_and_metadata(path))


def read_channel(
    channel: Path | None, spectrum: Path | None
) -> tuple[GaussianChannel | None, Spectrum | None]:
    """Read a channel that `step calibrate` wrote, with its spectrum, which has the axes of its noise.

    Args:
        channel: File of the channel, None for a defense without one.
        spectrum: File of its spectrum, likewise.

    Raises:
        typer.BadParameter: If only one of the two files is given.
    """
    from leakbound.channels.channel import GaussianChannel

    check_pairs(channel=channel, spectrum=spectrum)
    if channel is None or spectrum is None:
        return None, None
    source = read_spectrum(spectrum)
    with expected(channel, "calibrate"):
        noise = GaussianChannel.from_arrays(*storage.read_arrays_and_metadata(channel), source.basis)
    return noise, source


@contextmanager
def expected(path: Path, command: str) -> Iterator[None]:
    """Turn a missing or wrong entry of a readable file into an error that names the file and the command.

    Args:
        path: The file.
        command: Step that writes such files.

    Raises:
        ValueError: Instead of such an error.
    """
    try:
        yield
    except storage.DamagedFileError:
        raise
    except KeyError as error:
        raise other_file(path, f"it lacks {error}", command) from error
    except (TypeError, ValueError) as error:
        raise other_file(path, str(error), command) from error
