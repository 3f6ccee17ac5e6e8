"""The bookies of a cluster as a client sees them: what each has registered, which get no new seats for now since they
failed often (RP45), and which are away or drained.

Decides nothing of the protocol: it keeps what the watched list says, and shows it as cores get it. Leaves to
`quarantine` which bookies have failed too often, to `absences` and `departures` which writers learn that a bookie is
lost or leaves, and to `client_node` when it is shown, and to whom.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.metadata_messages import Record
from embedbk.codec.registration import BOOKIES_PREFIX, Registration, decode_registration
from embedbk.core.client_words import BookieInfo
from embedbk.core.machine import earliest
from embedbk.core.quarantine import Quarantine
from embedbk.errors import StorageError
from embedbk.host.absences import Absences
from embedbk.host.departures import Departures
from embedbk.host.unread import Unread
from embedbk.ids import Member

__all__ = ["ListedBookies"]


class ListedBookies:
    """The list of one client node. Called on the host's thread only.

    Args:
        unread: what names a registration that cannot be read; its bookie is left out.
        seat_grace_ns: a bookie that is not registered for so long is lost to open ledgers (P4.1).
    """

    def __init__(self, unread: Unread, seat_grace_ns: int) -> None:
        self.registrations: dict[str, Registration] = {}
        self.bookies: tuple[BookieInfo, ...] = ()  # As it was shown last.
        self.quarantine = Quarantine()
        self.absences = Absences(seat_grace_ns)
        self.departures = Departures()
        self._unread = unread

    @property
    def deadline_ns(self) -> int | None:
        return earliest(self.quarantine.deadline_ns, self.absences.deadline_ns, self.departures.deadline_ns)

    def take(self, records: Sequence[Record], *, is_first: bool) -> None:
        """Take what changed in the list; is_first: the records are all that stands there. Show it next."""
        if is_first:
            self.registrations.clear()
        for record in records:
            bookie_id = record.key.removeprefix(BOOKIES_PREFIX)
            self.registrations.pop(bookie_id, None)
            if record.value is None:
                continue
            try:
                self.registrations[bookie_id] = decode_registration(record.value, bookie_id)
            except StorageError as broken:
                self._unread.name(record.key, str(broken))  # A bookie that is left out.
        for record in records:
            self.quarantine.release(record.key.removeprefix(BOOKIES_PREFIX))  # It came back, or went.

    def show(self, now_ns: int) -> None:
        """Show the bookies as they are listed and held now: as another object than before, and to those that look for
        absent and leaving ones."""
        self.bookies = tuple(
            BookieInfo(
                Member(bookie_id, registration.incarnation),
                registration.is_writable,
                registration.location,
                registration.free_bytes,
                bookie_id in self.quarantine.held,
                registration.placement,
                registration.is_leaving,
            )
            for bookie_id, registration in sorted(self.registrations.items())
        )
        self.absences.note(now_ns, (info.member for info in self.bookies))
        self.departures.note(now_ns, (info.member for info in self.bookies if info.is_leaving))
