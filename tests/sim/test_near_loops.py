"""Writers on one loop with their bookies, in worlds: frames that go by no message, and are watched as any other
(native/SHORTCUTS.md, "Near seats")."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.messages import decode_message
from embedbk.config import Quorum
from embedbk.errors import PeerError
from embedbk.testing import writing_handles
from embedbk.testing.clocks import SECOND
from embedbk.testing.invariants import Invariants
from embedbk.testing.near_loops import NearLoops
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.testing.writing_handles import open_writing, takeover_core


def on_course(bookies: int = 4) -> tuple[World, Any]:
    """A world, and a writer whose frames go past all messages by now."""
    world = World(5, bookies=bookies, observers=[Invariants()], is_native=True, near_clients=["w1"])
    assert world.run_until(lambda: all(world.nodes[name].is_registered for name in world.disks))
    node = world.start_client("w1")
    assert world.run_until(lambda: node.is_ready and len(node.bookies) == bookies)
    taking = world.start("w1", takeover_core(world, "w1", "a log", Quorum(3, 3, 2)))
    assert world.run_until(taking.future.done)
    writing = open_writing(world, "w1", taking.future.result(), 5 * SECOND)
    while not world.sometimes["sent to bookies of its loop"]:
        append(world, writing)
    return world, writing


def append(world: World, writing: Any, count: int = 1) -> int:
    last = -1
    for _ in range(count):
        last = writing_handles.append(world, "w1", writing, b"an entry") or 0
        assert world.run_until(lambda: writing.lac >= last), writing.error  # noqa: B023
    return last


def test_frames_go_by_no_message_and_are_watched_as_any_other() -> None:
    """P3.2, P3.3, I40: each bookie of the ensemble has them durable before they are acknowledged."""
    world, writing = on_course()
    asked: list[int] = []

    def note(sender: str, receiver: str, body: bytes) -> None:
        try:
            control = decode_message(memoryview(body)).control
        except PeerError:
            return
        asked.extend([1] * (sender == "w1" and isinstance(control, AddRequest)))

    world.network.add_rule(note)
    before = world.sometimes["sent to bookies of its loop"]
    last = append(world, writing, 20)
    assert world.sometimes["sent to bookies of its loop"] >= before + 20 and not asked
    for member in writing.core.in_flight.members:
        found = world.nodes[member.bookie_id].storage.read(writing.core.ledger_id, 0, last, 1 << 20)
        assert found.frame is not None and found.frame.last_entry == last
    world.close()


@pytest.mark.parametrize("who", ["bookie", "client"])
def test_a_crash_on_such_a_loop_loses_nothing_that_was_acknowledged(who: str) -> None:
    """I5, P4.4: a bookie that goes is replaced, and gets what is not acknowledged; a client that goes is recovered."""
    world, writing = on_course()
    ledger_id, gone = writing.core.ledger_id, writing.core.in_flight.members[0].bookie_id
    last = append(world, writing, 5)
    writing_handles.append(world, "w1", writing, b"on its way")
    world.crash(gone if who == "bookie" else "w1")
    if who == "bookie":
        assert world.run_until(lambda: writing.lac == last + 1)
        assert append(world, writing, 3) == last + 4
    other = world.start_client("r1")
    assert world.run_until(lambda: other.is_ready and len(other.bookies) >= 3)
    taking = world.start("r1", takeover_core(world, "r1", "a log", Quorum(3, 3, 2)))
    assert world.run_until(taking.future.done)
    assert taking.future.exception() is None
    closed = [each for each in taking.future.result().log_list.segments if each.ledger_id == ledger_id]
    assert len(closed) == 1
    world.close()


def test_what_is_acknowledged_before_it_is_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I40: observers who are told of no seat that has it durable find an acknowledgement without its quorum."""
    monkeypatch.setattr(NearLoops, "on_durable", lambda self, bookie, node, token: self._wake("w1"))
    with pytest.raises(Violation):
        on_course()
