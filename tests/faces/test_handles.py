"""`handles` of a real client, in both faces: a thread that waits is seen from another one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import embedbk
from embedbk import aio


def waits(bk: embedbk.Client, kind: str) -> embedbk.HandleState:
    """The state of its only handle of this kind, once it waits."""
    while True:
        for state in bk.handles():
            if state.kind == kind and state.rule:
                return state


def test_a_tail_in_another_thread_is_seen_waiting(bk: embedbk.Client, log_name: str) -> None:
    log, seen = bk.log(log_name), threading.Event()

    def follow() -> None:
        for entry in log.tail(0):
            seen.set()
            if bytes(entry) == b"last":
                return

    with log.writer() as writer:
        writer.append(b"first")
        follower = threading.Thread(target=follow)
        follower.start()
        seen.wait(60)
        state = waits(bk, "tail")
        assert (state.rule, state.place, state.ledger_id) == ("P6.2", 1, writer.ledger_id)
        assert state.what == f"log {log_name!r}"
        own = next(each for each in bk.handles() if each.kind == "log writer")
        assert (own.place, own.rule) == (1, "")
        writer.append(b"last")
        follower.join(60)
    assert bk.handles() == []


def test_the_awaited_face_has_them_too(data: Path, settings: embedbk.Settings) -> None:
    async def use() -> None:
        async with aio.open(data, bookies=1, settings=settings) as bk:
            async with bk.log("orders").writer() as orders:
                await orders.append(b"zero")
                (state,) = await bk.handles()
                assert isinstance(state, embedbk.HandleState)
                at = f"at 1 in ledger {orders.ledger_id}"
                assert str(state) == f"log writer of log 'orders' {at}: waits for nothing"
            assert await bk.handles() == []

    asyncio.run(use())
