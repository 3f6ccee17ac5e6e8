"""What a leading member proposes because time has passed, and no client asked (METADATA.md, 1, 2 and 11). Pure.

Ends of sessions that were silent for too long, by `lifetimes`; comparisons of the members' states, by `divergence`;
and that repairs which failed go on, by `postponing`. Decides how much of it is proposed in one tick, and that nothing
is while the log has no room. Leaves to `member` whether it leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import CommandLog
from embedbk.metadata.commands import ResumeRepairs
from embedbk.metadata.divergence import Divergence
from embedbk.metadata.lifetimes import Lifetimes
from embedbk.metadata.postponing import RESUMED_MAX, Postponing
from embedbk.metadata.proposals import Proposals
from embedbk.metadata.repair_index import RepairIndex
from embedbk.metadata.session_table import Session

__all__ = ["TimedCommands"]

EXPIRIES_PER_TICK_MAX = 100  # Sessions ended in a tick, so that mass expiry starves no client.
EXPIRED_KEYS_PER_TICK = 512  # Keys of these; those of one session go together, however many.

EXPIRY_BYTES = 64  # Bytes that the end of a session takes in the log, at most.
RESUMED_BYTES = 16 + 20 * RESUMED_MAX  # Bytes that ending the waits of marks takes in the log, at most.


class TimedCommands:
    """Those of one member."""

    def __init__(
        self,
        log: CommandLog,
        proposals: Proposals,
        sessions: Mapping[int, Session],
        now_ns: int,
        digest_entries: int,
    ) -> None:
        """sessions: the catalog's own mapping. digest_entries: those between two comparisons."""
        self._log = log
        self._proposals = proposals
        self.lifetimes = Lifetimes(sessions, now_ns)
        self.divergence = Divergence(digest_entries)
        self.postponing = Postponing()
        self._is_log_full = False  # No session can be ended now.
        self._is_resuming = False  # A command that lets postponed marks go on is not applied yet.

    def begin_to_lead(self, revision: int, now_ns: int) -> None:
        """revision: of the catalog."""
        self.lifetimes.grant_all(now_ns, self._log.grace_ns)
        self.divergence.begin_to_lead(now_ns)
        self.postponing.begin(revision, now_ns)

    def follow_another(self, sessions: Mapping[int, Session], now_ns: int) -> None:
        """Go on over the catalog that takes the place of the one before."""
        self.lifetimes = Lifetimes(sessions, now_ns)
        self.divergence.forget()

    def log_goes_on(self) -> None:
        """The log was stepped: it may have room again."""
        self._is_log_full = False

    def repairs_resumed(self) -> None:
        """The command that lets postponed marks go on was applied, or was lost with the leadership."""
        self._is_resuming = False

    def due_ns(self, repairs: RepairIndex) -> int | None:
        """When something may have to be proposed; None: time alone gives nothing to propose."""
        if self._is_log_full:
            return None  # Wait until the log has news.
        earliest_ns = self.lifetimes.due_ns
        for due_ns in (self._digest_due_ns, self._resume_due_ns(repairs)):
            if due_ns is not None and (earliest_ns is None or due_ns < earliest_ns):
                earliest_ns = due_ns
        return earliest_ns

    @property
    def _digest_due_ns(self) -> int | None:
        """When a digest is due; a single member compares with nobody."""
        due_ns = self.divergence.due_ns
        return due_ns if due_ns is not None and self._log.grace_ns else None

    def _resume_due_ns(self, repairs: RepairIndex) -> int | None:
        return None if self._is_resuming else self.postponing.due_ns(repairs)

    def propose(self, catalog: Catalog, now_ns: int, effects: list[Any]) -> None:
        """Propose what is due."""
        self._expire(catalog.sessions, now_ns, effects)
        self._compare(now_ns, effects)
        self._resume_repairs(catalog.record_table.repairs, now_ns, effects)

    def _expire(self, sessions: Mapping[int, Session], now_ns: int, effects: list[Any]) -> None:
        """Propose the end of sessions that were silent for too long. Until that is settled nothing renews them."""
        ended = keys = 0
        self._is_log_full = bool(self._log.why_full(EXPIRY_BYTES))
        if self._is_log_full:
            return  # Wait until the log has news.
        for number in self.lifetimes.over(now_ns):
            session = sessions[number]
            ended, keys = ended + 1, keys + len(session.keys)
            said = f"session {number} of {session.label!r} expires: silent for more than {session.ttl_ms} ms"
            self._proposals.expire(number, effects, said)
            self._is_log_full = bool(self._log.why_full(EXPIRY_BYTES))
            if self._is_log_full or ended == EXPIRIES_PER_TICK_MAX or keys >= EXPIRED_KEYS_PER_TICK:
                break

    def _compare(self, now_ns: int, effects: list[Any]) -> None:
        due_ns = self._digest_due_ns
        if due_ns is not None and now_ns >= due_ns and not self._is_log_full:
            self._proposals.propose(self.divergence.propose(now_ns), effects)

    def _resume_repairs(self, repairs: RepairIndex, now_ns: int, effects: list[Any]) -> None:
        """Let marks go on that were postponed for long enough; one command at a time."""
        due_ns = self._resume_due_ns(repairs)
        if due_ns is None or now_ns < due_ns or self._is_log_full:
            return
        self._is_log_full = bool(self._log.why_full(RESUMED_BYTES))
        if not self._is_log_full:
            self._proposals.propose(ResumeRepairs(tuple(self.postponing.over(repairs, now_ns))), effects)
            self._is_resuming = True
