"""The worker's questions and what becomes of refused ones (P11.2; METADATA.md, 11)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import Refusal, Result
from embedbk.codec.repair_messages import REPAIRS_MAX, FailRepairs, RepairsEnded, RepairsTaken, TakeRepairs
from embedbk.codec.repair_state import RepairControl, encode_repair_control
from embedbk.core.client_words import BookieInfo
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import KeyRead, ReadKey
from embedbk.core.repair_words import (
    AskQuorum,
    BeginRepair,
    BeginSmallRepairs,
    QuorumAnswered,
    RepairOutcome,
    RepairOver,
    SmallRepaired,
    SmallRepairsOver,
)
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.ids import Member
from embedbk.metadata.client import UNKNOWN
from embedbk.repair.worker import RepairWorker, WorkerOptions

REFUSED = Refusal("UNAVAILABLE", "4096 requests wait")
LOST = Refusal(UNKNOWN, "the session was lost")
SECOND = 1_000_000_000
OFF = encode_repair_control(RepairControl(is_stopped=True))


class Shift:
    """One worker, whose questions are answered by hand."""

    def __init__(self, **options: int) -> None:
        self.now_ns = 0
        self.worker = RepairWorker((BookieInfo(Member("b1", bytes(16)), True),), WorkerOptions(**options))
        self.effects = self.worker.step(Started(0))

    def asked(self, kind: type[Effect]) -> Effect:
        """The question of this kind that is out."""
        (found,) = (each for each in self.effects if isinstance(each, kind))
        return found

    def answer(self, tag: Tag, result: Result) -> list[Effect]:
        self.effects = self.worker.step(QuorumAnswered(self.now_ns, tag, result))
        return self.effects

    def look(self, switch: bytes | None = None) -> list[Effect]:
        """Its time has come, and it reads the switch; returns what it asks at its look and what then."""
        effects = list[Effect]()
        if self.worker.due_ns is not None:
            self.now_ns = max(self.now_ns, self.worker.due_ns)
            effects = self.effects = self.worker.step(Tick(self.now_ns))
        read = self.asked(ReadKey)
        assert isinstance(read, ReadKey)
        self.effects = self.worker.step(KeyRead(self.now_ns, read.tag, switch, 1))
        return [*effects, *self.effects]

    def place_is_gone(self) -> TakeRepairs:
        """It reads its place in the queue, which is gone; returns what it asks then."""
        read = self.asked(ReadKey)
        assert isinstance(read, ReadKey)
        self.effects = self.worker.step(KeyRead(self.now_ns, read.tag, None, 0))
        return self.take()

    def take(self) -> TakeRepairs:
        asked = self.asked(AskQuorum)
        assert isinstance(asked, AskQuorum)
        assert isinstance(asked.operation, TakeRepairs)
        return asked.operation

    def answered(self, result: Result) -> list[Effect]:
        asked = self.asked(AskQuorum)
        assert isinstance(asked, AskQuorum)
        return self.answer(asked.tag, result)


def test_what_it_is_handed_is_asked_for_until_it_is_known() -> None:
    """METADATA.md, 11: "TakeRepairs with `asked` says what it was handed, as often as it is asked": a place that was
    forgotten with a refusal left its ledgers locked, and repaired by nobody."""
    shift = Shift()
    shift.look()
    shift.answered(RepairsTaken(0, 29, 29))
    shift.look()
    assert shift.place_is_gone() == TakeRepairs(0, (), 29)
    assert shift.answered(REFUSED) == []
    shift.look()
    assert shift.place_is_gone() == TakeRepairs(0, (), 29)
    assert shift.answered(RepairsTaken(40, 29, 41, ((1, 40, 0),), (("b3",),))) == [BeginRepair(1, 40, 40)]


def test_a_lost_session_takes_its_place_with_it() -> None:
    """METADATA.md, 11: "A hold ends with its session"."""
    shift = Shift()
    shift.look()
    shift.answered(RepairsTaken(0, 29, 29))
    shift.look()
    shift.place_is_gone()
    shift.answered(LOST)
    shift.look()
    assert shift.take() == TakeRepairs(8)


def test_what_it_is_handed_while_it_is_off_is_given_back_until_that_is_done() -> None:
    """METADATA.md, 11: "Without `postpones` it is only given back"; one that was refused left the ledger locked."""
    shift = Shift()
    shift.look()
    shift.answered(RepairsTaken(0, 29, 29))
    shift.look(OFF)
    assert shift.take() == TakeRepairs(0)
    shift.answered(RepairsTaken(0, 0, 41))
    back = AskQuorum(("return", 0), FailRepairs(((1, 40),), postpones=False))
    assert shift.answered(RepairsTaken(40, 29, 41, ((1, 40, 0),), (("b3",),))) == [back]
    assert shift.answer(("return", 0), REFUSED) == []
    assert back in shift.look(OFF)
    shift.answer(("return", 0), LOST)
    assert back not in shift.look(OFF)


def test_what_it_is_given_beside_its_repair_of_a_lost_session_is_begun_behind_it() -> None:
    """METADATA.md, 11: "A hold ends with its session": the next session may be given the ledger while the repair of the
    one before has not noticed. Passed over, it stayed locked for as long as the worker lived (seed 40001904)."""
    shift = Shift()
    shift.look()
    assert BeginRepair(1, 40, 40) in shift.answered(RepairsTaken(40, 0, 41, ((1, 40, 0),), (("b3",),)))
    shift.look()
    assert shift.answered(RepairsTaken(50, 0, 51, ((1, 40, 0),), (("b3",),))) == []
    assert shift.worker.step(RepairOver(0, RepairOutcome(1, "lost"))) == [BeginRepair(1, 50, 40)]
    shift.look()
    assert shift.answered(RepairsTaken(50, 0, 51, ((1, 40, 0),), (("b3",),))) == [], "as often as it is asked"
    assert BeginRepair(1, 50, 40) not in shift.worker.step(RepairOver(0, RepairOutcome(1, "repaired")))


def taken(first: int, count: int, epoch: int = 40) -> RepairsTaken:
    return RepairsTaken(epoch, 0, epoch, tuple((first + each, epoch, 0) for each in range(count)), (("b3",),))


def over(shift: Shift, begun: list[Effect], alone: int = 0) -> list[Effect]:
    """What was begun side by side is over; the last so many ledgers were not small."""
    (begin,) = (each for each in begun if isinstance(each, BeginSmallRepairs))
    small = len(begin.held) - alone
    outcomes = tuple(RepairOutcome(each.ledger_id, "repaired") for each in begin.held[:small])
    shift.effects = shift.worker.step(
        SmallRepairsOver(shift.now_ns, SmallRepaired(outcomes, begin.held[small:]))
    )
    return shift.effects


def test_once_all_were_small_it_takes_as_many_as_one_request_may() -> None:
    """P11.2: and it does not hold what it cannot begin, once one was not small."""
    shift = Shift()
    shift.look()
    assert shift.take() == TakeRepairs(8)
    over(shift, shift.answered(taken(1, 8)))
    shift.look()
    assert shift.take() == TakeRepairs(REPAIRS_MAX)
    begun = shift.answered(taken(101, REPAIRS_MAX))
    shift.look()
    assert shift.take() == TakeRepairs(REPAIRS_MAX)  # Beside those that are under way.
    shift.answered(RepairsTaken(0, 0, 41))
    singles = over(shift, begun, alone=3)
    assert singles == [BeginRepair(ledger_id, 40, 40) for ledger_id in (138, 139, 140)]
    shift.look()
    assert shift.take() == TakeRepairs(5)


def test_those_that_are_not_small_are_repaired_a_few_at_once() -> None:
    """P11.2: each of the others when one has ended; and no more marks are taken meanwhile."""
    shift = Shift()
    shift.look()
    over(shift, shift.answered(taken(1, 8)))
    shift.look()
    singles = over(shift, shift.answered(taken(101, REPAIRS_MAX)), alone=20)
    assert [each.ledger_id for each in singles if isinstance(each, BeginRepair)] == list(range(121, 129))
    assert not any(isinstance(each, AskQuorum) for each in shift.look())
    assert shift.worker.step(RepairOver(0, RepairOutcome(121, "repaired"))) == [BeginRepair(129, 40, 40)]


def test_what_was_not_begun_when_repair_is_switched_off_is_given_back() -> None:
    """P11.2: in as many requests as it takes; one names 40 ledgers at most."""
    shift = Shift()
    shift.look()
    over(shift, shift.answered(taken(1, 8)))
    several = []
    for first in (100, 200):
        shift.look()
        several.append(shift.answered(taken(first, REPAIRS_MAX)))
    for begun in several:
        over(shift, begun, alone=REPAIRS_MAX)
    shift.look(OFF)
    given_back: set[int] = set()
    for _ in range(3):
        for each in shift.look(OFF):
            if isinstance(each, AskQuorum) and isinstance(each.operation, FailRepairs):
                assert len(each.operation.failed) <= REPAIRS_MAX
                assert not each.operation.postpones
                given_back |= {ledger_id for ledger_id, _ in each.operation.failed}
                shift.worker.step(QuorumAnswered(shift.now_ns, each.tag, RepairsEnded(50, ())))
    assert given_back == {*range(108, 140), *range(200, 240)}
    assert not shift.worker.returned


def test_so_many_ledgers_are_begun_per_second() -> None:
    """AR12: whatever their size; the switch is looked at meanwhile, and nothing is saved up while there are none."""
    shift = Shift(ledgers_per_s=4)
    begun: list[int] = []  # When, each ledger once.
    while shift.now_ns < 60 * SECOND:
        shift.look()
        if not any(isinstance(each, AskQuorum) for each in shift.effects):
            assert shift.worker.due_ns is not None and shift.worker.due_ns <= shift.now_ns + SECOND
            continue
        count = shift.take().count
        assert 0 < count <= 4
        if 20 * SECOND < shift.now_ns < 40 * SECOND:
            shift.answered(LOST)  # It has nothing to do, and waits in no queue.
            continue
        effects = shift.answered(taken(len(begun), count))
        begun += [shift.now_ns] * count
        over(shift, effects)
    for at_ns in begun:
        within = sum(at_ns <= other < at_ns + SECOND for other in begun)
        assert within <= 4 + 4, "a second's worth, and what one request takes"
    assert 4 * 35 <= len(begun) <= 4 * 43
