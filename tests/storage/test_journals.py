"""Several journals for one bookie: a record goes to the journal of its ledger, acknowledgements come in the order of
one count of tokens, each has its own mark (I40, I45, scenario 43), a failure of one ends all promises (P7.6)."""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path
from typing import Any

import pytest

from embedbk.codec.journal_records import RecordKind
from embedbk.errors import EmbedbkError, StorageError, UsageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.flushing import stored_marks
from embedbk.storage.journal import SLOT_COUNT, Journal
from embedbk.storage.journals import JOURNALS_MAX, Journals
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import lib
from tests.storage.small_bookie import TOKEN, commit, flush, held, open_disk
from tests.storage.stored_entries import make_frame

PLACES = ["/b1/journal", "/b1/journal-2"]
FIRST, SECOND = 2, 1  # Ledgers whose records go to the first and to the second of two.


def parts_on(disk: MemoryDisk, count: int) -> list[Journal]:
    return [
        Journal(f"/j{number}", io=disk, file_bytes=1 << 16, threaded=False, identity=bytes([number]) * 16)
        for number in range(count)
    ]


def start(disk: MemoryDisk, places: list[str] = PLACES, **settings: Any) -> BookieStorage:
    return open_disk(disk, journal_directories=places, **settings)


def put(storage: BookieStorage, ledger_id: int, first: int, count: int = 4) -> int:
    row = storage.table.get(ledger_id) or storage.table.create(ledger_id)
    row.last_entry = max(row.last_entry, first + count - 1)
    storage.table.mark_dirty(row)
    return storage.put_frame(make_frame(ledger_id, range(first, first + count), size=300))


# --- One count of tokens ------------------------------------------------------------------------------------


def test_durable_is_the_largest_token_up_to_which_every_journal_is_through() -> None:
    """I40: a token is told when all before it are durable, in whatever journal; a slow one holds the others back."""
    parts = parts_on(MemoryDisk(), 2)
    journals = Journals(parts)
    order = [FIRST, SECOND, FIRST, FIRST, SECOND]
    assert [journals.append(7, ledger_id, b"x") for ledger_id in order] == [1, 2, 3, 4, 5]
    assert journals.durable() == 0
    assert parts[0].step() == 3
    assert (journals.durable(), journals.marks()) == (1, [1, 0])
    assert parts[1].step() == 2
    assert (journals.durable(), journals.marks()) == (5, [3, 2])
    assert journals.append(7, SECOND, b"x") == 6
    assert parts[0].step() == 0
    assert journals.durable() == 5
    assert parts[1].step() == 1
    assert journals.durable() == 6
    journals.close()


def test_an_idle_journal_holds_nobody_back() -> None:
    journals = Journals(parts_on(MemoryDisk(), 3))
    for number in range(100):
        token = journals.append(7, 1, b"x")
        assert token == number + 1
        journals.step()
        assert journals.durable() == token
    assert sorted(journals.marks()) == [0, 0, 100]
    journals.close()


def test_tokens_go_on_after_a_restart_and_are_the_sum_of_all(tmp_path: Path) -> None:
    """I48: no token is given twice; with one journal, its own are the tokens."""
    disk = MemoryDisk()
    journals = Journals(parts_on(disk, 2))
    for ledger_id in range(30):
        journals.append(7, ledger_id, b"x")
    while journals.step():
        pass
    assert journals.durable() == 30
    marks = journals.marks()
    assert min(marks) > 0
    journals.close()
    journals = Journals(parts_on(disk, 2))
    assert (journals.next_token(), journals.durable(), journals.marks()) == (31, 30, marks)
    journals.close()


def test_in_random_orders_it_is_what_counting_says() -> None:
    """I40 (property): against a plain list of who got which token."""
    for seed in range(30):
        chance = random.Random(seed)
        count = chance.randint(1, 4)
        parts = parts_on(MemoryDisk(), count)
        journals = Journals(parts)
        owners: list[int] = []
        for _ in range(300):
            if chance.random() < 0.7:
                ledger_id = chance.randint(0, 9)
                assert journals.append(7, ledger_id, b"x" * chance.randint(0, 400)) == len(owners) + 1
                owners.append(lib.ebk_journals_part(journals.handle(), ledger_id))
            else:
                parts[chance.randrange(count)].step()
            if chance.random() < 0.5:
                own = [lib.ebk_journal_durable(part.handle()) for part in parts]
                durable, seen = 0, [0] * count
                while durable < len(owners) and seen[owners[durable]] < own[owners[durable]]:
                    seen[owners[durable]] += 1
                    durable += 1
                assert (journals.durable(), journals.marks()) == (durable, seen)
        journals.wait(len(owners))
        assert journals.durable() == len(owners)
        journals.close()


def test_what_waits_is_bounded_over_all_journals() -> None:
    """L13: the ring of tokens has room for SLOT_COUNT; one more is refused, nothing is queued."""
    parts = parts_on(MemoryDisk(), 2)
    journals = Journals(parts)
    for number in range(SLOT_COUNT):
        journals.append(7, number, b"")
    with pytest.raises(StorageError, match=f"{SLOT_COUNT} records wait") as refused:
        journals.append(7, 1, b"")
    assert refused.value.definite
    assert sum(part.next_token() - 1 for part in parts) == SLOT_COUNT
    journals.wait(SLOT_COUNT)
    assert journals.durable() == SLOT_COUNT
    assert journals.append(7, 1, b"") == SLOT_COUNT + 1
    journals.close()


def test_so_many_journals_are_allowed_as_c_has_room_for(tmp_path: Path) -> None:
    assert lib.EBK_JOURNALS_MAX == lib.EBK_MARKS_MAX == JOURNALS_MAX
    with pytest.raises(UsageError, match=f"17 journal directories; at most {JOURNALS_MAX}"):
        start(MemoryDisk(), [f"/b1/{number}" for number in range(17)])


# --- A bookie on them ---------------------------------------------------------------------------------------


def test_all_of_a_ledger_is_in_one_journal_and_replay_reads_all() -> None:
    """P7.3: entries, births and fences of a ledger stay in order; after a restart everything is there."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 40, 4):
        for ledger_id in range(8):
            put(storage, ledger_id, first)
    storage.append(RecordKind.FENCE, FIRST, b"")
    storage.append(RecordKind.FENCE, SECOND, b"")
    commit(storage)
    last = storage.next_token()
    storage._release()
    homes: dict[int, set[int]] = {}
    for number, place in enumerate(PLACES):
        with Journal(place, io=disk, file_bytes=1 << 16, threaded=False) as journal:
            for _, _, ledger_id, _ in journal.replay(0):
                homes.setdefault(ledger_id, set()).add(number)
    assert all(len(places) == 1 for places in homes.values())
    assert set().union(*homes.values()) == {0, 1}
    storage = start(disk)
    assert storage.next_token() == last
    assert all(held(storage, ledger_id) == list(range(40)) for ledger_id in range(8))
    for ledger_id in (FIRST, SECOND):
        row = storage.table.get(ledger_id)
        assert row is not None
        assert row.is_fenced
    storage._release()


def test_each_journal_has_its_own_mark() -> None:
    """Scenario 43: given two journals, when a flush ends, then each is trimmed and replayed by its own mark."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 2000, 4):
        put(storage, FIRST, first)
        commit(storage)
    put(storage, SECOND, 0)
    commit(storage)
    files = [sum(path.startswith(f"{place}/journal-") for path in disk.files()) for place in PLACES]
    flush(storage)
    assert stored_marks(storage._open_store(), storage._open_journals()) == [500, 1]
    assert storage.log_mark() == 501
    trimmed = [part.facts().trimmed_count for part in storage._open_journals().parts]
    assert files[0] > 3
    assert trimmed[0] > 0
    assert trimmed[1] == 0
    put(storage, SECOND, 4)
    commit(storage)
    storage._release()
    storage = start(disk)
    assert held(storage, SECOND) == list(range(8))
    assert held(storage, FIRST) == list(range(2000))
    flush(storage)
    assert stored_marks(storage._open_store(), storage._open_journals()) == [500, 2]
    storage._release()


def test_a_journal_is_not_trimmed_by_the_mark_of_another() -> None:
    """Scenario 43, P7.5: what one got while the flush ran is above its own mark, though below that of the other."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 2000, 4):
        put(storage, FIRST, first)
    commit(storage)
    storage.flushes.begin()
    for first in range(0, 1200, 4):
        put(storage, SECOND, first)
        commit(storage)
    assert storage.finish_flush()
    assert stored_marks(storage._open_store(), storage._open_journals()) == [500, 0]
    for first in range(1200, 2400, 4):  # What was trimmed is used again meanwhile.
        put(storage, SECOND, first)
        commit(storage)
        storage.step()
    disk.crash()
    storage._release()
    storage = start(disk)
    assert held(storage, SECOND) == list(range(2400))
    storage._release()


def test_a_mark_is_no_further_than_every_journal_up_to_it() -> None:
    """I45: a flush begun while one journal lags does not claim what that one has not made durable."""
    disk = MemoryDisk()
    storage = start(disk)
    put(storage, SECOND, 0)
    put(storage, FIRST, 0)
    storage._open_journals().parts[0].step()
    assert storage.durable() == 0
    flush_begun = storage._open_journals().marks()
    assert flush_begun == [0, 0]
    storage.flushes.begin()
    assert storage.finish_flush()
    assert stored_marks(storage._open_store(), storage._open_journals()) == [0, 0]
    disk.crash()
    with contextlib.suppress(EmbedbkError):
        storage._release()
    storage = start(disk)
    assert held(storage, FIRST) == list(range(4)), "it was durable, though nobody was told"
    storage._release()


def test_a_failed_sync_of_one_journal_ends_all_promises() -> None:
    """P7.6, I50: nothing is acknowledged any more, whatever its ledger; a restart has all that was."""
    disk = MemoryDisk()
    storage = start(disk)
    put(storage, FIRST, 0)
    put(storage, SECOND, 0)
    commit(storage)
    disk.break_device(PLACES[1], errno.EIO)
    token = put(storage, SECOND, 4)
    put(storage, FIRST, 4)
    for _ in range(3):
        storage.step()
    assert storage.durable() == token - 1
    assert "journal-2" in (storage.failed() or "")
    disk.crash()
    storage._release()
    storage = start(disk)
    assert held(storage, FIRST)[:4] == held(storage, SECOND)[:4] == list(range(4))
    assert storage.failed() is None
    storage._release()


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_journal_among_several_refuses_or_is_gone_on_behind(damaged: int) -> None:
    """I42, P7.4: the other one is as it was; with the owner's word the bookie goes on behind the damage."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 40, 4):
        put(storage, FIRST, first)
        put(storage, SECOND, first)
        commit(storage)
    storage._release()
    path = next(path for path in disk.files() if path.startswith(f"{PLACES[damaged]}/journal-"))
    content = bytearray(disk.read(path))
    content[4096 + 200] ^= 0xFF
    disk.put(path, bytes(content))
    with pytest.raises(StorageError, match=f"{PLACES[damaged]}.*acknowledged records are missing: 1"):
        start(disk)
    storage = start(disk, may_have_lost=True)
    assert storage.may_have_lost
    hurt, whole = (FIRST, SECOND) if damaged == 0 else (SECOND, FIRST)
    assert held(storage, whole) == list(range(40))
    assert held(storage, hurt) == list(range(4, 40))
    put(storage, hurt, 40)
    put(storage, whole, 40)
    commit(storage)
    storage._release()
    storage = start(disk)
    assert held(storage, whole) == list(range(44))
    assert held(storage, hurt) == list(range(4, 44))
    storage._release()


def test_another_number_of_journals_is_refused() -> None:
    """P7.2: the set belongs to the bookie; with fewer, records would be missing and nobody would know."""
    disk = MemoryDisk()
    storage = start(disk)
    put(storage, FIRST, 0)
    put(storage, SECOND, 0)
    commit(storage)
    flush(storage)
    storage._release()
    for places in (PLACES[:1], [*PLACES, "/b1/journal-3"]):
        with pytest.raises(StorageError, match=f"written beside 2 journals; given were {len(places)}"):
            start(disk, places)
    disk = MemoryDisk()
    storage = start(disk, PLACES[:1])
    put(storage, FIRST, 0)
    commit(storage)
    flush(storage)
    storage._release()
    with pytest.raises(StorageError, match="written beside 1 journals; given were 2"):
        start(disk)


def test_a_long_replay_is_flushed_in_between_with_the_marks_of_both() -> None:
    """I44, I45: a crash at any call of such a start leaves a bookie that starts, and holds everything."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 400, 4):
        put(storage, FIRST, first)
        put(storage, SECOND, first)
    commit(storage)
    storage._release()
    files = disk.files()
    whole = MemoryDisk(files)
    start(whole, flush_bytes=30_000)._release()
    calls = whole.calls()
    assert sum(path.endswith(".elog") for path in whole.files()) > 5
    for call in range(1, calls, 7):
        disk = MemoryDisk(files)
        disk.halt(call)
        with contextlib.suppress(EmbedbkError):
            start(disk, flush_bytes=30_000)._release()
        disk.crash(call)
        storage = start(disk)
        assert held(storage, FIRST) == held(storage, SECOND) == list(range(400))
        storage._release()


def test_threads_and_a_real_disk(tmp_path: Path) -> None:
    """P7.2, P7.5: journals in directories of their own, with their commit threads."""
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for round_ in range(3):
        storage = BookieStorage(tmp_path / "b1", "b1", TOKEN, journal_directories=places)
        for ledger_id in range(1, 10):
            assert held(storage, ledger_id) == list(range(4 * round_))
            token = put(storage, ledger_id, 4 * round_)
        storage.kick()
        storage._open_journals().wait(token)
        assert storage.durable() == token
        assert len(storage.filenos()) == 7  # Three journals, flush, copying, lost indexes, scrubber.
        storage.close()
    with pytest.raises(StorageError, match="has directories for"):
        BookieStorage(tmp_path / "b1", "b1", TOKEN, journal_directories=places[:2])
    with pytest.raises(StorageError, match="swapped"):
        BookieStorage(tmp_path / "b1", "b1", TOKEN, journal_directories=[places[1], places[0], places[2]])
