"""One copy of an application's state: it follows a log of commands, or leads it.

Every copy applies the commands of the log in their order. The leader is the copy that has the log's writer, one at a
time by its epoch (P8.1): a command is durable on its ack quorum before it is applied anywhere, so everything that a
leader has done is in the log, and the next leader has read the log to its end before it applies a command of its own. A
leader that does not learn the outcome of a command leads no more: only the log has it, and the next leader reads it
there.

A checkpoint is a snapshot, then a truncation before it, as one call: the log of commands never begins behind the newest
snapshot that is whole. A copy for which the log begins too late begins with that.

    following --lead(): lock, takeover, read to the end--> leading --end of the block, error, fenced--> following
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from embedbk.client.batches import entries_of
from embedbk.client.client import Client
from embedbk.client.iterating import iterate
from embedbk.client.log_reading import LogReading
from embedbk.client.log_writer import LogWriter
from embedbk.client.runtime import refuse_pickling
from embedbk.client.truncating import truncate
from embedbk.client.waiting import refuse_in_event_loop, run_blocking
from embedbk.config import check_seconds
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    LockLost,
    NoSuchLedger,
    StorageError,
    Truncated,
    UsageError,
    ensure,
)
from embedbk.replicated.machine import StateMachine
from embedbk.replicated.snapshots import StateSnapshots

__all__ = ["Freshness", "Leader", "Replica"]

_BARRIER = b""  # No command: it only proves that its appender led until then.
_TRIES = 8  # Snapshots that are replaced while one of them is read.


M = TypeVar("M", bound=StateMachine)


class Freshness(NamedTuple):
    """How fresh this copy is: it has every command before offset, which age_s ago were all that readers could know.
    Only a leader knows that there are no others: `Leader.confirm`. age_s: infinite before the first look."""

    offset: int
    age_s: float


class Replica(Generic[M]):
    """A copy of the state that a machine keeps. Not for several threads at once; a process may have many."""

    def __init__(self, bk: Client, name: str, machine: M, *, password: bytes = b"") -> None:
        """name: of the log of commands; snapshots stand in the log of this name and `.snapshots`."""
        self._log = bk.log(name, password=password)
        self._lock = bk.lock(f"replicated.{name}")
        self._runtime = bk._runtime
        self._snapshots = StateSnapshots(bk, name, password)
        self.name = name
        self.machine = machine
        self._leader: Leader | None = None
        self._looked_s = float("-inf")  # When the log was last read to its end.
        self._read_to = 0  # The offset behind the last entry that was read, barriers among them.
        self._broken: BaseException | None = None

    @property
    def freshness(self) -> Freshness:
        return Freshness(self.machine.offset, self._runtime.clock_s() - self._looked_s)

    @property
    def leader(self) -> Leader:
        """Raises UsageError: this copy does not lead."""
        if self._leader is None:
            raise UsageError(
                f"this copy of {self.name!r} follows: only a leader changes it", hint="with .lead():"
            )
        self._leader.check()
        return self._leader

    def follow(self, wait_s: float | None = 0.0) -> Freshness:
        """Apply what is acknowledged by now; where nothing new is, wait for it so long (None: without end). That nobody
        ever led is nothing new.

        Raises:
            Truncated: the log begins behind what is applied here, and no snapshot reaches so far.
            NoSuchLedger: the log of which this state is was deleted, or its name is another log's by now. StorageError:
                the snapshots are of another log, or the state has more than the log.
            EntryUnreadable, NotEnoughBookies, MetadataUnavailable: as `Log.read`; call it again.
            UsageError: the machine failed before, so that its state is not known.
        """
        check_seconds(wait_s, "wait_s")
        self._check()
        until_s = math.inf if wait_s is None else self._runtime.clock_s() + wait_s
        while self._leader is None and not self._apply_all():
            left_s = until_s - self._runtime.clock_s()
            if left_s <= 0 or not self._comes_within(None if wait_s is None else left_s):
                break
        return self.freshness

    @contextmanager
    def lead(self, timeout_s: float | None = None) -> Iterator[Leader]:
        """Lead while the block runs, once no other copy does: its state has everything that was acknowledged to any
        leader before. Leaving the block hands over to the next copy that waits.

        Raises:
            OperationTimeout: another leads, for timeout_s. UsageError: this copy leads already, or its machine failed.
            What `Log.writer` and `follow` raise: it may be tried again.
        """
        self._check()
        if self._leader is not None:
            raise UsageError(f"this copy of {self.name!r} leads already")
        self._lock.acquire(timeout_s)
        try:
            self._find()  # Before anybody is fenced, and before a log is made: that this state is of this log.
            writer = self._log.writer()
            try:
                self._apply_all(writer.first_offset)
                self._leader = leader = Leader(self, writer)
                yield leader
                if leader.ended is None:
                    writer.close()
            finally:
                self._leader = None
                writer.release()
        finally:
            with suppress(LockLost):  # Then somebody else has it already.
                self._lock.release()

    def close(self) -> None:
        """Lets nothing go: what is durable is in the log."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickling("a copy of a replicated state", "make one there, with the same name")

    def _check(self) -> None:
        if self._broken is not None:
            raise UsageError(
                f"this copy of {self.name!r} failed while it applied a command: {self._broken}",
                hint="make another one; it begins with the newest snapshot, or with the log",
            ) from self._broken

    def _comes_within(self, wait_s: float | None) -> bool:
        """Whether the log has, or gets in this time, something that was not read yet."""
        try:
            for _ in self._log.tail(self._place, idle_s=wait_s):
                return True
        except (NoSuchLedger, Truncated):
            return True  # Reading it says what that means.
        return False

    @property
    def _place(self) -> int:
        """Where reading goes on: what is read and no command moves no machine."""
        return max(self._read_to, self.machine.offset)

    def _apply_all(self, until: int | None = None) -> int:
        """How many commands there were. until: where the log of others ends; None: as far as is acknowledged."""
        before = self.machine.offset
        for _ in range(_TRIES):
            reading = self._find()
            if reading is None:
                break  # No copy ever led.
            self._check_offset(reading, until)
            try:
                if before == 0 == self.machine.offset and self._load(str(reading.name)):
                    continue  # Shorter than the whole log, and what it stands for may be gone any moment.
                for located in iterate(reading.read(self._place, until), "aio.Log.read"):
                    for entry in entries_of(located):
                        if len(entry) > len(_BARRIER):
                            self._apply(bytes(entry), entry.offset)
                        self._read_to = entry.offset + 1
                break
            except NoSuchLedger:
                continue  # Deleted meanwhile.
            except Truncated as gone:
                if not self._load(str(reading.name)):
                    raise gone
        self._looked_s = self._runtime.clock_s()
        return self.machine.offset - before

    def _find(self) -> LogReading | None:
        """The log of which this state is, bound to its id, so that what is read and let go is of this one (P8.12).
        None: there is none yet.

        Raises NoSuchLedger: there was one, and its name leads to none now, or to another."""
        reading, machine = self._log._reading, self.machine
        try:
            log_id = run_blocking(reading.log_id(), "aio.Log.log_id")
        except NoSuchLedger as none:
            if machine.offset == 0:
                return None
            raise self._other("there is no log of that name") from none
        if machine.log_id == log_id:
            return reading
        if machine.offset == 0:  # Nothing of any log is in this state.
            self._read_to, machine.log_id = 0, log_id
        elif machine.log_id:
            raise self._other(f"log {log_id} has that name")
        return reading

    def _other(self, now: str) -> NoSuchLedger:
        log_id, offset = self.machine.log_id, self.machine.offset
        of = f"log {log_id}" if log_id else "a log that this copy followed"
        return NoSuchLedger(
            f"this copy of {self.name!r} has the state of {of}, up to offset {offset}, and {now} by now: the former "
            "was deleted, and perhaps begun anew, or renamed; nothing was applied",
            hint="make a copy without a state for the log that is there, or bring the former log back: "
            f"undelete_log({log_id or self.name!r})",
        )

    def _check_offset(self, reading: LogReading, until: int | None) -> None:
        """What a build before kept says of no log: it is of this one unless that proves to end before its offset; where
        it is not proven either way, nothing is there to apply."""
        machine, is_whole = self.machine, until is not None
        end = until
        if end is None:
            if machine.log_id:
                return
            try:
                segments = run_blocking(reading.segments(machine.offset), "aio.Log.segments")
            except (NoSuchLedger, Truncated):
                return  # Reading it says what that means.
            if not segments:
                return
            last = segments[-1]
            end, is_whole = last.first_offset + last.last_entry + 1, last.is_closed
        if machine.offset <= end:
            if not machine.log_id:
                machine.log_id = str(reading.name)
        elif is_whole:
            raise StorageError(
                f"this copy of {self.name!r} has a state at offset {machine.offset}, and log {reading.name!s} of that "
                f"name ends at {end}: the state is of another log, or the log lost its end; nothing was applied",
                hint="make a copy without a state; it begins with the newest snapshot, or with the log",
            )

    def _load(self, log_id: str) -> bool:
        """Whether the newest snapshot is ahead of this copy; then it begins there."""
        for _ in range(_TRIES):
            found = self._snapshots.newest(log_id)
            if found is None or found.offset <= self.machine.offset:
                return False
            try:
                self.machine.load(self._snapshots.parts(found), found.offset)
            except Truncated:
                continue  # A newer one took its place.
            ensure(
                self.machine.offset == found.offset, "a machine stands where the snapshot that it loaded does"
            )
            if self.machine.log_id != found.log_id:
                self.machine.log_id = found.log_id  # "": its place has to fit.
            return True
        return False

    def _apply(self, command: bytes, offset: int) -> object:
        return self._carry_out(offset, lambda place: self.machine.apply(command, place))

    def _carry_out(self, offset: int, act: Callable[[int], object]) -> object:
        """An error ends this copy: the command counts, and it is not known what of it is in this state."""
        try:
            result = act(offset)
            ensure(self.machine.offset == offset + 1, "a machine counts the command that it applied")
        except BaseException as error:
            self._broken = error
            raise
        return result


class Leader:
    """This copy, while it leads."""

    def __init__(self, replica: Replica[Any], writer: LogWriter) -> None:
        self._replica, self._writer = replica, writer
        self.ended: EmbedbkError | None = None  # Why it leads no more.

    @property
    def epoch(self) -> int:
        """The fencing token for what is done beside the state (P9.3)."""
        return self._writer.epoch

    def check(self) -> None:
        """Raises the error that ended it; no error proves nothing (P9.1): `confirm` does."""
        if self.ended is not None:
            raise self.ended
        self._replica._check()

    def submit(
        self,
        command: bytes,
        *,
        timeout_s: float | None = None,
        carry_out: Callable[[int], object] | None = None,
    ) -> object:
        """Append the command, and apply it here when it is durable: what applying it gave.

        carry_out(offset): instead of the machine's `apply`, for a leader that has the outcome ready, and only has to
            keep it.

        Raises:
            UsageError: no bytes, none of them, or more than an entry holds; nothing was done.
            LedgerFenced: another leads. Whether the command counts is in the log alone, unless `definite`: then it does
                not. After any error that is not definite this copy leads no more; its next leader knows.
        """
        if not isinstance(command, bytes) or not command:
            raise UsageError(f"a command is bytes, and at least one, not {command!r:.80}; nothing was done")
        offset = self._append(command, timeout_s)
        try:
            result = self._replica._carry_out(
                offset, carry_out or partial(self._replica.machine.apply, command)
            )
        except BaseException:
            if self._replica._broken is not None:  # From now on that refuses everything.
                self.ended = None
            raise
        self.ended = None
        return result

    def confirm(self, timeout_s: float | None = None) -> None:
        """Wait until it is certain that no other copy led before this call: the state here has everything that was
        acknowledged until then, so reads after it are linearizable. Costs one append.

        Raises what `submit` raises.
        """
        self._append(_BARRIER, timeout_s)
        self.ended = None

    def checkpoint(self) -> int:
        """Save the state and let the log before it go; the offset at which the state is. Whole ledgers go, and a log's
        last one stays, so a part of what is saved may stand in the log until the next time.

        Raises what `Log.writer` and `Log.truncate` raise: commands are there as before, and the newest snapshot, too.
        """
        self.check()
        replica = self._replica
        offset: int = replica.machine.offset
        machine = replica.machine
        found = replica._snapshots.write(offset, machine.save(), machine.log_id)
        try:
            self._writer.roll()
        except LedgerFenced as fenced:
            self.ended = fenced
            raise
        reading = replica._find()
        if reading is not None:
            before = min(offset, found.offset)
            steps = truncate(reading, before, None, None, may_do_nothing=True)
            run_blocking(steps, "aio.Log.truncate")
        return offset

    def _append(self, data: bytes, timeout_s: float | None) -> int:
        """Returns with `ended` set, for the caller to take back once the command is carried out: what stops it before,
        a signal say, leaves a command that counts and is not in this state."""
        # Before anything is queued: what is refused behind that would count, and not be in this state.
        check_seconds(timeout_s, "timeout_s")
        refuse_in_event_loop("this call by asyncio.to_thread")
        self.check()
        interrupted = UsageError(
            f"this copy of {self._replica.name!r} was interrupted in a command, and leads no more: only the log knows "
            "whether that counts",
            definite=False,
            hint="leave the block; the next leader knows",
        )
        self.ended = interrupted
        try:
            ticket = self._writer.append_nowait(data)
            ticket.result(timeout_s)
        except EmbedbkError as error:
            self.ended = None
            if not error.definite or isinstance(error, LedgerFenced):
                self.ended = error
            raise
        offset = ticket.offset
        ensure(
            offset >= self._replica.machine.offset, "a leader has applied everything before its own command"
        )
        self._replica._looked_s = self._replica._runtime.clock_s()
        return int(offset)
