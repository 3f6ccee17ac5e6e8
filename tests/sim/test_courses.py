"""Writers' frames that are sealed, sent and counted in C, in worlds whose network does what it likes
(native/SHORTCUTS.md, "Adds in C"): the same lines as over ZeroMQ, on trays instead of sockets."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.frame import Frame
from embedbk.codec.messages import decode_message
from embedbk.config import Quorum
from embedbk.core.client_words import CourseEnded, Send
from embedbk.core.writer import Writer
from embedbk.testing.invariants import Invariants
from embedbk.testing.observer import Observer
from embedbk.testing.plan import SECOND, make_plan
from embedbk.testing.run import replay_line, run_plan
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, open_writing, takeover_core
from embedbk.transports.sim_faults import Treatment

SEEDS = (0, 4, 6, 10, 12, 20, 27)  # In which courses begin, and are given back with frames on their way.


def test_frames_that_go_past_their_core_keep_every_promise() -> None:
    """P3.2, P3.3, P4.1, I4, I13: what C counts as acknowledged has its quorum, and what it gives back is owed by
    somebody until its end, whatever is lost, late, doubled or damaged."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        plan = dataclasses.replace(make_plan(seed), has_courses=True)
        outcome = run_plan(plan)
        assert not outcome.violation, f"{outcome.violation}\nreplay, with has_courses: {replay_line(plan)}"
        seen.update(outcome.sometimes)
    assert seen["sent past the core"] > 100
    assert seen["course given back"] > 5


class Requests(Observer):
    """Who was sent which frames past the core."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def on_add_sent(self, client: str, core: Writer, frame: Frame, send: Send) -> None:
        self.sent.append((send.member.bookie_id, frame.first_entry))


def test_a_link_that_goes_gives_the_core_what_is_on_its_way() -> None:
    """P4.1, P4.4, L1: sent past its core, not acknowledged by anybody when one of the three links goes. The core has it
    to the end: nobody who stays is asked twice, and a fourth bookie gets what the lost one owes."""
    requests = Requests()
    world = World(5, bookies=4, observers=[Invariants(), requests], has_courses=True)
    node = world.start_client("w1")
    assert world.run_until(lambda: node.is_ready and len(node.bookies) == 4)
    taking = world.start("w1", takeover_core(world, "w1", "a log", Quorum(3, 3, 2)))
    assert world.run_until(taking.future.done)
    writing = open_writing(world, "w1", taking.future.result(), 5 * SECOND)
    entry_id = -1
    while not requests.sent:
        entry_id = append(world, "w1", writing, b"by messages") or 0
        assert world.run_until(lambda: writing.lac >= entry_id)  # noqa: B023
    asked: list[tuple[str, int]] = []
    slow, _, gone = (member.bookie_id for member in writing.core.in_flight.members)

    def note(sender: str, receiver: str, body: bytes) -> Treatment | None:
        message = decode_message(memoryview(body))
        if sender == "w1" and isinstance(message.control, AddRequest):
            asked.append((receiver, message.frames[0][0].first_entry))
        # Or the two that stay acknowledge it before the loss is seen, and then it is owed to nobody.
        return Treatment(delay_ns=SECOND // 10) if (sender, receiver) == (slow, "w1") else None

    world.network.add_rule(note)
    last = append(world, "w1", writing, b"on its way")
    assert last is not None
    assert world.run_until(lambda: (gone, last) in requests.sent)
    world.crash(gone)
    assert world.run_until(lambda: writing.lac >= last)
    assert writing.ensemble_changes == 1
    more = append(world, "w1", writing, b"behind it")
    assert more is not None
    assert world.run_until(lambda: writing.lac >= more)
    assert sorted(who for who, first in asked if first == last and who != gone) == sorted(
        name for name in ("b1", "b2", "b3", "b4") if name != gone
    )
    world.close()


class Unsent(Observer):
    """Frames that a core was told of as not sent to some seat."""

    def __init__(self) -> None:
        self.frames: list[int] = []

    def on_step(self, node: str, core: Any, event: Any, effects: Any) -> None:
        if type(event) is CourseEnded and event.unsent:
            self.frames += [first_entry for first_entry, _ in event.unsent]


def test_what_a_link_refuses_is_sent_by_the_core() -> None:
    """P3.2, RP33: a link took nothing of a frame although its window had room, as a socket may. No answer to it can
    come; the core sends it, and that bookie holds it in the end, with all that came before and behind it."""
    unsent = Unsent()
    world = World(5, bookies=3, observers=[Invariants(), unsent], has_courses=True)
    node = world.start_client("w1")
    assert world.run_until(lambda: node.is_ready and len(node.bookies) == 3)
    taking = world.start("w1", takeover_core(world, "w1", "a log", Quorum(3, 3, 2)))
    assert world.run_until(taking.future.done)
    writing = open_writing(world, "w1", taking.future.result(), 5 * SECOND)
    last = -1
    while not (writing.local and unsent.frames):
        if writing.local:
            world.network.narrow["b3"] = 1
        last = append(world, "w1", writing, bytes(100)) or 0
        assert world.run_until(lambda: writing.lac >= last)  # noqa: B023
        if unsent.frames:
            world.network.narrow.clear()
    assert world.run_until(lambda: writing.core.in_flight.is_at_rest)
    assert writing.ensemble_changes == 0 and writing.error is None
    for name in ("b1", "b2", "b3"):
        found = world.nodes[name].storage.read(writing.core.ledger_id, 0, last, 1 << 20)
        assert found.frame is not None and found.frame.entry_count == last + 1, name
    world.close()


def test_what_a_course_finds_in_the_packer_is_sent_at_once() -> None:
    """L15, P3.7: who appended it has woken the node, whose turn began the course; nobody wakes it for that again."""
    world = World(5, bookies=3, observers=[Invariants()], has_courses=True)
    node = world.start_client("w1")
    assert world.run_until(lambda: node.is_ready and len(node.bookies) == 3)
    taking = world.start("w1", takeover_core(world, "w1", "a log", Quorum(3, 3, 2)))
    assert world.run_until(taking.future.done)
    writing = open_writing(world, "w1", taking.future.result(), 5 * SECOND)
    first = append(world, "w1", writing, b"by messages")
    assert world.run_until(lambda: writing.lac == first)
    while not writing.local:
        world.run_for(SECOND)  # Nothing else is left that would step the node.
        last = append(world, "w1", writing, b"and on")
        assert world.run_until(lambda: writing.lac == last, SECOND // 50)  # noqa: B023
    world.close()
