"""Callers that are interrupted, by what a signal handler raises, at any point of a call: what they hear is true, and
whoever calls next goes on."""

from __future__ import annotations

import itertools
import logging
import queue
import threading

import pytest

import embedbk
from embedbk.host.loop import Loop
from tests.faces.interrupting import handled, interruptions

# A call that is stopped where it begins has made steps that nobody takes.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def test_an_append_of_a_producer_that_was_interrupted_is_not_doubled_by_its_next_try(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.1: what was appended under a sequence is answered with its position. A signal between the append and the note
    of it left an entry that the next try did not find."""
    with bk.log(log_name).writer() as writer:
        tried = 0
        for point, _ in interruptions(lambda at: writer.append(b"%d" % at, producer=(7, at))):
            writer.append(b"%d" % point, producer=(7, point), timeout_s=60)
            tried = point
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert tried
    assert entries == list(range(1, tried + 2))


@pytest.mark.parametrize("digest", ["crc32c", "xxh3"])
def test_an_append_that_was_interrupted_says_whether_it_is_on_its_way(
    bk: embedbk.Client, log_name: str, digest: str
) -> None:
    """P3.6: the exception has a ticket of an entry that is queued. It said that nothing was appended where a signal
    came right behind the queueing; with a second digest the packer was left between two entries, and its ledger
    failed."""
    promised, none = set(), set()
    with bk.log(log_name).writer(digest=digest) as writer:
        for point, stopped in interruptions(lambda at: writer.append(b"%d" % at, timeout_s=60)):
            if not hasattr(stopped, "ticket"):
                continue  # Stopped before, or behind, the append.
            if stopped.ticket is None:
                none.add(point)
            else:
                stopped.ticket.result(60)
                promised.add(point)
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert promised
    assert none
    assert len(entries) == len(set(entries))
    assert promised <= set(entries)
    assert not none & set(entries)


@pytest.mark.parametrize("digest", ["crc32c", "xxh3"])
def test_a_plain_append_that_was_interrupted_keeps_no_other_waiting(
    bk: embedbk.Client, log_name: str, digest: str
) -> None:
    """P3.1: entries have dense ids, each once, and what is queued is sent, also where the thread that was to tell the
    host of it never came to that."""
    with bk.log(log_name).writer(digest=digest) as writer:
        tried = [point for point, _ in interruptions(lambda at: writer.append(b"%d" % at))]
        writer.append(b"0", timeout_s=60)
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert tried
    assert len(entries) == len(set(entries))


def test_who_was_interrupted_in_an_append_keeps_no_roll_waiting(bk: embedbk.Client, log_name: str) -> None:
    """P8.2: a roll waits until nobody is in the middle of an append. One whose caller a signal had stopped as it came
    in, or left, counted as inside for ever: each roll held all appends back until its time was over, and failed."""
    with bk.log(log_name).writer() as writer:
        tried = [point for point, _ in interruptions(lambda at: writer.append(b"%d" % at, timeout_s=60))]
        tried += [point for point, _ in interruptions(lambda at: writer.append_many([b"0", b"1"]))]
        before = writer.ledger_id
        writer.roll()
        assert writer.ledger_id != before
    assert tried


def test_a_lock_whose_block_was_interrupted_where_it_begins_or_ends_is_let_go(bk: embedbk.Client) -> None:
    """P9.3: who does not hold it any more lets the next one have it. A signal between the listing of a request and the
    wait for it, or behind the answer, left a hold that nobody had: its client was refused the lock for ever, and every
    other client waited."""
    lock = bk.lock("interrupted")

    def hold(_: int) -> None:
        with lock:
            pass

    for _ in interruptions(hold):
        if lock.is_held:  # Stopped before its end began.
            lock.release()
        assert lock.acquire(60)
        lock.release()


def test_a_call_that_was_interrupted_keeps_the_host_waiting_for_nothing(
    bk: embedbk.Client, log_name: str
) -> None:
    """ARCHITECTURE.md: no thread of a user's keeps the host's from going on. One that a signal stopped as it took the
    lock of a future kept that, and the host's thread waited for it with all of its nodes."""
    for _ in interruptions(lambda _: bk.log_exists(log_name)):
        assert not bk.log_exists(log_name)


def test_a_signal_handler_appends_while_its_thread_does(bk: embedbk.Client, log_name: str) -> None:
    """P3.1: finding an append and queueing it are one step, also where a handler of the same thread appends in
    between: it waited for its own thread for ever. One that appends under the same producer is refused."""
    log = bk.log(log_name)
    appended: list[int] = []

    def work() -> None:
        with log.writer() as writer:
            for point in itertools.count(1):
                came = handled(
                    lambda: writer.append(b"%d" % (2 * point), producer=(1, point)),  # noqa: B023
                    point,
                    lambda: writer.append(b"%d" % (2 * point + 1), producer=(2, point)),  # noqa: B023
                )
                appended.append(2 * point)
                if not came:
                    return
                appended.append(2 * point + 1)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(300)
    assert not worker.is_alive()
    assert sorted(int(bytes(entry)) for entry in log.read()) == sorted(appended)


def test_a_handler_that_repeats_the_append_that_it_interrupts_does_not_double_it(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.1: it is answered with the position, or refused where that is not known yet."""
    refused = 0

    def work() -> None:
        nonlocal refused
        with bk.log(log_name).writer() as writer:

            def again() -> None:
                nonlocal refused
                try:
                    writer.append(b"%d" % point, producer=(1, point))
                except embedbk.UsageError as error:
                    refused += error.definite

            for point in itertools.count(1):
                if not handled(lambda: writer.append(b"%d" % point, producer=(1, point)), point, again):  # noqa: B023
                    return

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(300)
    assert not worker.is_alive()
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert refused
    assert entries == list(range(1, len(entries) + 1))


def test_a_signal_handler_calls_the_loop_that_its_thread_is_about_to_wake() -> None:
    """ARCHITECTURE.md: other threads reach the loop by `call`. The loop may have seen the wake-up before the thread
    that woke it let go of its lock, and a handler that ran there woke it again, and waited for its own thread."""
    loop = Loop("test")
    done: list[int] = []

    def work() -> None:
        with loop._wake_lock:
            loop.call(lambda: done.append(1))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(60)
    assert not worker.is_alive()
    loop.turn()
    loop.stop()
    assert done == [1]


def test_a_logging_handler_that_appends_in_the_hosts_thread_is_refused(
    bk: embedbk.Client, log_name: str
) -> None:
    """ARCHITECTURE.md: the host's thread waits for nobody. A handler that appended what was logged there stopped all
    nodes of the process for ever."""
    heard: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with bk.log(log_name).writer() as writer:

        class Appending(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                try:
                    writer.append(record.getMessage().encode())
                except embedbk.UsageError as refused:
                    heard.put(refused)

        handler, logger = Appending(), logging.getLogger("embedbk.host.tested")
        logger.addHandler(handler)
        try:
            bk._runtime.call(lambda: logger.warning("%s", "a bookie is away"))
            refused = heard.get(timeout=60)
        finally:
            logger.removeHandler(handler)
        assert "nothing was done" in str(refused)
        assert writer.append(b"one", timeout_s=60).entry_id == 0
