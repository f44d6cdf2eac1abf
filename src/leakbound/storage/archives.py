"""Archives of torch that take no more memory than they have bytes.

torch's restricted reader runs nothing, but it unpacks what is compressed, and makes empty arrays of any
length.
"""

import io
import pickletools
import re
import zipfile
from pathlib import Path

from leakbound.storage import limits

_BEGIN = b"PK\x03\x04"  # of an archive; torch reads a file that begins otherwise in an older form
_DESCRIPTION = "data.pkl"
_FORBIDDEN = {
    "INST",
    "STACK_GLOBAL",
    "BUILD",
}  # torch writes none of them; the last copies what is there once
_EMPTY = "collections OrderedDict"
_HARMLESS = re.compile(rf"{_EMPTY}|torch \w+Storage|torch\._utils _rebuild_tensor_v2")
"""Things that torch.save names for dictionaries, which must begin empty lest they copy a large one, and for tensors."""


def check_archive(payload: bytes, path: Path) -> None:
    """Refuse an archive that could expand when torch loads it.

    Args:
        payload: Bytes of the archive.
        path: The file that holds them, for messages.

    Raises:
        ValueError, OSError: If it is no archive, compressed, or names more than plain values and tensors.
        TooLargeError: If what describes its content is too large.
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
    dictionaries: set[object] = set()  # places where the pickle keeps the name of the empty dictionary
    named = False
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in _FORBIDDEN or (
            operation.name == "GLOBAL" and not _HARMLESS.fullmatch(str(argument))
        ):
            raise ValueError(f"it holds {operation.name} {argument}")
        if named and operation.name.endswith("PUT"):
            dictionaries.add(argument)
        elif named and operation.name != "EMPTY_TUPLE":
            raise ValueError("a dictionary does not begin empty")
        else:
            kept = operation.name.endswith("GET") and argument in dictionaries
            named = kept or (operation.name == "GLOBAL" and argument == _EMPTY)
