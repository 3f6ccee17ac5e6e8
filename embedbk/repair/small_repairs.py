"""One worker's repair of many small ledgers side by side, under their holds (P11.2).

Decides which of them are small, what all of them ask at once, and what becomes of one that fails. A ledger is small if
it is CLOSED, has one fragment and few bytes, and has its shape for good, and if only the seats that it lost are to be
filled. Every other one, and every one of which anything goes another way, goes the single road (`ledger_repair`), which
reads all of it anew and decides what becomes of the mark (P11.2). So this machine ends marks of repaired ledgers only.

    marks and ledgers read, ─▶ the settings ─▶ targets, written  ─▶ copies: one  ─▶ published by one ─▶ the marks
    by runs of ids             of their logs   into all marks       `FragmentCopy`   compare-and-set     end
          │                       │            by one transaction   of each ledger       │
          └───────────────────────┴── single road ◀──┴── one that fails ──┴──────────────┘

What a repair promises holds for each of them as on the single road. The target stands in the mark before the ledger's
first copy. A ledger is in the transaction that publishes only when all of its copies are durable (I36). Each
transaction compares, for each of its ledgers, the hold and the mark; the one that publishes also compares the ledger,
and the placements of all targets as they were when they were chosen (P10.6).

A transaction that is refused changed nothing of any of them. It does not say which comparison failed, so it is asked
again in halves: what is refused alone goes the single road, and the others are done. If that happens too often, all
that are left go it. A transaction of unknown outcome is not asked again: the single road reads what came of it.

Reads and copies of all of them travel together, one message for each bookie (`copy_gathering`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec.structs import replace

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.metadata_messages import Compare, Put, Refusal
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import (
    REPAIR_PREFIX,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    repair_mark_path,
)
from embedbk.codec.repair_messages import EndRepairs
from embedbk.config import ANYWHERE, Placement
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import Chance
from embedbk.core.repair_words import AskQuorum, HeldMark, QuorumAnswered, RepairOutcome, SmallRepaired
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.metadata.claims import repairing_path
from embedbk.metadata.client import is_unknown
from embedbk.repair.copy_gathering import CopyGathering
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import USUAL_COPYING, CopyOptions, FragmentCopy
from embedbk.repair.reshaping import is_misfit, log_of, shape_of_settings
from embedbk.repair.target_choice import choose_holders, lost_seats, mark_with_targets, placement_with_racks

__all__ = ["SmallRepairs"]

_SECOND = 1_000_000_000
_LET_GO_NS = _SECOND  # Behind a refused request to end the marks.
_COMPARED_MAX = 120  # Comparisons of one transaction, without those of placements.
_PLACEMENTS_MAX = 8  # Placements that one transaction compares.
_PUT_BYTES_MAX = 512 << 10  # What one transaction puts.
_REFUSED_MAX = 12  # Transactions that may be refused; then all that are left go the single road.
_ENTRY_BYTES = 64  # That an entry counts for beside its payload.
_NUMBERS_EACH = 1 << 32  # Numbers of questions that belong to one ledger.


@dataclass(slots=True)
class _Small:
    """One ledger on its way. place: among those of this machine."""

    place: int
    ledger_id: int
    epoch: int
    mark_revision: int
    mark: RepairMark | None = None
    metadata: LedgerMetadata | None = None
    revision: int = 0  # The revision of the ledger's metadata.
    size: int = 0  # Bytes of all of its entries, as far as its metadata says that.
    holders: dict[int, Member] = field(default_factory=dict)
    marked: RepairMark | None = (
        None  # The mark that names its targets; the same one where it does so already.
    )
    copying: FragmentCopy | None = None
    is_repaired: bool = False
    is_alone: bool = False  # It goes the single road.


class SmallRepairs(Machine):
    """Ends with `SmallRepaired`. What it repaired is held no more; the others are held as before."""

    def __init__(
        self,
        held: Sequence[HeldMark],
        bookies: tuple[BookieInfo, ...],
        nonce: int,
        chance: Chance,
        pace: CopyPace,
        placement: Placement = ANYWHERE,
        options: CopyOptions = USUAL_COPYING,
        *,
        may_reshape: bool = False,
    ) -> None:
        """may_reshape: as `LedgerRepair` takes it."""
        self.bookies = bookies
        self.nonce = nonce
        self.chance = chance
        self.pace = pace
        self.placement = placement
        self.options = options
        self.may_reshape = may_reshape
        self.ledgers = [_Small(place, *each) for place, each in enumerate(sorted(held))]
        self.by_id = {each.ledger_id: each for each in self.ledgers}
        self.questions = 0
        # Number of a question that is out -> the ledgers that it is about.
        self.asked: dict[int, tuple[_Small, ...]] = {}
        self.phase = "reading"
        self.placements: dict[Member, int | None] = {}  # Chosen target -> revision of its placement then.
        self.refused = 0
        self.gathering = CopyGathering(nonce, options)
        self.due: dict[int, int] = {}  # Place of a ledger that is copied -> when its copying wants a tick.
        self.retry_at: int | None = None
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        return None if self.is_over else earliest(self.retry_at, min(self.due.values(), default=None))

    def _left(self) -> list[_Small]:
        return [each for each in self.ledgers if not each.is_alone and not each.is_repaired]

    # One phase behind the other: each begins when every question of the one before was answered.

    def _tag(self, kind: str, about: Iterable[_Small]) -> tuple[str, int]:
        self.questions += 1
        self.asked[self.questions] = tuple(about)
        return kind, self.questions

    def _take(self, event: Any, *kinds: str) -> tuple[_Small, ...] | None:
        """The ledgers that this answer is about; None: it was not asked for."""
        if self.is_over or event.tag[0] not in kinds:
            return None
        return self.asked.pop(event.tag[1], None)

    def _go_on(self, now_ns: int) -> list[Effect]:
        """Begin the next phase when this one is over."""
        effects: list[Effect] = []
        while not self.asked and not self.is_over and not effects and not self.due:
            if self.phase == "reading":
                self.phase = "settings"
                effects = self._read_settings()
            elif self.phase == "settings":
                self.phase = "targets"
                effects = self._name_targets()
            elif self.phase == "targets":
                self.phase = "copying"
                effects = self._begin_copying(now_ns)
            elif self.phase == "copying":
                self.phase = "publishing"
                effects = self._publish(self._left())
            elif self.phase == "publishing":
                self.phase = "ending"
                effects = self._end_marks()
            else:
                return self._end()
        return effects

    def _on_started(self, event: Started) -> list[Effect]:
        effects = [*self._read("mark", REPAIR_PREFIX, repair_mark_path)]
        return [*effects, *self._read("ledger", LEDGERS_PREFIX, ledger_key_path)]

    # Reading.

    def _read(self, kind: str, prefix: str, path: Callable[[int], str]) -> Iterator[Effect]:
        """Runs of ids by pages, and what stands by itself by its key."""
        for run in _runs(self.ledgers):
            first, last = run[0].ledger_id, run[-1].ledger_id
            if len(run) == 1:
                yield ReadKey(self._tag(kind, run), path(first))
            else:
                after = path(first - 1) if first else prefix
                yield ListKeys(self._tag(kind, run), prefix, after, last - first + 1)

    def _on_listed(self, event: KeysListed) -> list[Effect]:
        about = self._take(event, "mark", "ledger")
        if about is None:
            return []
        prefix = REPAIR_PREFIX if event.tag[0] == "mark" else LEDGERS_PREFIX
        wanted = {each.ledger_id: each for each in about}
        for (key, value), revision in zip(event.records, event.revisions, strict=True):
            ledger_id = ledger_of_key(key, prefix)
            if ledger_id in wanted:
                self._note(wanted[ledger_id], event.tag[0], value, revision)
        return self._go_on(event.now_ns)

    def _on_read(self, event: KeyRead) -> list[Effect]:
        about = self._take(event, "mark", "ledger", "settings")
        if about is None:
            return []
        if event.tag[0] == "settings":
            self._judge_shapes(about, event.value)
        elif event.value is not None:
            self._note(about[0], event.tag[0], event.value, event.revision)
        return self._go_on(event.now_ns)

    def _note(self, each: _Small, kind: str, value: bytes, revision: int) -> None:
        try:
            if kind == "mark":
                # The single road knows what to do with another mark than the one that was held.
                if revision == each.mark_revision:
                    each.mark = decode_repair_mark(value)
            else:
                each.metadata, each.revision = decode_ledger_metadata(value, each.ledger_id), revision
        except StorageError:
            each.is_alone = True

    def _on_failed(self, event: MetadataFailed | TransactUnknown | TransactRefused) -> list[Effect]:
        about = self._take(event, "mark", "ledger", "settings", "target", "publish")
        if about is None:
            return []
        self._leave(about)
        return self._go_on(event.now_ns)

    def _leave(self, about: Iterable[_Small]) -> None:
        """To the single road."""
        for each in about:
            each.is_alone = True

    # Which of them are small.

    def _read_settings(self) -> list[Effect]:
        """Read the settings of logs whose ledgers may have to get another shape, each log once."""
        staying = frozenset(info.member for info in self.bookies if not info.is_leaving)
        placement = placement_with_racks(self.placement, self.bookies)
        for each in self._left():
            each.is_alone = not self._is_small(each, staying, placement)
        logs: dict[str, list[_Small]] = {}
        for each in self._left():
            assert each.metadata is not None
            log = log_of(each.metadata)
            if self.may_reshape and log is not None:
                logs.setdefault(log, []).append(each)
        return [ReadKey(self._tag("settings", about), log_settings_path(log)) for log, about in logs.items()]

    def _is_small(self, each: _Small, staying: frozenset[Member], placement: Placement) -> bool:
        mark, metadata = each.mark, each.metadata
        if mark is None or metadata is None or not metadata.is_closed or len(metadata.fragments) != 1:
            return False
        if metadata.freed is not None or metadata.lost:
            return False
        assert metadata.last_entry is not None
        each.size = (metadata.length or 0) + _ENTRY_BYTES * (metadata.last_entry + 1)
        is_small = each.size <= self.options.small_bytes
        return is_small and self._loses_seats(each, mark, metadata, staying, placement)

    def _loses_seats(
        self,
        each: _Small,
        mark: RepairMark,
        metadata: LedgerMetadata,
        staying: frozenset[Member],
        placement: Placement,
    ) -> bool:
        """Whether lost seats, and no others, are to be filled, and there is a bookie for each. staying: bookies that
        keep their seats."""
        fragment, missing = metadata.fragments[0], frozenset(mark.missing)
        lost = lost_seats(fragment, missing, staying)
        if not lost or any(
            seat not in lost for seat, (name, _) in enumerate(fragment.ensemble) if name in missing
        ):
            return False
        each.holders = choose_holders(metadata, fragment, lost, mark, self.bookies, placement, self.chance)
        return len(each.holders) == len(lost)

    def _judge_shapes(self, about: tuple[_Small, ...], value: bytes | None) -> None:
        for each in about:
            assert each.metadata is not None
            log = log_of(each.metadata)
            assert log is not None
            each.is_alone = is_misfit(each.metadata, shape_of_settings(value, log))

    # Targets.

    def _name_targets(self) -> list[Effect]:
        """Into all marks, before the first copy."""
        now = {info.member: info.placement for info in self.bookies}
        for each in self._left():
            self.placements.update((member, now[member]) for member in each.holders.values())
            assert each.mark is not None
            each.marked = mark_with_targets(each.mark, tuple(each.holders.values()))
        return self._put_targets([each for each in self._left() if each.marked is not each.mark])

    def _put_targets(self, about: list[_Small]) -> list[Effect]:
        effects: list[Effect] = []
        values = {each.place: encode_repair_mark(each.marked) for each in about if each.marked is not None}
        for part in _parts(about, values, 2):
            when = [compare for each, _ in part for compare in _own(each)]
            then = [Put(repair_mark_path(each.ledger_id), value) for each, value in part]
            effects.append(Transact(self._tag("target", (each for each, _ in part)), when, list(then)))
        return effects

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        kind = event.tag[0]
        about = self._take(event, "target", "publish")
        if about is None:
            return []
        if not event.is_done:
            return self._halve(event.now_ns, kind, about)
        for each in about:
            if kind == "target":
                each.mark, each.mark_revision = each.marked, event.revision
            else:
                each.is_repaired = True
        return self._go_on(event.now_ns)

    def _halve(self, now_ns: int, kind: str, about: tuple[_Small, ...]) -> list[Effect]:
        """One of them at least has changed."""
        self.refused += 1
        if len(about) == 1 or self.refused > _REFUSED_MAX:
            self._leave(about)
            return self._go_on(now_ns)
        middle = len(about) // 2
        ask = self._put_targets if kind == "target" else self._publish
        return [effect for half in (about[:middle], about[middle:]) for effect in ask(list(half))]

    # Copying.

    def _begin_copying(self, now_ns: int) -> list[Effect]:
        there = frozenset(info.member for info in self.bookies)
        asked: list[tuple[Effect, int]] = []
        for each in self._left():
            assert each.metadata is not None
            away = frozenset(
                seat for seat, member in enumerate(each.metadata.fragments[0].members) if member not in there
            )
            numbers = each.place * _NUMBERS_EACH
            each.copying = FragmentCopy(
                each.metadata, 0, each.holders, away, self.nonce, self.pace, self.options, numbers
            )
            asked += self._drive(each, each.copying.begin(now_ns))
        return self.gathering.gathered(asked)

    def _drive(self, each: _Small, effects: list[Effect]) -> list[tuple[Effect, int]]:
        """Note when its copying wants a tick, and what came of it once it is over. What it asks, with its bytes."""
        copying = each.copying
        assert copying is not None
        deadline_ns = copying.deadline_ns if copying.result is None else None
        if deadline_ns is not None:
            self.due[each.place] = deadline_ns
        else:
            self.due.pop(each.place, None)
            assert copying.result is not None
            each.is_alone = copying.result.kind != "done"
        return [(effect, each.size) for effect in effects]

    def _on_answer(self, event: Answered | SendFailed) -> list[Effect]:
        """Each ledger learns what is told of it, and of nothing else."""
        if self.is_over:
            return []
        parts, left = self.gathering.taken_apart(event)
        asked: list[tuple[Effect, int]] = []
        for part in parts:
            each = self._asker(part)
            if each.copying is None or each.place not in self.due:
                continue
            if isinstance(part, Answered):
                asked += self._drive(each, each.copying.on_answered(part))
            else:
                asked += self._drive(each, each.copying.on_send_failed(part))
        again = [send for send in left if self._asker(send).place in self.due]
        return [*again, *self.gathering.gathered(asked), *self._go_on(event.now_ns)]

    def _asker(self, about: Answered | SendFailed | Send) -> _Small:
        number: int = about.tag[1]
        return self.ledgers[(number - 1) // _NUMBERS_EACH]

    # Publishing.

    def _publish(self, about: list[_Small]) -> list[Effect]:
        """Each with the seats of its fragment; nothing else of a ledger changes."""
        effects: list[Effect] = []
        for part in _parts(about, {each.place: self._published(each) for each in about}, 3):
            targets = {member for each, _ in part for member in each.holders.values()}
            noted = {member.bookie_id: self.placements[member] for member in targets}
            when = [compare for each, _ in part for compare in _own(each)]
            when += [Compare(ledger_key_path(each.ledger_id), each.revision) for each, _ in part]
            when += [
                Compare(placement_path(bookie_id), number)
                for bookie_id, number in sorted(noted.items())
                if number is not None
            ]
            then = [Put(ledger_key_path(each.ledger_id), value) for each, value in part]
            effects.append(Transact(self._tag("publish", (each for each, _ in part)), when, list(then)))
        return effects

    def _published(self, each: _Small) -> bytes:
        metadata = each.metadata
        assert metadata is not None
        old = metadata.fragments[0]
        seats = (each.holders.get(seat, member) for seat, member in enumerate(old.members))
        ensemble = tuple((member.bookie_id, member.incarnation) for member in seats)
        return encode_ledger_metadata(metadata.with_changes(fragments=(replace(old, ensemble=ensemble),)))

    # The end.

    def _end_marks(self) -> list[Effect]:
        """One that has changed meanwhile stays, for the next repair."""
        done = tuple(
            (each.ledger_id, each.epoch, each.mark_revision) for each in self.ledgers if each.is_repaired
        )
        return [AskQuorum(self._tag("end", ()), EndRepairs(done))] if done else []

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        """A request that was refused for now is repeated: otherwise the ledgers would stay locked for as long as this
        session lives. A session that is lost loses its holds."""
        if self._take(event, "end") is None:
            return []
        if isinstance(event.result, Refusal) and not is_unknown(event.result):
            self.retry_at = event.now_ns + _LET_GO_NS
            return []
        return self._go_on(event.now_ns)

    def _end(self) -> list[Effect]:
        self.is_over, self.due, self.retry_at = True, {}, None
        outcomes = tuple(
            RepairOutcome(each.ledger_id, "repaired", each.copying.copies, each.copying.copied_bytes)
            for each in self.ledgers
            if each.is_repaired and each.copying is not None
        )
        alone = tuple(
            HeldMark(each.ledger_id, each.epoch, each.mark_revision) for each in self.ledgers if each.is_alone
        )
        return [Ended(None, SmallRepaired(outcomes, alone, self.refused))]

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_over:
            return []
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            return self._end_marks()
        asked: list[tuple[Effect, int]] = []
        for place, due_ns in list(self.due.items()):
            copying = self.ledgers[place].copying
            if event.now_ns >= due_ns and copying is not None:
                asked += self._drive(self.ledgers[place], copying.on_tick(event.now_ns))
        return self.gathering.gathered(asked) or self._go_on(event.now_ns)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        KeyRead: _on_read,
        KeysListed: _on_listed,
        MetadataFailed: _on_failed,
        Transacted: _on_transacted,
        TransactRefused: _on_failed,
        TransactUnknown: _on_failed,
        QuorumAnswered: _on_quorum,
        Answered: _on_answer,
        SendFailed: _on_answer,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }


def _own(each: _Small) -> tuple[Compare, Compare]:
    """What every transaction compares for each of its ledgers."""
    hold, mark = repairing_path(each.ledger_id), repair_mark_path(each.ledger_id)
    return Compare(hold, each.epoch), Compare(mark, each.mark_revision)


def _runs(ledgers: Sequence[_Small]) -> Iterator[tuple[_Small, ...]]:
    """Parts of these, in the order of their ids: in each the next id is near, so that a page has few others."""
    run: list[_Small] = []
    for each in ledgers:
        if run and each.ledger_id - run[-1].ledger_id > 4:
            yield tuple(run)
            run = []
        run.append(each)
    if run:
        yield tuple(run)


def _parts(
    about: list[_Small], values: dict[int, bytes], compared: int
) -> Iterator[list[tuple[_Small, bytes]]]:
    """What fits into one transaction each. compared: keys of each ledger that it compares."""
    part: list[tuple[_Small, bytes]] = []
    size, targets = 0, set[Member]()
    for each in about:
        value = values[each.place]
        more = targets.union(each.holders.values())
        is_full = (
            (len(part) + 1) * compared > _COMPARED_MAX
            or size + len(value) > _PUT_BYTES_MAX
            or len(more) > _PLACEMENTS_MAX
        )
        if part and is_full:
            yield part
            part, size, more = [], 0, set(each.holders.values())
        part.append((each, value))
        size, targets = size + len(value), more
    if part:
        yield part
