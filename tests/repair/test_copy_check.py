"""What one bookie's answers prove of its copies, and how fast it is read: the machine alone (scrub/SCRUB.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import DigestType, encode_tagged
from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import Frame, FrameHeader
from embedbk.codec.holdings_messages import HoldingsRequest
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.messages import Control, ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member
from embedbk.repair import copy_check
from embedbk.repair.copy_check import CopiesCheck, CopyBlock, CopyCheckOptions, CopyTask
from embedbk.repair.owed import Owed

LEDGER = 7
B1, B2 = Member("b1", b"1" * 16), Member("b2", b"2" * 16)
SECOND = 1_000_000_000


def owed(first: int, last: int, modulus: int = 1, residues: int = 1) -> Owed:
    ids = [each for each in range(first, last + 1) if residues >> each % modulus & 1]
    return Owed(first, last, modulus, residues, len(ids))


def entry(entry_id: int) -> bytes:
    return encode_entry(LEDGER, entry_id, 10 * (entry_id + 1), b"entry %04d" % entry_id)


class Bookie:
    """Answers as a bookie with these entries does. bad: ids that it has, and cannot read."""

    def __init__(self, ids: range | list[int], bad: tuple[int, ...] = (), at_most: int = 1000) -> None:
        self.held = {entry_id: entry(entry_id) for entry_id in ids if entry_id not in bad}
        self.bad, self.at_most = bad, at_most
        self.lac = LacAnswer(Status.OK, LEDGER)
        self.asked: list[Control] = []

    def answer(self, request: Control) -> tuple[Control, list[bytes]]:
        self.asked.append(request)
        if isinstance(request, LacRequest):
            return self.lac, []
        assert isinstance(request, ReadRequest)
        absent: list[tuple[int, int]] = []
        bodies: list[bytes] = []
        for entry_id in range(request.first_entry, request.last_entry + 1):
            if not request.residues >> entry_id % request.modulus & 1 or entry_id in self.bad:
                continue
            if len(bodies) == self.at_most:
                break
            if entry_id in self.held:
                bodies.append(self.held[entry_id])
            else:
                absent.append((entry_id, entry_id))
        if self.lac.status != Status.OK:
            absent = []
        return ReadAnswer(Status.OK, LEDGER, absent), bodies


def header(size: int) -> FrameHeader:
    return FrameHeader(LEDGER, 0, 0, 1, size, -1, 0, False, bytes(16))


def run(
    tasks: list[CopyTask],
    answer: Callable[[Member, Control], tuple[Control, list[bytes]]],
    options: CopyCheckOptions = CopyCheckOptions(),  # noqa: B008
) -> tuple[list[CopyBlock], int]:
    """Its blocks, and when it ended."""
    core, now_ns = CopiesCheck(tasks, options), 0
    effects: list[Effect] = core.step(Started(0))
    while True:
        ended = next((each for each in effects if isinstance(each, Ended)), None)
        sends = [each for each in effects if isinstance(each, Send)]
        effects = []
        for send in sends:
            if isinstance(send.control, HoldingsRequest):
                answer(send.member, send.control)
                continue
            control, bodies = answer(send.member, send.control)
            frames = [(header(len(body)), memoryview(body)) for body in bodies]
            effects += core.step(Answered(now_ns, send.tag, send.member, control, frames))
        if ended is not None:
            return ended.result, now_ns
        if not effects:
            assert core.deadline_ns is not None, "it waits for nothing"
            now_ns = max(now_ns, core.deadline_ns)
            effects = core.step(Tick(now_ns))


def one(bookie: Bookie, what: Owed, **more: object) -> CopyBlock:
    (block,), _ = run([CopyTask(LEDGER, B1, what, **more)], lambda _, request: bookie.answer(request))  # type: ignore[arg-type]
    return block


@pytest.mark.parametrize("at_most", [1, 3, 1000])
@pytest.mark.parametrize(("modulus", "residues"), [(1, 1), (4, 0b0011), (5, 0b10001)])
def test_all_that_is_owed_is_there(at_most: int, modulus: int, residues: int) -> None:
    what = owed(3, 41, modulus, residues)
    block = one(Bookie(range(60), at_most=at_most), what)
    assert block.is_whole and (block.missing, block.unreadable) == ((), ())
    for residue in range(modulus):
        mine = [each for each in range(3, 42) if each % modulus == residue and residues >> residue & 1]
        assert block.sums[residue] == sum(entry_digest(entry(each)) for each in mine) % 2**64


@pytest.mark.parametrize("at_most", [1, 3, 1000])
@pytest.mark.parametrize(("modulus", "residues"), [(1, 1), (4, 0b0011)])
def test_what_is_denied_is_missing_and_what_is_left_out_is_unreadable(
    at_most: int, modulus: int, residues: int
) -> None:
    """The first and the last id, ids in a row, all but one: each is named, and nothing else."""
    what = owed(0, 40, modulus, residues)
    ids = [each for each in range(41) if residues >> each % modulus & 1]
    for lost in ([ids[0]], [ids[-1]], ids[3:6], ids[:-1], ids):
        block = one(Bookie([each for each in ids if each not in lost], at_most=at_most), what)
        assert (block.missing, block.unreadable, block.given) == (
            ((lost[0], lost[-1]),),
            (),
            len(ids) - len(lost),
        )
        block = one(Bookie(ids, tuple(lost), at_most=at_most), what)
        assert (block.missing, block.unreadable, block.given) == (
            (),
            ((lost[0], lost[-1]),),
            len(ids) - len(lost),
        )


def test_who_is_in_limbo_has_nothing_bad_and_nothing_missing() -> None:
    """P7.4: before anything is called unreadable the bookie is asked for its LAC, once."""
    bookie = Bookie([1, 2, 3])
    bookie.lac = LacAnswer(Status.IN_LIMBO, LEDGER)
    block = one(bookie, owed(0, 9))
    assert (block.untold, block.missing, block.unreadable) == ("IN_LIMBO", (), ())
    assert sum(isinstance(each, LacRequest) for each in bookie.asked) == 1


def test_a_sound_bookie_is_asked_for_no_lac() -> None:
    bookie = Bookie([1, 2, 3])
    one(bookie, owed(0, 9))
    assert not any(isinstance(each, LacRequest) for each in bookie.asked)


@pytest.mark.parametrize(
    "wrong",
    [
        ErrorAnswer("what?"),
        LacAnswer(Status.OK, LEDGER),
        ReadAnswer(Status.OK, LEDGER + 1),
        ReadAnswer(Status.UNKNOWN, LEDGER),
    ],
)
def test_an_answer_that_is_none_is_a_fault_of_the_bookie(wrong: Control) -> None:
    (block,), _ = run([CopyTask(LEDGER, B1, owed(0, 9))], lambda *_: (wrong, []))
    assert block.is_faulty and block.untold
    assert (block.missing, block.unreadable) == ((), ())


def test_frames_that_are_none_are_narrowed_down_to_their_entries() -> None:
    """A bookie that sends what fails its check, or another entry than was asked for: that entry alone is bad."""
    bookie = Bookie(range(20))
    bookie.held[5] = bookie.held[5][:-1] + b"?"
    bookie.held[9] = entry(4)
    bookie.held[12] = encode_entry(LEDGER + 1, 12, 130, b"entry 0012")
    bookie.held[19] = b"no entry"
    block = one(bookie, owed(0, 19))
    assert block.unreadable == ((5, 5), (9, 9), (12, 12), (19, 19))
    assert (block.given, block.missing) == (16, ())


def test_who_gives_more_than_was_asked_for_is_not_counted_for_it() -> None:
    """Entries of other residues, and beyond the range."""

    def answer(_: Member, request: Control) -> tuple[Control, list[bytes]]:
        assert isinstance(request, ReadRequest)
        return ReadAnswer(Status.OK, LEDGER), [b"".join(entry(each) for each in range(10))]

    (block,), _ = run([CopyTask(LEDGER, B1, owed(0, 9, 2, 0b01))], answer)
    assert (block.given, block.sums[1]) == (5, 0)


def test_no_such_ledger_denies_all_of_it() -> None:
    (block,), _ = run(
        [CopyTask(LEDGER, B1, owed(0, 9))], lambda *_: (ReadAnswer(Status.NO_SUCH_LEDGER, LEDGER), [])
    )
    assert block.missing == ((0, 9),)


def test_a_tag_that_is_wrong_is_untrue_and_its_copy_counts_as_returned() -> None:
    key = bytes(32)
    bookie = Bookie(range(10))
    bookie.held = {
        each: encode_tagged(DigestType.HMAC, key, LEDGER, each, 10 * (each + 1), b"entry %04d" % each)
        for each in range(10)
    }
    bookie.held[6] = encode_tagged(DigestType.HMAC, b"?" * 32, LEDGER, 6, 70, b"entry 0006")
    assert one(bookie, owed(0, 9), digest=DigestType.HMAC, mac_key=key).untrue == ((6, 6),)
    assert one(bookie, owed(0, 9)).untrue == ()


def test_the_rate_bounds_each_bookie_and_another_does_not_wait() -> None:
    """bytes_per_s: what was read is waited for, also at the end, since another check may follow."""
    size = len(entry(0))
    tasks = [CopyTask(LEDGER, B1, owed(10 * each, 10 * each + 9)) for each in range(10)]
    options = CopyCheckOptions(bytes_per_s=10 * size, at_once=1)
    _, ended_ns = run(tasks, lambda _, request: Bookie(range(100)).answer(request), options)
    assert ended_ns == 10 * SECOND
    other = CopyTask(LEDGER, B2, owed(0, 9))
    _, ended_ns = run([*tasks, other], lambda _, request: Bookie(range(100)).answer(request), options)
    assert ended_ns == 10 * SECOND


def test_who_is_silent_or_not_reached_gets_no_more_reads() -> None:
    """Cannot tell is never no; nor do other bookies wait for one that is silent."""
    for fails in (True, False):
        tasks = [CopyTask(LEDGER, B1, owed(10 * each, 10 * each + 9)) for each in range(10)]
        core = CopiesCheck([*tasks, CopyTask(LEDGER, B2, owed(0, 9))])
        sends = [each for each in core.step(Started(0)) if isinstance(each, Send)]
        to_b2 = next(each for each in sends if each.member == B2)
        bodies = [memoryview(entry(each)) for each in range(10)]
        answered = Answered(
            1, to_b2.tag, B2, ReadAnswer(Status.OK, LEDGER), [(header(len(each)), each) for each in bodies]
        )
        assert core.step(answered) == []
        effects: list[Effect] = []
        if fails:
            for send in (each for each in sends if each.member == B1):
                effects += core.step(SendFailed(2, send.tag, B1, "no link"))
        else:
            assert core.deadline_ns == 10 * SECOND
            effects = core.step(Tick(10 * SECOND))
        (ended,) = effects
        assert isinstance(ended, Ended)
        told = {block.task: block for block in ended.result}
        assert len(told) == 11
        assert all(told[task].untold and not told[task].missing for task in tasks)
        assert told[CopyTask(LEDGER, B2, owed(0, 9))].is_whole
        assert core.deadline_ns is None


def test_an_answer_that_is_late_or_comes_twice_counts_once() -> None:
    core = CopiesCheck([CopyTask(LEDGER, B1, owed(0, 9))])
    (send,) = core.step(Started(0))
    assert isinstance(send, Send)
    answer = ReadAnswer(Status.NO_SUCH_LEDGER, LEDGER)
    assert len(core.step(Answered(1, send.tag, B1, answer))) == 1
    assert core.step(Answered(2, send.tag, B1, answer)) == []
    assert core.step(SendFailed(3, send.tag, B1, "gone")) == []


def test_bookies_are_told_of_what_they_cannot_read_where_that_is_wanted() -> None:
    """They read it themselves then, and lack it from then on (P11.4): repair finds what to copy."""
    asked: list[HoldingsRequest] = []
    bookie = Bookie(range(20), bad=(3, 4, 11))

    def answer(_: Member, request: Control) -> tuple[Control, list[bytes]]:
        if isinstance(request, HoldingsRequest):
            asked.append(request)
            return request, []
        return bookie.answer(request)

    for tells in (False, True):
        run([CopyTask(LEDGER, B1, owed(0, 19))], answer, CopyCheckOptions(tells_bookies=tells))
        assert [(each.first_entry, each.last_entry) for each in asked] == (
            [(3, 4), (11, 11)] if tells else []
        )


@pytest.mark.parametrize("is_independent", [False, True])
@pytest.mark.parametrize("fault", ["digest", "count"])
def test_what_the_kernels_in_c_pass_is_found_independently(
    fault: str, is_independent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCRUB.md: "a fault of those kernels shows where nothing else of embedbk could see it"."""
    flipped = bytearray(entry(3))
    flipped[-6] ^= 1  # A byte of the payload.
    bookie = Bookie(range(6))
    if fault == "digest":
        bookie.held[3] = bytes(flipped)

    def blind(body: memoryview, ledger_id: int | None = None) -> Frame:
        entry_id = next(each for each in range(6) if bookie.held[each] == bytes(body))
        return Frame(
            LEDGER, entry_id, entry_id, 1 + (fault == "count" and entry_id == 3), 10 * (entry_id + 1), body
        )

    monkeypatch.setattr(copy_check, "frame_of", blind)
    options = CopyCheckOptions(is_independent=is_independent)
    (block,), _ = run([CopyTask(LEDGER, B1, owed(0, 5))], lambda _, request: bookie.answer(request), options)
    assert block.unreadable == (((3, 3),) if is_independent else ())
    assert block.given == 6 - is_independent


def test_the_sums_of_sound_copies_are_the_same_in_both_ways() -> None:
    """SCRUB.md: so that they are compared with what bookies, files and writers tell."""
    what = owed(0, 40, 3, 5)
    blocks = []
    for is_independent in (False, True):
        bookie = Bookie(range(41))
        options = CopyCheckOptions(is_independent=is_independent)
        (block,), _ = run(
            [CopyTask(LEDGER, B1, what)], lambda _, request, b=bookie: b.answer(request), options
        )  # type: ignore[misc]
        blocks.append(block)
    assert blocks[0] == blocks[1]
    assert blocks[0].is_whole
