"""Adds that a simulated client seals and counts in C, over links of the simulated network (native/road/link_tray.h).

Decides nothing of its own: what is sent, and what counts, is C's, by the lines that serve ZeroMQ. Here what was sent is
laid on a tray for each link, and the network carries it on as any other body: late, twice, damaged or not at all. There
is no thread that waits: a client's turn is theirs, too (`AddSending.send_adds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from embedbk._native import ffi, lib
from embedbk.codec.answers import Answers
from embedbk.errors import ensure
from embedbk.ports.adds import AddSeat, AddTerms
from embedbk.transports.adds import AddsInC
from embedbk.transports.zmq_adds import LinkSender

__all__ = ["SimAdds", "SimLinks"]


class SimAdds(AddsInC):
    """The adds of one handle. No thread can block: time passes only when all have had their turn."""

    def wait(self, entry_id: int, *, is_alone: bool) -> bool:
        return False


class SimLinks:
    """`ports.adds.AddSending`, of one simulated client.

    Args:
        room_of: what a link takes now: by its window, and in truth, which a fault may have made less; None: it is over.
        carry: give a body to a link; true unless its room was told wrongly.
        wake: have this client take a turn, at this very time.
    """

    def __init__(
        self,
        answers: Answers,
        room_of: Callable[[int], tuple[int, int] | None],
        carry: Callable[[int, bytes], bool],
        wake: Callable[[], None],
    ) -> None:
        self._answers = answers
        self._room_of = room_of
        self._carry = carry
        self.wake_adds = wake
        self._sender = LinkSender()
        self._trays: dict[int, Any] = {}  # By link.

    def open_adds(self, terms: AddTerms, seats: Sequence[AddSeat]) -> SimAdds:
        for seat in seats:
            if seat.link not in self._trays:
                self._trays[seat.link] = ffi.gc(lib.ebk_link_tray_new(), lib.ebk_link_tray_free)
        adds = SimAdds(self._sender, self._sender.links, self._answers, terms, seats)
        self._sender.begin(adds)
        return adds

    def send_adds(self, now_ns: int) -> None:
        if self._sender.is_idle:
            return
        for link, tray in list(self._trays.items()):
            room = self._room_of(link)
            if room is None:
                self._sender.down(link)
                del self._trays[link]
                continue
            by_window, in_truth = room
            lib.ebk_link_tray_set_room(tray, in_truth)
            if lib.ebk_links_up_tray(self._sender.links, link, tray, by_window) < 0:
                raise MemoryError("no memory for a link that adds go over")
        self._sender.take(now_ns)
        # Frame by frame, as they left: what a seat gets is not decided by what the seats before it got.
        laid = {link: list(_messages(tray)) for link, tray in self._trays.items()}
        for place in range(max(map(len, laid.values()), default=0)):
            for link, messages in laid.items():
                if place < len(messages):
                    # No `assert`: what it asks is what sends, also under `python -O`.
                    ensure(self._carry(link, messages[place]), "the tray took what its link does not")


def _messages(tray: Any) -> Iterator[bytes]:
    size = ffi.new("uint64_t *")
    first = lib.ebk_link_tray_take(tray, size)
    laid = bytes(ffi.buffer(first, size[0])) if size[0] else b""
    at = 0
    while at < len(laid):
        end = at + 4 + int.from_bytes(laid[at : at + 4], "little")
        yield laid[at + 4 : end]
        at = end
