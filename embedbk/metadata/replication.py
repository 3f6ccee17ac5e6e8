"""The leader's progress of each other member, its appends, and how a follower takes them (RAFT.md, section 5).

Flow control: a follower whose log is not known yet is asked with one append at a time (probe), then gets entries ahead
of its answers up to a bound in messages and bytes (replicate), or is offered a snapshot (its entries are gone here).
"""

from __future__ import annotations

from collections import deque

from embedbk.errors import ensure
from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import RaftState
from embedbk.metadata.raft_vocabulary import (
    Append,
    AppendReply,
    Entry,
    FetchSnapshot,
    Heartbeat,
    HeartbeatReply,
    Message,
    NoticeDamaged,
    SnapshotFetched,
    SnapshotOffer,
    Timing,
)

__all__ = [
    "Progress",
    "on_append",
    "on_append_reply",
    "on_heartbeat",
    "on_heartbeat_reply",
    "on_snapshot_fetched",
    "on_snapshot_given_up",
    "on_snapshot_offer",
    "send_entries",
]

APPEND_BYTES_MAX = 256 << 10
IN_FLIGHT_MAX = 64
IN_FLIGHT_BYTES_MAX = 4 << 20


class Progress:
    """One other member as its leader sees it."""

    def __init__(self, next_index: int) -> None:
        self.match_index = 0  # Durable there, and as here.
        self.next_index = next_index
        self.known_index = 0  # The highest match that any of its processes ever sent this leader.
        self.heard_ns: int | None = None
        self.is_probing = True  # One append at a time.
        self.in_flight: deque[tuple[int, int, int]] = deque()  # (last index, bytes, round it was sent in).
        self.in_flight_bytes = 0
        self.offered_round: int | None = None  # A snapshot was offered then; nothing else is sent meanwhile.
        self.timing: Timing | None = None  # The nonce of its process, from its last message.

    def forget(self) -> None:
        """Another process of this member: the match of the one before counts again when this one confirms it."""
        self.match_index, self.timing = 0, None
        self.probe(self.known_index + 1)

    def probe(self, next_index: int) -> None:
        """Whether the logs agree before next_index is not known, and what was sent may be lost."""
        self.next_index = max(next_index, self.match_index + 1)
        self.is_probing, self.offered_round = True, None
        self.in_flight.clear()
        self.in_flight_bytes = 0

    @property
    def asks_for_known(self) -> bool:
        """The question under way is whether all is there that the process before acknowledged."""
        return self.match_index == 0 and 0 < self.known_index == self.next_index - 1

    @property
    def has_room(self) -> bool:
        if self.offered_round is not None:
            return False
        if self.is_probing:
            return not self.in_flight
        return len(self.in_flight) < IN_FLIGHT_MAX and self.in_flight_bytes < IN_FLIGHT_BYTES_MAX

    def note_sent(self, last_index: int, size: int, round_: int) -> None:
        self.in_flight.append((last_index, size, round_))
        self.in_flight_bytes += size
        if not self.is_probing:
            self.next_index = last_index + 1

    def note_match(self, index: int) -> None:
        while self.in_flight and self.in_flight[0][0] <= index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, index + 1)
        self.known_index = max(self.known_index, index)
        self.is_probing, self.offered_round = False, None


# --- The leader --------------------------------------------------------------------------------------------


def send_entries(state: RaftState, member: MemberId, progress: Progress, round_: int) -> None:
    """As many entries as the member may have ahead of its answers."""
    log = state.log
    while progress.has_room:
        previous = progress.next_index - 1
        previous_term = log.term_at(previous)
        if previous_term is None:
            progress.offered_round = round_
            state.send(member, _offer(log))
            return
        entries: tuple[Entry, ...] = ()
        if progress.next_index <= log.last_index:
            entries = log.taken(progress.next_index, APPEND_BYTES_MAX)
        elif not progress.is_probing:
            return
        state.send(member, Append(previous, previous_term, entries, state.commit_index))
        last = previous + len(entries)
        progress.note_sent(last, log.bytes_between(previous + 1, last), round_)


def _offer(log: RaftLog) -> SnapshotOffer:
    term = log.term_at(log.snapshot_index)
    assert term is not None
    return SnapshotOffer(log.snapshot_index, term)


def on_append_reply(state: RaftState, member: MemberId, progress: Progress, reply: AppendReply) -> None:
    if reply.is_accepted:
        ensure(
            reply.index <= state.log.last_index, f"{member.name} has entry {reply.index}, which is not there"
        )
        progress.note_match(reply.index)
        return
    if reply.index < progress.match_index:
        return  # An answer of an earlier term.
    if progress.match_index == 0 and reply.index < progress.known_index:
        # It confirmed more to this leader in this term, and no other leader could take that back.
        state.do(NoticeDamaged(member, progress.known_index, reply.index))
        progress.known_index = 0
    # The logs differ behind it. Both sides skip whole terms, so each term costs one question at most.
    index, _ = state.log.place_of_agreement(reply.index, reply.hint_term)
    if not progress.is_probing or progress.next_index > index + 1:
        progress.probe(index + 1)


def on_heartbeat_reply(state: RaftState, member: MemberId, progress: Progress, reply: HeartbeatReply) -> None:
    """Entries that were sent before that heartbeat and did not arrive were lost on the way: send them again."""
    progress.timing = reply.timing or progress.timing
    if progress.offered_round is not None:
        if reply.round > progress.offered_round and not reply.is_installing:
            progress.probe(progress.next_index)  # The offer was lost, or what came of it.
        return
    if not progress.in_flight or reply.round <= progress.in_flight[0][2]:
        return
    last, size, _ = progress.in_flight[0]
    if reply.received_index < last:
        # Another process of this member is asked at what was acknowledged until it answers: what it took so far says
        # nothing of its disk, which would be filled up, whatever it lost, and nobody told (NoticeDamaged).
        progress.probe(progress.next_index if progress.asks_for_known else reply.received_index + 1)
        return
    # It is there, and the answer was lost or waits for a disk: a question without entries brings it again.
    term = state.log.term_at(last)
    if term is None:  # It went behind a snapshot meanwhile, so nothing can be asked of it.
        progress.probe(reply.received_index + 1)
        return
    state.send(member, Append(last, term, (), state.commit_index))
    progress.in_flight[0] = (last, size, reply.round)


# --- A follower --------------------------------------------------------------------------------------------


def on_append(state: RaftState, message: Message) -> None:
    append = message.body
    assert isinstance(append, Append)
    log, leader = state.log, message.sender.member
    previous, entries = append.previous_index, append.entries
    previous_term: int | None = append.previous_term
    if previous < state.commit_index:
        # Committed entries are in every leader's log (I66), so they agree; only later ones are compared.
        skipped = state.commit_index - previous
        previous, entries = state.commit_index, entries[skipped:]
        previous_term = log.term_at(previous)
        if len(append.entries) < skipped:
            state.send(leader, AppendReply(True, previous), waits=True)
            return
    if previous_term is None or log.term_at(previous) != previous_term:
        index, term = log.place_of_agreement(previous, append.previous_term)
        state.send(leader, AppendReply(False, index, term))
        return
    for place, entry in enumerate(entries):
        own_term = log.term_at(entry.index)
        if own_term != entry.term:
            if own_term is not None:
                state.cut_log(entry.index - 1)
            state.append(entries[place:])
            break
    state.matched_index = max(state.matched_index, previous + len(entries))
    state.commit(max(state.commit_index, min(append.commit_index, state.matched_index)))
    state.send(leader, AppendReply(True, previous + len(entries)), waits=True)


def on_heartbeat(state: RaftState, message: Message) -> None:
    heartbeat = message.body
    assert isinstance(heartbeat, Heartbeat)
    state.commit(max(state.commit_index, min(heartbeat.commit_index, state.matched_index)))
    reply = HeartbeatReply(heartbeat.round, state.matched_index, state.installing is not None, state.timing)
    state.send(message.sender.member, reply)


def on_snapshot_offer(state: RaftState, message: Message) -> None:
    offer = message.body
    assert isinstance(offer, SnapshotOffer)
    if offer.index <= state.commit_index:
        state.send(message.sender.member, AppendReply(True, state.commit_index), waits=True)
        return
    state.installing = (offer.index, offer.term)
    state.do(FetchSnapshot(message.sender, offer.index, offer.term))


def on_snapshot_fetched(state: RaftState, event: SnapshotFetched) -> None:
    """However late, and from whichever leader: a snapshot is taken if it is newer than the commit index here."""
    if state.installing is not None and state.installing[0] <= event.index:
        state.installing = None
    if event.index <= state.commit_index or not state.is_installed or state.is_leader:
        return
    state.install(event.index, event.term, event.configuration)
    if state.leader is not None:
        state.send(state.leader.member, AppendReply(True, event.index), waits=True)


def on_snapshot_given_up(state: RaftState) -> None:
    """The member that offered it has it no more: the next offer will name another."""
    state.installing = None
