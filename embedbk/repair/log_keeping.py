"""What logs' settings ask for and nobody else does, by one elected host: the retention of logs that nobody writes
(P8.8), and the numbers of copies of closed ledgers (P2.6).

Elected is whoever is the auditor (P11.1): the keeper reads that lock, whose value is its own host's, and stands for
nothing itself. Two at once do no harm, and neither does an owner beside it: each truncation compares list, pins,
cursors and settings, so that of an owner that comes meanwhile and a keeper one is refused and reads again. Decides
which logs are looked at when, and how long one may take. How much may go, and how, `core.truncating` decides; nothing
is deleted but what that lets go.

- **A round** goes through all identities of logs, page by page, so many per second, and reads the settings of each that
  has a name. A log without retention costs that one question. One that has it is truncated, one log at a time, in so
  many rounds of `LogTruncating` at most; what is left is for the next round.
- Before each page it is read again who is elected. A page that could not be read ends the round.
- Behind a round the ledgers are looked for that have other numbers of copies than their logs' settings name
  (`misfits.py`): all of them in the first search of this host, when a log that it knew has other settings by now, and
  every so often; else those that are newer, and those that were left. Where nothing of what was left is settled, it is
  looked at again only after so many rounds more, twice as many each time.
- A log whose ledgers have a password is its owner's alone: no host knows it. One from below the level of identities is
  found when it has one (P8.12).

    LOOKING at the lock ──it is ours, a round is due──▶ a page of identities ─▶ settings of each ─▶ LogTruncating ─▶
        ... ─▶ the lock again ─▶ the next page ─▶ ... ─▶ MisfitSearch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.log_identity import IDENTITIES_PREFIX, LogIdentityState, decode_log_identity
from embedbk.codec.log_settings import decode_log_settings, log_settings_path
from embedbk.codec.repair_state import AUDITOR_LOCK
from embedbk.config import Quorum
from embedbk.core.client_words import BookieInfo, BookiesChanged
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
from embedbk.core.repair_words import AskQuorum, QuorumAnswered, Retained
from embedbk.core.truncating import LogTruncating, Round
from embedbk.core.truncation import Terms
from embedbk.core.vocabulary import Ended, Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.metadata.claims import lock_path
from embedbk.metadata.levels import LEVEL_OF_FRONTS
from embedbk.repair.misfits import Misfits, MisfitSearch, SearchOptions

__all__ = ["LogKeeper", "LogKeeperOptions"]

_SECOND = 1_000_000_000
_OF_PART = "part"  # What the tags of questions begin with that a truncation, or a search, asks.
_ROUNDS_SKIPPED_MAX = 15


@dataclass(frozen=True, slots=True)
class LogKeeperOptions:
    verifier: bytes  # What the metadata of ledgers without a password has.
    round_ns: int = 300 * _SECOND  # From the end of a round to the next one.
    look_ns: int = 10 * _SECOND  # Between two looks at the lock.
    page_logs: int = 100
    logs_per_s: int = 500
    rounds_max: int = 50  # Of truncation, of one log in one round.
    log_ns: int = 60 * _SECOND  # As long as one log may take: its metadata may answer nothing.
    grace_ms: int = 0  # For which what is truncated may be brought back.
    search_ns: int = 3_600 * _SECOND  # Between two searches in all ledgers that nothing else asks for.
    search: SearchOptions = field(default_factory=SearchOptions)

    @property
    def pace_ns(self) -> int:
        return self.page_logs * _SECOND // self.logs_per_s


class LogKeeper(Machine):
    """Never ends. One question at a time, but for those of the truncation, or the search, under way."""

    def __init__(
        self, name: bytes, bookies: Sequence[BookieInfo], options: LogKeeperOptions, wall_offset_ms: int = 0
    ) -> None:
        """name: the auditor's of this host. wall_offset_ms: the wall clock's time when now_ns is 0."""
        self.name = name
        self.bookies = tuple(bookies)
        self.options = options
        self.wall_offset_ms = wall_offset_ms
        self.questions = 0
        self.asked: Tag = None
        self.due_ns: int | None = None
        self.round_due_ns = 0
        self.page_end = ""  # The last identity of the last page; empty: no round is under way.
        self.has_more = False
        self.waiting: list[str] = []  # Logs of the page, not looked at yet.
        self.log = ""  # Whose settings are read, or which is truncated.
        self.part: LogTruncating | MisfitSearch | None = None  # The truncation, or the search, under way.
        self.terms = Terms()
        self.level = 0  # The cluster had it when the settings of the log were read.
        self.rounds_left = 0
        self.give_up_ns = 0
        self.rounds = 0  # That came to their end.
        self.wanted: dict[str, Quorum] = {}  # By log, as the settings name it that this round read.
        self.plain: set[str] = set()  # Logs whose settings name none, as this round read them.
        self.searched: dict[str, Quorum] | None = (
            None  # For which all ledgers were looked at; None: for none.
        )
        self.searched_plain: set[str] = set()  # `plain` of that search.
        self.search_due_ns = 0
        self.newest = NO_ENTRY  # The newest ledger that was looked at.
        self.left: tuple[int, ...] = ()
        self.rounds_skipped = self.rounds_to_skip = 0
        self.marked = 0  # Ledgers that were marked for their numbers of copies.

    @property
    def deadline_ns(self) -> int | None:
        if self.part is None:
            return self.due_ns
        if isinstance(self.part, MisfitSearch):
            return self.part.deadline_ns
        return earliest(self.give_up_ns, self.part.deadline_ns)

    def _tag(self, kind: str) -> Tag:
        self.questions += 1
        self.asked, self.due_ns = ("keeper", kind, self.questions), None
        return self.asked

    def _pause(self, now_ns: int, pause_ns: int) -> list[Effect]:
        self.asked, self.due_ns = None, now_ns + pause_ns
        return []

    def _on_started(self, event: Started) -> list[Effect]:
        return self._pause(event.now_ns, self.options.look_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.part is not None:
            if isinstance(self.part, LogTruncating) and event.now_ns >= self.give_up_ns:
                return self._next_log(event.now_ns)
            return self._drive(event.now_ns, self.part.step(event))
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        return [ReadKey(self._tag("lock"), lock_path(AUDITOR_LOCK))]

    # A round.

    def _on_lock(self, event: KeyRead) -> list[Effect]:
        is_ours = event.value == self.name
        if not is_ours or (not self.page_end and event.now_ns < self.round_due_ns):
            self.page_end = self.page_end if is_ours else ""
            return self._pause(event.now_ns, self.options.look_ns)
        after = self.page_end or IDENTITIES_PREFIX
        return [ListKeys(self._tag("page"), IDENTITIES_PREFIX, after, self.options.page_logs)]

    def _on_listed(self, event: KeysListed) -> list[Effect]:
        if event.tag != self.asked or self.asked is None:
            return self._hand_on(event)
        if not self.page_end:
            self.wanted, self.plain = {}, set()
        self.has_more = event.has_more and bool(event.records)
        self.waiting = []
        for key, value in event.records:
            self.page_end = key
            log_id = key.removeprefix(IDENTITIES_PREFIX)
            try:
                is_named = decode_log_identity(value, log_id).state == LogIdentityState.NAMED
            except StorageError:
                continue  # What cannot be read stays as it is (P2.5).
            if is_named:
                self.waiting.append(log_id)
        return self._next_log(event.now_ns)

    def _next_log(self, now_ns: int) -> list[Effect]:
        self.part = None
        if self.waiting:
            self.log = self.waiting.pop(0)
            return [ReadKey(self._tag("settings"), log_settings_path(self.log))]
        if self.has_more:
            return self._pause(now_ns, self.options.pace_ns)
        self.rounds += 1
        return self._search(now_ns)

    def _end_round(self, now_ns: int) -> list[Effect]:
        self.page_end, self.waiting, self.round_due_ns = "", [], now_ns + self.options.round_ns
        return self._pause(now_ns, self.options.look_ns)

    # One log.

    def _on_settings(self, event: KeyRead) -> list[Effect]:
        try:
            record = None if event.value is None else decode_log_settings(event.value, self.log)
        except StorageError:
            record = None
        if record is not None and record.quorum is not None:
            self.wanted[self.log] = record.quorum
        else:
            self.plain.add(self.log)
        if record is None or not record.has_retention:
            return self._next_log(event.now_ns)
        older_ms = record.retention_ms
        begun_before_ms = None if older_ms is None else self._wall_ms(event.now_ns) - older_ms
        self.terms = Terms(None, begun_before_ms, record.retention_bytes, settings_at=event.revision)
        self.level = event.level
        self.rounds_left = self.options.rounds_max
        self.give_up_ns = event.now_ns + self.options.log_ns
        return self._truncate(event.now_ns)

    def _truncate(self, now_ns: int) -> list[Effect]:
        options = self.options
        self.rounds_left -= 1
        core = LogTruncating(
            self.log,
            self.terms,
            options.verifier,
            self._wall_ms(now_ns),
            options.grace_ms,
            notes_places=self.level >= LEVEL_OF_FRONTS,
        )
        return self._begin_part(now_ns, core)

    def _begin_part(self, now_ns: int, part: LogTruncating | MisfitSearch) -> list[Effect]:
        self.questions += 1  # Numbers this core, so that it gets no answer to another one.
        self.asked, self.due_ns, self.part = None, None, part
        return self._drive(now_ns, part.step(Started(now_ns)))

    def _drive(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """An error is this log's: a wrong password, or what cannot be read; the next round asks again."""
        ended = next((each for each in effects if isinstance(each, Ended)), None)
        if ended is None:
            return [self._numbered(each) for each in effects]
        if isinstance(self.part, MisfitSearch):
            return self._searched(now_ns, ended.result)
        self.part = None
        told: list[Effect] = []
        if isinstance(ended.result, Round):
            done = ended.result
            if done.ledgers:
                told.append(Retained(self.log, done.reached, done.ledgers, done.expired, done.ended))
            if done.held is None and self.rounds_left > 0:
                return [*told, *self._truncate(now_ns)]
        return [*told, *self._next_log(now_ns)]

    def _numbered(self, effect: Effect) -> Effect:
        """A question of the part under way; its tags are those of any other."""
        if isinstance(effect, ReadKey | Transact | ListKeys | AskQuorum):
            return replace(effect, tag=(_OF_PART, self.questions, effect.tag))
        return effect

    # Numbers of copies.

    def _search(self, now_ns: int) -> list[Effect]:
        """Behind a round, which read the settings of every log."""
        if not self.wanted:
            return self._end_round(now_ns)
        is_new = self._is_changed()
        if is_new or now_ns >= self.search_due_ns:
            self.search_due_ns = now_ns + self.options.search_ns
            self.newest, self.left = NO_ENTRY, ()
            self.rounds_to_skip = self.rounds_skipped = 0 if is_new else self.rounds_to_skip
        again = self.left if self.rounds_skipped >= self.rounds_to_skip else ()
        core = MisfitSearch(
            self.wanted, self.bookies, self.newest, again, self._wall_ms(now_ns), self.options.search
        )
        return self._begin_part(now_ns, core)

    def _is_changed(self) -> bool:
        """Whether old ledgers are to be looked at. Those of a log that is new are new."""
        known = self.searched
        if known is None:
            return True
        return any(
            log in self.searched_plain or known.get(log, quorum) != quorum
            for log, quorum in self.wanted.items()
        )

    def _searched(self, now_ns: int, found: Misfits) -> list[Effect]:
        assert isinstance(self.part, MisfitSearch)
        has_looked, self.part = self.rounds_skipped >= self.rounds_to_skip, None
        if has_looked:
            is_stuck = bool(self.left) and set(self.left) <= set(found.left)
            self.rounds_to_skip = min(2 * self.rounds_to_skip + 1, _ROUNDS_SKIPPED_MAX) if is_stuck else 0
            self.rounds_skipped, self.left = 0, found.left
        else:
            self.rounds_skipped += 1
            self.left = tuple({**dict.fromkeys(self.left), **dict.fromkeys(found.left)})
        self.newest = found.newest
        self.searched = dict(self.wanted) if found.is_whole else None
        self.searched_plain = self.plain
        self.marked += found.marked
        return self._end_round(now_ns)

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return []

    def _wall_ms(self, now_ns: int) -> int:
        return max(0, self.wall_offset_ms + now_ns // 1_000_000)

    # Answers.

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag != self.asked or self.asked is None:
            return self._hand_on(event)
        return self._on_lock(event) if self.asked[1] == "lock" else self._on_settings(event)

    def _on_failed(self, event: MetadataFailed) -> list[Effect]:
        """The metadata gave no answer. Without a place in a page the round begins anew when it is due."""
        if event.tag != self.asked or self.asked is None:
            return self._hand_on(event)
        return self._end_round(event.now_ns)

    def _hand_on(
        self,
        event: KeyRead
        | KeysListed
        | QuorumAnswered
        | Transacted
        | TransactRefused
        | TransactUnknown
        | MetadataFailed,
    ) -> list[Effect]:
        """An answer to the part under way. One to an earlier one, which was given up, may be of a transaction that was
        done: the next look at that log shows it."""
        if self.part is None or event.tag[:2] != (_OF_PART, self.questions):
            return []
        return self._drive(event.now_ns, self.part.step(replace(event, tag=event.tag[2])))

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        KeyRead: _on_read,
        KeysListed: _on_listed,
        MetadataFailed: _on_failed,
        Transacted: _hand_on,
        TransactRefused: _hand_on,
        TransactUnknown: _hand_on,
        QuorumAnswered: _hand_on,
        BookiesChanged: _on_bookies,
    }
