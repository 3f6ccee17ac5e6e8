"""A journal's note of the file that it wrote last, read in Python from the page alone (JOURNAL.md section 9, P7.9).

It does not decide what a start does with it: it reports to a check of a stopped bookie whether the journal has less.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from embedbk.codec.kernels import crc32c
from embedbk.storage.findings import Findings
from embedbk.storage.journal_reader import BLOCK_BYTES, JournalPicture
from embedbk.storage.raw_files import RawDirectory

__all__ = ["USED_FILE", "USED_MAGIC", "USED_NOTE", "USED_VERSION", "UsedNote", "compare_used", "read_used"]

USED_FILE = "USED"
USED_MAGIC = b"EBKU"
USED_VERSION = 1

# crc, magic, version, reserved_a, reserved_b, number, generation, first_token
USED_NOTE = struct.Struct("<I4sHHIQQQ")


@dataclass(frozen=True, slots=True)
class UsedNote:
    number: int
    generation: int
    first_token: int


def read_used(directory: RawDirectory, findings: Findings | None = None) -> UsedNote | None:
    """The newest note; None: no note is whole. OSError: it cannot be read. findings: receives those that are not
    whole."""
    if USED_FILE not in directory.names():
        return None
    newest: UsedNote | None = None
    with directory.open(USED_FILE) as file:
        for at in (0, BLOCK_BYTES):
            block = file.read(at, USED_NOTE.size)
            if len(block) < USED_NOTE.size:
                continue
            crc, magic, version, _, _, number, generation, first_token = USED_NOTE.unpack(block)
            is_whole = magic == USED_MAGIC and version == USED_VERSION and crc == crc32c(block[4:])
            if is_whole and (newest is None or number > newest.number):
                newest = UsedNote(number, generation, first_token)
            elif not is_whole and any(block) and findings is not None:
                findings.note(
                    file.path, "a note that is not whole, as a torn one; the other one counts", offset=at
                )
    return newest


def compare_used(directory: RawDirectory, picture: JournalPicture, mark: int, findings: Findings) -> None:
    """Report what is missing of a journal whose headers were read. mark: entry logs have everything up to there."""
    try:
        used = read_used(directory, findings)
    except OSError as refused:
        findings.damage(f"{directory.path}/{USED_FILE}", f"it cannot be read: {refused.strerror}")
        return
    if used is None:
        return  # Its build noted nothing; the identity's own check finds the contrary.
    begins = picture.files[0].header if picture.files else None
    is_behind = begins is not None and begins.start_token != 0 and begins.generation > used.generation
    if not is_behind and all(file.header.generation != used.generation for file in picture.files):
        findings.damage(
            directory.path,
            f"its newest file, of generation {used.generation}, is gone: it has less than was used, and what is "
            "missing counts as unknown at the next start",
        )
    elif max(picture.last_token, mark) + 1 < used.first_token:
        findings.damage(
            directory.path,
            f"it ends at record {picture.last_token}, and had {used.first_token - 1} at least: it has less than was "
            "used, and what is missing counts as unknown at the next start",
        )
