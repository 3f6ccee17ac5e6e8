"""A client, awaited: opening one, and what it does beside logs, ledgers and locks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from embedbk.aio.iterating import each
from embedbk.aio.lock import Lock
from embedbk.aio.log import Log
from embedbk.aio.opening import Closing, Opening
from embedbk.aio.readers import LedgerReader
from embedbk.aio.writers import LedgerWriter
from embedbk.client import client, creating, deleting, explaining, log_deleting, opening
from embedbk.client.bookie_reports import BookieReport, report_on
from embedbk.client.bookie_states import BookieState, bookie_states
from embedbk.client.copy_choosing import ChosenCopy, EntryCopies, choose_copy, entry_copies
from embedbk.client.creating import quorum_of, traits_of
from embedbk.client.deleting import DeletedLedger
from embedbk.client.devices import Devices
from embedbk.client.draining import cancel_drain, drain
from embedbk.client.embedded import Opened
from embedbk.client.explaining import Explanation
from embedbk.client.giving_up import LostEntries, give_up, lost_entries
from embedbk.client.handles import HandleState, handles
from embedbk.client.ledger_ids import ledger_ids, metadata_of
from embedbk.client.locking import Locking
from embedbk.client.log_deleting import DeletedLog
from embedbk.client.log_names import log_names, watch_logs
from embedbk.client.log_settings import (
    create_log,
    log_exists,
)
from embedbk.client.password import Password
from embedbk.client.read_bounds import bound_reads
from embedbk.client.read_only import put_to_read_only
from embedbk.client.reading import LedgerReading
from embedbk.client.repair_state import audit, health_of, set_grace, switch_repair
from embedbk.client.retiring import decommission, retire
from embedbk.client.runtime import Runtime
from embedbk.client.stopping import may_stop
from embedbk.client.waiting import run_async
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Placement, Roll, Settings, check_seconds
from embedbk.ids import check_log_name
from embedbk.repair.health import Health
from embedbk.repair.stopping import StopVerdict

__all__ = ["Client", "open"]


def open(
    target: str | os.PathLike[str],
    bookies: int | None = None,
    listen: str | None = None,
    *,
    settings: Settings | None = None,
    create: bool = True,
    journal_directories: Sequence[str | os.PathLike[str]] = (),
    ledger_directories: Sequence[str | os.PathLike[str]] = (),
    expands: bool = False,
) -> Opening[Client]:
    """As `embedbk.open`."""
    devices = Devices.of(journal_directories, ledger_directories, expands)
    return Opening(_open(target, bookies, listen, settings, devices, create))


async def _open(
    target: str | os.PathLike[str],
    bookies: int | None,
    listen: str | None,
    settings: Settings | None,
    devices: Devices,
    create: bool,
) -> Client:
    # Starting reads disks and replays journals: on a thread, so that the loop continues.
    starting = _Starting(lambda: opening.start(target, bookies, listen, settings, devices, create=create))
    try:
        opened = await asyncio.to_thread(starting.run)
    except BaseException:
        starting.give_up()
        raise
    try:
        await run_async(opened.ready())
    except BaseException:
        await asyncio.to_thread(opened.runtime.close)
        raise
    return Client(client.Client(opened))


class _Starting:
    """A start on a thread, whose caller may be cancelled meanwhile: what was opened for nobody is closed, else its
    directory would stay taken."""

    def __init__(self, start: Callable[[], Opened]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._opened: Opened | None = None
        self._is_given_up = False

    def run(self) -> Opened:
        opened = self._start()
        with self._lock:
            self._opened, is_given_up = opened, self._is_given_up
        if is_given_up:
            opened.runtime.close()
        return opened

    def give_up(self) -> None:
        with self._lock:
            self._is_given_up, opened = True, self._opened
        if opened is not None:  # It came in the same turn as the cancellation.
            threading.Thread(target=opened.runtime.close, name="embedbk closing").start()


class Client(Closing):
    """As `embedbk.Client`; close it, or use it with `async with`."""

    def __init__(self, blocking: client.Client) -> None:
        self._blocking = blocking  # Warns if it is never closed.
        self._runtime: Runtime = blocking._runtime

    def log(self, name: str, *, password: bytes = b"") -> Log:
        self._runtime.check()
        return Log(self._runtime, check_log_name(name), Password(password))

    async def create_log(
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
        """As `embedbk.Client.create_log`."""
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
        await run_async(create_log(made._reading, wanted))
        return made

    async def log_exists(self, name: str) -> bool:
        """As `embedbk.Client.log_exists`."""
        self._runtime.check()
        return await run_async(log_exists(self._runtime, check_log_name(name)))

    async def logs(self, prefix: str = "") -> list[str]:
        """As `embedbk.Client.logs`."""
        return await run_async(log_names(self._runtime, prefix))

    def watch_logs(self, prefix: str = "", *, idle_s: float | None = None) -> AsyncIterator[list[str]]:
        """As `embedbk.Client.watch_logs`."""
        check_seconds(idle_s, "idle_s")
        return each(watch_logs(self._runtime, prefix, idle_s), list)

    def lock(self, name: str, *, value: bytes = b"") -> Lock:
        """As `embedbk.Client.lock`."""
        return Lock(Locking(self._runtime, name, value))

    def create_ledger(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        password: bytes = b"",
        custom: Mapping[str, bytes] = client.NO_CUSTOM,
        durability: str = "synced",
        delays_change: bool = False,
        placement: Placement | None = None,
        digest: str = "crc32c",
        compression: str | None = None,
    ) -> Opening[LedgerWriter]:
        async def steps() -> LedgerWriter:
            quorum = await run_async(quorum_of(self._runtime, ensemble_size, write_quorum, ack_quorum))
            traits = traits_of(
                self._runtime,
                durability,
                placement,
                delays_change=delays_change,
                digest=digest,
                compression=compression,
            )
            made = creating.create(self._runtime, quorum, Password(password), custom, traits)
            return LedgerWriter(await run_async(made))

        return Opening(steps())

    def open_ledger(
        self, ledger_id: int, *, recover: bool = False, password: bytes = b""
    ) -> Opening[LedgerReader]:
        async def steps() -> LedgerReader:
            opened = LedgerReading.open(self._runtime, ledger_id, Password(password), recover=recover)
            return LedgerReader(await run_async(opened))

        return Opening(steps())

    async def delete_ledger(self, ledger_id: int, *, password: bytes = b"", force: bool = False) -> None:
        await run_async(deleting.delete(self._runtime, ledger_id, Password(password), force=force))

    async def delete_log(self, name: str, *, password: bytes = b"", force: bool = False) -> None:
        """As `embedbk.Client.delete_log`."""
        steps = log_deleting.delete_log(self._runtime, check_log_name(name), Password(password), force=force)
        await run_async(steps)

    async def undelete_log(self, name: str, *, new_name: str | None = None, password: bytes = b"") -> Log:
        """As `embedbk.Client.undelete_log`."""
        steps = log_deleting.undelete_log(self._runtime, name, new_name, Password(password))
        return self.log(await run_async(steps), password=password)

    async def deleted_logs(self) -> list[DeletedLog]:
        """As `embedbk.Client.deleted_logs`."""
        return await run_async(log_deleting.deleted_logs(self._runtime))

    async def undelete_ledger(self, ledger_id: int, *, password: bytes = b"") -> None:
        await run_async(deleting.undelete(self._runtime, ledger_id, Password(password)))

    async def deleted_ledgers(self) -> list[DeletedLedger]:
        return await run_async(deleting.deleted(self._runtime))

    async def forget_deleted(self) -> list[int]:
        return await run_async(log_deleting.forget_deleted(self._runtime))

    async def explain(self, ledger_id: int) -> Explanation:
        return await run_async(explaining.explain(self._runtime, ledger_id))

    async def handles(self) -> list[HandleState]:
        """As `embedbk.Client.handles`."""
        return await run_async(handles(self._runtime))

    async def ledgers(self) -> list[int]:
        return await run_async(ledger_ids(self._runtime))

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """As `embedbk.Client.ledger_metadata`."""
        return await run_async(metadata_of(self._runtime, ledger_id))

    async def is_closed(self, ledger_id: int) -> bool:
        return (await run_async(metadata_of(self._runtime, ledger_id))).is_closed

    @property
    def url(self) -> str:
        return self._blocking.url

    async def listen(self, endpoint: str = "tcp://127.0.0.1:0") -> str:
        """As `embedbk.Client.listen`."""
        return await run_async(self._blocking._opened.listen_at(endpoint))

    async def bookies(self) -> list[BookieState]:
        return await run_async(bookie_states(self._runtime))

    async def bookie(self, bookie_id: str) -> BookieReport:
        return await run_async(report_on(self._runtime, bookie_id))

    async def drain_bookie(self, bookie_id: str, why: str = "") -> BookieReport:
        return await run_async(drain(self._runtime, bookie_id, why=why))

    async def cancel_drain(self, bookie_id: str, why: str = "") -> None:
        await run_async(cancel_drain(self._runtime, bookie_id, why=why))

    async def put_to_read_only(self, bookie_id: str, why: str, *, force: bool = False) -> BookieReport:
        return await run_async(put_to_read_only(self._runtime, bookie_id, why=why, force=force))

    async def end_read_only(self, bookie_id: str) -> BookieReport:
        return await run_async(put_to_read_only(self._runtime, bookie_id, why="", is_over=True))

    async def bound_reads(
        self,
        bookie_id: str,
        *,
        catch_up: int | None = None,
        batch: int | None = None,
        upkeep: int | None = None,
    ) -> BookieReport:
        steps = bound_reads(self._runtime, bookie_id, catch_up=catch_up, batch=batch, upkeep=upkeep)
        return await run_async(steps)

    async def decommission_bookie(self, bookie_id: str, why: str = "") -> None:
        await run_async(decommission(self._runtime, bookie_id, why=why))

    async def replace_bookie(self, bookie_id: str, why: str = "", *, accepts_loss: bool = False) -> str:
        return await run_async(retire(self._runtime, bookie_id, why=why, accepts_loss=accepts_loss))

    async def give_up_bookie(
        self, bookie_id: str, incarnation: str, why: str, *, accepts_loss: bool = False
    ) -> None:
        await run_async(retire(self._runtime, bookie_id, incarnation, why=why, accepts_loss=accepts_loss))

    async def lost_entries(self, ledger_id: int, *, password: bytes = b"") -> LostEntries:
        return await run_async(lost_entries(self._runtime, ledger_id, Password(password)))

    async def give_up_entries(self, shown: LostEntries, why: str) -> None:
        await run_async(give_up(self._runtime, shown, why=why))

    async def copies_of_entry(self, ledger_id: int, entry_id: int, *, password: bytes = b"") -> EntryCopies:
        return await run_async(entry_copies(self._runtime, ledger_id, entry_id, Password(password)))

    async def choose_copy(self, shown: EntryCopies, bookie_id: str, why: str) -> ChosenCopy:
        return await run_async(choose_copy(self._runtime, shown, bookie_id, why=why))

    async def can_i_stop(self, *nodes: str) -> StopVerdict:
        return await run_async(may_stop(self._runtime, nodes, is_for_good=False))

    async def can_i_lose(self, nodes: Sequence[str]) -> StopVerdict:
        return await run_async(may_stop(self._runtime, nodes, is_for_good=True))

    async def health(self) -> Health:
        return await run_async(health_of(self._runtime))

    async def stop_repair(self, why: str = "", *, for_s: float | None = None) -> None:
        await run_async(switch_repair(self._runtime, stopped=True, why=why, for_s=for_s))

    async def start_repair(self) -> None:
        await run_async(switch_repair(self._runtime, stopped=False))

    async def trigger_audit(self) -> None:
        await run_async(switch_repair(self._runtime, triggers=True))

    async def audit(self, timeout_s: float | None = None) -> Health:
        return await run_async(audit(self._runtime, timeout_s))

    async def set_repair_grace(self, grace_s: float | None, why: str = "") -> None:
        await run_async(set_grace(self._runtime, grace_s, why))

    async def close(self) -> None:
        await asyncio.to_thread(self._runtime.close)

    async def _leave(self, is_normal: bool) -> None:
        await self.close()

    def __reduce__(self) -> Any:
        return self._blocking.__reduce__()
