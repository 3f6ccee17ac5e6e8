"""Reads copies of entries from the bookies that should have them, and says what is wrong (P11.4; scrub/SCRUB.md).

Decides how fast each bookie is read, what an answer proves, and how a range is narrowed down to the entry that is bad.
A copy is **there** when the bookie returned it and it passes its checks; **missing** when the bookie denies it;
**unreadable** when the bookie answered, and neither returned nor denied it, also when asked for it alone; **untrue**
when its tag is wrong. Whoever does not answer, or is in limbo, proves nothing: a bookie that leaves something out is
asked for its LAC, which one in limbo does not tell. Judging what that means for a ledger is
left to others (`scrub/judging.py`). Nothing is fenced, nothing is changed.

    tasks by bookie ──▶ at_once reads, bytes_per_s ──▶ sums of digests, how many, ranges that are missing or bad
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from embedbk.codec import kernels, twins
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import check_tags
from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.holdings_messages import Digests, HoldingsRequest
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.read_messages import ReadAnswer, ReadClass, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.quorum import count_ids
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import PeerError
from embedbk.ids import NO_ENTRY, Member
from embedbk.repair.owed import Owed
from embedbk.repair.unanswered import Unanswered

__all__ = ["CopiesCheck", "CopyBlock", "CopyCheckOptions", "CopyTask", "ranges_of"]

_SECOND = 1_000_000_000
_MS = 1_000_000
Ranges = tuple[tuple[int, int], ...]  # first..last of the ids that were asked for, both included.


class CopyTask(NamedTuple):
    """Entries that one bookie should hold. digest: the digest type whose tags are checked; 0: none are. is_by_entry:
    the digest of each entry is wanted."""

    ledger_id: int
    member: Member
    owed: Owed
    digest: int = 0
    mac_key: bytes = b""
    is_by_entry: bool = False


class CopyBlock(NamedTuple):
    """What came of a task. sums: of the digests of what was returned, by residue. given: entries that were returned.
    untold: why it could not be told, empty: it was. is_faulty: the bookie is there, and its answers are none. lac: the
    highest that it told. entries: (id, digest), where they were wanted."""

    task: CopyTask
    sums: tuple[int, ...] = ()
    given: int = 0
    missing: Ranges = ()
    unreadable: Ranges = ()
    untrue: Ranges = ()
    lac: int = NO_ENTRY
    bytes_read: int = 0
    untold: str = ""
    is_faulty: bool = False
    entries: tuple[tuple[int, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.untold and self.given == self.task.owed.entries


@dataclass(frozen=True, slots=True)
class CopyCheckOptions:
    bytes_per_s: int = 0  # Of each bookie; 0: as fast as it answers.
    at_once: int = 4  # Reads on their way to a bookie, each of another task.
    frame_bytes: int = FRAME_BYTES_MAX
    timeout_ns: int = 10 * _SECOND  # A bookie that leaves a read unanswered for so long gets no other.
    # A bookie is asked for digests of what is unreadable there: it reads those entries itself then, and lacks them from
    # then on (P11.4), so that repair finds what to copy.
    tells_bookies: bool = False
    told_max: int = 64  # Ranges of one task of which its bookie is told.
    # Check everything a second time, in Python over crcmod and xxhash, which share nothing with the kernels in C.
    is_independent: bool = False


def ranges_of(ids: Iterable[int], owed: Owed) -> Ranges:
    """Ascending ids as ranges; ids that are not owed do not interrupt one."""
    found: list[tuple[int, int]] = []
    for entry_id in ids:
        if found and count_ids(found[-1][1] + 1, entry_id - 1, owed.modulus, owed.residues) == 0:
            found[-1] = (found[-1][0], entry_id)
        else:
            found.append((entry_id, entry_id))
    return tuple(found)


@dataclass(slots=True)
class _Reading:
    """A task that is worked on."""

    task: CopyTask
    next_entry: int
    span: int  # Ids that the next read asks for, at most; small where something is bad.
    sums: list[int]
    asked_last: int = NO_ENTRY
    asks_whether_sure: bool = (
        False  # Something was not mentioned: its bookie may be in limbo, which its LAC tells.
    )
    is_sure: bool = False
    given: int = 0
    lac: int = NO_ENTRY
    bytes_read: int = 0
    missing: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    untrue: list[int] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)

    def owed_ids(self, first: int, last: int) -> Iterator[int]:
        modulus, residues = self.task.owed.modulus, self.task.owed.residues
        return (each for each in range(first, last + 1) if residues >> each % modulus & 1)

    def block(self, untold: str = "", *, is_faulty: bool = False) -> CopyBlock:
        owed = self.task.owed
        return CopyBlock(
            self.task,
            tuple(self.sums),
            self.given,
            ranges_of(self.missing, owed),
            ranges_of(self.unreadable, owed),
            ranges_of(self.untrue, owed),
            self.lac,
            self.bytes_read,
            untold,
            is_faulty,
            tuple(self.entries),
        )


@dataclass(slots=True)
class _Queue:
    """The tasks of one bookie."""

    tasks: deque[_Reading] = field(default_factory=deque)  # Not on their way.
    out: int = 0
    ready_ns: int = 0  # Before that nothing is sent, as what came before was read too fast.
    silent: str = ""  # Why it gets no more reads.


def _fits(answer: ReadAnswer | LacAnswer, kind: type, task: CopyTask) -> bool:
    return isinstance(answer, kind) and answer.ledger_id == task.ledger_id


USUAL_PACE = CopyCheckOptions()


class CopiesCheck(Machine):
    """Ends with a list of CopyBlock, one for each task."""

    def __init__(self, tasks: Iterable[CopyTask], options: CopyCheckOptions = USUAL_PACE) -> None:
        self.options = options
        self.queues: dict[Member, _Queue] = {}
        for task in tasks:
            span = task.owed.last - task.owed.first + 1
            reading = _Reading(task, task.owed.first, span, [0] * task.owed.modulus)
            self.queues.setdefault(task.member, _Queue()).tasks.append(reading)
        self.asked = Unanswered[_Reading](options.timeout_ns)
        self.blocks: list[CopyBlock] = []
        self.telling: list[Effect] = []
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        if self.is_over:
            return None
        paced = [each.ready_ns for each in self.queues.values() if self._waits(each)]
        return earliest(self.asked.deadline_ns, min(paced, default=None))

    def _waits(self, queue: _Queue) -> bool:
        """It has something to send, or its last bytes came too fast: nobody begins anew before that time is over."""
        return queue.out < self.options.at_once and (bool(queue.tasks) or queue.ready_ns > 0)

    def _on_started(self, event: Started) -> list[Effect]:
        return self._go_on(event.now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for member, queue in self.queues.items():
            if queue.ready_ns <= now_ns:
                queue.ready_ns = 0
            while queue.tasks and queue.out < self.options.at_once and not queue.ready_ns:
                effects.append(self._ask(member, queue, queue.tasks.popleft(), now_ns))
        if all(not each.tasks and not each.out and not each.ready_ns for each in self.queues.values()):
            self.is_over = True
            return [*effects, *self._tell(), Ended(None, self.blocks)]
        return effects + self._tell()

    def _tell(self) -> list[Effect]:
        effects, self.telling = self.telling, []
        return effects

    def _ask(self, member: Member, queue: _Queue, reading: _Reading, now_ns: int) -> Effect:
        task = reading.task
        last = min(task.owed.last, reading.next_entry + reading.span - 1)
        reading.asked_last = last
        number = self.asked.ask(reading, now_ns)
        queue.out += 1
        if reading.asks_whether_sure:
            return Send(member, LacRequest(member.incarnation, task.ledger_id), ("scrub", number))
        request = ReadRequest(
            member.incarnation,
            task.ledger_id,
            reading.next_entry,
            last,
            self.options.frame_bytes,
            modulus=task.owed.modulus,
            residues=task.owed.residues,
            reads_as=ReadClass.UPKEEP,
        )
        return Send(member, request, ("scrub", number))

    def _end_task(self, reading: _Reading, untold: str = "", *, is_faulty: bool = False) -> None:
        block = reading.block(untold, is_faulty=is_faulty)
        self.blocks.append(block)
        if self.options.tells_bookies:
            for first, last in block.unreadable[: self.options.told_max]:
                member, owed = block.task.member, block.task.owed
                asked = (block.task.ledger_id, first, last, owed.modulus, owed.residues)
                request = HoldingsRequest(member.incarnation, *asked, wants=Digests.BY_BYTES)
                self.telling.append(Send(member, request, ("told", 0)))

    def _silence(self, member: Member, why: str) -> None:
        """It gets no more reads; what it was not asked yet cannot be told."""
        queue = self.queues[member]
        queue.silent = queue.silent or why
        while queue.tasks:
            self._end_task(queue.tasks.popleft(), queue.silent)

    def _taken(self, tag: object) -> _Reading | None:
        reading = self.asked.take(tag[1]) if isinstance(tag, tuple) and tag[0] == "scrub" else None
        if reading is not None:
            self.queues[reading.task.member].out -= 1
        return reading

    def _on_answered(self, event: Answered) -> list[Effect]:
        reading = self._taken(event.tag)
        if reading is None:
            return []
        task, answer = reading.task, event.control
        queue = self.queues[task.member]
        size = sum(len(body) for _, body in event.frames)
        if size and self.options.bytes_per_s:
            pause_ns = size * _SECOND // self.options.bytes_per_s
            queue.ready_ns = max(queue.ready_ns, event.now_ns) + pause_ns
        reading.bytes_read += size
        kind = LacAnswer if reading.asks_whether_sure else ReadAnswer
        if not isinstance(answer, ReadAnswer | LacAnswer) or not _fits(answer, kind, task):
            self._end_task(reading, getattr(answer, "text", "it answered something else"), is_faulty=True)
        elif answer.status == Status.NO_SUCH_LEDGER:
            reading.missing += reading.owed_ids(reading.next_entry, task.owed.last)
            self._end_task(reading)
        elif answer.status == Status.BUSY and isinstance(answer, ReadAnswer):
            # It has read for scrubs and repair what it may (P6.7), and is asked again.
            queue.ready_ns = max(queue.ready_ns, event.now_ns + max(answer.wait_ms, 1) * _MS)
            queue.tasks.appendleft(reading)
        elif answer.status == Status.UNKNOWN:
            self._end_task(reading, "it cannot tell", is_faulty=True)
        elif answer.status != Status.OK:
            self._end_task(reading, Status(answer.status).name)
        else:
            reading.lac = max(reading.lac, answer.lac)
            if isinstance(answer, LacAnswer):
                reading.asks_whether_sure, reading.is_sure = False, True
            else:
                self._take(reading, answer, event)
            if reading.next_entry > task.owed.last:
                self._end_task(reading)
            elif queue.silent:
                self._end_task(reading, queue.silent)
            else:
                queue.tasks.appendleft(reading)
        return self._go_on(event.now_ns)

    def _take(self, reading: _Reading, answer: ReadAnswer, event: Answered) -> None:
        """Judge the ids from next_entry to the last one that the answer mentions."""
        first, last = reading.next_entry, reading.asked_last
        owed = reading.task.owed
        try:
            frames = [self._checked(body, reading.task.ledger_id) for _, body in event.frames]
        except PeerError:
            self._narrow(reading)
            return
        frames = [each for each in frames if each.first_entry >= first and each.last_entry <= last]
        absent = [(max(a, first), min(b, last)) for a, b in answer.absent if a <= last and b >= first]
        top = max([each.last_entry for each in frames] + [b for _, b in absent], default=NO_ENTRY)
        unsaid = self._first_unsaid(reading, frames, absent, top)
        if unsaid is not None and not reading.is_sure:
            reading.asks_whether_sure = True
            return
        if unsaid is not None:
            top = unsaid - 1
        if top < first:
            self._narrow(reading)
            return
        for frame in frames:
            self._add(reading, frame, first, top)
        if absent:
            given = {entry_id for frame in frames for entry_id in kernels.offsets(frame.body).ids}
            for low, high in absent:
                reading.missing += [e for e in reading.owed_ids(low, min(high, top)) if e not in given]
        reading.next_entry = top + 1
        reading.span = 1 if unsaid is not None else min(owed.last - owed.first + 1, 2 * reading.span)

    def _checked(self, body: memoryview, ledger_id: int) -> Frame:
        """Raises PeerError: it is no frame of this ledger, or an entry fails its check."""
        frame = frame_of(body, ledger_id)
        if self.options.is_independent:
            here = (frame.first_entry, frame.last_entry, frame.entry_count, frame.length, frame.ledger_id)
            if twins.scan(body) != here:
                raise PeerError(f"ledger {ledger_id}: its entries are read in two ways, and differ")
        return frame

    def _digests(
        self, frame: Frame, first: int, last: int, modulus: int
    ) -> tuple[Sequence[int], Sequence[int]]:
        of = twins.digests if self.options.is_independent else kernels.digests
        return of(frame.body, first, last, modulus)

    def _first_unsaid(
        self, reading: _Reading, frames: list[Frame], absent: list[tuple[int, int]], top: int
    ) -> int | None:
        """The first owed id that the answer neither gives nor denies, up to the last one that it mentions."""
        owed, first = reading.task.owed, reading.next_entry
        modulus, residues = owed.modulus, owed.residues
        given = 0
        for frame in frames:
            counts = self._digests(frame, first, top, modulus)[1]
            given += sum(counts[each] for each in range(modulus) if residues >> each & 1)
        denied = sum(count_ids(low, high, modulus, residues) for low, high in absent)
        if first <= top and given + denied == count_ids(first, top, modulus, residues):
            return None
        ids = {entry_id for frame in frames for entry_id in kernels.offsets(frame.body).ids}
        for entry_id in reading.owed_ids(first, max(first, top)):
            if entry_id not in ids and not any(low <= entry_id <= high for low, high in absent):
                return entry_id
        return None if first <= top else first

    def _narrow(self, reading: _Reading) -> None:
        """The answer tells nothing of what was asked, or cannot be read: ask for less, at last for one entry. That one
        is unreadable then."""
        if reading.asked_last > reading.next_entry:
            reading.span = (reading.asked_last - reading.next_entry + 1) // 2
            return
        reading.unreadable += reading.owed_ids(reading.next_entry, reading.asked_last)
        reading.next_entry = reading.asked_last + 1

    def _add(self, reading: _Reading, frame: Frame, first: int, top: int) -> None:
        """Note the digests of first..top, how many they are, and whose tags are wrong."""
        task = reading.task
        sums, counts = self._digests(frame, first, top, task.owed.modulus)
        for residue in range(task.owed.modulus):
            if task.owed.residues >> residue & 1:
                reading.sums[residue] = reading.sums[residue] + sums[residue] & DIGEST_MASK
                reading.given += counts[residue]
        if task.digest and not self._are_tags_right(task, frame):
            wrong = [
                entry_id
                for entry_id, entry in split(frame)
                if not self._are_tags_right(task, Frame(task.ledger_id, entry_id, entry_id, 1, 0, entry))
            ]
            reading.untrue += [each for each in wrong if first <= each <= top]
        if task.is_by_entry:
            digests = [(entry_id, entry_digest(entry)) for entry_id, entry in split(frame)]
            reading.entries += [each for each in digests if first <= each[0] <= top]

    @staticmethod
    def _are_tags_right(task: CopyTask, frame: Frame) -> bool:
        try:
            check_tags(frame, task.digest, task.mac_key)
        except PeerError:
            return False
        return True

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        reading = self._taken(event.tag)
        if reading is None:
            return []
        self._end_task(reading, event.reason)
        self._silence(reading.task.member, event.reason)
        return self._go_on(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        for reading in self.asked.take_late(event.now_ns):
            self.queues[reading.task.member].out -= 1
            self._end_task(reading, "no answer in time")
            self._silence(reading.task.member, "no answer in time")
        return [] if self.is_over else self._go_on(event.now_ns)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
