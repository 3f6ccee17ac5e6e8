"""Whether the answers to clients of the metadata fit one order of all that was done (I73, I74, I75).

Looks at a history alone: requests, their times and their answers. So it judges real clients of real processes as well
as simulated ones. Every answer carries a revision, so the order need not be searched for: a change is at its revision,
a read is behind it, over all keys at once. What is left to check is that each of them is true there, and that a request
sent after an answer was not shown less (real time).

Of a request without an answer it is not known whether it was done. A read that returns one of its values proves it: so
each value must be put by one request only. Without such a read it may have been done at any time since, and a
comparison with its keys proves nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from embedbk.codec.metadata_messages import (
    ABSENT,
    ANY,
    Allocated,
    Claimed,
    Compare,
    Delete,
    Get,
    List,
    Listed,
    Operation,
    Put,
    Record,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.errors import UsageError
from embedbk.testing.violation import Violation

__all__ = ["Call", "check_history"]


class Call(Struct):
    """One request of a client. answered_ns and result None: no answer came; a refusal that leaves the outcome open
    (UNKNOWN) is none. Times are of one clock."""

    client: str
    operation: Operation
    asked_ns: int
    answered_ns: int | None = None
    result: Result | None = None


def check_history(calls: Iterable[Call]) -> int:
    """How many calls were checked; those that were refused prove nothing.

    Raises:
        Violation: no order of these calls gives these answers; it names the promise and the call.
        UsageError: two calls put one value.
    """
    history = _History([call for call in calls if not _is_refused(call)])
    history.find_unanswered()
    history.check_time()
    history.check_order()
    return len(history.calls)


def _is_refused(call: Call) -> bool:
    return isinstance(call.result, Refusal) and call.result.code != "UNKNOWN"


def _is_open(call: Call) -> bool:
    return call.result is None or isinstance(call.result, Refusal)


def _revision(call: Call) -> int | None:
    result = call.result
    return result.revision if isinstance(result, Value | Listed | TxnDone | Claimed) else None


def _what_was_read(call: Call) -> Iterator[Record]:
    if isinstance(call.result, Value) and call.result.record is not None:
        yield call.result.record
    elif isinstance(call.result, Listed):
        yield from call.result.records


class _History:
    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = sorted(calls, key=lambda call: call.asked_ns)
        self.writes: dict[int, Call] = {}  # Writes, by revision.
        self._puts: dict[tuple[str, bytes], Call] = {}
        for call in self.calls:
            self._note(call)
        # (answered, the highest revision in answers until then), rising.
        self._told: list[tuple[int, int]] = []
        highest = 0
        for call in sorted(self.calls, key=lambda call: call.answered_ns or 0):
            revision = _revision(call)
            if call.answered_ns is not None and revision is not None and revision > highest:
                highest = revision
                self._told.append((call.answered_ns, highest))

    def _note(self, call: Call) -> None:
        if not isinstance(call.operation, Txn):
            return
        puts = [change for change in call.operation.then if isinstance(change, Put)]
        for put in puts:
            if self._puts.setdefault((put.key, put.value), call) is not call:
                raise UsageError(f"two calls put {put.value!r} to {put.key}: nobody could tell them apart")
        if puts and isinstance(call.result, TxnDone) and call.result.is_done:
            self._add_write(call, call.result.revision)

    def _add_write(self, call: Call, revision: int) -> None:
        other = self.writes.setdefault(revision, call)
        if other is not call:
            raise Violation("I73", f"{_text(other)} and {_text(call)} were both done at revision {revision}")

    def floor(self, call: Call) -> int:
        """The highest revision that any client received before this was asked."""
        place = bisect_left(self._told, (call.asked_ns, 0))
        return self._told[place - 1][1] if place else 0

    def find_unanswered(self) -> None:
        """A read that returns a value proves that it was put, and at which revision."""
        done: dict[int, int] = {}
        for reader in self.calls:
            for record in _what_was_read(reader):
                assert record.value is not None
                call = self._puts.get((record.key, record.value))
                if call is None:
                    raise Violation("I73", f"{_text(reader)} was shown {record}: nobody put that")
                if _is_open(call):
                    if done.setdefault(id(call), record.revision) != record.revision:
                        raise Violation("I74", f"{_text(call)} was done twice: {record}")
                    self._add_write(call, record.revision)
                elif self.writes.get(record.revision) is not call:
                    raise Violation("I73", f"{_text(reader)} was shown {record}, and {_text(call)} put it")

    def check_time(self) -> None:
        """I75: a request after an answer is shown no less; I73: a change after it is done behind it."""
        ids: dict[int, Call] = {}
        for call in self.calls:
            revision = _revision(call)
            if revision is not None and revision < self.floor(call):
                raise Violation(
                    "I75", f"{_text(call)} shows less than revision {self.floor(call)}, told before"
                )
            if isinstance(call.result, Allocated):
                for ledger_id in range(call.result.first_id, call.result.first_id + call.result.count):
                    if ids.setdefault(ledger_id, call) is not call:
                        raise Violation(
                            "I73", f"{_text(call)} was given id {ledger_id}, which was given before"
                        )
        for revision, call in self.writes.items():
            if revision <= self.floor(call):
                raise Violation("I73", f"{_text(call)} was done at {revision}, told before it was asked")

    def check_order(self) -> None:
        """Go through all revisions and compare each read with the keys at its revision."""
        shown = sorted(
            (call for call in self.calls if _revision(call) is not None and not self._is_write(call)),
            key=lambda call: _revision(call) or 0,
        )
        state, place = self._state(), 0
        for revision in sorted({*self.writes, *(_revision(call) or 0 for call in shown)}):
            if revision in self.writes:
                state.write(self.writes[revision], revision)
            here = []
            while place < len(shown) and _revision(shown[place]) == revision:
                here.append(shown[place])
                place += 1
            # The one that changed something at this revision, where none that puts did, comes before all others.
            for call in sorted(here, key=lambda call: state.rank(call, revision)):
                state.show(call, revision)

    def _state(self) -> _State:
        state, done = _State(), {id(call) for call in self.writes.values()}
        for call in self.calls:
            if not isinstance(call.operation, Txn):
                continue
            is_unknown = _is_open(call) and id(call) not in done
            for change in call.operation.then:
                if is_unknown or (isinstance(change, Put) and change.is_ephemeral):
                    state.may_change(change, self.floor(call))
        return state

    def _is_write(self, call: Call) -> bool:
        return self.writes.get(_revision(call) or 0) is call


class _State:
    """All keys as they are at a revision. Unanswered requests that no read showed may have changed some of them."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[int, bytes]] = {}  # (revision, value)
        self._maybe_gone: dict[str, int] = {}  # The revision after which each may be gone.
        self._maybe_changed: dict[str, int] = {}

    def may_change(self, change: Put | Delete, floor: int) -> None:
        """At any time behind this revision."""
        self._maybe_changed[change.key] = min(floor, self._maybe_changed.get(change.key, floor))
        if isinstance(change, Delete) or change.is_ephemeral:
            self._maybe_gone[change.key] = min(floor, self._maybe_gone.get(change.key, floor))

    def write(self, call: Call, revision: int) -> None:
        assert isinstance(call.operation, Txn)
        self._compare(call, call.operation.when, revision, holds=True)
        for change in call.operation.then:
            if isinstance(change, Put):
                self._keys[change.key] = revision, change.value
            else:
                self._keys.pop(change.key, None)

    def rank(self, call: Call, revision: int) -> int:
        """A transaction that only deletes, and finds something, comes before all others of its revision; of two that
        would, the one that wants what it finds."""
        operation, result = call.operation, call.result
        if not isinstance(operation, Txn) or not isinstance(result, TxnDone) or not result.is_done:
            return 2
        finds = any(change.key in self._keys for change in operation.then)
        if not finds or self._holds_all(operation.when, revision) is False:
            return 2
        return 0 if operation.when else 1

    def show(self, call: Call, revision: int) -> None:
        result, operation = call.result, call.operation
        if isinstance(result, Value):
            assert isinstance(operation, Get)
            self._record(call, operation.key, result.record, revision)
        elif isinstance(result, Listed):
            assert isinstance(operation, List)
            self._page(call, operation, result, revision)
        elif isinstance(result, TxnDone) and isinstance(operation, Txn):  # Locks: lock_history.py.
            self._compare(call, operation.when, revision, holds=result.is_done)
            for change in operation.then if result.is_done else ():
                self._keys.pop(change.key, None)

    def _record(self, call: Call, key: str, record: Record | None, revision: int) -> None:
        known = self._keys.get(key)
        if record is None:
            if known is not None and revision <= self._maybe_gone.get(key, revision):
                raise Violation("I73", f"{_text(call)}: no {key} at {revision}; {known[1]!r} stands there")
            self._keys.pop(key, None)
        elif known is None or (record.revision, record.value) != known:
            stands = f"{known[1]!r} of {known[0]}" if known is not None else "nothing"
            raise Violation("I73", f"{_text(call)}: {record} at {revision}; {stands} stands there")

    def _page(self, call: Call, asked: List, page: Listed, revision: int) -> None:
        there = {record.key: record for record in page.records}
        last = max(there, default="") if page.has_more else None
        for key in [key for key in self._keys if key.startswith(asked.prefix) and key > asked.after]:
            if last is None or key <= last:
                self._record(call, key, there.get(key), revision)
        for key, record in there.items():
            self._record(call, key, record, revision)

    def _compare(self, call: Call, when: Sequence[Compare], revision: int, *, holds: bool) -> None:
        if self._holds_all(when, revision) is (not holds):
            told = "was done" if holds else "was refused"
            raise Violation("I73", f"{_text(call)} {told} at {revision}, against what stood there")

    def _holds_all(self, when: Sequence[Compare], revision: int) -> bool | None:
        """None: it is not known."""
        if any(revision > self._maybe_changed.get(compare.key, revision) for compare in when):
            return None
        return all(self._holds(compare) for compare in when)

    def _holds(self, compare: Compare) -> bool:
        known = self._keys.get(compare.key)
        if known is None:
            return compare.revision == ABSENT
        return compare.revision in (ANY, known[0])


def _text(call: Call) -> str:
    return f"{call.client}'s {call.operation} at {call.asked_ns} ns"
