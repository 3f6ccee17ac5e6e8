"""The base of every core: a machine that takes one event and returns a list of effects.

`step` finds the handler by the event's type; a core declares its handlers in one dict, `HANDLERS`. State is plain
data, so that `copy` and `digest` work for exploring small worlds.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Self

import msgspec

from embedbk.core.bookie_words import (
    AddsTaken,
    BlocksNumbered,
    CollectionBegun,
    CountEntries,
    CountSettled,
    DecisionsRead,
    DropAllowed,
    DropEntries,
    EntriesCounted,
    EntriesRead,
    JournalAppend,
    JournalDurable,
    JournalFailed,
    LimboListed,
    LinkLost,
    LossFound,
    NumberBlocks,
    OlderMetadata,
    ReadBoundsSet,
    ReadDecisions,
    ReadEntries,
    Reply,
    RequestReceived,
    ServeAlone,
    ShareTold,
    StoreFrame,
    TellKeepers,
    TellLogs,
    WritableSet,
)
from embedbk.core.client_words import (
    AddedNearby,
    AddFailed,
    AddsAnswered,
    Answered,
    BookiesChanged,
    Confirmed,
    Consumed,
    CopiesMissed,
    CourseEnded,
    EnsembleChanged,
    EntriesReady,
    FrameSealed,
    HintDue,
    LacsInDoubt,
    Received,
    SeatLeaving,
    SeatLost,
    Send,
    SendFailed,
)
from embedbk.core.metadata_words import (
    AllocateIds,
    IdsAllocated,
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataChanged,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.repair_words import (
    AskQuorum,
    BeginRepair,
    BeginSmallRepairs,
    QuorumAnswered,
    RepairOver,
    Retained,
    SmallRepairsOver,
)
from embedbk.core.upkeep_words import (
    AllowDrop,
    AskMetadata,
    BeginCollection,
    CopyFailed,
    CopyLogs,
    CopySlice,
    HeldListed,
    KeepMet,
    ListHeld,
    ListLogs,
    LogsListed,
    MetadataDoubted,
    MetadataTold,
    MetKept,
    NameUnread,
    OperatorAsked,
    RetryWrites,
    SetWritable,
    SliceCopied,
    SpaceSeen,
)
from embedbk.core.vocabulary import CloseRequested, Ended, Started, Tick

__all__ = ["Effect", "Event", "Handlers", "Machine", "earliest"]

Event = (
    Started | Tick | Answered | AddsAnswered | SendFailed | KeyRead | Transacted | TransactUnknown | IdsAllocated
    | TransactRefused
    | MetadataFailed | BookiesChanged | FrameSealed | AddedNearby | CourseEnded | HintDue | CloseRequested | Consumed
    | LacsInDoubt | MetadataChanged
    | RequestReceived | AddsTaken | LinkLost | JournalDurable | JournalFailed
    | EntriesRead | EntriesCounted | BlocksNumbered | DecisionsRead
    | CountSettled | OlderMetadata | ServeAlone | LossFound | LimboListed | ShareTold
    | CollectionBegun | DropAllowed
    | HeldListed | KeysListed | MetadataTold | MetKept | LogsListed | SliceCopied | CopyFailed
    | WritableSet | ReadBoundsSet | SpaceSeen | OperatorAsked | MetadataDoubted
    | QuorumAnswered | RepairOver | SmallRepairsOver | SeatLost | SeatLeaving
)  # fmt: skip
Effect = (
    Send | AddFailed | Received | ReadKey | Transact | AllocateIds | Confirmed | EnsembleChanged | EntriesReady | Ended
    | CopiesMissed
    | Reply
    | StoreFrame | JournalAppend | ReadEntries | ReadDecisions | CountEntries | NumberBlocks | DropEntries
    | TellLogs | TellKeepers
    | ListHeld | ListKeys | AskMetadata | KeepMet | BeginCollection | AllowDrop | NameUnread
    | ListLogs | CopyLogs | CopySlice | SetWritable | RetryWrites
    | AskQuorum | BeginRepair | BeginSmallRepairs | Retained
)  # fmt: skip

Handlers = dict[type, Callable[[Any, Any], list[Effect]]]


class Machine:
    """Base of the cores. Subclasses fill HANDLERS: event type -> function(self, event) -> effects."""

    __slots__ = ()  # A core of which there is one per open ledger names its fields, which halves it.
    HANDLERS: ClassVar[Handlers] = {}

    def step(self, event: Event) -> list[Effect]:
        """Take one event, whole; give what is to be done, in this order. Waits for nothing, touches nothing else."""
        return self.HANDLERS[type(event)](self, event)

    @property
    def deadline_ns(self) -> int | None:
        """A `Tick` is wanted at or after this time; None: no need."""
        return None

    @property
    def wants_bookies(self) -> bool:
        """Tell `BookiesChanged` at once. False: before the next event is soon enough."""
        return True

    @property
    def waits_for(self) -> str:
        """What it waits for, in a few words for people; empty where nothing special is missing."""
        return ""

    def copy(self) -> Self:
        """An independent twin in the same state."""
        return copy.deepcopy(self)

    def digest(self) -> bytes:
        """16 bytes that are equal for equal states, in any process with any hash seed."""
        hasher = hashlib.blake2b(digest_size=16)
        _feed(hasher, _fields_of(self))
        return hasher.digest()


def earliest(*deadlines: int | None) -> int | None:
    """The first of some deadlines, None when there is none."""
    first: int | None = None
    for deadline in deadlines:  # A plain loop: this is asked several times in every turn of every node.
        if deadline is not None and (first is None or deadline < first):
            first = deadline
    return first


def _fields_of(value: Any) -> dict[str, Any]:
    """The values of its slots and of its dict, by name."""
    slots = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())} - {"__dict__"}
    held = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, dict):
        hasher.update(b"d%d" % len(value))
        for key, item in value.items():
            _feed(hasher, key)
            _feed(hasher, item)
    elif isinstance(value, set | frozenset):
        _feed(hasher, sorted(value, key=repr))
    elif isinstance(value, bytes | bytearray | memoryview):
        hasher.update(b"b%d" % len(value) + bytes(value))
    elif isinstance(value, list | tuple) or hasattr(value, "popleft"):
        hasher.update(b"l%d" % len(value))
        for item in value:
            _feed(hasher, item)
    elif is_dataclass(value):
        _feed(hasher, [(field.name, getattr(value, field.name)) for field in fields(value)])
    elif isinstance(value, msgspec.Struct):
        _feed(
            hasher,
            [type(value).__name__, *((name, getattr(value, name)) for name in value.__struct_fields__)],
        )
    elif hasattr(value, "getstate"):
        _feed(hasher, value.getstate())
    elif hasattr(type(value), "__slots__") and not isinstance(value, Enum | int | str):
        _feed(hasher, _fields_of(value))
    elif hasattr(value, "__dict__") and not isinstance(value, Enum):
        _feed(hasher, vars(value))
    else:
        text = repr(value)
        assert " at 0x" not in text, f"{type(value).__name__} is no plain data"
        hasher.update(text.encode())
