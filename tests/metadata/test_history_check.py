"""The checker of histories: true ones pass, and each planted lie is found (I73 to I75)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from embedbk.codec.metadata_messages import (
    ABSENT,
    ANY,
    Allocated,
    AllocIds,
    Compare,
    Delete,
    Get,
    List,
    Listed,
    Operation,
    Put,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.errors import UsageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import RULES, Run, StartSession
from embedbk.testing.history import Call, check_history
from embedbk.testing.violation import Violation

KEYS = [f"/k/{n}" for n in range(6)]
CALLS = 300


class Keys:
    """The true catalog, as one session changes it."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self._index = 1
        self.catalog.apply(StartSession(0, 60_000, "all"), 1, 1)
        (self._session,) = self.catalog.sessions

    def run(self, operation: Txn | AllocIds) -> Result:
        self._index += 1
        return self.catalog.apply(
            Run(self._session, self._index, self._index, operation, RULES), self._index, 1
        )

    def put(self, key: str, value: bytes) -> int:
        done = self.run(Txn([], [Put(key, value)]))
        assert isinstance(done, TxnDone)
        return done.revision

    def get(self, key: str) -> Value:
        return self.catalog.get(key)


class Told:
    """Calls of a few clients on one true catalog: each comes to pass at some moment between asking and answer."""

    def __init__(self, seed: int, lost: float = 0.1) -> None:
        self.chance, self.lost = random.Random(seed), lost
        self.keys = Keys()

    def __iter__(self) -> Iterator[Call]:
        under_way: list[tuple[int, Call]] = []
        for number in range(CALLS):
            now_ns = number * 100
            under_way.append(
                (now_ns + self.chance.randint(1, 400), Call(f"c{number % 7}", self.operation(number), now_ns))
            )
            due = sorted((each for each in under_way if each[0] <= now_ns), key=lambda each: each[0])
            under_way = [each for each in under_way if each[0] > now_ns]
            for at_ns, call in due:
                result = self.carry_out(call.operation)
                if self.chance.random() < self.lost:
                    call.result = self.chance.choice([None, Refusal("UNKNOWN", "the session was lost")])
                else:
                    call.answered_ns, call.result = at_ns + self.chance.randint(1, 300), result
                yield call
        for _, call in under_way:
            yield call

    def operation(self, number: int) -> Operation:
        key = self.chance.choice(KEYS)
        draw = self.chance.random()
        if draw < 0.3:
            return Get(key)
        if draw < 0.4:
            return List("/k/", self.chance.choice(["", KEYS[2]]), self.chance.choice([2, 1000]))
        if draw < 0.45:
            return AllocIds(self.chance.randint(1, 4))
        record = self.keys.get(key).record
        seen = record.revision if record is not None else ABSENT
        when = self.chance.choice([[], [Compare(key, seen)], [Compare(key, ABSENT)], [Compare(key, ANY)]])
        if draw < 0.55:
            return Txn(when, [Delete(key)])
        other = self.chance.choice(KEYS)
        then: list[Put | Delete] = [Put(key, b"%d" % number)]
        if other != key:
            then.append(self.chance.choice([Put(other, b"%d" % number), Delete(other)]))
        return Txn(when, then)

    def carry_out(self, operation: Operation) -> Result:
        match operation:
            case Get(key):
                return self.keys.get(key)
            case List(prefix, after, limit):
                return self.keys.catalog.page(prefix, after, limit)
            case AllocIds() | Txn():
                return self.keys.run(operation)
        raise AssertionError(operation)


@pytest.mark.parametrize("seed", range(40))
def test_a_true_history_passes(seed: int) -> None:
    """I73: also where answers were lost, and where two clients act at once."""
    assert check_history(Told(seed)) > CALLS // 2


def changed(calls: list[Call], fits: Callable[[Call], Result | None]) -> bool:
    """One answer is another one now; False: none of them can be."""
    for call in calls[len(calls) // 3 :]:
        result = fits(call)
        if result is not None:
            call.result = result
            return True
    return False


def older_value(call: Call) -> Result | None:
    if isinstance(call.result, Value) and call.result.record is not None and call.result.revision > 20:
        return Value(None, call.result.revision)
    return None


def older_revision(call: Call) -> Result | None:
    if isinstance(call.result, Value) and call.result.revision > 20:
        return Value(call.result.record, call.result.revision - 20)
    return None


def value_of_nobody(call: Call) -> Result | None:
    if isinstance(call.result, Value) and call.result.record is not None:
        return Value(msgspec.structs.replace(call.result.record, value=b"nobody's"), call.result.revision)
    return None


def done_against_its_comparison(call: Call) -> Result | None:
    operation, result = call.operation, call.result
    if isinstance(result, TxnDone) and not result.is_done and isinstance(operation, Txn) and operation.when:
        return TxnDone(True, result.revision)
    return None


def refused_though_it_held(call: Call) -> Result | None:
    operation, result = call.operation, call.result
    if isinstance(result, TxnDone) and result.is_done and isinstance(operation, Txn):
        return TxnDone(False, result.revision)
    return None


def page_without_a_key(call: Call) -> Result | None:
    if isinstance(call.result, Listed) and len(call.result.records) > 1:
        return Listed(call.result.records[1:], call.result.has_more, call.result.revision)
    return None


def ids_of_others(call: Call) -> Result | None:
    if isinstance(call.result, Allocated) and call.result.first_id > 4:
        return Allocated(call.result.first_id - 1, call.result.count)
    return None


def done_earlier(call: Call) -> Result | None:
    result = call.result
    if isinstance(result, TxnDone) and result.is_done and result.revision > 20:
        return TxnDone(True, result.revision - 20)
    return None


LIES = [
    older_value,
    older_revision,
    value_of_nobody,
    done_against_its_comparison,
    refused_though_it_held,
    page_without_a_key,
    ids_of_others,
    done_earlier,
]


@pytest.mark.parametrize("lie", LIES, ids=[lie.__name__ for lie in LIES])
def test_each_lie_is_found(lie: Callable[[Call], Result | None]) -> None:
    """I73, I75: one answer of a history is not true; the checker says so, and which."""
    told = 0
    for seed in range(20):
        calls = list(Told(seed, lost=0))
        if not changed(calls, lie):
            continue
        told += 1
        with pytest.raises(Violation):
            check_history(calls)
    assert told > 10


def test_what_nobody_heard_of_is_done_once() -> None:
    """I74: a put without an answer is seen twice, at two revisions: it was run again behind another's."""
    keys, lost = Keys(), Call("a", Txn([], [Put("/k", b"1")]), 0)
    keys.put("/k", b"1")
    seen = Call("b", Get("/k"), 10, 20, keys.get("/k"))
    between = Call("b", Txn([], [Put("/k", b"2")]), 30, 40, TxnDone(True, keys.put("/k", b"2")))
    assert check_history([lost, seen, between]) == 3
    keys.put("/k", b"1")
    again = Call("b", Get("/k"), 50, 60, keys.get("/k"))
    with pytest.raises(Violation, match="I74"):
        check_history([lost, seen, between, again])


def test_what_was_answered_is_seen_by_who_asks_behind_it() -> None:
    """I75: real time counts between clients, too."""
    keys = Keys()
    before = keys.get("/k")
    put = Call("a", Txn([], [Put("/k", b"1")]), 0, 10, TxnDone(True, keys.put("/k", b"1")))
    assert check_history([put, Call("b", Get("/k"), 9, 30, before)]) == 2
    with pytest.raises(Violation, match="I75"):
        check_history([put, Call("b", Get("/k"), 11, 30, before)])


def test_a_delete_that_nobody_heard_of_may_have_come_to_pass() -> None:
    """I73: its key may be gone from then on; a key that nobody deletes may not."""
    revision = Keys().put("/k", b"1")
    put = Call("a", Txn([], [Put("/k", b"1")]), 0, 10, TxnDone(True, revision))
    gone = Call("b", Get("/k"), 30, 40, Value(None, revision + 1))
    with pytest.raises(Violation, match="I73"):
        check_history([put, gone])
    assert check_history([put, Call("c", Txn([], [Delete("/k")]), 20), gone]) == 3


def test_two_puts_of_one_value_are_no_history() -> None:
    """A value must say who put it; the error names it."""
    calls = [Call("a", Txn([], [Put("/k", b"1")]), 0), Call("b", Txn([], [Put("/k", b"1")]), 5)]
    with pytest.raises(UsageError, match="/k"):
        check_history(calls)
