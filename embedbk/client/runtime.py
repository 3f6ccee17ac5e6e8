"""What all handles of one client share: its host thread, and the questions they put to it.

Decides which process may use it (the one that opened it, while it is open) and how long a question may take. A question
runs on the host's thread as cores of a `ClientNode`; nothing here decides anything of the protocol.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from embedbk.client.archived import ClosableSource, read_archived
from embedbk.client.handles import LOOK_S, OpenHandles
from embedbk.client.missed_copies import MissedCopies
from embedbk.client.waiting import FutureResult, Moved, Settled
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.metadata_messages import (
    Compare,
    Delete,
    Get,
    List,
    Listed,
    Operation,
    Put,
    Record,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.config import LOG_PAGE_LEDGERS, Settings
from embedbk.core.client_words import BookieInfo, Consumed
from embedbk.core.contending import Contending
from embedbk.core.machine import Machine
from embedbk.core.pausing import Pausing
from embedbk.core.read_health import ReadHealth
from embedbk.errors import EmbedbkError, MetadataUnavailable, OperationTimeout, PeerError, UsageError
from embedbk.forking import free_in_children
from embedbk.host.awaited import Awaited
from embedbk.host.client_node import ClientNode
from embedbk.host.loop import Loop
from embedbk.host.operations import OneResult, Reading
from embedbk.host.operations import Operation as Running
from embedbk.host.own_lacs import OwnLac
from embedbk.host.signal import Signal
from embedbk.host.writing import Writing

if TYPE_CHECKING:
    from embedbk.client.behind import Behind
    from embedbk.client.keeping import Keeper

__all__ = ["FollowedKey", "Runtime", "refuse_pickling"]

logger = logging.getLogger(__name__)

_LIST_PAGE = 1000
# Guards whether a client's thread for background work is there, and may be used.
_BEHIND = free_in_children(threading.Lock())
_BEHIND_AGAIN_NS = 1_000_000_000  # Between two tries to make that thread.
_SLOW_S = 5.0  # A question that takes longer logs what it waits for.


class Followed(Protocol):
    """What is waited for on `signal` as long as the host's thread is there."""

    @property
    def signal(self) -> Signal: ...


class FollowedKey:
    """One key of the metadata quorum as its watch shows it; `state` changes on the host's thread, which notifies
    `signal`."""

    __slots__ = ("_runtime", "_token", "key", "refusal", "signal", "state")

    def __init__(self, runtime: Runtime, key: str, signal: Signal | None = None) -> None:
        self.key = key
        self.signal = signal or Signal()
        self.state: tuple[bytes | None, int] | None = None  # (value, revision); None until first shown.
        self.refusal = ""  # Why nothing will come.
        self._runtime = runtime
        self._token: int | None = None

    def begin(self) -> None:
        """On the host's thread: ask for the watch."""
        metadata = self._runtime.node.metadata
        self._token = metadata.watch(self._runtime.now_ns(), self.key, self._changed, self._refused)

    def _refused(self, reason: str) -> None:
        self.refusal = reason
        self.signal.notify()

    def _changed(self, records: list[Record], revision: int, is_first: bool) -> None:
        mine = [record for record in records if record.key == self.key]
        if mine:
            self.state = (mine[-1].value, mine[-1].revision)
        elif is_first:
            self.state = (None, revision)
        self.signal.notify()

    @property
    def revision(self) -> int:
        return self.state[1] if self.state is not None else 0

    async def beyond(self, revision: int, timeout_s: float | None) -> bool:
        """Wait until the key has a revision above this one, or the client has ended; False: not within timeout_s.

        Raises MetadataUnavailable, as `check`.
        """
        has_moved = await Moved(
            self.signal,
            lambda: self.revision > revision or self.refusal != "" or self._runtime.is_ended,
            timeout_s,
        )
        self.check()
        return has_moved

    def check(self) -> None:
        """Raises MetadataUnavailable: nothing follows the key any more, and nothing will."""
        if self.refusal:
            raise MetadataUnavailable(f"{self.key} is not followed any more: {self.refusal}")

    def end(self) -> None:
        """From any thread: follow no longer."""
        self._runtime.followed.discard(self)
        self._runtime.call_if_open(self._unwatch)

    def _unwatch(self) -> None:
        if self._token is not None:
            self._runtime.node.metadata.unwatch(self._runtime.now_ns(), self._token)


class Runtime:
    """The host thread of one client, as its handles use it."""

    page_ledgers = LOG_PAGE_LEDGERS  # So many ledgers stand in a page of a log's list.
    log_look_s = 10.0  # Its writers' logs are looked after so often, about (P8.7).
    fill_look_s = 10.0  # So long after a bookie missed acknowledged entries of a ledger it gets them (P8.7).
    handle_look_s = LOOK_S  # Its handles are looked at so often, for one that could go on and does not.

    def __init__(self, loop: Loop, node: ClientNode, settings: Settings, name: str) -> None:
        self.loop = loop
        self.node = node
        self.settings = settings
        self.name = name  # The path or url, for messages.
        self.is_closed = False
        self.is_forked = False
        self.signal = Signal()  # Moves with the list of bookies.
        self.chance = random.Random()
        # For the cores of all writers; used on the host's thread only.
        self.core_chance = random.Random(self.chance.getrandbits(128))
        self.wake_writing = node.wake_writing  # One object for all handles.
        self.placement = settings.placement
        self.read_health = ReadHealth()  # Touched by the reading cores, on the host's thread.
        self.contending = Contending()  # For logs; changed on the host's thread.
        self.leaving = [node.metadata]  # Sessions to end at close, in this order.
        self.after_close: list[Callable[[], None]] = []
        self.is_ended = False  # The host thread is gone, in whichever way.
        self.followed: set[Followed] = set()
        self.handles = OpenHandles(self)
        self.holds: dict[str, Any] = {}  # Locks that it holds or waits for, by name.
        self._asked: set[Awaited[Result]] = set()
        self._behind: Behind | None = None  # Made once background work begins.
        self._unbegun: list[Coroutine[Any, Any, None]] = []  # Such work that no thread was there for.
        self.keeper: Keeper | None = None  # Once there is a writer of a log.
        self.missed_copies = MissedCopies(self)
        self.on_missed = self.missed_copies.notice  # One object for all handles.
        # Under which others know that it lives, once it writes something (P8.5, P11.2).
        self.living_as: str | None = None
        self.hears_splices = False  # Requests of others to splice into its logs.
        self.spliced_epochs: dict[str, int] = {}  # Epochs of the logs that it took over to splice into them.
        self.bookies_known: tuple[str, ...] = ()  # That the cluster ever had, alive or not, as last listed.
        node.on_ready = self.signal.notify
        node.on_closed = self._end
        _RUNTIMES.add(self)

    # Which process may use it.

    def check(self) -> None:
        """Raises UsageError after close and in a forked child, and what ended the host thread if it broke."""
        if self.is_forked:
            raise UsageError(
                f"{self.name} was opened in the parent process, and its threads do not live in a forked child",
                hint="call embedbk.open again in this process",
            )
        if self.is_closed:
            raise UsageError(f"{self.name} was closed", hint="call embedbk.open again to go on")
        if self.loop.failure is not None:
            raise EmbedbkError(
                f"the host thread of {self.name} ended by a failure: {self.loop.failure!r}",
                definite=False,
                hint="close it and call embedbk.open again; the failure is a bug worth reporting",
            ) from self.loop.failure

    def on_limit(self, reader: object, ledger_id: int, limit: int, *, is_closed: bool) -> None:
        """A reading handle shows up to where may be read. Nothing to do here; who watches overrides it (testing)."""

    def on_filled(self, ledger_id: int, copies: int) -> None:
        """On the host's thread: bookies of an open ledger got what they had missed."""
        logger.info("ledger %d: %d copies that bookies missed were made", ledger_id, copies)

    def on_stuck(self, state: str) -> None:
        """On the host's thread: a handle could go on, and does not."""
        logger.warning("%s: it could go on and does not; please report this: %s", self.name, state)

    def own_lac(self, ledger_id: int) -> OwnLac:
        """The entries of a ledger that a writer of this very client had acknowledged."""
        return self.node.own_lacs.of(ledger_id)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the host's thread, soon."""
        self.check()
        self.loop.call(function)

    def call_if_open(self, function: Callable[[], None]) -> None:
        """The same for what needs no undoing once the client is gone."""
        with contextlib.suppress(EmbedbkError):
            self.call(function)

    def close(self) -> None:
        """End the sessions, so that no client waits for them to expire, then the loop and all its nodes."""
        if self.is_forked:
            return
        # Two threads may close it at once, and what is closed twice may be another's by then.
        with _BEHIND:
            was_closed, self.is_closed = self.is_closed, True
        if was_closed:
            return
        for steps in self._unbegun:
            steps.close()
        if self._behind is not None:
            self._behind.close()
        self.loop.call(self._leave)
        self.loop.stop()
        for done in self.after_close:
            done()

    def _end(self) -> None:
        """On the host's thread, at its end: nothing may wait for it any longer."""
        self.is_ended = True
        failure = self.loop.failure
        why = (
            "the client was closed" if failure is None else f"the host thread ended by a failure: {failure!r}"
        )
        for future in list(self._asked):  # Asked too late to be begun.
            _settle(future, Refusal("UNAVAILABLE", why))
        for followed in list(self.followed):
            followed.signal.notify()
        for hold in list(self.holds.values()):
            hold.signal.notify()
        self.signal.notify()

    def _leave(self) -> None:
        for link in self.leaving:
            link.close(self.now_ns())

    # Time, in one place, so that a simulated cluster can bring its own.

    def now_ns(self) -> int:
        """The events that cores receive."""
        return self.loop.now_ns()

    def clock_s(self) -> float:
        """For waiting so many seconds."""
        return time.monotonic()

    def owner(self) -> str:
        """Names the client that takes a log over, for people."""
        return f"{socket.gethostname()}:{os.getpid()}"

    # The time for entries of logs, in a world whose time is not the wall clock's; None: packers read the clock
    # themselves.
    told_ms: Callable[[], int] | None = None

    def wall_ms(self) -> int:
        """Since 1970, for people: when something was made."""
        return time.time_ns() // 1_000_000

    # Cores.

    def start(self, operation: Running) -> None:
        self.call(lambda: self.node.run(self.now_ns(), operation))

    async def run(self, core: Machine, what: str, timeout_s: float | None = None) -> Any:
        """The result that a core ends with."""
        operation = OneResult(core)
        self.start(operation)
        limit = self.settings.operation_timeout_s if timeout_s is None else timeout_s
        waited_s = 0.0
        try:
            if limit > _SLOW_S and not await Settled(operation.future, _SLOW_S):
                waited_s = _SLOW_S
                why = f", it waits for {core.waits_for}" if core.waits_for else ""
                logger.warning(
                    "%s: not done within %g s%s; up to %g s are allowed", what, _SLOW_S, why, limit
                )
            return await FutureResult(operation.future, limit - waited_s, what, before_s=waited_s)
        except GeneratorExit:
            raise  # Nobody drives these steps any more, as where their process ends.
        except BaseException:
            # Also where the caller was cancelled: what nobody wants must not happen later.
            if not operation.future.done():
                self.forget(operation)
            raise

    async def run_to_its_end(self, core: Machine, what: str) -> Any:
        """As `run`, however long it takes."""
        operation = OneResult(core)
        self.start(operation)
        limit = self.settings.operation_timeout_s
        while not await Settled(operation.future, limit):
            logger.warning("%s: not done within %g s; it goes on", what, limit)
        return operation.future.result()

    def behind(self, steps: Coroutine[Any, Any, None]) -> None:
        """Drive a coroutine beside users' calls, from any thread; it reports its own errors. Not begun once the client
        is closed."""
        with _BEHIND:
            if self.is_closed or self.is_forked:
                steps.close()
                return
            self._unbegun.append(steps)
            is_first = len(self._unbegun) == 1
            refused = self._begin_behind()
        if refused is not None and is_first:
            logger.warning(
                "%s: the system gives no thread for work beside calls, as rolling logs: %s; it is tried again",
                self.name,
                refused,
            )
            self._try_behind_later()

    def _begin_behind(self) -> Exception | None:
        """Begin what is to be driven beside calls; or why there is no thread for it. Then it waits for one: what asked
        for it has gone on, and nobody else would ask again."""
        if self._behind is None:
            try:
                from embedbk.client.behind import Behind  # With asyncio, for those who need it.

                self._behind = Behind(f"{self.name} behind")
            except (RuntimeError, OSError, ImportError) as refused:  # Files are opened for the import, too.
                return refused
        for steps in self._unbegun:
            self._behind.begin(steps)
        self._unbegun.clear()
        return None

    def _try_behind_later(self) -> None:
        pause = OneResult(Pausing(_BEHIND_AGAIN_NS))
        pause.future.add_done_callback(self._try_behind)
        self.call_if_open(lambda: self.node.run(self.now_ns(), pause))

    def _try_behind(self, ended: Awaited[Any]) -> None:
        if ended.exception() is not None:
            return  # The client goes.
        with _BEHIND:
            refused = None if self.is_closed or not self._unbegun else self._begin_behind()
        if refused is not None:
            self._try_behind_later()

    def has_level(self, level: int) -> bool:
        """Whether the cluster's level is so high, as far as this client knows; it never falls (P10.8)."""
        return self.node.metadata.client.cluster_level >= level

    def read(self, core: Machine) -> Reading:
        """Start a range read."""
        reading = Reading(core, self._consumed)
        self.start(reading)
        return reading

    def read_archived(self, metadata: LedgerMetadata, first: int, last: int) -> ClosableSource:
        """Start reading a range of files, of a ledger whose bookies gave their copies up (P8.14)."""
        self.check()
        return read_archived(metadata, first, last)

    def _consumed(self, reading: Reading, byte_count: int) -> None:
        self.call_if_open(lambda: self.node.tell(reading, Consumed(self.now_ns(), byte_count)))

    def write(self, writing: Writing) -> None:
        self.start(writing)

    def forget(self, operation: Running) -> None:
        """Stop an operation without touching cluster state."""
        self.call_if_open(lambda: self.node.release(operation, self.now_ns()))

    # Metadata.

    async def ask(self, operation: Operation, what: str) -> Result:
        """Run one metadata operation.

        Raises:
            MetadataUnavailable: no answer in time, or it was not run; not definite when it may still be.
            UsageError: no metadata member would run it.
        """
        future: Awaited[Result] = Awaited()
        tokens: list[int] = []

        def begin() -> None:
            metadata = self.node.metadata
            tokens.append(
                metadata.request(self.now_ns(), operation, lambda _, result: _settle(future, result))
            )

        def give_up() -> None:
            for token in tokens:  # None, where the caller was interrupted before it had asked.
                self.node.metadata.cancel(self.now_ns(), token)

        try:
            self._asked.add(future)
            self.call(begin)
            result = await FutureResult(future, self.settings.operation_timeout_s, what)
        except GeneratorExit:
            raise
        except BaseException as stopped:  # Cancelled, say: then nobody wants it any more, either.
            self.call_if_open(give_up)
            if isinstance(stopped, OperationTimeout):
                raise MetadataUnavailable(f"{what}: {self._no_answer()}") from stopped
            raise
        finally:
            self._asked.discard(future)
        if isinstance(result, Refusal):
            if result.code == "BAD_REQUEST":
                raise UsageError(f"{what}: {result.text}; nothing was done")
            raise MetadataUnavailable(f"{what}: {result.text}")
        return result

    def _no_answer(self) -> str:
        why = self.node.metadata.why_late
        return "the metadata members did not answer" + f" ({why})" * bool(why)

    async def get(self, key: str, what: str) -> tuple[bytes | None, int]:
        """(value, revision of its last change) of one key, linearizable; (None, 0) when it is absent."""
        result = await self.ask(Get(key), what)
        if not isinstance(result, Value):
            raise _wrong_answer(what, result)
        return (result.record.value, result.record.revision) if result.record is not None else (None, 0)

    async def list_keys(self, prefix: str, what: str) -> list[Record]:
        """All keys under a prefix, in key order."""
        records: list[Record] = []
        while True:
            page = await self.ask(List(prefix, records[-1].key if records else "", _LIST_PAGE), what)
            if not isinstance(page, Listed):
                raise _wrong_answer(what, page)
            if page.has_more and not page.records:
                raise PeerError(f"{what}: a page of no keys, and more behind it")
            records += page.records
            if not page.has_more:
                return records

    async def transact(self, when: Sequence[Compare], then: Sequence[Put | Delete], what: str) -> bool:
        """Whether the transaction was done; False: a comparison failed and nothing changed."""
        result = await self.ask(Txn(list(when), list(then)), what)
        if not isinstance(result, TxnDone):
            raise _wrong_answer(what, result)
        return result.is_done

    def begin_following(self, key: str, signal: Signal | None = None) -> FollowedKey:
        """As `follow`, without waiting for what is there."""
        followed = FollowedKey(self, key, signal)
        self.followed.add(followed)
        self.call(followed.begin)
        return followed

    async def follow(self, key: str, signal: Signal | None = None) -> FollowedKey:
        """Watch one key, from its present state on. signal: to share with a wait for something else."""
        followed = self.begin_following(key, signal)
        shown = Moved(
            followed.signal,
            lambda: followed.state is not None or bool(followed.refusal) or self.is_ended,
            self.settings.operation_timeout_s,
        )
        try:
            is_shown = await shown
            self.check()
            if not is_shown or followed.refusal:
                reason = followed.refusal or self._no_answer()
                raise MetadataUnavailable(f"{key} cannot be followed: {reason}")
        except BaseException:
            followed.end()
            raise
        return followed

    # The cluster.

    @property
    def bookies(self) -> tuple[BookieInfo, ...]:
        return self.node.bookies

    async def wait_for_bookies(
        self, expected: dict[str, list[str]], failure: Callable[[], EmbedbkError | None]
    ) -> None:
        """Wait until the cluster answered and these bookies are registered at these endpoints.

        Raises:
            MetadataUnavailable: no member answered within settings.open_timeout_s, or they refused this build.
            EmbedbkError: what `failure` returns while waiting.
        """

        def missing() -> list[str]:
            # By endpoint: what a run before has left in the catalog is not this run's bookie.
            there = self.node.listed.registrations
            return [
                bookie_id
                for bookie_id, endpoints in expected.items()
                if (found := there.get(bookie_id)) is None or found.endpoints != endpoints
            ]

        def refusal() -> str:
            return "" if self.node.is_ready else self.node.metadata.refusal

        arrived = Moved(
            self.signal,
            lambda: (self.node.is_ready and not missing()) or failure() is not None or refusal() != "",
            self.settings.open_timeout_s,
        )
        is_there = await arrived
        broken = failure()
        if broken is not None:
            raise broken
        if refusal():
            raise MetadataUnavailable(
                f"{self.name}: {refusal()}", definite=True, hint="embedbk quorum status shows the level"
            )
        if not is_there:
            reason = f"not registered: {', '.join(missing())}" if self.node.is_ready else "nobody answered"
            trouble = self.node.metadata.trouble
            raise MetadataUnavailable(
                f"{self.name}: {reason} within {self.settings.open_timeout_s:g} s"
                + (f" ({trouble})" * bool(trouble)),
                definite=True,
                hint="check that the metadata member runs and that the address is the one it reported",
            )

    def new_chance(self) -> random.Random:
        """A generator of its own for a core, which uses it on the host's thread."""
        return random.Random(self.chance.getrandbits(128))


def refuse_pickling(what: str, instead: str) -> NoReturn:
    """Raise for a handle that somebody tries to send to another process."""
    raise UsageError(f"{what} lives in this process and cannot be pickled", hint=instead)


def _settle(future: Awaited[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


_RUNTIMES: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _mark_forked() -> None:
    for runtime in _RUNTIMES:
        runtime.is_forked = True


os.register_at_fork(after_in_child=_mark_forked)


def _wrong_answer(what: str, result: Result) -> PeerError:
    """Whatever a metadata member answers raises nothing else here (T10); the operation may have been run."""
    return PeerError(f"{what}: the metadata member answered with a {type(result).__name__}")
