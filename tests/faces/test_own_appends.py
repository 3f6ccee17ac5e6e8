"""What one client appended it reads at once; what another client appended, a moment later (P6.2)."""

from __future__ import annotations

import pytest

import embedbk
from embedbk.host import own_lacs
from embedbk.testing import Cluster

PAUSE_S = 0.010
THOUSANDS_S = 0.100


def texts(client: embedbk.Client, name: str) -> list[bytes]:
    return [bytes(entry) for entry in client.log(name).read()]


def test_each_append_is_read_at_once_by_its_own_client(bk: embedbk.Client, log_name: str) -> None:
    """P6.2: every later read, tail and `last_add_confirmed` of the client, by whatever handle, shows it."""
    given: list[bytes] = []
    with bk.log(log_name).writer() as writer:
        for number in range(20):
            given.append(b"%d" % number)
            writer.append(given[-1])
            assert texts(bk, log_name) == given
            with bk.open_ledger(writer.ledger_id, recover=False) as reader:
                assert reader.last_add_confirmed() == reader.try_last_add_confirmed() == number
        tail = bk.log(log_name).tail(0)
        assert [bytes(next(tail)) for _ in given] == given
        tail.close()
        assert [segment.last_entry for segment in bk.log(log_name).segments()] == [19]


def test_a_ledger_added_to_is_read_at_once(bk: embedbk.Client) -> None:
    """P6.2, at the layer below logs: a handle that was open before, and one that is opened later."""
    ledger = bk.create_ledger()
    with bk.open_ledger(ledger.ledger_id, recover=False) as before:
        ledger.add(b"one")
        with bk.open_ledger(ledger.ledger_id, recover=False) as later:
            assert [bytes(entry) for entry in before.read()] == [b"one"]
            assert [bytes(entry) for entry in later.read()] == [b"one"]
    ledger.close()


def test_an_append_is_shown_also_where_most_bookies_do_not_know_its_lac() -> None:
    """P6.2, P3.3: the client knows what it was acknowledged; no bookie has to say so; a copy that lags is passed."""
    with Cluster(seed=8, bookies=3) as cluster:
        client = cluster.client("w")
        writer = client.log("one").writer()
        writer.append(b"zero")
        cluster.partition(["w"], ["b3"])
        writer.append(b"one")
        assert texts(client, "one") == [b"zero", b"one"]
        cluster.heal()


@pytest.mark.parametrize("ends", ["close", "release"])
def test_what_a_writer_that_is_gone_had_acknowledged_stays_readable(ends: str) -> None:
    """P6.2: a handle that let go of its ledger takes none of it back, and nobody has to recover it first."""
    with Cluster(seed=8, bookies=3) as cluster:
        client = cluster.client("w")
        writer = client.log("one").writer()
        writer.append(b"only")
        getattr(writer, ends)()
        assert texts(client, "one") == [b"only"]


def test_lacs_of_writers_that_are_gone_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first; then its ledger is read as far as bookies know, like anybody's."""
    monkeypatch.setattr(own_lacs, "GONE_HANDLES_MAX", 2)
    with Cluster(seed=8, bookies=3) as cluster:
        client = cluster.client("w")
        for name in ("one", "two", "three"):
            writer = client.log(name).writer()
            writer.append(b"first")
            writer.append(b"last")
            writer.release()
        assert [len(texts(client, name)) for name in ("one", "two", "three")] == [1, 2, 2]


def test_another_client_reads_an_append_ten_milliseconds_later() -> None:
    """P6.2: a writer that pauses gives its LAC to its bookies in memory; before that, what the frame told is shown."""
    with Cluster(seed=8, bookies=3) as cluster:
        writer = cluster.log("one", client="w").writer()
        shown = []
        for number in range(20):
            writer.append(b"%d" % number)
            cluster.run_for(PAUSE_S)
            shown.append(len(texts(cluster.client("reader"), "one")) == number + 1)
            cluster.run_for(0.001 * number)
        assert sum(shown) >= 10


def test_a_hundred_pausing_writers_are_read_ten_milliseconds_later() -> None:
    """P6.2: their LACs leave together, one message for each bookie."""
    with Cluster(seed=8, bookies=3) as cluster:
        reader = cluster.client("reader")
        writers = [cluster.log(f"log-{n}", client="w").writer() for n in range(100)]
        for writer in writers:
            writer.append(b"entry")
        cluster.run_for(1)
        before = sum("LacHints" in line for line in cluster.trace())
        tickets = [writer.append_nowait(b"another") for writer in writers]
        for ticket in tickets:
            ticket.result()
        cluster.run_for(PAUSE_S)
        names = [f"log-{n}" for n in range(0, 100, 10)]
        assert sum(len(texts(reader, name)) == 2 for name in names) >= 5
        sent = sum("LacHints" in line for line in cluster.trace()) - before
        assert 0 < sent <= 60  # Each is two lines, sent and received; 100 writers have 300 LACs to give.


def test_very_many_pausing_writers_are_read_a_tenth_of_a_second_later() -> None:
    """P6.2: beyond a bound nobody is hinted; the durable LAC comes within the time of an idle writer."""
    with Cluster(seed=8, bookies=3) as cluster:
        reader = cluster.client("reader")
        writers = [cluster.log(f"log-{n}", client="w").writer() for n in range(140)]
        cluster.run_for(1)
        before = sum("LacHints" in line for line in cluster.trace())
        tickets = [writer.append_nowait(b"entry") for writer in writers]
        for ticket in tickets:
            ticket.result()
        cluster.run_for(THOUSANDS_S)
        assert all(len(texts(reader, f"log-{n}")) == 1 for n in range(0, 140, 20))
        assert sum("LacHints" in line for line in cluster.trace()) == before


def test_deferred_entries_are_read_once_they_are_forced() -> None:
    """P3.2: with deferred sync an append returns before its entry may be read; the LAC is all that is shown."""
    with Cluster(seed=8, bookies=3) as cluster:
        client = cluster.client("w")
        writer = client.log("one").writer(durability="deferred")
        writer.append(b"one")
        writer.force()
        assert texts(client, "one") == [b"one"]


def test_a_writer_that_failed_does_not_speak_for_the_ledger() -> None:
    """P6.2, P5.2: its client asks the bookies again, where recovery and another writer may have gone on."""
    with Cluster(seed=8, bookies=3) as cluster:
        client = cluster.client("w")
        ledger = client.create_ledger()
        ledger.add(b"one")
        with client.open_ledger(ledger.ledger_id, recover=False) as before:
            with cluster.client("other").open_ledger(ledger.ledger_id, recover=True) as recovered:
                assert recovered.last_add_confirmed() == 0
            with pytest.raises(embedbk.LedgerFenced):
                ledger.add(b"two")
            assert not client._runtime.own_lac(ledger.ledger_id).is_newest
            assert before.last_add_confirmed() == 0
