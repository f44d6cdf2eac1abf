"""Files that are either complete or absent, with seals and provenance."""

from leakbound.storage.files import arrays_hash as arrays_hash
from leakbound.storage.files import read_arrays as read_arrays
from leakbound.storage.files import read_arrays_and_metadata as read_arrays_and_metadata
from leakbound.storage.files import read_json as read_json
from leakbound.storage.files import read_metadata as read_metadata
from leakbound.storage.files import read_rows as read_rows
from leakbound.storage.files import write_arrays as write_arrays
from leakbound.storage.files import write_json as write_json
from leakbound.storage.files import write_rows as write_rows
from leakbound.storage.files import write_text as write_text
from leakbound.storage.limits import DamagedFileError as DamagedFileError
from leakbound.storage.limits import FullDiskError as FullDiskError
from leakbound.storage.limits import TooLargeError as TooLargeError
from leakbound.storage.seals import atomic as atomic
from leakbound.storage.seals import check as check
from leakbound.storage.seals import file_hash as file_hash
from leakbound.storage.seals import read_bytes as read_bytes
from leakbound.storage.seals import seal_of as seal_of
