"""Lookups of a bookie for its readers that were not made yet: in which order, and how many in one turn (P6.7).

Each lookup waits until the link of its reader has room for what it may find, so that no answer has to be kept here and
a slow reader costs its own link nothing but time. Of a turn each class has its share, the newest entries as much as
they ask for: so a job that reads everything keeps no tail waiting for longer than its share takes, and no class waits
for ever. Between two turns the bookie takes what came meanwhile. A lookup in several ledgers is one lookup.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from embedbk.codec.frame import Frame
from embedbk.codec.read_messages import ReadClass
from embedbk.config import READ_ROOM_BYTES
from embedbk.core.bookie_words import ReadEntries
from embedbk.ports.entry_store import EntriesFound
from embedbk.ports.transport import Transport

__all__ = ["TURN_BYTES", "WaitingReads", "looked_up", "nothing_found"]

# A class's share of one turn; the first class has no bound. The lookup that uses up a share is made whole.
TURN_BYTES = {ReadClass.CATCH_UP: 8 << 20, ReadClass.BATCH: 2 << 20, ReadClass.UPKEEP: 2 << 20}


class WaitingReads:
    """By class and link, lookups in the order in which they came."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: dict[ReadClass, dict[int | None, deque[ReadEntries]]] = {
            kind: {} for kind in ReadClass
        }
        self._count = 0
        # By link, bytes found and not answered yet: fences wait for the journal.
        self._found: dict[int, int] = {}
        self._read: dict[ReadClass, int] = dict.fromkeys(TURN_BYTES, 0)  # Bytes, in this turn.

    def __len__(self) -> int:
        return self._count

    def add(self, read: ReadEntries) -> None:
        self._count += 1
        self._waiting[read.reads_as].setdefault(read.link, deque()).append(read)

    def put_back(self, read: ReadEntries) -> None:
        """It could not be made, and is the next one of its link again."""
        self._count += 1
        self._waiting[read.reads_as].setdefault(read.link, deque()).appendleft(read)

    def begin_turn(self) -> None:
        for kind in self._read:
            self._read[kind] = 0

    def next(self) -> ReadEntries | None:
        """The next lookup that its link has room for and its class a share of this turn."""
        for kind, links in self._waiting.items():
            if not links or self._is_used_up(kind):
                continue
            for link, waiting in links.items():
                if link is None or self.has_room(link):
                    read = waiting.popleft()
                    self._count -= 1
                    del links[link]
                    if waiting:
                        links[link] = waiting  # Behind the others of its class.
                    return read
        return None

    def has_more(self) -> bool:
        """Whether a lookup waits for nothing but the next turn."""
        return any(
            self._is_used_up(kind) and any(link is None or self.has_room(link) for link in links)
            for kind, links in self._waiting.items()
        )

    def _is_used_up(self, kind: ReadClass) -> bool:
        return kind in TURN_BYTES and self._read[kind] >= TURN_BYTES[kind]

    def has_room(self, link: int) -> bool:
        return self._transport.has_room(link, self._found.get(link, 0) + READ_ROOM_BYTES)

    def found(self, read: ReadEntries, byte_count: int) -> None:
        if read.link is not None:
            self._found[read.link] = self._found.get(read.link, 0) + byte_count
        if read.reads_as in self._read:
            self._read[read.reads_as] += byte_count

    def answered(self, link: int, byte_count: int) -> None:
        """So many bytes that were found for this link left. They may be forgotten by then: an answer that denies
        something waits for metadata, and a fault of the storage may come before that."""
        self._found[link] = max(0, self._found.get(link, 0) - byte_count)

    def forget_found(self) -> None:
        """Answers that waited for the journal were sent without their entries."""
        self._found.clear()

    def end_link(self, link: int) -> Iterator[ReadEntries]:
        """The lookups that no reader waits for any more."""
        self._found.pop(link, None)
        for links in self._waiting.values():
            ended = links.pop(link, ())
            self._count -= len(ended)
            yield from ended


Found = tuple[
    Frame | None, list[tuple[int, int]]
]  # What was found of one range: its entries, and what is absent.


class Reads(Protocol):
    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound: ...


def looked_up(store: Reads, asked: ReadEntries) -> tuple[Found, list[Found | None]]:
    """What is found of a lookup's own range, and of the others as far as there is room behind it; None: there is none.
    An entry that is larger than the room is found all the same, and left out.

    Raises:
        StorageError: as the store's `read`.
    """
    spans = [
        (asked.ledger_id, asked.first_entry, asked.last_entry, asked.modulus, asked.residues),
        *(
            (each.ledger_id, each.first_entry, each.last_entry, each.modulus, each.residues)
            for each in asked.others
        ),
    ]
    told: list[Found | None] = []
    room = asked.bytes_max
    for ledger_id, first, last, modulus, residues in spans:
        if told and room <= 0:
            told.append(None)
            continue
        found = store.read(ledger_id, first, last, room, modulus, residues, from_memory=asked.from_memory)
        size = 0 if found.frame is None else len(found.frame.body)
        if told and size > room:
            told.append(None)
            continue
        told.append((found.frame, found.absent))
        room -= size
    own = told[0]
    assert own is not None
    return own, told[1:]


def nothing_found(asked: ReadEntries) -> tuple[Found, list[Found | None]]:
    """The outcome of a lookup of which nothing is known."""
    return (None, []), [(None, []) for _ in asked.others]
