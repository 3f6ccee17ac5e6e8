"""Events and effects of a client's cores: requests to bookies, entries on their way, the list of bookies.

Every Send is followed by exactly one final `Answered` or `SendFailed`, unless the core ended meanwhile; a deferred add
may be `Answered` once before it (codec.add_messages.is_final). One that wants no answer has no outcome
(codec.lac_messages.is_answered).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from embedbk.codec.frame import Frame, FrameHeader
from embedbk.codec.lac_messages import ExplicitLacRequest
from embedbk.codec.messages import Control
from embedbk.core.vocabulary import Tag
from embedbk.errors import EmbedbkError
from embedbk.ids import Member

__all__ = [
    "AddFailed",
    "AddedNearby",
    "AddsAnswered",
    "Answered",
    "BELOW_LEVEL",
    "BookieInfo",
    "BookiesChanged",
    "Confirmed",
    "CopiesMissed",
    "CourseEnded",
    "Consumed",
    "EnsembleChanged",
    "EntriesReady",
    "FrameSealed",
    "HintDue",
    "LacsInDoubt",
    "Received",
    "SeatLeaving",
    "SeatLost",
    "Send",
    "SendFailed",
]


# SendFailed.reason: the cluster's level is too low for this request, so it was not sent (P10.8).
BELOW_LEVEL = "the cluster's level is too low to ask"


class BookieInfo(NamedTuple):
    """A registered bookie as a client sees it."""

    member: Member
    is_writable: bool
    location: str = ""  # "zone/rack", or nothing.
    free_bytes: int = 0
    is_quarantined: bool = False  # Failed often lately: chosen only where no other bookie is left (RP45).
    # The placement that naming it compares (P10.6); None: an older build, nothing is compared.
    placement: int | None = None
    is_leaving: bool = False  # It is drained (P11.3).


class HintDue(Struct):
    """A writer's LAC stood still for a moment: its bookies get it now, in memory (P6.2)."""

    now_ns: int


class LacsInDoubt(Struct):
    """A bookie may not have taken these LACs of idle writers, which were told for good (P6.2)."""

    now_ns: int
    lacs: list[ExplicitLacRequest]


class Answered(Struct):
    """A bookie answered a Send. frames are (header, unchecked body) pairs."""

    now_ns: int
    tag: Tag
    member: Member
    control: Control
    frames: list[tuple[FrameHeader, memoryview]] = field(default_factory=list)


class AddsAnswered(Struct):
    """Bookies answered OK to all of these adds, each exactly as and where it was asked (P3.8): like so many `Answered`,
    in one event.

    followed: seatings where a reader waits, by their answers, also to adds that C sent past this core.
    """

    now_ns: int
    answers: list[tuple[Member, Tag]]
    followed: tuple[int, ...] = ()


class SendFailed(Struct):
    """No answer will come: not registered, other incarnation, no link, link lost, queue full. Whether the request was
    carried out is not known.

    is_other_disk: by its answer or its registration, the bookie has another incarnation than the one asked for.
    """

    now_ns: int
    tag: Tag
    member: Member
    reason: str
    is_other_disk: bool = False


class BookiesChanged(Struct):
    """The registered bookies, from the watch; sorted by id."""

    now_ns: int
    bookies: tuple[BookieInfo, ...]


class FrameSealed(Struct):
    """The packer's next frame: a run of entries that continues the one before."""

    now_ns: int
    frame: Frame


class AddedNearby(Struct):
    """A course has confirmed everything up to last_entry (host/courses.py). is_idle: nothing more is under way."""

    now_ns: int
    last_entry: int
    length: int  # Payload bytes of the ledger up to and including last_entry.
    is_idle: bool
    longest_ns: int = 0  # The longest time of an answer since the last such event; 0: there was none.


class CourseEnded(Struct):
    """A course of this handle is over (host/courses.py): its core has the frames in flight to itself again. Behind an
    `AddedNearby` of all that is acknowledged."""

    now_ns: int
    heard_ns: tuple[int, ...]  # By seat: when it answered last; 0: never.
    answered_ns: tuple[
        int, ...
    ]  # By seat: when the newest was sent of the frames that it has answered; 0: none.
    # First entry of each frame that seats were not sent, in entry order, and the numbers of their seatings.
    unsent: tuple[tuple[int, tuple[int, ...]], ...] = ()


class SeatLost(Struct):
    """This member was not registered for as long as the grace: its seat is replaced though nothing is outstanding, so
    that the fragment before can be repaired (P4.1, P11.2)."""

    now_ns: int
    member: Member


class SeatLeaving(Struct):
    """This member is drained: its seat goes to another as soon as one can take it, though it has not failed (P11.3)."""

    now_ns: int
    member: Member


class Consumed(Struct):
    """The reader's user took this many bytes of what EntriesReady gave; as many more may be read ahead."""

    now_ns: int
    byte_count: int


class Send(Struct):
    """Send a request to a bookie in one incarnation. frames: (encoded frame header, frame) pairs."""

    member: Member
    control: Control
    tag: Tag
    frames: Sequence[tuple[bytes, Frame]] = ()


class Confirmed(Struct):
    """Every entry up to lac is acknowledged (P3.3)."""

    lac: int
    length: int


class Received(Struct):
    """Deferred sync: every entry up to this one is held by Qa bookies of its write set, at least in memory (P3.2)."""

    entry_id: int
    length: int


class AddFailed(Struct):
    """The writing handle failed: every add above the LAC ends with this error, only close remains (P3.6)."""

    error: EmbedbkError
    # The frames sent and not acknowledged, in order, for a next ledger (P8.2): only for a handle that asks for them
    # (`WriterOptions.hands_over`).
    outstanding: tuple[Frame, ...] = ()


class EnsembleChanged(Struct):
    """A new ensemble was published for entries from first_entry on."""

    first_entry: int
    ensemble: tuple[Member, ...]


class CopiesMissed(Struct):
    """A bookie of the ensemble was away while entries were acknowledged, or its seat was not published yet; this core
    never sends them again (P4.5)."""


class EntriesReady(Struct):
    """The next entries of a read, checked, in order, without gaps."""

    frame: Frame
