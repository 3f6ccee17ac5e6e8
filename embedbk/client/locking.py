"""Locks and elections as users have them (P9.3; metadata/METADATA.md, 7): asking, holding, losing, watching.

Decides when a hold counts as lost for its holder: when its session ended or may have ended by now, or when its watch
shows another holder. "Cannot tell" is never "still mine", and a lost lock is not asked for again automatically. That
alone protects nothing (P9.1): a resource that only one holder may use compares the epoch.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from embedbk.client.iterating import iterate
from embedbk.client.runtime import FollowedKey, Runtime, refuse_pickling
from embedbk.client.waiting import Moved, run_blocking
from embedbk.codec.metadata_messages import (
    Acquire,
    Claimed,
    Get,
    Record,
    Refusal,
    Release,
    Result,
    TxnDone,
    Value,
)
from embedbk.config import check_seconds
from embedbk.errors import LockLost, MetadataUnavailable, OperationTimeout, PeerError, UsageError
from embedbk.forking import free_in_children
from embedbk.host.signal import Signal
from embedbk.ids import check_lock_name
from embedbk.metadata.claims import lock_path
from embedbk.metadata.limits import DEFAULT_LIMITS

__all__ = ["Holder", "Lock", "Locking"]

# Held to check whose entry it is and to take it away in one step.
_UNLISTING = free_in_children(threading.Lock())
_RELEASED = "it was released"


class Holder(NamedTuple):
    """The holder of a lock: its epoch, and the value it gave when it asked."""

    epoch: int
    value: bytes


class Hold:
    """One request for a lock, until it is given away or lost. Its fields change on the host's thread."""

    def __init__(self, runtime: Runtime, name: str, value: bytes) -> None:
        self.signal = Signal()
        self.epoch = 0  # 0 while it waits.
        self.refusal: Result | None = None  # The answer, if it got no place.
        self.ended = ""  # Why it holds nothing, and waits for nothing.
        self.released: Result | None = None
        self._runtime, self._metadata = runtime, runtime.node.metadata
        self._name, self._value, self._path = name, value, lock_path(name)
        self._session = self._asked = 0
        self._request: int | None = None
        self._watch: int | None = None

    @property
    def is_answered(self) -> bool:
        return bool(self._asked or self.refusal is not None or self.ended)

    @property
    def is_held(self) -> bool:
        """Whether it is held, by all that is known here at this moment; callable from any thread."""
        return bool(self.epoch) and not self.ended and self._is_leased()

    @property
    def was_lost(self) -> bool:
        """It ended before it was let go of."""
        return self.ended not in ("", _RELEASED)

    def begin(self) -> None:
        self._metadata.session_ends.add(self._lose)
        self._request = self._metadata.request(
            self._runtime.now_ns(), Acquire(self._name, self._value), self._answered
        )

    def let_go(self) -> None:
        """Give it away or wait no longer. The request is repeated until the session ends, or others would never get
        it."""
        now_ns = self._runtime.now_ns()
        was_ended, self.ended = bool(self.ended), self.ended or _RELEASED
        self._forget()
        if not was_ended:
            if self._request is not None:
                self._metadata.cancel(now_ns, self._request)
            self._metadata.request(now_ns, Release(self._name, self.epoch), self._told)
        self.signal.notify()

    def _is_leased(self) -> bool:
        return self._metadata.is_leased(self._runtime.now_ns(), self._session)

    def _answered(self, now_ns: int, result: Result) -> None:
        self._request = None
        if self.ended:
            return
        if isinstance(result, Claimed):
            self._session, self._asked, self.epoch = self._metadata.session, result.asked, result.epoch
            self._watch = self._metadata.watch(now_ns, self._path, self._changed, self._unfollowed)
        else:
            self.refusal = result
        self.signal.notify()

    def _changed(self, records: list[Record], revision: int, is_first: bool) -> None:
        """Session and time of asking identify the hold, so it is never taken for a later one."""
        mine = [record for record in records if record.key == self._path]
        if self.ended or not (mine or is_first):
            return  # The key of another lock, whose name begins like this one.
        shown = mine[-1] if mine else None
        if shown is not None and (shown.session, shown.created) == (self._session, self._asked):
            self.epoch = shown.revision
            self.signal.notify()
        elif self.epoch and revision > self.epoch:
            self._lose("another holds it, or nobody")

    def _unfollowed(self, reason: str) -> None:
        """Nothing would show that it is lost: it is given away."""
        if not self.ended:
            self._metadata.request(self._runtime.now_ns(), Release(self._name), self._told)
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        self.ended = self.ended or reason
        if self._request is not None:
            # One that was never sent would be sent in the next session, and hold the lock there for nobody.
            self._metadata.cancel(self._runtime.now_ns(), self._request)
        self._forget()
        self.signal.notify()

    def _told(self, now_ns: int, result: Result) -> None:
        self.released = result
        self.signal.notify()

    def _forget(self) -> None:
        self._metadata.session_ends.discard(self._lose)
        if self._watch is not None:
            self._metadata.unwatch(self._runtime.now_ns(), self._watch)
            self._watch = None
        self.unlist()

    def unlist(self) -> None:
        """Let this client ask again: its new request is sent behind this one's. Callable from any thread."""
        with _UNLISTING:
            if self._runtime.holds.get(self._name) is self:
                del self._runtime.holds[self._name]


class Locking:
    """A lock by its name, in steps that both faces drive."""

    def __init__(self, runtime: Runtime, name: str, value: bytes) -> None:
        runtime.check()
        if not isinstance(value, bytes) or len(value) > DEFAULT_LIMITS.value_bytes_max:
            raise UsageError(
                f"value={value!r:.80}: bytes are allowed, up to {DEFAULT_LIMITS.value_bytes_max}"
            )
        self.runtime, self.name, self.value = runtime, check_lock_name(name), value
        self.hold: Hold | None = None

    @property
    def epoch(self) -> int:
        return self.hold.epoch if self.hold is not None else 0

    @property
    def is_held(self) -> bool:
        hold, runtime = self.hold, self.runtime
        return (
            hold is not None
            and hold.is_held
            and not (runtime.is_closed or runtime.is_ended or runtime.is_forked)
        )

    def check(self) -> None:
        self.runtime.check()
        hold = self.hold
        if hold is None:
            raise UsageError(f"lock {self.name!r} was not acquired by this handle; nothing was done")
        if not self.is_held:
            raise self._lost(hold)

    async def acquire(self, timeout_s: float | None) -> int:
        check_seconds(timeout_s, "timeout_s")
        self.runtime.check()
        hold = Hold(self.runtime, self.name, self.value)
        is_held = False
        try:
            if self.runtime.holds.setdefault(self.name, hold) is not hold:
                raise UsageError(
                    f"this client holds lock {self.name!r} already, or waits for it; nothing was done",
                    hint="a client has a lock once, for all its threads: release it first, or open another client",
                )
            self.runtime.call(hold.begin)
            epoch = await self._wait_for(hold, timeout_s)
            self.hold, is_held = hold, True
        finally:
            # Another's stays; so does nobody's, also where a signal stopped this call behind the listing.
            if not is_held and self.runtime.holds.get(self.name) is hold:
                self._let_go(hold)
        return epoch

    async def _wait_for(self, hold: Hold, timeout_s: float | None) -> int:
        runtime, what = self.runtime, f"lock {self.name!r}"
        answer_s = runtime.settings.operation_timeout_s
        is_answered = await Moved(hold.signal, lambda: hold.is_answered or runtime.is_ended, answer_s)
        runtime.check()
        if isinstance(hold.refusal, Refusal) and hold.refusal.code == "BAD_REQUEST":
            raise UsageError(f"{what}: {hold.refusal.text}; nothing was done")
        if not is_answered or hold.refusal is not None:
            why = runtime.node.metadata.why_late or "no answer"
            if isinstance(hold.refusal, Refusal):
                why = hold.refusal.text
            raise MetadataUnavailable(f"{what} cannot be asked for: {why}")
        is_over = await Moved(
            hold.signal, lambda: bool(hold.epoch or hold.ended) or runtime.is_ended, timeout_s
        )
        runtime.check()
        if hold.ended:
            raise self._lost(hold)
        if not is_over:
            raise OperationTimeout(
                f"{what} is held by others for more than {timeout_s:g} s; this client waits no longer",
                definite=True,
                hint="holder() says who holds it",
            )
        return hold.epoch

    def let_go(self) -> None:
        """Give the hold away without waiting for the outcome."""
        hold, self.hold = self.hold, None
        if hold is not None:
            self._let_go(hold)

    def _let_go(self, hold: Hold) -> None:
        self.runtime.call_if_open(hold.let_go)  # A client that was closed has ended its session.
        hold.unlist()

    async def release(self) -> None:
        self.runtime.check()
        hold = self.hold
        if hold is None:
            raise UsageError(f"lock {self.name!r} is not held by this handle; nothing was done")
        if hold.ended:
            self.hold = None
            raise self._lost(hold)
        self._let_go(hold)
        # Only now: a caller that a signal stops before has the hold still, and can release it.
        self.hold = None
        limit_s = self.runtime.settings.operation_timeout_s
        await Moved(
            hold.signal,
            lambda: hold.released is not None or hold.was_lost or self.runtime.is_ended,
            limit_s,
        )
        if hold.released is None and hold.was_lost:
            raise self._lost(hold)  # Before it was let go of, so nothing was sent.
        if isinstance(hold.released, TxnDone):
            if not hold.released.is_done:
                raise self._lost(hold)
            return
        why = self.runtime.node.metadata.why_late or "no answer"
        if isinstance(hold.released, Refusal):
            why = hold.released.text
        raise MetadataUnavailable(
            f"lock {self.name!r} may still be this client's: {why}",
            hint="it is given away when the metadata can be reached, or when the session ends",
        )

    async def until_lost(self, timeout_s: float | None) -> bool:
        check_seconds(timeout_s, "timeout_s")
        self.runtime.check()
        hold = self.hold
        if hold is None:
            return True
        return await Moved(hold.signal, lambda: bool(hold.ended) or self.runtime.is_ended, timeout_s)

    async def holder(self) -> Holder | None:
        what = f"the holder of lock {self.name!r}"
        found = await self.runtime.ask(Get(lock_path(self.name)), what)
        if not isinstance(found, Value):
            raise PeerError(f"{what}: the metadata member answered with a {type(found).__name__}")
        record = found.record
        return None if record is None else Holder(record.revision, record.value or b"")

    async def follow(self) -> FollowedKey:
        return await self.runtime.follow(lock_path(self.name))

    async def holders(self) -> AsyncGenerator[Holder | None, None]:
        followed = await self.follow()
        try:
            while not self.runtime.is_ended:
                assert followed.state is not None
                value, revision = followed.state
                yield None if value is None else Holder(revision, value)
                self.runtime.check()  # In a forked child nothing comes.
                await followed.beyond(revision, None)
            self.runtime.check()
        finally:
            followed.end()

    def _lost(self, hold: Hold) -> LockLost:
        why = hold.ended or "the session was not renewed in time"
        which = f", held under epoch {hold.epoch}," if hold.epoch else ", which this client waited for,"
        return LockLost(f"lock {self.name!r}{which} is lost: {why}")

    def refuse_pickling(self) -> None:
        refuse_pickling("a lock", "a lock is its client's; open a client there and ask for it")


class Lock:
    """A lock, or an election, by its name: at most one client holds it at any revision of the metadata. Use it as a
    context manager, or by `acquire` and `release`. Thread-safe; one client has it once, for all its threads."""

    def __init__(self, locking: Locking) -> None:
        self._locking = locking

    @property
    def name(self) -> str:
        return self._locking.name

    @property
    def epoch(self) -> int:
        """The fencing token of this handle's hold: higher than that of every earlier hold, of this lock and any other.
        A resource that only one holder may use refuses an epoch below the highest it has seen. 0: nothing is held."""
        return self._locking.epoch

    @property
    def is_held(self) -> bool:
        """Whether this client holds it as far as it knows now. False too where it cannot tell. It may be lost in the
        very next moment: the epoch protects, not this."""
        return self._locking.is_held

    def check(self) -> None:
        """Raises LockLost unless `is_held`."""
        self._locking.check()

    def acquire(self, timeout_s: float | None = None) -> int:
        """Wait until this client holds it, in order of asking; return its epoch.

        timeout_s: how long to wait while others hold it; 0: only if it is free; None: no limit.

        Raises:
            OperationTimeout: definite; nothing is held, and this client waits no longer.
            LockLost: the session ended while it waited, and its place is gone. Ask again.
            MetadataUnavailable: no answer, or too many clients wait; this one waits no longer.
            UsageError: this client holds it already, or waits for it.
        """
        return run_blocking(self._locking.acquire(timeout_s), "aio.Lock.acquire")

    def release(self) -> None:
        """Give it to the client that asked next.

        Raises:
            LockLost: this client did not hold it any more.
            MetadataUnavailable: no answer yet; it is released when the metadata can be reached or the session ends.
        """
        run_blocking(self._locking.release(), "aio.Lock.release")

    def until_lost(self, timeout_s: float | None = None) -> bool:
        """Wait until this client does not hold it any more; False: it still does after timeout_s."""
        return run_blocking(self._locking.until_lost(timeout_s), "aio.Lock.until_lost")

    def holder(self) -> Holder | None:
        """The client that holds it now; None: no client does."""
        return run_blocking(self._locking.holder(), "aio.Lock.holder")

    def holders(self) -> Iterator[Holder | None]:
        """The holder now, and then each next holder, without end. A holder that came and went between two looks may be
        left out."""
        return iterate(self._locking.holders(), "aio.Lock.holders")

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises LockLost if the block ended without an error and the lock was lost before its end."""
        try:
            if error is None:
                self.release()
        finally:
            self._locking.let_go()  # What `release` came not to, interrupted, say.

    def __reduce__(self) -> Any:
        self._locking.refuse_pickling()
