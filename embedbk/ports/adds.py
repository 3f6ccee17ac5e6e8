"""The adds of a writing handle that are sealed and sent past its core, and the seats that they go to: over links, or
bookies of the same loop (native/SHORTCUTS.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from embedbk.codec.packing import Packing
from embedbk.core.frame_table import AnyFrameTable

__all__ = [
    "AddSeat",
    "AddSending",
    "AddTerms",
    "Near",
    "NearWait",
    "OwedFrame",
    "SentAdds",
    "SentFacts",
]


class Near(Protocol):
    """A bookie as writers on the same loop reach it, past all messages (native/SHORTCUTS.md, "Near seats")."""

    def show(self, *, is_open: bool, is_told: bool) -> None:
        """After each step of its node. is_open: common adds are taken; is_told: the node wants every rise of
        `durable`, else only those that concern it."""
        ...

    def leave(self) -> None:
        """Its storage is about to close."""
        ...


class AddSeat(Struct, frozen=True):
    """A receiver of each frame of a handle: over a link, or as a bookie of the same loop."""

    link: int
    seating: int  # As its answers name it (P3.8).
    control: bytes  # The control part of each request, encoded.
    slot: int  # Where the table of frames counts what it answers.
    near: Near | None = None  # Then the link and what is said over it are not used.


class AddTerms(Struct, frozen=True):
    """What one writing handle passes to `open_adds`."""

    packer: Packing  # The one in C (codec/packer.py).
    table: AnyFrameTable  # The handle's frames in flight; it is lendable.
    ledger_id: int
    ledger_key: bytes
    nonce: int
    ack_quorum: int
    lac: int
    lac_length: int
    bytes_max: int  # Bound of frames that are not acknowledged.
    behind_max: int  # Bound of acknowledged ones kept for seats that are behind, with their price.


class SentFacts(Struct, frozen=True):
    """What became of the adds of one handle."""

    lac: int
    lac_length: int
    pending: int  # Frames that are not acknowledged.
    is_ending: bool  # Nothing more goes this way.
    oldest_sent_ns: int | None  # When the oldest frame that a seat has not answered was sent.
    longest_ns: int  # The longest time of an answer since the last report; 0: there was none.
    followed: int = 0  # A bit for each seat that said since then that a reader waits there (P6.2).
    heard_ns: tuple[int, ...] = ()  # By seat: when it was seen last that it had answered; 0: never.
    is_pressed: bool = False  # So much is kept for seats that are behind that nothing is sealed.
    # Then, by seat: since when it has answered nothing of what it owes; 0: it owes nothing.
    silent_ns: tuple[int, ...] = ()
    answered_ns: tuple[
        int, ...
    ] = ()  # By seat: when the newest was sent of what it has answered; 0: nothing.


class OwedFrame(NamedTuple):
    """A frame that was sent this way and is owed an answer; a bit for each seat that owes it."""

    first_entry: int
    first_request: int  # Request id of seat 0; those of the others follow.
    asked: int  # Seats whose request is on its way.
    unsent: int  # Seats whose link took nothing of it, or near ones that have it not durable yet.


class SentAdds(Protocol):
    """The adds of one writing handle, sealed and sent in C (native/SHORTCUTS.md, "Adds in C").

    is_followed: readers wait for what is acknowledged, so nothing is reported late.
    """

    is_followed: bool

    def tell(self, now_ns: int) -> SentFacts:
        """Return what happened since the last call."""
        ...

    def fail(self, seat: int) -> None:
        """Note that this seat failed: nothing is kept for it any more, and no further frame is sealed."""
        ...

    def end(self) -> list[OwedFrame]:
        """End the sending; from now on the host gets the answers to the frames returned here, in entry order."""
        ...

    def close(self) -> None:
        """The table is not used any more; waiting threads return, as nothing comes this way. Threads may still ask."""
        ...

    def lac(self) -> tuple[int, int]:
        """Any thread: what is acknowledged, told or not, and the length of the ledger up to there at least."""
        ...

    def wait(self, entry_id: int, *, is_alone: bool) -> bool:
        """Any thread: block until the entry is acknowledged. False: it will not be this way. is_alone: no other
        waiter needs the LAC in Python, so it may be published a little later."""
        ...


class AddSending(Protocol):
    """Belongs to one transport, or to a loop with bookies on it. On the host's thread, but for `wake_adds`."""

    def open_adds(self, terms: AddTerms, seats: Sequence[AddSeat]) -> SentAdds | None:
        """From now on what this packer has is sealed and sent while the host waits. Returns None: not over these
        links."""
        ...

    def send_adds(self, now_ns: int) -> None:
        """Give these adds a turn, for a host that does not wait by `listen_for`."""
        ...

    def wake_adds(self) -> None:
        """From any thread: a packer has something. The host's wait ends, or takes it into account."""
        ...


class NearWait(AddSending, Protocol):
    """The wait of a loop with bookies on it."""

    def fileno(self) -> int:
        """Ready when adds have news for their cores."""
        ...
