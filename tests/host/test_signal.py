"""Waking who waits: no lost wake-up, no waiter left behind in the list, either way of waiting."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from typing import Any

import pytest

from embedbk.client.behind import Behind
from embedbk.host.signal import AlarmsHeld, Signal, Watermark, within


def test_a_thread_is_woken_when_the_state_moved() -> None:
    signal, state = Signal(), [0]
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(signal.wait(lambda: state[0] == 2, 20)))
    thread.start()
    for value in (1, 2):
        state[0] = value
        signal.notify()
    thread.join()
    assert woken == [True]


def test_time_that_is_over_says_so() -> None:
    assert not Signal().wait(lambda: False, 0.001)
    assert not asyncio.run(Signal().wait_async(lambda: False, 0.001))
    assert asyncio.run(Signal().wait_async(lambda: True, 0.0))


def test_a_coroutine_is_woken_once_per_batch_and_looks_again() -> None:
    signal, state = Signal(), [0]

    async def wait() -> list[bool]:
        loop = asyncio.get_running_loop()
        waiting = [asyncio.ensure_future(signal.wait_async(lambda: state[0] == 2, 20)) for _ in range(3)]
        await asyncio.sleep(0)
        for value in (1, 2):
            state[0] = value
            await loop.run_in_executor(None, signal.notify)
        return list(await asyncio.gather(*waiting))

    assert asyncio.run(wait()) == [True, True, True]
    assert not signal._sleepers


def test_nobody_who_stopped_waiting_stays_listed() -> None:
    """A tail that polls an idle ledger with time limits would add a future per poll."""
    signal = Signal()

    async def wait() -> None:
        for _ in range(5):
            assert not await signal.wait_async(lambda: False, 0.0005)
        task = asyncio.ensure_future(signal.wait_async(lambda: False))
        await asyncio.sleep(0)
        assert signal._sleepers is not None
        assert len(next(iter(signal._sleepers.values()))) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())
    assert not signal._sleepers


def test_an_event_loop_that_is_gone_disturbs_nobody() -> None:
    signal = Signal()
    gone = asyncio.new_event_loop()
    task = gone.create_task(signal.wait_async(lambda: False))
    gone.run_until_complete(asyncio.sleep(0))
    gone.close()
    signal.notify()
    assert not signal._sleepers
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task


def test_a_mark_wakes_whose_entry_it_passed_and_nobody_else() -> None:
    """Rule P3.3: acknowledgements come in entry order, so the mark alone answers every waiter."""
    mark = Watermark()
    woken: list[int] = []

    async def wait_for(entry_id: int) -> None:
        future = mark.future(entry_id)
        assert future is not None
        await future
        woken.append(entry_id)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        waiting = [asyncio.ensure_future(wait_for(entry_id)) for entry_id in range(6)]
        await asyncio.sleep(0)
        held = waiting[4].get_coro()
        await loop.run_in_executor(None, mark.rise, 2)
        await asyncio.wait(waiting[:3], timeout=20)
        assert woken == [0, 1, 2]
        assert held.cr_frame is not None and not waiting[4].done()  # type: ignore[union-attr]
        await loop.run_in_executor(None, mark.rise, 5)
        await asyncio.gather(*waiting)

    asyncio.run(story())
    assert woken == [0, 1, 2, 3, 4, 5]
    assert mark._queues is None, "nobody waits: nothing is kept"


def test_tickets_may_be_awaited_in_any_order() -> None:
    mark = Watermark()
    woken: list[int] = []

    async def wait_for(entry_id: int) -> None:
        assert await mark.wait_async(entry_id, 20)
        woken.append(entry_id)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        waiting = [asyncio.ensure_future(wait_for(entry_id)) for entry_id in (3, 1, 2, 0)]
        await asyncio.sleep(0)
        await loop.run_in_executor(None, mark.rise, 1)
        await asyncio.wait([waiting[1], waiting[3]], timeout=20)
        assert sorted(woken) == [0, 1]
        await loop.run_in_executor(None, mark.rise, 3)
        await asyncio.gather(*waiting)

    asyncio.run(story())
    assert sorted(woken) == [0, 1, 2, 3]


def test_who_gives_up_on_an_entry_is_forgotten() -> None:
    mark = Watermark()

    async def story() -> None:
        assert not await mark.wait_async(7, 0.0005)
        future = mark.future(7)
        assert future is not None
        future.cancel()
        mark.forget(future)

    asyncio.run(story())
    assert mark._queues is None
    assert not mark.wait(7, 0.0005)
    assert mark._threads is None


def test_threads_wake_when_their_entry_is_passed_and_all_at_the_end() -> None:
    mark = Watermark()
    woken: list[int] = []
    first, second = threading.Event(), threading.Event()

    def wait_for(entry_id: int, done: threading.Event) -> None:
        assert mark.wait(entry_id, 20)
        woken.append(entry_id)
        done.set()

    threads = [threading.Thread(target=wait_for, args=(n, done)) for n, done in ((0, first), (9, second))]
    for thread in threads:
        thread.start()
    mark.rise(3)
    assert first.wait(20)
    assert woken == [0]
    mark.end()
    assert second.wait(20)
    for thread in threads:
        thread.join()
    assert mark._threads is None


def test_marks_of_many_ledgers_wake_their_loop_once() -> None:
    """A turn of the host that moves a thousand marks wakes a loop by one call (ARCHITECTURE.md, one add)."""
    marks = [Watermark() for _ in range(50)]

    async def story() -> int:
        loop = asyncio.get_running_loop()
        calls = 0
        real = loop.call_soon_threadsafe

        def counted(*given: Any, **named: Any) -> asyncio.Handle:
            nonlocal calls
            calls += 1
            return real(*given, **named)

        futures = [future for mark in marks if (future := mark.future(0)) is not None]
        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        for mark in marks:
            mark.rise(0)
        await asyncio.gather(*futures)
        return calls

    assert asyncio.run(story()) == 1


def test_a_loop_is_not_woken_before_the_whole_turn_is_published() -> None:
    """ARCHITECTURE 4: one `call_soon_threadsafe` a batch. Woken for the first handle, the loop would take the GIL and
    look at that one alone, and again for the next."""

    async def wait() -> list[int]:
        loop = asyncio.get_running_loop()
        marks = [Watermark() for _ in range(5)]
        waiting = [asyncio.ensure_future(mark.wait_async(3)) for mark in marks]
        await asyncio.sleep(0)
        calls: list[int] = []
        call = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *what: (calls.append(1), call(*what))[1]  # type: ignore[method-assign,assignment]
        with AlarmsHeld():
            for mark in marks:
                mark.rise(3)
            assert not calls
        await asyncio.gather(*waiting)
        marks[0].rise(4)
        return calls

    assert asyncio.run(wait()) == [1]


def test_waiters_that_are_collected_while_another_is_listed_do_not_stop_it() -> None:
    """The garbage collector runs in an allocation; what it ends takes itself off its list, under the same lock."""

    def leave_waiters() -> None:
        """A handle that is forgotten with a coroutine waiting on it: one cycle, which only the collector finds."""
        signal, mark, gone = Signal(), Watermark(), asyncio.new_event_loop()
        tasks = [gone.create_task(signal.wait_async(lambda: False)), gone.create_task(mark.wait_async(1))]
        gone.run_until_complete(asyncio.sleep(0))
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        gone.close()

    signal, mark = Signal(), Watermark()

    async def wait() -> None:
        assert not await signal.wait_async(lambda: False, 0.0)
        assert not await mark.wait_async(0, 0.0)

    before = gc.get_threshold()
    for _ in range(20):
        leave_waiters()
        gc.set_threshold(1)
        try:
            assert not signal.wait(lambda: False, 0.0)
            assert not mark.wait(0, 0.0)
            asyncio.run(wait())
        finally:
            gc.set_threshold(*before)
    assert not signal._sleepers
    assert mark._queues is None


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_cancellation_is_not_lost_to_a_result_that_comes_with_it(timeout_s: float | None) -> None:
    """Else the task goes on, and waits for whatever comes next, for ever (CPython 3.11, gh-86296)."""

    async def story() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(within(future, timeout_s))
        await asyncio.sleep(0)
        future.set_result(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())


def test_a_result_that_comes_as_the_time_is_over_is_a_result() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        there: asyncio.Future[int] = loop.create_future()
        there.set_result(1)
        assert await within(there, 0.0) == 1
        late: asyncio.Future[int] = loop.create_future()
        with pytest.raises(TimeoutError):
            await within(late, 0.0)
        assert late.cancelled()
        both: asyncio.Future[int] = loop.create_future()
        loop.call_soon(both.set_result, 2)
        assert await within(both, 0.0) == 2

    asyncio.run(story())


def test_steps_that_were_not_begun_when_their_client_goes_are_ended() -> None:
    """They were made by a thread that is told of nothing: else Python names each of them on stderr."""
    begun: list[int] = []

    async def steps() -> None:
        begun.append(1)

    behind, waiting = Behind("behind"), steps()

    def begin_and_stop() -> None:
        behind._begin(waiting)
        behind._loop.stop()

    behind._loop.call_soon_threadsafe(begin_and_stop)
    behind._thread.join()
    assert inspect.getcoroutinestate(waiting) == inspect.CORO_CLOSED and not begun
