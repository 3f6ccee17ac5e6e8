"""Harm to a bookie's files behind its back: rot, misdirected, lost and stale sectors, files cut or gone.

Decides which bytes change (D4 to D7, D12 of TESTING.md, section 5), and what a plan must leave alone: the end of the
journal.
A reader of one journal alone cannot distinguish a last group that was lost after its sync from one that a loss of power
tore (JOURNAL.md section 4), so harm to it is outside the promised fault model. A group with another behind it may be
harmed: that other one proves that it was there.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Mapping

from embedbk.storage.memory_disk import MemoryDisk

__all__ = ["HARMS", "INDEX_ROT", "harm", "lay_lie"]

HARMS = ("rot", "misdirected", "lost-write", "stale", "file-harm")
INDEX_ROT = "index-rot"
LOG_BLOCK_BYTES = 4096
SECTOR_BYTES = 512
BLOCK_BYTES = 4096
# Files of a bookie on one device, about which its disk may lie.
JOURNAL, ENTRIES = "/journal/journal-", "/entries/"
_IN_JOURNAL, _IN_ENTRIES = re.compile(r"(.*/journal(-\d+)?)/journal-"), re.compile(r".*/entries(-\d+)?/")


def harm(disk: MemoryDisk, kind: str, chance: random.Random, before: Mapping[str, bytes]) -> str:
    """Change a file at rest; which, in words. Empty: there was nothing to change.

    before: the files as they were some time ago, for stale sectors.
    """
    files = {path: content for path, content in disk.files().items() if content}
    spans = {path: span for path, content in files.items() if (span := _span(path, files)) > 0}
    if not spans:
        return ""
    path = chance.choice(sorted(spans))
    content, span = files[path], spans[path]
    if kind == INDEX_ROT:
        return _harm_index(disk, files, chance)
    if kind == "file-harm":
        return _harm_file(disk, path, content, span, chance)
    if kind in ("stale", "lost-write"):
        old = before.get(path, b"")[:span].ljust(span, b"\0")
        size = SECTOR_BYTES if kind == "stale" else BLOCK_BYTES
        places = [at for at in range(0, span, size) if old[at : at + size] != content[at : at + size]]
        if not places:
            return ""
        at = chance.choice(places)
        wrong = old[at : at + size]
    elif kind == "misdirected":
        source = files[chance.choice(sorted(files))]
        size = min(chance.choice([SECTOR_BYTES, BLOCK_BYTES]), span, len(source))
        at = chance.randrange(0, span - size + 1, SECTOR_BYTES)
        begin = chance.randrange(0, len(source) - size + 1, SECTOR_BYTES)
        wrong = source[begin : begin + size]
    else:
        size = chance.choice([1, 1, 1, SECTOR_BYTES])
        at = chance.randrange(0, max(1, span - size))
        wrong = _rotten(content[at : at + size], chance)
    if content[at : at + len(wrong)] == wrong:
        return ""
    disk.put(path, content[:at] + wrong + content[at + len(wrong) :])
    return f"{kind}: {path} at {at}, {len(wrong)} bytes"


def _rotten(held: bytes, chance: random.Random) -> bytes:
    if len(held) == 1:
        return bytes([held[0] ^ 1 << chance.randrange(8)])
    return chance.choice([b"\0" * len(held), b"\xff" * len(held), chance.randbytes(len(held))])


def _harm_file(disk: MemoryDisk, path: str, content: bytes, span: int, chance: random.Random) -> str:
    how = chance.choice(["missing", "truncated", "extended", "garbage"])
    if how == "missing" and span == len(content):
        disk.drop(path)
    elif how in ("extended", "garbage"):
        size = chance.choice([1, SECTOR_BYTES, BLOCK_BYTES, 3 * BLOCK_BYTES + 7])
        disk.put(path, content + (b"\0" * size if how == "extended" else chance.randbytes(size)))
    elif span == len(content):
        disk.put(path, content[: chance.randrange(span)])
    else:
        return ""
    return f"file-harm: {path} {how}"


def _harm_index(disk: MemoryDisk, files: Mapping[str, bytes], chance: random.Random) -> str:
    """Both copies of the index of one entry log, or of some: the entries are whole, now and then but one byte."""
    logs = [path for path in sorted(files) if _IN_ENTRIES.match(path) and path.endswith(".elog")]
    harmed: list[str] = []
    for path in chance.sample(logs, min(len(logs), chance.choice([1, 1, 3]))):
        content = bytearray(files[path])
        states_size, entries_size, _, index_size = struct.unpack_from("<QQQQ", content, 56)
        first = LOG_BLOCK_BYTES + states_size
        entries = first + index_size
        second = -(-(entries + entries_size) // LOG_BLOCK_BYTES) * LOG_BLOCK_BYTES
        if not entries_size or second + index_size > len(content):
            continue  # Ledger states alone, or harmed before.
        at, size = 0, index_size
        if chance.random() < 0.5:
            at = chance.randrange(index_size)  # A run, or what reaches into two.
            size = min(chance.choice([1, 8]), index_size - at)
        for copy in (first, second):
            content[copy + at : copy + at + size] = bytes(
                each ^ 0xA5 for each in content[copy + at : copy + at + size]
            )
        if chance.random() < 0.3:
            content[entries + chance.randrange(entries_size)] ^= 1 << chance.randrange(8)
        disk.put(path, bytes(content))
        harmed.append(path)
    return f"{INDEX_ROT}: {', '.join(harmed)}" if harmed else ""


def _span(path: str, files: Mapping[str, bytes]) -> int:
    """How many bytes from its beginning on may be harmed."""
    content = files[path]
    journal = _IN_JOURNAL.match(path)
    if journal is None:
        return len(content) if _IN_ENTRIES.match(path) else 0
    inside = f"{journal[1]}/journal-"
    newest = max(
        (other for other in files if other.startswith(inside) and _groups(other, files[other])), default=""
    )
    if path != newest:
        return len(content)
    groups = _groups(path, content)
    # The last may be torn, and then the one before is the end.
    return groups[-2] if len(groups) > 2 else 0


def _groups(path: str, content: bytes) -> list[int]:
    """Where the groups of this generation begin, as far as their headers show (JOURNAL.md section 2)."""
    generation = int(path.rpartition("-")[2], 16).to_bytes(8, "little")
    return [
        at
        for at in range(BLOCK_BYTES, len(content), BLOCK_BYTES)
        if content[at + 4 : at + 24] == b"EBKG" + generation + at.to_bytes(8, "little")
    ]


def lay_lie(disk: MemoryDisk, kind: str, chance: random.Random) -> bool:
    """Let a coming call be answered OK and do something else. False: this kind is none of a disk at work."""
    calls = {"rot": "flipped", "misdirected": "misdirected", "lost-write": "lost"}
    if kind not in calls:
        return False
    call = chance.choice(["read", "write"]) if kind != "lost-write" else "write"
    part = chance.choice([JOURNAL, ENTRIES]) if call == "write" else ENTRIES
    where = chance.getrandbits(24)
    disk.lie(call, calls[kind], part=part, nth=chance.randint(1, 4), where=where, spares_last=part == JOURNAL)
    return True
