"""A disk that answers OK and did something else, and files that are not as they were left: never a wrong byte, never a
false "absent", never a forgotten fence (D4 to D7, D12; P7.1, P7.3)."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.journal_records import RecordKind
from embedbk.errors import StorageError, UsageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.journal import Journal
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.stored_entries import ids_in, make_frame, payload, payloads_in

SIZE = 700
FILE = "j/journal-0000000000000001"


def stepped(disk: MemoryDisk) -> Journal:
    return Journal("j", io=disk, threaded=False, file_bytes=65536, identity=b"i" * 16)


def commit_each(journal: Journal, *bodies: bytes) -> None:
    for body in bodies:
        token = journal.append(1, 7, body)
        journal.step()
        assert journal.durable() == token


def replayed(disk: MemoryDisk) -> list[bytes]:
    with stepped(disk) as journal:
        return [bytes(body) for _, _, _, body in journal.replay(0)]


# --- The table of calls ------------------------------------------------------------------------------------


def test_a_lost_write_is_answered_and_nowhere() -> None:
    """D6: OK, and not a byte of it."""
    disk = MemoryDisk()
    with stepped(disk) as journal:
        commit_each(journal, b"one")
        before = disk.read(FILE)
        disk.lie("write", "lost")
        commit_each(journal, b"two")
        assert (disk.lies(), disk.read(FILE) == before) == (1, True)
        commit_each(journal, b"three")
        assert (disk.lies(), disk.read(FILE) == before) == (1, False)


def test_a_misdirected_write_stands_elsewhere() -> None:
    """D5: the right bytes, whole sectors further on."""
    disk, honest = MemoryDisk(), MemoryDisk()
    for each in (disk, honest):
        with stepped(each) as journal:
            if each is disk:
                disk.lie("write", "misdirected", part="journal-", where=8 * 512)
            commit_each(journal, b"one")
    told, meant = disk.read(FILE), honest.read(FILE)
    assert told[4096:8192] == bytes(4096)
    assert told[8192:12288] == meant[4096:8192]


@pytest.mark.parametrize("bit", [0, 77, 4096 * 8 - 1])
def test_a_flipped_write_differs_in_one_bit(bit: int) -> None:
    """D4, in flight."""
    disk, honest = MemoryDisk(), MemoryDisk()
    for each in (disk, honest):
        with stepped(each) as journal:
            if each is disk:
                disk.lie("write", "flipped", where=bit)
            commit_each(journal, b"one")
    told, meant = disk.read(FILE), honest.read(FILE)
    changed = [i for i in range(len(told)) if told[i] != meant[i]]
    assert changed == [4096 + bit // 8]
    assert told[changed[0]] ^ meant[changed[0]] == 1 << bit % 8


def test_stale_sectors_are_what_stood_there_before() -> None:
    """D7: at rest by surgery, and in flight by one read."""
    disk = MemoryDisk()
    disk.keep_history()
    with stepped(disk) as journal:
        before = disk.read(FILE)
        commit_each(journal, b"one", b"two")
        after = disk.read(FILE)
    disk.lie("read", "stale", part="journal-", nth=1)
    with pytest.raises(StorageError):
        stepped(disk)  # Its first read is of the header, which was zeros once.
    assert disk.lies() == 1
    disk.revert(FILE, 4096, 4096)
    assert disk.read(FILE) == before[:8192] + after[8192:]
    with pytest.raises(StorageError, match="No such file"):
        disk.revert("j/none", 0, 1)


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_lie_about_the_last_write_can_be_taken_back_by_the_crash(is_direct: bool) -> None:
    """D6: nobody can tell that one from a loss of power; `spares_last` keeps a test to what can be told."""
    for spares_last in (False, True):
        disk = MemoryDisk()
        disk.refuse_direct(at_open=not is_direct)
        journal = stepped(disk)
        commit_each(journal, b"one")
        disk.lie("write", "lost", spares_last=spares_last)
        commit_each(journal, b"two")
        disk.crash()
        journal.close()
        assert replayed(disk) == ([b"one", b"two"] if spares_last else [b"one"])


def test_a_lie_needs_a_call_that_can_tell_it() -> None:
    disk = MemoryDisk()
    for call, kind in (("read", "lost"), ("sync", "lost"), ("write", "stale"), ("write", "torn")):
        with pytest.raises(UsageError, match=kind):
            disk.lie(call, kind)


# --- The journal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lost", "misdirected", "flipped"])
@pytest.mark.parametrize("where", [512, 4096, 3 * 4096, 7 * 512])
@pytest.mark.parametrize("is_direct", [True, False])
def test_a_journal_with_a_later_group_refuses(kind: str, where: int, is_direct: bool) -> None:
    """I42: a later group proves that the one before was durable; without it the journal is damaged."""
    disk = MemoryDisk()
    disk.refuse_direct(at_open=not is_direct)
    with stepped(disk) as journal:
        commit_each(journal, b"one")
        disk.lie("write", kind, where=where, spares_last=True)
        commit_each(journal, b"two" * 1300, b"three")
    disk.crash()
    with pytest.raises(StorageError):
        replayed(disk)


def test_a_stale_group_of_a_recycled_file_is_no_record() -> None:
    """D7, I43: what an earlier generation left in the file fails its sum, and a later group proves the damage."""
    disk = MemoryDisk()
    disk.keep_history()
    with stepped(disk) as journal:
        while not any("0000000000000004" in path for path in disk.files()):
            commit_each(journal, b"x" * 9000)
            journal.trim(journal.durable())
        commit_each(journal, *[b"y" * 9000] * 3)
        recycled = max(path for path in disk.files() if "journal-" in path and b"y" * 9000 in disk.read(path))
        journal.trim(0)
    disk.revert(recycled, 4096, 4096)
    with pytest.raises(StorageError):
        replayed(disk)


# --- A bookie ----------------------------------------------------------------------------------------------

TOKEN, INCARNATION = b"T" * 16, b"I" * 16
LEDGERS, ENTRIES = (3, 5), 24


def open_bookie(disk: MemoryDisk) -> BookieStorage:
    return BookieStorage(
        "/b1", "b1", TOKEN, io=disk, incarnation=INCARNATION, threaded=False,
        flush_bytes=20_000, cache_bytes_max=4 << 20, journal_file_bytes=1 << 16,
    )  # fmt: skip


def filled(disk: MemoryDisk, *, flushes: bool = True) -> BookieStorage:
    """Two ledgers, one of them fenced; entry logs and a journal above them."""
    bookie = open_bookie(disk)
    for entry_id in range(ENTRIES):
        for ledger_id in LEDGERS:
            row = bookie.table.get(ledger_id) or bookie.table.create(ledger_id)
            row.last_entry = entry_id
            bookie.table.mark_dirty(row)
            bookie.put_frame(make_frame(ledger_id, [entry_id], size=SIZE))
        if entry_id == 5:
            row = bookie.table.get(5)
            assert row is not None
            row.is_fenced = 1
            bookie.table.mark_dirty(row)
            bookie.append(RecordKind.FENCE, 5, b"")
        while bookie.step():
            pass
        bookie.durable()
        if flushes:
            bookie.begin_flush_if_due()
            bookie.finish_flush()
    return bookie


def check_truth(bookie: BookieStorage) -> int:
    """Whatever it says is true: right bytes, no false absence, no forgotten fence. How many entries it serves."""
    served = 0
    for ledger_id in LEDGERS:
        for entry_id in range(ENTRIES + 2):
            found = bookie.read(ledger_id, entry_id, entry_id, 1 << 20)
            assert payloads_in(found.frame) == {i: payload(ledger_id, i, SIZE) for i in ids_in(found.frame)}
            if entry_id < ENTRIES:
                assert not found.absent, (ledger_id, entry_id)
            served += found.frame is not None
    row = bookie.table.get(5)
    assert row is not None
    assert row.is_fenced
    return served


def outcome(disk: MemoryDisk) -> int | None:
    """Entries served by a start on this disk; None: it refused."""
    try:
        bookie = open_bookie(disk)
    except StorageError:
        return None
    try:
        return check_truth(bookie)
    finally:
        bookie.close()


@pytest.mark.parametrize("kind", ["lost", "misdirected", "flipped"])
def test_no_wrong_write_of_a_flush_gives_a_wrong_answer(kind: str) -> None:
    """I7, I31, D4 to D6: each write of an entry log in turn; the bookie refuses, or tells what it cannot read."""
    outcomes: list[int | None] = []
    nth, told = 1, 1
    while told:
        for where in (100, 4096 * 8 + 9, 5 * 4096 * 8 + 5, 6 * 4096 * 8, 41_000 * 8 + 3):
            disk = MemoryDisk()
            disk.lie("write", kind, part="entries/", nth=nth, where=where)
            bookie = filled(disk)
            told = disk.lies()
            bookie.close()
            outcomes += [outcome(disk)] * told
        nth += 1
    assert any(served is None or served < len(LEDGERS) * ENTRIES for served in outcomes)


@pytest.mark.parametrize("kind", ["misdirected", "flipped", "stale"])
def test_no_wrong_read_gives_a_wrong_answer(kind: str) -> None:
    """I7, I31, D4, D5, D7: each read of a start, and of what comes after it, in turn."""
    disk = MemoryDisk()
    disk.keep_history()
    filled(disk).close()
    whole = outcome(disk)
    assert whole == len(LEDGERS) * ENTRIES
    worse = 0
    for nth in range(1, 200):
        before = disk.lies()
        disk.lie("read", kind, part="e", nth=nth, where=4096 + 3 * nth)
        worse += outcome(disk) != whole
        if disk.lies() == before:
            break
        disk.lie("read", kind, nth=0)
    assert worse
    assert outcome(disk) == whole  # A read that was wrong once hurts nothing for good.


def images() -> dict[str, dict[str, bytes]]:
    """What a power cut leaves: with entry logs, and with a journal alone."""
    found = {}
    for name, flushes in (("logs", True), ("journal", False)):
        disk = MemoryDisk()
        bookie = filled(disk, flushes=flushes)
        found[name] = disk.files()
        disk.crash()
        bookie.close()
    return found


IMAGES = images()


def last_group(content: bytes) -> int:
    """Offset of the last group of a journal's file; 0 when it has none."""
    return max(
        (at for at in range(4096, len(content), 4096) if content[at + 4 : at + 8] == b"EBKG"), default=0
    )


def harmed(content: bytes, harm: str) -> list[bytes]:
    """Variants of a file: bit, byte, sector, whole tail; never the last group, which nobody can miss alone."""
    end = last_group(content) or len(content)
    if harm == "flipped":
        return [
            content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
            for at in range(3, end, 1_999)
        ]
    if harm in ("zeros", "ones"):
        fill = (b"\0" if harm == "zeros" else b"\xff") * 512
        return [content[:at] + fill + content[at + 512 :] for at in range(0, end - 511, 4096 + 512)]
    if harm == "truncated":
        return [content[:at] for at in range(0, end, 4999)]
    tail = b"\0" * 8192 if harm == "extended" else bytes(range(256)) * 32
    return [content + tail]


@pytest.mark.parametrize("image", ["logs", "journal"])
@pytest.mark.parametrize("harm", ["flipped", "zeros", "ones", "truncated", "extended", "garbage", "missing"])
def test_no_harm_to_a_file_at_rest_gives_a_wrong_answer(image: str, harm: str) -> None:
    """I7, I31, I41, I42, D4, D12: file by file; refuse, or serve what is whole and call the rest unreadable."""
    files = IMAGES[image]
    newest = max((p for p in files if "journal-" in p and last_group(files[p])), default="")
    tried = 0
    for path, content in files.items():
        if not content:
            continue
        if harm == "missing":
            if path == newest:
                continue  # Without its newest file a journal is an older journal: D13, and told by the operator.
            variants: list[Any] = [None]
        else:
            variants = harmed(content, harm)
        for variant in variants:
            rest = {name: held for name, held in files.items() if name != path}
            outcome(MemoryDisk(rest if variant is None else rest | {path: variant}))
            tried += 1
    assert tried or harm == "missing"
