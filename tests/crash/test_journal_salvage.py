"""Going on behind a damaged journal (P7.4, I32, I42): what is read, what is known to be lost, and a crash anywhere.

"Never skip and serve": without the owner's word a journal that may have lost something stays refused; with it the
bookie starts as unclean, with everything that can be read before and behind the damage.
"""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from embedbk.errors import StorageError
from embedbk.storage.journal import DamagedJournal, Journal
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.salvage import JournalSalvage
from tests.storage.journal_pages import BLOCK_BYTES, read_file
from tests.storage.test_bookie_storage import commit, fence, flush, held, is_fenced, on_memory, put

FILE_BYTES = 65536
LAST = 80  # The last token of `filled`.
FIRST = "j/journal-0000000000000001"


def stepped(disk: MemoryDisk) -> Journal:
    return Journal("j", io=disk, threaded=False, file_bytes=FILE_BYTES, identity=b"i" * 16)


def salvaged(disk: MemoryDisk, after: int = 0) -> tuple[list[int], Any]:
    """Tokens that can be read, each checked against what was appended, and the facts."""
    with JournalSalvage("j", after=after, io=disk, file_bytes=FILE_BYTES) as salvage:
        tokens = []
        for token, kind, ledger_id, content in salvage.records():
            assert (kind, ledger_id, bytes(content)) == (token % 7, token, body(token))
            tokens.append(token)
        return tokens, salvage.facts()


def body(token: int) -> bytes:
    return random.Random(token).randbytes((token * 977) % 6000)


def filled() -> tuple[MemoryDisk, list[tuple[str, Any]]]:
    """A journal of several files, in groups of one or two records; and its groups by file, in order."""
    disk = MemoryDisk()
    journal = stepped(disk)
    for _ in range(LAST // 2):
        for _ in range(2):
            token = journal.next_token()
            journal.append(token % 7, token, body(token))
        while journal.step():
            pass
    journal.close()
    disk.crash()
    groups = [
        (path, group)
        for path, content in sorted(disk.files().items())
        if "journal-" in path
        for group in read_file(content)[1]
    ]
    assert len({path for path, _ in groups}) >= 4
    return disk, groups


def tokens_of(group: Any) -> set[int]:
    return {record[0] for record in group.records}


def flip(disk: MemoryDisk, path: str, at: int, size: int = 1) -> None:
    content = bytearray(disk.read(path))
    for place in range(at, at + size):
        content[place] ^= 0xFF
    disk.put(path, bytes(content))


# --- What is read ----------------------------------------------------------------------------------------------


def test_whichever_group_is_damaged_the_others_are_read_and_the_loss_is_counted() -> None:
    """I42: header or body, in the newest file or an older one; only the very last group cannot be told from a torn
    one."""
    disk, groups = filled()
    image, last = disk.files(), LAST
    for number, (path, group) in enumerate(groups):
        for at in (group.position + 9, group.position + 64 + 20):
            broken = MemoryDisk(image)
            flip(broken, path, at)
            tokens, facts = salvaged(broken)
            hurt = tokens_of(group)
            assert tokens == [token for token in range(1, last + 1) if token not in hurt]
            is_last = number == len(groups) - 1
            assert facts.may_have_lost != is_last
            assert facts.missing_count == (0 if is_last else len(hurt))
            is_header = at == group.position + 9
            assert facts.start_token == last + 1 - len(hurt) * (is_last and is_header)


def test_damage_below_the_log_mark_is_no_loss() -> None:
    """P7.5: what the mark covers is in entry logs, whatever became of its records here."""
    disk, groups = filled()
    for number in (0, 3):
        flip(disk, groups[number][0], groups[number][1].position + 9)
    mark = max(tokens_of(groups[3][1]))
    assert salvaged(disk, after=mark - 1)[1].missing_count == 1
    tokens, facts = salvaged(disk, after=mark)
    assert tokens == list(range(mark + 1, LAST + 1))
    assert not facts.may_have_lost
    assert facts.damage == ""  # Nothing that is needed.


@pytest.mark.parametrize("size", [0, 100, BLOCK_BYTES, 5 * BLOCK_BYTES, FILE_BYTES - 1])
@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_file_cut_short_gives_what_it_still_has(index: int, size: int) -> None:
    """D12: an older file's loss is counted by the tokens around it; of the newest nobody knows how far it went."""
    disk, groups = filled()
    path = sorted({path for path, _ in groups})[index]
    disk.put(path, disk.read(path)[:size])
    tokens, facts = salvaged(disk)
    cut = [group for where, group in groups if where == path and group.end > size]
    gone = {token for group in cut for token in tokens_of(group)}
    assert tokens == [token for token in range(1, LAST + 1) if token not in gone]
    assert facts.missing_count == (0 if index == -1 else len(gone))
    assert facts.may_have_lost == (index == -1 or bool(gone))


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_file_without_its_header_gives_its_groups(index: int) -> None:
    """The name tells the generation, other files the identity, and each group whether both are right."""
    disk, groups = filled()
    path = sorted({path for path, _ in groups})[index]
    flip(disk, path, 0, 512)
    tokens, facts = salvaged(disk)
    assert tokens == list(range(1, LAST + 1))
    assert facts.missing_count == 0
    assert facts.start_token == LAST + 1


def test_the_only_header_may_be_the_bad_one() -> None:
    disk = MemoryDisk()
    with stepped(disk) as journal:
        for token in range(1, 9):
            journal.append(token % 7, token, body(token))
            journal.step()
    assert [path for path in disk.files() if "journal-" in path] == [FIRST]
    flip(disk, FIRST, 40)
    assert salvaged(disk)[0] == list(range(1, 9))


def test_a_missing_file_is_a_counted_loss_and_an_unreadable_sector_is_passed() -> None:
    """D3, D12."""
    disk, groups = filled()
    path = sorted({path for path, _ in groups})[1]
    disk.drop(path)
    count = sum(len(tokens_of(group)) for where, group in groups if where == path)
    assert salvaged(disk)[1].missing_count == count
    disk, groups = filled()
    disk.fail("read", nth=40)
    tokens, facts = salvaged(disk)
    assert 0 < LAST - len(tokens) <= 2
    assert facts.may_have_lost
    assert "errno 5" in facts.damage


def test_a_journal_that_ends_below_the_mark_goes_on_above_it() -> None:
    """Tokens only rise: a new record below the mark would never be replayed."""
    disk, _ = filled()
    tokens, facts = salvaged(disk, after=500)
    assert tokens == []
    assert facts.may_have_lost
    assert facts.start_token == 501


def test_an_old_version_of_a_group_is_a_loss_although_no_token_is_missing() -> None:
    """D7: the group is valid, but it is not the one that its follower was written behind."""
    disk, groups = filled()
    path, group = groups[4]
    assert tokens_of(group) == {9, 10}
    other = MemoryDisk()
    with stepped(other) as journal:
        for number in range(5):
            for token in (2 * number + 1, 2 * number + 2):
                content = b"old" if number == 4 else body(token)
                journal.append(token % 7, token, content)
            journal.step()
    content = bytearray(disk.read(path))
    content[group.position : group.end] = bytes(group.end - group.position)
    content[group.position : group.position + BLOCK_BYTES] = other.read(path)[group.position :][:BLOCK_BYTES]
    disk.put(path, bytes(content))
    with JournalSalvage("j", after=0, io=disk, file_bytes=FILE_BYTES) as salvage:
        assert len(list(salvage.records())) == LAST
        assert salvage.facts().may_have_lost
        assert salvage.facts().missing_count == 0


def test_files_of_others_and_of_later_versions_are_refused() -> None:
    disk, _ = filled()
    with stepped(MemoryDisk()) as journal:
        journal.append(1, 1, b"")
    other = MemoryDisk()
    with Journal("j", io=other, threaded=False, file_bytes=FILE_BYTES, identity=b"o" * 16) as journal:
        journal.append(1, 1, b"")
    disk.put("j/journal-0000000000000002", other.read(FIRST))
    with pytest.raises(StorageError, match=r"another journal|renamed"):
        salvaged(disk)
    with (
        stepped(MemoryDisk()),
        stepped(other2 := MemoryDisk()),
        pytest.raises(StorageError, match="has it open"),
    ):
        salvaged(other2)


# --- Going on ----------------------------------------------------------------------------------------------------


def go_on(disk: MemoryDisk) -> int:
    with JournalSalvage("j", after=0, io=disk, file_bytes=FILE_BYTES, identity=b"i" * 16) as salvage:
        list(salvage.records())
        salvage.finish()
        return salvage.facts().start_token


def test_the_start_file_says_where_tokens_go_on() -> None:
    """Dense and rising behind the damage, also after another restart; what was before is set aside, never read."""
    disk, groups = filled()
    flip(disk, groups[3][0], groups[3][1].position)
    old = [path for path in disk.files() if "journal-" in path]
    start = go_on(disk)
    assert start == LAST + 1
    for life in range(3):
        with stepped(disk) as journal:
            assert journal.next_token() == start + life
            assert [token for token, *_ in journal.replay(start - 1)] == list(range(start, start + life))
            assert journal.append(1, 1, b"x") == start + life
            journal.step()
        disk.crash()
    names = list(disk.files())
    assert [path.replace("journal-", "damaged-") in names for path in old] == [True] * len(old)
    assert not set(old) & set(names)
    with stepped(disk) as journal, pytest.raises(StorageError, match="oldest record"):
        journal.replay(start - 2)  # Entry logs that reach less far are older than the decision.


def test_damage_behind_a_start_is_salvaged_from_there() -> None:
    disk, groups = filled()
    flip(disk, groups[3][0], groups[3][1].position)
    start = go_on(disk)
    with stepped(disk) as journal:
        for token in range(start, start + 6):
            journal.append(token % 7, token, body(token))
            journal.step()
    path = next(path for path in sorted(disk.files()) if "journal-" in path)
    flip(disk, path, read_file(disk.read(path))[1][2].position)
    tokens, facts = salvaged(disk, after=start - 1)
    assert tokens == [token for token in range(start, start + 6) if token != start + 2]
    assert (facts.missing_count, facts.start_token) == (1, start + 6)
    assert go_on(disk) == start + 6
    with stepped(disk) as journal:
        assert journal.next_token() == start + 6


@pytest.mark.parametrize("call", ["open", "write", "sync", "allocate", "rename", "sync_directory"])
def test_a_crash_in_the_decision_leaves_it_to_be_made_again_or_made(call: str) -> None:
    """Each call fails in turn, then the power goes: the journal is refused as before, or begins with the start file."""
    disk, groups = filled()
    flip(disk, groups[-2][0], groups[-2][1].position)
    assert groups[-2][0] == groups[-1][0]  # In the newest file: opening finds it.
    image, outcomes = disk.files(), set()
    for nth in range(1, 30):
        broken = MemoryDisk(image)
        broken.fail(call, nth=nth, stays=True)
        try:
            go_on(broken)
            stepped(broken).close()
        except StorageError:
            pass
        broken.crash(nth)
        try:
            with stepped(broken) as journal:
                assert journal.next_token() == LAST + 1
                outcomes.add("made")
        except DamagedJournal:
            assert go_on(broken) == LAST + 1
            stepped(broken).close()
            outcomes.add("again")
    assert outcomes == {"made", "again"}


# --- A bookie ------------------------------------------------------------------------------------------------------


def damaged_bookie(**settings: Any) -> MemoryDisk:
    """Ledger 5 with entries 0..31 in eight records, the third of them bad; a fence of ledger 6 behind it."""
    disk = MemoryDisk()
    bookie = on_memory(disk, **settings)
    for number in range(8):
        put(bookie, 5, range(number * 4, number * 4 + 4))
        commit(bookie)
    fence(bookie, 6)
    commit(bookie)
    disk.crash()
    path = "/b1/journal/journal-0000000000000001"
    flip(disk, path, read_file(disk.read(path))[1][2].position + 700)
    return disk


REST = [*range(8), *range(12, 32)]


def test_scenario_48() -> None:
    """Scenario 48: told to go on, the bookie starts as unclean with all that can be read; untold, it refuses, and
    both without a word about absent entries. (In BookKeeper the option skipped the records and served.)"""
    disk = damaged_bookie()
    for _ in range(2):
        with pytest.raises(DamagedJournal, match="acknowledged records are missing: 1") as refused:
            on_memory(disk)
        assert "--may-have-lost" in refused.value.hint
    bookie = on_memory(disk, may_have_lost=True)
    assert bookie.may_have_lost  # The host lists and puts into limbo before it serves (P7.4).
    assert held(bookie, 5) == REST
    assert is_fenced(bookie, 6)
    assert bookie.next_token() == 10
    assert bookie.log_mark() == 9
    put(bookie, 5, range(40, 44))
    commit(bookie)
    disk.crash()
    again = on_memory(disk)  # Finished: no word is needed any more.
    assert held(again, 5) == [*REST, *range(40, 44)]
    assert is_fenced(again, 6)
    assert again.next_token() == 11


def test_damage_below_the_mark_needs_no_decision(caplog: pytest.LogCaptureFixture) -> None:
    """P7.5: all of it is in entry logs; the journal goes on behind the damage by itself, and says so."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(8):
        put(bookie, 5, range(number * 4, number * 4 + 4))
        commit(bookie)
        if number == 4:
            flush(bookie)
    disk.crash()
    path = "/b1/journal/journal-0000000000000001"
    flip(disk, path, read_file(disk.read(path))[1][2].position + 700)
    bookie = on_memory(disk)
    assert not bookie.may_have_lost
    assert held(bookie, 5) == list(range(32))
    assert "nothing was lost" in caplog.text
    assert bookie.next_token() == 9


def test_a_long_damaged_journal_is_taken_in_in_bounded_memory() -> None:
    disk = damaged_bookie()
    bookie = on_memory(disk, may_have_lost=True, flush_bytes=2000)
    assert held(bookie, 5) == REST
    assert is_fenced(bookie, 6)
    assert bookie.next_token() == 10


@pytest.mark.parametrize("flush_bytes", [2000, 20_000])
@pytest.mark.parametrize("call", ["open", "write", "sync", "rename", "sync_directory"])
def test_a_bookie_that_dies_while_it_goes_on_starts_as_unclean_again(call: str, flush_bytes: int) -> None:
    """P7.4, I32: whatever the crash leaves, the next start has the same entries, fence and tokens; its note of the
    loss outlives the crash until limbo is durable (`LossNote`; here it is told again)."""
    image = damaged_bookie().files()
    for nth in range(1, 40, 2 if flush_bytes == 2000 else 1):
        disk = MemoryDisk(image)
        disk.fail(call, nth=nth, error=errno.EIO, stays=True)
        try:
            first = on_memory(disk, may_have_lost=True, flush_bytes=flush_bytes)
            is_done = True
        except StorageError:
            is_done = False
        disk.fail(call, nth=0)
        disk.crash(nth)
        bookie = on_memory(disk, may_have_lost=True, flush_bytes=flush_bytes)
        assert held(bookie, 5) == REST, (call, nth)
        assert is_fenced(bookie, 6)
        assert bookie.next_token() == 10
        assert bookie.log_mark() == 9
        if is_done:
            del first
            break
    else:
        pytest.fail("more calls than were tried")


def test_an_unreadable_journal_is_not_given_up_without_a_word() -> None:
    """D3: an I/O error at start may be gone at the next; told of a loss, the rest is taken."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(8):
        put(bookie, 5, range(number * 4, number * 4 + 4))
        commit(bookie)
    disk.crash()
    for nth in range(3, 12):
        disk.fail("read", nth=nth)
        with pytest.raises(StorageError, match="errno 5"):
            on_memory(disk)
        disk.fail("read", nth=0)
        disk.crash()
    assert held(on_memory(disk), 5) == list(range(32))


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize(
    ("call", "error"),
    [("open", errno.EMFILE), ("open", errno.EIO), ("read", errno.EIO), ("sync", errno.ENOMEM)],
)
def test_a_call_that_fails_once_while_it_goes_on_gives_up_nothing_that_is_whole(
    call: str, error: int, is_told: bool
) -> None:
    """P7.4, I32: the journal is judged and then taken in, by two readings; what the second one alone could not read is
    whole, nobody judged it to be lost, and it was given up without a word. Below the mark one record is bad."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(8):
        put(bookie, 5, range(number * 4, number * 4 + 4))
        commit(bookie)
        if number == 4:
            flush(bookie)
    disk.crash()
    path = "/b1/journal/journal-0000000000000001"
    flip(disk, path, read_file(disk.read(path))[1][2].position + 700)
    image, refused, nth, calls = disk.files(), 0, 0, 1
    while nth < calls:
        nth += 1
        disk = MemoryDisk(image)
        disk.fail(call, nth=nth, error=error)
        try:
            bookie = on_memory(disk, may_have_lost=is_told, flush_bytes=2000)
            calls = max(calls, disk.calls(call))
        except StorageError:
            refused += 1
            calls = max(calls, nth + 1)
            disk.fail(call, nth=0)
            disk.crash()
            bookie = on_memory(disk, may_have_lost=is_told, flush_bytes=2000)
        disk.fail(call, nth=0)
        assert held(bookie, 5) == list(range(32)), nth
        assert bookie.may_have_lost == is_told
    assert refused > 3
