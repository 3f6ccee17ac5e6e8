"""P11.6: copies of closed ledgers move to bookies where they are better off. Whole clusters, every invariant on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import Fragment, LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.repair_mark import (
    MARK_VERSION,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    is_orphan,
    moves_of,
    progress_of,
    repair_mark_path,
    with_moves,
    with_orphan,
)
from embedbk.codec.repair_state import AUDITOR_LOCK, CONTROL_KEY, unrepairable_path
from embedbk.config import ANYWHERE, Placement, Quorum, Settings
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    MetadataFailed,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.vocabulary import Started, Tick
from embedbk.host.repairing import RepairService, repair_options
from embedbk.ids import Member
from embedbk.metadata.claims import lock_path
from embedbk.repair.balancing import Balancer, BalancerOptions, Rooms
from embedbk.repair.target_choice import moved_seats
from tests.repair.healed import MS, OPTIONS, Healed, healed
from tests.repair.test_auditor import ledger
from tests.repair.test_repaired import closed, holders_hold

GIB = 1 << 30
SECOND = 1_000_000_000
BALANCER = BalancerOptions(
    bytes_per_s=1 << 20, look_ns=100 * MS, round_ns=2 * SECOND, page_ledgers=2, bytes_min=0
)


def uneven(story: Healed, rooms: dict[str, int], racks: dict[str, str] | None = None) -> None:
    """Bookies register with this room, and in these racks."""
    story.world.rooms.update(rooms)
    story.world.racks.update(racks or {})
    for name in {*rooms, *(racks or {})}:
        story.cluster.crash(name)
        story.cluster.restart(name)
    assert story.cluster.run_until(lambda: all(story.world.nodes[name].is_registered for name in rooms))


def balanced(story: Healed, **options: Any) -> RepairService:
    return story.repairer("healer", replace(OPTIONS, balancer=replace(BALANCER, **options)))


def seats(story: Healed, ledger_ids: list[int]) -> dict[str, int]:
    """How many of the ledgers name each bookie."""
    found = dict.fromkeys(("b1", "b2", "b3", "b4", "b5"), 0)
    for ledger_id in ledger_ids:
        for name in story.named(ledger_id):
            found[name] += 1
    return found


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2)])
def test_a_new_bookie_gets_copies_of_closed_ledgers(sizes: tuple[int, int, int]) -> None:
    """AR21: from those with much less room than the mean; every entry has all of its copies at every moment (I36), and
    the old ones go by the collector's rule."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with healed(bookies=4) as story:
        story.cluster.crash("b4")  # It is new later.
        story.cluster.run_for(8.0)
        ledger_ids = [closed(story, **named) for _ in range(4)]
        story.cluster.restart("b4")
        uneven(story, {"b1": 10 * GIB, "b2": 100 * GIB, "b3": 100 * GIB, "b4": 400 * GIB})
        service = balanced(story)
        assert story.cluster.run_until(lambda: seats(story, ledger_ids)["b1"] == 0, 60.0)
        assert story.cluster.run_until(lambda: not story.marks(), 60.0)
        assert seats(story, ledger_ids)["b4"] == 4
        story.cluster.run_for(1.0)
        assert service.moved == 4
        for ledger_id in ledger_ids:
            holders_hold(story, ledger_id, 30)
            reader = story.cluster.client().open_ledger(ledger_id)
            assert [bytes(each) for each in reader.read()] == [b"entry %04d" % number for number in range(30)]
        assert story.cluster.client().health().is_good


def test_copies_move_to_other_racks_where_they_span_more() -> None:
    """AR06: three copies in one rack, though there are three; the rooms are alike. Two racks are enough (RP38)."""
    with healed(bookies=5) as story:
        ledger_id = closed(story)
        old = story.named(ledger_id)
        others = sorted({"b1", "b2", "b3", "b4", "b5"} - old)
        racks = {**dict.fromkeys(old, "z/1"), others[0]: "z/2", others[1]: "z/3"}
        uneven(story, dict.fromkeys(racks, 50 * GIB), racks)
        service = balanced(story)

        def span() -> int:
            return len({racks[name] for name in story.named(ledger_id)})

        assert story.cluster.run_until(lambda: span() == 2 and not story.marks(), 120.0)
        story.cluster.run_for(1.0)
        assert service.moved == 1
        holders_hold(story, ledger_id, 30)
        moved = service.balancer.moved if service.balancer is not None else 0
        story.cluster.run_for(30.0)
        assert service.balancer is not None and service.balancer.moved == moved  # It is as good as it gets.


def test_an_open_ledger_and_an_even_cluster_are_left_alone() -> None:
    """P11.6: what is written to does not move; and nothing is listed where rooms are alike and nobody says a rack."""
    with healed(bookies=4) as story:
        writer = story.cluster.client().create_ledger()
        writer.add(b"zero")
        ledger_id = closed(story)
        uneven(story, dict.fromkeys(("b1", "b2", "b3", "b4"), 50 * GIB))
        service = balanced(story)
        before = story.named(ledger_id)
        story.cluster.run_for(10.0)
        assert service.balancer is not None and service.balancer.passes == 0
        outside = sorted({"b1", "b2", "b3", "b4"} - story.named(writer.ledger_id))[0]
        uneven(story, {**dict.fromkeys(("b1", "b2", "b3", "b4"), 5 * GIB), outside: 500 * GIB})
        story.cluster.run_for(10.0)
        assert service.balancer.passes > 0
        assert outside not in story.named(writer.ledger_id)
        assert story.named(ledger_id) == before or outside in story.named(ledger_id)
        writer.close()


def test_health_calls_a_ledger_good_whose_copies_move() -> None:
    """P11.6: the copies that go elsewhere are there until then."""
    with healed(bookies=4) as story:
        ledger_id = closed(story)
        gives = sorted(story.named(ledger_id))[0]
        takes = sorted({"b1", "b2", "b3", "b4"} - story.named(ledger_id))[0]
        mark = with_moves(RepairMark(MARK_VERSION, (gives,)), {gives: takes})
        runtime = story.cluster.client()._runtime
        put = Put(repair_mark_path(ledger_id), encode_repair_mark(mark))
        assert run_blocking(runtime.transact([], [put], "a mark"), "")
        assert story.cluster.client().health().is_good
        service = story.repairer()
        assert story.cluster.run_until(lambda: not story.marks(), 60.0)
        assert takes in story.named(ledger_id)
        assert gives not in story.named(ledger_id)
        story.cluster.run_for(1.0)
        assert service.moved == 1
        holders_hold(story, ledger_id, 30)


# --- The mark ----------------------------------------------------------------------------------------------


def test_a_mark_keeps_its_moves_beside_every_other_word() -> None:
    """P11.6: each part has its own writer; a part that cannot be read says nothing."""
    plain = RepairMark(MARK_VERSION, ("b1", "b2"))
    mark = with_moves(plain, {"b1": "b9"})
    assert moves_of(mark) == {"b1": "b9"}
    assert not is_orphan(mark)
    assert progress_of(mark).targets == ()
    again = decode_repair_mark(encode_repair_mark(with_orphan(mark, is_so=True)))
    assert moves_of(again) == {"b1": "b9"}
    assert is_orphan(with_moves(again, {}))
    assert moves_of(plain) == {}
    assert moves_of(replace_rest(mark, b"\xc3")) == {}
    assert moves_of(with_moves(plain, {"b3": "b9"})) == {}  # It does not name b3.


def replace_rest(mark: RepairMark, part: bytes) -> RepairMark:
    return RepairMark(mark.version, mark.missing, rest=(*mark.rest[:3], part))


def info(name: str, room: int = GIB, rack: str = "", **more: Any) -> BookieInfo:
    return BookieInfo(Member(name, bytes(16)), more.pop("is_writable", True), rack, room, **more)


def test_a_seat_moves_only_where_both_are_there_and_no_rack_is_lost() -> None:
    """P11.6, P11.2: judged again by the worker, as of when it copies."""
    fragment = ledger(1, 1, 2, 3).fragments[0]
    quorum, moves = Quorum(3, 3, 2), {"b1": "b4"}
    all_there = [info("b1"), info("b2"), info("b3"), info("b4")]
    assert moved_seats(fragment, moves, all_there, quorum, ANYWHERE) == {0: Member("b4", bytes(16))}
    for bookies in (
        all_there[1:],
        all_there[:3],
        [*all_there[:3], info("b4", is_writable=False)],
        [*all_there[:3], info("b4", is_leaving=True)],
    ):
        assert moved_seats(fragment, moves, bookies, quorum, ANYWHERE) == {}
    assert moved_seats(fragment, {"b1": "b2"}, all_there, quorum, ANYWHERE) == {}
    racks = [info("b1", rack="z/1"), info("b2", rack="z/2"), info("b3", rack="z/2"), info("b4", rack="z/2")]
    assert moved_seats(fragment, moves, racks, quorum, Placement("rack")) == {}
    assert moved_seats(fragment, {"b2": "b4"}, racks, quorum, Placement("rack")) != {}
    two = moved_seats(fragment, {"b1": "b4", "b2": "b4"}, all_there, quorum, ANYWHERE)
    assert two == {0: Member("b4", bytes(16))}  # Nobody gets two seats.


def test_who_gives_and_who_takes() -> None:
    """AR21: less than four fifths of the mean room gives, until it has the mean; the one with the most room takes."""
    bookies = [
        info("b1", 10),
        info("b2", 90),
        info("b3", 100),
        info("b4", 200),
        info("b5", 0, is_writable=False),
    ]
    rooms = Rooms(bookies, 0.8, 0)
    assert (rooms.gives, rooms.takes) == ({"b1": 90}, {"b4": 100})
    assert rooms.taker("b1", 60, set()) == "b4"
    assert rooms.taker("b1", 60, {"b4"}) is None
    assert rooms.taker("b2", 1, set()) is None
    rooms.note("b1", "b4", 60)
    assert rooms.taker("b1", 60, set()) is None
    assert rooms.taker("b1", 30, set()) == "b4"
    assert not Rooms(bookies, 0.8, 1 << 30).is_uneven
    assert not Rooms([], 0.8, 0).is_uneven


def test_a_full_bookie_gives_and_one_that_cannot_tell_its_room_counts_for_nothing() -> None:
    """P7.8, P11.6: a bookie that is read-only for want of room is the one that has to give. RP45: who failed often
    lately takes nothing. A room of 0 is an unknown one."""
    bookies = [
        info("b1", 10, is_writable=False),
        info("b2", 100),
        info("b3", 190),
        info("b4", 0),
        info("b5", 200, is_quarantined=True),
        info("b6", 300, is_leaving=True),
    ]
    rooms = Rooms(bookies, 0.8, 0)
    assert (rooms.gives, rooms.takes) == ({"b1": 115}, {"b3": 65})


# --- The machine, by its events ----------------------------------------------------------------------------


class Scale:
    """A balancer whose metadata answers from here."""

    def __init__(self, bookies: list[BookieInfo], **options: Any) -> None:
        self.core = Balancer(b"me", bookies, replace(BALANCER, bytes_per_s=1_000, **options))
        self.ledgers = {number: ledger(number, 1, 2, 3) for number in (1, 2, 3)}
        self.marks: dict[int, RepairMark] = {}
        self.elected, self.switch = b"me", None
        self.verdict = "done"
        self.asked: list[str] = []
        self.when: list[Compare] = []
        self.now = 0
        self.take(self.core.step(Started(0)))

    def take(self, effects: list[Any]) -> None:
        for effect in effects:
            self.asked.append(effect.tag[1])
            self.take(self.core.step(self.answer(effect)))

    def answer(self, effect: Any) -> Any:
        kind = effect.tag[1]
        if kind == "lock":
            assert effect.key == lock_path(AUDITOR_LOCK)
            return KeyRead(self.now, effect.tag, self.elected, 1)
        if kind == "switch":
            assert effect.key == CONTROL_KEY
            return KeyRead(self.now, effect.tag, self.switch, 1)
        if kind == "old mark":
            mark = self.marks.get(int(effect.key[-16:], 16))
            return KeyRead(self.now, effect.tag, None if mark is None else b"there", 1)
        if kind == "page":
            after = [n for n in self.ledgers if ledger_key_path(n) > effect.after]
            page = after[: effect.limit]
            records = [(ledger_key_path(n), encode_ledger_metadata(self.ledgers[n])) for n in page]
            return KeysListed(self.now, effect.tag, records, len(after) > len(page), [7] * len(page))
        assert isinstance(effect, Transact)
        self.when = list(effect.when)
        if self.verdict == "done":
            (put,) = effect.then
            self.marks[int(put.key[-16:], 16)] = decode_repair_mark(put.value)
        return {
            "done": Transacted(self.now, effect.tag, True, 9),
            "refused": Transacted(self.now, effect.tag, False, 9),
            "unknown": TransactUnknown(self.now, effect.tag),
            "full": TransactRefused(self.now, effect.tag, "no room"),
            "silent": MetadataFailed(self.now, effect.tag, "no answer"),
        }[self.verdict]

    def run(self, seconds: float) -> Scale:
        until = self.now + int(seconds * SECOND)
        while self.core.deadline_ns is not None and self.core.deadline_ns <= until:
            self.now = max(self.now, self.core.deadline_ns)
            self.take(self.core.step(Tick(self.now)))
        self.now = until
        return self


UNEVEN = [info("b1", 100), info("b2", 1_000), info("b3", 1_000), info("b4", 4_000)]


def test_marks_wait_for_the_bytes_of_those_before() -> None:
    """AR21: "within a rate": 90 bytes a seat at 1,000 a second."""
    scale = Scale(UNEVEN, page_ledgers=100)
    scale.run(0.2)
    assert list(scale.marks) == [1]
    assert moves_of(scale.marks[1]) == {"b1": "b4"}
    assert progress_of(scale.marks[1]).why == "from b1 to b4, which has more room"
    assert scale.when == [
        Compare(repair_mark_path(1), ABSENT),
        Compare(ledger_key_path(1), 7),
        Compare(unrepairable_path(1), ABSENT),
    ]
    scale.run(0.1)
    assert list(scale.marks) == [1, 2]
    scale.run(1.0)
    assert list(scale.marks) == [1, 2, 3]
    assert scale.core.passes == 1


def test_no_more_moves_than_evens_the_rooms() -> None:
    """AR21: a copy of 90 bytes leaves b1, which lacks 142 of the mean; a second one would be too much."""
    scale = Scale([info(each.member.bookie_id, each.free_bytes // 10) for each in UNEVEN], page_ledgers=100)
    scale.run(1.5)
    assert (list(scale.marks), scale.core.passes) == ([1], 1)


@pytest.mark.parametrize("why", ["not elected", "switched off", "nobody"])
def test_a_host_that_may_not_moves_nothing(why: str) -> None:
    """P11.1, AR16: another host is the auditor, or an operator has switched repair off, or nobody is there."""
    scale = Scale([] if why == "nobody" else UNEVEN)
    scale.elected = b"another" if why == "not elected" else b"me"
    scale.switch = b"no switch that can be read" if why == "switched off" else None
    scale.run(10)
    assert scale.marks == {}
    assert "page" not in scale.asked


def test_only_so_many_marks_are_there_at_a_time() -> None:
    """P11.6: workers that are slow, or away, are not buried."""
    scale = Scale(UNEVEN, marks_max=1)
    scale.run(5)
    assert list(scale.marks) == [1]
    scale.marks.clear()
    scale.run(5)
    assert list(scale.marks) == [2]


@pytest.mark.parametrize("verdict", ["refused", "unknown", "full", "silent"])
def test_what_comes_of_a_mark(verdict: str) -> None:
    """P2.2: refused, it is another ledger by now, and passed over. Of unknown outcome it counts as made. Without room
    in the metadata, or an answer, it is asked again."""
    scale = Scale(UNEVEN)
    scale.verdict = verdict
    scale.run(1)
    is_asked_again = scale.asked.count("mark") > 3
    assert is_asked_again is (verdict in ("full", "silent"))
    assert scale.core.moved == (3 if verdict == "unknown" else 0)
    scale.verdict = "done"
    scale.run(10)
    assert scale.marks


def test_the_next_pass_for_room_comes_when_the_round_is_over() -> None:
    """P11.6: room rises late, so a pass that begins at once would move far too much."""
    scale = Scale(UNEVEN, round_ns=100 * SECOND)
    scale.run(20)
    marked = scale.core.moved
    scale.marks.clear()
    scale.run(50)
    assert scale.core.moved == marked
    scale.run(60)
    assert scale.core.moved > marked


def test_a_pass_for_racks_begins_when_a_bookie_is_somewhere_new() -> None:
    """AR06: one that restarts, or is away for a while, makes no ledger better off than before."""
    placed = [info("b1", rack="z/1"), info("b2", rack="z/2"), info("b3", rack="z/2")]
    scale = Scale(placed, round_ns=1_000 * SECOND)

    def passes(bookies: list[BookieInfo]) -> int:
        scale.core.step(BookiesChanged(scale.now, tuple(bookies)))
        scale.run(5)
        return scale.core.passes

    assert passes(placed) == 1
    assert passes(placed[:2]) == 1
    assert passes([*placed[:2], BookieInfo(Member("b3", bytes(15) + b"2"), True, "z/2", GIB)]) == 1
    assert passes([*placed, info("b4", rack="z/3")]) == 2
    assert passes([*placed[:2], info("b3", rack="z/4"), info("b4", rack="z/3")]) == 3


def test_what_is_open_freed_or_lacks_a_bookie_is_left() -> None:
    """P11.6: "nothing is moved that is written to, ... or that nobody could repair"; repair comes first."""
    scale = Scale(UNEVEN[:2] + UNEVEN[3:])  # b3 is away.
    scale.run(5)
    assert (scale.core.passes > 0, scale.marks) == (True, {})
    scale = Scale(UNEVEN)
    ended, written = scale.ledgers[1].fragments[0], Fragment(9, 90, scale.ledgers[1].fragments[0].ensemble)
    changed = {"fragments": (ended, written), "last_entry": None, "length": None}
    freed = Freed(bytes(16), "/archive", bytes(32))
    scale.ledgers = {
        1: scale.ledgers[1].with_changes(state=LedgerState.OPEN, **changed),
        2: scale.ledgers[2].with_changes(state=LedgerState.IN_RECOVERY, **changed),
        3: scale.ledgers[3].with_changes(freed=freed, fragments=(Fragment(0, 0, ()),)),
    }
    scale.run(5)
    assert (scale.core.passes > 0, scale.marks) == (True, {})


def test_settings_say_how_fast_and_how_often() -> None:
    """P11.6: 0 bytes a second: this host moves nothing."""
    assert repair_options(Settings(balance_bytes_per_s=0), OPTIONS.opener).balancer is None  # type: ignore[arg-type]
    options = repair_options(Settings(balance_bytes_per_s=5, audit_s=60), OPTIONS.opener).balancer  # type: ignore[arg-type]
    assert options is not None
    assert (options.bytes_per_s, options.round_ns) == (5, 60 * SECOND)
