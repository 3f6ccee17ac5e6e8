"""Which logs there are, by their names, and watching those (P8.12).

From LEVEL_OF_LOG_IDS on a log exists if a name points to it. A log from below the level that nobody has touched since
exists by its list, under its name, as long as no log has an identity by that name.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from embedbk.client.runtime import Runtime
from embedbk.client.waiting import Moved
from embedbk.codec.log_identity import IDENTITIES_PREFIX, NAMES_PREFIX
from embedbk.codec.log_list import log_key_path
from embedbk.codec.metadata_messages import List, Listed, Record
from embedbk.errors import MetadataUnavailable, PeerError
from embedbk.host.signal import Signal
from embedbk.ids import NAME_PATTERN, check_log_name

__all__ = ["log_names", "watch_logs"]

_FOLDER, _BEHIND = log_key_path("|").split("|")
_NAME = re.compile(NAME_PATTERN)
_PAGE = 500
_MINTED = "~"  # Minted ids begin with it, and sort behind every name.


async def log_names(runtime: Runtime, prefix: str) -> list[str]:
    """The names that begin with prefix, ascending. Raises UsageError: no name can begin so."""
    if prefix != "":
        check_log_name(prefix)  # What a name begins with is a name.
    what = "listing the logs"
    # In this order: a log that gets its identity meanwhile is found by its pointer.
    listed = [_legacy_name(key) for key in await _keys(runtime, _FOLDER, prefix, what)]
    with_identity = set(await _keys(runtime, IDENTITIES_PREFIX, prefix, what))
    names = [name for name in listed if name is not None and IDENTITIES_PREFIX + name not in with_identity]
    names += [
        record.key.removeprefix(NAMES_PREFIX)
        for record in await runtime.list_keys(NAMES_PREFIX + prefix, what)
    ]
    return sorted({name for name in names if _NAME.match(name)})


def _legacy_name(key: str) -> str | None:
    name, _, _ = key.removeprefix(_FOLDER).partition("/")
    is_list = key == log_key_path(name)  # Its owner and the ledgers that left it have keys beside it.
    return name if is_list and _NAME.match(name) else None


async def _keys(runtime: Runtime, folder: str, prefix: str, what: str) -> list[str]:
    """The keys of a folder that continue with a name; keys of logs with a minted id are not even read."""
    keys: list[str] = []
    while True:
        page = await runtime.ask(List(folder + prefix, keys[-1] if keys else "", _PAGE), what)
        if not isinstance(page, Listed) or (page.has_more and not page.records):
            raise PeerError(f"{what}: the metadata member answered with a {type(page).__name__}")
        found = [record.key for record in page.records if not record.key.startswith(folder + _MINTED)]
        keys += found
        if not page.has_more or len(found) < len(page.records):
            return keys


class _Watch:
    """Whether something has changed since the logs were listed; updated on the host's thread."""

    def __init__(self, runtime: Runtime, prefix: str) -> None:
        self.runtime = runtime
        self.prefix = prefix
        self.signal = Signal()
        self.is_stale = False
        self.refusal = ""  # Why nothing will come.
        self._listed: set[str] = set()  # Keys of lists under names, as they are there.
        self._tokens: list[int] = []

    def begin(self) -> None:
        metadata, now_ns = self.runtime.node.metadata, self.runtime.now_ns()
        for key, changed in ((NAMES_PREFIX, self._named), (_FOLDER, self._under_names)):
            self._tokens.append(metadata.watch(now_ns, key + self.prefix, changed, self._refused))

    def _refused(self, reason: str) -> None:
        self.refusal = reason
        self.signal.notify()

    def _named(self, records: list[Record], revision: int, is_first: bool) -> None:
        """is_first: records has all keys, also after a loss, which may have hidden any change."""
        if records or is_first:
            self._tell()

    def _under_names(self, records: list[Record], revision: int, is_first: bool) -> None:
        """Lists change whenever a log rolls; only one that comes or goes is news."""
        now = set() if is_first else set(self._listed)
        for record in records:
            if _legacy_name(record.key) is not None:
                (now.discard if record.value is None else now.add)(record.key)
        if is_first or now != self._listed:
            self._listed = now
            self._tell()

    def _tell(self) -> None:
        self.is_stale = True
        self.signal.notify()

    def end(self) -> None:
        self.runtime.followed.discard(self)
        self.runtime.call_if_open(self._unwatch)

    def _unwatch(self) -> None:
        for token in self._tokens:
            self.runtime.node.metadata.unwatch(self.runtime.now_ns(), token)


async def watch_logs(runtime: Runtime, prefix: str, idle_s: float | None) -> AsyncGenerator[list[str], None]:
    """The names, at once and whenever they change; ends after idle_s without a change. It lists all names each time, so
    a log that comes and goes in between is not shown, and one that stays is never missed.

    Raises MetadataUnavailable: nothing is known any more."""
    watch = _Watch(runtime, prefix)
    shown = await log_names(runtime, prefix)
    # The end of the client notifies each followed key; nothing else would wake the caller that waits here.
    runtime.followed.add(watch)
    try:
        runtime.call(watch.begin)
        yield shown
        while True:
            moved = Moved(
                watch.signal, lambda: watch.is_stale or bool(watch.refusal) or runtime.is_ended, idle_s
            )
            if not await moved:
                return
            runtime.check()
            if watch.refusal:
                raise MetadataUnavailable(f"the logs cannot be followed: {watch.refusal}")
            watch.is_stale = False
            names = await log_names(runtime, prefix)
            if names != shown:
                shown = names
                yield names
    finally:
        watch.end()
