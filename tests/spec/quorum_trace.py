"""Translates what Raft cores hear and want into plain tuples, by standing around their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft import Raft, Role
from embedbk.metadata.raft_state import RaftState
from embedbk.metadata.raft_vocabulary import (
    Append,
    AppendReply,
    Apply,
    Boot,
    Durable,
    Entry,
    Heartbeat,
    InstallSnapshot,
    Message,
    Persist,
    ReadReady,
    ReadRequested,
    Received,
    RequestVote,
    Send,
    SnapshotSaved,
    VoteReply,
)

__all__ = ["listen"]

Take = Callable[[tuple[Any, ...]], None]


def listen(patch: pytest.MonkeyPatch, take: Take) -> None:
    """Every Raft core that is made from now on tells its steps."""
    make, step, append = Raft.__init__, Raft.step, RaftState.append
    at_change: list[int] = []  # What was committed when this step wrote a configuration.

    def add(self: RaftState, entries: Sequence[Entry]) -> None:
        if isinstance(entries[-1].body, Configuration):
            at_change[:] = [self.commit_index]
        append(self, entries)

    def begin(self: Raft, boot: Boot, log: Any, **words: Any) -> None:
        make(self, boot, log, **words)
        base = log.first_index - 1
        base_term = log.term_at(base)
        entries = log.between(base + 1, log.last_index)
        start = base, base_term, configuration_of(log.configuration_at(base))
        vote = boot_of(words["vote"]) if words["vote"] is not None else None
        take(("start", boot_of(boot), words["term"], vote, start, [entry_of(each) for each in entries]))

    def go(self: Raft, event: Any) -> Any:
        boot = boot_of(self._state.boot)
        match event:
            case Received(_, message):
                take(("receive", boot, message_of(message)))
            case Durable(_, sequence):
                take(("durable", boot, sequence))
            case ReadRequested(_, tokens):
                take(("ask read", boot, tokens))
        led = self.role is Role.LEADER
        at_change.clear()
        effects = step(self, event)
        # A leader counts what was durable before; what a follower commits it may have written in this step. When a
        # leader commits a configuration and writes the next one, this one counts at once for what follows.
        leads = led or self.role is Role.LEADER
        if leads:
            take(("commit", boot, *(at_change or [self.commit_index]), leads))
        for effect in sorted(effects, key=lambda each: not isinstance(each, InstallSnapshot | Persist)):
            match effect:
                case InstallSnapshot(index, term, keeps):
                    take(
                        (
                            "install",
                            boot,
                            index,
                            term,
                            configuration_of(self.log.configuration_at(index)),
                            keeps,
                        )
                    )
                case Persist(sequence, term, vote, keep, entries):
                    voted = boot_of(vote) if vote is not None else None
                    take(("persist", boot, sequence, term, voted, keep, [entry_of(each) for each in entries]))
        take(("commit", boot, self.commit_index, leads))
        for effect in effects:
            match effect:
                case Send(message):
                    take(("send", boot, message_of(message)))
                case Apply(entries):
                    take(("apply", boot, [(each.index, entry_of(each)) for each in entries]))
                case ReadReady(tokens, index):
                    take(("ready", boot, tokens, index))
        if isinstance(event, SnapshotSaved):
            base = self.log.first_index - 1
            take(("trim", boot, base, self.log.term_at(base)))
        return effects

    patch.setattr(Raft, "__init__", begin)
    patch.setattr(Raft, "step", go)
    patch.setattr(RaftState, "append", add)


def member_of(member: MemberId) -> tuple[str, bytes]:
    return member.name, member.incarnation


def boot_of(boot: Boot) -> tuple[tuple[str, bytes], bytes]:
    return member_of(boot.member), boot.nonce


def configuration_of(configuration: Configuration) -> tuple[Any, ...]:
    lists = (configuration.voters, configuration.outgoing, configuration.learners, configuration.retired)
    sizes = [(tuple(map(member_of, half)), each.commit, each.elect) for half, each in configuration.halves()]
    return (*(tuple(map(member_of, members)) for members in lists), tuple(sizes))


def entry_of(entry: Entry) -> tuple[int, Any]:
    if isinstance(entry.body, Configuration):
        return entry.term, ("configuration", configuration_of(entry.body))
    return entry.term, ("nothing",) if entry.body is None else ("commands", entry.body)


def message_of(message: Message) -> tuple[Any, ...]:
    kind: str
    told: tuple[Any, ...]
    match message.body:
        case RequestVote(last_index, last_term, is_transfer):
            kind, told = "request", (last_index, last_term, is_transfer)
        case VoteReply(is_granted, nonce):
            kind, told = "vote", (is_granted, nonce)
        case AppendReply(True, index, _):
            kind, told = "accepted", (index,)
        case Append(previous, previous_term, entries, commit):
            kind, told = "append", (previous, previous_term, tuple(map(entry_of, entries)), commit)
        case Heartbeat(commit, round_):
            kind, told = "heartbeat", (commit, round_)
        case other:
            kind, told = type(other).__name__, (repr(other),)
    return message.term, boot_of(message.sender), member_of(message.receiver), kind, told
