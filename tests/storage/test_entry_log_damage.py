"""Damaged entry logs: never a wrong byte, never a false "absent", never a lost fence without a word (P7.1, P7.3)."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from embedbk.codec.entry import encode_entry, read_entry
from embedbk.codec.frame import frame_of
from embedbk.codec.twins import crc32c
from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.errors import StorageError
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.log_places import places_in
from tests.storage.looking_through import look_through
from tests.storage.older_logs import as_version
from tests.storage.stored_entries import ids_in, make_frame, payload, payloads_in

TOKEN, INCARNATION = b"T" * 16, b"I" * 16
LOG = "/e/00000001.elog"
HELD = {3: list(range(40)), 5: [i for i in range(60) if i % 3 != 1], 9: [0, 1, 2, 30, 31, 500]}
FENCE_OF_9 = LEDGER_STATE.pack(9, 500, -1, 0, bytes(16), 1, bytes(7))


def size_of(ledger_id: int) -> int:
    return 30 if ledger_id == 3 else 0


def write_log() -> bytes:
    """A small entry log with entries of three ledgers and a fence."""
    disk = MemoryDisk({"/e/.made": b""})
    store = open_store(disk)
    for ledger_id, ids in HELD.items():
        store.put(make_frame(ledger_id, ids, size=size_of(ledger_id)))
    flush(store, FENCE_OF_9)
    store.close()
    return disk.read(LOG)


def open_store(disk: MemoryDisk) -> NativeEntryStore:
    return NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=1 << 20)


def flush(store: NativeEntryStore, states: bytes = b"", mark: int = 1) -> None:
    assert store.freeze(states, mark)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()


WHOLE = write_log()
PLACES = places_in(WHOLE)
STATES_AT, ENTRIES_AT, STATES_AGAIN_AT = PLACES.states, PLACES.entries, PLACES.second_states
ALL = sum(map(len, HELD.values()))
both_versions = pytest.mark.parametrize(
    "whole", [WHOLE, as_version(1, WHOLE)], ids=["version 4", "version 1"]
)


def opened(content: bytes) -> NativeEntryStore:
    """Behind the search for what lost indexes located (ST38)."""
    store = open_store(MemoryDisk({LOG: content}))
    look_through(store)
    return store


def verdicts(store: NativeEntryStore, ledger_id: int, last: int = 600) -> tuple[set[int], set[int]]:
    """(held, absent) ids; every byte of what is held is checked."""
    held: dict[int, bytes] = {}
    absent: set[int] = set()
    first = 0
    while first <= last:
        found = store.read(ledger_id, first, last, 1 << 20)
        held |= payloads_in(found.frame)
        absent |= {i for begin, end in found.absent for i in range(begin, end + 1)}
        if not found.frame and not found.absent:
            break
        first = max([*held, *absent]) + 1
    assert held == {i: payload(ledger_id, i, size_of(ledger_id)) for i in held}
    assert held.keys() <= set(HELD.get(ledger_id, []))
    return set(held), absent


def check_truth(store: NativeEntryStore) -> int:
    """Whatever the store says of any id is true; returns how many held entries it can serve."""
    served = 0
    for ledger_id in (*HELD, 1, 4, 2**60):
        held, absent = verdicts(store, ledger_id)
        assert not absent & set(HELD.get(ledger_id, [])), (
            f"ledger {ledger_id}: a stored entry is called absent"
        )
        served += len(held)
    return served


def damaged(*changes: tuple[int, int], whole: bytes = WHOLE) -> bytes:
    """The log with bytes begin..end-1 overwritten, for each (begin, end)."""
    content = bytearray(whole)
    for begin, end in changes:
        content[begin:end] = bytes(each ^ 0xA5 for each in content[begin:end])
    return bytes(content)


@both_versions
def test_a_whole_log_serves_everything(whole: bytes) -> None:
    """STORAGE.md 1: version 4 is written, and those before are read."""
    assert crc32c(as_version(1, WHOLE)) == 0x5BB62D67, (
        "byte for byte what wrote version 1 made of the same puts"
    )
    store = opened(whole)
    assert check_truth(store) == sum(map(len, HELD.values()))
    assert store.reports() == []
    assert store.take_states() == [FENCE_OF_9]
    assert verdicts(store, 4)[1] == set(range(601))
    store.close()


@both_versions
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_no_flipped_byte_gives_a_wrong_byte_or_a_false_absent(flip: int, whole: bytes) -> None:
    """D4, I31, I41: every 97th byte, and all of the borders between sections."""
    found = places_in(whole)
    borders = (0, found.states, *found.indexes, found.entries, found.entries_end, found.second_states)
    places = {
        *range(0, len(whole), 97),
        *range(len(whole) - 130, len(whole)),
        *(at + i for at in borders for i in range(-4, 8) if at + i >= 0),
    }
    for at in sorted(places):
        content = bytearray(whole)
        content[at] ^= flip
        store = opened(bytes(content))
        served = check_truth(store)
        is_in_entry = found.entries <= at < found.entries_end
        assert served == ALL - is_in_entry, at
        assert [bytes(states) for states in store.take_states()] == [FENCE_OF_9], at
        store.close()


@both_versions
def test_no_cut_off_end_gives_a_false_absent_or_forgets_the_fence(whole: bytes) -> None:
    """D12: a file truncated anywhere still tells the truth, or is refused."""
    served = []
    for size in range(len(whole) - 1, -1, -61):
        try:
            store = opened(whole[:size])
        except StorageError:
            assert size < STATES_AT + 56
            continue
        served.append(check_truth(store))
        assert [bytes(states) for states in store.take_states()] == [FENCE_OF_9]
        assert store.reports()
        store.close()
    assert served == sorted(served, reverse=True)
    assert served[-1] == 0


def test_zeros_behind_the_end_are_no_damage_to_what_is_before() -> None:
    """D12: extended with zeros or garbage."""
    for tail in (bytes(5000), b"\xff" * 4096):
        store = opened(WHOLE + tail)
        assert check_truth(store) == sum(map(len, HELD.values()))
        assert store.reports()
        store.close()


@both_versions
def test_a_lost_index_is_rebuilt_by_a_scan_and_reported(whole: bytes) -> None:
    """ST13: a footer that is missing, zero or corrupt: scan the entries, report, never delete."""
    places = places_in(whole)
    lost = damaged(*places.index_ranges(), whole=whole)
    for content in (lost, lost[: places.indexes[-1]], lost[: places.indexes[-1]] + bytes(4096)):
        store = opened(content)
        assert check_truth(store) == ALL
        assert any("index is damaged or cut off" in line and LOG[3:] in line for line in store.reports())
        assert verdicts(store, 4)[1] == set(range(601)), "all entries are there: the rest is absent again"
        store.close()


@both_versions
def test_no_id_is_absent_when_index_and_an_entry_are_lost(whole: bytes) -> None:
    """P7.1, I31: nobody knows any more what stood there; what is found is served."""
    places = places_in(whole)
    at = places.entries + 40 * (30 + 52) + 10  # In the first entry of ledger 5, behind the forty of ledger 3.
    store = opened(damaged((at, at + 20), *places.index_ranges(), whole=whole))
    assert check_truth(store) == ALL - 1
    for ledger_id in (3, 4, 5, 9):
        assert verdicts(store, ledger_id)[1] == set(), ledger_id
    assert verdicts(store, 5)[0] == set(HELD[5]) - {0}
    assert any(f"at offset {at - 10}" in line for line in store.reports())
    store.close()


def runs_of(whole: bytes) -> list[tuple[int, int, int, int, int]]:
    """(place in the section, its bytes, ledger_id, first, last) of each run."""
    places, found, at = places_in(whole), [], 0
    while at < places.index_size:
        ledger_id, first, last = struct.unpack_from("<Qqq", whole, places.indexes[0] + at)
        residues, _, _, _, coded, modulus = struct.unpack_from("<QQIIIB", whole, places.indexes[0] + at + 24)
        size = 60 + coded + 8 * (residues.bit_count() if modulus else 1)
        found.append((at, size, ledger_id, first, last))
        at += size
    return found


def test_one_copy_of_an_index_serves_alone_and_the_log_may_be_compacted() -> None:
    """STORAGE.md 5: all of one copy is lost, and an entry with it: the others stay, the rest is absent."""
    at = ENTRIES_AT + 10
    for lost in PLACES.index_ranges():
        disk = MemoryDisk({LOG: damaged(lost, (at, at + 9))})
        store = open_store(disk)
        assert check_truth(store) == ALL - 1
        assert verdicts(store, 3)[1] == set(range(40, 601))
        if lost[0] == PLACES.indexes[0]:
            assert store.reports() == [
                f"entry log 00000001.elog: at offset {lost[0]}: the index is damaged; its second copy was used"
            ]
        assert not store.log_facts()[0].is_damaged
        store.close()


def test_each_run_is_taken_from_the_copy_where_it_is_whole() -> None:
    """STORAGE.md 5: no run is lost twice, so every entry has its place around the damaged ones."""
    runs = runs_of(WHOLE)
    assert len(runs) > 3
    first, second = PLACES.indexes
    for turn in (0, 1):
        lost = [
            ((first, second)[(number + turn) % 2] + at + 20, size)
            for number, (at, size, *_) in enumerate(runs)
        ]
        content = damaged(
            *((at, at + min(7, size)) for at, size in lost),
            (ENTRIES_AT, ENTRIES_AT + 60),
            (PLACES.entries_end - 3, PLACES.entries_end),
        )
        store = opened(content)
        assert check_truth(store) == ALL - 2
        assert [verdicts(store, ledger_id)[1] for ledger_id in (3, 4, 5, 9)] == [
            set(range(601)) - set(HELD.get(ledger_id, [])) for ledger_id in (3, 4, 5, 9)
        ]
        assert any("together they are whole" in line for line in store.reports())
        assert not store.log_facts()[0].is_damaged
        store.close()


def test_a_run_that_is_lost_twice_hides_its_own_entries_alone() -> None:
    """P7.1, STORAGE.md 5: between those of its neighbours nothing is absent; all other ids are as before."""
    runs = runs_of(WHOLE)
    for number, (at, _, ledger_id, first, last) in enumerate(runs):
        changes = [(copy + at + 9, copy + at + 12) for copy in PLACES.indexes]
        store = opened(damaged(*changes))
        assert check_truth(store) == ALL, "the entries are whole, so all are found"
        assert verdicts(store, 4)[1] == set(range(601)), "and nothing else was there"
        assert (store.log_facts()[0].is_damaged, store.log_facts()[0].is_rescued) == (False, True)
        store.close()
        offset = struct.unpack_from("<Q", WHOLE, PLACES.indexes[0] + at + 32)[0]
        store = opened(damaged(*changes, (offset, offset + 20)))
        check_truth(store)
        assert (store.log_facts()[0].is_damaged, store.log_facts()[0].is_rescued) == (True, False)
        assert first not in verdicts(store, ledger_id)[0] | verdicts(store, ledger_id)[1]
        before = runs[number - 1] if number else None
        behind = runs[number + 1] if number + 1 < len(runs) else None
        for other in (*HELD, 1, 4, 2**60):
            dark = {
                i
                for i in range(601)
                if (before is None or (other, i) > (before[2], before[4]))
                and (behind is None or (other, i) < (behind[2], behind[3]))
            }
            assert verdicts(store, other)[1] == set(range(601)) - dark - set(HELD.get(other, [])), (
                number,
                other,
            )
        assert ledger_id in HELD and last >= first
        store.close()


def test_every_byte_with_the_first_middle_and_last_entry_loses_these_alone() -> None:
    """P7.1, I31: two damages, one of them anywhere: only the damaged entries are lost. Each byte: `sweep_check.c`."""
    entries = entries_of(WHOLE)
    pairs = [entries[0], entries[len(entries) // 2], entries[-1]]
    for _, _, offset, size in pairs:
        for at in range(0, len(WHOLE), 61):
            content = bytearray(WHOLE)
            content[offset + size // 2] ^= 0x10
            content[at] ^= 0x81
            hit = {key[:2] for key in entries if key[2] <= at < key[2] + key[3] or key[2] == offset}
            store = opened(bytes(content))
            assert check_truth(store) == ALL - len(hit), (offset, at)
            for ledger_id in HELD:
                held, absent = verdicts(store, ledger_id)
                assert held | absent == set(range(601)) - {i for each, i in hit if each == ledger_id}, (
                    offset,
                    at,
                )
            store.close()


def entries_of(whole: bytes) -> list[tuple[int, int, int, int]]:
    """(ledger_id, entry_id, offset, size) of every entry, one behind the other."""
    places, found = places_in(whole), []
    at = places.entries
    while at < places.entries_end:
        entry = read_entry(memoryview(whole), at)
        found.append((entry.ledger_id, entry.entry_id, at, entry.size))
        at += entry.size
    return found


@both_versions
def test_a_misdirected_entry_hides_nothing_when_the_index_is_lost(whole: bytes) -> None:
    """I31, D5: a valid entry of elsewhere over two others; what it hides is never called absent."""
    size, places = 82, places_in(whole)
    for source, target in ((30, 3), (3, 30)):  # Whole over one, whole and a part over two.
        for more in (0, 20):
            content = bytearray(damaged(*places.index_ranges(), whole=whole))
            begin = places.entries + source * size
            at = places.entries + target * size
            content[at : at + size + more] = whole[begin : begin + size + more]
            store = opened(bytes(content))
            held, absent = verdicts(store, 3)
            assert target not in held | absent
            check_truth(store)
            store.close()


def test_entries_inside_a_payload_are_not_taken_for_entries() -> None:
    """A scan resumes only where good entries fill the rest: what a user stored may look like one."""
    inner = b"".join(encode_entry(77, entry_id, 4 * entry_id + 4, b"fake") for entry_id in range(5))
    disk = MemoryDisk({"/e/.made": b""})
    store = open_store(disk)
    for ledger_id in (76, 78):
        store.put(frame_of(memoryview(encode_entry(ledger_id, 0, len(inner), inner))))
    flush(store)
    store.close()
    for whole in (disk.read(LOG), as_version(1, disk.read(LOG))):
        places = places_in(whole)
        content = bytearray(whole)
        content[places.entries + 10] ^= 1  # The header of the first outer entry.
        if len(places.indexes) > 1:
            store = opened(bytes(content))
            assert store.read(77, 0, 9, 1000).absent == [(0, 9)]
            store.close()
        for at in places.indexes:
            content[at] ^= 1
        store = opened(bytes(content))
        assert ids_in(store.read(77, 0, 9, 1000).frame) == []
        for ledger_id in (76, 77):
            assert store.read(ledger_id, 0, 9, 1000).absent == []
        assert store.read(79, 0, 9, 1000).absent == ([] if len(places.indexes) == 1 else [(0, 9)])
        assert ids_in(store.read(78, 0, 9, 1000).frame) == [0]
        store.close()


def test_a_fence_that_could_be_forgotten_refuses_the_start() -> None:
    """P7.3: both copies of the states, or both descriptors: say so instead of serving."""
    with pytest.raises(
        StorageError, match=r"00000001\.elog: at offsets 4096 and .*a fence could be forgotten"
    ) as caught:
        opened(damaged((STATES_AT, STATES_AT + 3), (STATES_AGAIN_AT, STATES_AGAIN_AT + 3)))
    assert "start a new bookie under a new id" in caught.value.hint
    assert not caught.value.definite
    with pytest.raises(StorageError, match="neither descriptor is whole"):
        opened(damaged((3, 9), (len(WHOLE) - 20, len(WHOLE))))
    with pytest.raises(StorageError, match="neither descriptor is whole"):
        opened(b"")


def with_descriptor(**changes: int | bytes) -> bytes:
    """WHOLE with fields of both descriptors changed and summed again: another file, not a damaged one."""
    content = bytearray(WHOLE)
    head = content[:128]
    for name, value in changes.items():
        at, kind = {
            "version": (4, "<I"),
            "log_id": (8, "<I"),
            "token": (16, "16s"),
            "incarnation": (32, "16s"),
        }[name]
        struct.pack_into(kind, head, at, value)
    struct.pack_into("<I", head, 124, crc32c(head[:124]))
    content[:128] = content[-128:] = head
    return bytes(content)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 5}, "a version other than 1 to 4"),
        ({"token": b"X" * 16}, "of another bookie or disk incarnation"),
        ({"incarnation": b"X" * 16}, "of another bookie or disk incarnation"),
        ({"log_id": 7}, "file 00000007 of another bookie or disk incarnation, or was renamed"),
    ],
)
def test_another_ones_file_is_refused(change: dict[str, int | bytes], says: str) -> None:
    with pytest.raises(StorageError, match=says):
        opened(with_descriptor(**change))


@pytest.mark.parametrize("puts", [os.mkfifo, os.mkdir])
def test_a_pipe_in_the_place_of_a_log_refuses_the_start_and_makes_nobody_wait(
    tmp_path: Path, puts: Callable[[Path], None]
) -> None:
    """D12: what is no file cannot be read, whatever its name says (P7.1)."""
    puts(tmp_path / "00000001.elog")
    with pytest.raises(StorageError, match=r"00000001.elog: cannot be opened: (Illegal seek|Is a directory)"):
        NativeEntryStore([str(tmp_path)], TOKEN, INCARNATION, half_bytes_max=1 << 20)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOMEM])
def test_a_log_that_cannot_be_read_at_a_start_is_not_called_damaged(error: int) -> None:
    """P7.1, P7.3: its bytes may be as they were written. The word was that they are not, and that a new bookie is to
    take the place of this one."""
    disk = MemoryDisk({LOG: WHOLE})
    said = set()
    for nth in range(1, 12):
        disk.fail("read", nth=nth, error=error, stays=True)
        try:
            open_store(disk).close()
        except StorageError as refused:
            said.add((refused.args[0].rpartition("elog: ")[2], refused.hint.partition(",")[0]))
        disk.fail("read", nth=0)
    assert said == {
        (f"cannot be read: {os.strerror(error)}: the system refused the operation", "look at the device")
    }
    open_store(disk).close()
    disk.put(LOG, WHOLE[:100])
    with pytest.raises(StorageError, match="neither descriptor is whole"):
        open_store(disk)


def test_an_entry_that_cannot_be_read_now_is_unreadable_not_absent() -> None:
    """I31: I/O error, file gone, file short, while the store is open."""
    disk = MemoryDisk({LOG: WHOLE})
    store = open_store(disk)
    disk.fail("read", stays=True)
    assert verdicts(store, 9) == (set(), set(range(601)) - set(HELD[9]))
    disk.fail("read", nth=0)
    assert verdicts(store, 9)[0] == set(HELD[9])
    store.close()

    disk = MemoryDisk({LOG: WHOLE})
    store = open_store(disk)
    disk.drop(LOG)
    assert verdicts(store, 9) == (set(), set(range(601)) - set(HELD[9]))
    store.close()

    disk = MemoryDisk({LOG: WHOLE})
    store = open_store(disk)
    disk.put(LOG, WHOLE[: ENTRIES_AT + 10 * 82])
    assert verdicts(store, 3) == (set(range(10)), set(range(601)) - set(HELD[3]))
    store.close()


def test_a_bad_copy_is_replaced_by_a_valid_one() -> None:
    """P3.4c: where the stored copy fails its own digest, the valid one replaces it, for good."""
    disk = MemoryDisk({LOG: damaged((ENTRIES_AT + 60, ENTRIES_AT + 61))})
    store = open_store(disk)
    assert verdicts(store, 3)[0] == set(range(1, 40))
    store.put(make_frame(3, [0], size=30))
    assert verdicts(store, 3)[0] == set(range(40))
    flush(store, mark=2)
    store.close()
    store = open_store(disk)
    assert check_truth(store) == sum(map(len, HELD.values()))
    store.close()


def test_entries_that_changed_places_are_found() -> None:
    """I7, I41: a misdirected write of a valid entry is not the entry that was asked for."""
    content = bytearray(WHOLE)
    size = 82
    one, other = ENTRIES_AT + 3 * size, ENTRIES_AT + 7 * size
    content[one : one + size], content[other : other + size] = (
        WHOLE[other : other + size],
        WHOLE[one : one + size],
    )
    store = opened(bytes(content))
    assert verdicts(store, 3) == (set(range(40)) - {3, 7}, set(range(601)) - set(HELD[3]))
    store.close()


def test_an_index_with_impossible_numbers_is_scanned_around() -> None:
    """A checksum proves who wrote it, not that it makes sense: the runs are checked too."""
    for at, kind, value in ((8, "<q", -1), (16, "<q", 38), (32, "<Q", 4096), (40, "<I", 1), (44, "<I", 0),
                            (48, "<I", 2**31), (52, "<B", 65), (53, "<B", 2), (24, "<Q", 0)):  # fmt: skip
        content = bytearray(WHOLE)
        head, seed = content[:128], crc32c(content[:48])
        size = runs_of(WHOLE)[0][1] - 4
        for index_at in PLACES.indexes:
            struct.pack_into(kind, content, index_at + at, value)
            run_crc = crc32c(content[index_at : index_at + size], crc32c(bytes(8), seed))
            struct.pack_into("<I", content, index_at + size, run_crc)
        index_crc = crc32c(content[PLACES.indexes[1] : STATES_AGAIN_AT], seed)
        struct.pack_into("<I", head, 108, index_crc)
        struct.pack_into("<I", head, 124, crc32c(head[:124]))
        content[:128] = content[-128:] = head
        store = opened(bytes(content))
        assert check_truth(store) == sum(map(len, HELD.values())), at
        assert store.reports()
        store.close()


def test_unfinished_logs_are_left_by_id_and_removed_later() -> None:
    """I48: an id that was used by an unfinished file is not used again."""
    disk = MemoryDisk({LOG: WHOLE, "/e/00000004.elog.tmp": b"half", "/e/notes.txt": b"not ours"})
    store = open_store(disk)
    store.put(make_frame(3, [40], size=30))
    flush(store, mark=2)
    store.close()
    open_store(disk).close()
    assert sorted(disk.files(stable=False)) == [LOG, "/e/00000005.elog", "/e/notes.txt"]
