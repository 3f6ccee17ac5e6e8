"""The plain readers and the pages say the same: each struct is the table of its page, field by field."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.metadata import commands
from embedbk.storage import (
    entry_log_index,
    entry_log_layout,
    journal_reader,
    metadata_log,
    older_snapshots,
    scrubbing,
    snapshot_format,
    snapshots,
    used_reader,
)
from embedbk.storage.identity import SLOT_HEADER
from embedbk.storage.scrubbing import ScrubState, read_scrub_state

STORAGE = Path(scrubbing.__file__).parent
METADATA = Path(commands.__file__).parent / "METADATA.md"
TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
ROW = re.compile(r"^\| (\d+) \| (\d+) \| ([^|]+) \| (\w+) \|", re.MULTILINE)


def layout(page: Path, name: str) -> tuple[str, int]:
    """(struct format, size) of a table; its rows stand end to end."""
    text = page.read_text().split(f"<!-- table: {name} -->\n")[1].split("\n\n")[0]
    code, end = "<", 0
    for offset, size, kind, _ in ROW.findall(text):
        assert int(offset) == end, (name, offset)
        packed = TYPES.get(kind.strip()) or f"{int(kind.strip().removesuffix(' B'))}s"
        assert struct.calcsize("<" + packed) == int(size), (name, offset)
        code, end = code + packed, end + int(size)
    assert end > 0, name
    return code, end


@pytest.mark.parametrize(
    ("page", "name", "found"),
    [
        (STORAGE / "JOURNAL.md", "file", journal_reader.FILE_HEADER),
        (STORAGE / "JOURNAL.md", "group", journal_reader.GROUP_HEADER),
        (STORAGE / "JOURNAL.md", "record", journal_reader.RECORD_HEADER),
        (STORAGE / "JOURNAL.md", "used", used_reader.USED_NOTE),
        (STORAGE / "STORAGE.md", "descriptor", entry_log_layout.DESCRIPTOR),
        (STORAGE / "STORAGE.md", "run", entry_log_index.RUN),
        (STORAGE / "STORAGE.md", "state", LEDGER_STATE),
        (STORAGE / "STORAGE.md", "identity", SLOT_HEADER),
        (METADATA, "identity", metadata_log.IDENTITY),
        (METADATA, "older identity", metadata_log.OLDER_IDENTITY),
        (METADATA, "chunk", older_snapshots.CHUNK),
        (METADATA, "named", snapshots.NAMED),
        (METADATA, "snapshot header", snapshot_format.HEADER),
        (METADATA, "snapshot chunk", snapshot_format.CHUNK),
        (METADATA, "snapshot index", snapshot_format.INDEX_ROW),
        (METADATA, "snapshot closing", snapshot_format.CLOSING),
    ],
)
def test_a_struct_is_the_table_of_its_page(page: Path, name: str, found: struct.Struct) -> None:
    code, size = layout(page, name)
    assert (found.format, found.size) == (code, size)


def test_the_numbers_of_the_readers_are_those_of_the_pages() -> None:
    """Versions, magics, blocks and bounds that a second reader has of its own."""
    journal, storage = (STORAGE / name for name in ("JOURNAL.md", "STORAGE.md"))
    said = journal.read_text()
    assert f"`{journal_reader.FILE_MAGIC.decode()}`" in said
    assert f"`{journal_reader.GROUP_MAGIC.decode()}`" in said
    assert f"at most {journal_reader.RECORD_BYTES_MAX} |" in said
    assert f"at least {journal_reader.FILE_BYTES_MIN} |" in said
    assert f"| version | {journal_reader.VERSION}; {journal_reader.VERSION_START} in a file" in said
    assert f"blocks of {journal_reader.BLOCK_BYTES} bytes" in said
    said = storage.read_text()
    assert f"| `{entry_log_layout.MAGIC.decode()}` |" in said
    assert f"| version | {entry_log_layout.VERSION};" in said
    assert f"up to {entry_log_index.RUN_ENTRIES_MAX} entries" in said
    assert f"2 to {entry_log_index.MODULUS_MAX}:" in said


def test_the_note_of_the_scrubber_is_as_the_page_says() -> None:
    """STORAGE.md section 5: a sum, a line feed, JSON with these fields."""
    said = (STORAGE / "STORAGE.md").read_text()
    content = ScrubState(3, 5000, 1, 7, {}).encode()
    head, body, rest = content.split(b"\n")
    assert (len(head), rest) == (8, b"")
    fields = json.loads(body)
    assert all(f"`{name}`" in said for name in fields)
    assert read_scrub_state(content) is not None
    assert f"`version` ({fields['version']})" in said
