"""Steps of a quorum of one: each command is an entry of term 1, and a record of its own."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import decode_command
from embedbk.metadata.cutting import Head
from embedbk.metadata.raft_vocabulary import Entry, Persist
from embedbk.storage.metadata_store import MetadataStore
from embedbk.storage.snapshots import Snapshots

__all__ = ["append", "begin_snapshot", "replayed", "step_of"]

_replayed: WeakKeyDictionary[MetadataStore, Catalog] = WeakKeyDictionary()


def replayed(store: MetadataStore) -> Catalog:
    """Its catalog with all of the log applied as it was found, as all of it is committed."""
    if store not in _replayed:
        begun = store.beginning
        catalog, log = begun.catalog, begun.log
        for entry in log.between(log.snapshot_index + 1, log.last_index):
            if isinstance(entry.body, bytes):
                catalog.apply(decode_command(entry.body), entry.index, entry.term)
        _replayed[store] = catalog
    return _replayed[store]


def step_of(index: int, body: bytes | None) -> Persist:
    """Its sequence is its index."""
    return Persist(index, FIRST_TERM, None, index - 1, (Entry(index, FIRST_TERM, body),))


def append(store: MetadataStore, index: int, body: bytes | None) -> None:
    store.persist(step_of(index, body))


def begin_snapshot(store: MetadataStore, index: int, head: Head) -> Snapshots:
    counts = head.revision, head.records, head.sessions
    return store.begin_snapshot(index, FIRST_TERM, store.identity.first_configuration, 0, *counts)
