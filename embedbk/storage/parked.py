"""The list of parked polls in C (native/road/parked.c), behind what `core.parked.Parked` decides.

It is in C because a bookie's shortcut for readers (native/road/tail_path.c) parks and wakes there, too: one list, as
there is one ledger table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embedbk.core.parked import FOLLOWED_NS, POLLS_PER_LINK_MAX, Poll
from embedbk.errors import StorageError
from embedbk.storage.native import ffi, lib

__all__ = ["NativeParked"]

_NEVER_NS = (1 << 63) - 1


class NativeParked:
    """As `Parked`."""

    def __init__(self, polls_per_link_max: int = POLLS_PER_LINK_MAX) -> None:
        made = lib.ebk_parked_new(polls_per_link_max, FOLLOWED_NS)
        if made == ffi.NULL:
            raise StorageError("no memory for the list of parked polls", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_parked_free)
        # Links of polls that were parked in C and are given to the core: its host has not counted them yet.
        self.uncounted: list[int] = []
        self._queue = ffi.new("struct ebk_poll_queue *")
        self._poll = ffi.new("struct ebk_poll *")

    @property
    def deadline_ns(self) -> int | None:
        deadline = int(lib.ebk_parked_deadline(self.handle))
        return None if deadline == _NEVER_NS else deadline

    @property
    def poll_count(self) -> int:
        return int(lib.ebk_parked_count(self.handle))

    @property
    def followed_count(self) -> int:
        """Ledgers that a reader waits for or asked for lately."""
        return int(lib.ebk_parked_followed(self.handle))

    def count_of(self, link: int) -> int:
        return int(lib.ebk_parked_of_link(self.handle, link))

    def is_awaited(self, ledger_id: int) -> bool:
        return bool(lib.ebk_parked_is_awaited(self.handle, ledger_id))

    def is_followed(self, ledger_id: int, now_ns: int) -> bool:
        return bool(lib.ebk_parked_is_followed(self.handle, ledger_id, now_ns))

    def note_asked(self, ledger_id: int, now_ns: int) -> None:
        lib.ebk_parked_note_asked(self.handle, ledger_id, now_ns)

    def park(self, poll: Poll) -> bool:
        given = self._poll
        given.link, given.request_id, given.ledger_id = poll.link, poll.request_id, poll.ledger_id
        given.after_lac, given.until_ns, given.bytes_max = poll.after_lac, poll.until_ns, poll.bytes_max
        given.is_counted = True
        return bool(lib.ebk_parked_park(self.handle, given))

    def wake(self, ledger_id: int, lac: int, *, is_fenced: bool) -> list[Poll]:
        lib.ebk_parked_wake(self.handle, ledger_id, lac, is_fenced, self._queue)
        return self._taken(self.uncounted.append)

    def expire(self, now_ns: int) -> list[Poll]:
        lib.ebk_parked_expire(self.handle, now_ns, self._queue)
        return self._taken(self.uncounted.append)

    def forget(self, link: int) -> None:
        lib.ebk_parked_forget(self.handle, link, self._queue)
        self._taken(lambda _: None)

    def _taken(self, note_uncounted: Callable[[int], None]) -> list[Poll]:
        polls, given = [], self._poll
        while lib.ebk_parked_pop(self.handle, self._queue, given):
            polls.append(
                Poll(
                    given.link,
                    given.request_id,
                    given.ledger_id,
                    given.after_lac,
                    given.bytes_max,
                    given.until_ns,
                )
            )
            if not given.is_counted:
                note_uncounted(given.link)
        return polls
