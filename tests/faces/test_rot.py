"""Rot on all disks at once, on different entries of each: what has one good copy left is served (D17, I5, P6.1)."""

from __future__ import annotations

from pathlib import Path

import embedbk
from embedbk.storage.entry_log_reader import Whose, read_entry_log
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import DiskDirectory

ENTRIES = 90


def spoil(entry_log: Path, keeps: int) -> int:
    """Change a byte in the payload of each entry that this bookie does not keep; how many there were."""
    with DiskDirectory(entry_log.parent).open(entry_log.name) as file:
        log = read_entry_log(file, entry_log.name, 1, Whose(), Findings())
    assert log is not None
    content = bytearray(entry_log.read_bytes())
    spoilt = 0
    for _, entry_id, offset, size in log.located():
        if entry_id % 3 != keeps:
            content[offset + size - 8] ^= 1 << entry_id % 8
            spoilt += 1
    entry_log.write_bytes(content)
    return spoilt


def test_one_good_copy_of_each_entry_is_enough_wherever_it_is(tmp_path: Path) -> None:
    """D17, I5: two of three copies of every entry are bad, on each disk other ones; all are read, none is wrong, and
    what the bookies hold stays good enough to go on with."""
    entries = [b"entry %d " % number * 10 for number in range(ENTRIES)]
    with embedbk.open(tmp_path, bookies=3) as bk, bk.log("orders").writer() as orders:
        orders.append_many(entries)
    for keeps in range(3):
        assert spoil(tmp_path / f"b{keeps + 1}" / "entries" / "00000001.elog", keeps) == ENTRIES * 2 // 3
    with embedbk.open(tmp_path, bookies=3) as bk:
        assert [bytes(entry) for entry in bk.log("orders").read()] == entries
        with bk.log("orders").writer() as orders:
            orders.append(b"more")
        assert [bytes(entry) for entry in bk.log("orders").read()] == [*entries, b"more"]
