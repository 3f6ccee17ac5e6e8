"""The requests of one metadata member that wait for its log, or until more of it is applied (METADATA.md, 5). Pure.

Decides how many may wait, on one link and on all, and of how many bytes; a request for which there is no room is
answered BUSY at once. Leaves to `proposals`, `unapplied_reads` and `member` what each of them waits for, and the other
answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embedbk.codec.metadata_messages import BUSY, MetadataReply, MetadataRequest, Refusal
from embedbk.metadata.vocabulary import Reply

__all__ = ["REPLIES_WAITING_MAX", "WAITING_BYTES_MAX", "PendingRequest", "PendingRequests", "put_off"]

REPLIES_WAITING_MAX = 8192  # Requests that wait for the log; more are put off (BUSY), not queued.
WAITING_BYTES_MAX = 64 << 20  # Bytes of commands that are not applied yet, and of lists that wait for them.
WAITING_SHARE = 4  # A link may have as many waiting as this part of what is free of half of them,
WAITING_LEAST = 4  # and so many in any case: the other half is enough for that on every link.


@dataclass(slots=True)
class PendingRequest:
    """A request, and whether it waits."""

    link: int
    request: MetadataRequest
    key: tuple[int, int]  # (session, sequence); (0, a number of its own) without a session.
    bytes: int = 0
    is_gone: bool = False  # Its link is lost: no answer is sent.
    is_unrun: bool = False  # A change that was not run when it began to wait, as far as was known.


class PendingRequests:
    """bytes: those of all these requests, and of the commands that `Proposals` adds and subtracts."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.of_link: dict[int, dict[tuple[int, int], PendingRequest]] = {}  # By link, then key.
        self._unnumbered = 0  # Requests without a session so far: none repeats another.

    def begin(self, link: int, request: MetadataRequest) -> PendingRequest | None:
        """A request comes, and may have to wait. None: it repeats one that waits, whose answer is on its way."""
        if request.session == 0:
            return self.begin_unnumbered(link, request)
        key = (request.session, request.sequence)
        return None if key in self.of_link.get(link, ()) else PendingRequest(link, request, key)

    def begin_unnumbered(self, link: int, request: MetadataRequest) -> PendingRequest:
        """A request comes that repeats no other, whatever its numbers are."""
        self._unnumbered += 1
        return PendingRequest(link, request, (0, -self._unnumbered))

    def admit(self, asked: PendingRequest, effects: list[Any]) -> bool:
        """Let a request wait, if there is room for it; whether it does. If not, it is put off."""
        full = self.why_full(asked.link)
        if full:
            put_off(asked, full, effects)
            return False
        self.add(asked)
        return True

    def add(self, asked: PendingRequest) -> None:
        self.count += 1
        self.bytes += asked.bytes
        self.of_link.setdefault(asked.link, {})[asked.key] = asked

    def end(self, asked: PendingRequest) -> None:
        """It waits no longer, whether its link is still there or not."""
        self.count -= 1
        self.bytes -= asked.bytes
        if not asked.is_gone:
            of_link = self.of_link[asked.link]
            del of_link[asked.key]
            if not of_link:
                del self.of_link[asked.link]

    def lose_link(self, link: int) -> None:
        """The link's requests stay until their commands are applied; no answer to them is sent."""
        for asked in self.of_link.pop(link, {}).values():
            asked.is_gone = True

    def clear(self) -> None:
        self.of_link.clear()
        self.count = self.bytes = 0

    def why_full(self, link: int) -> str:
        """Why a request on this link that could only wait is put off; empty: it is not."""
        if self.bytes > WAITING_BYTES_MAX:
            return (
                f"{self.bytes} bytes wait for the metadata member's disk, allowed are {WAITING_BYTES_MAX}: "
                "try again later"
            )
        of_link = len(self.of_link.get(link, ()))
        share = max((REPLIES_WAITING_MAX // 2 - self.count) // WAITING_SHARE, WAITING_LEAST)
        if self.count >= REPLIES_WAITING_MAX or of_link >= share:
            return (
                f"{self.count} answers wait for the metadata member's disk, {of_link} of them on this link; "
                f"allowed are {REPLIES_WAITING_MAX}, and now {share} on one link: try again later"
            )
        return ""


def put_off(asked: PendingRequest, why: str, effects: list[Any]) -> None:
    """Answer BUSY, at once: there is no room for the request. The answer shows nothing of the catalog, so it need not
    wait."""
    request = asked.request
    reply = MetadataReply(request.session, request.sequence, Refusal(BUSY, why))
    effects.append(Reply(asked.link, reply))
