"""The state that only a leader has: the others' progress, reads, a change, a transfer (RAFT.md, 4 to 7).

It lives as long as the leadership does. `settle` does everything that an event may have made possible: commit, reads,
the next step of a change, entries to send. So no event needs to know what waits for it.
"""

from __future__ import annotations

from collections import deque

from embedbk.metadata.basing import next_base, why_unknown
from embedbk.metadata.membership import Change, begin_base
from embedbk.metadata.quorum import BaseChange, Configuration, MemberId
from embedbk.metadata.raft_state import RaftState
from embedbk.metadata.raft_vocabulary import (
    ChangeEnded,
    Entry,
    Heartbeat,
    Propose,
    Proposed,
    Refused,
    TimeoutNow,
    Timing,
)
from embedbk.metadata.reads import ReadRounds
from embedbk.metadata.replication import Progress, send_entries

__all__ = ["Leading"]

HEARTBEATS_PER_BASE = 10
SETTLED_BASES = 2  # After these no session is left that the earlier leader renewed by a longer base.
ROUNDS_KEPT_MAX = 1024  # Rounds not confirmed; a read begins one, so there may be many in a base.
UNCOMMITTED_BYTES_MAX = 64 << 20


class Leading:
    def __init__(self, state: RaftState) -> None:
        """Begins with an entry of its own term: entries of earlier terms are committed with it, never alone (I70)."""
        self._state = state
        self.progress: dict[MemberId, Progress] = {}
        self.reads = ReadRounds()
        self.change: Change | None = None
        self.transfer_to: MemberId | None = None
        self._transfer_end_ns = 0
        self._is_timeout_sent = False
        self._round = 0
        self._rounds: deque[tuple[int, int]] = deque()  # (round, when it began) of rounds not yet confirmed.
        self._answered: dict[MemberId, int] = {}  # The newest round that each other member answered.
        self.confirmed_ns = -1  # The beginning of the newest round that a quorum answered (C4).
        self._heartbeat_due_ns = state.now_ns
        self._quorum_check_ns = state.now_ns + state.base_ns
        self._stood_since_ns: int | None = None  # Since when records wait for the own disk.
        self._stood_at = state.log.durable_index
        self._uncommitted_bytes = 0
        self._sizes: dict[int, int] = {}  # Bytes of each proposal, by its last index, rising.
        self.first_index = state.log.last_index + 1
        self._settled_index = self._mark_index = (
            self.first_index
        )  # At the last mark and at the one before it.
        self._mark_ns = self._began_ns = state.now_ns
        state.append([Entry(self.first_index, state.term, None)])

    @property
    def deadline_ns(self) -> int | None:
        """None: there are no other members."""
        if not self._state.others:
            return None
        return min(self._heartbeat_due_ns, self._quorum_check_ns)

    @property
    def is_alone(self) -> bool:
        configuration = self._state.log.configuration
        return configuration.voters == (self._state.member,) and not configuration.is_joint

    @property
    def began_log(self) -> bool:
        """The log begins with this leader's first entry: nobody led before it."""
        return self.first_index == 1

    @property
    def has_committed(self) -> bool:
        """An entry of its own term is committed: then it knows all that is committed."""
        return self._state.commit_index >= self.first_index

    @property
    def has_committed_configuration(self) -> bool:
        return self._state.commit_index >= self._state.log.configuration_index

    # --- Events ------------------------------------------------------------------------------------------

    def propose(self, event: Propose) -> None:
        state = self._state
        size = sum(map(len, event.bodies))
        why, whom = self.why_full(size)
        if why:
            state.do(Refused(event.token, why, whom))
            return
        first = state.log.last_index + 1
        state.append([Entry(first + place, state.term, body) for place, body in enumerate(event.bodies)])
        self._uncommitted_bytes += size
        self._sizes[first + len(event.bodies) - 1] = size
        state.do(Proposed(event.token, first, state.term))

    def why_full(self, size: int, gathered: int = 0) -> tuple[str, MemberId]:
        """Why a command of that size is refused now, beside those gathered; empty: it is not. Also the member that may
        take it."""
        if self.transfer_to is not None:
            return f"leadership goes to {self.transfer_to.name}", self.transfer_to
        before = self._uncommitted_bytes + gathered
        if before and before + size > UNCOMMITTED_BYTES_MAX:
            text = (
                f"{before} bytes are not committed yet, allowed are {UNCOMMITTED_BYTES_MAX}: try again later"
            )
            return text, self._state.member
        return "", self._state.member

    def answer(self, member: MemberId, round_: int) -> None:
        """A member knew of no newer leader when it answered this round."""
        self.reads.answer(member, round_)
        self._answered[member] = max(self._answered.get(member, 0), round_)
        confirmed = self._state.configuration.confirmed_round(self._answered_round)
        while self._rounds and self._rounds[0][0] <= confirmed:
            self.confirmed_ns = self._rounds.popleft()[1]

    def _answered_round(self, member: MemberId) -> int:
        return self._round if member == self._state.member else self._answered.get(member, 0)

    def hear(self, member: MemberId) -> Progress:
        progress = self._progress_of(member)
        progress.heard_ns = self._state.now_ns
        return progress

    def tick(self) -> None:
        state = self._state
        if state.now_ns >= self._quorum_check_ns:
            self._quorum_check_ns = state.now_ns + state.agreed_base_ns
            self._check_quorum()
            if not state.is_leader:
                return
        self._watch_disk()
        if self.transfer_to is not None and state.now_ns >= self._transfer_end_ns:
            self.transfer_to = None
        if state.now_ns >= self._heartbeat_due_ns:
            self._begin_round()

    def begin_transfer(self, to: MemberId) -> None:
        state = self._state
        if to == state.member or to not in state.configuration.voters or self.transfer_to is not None:
            return
        self.transfer_to, self._is_timeout_sent = to, False
        self._transfer_end_ns = state.now_ns + state.base_ns

    def most_current(self, configuration: Configuration) -> MemberId | None:
        """The voter with the longest log among the others that answer."""
        state = self._state
        others = [
            (self._progress_of(member).match_index, member)
            for member in configuration.voters
            if member != state.member and self.is_heard(member)
        ]
        return max(others, key=lambda each: each[0])[1] if others else None

    def is_heard(self, member: MemberId) -> bool:
        """Whether the member was heard within the agreed election base."""
        if member == self._state.member:
            return True
        heard_ns = self._progress_of(member).heard_ns
        return heard_ns is not None and self._state.now_ns - heard_ns < self._state.agreed_base_ns

    def durable_index(self, member: MemberId) -> int:
        """How far a member holds the log durably; the leader counts itself likewise, up to its own sync (I69)."""
        if member == self._state.member:
            return self._state.log.durable_index
        progress = self.progress.get(member)
        return progress.match_index if progress is not None else 0

    # --- The election base -------------------------------------------------------------------------------

    def timings(self) -> dict[MemberId, Timing | None]:
        """The measurements of the process of each voter that answers."""
        state = self._state
        found: dict[MemberId, Timing | None] = {}
        for voter in state.configuration.voters:
            if voter == state.member:
                found[voter] = state.timing
            elif self.is_heard(voter):
                found[voter] = self._progress_of(voter).timing
        return found

    def why_base_stays(self) -> str:
        """Why this leader does not look for another base; empty: it does."""
        state, configuration = self._state, self._state.configuration
        if len(configuration.voters) == 1 and not configuration.is_joint:
            return "who votes alone is never elected by others"
        if configuration.base_change is not None and configuration.base_change.is_fixed:
            return "an operator has fixed it"
        if configuration.is_joint or not self.has_committed_configuration or not self.has_committed:
            return "a change of the configuration is under way"
        if self.transfer_to is not None:
            return f"leadership goes to {self.transfer_to.name}"
        if state.now_ns - self._began_ns < SETTLED_BASES * state.base_ns:
            return "this leader has just begun"
        since_ns, rules = state.base_since_ns, state.base_rules
        if since_ns is not None and state.now_ns - since_ns < rules.interval_ns:
            minutes = rules.interval_ns // 60_000_000_000
            return f"it was changed less than {minutes} minutes ago, or this process began then"
        return why_unknown(configuration, self.timings(), rules)

    def consider_base(self, unix_ms: int) -> Change | None:
        """A change of the election base, if what was measured asks for one."""
        state, configuration = self._state, self._state.configuration
        if self.why_base_stays():
            return None
        timings = {voter: timing for voter, timing in self.timings().items() if timing is not None}
        found = next_base(configuration.election_base_ms, timings)
        if found is None:
            return None
        return begin_base(state, None, found[0], BaseChange(False, unix_ms, state.member.name, found[1]))

    # --- What an event made possible ---------------------------------------------------------------------

    def settle(self) -> None:
        state = self._state
        self._advance_commit()
        if self.transfer_to is not None and self.transfer_to not in state.configuration.voters:
            self.transfer_to = None  # It leaves; a leader that is alone has no ticks that would end this.
        if not state.others and self.change is None and not self.reads.is_due:
            return  # Alone: everything waits for its own disk only.
        if self.change is not None:
            self.change.go_on(state, self)
            self._advance_commit()
            if self.change.is_done:
                self.change = None
        if not state.configuration.is_voter(state.member) and self.has_committed_configuration:
            self._begin_round()  # A last message with the commit index.
            state.become_follower(None)
            return
        if self.reads.is_due and self.has_committed:
            self._begin_round()
            self.reads.begin(self._round, state.commit_index, state.member)
        ready = self.reads.take_ready(state.configuration)
        if ready is not None:
            state.do(ready)
        last_index = state.log.last_index
        for member in state.others:
            progress = self.progress.get(member) or self._progress_of(member)
            if progress.next_index <= last_index or progress.is_probing:
                send_entries(state, member, progress, self._round)
        if self.transfer_to is not None:
            self._send_timeout()

    def _advance_commit(self) -> None:
        """Copies are counted only of entries of the own term: an earlier one on a quorum may still be replaced
        (I70)."""
        state = self._state
        if state.commit_index >= state.log.last_index:
            return  # Nothing could be committed: so it is in most steps.
        index = min(state.configuration.committed_index(self.durable_index), state.log.last_index)
        if index > state.commit_index and state.log.term_at(index) == state.term:
            state.commit(index)
            while self._sizes and (last := next(iter(self._sizes))) <= index:
                self._uncommitted_bytes -= self._sizes.pop(last)

    def _begin_round(self) -> None:
        state = self._state
        self._round += 1
        self._rounds.append((self._round, state.now_ns))
        if len(self._rounds) > ROUNDS_KEPT_MAX:
            self._rounds.popleft()
        self._heartbeat_due_ns = state.now_ns + self._pace_ns // HEARTBEATS_PER_BASE
        self._mark_commit()
        for member in state.others:
            state.send(member, Heartbeat(state.commit_index, self._round))

    @property
    def _pace_ns(self) -> int:
        """The base by which the others wait for a heartbeat: while a member that answers lacks the newest
        configuration, its older one may need more heartbeats."""
        state = self._state
        newest = state.log.configuration_index
        if all(self._progress_of(each).match_index >= newest for each in state.others if self.is_heard(each)):
            return state.base_ns
        return min(state.base_ns, state.shortest_base_ns)

    def _mark_commit(self) -> None:
        """Mark the commit index every half base, as long as there are other members."""
        state = self._state
        if state.now_ns >= self._mark_ns + state.base_ns // 2:
            self._settled_index = self.settled_index if self._is_mark_old else self._mark_index
            self._mark_index, self._mark_ns = max(self._mark_index, state.commit_index), state.now_ns

    @property
    def _is_mark_old(self) -> bool:
        return self._state.now_ns >= self._mark_ns + self._state.base_ns

    @property
    def settled_index(self) -> int:
        """An index that was committed at most two bases ago: a member that has it keeps up, though commands go on. The
        commit index, if no round noted one for so long: a single member has no rounds."""
        return self._state.commit_index if self._is_mark_old else self._settled_index

    def _check_quorum(self) -> None:
        """A leader that no commit quorum answers stops leading: its clients find another."""
        heard = {voter for voter in self._state.configuration.members if self.is_heard(voter)}
        if not self._state.configuration.has_commit_quorum(heard):
            self._state.become_follower(None)

    def _watch_disk(self) -> None:
        """The others go on and the own disk makes nothing durable for an election base: let one of them lead."""
        state = self._state
        if (
            not state.is_disk_behind
            or state.log.durable_index != self._stood_at
            or self._stood_since_ns is None
        ):
            self._stood_at = state.log.durable_index
            self._stood_since_ns = state.now_ns if state.is_disk_behind else None
            return
        if (
            state.now_ns - self._stood_since_ns >= state.base_ns
            and state.commit_index > state.log.durable_index
        ):
            to = self.most_current(state.configuration)
            if to is not None:
                self.begin_transfer(to)

    def _send_timeout(self) -> None:
        state, to = self._state, self.transfer_to
        if to is None or self._is_timeout_sent:
            return
        if self._progress_of(to).match_index == state.log.last_index:
            self._is_timeout_sent = True
            state.send(to, TimeoutNow())

    def _progress_of(self, member: MemberId) -> Progress:
        progress = self.progress.get(member)
        if progress is None:
            progress = self.progress[member] = Progress(self.first_index)
        return progress

    def end(self) -> None:
        """Leadership is over: the next leader continues a change that was under way, or it never began."""
        if self.change is not None and self.change.token is not None:
            self._state.do(
                ChangeEnded(self.change.token, "leadership was lost; the change may still come about")
            )
