"""What an owner does for its log periodically (P8.7): it follows changed settings, and keeps retention.

Decides when it looks, and whether a new ledger is due. One round looks after all writers of a client, one after the
other, so that very many idle logs cost one question each in a long round. The truncation's cores decide what may be
truncated: never past a pin or a cursor that holds. For logs without an owner an elected host keeps
retention (`repair.log_keeping`).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from embedbk.client.bounding import bound_of, retain
from embedbk.client.compression import is_installed
from embedbk.client.creating import alike
from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import record_of, roll_from
from embedbk.client.waiting import Moved
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.log_list import Begun
from embedbk.codec.log_settings import Compression, SettingsRecord
from embedbk.core.pausing import Pausing
from embedbk.errors import EmbedbkError
from embedbk.forking import free_in_children
from embedbk.host.awaited import Awaited
from embedbk.host.operations import OneResult
from embedbk.metadata.levels import LEVEL_OF_CURSORS

if TYPE_CHECKING:
    from embedbk.client.renewing import Succession
    from embedbk.client.runtime import Runtime

__all__ = ["Keeper", "keep"]

logger = logging.getLogger("embedbk.client.log")

# The pause varies by this share to either side, so that clients that began together do not ask together.
_JITTER = 0.2
_APART_S = 0.01  # Pause between two logs of a round.
_RETAIN_S = 60.0  # Pause between two looks at retention, but ten looks at least in a retention's age.
_BEGINNING = free_in_children(threading.Lock())


def keep(line: Succession) -> None:
    """Look after this writer's log until it ends; callable from any thread."""
    runtime = line.owning.runtime
    with _BEGINNING:
        if runtime.keeper is None:
            runtime.keeper = Keeper(runtime)
    runtime.keeper.add(line)


class Keeper:
    """The writers of logs of one client. No thread is begun for it before the first pause is over."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        # Kept until they end, so that nothing here depends on garbage collection.
        self._lines: dict[Succession, None] = {}
        self._is_armed = False
        self._chance = random.Random(runtime.owner())

    def add(self, line: Succession) -> None:
        with self._lock:
            self._lines[line] = None
            was_armed, self._is_armed = self._is_armed, True
        if not was_armed:
            self._arm()

    def lines(self) -> Iterator[Succession]:
        """The writers in the order in which they began; some may have ended lately."""
        with self._lock:
            return iter(list(self._lines))

    def line_of(self, name: str) -> Succession | None:
        """The newest writer that this client has of a log; None: it has none that is still writing."""
        found = [line for line in self.lines() if line.owning.name == name and line.is_writing]
        return max(found, key=lambda line: line.taken.epoch, default=None)

    def _arm(self) -> None:
        drawn = self._chance.uniform(1 - _JITTER, 1 + _JITTER)
        pause = OneResult(Pausing(int(self._runtime.log_look_s * drawn * 1e9)))
        pause.future.add_done_callback(self._passed)
        try:
            self._runtime.start(pause)
        except EmbedbkError:
            return  # The client was closed.

    def _passed(self, ended: Awaited[Any]) -> None:
        if ended.exception() is not None:
            return
        self._runtime.behind(self._round())

    async def _round(self) -> None:
        runtime = self._runtime
        for line in list(self._lines):
            if line.has_ended:
                with self._lock:
                    self._lines.pop(line, None)
                continue
            line.owning.forget_list()
            try:
                _roll_where_copies_lack(line)
                await _look_after(line)
            except EmbedbkError as failed:
                if not line.has_ended and not runtime.is_closed:
                    logger.warning("%s is not looked after now: %s", line.appending.what, failed)
            await Moved(runtime.signal, lambda: runtime.is_ended, _APART_S)
        with self._lock:
            self._is_armed = bool(self._lines)
            if not self._is_armed:
                return
        if not runtime.is_closed:
            self._arm()


async def _look_after(line: Succession) -> None:
    owning = line.owning
    runtime = owning.runtime
    if not runtime.has_level(LEVEL_OF_CURSORS) or owning.is_lost:
        return
    record, revision = await record_of(runtime, owning.name)
    if record is None:
        return
    if revision != line.follows:
        line.retains_at_s = 0.0  # Look at once, by the new settings.
        line.bound_by(bound_of(record, revision))
        if await _follow(line, record):
            line.follows = revision
    if line.bound is not None:
        await line.log_bytes.look_now()
    if record.has_retention and runtime.clock_s() >= line.retains_at_s:
        line.retains_at_s = runtime.clock_s() + min(_RETAIN_S, (record.retention_ms or 600_000) / 10_000)
        await retain(LogReading(runtime, owning.name, owning.password), record, revision)


def _roll_where_copies_lack(line: Succession) -> None:
    """Repair gives a bookie what it missed once the ledger is closed. Until then there are fewer copies than the
    settings ask for. Nobody waits for the roll, which fails where too few bookies are there: the next round begins
    another one."""
    if line.appending.writing.has_missed and line.is_writing and not line.is_busy:
        line.roll_behind(Begun.SETTINGS)


async def _follow(line: Succession, record: SettingsRecord) -> bool:
    """Apply these settings, and where they are silent the terms with which the writer was opened. False: not yet, as
    its ledger was made by others and is still empty."""
    owning, own = line.owning, line.own
    quorum = record.quorum or own.quorum
    durability = own.durability if record.durability is None else Durability(record.durability)
    digest = own.digest if record.digest is None else DigestType(record.digest)
    owning.quorum = alike(quorum)
    compression = own.compression if record.compression is None else Compression(record.compression)
    if compression is not None and not is_installed():
        logger.warning(
            "%s: its log is to be compressed by %s, which is not installed here: its entries stay as they are (pip "
            "install 'embedbk[zstd]')",
            line.appending.what,
            compression.name.lower(),
        )
        compression = None
    owning.write_by(durability, digest, compression)
    line.roll_by(own.roll if record.roll is None else roll_from(record.roll))
    wanted = (quorum, durability, digest, compression)
    if _made_by(line) != wanted:
        await line.roll(Begun.SETTINGS)
    return _made_by(line) == wanted


def _made_by(line: Succession) -> tuple[Any, ...]:
    metadata = line.appending.writing.metadata
    return (metadata.quorum, metadata.durability, metadata.digest, line.appending.compression)
