"""A log by its name, the blocking face: its writer, its readers and tails, and all that is done to it (P6.6).

Decides nothing: each call has a file of its own, which the awaited face (`aio/log.py`) shares. Writers are in
`log_writer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from embedbk.client import cursors, entry_times, log_deleting, sealing, splicing, truncating, undeleting
from embedbk.client.batches import Batch, Entry, Located, Segment, batch_of, entries_of
from embedbk.client.bulk import BulkReading, LogReader, Place
from embedbk.client.consumer import Cursor
from embedbk.client.cursors import Cursoring, CursorState
from embedbk.client.iterating import iterate
from embedbk.client.ledger import LedgerWriter
from embedbk.client.log_following import LogFollowing
from embedbk.client.log_identity import rename
from embedbk.client.log_places import Start
from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import (
    KEEP,
    Keep,
    LogSettings,
    WriterArguments,
    change,
    settings,
)
from embedbk.client.log_writer import LogWriter, open_writer
from embedbk.client.password import Password
from embedbk.client.record_batches import RecordBatches
from embedbk.client.runtime import Runtime, refuse_pickling
from embedbk.client.sealing import Seal
from embedbk.client.splicing import STAGED_TTL_S, SpliceOutcome, Staging
from embedbk.client.times import ms_of
from embedbk.client.truncating import LogPin, Truncation
from embedbk.client.undeleting import Undeletion
from embedbk.client.waiting import run_blocking
from embedbk.config import Placement, Roll, check_seconds
from embedbk.ids import Position, check_log_name

__all__ = ["Log"]


def _entries(frames: Iterator[Located]) -> Iterator[Entry]:
    for located in frames:
        yield from entries_of(located)


class Log:
    """A log by its name: nothing is opened before it is written or read. Each call asks where the name leads; a writer,
    a reader, a tail or a consumer that is open stays with its log, also when it is renamed."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.name = name
        self._runtime = runtime
        self._password = password

    @property
    def _reading(self) -> LogReading:
        """A new one for each call: each call asks where the name leads, and what it returns stays with that log
        (P8.12)."""
        return LogReading(self._runtime, self.name, self._password)

    def writer(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        durability: str | None = None,
        delays_change: bool = False,
        placement: Placement | None = None,
        digest: str | None = None,
        roll: Roll | None = None,
        compression: str | None = None,
    ) -> LogWriter:
        """Take the log over: the earlier writer is fenced, and what it had acknowledged stays (P8.1).

        Arguments that are left out are as the log's settings say, or as usual; those given become settings where the
        log has none at all (`settings`, `change`).

        durability: "synced", or "deferred" for appends that return when Qa bookies hold them in memory (P3.2).
        delays_change: tolerate failed bookies as long as every write set keeps its ack quorum (P4.6).
        placement: over racks, zones, by space; None: that of the settings given to `open`.
        digest: the sums by which entries are checked: "crc32c"; "xxh3" or "hmac" (under the password) beside it, which
            clients make entry by entry in Python. Bookies check the first two before they store; only clients can check
            hmac.
        roll: when the writer goes on in a next ledger (P8.2); None: after 1 GiB.
        compression: "zstd": what is appended as one entry (a payload, all of `append_batch`) is compressed as one,
            where that makes it smaller, in the thread that appends; readers get what was appended. All bounds in
            bytes, and all reported sizes of a log, count stored bytes. Small records gain by `append_batch`, as each
            entry of `append_many` is compressed by itself. Writer and readers need `embedbk[zstd]`, and the cluster
            level 24.

        Raises:
            UsageError: an argument is not allowed, or differs from the log's setting; both are named, nothing changed.
            LedgerFenced: another process took it over meanwhile.
            LogFull: its list of ledgers is at its bound; its present writer continues.
            LogSealed: nothing is ever appended to it any more; `reason` says why.
            NotEnoughBookies: too few bookies are known, or too few are writable and none came back within nearly
                operation_timeout_s; the message names those away. RecoveryInconclusive, WrongPassword: as they say.
                Trying again is safe. A log that was not there before stays behind, empty (P8.12): `delete` it, or write
                to it later.
        """
        given = WriterArguments(
            ensemble_size, write_quorum, ack_quorum, durability, digest, roll, compression
        )
        steps = open_writer(
            self._runtime, self.name, self._password, given, placement, delays_change=delays_change
        )
        line = run_blocking(steps, "aio.Log.writer")
        try:
            return LogWriter(self.name, line)
        except BaseException:
            line.release()  # Its caller was interrupted, and nobody has it.
            raise

    def read(self, start: Start = None, end: Start = None, *, skip_lost: bool = False) -> Iterator[Entry]:
        """The log's entries in order, from start (included) to end (left out), then it ends.

        start, end: a Position, or a dense offset. Reads as far as is known to be acknowledged (P6.2).
        skip_lost: go on behind entries that are lost for good (P11.5); else it ends there with `Lost`, whose
            `next_offset` is the next place.

        Raises:
            Lost: an operator gave up what comes next.
            NoSuchLedger: nobody ever wrote to this log.
            Truncated: start is below the beginning of the log.
            EntryUnreadable: no bookie of the write set gave a copy with a valid digest.
            NotEnoughBookies: too few bookies answer to tell how far its last ledger may be read.
        """
        located = self._reading.read(start, end, skip_lost=skip_lost)
        return _entries(iterate(located, "aio.Log.read"))

    def read_batches(
        self, start: Start = None, end: Start = None, *, skip_lost: bool = False
    ) -> Iterator[Batch]:
        """As `read`, but as buffers, without an object per entry."""
        frames = self._reading.read(start, end, skip_lost=skip_lost)
        for located in iterate(frames, "aio.Log.read_batches"):
            yield batch_of(located)

    def record_batches(
        self, start: Start = None, end: Start = None, *, with_records: bool = False, skip_lost: bool = False
    ) -> RecordBatches:
        """As `read`, but as Arrow record batches (`embedbk.arrow.SCHEMA`), whose columns lie in those buffers: to
        iterate, or as one stream: `pyarrow.table(log.record_batches())`.

        with_records: also key, timestamp and headers (`embedbk.arrow.SCHEMA_WITH_RECORDS`). A batch in which no record
        has any costs nothing extra; in the others an object is made for each row.

        Raises UsageError where pyarrow is not installed.
        """
        located = self._reading.read(start, end, skip_lost=skip_lost)
        frames = iterate(located, "aio.Log.record_batches")
        return RecordBatches(frames, with_records=with_records)

    def end(self) -> int:
        """The dense offset behind the last entry that may be read now."""
        return run_blocking(self._reading.end(), "aio.Log.end")

    def first_at(self, time: int | datetime) -> int:
        """The dense offset of the first entry at or behind a time, at which `read`, `tail` and `reader` may begin;
        `end()` where there is none (P8.11). A few small reads, however long the log is.

        time: ms since 1970, or a datetime with a time zone. Entries have the time at which their writer made them, by
            its clock, and no time is below the one before it, whatever the clocks say; those from before the cluster's
            level 7 have none, and count as older than all.

        Raises:
            NoSuchLedger: nobody ever wrote to this log. NotEnoughBookies, EntryUnreadable: as `read`.
            UsageError: no such time.
        """
        return run_blocking(entry_times.first_at(self._reading, ms_of(time)), "aio.Log.first_at")

    def time_at(self, place: Position | int) -> int | None:
        """The time of the entry at a place, in ms since 1970, as `first_at` knows it; None: it has none.

        Raises:
            NoSuchEntry: there is no entry at this place yet. Truncated, and the rest: as `read`.
        """
        return run_blocking(entry_times.time_at(self._reading, place), "aio.Log.time_at")

    def reader(self, start: Place = "earliest", *, skip_lost: bool = False) -> LogReader:
        """A reader that returns many entries per call, and waits for new ones.

        start: a Position, a dense offset, "earliest" (where the log begins), or "latest" (entries that come after its
            first call).
        skip_lost: go on behind entries that are lost for good (P11.5); else a call raises `Lost` there.
        """
        return LogReader(BulkReading(self._reading, start, skip_lost=skip_lost))

    def tail(
        self, start: Start = None, *, idle_s: float | None = None, skip_lost: bool = False
    ) -> Iterator[Entry]:
        """The log's entries as they are acknowledged, across takeovers; start None: entries that come from now on.

        "Now" is when the first entry is asked for. Ends only when nothing new came for idle_s; it waits for bookies
        that are away. skip_lost: as in `read`.

        Raises:
            Truncated, NoSuchLedger: what would come next is gone.
            EntryUnreadable: what is acknowledged could not be read from any copy for idle_s, or without one for
                operation_timeout_s.
            MetadataUnavailable: the next ledger could not be opened within operation_timeout_s.
        """
        check_seconds(idle_s, "idle_s")  # Now, not when the first entry is asked for.
        located = LogFollowing(self._reading).tail(start, idle_s, skip_lost=skip_lost)
        return _entries(iterate(located, "aio.Log.tail"))

    def segments(self, start: Start = None) -> list[Segment]:
        """The log's ledgers in order, each with how far it may be read now; from the ledger that holds `start` on.

        Raises Truncated where start is below the beginning of the log.
        """
        return run_blocking(self._reading.segments(start), "aio.Log.segments")

    def truncate(
        self,
        before: Start = None,
        *,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
        may_do_nothing: bool = False,
        force: bool = False,
    ) -> Truncation:
        """Remove the oldest entries, by whole ledgers (P8.3, P8.8): those that are closed, not the last, and
        entirely before each bound given here. Any client may do this, beside a writer.

        Offsets stay as they are (`Truncated` for entries that are gone). The ledgers are deleted like others: until
        their grace is over `undelete` puts them back in front of the log; `Client.undelete_ledger` brings one back by
        itself, not into the log.

        Args:
            before: a Position, or a dense offset; that entry stays.
            older_than_s: entries appended so long ago, by the times at which ledgers were begun, as the list has them.
            keep_bytes: at least so many payload bytes stay; ledgers whose length no list recorded stay, too (those
                from before the cluster's level 5).
            may_do_nothing: it is no error if no ledger can go.
            force: also past cursors that hold the log, which hold nothing from then on; never past a pin.

        Raises:
            NotTruncated: no ledger can go; `truncation` has what was asked, what stays and what holds it.
            UsageError: nothing says how much, a number is out of range, or the cluster's level is below 5.
            NoSuchLedger: there is no such log. WrongPassword: as it says; nothing was changed.
            OperationTimeout: the truncation may still go on: call it again.
        """
        steps = truncating.truncate(
            self._reading, before, older_than_s, keep_bytes, may_do_nothing=may_do_nothing, force=force
        )
        return run_blocking(steps, "aio.Log.truncate")

    def undelete(self, from_: Start = None) -> Undeletion:
        """Put ledgers that were truncated back in front of the log, from the newest to the oldest, until it begins at
        or before `from_` (a Position, or a dense offset; None: as far as it can be had) (P8.15).

        A ledger comes back whole, while it has its tombstone (`Client.deleted_ledgers`), and only where bookies say now
        that an ack quorum holds it. Where it ends before `from_`, the result names the ledger that did not come back,
        and why. Retention, and a bound of the log, take off again what they do not allow: change these settings first.

        Raises:
            NoSuchLedger: no ledger could be put back, for the reason given; or there is no such log; or no ledger of
                the Position is known.
            UsageError: the cluster's level is below 28. WrongPassword: as it says; nothing was changed.
            MetadataUnavailable, MetadataConflict, OperationTimeout: some may be back: call it again.
        """
        return run_blocking(undeleting.undelete(self._reading, from_), "aio.Log.undelete")

    def pin(self, name: str, at: Start = None, *, ttl_s: float = 3600.0) -> LogPin:
        """Keep everything from `at` on (a Position or an offset; None: from the log's start) from being truncated, for
        ttl_s from now by wall clocks (P8.8). A new pin replaces one of the same name.

        Raises:
            Truncated: it comes too late; `first_offset` says where the log begins.
            UsageError: the name is not allowed, the log has 1000 pins, or the cluster's level is below 5.
        """
        return run_blocking(truncating.pin(self._reading, name, at, ttl_s), "aio.Log.pin")

    def unpin(self, name: str) -> bool:
        """Take a pin away, also one that another client made; False: there is none of this name."""
        return run_blocking(truncating.unpin(self._reading, name), "aio.Log.unpin")

    def pins(self) -> list[LogPin]:
        """The log's pins, those whose time is over included until somebody truncates or pins."""
        return run_blocking(truncating.pins(self._reading), "aio.Log.pins")

    def cursor(
        self,
        name: str,
        holds: bool = True,
        *,
        ends_after_s: float | None = None,
        ends_behind_bytes: int | None = None,
    ) -> Cursor:
        """A durable cursor by its name: the place of a consumer, kept with the log (P8.8).

        Args:
            holds: entries from its place on are not truncated, except by force.
            ends_after_s: the hold ends when the cursor was not moved for so long, by wall clocks; None: never.
                ends_behind_bytes: likewise when more payload bytes than that are behind it, as far as the list has
                them. The next truncation ends the hold for good; the cursor stays.

        Raises UsageError: a name or a number is not allowed.
        """
        return Cursor(Cursoring(self._reading, name, holds, ends_after_s, ends_behind_bytes))

    def cursors(self) -> list[CursorState]:
        """The log's cursors, by their names, with their consumers, and how far each is behind the acknowledged entries:
        in entries, bytes and time."""
        return run_blocking(cursors.cursors(self._reading), "aio.Log.cursors")

    def settings(self) -> LogSettings:
        """The settings that its writers follow. Raises NoSuchLedger: there is no such log."""
        return run_blocking(settings(self._reading), "aio.Log.settings")

    def change(
        self,
        *,
        revision: int | None = None,
        ensemble_size: int | Keep | None = KEEP,
        write_quorum: int | Keep | None = KEEP,
        ack_quorum: int | Keep | None = KEEP,
        durability: str | Keep | None = KEEP,
        digest: str | Keep | None = KEEP,
        roll: Roll | Keep | None = KEEP,
        retention_s: float | Keep | None = KEEP,
        retention_bytes: int | Keep | None = KEEP,
        properties: Mapping[str, bytes] | Keep | None = KEEP,
        bytes_max: int | Keep | None = KEEP,
        at_bytes_max: str | Keep | None = KEEP,
        compression: str | Keep | None = KEEP,
    ) -> LogSettings:
        """Change settings of the log (P8.7); what is left out stays, None restores the default. The owner looks
        for changes every 10 s or so, and rolls if its ledger was made by other settings.

        Args:
            revision: only if they were not changed since `settings` or `change` returned this one; 0: only if there are
                none.
            retention_s, retention_bytes: the owner truncates entries appended so long ago, and those beyond so many
                payload bytes; where both are given both must allow it; never past a pin or a cursor that holds. For a
                log that nobody writes, the host that is the auditor does so, unless the log's ledgers have a password.
            properties: a map of the user's own, of 64 KiB at most; it replaces the earlier one.
            bytes_max, at_bytes_max: payload bytes that the log may have (P8.8), and what its owner does at that bound:
                "refuse" appends (LogAtBound), the default; or "let_go" of the oldest ledgers, from 7/8 of the bound on
                and until 3/4 are left, also past cursors that hold them: these hold nothing then, and their consumers
                get Truncated. Never past a pin: while a pin holds the log at its bound, appends are refused. A ledger
                of the log has at most an eighth of the bound. From level 20 of the cluster on.
            compression: "zstd": what is appended is compressed where that makes it smaller (`writer`); sizes count the
                stored bytes. From level 24 of the cluster on; an owner that lacks `embedbk[zstd]` logs that, and
                appends as before.

        Raises:
            MetadataConflict, definite: the settings have another revision, or changed again and again.
            UsageError: a value is not allowed, or the cluster's level is below 6, below 20 with bytes_max,
                or below 24 with compression; or `embedbk[zstd]` is not installed here.
            NoSuchLedger: there is no such log.
        """
        wanted = {
            "ensemble_size": ensemble_size,
            "write_quorum": write_quorum,
            "ack_quorum": ack_quorum,
            "durability": durability,
            "digest": digest,
            "roll": roll,
            "retention_s": retention_s,
            "retention_bytes": retention_bytes,
            "properties": properties,
            "bytes_max": bytes_max,
            "at_bytes_max": at_bytes_max,
            "compression": compression,
        }
        return run_blocking(change(self._reading, revision, wanted), "aio.Log.change")

    def staging(
        self, application: str | None = None, number: int = 0, *, ttl_s: float = STAGED_TTL_S
    ) -> Staging:
        """The terms of one transaction: ledgers that any number of processes make ready, and that become part of the
        log all at once, and only once (P8.5). Plain data: pickle it, and send it to the processes that stage for it.

        Args:
            application: your own name of the application that makes these transactions (1 to 200 characters). The log
                keeps its newest number, so that no transaction is done twice, however often it is tried.
                None: a new application, for a transaction that is not run again.
            number: the number of the transaction; an application's numbers rise.
            ttl_s: ledgers that are staged and not spliced are given up after so long, by wall clocks.
        """
        return splicing.staging(self._runtime, self.name, application, number, ttl_s)

    def stage(self, staging: Staging) -> LedgerWriter:
        """A new ledger that waits to be spliced, made by the log's settings; no reader of the log sees it. Append to
        it, close it, and send its `ledger_id` to the process that splices. A ledger left empty or open cannot be
        spliced.

        Raises:
            UsageError: these are no terms for this log, or the cluster's level is below 12.
            NotEnoughBookies, MetadataUnavailable: it was not made.
        """
        return LedgerWriter(run_blocking(splicing.stage(self._reading, staging), "aio.Log.stage"))

    def splice(
        self, staging: Staging, ledger_ids: Sequence[int], *, timeout_s: float | None = None
    ) -> SpliceOutcome:
        """Put staged ledgers behind everything that the log has, in this order, in one transaction. It may be called
        again: a transaction that was done is recognised by application and number, and gets the same answer.

        A living writer is asked, and puts them between two of its own ledgers; its appends wait for that. The log of a
        writer whose session is gone is taken over.

        Args:
            ledger_ids: of 1 to 60 closed ledgers with entries, staged under these very terms.
            timeout_s: how long to wait for the owner; None: `Settings.operation_timeout_s`.

        Raises:
            UsageError: one of them is not staged any more, open, empty or of other terms; the cluster's level is
                below 12; or the log knows 400 applications. Nothing was spliced.
            OperationTimeout: `definite`: the owner did not do it in time, and will not. Else call it again.
            LogSealed: nothing is put behind a seal. WrongPassword, RecoveryInconclusive, LogFull: as of `writer`.
        """
        steps = splicing.splice(self._reading, staging, ledger_ids, timeout_s)
        return run_blocking(steps, "aio.Log.splice")

    def unstage(self, staging: Staging) -> int:
        """Give up what was staged under these terms and is not spliced; return how many ledgers went, including
        other transactions' ledgers whose time is over."""
        return run_blocking(splicing.unstage(self._reading, staging), "aio.Log.unstage")

    def spliced(self, application: str) -> SpliceOutcome | None:
        """The newest transaction of an application that was done; None: none was."""
        return run_blocking(splicing.spliced(self._reading, application), "aio.Log.spliced")

    def forget_application(self, application: str) -> bool:
        """Forget the application's newest transaction, to make room for another application: a transaction that is
        tried again is then done twice. False: the application is not known."""
        return run_blocking(
            splicing.forget_application(self._reading, application), "aio.Log.forget_application"
        )

    def log_id(self) -> str:
        """The id of the log, which never changes (P8.12). A log from below the cluster's level 14 has the name under
        which it was made. Raises NoSuchLedger: there is no such log."""
        return run_blocking(self._reading.log_id(), "aio.Log.log_id")

    def rename(self, new_name: str) -> None:
        """Give the log another name, by one transaction (P8.12). Everything that is kept with it stays, and everything
        that has it open goes on: writers, readers, consumers, pins. `name` is the new one from then on; other handles
        of the old name find no log any more, and the next writer by the old name makes another one.

        Raises:
            LogExists: there is a log of that name. NoSuchLedger: there is no such log.
            UsageError: no name, or the cluster's level is below 14. In each case nothing was changed.
            MetadataUnavailable: where it is not definite, `Client.logs` says which name it has.
        """
        run_blocking(rename(self._runtime, self.name, check_log_name(new_name)), "aio.Log.rename")
        self.name = new_name

    def delete(self, *, force: bool = False) -> None:
        """Delete this log, as `Client.delete_log` does."""
        steps = log_deleting.delete_log(self._runtime, self.name, self._password, force=force)
        run_blocking(steps, "aio.Log.delete")

    def seal(self, reason: str) -> Seal:
        """End the log for ever (P8.9): its writer is fenced, its ledgers are closed, and no writer takes it over any
        more; readers end where it ends, also those that wait. It is read, consumed, truncated and deleted as before.

        reason: 1 to 200 characters, reported to every client that would write.

        Raises:
            LogSealed: it was sealed before; the error has that reason.
            LedgerFenced: others took it over again and again; it is not sealed.
            UsageError: the reason is not allowed, or the cluster's level is below 6. NoSuchLedger: there is no such
                log.
            RecoveryInconclusive, NotEnoughBookies, WrongPassword: as of `writer`. OperationTimeout: call it again.
        """
        return run_blocking(sealing.seal(self._reading, reason), "aio.Log.seal")

    def sealed(self) -> Seal | None:
        """Why, when and by whom it was sealed; None: it was not."""
        return run_blocking(sealing.sealed(self._reading), "aio.Log.sealed")

    def __reduce__(self) -> Any:
        refuse_pickling("a log handle", "send the client's url and the log's name, and open it there")

    def __repr__(self) -> str:
        return f"Log({self.name!r})"
