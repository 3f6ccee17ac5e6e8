"""Ledgers of a log that fail again and again: how often they are replaced (P8.2, L14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import embedbk
from embedbk.client.replacing import FRUITLESS_MAX, Pauses
from embedbk.testing import Cluster
from tests.faces.test_replacing import read
from tests.faces.test_rolling import NAME, NEVER, listed


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=94, bookies=4) as cluster:
        yield cluster


def test_ledgers_in_which_nothing_is_acknowledged_come_to_an_end(cluster: Cluster) -> None:
    """P8.2: "five ledgers in a row in which nothing was acknowledged are the last": by its true reason, definitely."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    writer.append(b"0")
    end = cluster.drop_messages("AddRequest", sender="w")
    ticket = writer.append_nowait(b"1")
    with pytest.raises(embedbk.NotEnoughBookies, match="failed one after the other") as failed:
        ticket.result()
    assert failed.value.definite
    assert len(listed(client, NAME)) == 1 + FRUITLESS_MAX
    cluster.run_for(60)
    assert len(listed(client, NAME)) == 1 + FRUITLESS_MAX
    end()
    writer.renew()
    writer.append(b"2")
    writer.close()
    assert read(client) == [b"0", b"2"]
    assert [each.last_entry for each in listed(client, NAME)][:-1] == [0]


@pytest.mark.parametrize("ends", ["release", "client"])
def test_a_writer_that_is_let_go_of_while_it_is_replaced_sends_nothing_again(
    cluster: Cluster, ends: str
) -> None:
    """P8.2, P3.6: what was outstanding failed with the release; the next ledger, if it comes, stays empty."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    writer.append(b"0")
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    ticket = writer.append_nowait(b"1")
    cluster.run_for(15)
    assert not ticket.done()
    if ends == "release":
        writer.release()
        with pytest.raises(embedbk.LedgerClosed):
            ticket.result()
    else:
        client.close()
    for name in ("b1", "b2", "b3"):
        cluster.restart(name)
    cluster.run_for(60)
    other = cluster.client("v")
    with other.log(NAME).writer() as after:
        assert after.append(b"2").ledger_id == after.ledger_id
    assert read(other) == [b"0", b"2"]


def test_pauses_grow_between_ledgers_that_fail_soon_and_begin_anew() -> None:
    """P8.2: "between ledgers that fail soon are pauses", also where each of them acknowledged something."""
    pauses = Pauses()
    now_s, taken = 100.0, []
    for _ in range(8):
        pause_s = pauses.before_next_s(now_s, has_acknowledged=True)
        assert pause_s is not None
        taken.append(pause_s)
        now_s += pause_s + 1.0
    assert taken == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert pauses.before_next_s(now_s + 60.0, has_acknowledged=True) == 0.0


def test_what_is_acknowledged_begins_the_count_anew() -> None:
    pauses = Pauses()
    for number in range(20):
        assert pauses.before_next_s(100.0 * number, has_acknowledged=number % FRUITLESS_MAX == 0) is not None
    for number in range(FRUITLESS_MAX):
        assert pauses.before_next_s(1e6 + 100.0 * number, has_acknowledged=number == 0) is not None
    assert pauses.before_next_s(3e6, has_acknowledged=False) is None
    pauses.begin_anew()
    assert pauses.before_next_s(4e6, has_acknowledged=False) is not None
