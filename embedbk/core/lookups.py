"""Lookups in the entry store that a bookie has begun and that are not answered yet, with what each is for.

A request that needs entries, or a count of them, waits here while the store looks; the completion brings back the
number of its lookup. Decides nothing of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from embedbk.codec.add_messages import AddRequest, ReplaceRequest
from embedbk.codec.frame import LEDGER_KEY_BYTES, Frame, encode_frame_header
from embedbk.codec.holdings_messages import HoldingsRequest, LedgerBlocksRequest
from embedbk.codec.read_messages import ReadClass, ReadRequest
from embedbk.core.bookie_words import ReadEntries
from embedbk.core.held_count import HeldCount
from embedbk.core.parked import Poll
from embedbk.core.read_budget import read_class
from embedbk.core.several import SeveralAdds, SeveralReads

__all__ = ["Lookup", "Lookups", "framed"]

_NO_KEY = bytes(LEDGER_KEY_BYTES)


@dataclass(slots=True)
class Lookup:
    """A lookup in the entry store that a request waits for."""

    link: int
    request_id: int
    # None: the bookie itself asked, for a share (P7.4).
    request: AddRequest | ReadRequest | HoldingsRequest | LedgerBlocksRequest | ReplaceRequest | Poll | None
    ledger_id: int
    wait_token: int  # The answer also waits until this record is durable.
    frame: Frame | None = None  # The repeated add's frame.
    first_entry: int = 0  # Where the lookup began; before it all was compared already.
    missing: set[int] = field(default_factory=set)  # Entries of the frame to be stored. Asked by key only.
    # It is for this place of a question for holdings, of a read of several ledgers, or of several copies.
    held: HeldCount | None = None
    reads: SeveralReads | None = None
    adds: SeveralAdds | None = None
    place: int = 0

    @property
    def read_class(self) -> ReadClass:
        """What it is made for (P6.7): a recovery, a poll and the bookie itself wait for no budget."""
        request = self.request
        if not isinstance(request, ReadRequest) or request.fence:
            return ReadClass.TAIL
        return read_class(request.reads_as)

    @property
    def is_for_reader(self) -> bool:
        """Whether the entries themselves are wanted, from wherever they are quickest (P6.7). Whatever compares, counts
        or checks copies asks about those in entry logs, as a batch does, which may be a scrub."""
        is_read = isinstance(self.request, ReadRequest | Poll)
        return is_read and self.read_class in (ReadClass.TAIL, ReadClass.CATCH_UP)


class Lookups:
    """The open lookups of one bookie, by number."""

    __slots__ = ("next_id", "open")

    def __init__(self) -> None:
        self.open: dict[int, Lookup] = {}
        self.next_id = 1

    def begin(self, look: Lookup) -> int:
        """Note the lookup; returns its number."""
        read_id = self.next_id
        self.next_id += 1
        self.open[read_id] = look
        return read_id

    def read(
        self, look: Lookup, first: int, last: int, bytes_max: int, modulus: int = 1, residues: int = 1
    ) -> ReadEntries:
        """Begin a lookup of the entries first..last whose id modulo modulus is among the residues."""
        read_id = self.begin(look)
        link = look.link if isinstance(look.request, ReadRequest | Poll) else None
        return ReadEntries(
            read_id,
            look.ledger_id,
            first,
            last,
            bytes_max,
            modulus,
            residues,
            link,
            look.read_class,
            from_memory=look.is_for_reader,
        )

    def end(self, read_id: int) -> Lookup | None:
        """The lookup with this number, which is over; None: it is not known."""
        return self.open.pop(read_id, None)

    def has_add(self, ledger_id: int) -> bool:
        """Whether an add of this ledger, or a copy that replaces another, waits for what is held."""
        return any(look.ledger_id == ledger_id and look.frame is not None for look in self.open.values())

    def is_replacing(self, request: ReplaceRequest) -> bool:
        """Whether a copy of the same entry is being replaced."""
        asked = (request.ledger_id, request.entry_id)
        return any(
            isinstance(other := look.request, ReplaceRequest) and (other.ledger_id, other.entry_id) == asked
            for look in self.open.values()
        )


def framed(frame: Frame | None) -> list[tuple[bytes, Frame]]:
    """The entries found, as an answer carries them."""
    return [] if frame is None else [(encode_frame_header(frame, _NO_KEY), frame)]
