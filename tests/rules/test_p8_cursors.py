"""P8.8: one commit of a consumer, and what a refused or unknown one means; which ledgers a cursor holds."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import METADATA_VERSION, LogSegment
from embedbk.codec.log_cursors import (
    CursorHold,
    CursorRecord,
    LogCursors,
    NamedCursor,
    cursor_path,
    decode_cursor,
    decode_log_cursors,
    encode_cursor,
    encode_log_cursors,
    log_cursors_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.core.cursor_commit import CommitDone, CursorCommit
from embedbk.core.metadata_words import Transact
from embedbk.core.truncating import LogTruncating, Round
from embedbk.core.truncation import Held, HoldingCursor, Terms, TruncationVerdict, judge
from embedbk.errors import CursorLost, MetadataUnavailable, NoSuchCursor, StorageError
from tests.rules.test_p8_logs import LOG, listed
from tests.rules.test_p8_pages import run
from tests.rules.test_p8_truncating import NOW_MS, came_to, held_at, rolled, truncate, truncating
from tests.rules.world import Client, World

PATH, LEASE = cursor_path(LOG, "c"), "/locks/cursor"


def put(world: World, key: str, value: bytes) -> int:
    return world.catalog.transact([], [Put(key, value)])[1]


def set_cursor(world: World, offset: int, epoch: int = 0, moved_ms: int = 1) -> int:
    return put(world, PATH, encode_cursor(CursorRecord(METADATA_VERSION, offset, epoch, moved_ms)))


def stands(world: World) -> CursorRecord:
    return decode_cursor(world.catalog.values[PATH][0])


def committing(world: World, epoch: int, revision: int, offset: int, name: str = "c") -> Client:
    return world.client(name, CursorCommit(LOG, "c", LEASE, epoch, revision, offset, NOW_MS))


def test_a_commit_compares_the_cursor_and_the_lease() -> None:
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    client = committing(world, epoch, at, 9)
    client.start()
    commit = held_at(world, "commit").effect
    assert isinstance(commit, Transact)
    assert [(each.key, each.revision) for each in commit.when] == [(PATH, at), (LEASE, epoch)]
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert client.ended.result == CommitDone(9, world.catalog.revision, True)
    assert stands(world) == CursorRecord(METADATA_VERSION, 9, epoch, NOW_MS)


def test_a_cursor_that_was_set_by_hand_is_obeyed_and_stays() -> None:
    """ "A cursor that somebody moved is obeyed, never written over"."""
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    moved_at = set_cursor(world, 200)
    client = run(world, committing(world, epoch, at, 9))
    assert client.ended.result == CommitDone(200, moved_at, False)
    assert stands(world).offset == 200


@pytest.mark.parametrize("by_now", ["another", "nobody"])
def test_who_lost_the_lease_commits_nothing(by_now: str) -> None:
    """I102: "committed by whoever has its lease"."""
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    if by_now == "another":
        later = put(world, LEASE, b"another")
        set_cursor(world, 5, later)
    else:
        world.catalog.transact([], [Delete(LEASE)])
    client = run(world, committing(world, epoch, at, 9))
    assert isinstance(client.ended.error, CursorLost) and client.ended.error.definite
    assert stands(world).offset == (5 if by_now == "another" else 3)


def test_a_cursor_that_is_gone_is_said() -> None:
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    world.catalog.transact([], [Delete(PATH)])
    assert isinstance(run(world, committing(world, epoch, at, 9)).ended.error, NoSuchCursor)
    put(world, PATH, b"what is this")
    assert isinstance(run(world, committing(world, epoch, at, 9, "d")).ended.error, StorageError)


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_commit_of_unknown_outcome_is_settled_by_what_stands_there(lands: bool | None) -> None:
    """P2.2: "settled by reading a newer version, or by winning another compare-and-set from the same version"."""
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    client = committing(world, epoch, at, 9)
    client.start()
    first = held_at(world, "commit")
    world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(world, "commit")
        assert world.catalog.land(first)
        world.catalog.answer(again)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert client.ended.result == CommitDone(9, world.catalog.values[PATH][1], True)
    assert stands(world).offset == 9


def test_a_move_that_comes_behind_an_unknown_commit_is_obeyed() -> None:
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    client = committing(world, epoch, at, 9)
    client.start()
    first = held_at(world, "commit")
    world.catalog.tell_unknown(first, lands=True)
    moved_at = set_cursor(world, 1)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert client.ended.result == CommitDone(1, moved_at, False)


def test_an_earlier_commit_of_ours_that_landed_unheard_is_gone_on_from() -> None:
    """Its caller gave up waiting; the next commit compares what stands there now."""
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    set_cursor(world, 6, epoch)
    client = run(world, committing(world, epoch, at, 9))
    assert client.ended.result == CommitDone(9, world.catalog.revision, True)


def test_what_metadata_does_not_run_ends_it() -> None:
    world = World()
    at, epoch = set_cursor(world, 3), put(world, LEASE, b"me")
    world.catalog.refuses = "it is full"
    error = run(world, committing(world, epoch, at, 9)).ended.error
    assert isinstance(error, MetadataUnavailable) and error.definite and "it is full" in str(error)


# --- What holds ---------------------------------------------------------------------------------------------


def name_cursors(world: World, *named: NamedCursor) -> int:
    return put(world, log_cursors_path(LOG), encode_log_cursors(LogCursors(METADATA_VERSION, named)))


def test_a_truncation_reads_which_hold_before_where_they_stand() -> None:
    """ "Which it reads before it reads where they stand": one that goes back behind the first read changes that key."""
    world = World()
    rolled(world, 3)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS), NamedCursor("d", CursorHold.NONE))
    set_cursor(world, 4)
    client = truncating(world, 4)
    client.start()
    held_at(world, "cut")
    set_cursor(world, 1)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS))
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 0, 0, Held.CURSOR, "c")
    assert listed(world).first_offset == 0


def test_a_cursor_that_comes_between_holds() -> None:
    world = World()
    rolled(world, 3)
    client = truncating(world, 4)
    client.start()
    held_at(world, "cut")
    set_cursor(world, 3)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS))
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 2, 1, Held.CURSOR, "c")


def test_one_that_goes_on_between_is_nobodys_matter() -> None:
    """It changes its own key alone, which the truncation does not compare while it holds."""
    world = World()
    rolled(world, 3)
    set_cursor(world, 2)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS))
    client = truncating(world, 4)
    client.start()
    held_at(world, "cut")
    set_cursor(world, 4)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 2, 1, Held.CURSOR, "c")


def test_an_idle_cursor_that_moves_just_then_is_looked_at_again() -> None:
    """ "Moved since it was looked at, it is looked at again": what ends a hold compares where the cursor stood."""
    world = World()
    rolled(world, 3)
    set_cursor(world, 0, moved_ms=NOW_MS - 50)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS, 50))
    client = truncating(world, 4)
    client.start()
    held_at(world, "cut")
    set_cursor(world, 0, moved_ms=NOW_MS - 49)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 0, 0, Held.CURSOR, "c")
    set_cursor(world, 0, moved_ms=NOW_MS - 50)
    assert truncate(world, 4, "u") == Round(0, 4, 2, Held.REACHED, "", (), (("c", CursorHold.ENDED_BY_TIME),))
    value, _ = world.catalog.values[log_cursors_path(LOG)]
    assert decode_log_cursors(value).cursors == (NamedCursor("c", CursorHold.ENDED_BY_TIME, 50),)


def test_a_cursor_that_was_deleted_between_is_not_waited_for() -> None:
    world = World()
    rolled(world, 3)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS))
    client = truncating(world, 4)
    client.start()
    world.catalog.is_held = True
    world.run(
        until=lambda: any(
            getattr(each.effect, "tag", "") == ("cursor", "c") for each in world.catalog.waiting
        )
    )
    name_cursors(world)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client).reached == 4
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS))
    assert isinstance(run(world, truncating(world, 6, "u")).ended.error, StorageError)


def test_force_passes_cursors_and_no_pin() -> None:
    world = World()
    rolled(world, 3)
    set_cursor(world, 1)
    name_cursors(world, NamedCursor("c", CursorHold.HOLDS))
    core = LogTruncating(LOG, Terms(4, is_forced=True), bytes(16), NOW_MS, 500)
    forced = came_to(run(world, world.client("f", core)))
    assert forced == Round(0, 4, 2, Held.REACHED, "", (), (("c", CursorHold.ENDED_BY_FORCE),))


def segments(count: int, length: int | None = 10) -> tuple[LogSegment, ...]:
    return tuple(LogSegment(n + 1, 2 * n, 1, 0, 0, length) for n in range(count))


def test_which_ledgers_a_cursor_holds() -> None:
    """A ledger goes when each of its entries is before the cursor; bytes behind are of the ledgers that follow."""
    window = segments(6)

    def judged(
        holders: list[HoldingCursor], before: int = 8, count: int = 5, total: int = 60
    ) -> TruncationVerdict:
        return judge(window, count, Terms(before), (), total, holders, has_more=True)

    assert judged([HoldingCursor("c", 4, False, None)]) == TruncationVerdict(2, Held.CURSOR, "c")
    assert judged([HoldingCursor("c", 5, False, None)]) == TruncationVerdict(2, Held.CURSOR, "c")
    assert judged(
        [HoldingCursor("c", 6, False, None), HoldingCursor("a", 7, False, None)]
    ) == TruncationVerdict(3, Held.CURSOR, "c")
    assert judged([HoldingCursor("c", 99, False, None)]) == TruncationVerdict(4, Held.REACHED)
    by_bytes = judged([HoldingCursor("c", 2, False, 39)])
    assert by_bytes == TruncationVerdict(4, Held.REACHED, "", (("c", CursorHold.ENDED_BY_BYTES),))
    assert judged([HoldingCursor("c", 2, False, 40)]) == TruncationVerdict(1, Held.CURSOR, "c")
    both = judged([HoldingCursor("c", 2, True, None), HoldingCursor("d", 4, False, None)])
    assert both == TruncationVerdict(2, Held.CURSOR, "d", (("c", CursorHold.ENDED_BY_TIME),))
    untold = judge(segments(6, None), 5, Terms(8), (), 0, [HoldingCursor("c", 0, False, 1)], has_more=True)
    assert untold == TruncationVerdict(0, Held.CURSOR, "c"), "bytes that nobody told end no hold"
