"""Which entries of a ledger are lost for good: no present bookie has one, and the others are declared gone (P11.5).

A bookie that an operator declared gone counts as no copy here, and nowhere else. Every other bookie of an entry's write
set has to say for certain that it has none: one that is away, in limbo, or cannot read what it has, ends the search,
and is named. So does a bookie without a seat that holds a copy all the same.

A ledger that is not closed is fenced first, on every bookie of its last fragment that is not gone. It ends behind the
last entry that anybody has, or whose acknowledgement anybody heard of; but no bookie's word makes the search go on
without end: far behind the last entry that was found, a LAC that is higher still is not believed, and ends the search
with the name of who told it. Nothing is copied: what has too few copies then
is the matter of repair.

    [FENCING, unless it is CLOSED] ─▶ READING, window by window, bookie by bookie ─▶ STRAYS ─▶ ENDED with a `LossPlan`

It does not decide which bookies are gone (`client/giving_up`), and changes nothing but fences.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from embedbk.codec.add_messages import FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import check_tags
from embedbk.codec.entry import ENTRY_HEADER
from embedbk.codec.frame import frame_of, split
from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from embedbk.codec.lost_entries import LOST_RUNS_MAX, LostRun, RunBuilder, is_lost
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BLOCK_BYTES, FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.quorum import has_coverage, write_set
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import EmbedbkError, PeerError, RecoveryInconclusive, StorageError, UsageError
from embedbk.ids import Member

__all__ = ["LossPlan", "LossSearch", "LossSearchOptions"]

_MS = 1_000_000
_LENGTH, _LAC, _LAC_LENGTH = 6, 7, 8  # Fields of an entry's header.


@dataclass(frozen=True, slots=True)
class LossSearchOptions:
    ask_timeout_ns: int = 1_000 * _MS  # An unanswered question is asked again.
    retry_ns: int = 50 * _MS  # Pause before that.
    patience_ns: int = 10_000 * _MS  # For one question: then its bookie cannot tell.
    window_entries: int = 4096
    # So far behind the last entry found, others are looked for, and a LAC is believed without an entry.
    beyond_entries: int = 1 << 24


class LossPlan(NamedTuple):
    """metadata: as it was read, CLOSED at its end where it was not. runs: the lost entries, entry_count of them. gone:
    bookies that had a seat for one of these, or, where the end is named, in the last fragment."""

    metadata: LedgerMetadata
    runs: tuple[LostRun, ...]
    entry_count: int
    gone: tuple[Member, ...]
    is_end_named: bool


class LossSearchPhase(enum.Enum):
    FENCING = "fencing"
    READING = "reading"
    BEYOND = "beyond"  # Whether anybody has an entry far behind the last one that was found.
    STRAYS = "strays"
    ENDED = "ended"


class LossSearch(Machine):
    """Ends with a `LossPlan`.

    Errors: RecoveryInconclusive: a bookie that may hold an entry is away, or cannot tell. UsageError: nothing is lost,
    bookies that are there can settle it by themselves, a bookie without a seat has a copy, or too much is scattered.
    StorageError: copies are not those of one ledger.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        gone: frozenset[Member],
        there: Iterable[Member],
        ledger_key: bytes,
        mac_key: bytes,
        options: LossSearchOptions = LossSearchOptions(),
    ) -> None:
        """gone: in these incarnations, by operators' words. there: all bookies that are registered."""
        assert metadata.state != LedgerState.OPEN
        self.metadata, self.quorum = metadata, metadata.quorum
        self.there = tuple(sorted(there))
        self.gone = gone - frozenset(self.there)
        self.ledger_key, self.mac_key, self.options = ledger_key, mac_key, options
        self.phase = LossSearchPhase.FENCING
        self.number = 0  # Number of the newest question; answers to others count for nothing.
        self.asked_ns: int | None = None
        self.retry_at: int | None = None
        self.since_ns = 0  # When the question was asked first.
        self.request: Send | None = None
        self.queue: list[Member] = []  # Still to be asked, the last one first.
        self.wanted: list[int] = []  # Ids that the bookie asked now owes and none gave.
        self.index = 0  # The fragment that is looked at.
        self.first = 0  # The window's first entry.
        self.last = -1
        self.missing: set[int] = set()
        self.untold: dict[int, dict[str, str]] = {}  # Entry -> bookie -> why it cannot tell.
        self.end, self.length = -1, 0  # The highest entry known to have been there, and the length with it.
        self.has_found = False  # In this window.
        self.seen = metadata.fragments[-1].first_entry - 1  # The highest entry that was found.
        self.claimant = ""  # Who told the highest entry known to have been there.
        self.lost = RunBuilder(self.quorum.ensemble_size)
        self.pending: list[
            int
        ] = []  # Behind all that was found in a ledger without an end: lost, or never there.
        self.blamed: dict[Member, None] = {}
        self.strays: list[tuple[Member, LostRun]] = []
        self.silent: set[Member] = set()

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id

    @property
    def fragment(self) -> Fragment:
        return self.metadata.fragments[self.index]

    @property
    def deadline_ns(self) -> int | None:
        if self.phase is LossSearchPhase.ENDED:
            return None
        return earliest(
            self.retry_at,
            None if self.asked_ns is None else self.asked_ns + self.options.ask_timeout_ns,
        )

    def _on_started(self, event: Started) -> list[Effect]:
        if self.metadata.is_closed:
            assert self.metadata.last_entry is not None and self.metadata.length is not None
            self.end, self.length = self.metadata.last_entry, self.metadata.length
            return self._begin_reading(event.now_ns)
        base = self.metadata.fragments[-1]
        self.end, self.length = base.first_entry - 1, base.length_before
        living = [member for member in base.members if member not in self.gone]
        seats = sum(1 << seat for seat, member in enumerate(base.members) if member in living)
        if has_coverage(seats, self.quorum):
            return self._refuse(
                UsageError(
                    f"ledger {self.ledger_id} can be closed without giving anything up: too few of its bookies are "
                    "declared gone; nothing was changed",
                    hint=f"embedbk ledger recover {self.ledger_id}",
                )
            )
        self.queue = living[::-1]
        return self._fence_next(event.now_ns)

    # Fencing.

    def _fence_next(self, now_ns: int) -> list[Effect]:
        if not self.queue:
            return self._begin_reading(now_ns)
        member = self.queue.pop()
        if member not in self.there:
            return self._away(member)
        request = FenceRequest(member.incarnation, self.ledger_id, self.ledger_key)
        return self._ask(Send(member, request, "fence"), now_ns)

    def _on_fenced(self, answer: FenceAnswer, now_ns: int) -> list[Effect]:
        assert self.request is not None
        if answer.status != Status.OK:
            return self._again(Status(answer.status).name, now_ns)
        self._know(answer.lac, answer.lac_length)
        return self._fence_next(now_ns)

    def _know(self, entry_id: int, length: int) -> None:
        """Note that this entry existed, and that the ledger had this length with it."""
        is_open = not self.metadata.is_closed and self.phase is not LossSearchPhase.STRAYS
        if is_open and entry_id > self.end:
            assert self.request is not None
            self.end, self.length, self.claimant = entry_id, length, self.request.member.bookie_id

    # Reading.

    def _begin_reading(self, now_ns: int) -> list[Effect]:
        self.phase = LossSearchPhase.READING
        self.index, self.first = 0, 0
        return self._begin_window(now_ns)

    @property
    def _is_tail(self) -> bool:
        """Whether the window is in the last fragment of a ledger whose end is not known."""
        return not self.metadata.is_closed and self.index == len(self.metadata.fragments) - 1

    def _begin_window(self, now_ns: int) -> list[Effect]:
        fragments = self.metadata.fragments
        while self.index + 1 < len(fragments) and self.first >= fragments[self.index + 1].first_entry:
            self.index += 1
        last = self.first + self.options.window_entries - 1
        if self.index + 1 < len(fragments):
            last = min(last, fragments[self.index + 1].first_entry - 1)
        if self.metadata.is_closed:
            last = min(last, self.end)
        self.last, self.has_found = last, False
        self.missing = {each for each in range(self.first, last + 1) if not is_lost(self.metadata.lost, each)}
        self.untold = {}
        self.queue = [member for member in self.fragment.members if member not in self.gone][::-1]
        return self._read_next(now_ns)

    def _read_next(self, now_ns: int) -> list[Effect]:
        """Ask the next bookie of the window for what no other gave."""
        while self.queue and self.missing:
            member = self.queue.pop()
            seat = self.fragment.members.index(member)
            self.wanted = sorted(each for each in self.missing if seat in write_set(each, self.quorum))
            if member not in self.there:
                self._cannot_tell(member, self.wanted, "it is away, and not declared gone")
            elif self.wanted:
                return self._read_on(member, now_ns)
        return self._end_window(now_ns)

    def _read_on(self, member: Member, now_ns: int) -> list[Effect]:
        request = ReadRequest(
            member.incarnation, self.ledger_id, self.wanted[0], self.wanted[-1], FRAME_BYTES_MAX
        )
        return self._ask(Send(member, request, "read"), now_ns)

    def _on_read(self, event: Answered, answer: ReadAnswer) -> list[Effect]:
        assert self.request is not None
        member, asked = self.request.member, self.wanted
        if answer.status == Status.NO_SUCH_LEDGER:
            self.wanted = []
            return self._read_next(event.now_ns)
        if answer.status == Status.IN_LIMBO:
            self._cannot_tell(member, asked, "the ledger is in limbo there")
            self.wanted = []
            return self._read_next(event.now_ns)
        if answer.status != Status.OK:
            return self._again(Status(answer.status).name, event.now_ns)
        given = self._take(event)
        denied = [(low, high) for low, high in answer.absent if low <= high]
        top = max([*given, *(min(high, asked[-1]) for _, high in denied)], default=-1)
        top = max(top, asked[0])  # It was asked for that one, whatever it says.
        unsaid = [
            each
            for each in asked
            if each <= top and each not in given and not any(low <= each <= high for low, high in denied)
        ]
        self._cannot_tell(member, unsaid, "it cannot read it, or cannot tell")
        self.wanted = [each for each in asked if each > top]
        if self.wanted:
            return self._read_on(member, event.now_ns)
        return self._read_next(event.now_ns)

    def _take(self, event: Answered) -> set[int]:
        """Take the sound copies of an answer; one that fails its check is no copy, and no negative either."""
        given: set[int] = set()
        for _, body in event.frames:
            try:
                frame = frame_of(body, self.ledger_id)
                check_tags(frame, self.metadata.digest, self.mac_key)
            except PeerError:
                continue
            for entry_id, raw in split(frame):
                head = ENTRY_HEADER.unpack_from(raw)
                self._know(entry_id, head[_LENGTH])
                self._know(head[_LAC], head[_LAC_LENGTH])
                given.add(entry_id)
        self.has_found = self.has_found or any(self.first <= each <= self.last for each in given)
        self.missing -= given
        self.seen = max([self.seen, *given])
        return given

    def _cannot_tell(self, member: Member, entries: Iterable[int], why: str) -> None:
        for each in entries:
            self.untold.setdefault(each, {})[member.bookie_id] = why

    def _end_window(self, now_ns: int) -> list[Effect]:
        for each in sorted(self.missing):
            if each in self.untold:
                told = ", ".join(f"{name}: {why}" for name, why in sorted(self.untold[each].items()))
                return self._refuse(
                    RecoveryInconclusive(
                        f"whether entry {each} of ledger {self.ledger_id} is lost cannot be told ({told}); nothing was "
                        "given up",
                        hint="bring those bookies back; or declare gone who never comes: embedbk bookie gone",
                    )
                )
        if self._is_tail and self.end > self.last >= self.seen + self.options.beyond_entries:
            return self._refuse(
                RecoveryInconclusive(
                    f"{self.claimant} tells that entry {self.end} of ledger {self.ledger_id} was acknowledged, and of "
                    f"the {self.last - self.seen} entries behind {self.seen} nobody has any: that cannot be believed; "
                    "nothing was given up",
                    hint=f"look at its copy: embedbk ledger read {self.ledger_id} --bookie {self.claimant}; if its "
                    f"directory is damaged, stop it: embedbk bookie gone {self.claimant}",
                )
            )
        self.pending += sorted(self.missing)
        self._settle_pending()
        if self.lost.run_count > LOST_RUNS_MAX:
            return self._refuse(
                UsageError(
                    f"of ledger {self.ledger_id} {self.lost.count} entries and more are lost, in more than "
                    f"{LOST_RUNS_MAX} runs, which one word cannot give up; nothing was changed"
                )
            )
        self.first = self.last + 1
        if self.metadata.is_closed and self.first > self.end:
            return self._begin_strays(now_ns)
        if self._is_tail and not self.has_found and self.last > self.end:
            self.phase = LossSearchPhase.BEYOND
            self.queue = [member for member in self.fragment.members if member not in self.gone][::-1]
            return self._look_beyond(now_ns)
        return self._begin_window(now_ns)

    def _settle_pending(self) -> None:
        """What no bookie has is lost up to the end, as far as that is known; what is behind it may never have been."""
        lost = [each for each in self.pending if each <= self.end]
        self.pending = self.pending[len(lost) :]
        for each in lost:
            self._note_lost(each)

    def _note_lost(self, entry_id: int) -> None:
        self.lost.add(entry_id)
        members = self.metadata.fragment_of(entry_id).members
        for seat in write_set(entry_id, self.quorum):
            if members[seat] in self.gone:
                self.blamed[members[seat]] = None

    def _look_beyond(self, now_ns: int) -> list[Effect]:
        """Ask whether any bookie has entries behind this window: a gap may be wider than a window."""
        if not self.queue:
            return self._begin_strays(now_ns)
        member = self.queue.pop()
        if member not in self.there:
            return self._away(member)
        until = self.first + self.options.beyond_entries
        request = ReadRequest(member.incarnation, self.ledger_id, self.first, until, FRAME_BLOCK_BYTES)
        return self._ask(Send(member, request, "beyond"), now_ns)

    def _on_beyond(self, event: Answered, answer: ReadAnswer) -> list[Effect]:
        assert self.request is not None
        member, until = self.request.member, self.first + self.options.beyond_entries
        if answer.status == Status.NO_SUCH_LEDGER:
            return self._look_beyond(event.now_ns)
        is_denied = any(low <= self.first and high >= until for low, high in answer.absent)
        if answer.status == Status.OK and event.frames:
            before = self.end
            self._take(event)
            if self.end > before:
                self.phase = LossSearchPhase.READING
                return self._begin_window(event.now_ns)
        if answer.status == Status.OK and is_denied:
            return self._look_beyond(event.now_ns)
        if answer.status not in (Status.OK, Status.IN_LIMBO):
            return self._again(Status(answer.status).name, event.now_ns)
        return self._refuse(
            RecoveryInconclusive(
                f"whether {member.bookie_id} has entries of ledger {self.ledger_id} behind {self.end} cannot be told; "
                "nothing was given up"
            )
        )

    # Copies where no seat is.

    def _begin_strays(self, now_ns: int) -> list[Effect]:
        runs = self.lost.runs()
        if self.metadata.is_closed and not runs:
            return self._refuse(
                UsageError(
                    f"of ledger {self.ledger_id} nothing is lost: each entry has a good copy on a bookie that is "
                    "there, or was given up before; nothing was changed"
                )
            )
        self.phase = LossSearchPhase.STRAYS
        self.strays = [(member, run) for run in runs for member in self.there][::-1]
        return self._ask_stray(now_ns)

    def _ask_stray(self, now_ns: int) -> list[Effect]:
        while self.strays:
            member, (first, last, step) = self.strays[-1]
            if member in self.silent:
                self.strays.pop()
                continue
            request = ReadRequest(
                member.incarnation,
                self.ledger_id,
                first,
                last,
                FRAME_BLOCK_BYTES,
                modulus=step,
                residues=1 << first % step,
            )
            return self._ask(Send(member, request, "stray"), now_ns)
        return self._end_search()

    def _on_stray(self, event: Answered, answer: ReadAnswer) -> list[Effect]:
        member, (first, last, step) = self.strays.pop()
        held = {each for each in self._take(event) if first <= each <= last and (each - first) % step == 0}
        if held:
            return self._refuse(
                UsageError(
                    f"bookie {member.bookie_id} holds a good copy of entry {min(held)} of ledger {self.ledger_id}, "
                    "which nobody with a seat for it has; nothing was given up",
                    hint=f"embedbk ledger read {self.ledger_id} --bookie {member.bookie_id}",
                )
            )
        return self._ask_stray(event.now_ns)

    # The end.

    def _end_search(self) -> list[Effect]:
        is_end_named = not self.metadata.is_closed
        if is_end_named:
            for member in self.metadata.fragments[-1].members:
                if member in self.gone:
                    self.blamed[member] = None
        closed = self.metadata.with_changes(state=LedgerState.CLOSED, last_entry=self.end, length=self.length)
        plan = LossPlan(
            closed if is_end_named else self.metadata,
            self.lost.runs(),
            self.lost.count,
            tuple(sorted(self.blamed)),
            is_end_named,
        )
        self.phase = LossSearchPhase.ENDED
        return [Ended(None, plan)]

    def _away(self, member: Member) -> list[Effect]:
        return self._refuse(
            RecoveryInconclusive(
                f"{member.bookie_id} may have entries of ledger {self.ledger_id}, is away, and is not declared gone; "
                "nothing was given up",
                hint=f"bring it back; or: embedbk bookie gone {member.bookie_id} --incarnation "
                f"{member.incarnation.hex()}",
            )
        )

    def _refuse(self, why: EmbedbkError) -> list[Effect]:
        self.phase = LossSearchPhase.ENDED
        self.request = self.asked_ns = self.retry_at = None
        return [Ended(why, None)]

    # Questions, one at a time.

    def _ask(self, send: Send, now_ns: int) -> list[Effect]:
        self.since_ns = now_ns
        return self._send(send, now_ns)

    def _send(self, send: Send, now_ns: int) -> list[Effect]:
        self.number += 1
        self.request, self.asked_ns, self.retry_at = send, now_ns, None
        kind = send.tag if isinstance(send.tag, str) else send.tag[0]
        self.request = Send(send.member, send.control, (kind, self.number))
        return [self.request]

    def _again(self, why: str, now_ns: int) -> list[Effect]:
        """No answer, or one that says neither yes nor no: ask the same again, until its time is over."""
        assert self.request is not None
        member = self.request.member
        self.asked_ns = None
        if now_ns - self.since_ns < self.options.patience_ns:
            self.retry_at = now_ns + self.options.retry_ns
            return []
        if self.phase is LossSearchPhase.STRAYS:
            self.silent.add(member)  # It has no seat, so the search does not wait for it.
            return self._ask_stray(now_ns)
        if self.phase is LossSearchPhase.READING:
            self._cannot_tell(member, self.wanted, why)
            return self._read_next(now_ns)
        return self._refuse(
            RecoveryInconclusive(
                f"{member.bookie_id} does not say what it has of ledger {self.ledger_id}: {why}; nothing was given up"
            )
        )

    def _is_asked(self, event: Answered | SendFailed) -> bool:
        return self.request is not None and self.asked_ns is not None and event.tag == self.request.tag

    def _on_answered(self, event: Answered) -> list[Effect]:
        if not self._is_asked(event):
            return []
        self.asked_ns = None
        kind, answer = event.tag[0], event.control
        try:
            if kind == "fence" and isinstance(answer, FenceAnswer):
                return self._on_fenced(answer, event.now_ns)
            if isinstance(answer, ReadAnswer):
                on = {"read": self._on_read, "beyond": self._on_beyond, "stray": self._on_stray}[kind]
                return on(event, answer)
        except StorageError as impossible:
            return self._refuse(impossible)
        return self._again(getattr(answer, "text", "an answer of the wrong kind"), event.now_ns)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._again(event.reason, event.now_ns) if self._is_asked(event) else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.phase is LossSearchPhase.ENDED or self.request is None:
            return []
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            return self._send(self.request, event.now_ns)
        if self.asked_ns is not None and event.now_ns >= self.asked_ns + self.options.ask_timeout_ns:
            return self._again("no answer in time", event.now_ns)
        return []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
