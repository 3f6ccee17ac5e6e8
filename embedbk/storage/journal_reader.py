"""A second reader of a journal's files, in plain Python and from JOURNAL.md alone (I41, I42, I43).

Decides which records a journal holds, where it ends and what in it is damage, as native/journal/journal_replay.c does,
but reports all that it finds instead of stopping at the first. For the verifier and `embedbk journal cat`; the fuzzers
compare it with the C reader.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from embedbk.codec.kernels import crc32c
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import RawDirectory, RawFile

__all__ = [
    "BLOCK_BYTES",
    "FILE_HEADER",
    "GROUP_BYTES_MAX",
    "GROUP_HEADER",
    "RECORD_HEADER",
    "FileHeader",
    "Group",
    "JournalFile",
    "JournalPicture",
    "JournalRecord",
    "file_name",
    "find_group",
    "look_at_journal",
    "read_group",
    "walk_records",
]

BLOCK_BYTES = 4096
FILE_BYTES_MIN = 65536
RECORD_BYTES_MAX = 1179648
GROUP_BYTES_MAX = RECORD_BYTES_MAX + 2 * BLOCK_BYTES  # In whole blocks.
FILE_MAGIC, GROUP_MAGIC = b"EBKJ", b"EBKG"
VERSION = 1
VERSION_START = 2  # The version of a file with which the journal begins, behind damage.

# crc, magic, version, reserved_a, block_bytes, identity, generation, file_bytes, start_token, start_sequence
FILE_HEADER = struct.Struct("<I4sHHI16sQQQQ")
# crc, magic, generation, position, sequence, first_token, record_count, group_bytes, records_crc, previous_crc,
# reserved
GROUP_HEADER = struct.Struct("<I4sQQQQIIII8s")
# crc, size, kind, reserved, index, ledger_id
RECORD_HEADER = struct.Struct("<IIHHIQ")

_NAME = re.compile(r"journal-([0-9a-f]{16})")
_RAW_NAME = re.compile(r"next-[0-9a-f]{16}")
_ASIDE_NAME = re.compile(r"damaged-[0-9a-f]{16}")
# Other files that belong into the directory, also of a metadata member.
_OTHERS = {
    "LOCK",
    "IDENTITY",
    "OWNER",
    "USED",
    "lost+found",
    "MEMBER",
    "MEMBER.new",
    "MAY_HAVE_LOST",
    "MAY_HAVE_LOST.new",
    "snapshots",
}
_FIND_BYTES = 256 * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class FileHeader:
    identity: bytes
    generation: int
    file_bytes: int
    start_token: int = 0  # Not 0: the journal begins with this file.
    start_sequence: int = 0

    def seed(self) -> int:
        return crc32c(self.identity + self.generation.to_bytes(8, "little"))


@dataclass(frozen=True, slots=True)
class JournalRecord:
    token: int
    kind: int
    ledger_id: int
    offset: int  # The position of its header in the file.
    body: memoryview


@dataclass(frozen=True, slots=True)
class Group:
    """One whole and valid group."""

    position: int
    end: int  # Where the next one stands.
    sequence: int
    first_token: int
    crc: int
    previous_crc: int
    records: list[JournalRecord]

    @property
    def last_token(self) -> int:
        return self.first_token + len(self.records) - 1


@dataclass(slots=True)
class JournalFile:
    name: str
    header: FileHeader
    first: Group | None = None  # None if the file is blank.


@dataclass(slots=True)
class JournalPicture:
    """The headers and the tail of a journal, as they were read."""

    files: list[JournalFile]  # Files with sound headers, by generation.
    last_index: int = 0  # In files: the newest that has groups.
    last_token: int = 0  # 0: none.
    last_sequence: int = 0
    first_token: int = 0
    is_sound: bool = True  # False: damage was reported, and the bookie would not start.


def file_name(generation: int) -> str:
    return f"journal-{generation:016x}"


# --- One group ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GroupHeader:
    sequence: int
    first_token: int
    record_count: int
    group_bytes: int
    records_crc: int
    previous_crc: int
    crc: int

    @property
    def padded_bytes(self) -> int:
        return -(-self.group_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _group_header(block: bytes, at: int, header: FileHeader, position: int) -> _GroupHeader | None:
    """The group header at `at` of a block, if it is one of this file and this position."""
    if len(block) - at < GROUP_HEADER.size:
        return None
    crc, magic, generation, said, sequence, first_token, count, size, records_crc, previous_crc, _ = (
        GROUP_HEADER.unpack_from(block, at)
    )
    if magic != GROUP_MAGIC or generation != header.generation or said != position:
        return None
    if crc != crc32c(block[at + 4 : at + GROUP_HEADER.size], header.seed()):
        return None
    found = _GroupHeader(sequence, first_token, count, size, records_crc, previous_crc, crc)
    is_possible = (
        count > 0
        and first_token > 0
        and sequence > 0
        and size >= GROUP_HEADER.size + RECORD_HEADER.size
        and found.padded_bytes <= min(GROUP_BYTES_MAX, header.file_bytes - position)
    )
    return found if is_possible else None


def read_group(file: RawFile, header: FileHeader, position: int) -> Group | None:
    """The group at a position, whole and checked; None when there is none. OSError when it cannot be read."""
    if position + BLOCK_BYTES > header.file_bytes:
        return None
    block = file.read(position, BLOCK_BYTES)
    head = _group_header(block, 0, header, position) if len(block) == BLOCK_BYTES else None
    if head is None:
        return None
    if head.padded_bytes > BLOCK_BYTES:
        block += file.read(position + BLOCK_BYTES, head.padded_bytes - BLOCK_BYTES)
        if len(block) < head.padded_bytes:
            return None
    records = _records(memoryview(block), head, header.seed(), position)
    if records is None:
        return None
    return Group(
        position,
        position + head.padded_bytes,
        head.sequence,
        head.first_token,
        head.crc,
        head.previous_crc,
        records,
    )


def _records(block: memoryview, head: _GroupHeader, seed: int, position: int) -> list[JournalRecord] | None:
    """The records of a group whose header is valid; None unless each of them is, and all belong to this header."""
    records: list[JournalRecord] = []
    at, crcs = GROUP_HEADER.size, bytearray()
    for index in range(head.record_count):
        if head.group_bytes - at < RECORD_HEADER.size:
            return None
        crc, size, kind, _, said, ledger_id = RECORD_HEADER.unpack_from(block, at)
        extent = RECORD_HEADER.size + -(-size // 8) * 8
        if said != index or extent > head.group_bytes - at:
            return None
        body = block[at + RECORD_HEADER.size : at + RECORD_HEADER.size + size]
        place = (position + at).to_bytes(8, "little")
        if crc != crc32c(body, crc32c(block[at + 4 : at + RECORD_HEADER.size], crc32c(place, seed))):
            return None
        records.append(JournalRecord(head.first_token + index, kind, ledger_id, position + at, body))
        crcs += block[at : at + 4]
        at += extent
    return records if at == head.group_bytes and crc32c(crcs) == head.records_crc else None


def find_group(file: RawFile, header: FileHeader, begin: int) -> int | None:
    """The position of the first valid group header at or behind `begin`; None: there is none."""
    for start in range(begin, header.file_bytes, _FIND_BYTES):
        block = file.read(start, min(_FIND_BYTES, header.file_bytes - start))
        for at in range(0, len(block) - BLOCK_BYTES + 1, BLOCK_BYTES):
            if _group_header(block, at, header, start + at) is not None:
                return start + at
    return None


# --- The journal --------------------------------------------------------------------------------------------


def look_at_journal(directory: RawDirectory, findings: Findings) -> JournalPicture:
    """Names, headers, the first group of every file and the tail of the newest: all that an open reads.

    Raises OSError when the directory itself cannot be read; the faults of files are added to findings.
    """
    picture = JournalPicture([])
    damages = findings.damage_count
    generations: list[int] = []
    for name in directory.names():
        found = _NAME.fullmatch(name)
        path = f"{directory.path}/{name}"
        if found and int(found[1], 16) > 0:
            generations.append(int(found[1], 16))
        elif name.startswith("journal-"):
            findings.damage(path, "this is no name that a journal gives: not its file")
        elif _RAW_NAME.fullmatch(name):
            findings.note(path, "prepared or left by a crash; the next start removes it")
        elif _ASIDE_NAME.fullmatch(name):
            findings.note(path, "set aside when the journal began anew behind damage; never read again")
        elif name not in _OTHERS:
            findings.note(path, "not a file of a journal; left alone")
    _look_at_files(directory, sorted(generations, reverse=True), picture, findings)
    _check_order(directory, picture, findings)
    _find_tail(directory, picture, findings)
    picture.is_sound = findings.damage_count == damages
    return picture


def _look_at_files(
    directory: RawDirectory, generations: list[int], picture: JournalPicture, findings: Findings
) -> None:
    """Look at the files, newest first; what stands before a start behind damage is not looked at."""
    identity = b""
    for number, generation in enumerate(generations):
        identity = _look_at_file(directory, file_name(generation), generation, identity, picture, findings)
        newest = picture.files[-1].header if picture.files else None
        if newest is not None and newest.generation == generation and newest.start_token:
            for older in generations[number + 1 :]:
                path = f"{directory.path}/{file_name(older)}"
                findings.note(path, "stands before a start behind damage; the next start sets it aside")
            break
    picture.files.reverse()


def _look_at_file(
    directory: RawDirectory,
    name: str,
    generation: int,
    identity: bytes,
    picture: JournalPicture,
    findings: Findings,
) -> bytes:
    """One file's header and first group; returns the journal's identity as far as it is known."""
    path = f"{directory.path}/{name}"
    try:
        with directory.open(name) as file:
            header = _read_header(file, generation, identity, findings)
            if header is None:
                return identity
            entry = JournalFile(name, header, read_group(file, header, BLOCK_BYTES))
            picture.files.append(entry)
            if entry.first is None and (later := find_group(file, header, 2 * BLOCK_BYTES)) is not None:
                findings.damage(
                    path,
                    f"the first group is not what was written, and a later one at {later} is",
                    offset=BLOCK_BYTES,
                )
            return header.identity
    except OSError as refused:
        findings.damage(path, f"the file cannot be read: {refused.strerror}")
        return identity


def _read_header(file: RawFile, generation: int, identity: bytes, findings: Findings) -> FileHeader | None:
    size = file.size()
    block = file.read(0, BLOCK_BYTES)
    if len(block) < BLOCK_BYTES:
        findings.damage(file.path, f"the file is cut short in its header: {size} bytes", offset=len(block))
        return None
    crc, magic, version, _, block_bytes, found_identity, found_generation, file_bytes, token, sequence = (
        FILE_HEADER.unpack_from(block)
    )
    has_start = (token != 0, sequence != 0)

    def refuse(offset: int, what: str) -> None:
        findings.damage(file.path, what, offset=offset)

    if magic != FILE_MAGIC:
        refuse(4, "the file does not begin as a journal's file does")
    elif crc != crc32c(block[4 : FILE_HEADER.size]):
        refuse(0, "the header fails its checksum")
    elif version not in (VERSION, VERSION_START):
        refuse(8, f"format version {version}; this program knows {VERSION} and {VERSION_START}")
    elif found_generation != generation:
        refuse(32, f"the header says generation {found_generation:016x}: the file was renamed")
    elif identity and found_identity != identity:
        refuse(16, "the file belongs to another journal than its neighbours")
    elif (
        block_bytes != BLOCK_BYTES
        or file_bytes % BLOCK_BYTES
        or file_bytes < FILE_BYTES_MIN
        or has_start != (version == VERSION_START,) * 2
    ):
        refuse(12, "the header gives impossible sizes")
    elif size < file_bytes:
        refuse(size, f"the file is cut short: it had {file_bytes} bytes")
    else:
        if any(block[FILE_HEADER.size :]):
            findings.note(file.path, "bytes behind the header are not zero", offset=FILE_HEADER.size)
        return FileHeader(found_identity, found_generation, file_bytes, token, sequence)
    return None


def _check_order(directory: RawDirectory, picture: JournalPicture, findings: Findings) -> None:
    """Check that groups fill files in order of generation; blank files may only stand at the end."""
    for before, entry in zip(picture.files, picture.files[1:], strict=False):
        if entry.first is None:
            continue
        path = f"{directory.path}/{before.name}"
        if before.first is None:
            findings.damage(path, "no group is left, and a later file has some", offset=BLOCK_BYTES)
        elif (
            entry.first.first_token <= before.first.first_token
            or entry.first.sequence <= before.first.sequence
        ):
            findings.damage(path, "its numbers do not precede the next file's", offset=BLOCK_BYTES)


def _find_tail(directory: RawDirectory, picture: JournalPicture, findings: Findings) -> None:
    """Follow the groups of the newest file that has some to the end of what is durable (I42)."""
    if not picture.files:
        return
    used = [index for index, each in enumerate(picture.files) if each.first is not None]
    picture.last_index = used[-1] if used else 0
    oldest, newest = picture.files[0], picture.files[picture.last_index]
    picture.first_token = oldest.header.start_token or (oldest.first.first_token if oldest.first else 0)
    path = f"{directory.path}/{newest.name}"
    before: Group | None = None
    position = BLOCK_BYTES
    if newest.header.start_token:
        before = _before_start(newest.header)
        picture.last_token, picture.last_sequence = before.last_token, before.sequence
    try:
        with directory.open(newest.name) as file:
            while (group := read_group(file, newest.header, position)) is not None:
                if before is not None and not _is_next(before, group):
                    findings.damage(path, "a group does not follow the one before", offset=position)
                    return
                before, position = group, group.end
                picture.last_token, picture.last_sequence = group.last_token, group.sequence
            later = find_group(file, newest.header, position + BLOCK_BYTES)
            if later is not None:
                findings.damage(
                    path, f"a group is not what was written, and a later one at {later} is", offset=position
                )
            else:
                _tell_tail(file, newest.header, position, findings)
    except OSError as refused:
        findings.damage(path, f"the file cannot be read: {refused.strerror}", offset=position)


def _before_start(header: FileHeader) -> Group:
    """What stands for the predecessor of a start file's first group: the file's header has the numbers that come
    next."""
    return Group(0, BLOCK_BYTES, header.start_sequence - 1, header.start_token, 0, 0, [])


def _tell_tail(file: RawFile, header: FileHeader, position: int, findings: Findings) -> None:
    block = file.read(position, BLOCK_BYTES) if position + BLOCK_BYTES <= header.file_bytes else b""
    if _group_header(block, 0, header, position) is not None:
        findings.note(
            file.path,
            "the last group is not whole: torn by a crash, or rotten since; nobody can tell these apart",
            offset=position,
        )


def _is_next(before: Group, group: Group) -> bool:
    return (
        group.sequence == before.sequence + 1
        and group.first_token == before.last_token + 1
        and group.previous_crc == before.crc
    )


def walk_records(
    directory: RawDirectory,
    picture: JournalPicture,
    after: int,
    findings: Findings,
    on_group: Callable[[JournalFile, Group], None] | None = None,
) -> Iterator[JournalRecord]:
    """The records above `after` as a replay reads them, in order.

    Whatever stops it is reported as damage, and the walk ends there: records behind a hole are never served (I42).
    """
    files = picture.files[: picture.last_index + 1] if picture.last_token else []
    if after > picture.last_token:
        findings.damage(
            directory.path, f"the journal ends at record {picture.last_token}, below the log mark {after}"
        )
        return
    if after == picture.last_token:
        return
    if picture.first_token > after + 1:
        findings.damage(
            directory.path,
            f"the oldest record is {picture.first_token}, and those above the log mark {after} are needed",
        )
        return
    first = 0
    while first + 1 < len(files) and (begins := files[first + 1].first) and begins.first_token <= after + 1:
        first += 1
    before: Group | None = None
    for index in range(first, len(files)):
        entry = files[index]
        following = files[index + 1].first if index + 1 < len(files) else None
        last_sequence = following.sequence - 1 if following is not None else picture.last_sequence
        path = f"{directory.path}/{entry.name}"
        position = BLOCK_BYTES
        try:
            with directory.open(entry.name) as file:
                while before is None or before.sequence < last_sequence:
                    group = read_group(file, entry.header, position)
                    if group is None:
                        findings.damage(
                            path, "a group is not what was written, and later ones are there", offset=position
                        )
                        return
                    if before is not None and not _is_next(before, group):
                        findings.damage(
                            path,
                            f"group {group.sequence} does not follow the one before it: files are missing or "
                            "exchanged",
                            offset=position,
                        )
                        return
                    before, position = group, group.end
                    if on_group is not None:
                        on_group(entry, group)
                    yield from (record for record in group.records if record.token > after)
        except OSError as refused:
            findings.damage(path, f"the file cannot be read: {refused.strerror}", offset=position)
            return
