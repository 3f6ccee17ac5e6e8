"""Opening a client: what `embedbk.open` is given, and what may be given with a directory or with an address."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from embedbk.client.address import is_address
from embedbk.client.client import Client
from embedbk.client.devices import IN_PLACE, Devices
from embedbk.client.embedded import Opened, connect, open_directory
from embedbk.client.waiting import run_blocking
from embedbk.config import Settings, settings_of
from embedbk.errors import UsageError

__all__ = ["open_client", "start"]


def start(
    target: str | os.PathLike[str],
    bookies: int | None,
    listen: str | None,
    settings: Settings | None,
    devices: Devices = IN_PLACE,
    *,
    create: bool = True,
) -> Opened:
    """Begin what `open` opens; the cluster may not have answered yet. Reads disks, so it may take a while."""
    _refuse_green_threads()
    settings = settings_of(settings)
    if not isinstance(target, str | os.PathLike):
        raise UsageError(f"{target!r} is neither a directory nor an embedbk:// address")
    if not isinstance(create, bool):
        raise UsageError(f"create={create!r}: True and False are allowed")
    if is_address(target):
        if bookies is not None or listen is not None:
            raise UsageError(
                f"bookies={bookies!r}, listen={listen!r} are for a directory; {target!r} is a cluster that runs"
            )
        if devices.are_given:
            raise UsageError(
                f"journal_directories, ledger_directories and expands are for a directory; {target!r} is a cluster "
                "that runs",
                hint="give them to whoever starts its bookies",
            )
        return connect(str(target), settings)
    if bookies is not None and (isinstance(bookies, bool) or not isinstance(bookies, int) or bookies < 1):
        raise UsageError(f"bookies={bookies!r}: a whole number from 1 on is allowed")
    return open_directory(target, bookies, listen, settings, devices, create=create)


def _refuse_green_threads() -> None:
    """Raises UsageError where a library has put its own threads or waits in the place of the system's: the host thread
    waits in C, so nothing would run beside it, and the call would never return."""
    for name, asked in (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")):
        is_patched = getattr(sys.modules.get(name), asked, None)
        if is_patched is not None and any(map(is_patched, ("threading", "thread", "select", "socket"))):
            library = name.partition(".")[0]
            raise UsageError(
                f"{library} has replaced threads, select or socket in this process (monkey patching), and a client's "
                "host thread is one of the system's; nothing was opened",
                hint="open the client in a process that is not patched; or patch without these three, "
                f"and call it in {library}'s pool of system threads",
            )


def open_client(
    target: str | os.PathLike[str],
    bookies: int | None = None,
    listen: str | None = None,
    *,
    settings: Settings | None = None,
    create: bool = True,
    journal_directories: Sequence[str | os.PathLike[str]] = (),
    ledger_directories: Sequence[str | os.PathLike[str]] = (),
    expands: bool = False,
) -> Client:
    """Open a cluster: a directory starts one in this process, an `embedbk://` address reaches one that runs.

    Args:
        target: a directory, made at the first start; or an address as `Client.url` gives it.
        bookies: their number in an embedded cluster; 3 at the first start, later as many as there are, or more.
        listen: "tcp://127.0.0.1:0" lets other processes reach an embedded cluster; `Client.url` says where.
        settings: times and sizes.
        create: whether a missing or empty directory becomes a new cluster, which is logged as a WARNING. False, for
            production: only an existing cluster is opened, so that a device that is not mounted is an error. The parent
            of a directory is never made.
        journal_directories: on other devices, for the journals of an embedded cluster: each ledger's records go to one
            of them. Bookie b1 has `PATH/b1` in each. Empty: in the target. Always the same, in the same order.
        ledger_directories: the same for entry logs; new ones may come behind the others with expands.
        expands: ledger directories beyond those that the bookies have are new ones, to be added for good.

    Raises:
        UsageError: an argument is not allowed, or a process (named in the message) uses the directory.
        StorageError: a directory is foreign, missing, unreadable or damaged; or empty, with create=False.
        MetadataUnavailable: no member answered at the address.
    """
    devices = Devices.of(journal_directories, ledger_directories, expands)
    opened = start(target, bookies, listen, settings, devices, create=create)
    try:
        run_blocking(opened.ready(), "embedbk.aio.open")
    except BaseException:
        opened.runtime.close()
        raise
    return Client(opened)
