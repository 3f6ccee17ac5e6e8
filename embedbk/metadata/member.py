"""The core of a metadata quorum of one: requests in, log records and answers out (METADATA.md, P10).

Decides when a command is logged, when its answer may leave, when a session has expired, and what watchers are sent.
What a command does is the catalog's. A command is applied when it is logged, so that many share one sync; every
answer, also of a read, waits until all that was applied before it is durable, so nobody ever sees what a crash
could take back. Only a keep-alive shows nothing of the catalog and is answered at once: sessions live through a disk
that stands still. The core of a larger quorum will take the place of `_propose` and of the durable token.
"""

from __future__ import annotations

import copy
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    AllocIds,
    CloseSession,
    Get,
    KeepAlive,
    List,
    Listed,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Refusal,
    Result,
    SessionOpened,
    Tell,
    Txn,
    Unwatch,
    Watch,
)
from embedbk.errors import ensure
from embedbk.metadata.catalog import Catalog, Session, check_operation
from embedbk.metadata.commands import (
    RULES,
    BeginGeneration,
    Command,
    ExpireSession,
    Run,
    StartMember,
    StartSession,
    encode_command,
)
from embedbk.metadata.vocabulary import (
    Halted,
    JournalAppend,
    JournalDurable,
    JournalFailed,
    LinkLost,
    MemberStarted,
    Reply,
    RequestReceived,
    SendEvents,
    Tick,
)
from embedbk.metadata.watches import Watches

__all__ = ["AWAY_NS", "SESSION_TTL_MS_MAX", "SESSION_TTL_MS_MIN", "Member", "MemberEffect", "MemberEvent"]

SESSION_TTL_MS_MIN = 200
SESSION_TTL_MS_MAX = 600_000
NONCE_BYTES = 16  # Random, of one start.
REPLIES_WAITING_MAX = 8192  # Answers that wait for the disk; more requests are put off (BUSY), not queued.
WAITING_BYTES_MAX = 64 << 20  # Of commands on their way to the disk and lists that wait for it.
WAITING_SHARE = 4  # A link may have as many waiting as this part of what is free of half of them,
WAITING_LEAST = 4  # and so many in any case: the other half is enough for that on every link.
LISTED_RECORD_BYTES = 1024  # What a record of a list that waits is counted as.
SESSIONS_PER_LINK_MAX = 128  # Opened over one link and still living. A client has one.
WATCHES_MAX = 65_536
WATCHES_PER_LINK_MAX = 4096  # And no more than a quarter of those that are free.
EXPIRIES_PER_TICK_MAX = 100  # The rest follow in the next step, so that mass expiry starves nobody.
EXPIRED_KEYS_PER_TICK = 512  # Likewise; the keys of one session go together, however many.
LOOKED_AT_PER_TICK = 1000  # Sessions whose time may be over; most of them were heard.
AWAY_NS = 1_000_000_000  # A Tick so late, or a record so long without durability: the member was away, not its clients.

MemberEvent = MemberStarted | RequestReceived | LinkLost | JournalDurable | JournalFailed | Tick
MemberEffect = JournalAppend | Reply | SendEvents | Halted


class Chance(Protocol):
    """The part of `random.Random` that the member uses."""

    def getrandbits(self, k: int, /) -> int: ...


@dataclass(slots=True)
class _Waiting:
    """An answer, and the record that it waits for."""

    index: int
    link: int
    key: tuple[int, int]
    reply: MetadataReply | None  # None: its link is gone.
    bytes: int


@dataclass(slots=True)
class _Opening:
    """The last session that was opened on a link."""

    attempt: int
    session: int


class Member:
    """A quorum of one. `step` takes one event, whole, and gives what is to be done, in this order."""

    def __init__(
        self, catalog: Catalog, *, durable_index: int, now_ns: int, cluster_token: bytes, chance: Chance
    ) -> None:
        """catalog: as replayed from the log up to durable_index. Every session in it gets a fresh ttl, since the
        member cannot know how long it was away."""
        self.catalog = catalog
        self.cluster_token = cluster_token
        self._chance = chance
        self._applied_index = durable_index  # Record of the last command that the catalog holds.
        self._durable_index = durable_index
        self._durable_revision = catalog.revision  # What durable_index covers; watchers see nothing above.
        self._revisions: deque[tuple[int, int]] = deque()  # (index, revision) of changes not yet durable.
        self._waiting: deque[_Waiting] = deque()
        self._waiting_of: dict[
            int, dict[tuple[int, int], _Waiting]
        ] = {}  # By link, then (session, sequence).
        self._waiting_bytes = 0
        self._unnumbered = 0  # Requests without a session so far: each of them is another.
        self._queued: deque[tuple[int, int]] = deque()  # (index, bytes) of records not yet durable.
        self._queued_bytes = 0
        self._stood_since_ns: int | None = None  # Records wait for the disk, and none became durable since.
        self._watches = Watches(catalog.revision)
        self._openings: dict[int, _Opening] = {}
        self._opened_on: dict[int, dict[int, None]] = {}  # By link, the sessions that were.
        # Sessions expire by counted time: what passed while nobody could be answered does not count.
        self._uncounted_ns = 0
        self._last_ns = now_ns
        self._heard_ns: dict[int, int] = {}  # Counted.
        self._expiries: list[tuple[int, int]] = []  # Heap of (not before, counted; session), one per session.
        self._halted = False
        self.catalog.history.hold = self._durable_revision
        for session in catalog.sessions:
            self._grant(session, now_ns)

    def step(self, event: MemberEvent) -> list[MemberEffect]:
        if self._halted:
            return []
        self._notice_absence(event.now_ns)
        effects = self._HANDLERS[type(event)](self, event)
        if self._applied_index == self._durable_index:
            self._stood_since_ns = None
        elif self._stood_since_ns is None:
            self._stood_since_ns = event.now_ns
        return effects

    @property
    def deadline_ns(self) -> int | None:
        if self._halted:
            return None
        if self._watches.is_lagging:
            return 0  # At once.
        return self._expiry_due_ns()

    @property
    def applied_index(self) -> int:
        """The record of the last command in `catalog`; a snapshot taken now stands for the log up to it."""
        return self._applied_index

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def _on_started(self, event: MemberStarted) -> list[MemberEffect]:
        """One more link of the chain, before anything is answered: every answer waits for what was logged before it."""
        effects: list[MemberEffect] = []
        nonce = self._chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        self._propose(StartMember(nonce), effects)
        if event.begins_generation:
            refused = self._propose(BeginGeneration(), effects)
            if isinstance(refused, Refusal):
                self._halted = True
                effects.append(Halted(refused.text))
        return effects

    # --- Requests ----------------------------------------------------------------------------------------

    def _on_request(self, event: RequestReceived) -> list[MemberEffect]:
        request, link = event.request, event.link
        session = self.catalog.sessions.get(request.session)
        if session is not None and not self._is_own(link, session, request):
            session = None
        if session is not None:
            self._heard_ns[session.session] = self._counted_ns(event.now_ns)
            if isinstance(request.operation, KeepAlive):
                return self._renew(event)
        key = (request.session, request.sequence)
        if request.session == 0:
            self._unnumbered += 1
            key = (0, -self._unnumbered)
        waiting = self._waiting_of.get(link, {})
        if key in waiting:
            return []  # A repeat; its answer is on its way.
        full = self._what_is_full(len(waiting))
        if full:
            # Told at once: it shows nothing of the catalog, and what is refused must not wait as well.
            return [Reply(link, MetadataReply(request.session, request.sequence, Refusal(BUSY, full)))]
        effects: list[MemberEffect] = []
        result = self._refuse(request, session) or self._answer(event, effects)
        size = len(result.records) * LISTED_RECORD_BYTES if isinstance(result, Listed) else 0
        item = _Waiting(
            self._applied_index, link, key, MetadataReply(request.session, request.sequence, result), size
        )
        self._waiting.append(item)
        self._waiting_of.setdefault(link, {})[key] = item
        self._waiting_bytes += size
        return [*effects, *self._release()]

    def _is_own(self, link: int, session: Session, request: MetadataRequest) -> bool:
        """Whether who asks is the session's client: it was opened over this very link, or its secret is shown. Records
        name their session to everybody, so the number proves nothing."""
        return request.session in self._opened_on.get(link, ()) or request.secret == session.secret

    def _what_is_full(self, of_link: int) -> str:
        """Why a request is put off that could only wait; empty: it need not be."""
        count, size = len(self._waiting), self._waiting_bytes + self._queued_bytes
        if size > WAITING_BYTES_MAX:
            return f"{size} bytes wait for the metadata member's disk, allowed are {WAITING_BYTES_MAX}: try again later"
        share = max((REPLIES_WAITING_MAX // 2 - count) // WAITING_SHARE, WAITING_LEAST)
        is_full = count >= REPLIES_WAITING_MAX or of_link >= share
        if is_full and self._applied_index > self._durable_index:
            return (
                f"{count} answers wait for the metadata member's disk, {of_link} of them on this link; "
                f"allowed are {REPLIES_WAITING_MAX}, and now {share} on one link: try again later"
            )
        return ""

    def _refuse(self, request: MetadataRequest, session: Session | None) -> Refusal | None:
        refusal = check_operation(request.operation, self.catalog.limits)
        if refusal is not None:
            return refusal
        if isinstance(request.operation, OpenSession):
            return None
        if request.session == 0 and isinstance(request.operation, Get | List | Tell):
            return None  # Reading needs no session.
        if session is None:
            text = f"session {request.session} has ended, was never opened, or is another client's"
            return Refusal("SESSION_GONE", text)
        return None

    def _answer(self, event: RequestReceived, effects: list[MemberEffect]) -> Result:
        """The answer to a request that may be run; what is to be logged for it goes to effects."""
        request = event.request
        match request.operation:
            case Txn() | AllocIds() | CloseSession():
                return self._run(request, effects)
            case Get(key):
                return self.catalog.get(key)
            case List(prefix, after, limit):
                return self.catalog.page(prefix, after, limit)
            case Tell(count):
                return self.catalog.tell(count, self.cluster_token)
            case KeepAlive():
                raise AssertionError("a live session is renewed before, any other is refused")
            case OpenSession():
                return self._open(event, request.operation, effects)
            case Watch():
                return self._watch(event.link, request.session, request.operation, effects)
            case Unwatch(watch_id):
                self._watches.remove(event.link, watch_id)
                return Acknowledged(self.catalog.revision)

    def _renew(self, event: RequestReceived) -> list[MemberEffect]:
        """A live session lives on (METADATA.md: keep-alives are not logged). Nothing that a crash could take back is
        told, so this answer waits for no disk: a client that is heard does not lose its session to a slow sync."""
        request = event.request
        answer = MetadataReply(request.session, request.sequence, Acknowledged(self._durable_revision))
        return [*self._watches.marks(event.link), Reply(event.link, answer)]

    def _run(self, request: MetadataRequest, effects: list[MemberEffect]) -> Result:
        kept = self.catalog.kept_reply(request.session, request.sequence)
        if kept is not None:
            return kept  # A repeat; it leaves no earlier than its first run is durable.
        assert isinstance(request.operation, Txn | AllocIds | CloseSession)
        run = Run(request.session, request.sequence, request.done_below, request.operation, RULES)
        result = self._propose(run, effects)
        if request.session not in self.catalog.sessions:
            self._forget(request.session)
        return result

    def _open(self, event: RequestReceived, operation: OpenSession, effects: list[MemberEffect]) -> Result:
        """A session, or the one that was opened on this link under the same attempt: a client asks again while the
        answer is late, and each of its requests would leave a session behind that nobody knows."""
        opening = self._openings.get(event.link)
        if opening is not None and operation.attempt and operation.attempt == opening.attempt:
            session = self.catalog.sessions.get(opening.session)
            if session is not None:
                self._heard_ns[session.session] = self._counted_ns(event.now_ns)
                return self._opened(session)
        there = {each: None for each in self._opened_on.get(event.link, ()) if each in self.catalog.sessions}
        if len(there) >= SESSIONS_PER_LINK_MAX:
            return Refusal(
                "UNAVAILABLE",
                f"{len(there)} sessions that were opened over this link live, allowed are {SESSIONS_PER_LINK_MAX}: "
                "close some, or wait until they expire",
            )
        # Unique by its high half and what lives; 2**31 sessions later the half begins anew.
        count = (self.catalog.sessions_started + 1) & 0x7FFFFFFF
        number = count << 32 | self._chance.getrandbits(32)
        secret = self._chance.getrandbits(128).to_bytes(16, "little")
        ttl_ms = min(max(operation.ttl_ms, SESSION_TTL_MS_MIN), SESSION_TTL_MS_MAX)
        result = self._propose(StartSession(number, ttl_ms, operation.label, secret), effects)
        if isinstance(result, Refusal):
            return result
        self._openings[event.link] = _Opening(operation.attempt, number)
        self._opened_on[event.link] = there | {number: None}
        self._grant(number, event.now_ns)
        return self._opened(self.catalog.sessions[number])

    def _opened(self, session: Session) -> SessionOpened:
        return SessionOpened(session.session, session.ttl_ms, self.cluster_token, session.secret)

    def _watch(self, link: int, session: int, watch: Watch, effects: list[MemberEffect]) -> Result:
        count, total = self._watches.count(link), self._watches.total
        allowed = min(WATCHES_PER_LINK_MAX, (WATCHES_MAX - total) // WAITING_SHARE)
        if count >= allowed:
            return Refusal(
                "UNAVAILABLE",
                f"{count} watches on this link and {total} on all, allowed are {WATCHES_PER_LINK_MAX} and "
                f"{WATCHES_MAX}, and now {allowed} on one link: end some",
            )
        self._watches.add(link, session, watch.watch_id, watch.prefix, watch.from_revision)
        effects.extend(self._watches.feed(self.catalog.history, self._durable_revision))
        return Acknowledged(self.catalog.revision)

    def _propose(self, command: Command, effects: list[MemberEffect], said: str = "") -> Result:
        """Log a command and apply it; whoever waits for its result waits for the record's durability."""
        before = self.catalog.revision
        self._applied_index += 1
        body = encode_command(command)
        effects.append(JournalAppend(self._applied_index, body, said))
        self._queued.append((self._applied_index, len(body)))
        self._queued_bytes += len(body)
        result = self.catalog.apply(command)
        if self.catalog.revision != before:
            self._revisions.append((self._applied_index, self.catalog.revision))
        return result

    # --- Durability --------------------------------------------------------------------------------------

    def _on_durable(self, event: JournalDurable) -> list[MemberEffect]:
        ensure(event.index <= self._applied_index, "the journal made durable what was never appended")
        if event.index > self._durable_index:
            self._uncounted_ns += self._stood_ns(event.now_ns)
            self._durable_index, self._stood_since_ns = event.index, None
        while self._queued and self._queued[0][0] <= self._durable_index:
            self._queued_bytes -= self._queued.popleft()[1]
        while self._revisions and self._revisions[0][0] <= self._durable_index:
            self._durable_revision = self._revisions.popleft()[1]
        # Events before answers: who is told that its change is done has already seen it in its own watch.
        events = self._watches.feed(self.catalog.history, self._durable_revision)
        if self.catalog.history.hold != self._durable_revision:
            self.catalog.history.hold = self._durable_revision  # What is not shown yet never goes.
            self.catalog.history.trim()
        return [*events, *self._release()]

    def _release(self) -> list[MemberEffect]:
        """The answers for which everything applied before them is durable (P10.1)."""
        released: list[MemberEffect] = []
        while self._waiting and self._waiting[0].index <= self._durable_index:
            item = self._waiting.popleft()
            self._waiting_bytes -= item.bytes
            if item.reply is not None:
                released.append(Reply(item.link, item.reply))
                of_link = self._waiting_of[item.link]
                del of_link[item.key]
                if not of_link:
                    del self._waiting_of[item.link]
        return released

    def _on_failed(self, event: JournalFailed) -> list[MemberEffect]:
        self._halted = True
        self._waiting.clear()
        self._waiting_of.clear()
        return [Halted(f"the metadata journal failed: {event.reason}")]

    # --- Sessions and links ------------------------------------------------------------------------------

    def _on_tick(self, event: Tick) -> list[MemberEffect]:
        effects: list[MemberEffect] = []
        if self._watches.is_lagging:
            effects.extend(self._watches.feed(self.catalog.history, self._durable_revision))
        counted_ns = self._counted_ns(event.now_ns)
        ended = keys = 0
        for _ in range(LOOKED_AT_PER_TICK):
            if not self._expiries or self._expiries[0][0] > counted_ns:
                break
            number = heapq.heappop(self._expiries)[1]
            session = self.catalog.sessions.get(number)
            if session is None:
                continue
            if self._expires_ns(session) > counted_ns:
                heapq.heappush(self._expiries, (self._expires_ns(session), number))
                continue
            ended, keys = ended + 1, keys + len(session.keys)
            said = f"session {number} of {session.label!r} expires: silent for more than {session.ttl_ms} ms"
            self._propose(ExpireSession(number), effects, said)
            self._forget(number)
            if ended == EXPIRIES_PER_TICK_MAX or keys >= EXPIRED_KEYS_PER_TICK:
                break
        return [*effects, *self._release()]

    def _on_link_lost(self, event: LinkLost) -> list[MemberEffect]:
        """Its session lives on: the client comes back over another link, or it expires."""
        self._watches.remove_link(event.link)
        self._openings.pop(event.link, None)
        self._opened_on.pop(event.link, None)
        for item in self._waiting_of.pop(event.link, {}).values():
            item.reply = None
        return []

    # --- Counted time --------------------------------------------------------------------------------------

    def _stood_ns(self, now_ns: int) -> int:
        """For how long nothing could be committed; 0 when that is not long. Who wanted a session meanwhile, or came
        back to one, has no answer yet, so this time counts against nobody."""
        if self._stood_since_ns is None or now_ns - self._stood_since_ns <= AWAY_NS:
            return 0
        return now_ns - self._stood_since_ns

    def _counted_ns(self, now_ns: int) -> int:
        return now_ns - self._uncounted_ns - self._stood_ns(now_ns)

    def _notice_absence(self, now_ns: int) -> None:
        """A step that comes long after one was due: this process was stopped, and heard nobody since the last one."""
        due_ns = self._expiry_due_ns()
        if due_ns is not None and now_ns - max(due_ns, self._last_ns) > AWAY_NS:
            self._uncounted_ns += now_ns - self._last_ns
        self._last_ns = now_ns

    def _expiry_due_ns(self) -> int | None:
        """When a session may have to be ended; None: no time is counted until the disk goes on."""
        if not self._expiries:
            return None
        due_ns = self._expiries[0][0] + self._uncounted_ns
        is_still = self._stood_since_ns is not None and due_ns - self._stood_since_ns > AWAY_NS
        return None if is_still else due_ns

    def _grant(self, session: int, now_ns: int) -> None:
        self._heard_ns[session] = self._counted_ns(now_ns)
        heapq.heappush(self._expiries, (self._expires_ns(self.catalog.sessions[session]), session))

    def _expires_ns(self, session: Session) -> int:
        """A sixteenth after its ttl; the client gives up a sixteenth before, counted from an earlier moment."""
        return self._heard_ns[session.session] + session.ttl_ms * 1_000_000 * 17 // 16

    def _forget(self, session: int) -> None:
        self._heard_ns.pop(session, None)
        self._watches.remove_session(session)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], list[MemberEffect]]]] = {
        MemberStarted: _on_started,
        RequestReceived: _on_request,
        LinkLost: _on_link_lost,
        JournalDurable: _on_durable,
        JournalFailed: _on_failed,
        Tick: _on_tick,
    }
