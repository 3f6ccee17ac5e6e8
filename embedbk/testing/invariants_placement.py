"""Checks of who may be named in an ensemble: bookies that are taken out of service, by the metadata (P10.6, P11.3), and
racks that a client asks for strictly (RP40)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import ABSENT, Put
from embedbk.codec.registration import (
    BOOKIES_PREFIX,
    PLACEMENTS_PREFIX,
    PlacementNote,
    decode_placement,
    decode_registration,
)
from embedbk.codec.tombstone import DELETED_PREFIX, decode_tombstone
from embedbk.config import Placement
from embedbk.core.metadata_words import Transact
from embedbk.core.quorum import write_set
from embedbk.core.writer import Writer
from embedbk.errors import StorageError
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["PlacementWatch", "StrictPlacements"]


class StrictPlacements:
    """RP40: who asks for racks or zones strictly names an ensemble only if every write set spans so many of them."""

    def __init__(self, sometimes: Sometimes) -> None:
        self.locations: dict[str, str] = {}  # "zone/rack" of bookies, as they registered.
        self._sometimes = sometimes

    def look(self, core: Any, effects: Sequence[Any]) -> None:
        """At each ensemble that this core names: of a ledger that it makes, or of its own in a change."""
        for effect in effects:
            if type(effect) is not Transact:
                continue
            placement = _placement_of(core)
            if placement is None or not placement.is_strict:
                return
            absent = {each.key for each in effect.when if each.revision == ABSENT}
            for put in effect.then:
                # Others than the ledger's own writer only close those that are there.
                is_named = type(core) is Writer or put.key in absent
                if isinstance(put, Put) and put.key.startswith(LEDGERS_PREFIX) and is_named:
                    self._check(placement, decode_ledger_metadata(put.value))

    def _check(self, placement: Placement, metadata: LedgerMetadata) -> None:
        if metadata.state != LedgerState.OPEN:
            return
        seats, quorum = metadata.fragments[-1].members, metadata.quorum
        wanted = min(placement.domains_min, quorum.write_quorum)
        for residue in range(quorum.ensemble_size):
            places = [self.locations.get(seats[seat].bookie_id, "") for seat in write_set(residue, quorum)]
            if placement.domain == "zone":
                places = [place.partition("/")[0] for place in places]
            if len(set(places)) < wanted:
                raise Violation(
                    "RP40",
                    f"ledger {metadata.ledger_id}: a write set stands in {places}, and {wanted} {placement.domain}s "
                    "were asked for strictly",
                )
        self._sometimes.note("strict placement kept")


def _placement_of(core: Any) -> Placement | None:
    """Of a core that names ensembles: of its own ledger, of one that it makes, or of the next one of a log."""
    if isinstance(core, Writer):
        return core.options.placement
    placement = getattr(getattr(core, "new", core), "placement", None)
    return placement if isinstance(placement, Placement) else None


class PlacementWatch:
    """closed: bookie id -> revision since when nothing may newly name it; shared with who judges ledgers."""

    def __init__(self, sometimes: Sometimes, closed: dict[str, int]) -> None:
        self._sometimes = sometimes
        self._closed = closed
        self._notes: dict[str, PlacementNote] = {}
        # Key of a ledger or tombstone -> the bookies that it names.
        self._named: dict[str, frozenset[str]] = {}
        self._registered: dict[str, bytes] = {}  # Bookie id -> the incarnation that is registered.

    @property
    def retired(self) -> dict[str, set[bytes]]:
        """Bookie id -> incarnations that operators declared gone."""
        return {name: {each.incarnation for each in note.retired} for name, note in self._notes.items()}

    def take_key(self, revision: int, key: str, new: bytes | None) -> None:
        if key.startswith((LEDGERS_PREFIX, DELETED_PREFIX)):
            self._take_ledger(key, new)
        elif key.startswith(PLACEMENTS_PREFIX):
            self._take_placement(revision, key.removeprefix(PLACEMENTS_PREFIX), new)
        elif key.startswith(BOOKIES_PREFIX):
            self._take_registration(key.removeprefix(BOOKIES_PREFIX), new)

    def _take_ledger(self, key: str, new: bytes | None) -> None:
        self._named.pop(key, None)
        if new is None:
            return
        try:
            if key.startswith(DELETED_PREFIX):
                metadata = decode_ledger_metadata(decode_tombstone(new).metadata)
            else:
                metadata = decode_ledger_metadata(new, ledger_of_key(key))
        except StorageError:
            return  # A stranger's.
        self._named[key] = frozenset(name for each in metadata.fragments for name, _ in each.ensemble)

    def _take_placement(self, revision: int, bookie_id: str, new: bytes | None) -> None:
        before = self._notes.get(bookie_id, PlacementNote())
        try:
            note = decode_placement(new or b"")
        except StorageError:
            # A later build's, or a stranger's: its bookie takes it for a drain, and what is retired stays retired.
            self._notes[bookie_id] = replace(before, is_draining=True)
            return
        self._notes[bookie_id] = note
        if note.takes_nothing_new:
            self._closed.setdefault(bookie_id, revision)
        if note.read_only is not None and before.read_only is None:
            self._sometimes.note("bookie put to read-only")
        if note.is_draining:
            if not before.is_draining:
                self._sometimes.note("bookie drained")
        elif before.is_draining and note.retired == before.retired:
            self._sometimes.note("drain cancelled")
        fresh = note.retired[len(before.retired) :]
        for each in fresh:
            if not each.was_empty and each.incarnation == self._registered.get(bookie_id):
                raise Violation("P11.5", f"{bookie_id} is given up at {revision}, and is registered")
            if not each.was_empty:
                self._sometimes.note("bookie given up")
        if any(each.was_empty for each in fresh):
            naming = [key for key, names in self._named.items() if bookie_id in names]
            if naming:
                raise Violation(
                    "P11.3", f"{bookie_id} is decommissioned at {revision}, and {naming[0]} names it"
                )

    def _take_registration(self, bookie_id: str, new: bytes | None) -> None:
        self._registered.pop(bookie_id, None)
        if new is None:
            return
        try:
            there = decode_registration(new, bookie_id)
        except StorageError:
            return  # A stranger's.
        self._registered[bookie_id] = there.incarnation
        note = self._notes.get(bookie_id, PlacementNote())
        if note.takes_nothing_new and there.is_writable:
            raise Violation("P11.3", f"{bookie_id} is drained or read-only, and lists itself as writable")
        if there.is_leaving and not note.is_draining:
            raise Violation("P11.3", f"{bookie_id} is not drained, and lists itself as leaving")
        if any(each.incarnation == there.incarnation for each in note.retired):
            raise Violation("P11.3", f"{bookie_id} is listed with directories that are retired")
