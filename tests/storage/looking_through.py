"""Driving the search for what lost indexes located to its end, as a host does it beside its requests (ST38)."""

from __future__ import annotations

from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.lost_indexes import LostIndexes

__all__ = ["look_through", "look_through_all"]


def look_through(store: NativeEntryStore, slice_bytes: int = 1 << 20) -> int:
    """The number of slices."""
    lost, slices = LostIndexes(store.handle, "memory", threaded=False), 0
    while lost.begin(slice_bytes):
        slices += 1
        while (piece := lost.finish(None)) is not None and piece.has_more:
            pass
    return slices


def look_through_all(storage: BookieStorage, slice_bytes: int = 1 << 20) -> int:
    """The same of a bookie."""
    slices = 0
    while storage.begin_rebuild(slice_bytes):
        slices += 1
        while (piece := storage.finish_rebuild()) is not None and piece.has_more:
            pass
    return slices
