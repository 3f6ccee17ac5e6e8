"""Logs whose list has pages, at the face: reading from anywhere, tailing, deleting (P8.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embedbk import Position
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import log_key_path
from embedbk.codec.metadata_messages import Delete
from embedbk.config import Roll
from embedbk.errors import (
    MetadataConflict,
    MetadataUnavailable,
    NoSuchEntry,
    NoSuchLedger,
    Truncated,
    UsageError,
)
from embedbk.testing import Cluster
from tests.scenarios.carried import carry_over, end_log, keys_left

NAME = "one"
LEDGERS = 22


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=86, bookies=3) as cluster:
        cluster.world.page_ledgers = 4
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def fill(cluster: Cluster, first: int = 0, ledgers: int = LEDGERS, *, name: str = "w") -> list[Position]:
    """Two entries in each ledger, by a writer that rolls; their positions."""
    positions = []
    with cluster.client(name).log(NAME).writer(roll=Roll(bytes=None)) as writer:
        for number in range(first, first + ledgers):
            positions += [writer.append(b"%d" % (2 * number)), writer.append(b"%d" % (2 * number + 1))]
            if number + 1 < first + ledgers:
                writer.roll()
    return positions


def page_keys(cluster: Cluster) -> list[str]:
    return list(cluster.world.committed("/log-pages/"))


def test_a_log_in_pages_is_read_from_anywhere_to_anywhere(cluster: Cluster) -> None:
    """P8.6, I93: by offset and by position, each entry once and in its place, whichever page its ledger stands in."""
    positions = fill(cluster)
    assert len(page_keys(cluster)) == 4
    log = cluster.client("reader").log(NAME)
    everything = [b"%d" % number for number in range(len(positions))]
    assert [(entry.offset, bytes(entry)) for entry in log.read()] == list(enumerate(everything))
    for start in range(len(positions)):
        end = min(len(positions), start + 5)
        by_offset = [bytes(entry) for entry in log.read(start, end)]
        until = positions[end] if end < len(positions) else None
        by_position = [entry.offset for entry in log.read(positions[start], until)]
        assert by_offset == everything[start:end]
        assert by_position == list(range(start, end))
    assert [bytes(entry) for entry in log.tail(3, idle_s=1.0)] == everything[3:]
    segments = log.segments()
    assert [(each.first_offset, each.last_entry, each.is_closed) for each in segments] == [
        (2 * number, 1, True) for number in range(LEDGERS)
    ]
    with pytest.raises(NoSuchEntry, match="has no ledger"):
        list(log.read(Position(positions[-1].ledger_id + 900, 3)))


def test_few_pages_are_read_for_one_entry(cluster: Cluster) -> None:
    """P8.6: a place is found by the logarithm of the number of pages; an append, a roll and a takeover read none."""
    positions = fill(cluster, ledgers=40)
    pages = len(page_keys(cluster))
    assert pages == 9
    reads: list[str] = []
    get = Runtime.get

    async def counted(self: Runtime, key: str, what: str) -> Any:
        reads.append(key)
        return await get(self, key, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "get", counted)
        log = cluster.client("reader").log(NAME)
        for number in (0, 30, 50, 79):
            reads.clear()
            assert [bytes(entry) for entry in log.read(positions[number], number + 1)] == [b"%d" % number]
            # Twice, as the end is looked up, too.
            assert len([key for key in reads if key.startswith("/log-pages/")]) <= 2 * pages.bit_length()
        reads.clear()
        fill(cluster, 40, 2, name="another")
        assert not [key for key in reads if key.startswith("/log-pages/")]


@pytest.mark.parametrize("before", [10, 18, 20, 26, 36, 40])
def test_a_tail_never_goes_on_behind_a_gap(cluster: Cluster, before: int) -> None:
    """I97, I93: "offsets are dense": whoever stands at the end of a page whose next ledgers are truncated meanwhile is
    told so. The page that comes next, or the list's own part, was taken for what follows (seed 40000816)."""
    positions = fill(cluster)
    tails = {}
    for read in range(1, len(positions)):
        tails[read] = cluster.client("reader").log(NAME).tail(0, idle_s=2.0)
        assert [entry.offset for _, entry in zip(range(read), tails[read], strict=False)] == list(range(read))
    cluster.client("w").log(NAME).truncate(before=before)
    cluster.run_for(5.0)  # The bookies drop what is gone.
    told = []
    for read, tail in tails.items():
        try:
            assert next(tail).offset == read
        except Truncated as gone:
            told.append((read, gone.first_offset))
    assert 0 < len(told) < before
    assert all(read < before == begins for read, begins in told)


def test_a_tail_crosses_the_pages_while_they_are_made(cluster: Cluster) -> None:
    """I97: a reader that is behind comes from page to page, and one at the end is not left behind by them."""
    slow = cluster.client("slow").log(NAME)
    positions = fill(cluster, ledgers=2)
    tail = slow.tail(0, idle_s=2.0)
    near = cluster.client("near").log(NAME).tail(0, idle_s=2.0)
    assert [bytes(next(tail)) for _ in range(2)] == [b"0", b"1"]
    assert [bytes(next(near)) for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    for number in range(2, 12):
        positions += fill(cluster, number, 1, name=f"w{number}")
        assert [bytes(next(near)) for _ in range(2)] == [b"%d" % (2 * number), b"%d" % (2 * number + 1)]
    assert len(page_keys(cluster)) == 2
    assert [bytes(entry) for entry in tail] == [b"%d" % number for number in range(2, 24)]
    assert list(near) == []


def test_a_ledger_that_a_page_names_is_not_deleted(cluster: Cluster) -> None:
    """P8.3: "an unlisted ledger of the log is deleted only in a transaction that checks the list"; its pages are that
    list, too."""
    positions = fill(cluster)
    client = cluster.client("another")
    for position in positions[::2]:
        with pytest.raises(UsageError, match=f"ledger {position.ledger_id} is part of log 'one'"):
            client.delete_ledger(position.ledger_id)
    assert len(client.ledgers()) == LEDGERS


def test_a_log_goes_with_its_pages_wherever_its_deletion_is_cut_short(cluster: Cluster) -> None:
    """P8.3: the list first, then page by page; nothing of it is left, and a new log of the name meets none of it."""
    fill(cluster)
    client = cluster.client("owner")
    transact, left = Runtime.transact, [0]

    async def cut_short(self: Runtime, when: Any, then: Any, what: str) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise MetadataUnavailable("cut short", definite=True)
        return await transact(self, when, then, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "transact", cut_short)
        tries = 0
        while True:
            left[0], tries = 1 + tries % 4, tries + 1
            try:
                end_log(client, NAME)
                break
            except MetadataUnavailable:
                is_listed = log_key_path(NAME) in cluster.world.committed("/logs/")
                assert tries > 4 or not is_listed or len(client.ledgers()) == LEDGERS
            if tries == 5:
                left[0] = 1000
                fill(cluster, 0, 7, name="anew")  # Beside what is left of the first.
        assert tries > 5
    assert keys_left(cluster) == set()
    assert client.ledgers() == []
    with pytest.raises(NoSuchLedger, match="no log 'one'"):
        list(client.log(NAME).read())


def test_a_list_that_loses_a_page_while_it_is_read_is_read_again(cluster: Cluster) -> None:
    """P8.6: a page that the list named is gone: the log was deleted since, which the reader is told."""
    fill(cluster)
    log = cluster.client("reader").log(NAME)
    reading = log.read()
    assert [bytes(next(reading)) for _ in range(8)] == [b"%d" % number for number in range(8)]
    end_log(cluster.client("owner"), NAME)
    with pytest.raises(NoSuchLedger, match=r"no log 'one'|was deleted"):
        list(reading)


def test_a_page_that_is_lost_is_an_error_and_no_gap(cluster: Cluster) -> None:
    """P6.6: nobody is shown a log with a hole, and nobody waits for ever."""
    fill(cluster)
    key = page_keys(cluster)[1]
    log = cluster.client("reader").log(NAME)
    runtime: Any = cluster.client("reader")._runtime

    async def lose() -> None:
        await runtime.transact([], [Delete(key)], "a test")

    run_blocking(lose(), "nothing")
    with pytest.raises(MetadataConflict, match="names a page that is not there"):
        list(log.read())
    with pytest.raises(MetadataConflict, match="names a page that is not there"):
        list(log.tail(0, idle_s=1.0))
