"""The words between the metadata cores and their host. Plain data, made fresh, not changed after.

A token is the host's own plain name for a request or a watch; it comes back with the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embedbk.codec.metadata_messages import (
    MetadataReply,
    MetadataRequest,
    Operation,
    Record,
    Result,
    WatchEvents,
)

__all__ = [
    "Cancelled",
    "CloseRequested",
    "Closed",
    "Completed",
    "Connected",
    "Disconnected",
    "Halted",
    "JournalAppend",
    "JournalDurable",
    "JournalFailed",
    "LinkLost",
    "MessageReceived",
    "Reply",
    "RequestReceived",
    "Requested",
    "Send",
    "SendEvents",
    "SessionLost",
    "SessionReady",
    "Tick",
    "Token",
    "WatchCancelled",
    "WatchChanged",
    "WatchRequested",
]

Token = Any  # Hashable


@dataclass(slots=True)
class Tick:
    now_ns: int


# --- Events of a member ----------------------------------------------------------------------------------


@dataclass(slots=True)
class RequestReceived:
    now_ns: int
    link: int
    request: MetadataRequest


@dataclass(slots=True)
class LinkLost:
    now_ns: int
    link: int


@dataclass(slots=True)
class JournalDurable:
    """Every command up to index is on the device."""

    now_ns: int
    index: int


@dataclass(slots=True)
class JournalFailed:
    """The journal stopped for good (P7.6)."""

    now_ns: int
    reason: str


# --- Effects of a member ---------------------------------------------------------------------------------


@dataclass(slots=True)
class JournalAppend:
    """Queue an encoded command as number `index` of the metadata log; indexes rise by one."""

    index: int
    body: bytes


@dataclass(slots=True)
class Reply:
    link: int
    reply: MetadataReply


@dataclass(slots=True)
class SendEvents:
    """Changes for one watch. When the link cannot take them it is dropped: the client resumes from what it has."""

    link: int
    events: WatchEvents


@dataclass(slots=True)
class Halted:
    """The member answers nothing any more: its durable side failed (P7.6)."""

    reason: str


# --- Events of a client ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Connected:
    """A new link with the metadata quorum is up."""

    now_ns: int


@dataclass(slots=True)
class Disconnected:
    now_ns: int


@dataclass(slots=True)
class MessageReceived:
    now_ns: int
    message: MetadataReply | WatchEvents


@dataclass(slots=True)
class Requested:
    """Run an operation (Get, List, Txn, AllocIds); exactly one `Completed` with its token follows."""

    now_ns: int
    token: Token
    operation: Operation


@dataclass(slots=True)
class Cancelled:
    """Whoever asked waits no longer: `Completed` follows at once, and says whether the request may still be run."""

    now_ns: int
    token: Token


@dataclass(slots=True)
class WatchRequested:
    """Follow every key that begins with prefix: first all of them, then each change (level-triggered)."""

    now_ns: int
    token: Token
    prefix: str


@dataclass(slots=True)
class WatchCancelled:
    now_ns: int
    token: Token


@dataclass(slots=True)
class CloseRequested:
    """End the session now, so that its ephemeral keys go at once; `Closed` follows."""

    now_ns: int


# --- Effects of a client ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Send:
    request: MetadataRequest


@dataclass(slots=True)
class Completed:
    """Outcome of a request. A `Refusal` says that it was not run, but for code UNKNOWN: then it may have been run,
    and may still be (P2.2)."""

    token: Token
    result: Result


@dataclass(slots=True)
class WatchChanged:
    """records changed (value None: deleted), and what the watch shows is now the state at `revision`.

    is_first: these are all keys under the prefix at that revision.
    """

    token: Token
    records: list[Record]
    revision: int
    is_first: bool


@dataclass(slots=True)
class SessionReady:
    """A session was opened: ephemeral keys put before it are gone or soon will be, and must be put again."""

    session: int
    cluster_token: bytes


@dataclass(slots=True)
class SessionLost:
    """The quorum may give this session's ephemeral keys away from now on; a new session will be opened."""

    session: int
    reason: str


@dataclass(slots=True)
class Closed:
    reason: str
