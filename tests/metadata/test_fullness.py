"""A member says in its own log which of its bounds is nearly reached (P10.7)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from embedbk.codec.metadata_messages import Delete, OpenSession, TxnDone
from embedbk.host.filling import Filling
from embedbk.metadata.fullness import CALM_PERCENT, WARN_PERCENT, Fullness
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.streams import WATCHES_MAX
from embedbk.storage.memory_disk import MemoryDisk
from tests.metadata.test_node import Place, Txn, put

SECOND = 1_000_000_000


@pytest.fixture
def place(caplog: pytest.LogCaptureFixture) -> Iterator[Place]:
    caplog.set_level(logging.WARNING)
    made = Place(MemoryDisk())
    catalog = made.node.core.catalog
    catalog.limits = replace(catalog.limits, catalog_bytes_max=1000, sessions_max=2)
    yield made
    made.close()


def test_a_member_says_once_that_its_catalog_is_nearly_full_and_that_there_is_room_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """P10.7: "bytes by kind, warnings at 80 %": it names what holds most and what makes room."""
    place.do(OpenSession(600_000, "x", 0, LEVEL))
    assert place.do(put("/ledgers/1", 800)) == TxnDone(True, 1)
    for second in range(1, 30):
        place.turn(second * SECOND)
    (line,) = caplog.messages
    assert line.startswith("metadata member m1, records: ")
    assert "of 1000 bytes" in line and "(ledgers " in line and "delete ledgers and logs" in line
    place.do(Txn([], [Delete("/ledgers/1")]))
    place.turn(31 * SECOND)
    assert "there is room again" in caplog.messages[-1]
    assert len(caplog.messages) == 2


def test_sessions_and_watches_are_counted_too(place: Place) -> None:
    """P10.7: "and of the other bounds"."""
    place.do(OpenSession(600_000, "x", 0, LEVEL))
    found = {each.bound: (each.held, each.most) for each in place.node.core.fullness()}
    assert found["sessions"] == (1, 2)
    assert found["watches"] == (0, WATCHES_MAX)


def test_what_goes_to_and_fro_at_the_mark_is_no_new_word_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Said at 80 %, over at less than 70 %: between them nothing is said."""
    filling = Filling(logging.getLogger("filling"), "m1")
    for second in range(50):
        percent = WARN_PERCENT if second % 2 else CALM_PERCENT
        filling.look(second * SECOND, [Fullness("records", percent, 100, "nearly full")])
    assert len(caplog.messages) == 1
    filling.look(50 * SECOND, [Fullness("records", CALM_PERCENT - 1, 100, "")])
    assert "there is room again" in caplog.messages[-1]


def test_where_nothing_is_allowed_all_of_it_is_taken(place: Place) -> None:
    """A catalog with no room at all is full, and its member goes on."""
    catalog = place.node.core.catalog
    catalog.limits = replace(catalog.limits, catalog_bytes_max=0)
    place.turn(SECOND)
    assert {each.bound: each.percent for each in place.node.core.fullness()}["records"] == 100
