"""How bodies travel between nodes: one Transport (embedbk.ports), four ways, one suite that each must pass.

`sim` is seeded and runs in virtual time, `local` stays in the process, `zmq` reaches other processes. TRANSPORTS.md
has the bytes on a link and how to add a transport; `conformance` is the suite.

The folder is a link inside the package: under another name it would be a second set of the same classes.
"""

from __future__ import annotations

from typing import Any

from embedbk.errors import UsageError
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport

__all__ = ["ENTRY_POINT_GROUP", "open_transport", "schemes"]

ENTRY_POINT_GROUP = "embedbk.transports"  # Name: the scheme. Object: called as (identity, **settings).

if __name__ != "embedbk.transports":
    raise ImportError(f"this folder is embedbk.transports; it was imported as {__name__}")

_OURS = ("ipc", "local", "tcp")


def open_transport(scheme: str, identity: Identity, **settings: Any) -> Transport:
    """The transport for endpoints of this scheme; an endpoint (`tcp://127.0.0.1:0`) may stand for its scheme.

    `sim` is missing on purpose: its transports come from a `SimNetwork`, which owns their time.

    Raises:
        UsageError: no transport carries that scheme, two distributions claim it, or a setting is not allowed.
    """
    name = scheme.split("://", 1)[0]
    if name in ("tcp", "ipc"):
        from embedbk.transports.zmq import ZmqTransport  # Here, so that only its users pay for importing zmq.

        return ZmqTransport(identity, **settings)
    if name == "local":
        from embedbk.transports.local import LocalTransport

        return LocalTransport(identity, **settings)
    from importlib import metadata  # Here, so that only transports from other packages pay.

    found = metadata.entry_points(group=ENTRY_POINT_GROUP, name=name)
    if len(found) > 1:
        claims = ", ".join(sorted(point.value for point in found))
        raise UsageError(
            f"transport scheme {name!r} is claimed twice: {claims}", hint="uninstall one of them"
        )
    for point in found:
        transport: Transport = point.load()(identity, **settings)
        return transport
    raise UsageError(f"no transport carries {name!r}; there are {', '.join(schemes())}")


def schemes() -> list[str]:
    """Every scheme that `open_transport` understands."""
    from importlib import metadata

    others = {point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return sorted(others.union(_OURS))
