"""Check that an archive of torch takes no more memory than it has bytes.

torch's restricted reader executes no code, but it unpacks compressed entries, and makes empty arrays of any
length.
"""

import io
import pickletools
import re
import zipfile
from pathlib import Path

from leakbound.storage import limits

_BEGIN = b"PK\x03\x04"  # torch reads a file that begins otherwise as an older format
_DESCRIPTION = "data.pkl"
# Torch writes none of them, and the last can copy what exists once.
_FORBIDDEN = {"INST", "STACK_GLOBAL", "BUILD"}
_EMPTY = "collections OrderedDict"
_HARMLESS = re.compile(rf"{_EMPTY}|torch \w+Storage|torch\._utils _rebuild_tensor_v2")
"""Names that torch.save writes for tensors and for dictionaries. A dictionary must begin empty, not as a
copy."""


def check_archive(payload: bytes, path: Path) -> None:
    """Refuse an archive that could expand when torch loads it.

    Args:
        payload: Bytes of the archive.
        path: The file that holds them, for messages.

    Raises:
        ValueError, OSError: If it is no archive, is compressed, or names more than plain values and tensors.
        TooLargeError: If the description of its content is too large.
    """
    if not payload.startswith(_BEGIN):
        raise ValueError("it is no archive")
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            entries = archive.infolist()
            if len({entry.filename for entry in entries}) < len(entries):
                raise ValueError("it has two entries of one name")
            if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
                raise ValueError("it is compressed")
            descriptions = [entry for entry in entries if Path(entry.filename).name == _DESCRIPTION]
            for entry in descriptions:
                limits.check_limit(path, "bytes of description", entry.file_size, 4 * limits.HEAD)
            pickled = [archive.read(entry) for entry in descriptions]
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    for content in pickled:
        _check_description(content)


def _check_description(content: bytes) -> None:
    """Refuse a pickle that makes more than its own bytes describe, without running it."""
    dictionaries: set[object] = set()  # places where the pickle stores the name of the empty dictionary
    has_name = False  # whether this name is on top of the stack
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in _FORBIDDEN or (
            operation.name == "GLOBAL" and not _HARMLESS.fullmatch(str(argument))
        ):
            raise ValueError(f"it holds {operation.name} {argument}")
        if has_name and operation.name.endswith("PUT"):
            dictionaries.add(argument)
        elif has_name and operation.name != "EMPTY_TUPLE":
            raise ValueError("a dictionary does not begin empty")
        else:
            kept = operation.name.endswith("GET") and argument in dictionaries
            has_name = kept or (operation.name == "GLOBAL" and argument == _EMPTY)
