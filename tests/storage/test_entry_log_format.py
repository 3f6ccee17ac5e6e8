"""STORAGE.md and the code say the same: what the page's tables read is what was stored."""

from __future__ import annotations

import errno
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from embedbk.codec.entry import read_entry
from embedbk.codec.twins import crc32c
from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.errors import StorageError
from embedbk.storage import bookie_storage
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.identity import IDENTITY_FILE, SLOT_BYTES, SLOT_HEADER, open_identity
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.older_logs import as_version
from tests.storage.stored_entries import make_frame

PAGE = (Path(bookie_storage.__file__).parent / "STORAGE.md").read_text()
ROW = re.compile(r"^\| (\d+) \| (\d+) \| ([^|]+) \| (\w+) \|", re.MULTILINE)
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
TOKEN, INCARNATION = bytes(range(16)), bytes(range(16, 32))

Fields = dict[str, Any]


def table(name: str) -> list[tuple[int, int, str, str]]:
    text = PAGE.split(f"<!-- table: {name} -->\n")[1].split("\n\n")[0]
    return [(int(offset), int(size), kind.strip(), field) for offset, size, kind, field in ROW.findall(text)]


def fields(name: str, content: bytes, at: int = 0) -> Fields:
    found: Fields = {}
    for offset, size, kind, field in table(name):
        raw = content[at + offset : at + offset + size]
        found[field] = raw if kind.endswith(" B") else struct.unpack("<" + CODES[kind], raw)[0]
    return found


def size_of(name: str) -> int:
    offset, size, _, _ = table(name)[-1]
    return offset + size


def varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return value, at


def read_index(log: Log) -> list[tuple[int, int, int, int]]:
    """(ledger_id, entry_id, offset, size) of every entry, as the page says it."""
    index = log.index
    found, at = [], 0
    for _ in range(log.descriptor["run_count"]):
        run = fields("run", index, at)
        coded_at = at + size_of("run")
        seed = crc32c(at.to_bytes(8, "little"), crc32c(log.content[:48]))
        end = coded_at + run["coded_size"]
        if log.descriptor["version"] >= 4:
            end += 8 * (run["residues"].bit_count() if run["modulus"] else 1)
        if log.descriptor["version"] >= 3:
            assert crc32c(index[at:end], seed) == int.from_bytes(index[end : end + 4], "little")
        at += size_of("run") + run["coded_size"]
        ids: list[int] = []
        if run["modulus"]:
            ids = [
                i for i in range(run["first"], run["last"] + 1) if run["residues"] >> i % run["modulus"] & 1
            ]
            assert len(ids) == run["count"]
        size, offset = 0, run["offset"]
        for ordinal in range(run["count"]):
            if not run["modulus"]:
                gap = 0
                if ordinal:
                    gap, coded_at = varint(index, coded_at)
                ids.append(ids[-1] + gap if ordinal else run["first"])
            if run["sizes_equal"]:
                size = run["bytes"] // run["count"]
            else:
                coded, coded_at = varint(index, coded_at)
                size += (coded >> 1) ^ -(coded & 1)
            found.append((run["ledger_id"], ids[ordinal], offset, size))
            offset += size
        assert coded_at == at
        at = end + (4 if log.descriptor["version"] >= 3 else 0)
        assert ids[-1] == run["last"]
        assert offset == run["offset"] + run["bytes"]
    assert at == len(index)
    return found


class Log:
    """One entry log, read by the page alone."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.descriptor = fields("descriptor", content)
        states_end = 4096 + self.descriptor["states_size"]
        has_two = self.descriptor["version"] >= 3
        entries_at = states_end + (self.descriptor["index_size"] if has_two else 0)
        entries_end = index_at = entries_at + self.descriptor["entries_size"]
        if has_two:
            index_at = -(-entries_end // 4096) * 4096
        states_at = index_at + self.descriptor["index_size"]
        roll_at = states_end - self.descriptor["roll_count"] * size_of("roll")
        marks_at = roll_at - self.descriptor["journal_count"] * size_of("mark")
        self.states = content[4096:marks_at]
        self.marks = content[marks_at:roll_at]
        self.roll = content[roll_at:states_end]
        self.first_index = content[states_end:entries_at]
        self.entries_at = entries_at
        self.entries = content[entries_at:entries_end]
        self.index = content[index_at:states_at]
        self.states_again = content[states_at : states_at + self.descriptor["states_size"]]
        between = content[entries_end:index_at]
        self.padding = (
            content[128:4096] + between + content[states_at + self.descriptor["states_size"] : -128]
        )


def opened(disk: MemoryDisk, *, may_go_back: bool = False) -> NativeEntryStore:
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    store.set_may_go_back(may_go_back=may_go_back)
    return store


def flushed(*, may_go_back: bool = False) -> bytes:
    disk = MemoryDisk({"/e/.made": b""})
    store = opened(disk, may_go_back=may_go_back)
    chance = random.Random(3)
    for first in range(0, 3000, 500):
        store.put(make_frame(2**62, range(first, first + 500), size=60))  # Dense, of one size.
    store.put(make_frame(5, range(200)))  # Dense, of different sizes.
    store.put(make_frame(6, [i for i in range(900) if (3 - i) % 7 < 4], size=10))  # Striped.
    store.put(make_frame(7, sorted(chance.sample(range(400), 150))))  # Neither.
    store.put(make_frame(8, [0, 1, 1000, 1001, 50_000], size=3))
    assert store.freeze(LEDGER_STATE.pack(5, 199, 7, 70, bytes(16), 1, bytes(7)), 41)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()
    store.close()
    return disk.read("/e/00000001.elog")


@pytest.fixture
def log() -> Log:
    return Log(flushed())


def test_while_the_build_before_can_come_back_logs_are_as_it_reads_them() -> None:
    """P10.8: "Until it is raised the build before can come back": to it, version 4 is unknown. Byte for byte as it
    wrote them, and each index is read as a start reads it."""
    content = flushed(may_go_back=True)
    assert content == as_version(3, flushed())
    store = opened(MemoryDisk({"/e/.made": b"", "/e/00000001.elog": content}))
    assert store.reports() == []
    store.close()


def test_a_copy_is_as_the_build_before_reads_it_and_one_newer_log_ends_that() -> None:
    """P10.8: compactions, too. Where a log of version 4 is, nobody comes back who does not read it."""
    disk = MemoryDisk({"/e/.made": b""})
    store = opened(disk, may_go_back=True)

    def flush(number: int) -> int:
        store.put(make_frame(number, range(20)))
        assert store.freeze(b"", number)
        store.flush(threaded=False)
        assert store.finish_flush()
        store.release()
        return version(max(name for name in disk.files() if name.endswith(".elog")).removeprefix("/e/"))

    def version(name: str) -> int:
        return int(Log(disk.read(f"/e/{name}")).descriptor["version"])

    assert [flush(number) for number in (1, 2)] == [3, 3]
    store.begin_copy([1, 2])
    store.copy_slice(1 << 20, threaded=False)
    assert store.poll_copy() is not None
    store.commit_copy(NativeLedgerTable())
    assert version("00000003.elog") == 3
    store.set_may_go_back(may_go_back=False)
    assert flush(4) == 4
    store.set_may_go_back(may_go_back=True)
    assert flush(5) == 4
    store.close()
    again = opened(disk, may_go_back=True)
    assert again.reports() == []
    again.close()


def test_the_roll_names_all_logs_that_stay() -> None:
    """STORAGE.md 2: also over a gap where a flush was done once more, and without those that leave."""
    disk = MemoryDisk({"/e/.made": b""})
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    table_of_bookie = NativeLedgerTable()
    for number in range(6):
        store.put(make_frame(number, range(20)))
        assert store.freeze(b"", number)
        if number == 2:
            disk.fail("sync", error=errno.EIO)
            store.flush(threaded=False)
            with pytest.raises(StorageError):
                store.finish_flush()
        store.flush(threaded=False)
        assert store.finish_flush()
        store.release()
        if number == 4:
            store.begin_copy([1, 2])
            store.copy_slice(1 << 20, threaded=False)
            assert store.poll_copy() == (
                sum(make_frame(each, range(20)).body.nbytes for each in (0, 1)),
                True,
            )
            store.commit_copy(table_of_bookie)
    copied, newest = Log(disk.read("/e/00000007.elog")), Log(disk.read("/e/00000008.elog"))
    assert (copied.descriptor["previous_id"], copied.descriptor["mark"], copied.descriptor["roll_count"]) == (
        0,
        0,
        0,
    )
    assert newest.descriptor["previous_id"] == 7
    items = [fields("roll", newest.roll, at) for at in range(0, len(newest.roll), size_of("roll"))]
    assert [(item["first_log_id"], item["last_log_id"]) for item in items] == [(4, 7)]
    assert not any(byte for item in items for byte in item["reserved"])
    store.close()


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("descriptor", 128),
        ("roll", 56),
        ("mark", 56),
        ("state", LEDGER_STATE.size),
        ("run", 56),
        ("identity", SLOT_HEADER.size),
    ],
)
def test_a_table_has_no_holes_and_no_overlaps(name: str, size: int) -> None:
    at = 0
    for offset, width, _, _ in table(name):
        assert offset == at
        at += width
    assert at == size


def test_the_descriptor_stands_at_both_ends(log: Log) -> None:
    assert log.content[:128] == log.content[-128:]
    found = log.descriptor
    assert (found["magic"], found["version"], found["log_id"], found["previous_id"]) == (b"EBKL", 4, 1, 0)
    assert (found["cluster_token"], found["incarnation"], found["mark"]) == (TOKEN, INCARNATION, 41)
    assert found["file_size"] == len(log.content)
    assert len(log.content) % 4096 == 0
    assert found["crc"] == crc32c(log.content[:124])
    assert (found["part"], found["part_count"]) == (0, 1)
    assert not any(found["reserved"])
    assert not any(log.padding)


def test_the_logs_of_one_flush_say_which_part_they_are() -> None:
    """STORAGE.md 1: ids one behind the other; states and roll are in the first one."""
    disk = MemoryDisk({"/e/.made": b"", "/f/.made": b""})
    store = NativeEntryStore(["/e", "/f"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    for mark in (7, 9):
        for ledger_id in (1, 2):
            store.put(make_frame(ledger_id, range(mark, mark + 2)))
        assert store.freeze(LEDGER_STATE.pack(1, 9, -1, 0, bytes(16), 1, bytes(7)), mark)
        store.flush(threaded=False)
        assert store.finish_flush()
        store.release()
    store.close()
    first, second = Log(disk.read("/e/00000003.elog")), Log(disk.read("/f/00000004.elog"))
    for part, log in enumerate((first, second)):
        found = log.descriptor
        assert (found["version"], found["part"], found["part_count"]) == (4, part, 2)
        assert (found["mark"], found["previous_id"], found["log_id"]) == (9, 2, 3 + part)
        assert not any(found["reserved"])
    assert (first.descriptor["roll_count"], len(first.states)) == (1, 56)
    assert (second.descriptor["roll_count"], second.descriptor["states_size"]) == (0, 0)


def test_the_marks_of_several_journals_stand_behind_the_states() -> None:
    """STORAGE.md 2, scenario 43: each journal has its own mark; they add up to the log mark, and a start knows them."""
    disk = MemoryDisk({"/e/.made": b""})
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    for marks in ([4, 0, 3], [5, 1, 9]):
        store.put(make_frame(1, [sum(marks)]))
        assert store.freeze(LEDGER_STATE.pack(1, 9, -1, 0, bytes(16), 1, bytes(7)), sum(marks), marks)
        store.flush(threaded=False)
        assert store.finish_flush()
        store.release()
        assert store.journal_marks() == marks
    store.close()
    log = Log(disk.read("/e/00000002.elog"))
    found = log.descriptor
    assert (found["version"], found["part"], found["part_count"], found["journal_count"]) == (4, 0, 1, 3)
    items = [fields("mark", log.marks, at) for at in range(0, len(log.marks), size_of("mark"))]
    assert [(item["journal"], item["mark"]) for item in items] == [(0, 5), (1, 1), (2, 9)]
    assert found["mark"] == 15
    assert (len(log.states), len(log.roll)) == (56, 56)
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    assert (store.log_mark(), store.journal_marks()) == (15, [5, 1, 9])
    assert [len(states) for states in store.take_states()] == [56, 56]
    store.close()


def test_sections_are_bound_to_the_file_they_stand_in(log: Log) -> None:
    """I41: checksums cover the identity of the file."""
    seed = crc32c(log.content[:48])
    assert log.descriptor["states_crc"] == crc32c(log.states + log.marks + log.roll, seed)
    assert log.descriptor["index_crc"] == crc32c(log.index, seed)
    assert log.states + log.marks + log.roll == log.states_again
    assert log.first_index == log.index


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_versions_are_as_the_page_says(log: Log, version: int) -> None:
    """STORAGE.md 1 and 3: no digests; up to version 2 one index, behind the entries, and no CRCs of runs; they are
    read as those of today are."""
    older = Log(as_version(version, log.content))
    assert (older.descriptor["version"], older.entries) == (version, log.entries)
    assert older.first_index == (older.index if version == 3 else b"")
    assert older.descriptor["part_count"] == min(version - 1, 1)
    assert older.states == older.states_again[: len(older.states)]
    listed = [(ledger_id, entry_id) for ledger_id, entry_id, _, _ in read_index(older)]
    assert listed == [(ledger_id, entry_id) for ledger_id, entry_id, _, _ in read_index(log)]
    disk = MemoryDisk({"/e/00000001.elog": older.content})
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    assert store.reports() == []
    for ledger_id, entry_id, offset, size in read_index(older)[::17]:
        found = store.read(ledger_id, entry_id, entry_id, 1 << 20)
        assert found.frame is not None and found.frame.body == older.content[offset : offset + size]
    store.close()


def test_no_block_holds_both_copies_of_anything(log: Log) -> None:
    """STORAGE.md 1: a block that is lost takes one copy at most, also of a small log."""
    disk = MemoryDisk({"/e/.made": b""})
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    store.put(make_frame(1, [0], size=3))
    assert store.freeze(LEDGER_STATE.pack(1, 0, -1, 0, bytes(16), 1, bytes(7)), 1)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.close()
    whole = disk.read("/e/00000001.elog")
    for content, ids in ((whole, [0]), (log.content, list(range(200)))):
        for at in range(0, len(content), 4096):
            lost = content[:at] + bytes(4096) + content[at + 4096 :]
            store = NativeEntryStore(
                ["/e"], TOKEN, INCARNATION, io=MemoryDisk({"/e/00000001.elog": lost}), half_bytes_max=8 << 20
            )
            assert len(store.take_states()[0]) == 56
            assert store.read(1 if content is whole else 5, 300, 310, 1 << 20).absent == [(300, 310)]
            if at == 0 or at >= Log(content).entries_at + len(Log(content).entries):
                found = store.read(1 if content is whole else 5, 0, 300, 1 << 20)
                assert found.frame is not None and found.frame.entry_count == len(ids)
            store.close()


def test_states_are_those_that_were_taken(log: Log) -> None:
    state = fields("state", log.states)
    assert (state["ledger_id"], state["last_entry"], state["lac"], state["lac_length"]) == (5, 199, 7, 70)
    assert state["flags"] == 1


def test_the_index_names_every_entry_exactly(log: Log) -> None:
    listed = read_index(log)
    assert len(listed) == log.descriptor["entry_count"]
    assert len({ledger_id for ledger_id, _, _, _ in listed}) == log.descriptor["ledger_count"]
    assert [(ledger_id, entry_id) for ledger_id, entry_id, _, _ in listed] == sorted(
        (ledger_id, entry_id) for ledger_id, entry_id, _, _ in listed
    )
    block, at = memoryview(log.content), log.entries_at
    for ledger_id, entry_id, offset, size in listed:
        entry = read_entry(block, offset)
        assert (entry.ledger_id, entry.entry_id, entry.size, offset) == (ledger_id, entry_id, size, at)
        at += size
    assert at == log.entries_at + len(log.entries)


def test_a_run_has_a_digest_for_each_of_its_residues(log: Log) -> None:
    """STORAGE.md 3: made by the words of the page, of what stands in the entries."""

    def mix(number: int) -> int:
        number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD % 2**64
        number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 % 2**64
        return number ^ number >> 33

    index, at, located = log.index, 0, iter(read_index(log))
    kinds = set()
    for _ in range(log.descriptor["run_count"]):
        run = fields("run", index, at)
        residues = [bit for bit in range(64) if run["residues"] >> bit & 1] if run["modulus"] else [0]
        at += size_of("run") + run["coded_size"]
        sums = dict.fromkeys(residues, 0)
        for _ in range(run["count"]):
            _, entry_id, offset, size = next(located)
            crc = int.from_bytes(log.content[offset + size - 4 : offset + size], "little")
            digest = mix(mix((entry_id + 0x9E3779B97F4A7C15) % 2**64) ^ (size << 32 | crc))
            sums[entry_id % (run["modulus"] or 1)] += digest
        stored = struct.unpack_from(f"<{len(residues)}Q", index, at)
        assert stored == tuple(each % 2**64 for each in sums.values())
        assert (run["summed"], run["reserved"]) == (1, 0)
        kinds.add((run["modulus"], len(residues)))
        at += 8 * len(residues) + 4
    assert {(1, 1), (7, 4), (0, 1)} <= kinds


def test_a_striped_ledger_is_a_pattern_and_one_size_needs_no_numbers(log: Log) -> None:
    """ARCHITECTURE 5: runs of (first, last, modulus, residue mask); lengths beside the run."""
    runs, at = [], 0
    for _ in range(log.descriptor["run_count"]):
        run = fields("run", log.index, at)
        runs.append(run)
        at += size_of("run") + run["coded_size"] + 8 * (run["residues"].bit_count() or 1) + 4
    dense = [run for run in runs if run["ledger_id"] == 2**62]
    assert [(run["count"], run["modulus"], run["coded_size"]) for run in dense] == [
        (1024, 1, 0), (1024, 1, 0), (952, 1, 0)
    ]  # fmt: skip
    striped = next(run for run in runs if run["ledger_id"] == 6)
    assert (striped["modulus"], striped["coded_size"]) == (7, 0)
    assert next(run for run in runs if run["ledger_id"] == 7)["modulus"] == 0
    assert len([run for run in runs if run["ledger_id"] == 8]) == 3, "a wide gap begins another run"


def test_an_identity_is_as_the_page_says(tmp_path: Path) -> None:
    open_identity({"journal": tmp_path}, role="bookie", node_id="b1", cluster_token=TOKEN).close()
    content = (tmp_path / IDENTITY_FILE).read_bytes()
    assert len(content) == 2 * SLOT_BYTES
    slots = [fields("identity", content, slot * SLOT_BYTES) for slot in range(2)]
    assert [(slot["sequence"], slot["state"]) for slot in slots] == [(2, 2), (1, 1)]
    for number, slot in enumerate(slots):
        assert (slot["magic"], slot["version"]) == (b"EBKI", 1)
        begin = number * SLOT_BYTES
        body = content[begin + size_of("identity") : begin + size_of("identity") + slot["body_size"]]
        assert slot["crc"] == crc32c(body, crc32c(content[begin : begin + 20]))
