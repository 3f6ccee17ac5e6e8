"""JOURNAL.md and the C code say the same: what the page's tables read is what was appended."""

from __future__ import annotations

import pytest

from embedbk.storage.journal import Journal
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.salvage import JournalSalvage
from tests.storage.journal_pages import BLOCK_BYTES, fields, read_file, size_of, table

IDENTITY = bytes(range(16))
APPENDED = [(1, 7, b"first"), (2, 2**63 - 1, b""), (65535, 0, bytes(5000)), (3, 8, b"last of its group")]


@pytest.fixture
def content():
    disk = MemoryDisk()
    journal = Journal("j", io=disk, threaded=False, file_bytes=65536, identity=IDENTITY)
    for batch in (APPENDED, APPENDED[:1]):
        for kind, ledger_id, body in batch:
            journal.append(kind, ledger_id, body)
        journal.step()
    journal.close()
    return disk.read("j/journal-0000000000000001")


def test_the_page_reads_a_start_behind_damage():
    """Section 6: version 2, and the first group is the one that the header names."""
    disk = MemoryDisk()
    with JournalSalvage("j", after=41, io=disk, file_bytes=65536, identity=IDENTITY) as salvage:
        assert list(salvage.records()) == []
        salvage.finish()
    with Journal("j", io=disk, threaded=False, file_bytes=65536) as journal:
        journal.append(*APPENDED[0])
        journal.step()
    header, groups = read_file(disk.read("j/journal-0000000000000001"))
    assert (header["version"], header["start_token"], header["start_sequence"]) == (2, 42, 1)
    assert [record[0] for record in groups[0].records] == [42]
    assert (groups[0].header["sequence"], groups[0].header["previous_crc"]) == (1, 0)


@pytest.mark.parametrize(("name", "size"), [("file", 64), ("group", 64), ("record", 24)])
def test_a_table_has_no_holes_and_no_overlaps(name, size):
    at = 0
    for offset, width, _ in table(name).values():
        assert offset == at
        at += width
    assert at == size_of(name) == size


def test_the_page_reads_what_was_appended(content):
    header, groups = read_file(content)
    assert [record for group in groups for record in group.records] == [
        (token, *record) for token, record in enumerate([*APPENDED, APPENDED[0]], start=1)
    ]
    assert (header["magic"], header["version"], header["block_bytes"]) == (b"EBKJ", 1, BLOCK_BYTES)
    assert (header["identity"], header["generation"], header["file_bytes"]) == (IDENTITY, 1, 65536)


def test_groups_are_chained_and_start_at_blocks(content):
    """I42: sequence, token and the sum before make a file that misses a group visible."""
    _, groups = read_file(content)
    assert [group.header["sequence"] for group in groups] == [1, 2]
    assert groups[0].header["previous_crc"] == 0
    assert groups[1].header["previous_crc"] == groups[0].header["crc"]
    assert all(group.position % BLOCK_BYTES == 0 for group in groups)


def test_reserved_fields_and_padding_are_zero(content):
    header, groups = read_file(content)
    found = [header["reserved_a"], header["start_token"], header["start_sequence"]]
    for group in groups:
        found.append(group.header["reserved"])
        found.append(fields("record", content, group.position + size_of("group"))["reserved"])
        found.append(content[group.position + group.header["group_bytes"] : group.end])
    assert not any(any(value) if isinstance(value, bytes) else value for value in found)
    assert not any(content[size_of("file") : BLOCK_BYTES])
    assert not any(content[groups[-1].end :])  # Zeros were written ahead over the whole file.
