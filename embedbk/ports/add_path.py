"""The shortcut for the common add at a bookie, and the wait in which only such adds are taken (native/SHORTCUTS.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from embedbk.core.parked import ParkedPolls
from embedbk.ports.links import Buffer

__all__ = ["AddPath", "WaitEnd", "WaitTerms"]


class AddPath(Protocol):
    """The shortcut for the common add, beside the core and with its rules (native/SHORTCUTS.md). It stores and queues,
    and keeps the answers until they may leave."""

    @property
    def parked(self) -> ParkedPolls:
        """Polls of readers; it parks and wakes them as well as the core."""
        ...

    def begin(self, now_ns: int, *, takes_polls: bool) -> None:
        """A turn begins. takes_polls: also readers' polls and writers' hints are common now."""
        ...

    def reader_answers(self, room_of: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
        """(link, message) of the answers to readers' polls and to hints. room_of(link): bytes that it can take now."""
        ...

    def settled(self) -> Iterator[int]:
        """Links with a poll that the core parked, and that was answered here."""
        ...

    def take(self, link: int, head: Buffer, tail: Buffer = b"") -> bool:
        """Offer a message, `head` then `tail`: the body of its frame, where it does not stand in `head`. False: it is
        not common, nothing was changed, and it is the core's. All earlier messages of its link were decided."""
        ...

    def taken(self) -> int:
        """How many records it has queued, ever: frames, and LACs of idle writers."""
        ...

    def answers(self, durable: int, now_ns: int) -> Iterator[tuple[int, int, bytes]]:
        """(link, how many answers, their message) for what was taken and is durable up to this token. Exhaust it
        before the next `take`."""
        ...

    def due(self) -> Iterator[tuple[int, int, bytes]]:
        """The rest of the last `answers`."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when the journal has news, and for no other reason."""
        ...

    def stop(self, status: int) -> Iterator[tuple[int, int, bytes]]:
        """Take nothing from now on; answer everything that waits with this status (P7.6)."""
        ...


class WaitTerms(Struct, frozen=True):
    """The terms of a wait in which a bookie only takes and answers common adds."""

    add_path: AddPath
    filenos: Sequence[
        int
    ]  # All others on the loop: one that is ready ends the wait. The same object while they are.
    until_ns: int  # By the loop's clock.
    duties_ns: int  # Once something was taken or answered, the wait ends so much later at the latest.
    durable: int  # The token up to which the host knows of durability ..
    awaits_journal: bool  # .. and whether others than the add path wait for the journal to pass it.
    bytes_max: int  # After so many bytes taken the storage has something to do.


class WaitEnd(Struct, frozen=True):
    """What ended a wait. In all cases the next `receive` returns what else came."""

    ready: Sequence[int]  # Those of the others' filenos that are ready.
    unsent: (
        tuple[int, bytes] | None
    )  # An answer, with its link, that is the host's to send; others may be due behind it.
