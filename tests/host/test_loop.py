"""The loop: who is stepped when, what other threads may do, and how it ends (ARCHITECTURE.md, threads)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from embedbk.cli import bookies, repair
from embedbk.codec.repair_mark import RepairMark, decode_repair_mark, encode_repair_mark
from embedbk.codec.unpacking import unpack
from embedbk.errors import PeerError
from embedbk.host import loop as loop_module
from embedbk.host.loop import Beside, Loop, utc_text
from embedbk.ids import LEDGER_ID_MAX
from embedbk.report.document import when


class Stepped:
    """A node that writes down what happens to it, with a descriptor and a mailbox."""

    def __init__(self, name: str = "node", story: list[str] | None = None) -> None:
        self.name = name
        self.story = [] if story is None else story
        self.fileno = os.eventfd(0, os.EFD_NONBLOCK)
        self.due_ns: int | None = None
        self.news = 0
        self.on_step: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self.deadlines_asked = 0

    def step(self, now_ns: int) -> None:
        self.story.append(self.name)
        self.news = 0
        if self.due_ns is not None and now_ns >= self.due_ns:
            self.due_ns = None
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fileno)
        self.on_step()

    def has_news(self) -> bool:
        return self.news > 0

    def deadline_ns(self) -> int | None:
        self.deadlines_asked += 1
        return self.due_ns

    def filenos(self) -> list[int]:
        return [self.fileno]

    def close(self, failure: BaseException | None = None) -> None:
        self.story.append(f"{self.name} closed")
        self.failure = failure
        os.close(self.fileno)


def stack_bytes() -> int:
    """Of this thread."""
    libc, attributes, size = ctypes.CDLL(None), ctypes.create_string_buffer(256), ctypes.c_size_t()
    assert libc.pthread_getattr_np(ctypes.c_void_p(threading.get_ident()), attributes) == 0
    assert libc.pthread_attr_getstacksize(attributes, ctypes.byref(size)) == 0
    libc.pthread_attr_destroy(attributes)
    return size.value


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.stop()


def settled(loop: Loop, *nodes: Stepped) -> None:
    """Behind the first step of each."""
    for node in nodes:
        loop.add(node)
    loop.turn()
    for node in nodes:
        node.story.clear()
        node.deadlines_asked = 0


def test_only_who_has_something_to_do_is_stepped(loop: Loop) -> None:
    """A turn costs what happens in it: a ready descriptor, a deadline, news; not the number of nodes."""
    story: list[str] = []
    a, b, c = Stepped("a", story), Stepped("b", story), Stepped("c", story)
    settled(loop, a, b, c)
    os.eventfd_write(b.fileno, 1)
    loop.turn()
    assert story == ["b"]
    assert (a.deadlines_asked, b.deadlines_asked, c.deadlines_asked) == (1, 1, 1), (
        "once, behind the first step"
    )
    c.news = 1
    loop.wake()
    loop.turn()
    assert story == ["b", "c"]
    assert (a.deadlines_asked, b.deadlines_asked) == (1, 2), "only who was stepped is asked again"


def test_a_deadline_that_passed_has_its_node_stepped(loop: Loop) -> None:
    node = Stepped()
    settled(loop, node)
    node.due_ns = 1  # Long ago.
    loop.call(lambda: None)  # A call may move any deadline.
    loop.turn()
    assert node.due_ns is None
    node.story.clear()
    node.due_ns = loop_module.clock_ns() + 1_000_000
    loop.call(lambda: None)
    loop.turn()
    while node.due_ns is not None:
        loop.turn()
    assert len(node.story) == 2, "by the call, and when it was due: waiting was rounded up"


def test_nodes_hand_work_to_each_other_within_a_turn(loop: Loop) -> None:
    """An answer inside the process needs no poll of its own, whatever the order of the nodes."""
    story: list[str] = []
    a, b = Stepped("a", story), Stepped("b", story)
    settled(loop, a, b)
    b.on_step = lambda: setattr(a, "news", 1)
    os.eventfd_write(b.fileno, 1)
    loop.turn()
    assert story == ["b", "a"]


def test_nodes_that_never_stop_talking_starve_nobody(loop: Loop) -> None:
    """After a bounded number of rounds the turn ends, and the next one does not wait."""
    a, b = Stepped("a"), Stepped("b")
    settled(loop, a, b)
    a.on_step = lambda: setattr(b, "news", 1)
    b.on_step = lambda: setattr(a, "news", 1)
    a.news = 1
    loop.wake()
    loop.turn()
    assert 0 < len(a.story) <= loop_module._ROUNDS_PER_TURN_MAX + 1
    told: list[str] = []
    loop.call(lambda: told.append("heard"))
    loop.turn()
    assert told == ["heard"]


def test_calls_run_in_order_and_step_every_node(loop: Loop) -> None:
    story: list[str] = []
    a, b = Stepped("a", story), Stepped("b", story)
    settled(loop, a, b)
    for number in range(3):
        loop.call(lambda number=number: story.append(f"call {number}"))  # type: ignore[misc]
    loop.turn()
    assert story == ["call 0", "call 1", "call 2", "a", "b"]


def test_more_calls_than_one_turn_takes_wait_for_the_next(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_CALLS_PER_TURN_MAX", 2)
    told: list[int] = []
    for number in range(5):
        loop.call(lambda number=number: told.append(number))  # type: ignore[misc]
    loop.turn()
    assert told == [0, 1]
    loop.turn()
    loop.turn()
    assert told == [0, 1, 2, 3, 4], "nothing had to wake the loop for the rest"


def test_a_failure_ends_all_and_is_told_to_all() -> None:
    """Nothing may be served by a loop that broke, and nobody may wait for it: every node hears why."""
    loop = Loop()
    a, b = Stepped("a"), Stepped("b")
    loop.add(a)
    loop.add(b)
    broken = ZeroDivisionError("a bug")

    def fail() -> None:
        raise broken

    b.on_step = fail
    loop.start()
    loop.thread.join()
    assert loop.failure is a.failure is b.failure is broken
    told: list[str] = []
    loop.call(lambda: told.append("the nodes are closed and say so themselves"))
    assert len(told) == 1
    loop.stop()


def test_a_late_call_that_fails_keeps_no_other_from_its_answer() -> None:
    loop = Loop()
    node = Stepped()
    loop.add(node)
    told: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    def end() -> None:
        loop._set_stopping()
        loop.call(fail)
        loop.call(lambda: told.append("answered"))

    loop.call(end)
    loop.start()
    loop.thread.join()
    assert told == ["answered"]
    assert loop.failure is None


def test_every_call_runs_once_whenever_the_loop_ends() -> None:
    """Threads that call while it stops: each call runs on the loop's thread or, after the end, in its caller's."""
    loop = Loop()
    loop.add(Stepped())
    loop.start()
    ran: list[int] = []
    start = threading.Barrier(5)

    def caller(number: int) -> None:
        start.wait()
        for _ in range(200):
            loop.call(lambda: ran.append(number))

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    start.wait()
    loop.stop()
    for thread in threads:
        thread.join()
    assert len(ran) == 800


def test_nodes_close_in_reverse_order_and_one_that_fails_stops_no_other() -> None:
    story: list[str] = []
    loop = Loop()
    a, b, c = Stepped("a", story), Stepped("b", story), Stepped("c", story)
    for node in (a, b, c):
        loop.add(node)

    def fail(failure: BaseException | None = None) -> None:
        story.append("b fails")
        raise OSError("at close")

    b.close = fail  # type: ignore[method-assign]
    loop.stop()  # Never started: closed by the caller.
    assert story == ["c closed", "b fails", "a closed"]
    os.close(b.fileno)
    loop.stop()


class Leaving(Stepped):
    """Has left when it was stepped often enough after it was asked to."""

    steps_left = 3

    def leave(self, now_ns: int) -> None:
        self.story.append(f"{self.name} leaves")

    def has_left(self, now_ns: int) -> bool:
        return self.story.count(self.name) >= self.steps_left


def test_who_has_a_last_word_hears_its_answer_before_anybody_is_closed() -> None:
    """P7.9: those who answer run on meanwhile, on the same loop."""
    story: list[str] = []
    loop, metadata, bookie = Loop(), Stepped("metadata", story), Leaving("bookie", story)
    for node in (metadata, bookie):
        loop.add(node)
    bookie.on_step = lambda: setattr(bookie, "news", 1)
    loop.stop()
    leaves, closed = story.index("bookie leaves"), story.index("bookie closed")
    assert "metadata" in story[leaves:closed]
    assert story[closed:] == ["bookie closed", "metadata closed"]
    assert story[leaves:closed].count("bookie") >= 3


def test_a_loop_that_failed_lets_nobody_leave() -> None:
    """What broke is not asked to run on."""
    loop, node = Loop(), Leaving()
    loop.add(node)

    def fail() -> None:
        raise ZeroDivisionError

    node.on_step = fail
    loop.start()
    loop.thread.join()
    assert node.story[-1] == "node closed"
    assert "node leaves" not in node.story


def test_a_wake_from_another_thread_is_never_lost() -> None:
    """Work is left first, then the loop is woken; it clears the wake-up before it looks at the work."""
    loop = Loop()
    node = Stepped()
    done = threading.Semaphore(0)
    left = [0]

    def step() -> None:
        while left[0]:
            left[0] -= 1
            done.release()

    node.on_step = step
    node.has_news = lambda: left[0] > 0  # type: ignore[method-assign]
    loop.add(node)
    loop.start()
    for _ in range(500):
        left[0] += 1
        loop.wake()
        assert done.acquire(timeout=20), "a wake-up was lost"
    loop.stop()


class Waiting(Stepped):
    """A node that waits in the loop's place, and gives what it was told to give."""

    def __init__(self, name: str = "waiter", story: list[str] | None = None) -> None:
        super().__init__(name, story)
        self.gives: list[int] | None = []
        self.asked: list[tuple[object, int]] = []

    def wait(self, filenos: Sequence[int], until_ns: int) -> Sequence[int] | None:
        self.asked.append((filenos, until_ns))
        return self.gives


def test_the_only_node_that_can_wait_waits_for_all(loop: Loop) -> None:
    """It knows everybody's descriptors and the nearest deadline; it is stepped whatever ended its wait."""
    story: list[str] = []
    waiter, other = Waiting("waiter", story), Stepped("other", story)
    settled(loop, waiter, other)
    waiter.asked.clear()
    before_ns = loop.now_ns()
    other.due_ns = before_ns + 500_000_000
    other.news = 1
    loop.turn()  # It tells its deadline behind its step.
    story.clear()
    loop.turn()
    filenos, until_ns = waiter.asked[-1]
    assert {waiter.fileno, other.fileno} < set(filenos)  # type: ignore[call-overload]
    assert until_ns == other.due_ns
    assert story == ["waiter"]
    waiter.gives = [other.fileno]
    loop.turn()
    assert story == ["waiter", "waiter", "other"]
    assert waiter.asked[-1][0] is filenos, "the same object as long as they are the same"


def test_a_waiter_that_does_not_wait_leaves_it_to_the_loop(loop: Loop) -> None:
    """None is "not now": descriptors and deadlines are the loop's then, and nobody is stepped for nothing."""
    story: list[str] = []
    waiter, other = Waiting("waiter", story), Stepped("other", story)
    waiter.gives = None
    settled(loop, waiter, other)
    os.eventfd_write(other.fileno, 1)
    loop.turn()
    assert story == ["other"]


def test_who_has_something_to_do_is_not_kept_waiting(loop: Loop) -> None:
    """News, calls and deadlines that are over come before any wait."""
    waiter, other = Waiting(), Stepped()
    settled(loop, waiter, other)
    waiter.asked.clear()
    other.on_step = lambda: setattr(other, "news", 1)  # Again and again: more than the rounds of one turn.
    other.news = 1
    loop.turn()
    waiter.asked.clear()
    loop.turn()
    assert not waiter.asked
    other.on_step = lambda: None
    loop.turn()
    loop.call(lambda: None)
    waiter.asked.clear()
    loop.turn()
    assert not waiter.asked


def test_of_several_that_can_wait_none_does(loop: Loop) -> None:
    """One that waits in C serves only its own links meanwhile: with two of them the loop is fair to both."""
    first, second = Waiting("first"), Waiting("second")
    settled(loop, first, second)
    first.asked.clear()
    os.eventfd_write(second.fileno, 1)
    loop.turn()
    assert not first.asked
    assert not second.asked
    assert second.story == ["second"]


def test_one_that_is_beside_leaves_the_wait_to_the_other(loop: Loop) -> None:
    """Repair's client on a bookie's loop: else every add of that bookie costs a turn of the loop."""
    first, second = Waiting("first"), Waiting("second")
    loop.add(Beside(second))
    settled(loop, first)
    first.asked.clear()
    first.gives = [second.fileno]
    loop.turn()
    assert len(first.asked) == 1
    assert not second.asked
    assert second.story[-1:] == ["second"]


def test_a_loop_has_a_stack_for_what_peers_send_whatever_other_threads_have(loop: Loop) -> None:
    """T10: no bytes of a stranger end a process. Python 3.13 lets a decoder go 10,000 levels deep before it refuses to
    (those before 1,000 or 1,500), and the stacks that applications with many threads give these are over before."""
    found: list[int] = []
    refused: list[str] = []

    def decode() -> None:
        found.append(stack_bytes())
        if found[0] < loop_module.STACK_BYTES:
            return  # It would end the tests.
        with pytest.raises(PeerError) as caught:
            unpack(msgspec.msgpack.Decoder(list[object]), b"\x91" * 100_000, PeerError, "too deep")
        refused.append(str(caught.value))

    usual = threading.stack_size(128 << 10)
    try:
        loop.start()
    finally:
        assert threading.stack_size(usual) == 128 << 10
    done = threading.Event()
    loop.call(decode)
    loop.call(done.set)
    assert done.wait(60)
    assert found[0] >= loop_module.STACK_BYTES
    assert refused[0].startswith("too deep")


def test_a_time_of_any_clock_is_written_for_people() -> None:
    """Whoever marked a ledger or gave up directories wrote it by their own clock, and any client can write a record: a
    bookie that read one without a date ended by that, and so did commands that list them."""
    assert utc_text(0) == "1970-01-01 00:00:00 UTC"
    assert utc_text(1_800_000_000_999) == "2027-01-15 08:00:00 UTC"
    assert utc_text(LEDGER_ID_MAX) == "9999-12-31 23:59:59 UTC"
    assert (when(LEDGER_ID_MAX), when(0)) == ("9999-12-31 23:59 UTC", "")
    mark = decode_repair_mark(encode_repair_mark(RepairMark(1, ("b1",), LEDGER_ID_MAX)))
    assert repair._when(mark.created_ms) == bookies._when(mark.created_ms) == utc_text(LEDGER_ID_MAX)
