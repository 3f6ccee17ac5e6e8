"""What `embedbk.open` gives: one client of one cluster, embedded in this process or reached by its address.

What is given to open one stands in `opening`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from embedbk.client import creating, deleting, explaining, log_deleting
from embedbk.client.bookie_reports import BookieReport, report_on
from embedbk.client.bookie_states import BookieState, bookie_states
from embedbk.client.copy_choosing import ChosenCopy, EntryCopies, choose_copy, entry_copies
from embedbk.client.creating import quorum_of, traits_of
from embedbk.client.deleting import DeletedLedger
from embedbk.client.draining import cancel_drain, drain
from embedbk.client.embedded import Opened
from embedbk.client.explaining import Explanation
from embedbk.client.giving_up import LostEntries, give_up, lost_entries
from embedbk.client.handles import HandleState, handles
from embedbk.client.iterating import iterate
from embedbk.client.ledger import LedgerReader, LedgerWriter
from embedbk.client.ledger_ids import ledger_ids, metadata_of
from embedbk.client.locking import Lock, Locking
from embedbk.client.log import Log
from embedbk.client.log_deleting import DeletedLog
from embedbk.client.log_names import log_names, watch_logs
from embedbk.client.log_settings import create_log, log_exists
from embedbk.client.password import Password
from embedbk.client.read_bounds import bound_reads
from embedbk.client.read_only import put_to_read_only
from embedbk.client.reading import LedgerReading
from embedbk.client.repair_state import audit, health_of, set_grace, switch_repair
from embedbk.client.retiring import decommission, retire
from embedbk.client.runtime import refuse_pickling
from embedbk.client.stopping import may_stop
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Placement, Roll, check_seconds
from embedbk.errors import UsageError
from embedbk.ids import check_log_name
from embedbk.repair.health import Health
from embedbk.repair.stopping import StopVerdict

__all__ = ["Client"]

NO_CUSTOM: Mapping[str, bytes] = {}


class Client:
    """A cluster, opened. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._runtime = opened.runtime

    # Logs.

    def log(self, name: str, *, password: bytes = b"") -> Log:
        """A log by its name; password is that of its ledgers."""
        self._runtime.check()
        return Log(self._runtime, check_log_name(name), Password(password))

    def create_log(
        self,
        name: str,
        *,
        password: bytes = b"",
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        durability: str | None = None,
        digest: str | None = None,
        roll: Roll | None = None,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        properties: Mapping[str, bytes] | None = None,
        bytes_max: int | None = None,
        at_bytes_max: str | None = None,
        compression: str | None = None,
    ) -> Log:
        """Make a new, empty log with settings; its first `writer()` would make one too. The arguments are those of
        `Log.change`; what is left out has its default. password: for the handle that is returned.

        Raises:
            LogExists: there is one of this name; nothing was changed.
            UsageError: a value is not allowed, or the cluster's level is below 6, or below 20 with bytes_max.
        """
        made = self.log(name, password=password)
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
        run_blocking(create_log(made._reading, wanted), "aio.Client.create_log")
        return made

    def log_exists(self, name: str) -> bool:
        """Whether there is a log of this name: made by `create_log`, or by its first writer, and not deleted."""
        self._runtime.check()
        return run_blocking(log_exists(self._runtime, check_log_name(name)), "aio.Client.log_exists")

    def logs(self, prefix: str = "") -> list[str]:
        """The names of all logs that begin with prefix, ascending."""
        return run_blocking(log_names(self._runtime, prefix), "aio.Client.logs")

    def watch_logs(self, prefix: str = "", *, idle_s: float | None = None) -> Iterator[list[str]]:
        """The names of all logs that begin with prefix, as `logs` has them: at once, and whenever they change; ends
        when they were the same for idle_s. A log that comes and goes in between may not be shown; one that stays always
        is, also after a time without metadata.

        Raises MetadataUnavailable: nothing is known any more; begin anew.
        """
        check_seconds(idle_s, "idle_s")
        return iterate(watch_logs(self._runtime, prefix, idle_s), "aio.Client.watch_logs")

    # Locks.

    def lock(self, name: str, *, value: bytes = b"") -> Lock:
        """A lock, or an election, by its name; nothing is asked for yet. value: shown to every client while this one
        waits and while it holds: its name or its address, say."""
        return Lock(Locking(self._runtime, name, value))

    # Ledgers.

    def create_ledger(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        password: bytes = b"",
        custom: Mapping[str, bytes] = NO_CUSTOM,
        durability: str = "synced",
        delays_change: bool = False,
        placement: Placement | None = None,
        digest: str = "crc32c",
        compression: str | None = None,
    ) -> LedgerWriter:
        """A new ledger and its one writer. Sizes left out: 3/3/2, or 1/1/1 with fewer than three bookies.

        durability: "synced", or "deferred" for adds that return when Qa bookies hold them in memory (P3.2).
        delays_change: tolerate failed bookies as long as every write set keeps its ack quorum (P4.6).
        placement: over racks, zones, by space; None: that of the settings given to `open`.
        digest: the sums by which entries are checked: "crc32c"; "xxh3" or "hmac" (under the password) beside it, which
            clients make entry by entry in Python. Bookies check the first two before they store; only clients can check
            hmac.
        compression: "zstd": an entry is stored compressed where that makes it smaller (`Log.writer`).

        Raises:
            UsageError: not ensemble_size >= write_quorum >= ack_quorum >= 1.
            NotEnoughBookies: fewer bookies are known than ensemble_size, or too few of them are writable and no other
                came back within nearly operation_timeout_s; the message names the bookies that are away. Nothing was
                made.
        """
        wanted = quorum_of(self._runtime, ensemble_size, write_quorum, ack_quorum)
        quorum = run_blocking(wanted, "aio.Client.create_ledger")
        traits = traits_of(
            self._runtime,
            durability,
            placement,
            delays_change=delays_change,
            digest=digest,
            compression=compression,
        )
        steps = creating.create(self._runtime, quorum, Password(password), custom, traits)
        return LedgerWriter(run_blocking(steps, "aio.Client.create_ledger"))

    def open_ledger(self, ledger_id: int, *, recover: bool = False, password: bytes = b"") -> LedgerReader:
        """A ledger for reading.

        recover: fence its writer and close it first (P5.2); else an open one is read up to its LAC.

        Raises:
            NoSuchLedger, WrongPassword: nothing was changed.
            RecoveryInconclusive: too few bookies answered; trying again is safe.
        """
        steps = LedgerReading.open(self._runtime, ledger_id, Password(password), recover=recover)
        return LedgerReader(run_blocking(steps, "aio.Client.open_ledger"))

    def delete_ledger(self, ledger_id: int, *, password: bytes = b"", force: bool = False) -> None:
        """Delete a CLOSED ledger; until its grace is over (`Settings.delete_grace_s`) it can be brought back.

        force: delete it in whatever state it is (P2.3); one that is not CLOSED is then gone at once and for ever.

        Raises:
            NoSuchLedger, WrongPassword, UsageError (not CLOSED, or part of a log): nothing was changed.
        """
        steps = deleting.delete(self._runtime, ledger_id, Password(password), force=force)
        run_blocking(steps, "aio.Client.delete_ledger")

    def delete_log(self, name: str, *, password: bytes = b"", force: bool = False) -> None:
        """Delete a log whose writer has ended, by one transaction: its name is free, nobody finds it any more, and all
        of it can be brought back (`undelete_log`) until its grace is over (`Settings.delete_grace_s`) and somebody
        calls `forget_deleted`, which ends it with its ledgers. What is staged for it and not spliced is given up now.

        force: delete also a log that a client writes, or whose writer did not close. That writer appends until it needs
        the metadata; entries acknowledged to it are part of the log, and come back with it.

        Below the cluster's level 14 the log is gone at once, and each ledger can be brought back by itself; with force
        the open ledger is gone for ever. Where that was cut short, calling it again deletes what is left.

        Raises:
            NoSuchLedger: there is no such log.
            WrongPassword, UsageError: its last ledger has another password, or is open; nothing was changed.
            MetadataConflict: others take it over again and again. MetadataUnavailable: where it is not definite,
                `deleted_logs` says whether it was done.
        """
        steps = log_deleting.delete_log(self._runtime, check_log_name(name), Password(password), force=force)
        run_blocking(steps, "aio.Client.delete_log")

    def undelete_log(self, name: str, *, new_name: str | None = None, password: bytes = b"") -> Log:
        """Bring a deleted log back as it was: its entries at their offsets, its cursors, pins and settings.

        Args:
            name: the name that it had, or its id, where several of that name were deleted (`deleted_logs`).
            new_name: its name from now on; None: as it was.

        Raises:
            NoSuchLedger: none was deleted, or it was forgotten since. LogExists: another log has the name by now.
            UsageError: several were deleted (the message names them); or the cluster's level is below 14.
            WrongPassword. In each case nothing was changed.
        """
        steps = log_deleting.undelete_log(self._runtime, name, new_name, Password(password))
        return self.log(run_blocking(steps, "aio.Client.undelete_log"), password=password)

    def deleted_logs(self) -> list[DeletedLog]:
        """The logs that can be brought back."""
        return run_blocking(log_deleting.deleted_logs(self._runtime), "aio.Client.deleted_logs")

    def undelete_ledger(self, ledger_id: int, *, password: bytes = b"") -> None:
        """Bring a deleted ledger back as it was.

        Raises NoSuchLedger when it was not deleted, or was forgotten since; WrongPassword.
        """
        steps = deleting.undelete(self._runtime, ledger_id, Password(password))
        run_blocking(steps, "aio.Client.undelete_ledger")

    def deleted_ledgers(self) -> list[DeletedLedger]:
        """The ledgers that can be brought back."""
        return run_blocking(deleting.deleted(self._runtime), "aio.Client.deleted_ledgers")

    def forget_deleted(self) -> list[int]:
        """Give up the deleted ledgers and logs whose grace is over, for ever; return the ids of the ledgers, those of
        the logs included."""
        return run_blocking(log_deleting.forget_deleted(self._runtime), "aio.Client.forget_deleted")

    def explain(self, ledger_id: int) -> Explanation:
        """Why the ledger is as it is, and what is safe to do next: data, and as text by `str()`. Changes nothing."""
        return run_blocking(explaining.explain(self._runtime, ledger_id), "aio.Client.explain")

    def handles(self) -> list[HandleState]:
        """What each open handle of this client waits for just now, by which rule and since when: writers of ledgers and
        logs, their readers, tails and consumers; each as text by `str()`. Other clients' handles are not known here. A
        handle that could go on and does not for 10 s is logged, once."""
        return run_blocking(handles(self._runtime), "aio.Client.handles")

    def ledgers(self) -> list[int]:
        """The ids of all ledgers, ascending."""
        return run_blocking(ledger_ids(self._runtime), "aio.Client.ledgers")

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """The metadata of a ledger, without opening it: no password is needed, no bookie is asked (CL33).

        Raises:
            NoSuchLedger: there is none, or it was deleted. MetadataUnavailable: no member answered.
            StorageError: the value under its key is no ledger's metadata (P2.5).
        """
        return run_blocking(metadata_of(self._runtime, ledger_id), "aio.Client.ledger_metadata")

    def is_closed(self, ledger_id: int) -> bool:
        """Whether a ledger has its end for good, without opening it (CL33). Raises as `ledger_metadata` does."""
        return run_blocking(metadata_of(self._runtime, ledger_id), "aio.Client.is_closed").is_closed

    # The cluster.

    @property
    def url(self) -> str:
        """The address by which other processes reach this cluster.

        Raises UsageError for an embedded one that was opened without listen=.
        """
        if self._opened.url is None:
            raise UsageError(
                f"{self._runtime.name} is reached from this process only",
                hint='client.listen("tcp://127.0.0.1:0") lets other processes reach it',
            )
        return self._opened.url

    def listen(self, endpoint: str = "tcp://127.0.0.1:0") -> str:
        """Let other processes reach an embedded cluster from now on, so that members and bookies can join it; return
        its address, as `url` does. Nothing stops meanwhile. If the cluster has nodes elsewhere, it listens there again
        whenever its directory is opened.

        Raises:
            UsageError: the endpoint is not allowed or in use, or the cluster is reached from elsewhere already.
            StorageError: the place cannot be noted in the directory.
        """
        return run_blocking(self._opened.listen_at(endpoint), "aio.Client.listen")

    def bookies(self) -> list[BookieState]:
        """All bookies of the cluster by their ids: whether each takes entries, or why not, or whether it is away."""
        return run_blocking(bookie_states(self._runtime), "aio.Client.bookies")

    def bookie(self, bookie_id: str) -> BookieReport:
        """One bookie: what it does, which ledgers name it, and, while it is drained, what each of them waits for.

        Raises:
            UsageError: the cluster has no such bookie.
        """
        return run_blocking(report_on(self._runtime, bookie_id), "aio.Client.bookie")

    def drain_bookie(self, bookie_id: str, why: str = "") -> BookieReport:
        """Place nothing on the bookie any more, and move what it has to others, while it still serves. Returns at once;
        `bookie(bookie_id).is_empty` is True when nothing is left. why: a reason for others to read.

        Raises:
            NotEnoughBookies: no other bookie can take the copies of some ledgers.
            UsageError: no such bookie; or the cluster's level is too low. In each case nothing was changed.
        """
        return run_blocking(drain(self._runtime, bookie_id, why=why), "aio.Client.drain_bookie")

    def cancel_drain(self, bookie_id: str, why: str = "") -> None:
        """The bookie takes new ledgers again; what moved off it stays where it is.

        Raises:
            UsageError: it is not drained; nothing was changed.
        """
        run_blocking(cancel_drain(self._runtime, bookie_id, why=why), "aio.Client.cancel_drain")

    def put_to_read_only(self, bookie_id: str, why: str, *, force: bool = False) -> BookieReport:
        """Place nothing on the bookie any more, and let it serve on what it has, open ledgers too: nothing moves. It
        survives restarts. why: a reason for others to read. force: also if too few others take entries.

        Raises:
            NotEnoughBookies: fewer others take entries than a ledger has seats that is open, or the newest of its log.
            UsageError: no such bookie, no reason, or the cluster's level is too low. Nothing was changed.
        """
        return run_blocking(
            put_to_read_only(self._runtime, bookie_id, why=why, force=force), "aio.Client.put_to_read_only"
        )

    def end_read_only(self, bookie_id: str) -> BookieReport:
        """The bookie takes new ledgers again, unless it is drained.

        Raises:
            UsageError: nobody put it to read-only; nothing was changed.
        """
        steps = put_to_read_only(self._runtime, bookie_id, why="", is_over=True)
        return run_blocking(steps, "aio.Client.end_read_only")

    def bound_reads(
        self,
        bookie_id: str,
        *,
        catch_up: int | None = None,
        batch: int | None = None,
        upkeep: int | None = None,
    ) -> BookieReport:
        """Let the bookie read at most so many bytes per second for readers that go forward through many entries, for
        jobs (`Settings(reads_as="batch")`), and for repair and scrubs (P6.7). 0: as fast as it goes. None: as before.
        The newest entries, single ones, and what a recovery reads have no bound.

        Raises:
            UsageError: a bound that is none, no such bookie, or the cluster's level is too low. Nothing was changed.
        """
        steps = bound_reads(self._runtime, bookie_id, catch_up=catch_up, batch=batch, upkeep=upkeep)
        return run_blocking(steps, "aio.Client.bound_reads")

    def decommission_bookie(self, bookie_id: str, why: str = "") -> None:
        """The cluster forgets a bookie that no ledger names and that is drained or away. Its directories are refused
        for ever; in empty ones the same id may join again.

        Raises:
            UsageError: a ledger names it (they are listed), or it is there and not drained; nothing was changed.
        """
        run_blocking(decommission(self._runtime, bookie_id, why=why), "aio.Client.decommission_bookie")

    def replace_bookie(self, bookie_id: str, why: str = "", *, accepts_loss: bool = False) -> str:
        """Say that a bookie that is away got new disks: empty directories may be started under its id, and its old
        ones never again. What they had is copied from others, as for a bookie that stays away. Returns the old
        incarnation.

        accepts_loss: also where no other bookie that is there has a copy of a ledger.

        Raises:
            UsageError: it is registered; or no other bookie that is there has a copy of some ledger; nothing was
                changed.
        """
        steps = retire(self._runtime, bookie_id, why=why, accepts_loss=accepts_loss)
        return run_blocking(steps, "aio.Client.replace_bookie")

    def give_up_bookie(
        self, bookie_id: str, incarnation: str, why: str, *, accepts_loss: bool = False
    ) -> None:
        """Say that these directories of a bookie are gone for good; they are refused if they come back. incarnation: as
        `bookie(bookie_id).incarnation` says. why: the reason, kept for later readers. The id stays bound to the
        directories that it has. Raises as `replace_bookie`."""
        steps = retire(self._runtime, bookie_id, incarnation, why=why, accepts_loss=accepts_loss)
        run_blocking(steps, "aio.Client.give_up_bookie")

    def lost_entries(self, ledger_id: int, *, password: bytes = b"") -> LostEntries:
        """The entries of a ledger that are lost for good, to be shown before `give_up_entries` (P11.5): each bookie
        that may have had one is declared gone, and every other says for certain that it has none. Reads the whole
        ledger, and changes nothing, except that it fences one that is not closed.

        Raises:
            UsageError: nothing is lost; the ledger is OPEN; bookies that are there can settle it by themselves, or hold
                a copy without a seat; or the cluster's level is below 18.
            RecoveryInconclusive: a bookie that may have an entry is away and not declared gone, or cannot tell; the
                message names it.
            NoSuchLedger, WrongPassword.
        """
        steps = lost_entries(self._runtime, ledger_id, Password(password))
        return run_blocking(steps, "aio.Client.lost_entries")

    def give_up_entries(self, shown: LostEntries, why: str) -> None:
        """Give up what `lost_entries` showed, for ever. Readers get `Lost` there, and read on behind it; repair, health
        and scrubs look for no copies of it any more. A ledger that was not closed is closed behind its last known
        entry. why: stays with the decision.

        Raises:
            UsageError: no reason was given. MetadataConflict: something has changed since. Nothing was changed here.
        """
        run_blocking(give_up(self._runtime, shown, why=why), "aio.Client.give_up_entries")

    def copies_of_entry(self, ledger_id: int, entry_id: int, *, password: bytes = b"") -> EntryCopies:
        """What each bookie of an entry's write set holds of it; `is_conflict`: copies differ, each whole by itself.

        Raises:
            NoSuchLedger. UsageError: the ledger is not CLOSED, or has no such entry.
        """
        steps = entry_copies(self._runtime, ledger_id, entry_id, Password(password))
        return run_blocking(steps, "aio.Client.copies_of_entry")

    def choose_copy(self, shown: EntryCopies, bookie_id: str, why: str) -> ChosenCopy:
        """Say that this bookie's copy, as `copies_of_entry` showed it, is right (P11.5): it replaces copies of others
        that differ, and nothing else. why: stays with the decision. A second call continues where the first was cut
        short. Where all are alike and not what the ledger's writer published (`EntryCopies.unlike`), they stand for it
        from then on.

        Raises:
            UsageError: it showed no copy, no copy differs, no reason was given, or the level is below 16.
            MetadataConflict: the ledger, or its decisions, have changed since. Nothing was changed here.
        """
        steps = choose_copy(self._runtime, shown, bookie_id, why=why)
        return run_blocking(steps, "aio.Client.choose_copy")

    def can_i_stop(self, *nodes: str) -> StopVerdict:
        """Whether this bookie or metadata member, or all of these at once, may stop for a while: whether each ledger
        keeps its ack quorum and can be read and recovered, and the metadata keeps its quorum; else why not. It holds
        for this moment.

        Raises:
            UsageError: the cluster has no such node.
        """
        return run_blocking(may_stop(self._runtime, nodes, is_for_good=False), "aio.Client.can_i_stop")

    def can_i_lose(self, nodes: Sequence[str]) -> StopVerdict:
        """Whether all of these may be lost at once and for good, with their disks. Raises as `can_i_stop`."""
        return run_blocking(may_stop(self._runtime, nodes, is_for_good=True), "aio.Client.can_i_lose")

    def health(self) -> Health:
        """Whether each seat of every ledger has its bookie, and each of those has every entry of closed ledgers that it
        owes; else which ledgers lack some, how many entries, since when, and what is done about it. It asks every
        bookie how much it holds: with very many ledgers that takes a while.

        Raises:
            MetadataUnavailable: nobody answers, so nothing is known.
        """
        return run_blocking(health_of(self._runtime), "aio.Client.health")

    def stop_repair(self, why: str = "", *, for_s: float | None = None) -> None:
        """Stop all repair in this cluster until `start_repair`, as for maintenance. why: a reason for others to read.
        for_s: seconds, after which the auditor switches it on again; 1 to 30 days.

        Raises:
            UsageError: the cluster's level is too low for repair, or for_s is out of range; nothing was changed.
        """
        steps = switch_repair(self._runtime, stopped=True, why=why, for_s=for_s)
        run_blocking(steps, "aio.Client.stop_repair")

    def start_repair(self) -> None:
        """Let repair continue. Raises UsageError as `stop_repair`."""
        run_blocking(switch_repair(self._runtime, stopped=False), "aio.Client.start_repair")

    def trigger_audit(self) -> None:
        """The auditor looks at all ledgers now, also at those that could not be repaired. Raises UsageError as
        `stop_repair`."""
        run_blocking(switch_repair(self._runtime, triggers=True), "aio.Client.trigger_audit")

    def audit(self, timeout_s: float | None = None) -> Health:
        """Have the auditor look at all ledgers, wait until it has, and return the health.

        Raises:
            OperationTimeout: that was not over in timeout_s seconds; it goes on.
            UsageError: repair is switched off, or the cluster's level is too low; nothing was changed.
        """
        return run_blocking(audit(self._runtime, timeout_s), "aio.Client.audit")

    def set_repair_grace(self, grace_s: float | None, why: str = "") -> None:
        """How many seconds a bookie is away before the auditor takes it for lost, in the whole cluster and at once;
        None: as each host's `Settings.repair_grace_s` says. Writers follow their own setting. why: a reason for others
        to read.

        Raises:
            UsageError: not 0.1 s to ten years, or the cluster's level is too low; nothing was changed.
        """
        run_blocking(set_grace(self._runtime, grace_s, why), "aio.Client.set_repair_grace")

    def close(self) -> None:
        """Stop everything that `open` started; handles that are still open are released. Twice is allowed."""
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        runtime = getattr(self, "_runtime", None)
        if runtime is not None and not runtime.is_closed and not runtime.is_forked:
            warnings.warn(
                f"{self!r} was never closed; use it in a with block",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __reduce__(self) -> Any:
        refuse_pickling("a client", "send its url, and call embedbk.open(url) there")

    def __repr__(self) -> str:
        return f"embedbk.Client({self._runtime.name!r})"
