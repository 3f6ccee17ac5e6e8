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
from typing import Any, ClassVar, Protocol, Self

from embedbk.codec.metadata_messages import (
    Acknowledged,
    AllocIds,
    CloseSession,
    Get,
    KeepAlive,
    List,
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
from embedbk.metadata.catalog import Catalog, check_operation
from embedbk.metadata.commands import (
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
REPLIES_WAITING_MAX = 8192  # Answers that wait for the disk; more requests are refused, not queued.
WATCHES_PER_LINK_MAX = 4096
EXPIRIES_PER_TICK_MAX = 100  # The rest follow in the next step, so that mass expiry starves nobody.
AWAY_NS = 1_000_000_000  # A Tick so late, or a record so long without durability: the member was away, not its clients.

MemberEvent = MemberStarted | RequestReceived | LinkLost | JournalDurable | JournalFailed | Tick
MemberEffect = JournalAppend | Reply | SendEvents | Halted


class Chance(Protocol):
    """The part of `random.Random` that the member uses."""

    def getrandbits(self, k: int, /) -> int: ...


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
        self._waiting: deque[tuple[int, Reply]] = deque()  # Answers, each with the record that it waits for.
        self._stood_since_ns: int | None = None  # Records wait for the disk, and none became durable since.
        self._watches = Watches(catalog.revision)
        # By link, the last session opened on it, and the record that its answer waits for.
        self._openings: dict[int, tuple[int, StartSession]] = {}
        self._heard_ns: dict[int, int] = {}
        self._expiries: list[tuple[int, int]] = []  # Heap of (not before, session), one per session.
        self._halted = False
        self._grant_all(now_ns)

    def step(self, event: MemberEvent) -> list[MemberEffect]:
        if self._halted:
            return []
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
        return self._expiries[0][0] if self._expiries else None

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
        request = event.request
        if request.session in self.catalog.sessions:
            self._heard_ns[request.session] = event.now_ns
            if isinstance(request.operation, KeepAlive):
                return self._renew(event)
        effects: list[MemberEffect] = []
        result = self._refuse(request) or self._answer(event, effects)
        reply = Reply(event.link, MetadataReply(request.session, request.sequence, result))
        self._waiting.append((self._applied_index, reply))
        return [*effects, *self._release()]

    def _refuse(self, request: MetadataRequest) -> Refusal | None:
        if len(self._waiting) >= REPLIES_WAITING_MAX:
            return Refusal("UNAVAILABLE", f"{len(self._waiting)} answers wait for the disk; try again")
        refusal = check_operation(request.operation, self.catalog.limits)
        if refusal is not None:
            return refusal
        if isinstance(request.operation, OpenSession):
            return None
        if request.session == 0 and isinstance(request.operation, Get | List | Tell):
            return None  # Reading needs no session.
        if request.session not in self.catalog.sessions:
            return Refusal("SESSION_GONE", f"session {request.session} has ended or was never opened")
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
        run = Run(request.session, request.sequence, request.done_below, request.operation)
        result = self._propose(run, effects)
        self._forget_ended()
        return result

    def _open(self, event: RequestReceived, operation: OpenSession, effects: list[MemberEffect]) -> Result:
        """A session, or the one that this link was not told of yet: a client asks again while the disk stands still,
        and each of its requests would leave one behind that nobody knows."""
        ttl_ms = min(max(operation.ttl_ms, SESSION_TTL_MS_MIN), SESSION_TTL_MS_MAX)
        index, opening = self._openings.get(event.link, (0, None))
        if (
            opening is not None
            and index > self._durable_index
            and opening.session in self.catalog.sessions
            and (opening.ttl_ms, opening.label) == (ttl_ms, operation.label)
        ):
            self._heard_ns[opening.session] = event.now_ns
            return SessionOpened(opening.session, ttl_ms, self.cluster_token)
        # Unique by its high half; the low half keeps it from being guessed by a client that mistypes another's.
        session = (self.catalog.sessions_started + 1) << 32 | self._chance.getrandbits(32)
        command = StartSession(session, ttl_ms, operation.label)
        result = self._propose(command, effects)
        if isinstance(result, Refusal):
            return result
        self._openings[event.link] = (self._applied_index, command)
        self._grant(session, event.now_ns)
        return SessionOpened(session, ttl_ms, self.cluster_token)

    def _watch(self, link: int, session: int, watch: Watch, effects: list[MemberEffect]) -> Result:
        if self._watches.count(link) >= WATCHES_PER_LINK_MAX:
            return Refusal("UNAVAILABLE", f"{WATCHES_PER_LINK_MAX} watches on one link are all there may be")
        self._watches.add(link, session, watch.watch_id, watch.prefix, watch.from_revision)
        effects.extend(self._watches.feed(self.catalog.history, self._durable_revision))
        return Acknowledged(self.catalog.revision)

    def _propose(self, command: Command, effects: list[MemberEffect]) -> Result:
        """Log a command and apply it; whoever waits for its result waits for the record's durability."""
        before = self.catalog.revision
        self._applied_index += 1
        effects.append(JournalAppend(self._applied_index, encode_command(command)))
        result = self.catalog.apply(command)
        if self.catalog.revision != before:
            self._revisions.append((self._applied_index, self.catalog.revision))
        return result

    # --- Durability --------------------------------------------------------------------------------------

    def _on_durable(self, event: JournalDurable) -> list[MemberEffect]:
        ensure(event.index <= self._applied_index, "the journal made durable what was never appended")
        if event.index > self._durable_index:
            if self._stands_still(event.now_ns):
                self._grant_all(event.now_ns)
            self._durable_index, self._stood_since_ns = event.index, None
        while self._revisions and self._revisions[0][0] <= self._durable_index:
            self._durable_revision = self._revisions.popleft()[1]
        # Events before answers: who is told that its change is done has already seen it in its own watch.
        events = self._watches.feed(self.catalog.history, self._durable_revision)
        return [*events, *self._release()]

    def _release(self) -> list[MemberEffect]:
        """The answers for which everything applied before them is durable (P10.1)."""
        released: list[MemberEffect] = []
        while self._waiting and self._waiting[0][0] <= self._durable_index:
            released.append(self._waiting.popleft()[1])
        return released

    def _on_failed(self, event: JournalFailed) -> list[MemberEffect]:
        self._halted = True
        self._waiting.clear()
        return [Halted(f"the metadata journal failed: {event.reason}")]

    # --- Sessions and links ------------------------------------------------------------------------------

    def _on_tick(self, event: Tick) -> list[MemberEffect]:
        effects: list[MemberEffect] = []
        if self._watches.is_lagging:
            effects.extend(self._watches.feed(self.catalog.history, self._durable_revision))
        is_late = bool(self._expiries) and event.now_ns - self._expiries[0][0] > AWAY_NS
        if is_late or self._stands_still(event.now_ns):
            self._grant_all(event.now_ns)
        for _ in range(EXPIRIES_PER_TICK_MAX):
            if not self._expiries or self._expiries[0][0] > event.now_ns:
                break
            session = heapq.heappop(self._expiries)[1]
            if session not in self.catalog.sessions:
                continue
            if self._expires_ns(session) > event.now_ns:
                heapq.heappush(self._expiries, (self._expires_ns(session), session))
                continue
            self._propose(ExpireSession(session), effects)
        self._forget_ended()
        return [*effects, *self._release()]

    def _on_link_lost(self, event: LinkLost) -> list[MemberEffect]:
        """Its session lives on: the client comes back over another link, or it expires."""
        self._watches.remove_link(event.link)
        self._openings.pop(event.link, None)
        self._waiting = deque(item for item in self._waiting if item[1].link != event.link)
        return []

    def _stands_still(self, now_ns: int) -> bool:
        """Nothing could be committed for long. Who wanted a session meanwhile, or came back to one, has no answer yet,
        so this time counts against nobody."""
        return self._stood_since_ns is not None and now_ns - self._stood_since_ns > AWAY_NS

    def _grant_all(self, now_ns: int) -> None:
        self._expiries.clear()
        for session in self.catalog.sessions:
            self._grant(session, now_ns)

    def _grant(self, session: int, now_ns: int) -> None:
        self._heard_ns[session] = now_ns
        heapq.heappush(self._expiries, (self._expires_ns(session), session))

    def _expires_ns(self, session: int) -> int:
        """A sixteenth after its ttl; the client gives up a sixteenth before, counted from an earlier moment."""
        return self._heard_ns[session] + self.catalog.sessions[session].ttl_ms * 1_000_000 * 17 // 16

    def _forget_ended(self) -> None:
        if len(self._heard_ns) == len(self.catalog.sessions):
            return
        for session in [known for known in self._heard_ns if known not in self.catalog.sessions]:
            del self._heard_ns[session]
            self._watches.remove_session(session)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], list[MemberEffect]]]] = {
        MemberStarted: _on_started,
        RequestReceived: _on_request,
        LinkLost: _on_link_lost,
        JournalDurable: _on_durable,
        JournalFailed: _on_failed,
        Tick: _on_tick,
    }
