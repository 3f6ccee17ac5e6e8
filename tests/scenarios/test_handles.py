"""`handles`: what each open handle waits for, by which rule and since when; nobody waits in silence."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.client.handles import LOOKS_MAX, HandleState, ReaderNote
from embedbk.core import adding_waits
from embedbk.testing import Cluster
from embedbk.testing.violation import Violation

PROTOCOL = Path(adding_waits.__file__).with_name("PROTOCOL.md")


@pytest.fixture
def cluster() -> Generator[Cluster]:
    with Cluster(seed=14, bookies=3) as cluster:
        yield cluster


def one(cluster: Cluster, kind: str, client: str = "client") -> HandleState:
    found = [each for each in cluster.client(client).handles() if each.kind == kind]
    assert len(found) == 1, found
    return found[0]


def test_who_waits_for_nothing_says_where_it_stands(cluster: Cluster) -> None:
    bk = cluster.client()
    assert bk.handles() == []
    with bk.log("orders").writer() as orders, bk.create_ledger() as ledger:
        orders.append_many([b"zero", b"one"])
        ledger.add(b"an entry")
        reader = bk.open_ledger(ledger.ledger_id)
        states = {each.kind: each for each in bk.handles()}
        assert [*states] == ["ledger reader", "ledger writer", "log writer"]
        assert (states["log writer"].what, states["log writer"].place) == ("log 'orders'", 2)
        assert states["log writer"].ledger_id == orders.ledger_id
        assert (states["ledger writer"].what, states["ledger writer"].place) == (
            f"ledger {ledger.ledger_id}",
            1,
        )
        assert all((each.rule, each.waits_for, each.waited_s) == ("", "", 0.0) for each in states.values())
        assert str(states["log writer"]).endswith(f"at 2 in ledger {orders.ledger_id}: waits for nothing")
        reader.close()
    assert bk.handles() == []


def test_an_add_waits_for_answers_then_for_bookies(cluster: Cluster) -> None:
    """P3.3: two of three stand still, and are named with the entry that waits for them. P4.5: once they have failed,
    and nobody else is there, it is bookies that it waits for, since when they lack."""
    bk = cluster.client()
    with bk.create_ledger() as ledger:
        ledger.add(b"zero")
        cluster.run_for(1)
        for name in ("b1", "b2"):
            cluster.pause(name)
        ticket = ledger.add_nowait(b"one")
        cluster.run_for(0.3)
        state = one(cluster, "ledger writer")
        assert (state.rule, state.place, state.can_go_on) == ("P3.3", 2, False)
        assert re.fullmatch("answers of b[12], b[12]: entry 1 needs 2 of its write set", state.waits_for)
        assert 0.2 < state.waited_s <= 0.3
        cluster.run_for(2)
        state = one(cluster, "ledger writer")
        assert state.rule == "P4.5"
        assert re.search(r"fewer than 2 can be used in some write set \(b\d: ", state.waits_for)
        assert 1.0 < state.waited_s < 2.0
        for name in ("b1", "b2"):
            cluster.resume(name)
        ticket.result(20.0)
        assert one(cluster, "ledger writer").rule == ""


def test_an_add_waits_for_a_change_that_is_not_settled() -> None:
    """P4.2, P10.4: two bookies failed, another could take the seat of one, and the metadata is away."""
    with Cluster(seed=14, bookies=4) as cluster, cluster.client().create_ledger() as ledger:
        ledger.add(b"zero")
        cluster.run_for(1)
        cluster.crash("metadata")
        seated = [each.bookie_id for each in ledger._appending.writing.metadata.fragments[-1].members]
        for name in seated[:2]:
            cluster.crash(name)
        ticket = ledger.add_nowait(b"one")
        cluster.run_for(1)
        state = one(cluster, "ledger writer")
        assert (state.rule, state.can_go_on) == ("P4.2", False)
        cluster.heal()
        ticket.result(20.0)


def test_a_ledger_that_failed_waits_for_its_caller(cluster: Cluster) -> None:
    """P3.6: only close remains."""
    ledger = cluster.client().create_ledger()
    ledger.add(b"zero")
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    with pytest.raises(embedbk.NotEnoughBookies):
        ledger.add(b"one")
    state = one(cluster, "ledger writer")
    assert state.rule == "P3.6" and "fewer than 2 usable bookies" in state.waits_for
    ledger.release()
    assert cluster.client().handles() == []


def seen_in(cluster: Cluster, client: str, seconds: float) -> list[HandleState]:
    """What the readers of this client show after so much time, to be filled while a call of it waits."""
    told: list[HandleState] = []
    notes = cluster.client(client)._runtime.handles
    cluster.world.after(int(seconds * 1e9), lambda: told.extend(note.state() for note in notes))
    return told


def test_a_tail_says_what_it_waits_for_along_its_way(cluster: Cluster) -> None:
    """P8.12: there is no log of this name. P6.2: nothing more is acknowledged. P6.6: its ledger has ended, and the list
    names none behind it."""
    log = cluster.log("orders", client="reader")
    told = seen_in(cluster, "reader", 1.5)
    assert list(log.tail(0, idle_s=2.0)) == []
    assert [(each.kind, each.rule, each.place) for each in told] == [("tail", "P8.12", 0)]
    assert told[0].waits_for == "a log of this name" and 1.0 < told[0].waited_s < 2.0
    writer = cluster.log("orders", client="w").writer()
    writer.append(b"zero")
    told = seen_in(cluster, "reader", 1.5)
    assert [bytes(entry) for entry in log.tail(0, idle_s=2.0)] == [b"zero"]
    assert [(each.rule, each.place, each.ledger_id) for each in told] == [("P6.2", 1, writer.ledger_id)]
    assert told[0].waits_for == "entry 1 of the ledger to be acknowledged" and not told[0].can_go_on
    writer.close()
    told = seen_in(cluster, "reader", 1.5)
    assert [bytes(entry) for entry in log.tail(0, idle_s=2.0)] == [b"zero"]
    assert [(each.rule, each.place) for each in told] == [("P6.6", 1)]
    assert told[0].waits_for == f"the ledger behind {writer.ledger_id} to be listed"
    assert cluster.client("reader").handles() == []


def test_a_tail_says_that_it_waits_for_copies(cluster: Cluster) -> None:
    """P6.1, P6.6: the ledger is closed, so that its entries must be there, and its bookies are away."""
    with cluster.log("orders", client="w").writer() as writer:
        writer.append(b"zero")
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    told = seen_in(cluster, "reader", 3.0)
    with pytest.raises(embedbk.EntryUnreadable):
        list(cluster.log("orders", client="reader").tail(0, idle_s=4.0))
    assert [each.kind for each in told] == ["tail"]
    assert told[0].rule in ("P6.1", "P6.6") and "a copy of entry 0" in told[0].waits_for


def test_a_consumer_says_that_another_has_its_lease(cluster: Cluster) -> None:
    """P9.3, P8.8: one consumer at a time; and one that is not asked for its next entry waits for nothing."""
    with cluster.log("orders", client="w").writer() as writer:
        writer.append(b"zero")
    holder = cluster.log("orders", client="a").cursor("billing").consume(idle_s=1.0)
    with holder as entries:
        told = seen_in(cluster, "b", 1.0)
        with pytest.raises(embedbk.OperationTimeout):
            cluster.log("orders", client="b").cursor("billing").consume(timeout_s=2.0).__enter__()
        assert [(each.kind, each.rule) for each in told] == [("consumer", "P9.3")]
        assert [each.kind for each in cluster.client("a").handles()] == ["consumer"]
        assert next(iter(entries)).offset == 0
        cluster.run_for(5)
        state = one(cluster, "consumer", "a")
        assert (state.rule, state.place, state.can_go_on) == ("", 1, False)
        assert state.what == "cursor 'billing' of log 'orders'"
    assert cluster.client("a").handles() == cluster.client("b").handles() == []


def test_a_log_reader_is_there_until_it_is_closed_or_gone(cluster: Cluster) -> None:
    with cluster.log("orders", client="w").writer() as writer:
        writer.append_many([b"zero", b"one"])
    bk = cluster.client("reader")
    with bk.log("orders").reader("earliest") as reader:
        assert one(cluster, "log reader", "reader").place is None
        assert len(reader.read_bulk()) == 2
        told = seen_in(cluster, "reader", 0.5)
        assert len(reader.read_bulk(wait_s=1.0)) == 0
        assert [(each.kind, each.rule) for each in told] == [("log reader", "P6.6")]
        with cluster.log("orders", client="w").writer() as writer:
            told = seen_in(cluster, "reader", 0.5)
            assert len(reader.read_bulk(wait_s=1.0)) == 0
            assert [(each.rule, each.ledger_id) for each in told] == [("P6.2", writer.ledger_id)]
            state = one(cluster, "log reader", "reader")
            assert (state.place, state.rule) == (2, "")
    assert bk.handles() == []
    dropped = bk.log("orders").reader(1)
    assert one(cluster, "log reader", "reader").place == 1
    del dropped
    assert bk.handles() == []


def test_a_log_s_writer_waits_for_a_next_ledger(cluster: Cluster) -> None:
    """P8.2: its ledger failed, and there is no next one while its bookies are away; then P8.4: another has the log."""
    bk = cluster.client("w")
    orders = bk.log("orders").writer()
    orders.append(b"zero")
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    ticket = orders.append_nowait(b"one")
    cluster.run_for(8)
    state = one(cluster, "log writer", "w")
    assert state.rule == "P8.2" and state.waits_for.startswith("the ledger behind the one that failed: ")
    assert 0.5 < state.waited_s < 8
    cluster.heal()
    ticket.result(60.0)
    assert one(cluster, "log writer", "w").rule == ""
    other = cluster.log("orders", client="other").writer()
    with pytest.raises(embedbk.LedgerFenced):
        orders.append(b"two")
    assert one(cluster, "log writer", "w").rule == "P8.4"
    orders.release()
    other.close()
    assert bk.handles() == []


def test_every_rule_that_is_told_is_one_of_the_page() -> None:
    sources = [PROTOCOL.with_name("adding_waits.py"), *PROTOCOL.parent.with_name("client").glob("*.py")]
    call = re.compile(r"""(?:AddsWait|\.waits|_noted)\(\s*"([^"]*)\"""")
    told = {rule for source in sources for rule in call.findall(source.read_text())}
    assert {"P3.3", "P4.5", "P6.2", "P6.6", "P8.2", "P8.12", "P9.3"} <= told
    page = PROTOCOL.read_text()
    assert [rule for rule in sorted(told) if f"- **{rule}** " not in page] == []


# --- Who could go on, and does not (L16) -----------------------------------------------------------------------


def noted(client: embedbk.Client, is_there: Callable[[], bool] | None) -> ReaderNote:
    note = ReaderNote("tail", "log 'orders'", client._runtime.clock_s)
    note.waits("P6.6", "the ledger behind 7 to be listed", is_there)
    client._runtime.handles.add(note)
    return note


def test_one_that_could_go_on_is_reported_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """L16: what it waits for is there at so many looks in a row. Whoever waits for what is not there, or goes on and
    waits again, is not reported, nor is one whose caller does not ask for anything."""
    bk = cluster.client()
    runtime, reported = bk._runtime, []
    runtime.on_stuck = reported.append  # type: ignore[method-assign]
    stuck, honest, unasked, moving = (
        noted(bk, is_there) for is_there in (lambda: True, None, lambda: True, lambda: True)
    )
    unasked.is_driven = False
    for look in range(1, 4 * LOOKS_MAX):
        runtime.handles.look()
        assert len(reported) == (look >= LOOKS_MAX)
        if look % (LOOKS_MAX - 1) == 0:
            moving.waits("P6.6", "another one", lambda: True)
    assert reported == [str(stuck.state())]
    stuck.goes_on()
    runtime.handles.look()
    stuck.waits("P6.2", "an entry", lambda: True)
    for _ in range(LOOKS_MAX):
        moving.waits("P6.6", "another one", lambda: True)
        runtime.handles.look()
    assert len(reported) == 2  # It was stuck anew.
    assert str(honest.state()).startswith(
        "tail of log 'orders': waits for the ledger behind 7 to be listed (P6.6), for"
    )
    del runtime.on_stuck
    with caplog.at_level(logging.WARNING):
        super(type(runtime), runtime).on_stuck("a tail")
    assert "it could go on and does not" in caplog.text


def test_a_process_that_stood_still_reports_nobody_for_that(cluster: Cluster) -> None:
    """L16: looks are counted, not seconds: behind a stop of minutes one look comes, and not three."""
    bk = cluster.client("slow")
    noted_at: list[float] = []
    bk._runtime.on_stuck = lambda _: noted_at.append(cluster.now_s)  # type: ignore[method-assign]
    note = noted(bk, lambda: True)
    cluster.run_for(1.5)  # One look.
    cluster.pause("slow")
    cluster.run_for(100)
    cluster.resume("slow")
    cluster.run_for(0.5)
    assert noted_at == []
    cluster.run_for(3)
    assert len(noted_at) == 1 and note.stuck_at is not None


def test_a_lost_wake_up_is_found(cluster: Cluster) -> None:
    """L16: an entry is appended, and nobody tells the node: it could be sealed, and is not."""
    with cluster.client().create_ledger() as ledger:
        ledger.add(b"zero")
        writing = ledger._appending.writing
        cluster.run_for(1)
        writing.packer.append(b"one")
        with pytest.raises(Violation, match=r"L16: .* next frame to be sealed \(P3\.1\)"):
            cluster.run_for(20)
        cluster.client()._runtime.wake_writing(writing)


class Collecting:
    """A lock under which the garbage collector runs as often as it can."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.has_met_itself = False

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=1.0):
            self.has_met_itself = True
            raise AssertionError("the thread that has the lock waits for it")
        gc.set_threshold(1, 1, 1)
        gc.enable()

    def __exit__(self, *_: object) -> None:
        gc.disable()
        self._lock.release()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("looks", [True, False])
def test_a_tail_that_is_collected_meanwhile_leaves(cluster: Cluster, looks: bool) -> None:
    """A collector runs wherever something is allocated, also where the list of handles is held: by the host's thread,
    for one, which looks at it every 5 s."""
    bk = cluster.client()
    with bk.log("orders").writer() as orders:
        orders.append(b"zero")
    kept = [bk.log("orders").tail(0) for _ in range(3)]
    before, usual = gc.get_threshold(), bk._runtime.handles._lock
    gc.collect()
    gc.disable()
    try:
        for tail in kept:
            next(tail)
        left: list[object] = [bk.log("orders").tail(0)]
        left.append(left)  # Only the collector ends it.
        next(left[0])  # type: ignore[call-overload]
        del left
        lock = Collecting(usual)
        bk._runtime.handles._lock = lock  # type: ignore[assignment]
        if looks:
            assert len(list(bk._runtime.handles)) in (3, 4)
        else:
            bk._runtime.handles.add(ReaderNote("tail", "another", lambda: 0.0))
        assert not lock.has_met_itself
    finally:
        bk._runtime.handles._lock = usual  # The other one stops the collector each time that it is let go of.
        gc.set_threshold(*before)
        gc.enable()
    assert len(list(bk._runtime.handles)) == 3
