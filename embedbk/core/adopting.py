"""Taking a ledger back into the metadata from what bookies hold, where nothing newer is known of it (P7.7, P10.5).

After metadata was brought back from an older state, bookies hold ledgers that it does not know, and whose ensembles are
unknown. So every bookie that may hold an entry is fenced and asked for every entry; only an entry that all of them deny
is not there. A bookie that cannot tell ends this as `RecoveryInconclusive`, unless an operator said that it is gone, in
which case what it alone has counts as not there, for ever. Entries get the copies that they lack, the ledger its seats
(`fitting`), and then its key, CLOSED, in one transaction that finds neither the key nor a tombstone.

A stale key still tells the ledger's quorums, password and digest, its end if it was closed, and that everything before
its last fragment was acknowledged. Its seats count for nothing. It is changed in one transaction, too, from the state
in which it was read.

    FENCING --all fenced--> READING --end found--> COPYING --Qw copies of each entry--> CREATING --> ENDED
                               '--only looked for: the plan--> ENDED

Decides what is asked, whether the ledger may be adopted, and when. Leaves to others what bookies hold (`survey`), what
the adoption makes of that (`adoption_plan`), the copies (`adoption_copying`), the transaction (`adoption_commit`), and
which bookies are asked (`client/adopting`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.add_messages import FenceAnswer, FenceRequest
from embedbk.codec.adopted import (
    LOST_RANGES_MAX,
)
from embedbk.codec.bookie_fields import Status
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
)
from embedbk.codec.messages import Control
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.adoption_commit import AdoptionCommit, AdoptionSettled
from embedbk.core.adoption_copying import AdoptionCopying
from embedbk.core.adoption_plan import AdoptionPlan, StaleKey, plan_adoption
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.fitting import Seats, lacking
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import Chance
from embedbk.core.survey import Survey, SurveyedBookie
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import (
    EmbedbkError,
    EntryUnreadable,
    NoSuchLedger,
    PeerError,
    RecoveryInconclusive,
    StorageError,
    WrongPassword,
    ensure,
)
from embedbk.ids import NO_ENTRY, Member

__all__ = ["AdoptionOptions", "AdoptionPhase", "LedgerAdoption"]

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class AdoptionOptions:
    ask_timeout_ns: int = 1_000 * _MS  # An unanswered question is asked again.
    retry_ns: int = 50 * _MS  # Pause before an unknown is asked again.
    gone_ns: int = 3_000 * _MS  # A bookie that is called gone, and is listed, counts as silent after so long.
    patience_ns: int = 10_000 * _MS  # Without any progress for this long: inconclusive.
    read_entries: int = 4096  # How far one question looks.
    quorum: Quorum | None = None  # The one it was made with; None: guess it from what is there.
    is_dry: bool = False  # Change nothing, fence nothing: only report the plan.
    accepts_loss: bool = False  # Acknowledged entries that no bookie has are given up.
    by: str = ""  # Names the client that adopts it, for people.
    wall_ms: int = 0  # When, likewise.


class AdoptionPhase(enum.Enum):
    FENCING = "fencing"
    READING = "reading"
    COPYING = "copying"
    CREATING = "creating"
    ENDED = "ended"


class LedgerAdoption(Machine):
    """One operator's adoption of one ledger. Ends with an `AdoptionPlan`, or with an error."""

    def __init__(
        self,
        ledger_id: int,
        ledger_key: bytes,
        mac_key: bytes,
        verifier: bytes,
        asked: Sequence[tuple[Member, bool]],
        nonce: int,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        options: AdoptionOptions = AdoptionOptions(),
        stale: StaleKey | None = None,
    ) -> None:
        """asked: every bookie that may hold an entry, in the incarnation that the cluster knows; False: an operator
        calls it gone. verifier: of the ledger's key, for the metadata. stale: the ledger's metadata in an older copy;
        None: there is none."""
        self.ledger_id = ledger_id
        self.ledger_key = ledger_key
        self.verifier = verifier
        self.nonce = nonce
        self.bookies = bookies
        self.chance = chance
        self.options = options
        self.survey = Survey(
            ledger_id, mac_key, [SurveyedBookie(member, is_needed) for member, is_needed in asked]
        )
        self.stale = stale
        if stale is not None:
            self._take_over(stale.metadata)
        self.phase = AdoptionPhase.FENCING
        self.open: dict[str, int] = {}  # Bookie id -> when its open question was asked.
        self.pause_until: dict[str, int] = {}  # Bookie id -> when it may be asked again.
        self.give_up_ns = 0
        self.plan: AdoptionPlan | None = None
        # Those that get a seat and had nothing: their placement when they were chosen (P10.6).
        self.chosen: dict[Member, int | None] = {}
        self.copying = AdoptionCopying(
            ledger_id,
            ledger_key,
            nonce,
            self.survey,
            ask_timeout_ns=options.ask_timeout_ns,
            retry_ns=options.retry_ns,
        )
        self.commit = AdoptionCommit(
            ledger_id, stale.revision if stale is not None else None, options.retry_ns
        )

    def _take_over(self, known: LedgerMetadata) -> None:
        """The part of its metadata that stays true, whatever happened after the copy was made."""
        self.survey.digest = known.digest
        last = known.fragments[-1]
        self.survey.learn_lac(last.first_entry - 1, last.length_before)
        if known.is_closed:
            assert known.last_entry is not None and known.length is not None
            self.survey.learn_lac(known.last_entry, known.length)
            self.survey.closed_at = known.last_entry

    @property
    def has_ended(self) -> bool:
        return self.phase is AdoptionPhase.ENDED

    @property
    def deadline_ns(self) -> int | None:
        if self.phase is AdoptionPhase.ENDED:
            return None
        asked = min(self.open.values(), default=None)
        return earliest(
            self.give_up_ns,
            asked + self.options.ask_timeout_ns if asked is not None else None,
            min(self.pause_until.values(), default=None),
            self.copying.due_ns,
            self.commit.due_ns,
        )

    def _on_started(self, event: Started) -> list[Effect]:
        self._progress(event.now_ns)
        if self.options.is_dry:
            self.phase = AdoptionPhase.READING
        return self._ask(event.now_ns)

    def _progress(self, now_ns: int) -> None:
        self.give_up_ns = now_ns + self.options.patience_ns

    # Asking everybody: first for a durable fence, then for every entry.

    def _ask(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for holding in self.survey.answering:
            member = holding.member
            name = member.bookie_id
            if name in self.open or now_ns < self.pause_until.get(name, 0):
                continue
            if self.phase is AdoptionPhase.FENCING:
                if holding.is_fenced:
                    continue
                request: Control = FenceRequest(member.incarnation, self.ledger_id, self.ledger_key)
                tag: tuple[object, ...] = ("fence", name)
            else:
                first = holding.next_entry
                if first > self.survey.decided + 2 * self.options.read_entries:
                    continue  # The others come first: an undecided one is kept.
                last = first + self.options.read_entries - 1
                request = ReadRequest(
                    member.incarnation,
                    self.ledger_id,
                    first,
                    last,
                    FRAME_BYTES_MAX,
                    not self.options.is_dry,
                    self.ledger_key,
                )
                tag = ("read", name, first, last)
            self.pause_until.pop(name, None)
            self.open[name] = now_ns
            effects.append(Send(member, request, tag))
        return effects

    def _on_fenced(self, holding: SurveyedBookie, answer: FenceAnswer, now_ns: int) -> list[Effect]:
        if self.phase is not AdoptionPhase.FENCING:
            return []
        if answer.status != Status.OK:
            return self._cannot_tell(holding, Status(answer.status).name, now_ns)
        self.open.pop(holding.member.bookie_id, None)
        holding.is_fenced, holding.failing_ns = True, None
        self.survey.learn_lac(answer.lac, answer.lac_length)
        self._progress(now_ns)
        return self._read_on(now_ns)

    def _read_on(self, now_ns: int) -> list[Effect]:
        """Read when every bookie that is not silent is fenced: none of them acknowledges anything any more (P5.2f)."""
        if self.phase is AdoptionPhase.FENCING and all(each.is_fenced for each in self.survey.answering):
            self.phase = AdoptionPhase.READING
            self.open.clear()
            self.pause_until.clear()
        if self.phase is AdoptionPhase.FENCING:
            return self._ask(now_ns)
        return self._go_on(now_ns)

    def _on_read(self, event: Answered, holding: SurveyedBookie, answer: ReadAnswer) -> list[Effect]:
        _, name, first, last = event.tag
        if self.phase is not AdoptionPhase.READING or first != holding.next_entry:
            return []
        if answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            return self._cannot_tell(holding, Status(answer.status).name, event.now_ns)
        absent = [(pair[0], pair[1]) for pair in answer.absent]
        if answer.status == Status.NO_SUCH_LEDGER:
            absent = [(first, last)]
        try:
            self.survey.learn_lac(answer.lac, answer.lac_length)
            self.survey.hear(holding, first, last, [body for _, body in event.frames], absent)
        except PeerError as broken:
            return self._cannot_tell(holding, str(broken), event.now_ns)
        self.open.pop(name, None)
        holding.failing_ns = None
        return self._go_on(event.now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        """Decide what can be decided; ask on, or go on with what was found."""
        survey, before = self.survey, self.survey.decided
        if not survey.answering:
            return self._end(RecoveryInconclusive(f"ledger {self.ledger_id}: nobody answers who may have it"))
        for holding in survey.decide():
            name = holding.member.bookie_id
            holding.reason = (
                f"it cannot tell about entry {survey.decided}: unreadable there, or the ledger is in limbo"
            )
            self.open.pop(name, None)
            self.pause_until[name] = now_ns + self.options.retry_ns
        if survey.decided > before:
            self._progress(now_ns)
        return self._ask(now_ns) if survey.end is None else self._found(now_ns)

    def _cannot_tell(self, holding: SurveyedBookie, reason: str, now_ns: int) -> list[Effect]:
        """The bookie said neither yes nor no: ask again, unless an operator said that it is not waited for."""
        if reason == Status.WRONG_KEY.name:
            return self._end(WrongPassword(f"ledger {self.ledger_id} has another password"))
        name = holding.member.bookie_id
        self.open.pop(name, None)
        holding.reason = reason
        is_listed = any(info.member == holding.member for info in self.bookies)
        holding.failing_ns = now_ns if holding.failing_ns is None else holding.failing_ns
        # Its entries count even when it is called gone: one lost answer is no reason to do without them.
        if holding.is_needed or (is_listed and now_ns < holding.failing_ns + self.options.gone_ns):
            self.pause_until[name] = now_ns + self.options.retry_ns
            return []
        holding.is_silent = True
        self.pause_until.pop(name, None)
        return self._read_on(now_ns)

    # The findings.

    def _found(self, now_ns: int) -> list[Effect]:
        survey = self.survey
        assert survey.end is not None
        self.open.clear()
        self.pause_until.clear()
        if survey.lac > survey.end:
            text = f"ledger {self.ledger_id} was closed at entry {survey.end}, and entry {survey.lac} was acknowledged"
            return self._end(
                StorageError(text, hint="this is no copy of the same ledger; nothing was changed")
            )
        if survey.end == NO_ENTRY and self.stale is None:
            text = f"ledger {self.ledger_id}: nobody was acknowledged an entry of it that anybody has"
            return self._end(NoSuchLedger(text, hint="there is nothing to adopt; embedbk ledger forget"))
        lost = survey.lost_ranges()
        told = ", ".join(f"{first} to {last}" if first < last else str(first) for first, last in lost[:9])
        if len(lost) > LOST_RANGES_MAX:
            text = (
                f"ledger {self.ledger_id}: too many entries are lost to be given up by one word: {told} ..."
            )
            return self._end(EntryUnreadable(text))
        if lost and not (self.options.accepts_loss or self.options.is_dry):
            return self._end(
                EntryUnreadable(
                    f"ledger {self.ledger_id}: everything up to entry {survey.lac} was acknowledged, and nobody has "
                    f"{told}; nothing was adopted",
                    hint="bring back the bookies that had them; --accept-loss gives these entries up for ever",
                )
            )
        planned = plan_adoption(
            self.ledger_id,
            survey,
            lost,
            self.stale,
            self.bookies,
            self.chance,
            self.verifier,
            quorum=self.options.quorum,
            by=self.options.by,
            wall_ms=self.options.wall_ms,
        )
        if isinstance(planned, EmbedbkError):
            return self._end(planned)
        self.plan, self.chosen, owed = planned
        if self.options.is_dry:
            return self._end(None)
        self.phase = AdoptionPhase.COPYING
        self._progress(now_ns)
        return self._copied(self.copying.begin(owed, now_ns), 0, now_ns)

    def _copied(self, effects: list[Effect], stored: int, now_ns: int) -> list[Effect]:
        """Copying did this, and had stored so many entries before: create when nothing is owed any more."""
        if self.copying.stored > stored:
            self._progress(now_ns)
        return effects if self.copying else self._create(now_ns)

    # Creating: the transaction, until its outcome is known.

    def _create(self, now_ns: int) -> list[Effect]:
        assert self.plan is not None
        metadata = self.plan.metadata
        starts = [Seats(each.first_entry, self._bits(each)) for each in metadata.fragments]
        owed = lacking(self.survey.found(), starts, metadata.quorum)
        ensure(next(owed, None) is None, "an adopted ledger has all of its copies")
        self.phase = AdoptionPhase.CREATING
        self._progress(now_ns)
        return self.commit.begin(metadata, self.plan.record, self._placements())

    def _bits(self, fragment: Fragment) -> tuple[int, ...]:
        return tuple(self.survey.bits[member.bookie_id] for member in fragment.members)

    def _placements(self) -> dict[Member, int | None]:
        """What the transaction compares of the bookies that it names. One that has the copies may be named though it is
        read-only by now; one that was chosen for them, only if it is unchanged."""
        return {info.member: info.placement for info in self.bookies} | self.chosen

    def _on_outcome(self, event: Transacted | TransactUnknown) -> list[Effect]:
        if self.phase is not AdoptionPhase.CREATING:
            return []
        return self._settle(self.commit.on_outcome(event))

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        if self.phase is not AdoptionPhase.CREATING:
            return []
        return self._settle(self.commit.on_refused(event))

    def _on_key(self, event: KeyRead) -> list[Effect]:
        if self.phase is not AdoptionPhase.CREATING:
            return []
        return self._settle(self.commit.on_key(event, self._placements()))

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        if self.phase is AdoptionPhase.CREATING:
            self.commit.on_failed(event.now_ns)
        return []

    def _settle(self, settled: AdoptionSettled) -> list[Effect]:
        if settled.error is not None:
            return self._end(settled.error)
        if settled.revision is None:
            return settled.effects
        assert self.plan is not None
        self.plan = self.plan._replace(revision=settled.revision)
        return self._end(None)

    def _end(self, error: EmbedbkError | None) -> list[Effect]:
        self.phase = AdoptionPhase.ENDED
        return [Ended(error, None if error else self.plan)]

    # Dispatch, time.

    def _on_answered(self, event: Answered) -> list[Effect]:
        kind, answer = event.tag[0], event.control
        if kind in ("source", "copy"):
            if self.phase is not AdoptionPhase.COPYING:
                return []
            stored = self.copying.stored
            return self._copied(self.copying.on_answered(event), stored, event.now_ns)
        holding = self.survey.holdings[event.tag[1]]
        if self.phase not in (AdoptionPhase.FENCING, AdoptionPhase.READING) or holding.is_silent:
            return []
        try:
            if kind == "fence" and isinstance(answer, FenceAnswer):
                return self._on_fenced(holding, answer, event.now_ns)
            if kind == "read" and isinstance(answer, ReadAnswer):
                return self._on_read(event, holding, answer)
        except StorageError as impossible:
            return self._end(impossible)
        why = getattr(answer, "text", "an answer of the wrong kind")
        return self._cannot_tell(holding, why, event.now_ns)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if event.tag[0] in ("source", "copy"):
            return self.copying.on_send_failed(event) if self.phase is AdoptionPhase.COPYING else []
        holding = self.survey.holdings[event.tag[1]]
        if self.phase not in (AdoptionPhase.FENCING, AdoptionPhase.READING) or holding.is_silent:
            return []
        return self._cannot_tell(holding, event.reason, event.now_ns)

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        """Ask bookies that came meanwhile, too: they may have been part of the lost future."""
        self.bookies = event.bookies
        fresh = [info.member for info in event.bookies if info.member.bookie_id not in self.survey.holdings]
        if not fresh or self.phase is AdoptionPhase.ENDED:
            return []
        return self._end(
            RecoveryInconclusive(
                f"ledger {self.ledger_id} was not adopted: bookie {fresh[0].bookie_id} came meanwhile, and may have "
                "entries of it",
                hint="adopt it again, so that everybody is asked",
            )
        )

    def _on_tick(self, event: Tick) -> list[Effect]:
        now_ns = event.now_ns
        if self.phase is AdoptionPhase.ENDED:
            return []
        if now_ns >= self.give_up_ns:
            return self._give_up()
        effects: list[Effect] = []
        since = now_ns - self.options.ask_timeout_ns
        for name in [name for name, asked in self.open.items() if asked <= since]:
            if name in self.open:
                effects += self._cannot_tell(self.survey.holdings[name], "no answer in time", now_ns)
        if self.has_ended:
            return effects
        self.pause_until = {name: until for name, until in self.pause_until.items() if until > now_ns}
        if self.phase in (AdoptionPhase.FENCING, AdoptionPhase.READING):
            return effects + self._ask(now_ns)
        return effects + self.copying.on_time(now_ns) + self.commit.on_time(now_ns)

    def _give_up(self) -> list[Effect]:
        waiting = [each for each in self.survey.answering if each.is_needed]
        if self.phase is AdoptionPhase.FENCING:
            waiting = [each for each in waiting if not each.is_fenced]
        else:
            waiting = [each for each in waiting if each.next_entry <= self.survey.decided]
        told = ", ".join(f"{each.member.bookie_id}: {each.reason or 'no answer'}" for each in waiting)
        what = {
            AdoptionPhase.FENCING: f"not everybody who may hold entries is fenced ({told})",
            AdoptionPhase.READING: f"whether entry {self.survey.decided} exists could not be settled ({told})",
            AdoptionPhase.COPYING: f"copies could not be made ({self.copying.trouble or 'no answer'})",
            AdoptionPhase.CREATING: "the metadata did not answer",
        }[self.phase]
        error = RecoveryInconclusive(
            f"ledger {self.ledger_id} was not adopted: {what}",
            hint="it may be adopted again; a bookie that never comes back has to be named as gone",
        )
        return self._end(error)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Transacted: _on_outcome,
        TransactRefused: _on_refused,
        TransactUnknown: _on_outcome,
        KeyRead: _on_key,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
