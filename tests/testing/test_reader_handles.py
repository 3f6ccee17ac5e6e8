"""I11 for readers: the handles that users hold, in the simulator, while bookies know different LACs."""

from __future__ import annotations

import pytest

from embedbk.client.reading import LedgerReading
from embedbk.host.own_lacs import OwnLac, OwnLacs
from embedbk.ids import NO_ENTRY
from embedbk.ledger import LedgerReader
from embedbk.testing import Cluster
from embedbk.testing.invariants import Invariants
from embedbk.testing.violation import Violation


def ask_two_sides(cluster: Cluster) -> tuple[int, int]:
    """What one handle shows when b1, which alone knows the newest LAC, answers, and when it does not."""
    writer = cluster.client("writer").create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.add(b"zero")
    cluster.run_for(1.0)  # Its LAC reaches all of them.
    for name in ("b2", "b3"):
        for kind in ("ExplicitLacs", "LacHints"):
            cluster.drop_messages(kind, receiver=name)
    writer.add(b"one")
    cluster.run_for(1.0)
    reader: LedgerReader = cluster.client("reader").open_ledger(writer.ledger_id, recover=False)
    hear = cluster.drop_messages("LacAnswer", sender="b3")
    newest = reader.last_add_confirmed()
    hear()
    cluster.drop_messages("LacAnswer", sender="b1")
    return newest, reader.last_add_confirmed()


def test_a_handle_shows_the_newest_that_it_heard() -> None:
    """I11: the second answer comes from bookies that know less, and the handle does not go back."""
    with Cluster(seed=3, bookies=3, observers=[Invariants()]) as cluster:
        assert ask_two_sides(cluster) == (1, 1)


def test_a_handle_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I11 broken: what was heard last is shown, not the highest."""

    def hear(reading: LedgerReading, lac: int, length: int | None = None) -> None:
        reading.lac = lac if lac != NO_ENTRY else reading.lac  # Its client wrote nothing to the ledger.

    monkeypatch.setattr(LedgerReading, "_hear", hear)
    with (
        Cluster(seed=3, bookies=3, observers=[Invariants()]) as cluster,
        pytest.raises(Violation, match=r"^I11: a reader of reader showed LAC 1 of ledger \d+, then 0"),
    ):
        ask_two_sides(cluster)


def test_a_read_beyond_the_lac_ends_where_its_handle_heard_that_the_ledger_does() -> None:
    """I38, P6.3: an entry that one bookie alone has is given to who reads beyond the LAC, as long as its handle has not
    heard that the ledger was closed below it."""
    for hears_of_it in (False, True):
        with Cluster(seed=5, bookies=3) as cluster:
            writer = cluster.client("writer").create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            writer.add_many([bytes(700_000), b"one"])
            for name in ("b2", "b3"):
                cluster.drop_messages("AddRequest", sender="writer", receiver=name)
            writer.add_nowait(bytes(700_000))
            reader = cluster.client("reader").open_ledger(writer.ledger_id, recover=False)
            entries = reader.read_unconfirmed()
            assert next(entries).entry_id == 0
            if hears_of_it:
                cluster.drop_messages("FenceRequest", receiver="b1")
                cluster.drop_messages("ReadRequest", sender="taker", receiver="b1")
                taken = cluster.client("taker").open_ledger(writer.ledger_id, recover=True)
                assert taken.last_entry == 1
                cluster.run_for(1.0)
                assert reader.is_closed
            assert [entry.entry_id for entry in entries] == ([1] if hears_of_it else [1, 2])


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_read_beyond_the_lac_goes_on_with_the_bookies_that_took_over_meanwhile(is_closed: bool) -> None:
    """P6.3: "where every bookie of a write set says no". While it is read the ledger goes on with another bookie, and
    whoever had all of it before has nothing of what follows."""
    with Cluster(seed=5, bookies=2) as cluster:
        writer = cluster.client("writer").create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        for _ in range(14):  # More than is read ahead.
            writer.add(bytes(700_000))
        reader = cluster.client("reader").open_ledger(writer.ledger_id, recover=False)
        entries = reader.read_unconfirmed()
        assert next(entries).entry_id == 0
        seated = writer._appending.writing
        (first,) = seated.metadata.fragments[-1].members
        cluster.drop_messages("AddRequest", sender="writer", receiver=first.bookie_id)
        writer.add(b"fourteen")
        assert seated.metadata.fragments[-1].members != (first,)
        if is_closed:
            writer.close()
        cluster.run_for(1.0)
        assert [entry.entry_id for entry in entries] == list(range(1, 15))


def look_at_own_append(cluster: Cluster) -> int:
    """How far a client may read what it was just acknowledged, before any bookie knows."""
    client = cluster.client("writer")
    writer = client.create_ledger()
    writer.add(b"zero")
    with client.open_ledger(writer.ledger_id, recover=False) as reader:
        return reader.last_add_confirmed()


def test_a_client_may_read_what_it_was_acknowledged() -> None:
    """I100, P6.2."""
    with Cluster(seed=3, bookies=3, observers=[Invariants()]) as cluster:
        assert look_at_own_append(cluster) == 0


def test_a_client_that_asks_bookies_for_its_own_lac_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I100 broken: its own writers are not looked at."""
    monkeypatch.setattr(OwnLacs, "of", lambda self, ledger_id: OwnLac(NO_ENTRY, False))
    with (
        Cluster(seed=3, bookies=3, observers=[Invariants()]) as cluster,
        pytest.raises(Violation, match="I100"),
    ):
        look_at_own_append(cluster)
