"""Errors about files, each with a message that names the file and says what to do."""

from pathlib import Path


class DamagedFileError(ValueError):
    """A file that is missing, truncated, altered, exchanged for another, or not of the kind that its name says.

    Attributes:
        reason: The fault found.
    """

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"{path}: cannot be read ({reason}). Delete it and make it again; `leakbound verify` finds all such files."
        )
        self.reason = str(reason)


class TooLargeError(DamagedFileError):
    """A file that would take more memory than is allowed. It has not been read.

    Args:
        path: The file.
        reason: The amount found and the amount allowed.
        advice: How to read it nevertheless.
    """

    def __init__(self, path: Path | str, reason: str, advice: str) -> None:
        ValueError.__init__(self, f"{path}: {reason}. {advice}")
        self.reason = reason


class FullDiskError(OSError):
    """A file that could not be written because the disk is full."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: cannot be written ({reason}). Make room and run the same command again.")
