"""Copying the entries that lost seats owe of one fragment to the bookies that get the seats (P11.2), or all of its
entries to the seats of another shape (P2.6).

Decides which entries a seat owes, from which bookies they are read, what a good copy is, and when all of them are
durable. The seats of an entry's write set owe it: every entry up to the next fragment's start - 1 or the ledger's last
entry, whatever any LAC is. If every bookie of the write set answers and none has a good copy of an entry, the fragment
stops there and the entry is named. A bookie that does not answer makes the result "cannot tell": another try may
succeed.

Where the ledger's writer published digests (P11.4), copies that are not what it wrote are found before any of them is
made: what fits one read when it was read, of more by asking for it (`source_check`). Those are read last, where nobody
else has the entry. What was copied is compared at the end all the same.

Frames travel as they were stored, up to 1 MiB. This machine checks them when a source sent them, and the target before
it stores them. An entry is read once and sent to all targets that owe it.

    part of each residue:   read `next` on from one source ──▶ a frame without gaps ──▶ recovery adds to each target
                                  ▲    the next source, where `next` is missing or bad there            │
                                  └───────────── while less than window_bytes waits for OKs ◀───────────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from embedbk.codec import kernels
from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import DigestType, check_tags
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.frame import LEDGER_KEY_BYTES, Frame, cut, encode_frame_header, frame_of, split
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.lost_entries import next_kept, next_lost
from embedbk.codec.read_messages import ReadAnswer, ReadClass, ReadRequest
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, earliest
from embedbk.core.quorum import write_set
from embedbk.errors import PeerError
from embedbk.ids import Member
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.holdings import USUAL_CHECK
from embedbk.repair.owed import owed_up_to
from embedbk.repair.published import published_digest
from embedbk.repair.source_check import SOURCE, SourceCheck

__all__ = ["USUAL_COPYING", "CopyOptions", "CopyResult", "FragmentCopy", "Shape"]

_MS = 1_000_000
_OTHER = "its copies are not what their writer published"
_NO_KEY = bytes(LEDGER_KEY_BYTES)  # A worker knows no ledger's key (AddRequest.is_copy).


@dataclass(frozen=True, slots=True)
class CopyOptions:
    read_timeout_ns: int = 5_000 * _MS  # An unanswered read: another source is asked.
    write_timeout_ns: int = 10_000 * _MS  # An unanswered copy makes its target one that failed.
    busy_ns: int = 100 * _MS  # Behind a BUSY the same copy is sent again.
    window_bytes: int = 8 << 20  # Read and not durable at every target yet; reading pauses above it.
    frame_bytes: int = FRAME_BYTES_MAX  # The most that one read returns.
    small_bytes: int = 32 << 10  # A ledger of no more is repaired beside others (`small_repairs`).
    # One message carries so many requests for such ledgers, and so many bytes of frames, there or back
    # (`copy_gathering`).
    together: int = 64
    together_bytes: int = FRAME_BYTES_MAX


USUAL_COPYING = CopyOptions()


class Shape(NamedTuple):
    """What a ledger is to have instead of its E, Qw, Qa and seats (P2.6)."""

    quorum: Quorum
    ensemble: tuple[Member, ...]

    def parts_of(self, frame: Frame) -> dict[Member, Frame]:
        """What each seat owes of these entries."""
        size, copies = self.quorum.ensemble_size, self.quorum.write_quorum
        if size == copies:
            return dict.fromkeys(self.ensemble, frame)
        parts = ((member, cut(frame, size, copies, seat)) for seat, member in enumerate(self.ensemble))
        return {member: part for member, part in parts if part is not None}


@dataclass(frozen=True, slots=True)
class CopyResult:
    """kind: "done", "no good copy" (of entry_id), "target failed" (target), or "cannot tell"."""

    kind: str
    why: str = ""
    entry_id: int = -1
    target: Member | None = None


@dataclass(slots=True)
class _Part:
    """The ids of one residue class (unstriped: all ids) of the fragment."""

    first: int
    next: int  # The first entry that is not read yet.
    seats: list[int]  # That have copies, the one to be asked next first.
    targets: tuple[Member, ...]
    asked: tuple[int, int, int] | None = None  # (seat, number of the question, when) of the read that is out.
    absent: dict[int, str] = field(default_factory=dict)  # Seat -> why it gave no good copy of `next`.
    silent: dict[int, str] = field(default_factory=dict)  # Seat -> why it is unknown whether it has one.
    later_ns: int = 0  # Nothing is asked before: a bookie has read for repair what it may in a second (P6.7).


@dataclass(slots=True)
class _Copy:
    """A frame on its way to its targets. frames: what each of them gets of it."""

    byte_count: int
    frames: dict[Member, Frame]
    owed: dict[Member, int]  # Target -> when it was sent last.
    again: dict[Member, int] = field(default_factory=dict)  # Target that is busy -> when it is sent again.


class FragmentCopy:
    """holders: which bookie gets which seat. away: seats whose bookies cannot be read from. The result is None until
    the copying is over."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        number: int,
        holders: Mapping[int, Member],
        away: frozenset[int],
        nonce: int,
        pace: CopyPace,
        options: CopyOptions = USUAL_COPYING,
        numbers: int = 0,
        entries: tuple[int, int] | None = None,
        shape: Shape | None = None,
    ) -> None:
        """numbers: of the last question that this handle asked; an answer to an earlier one counts for nothing.
        entries: the first and the last one to be copied; None: all of the fragment. shape: all of them are copied to
        its seats; holders is empty then."""
        self.metadata = metadata
        self.fragment = metadata.fragments[number]
        begin, self.last = entries or (self.fragment.first_entry, owed_up_to(metadata, number))
        self.nonce = nonce
        self.pace = pace
        self.options = options
        self.shape = shape
        self.result: CopyResult | None = None
        self.copies = self.copied_bytes = 0
        self._quorum = metadata.quorum
        self._is_striped = self._quorum.ensemble_size > self._quorum.write_quorum
        self._step = self._quorum.ensemble_size if self._is_striped else 1
        self.numbers = numbers
        self._copies: dict[int, _Copy] = {}
        self._copies_bytes = 0
        self._parts: list[_Part] = []
        # Seats whose copies are not what was published: they are asked last.
        self._doubted: frozenset[int] = frozenset()
        # By residue the digests of what was read; None: only a part of the fragment is.
        self._sums = [0] * self._step if entries is None else None
        for offset in range(self._step):
            first = begin + offset
            seats = write_set(first, self._quorum) if self._is_striped else range(self._quorum.ensemble_size)
            targets = tuple(holders[seat] for seat in seats if seat in holders)
            if (targets or shape is not None) and first <= self.last:
                there = [seat for seat in seats if seat not in away]
                turn = offset % len(there) if there else 0  # Sources share the work.
                self._parts.append(_Part(first, first, [*there[turn:], *there[:turn]], targets))
                self._pass_lost(self._parts[-1])
        self._check = self._source_check(number) if entries is None else None

    def _source_check(self, number: int) -> SourceCheck | None:
        """None: nothing was published, there is no choice, or one read tells it."""
        seats = sorted({seat for part in self._parts for seat in part.seats})
        is_published = any(self._published(part.first) is not None for part in self._parts)
        if len(seats) < 2 or not is_published or self._fits_one_read():
            return None
        timeout_ns, ids_max = self.options.read_timeout_ns, USUAL_CHECK.ids_max
        return SourceCheck(self.metadata, number, seats, self.numbers, timeout_ns, ids_max)

    def _fits_one_read(self) -> bool:
        """By what it has without attributes; where that is too little, what was copied is compared at the end."""
        entries = self.last - self.fragment.first_entry + 1
        size = (self.metadata.length or 0) + entries * ENTRY_OVERHEAD_BYTES
        return size <= self._read_bytes

    @property
    def _read_bytes(self) -> int:
        """What one read asks for at most."""
        return min(self.options.frame_bytes, self.pace.frame_bytes)

    def _published(self, entry_id: int) -> int | None:
        """What the writer published of the entries that are read with this one."""
        first, residue = self.fragment.first_entry, entry_id % self._step
        return published_digest(self.metadata, first, self.last, self._step, residue)

    @property
    def deadline_ns(self) -> int | None:
        if self._check is not None:
            return self._check.deadline_ns
        due = [part.asked[2] + self.options.read_timeout_ns for part in self._parts if part.asked is not None]
        if self.result is None and self._has_room:
            free_ns = self.pace.free_ns(0)
            waiting = (part for part in self._parts if part.asked is None and part.next <= self.last)
            due += [max(free_ns, part.later_ns) for part in waiting]
        for copy in self._copies.values():
            due += copy.again.values()
            due += [sent + self.options.write_timeout_ns for sent in copy.owed.values()]
        return earliest(*due)

    @property
    def _has_room(self) -> bool:
        reading = sum(part.asked is not None for part in self._parts)
        return self._copies_bytes + reading * self.options.frame_bytes < self.options.window_bytes

    def begin(self, now_ns: int) -> list[Effect]:
        if self._check is not None:
            return self._checked(now_ns, self._check.begin(now_ns))
        return self._go_on(now_ns)

    def _checked(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Begin to read, once it is known whose copies are not what was published."""
        check = self._check
        if check is None or check.result is None:
            return effects
        self._check, self.numbers, self._doubted = None, check.numbers, check.result
        for part in self._parts:
            self._order(part)
        return [*effects, *self._go_on(now_ns)]

    def _order(self, part: _Part) -> None:
        part.seats.sort(key=lambda seat: seat in self._doubted)

    def _pass_lost(self, part: _Part) -> None:
        """Nobody owes what was given up (P11.5)."""
        if self.metadata.lost:
            part.next = next_kept(self.metadata.lost, part.next, self._step)

    # Reading.

    def _go_on(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for part in self._parts:
            if self.result is not None:
                return effects
            is_due = part.asked is None and part.next <= self.last and self._has_room
            if is_due and now_ns >= part.later_ns and now_ns >= self.pace.free_ns(now_ns):
                effects += self._ask(part, now_ns)
        if self.result is None and not self._copies and all(part.next > self.last for part in self._parts):
            self.result = self._why_unlike() or CopyResult("done")
        return effects

    def _why_unlike(self) -> CopyResult | None:
        """Why what was copied gets no seat: it is not what its writer published (P11.4). Which entry differs nobody can
        tell. None: it is, or nothing is known of it."""
        for residue, found in enumerate(self._sums or ()):
            if self._is_whole(residue) and self._published(residue) not in (None, found):
                return self._unlike(residue)
        return None

    def _unlike(self, residue: int) -> CopyResult:
        what = f"entries {self.fragment.first_entry} to {self.last}"
        if self._is_striped:
            what += f" with id % {self._step} == {residue}"
        return CopyResult("no good copy", f"{what} are not what their writer published, where they were read")

    def _is_whole(self, residue: int) -> bool:
        """Whether the entries of the residue were read."""
        return any((part.next - residue) % self._step == 0 for part in self._parts)

    def _ask(self, part: _Part, now_ns: int) -> list[Effect]:
        left = [seat for seat in part.seats if seat not in part.absent and seat not in part.silent]
        if not left:
            self._stop(part)
            return []
        self.numbers += 1
        seat, number = left[0], self.numbers
        part.asked = (seat, number, now_ns)
        member = self.fragment.members[seat]
        modulus, residues = (self._step, 1 << (part.next % self._step)) if self._is_striped else (1, 1)
        request = ReadRequest(
            member.incarnation,
            self.metadata.ledger_id,
            part.next,
            self._until(part),
            self._read_bytes,
            modulus=modulus,
            residues=residues,
            reads_as=ReadClass.UPKEEP,
        )
        return [Send(member, request, ("read", number))]

    def _until(self, part: _Part) -> int:
        """The last entry that is asked for at once: no further than to what was given up."""
        if not self.metadata.lost:
            return self.last
        lost = next_lost(self.metadata.lost, part.next, self.last, self._step, part.next % self._step)
        return self.last if lost is None else lost - 1

    def _stop(self, part: _Part) -> None:
        """No bookie sent the entry. If one of them did not answer, the result is "cannot tell"."""
        told = {**part.absent, **part.silent}
        if not part.silent and _OTHER in told.values():
            self.result = self.result or self._unlike(part.first % self._step)
            return
        why = ", ".join(f"{self.fragment.members[seat].bookie_id}: {told[seat]}" for seat in sorted(told))
        kind = "cannot tell" if part.silent else "no good copy"
        why = f"entry {part.next} has no good copy ({why or 'every bookie that should hold it is away'})"
        self.result = self.result or CopyResult(kind, why, part.next)

    def _source_failed(self, part: _Part, seat: int, why: str, now_ns: int, *, is_told: bool) -> list[Effect]:
        part.asked = None
        (part.absent if is_told else part.silent)[seat] = why
        part.seats.remove(seat)
        part.seats.append(seat)  # Asked last from now on.
        self._order(part)
        return self._go_on(now_ns)

    def on_answered(self, event: Answered) -> list[Effect]:
        if event.tag[0] == "copy":
            return self._on_copied(event)
        if event.tag[0] == SOURCE:
            check = self._check
            return [] if check is None else self._checked(event.now_ns, check.on_answered(event))
        part = self._part_of(event.tag[1])
        if part is None or part.asked is None:
            return []
        seat, answer = part.asked[0], event.control
        if isinstance(answer, ReadAnswer) and answer.ledger_id != self.metadata.ledger_id:
            other = f"it answered for ledger {answer.ledger_id}"
            return self._source_failed(part, seat, other, event.now_ns, is_told=False)
        if isinstance(answer, ReadAnswer) and answer.status == Status.BUSY:
            part.asked = None
            part.later_ns = event.now_ns + max(answer.wait_ms, 1) * _MS
            part.seats.remove(seat)
            part.seats.append(seat)
            self._order(part)
            return []
        if not isinstance(answer, ReadAnswer) or answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            status = getattr(answer, "status", Status.UNKNOWN)
            return self._source_failed(part, seat, Status(status).name, event.now_ns, is_told=False)
        try:
            frame = self._good(event, part)
        except PeerError as broken:
            return self._source_failed(part, seat, str(broken), event.now_ns, is_told=True)
        if frame is None:
            return self._source_failed(part, seat, "not there", event.now_ns, is_told=True)
        self.pace.note(event.now_ns, len(frame.body), event.now_ns - part.asked[2])
        if self._sums is not None:
            read, _ = kernels.digests(frame.body, frame.first_entry, frame.last_entry, self._step)
            if self._is_other(part, frame, read):
                return self._source_failed(part, seat, _OTHER, event.now_ns, is_told=True)
            self._sums = [(a + b) & DIGEST_MASK for a, b in zip(self._sums, read, strict=True)]
        part.asked = None
        part.next = frame.last_entry + self._step
        self._pass_lost(part)
        part.absent, part.silent = {}, {}
        return [*self._copy(part, frame, event.now_ns), *self._go_on(event.now_ns)]

    def _is_other(self, part: _Part, frame: Frame, digests: Sequence[int]) -> bool:
        """Whether one read has all entries of the part, and they are not what was published. Another source may have
        these, and no copy is made of any yet."""
        is_all = frame.first_entry == part.first and frame.last_entry + self._step > self.last
        return is_all and self._published(part.first) not in (None, digests[part.first % self._step])

    def _part_of(self, number: int) -> _Part | None:
        """The part that the answer to this question is for, as long as it is wanted."""
        if self.result is not None:
            return None
        asked = (part for part in self._parts if part.asked is not None and part.asked[1] == number)
        return next(asked, None)

    def _good(self, event: Answered, part: _Part) -> Frame | None:
        """The entries of this part from `next` on, as far as they follow without a gap. None: `next` is not there.

        Raises:
            PeerError: the copy of `next`, or one before a sound one, is bad.
        """
        if not event.frames:
            return None
        if len(event.frames) > 1:
            raise PeerError(f"{len(event.frames)} frames in an answer that has one at most")
        frame = frame_of(event.frames[0][1], self.metadata.ledger_id)
        wanted, size, until = part.next, 0, self._until(part)
        if (
            self._step == 1
            and not frame.has_gaps
            and frame.first_entry == part.next <= frame.last_entry <= until
        ):
            good = frame
        else:
            for entry_id, raw in split(frame):
                if entry_id != wanted or entry_id > until:
                    break
                wanted, size = entry_id + self._step, size + len(raw)
            if not size:
                return None
            good = frame_of(frame.body[:size], self.metadata.ledger_id)
        if self.metadata.digest != DigestType.HMAC:  # An HMAC's key follows from the password.
            check_tags(good, self.metadata.digest, b"")
        return good

    # Writing.

    def _copy(self, part: _Part, frame: Frame, now_ns: int) -> list[Effect]:
        self.numbers += 1
        frames = dict.fromkeys(part.targets, frame) if self.shape is None else self.shape.parts_of(frame)
        size = len(frame.body)
        copy = self._copies[self.numbers] = _Copy(size, frames, dict.fromkeys(frames, now_ns))
        self._copies_bytes += size
        return [self._send(self.numbers, copy, target) for target in frames]

    def _send(self, number: int, copy: _Copy, target: Member) -> Effect:
        request = AddRequest(target.incarnation, self.nonce, number, recovery=True, is_copy=True)
        frame = copy.frames[target]
        return Send(target, request, ("copy", number), ((encode_frame_header(frame, _NO_KEY), frame),))

    def _on_copied(self, event: Answered) -> list[Effect]:
        number, answer = event.tag[1], event.control
        copy = self._copies.get(number)
        if self.result is not None or copy is None or event.member not in copy.owed:
            return []
        status = answer.status if isinstance(answer, AddAnswer) else Status.UNKNOWN
        if status == Status.BUSY:
            copy.again[event.member] = event.now_ns + self.options.busy_ns
            return []
        frame = copy.frames[event.member]
        if status != Status.OK or not self._is_of(answer, frame, number):
            return self._target_failed(event.member, status.name)
        del copy.owed[event.member]
        copy.again.pop(event.member, None)
        self.copies += frame.entry_count
        self.copied_bytes += len(frame.body)
        if not copy.owed:
            del self._copies[number]
            self._copies_bytes -= copy.byte_count
        return self._go_on(event.now_ns)

    def _is_of(self, answer: object, frame: Frame, number: int) -> bool:
        """Whether it answers this very add (P3.8)."""
        return isinstance(answer, AddAnswer) and (
            answer.nonce,
            answer.seating,
            answer.recovery,
            answer.ledger_id,
            answer.first_entry,
            answer.last_entry,
        ) == (self.nonce, number, True, frame.ledger_id, frame.first_entry, frame.last_entry)

    def _target_failed(self, target: Member, why: str) -> list[Effect]:
        self.result = self.result or CopyResult("target failed", f"{target.bookie_id}: {why}", target=target)
        return []

    # Failures and time limits.

    def on_send_failed(self, event: SendFailed) -> list[Effect]:
        if event.tag[0] == SOURCE:
            check = self._check
            return [] if check is None else self._checked(event.now_ns, check.on_send_failed(event))
        if event.tag[0] == "copy":
            copy = self._copies.get(event.tag[1])
            is_owed = copy is not None and event.member in copy.owed
            return self._target_failed(event.member, event.reason) if is_owed else []
        part = self._part_of(event.tag[1])
        if part is None or part.asked is None:
            return []
        return self._source_failed(part, part.asked[0], event.reason, event.now_ns, is_told=False)

    def on_tick(self, now_ns: int) -> list[Effect]:
        if self._check is not None:
            return self._checked(now_ns, self._check.on_tick(now_ns))
        effects: list[Effect] = []
        for part in self._parts:
            if part.asked is not None and now_ns >= part.asked[2] + self.options.read_timeout_ns:
                effects += self._source_failed(
                    part, part.asked[0], "no answer in time", now_ns, is_told=False
                )
        for number, copy in list(self._copies.items()):
            for target, due_ns in list(copy.again.items()):
                if now_ns >= due_ns:
                    del copy.again[target]
                    effects.append(self._send(number, copy, target))
            for target, sent_ns in list(copy.owed.items()):
                if now_ns >= sent_ns + self.options.write_timeout_ns:
                    effects += self._target_failed(target, "no answer in time")
        return [*effects, *self._go_on(now_ns)]
