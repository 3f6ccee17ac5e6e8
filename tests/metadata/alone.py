"""The log of a quorum of one, for tests of its member: it leads, and what it began with is committed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_vocabulary import Boot, Durable, Entry, Persist
from embedbk.metadata.vocabulary import Tick

__all__ = ["log_of_one"]


def log_of_one(now_ns: int = 0, *, commits: bool = True, entries: Sequence[Entry] = ()) -> AgreedLog:
    """commits: else nothing is elected yet. entries: what stands in its log from before."""
    own = MemberId("m1", bytes(16))
    boot, raft_log = Boot(own, b"start"), RaftLog(Configuration((own,)))
    raft_log.append(entries)
    term = raft_log.last_term
    log = AgreedLog(Raft(boot, raft_log, term=term, vote=None, now_ns=now_ns, chance=random.Random(0)))
    if commits:
        effects: list[Any] = []
        log.step(Tick(now_ns), effects)
        [record] = [effect for effect in effects if isinstance(effect, Persist)]
        log.step(Durable(now_ns, record.sequence), effects)
    return log
