"""Whether bookies hold every entry that they should: they are asked how many they count of what they owe (P11.4).

Decides which bookie is asked what, so many questions at a time, and what is known then. `owed` says what a seat owes,
and what an answer means; no answer, or "cannot tell", proves nothing. A bookie that has all of them reports their
digests along, which are compared with those of others (`copy_comparison`).

Questions to one bookie leave together, as one message; a bookie of a build before answers the first of them alone, and
is asked one by one from then on.

    CLOSED ledgers ──▶ parts: (bookie, range, residues, how many) ──▶ at_once questions ──▶ what lacks, what is not told
                                          digests that differ ──▶ where, part by part ──▶ what is bad, what conflicts
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from embedbk.codec.holdings_messages import (
    HOLDINGS_IDS_MAX,
    Digests,
    HeldRange,
    HoldingsAnswer,
    HoldingsRange,
    HoldingsRequest,
)
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.quorum import count_ids
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import PeerError
from embedbk.ids import Member
from embedbk.repair.copy_comparison import (
    CONFLICTS_MAX,
    Conflict,
    Difference,
    LedgerCopies,
    compare,
    cuts_of,
    parts_of,
)
from embedbk.repair.owed import Owed, held_by, owed_parts
from embedbk.repair.published import Unlike, unlike_published
from embedbk.repair.unanswered import Unanswered

__all__ = [
    "CheckOptions",
    "Checked",
    "HoldingCheck",
    "Shortage",
    "entries_short",
]

_SECOND = 1_000_000_000


@dataclass(slots=True)
class Shortage:
    """The copies of one ledger that a bookie lacks: at least so many, the first of them in these ranges."""

    copies: int = 0
    parts: list[tuple[Owed, list[tuple[int, int]]]] = field(default_factory=list)


class Checked(NamedTuple):
    """short: ledger -> bookie -> what it lacks. untold: ledger -> bookie -> why that is unknown. asked: questions.
    conflicts: ledger -> entries whose copies differ, each whole by itself. unlike: ledger -> copies that are not what
    their writer published."""

    short: dict[int, dict[str, Shortage]]
    untold: dict[int, dict[str, str]]
    asked: int
    conflicts: Mapping[int, list[Conflict]] = MappingProxyType({})
    unlike: Mapping[int, list[Unlike]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CheckOptions:
    at_once: int = 256  # Questions on their way.
    together: int = 64  # So many questions leave in one message.
    timeout_ns: int = 5 * _SECOND  # A bookie that leaves a question unanswered for so long gets no other.
    ids_max: int = HOLDINGS_IDS_MAX  # That one question spans.
    is_brief: bool = (
        True  # A bookie that lacks something of a ledger gets no more questions about that ledger.
    )


USUAL_CHECK = CheckOptions()


def entries_short(shortages: Iterable[Shortage], ensemble_size: int) -> int:
    """How many entries of one ledger lack a copy, each counted once. At least so many, where a bookie lacks more than
    it named."""
    shortages = list(shortages)
    count = 0
    for residue in range(ensemble_size):
        ranges = sorted(
            each
            for shortage in shortages
            for owed, lacking in shortage.parts
            if owed.modulus == 1 or owed.residues >> residue & 1
            for each in lacking
        )
        counted = -1
        for first, last in ranges:
            count += count_ids(max(first, counted + 1), last, ensemble_size, 1 << residue)
            counted = max(counted, last)
    return max([count, *(shortage.copies for shortage in shortages)])


class _Question(NamedTuple):
    ledger_id: int
    member: Member
    owed: Owed
    cuts: list[int]
    difference: Difference | None = None  # That it narrows down.


@dataclass(slots=True)
class _Gathered:
    """Questions that leave for one bookie together."""

    questions: list[_Question] = field(default_factory=list)
    ids: int = 0


class HoldingCheck(Machine):
    """Asks registered bookies what they hold of these CLOSED ledgers; for others it is unknown. Ends with `Checked`."""

    def __init__(
        self,
        ledgers: Mapping[int, LedgerMetadata],
        there: frozenset[Member],
        options: CheckOptions = USUAL_CHECK,
    ) -> None:
        self.options = options
        self.asked = Unanswered[list[_Question]](options.timeout_ns)  # By messages.
        self.numbers = 0  # Questions that were sent.
        self.out = 0  # Questions that are on their way.
        self.short: dict[int, dict[str, Shortage]] = {}
        self.untold: dict[int, dict[str, str]] = {}
        self.silent: dict[Member, str] = {}  # Bookies that get no more questions -> why.
        self.conflicts: dict[int, list[Conflict]] = {}
        self.unlike: dict[int, list[Unlike]] = {}
        # Ledgers of which every bookie told that it holds all, and the same digests, all of them.
        self.sound: set[int] = set()
        self._ledgers = ledgers
        self._there = there
        self._copies: dict[int, LedgerCopies] = {}  # Of ledgers of which not all was told yet.
        self._questions = self._all_questions(ledgers)
        self._gathered: dict[Member, _Gathered] = {}
        self._waiting = 0  # Questions that were gathered, and did not leave yet.
        self._one_by_one: set[Member] = set()  # Bookies that do not answer several in one message.
        self._differing: list[tuple[int, Difference]] = []  # Still to be narrowed down, the last one first.
        self._left = 0  # Of the questions about the one that is narrowed down now.
        self._answers: dict[Member, list[int | None]] = {}
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        return self.asked.deadline_ns

    def _on_started(self, event: Started) -> list[Effect]:
        return self._go_on(event.now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        while True:
            if self.out + self._waiting >= self.options.at_once:
                if self.out:
                    break
                effects += self._send_gathered(now_ns)
                continue
            if self._differing and not self._left:
                effects += self._narrow(now_ns)
                continue
            question = next(self._questions, None)
            if question is not None:
                effects += self._gather(question, now_ns)
            elif self._waiting:
                effects += self._send_gathered(now_ns)
            else:
                break
        if not self.asked and not self.is_over:
            self.is_over = True
            found = Checked(self.short, self.untold, self.numbers, self.conflicts, self.unlike)
            effects.append(Ended(None, found))
        return effects

    def _is_asked(self, question: _Question) -> bool:
        """Else it is over: nothing of its answer is wanted, or none will come."""
        if self.options.is_brief and question.member.bookie_id in self.short.get(question.ledger_id, ()):
            self._settle(question)
            return False
        why = self.silent.get(question.member, "" if question.member in self._there else "it is not there")
        if why:
            self._note_untold(question, why)
            self._settle(question)
        return not why

    def _gather(self, question: _Question, now_ns: int) -> list[Effect]:
        """Put it to those that leave for its bookie; what was gathered before leaves if it does not fit."""
        if not self._is_asked(question):
            return []
        member, owed = question.member, question.owed
        together = 1 if member in self._one_by_one else self.options.together
        gathered = self._gathered.setdefault(member, _Gathered())
        ids = owed.last - owed.first + 1
        effects: list[Effect] = []
        if gathered.ids + ids > HOLDINGS_IDS_MAX:
            effects += self._send(member, now_ns)
            gathered = self._gathered.setdefault(member, _Gathered())
        gathered.questions.append(question)
        gathered.ids += ids
        self._waiting += 1
        return effects + (self._send(member, now_ns) if len(gathered.questions) >= together else [])

    def _send_gathered(self, now_ns: int) -> list[Effect]:
        return [effect for member in list(self._gathered) for effect in self._send(member, now_ns)]

    def _send(self, member: Member, now_ns: int) -> list[Effect]:
        gathered = self._gathered.pop(member, _Gathered())
        self._waiting -= len(gathered.questions)
        questions = [each for each in gathered.questions if self._is_asked(each)]
        return [self._ask(questions, now_ns, Digests.BY_INDEX)] if questions else []

    def _ask(self, questions: list[_Question], now_ns: int, wants: Digests) -> Effect:
        """One message to the bookie that all of them are for."""
        self.numbers += len(questions)
        self.out += len(questions)
        message = self.asked.ask(questions, now_ns)
        ledger_id, member, owed, cuts, _ = questions[0]
        others = [HoldingsRange(each.ledger_id, *each.owed[:4], each.cuts) for each in questions[1:]]
        request = HoldingsRequest(member.incarnation, ledger_id, *owed[:4], cuts, wants, others)
        return Send(member, request, ("held", message))

    def _taken(self, message: int) -> list[_Question]:
        """The questions of a message that is on its way no more; none: it was given up before."""
        questions = self.asked.take(message) or []
        self.out -= len(questions)
        return questions

    def _all_questions(self, ledgers: Mapping[int, LedgerMetadata]) -> Iterator[_Question]:
        for ledger_id, metadata in ledgers.items():
            questions = list(_questions_of(metadata, self.options.ids_max))
            if questions:
                self._copies[ledger_id] = LedgerCopies(len(questions))
            else:
                self.sound.add(ledger_id)
            yield from questions

    # Copies that differ.

    def _settle(self, question: _Question, digests: list[int | None] | None = None) -> None:
        """The question is over, with what was told of digests."""
        ledger_id, member, owed, cuts, difference = question
        if difference is not None:
            if digests:
                self._answers[member] = digests
            self._left -= 1
            if not self._left:
                self._judge(ledger_id, difference)
            return
        copies = self._copies[ledger_id]
        parts = list(parts_of(owed.first, owed.last, cuts, owed.modulus, owed.residues, digests or []))
        copies.is_told &= bool(parts) and all(digest is not None for _, digest in parts)
        copies.take(member, parts)
        copies.questions -= 1
        if not copies.questions:
            del self._copies[ledger_id]
            if unlike := unlike_published(self._ledgers[ledger_id], copies.told):
                self.unlike[ledger_id] = unlike
            differing = copies.differences()
            self._differing += [(ledger_id, each) for each in differing]
            if copies.is_told and not unlike and not differing:
                self.sound.add(ledger_id)

    def _narrow(self, now_ns: int) -> list[Effect]:
        """Ask about the parts of the next difference."""
        ledger_id, difference = self._differing.pop()
        if len(self.conflicts.get(ledger_id, ())) >= CONFLICTS_MAX:
            return []
        members = tuple(each for each in difference.members if each not in self.silent)
        if len(members) < 2:
            return []  # What the others have is not told.
        difference = difference._replace(members=members)
        first, last, modulus, residue, _ = difference
        owed = Owed(first, last, modulus, 1 << residue, count_ids(first, last, modulus, 1 << residue))
        self._answers, self._left = {}, len(members)
        return [
            self._ask(
                [_Question(ledger_id, member, owed, difference.cuts, difference)], now_ns, difference.wants
            )
            for member in members
        ]

    def _judge(self, ledger_id: int, difference: Difference) -> None:
        compared = compare(difference, self._answers)
        self._differing += [(ledger_id, each) for each in compared.differing]
        if compared.conflict is not None:
            self.conflicts.setdefault(ledger_id, []).append(compared.conflict)
        for bookie_id in compared.unclear:
            why = f"its index has another digest of entry {difference.first} than its bytes"
            self.untold.setdefault(ledger_id, {}).setdefault(bookie_id, why)

    def _note_untold(self, question: _Question, why: str) -> None:
        self.untold.setdefault(question.ledger_id, {}).setdefault(question.member.bookie_id, why)

    def _on_answered(self, event: Answered) -> list[Effect]:
        questions = self._taken(event.tag[1])
        if not questions:
            return []
        control = event.control
        if isinstance(control, HoldingsAnswer):
            told = [control, *control.others][: len(questions)]
            if len(told) < len(questions):
                self._one_by_one.add(event.member)
                self._questions = itertools.chain(questions[len(told) :], self._questions)
            for question, part in zip(questions, told, strict=False):
                self._take(question, part)
        else:
            for question in questions:
                self._take(question, control)
        return self._go_on(event.now_ns)

    def _take(self, question: _Question, answer: object) -> None:
        ledger_id, member, owed = question[:3]
        try:
            count, lacking = held_by(answer, ledger_id, owed)
        except PeerError as untold:
            self._note_untold(question, str(untold))
            self._settle(question)
            return
        if count < owed.entries:
            shortage = self.short.setdefault(ledger_id, {}).setdefault(member.bookie_id, Shortage())
            shortage.copies += owed.entries - count
            shortage.parts.append((owed, lacking))
        told = answer.digests if isinstance(answer, HeldRange) else []
        self._settle(question, told if count == owed.entries else None)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        questions = self._taken(event.tag[1])
        if not questions:
            return []
        if event.reason == BELOW_LEVEL:  # The cluster's level does not allow the question.
            self._questions = iter(())
        self._give_up(questions, event.member, event.reason)
        return self._go_on(event.now_ns)

    def _give_up(self, questions: list[_Question], member: Member, why: str) -> None:
        """Their bookie did not answer, and gets no more of them."""
        self.silent[member] = why
        for question in questions:
            self._note_untold(question, why)
            self._settle(question)

    def _on_tick(self, event: Tick) -> list[Effect]:
        late = self.asked.take_late(event.now_ns)
        for questions in late:
            self.out -= len(questions)
            self._give_up(questions, questions[0].member, "no answer in time")
        return self._go_on(event.now_ns) if late else []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }


def _questions_of(metadata: LedgerMetadata, ids_max: int) -> Iterator[_Question]:
    members = {member: None for fragment in metadata.fragments for member in fragment.members}
    # Most ledgers have one fragment, of which all seats owe the same.
    are_alike = len(metadata.fragments) == 1 and metadata.ensemble_size == metadata.write_quorum
    told: list[tuple[Owed, list[int]]] | None = None
    for member in members:
        if told is None or not are_alike:
            told = [
                (owed, cuts_of(metadata, owed.first, owed.last))
                for owed in owed_parts(metadata, member, ids_max)
            ]
        for owed, cuts in told:
            yield _Question(metadata.ledger_id, member, owed, cuts)
