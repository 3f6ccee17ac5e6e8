"""The words between the metadata cores and their host. Plain data, made fresh, not changed after.

A token is the host's own plain name for a request or a watch; it comes back with the outcome.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from embedbk.codec.metadata_messages import (
    Lineage,
    MetadataReply,
    MetadataRequest,
    Operation,
    Record,
    Result,
    WatchEvents,
)
from embedbk.metadata.levels import LEVEL_FIRST

__all__ = [
    "Cancelled",
    "CatalogReplaced",
    "CloseRequested",
    "Closed",
    "Completed",
    "Connected",
    "Dial",
    "Disconnected",
    "DropLinks",
    "ForgetRequested",
    "Halted",
    "HangUp",
    "JournalFailed",
    "StateDamaged",
    "LinkLost",
    "MemberStarted",
    "MessageReceived",
    "Reply",
    "RaiseRequested",
    "RandomBits",
    "RequestReceived",
    "Requested",
    "Remark",
    "Send",
    "SendEvents",
    "SessionLost",
    "SessionReady",
    "SessionRefused",
    "Tick",
    "Token",
    "TurnEnded",
    "WatchCancelled",
    "WatchChanged",
    "WatchPutOff",
    "WatchRequested",
]

Token = Any  # Hashable


class Tick(Struct):
    now_ns: int


# --- Events of a member ----------------------------------------------------------------------------------


class RandomBits(Protocol):
    """The part of `random.Random` that the member uses."""

    def getrandbits(self, k: int, /) -> int: ...


class MemberStarted(Struct):
    """The first event of a process. begins_generation: its owner declares that entries of this log may be lost;
    gives_up: and that these lineages are, which nodes met. level: of the cluster, behind the whole log. is_whole: the
    owner declares that nothing was lost, and only the lineage is new."""

    now_ns: int
    begins_generation: bool = False
    gives_up: tuple[Lineage, ...] = ()
    level: int = LEVEL_FIRST
    is_whole: bool = False


class RequestReceived(Struct):
    now_ns: int
    link: int
    request: MetadataRequest


class RaiseRequested(Struct):
    """An operator wants the cluster's level raised, and all members know it (levels.py). request None: there is no
    request, the cluster is new."""

    now_ns: int
    level: int
    link: int = 0
    request: MetadataRequest | None = None


class ForgetRequested(Struct):
    """An operator needs nothing that a lost future left under some ids."""

    now_ns: int
    link: int
    request: MetadataRequest
    ranges: tuple[tuple[int, int], ...]


class LinkLost(Struct):
    now_ns: int
    link: int


class TurnEnded(Struct):
    """All events of this turn of the loop were passed on: the commands proposed in it are logged together."""

    now_ns: int


class CatalogReplaced(Struct):
    """A snapshot of another member took the place of what was applied here: catalog is the state behind `index`."""

    now_ns: int
    index: int
    catalog: Any  # A Catalog.


class JournalFailed(Struct):
    """The journal stopped for good (P7.6)."""

    now_ns: int
    reason: str


class StateDamaged(Struct):
    """The catalog is not what was applied: nothing of it may be shown any more (I72)."""

    now_ns: int
    reason: str


# --- Effects of a member ---------------------------------------------------------------------------------


class Reply(Struct):
    link: int
    reply: MetadataReply


class SendEvents(Struct):
    """Changes for one watch. When the link cannot take them it is dropped: the client resumes from what it has."""

    link: int
    events: WatchEvents


class DropLinks(Struct):
    """End the links of all clients: they find the new leader over others."""

    reason: str


class Remark(Struct):
    """The meaning of a command, for people; only if it is worth a line."""

    text: str


class Halted(Struct):
    """The member answers nothing any more: its durable side failed (P7.6)."""

    reason: str


# --- Events of a client ----------------------------------------------------------------------------------


class Connected(Struct):
    """A new link with a metadata member is up. is_for_streams: the second one, of watches that may lag."""

    now_ns: int
    is_for_streams: bool = False


class Disconnected(Struct):
    """The link ended, or the one that was dialled could not be had."""

    now_ns: int
    is_for_streams: bool = False


class MessageReceived(Struct):
    now_ns: int
    message: MetadataReply | WatchEvents
    is_for_streams: bool = False


class Requested(Struct):
    """Run an operation (Get, List, Tell, Txn, AllocIds, Acquire, Release, or one about repairs); exactly one
    `Completed` with its token follows."""

    now_ns: int
    token: Token
    operation: Operation


class Cancelled(Struct):
    """The host waits for the request no longer: `Completed` follows at once, and shows whether it may still be run."""

    now_ns: int
    token: Token


class WatchRequested(Struct):
    """Follow every key that begins with prefix: first all of them, then each change (level-triggered). may_lag: a
    member that does not lead may stream it, so it may lag behind other answers to this client."""

    now_ns: int
    token: Token
    prefix: str
    may_lag: bool = False


class WatchCancelled(Struct):
    now_ns: int
    token: Token


class CloseRequested(Struct):
    """End the session now, so that its ephemeral keys go at once; `Closed` follows."""

    now_ns: int


# --- Effects of a client ---------------------------------------------------------------------------------


class Send(Struct):
    request: MetadataRequest
    is_for_streams: bool = False


class Completed(Struct):
    """Outcome of a request. A `Refusal` means that it was not run, except with code UNKNOWN: then it may have been run,
    and may still be (P2.2)."""

    token: Token
    result: Result


class WatchChanged(Struct):
    """records changed (value None: deleted), and what the watch shows is now the state at `revision`.

    is_first: these are all keys under the prefix at that revision.
    """

    token: Token
    records: list[Record]
    revision: int
    is_first: bool


class WatchPutOff(Struct):
    """The quorum has no room to stream this watch now; until it has, lists show what changed, later and later."""

    token: Token
    reason: str


class SessionReady(Struct):
    """A session was opened: ephemeral keys put before it are gone or soon will be, and must be put again."""

    session: int
    cluster_token: bytes


class SessionLost(Struct):
    """The quorum may give this session's ephemeral keys away from now on; a new session will be opened."""

    session: int
    reason: str


class SessionRefused(Struct):
    """The quorum opens no session now; asked again later."""

    reason: str


class Dial(Struct):
    """Begin a link with the member at this address; `Connected` or `Disconnected` follows."""

    endpoint: str
    is_for_streams: bool = False


class HangUp(Struct):
    """End the link, or the attempt to have it; `Disconnected` follows."""

    reason: str
    is_for_streams: bool = False


class Closed(Struct):
    reason: str
