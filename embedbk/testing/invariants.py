"""Every promise of a ledger, checked after each event while a world runs (I1 to I40, L1 to L4, L12 to L14).

`Invariants` is an `Observer`: it keeps the ghost state, and runs for each event only the checks that it can break.
Steps of bookies go to `bookie_watch`, those of creators and recoverers to `handle_watch`; events of readers,
applications, disks and metadata are handled here. The checks stand by topic in `invariants_life`, `fencing`, `adding`,
`recovery` and `reading`; each names its property.

    world -- event --> Invariants -- before the ghost knows --> checks --> ghost -- after --> checks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from embedbk.client.reading import LedgerReading
from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, LedgerState, ledger_of_key
from embedbk.codec.log_list import Begun, LogList, LogSegment, decode_log_list
from embedbk.codec.metadata_messages import ABSENT, Txn, TxnDone
from embedbk.codec.registration import BOOKIES_PREFIX, PLACEMENTS_PREFIX, decode_registration
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.tombstone import DELETED_PREFIX
from embedbk.core.bookie import Bookie
from embedbk.core.client_words import Send
from embedbk.core.lac_reader import LacWait
from embedbk.core.log import LogTakeover
from embedbk.core.metadata_words import KeyRead
from embedbk.core.recovery import Recovery
from embedbk.core.vocabulary import Tick
from embedbk.core.writer import Writer
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.metadata.member import Member
from embedbk.metadata.vocabulary import Reply as MemberReply
from embedbk.metadata.vocabulary import RequestReceived as MemberRequest
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.testing import invariants_adding as adding
from embedbk.testing import invariants_life as life
from embedbk.testing import invariants_reading as reading
from embedbk.testing import invariants_recovery as recovery
from embedbk.testing.bookie_watch import BookieWatch
from embedbk.testing.ghost import BookieGhost, Ghost, LedgerGhost
from embedbk.testing.handle_watch import HandleWatch
from embedbk.testing.invariants_archives import ArchiveWatch
from embedbk.testing.invariants_bounds import BoundWatch
from embedbk.testing.invariants_cursors import CursorWatch
from embedbk.testing.invariants_logs import Logs
from embedbk.testing.invariants_names import LogNames
from embedbk.testing.invariants_placement import PlacementWatch, StrictPlacements
from embedbk.testing.observer import Observer
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["Ghost", "Invariants", "Sometimes"]

_SAME_TIME_MAX = 1_000  # Ticks of one core at one moment of its clock.
_TURN_STEPS_MAX = 100_000  # Steps of one node's cores at one moment, with no other node's between.


class Invariants(Observer):
    """Keeps the ghost state of one world and raises `Violation` at the first broken promise."""

    def __init__(self, reached: Counter[str] | None = None) -> None:
        """reached: where to count the facts of `sometimes`; an own counter when None."""
        self.ghost = Ghost()
        self.sometimes = Sometimes(reached)
        self._handles = HandleWatch(self.ghost, self.sometimes)
        self._cores: dict[type, Callable[[str, Any, Any, Sequence[Any]], None]] = {
            Bookie: BookieWatch(self.ghost, self.sometimes).on_step,
            Writer: self._handles.on_writer,
            Recovery: self._handles.on_recovery,
            LacWait: self._on_parked,
            Member: self._on_member,
        }
        self._logs = Logs(self.ghost)
        self._bounds = BoundWatch(self.ghost)
        self._cursors = CursorWatch(self.sometimes)
        self._archives = ArchiveWatch(self.sometimes, self._cursors)
        self._names = LogNames(self.sometimes.note)
        self._cores[LogTakeover] = self._logs.on_takeover
        self._lists: dict[str, frozenset[int]] = {}  # Key of a log's list -> the ledgers that it names.
        # Bookie that was listed as read-only last, or is drained -> revision of that (P10.6).
        self._closed: dict[str, int] = {}
        self._strict = StrictPlacements(self.sometimes)
        self._placements = PlacementWatch(self.sometimes, self._closed)
        self._parked: dict[Any, tuple[int, int]] = {}  # Reader core -> (second, requests sent in it).
        self._ticks: dict[Any, tuple[int, int]] = {}  # Core -> (time of its last tick, ticks at that time).
        self._turn = ("", -1)  # Node and time of the last step.
        self._turn_steps = 0  # Steps since then, all of this node at this time.
        self._lives: dict[str, int] = {}  # Node -> how often it was started.
        # (session, sequence) of a check that a member was asked for -> the marks that it wants absent.
        self._checks: dict[tuple[int, int], list[str]] = {}

    # Cores.

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        self.ghost.step += 1
        self._turn_ends(node, core, event)
        if type(event) is Tick:
            self._not_in_a_circle(node, core, event)
        if type(event) is KeyRead:
            self._note_naming(core, event)
        self._strict.look(core, effects)
        check = self._cores.get(type(core))
        if check is not None:
            check(node, core, event, effects)

    def _note_naming(self, core: Any, event: KeyRead) -> None:
        holder = core.changes if isinstance(core, Writer) else core
        naming = getattr(getattr(holder, "publishing", holder), "naming", None)
        if naming is not None and naming.is_mine(event) and naming.is_outdated:
            self.sometimes.note("placement was another")

    def on_add_sent(self, client: str, core: Writer, frame: Frame, send: Send) -> None:
        self.ghost.step += 1
        self._handles.on_add_sent(client, core, frame, send)

    def on_add_answered(self, client: str, core: Writer, send: Send) -> None:
        self._handles.on_add_answered(client, core, send)

    def _turn_ends(self, node: str, core: Any, event: Any) -> None:
        """L14: no turn of a node gives its cores events without end; the world would wait for it for ever."""
        turn = (node, event.now_ns)
        self._turn_steps = self._turn_steps + 1 if turn == self._turn else 0
        self._turn = turn
        if self._turn_steps > _TURN_STEPS_MAX:
            told = f"{type(core).__name__} of {node} is given {type(event).__name__}"
            raise Violation("L14", f"{told} without end at {event.now_ns}")

    def _not_in_a_circle(self, node: str, core: Any, event: Tick) -> None:
        """L14: no progress-free cycle. A core is not woken repeatedly while its clock stands still."""
        self.ghost.note_clock(node, event.now_ns)
        when, count = self._ticks.get(core, (-1, 0))
        count = count + 1 if when == event.now_ns else 1
        self._ticks[core] = (event.now_ns, count)
        if count > _SAME_TIME_MAX:
            raise Violation(
                "L14", f"{type(core).__name__} of {node} wants a tick without end at {event.now_ns}"
            )

    # Readers.

    def _on_parked(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        sends = sum(1 for effect in effects if type(effect) is Send)
        if sends:
            second, count = self._parked.get(core, (0, 0))
            now = event.now_ns // 1_000_000_000
            count = count + sends if second == now else sends
            self._parked[core] = (now, count)
            reading.parked_reader_is_quiet(core.metadata.ledger_id, count)

    def on_read(
        self, client: str, ledger_id: int, entries: Sequence[tuple[int, bytes]], is_unconfirmed: bool
    ) -> None:
        ghost = self.ghost
        ledger = ghost.ledger(ledger_id)
        for entry_id, payload in entries:
            if not is_unconfirmed:
                reading.nothing_past_the_end(ledger, entry_id)
                reading.read_is_clean(ledger, entry_id)
                ledger.read_last = max(ledger.read_last, entry_id)
            reading.read_is_repeatable(ledger, entry_id, payload)
            if ghost.is_healed:
                ledger.read_healed.add(entry_id)
        if is_unconfirmed:
            self.sometimes.note("read unconfirmed")
        elif ledger.closed is None:
            self.sometimes.note("read on an open ledger")

    def on_read_failed(self, client: str, ledger_id: int, entry_id: int, error: Exception) -> None:
        ledger = self.ghost.ledger(ledger_id)
        reading.nothing_is_unread_again(ledger, entry_id, error)
        ledger.is_refused = ledger.is_refused or self.ghost.is_healed

    def on_reader_lac(self, client: str, ledger_id: int, lac: int, is_closed: bool, handle: Hashable) -> None:
        ledger = self.ghost.ledger(ledger_id)
        reading.reader_lac_is_true(client, ledger, lac, is_closed=is_closed)
        reading.reader_lac_rises(self.ghost, client, ledger, lac, handle)
        if isinstance(handle, LedgerReading):
            reading.own_appends_are_shown(client, ledger, lac)

    def on_copies(self, client: str, ledger_id: int, entry_id: int, count: int) -> None:
        reading.copies_are_there(self.ghost, client, self.ghost.ledger(ledger_id), entry_id, count)

    # Applications.

    def on_sent(self, client: str, writing: Any, ledger_id: int, entry_id: int, payload: bytes) -> None:
        self.ghost.ledger(ledger_id).given[entry_id] = bytes(payload)

    def on_append(self, client: str, log: str, epoch: int, bytes_max: int) -> None:
        self._bounds.on_append(client, log, epoch, bytes_max)

    def on_acked(self, client: str, writing: Any, ledger_id: int, lac: int) -> None:
        ledger = self.ghost.ledger(ledger_id)
        metadata = ledger.metadata
        kept = metadata.last_entry if metadata is not None and metadata.is_closed else None
        if kept is not None and ledger.acked < lac <= kept:
            self.sometimes.note("kept by a stray recovery")  # P8.2: the ledger failed, and ended there.
        elif lac > ledger.acked:
            raise Violation(
                "I13", f"an application was told {lac} of ledger {ledger_id}, the writer had {ledger.acked}"
            )
        self._logs.on_acked(client, ledger_id)
        ledger.acked_to[client] = lac

    def on_failed(
        self, client: str, writing: Any, ledger_id: int, first_entry: int, error: Exception
    ) -> None:
        ledger = self.ghost.ledger(ledger_id)
        adding.never_both(ledger, ledger.acked)
        handle = self.ghost.writers.get(writing.core) if writing is not None else None
        if handle is not None:
            handle.failed = True  # Also one that its application released: its core takes no step any more.
        if first_entry <= ledger.acked:
            raise Violation(
                "I39",
                f"ledger {ledger_id}: entry {first_entry} is told to have failed; {ledger.acked} was acknowledged",
            )

    def on_recovered(
        self, client: str, ledger_id: int, metadata: LedgerMetadata | None, error: Exception | None
    ) -> None:
        ledger = self.ghost.ledger(ledger_id)
        if metadata is not None:
            recovery.recovered_is_what_closed(ledger, metadata)
            ledger.is_refused = False
        elif self.ghost.is_healed:
            ledger.is_refused = True

    # Nodes and disks.

    def on_started(
        self, node: str, role: str, incarnation: bytes, last_token: int, may_have_lost: bool
    ) -> None:
        self.ghost.up.add(node)
        self._lives[node] = self._lives.get(node, 0) + 1
        if role == "bookie":
            bookie = self.ghost.restart(node, incarnation, last_token)
            if may_have_lost:
                self.ghost.forget(bookie)
                self.sometimes.note("unclean start")
            if self._lives[node] > 1:
                self.sometimes.note("bookie restarted")

    def on_found(self, node: str, ledger_id: int, is_fenced: bool, entry_ids: Sequence[int]) -> None:
        bookie, ledger = self.ghost.bookies[node], self.ghost.ledger(ledger_id)
        bookie.traces.add(ledger_id)
        for entry_id in entry_ids:
            ledger.stable[entry_id] = ledger.stable.get(entry_id, 0) | bookie.bit
            if bookie.owed_limbo is not None and entry_id in ledger.damaged:
                ledger.damaged[entry_id] &= ~bookie.bit  # This one is not among what was lost.
        if is_fenced:
            bookie.stable_fences.add(ledger_id)

    def on_found_late(self, node: str, ledger_id: int, is_fenced: bool, entry_ids: Sequence[int]) -> None:
        """An entry whose index was lost is on the disk as before, unless it is one that only this process has."""
        bookie, ledger = self.ghost.bookies[node], self.ghost.ledger(ledger_id)
        queued = {
            entry_id for _, kept_of, entries in bookie.queued if kept_of == ledger_id for entry_id in entries
        }
        for entry_id in entry_ids:
            if entry_id not in queued:
                ledger.stable[entry_id] = ledger.stable.get(entry_id, 0) | bookie.bit

    def on_found_dropped(self, node: str, ranges: Sequence[tuple[int, int]]) -> None:
        for first, last in ranges:
            self.ghost.bookies[node].stable_fences.update(range(first, last + 1))

    def on_stopped(self, node: str) -> None:
        ghost = self.ghost
        ghost.up.discard(node)
        ghost.paused.discard(node)
        for ledger in ghost.ledgers.values():
            ledger.acked_to.pop(node, None)
        for core in [core for core, handle in ghost.recoveries.items() if handle.node == node]:
            del ghost.recoveries[core]
        self._logs.on_stopped(node)
        self.sometimes.note("process killed")

    def on_forgotten(self, client: str, core: Any) -> None:
        self.ghost.recoveries.pop(core, None)
        self._logs.on_forgotten(core)

    def on_durable(self, node: str, token: int) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            self.ghost.take_durable(bookie, token)

    def on_disk_lost(self, node: str) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            bookie.is_lost = True
            self.ghost.lost |= bookie.bit
            self._recount(bookie)
        self.sometimes.note("disk lost")

    def on_disk_harmed(self, node: str) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            bookie.is_lost = True  # As copies: what it held it must not call absent (I31).
            self.ghost.lost |= bookie.bit
            self._recount(bookie)
        self.sometimes.note("disk harmed")

    def on_disk_doubted(self, node: str) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            self.ghost.doubt(bookie)
            self._recount(bookie)
        self.sometimes.note("disk doubted")

    def on_disk_copied(self, node: str) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            bookie.other_owes = None if bookie.owed_limbo is None else list(bookie.owed_limbo)
            bookie.listed_by_other = None

    def on_copy_doubted(self, node: str) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            bookie.listed_by_other = self.ghost.owing(bookie)

    def on_places_changed(self, node: str) -> None:
        bookie = self.ghost.bookies[node]
        bookie.owed_limbo, bookie.other_owes = bookie.other_owes, bookie.owed_limbo
        bookie.listed, bookie.listed_by_other = bookie.listed_by_other, None

    def on_damaged(self, node: str, ledger_id: int, entry_id: int) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            damaged = self.ghost.ledger(ledger_id).damaged
            damaged[entry_id] = damaged.get(entry_id, 0) | bookie.bit
        self.sometimes.note("copy damaged")

    def _recount(self, bookie: BookieGhost) -> None:
        for ledger in self.ghost.ledgers.values():
            adding.acknowledged_is_kept(self.ghost, ledger, 0, ledger.acked)

    def on_paused(self, node: str, is_paused: bool) -> None:
        if is_paused:
            self.ghost.paused.add(node)
            self.sometimes.note("node paused")
        else:
            self.ghost.paused.discard(node)

    # Metadata.

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if key.startswith((DELETED_PREFIX, REPAIR_PREFIX)):
            self._on_sign(revision, key, is_there=new is not None)
        self._cursors.take_key(revision, key, new)
        self._archives.take_key(key, new)
        self._names.take_key(revision, key, new)
        self._placements.take_key(revision, key, new)
        if key.startswith(PLACEMENTS_PREFIX):
            self.ghost.placements[key] = ABSENT if new is None else revision
        if key.startswith(("/logs/", "/log-pages/")):
            self._on_log(key, new)
        if key.startswith(BOOKIES_PREFIX) and new is not None:
            self._on_registration(revision, key.removeprefix(BOOKIES_PREFIX), new)
        if not key.startswith(LEDGERS_PREFIX):
            return
        ghost = self.ghost
        ledger_id = ledger_of_key(key)
        if ledger_id is None:
            self.sometimes.note("strange key met")  # A stranger's key: no node may act on it.
            return
        ledger = ghost.ledger(ledger_id)
        if new is None:
            life.deletion_is_final(ledger)
            life.listed_is_there(ghost, self._lists, [ledger.ledger_id], ledger.ledger_id)
            ghost.take_metadata(ledger, revision, None)
            self.sometimes.note("ledger deleted")
            return
        value = life.types_are_right(ledger.ledger_id, new)
        life.fragments_are_sane(value)
        life.change_is_allowed(ledger, revision, value)
        life.closed_once(ledger, value)
        life.change_starts_at_the_lac(ledger, value)
        life.recovery_publishes_once(ledger, value)
        life.named_while_it_may_be(ledger, value, self._closed)
        life.repair_is_safe(ghost, ledger, value)
        life.lost_is_lost(ghost, ledger, value, self._placements.retired)
        life.published_is_what_was_made(ledger, value)
        self._archives.may_be_freed(ledger, value)
        if value.is_closed:
            life.acked_is_inside(ledger, value)
            life.length_is_the_sum(ledger, value)
            if value.last_entry is not None and ledger.read_last > value.last_entry:
                reading.nothing_is_unread_again(ledger, ledger.read_last, None)
            if ledger.closed is None:
                life.closed_is_replicated(ghost, ledger, value)
        before = ledger.metadata
        ghost.take_metadata(ledger, revision, value)
        if before is not None:
            self._note_change(ledger, before, value)
            if before.fragments != value.fragments:
                adding.acknowledged_is_kept(ghost, ledger, 0, ledger.acked)

    def _on_registration(self, revision: int, bookie_id: str, new: bytes) -> None:
        try:
            registration = decode_registration(new, bookie_id)
        except StorageError:
            return  # A stranger's.
        self._strict.locations[bookie_id] = registration.location
        if registration.is_writable or registration.placement is None:
            self._closed.pop(bookie_id, None)
        else:
            self._closed.setdefault(bookie_id, revision)
            self.sometimes.note("placement raised")

    def _on_log(self, key: str, new: bytes | None) -> None:
        """A log's list comes, changes or goes; or what left it, and is deleted behind it."""
        if key.endswith("/left"):
            self.sometimes.note("empty ledger left its log")
        elif key.endswith("/pins"):
            self._logs.take_pins(key, new)
        elif key.startswith("/log-pages/"):
            self._logs.take_page(key, new)
            self.sometimes.note("page of a list written" if new is not None else "page of a list removed")
        elif key.endswith("/deleted"):  # What it names is there as long as it may come back (P8.13).
            put_aside = self._logs.whole(key, decode_log_list(new)) if new is not None else None
            named = [each.ledger_id for each in put_aside.segments] if put_aside is not None else []
            self._lists[key] = frozenset(named)
            life.listed_is_there(self.ghost, self._lists, named)
        elif key.endswith("/list"):
            log_list = self._logs.whole(key, decode_log_list(new)) if new is not None else None
            for each in log_list.segments if log_list is not None else ():
                self._archives.take_begin(each.ledger_id, each.first_offset)
            named = [each.ledger_id for each in log_list.segments] if log_list is not None else []
            self._lists[key] = frozenset(named)
            if new is None:
                self.sometimes.note("log deleted")
            life.listed_is_there(self.ghost, self._lists, named)
            self._cursors.take_list(
                key.split("/")[2], log_list.first_offset if log_list is not None else None
            )
            self._bounds.take_list(key.split("/")[2], log_list)
            self._note_roll(self._logs.take(key, log_list), log_list)

    def _note_roll(self, before: tuple[LogSegment, ...], log_list: LogList | None) -> None:
        newest = log_list.segments[-1] if log_list is not None and log_list.segments else None
        if newest is not None and newest.begun == Begun.FAILURE and newest not in before:
            self.sometimes.note("log went on behind a failure")
        if newest is not None and newest.begun == Begun.SETTINGS and newest not in before:
            self.sometimes.note("log rolled for its settings")
        fresh = [] if log_list is None else [each for each in log_list.segments if each not in before]
        if fresh and any(each.begun == Begun.SPLICE for each in fresh) and fresh[-1].last_entry is None:
            self.sometimes.note("splice beside a writer")
        if log_list is None or not before or before[-1].first_offset is not None:
            return
        ours = next((each for each in log_list.segments if each.ledger_id == before[-1].ledger_id), None)
        if ours is not None and ours.last_entry is None:
            self.sometimes.note("log rolled")
        else:
            self.sometimes.note("prepared ledger closed by a takeover")

    def _on_sign(self, revision: int, key: str, *, is_there: bool) -> None:
        """A tombstone or a repair mark comes or goes."""
        prefix = DELETED_PREFIX if key.startswith(DELETED_PREFIX) else REPAIR_PREFIX
        ledger_id = ledger_of_key(key, prefix)
        if ledger_id is None:
            return
        ledger = self.ghost.ledger(ledger_id)
        if prefix == REPAIR_PREFIX:
            if is_there and not ledger.is_marked:
                ledger.copied.clear()
            ledger.is_marked = is_there
            return
        ledger.has_tombstone = is_there
        if not is_there:
            ledger.tombstone_gone = revision

    def _on_member(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        """A collector's check changes nothing, so only the member's answer shows that it was made, in the very step in
        which it was (P7.7)."""
        request = event.request if type(event) is MemberRequest else None
        if request is not None and type(request.operation) is Txn and not request.operation.then:
            marks = [each.key for each in request.operation.when if each.key.startswith(REPAIR_PREFIX)]
            if marks:
                self._checks[request.session, request.sequence] = marks
        if not self._checks:
            return
        for effect in effects:
            if type(effect) is not MemberReply:
                continue
            reply = effect.reply
            marks = self._checks.pop((reply.session, reply.sequence), [])
            if type(reply.result) is TxnDone and reply.result.is_done:
                for key in marks:
                    self.ghost.ledger(int(key[len(REPAIR_PREFIX) :], 16)).unmarked_step = self.ghost.step

    def _note_change(self, ledger: LedgerGhost, old: LedgerMetadata, new: LedgerMetadata) -> None:
        note = self.sometimes.note
        if new.is_closed and not old.is_closed:
            note("closed by its writer" if old.state == LedgerState.OPEN else "closed by recovery")
            if new.last_entry == NO_ENTRY:
                note("closed empty")
            elif new.last_entry is not None and new.fragments[-1].first_entry > new.last_entry:
                note("last fragment empty")
            if new.last_entry is not None and new.last_entry > ledger.acked:
                note("recovered above the acknowledged")
            if old.state == LedgerState.IN_RECOVERY and new.fragments != old.fragments:
                note("ensemble changed in recovery")
        elif new.state == old.state == LedgerState.OPEN and len(new.fragments) == len(old.fragments):
            note("fragment replaced")
        elif new.is_closed and new.fragments != old.fragments and old.freed is new.freed is None:
            note("seats repaired")
        if len(new.sums) > len(old.sums):
            note("sums published" if new.is_closed else "sums published by a change")
        if new.lost != old.lost:
            note("end named for a ledger" if new.lost[-1].is_end_named else "entries given up")

    def on_archived(self, log_id: str, ledger_id: int, manifest: bytes, content: bytes) -> None:
        self._archives.take_written(log_id, ledger_id, manifest, content)

    # The whole.

    def on_healed(self) -> None:
        self.ghost.healed = {}

    def at_end(self, storages: dict[str, DurableBookie], wanted: Collection[int]) -> None:
        ghost = self.ghost
        for ledger in ghost.ledgers.values():
            if ledger.ledger_id in wanted:
                reading.everything_came_to_rest(ledger)
            reading.acknowledged_is_readable(ledger)
            life.copies_are_the_same(ledger, storages)
        self._handles.at_end()
        self._logs.at_end()
        self._names.settle()
        for name, storage in storages.items():
            bookie = ghost.bookies.get(name)
            if bookie is not None and not bookie.is_lost:
                for ledger in ghost.ledgers.values():
                    life.nothing_was_collected(bookie, ledger, storage)
