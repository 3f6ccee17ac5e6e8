"""What each open handle of a client waits for, by which rule and since when: `Client.handles`.

Computed on request: for writers from the state of their cores, for readers from a note that each leaves where it begins
to wait. Decides what is reported, and what is logged without a request: a handle that could go on and does not for
LOOKS_MAX looks in a row, 10 s at least, once, as a WARNING. The protocol does not depend on it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from embedbk.client.waiting import FutureResult
from embedbk.core.adding_waits import AddsWait, adds_wait
from embedbk.core.pausing import Beating
from embedbk.errors import EmbedbkError
from embedbk.host.awaited import Awaited
from embedbk.host.operations import Operation
from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY

if TYPE_CHECKING:
    from embedbk.client.renewing import Succession
    from embedbk.client.runtime import Runtime

__all__ = ["LOOKS_MAX", "HandleState", "OpenHandles", "ReaderNote", "handles"]

logger = logging.getLogger("embedbk.client.handles")

LOOK_S = 5.0  # Pause between two looks at handles that could go on.
LOOKS_MAX = 3  # Looks in a row: two periods lie between them for certain, however long a process stood still.
_WRITERS_PER_TURN = 1024  # Writers looked at in one turn of the host's thread.
_STUCK_MAX = 1024  # Stuck handles remembered at a time.


class HandleState(NamedTuple):
    """One open handle. As text: `str()`."""

    kind: str  # "ledger writer", "ledger reader", "log writer", "log reader", "tail" or "consumer".
    what: str  # What it is a handle of, as "log 'orders'".
    ledger_id: int | None  # The ledger in which it stands now; None: none yet.
    # The entry that comes next: in a log its dense offset, in a ledger its id; None: not known yet.
    place: int | None
    rule: str  # The rule by which it waits, as PROTOCOL.md numbers it; "": it waits for nothing.
    waits_for: str  # What it waits for, in a few words; "": nothing.
    waited_s: float  # How long it has waited; 0.0: it waits for nothing.
    can_go_on: bool  # What it waits for is there: it goes on within a moment, or there is a bug.

    def __str__(self) -> str:
        at = "" if self.place is None else f" at {self.place}"
        if self.ledger_id is not None and not self.what.startswith("ledger"):
            at += f" in ledger {self.ledger_id}"
        if not self.rule:
            return f"{self.kind} of {self.what}{at}: waits for nothing"
        return f"{self.kind} of {self.what}{at}: waits for {self.waits_for} ({self.rule}), for {self.waited_s:.1f} s"


class _ReadWait(NamedTuple):
    rule: str
    text: str
    since_s: float
    is_there: Callable[[], bool] | None  # Whether what it waits for is there; None: nobody here can tell.


class ReaderNote:
    """What one reading handle does just now. Written by the thread that drives it, once for each wait and each run of
    entries, never for an entry; read from any thread."""

    __slots__ = (
        "__weakref__",
        "_clock_s",
        "_wait",
        "is_driven",
        "kind",
        "ledger_id",
        "number",
        "place",
        "what",
    )

    def __init__(self, kind: str, what: str, clock_s: Callable[[], float]) -> None:
        self.kind, self.what = kind, what
        self.number = 0  # Its number among the handles of its client.
        self.place: int | None = None
        self.ledger_id: int | None = None
        self.is_driven = True  # False: no call is under way, wherever its steps stand.
        self._clock_s = clock_s
        self._wait: _ReadWait | None = None

    def waits(self, rule: str, text: str, is_there: Callable[[], bool] | None = None) -> None:
        """From here on it waits for this, until `goes_on`."""
        self._wait = _ReadWait(rule, text, self._clock_s(), is_there)

    def goes_on(self) -> None:
        self._wait = None

    @property
    def stuck_at(self) -> object | None:
        """The wait that could end; None: it does not wait, or nobody can tell."""
        wait = self._wait
        is_stuck = self.is_driven and wait is not None and wait.is_there is not None and wait.is_there()
        return wait if is_stuck else None

    def state(self) -> HandleState:
        wait = self._wait if self.is_driven else None
        shown = (self.kind, self.what, self.ledger_id, self.place)
        if wait is None:
            return HandleState(*shown, "", "", 0.0, False)
        waited_s = max(0.0, self._clock_s() - wait.since_s)
        can_go_on = wait.is_there is not None and wait.is_there()
        return HandleState(*shown, wait.rule, wait.text, waited_s, can_go_on)


@dataclass(slots=True)
class _Stuck:
    mark: object  # Where it was stuck; a handle that is elsewhere went on.
    looks: int = 0


class _Looking(Operation):
    """Calls `look` on the host's thread, period by period."""

    def __init__(self, look: Callable[[], None], period_s: float) -> None:
        super().__init__(Beating(int(period_s * 1e9)))
        self._look, self._seen = look, 0

    def publish(self) -> None:
        assert isinstance(self.core, Beating)
        if self.core.beats != self._seen:
            self._seen = self.core.beats
            self._look()


class OpenHandles:
    """The reading handles of one client that are open, and the looks at all of its handles. Writing handles are known
    to its node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Re-entrant: an allocation under it may run the garbage collector, which ends a tail that nobody has any more,
        # and that leaves this list.
        self._lock = threading.RLock()
        # Those whose reader is there still, in the order in which they were opened.
        self._notes: weakref.WeakValueDictionary[int, ReaderNote] = weakref.WeakValueDictionary()
        self._count = 0
        self._is_looking = False
        self._page = 0  # Index of the first writer to look at next.
        self._stuck: dict[ReaderNote | Writing, _Stuck] = {}

    def add(self, note: ReaderNote) -> None:
        with self._lock:
            self._count = note.number = self._count + 1
            self._notes[note.number] = note
        self.look_after()

    def discard(self, note: ReaderNote) -> None:
        with self._lock:
            self._notes.pop(note.number, None)

    def __iter__(self) -> Iterator[ReaderNote]:
        with self._lock:
            references = (
                self._notes.valuerefs()
            )  # In one step: a tail may leave while notes are gone through.
        return iter([note for each in references if (note := each()) is not None])

    def look_after(self) -> None:
        """Begin to look at the handles; callable from any thread."""
        if self._is_looking:
            return
        with self._lock:
            was_looking, self._is_looking = self._is_looking, True
        if not was_looking:
            with contextlib.suppress(EmbedbkError):  # The client was closed.
                self._runtime.start(_Looking(self.look, self._runtime.handle_look_s))

    def look(self) -> None:
        """Look whether some handle could go on and does not; runs on the host's thread."""
        runtime = self._runtime
        found: dict[ReaderNote | Writing, object] = {}
        for note in self:
            if (mark := note.stuck_at) is not None:
                found[note] = mark
        writings = list(runtime.node.own_lacs)
        begin = self._page if self._page < len(writings) else 0
        self._page = begin + _WRITERS_PER_TURN
        again = [each for each in self._stuck if isinstance(each, Writing) and not each.is_over]
        for writing in dict.fromkeys([*again, *writings[begin : self._page]]):
            wait = writing_waits(writing)
            if wait is not None and wait.can_go_on:
                found[writing] = (wait.rule, writing.lac)
        before, self._stuck = self._stuck, {}
        for handle, mark in list(found.items())[:_STUCK_MAX]:
            was = before.get(handle)
            self._stuck[handle] = now = was if was is not None and was.mark == mark else _Stuck(mark)
            now.looks += 1
            if now.looks == LOOKS_MAX:
                runtime.on_stuck(str(self._state_of(handle)))

    def _state_of(self, handle: ReaderNote | Writing) -> HandleState:
        return (
            handle.state() if isinstance(handle, ReaderNote) else _of_ledger(handle, self._runtime.now_ns())
        )


def writing_waits(writing: Writing) -> AddsWait | None:
    """What the adds of one writing handle wait for; None: nothing is outstanding. Runs on the host's thread."""
    last, lac = writing.packer.last_entry, writing.lac
    failure = writing.failure if writing.is_undecided else writing.error
    if failure is not None:
        since_ns = writing.core.last_active_ns
        if writing.is_undecided:
            return AddsWait("P8.2", f"a next ledger, as this one failed ({failure.args[0]})", since_ns)
        return AddsWait("P3.6", f"its caller to close it, as it failed ({failure.args[0]})", since_ns)
    if last <= lac and writing.is_shrunk:
        return None
    if writing.behind is not None:
        return AddsWait(
            "P8.2", f"all adds of ledger {writing.behind.metadata.ledger_id}", writing.core.last_active_ns
        )
    core = writing.core
    newest = core.in_flight.newest().last_entry if core.in_flight.pending_count else lac
    return adds_wait(core, has_unsent=last > max(newest, lac, core.lap))


def _of_ledger(writing: Writing, now_ns: int) -> HandleState:
    ledger_id = writing.metadata.ledger_id
    shown = ("ledger writer", f"ledger {ledger_id}", ledger_id, writing.packer.last_entry + 1)
    return _waiting(shown, writing_waits(writing), now_ns)


def _waiting(
    shown: tuple[str, str, int | None, int | None], wait: AddsWait | None, now_ns: int
) -> HandleState:
    if wait is None:
        return HandleState(*shown, "", "", 0.0, False)
    return HandleState(*shown, wait.rule, wait.text, max(0, now_ns - wait.since_ns) / 1e9, wait.can_go_on)


def _of_log(line: Succession, now_ns: int) -> HandleState | None:
    """The state of a log's writer; None: it has ended, with all its ledgers' handles."""
    appending = line.appending
    if line.has_ended and (appending.writing.is_over or line.is_let_go):
        return None
    place = appending.first_offset + appending.writing.packer.last_entry + 1
    shown = ("log writer", f"log {line.owning.name!r}", appending.ledger_id, place)
    wait = line.waits()
    if wait is None and not appending.writing.is_over:
        wait = writing_waits(appending.writing)
    return _waiting(shown, wait, now_ns)


async def handles(runtime: Runtime) -> list[HandleState]:
    """All open handles of this client: writers of logs and of ledgers, and readers."""
    runtime.check()
    found: list[HandleState] = []
    lines = list(runtime.keeper.lines()) if runtime.keeper is not None else []
    of_logs = {line.appending.writing for line in lines}
    others = [
        writing
        for writing in runtime.node.own_lacs
        # A ledger's handle that a log's writer left behind, or is about to replace, is part of that writer.
        if writing not in of_logs and writing.on_failed is None
    ]
    for begin in range(0, max(len(lines), len(others)), _WRITERS_PER_TURN):
        end = begin + _WRITERS_PER_TURN
        found += await _on_host(runtime, lines[begin:end], others[begin:end])
    found += [note.state() for note in runtime.handles]
    return sorted(found, key=lambda each: (each.kind, each.what, each.place or NO_ENTRY))


async def _on_host(runtime: Runtime, lines: list[Succession], writings: list[Writing]) -> list[HandleState]:
    """The states of these handles in one turn of the host's thread."""
    told: Awaited[list[HandleState]] = Awaited()

    def look() -> None:
        now_ns = runtime.now_ns()
        found = [state for line in lines if (state := _of_log(line, now_ns)) is not None]
        told.set_result(found + [_of_ledger(each, now_ns) for each in writings if not each.is_over])

    runtime.call(look)
    limit = runtime.settings.operation_timeout_s
    states: list[HandleState] = await FutureResult(told, limit, "looking at the open handles")
    return states
