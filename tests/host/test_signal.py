"""Waking who waits: no lost wake-up, no waiter left behind in the list, either way of waiting."""

from __future__ import annotations

import asyncio
import threading

import pytest

from embedbk.host.signal import Signal


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
    assert signal._sleepers == {}


def test_nobody_who_stopped_waiting_stays_listed() -> None:
    """A tail that polls an idle ledger with time limits would add a future per poll."""
    signal = Signal()

    async def wait() -> None:
        for _ in range(5):
            assert not await signal.wait_async(lambda: False, 0.0005)
        task = asyncio.ensure_future(signal.wait_async(lambda: False))
        await asyncio.sleep(0)
        assert len(next(iter(signal._sleepers.values()))) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())
    assert signal._sleepers == {}


def test_an_event_loop_that_is_gone_disturbs_nobody() -> None:
    signal = Signal()
    gone = asyncio.new_event_loop()
    task = gone.create_task(signal.wait_async(lambda: False))
    gone.run_until_complete(asyncio.sleep(0))
    gone.close()
    signal.notify()
    assert signal._sleepers == {}
    del task
