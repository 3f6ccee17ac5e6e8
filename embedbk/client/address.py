"""Addresses of a cluster: `embedbk://HOST:PORT,...` and `embedbk://ipc:/PATH,...` name its metadata members only.

Bookies are found through them; `ipc:@NAME` is a local socket without a file.
Both kinds may stand in one address; the endpoints are those of `embedbk.transports`.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.errors import UsageError

__all__ = ["SCHEME", "endpoints_of", "is_address", "url_of"]

SCHEME = "embedbk://"
MEMBERS_MAX = 16

_ALLOWED = "embedbk://HOST:PORT or embedbk://ipc:/PATH, several separated by commas"


def is_address(target: object) -> bool:
    return isinstance(target, str) and target.startswith(SCHEME)


def endpoints_of(url: str) -> list[str]:
    """The transport endpoints that an address names, in its order.

    Raises UsageError for what is no such address.
    """
    if not is_address(url):
        raise UsageError(f"address {url!r} is not understood: {_ALLOWED}")
    members = url.removeprefix(SCHEME).rstrip("/").split(",")
    if len(members) > MEMBERS_MAX:
        raise UsageError(f"address {url!r} names {len(members)} members; at most {MEMBERS_MAX} are allowed")
    return [_endpoint(member.strip(), url) for member in members]


def _endpoint(member: str, url: str) -> str:
    if member.startswith(("ipc:/", "ipc:@")):
        return "ipc://" + member.removeprefix("ipc:")
    host, _, port = member.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535 or "/" in host:
        raise UsageError(f"{member!r} in address {url!r} is no member: {_ALLOWED}")
    return f"tcp://{host}:{port}"


def url_of(endpoints: Sequence[str]) -> str:
    """The address that names the members at these endpoints, each tcp or ipc."""
    members = []
    for endpoint in endpoints:
        if endpoint.startswith("tcp://"):
            members.append(endpoint.removeprefix("tcp://"))
        elif endpoint.startswith("ipc://"):
            members.append("ipc:" + endpoint.removeprefix("ipc://"))
        else:
            raise UsageError(f"endpoint {endpoint!r} cannot be reached by other processes")
    return SCHEME + ",".join(members)
