"""Marks for repair in the catalog: merged, taken by one at a time, ended, failed, handed on (METADATA.md, 11; P11)."""

from __future__ import annotations

import msgspec
import pytest

from embedbk.codec.metadata_messages import (
    Acknowledged,
    AllocIds,
    CloseSession,
    Compare,
    Delete,
    Put,
    Refusal,
    Result,
    Txn,
    TxnDone,
)
from embedbk.codec.repair_mark import (
    MARK_VERSION,
    RepairMark,
    decode_repair_mark,
    repair_mark_path,
)
from embedbk.codec.repair_messages import (
    REPAIRS_MAX,
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    RepairsEnded,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.errors import StorageError
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.commands import (
    RULES,
    Changing,
    ExpireSession,
    RaiseTo,
    ResumeRepairs,
    Run,
    StartSession,
    decode_command,
    encode_command,
)
from embedbk.metadata.cutting import PIECE_BYTES_MAX
from embedbk.metadata.levels import LACKING, LEVEL, LEVEL_OF_REPAIRS, LEVEL_OF_RESERVED_MARKS
from embedbk.metadata.limits import KEPT_BYTES
from embedbk.metadata.loading import load
from embedbk.metadata.postponing import Postponing
from embedbk.metadata.repair_index import WAITS_MS
from embedbk.metadata.repairing import NOT_HELD, RETURNED, SETTLED

MS = 1_000_000


def raised(limits: Limits | None = None) -> Catalog:
    catalog = Catalog(limits or Limits())
    catalog.apply(RaiseTo(LEVEL), 1, 1)
    return catalog


class Session:
    """One client of a catalog, at places of one log."""

    index = 0

    def __init__(self, catalog: Catalog, label: str = "test") -> None:
        self.catalog, self.sequence = catalog, 0
        command = StartSession(0, 10_000, label, b"secret", LEVEL)
        Session.index += 1
        self.number = catalog.number_of(command, Session.index)
        catalog.apply(command, Session.index, 1)

    def run(self, operation: Changing) -> Result:
        self.sequence += 1
        run = decode_command(encode_command(Run(self.number, self.sequence, self.sequence, operation, RULES)))
        return self.catalog.apply(run, 1, 1)

    def mark(self, *ledger_ids: int, missing: tuple[str, ...] = ("b1",), created_ms: int = 5) -> int:
        told = self.run(MarkRepairs(tuple((each, missing) for each in ledger_ids), created_ms))
        assert isinstance(told, RepairsMarked), told
        assert told.left == ()
        return told.revision

    def take(self, count: int = 1, not_with: tuple[str, ...] = (), asked: int = 0) -> RepairsTaken:
        taken = self.run(TakeRepairs(count, not_with, asked))
        assert isinstance(taken, RepairsTaken), taken
        return taken

    def end(self, *ended: tuple[int, int, int]) -> tuple[int, ...]:
        told = self.run(EndRepairs(ended))
        assert isinstance(told, RepairsEnded), told
        return told.outcomes

    def fail(self, *failed: tuple[int, int], postpones: bool = True) -> tuple[int, ...]:
        told = self.run(FailRepairs(failed, postpones))
        assert isinstance(told, RepairsEnded), told
        return told.outcomes


def ids(taken: RepairsTaken) -> list[int]:
    return [ledger_id for ledger_id, _, _ in taken.marks]


def mark_of(catalog: Catalog, ledger_id: int) -> RepairMark:
    record = catalog.get(repair_mark_path(ledger_id)).record
    assert record is not None
    assert record.value is not None
    return decode_repair_mark(record.value)


def holder(catalog: Catalog, ledger_id: int) -> tuple[int, int, int] | None:
    """(session, epoch, asked)."""
    record = catalog.get(f"/repairing/{ledger_id:016x}").record
    return (record.session, record.revision, record.created) if record else None


def resume(catalog: Catalog, ledger_id: int) -> None:
    record = catalog.get(repair_mark_path(ledger_id)).record
    assert record is not None
    command = decode_command(encode_command(ResumeRepairs(((ledger_id, record.revision),))))
    assert catalog.apply(command, 1, 1) == Acknowledged(catalog.revision)


def pieces(catalog: Catalog) -> list[bytes]:
    """Of a snapshot."""
    cut = catalog.cut()
    found = list(iter(cut.next_piece, None))
    catalog.end_cut()
    return found


def refused(result: Result, code: str) -> str:
    assert isinstance(result, Refusal), result
    assert result.code == code
    return result.text


# --- Marks ------------------------------------------------------------------------------------------------


def test_a_mark_is_merged_and_keeps_when_it_was_made() -> None:
    """METADATA.md, 11: "what is missing is merged into a mark that is there, which keeps when it was made"."""
    catalog = raised()
    auditor = Session(catalog)
    assert auditor.mark(7, missing=("b2", "b1", "b2"), created_ms=100) == 1
    assert mark_of(catalog, 7) == RepairMark(MARK_VERSION, ("b1", "b2"), 100)
    assert auditor.mark(7, missing=("b3",), created_ms=900) == 2
    assert mark_of(catalog, 7) == RepairMark(MARK_VERSION, ("b1", "b2", "b3"), 100)
    record = catalog.get(repair_mark_path(7)).record
    assert record is not None
    assert (record.created, record.revision) == (1, 2)
    assert auditor.mark(7, missing=("b1",)) == 2, "what is known changes nothing, so nobody works in vain"


def test_what_cannot_be_read_or_would_name_too_many_is_left_and_named() -> None:
    """P2.5: somebody's word stays as it is; all others of the request are marked."""
    catalog = raised()
    auditor, worker = Session(catalog), Session(catalog)
    auditor.run(Txn([], [Put(repair_mark_path(1), b"b4")]))
    auditor.mark(2, missing=tuple(f"b{n:02d}" for n in range(60)))
    more = tuple(f"c{n}" for n in range(5))
    told = auditor.run(MarkRepairs(((1, ("b1",)), (2, more), (3, ("b1",)))))
    assert told == RepairsMarked(3, (1, 2))
    assert len(mark_of(catalog, 2).missing) == 60
    assert ids(worker.take(9)) == [2, 3], "1 is of nobody who can be understood"


def test_a_mark_has_room_in_half_of_the_reserve() -> None:
    """P10.7: "in half of it, marks of repair", so that a mark for each ledger keeps no ledger from being closed; and
    below the level as builds before have it."""
    for level in (LEVEL, LEVEL_OF_RESERVED_MARKS - 1):
        catalog = raised(Limits(catalog_bytes_max=2_000, catalog_reserve_bytes=1_000))
        catalog.level = level
        worker, made, marked = Session(catalog), 0, 0
        for size in (60, 1):
            while not isinstance(worker.run(Txn([], [Put(f"/{made}", bytes(size))])), Refusal):
                made += 1
        while not isinstance(found := worker.run(MarkRepairs(((marked, ("b1",)),), 5)), Refusal):
            marked += 1
        refused(found, "UNAVAILABLE")
        assert bool(marked) == (level == LEVEL)
        assert catalog.key_space.held_bytes <= 2_500
        assert not isinstance(worker.run(Txn([], [Put("/0", bytes(400))])), Refusal), "what is there may grow"


def test_fields_of_a_later_build_are_kept_by_every_change_of_the_mark() -> None:
    """P10.8: a build that does not know a field does not drop it when it writes the value anew."""
    catalog = raised()
    auditor = Session(catalog)
    later = msgspec.msgpack.encode([MARK_VERSION, ["b1"], 5, 0, False, "b9", {"more": [1, 2]}])
    auditor.run(Txn([], [Put(repair_mark_path(1), later)]))
    auditor.mark(1, missing=("b2",))
    taken = auditor.take()
    assert auditor.fail((1, taken.epoch)) == (SETTLED,)
    resume(catalog, 1)
    record = catalog.get(repair_mark_path(1)).record
    assert record is not None
    expected = [MARK_VERSION, ["b1", "b2"], 5, 1, False, "b9", {"more": [1, 2]}]
    assert msgspec.msgpack.decode(record.value or b"") == expected


@pytest.mark.parametrize(
    "value",
    [b"", b"\x90", b"b1", msgspec.msgpack.encode([2, ["b1"]]), msgspec.msgpack.encode([1, []]),
     msgspec.msgpack.encode([1, ["b2", "b1"]]), msgspec.msgpack.encode([1, ["b1", "b1"]]),
     msgspec.msgpack.encode([1, [""]]), msgspec.msgpack.encode([1, ["b1"], -1]),
     msgspec.msgpack.encode([1, ["b1"], 0, 0, 7]), msgspec.msgpack.encode([1, [f"b{n:03}" for n in range(65)]]),
     msgspec.msgpack.encode([1, ["b" * 1025]]), b"\x91" * 2000, msgspec.msgpack.encode([1, ["b1"]]) + b"x"],
)  # fmt: skip
def test_bytes_that_are_no_mark_are_told_apart(value: bytes) -> None:
    """P2.5: what cannot be read is taken by nobody, and breaks nothing."""
    with pytest.raises(StorageError):
        decode_repair_mark(value)
    catalog = raised()
    worker = Session(catalog)
    worker.run(Txn([], [Put(repair_mark_path(1), value)]))
    assert worker.take() == RepairsTaken(0, 2, 2)
    load(pieces(catalog))


# --- Taking ------------------------------------------------------------------------------------------------


def test_the_oldest_that_the_caller_may_repair_is_taken_by_one_at_a_time() -> None:
    """METADATA.md, 11; P11.1: "each mark locked by one"; the epoch is the revision of the hold."""
    catalog = raised()
    auditor, one, two = Session(catalog), Session(catalog), Session(catalog)
    auditor.mark(9)
    auditor.mark(5, missing=("b2",))
    auditor.mark(7, missing=("b1", "b3"))
    taken = one.take()
    assert taken == RepairsTaken(4, 4, 4, ((9, 1, 0),), (("b1",),))
    assert holder(catalog, 9) == (one.number, 4, 4)
    assert two.take(2, not_with=("b2",)) == RepairsTaken(5, 5, 5, ((7, 3, 0),), (("b1", "b3"),))
    assert two.take(2, not_with=("b2", "b1")) == RepairsTaken(0, 6, 6), "9 and 7 are held, 5 is not for it"
    assert one.take(40) == RepairsTaken(7, 7, 7, ((5, 2, 0),), (("b2",),))


def test_forty_are_taken_and_forty_ended_by_one_request_each() -> None:
    """METADATA.md, 11: up to 40 of one request, each under its own comparison."""
    catalog = raised()
    worker = Session(catalog)
    worker.mark(*range(40))
    worker.mark(*range(40, 45))
    taken = worker.take(40)
    assert ids(taken) == list(range(40))
    assert len(taken.missing) == 1
    worker.mark(3, missing=("b2",))
    outcomes = worker.end(*((each, taken.epoch, mark) for each, mark, _ in taken.marks))
    assert outcomes == tuple(RETURNED if each == 3 else SETTLED for each in range(40))
    assert catalog.revision == 5, "one revision for each of the five requests"
    assert ids(worker.take(40)) == [3, *range(40, 44 + 1)], "3 keeps its age"


def test_a_mark_that_changed_is_only_unlocked() -> None:
    """METADATA.md, 11: "deleted if it is unchanged since"; what was found meanwhile must not be forgotten."""
    catalog = raised()
    auditor, worker = Session(catalog), Session(catalog)
    auditor.mark(7)
    taken = worker.take()
    auditor.mark(7, missing=("b2",))
    assert worker.end((7, taken.epoch, taken.marks[0][1])) == (RETURNED,)
    assert holder(catalog, 7) is None
    again = worker.take()
    assert again.missing == (("b1", "b2"),)
    assert worker.end((7, again.epoch, again.marks[0][1])) == (SETTLED,)
    assert not catalog.page("/").records


def test_who_lost_its_hold_ends_and_fails_nothing() -> None:
    """P9.1: "what is protected checks the epoch": of a hold that another has by now nothing is given away."""
    catalog = raised()
    one, two = Session(catalog), Session(catalog)
    one.mark(7, 8)
    first = one.take()
    assert one.fail((7, first.epoch), postpones=False) == (SETTLED,)
    second = two.take()
    assert ids(second) == [7]
    before = catalog.revision
    for epoch in (first.epoch, second.epoch, 0):
        assert one.end((7, epoch, second.marks[0][1])) == (NOT_HELD,)
        assert one.fail((7, epoch)) == (NOT_HELD,)
        assert two.end((8, epoch, 1)) == (NOT_HELD,)
    assert (catalog.revision, holder(catalog, 7)) == (before, (two.number, second.epoch, second.asked))
    assert two.end((7, first.epoch, second.marks[0][1])) == (NOT_HELD,), "its own, under an epoch of before"


def test_an_epoch_fences_what_a_worker_publishes() -> None:
    """P9.1: whoever repairs publishes under a comparison with its hold."""
    catalog = raised()
    one, two = Session(catalog), Session(catalog)
    one.mark(7)
    taken = one.take()
    mine = Txn([Compare(f"/repairing/{7:016x}", taken.epoch)], [Put("/ledgers/7", b"seats")])
    assert one.run(mine) == TxnDone(True, 3)
    catalog.apply(ExpireSession(one.number), 1, 1)
    assert ids(two.take()) == [7]
    assert two.run(mine) == TxnDone(False, catalog.revision)


def test_a_hold_ends_with_its_session() -> None:
    """P11: a worker that is killed keeps nobody from its ledgers: who waits has them in that very revision."""
    catalog = raised()
    one, two, three = Session(catalog), Session(catalog), Session(catalog)
    one.mark(1, 2, 3)
    assert ids(one.take(3)) == [1, 2, 3]
    assert two.take(2).epoch == three.take(2).epoch == 0
    before = catalog.revision
    catalog.apply(ExpireSession(one.number), 1, 1)
    assert catalog.revision == before + 1
    assert [holder(catalog, each) for each in (1, 2, 3)] == [
        (two.number, before + 1, before - 1),
        (two.number, before + 1, before - 1),
        (three.number, before + 1, before),
    ]
    told = catalog.history.at(before + 1)
    assert len({record.key for record in told}) == len(told) == 5
    assert two.run(CloseSession())
    assert ids(three.take(5)) == [1, 2]


def test_a_thousand_who_wait_are_woken_one_at_a_time_for_each_mark() -> None:
    """METADATA.md, 11: in the order of asking, and nobody else is woken."""
    catalog = raised()
    auditor = Session(catalog)
    workers = [Session(catalog) for _ in range(1_000)]
    places = [worker.take().asked for worker in workers]
    for at, worker in enumerate(workers):
        revision = auditor.mark(at)
        told = {
            record.key: record.session for record in catalog.history.at(revision) if record.value is not None
        }
        assert told == {repair_mark_path(at): 0, f"/repairing/{at:016x}": worker.number}
        assert len(catalog.history.at(revision)) == 3
        assert worker.take(asked=places[at]).marks == ((at, revision, 0),)


def test_what_came_of_an_asking_is_told_again_and_changes_nothing() -> None:
    """METADATA.md, 11: the place of who waits is its key; behind it the holds say at which revision they were asked."""
    catalog = raised()
    auditor, worker, other = Session(catalog), Session(catalog), Session(catalog)
    asked = worker.take(3).asked
    assert worker.take(1, ("b1",)) == RepairsTaken(0, asked, catalog.revision), (
        "asked again it keeps its place"
    )
    assert worker.take(asked=asked) == RepairsTaken(0, asked, catalog.revision)
    assert other.take(asked=asked) == RepairsTaken(0, 0, catalog.revision)
    revision = auditor.mark(1, 2)
    for _ in range(2):
        told = worker.take(asked=asked)
        assert told == RepairsTaken(
            revision, asked, revision, ((1, revision, 0), (2, revision, 0)), (("b1",),)
        )
    worker.end((1, revision, revision))
    assert ids(worker.take(asked=asked)) == [2]
    worker.end((2, revision, revision))
    assert worker.take(asked=asked) == RepairsTaken(0, 0, catalog.revision)


def test_who_waits_no_longer_is_handed_nothing() -> None:
    """METADATA.md, 11: a count of 0 leaves the queue."""
    catalog = raised()
    auditor, one, two = Session(catalog), Session(catalog), Session(catalog)
    one.take()
    two.take()
    assert one.take(0) == RepairsTaken(0, 0, 3)
    assert one.take(0) == RepairsTaken(0, 0, 3)
    auditor.mark(1)
    assert holder(catalog, 1) == (two.number, 4, 2)


def test_who_may_not_repair_a_mark_is_passed_over_and_keeps_its_place() -> None:
    catalog = raised()
    auditor, one, two = Session(catalog), Session(catalog), Session(catalog)
    one.take(not_with=("b1",))
    two.take(not_with=("b2",))
    auditor.mark(1, missing=("b1", "b3"))
    assert holder(catalog, 1) == (two.number, 3, 2)
    auditor.mark(2, missing=("b1",))
    assert holder(catalog, 2) is None
    auditor.mark(3, missing=("b2",))
    assert holder(catalog, 3) == (one.number, 5, 1)


# --- Failures ---------------------------------------------------------------------------------------------


def test_a_repair_that_failed_waits_twice_as_long_each_time_up_to_five_minutes() -> None:
    """METADATA.md, 11: "5 s, doubled with each try up to 5 minutes"; the tries stand in the mark."""
    catalog = raised()
    worker = Session(catalog)
    worker.mark(7)
    waits = []
    for tries in range(1, 10):
        taken = worker.take()
        assert worker.fail((7, taken.epoch)) == (SETTLED,)
        assert (mark_of(catalog, 7).tries, mark_of(catalog, 7).is_postponed) == (tries, True)
        assert worker.take().epoch == 0
        worker.take(0)
        postponing = Postponing()
        postponing.begin(catalog.revision, 1_000 * MS)
        due_ns = postponing.due_ns(catalog.record_table.repairs)
        assert due_ns is not None
        waits.append(due_ns // MS - 1_000)
        assert postponing.over(catalog.record_table.repairs, due_ns - 1) == []
        [(ledger_id, revision)] = postponing.over(catalog.record_table.repairs, due_ns)
        assert ledger_id == 7
        catalog.apply(ResumeRepairs(((7, revision - 1), (8, revision))), 1, 1)
        assert mark_of(catalog, 7).is_postponed, "of a mark that is another by now nothing is said"
        catalog = load(pieces(catalog))
        worker.catalog = catalog
        catalog.apply(ResumeRepairs(((7, revision), (7, revision))), 1, 1)
        assert not mark_of(catalog, 7).is_postponed
    assert waits == [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000]
    assert list(WAITS_MS) == waits[:7]


def test_a_mark_that_goes_on_is_handed_to_who_waits() -> None:
    catalog = raised()
    one, two = Session(catalog), Session(catalog)
    one.mark(7)
    one.fail((7, one.take().epoch))
    asked = two.take().asked
    resume(catalog, 7)
    assert holder(catalog, 7) == (two.number, catalog.revision, asked)
    two.fail((7, catalog.revision), postpones=False)
    assert ids(one.take()) == [7], "given back, it may be had at once"


def test_the_time_of_a_failure_is_known_to_a_tenth_of_a_second() -> None:
    """postponing.py: what failed later goes on later; and a new leader begins anew with all that is there."""
    catalog = raised()
    worker = Session(catalog)
    worker.mark(*range(30))
    epoch = worker.take(30).epoch
    postponing, failed_ns = Postponing(), {}
    postponing.begin(catalog.revision, 0)
    for ledger_id in range(30):
        failed_ns[ledger_id] = (1_000 + ledger_id * 37) * MS
        worker.fail((ledger_id, epoch))
        postponing.note(catalog.record_table.repairs, catalog.revision, failed_ns[ledger_id])
    went_on: dict[int, int] = {}
    for now_ns in range(0, 20_000 * MS, 10 * MS):
        due_ns = postponing.due_ns(catalog.record_table.repairs)
        over = postponing.over(catalog.record_table.repairs, now_ns)
        assert bool(over) == (due_ns is not None and due_ns <= now_ns)
        if over:
            catalog.apply(ResumeRepairs(tuple(over)), 1, 1)
            postponing.note(catalog.record_table.repairs, catalog.revision, now_ns)
        went_on.update(dict.fromkeys((ledger_id for ledger_id, _ in over), now_ns))
    assert len(went_on) == 30
    for ledger_id, at_ns in went_on.items():
        assert -100 * MS <= at_ns - failed_ns[ledger_id] - WAITS_MS[0] * MS <= 10 * MS
    assert postponing.due_ns(catalog.record_table.repairs) is None


def test_who_leads_again_counts_anew() -> None:
    """METADATA.md, 11: "Who leads anew begins anew": what failed while another led waits its whole time."""
    catalog = raised()
    worker = Session(catalog)
    worker.mark(7, 8)
    epoch = worker.take(2).epoch
    postponing = Postponing()
    postponing.begin(catalog.revision, 0)
    worker.fail((7, epoch))
    postponing.note(catalog.record_table.repairs, catalog.revision, 1_000 * MS)
    worker.fail((8, epoch))  # Under another leader.
    postponing.begin(catalog.revision, 60_000 * MS)
    assert postponing.over(catalog.record_table.repairs, 64_999 * MS) == []
    assert [ledger_id for ledger_id, _ in postponing.over(catalog.record_table.repairs, 65_000 * MS)] == [
        7,
        8,
    ]


# --- What is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [MarkRepairs(()), MarkRepairs(tuple((each, ("b1",)) for each in range(REPAIRS_MAX + 1))),
     MarkRepairs(((1, ()),)), MarkRepairs(((1, ("b1",)), (1, ("b2",)))), MarkRepairs(((1, ("",)),)),
     MarkRepairs(((1, ("b\ud800",)),)), MarkRepairs(((-1, ("b1",)),)),
     MarkRepairs(((1, tuple(f"b{n}" for n in range(65))),)),
     MarkRepairs(((1, tuple("b" * 120 + str(n) for n in range(9))),)),
     TakeRepairs(REPAIRS_MAX + 1), TakeRepairs(-1), TakeRepairs(1, tuple(f"b{n}" for n in range(65))),
     TakeRepairs(1, ("",)), TakeRepairs(1, (), -1),
     EndRepairs(()), EndRepairs(((1, 1, 1), (1, 2, 2))), EndRepairs(tuple((n, 1, 1) for n in range(41))),
     FailRepairs(()), FailRepairs(((1, 1), (1, 2))), FailRepairs(tuple((n, 1) for n in range(41)))],
)  # fmt: skip
def test_a_request_over_the_bounds_is_refused_and_changes_nothing(operation: Changing) -> None:
    """METADATA.md, 3: BAD_REQUEST, before it is logged and where it stands in a log all the same."""
    catalog = raised()
    worker = Session(catalog)
    refused(catalog.apply(Run(worker.number, 1, 1, operation, RULES), 1, 1), "BAD_REQUEST")
    assert (catalog.revision, catalog.page("/").records) == (0, [])


@pytest.mark.parametrize("key", [f"/repairing/{7:016x}", "/repairing/x", "/repairers/00000000000000000001"])
def test_a_transaction_changes_no_hold_and_no_place(key: str) -> None:
    """METADATA.md, 11: whoever put one would hold without having asked, or take it from its holder."""
    catalog = raised()
    worker = Session(catalog)
    for change in (Put(key, b"", True), Put(key, b""), Delete(key)):
        assert "TakeRepairs" in refused(worker.run(Txn([], [change])), "BAD_REQUEST")
    assert catalog.revision == 0


def test_below_their_level_repairs_are_refused_and_their_keys_are_keys_like_others() -> None:
    """P10.8: what a build from before would decide otherwise is not decided anew before the level is raised."""
    catalog = Catalog()
    catalog.apply(RaiseTo(LEVEL_OF_REPAIRS - 1), 1, 1)
    worker = Session(catalog)
    for operation in (
        MarkRepairs(((1, ("b1",)),)),
        TakeRepairs(1),
        EndRepairs(((1, 1, 1),)),
        FailRepairs(((1, 1),)),
    ):
        refused(worker.run(operation), LACKING)
    key = f"/repairing/{7:016x}"
    assert worker.run(Txn([], [Put(key, b"a stranger's")])) == TxnDone(True, 1)
    catalog.apply(RaiseTo(LEVEL), 2, 1)
    worker.mark(7)
    taken = worker.take()
    assert ids(taken) == [7], "a stranger's key is no hold"
    assert holder(catalog, 7) == (worker.number, taken.epoch, 1)


def test_a_full_session_catalog_or_queue_has_no_room() -> None:
    """METADATA.md, 3: holds and places are counted as other keys are; who is handed marks is handed what has room."""
    catalog = raised(Limits(ephemeral_keys_max=2, lock_waiters_max=1))
    auditor, one, two = Session(catalog), Session(catalog), Session(catalog)
    auditor.mark(1, 2, 3)
    assert "ephemeral keys" in refused(one.run(TakeRepairs(3)), "BAD_REQUEST")
    assert ids(one.take(2)) == [1, 2]
    assert ids(two.take(1)) == [3]
    assert two.take(2).epoch == 0
    assert "1 sessions wait" in refused(auditor.run(TakeRepairs(1)), "UNAVAILABLE")
    auditor.mark(4, 5)
    assert (holder(catalog, 4) or (0,))[0] == two.number
    assert holder(catalog, 5) is None, "two has room for one"
    full = raised(Limits(catalog_bytes_max=100, catalog_reserve_bytes=0))
    worker = Session(full)
    refused(worker.run(MarkRepairs(((1, ("b" * 100,)),))), "UNAVAILABLE")
    assert full.revision == 0


def test_kept_answers_of_one_session_fit_a_piece_of_a_snapshot() -> None:
    """METADATA.md, 2 and 3: of as many and as large answers as one session may have, a piece can be made; they weigh
    what they are."""
    catalog = raised()
    worker = Session(catalog)
    sessions_bytes = catalog.session_table.bytes
    for ledger_id in range(40):
        worker.mark(ledger_id, missing=tuple(f"{ledger_id}-{n}".ljust(30, "x") for n in range(4)))
    first = worker.sequence + 1
    for sequence in range(first, first + 250, 2):
        taken = catalog.apply(Run(worker.number, sequence, first, TakeRepairs(40), RULES), 1, 1)
        assert isinstance(taken, RepairsTaken)
        assert 900 < sum(map(len, sum(taken.missing, ()))) <= 1024
        assert taken.missing[-1] == (), "of more than have room the mark says it"
        back = FailRepairs(tuple((each, taken.epoch) for each in ids(taken)), False)
        assert catalog.apply(Run(worker.number, sequence + 1, first, back, RULES), 1, 1) == RepairsEnded(
            catalog.revision, (SETTLED,) * 40
        )
    assert catalog.session_table.bytes - sessions_bytes > 125 * 40 * 100
    found = pieces(catalog)
    assert max(map(len, found)) <= PIECE_BYTES_MAX
    loaded = load(found)
    assert (loaded.session_table.bytes, loaded.digest()) == (catalog.session_table.bytes, catalog.digest())
    worker.sequence = first + 250
    assert worker.run(AllocIds(1))
    assert catalog.session_table.bytes == sessions_bytes + KEPT_BYTES
