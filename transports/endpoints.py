"""Which tcp and ipc addresses a node may bind or dial, and what is said of the others.

Decides before a socket exists, so that a refusal leaves nothing behind. Links are neither encrypted nor
authenticated yet (T3), so a node leaves the machine only where its settings allow it.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from pathlib import Path

from embedbk.errors import UsageError

__all__ = ["check_endpoint", "check_ipc_path_is_free", "ipc_users", "is_ipv6"]

IPC_PATH_BYTES_MAX = 107  # What the kernel's address of a local socket has room for.

_TCP = re.compile(r"tcp://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:/]+):(?P<port>\*|[0-9]{1,5})")


def check_endpoint(endpoint: str, *, is_listening: bool, allow_non_loopback: bool) -> None:
    """Raises UsageError for an endpoint that is not understood or leaves the machine without being allowed to."""
    try:
        endpoint.encode()
    except UnicodeEncodeError as half:  # ZeroMQ takes text only.
        raise UsageError(
            f"endpoint {endpoint!r} is not allowed: it is no text in UTF-8", hint="give a path that is"
        ) from half
    if endpoint.startswith("ipc://"):
        _check_ipc(endpoint, is_listening=is_listening)
        return
    match = _TCP.fullmatch(endpoint)
    if match is None:
        raise UsageError(f"endpoint {endpoint!r} is not understood: tcp://HOST:PORT or ipc://PATH")
    port = match["port"]
    port_min = 0 if is_listening else 1  # 0 asks for any free port: the real one is reported.
    if port != "*" and not port_min <= int(port) < 1 << 16:
        raise UsageError(f"endpoint {endpoint!r} has port {port}; allowed is {port_min} to 65535")
    if port == "*" and not is_listening:
        raise UsageError(f"endpoint {endpoint!r}: only a listener may leave its port open")
    if not allow_non_loopback and not _is_loopback(match["host"]):
        raise UsageError(
            f"endpoint {endpoint!r} leaves this machine and links are not encrypted",
            hint="use 127.0.0.1, or allow_non_loopback=True on a network that you trust",
        )


def check_ipc_path_is_free(endpoint: str) -> None:
    """Raises UsageError when a process listens there, or the path is a file: ZeroMQ would remove either silently."""
    path = Path(endpoint.removeprefix("ipc://"))
    if str(path).startswith("@"):
        # No file stands for it, and the system refuses a second listener; ZeroMQ removes one of this name all the same.
        if os.path.lexists(path):
            raise UsageError(
                f"endpoint {endpoint!r}: ZeroMQ would remove {str(path)!r} in the working directory; it was left alone",
                hint="choose another name, or begin in another directory",
            )
        return
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"endpoint {endpoint!r} cannot be used: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"endpoint {endpoint!r} is a file that is not a socket; it was left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # A listener whose backlog is full must not hold us.
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return  # Left by a process that was killed.
        except OSError:
            pass  # Busy, or not for us: a listener is there.
    raise UsageError(
        f"endpoint {endpoint!r} is in use", hint="choose another path, or stop what listens there"
    )


def ipc_users() -> frozenset[int]:
    """The users that may be at the other end of a local socket: this process's own, and root. Both may end this process
    anyhow, so what only the bytes on a socket would bound is bounded by the system (T10)."""
    return frozenset((os.geteuid(), 0))


def is_ipv6(endpoint: str) -> bool:
    return endpoint.startswith("tcp://[")


def _check_ipc(endpoint: str, *, is_listening: bool) -> None:
    path = endpoint.removeprefix("ipc://")
    if is_listening and ("," in path or path != path.strip().rstrip("/")):
        raise UsageError(
            f"endpoint {endpoint!r} is not allowed: no address can name this path, as commas stand between members "
            "there, and spaces and slashes at its end are no part of it",
            hint="give another path",
        )
    size = len(path.encode())
    if not path.startswith(("/", "@")) or "\0" in path or size > IPC_PATH_BYTES_MAX:
        raise UsageError(
            f"endpoint {endpoint!r} is not allowed: an absolute path, or @NAME without a file, of at most "
            f"{IPC_PATH_BYTES_MAX} bytes, this one has {size}"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # A name or an interface: where it leads is not known here.
