"""The order in which a bookie's core hears of things, and in which what it asks for is done (host/stepping.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from embedbk.core.bookie_words import AddsTaken, JournalDurable, LinkLost
from embedbk.core.vocabulary import Tick
from embedbk.host.stepping import Stepping


class Told:
    """A core, and all that a step touches: what became of each, in order."""

    def __init__(self) -> None:
        self.order: list[Any] = []
        self.replies = SimpleNamespace(durable=0, failure=None)
        self.reads = ["first", "second"]
        self.taken = 0
        self.next_token = lambda: 8
        self.add_path = SimpleNamespace(taken=lambda: self.taken, parked=SimpleNamespace(uncounted=[]))
        self.begins: dict[
            str, Any
        ] = {}  # By the effect that is carried out, the event that occurs meanwhile.
        everything: Any = self
        self.steps = Stepping(everything, everything, everything, everything.reads, self.carry_out, self.read)

    def step(self, event: Any) -> list[Any]:
        self.order.append(event)
        if isinstance(event, JournalDurable):
            self.replies.durable = event.token
        return [f"{type(event).__name__} asks", f"{type(event).__name__} asks more"]

    def carry_out(self, effect: Any, now_ns: int) -> None:
        self.order.append(effect)
        if effect in self.begins:
            self.steps.step(self.begins.pop(effect))

    def read(self, now_ns: int) -> Any:
        self.order.append(self.reads.pop(0))
        return LinkLost(now_ns, len(self.reads))

    def send_gathered(self) -> None:
        self.order.append("answers leave")


def of(event: Any) -> list[Any]:
    name = type(event).__name__
    return [event, f"{name} asks", f"{name} asks more"]


def test_what_is_durable_and_what_was_taken_in_c_come_before_any_event() -> None:
    """P3.2: an answer leaves in the step that receives the durability; C's adds are older than what comes now."""
    told = Told()
    told.reads.clear()
    told.taken = 3
    told.steps.note_durable(5)
    told.steps.step(Tick(9))
    told.steps.step(Tick(10))
    durable, taken = JournalDurable(9, 5), AddsTaken(9, 8)
    assert told.order == [
        *of(taken), *of(durable), *of(Tick(9)), "answers leave", *of(Tick(10)), "answers leave"
    ]  # fmt: skip


def test_an_event_that_occurs_meanwhile_follows_behind_all_effects() -> None:
    """Effects are carried out in list order."""
    told = Told()
    told.reads.clear()
    told.begins["Tick asks"] = LinkLost(9, 1)
    told.steps.step(Tick(9))
    assert told.order == [*of(Tick(9)), *of(LinkLost(9, 1)), "answers leave"]


def test_reads_are_made_one_by_one_when_no_event_is_left() -> None:
    """P6.7: what one has found is told before the next is made; answers leave behind all of them."""
    told = Told()
    told.steps.step(None, 9)
    assert told.order == ["first", *of(LinkLost(9, 1)), "second", *of(LinkLost(9, 0)), "answers leave"]


def test_a_step_ends_the_rest() -> None:
    """It may have moved what is due."""
    told = Told()
    told.steps.rest_until(50)
    assert told.steps.due_ns == 50
    told.steps.step(None, 9)
    assert told.steps.due_ns == 0
