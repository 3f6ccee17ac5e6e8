"""Publishing what a writer changes of its ledger's metadata: its ensemble (P4.1 to P4.3), and the close (P5.1).

One change at a time. Decides which metadata follows from an ensemble change or the close, and what it means that
another version stands there: this change all the same, one beside which the change is put again (repair touched an
earlier fragment), or another client's. Knows the metadata as this handle published it last, and the list of bookies.
Leaves to others: settling a compare-and-set (`publishing`), which change is due and who is seated then
(`ensemble_keeping`), when the ledger is closed and what follows from another client's version (the writer).

    AT REST --an ensemble change, the close--> UNDER WAY --published--> AT REST, on the new version
                                                ^   |'--never, or another client's--> the handle drops it
                                                '---'  another version, of which the last fragment is as it was
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState
from embedbk.core.client_words import BookieInfo
from embedbk.core.end_recording import EndRecord
from embedbk.core.ensemble_change import Proposal, change_fragments
from embedbk.core.fragment_sums import sums_with
from embedbk.core.in_flight import InFlight
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import NOTHING, KeyRead, Transacted, TransactRefused, TransactUnknown
from embedbk.core.naming import Naming, newly_seated
from embedbk.core.publishing import Publication, Publishing, Settlement

__all__ = ["ChangePublishing"]


class ChangePublishing:
    """The metadata of the ledger that one handle writes, and its change or close under way."""

    __slots__ = ("bookies", "count", "end", "in_flight", "metadata", "proposal", "publishing", "revision")

    def __init__(
        self,
        metadata: LedgerMetadata,
        revision: int,
        bookies: tuple[BookieInfo, ...],
        in_flight: InFlight,
    ) -> None:
        assert metadata.state == LedgerState.OPEN
        self.metadata = metadata  # As last published, with its revision.
        self.revision = revision
        self.bookies = bookies  # The list that was told last.
        self.in_flight = in_flight  # It has the LAC, and the sums of what is in front of it.
        self.proposal: Proposal | None = None  # From sending its CAS until the outcome is settled (P4.2).
        self.publishing: Publishing | None = None  # From the first change or close on.
        self.count = 0  # Ensemble changes published.
        self.end: EndRecord | None = (
            None  # In which list the close records the ledger's end; None: in none, or tried.
        )

    def getstate(self) -> dict[str, Any]:
        """The state for digests: what is not the writer's as well."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "in_flight"}

    @property
    def proposed(self) -> LedgerMetadata | None:
        """The metadata being published: a change or the close."""
        return None if self.publishing is None else self.publishing.proposed

    @property
    def is_unsettled(self) -> bool:
        """A compare-and-set came back unknown: it is still in flight (P2.2)."""
        return self.publishing is not None and self.publishing.is_unsettled

    @property
    def usable(self) -> tuple[BookieInfo, ...]:
        """The bookies, with those marked not writable that may not be named."""
        return self.bookies if self.publishing is None else self.publishing.naming.usable(self.bookies)

    def note_list(self, bookies: tuple[BookieInfo, ...]) -> None:
        self.bookies = bookies
        if self.publishing is not None:
            self.publishing.naming.listed(bookies)

    # What is published.

    def change(self, proposal: Proposal) -> list[Effect]:
        """Publish another ensemble."""
        self.proposal = proposal
        return self._put_change(proposal)

    def close(self) -> list[Effect]:
        """Publish that the ledger is closed at the LAC (P5.1)."""
        last, length = self.in_flight.done, self.in_flight.done_length
        sums = sums_with(self.metadata, last, self.in_flight.sums_through(last))
        closed = self.metadata.with_changes(
            state=LedgerState.CLOSED, last_entry=last, length=length, sums=sums
        )
        end, self.end = self.end, None
        beside = NOTHING if end is None else end.beside(last, length)
        return self._begin().put(self.metadata, self.revision, closed, beside)

    @property
    def has_recorded(self) -> bool:
        """Whether the compare-and-set in flight records the ledger's end in a list; once it is published: whether that
        has been recorded by it, surely."""
        return self.publishing is not None and self.publishing.has_beside

    def read(self) -> list[Effect]:
        """The ledger's metadata, unless it is being read."""
        return self._begin().read(self.metadata.ledger_id)

    def _put_change(self, proposal: Proposal) -> list[Effect]:
        fragments = change_fragments(self.metadata.fragments, proposal)
        publishing = self._begin()
        publishing.naming.choose(newly_seated(self.metadata.fragments, fragments), self.bookies)
        sums = sums_with(self.metadata, proposal.first_entry - 1, proposal.sums)
        changed = self.metadata.with_changes(fragments=fragments, sums=sums)
        return publishing.put(self.metadata, self.revision, changed)

    def _begin(self) -> Publishing:
        self.publishing = self.publishing or Publishing()
        return self.publishing

    # What becomes of it.

    def is_outcome(self, event: TransactRefused) -> bool:
        """Whether it is that of the compare-and-set in flight."""
        return self.publishing is not None and self.publishing.is_outcome(event)

    def hear(self, event: Transacted | TransactUnknown | KeyRead) -> Publication:
        """Take the outcome of the compare-and-set in flight. PUBLISHED: the metadata is the new one, and `settle` gives
        the proposal. OVERTAKEN: by another client, which has the ledger now."""
        if self.publishing is None:
            return Publication(Settlement.OPEN, [])
        heard = self.publishing.hear(event)
        if heard.verdict is Settlement.PUBLISHED:
            assert heard.found is not None
            self.metadata, self.revision = heard.found, heard.revision
        elif heard.verdict is Settlement.OVERTAKEN:
            assert heard.found is not None
            return self._compare(heard.found, heard.revision)
        return heard

    def _compare(self, found: LedgerMetadata, revision: int) -> Publication:
        """Another client's version stands where ours was to be published (P4.3)."""
        assert self.publishing is not None and self.proposed is not None
        is_change = self.proposal is not None and found.state == LedgerState.OPEN
        if is_change and found.fragments[-1] == self.proposed.fragments[-1]:
            self.publishing.settle()  # Our own content, whatever repair did to earlier fragments since.
            self.metadata, self.revision = found, revision
            return Publication(Settlement.PUBLISHED, [], found, revision)
        if found.state != LedgerState.OPEN or found.fragments[-1] != self.metadata.fragments[-1]:
            return Publication(Settlement.OVERTAKEN, [], found, revision)
        # Still open (repair touched an earlier fragment): decide again on the new version.
        self.metadata, self.revision = found, revision
        self.publishing.drop()
        again = self.close() if self.proposal is None else self._put_change(self.proposal)
        return Publication(Settlement.OPEN, again)

    def settle(self) -> Proposal:
        """Take the ensemble change that is published."""
        assert self.proposal is not None
        proposal, self.proposal = self.proposal, None
        self.count += 1
        return proposal

    def drop(self) -> None:
        """Drop what is under way, which was not published and never will be, or decides nothing any more."""
        self.proposal = None
        if self.publishing is not None:
            self.publishing.drop()

    def note_unread(self) -> bool:
        """Metadata gave no answer. Returns whether it has to be read again, to settle what is under way."""
        if self.publishing is None:
            return False
        self.publishing.note_unread()
        if self.proposed is None:
            return False
        self.publishing.is_unsettled = True  # Whatever the read was for, only another read tells.
        return True

    def take_read(self, event: KeyRead) -> bool:
        """Whether this is the ledger's metadata, read while nothing is under way."""
        if self.publishing is None or Naming.is_mine(event):
            return False
        self.publishing.is_reading = False
        return True
