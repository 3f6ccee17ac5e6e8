"""Retention of logs that nobody writes, by one elected host (P8.8): it looks at all logs, and truncates by their
settings.

Elected is whoever is the auditor (P11.1): the keeper reads that lock, whose value is its own host's, and stands for
nothing itself. Two at once do no harm, and neither does an owner beside it: each truncation compares list, pins,
cursors and settings, so that of an owner that comes meanwhile and a keeper one is refused and reads again. Decides
which logs are looked at when, and how long one may take. How much may go, and how, `core.truncating` decides; nothing
is deleted but what that lets go.

- **A round** goes through all identities of logs, page by page, so many per second, and reads the settings of each that
  has a name. A log without retention costs that one question. One that has it is truncated, one log at a time, in so
  many rounds of `LogTruncating` at most; what is left is for the next round.
- Before each page it is read again who is elected. A page that could not be read ends the round.
- A log whose ledgers have a password is its owner's alone: no host knows it. One from below the level of identities is
  found when it has one (P8.12).

    LOOKING at the lock ──it is ours, a round is due──▶ a page of identities ─▶ settings of each ─▶ LogTruncating ─▶
        ... ─▶ the lock again ─▶ the next page
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.log_identity import IDENTITIES_PREFIX, LogIdentityState, decode_log_identity
from embedbk.codec.log_settings import decode_log_settings, log_settings_path
from embedbk.codec.repair_state import AUDITOR_LOCK
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
from embedbk.core.repair_words import Retained
from embedbk.core.truncating import LogTruncating, Round
from embedbk.core.truncation import Terms
from embedbk.core.vocabulary import Ended, Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.metadata.claims import lock_path

__all__ = ["LogKeeper", "LogKeeperOptions"]

_SECOND = 1_000_000_000
_OF_LOG = "log"  # What the tags of a truncation's questions begin with.


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

    @property
    def pace_ns(self) -> int:
        return self.page_logs * _SECOND // self.logs_per_s


class LogKeeper(Machine):
    """Never ends. One question at a time, but for those of the truncation under way."""

    def __init__(self, name: bytes, options: LogKeeperOptions, wall_offset_ms: int = 0) -> None:
        """name: the auditor's of this host. wall_offset_ms: the wall clock's time when now_ns is 0."""
        self.name = name
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
        self.truncating: LogTruncating | None = None
        self.terms = Terms()
        self.rounds_left = 0
        self.give_up_ns = 0
        self.rounds = 0  # That came to their end.

    @property
    def deadline_ns(self) -> int | None:
        if self.truncating is None:
            return self.due_ns
        return earliest(self.give_up_ns, self.truncating.deadline_ns)

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
        if self.truncating is not None:
            if event.now_ns >= self.give_up_ns:
                return self._next_log(event.now_ns)
            return self._drive(event.now_ns, self.truncating.step(event))
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
        if event.tag != self.asked:
            return []
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
        self.truncating = None
        if self.waiting:
            self.log = self.waiting.pop(0)
            return [ReadKey(self._tag("settings"), log_settings_path(self.log))]
        if self.has_more:
            return self._pause(now_ns, self.options.pace_ns)
        self.rounds += 1
        return self._end_round(now_ns)

    def _end_round(self, now_ns: int) -> list[Effect]:
        self.page_end, self.waiting, self.round_due_ns = "", [], now_ns + self.options.round_ns
        return self._pause(now_ns, self.options.look_ns)

    # One log.

    def _on_settings(self, event: KeyRead) -> list[Effect]:
        try:
            record = None if event.value is None else decode_log_settings(event.value, self.log)
        except StorageError:
            record = None
        if record is None or not record.has_retention:
            return self._next_log(event.now_ns)
        older_ms = record.retention_ms
        begun_before_ms = None if older_ms is None else self._wall_ms(event.now_ns) - older_ms
        self.terms = Terms(None, begun_before_ms, record.retention_bytes, settings_at=event.revision)
        self.rounds_left = self.options.rounds_max
        self.give_up_ns = event.now_ns + self.options.log_ns
        return self._truncate(event.now_ns)

    def _truncate(self, now_ns: int) -> list[Effect]:
        options = self.options
        self.asked, self.rounds_left = None, self.rounds_left - 1
        self.questions += 1  # Numbers this core, so that it gets no answer to another one.
        core = LogTruncating(self.log, self.terms, options.verifier, self._wall_ms(now_ns), options.grace_ms)
        self.truncating = core
        return self._drive(now_ns, core.step(Started(now_ns)))

    def _drive(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """An error is this log's: a wrong password, or what cannot be read; the next round asks again."""
        ended = next((each for each in effects if isinstance(each, Ended)), None)
        if ended is None:
            return [self._numbered(each) for each in effects]
        self.truncating = None
        told: list[Effect] = []
        if isinstance(ended.result, Round):
            done = ended.result
            if done.ledgers:
                told.append(Retained(self.log, done.reached, done.ledgers, done.expired, done.ended))
            if done.held is None and self.rounds_left > 0:
                return [*told, *self._truncate(now_ns)]
        return [*told, *self._next_log(now_ns)]

    def _numbered(self, effect: Effect) -> Effect:
        """A question of the truncation under way; its tags are those of any other."""
        if isinstance(effect, ReadKey | Transact):
            return replace(effect, tag=(_OF_LOG, self.questions, effect.tag))
        return effect

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
        self, event: KeyRead | Transacted | TransactRefused | TransactUnknown | MetadataFailed
    ) -> list[Effect]:
        """An answer to the truncation under way. One to an earlier one, which was given up, may be of a transaction
        that was done: the next look at that log shows it."""
        if self.truncating is None or event.tag[:2] != (_OF_LOG, self.questions):
            return []
        return self._drive(event.now_ns, self.truncating.step(replace(event, tag=event.tag[2])))

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        KeyRead: _on_read,
        KeysListed: _on_listed,
        MetadataFailed: _on_failed,
        Transacted: _hand_on,
        TransactRefused: _hand_on,
        TransactUnknown: _hand_on,
    }
