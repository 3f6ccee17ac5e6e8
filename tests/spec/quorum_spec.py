"""Replication, elections and the joint change as states and allowed steps over the events of a run of metadata members.

Plain tuples and dicts, and nothing of the product: who leads, what is committed and which change of the voters may
follow which is said here again, from what processes wrote, what was durable and what they sent. Only how many voters
commit and elect is told with each configuration; that any two such sets meet is judged here. Liveness is not judged,
nor are disks that lose what they promised.

A configuration is (voters, outgoing, learners, retired, sizes): sizes are (voters, commit, elect) of each half. An
entry is (term, body), and a body ("commands", bytes), ("configuration", configuration) or ("nothing",).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.spec.trace_spec import NotAllowed

__all__ = ["QuorumSpec"]

Member = tuple[str, bytes]
Boot = tuple[Member, bytes]
Entry = tuple[int, Any]
Configuration = tuple[Any, ...]


@dataclass
class Process:
    """One start of a member."""

    boot: Boot
    term: int
    vote: Boot | None
    base: int  # The log behind a snapshot of this index.
    base_term: int
    base_configuration: Configuration
    log: list[Entry]
    durable: int  # Of its log.
    durable_term: int
    durable_vote: Boot | None
    commit: int
    applied: int
    written: list[tuple[int, int, int, Boot | None]] = field(
        default_factory=list
    )  # (sequence, last, term, vote).
    votes: set[Member] = field(default_factory=set)  # Granted to it in the term in which it stands.
    votes_term: int = 0
    leads: int = 0  # The term.
    asked: dict[int, int] = field(default_factory=dict)  # Read -> what was committed when it was asked.

    @property
    def last(self) -> int:
        return self.base + len(self.log)

    def entry(self, index: int) -> Entry | None:
        return self.log[index - self.base - 1] if self.base < index <= self.last else None

    def term_at(self, index: int) -> int | None:
        if index == self.base:
            return self.base_term
        entry = self.entry(index)
        return None if entry is None else entry[0]

    @property
    def configuration(self) -> Configuration:
        return self.configuration_at(self.last)

    def configuration_at(self, index: int) -> Configuration:
        for _, body in reversed(self.log[: max(0, index - self.base)]):
            if body[0] == "configuration":
                found: Configuration = body[1]
                return found
        return self.base_configuration

    def newest(self) -> tuple[int, int]:
        return self.term_at(self.last) or 0, self.last


class QuorumSpec:
    """Takes the events of one run in their order; raises NotAllowed at the first that breaks a rule."""

    def __init__(self) -> None:
        self.committed: dict[int, Entry] = {}
        self.highest = 0  # Committed by any leader.
        self.leaders: dict[int, Boot] = {}
        self.votes: dict[tuple[int, Member], Boot] = {}
        self.living: dict[Member, Process] = {}
        self.sent: set[Any] = set()
        self.requests: dict[tuple[int, Boot], list[Any]] = {}  # For votes.
        self.counts: dict[str, int] = {}

    def take(self, event: tuple[Any, ...]) -> None:
        name = event[0]
        self.counts[name] = self.counts.get(name, 0) + 1
        takers: dict[str, Callable[..., None]] = {
            "start": self._start, "receive": self._receive, "durable": self._durable, "ask read": self._ask_read,
            "persist": self._persist, "send": self._send, "apply": self._apply, "ready": self._ready,
            "commit": self._commit, "install": self._install, "trim": self._trim,
        }  # fmt: skip
        takers[name](*event[1:])

    # Processes and disks.

    def _start(
        self, boot: Boot, term: int, vote: Boot | None, base: tuple[int, int, Configuration], log: list[Entry]
    ) -> None:
        before = self.living.get(boot[0])
        if before is not None:
            allow(
                term >= before.durable_term, "I61: a term that was durable is gone", term, before.durable_term
            )
            if term == before.durable_term and before.durable_vote is not None:
                allow(
                    vote == before.durable_vote,
                    "I61: a vote that was durable is gone",
                    vote,
                    before.durable_vote,
                )
            if before.leads > term:  # Alone it leads at once; nobody heard of it, and its disk forgot it.
                del self.leaders[before.leads]
        index, base_term, configuration = base
        self.living[boot[0]] = Process(
            boot,
            term,
            vote,
            index,
            base_term,
            configuration,
            list(log),
            index + len(log),
            term,
            vote,
            index,
            index,
        )

    def _process(self, boot: Boot) -> Process:
        found = self.living[boot[0]]
        allow(found.boot == boot, "C3: an older process of this member goes on", boot)
        return found

    def _persist(
        self, boot: Boot, sequence: int, term: int, vote: Boot | None, keep: int, entries: list[Entry]
    ) -> None:
        process = self._process(boot)
        allow(term >= process.term, "I61: a term fell", process.term, term)
        if term == process.term and process.vote is not None:
            allow(vote == process.vote, "I61: a second vote in a term", process.vote, vote)
        if term > process.term:
            process.votes, process.votes_term = set(), term
        if vote is not None and vote != boot and (term, vote) != (process.term, process.vote):
            asked = [each[4] for each in self.requests.get((term, vote), ())]
            allow(bool(asked), "I61: a vote that nobody asked for", vote)
            newest = max((last_term, last_index) for last_index, last_term, _ in asked)
            allow(newest >= process.newest(), "I66: a vote for an older log", newest, process.newest())
        process.term, process.vote = term, vote
        allow(process.base <= keep <= process.last, "I64: a gap in the log", keep, process.last)
        if keep < process.last:
            allow(keep >= process.commit, "I65: what is committed is taken back", keep, process.commit)
            allow(process.leads != term, "I64: a leader cuts its own log", keep, process.last)
        makes = (
            [entry for entry in entries if entry[0] == term] if self.leaders.get(term, boot) == boot else []
        )
        del process.log[keep - process.base :]
        process.durable = min(process.durable, keep)
        process.written = [(number, min(last, keep), *rest) for number, last, *rest in process.written]
        for entry in entries:
            previous = process.term_at(process.last) or 0
            allow(previous <= entry[0] <= term, "I64: terms in a log fall", previous, entry[0])
            if makes and entry[0] == term:
                self._makes(process, entry)
            process.log.append(entry)
        process.written.append((sequence, process.last, term, vote))

    def _durable(self, boot: Boot, sequence: int) -> None:
        process = self._process(boot)
        while process.written and process.written[0][0] <= sequence:
            _, last, process.durable_term, process.durable_vote = process.written.pop(0)
            process.durable = max(process.durable, last)

    def _install(self, boot: Boot, index: int, term: int, configuration: Configuration, keeps: bool) -> None:
        """The state after a committed entry takes the place of the log up to it."""
        process = self._process(boot)
        allow(index <= self.highest, "I80: a snapshot of what is not committed", index, self.highest)
        allow(index > process.commit, "I80: a snapshot over newer state", index, process.commit)
        self._agrees(index, (term, None), "I80")
        if keeps:
            allow(
                process.term_at(index) == term, "I80: what follows a snapshot does not agree with it", index
            )
            process.log = process.log[index - process.base :]
            process.durable = max(process.durable, index)
        else:
            process.log, process.durable = [], index
            process.written = []
        process.base, process.base_term, process.base_configuration = index, term, configuration
        process.commit = process.applied = index

    def _trim(self, boot: Boot, base: int, term: int) -> None:
        """The front of the log goes."""
        process = self._process(boot)
        if base > process.base:
            allow(base <= process.applied, "I79: what is not applied is trimmed", base, process.applied)
            process.base_configuration = process.configuration_at(base)
            del process.log[: base - process.base]
            process.base, process.base_term = base, term

    # Elections.

    def _receive(self, boot: Boot, message: Any) -> None:
        term, sender, receiver, kind, body = message
        process = self._process(boot)
        allow(message in self.sent, "nobody said that", message)
        if kind == "vote" and receiver == boot[0] and body[0] and body[1] == boot[1]:
            if process.votes_term != term:
                process.votes, process.votes_term = set(), term
            process.votes.add(sender[0])

    def _leads(self, process: Process, term: int) -> None:
        """It says or does what only the leader of this term may."""
        if process.leads == term:
            return
        known = self.leaders.setdefault(term, process.boot)
        allow(known == process.boot, "I60: two leaders in one term", term, known, process.boot)
        granted = set(process.votes) if process.votes_term == term else set()
        if process.vote == process.boot and process.term == term:
            granted.add(process.boot[0])
        for voters, _, elect in process.configuration[4]:
            given = granted & set(voters)
            allow(len(given) >= elect, "C1: elected by too few", term, given, elect)
        for index, entry in self.committed.items():
            own = process.entry(index)
            allow(index <= process.last, "I66: a leader's log is too short", process.last, index)
            allow(own is None or own == entry, "I66: a leader lacks what is committed", own, entry)
        process.leads = term

    def _makes(self, process: Process, entry: Entry) -> None:
        self._leads(process, entry[0])
        if entry[1][0] == "configuration":
            self._changes(process, entry[1][1])

    # The change of the voters.

    def _changes(self, process: Process, new: Configuration) -> None:
        old = process.configuration
        index = max(
            (
                process.base + place
                for place, (_, body) in enumerate(process.log, 1)
                if body[0] == "configuration"
            ),
            default=process.base,
        )
        allow(
            index <= process.commit, "I77: a change before the last one is committed", index, process.commit
        )
        allow(
            process.term_at(process.commit) == process.leads, "I76: a change before an entry of the own term"
        )
        (
            (voters, outgoing, learners, retired, sizes),
            (old_voters, old_outgoing, old_learners, old_retired, _),
        ) = new, old
        for count, commit, elect in ((len(half), commit, elect) for half, commit, elect in sizes):
            allow(commit + elect > count and 2 * elect > count, "C1, C2: quorums that do not meet", sizes)
        kind = "joint" if outgoing else "left joint" if old_outgoing else "learners"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if old_outgoing:
            allow(
                not outgoing and voters == old_voters,
                "I77: only its end follows a joint configuration",
                old,
                new,
            )
        elif outgoing:
            allow(outgoing == old_voters, "I77: a joint configuration keeps the old voters", old, new)
            newcomers = set(voters) - set(old_voters) - set(old_learners)
            allow(not newcomers, "I77: who does not receive the log gets a vote", newcomers)
        else:
            allow(voters == old_voters, "I77: the voters change in one step", old, new)
        back = {*voters, *outgoing, *learners} & set(old_retired)
        allow(not back, "P10.3: who was taken out comes back", back)
        gone = {*old_voters, *old_outgoing, *old_learners} - {*voters, *outgoing, *learners}
        allow({*old_retired, *gone} <= set(retired), "P10.3: who was taken out is forgotten", gone, retired)

    # Messages.

    def _send(self, boot: Boot, message: Any) -> None:
        term, sender, receiver, kind, body = message
        process = self._process(boot)
        allow(sender == boot, "somebody else is named as sender", message)
        allow(term <= process.durable_term, "I62: a message of a term that the disk may forget", term)
        if kind == "vote" and body[0]:
            candidate = (receiver, body[1])
            allow(process.durable_term == term, "I61: a vote for a term that is over", term)
            allow(process.durable_vote == candidate, "I61: a vote that the disk may forget", candidate)
            given = self.votes.setdefault((term, boot[0]), candidate)
            allow(given == candidate, "I61: a second vote in a term", given, candidate)
        elif kind == "request":
            allow(process.durable_vote == boot, "I61: it asks before its own vote is durable", message)
            self.requests.setdefault((term, boot), []).append(message)
        elif kind == "accepted":
            leader = self.leaders.get(term)
            allow(leader is not None, "an answer to nobody", message)
            assert leader is not None
            allow(
                body[0] <= process.durable, "I69: acknowledged before it is durable", body[0], process.durable
            )
            theirs = self.living.get(leader[0])
            if theirs is not None and theirs.boot == leader and theirs.leads == term:
                own, other = process.term_at(body[0]), theirs.term_at(body[0])
                allow(
                    own is None or other is None or own == other,
                    "I64: acknowledged what the leader has not",
                    body,
                )
        elif kind == "append":
            self._leads(process, term)
            previous, previous_term, entries, commit = body
            allow(commit <= process.commit, "I68: it tells of more than is committed", commit, process.commit)
            for place, entry in enumerate(entries, previous + 1):
                allow(process.entry(place) in (None, entry), "I64: it sends what its log has not", entry)
            known = process.term_at(previous)
            allow(known in (None, previous_term), "I64: it sends behind what its log has not", body)
        elif kind == "heartbeat":
            self._leads(process, term)
            allow(
                body[0] <= process.commit, "I68: it tells of more than is committed", body[0], process.commit
            )
        self.sent.add(message)

    # What is committed.

    def _commit(self, boot: Boot, index: int, leads: bool) -> None:
        process = self._process(boot)
        allow(index >= process.commit, "I71: a commit index fell", process.commit, index)
        if index == process.commit:
            return
        if leads and index > self.highest:
            self._leads(process, process.term)
            allow(process.term_at(index) == process.term, "I70: an entry of an older term is counted", index)
            for voters, commit, _ in process.configuration[4]:
                holders = [voter for voter in voters if self._holds(voter, index, process.term_at(index))]
                allow(len(holders) >= commit, "I68: committed on too few disks", index, holders, commit)
        allow(
            leads or index <= self.highest, "I68: a follower commits what no leader has", index, self.highest
        )
        for place in range(process.commit + 1, index + 1):
            entry = process.entry(place)
            if entry is not None:
                self._agrees(place, entry, "I65")
        process.commit = index
        self.highest = max(self.highest, index)

    def _holds(self, member: Member, index: int, term: int | None) -> bool:
        process = self.living.get(member)
        if process is None:
            return False
        return index <= process.base or (index <= process.durable and process.term_at(index) == term)

    def _agrees(self, index: int, entry: Entry, rule: str) -> None:
        known = self.committed.get(index)
        if known is None:
            if entry[1] is not None:
                self.committed[index] = entry
            return
        same = known == entry if entry[1] is not None else known[0] == entry[0]
        allow(same, f"{rule}: two entries at one place", index, known, entry)

    def _apply(self, boot: Boot, entries: list[tuple[int, Entry]]) -> None:
        process = self._process(boot)
        for index, entry in entries:
            allow(index == process.applied + 1, "I72: applied with a gap", process.applied, index)
            allow(index <= process.commit, "I72: applied before it is committed", index, process.commit)
            allow(index <= process.durable, "I72: a state runs ahead of its own log", index, process.durable)
            self._agrees(index, entry, "I65")
            process.applied = index

    # Reads.

    def _ask_read(self, boot: Boot, tokens: tuple[int, ...]) -> None:
        process = self._process(boot)
        for token in tokens:
            process.asked[token] = self.highest

    def _ready(self, boot: Boot, tokens: tuple[int, ...], index: int) -> None:
        process = self._process(boot)
        for token in tokens:
            floor = process.asked.pop(token)
            allow(index >= floor, "I75: a read is answered by an older state", index, floor)


def allow(condition: bool, rule: str, *details: Any) -> None:
    if not condition:
        raise NotAllowed(": ".join([rule, *map(repr, details)]))
