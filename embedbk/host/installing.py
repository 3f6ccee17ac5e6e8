"""A member's catalog is put to a snapshot of another member, a slice in each turn (RAFT.md, 5; METADATA.md, 2).

Decides nothing: the core asks for it, behind the fetching of the file; the store names it in the log and reads it.
Until it is whole here the member stands where it stood, and takes part in everything but applying and leading.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

from embedbk.member_ports import MemberStore
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.raft_vocabulary import InstallSnapshot
from embedbk.metadata.vocabulary import CatalogReplaced

__all__ = ["Installing"]

logger = logging.getLogger(__name__)


class Installing:
    """The installations of one member, one snapshot at a time."""

    def __init__(self, store: MemberStore) -> None:
        self._store = store
        self._index = 0
        self._slices: Generator[None, None, Catalog] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._slices is not None

    def begin(self, wanted: InstallSnapshot) -> None:
        """Begin an installation, before the step's `Persist`. Raises StorageError: the member cannot go on."""
        self._store.install(wanted.index, wanted.term, keeps_entries=wanted.keeps_entries)
        self._index, self._slices = wanted.index, self._store.load(wanted.index, wanted.term)

    def step(self, now_ns: int) -> CatalogReplaced | None:
        """Load the next slice; returns the event for the core when it was the last. Raises StorageError: the member
        cannot go on."""
        if self._slices is None:
            return None
        try:
            next(self._slices)
        except StopIteration as whole:
            self._slices = None
            logger.info("metadata member %s stands at snapshot %d", self._store.identity.name, self._index)
            return CatalogReplaced(now_ns, self._index, whole.value)
        return None

    def deadline_ns(self) -> int | None:
        """0: the next slice can be taken at once."""
        return 0 if self.is_under_way else None
