"""Lists whose ledgers stand in any order of their ids (P8.5, P8.10): all is found by its place, an id by the list."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from embedbk import Position
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import METADATA_VERSION, LogList, LogSegment, encode_log_list, log_key_path
from embedbk.codec.log_pages import encode_log_page, log_page_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.core.log_paging import cut
from embedbk.errors import NoSuchEntry, Truncated, UsageError
from embedbk.testing import Cluster
from tests.scenarios.carried import carry_over

NAME = "one"
LEDGERS = 23
PAGE = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=87, bookies=3) as cluster:
        cluster.world.page_ledgers = PAGE
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def list_in_any_order(cluster: Cluster) -> list[Position]:
    """A log of ledgers with two entries each, but for empty ones, that the list names in a shuffled order; positions in
    the order of the log."""
    client = cluster.client("maker")
    sizes: dict[int, int] = {}
    for number in range(LEDGERS):
        with client.create_ledger(custom={"log": NAME.encode()}) as ledger:
            sizes[ledger.ledger_id] = 0 if number % 7 == 3 else 2
            for _ in range(sizes[ledger.ledger_id]):
                ledger.add(b"?")
    ids = list(sizes)
    random.Random(5).shuffle(ids)
    segments, positions, offset = [], [], 0
    for ledger_id in ids:
        segments.append(LogSegment(ledger_id, offset, sizes[ledger_id] - 1, length=sizes[ledger_id]))
        positions += [Position(ledger_id, entry) for entry in range(sizes[ledger_id])]
        offset += sizes[ledger_id]
    segments_left, pages, moved = cut(tuple(segments), None, PAGE)
    assert pages is not None and pages.is_mixed and len(moved) == 5
    puts = [Put(log_page_path(NAME, pages, number), encode_log_page(page)) for number, page in moved]
    value = encode_log_list(LogList(METADATA_VERSION, 0, segments_left, pages))
    runtime: Any = client._runtime
    when = [Compare(log_key_path(NAME), ABSENT)]
    done = run_blocking(runtime.transact(when, [*puts, Put(log_key_path(NAME), value)], "listing"), "")
    assert done
    return positions


def test_a_log_is_read_from_anywhere_to_anywhere_in_any_order_of_ids(cluster: Cluster) -> None:
    """P8.10: "Positions of a log are ordered by the dense offset, never by ledger ids"; I97 over all of it."""
    positions = list_in_any_order(cluster)
    log = cluster.client("reader").log(NAME)
    assert [entry.position for entry in log.read()] == positions
    assert [entry.offset for entry in log.read()] == list(range(len(positions)))
    for start in range(len(positions)):
        end = min(len(positions) - 1, start + 5)
        assert [entry.position for entry in log.read(start, end)] == positions[start:end]
        assert [entry.position for entry in log.read(positions[start], positions[end])] == positions[
            start:end
        ]
    behind = Position(
        positions[4].ledger_id, 900
    )  # Of a closed ledger: up to its end, and nothing of the next.
    assert [entry.position for entry in log.read(0, behind)] == positions[
        : 1 + max(n for n, each in enumerate(positions) if each.ledger_id == behind.ledger_id)
    ]
    assert [entry.position for entry in log.tail(positions[3], idle_s=1.0)] == positions[3:]
    assert log.segments()[0].ledger_id == positions[0].ledger_id
    with pytest.raises(NoSuchEntry, match="has no ledger"):
        list(log.read(Position(9_000, 0)))


def test_a_writer_goes_on_behind_ledgers_in_any_order(cluster: Cluster) -> None:
    """P8.1, P8.6: a takeover, rolls and pages of their own come behind; the empty ones leave the list."""
    positions = list_in_any_order(cluster)
    tail = cluster.client("tail").log(NAME).tail(0, idle_s=2.0)
    assert [next(tail).position for _ in range(3)] == positions[:3]
    with cluster.client("writer").log(NAME).writer() as writer:
        for _ in range(6):
            positions.append(writer.append(b"!"))
            writer.roll()
    assert [entry.position for entry in tail] == positions[3:]
    assert [entry.position for entry in cluster.client("reader").log(NAME).read(positions[-9])] == positions[
        -9:
    ]


def test_what_is_truncated_and_deleted_is_found_by_the_list(cluster: Cluster) -> None:
    """P8.3: by the place of a position; what a page names in any order is not deleted by its id."""
    positions = list_in_any_order(cluster)
    client = cluster.client("another")
    for position in positions[::2]:
        with pytest.raises(UsageError, match=f"ledger {position.ledger_id} is part of log 'one'"):
            client.delete_ledger(position.ledger_id)
    log = client.log(NAME)
    reader = cluster.client("reader").log(NAME).read(0)
    assert next(reader).position == positions[0]
    done = log.truncate(positions[9])
    assert done.asked == 9 and done.reached == 8
    with pytest.raises(Truncated, match="below its start, offset 8"):
        list(reader)
    assert [entry.position for entry in log.read(positions[8])] == positions[8:]
    with pytest.raises(NoSuchEntry, match="has no ledger"):
        list(log.read(positions[0]))
