"""What stands in the metadata of a ledger whose bookies gave their copies up (P8.14): where its files are, and which.

Its fragments keep their starts, and name no bookie until its copies are brought back.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "ARCHIVE_ID_BYTES",
    "ARCHIVE_PATH_MAX",
    "BY_CHARS",
    "LOG_OF_LEDGER",
    "MANIFEST_HASH_BYTES",
    "Freed",
]

ARCHIVE_ID_BYTES = 16
ARCHIVE_PATH_MAX = 1_000  # Characters.
MANIFEST_HASH_BYTES = 32  # SHA-256.
LOG_OF_LEDGER = "log"  # In `custom` of a ledger: the id of its log, which names the directory of its files.
BY_CHARS = 300


class Freed(msgspec.Struct, frozen=True, array_like=True):
    """The files that the manifest of this hash names, in the archive of this id, are the copies of the ledger. path:
    where that archive was mounted then. freed_ms and by: for people."""

    archive_id: Annotated[bytes, msgspec.Meta(min_length=ARCHIVE_ID_BYTES, max_length=ARCHIVE_ID_BYTES)]
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=ARCHIVE_PATH_MAX)]
    manifest: Annotated[bytes, msgspec.Meta(min_length=MANIFEST_HASH_BYTES, max_length=MANIFEST_HASH_BYTES)]
    freed_ms: Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)] = 0
    by: Annotated[str, msgspec.Meta(max_length=BY_CHARS)] = ""
