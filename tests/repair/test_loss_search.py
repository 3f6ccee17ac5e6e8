"""What a search for lost entries asks, and what it concludes from every kind of answer (P11.5, P7.1)."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import encode_entry
from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from embedbk.codec.lost_entries import LOST_RUNS_MAX, Losses
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.loss_search import LossPlan, LossSearch, LossSearchOptions
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import EmbedbkError, RecoveryInconclusive, UsageError
from embedbk.ids import Member

B1, B2, B3, B4 = (Member(f"b{n}", bytes([n] * 16)) for n in range(1, 5))
OPTIONS = LossSearchOptions(window_entries=8, patience_ns=200, beyond_entries=100)
KEY = bytes(16)


def ledger(
    last: int | None, members: tuple[Member, ...] = (B1, B2, B3), qw: int = 3, qa: int = 2
) -> LedgerMetadata:
    state = LedgerState.IN_RECOVERY if last is None else LedgerState.CLOSED
    length = None if last is None else 10 * (last + 1)
    return LedgerMetadata(
        1, 7, len(members), qw, qa, state, last, length, b"", 1, {}, (Fragment(0, 0, members),)
    )


class Disks:
    """Bookies that answer from what they hold; `says` has another answer for some."""

    def __init__(self, held: dict[Member, set[int]], lac: int = -1) -> None:
        self.held, self.lac = held, lac
        self.says: dict[Member, Status] = {}
        self.dumb: set[Member] = set()
        self.unreadable: dict[Member, set[int]] = {}
        self.asked: list[Send] = []

    def answer(self, send: Send, now_ns: int) -> Answered | SendFailed:
        self.asked.append(send)
        member, request = send.member, send.control
        if member in self.dumb:
            return SendFailed(now_ns, send.tag, member, "no link")
        status = self.says.get(member, Status.OK)
        if isinstance(request, FenceRequest):
            told = -1 if status == Status.IN_LIMBO else self.lac
            return Answered(now_ns, send.tag, member, FenceAnswer(Status.OK, 7, told, 10 * (told + 1)), ())
        assert isinstance(request, ReadRequest)
        if status != Status.OK:
            return Answered(now_ns, send.tag, member, ReadAnswer(status, 7), ())
        wanted = [
            each
            for each in sorted(self.held.get(member, set()) | self.unreadable.get(member, set()))
            if request.first_entry <= each <= request.last_entry
            and request.residues >> each % request.modulus & 1
        ]
        bad = self.unreadable.get(member, set())
        good = [each for each in wanted if each not in bad]
        bounds = [request.first_entry - 1, *wanted, request.last_entry + 1]
        absent = [(a + 1, b - 1) for a, b in zip(bounds, bounds[1:], strict=False) if a + 1 < b]
        body = b"".join(encode_entry(7, each, 10 * (each + 1), b"x" * 10) for each in good)
        frames = ((b"", body),) if good else ()
        return Answered(now_ns, send.tag, member, ReadAnswer(Status.OK, 7, absent), frames)

    def search(
        self, metadata: LedgerMetadata, gone: set[Member], there: tuple[Member, ...]
    ) -> LossPlan | EmbedbkError:
        core = LossSearch(metadata, frozenset(gone), there, KEY, b"", OPTIONS)
        now, effects = 1, core.step(Started(1))
        for _ in range(10_000):
            ended = [each for each in effects if isinstance(each, Ended)]
            if ended:
                assert core.deadline_ns is None
                return ended[0].error or ended[0].result  # type: ignore[no-any-return]
            now += 1
            if effects:
                (send,) = effects
                assert isinstance(send, Send)
                effects = core.step(self.answer(send, now))
            else:
                assert core.deadline_ns is not None
                now = max(now, core.deadline_ns)
                effects = core.step(Tick(now))
        raise AssertionError("it never ends")


def plan(found: LossPlan | EmbedbkError) -> LossPlan:
    assert isinstance(found, LossPlan), found
    return found


def refused(found: LossPlan | EmbedbkError, kind: type[EmbedbkError], text: str) -> None:
    assert isinstance(found, kind), found
    assert text in str(found)


def test_only_what_everybody_left_denies_is_lost() -> None:
    """P11.5: b1 and b2 are gone; b3 says for certain what it has not."""
    disks = Disks({B3: {0, 1, 2, 5, 20}})
    found = plan(disks.search(ledger(21), {B1, B2}, (B3, B4)))
    assert found.runs == ((3, 4, 1), (6, 19, 1), (21, 21, 1)) and found.entry_count == 17
    assert found.gone == (B1, B2) and not found.is_end_named
    assert {send.member for send in disks.asked} == {B3, B4}


@pytest.mark.parametrize("status", [Status.IN_LIMBO, Status.UNKNOWN, Status.BUSY])
def test_who_cannot_tell_has_not_said_no(status: Status) -> None:
    """P7.1, P7.4: limbo, and whatever passes, is no negative."""
    disks = Disks({B3: {0, 1}})
    disks.says[B3] = status
    refused(disks.search(ledger(2), {B1, B2}, (B3,)), RecoveryInconclusive, "b3: ")


def test_a_copy_that_cannot_be_read_is_no_negative() -> None:
    """P7.1."""
    disks = Disks({B3: {0, 2}})
    disks.unreadable[B3] = {1}
    refused(disks.search(ledger(2), {B1, B2}, (B3,)), RecoveryInconclusive, "entry 1 of ledger 7")


def test_who_is_away_or_silent_and_not_gone_may_have_it() -> None:
    """P11.5: the only thing that makes "may come back" false is a word."""
    disks = Disks({B3: {0, 1}})
    refused(disks.search(ledger(2), {B1}, (B3,)), RecoveryInconclusive, "b2: it is away")
    disks.dumb.add(B2)
    refused(disks.search(ledger(2), {B1}, (B2, B3)), RecoveryInconclusive, "b2: no link")


def test_who_is_registered_is_asked_whatever_was_said_of_it() -> None:
    """P11.5: one that answers is not gone."""
    disks = Disks({B1: {2}, B3: {0, 1}})
    refused(disks.search(ledger(2), {B1, B2}, (B1, B3)), UsageError, "nothing is lost")


def test_a_copy_where_no_seat_is_keeps_its_entry() -> None:
    """P11.5: a good copy somewhere."""
    disks = Disks({B3: {0, 1}, B4: {2}})
    refused(disks.search(ledger(2), {B1, B2}, (B3, B4)), UsageError, "b4 holds a good copy of entry 2")
    disks.dumb.add(B4)  # It has no seat: nobody waits for it.
    assert plan(disks.search(ledger(2), {B1, B2}, (B3, B4))).runs == ((2, 2, 1),)


def test_every_nth_entry_is_one_run_and_only_holders_are_blamed() -> None:
    """P1: of three seats one had the entries of one residue."""
    disks = Disks({B2: {1, 4, 7}, B3: {2, 5, 8}})
    found = plan(disks.search(ledger(8, qw=1, qa=1), {B1}, (B2, B3)))
    assert (found.runs, found.gone) == (((0, 6, 3),), (B1,))


def test_what_was_given_up_before_is_not_given_up_again() -> None:
    """P11.5."""
    before = ledger(4).with_changes(lost=(Losses(((0, 1, 1),), ()),))
    found = plan(Disks({B3: {2, 4}}).search(before, {B1, B2}, (B3,)))
    assert found.runs == ((3, 3, 1),)
    refused(Disks({B3: {2, 3, 4}}).search(before, {B1, B2}, (B3,)), UsageError, "nothing is lost")


# Of a ledger that is not closed.


def test_a_ledger_without_an_end_ends_behind_the_last_entry_that_anybody_has() -> None:
    """P5.3, P11.5: what is missing in front of it may have been acknowledged, and is lost; however wide the gap."""
    disks = Disks({B3: {0, 1, 50}})
    found = plan(disks.search(ledger(None), {B1, B2}, (B3,)))
    assert found.is_end_named and found.metadata.is_closed
    assert (found.metadata.last_entry, found.metadata.length) == (50, 510)
    assert found.runs == ((2, 49, 1),)
    assert isinstance(disks.asked[0].control, FenceRequest)


def test_what_was_heard_acknowledged_is_never_beyond_the_end() -> None:
    """P5.3: the LAC says that entries were there which nobody has now."""
    found = plan(Disks({B3: {0, 1}}, lac=4).search(ledger(None), {B1, B2}, (B3,)))
    assert (found.metadata.last_entry, found.metadata.length, found.runs) == (4, 50, ((2, 4, 1),))


def test_a_lac_that_nothing_bears_out_ends_the_search_and_is_named() -> None:
    """P11.5, BOUNDS: whatever a bookie claims, a search comes to its end; a LAC is believed for so many entries behind
    the last one that was found, wherever that is."""
    far = OPTIONS.beyond_entries
    for held in ({0, 1}, set(range(40))):
        found = max(held)
        known = plan(Disks({B3: held}, lac=found + far).search(ledger(None), {B1, B2}, (B3,)))
        assert known.runs == ((found + 1, found + far, 1),)
        disks = Disks({B3: held}, lac=1 << 50)
        refused(
            disks.search(ledger(None), {B1, B2}, (B3,)),
            RecoveryInconclusive,
            f"b3 tells that entry {1 << 50} of ledger 7 was acknowledged",
        )
        assert len(disks.asked) < 30


def test_with_nobody_left_it_ends_where_its_last_fragment_begins() -> None:
    """P11.5: nobody knows what was behind that."""
    two = ledger(None).with_changes(fragments=(Fragment(0, 0, (B1, B2, B3)), Fragment(3, 30, (B1, B2, B4))))
    found = plan(Disks({B3: {0, 1, 2}}).search(two, {B1, B2, B4}, (B3,)))
    assert (found.metadata.last_entry, found.metadata.length, found.runs) == (2, 30, ())
    assert found.gone == (B1, B2, B4)


def test_bookies_that_can_settle_it_do() -> None:
    """P5.2: with coverage a recovery needs no word, and loses nothing that it need not."""
    disks = Disks({B2: {0}, B3: {0}})
    refused(
        disks.search(ledger(None), {B1}, (B2, B3)), UsageError, "can be closed without giving anything up"
    )
    assert not disks.asked


def test_nobody_is_left_out_of_the_fence() -> None:
    """P5.2b: E 4, Qw 2, Qa 2 with b1 and b2 gone: b3 and b4 are both fenced first, or nothing ends."""
    wide = ledger(None, (B1, B2, B3, B4), 2, 2)
    disks = Disks({B3: {1, 2}, B4: {2, 3}})
    found = plan(disks.search(wide, {B1, B2}, (B3, B4)))
    assert [send.member for send in disks.asked[:2]] == [B3, B4]
    assert all(isinstance(send.control, FenceRequest) for send in disks.asked[:2])
    assert (found.metadata.last_entry, found.runs) == (3, ((0, 0, 1),))
    refused(disks.search(wide, {B1, B2}, (B3,)), RecoveryInconclusive, "b4 may have entries")


def test_limbo_behind_the_last_entry_ends_it_too() -> None:
    """P7.4: whether there is more cannot be told."""
    disks = Disks({B3: set()}, lac=1)
    disks.says[B3] = Status.IN_LIMBO
    refused(disks.search(ledger(None), {B1, B2}, (B3,)), RecoveryInconclusive, "limbo")


def test_more_runs_than_one_word_gives_up_are_refused() -> None:
    """The bound of one word."""
    last = 2 * LOST_RUNS_MAX + 2
    disks = Disks({B3: set(range(0, last + 1, 2))})
    refused(disks.search(ledger(last), {B1, B2}, (B3,)), UsageError, "runs, which one word cannot give up")
