"""What is believed of answers while a fragment is copied: by its events (P11.2, P3.8)."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.holdings_messages import HoldingsAnswer, HoldingsRequest
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    PublishedSums,
)
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.ids import Member
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import CopyOptions, FragmentCopy

SECOND = 1_000_000_000
MEMBERS = tuple(Member(f"b{number}", bytes([number]) * 16) for number in (1, 2, 3))
TARGET = Member("b4", b"4" * 16)
ENTRIES = [encode_entry(7, number, 10 * (number + 1), b"0123456789") for number in range(6)]


def copying(pace: int = 0, last: int = 5) -> tuple[FragmentCopy, list[Send]]:
    """b1 is lost, b4 gets its seat."""
    fragment = Fragment(0, 0, tuple((each.bookie_id, each.incarnation) for each in MEMBERS))
    metadata = LedgerMetadata(
        METADATA_VERSION, 7, 3, 3, 2, LedgerState.CLOSED, last, 10 * (last + 1), b"v", 1, {}, (fragment,)
    )
    core = FragmentCopy(metadata, 0, {0: TARGET}, frozenset({0}), 5, CopyPace(pace), CopyOptions())
    return core, sends(core.begin(0))


def sends(effects: list[object]) -> list[Send]:
    assert all(isinstance(each, Send) for each in effects)
    return effects  # type: ignore[return-value]


def read(core: FragmentCopy, asked: Send, body: bytes, now_ns: int = 0) -> list[Send]:
    assert isinstance(asked.control, ReadRequest)
    frames = [(None, memoryview(body))] if body else []
    return sends(
        core.on_answered(Answered(now_ns, asked.tag, asked.member, ReadAnswer(Status.OK, 7), frames))
    )


def told(core: FragmentCopy, asked: Send, **other: object) -> list[Send]:
    request, frame = asked.control, asked.frames[0][1]
    assert isinstance(request, AddRequest)
    answer = {
        "status": Status.OK, "nonce": request.nonce, "seating": request.seating, "recovery": True, "ledger_id": 7,
        "first_entry": frame.first_entry, "last_entry": frame.last_entry, **other,
    }  # fmt: skip
    return sends(core.on_answered(Answered(0, asked.tag, asked.member, AddAnswer(**answer))))  # type: ignore[arg-type]


def test_all_is_durable_before_it_is_done() -> None:
    """I36: neither what was read, nor what was sent."""
    core, (asked,) = copying()
    copy, rest = read(core, asked, b"".join(ENTRIES[:4]))
    assert (copy.member, copy.frames[0][1].entry_count) == (TARGET, 4)
    (last,) = read(core, rest, b"".join(ENTRIES[4:]))
    told(core, last)
    assert core.result is None
    told(core, copy)
    assert core.result is not None
    assert (core.result.kind, core.copies) == ("done", 6)


@pytest.mark.parametrize(
    "other",
    [
        {"status": Status.UNKNOWN},
        {"nonce": 6},
        {"seating": 99},
        {"recovery": False},
        {"last_entry": 4},
        {"ledger_id": 8},
    ],
)
def test_an_answer_that_is_no_ok_of_this_copy_makes_the_target_fail(other: dict[str, object]) -> None:
    """P3.8."""
    core, (asked,) = copying()
    (copy,) = read(core, asked, b"".join(ENTRIES))
    told(core, copy, **other)
    assert core.result is not None
    assert (core.result.kind, core.result.target) == ("target failed", TARGET)


def test_a_busy_target_is_sent_the_same_again() -> None:
    """P7.8: alive, and nothing was done; for so long as a write may take."""
    core, (asked,) = copying()
    (copy,) = read(core, asked, b"".join(ENTRIES))
    assert told(core, copy, status=Status.BUSY) == []
    (again,) = sends(core.on_tick(SECOND))
    assert again.frames == copy.frames
    told(core, again)
    assert core.result is not None
    assert core.result.kind == "done"


def test_a_copy_that_is_bad_missing_or_of_others_is_read_elsewhere() -> None:
    """P6.1: and the good ones before a gap are taken."""
    rotten = bytearray(ENTRIES[0])
    rotten[-1] ^= 1
    foreign = encode_entry(8, 0, 10, b"0123456789")
    for body in (bytes(rotten), foreign, ENTRIES[1], b""):
        core, (asked,) = copying()
        (other,) = read(core, asked, body)
        assert other.member != asked.member
        copy, rest = read(core, other, ENTRIES[0] + ENTRIES[2])
        assert copy.frames[0][1].entry_count == 1
        assert isinstance(rest.control, ReadRequest)
        assert rest.control.first_entry == 1
        read(core, rest, body if body != ENTRIES[1] else b"")


def test_nobody_has_it_and_nobody_knows_are_two_things() -> None:
    """Cannot tell is never no."""
    for silent in (False, True):
        core, (asked,) = copying()
        (other,) = read(core, asked, b"")
        if silent:
            core.on_send_failed(SendFailed(0, other.tag, other.member, "link lost"))
        else:
            read(core, other, b"")
        assert core.result is not None
        assert (core.result.kind, core.result.entry_id) == ("cannot tell" if silent else "no good copy", 0)


def test_what_is_beyond_the_end_is_not_copied() -> None:
    """I38: a source may hold more than the ledger has."""
    core, (asked,) = copying(last=3)
    (copy,) = read(core, asked, b"".join(ENTRIES))
    assert copy.frames[0][1].last_entry == 3


def test_copies_are_read_at_a_bounded_rate() -> None:
    """AR12: behind a frame the next one waits for as long as its bytes take."""
    size = len(ENTRIES[0])
    core, (asked,) = copying(pace=16 * size)  # It begins with a sixteenth.
    (copy,) = read(core, asked, ENTRIES[0])
    assert isinstance(copy.control, AddRequest)
    assert core.deadline_ns == SECOND
    assert sends(core.on_tick(SECOND - 1)) == []
    (rest,) = sends(core.on_tick(SECOND))
    assert isinstance(rest.control, ReadRequest)


def test_a_read_asks_for_no_more_than_the_pace_allows_at_once() -> None:
    """AR12: a bookie that others wait for works on no megabyte for a copy, and a repair without a bound is quick."""
    for pace, most in ((1 << 20, 64 << 10), (0, FRAME_BYTES_MAX)):
        _, (asked,) = copying(pace=pace)
        assert isinstance(asked.control, ReadRequest)
        assert asked.control.bytes_max == most


def test_late_answers_to_an_earlier_question_count_for_nothing() -> None:
    core, (asked,) = copying()
    (other,) = sends(core.on_tick(6 * SECOND))
    assert read(core, asked, b"".join(ENTRIES)) == []
    (copy,) = read(core, other, b"".join(ENTRIES))
    told(core, copy)
    assert core.result is not None
    assert core.result.kind == "done"


def test_a_no_about_another_ledger_is_no_negative() -> None:
    """P7.1: a bookie that answers for a ledger that it was not asked about has said nothing of this one."""
    for ledger_id, is_no in ((7, True), (8, False)):
        core, (asked,) = copying()
        answer = ReadAnswer(Status.NO_SUCH_LEDGER, ledger_id)
        (other,) = sends(core.on_answered(Answered(0, asked.tag, asked.member, answer)))
        assert other.member != asked.member
        (part,) = core._parts
        assert bool(part.absent) is is_no and bool(part.silent) is not is_no


# Sources whose copies are not what was published (P11.4).

DIGESTS = [entry_digest(each) for each in ENTRIES]
OTHER = encode_entry(7, 4, 50, b"anything..")


def published(frame_bytes: int = 100) -> tuple[FragmentCopy, list[Send]]:
    """As `copying`, where the writer published digests, and a read has no more than one entry."""
    fragment = Fragment(0, 0, tuple((each.bookie_id, each.incarnation) for each in MEMBERS))
    sums = (PublishedSums(0, 5, (sum(DIGESTS) % 2**64,)),)
    metadata = LedgerMetadata(
        METADATA_VERSION, 7, 3, 3, 2, LedgerState.CLOSED, 5, 60, b"v", 1, {}, (fragment,), sums=sums
    )
    options = CopyOptions(frame_bytes=frame_bytes)
    core = FragmentCopy(metadata, 0, {0: TARGET}, frozenset({0}), 5, CopyPace(0), options)
    return core, sends(core.begin(0))


def holds(core: FragmentCopy, asked: Send, entries: list[bytes], count: int = 6) -> list[Send]:
    assert isinstance(asked.control, HoldingsRequest) and asked.control.wants
    lacking = [(5, 5)] if count < 6 else []
    digest = sum(map(entry_digest, entries)) % 2**64
    answer = HoldingsAnswer(Status.OK, 7, count, lacking, [digest])
    return sends(core.on_answered(Answered(0, asked.tag, asked.member, answer)))


def test_who_has_something_else_is_read_last() -> None:
    """P11.4: "asks all sources first"; all of them are told before the first read."""
    core, (one, two) = published()
    assert (one.member, two.member, core.deadline_ns) == (MEMBERS[1], MEMBERS[2], 5 * SECOND)
    assert holds(core, one, [*ENTRIES[:4], OTHER, ENTRIES[5]]) == []
    (asked,) = holds(core, two, ENTRIES)
    assert asked.member == MEMBERS[2]
    for number, entry in enumerate(ENTRIES):
        copy, *rest = read(core, asked, entry)
        assert copy.member == TARGET
        told(core, copy)
        if rest:
            (asked,) = rest
            assert (asked.member, asked.control.first_entry) == (MEMBERS[2], number + 1)
    assert core.result is not None and core.result.kind == "done"


def test_who_has_something_else_is_read_where_nobody_else_has_the_entry() -> None:
    """P11.2: what is wrong there may be another entry; the sum of all that was copied tells in the end."""
    core, (one, two) = published()
    holds(core, one, [*ENTRIES[:4], OTHER, ENTRIES[5]])
    (asked,) = holds(core, two, ENTRIES)
    for number, entry in enumerate(ENTRIES):
        rest = read(core, asked, b"" if number == 2 else entry)
        if number == 2:
            (again,) = rest
            assert again.member == MEMBERS[1]
            rest = read(core, again, entry)
        told(core, rest[0])
        if rest[1:]:
            (asked,) = rest[1:]
            assert asked.member == MEMBERS[2], "it is asked first again"
    assert core.result is not None and core.result.kind == "done"


@pytest.mark.parametrize("how", ["late", "failed", "unknown", "short"])
def test_a_source_that_does_not_tell_is_neither_right_nor_wrong(how: str) -> None:
    """P7.1: it is read as it would have been."""
    core, (one, two) = published()
    holds(core, two, ENTRIES)
    if how == "late":
        assert core.on_tick(5 * SECOND - 1) == []
        rest = sends(core.on_tick(5 * SECOND))
    elif how == "failed":
        rest = sends(core.on_send_failed(SendFailed(0, one.tag, one.member, "down")))
    elif how == "short":
        rest = holds(core, one, [*ENTRIES[:4], OTHER], count=5)
    else:
        answer = HoldingsAnswer(Status.UNKNOWN, 7, 0)
        rest = sends(core.on_answered(Answered(0, one.tag, one.member, answer)))
    (asked,) = rest
    assert asked.member == MEMBERS[1] and isinstance(asked.control, ReadRequest)
    assert holds_nothing_twice(core, one)


def holds_nothing_twice(core: FragmentCopy, asked: Send) -> bool:
    """An answer that comes behind the end of the questions counts for nothing."""
    return (
        core.on_answered(Answered(0, asked.tag, asked.member, HoldingsAnswer(Status.OK, 7, 6, [], [1]))) == []
    )


def test_what_one_read_has_is_compared_before_it_is_copied() -> None:
    """P11.4: "where one read has all, it adds that up before it copies any of it"."""
    core, (asked,) = published(FRAME_BYTES_MAX)
    assert isinstance(asked.control, ReadRequest) and asked.member == MEMBERS[1]
    (again,) = read(core, asked, b"".join([*ENTRIES[:4], OTHER, ENTRIES[5]]))
    assert (again.member, again.control.first_entry) == (MEMBERS[2], 0)
    (copy,) = read(core, again, b"".join(ENTRIES))
    told(core, copy)
    assert core.result is not None and core.result.kind == "done"
    core, (asked,) = published(FRAME_BYTES_MAX)
    (again,) = read(core, asked, b"".join([*ENTRIES[:4], OTHER, ENTRIES[5]]))
    assert read(core, again, b"".join([*ENTRIES[:4], OTHER, ENTRIES[5]])) == []
    assert core.result is not None and core.result.kind == "no good copy"
    assert "entries 0 to 5 are not what their writer published" in core.result.why
