"""One worker's repair of one marked ledger, under its hold (P11.2).

Decides which seats are lost, which bookies get them, when a copied fragment is published, and what becomes of the mark.
A seat is lost if the mark names its bookie and that bookie is not registered now. A bookie that the mark names and that
is registered keeps its seats: of a CLOSED ledger it is asked whether it holds all that they owe, and gets what it lacks
(P11.4). If it lacks nothing, the mark ends without a copy (AR11). A bookie that is drained gives its seats away, too,
and is read from (P11.3). The last fragment of a ledger that is not CLOSED is left to its writer; where the mark says
that nobody closes the ledger, it is closed first (AR08, `orphan_closing.py`). Before all that, a CLOSED ledger of a log
whose settings name other numbers of copies gets these, where bookies are there (P2.6, `reshaping.py`): it then has no
seat that is lost.

    mark and ledger read ─▶ another shape, or a
                            fragment with lost seats ─▶ targets, written into the mark ─▶ copying (fragment_copy)
          ▲                         │ none left: seats whose bookies are there (seat_fill), one by one; then      │
          │                         │ the mark ends, is postponed, or the ledger cannot be repaired               │
          └── refused: read anew ── published, by one compare-and-set, when every copy is durable (I36) ◀────────┘

The target stands in the mark before the first copy, and the mark keeps its ledger on every bookie (P7.7): else the
target's collector drops what no fragment names yet. Every transaction compares the hold, so a worker that lost it
changes nothing (P9.1). The one that publishes also compares the mark, since bookies did not keep the copies while it
was gone, and the placements of the bookies that are newly named (P10.6). The last entry is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put, Refusal
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import (
    WHY_CHARS_MAX,
    MarkProgress,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    is_orphan,
    moves_of,
    progress_of,
    repair_mark_path,
    with_orphan,
    with_progress,
)
from embedbk.codec.repair_messages import EndRepairs, FailRepairs
from embedbk.codec.repair_state import Unrepairable, encode_unrepairable, unrepairable_path
from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import Chance, fill_seats
from embedbk.core.repair_words import AskQuorum, QuorumAnswered, RepairOutcome
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.claims import repairing_path
from embedbk.metadata.client import is_unknown
from embedbk.repair.circumstances import circumstances
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import USUAL_COPYING, CopyOptions, CopyResult, FragmentCopy, Shape
from embedbk.repair.holdings import owed_up_to
from embedbk.repair.orphan_closing import ORPHAN, Answer, LedgerKey, OrphanClosing
from embedbk.repair.reshaping import Reshape, is_misfit, log_of, shape_of_settings
from embedbk.repair.seat_fill import SeatFill
from embedbk.repair.target_choice import (
    choose_holders,
    lost_seats,
    mark_with_targets,
    moved_seats,
    placement_with_racks,
)

__all__ = ["LedgerRepair", "lost_seats"]

_MS = 1_000_000
_RETRY_NS = 200 * _MS  # Behind a question that the metadata did not answer, or a change that was refused.
_LET_GO_NS = 1_000 * _MS
_TROUBLES_MAX = 25  # Troubles in one repair; then it is postponed.


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A fragment that cannot be repaired as things stand."""

    first_entry: int
    entry_id: int
    why: str
    bookies: tuple[str, ...]  # Those that the mark names, of the seats that stay as they are.
    under: bytes  # Who was there when that was found.


class LedgerRepair(Machine):
    """Ends with a RepairOutcome; its hold is given back then, or was lost."""

    def __init__(
        self,
        ledger_id: int,
        epoch: int,
        mark_revision: int,
        bookies: tuple[BookieInfo, ...],
        nonce: int,
        chance: Chance,
        pace: CopyPace,
        placement: Placement = ANYWHERE,
        options: CopyOptions = USUAL_COPYING,
        *,
        may_reshape: bool = False,
        opener: LedgerKey | None = None,
    ) -> None:
        """may_reshape: all nodes know ledgers whose numbers of copies change (P10.8). opener: of ledgers without a
        password; None: none is closed that its writer left."""
        self.ledger_id = ledger_id
        self.epoch = epoch
        self.bookies = bookies
        self.nonce = nonce
        self.chance = chance
        self.pace = pace
        self.placement = placement
        self.options = options
        self.mark: RepairMark | None = None
        self.mark_revision = mark_revision
        self.metadata: LedgerMetadata | None = None
        self.value = b""  # The ledger's metadata as it is stored; `revision` is that of the key.
        self.revision = 0
        self.questions = 0
        self.asked: Any = (
            None  # The tag of the question that is out; any other answer is of one that was given up.
        )
        self.retry_at: int | None = None
        self.troubles = 0
        self.number = 0  # The fragment that is repaired now.
        self.holders: dict[int, Member] = {}
        self.chosen: dict[Member, int | None] = {}  # Chosen target -> revision of its placement then.
        self.may_reshape = may_reshape  # Until that was tried.
        self.reshape: Reshape | None = None
        self.copying: FragmentCopy | SeatFill | None = None
        self.opener = opener  # None, once that was tried.
        self.closing: OrphanClosing | None = None
        self.closings = 0
        # Asked in this repair, and whole, or beyond help: (first entry, last entry, seat, bookie).
        self.looked_into: set[tuple[int, int, int, Member]] = set()
        self.filling: tuple[int, int, int, Member] | None = None
        self.numbers = 0  # The number of the last question of a copying.
        # Copied, durable and not published yet: (first entry, last entry, seat, target).
        self.copied: set[tuple[int, int, int, Member]] = set()
        self.proposed = b""
        self.compared: dict[str, int] = {}  # Placements, by the transaction that publishes.
        self.unread: set[str] = set()  # Those of them that are not read yet, behind a refusal.
        self.outdated: set[tuple[str, int]] = set()
        self.refused: set[Member] = set()  # Targets that failed in this repair.
        self.stopped: list[_Stopped] = []
        # First entry of a fragment that another try may repair -> why. NO_ENTRY: for the ledger's shape.
        self.put_off: dict[int, str] = {}
        self.copies = self.copied_bytes = self.filled = 0
        self.is_moving = False  # The seats that are filled now are given away by bookies that stay.
        self.moved = 0
        self.ending: EndRepairs | FailRepairs | None = None  # How the mark ends, once that is decided.
        self.outcome = RepairOutcome(ledger_id, "lost")
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        if self.is_over:
            return None
        return earliest(
            self.retry_at,
            self.copying.deadline_ns if self.copying is not None else None,
            self.closing.deadline_ns if self.closing is not None else None,
        )

    # Reading mark and ledger.

    def _ask(self, kind: str, *more: str) -> Any:
        self.questions += 1
        self.asked = (kind, self.questions, *more)
        return self.asked

    def _read(self, kind: str, key: str) -> list[Effect]:
        return [ReadKey(self._ask(kind), key)]

    def _on_started(self, event: Started) -> list[Effect]:
        return self._read("hold", repairing_path(self.ledger_id))

    def _begin_anew(self, now_ns: int) -> list[Effect]:
        """Soon, from the hold on; too often is another try's matter."""
        self.troubles += 1
        if self.troubles > _TROUBLES_MAX:
            return self._postpone("the metadata refuses, or does not answer")
        self.asked, self.retry_at = None, now_ns + _RETRY_NS
        return []

    def _on_failed(self, event: MetadataFailed | TransactUnknown | TransactRefused) -> list[Effect]:
        """A change whose outcome is unknown is looked for in the metadata as it is now (P2.2)."""
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.is_over or event.tag != self.asked:
            return []
        if event.tag[0] == "why":
            return self._give_back()
        return self._begin_anew(event.now_ns)

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.is_over:
            return []
        if event.tag[0] == "placement":
            return self._on_placement(event)
        if event.tag != self.asked:
            return []
        if event.tag[0] == "hold":
            if event.value is None or event.revision != self.epoch:
                return self._end()  # Another worker repairs it, or none does: there is no hold to give back.
            return self._read("mark", repair_mark_path(self.ledger_id))
        if event.tag[0] == "mark":
            return self._on_mark(event)
        if event.tag[0] == "settings":
            return self._on_settings(event)
        return self._on_ledger(event)

    def _on_mark(self, event: KeyRead) -> list[Effect]:
        if event.revision != self.mark_revision:
            # It may have been gone meanwhile, and with it what kept the copies where they are.
            self.copied.clear()
            self.reshape = None
        self.mark_revision = event.revision
        if event.value is None:  # An operator took it away.
            return self._finish("nothing missing")
        try:
            self.mark = decode_repair_mark(event.value)
        except StorageError as unread:
            self.outcome = RepairOutcome(self.ledger_id, "unrepairable", why=str(unread))
            return self._give_back()
        return self._read("ledger", ledger_key_path(self.ledger_id))

    def _on_ledger(self, event: KeyRead) -> list[Effect]:
        assert self.mark is not None
        if event.value is None:
            return self._finish("nothing missing")  # Deleted. Whoever brings it back marks it again.
        if event.value not in (self.value, self.proposed):
            # Others changed it: what was found before is of other metadata, and is looked for anew (AR10).
            self.stopped.clear()
            self.looked_into.clear()
        try:
            self.metadata = decode_ledger_metadata(event.value, self.ledger_id)
        except StorageError as unread:
            self.value = event.value
            self.stopped.append(_Stopped(0, NO_ENTRY, str(unread), self.mark.missing, self._found_under))
            return self._give_up()
        self.value, self.revision, self.proposed = event.value, event.revision, b""
        log = log_of(self.metadata)
        if self.may_reshape and log is not None and self.metadata.is_closed:
            return self._read("settings", log_settings_path(log))
        if self._is_orphan(self.metadata, self.mark):
            return self._begin_closing(event.now_ns)
        return self._settle(event.now_ns, self._next_fragment(event.now_ns))

    # A ledger that its writer left (AR08).

    def _is_orphan(self, metadata: LedgerMetadata, mark: RepairMark) -> bool:
        """Nobody closes it, as the mark says, and a bookie of its last fragment is not there, or leaves. An OPEN ledger
        that names no writer never is: then that cannot be told."""
        if metadata.is_closed or self.opener is None or not is_orphan(mark):
            return False
        if metadata.state == LedgerState.OPEN and not metadata.writer:
            return False
        last, missing, staying = metadata.fragments[-1], frozenset(mark.missing), self._staying
        return any(member not in staying for member in last.members if member.bookie_id in missing)

    def _begin_closing(self, now_ns: int) -> list[Effect]:
        metadata, opener = self.metadata, self.opener
        assert metadata is not None and opener is not None
        self.asked = None
        if metadata.password_verifier != opener.verifier:
            return self._not_closed(
                now_ns, "its writer is gone, and only who knows its password can recover it"
            )
        when = [
            Compare(repairing_path(self.ledger_id), self.epoch),
            Compare(repair_mark_path(self.ledger_id), self.mark_revision),
        ]
        self.closings += 1
        self.closing = OrphanClosing(
            metadata,
            self.revision,
            when,
            opener,
            self.nonce,
            self.bookies,
            self.chance,
            self._placement(),
            self.closings,
        )
        return self._closed(now_ns, self.closing.begin(now_ns))

    def _is_of_closing(self, event: Answer) -> bool:
        return isinstance(event.tag, tuple) and event.tag[0] == ORPHAN

    def _close(self, now_ns: int, event: Answer) -> list[Effect]:
        return [] if self.closing is None else self._closed(now_ns, self.closing.on_answer(event))

    def _closed(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Take its result, once it has one."""
        closing = self.closing
        if closing is None or closing.result is None:
            return effects
        self.closing = None
        if closing.result == "closed":
            return [*effects, *self._read("hold", repairing_path(self.ledger_id))]
        if closing.result == "changed":
            return [*effects, *self._begin_anew(now_ns)]
        if closing.result == "lives":
            # The grace counts anew, by the auditor, when it shows no life again.
            assert self.mark is not None
            return [*effects, *self._put_mark("lives", with_orphan(self.mark, is_so=False))]
        return [*effects, *self._not_closed(now_ns, closing.result)]

    def _not_closed(self, now_ns: int, why: str) -> list[Effect]:
        """Its older fragments are repaired all the same."""
        assert self.metadata is not None
        self.opener = None
        self.put_off[self.metadata.fragments[-1].first_entry] = why
        return self._settle(now_ns, self._next_fragment(now_ns))

    # Another shape (P2.6).

    def _on_settings(self, event: KeyRead) -> list[Effect]:
        metadata = self.metadata
        assert metadata is not None
        log = log_of(metadata)
        assert log is not None
        wanted = shape_of_settings(event.value, log)
        if wanted is None or not is_misfit(metadata, wanted):
            return self._leave_shape(event.now_ns)
        outdated = {member for member, revision in self.chosen.items() if self._is_outdated(member, revision)}
        known = self.reshape
        if (
            known is None
            or (known.shape.quorum, known.revision) != (wanted, self.revision)
            or known.names(self.refused | outdated)
        ):
            ensemble = self._choose_all(wanted)
            if ensemble is None:
                return self._leave_shape(event.now_ns)
            self.reshape = Reshape(
                Shape(wanted, ensemble), log_settings_path(log), event.revision, self.revision
            )
        else:
            known.settings_revision = event.revision
        return self._settle(event.now_ns, self._name_targets(event.now_ns))

    def _choose_all(self, wanted: Quorum) -> tuple[Member, ...] | None:
        usable = self._usable()
        seats = fill_seats([None] * wanted.ensemble_size, usable, (), wanted, self._placement(), self.chance)
        ensemble = tuple(member for member in seats if member is not None)
        if len(ensemble) < wanted.ensemble_size:
            failed = sorted(
                {each.bookie_id for each in self.refused} | {bookie for bookie, _ in self.outdated}
            )
            if failed:
                self.put_off[NO_ENTRY] = (
                    f"{wanted.ensemble_size} bookies are needed beside {', '.join(failed)}, which failed"
                )
            return None
        placements = {info.member: info.placement for info in usable}
        self.chosen.update((member, placements[member]) for member in ensemble)
        return ensemble

    def _leave_shape(self, now_ns: int) -> list[Effect]:
        """It has the shape that it should have, or gets it in another try: what is lost is repaired as it is."""
        self.may_reshape, self.reshape = False, None
        return self._settle(now_ns, self._next_fragment(now_ns))

    def _reshaped(self, now_ns: int, copying: FragmentCopy, result: CopyResult) -> list[Effect]:
        assert self.reshape is not None and self.metadata is not None
        if result.kind == "done":
            self.reshape.copied.add(self.number)
            return self._begin_copying(now_ns)
        if result.target is not None:
            self.refused.add(result.target)
            return self._read("settings", self.reshape.settings)
        self.put_off[NO_ENTRY] = result.why
        return self._leave_shape(now_ns)

    # Which fragment, and which bookies get its seats.

    @property
    def _there(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.bookies)

    @property
    def _writable(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.bookies if info.is_writable)

    @property
    def _staying(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.bookies if not info.is_leaving)

    @property
    def _found_under(self) -> bytes:
        return circumstances(b"", self.bookies)

    def _next_fragment(self, now_ns: int) -> list[Effect]:
        """Begin what comes next. What cannot be done now keeps nothing else from being done."""
        metadata, mark = self.metadata, self.mark
        assert metadata is not None and mark is not None
        there, staying, missing = self._there, self._staying, frozenset(mark.missing)
        is_deferred = False
        passed_over = {each.first_entry for each in self.stopped} | self.put_off.keys()
        for number, fragment in enumerate(metadata.fragments):
            lost = lost_seats(fragment, missing, staying)
            if fragment.first_entry in passed_over:
                continue
            self.is_moving = not lost
            if not lost:
                if self._move(fragment):
                    self.number = number
                    return self._name_targets(now_ns)
                continue
            if number == len(metadata.fragments) - 1 and not metadata.is_closed:
                # A mark of a drained bookie that stands for nothing else waits for the auditor's word (AR08).
                is_deferred |= not self.copies or any(fragment.members[seat] not in there for seat in lost)
                continue
            self.number = number
            self.holders = self._choose(metadata, fragment, lost)
            if self.holders:
                return self._name_targets(now_ns)
            bookies = tuple(fragment.members[seat].bookie_id for seat in lost)
            why = f"no bookie can take the seat of {', '.join(bookies)}"
            # A bookie that another listing shows otherwise may take it then (P10.6).
            excluded = {each.bookie_id for each in self.refused} | {bookie for bookie, _ in self.outdated}
            if excluded:
                self.put_off[fragment.first_entry] = f"{why} ({', '.join(sorted(excluded))} failed)"
            else:
                found_under = self._found_under
                self.stopped.append(_Stopped(fragment.first_entry, NO_ENTRY, why, bookies, found_under))
        while metadata.is_closed and (fill := self._next_fill(metadata, missing, there)) is not None:
            if fill.member in self._writable:
                self.copying = fill
                return fill.begin(now_ns)
            # The room that it has left is for fences (P7.8).
            self._put_off_fill(f"{fill.member.bookie_id} may lack entries, and is read-only")
        if self.put_off:
            return self._postpone(next(iter(self.put_off.values())))
        if is_deferred:
            return self._postpone("its last fragment is its writer's", kind="deferred")
        if any(each.under != self._found_under for each in self.stopped):
            return self._postpone(
                "other bookies are there by now"
            )  # Else it is judged under these, and never again.
        if self.stopped:
            return self._give_up()
        return self._finish("repaired" if self.copies or self.copied else "nothing missing")

    def _move(self, fragment: Fragment) -> bool:
        """Whether bookies give seats of this fragment away though they stay, by the mark's word (P11.6)."""
        metadata, mark = self.metadata, self.mark
        assert metadata is not None and mark is not None
        moves = moves_of(mark) if metadata.is_closed else {}
        if not moves:
            return False
        usable = [info for info in self._usable() if info.is_writable]
        moves = {
            gives: takes for gives, takes in moves.items() if takes in {i.member.bookie_id for i in usable}
        }
        self.holders = moved_seats(fragment, moves, self.bookies, metadata.quorum, self._placement())
        placements = {info.member: info.placement for info in usable}
        self.chosen.update((member, placements[member]) for member in self.holders.values())
        return bool(self.holders)

    def _put_off_fill(self, why: str) -> None:
        assert self.filling is not None
        self.looked_into.add(self.filling)
        self.put_off.setdefault(self.filling[0], why)

    def _next_fill(
        self, metadata: LedgerMetadata, missing: frozenset[str], there: frozenset[Member]
    ) -> SeatFill | None:
        """A seat of a bookie that the mark names and that is there, which was not asked yet."""
        for number, fragment in enumerate(metadata.fragments):
            first, last = fragment.first_entry, owed_up_to(metadata, number)
            for seat, member in enumerate(fragment.members):
                self.filling = (first, last, seat, member)
                is_named = member.bookie_id in missing and member in there and first <= last
                if is_named and self.filling not in self.looked_into:
                    away = frozenset(n for n, other in enumerate(fragment.members) if other not in there)
                    return SeatFill(
                        metadata, number, seat, away, self.nonce, self.pace, self.options, self.numbers
                    )
        return None

    def _choose(self, metadata: LedgerMetadata, fragment: Fragment, lost: list[int]) -> dict[int, Member]:
        assert self.mark is not None
        usable = self._usable()
        holders = choose_holders(metadata, fragment, lost, self.mark, usable, self._placement(), self.chance)
        placements = {info.member: info.placement for info in usable}
        self.chosen.update((member, placements[member]) for member in holders.values())
        return holders

    def _usable(self) -> list[BookieInfo]:
        return [
            info
            for info in self.bookies
            if info.member not in self.refused and not self._is_outdated(info.member, info.placement)
        ]

    def _is_outdated(self, member: Member, placement: int | None) -> bool:
        return (member.bookie_id, placement) in self.outdated

    def _placement(self) -> Placement:
        return placement_with_racks(self.placement, self.bookies)

    @property
    def _targets(self) -> tuple[Member, ...]:
        return tuple(self.holders.values()) if self.reshape is None else self.reshape.shape.ensemble

    def _name_targets(self, now_ns: int) -> list[Effect]:
        """Into the mark, before the first copy."""
        assert self.mark is not None
        named = mark_with_targets(self.mark, self._targets)
        if named is self.mark:
            return self._begin_copying(now_ns)
        return self._put_mark("target", named)

    def _put_mark(self, kind: str, mark: RepairMark) -> list[Effect]:
        key = repair_mark_path(self.ledger_id)
        when = [Compare(repairing_path(self.ledger_id), self.epoch), Compare(key, self.mark_revision)]
        self.mark = mark
        return [Transact(self._ask(kind), when, [Put(key, encode_repair_mark(mark))])]

    # Copying.

    def _begin_copying(self, now_ns: int) -> list[Effect]:
        metadata, holders, shape = self.metadata, self.holders, None
        assert metadata is not None
        if self.reshape is not None:
            number = self.reshape.next_fragment(metadata)
            if number is None:
                return self._publish_shape()
            self.number, holders, shape = number, {}, self.reshape.shape
        fragment = metadata.fragments[self.number]
        end = owed_up_to(metadata, self.number)
        if shape is None and all(
            (fragment.first_entry, end, *each) in self.copied for each in self.holders.items()
        ):
            return self._publish()
        there = self._there
        away = frozenset(seat for seat, member in enumerate(fragment.members) if member not in there)
        self.copying = FragmentCopy(
            metadata,
            self.number,
            holders,
            away,
            self.nonce,
            self.pace,
            self.options,
            self.numbers,
            shape=shape,
        )
        return self.copying.begin(now_ns)

    def _settle(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Take the result of a copying that is over. One whose bookies are all away is over when it begins, and a
        ledger may have thousands of fragments."""
        while (copying := self.copying) is not None and copying.result is not None:
            self.copying, self.numbers = None, copying.numbers
            self.copies += copying.copies
            self.copied_bytes += copying.copied_bytes
            effects = [*effects, *self._copied(now_ns, copying, copying.result)]
        return effects

    def _filled(self, now_ns: int, filling: SeatFill, result: CopyResult) -> list[Effect]:
        assert self.filling is not None
        self.filled += filling.copies
        if result.kind in ("cannot tell", "target failed"):
            self._put_off_fill(result.why)
            return self._next_fragment(now_ns)
        self.looked_into.add(self.filling)
        if result.kind == "no good copy":
            first, bookies = filling.fragment.first_entry, (filling.member.bookie_id,)
            self.stopped.append(_Stopped(first, result.entry_id, result.why, bookies, self._found_under))
        return self._next_fragment(now_ns)

    def _copied(self, now_ns: int, copying: FragmentCopy | SeatFill, result: CopyResult) -> list[Effect]:
        if isinstance(copying, SeatFill):
            return self._filled(now_ns, copying, result)
        if self.reshape is not None:
            return self._reshaped(now_ns, copying, result)
        first = copying.fragment.first_entry
        if result.kind == "done":
            self.copied |= {(first, copying.last, *each) for each in self.holders.items()}
            return self._publish()
        if result.kind == "no good copy":
            bookies = tuple(copying.fragment.members[seat].bookie_id for seat in self.holders)
            self.stopped.append(_Stopped(first, result.entry_id, result.why, bookies, self._found_under))
            return self._next_fragment(now_ns)
        if result.target is not None:
            self.refused.add(result.target)
        else:
            self.put_off[first] = result.why
        return self._next_fragment(now_ns)

    def _on_answered(self, event: Answered) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.copying is None:
            return []
        return self._settle(event.now_ns, self.copying.on_answered(event))

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.copying is None:
            return []
        return self._settle(event.now_ns, self.copying.on_send_failed(event))

    # Publishing.

    def _publish(self) -> list[Effect]:
        """The seats of one fragment, in one compare-and-set. Nothing else of the ledger changes."""
        metadata = self.metadata
        assert metadata is not None
        old = metadata.fragments[self.number]
        ensemble = tuple(
            (member.bookie_id, member.incarnation)
            for member in (self.holders.get(seat, member) for seat, member in enumerate(old.members))
        )
        new = Fragment(old.first_entry, old.length_before, ensemble)
        fragments = (*metadata.fragments[: self.number], new, *metadata.fragments[self.number + 1 :])
        return self._put_ledger(metadata.with_changes(fragments=fragments))

    def _publish_shape(self) -> list[Effect]:
        """E, Qw, Qa and all fragments, while the settings that name them stand."""
        reshape, metadata = self.reshape, self.metadata
        assert reshape is not None and metadata is not None
        settings = Compare(reshape.settings, reshape.settings_revision)
        return self._put_ledger(reshape.published(metadata), settings)

    def _put_ledger(self, changed: LedgerMetadata, *more: Compare) -> list[Effect]:
        self.proposed = encode_ledger_metadata(changed)
        # The placement at the time of the choice: the one that is listed by now may have been raised since.
        noted = {member.bookie_id: self.chosen[member] for member in self._targets}
        self.compared = {
            bookie_id: number for bookie_id, number in sorted(noted.items()) if number is not None
        }
        key = ledger_key_path(self.ledger_id)
        when = [
            Compare(repairing_path(self.ledger_id), self.epoch),
            Compare(repair_mark_path(self.ledger_id), self.mark_revision),
            Compare(key, self.revision),
            *more,
            *(Compare(placement_path(bookie_id), number) for bookie_id, number in self.compared.items()),
        ]
        return [Transact(self._ask("publish"), when, [Put(key, self.proposed)])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.is_over or event.tag != self.asked:
            return []
        kind = event.tag[0]
        if kind == "target" and event.is_done:
            self.mark_revision = event.revision
            return self._settle(event.now_ns, self._begin_copying(event.now_ns))
        if kind == "lives" and event.is_done:
            self.mark_revision = event.revision
            return self._settle(event.now_ns, self._next_fragment(event.now_ns))
        if kind == "publish" and event.is_done:
            self.metadata = decode_ledger_metadata(self.proposed, self.ledger_id)
            self.value, self.revision = self.proposed, event.revision
            if self.reshape is not None:
                return self._leave_shape(event.now_ns)
            self.moved += len(self.holders) if self.is_moving else 0
            return self._settle(event.now_ns, self._next_fragment(event.now_ns))
        if kind == "publish":
            return self._ask_placements(event.now_ns)
        if kind == "unrepairable" and event.is_done:
            return self._let_go(EndRepairs(((self.ledger_id, self.epoch, self.mark_revision),)))
        if kind == "why":
            return self._give_back()  # For people; without it, too.
        return self._begin_anew(event.now_ns)

    def _ask_placements(self, now_ns: int) -> list[Effect]:
        """The transaction was refused, perhaps because a chosen bookie may not be named any more (P10.6)."""
        self.unread = set(self.compared)
        if not self.unread:
            return self._begin_anew(now_ns)
        number = self._ask("placements")[1]
        return [
            ReadKey(("placement", number, bookie_id), placement_path(bookie_id))
            for bookie_id in self.compared
        ]

    def _on_placement(self, event: KeyRead) -> list[Effect]:
        _, number, bookie_id = event.tag
        if self.asked is None or self.asked[0] != "placements" or self.asked[1] != number:
            return []
        revision = ABSENT if event.value is None else event.revision
        if self.compared[bookie_id] != revision:
            self.outdated.add((bookie_id, self.compared[bookie_id]))
        self.unread.discard(bookie_id)
        return [] if self.unread else self._begin_anew(event.now_ns)

    # The end.

    def _finish(self, kind: str) -> list[Effect]:
        copied = (self.copies, self.copied_bytes)
        self.outcome = RepairOutcome(self.ledger_id, kind, *copied, "", self.filled, self.moved)
        return self._let_go(EndRepairs(((self.ledger_id, self.epoch, self.mark_revision),)))

    def _give_up(self) -> list[Effect]:
        """Until something changes: first it is written down, which keeps every copy where it is, then the mark ends."""
        # What names an entry tells more than that nobody can take a seat.
        first = min(self.stopped, key=lambda each: each.entry_id == NO_ENTRY)
        self.outcome = RepairOutcome(
            self.ledger_id,
            "unrepairable",
            self.copies,
            self.copied_bytes,
            first.why[:WHY_CHARS_MAX],
            self.filled,
        )
        assert self.mark is not None
        found = Unrepairable(
            1,
            first.first_entry,
            first.entry_id,
            tuple(sorted({bookie for each in self.stopped for bookie in each.bookies})),
            self.outcome.why,
            circumstances(self.value, self.bookies),
            self.mark.created_ms,
        )
        when = [Compare(repairing_path(self.ledger_id), self.epoch)]
        put = Put(unrepairable_path(self.ledger_id), encode_unrepairable(found))
        return [Transact(self._ask("unrepairable"), when, [put])]

    def _postpone(self, why: str, *, kind: str = "postponed") -> list[Effect]:
        """Another try may go well. Why this one did not stands in the mark, for people."""
        told = why[:WHY_CHARS_MAX]
        self.outcome = RepairOutcome(self.ledger_id, kind, self.copies, self.copied_bytes, told, self.filled)
        if self.mark is None or progress_of(self.mark).why == told:
            return self._give_back()
        targets = progress_of(self.mark).targets
        return self._put_mark("why", with_progress(self.mark, MarkProgress(targets, told)))

    def _give_back(self) -> list[Effect]:
        return self._let_go(FailRepairs(((self.ledger_id, self.epoch),)))

    def _let_go(self, ending: EndRepairs | FailRepairs) -> list[Effect]:
        self.ending = ending
        return [AskQuorum(self._ask("end"), ending)]

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        """The mark ended, or is not held any more. A request that was refused for now is repeated: otherwise the ledger
        would stay locked for as long as this session lives. A session that is lost loses its holds."""
        if self.is_over or event.tag != self.asked:
            return []
        if isinstance(event.result, Refusal) and not is_unknown(event.result):
            self.asked, self.retry_at = None, event.now_ns + _LET_GO_NS
            return []
        return self._end()

    def _end(self) -> list[Effect]:
        self.is_over, self.copying, self.closing, self.retry_at = True, None, None, None
        return [Ended(None, self.outcome)]

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return [] if self.closing is None else self._closed(event.now_ns, self.closing.on_event(event))

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_over:
            return []
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            if self.ending is not None:
                return self._let_go(self.ending)
            return self._read("hold", repairing_path(self.ledger_id))
        if self.closing is not None:
            return self._closed(event.now_ns, self.closing.on_event(event))
        if self.copying is not None:
            return self._settle(event.now_ns, self.copying.on_tick(event.now_ns))
        return []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        KeyRead: _on_read,
        MetadataFailed: _on_failed,
        Transacted: _on_transacted,
        TransactRefused: _on_failed,
        TransactUnknown: _on_failed,
        QuorumAnswered: _on_quorum,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
