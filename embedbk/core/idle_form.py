"""The idle form of a writer: the little that has to be kept of one for which nothing is under way.

When very many ledgers are open nearly all are idle. The state of an idle writer is its metadata, its key and some
numbers: a fifth of the memory of the whole machine. Decides whether a writer can be shrunk to that, and restores a
writer in the same state. Leaves to others: when to try (host/client_node.py).

Every field of the machine is named here: given when it is made, a number that is kept, or as in a new one. In any other
state a writer cannot be shrunk, and a field that is not named here fails the import.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from embedbk.codec.ledger_metadata import Durability, LedgerMetadata
from embedbk.core.backlog import Backlog
from embedbk.core.change_publishing import ChangePublishing
from embedbk.core.client_words import BookieInfo
from embedbk.core.ensemble_keeping import EnsembleKeeping, MayChange
from embedbk.core.fragment_sums import SumsThrough, no_sums
from embedbk.core.frame_table import MakeTable
from embedbk.core.in_flight import InFlight
from embedbk.core.lac_publishing import LacPublishing
from embedbk.core.lateness import AnswerTimes
from embedbk.core.placement import Chance
from embedbk.core.publishing import Publishing
from embedbk.core.seat_candidates import SeatCandidates
from embedbk.core.slow_seats import SlowSeats
from embedbk.core.stall import Stall
from embedbk.core.writer import Writer, WriterState
from embedbk.core.writer_options import WriterOptions

__all__ = ["IdleForm", "shrink"]

_WRITER_GIVEN = {"changes", "ensemble", "in_flight", "lac_publishing", "options"}
_WRITER_KEPT = ("lap", "last_active_ns")
_WRITER_NEW: dict[str, Any] = {
    "__dict__": {},
    "error": None,
    "stall": Stall(),
    "state": WriterState.OPEN,
}
_CHANGES_GIVEN = {"bookies", "in_flight", "metadata", "publishing", "revision"}
_CHANGES_KEPT = ("count",)
_CHANGES_NEW: dict[str, Any] = {"end": None, "proposal": None}
_ENSEMBLE_GIVEN = {"candidates", "changes", "in_flight", "lac_publishing", "options", "slow_seats", "stall"}
_ENSEMBLE_NEW: dict[str, Any] = {"may_change": MayChange.ANY, "refusal": None, "retry_at": None}
_FLIGHT_GIVEN = {
    "_backlog",
    "behind_max",
    "ledger_key",
    "make_table",
    "nonce",
    "sums_through",
    "quorum",
    "_first_members",
    "is_deferred",
    "times",
}
_FLIGHT_KEPT = ("done", "done_length", "next_seating", "received", "received_length")
_FLIGHT_NEW: dict[str, Any] = {
    "_first_number": 1,
    "_frames": None,
    "_seatings": None,
    "has_busy": False,
    "is_lent": False,
    "is_recovery": False,
}
_CANDIDATES_GIVEN = {"chance", "in_flight", "options"}
_CANDIDATES_NEW: dict[str, Any] = {"failures": {}, "unlisted": {}}
_LACS_GIVEN = {"in_flight", "ledger_id", "options"}
_LACS_KEPT = ("hinted", "published")
_SLOW_GIVEN = {"in_flight", "options"}
_SLOW_KEPT = ("pressed_again_ns",)
_TIMES_KEPT = tuple(name for name in AnswerTimes.__slots__ if name != "terms")

for _kind, _named in (
    (Writer, {*_WRITER_GIVEN, *_WRITER_KEPT, *_WRITER_NEW}),
    (ChangePublishing, {*_CHANGES_GIVEN, *_CHANGES_KEPT, *_CHANGES_NEW}),
    (EnsembleKeeping, {*_ENSEMBLE_GIVEN, *_ENSEMBLE_NEW}),
    (SeatCandidates, {*_CANDIDATES_GIVEN, *_CANDIDATES_NEW}),
    (LacPublishing, {*_LACS_GIVEN, *_LACS_KEPT}),
    (SlowSeats, {*_SLOW_GIVEN, *_SLOW_KEPT}),
    (InFlight, {*_FLIGHT_GIVEN, *_FLIGHT_KEPT, *_FLIGHT_NEW}),
):
    assert _named == set(_kind.__slots__), f"{_kind.__name__}: {_named ^ set(_kind.__slots__)}"

_writer_new, _flight_new = attrgetter(*_WRITER_NEW), attrgetter(*_FLIGHT_NEW)
_ensemble_new = attrgetter(*_ENSEMBLE_NEW)
_changes_new, _candidates_new = attrgetter(*_CHANGES_NEW), attrgetter(*_CANDIDATES_NEW)
_AS_NEW = tuple(_WRITER_NEW.values()), tuple(_FLIGHT_NEW.values())
_ENSEMBLE_AS_NEW, _CHANGES_AS_NEW = tuple(_ENSEMBLE_NEW.values()), tuple(_CHANGES_NEW.values())
_CANDIDATES_AS_NEW = tuple(_CANDIDATES_NEW.values())
_writer_kept, _lacs_kept, _flight_kept, _times_kept = (
    attrgetter(*names) for names in (_WRITER_KEPT, _LACS_KEPT, _FLIGHT_KEPT, _TIMES_KEPT)
)
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class _Terms(msgspec.Struct, frozen=True, gc=False):
    """What nearly all writers of one client have in common."""

    bookies: tuple[BookieInfo, ...]
    chance: Any
    options: WriterOptions
    backlog: Backlog | None
    make_table: MakeTable
    has_sums: bool


_newest: _Terms | None = None


def _terms(*fields: Any) -> _Terms:
    """The terms of the writer that was shrunk last, where these are the same objects: one for very many writers."""
    global _newest
    terms = _newest
    if terms is None or any(a is not b for a, b in zip(_terms_fields(terms), fields, strict=True)):
        terms = _newest = _Terms(*fields)
    return terms


_terms_fields = attrgetter(*_Terms.__struct_fields__)


# gc=False: no cycle leads through it, and there may be very many for the garbage collector to walk.
class IdleForm(msgspec.Struct, frozen=True, gc=False):
    """The state kept of an idle writer."""

    metadata: LedgerMetadata
    ledger_key: bytes
    numbers: bytes
    terms: _Terms

    def restore(self, sums_through: SumsThrough) -> Writer:
        """A writer in the state of the one that was shrunk. sums_through: as that one had it, where its fragments have
        sums: a bound method of the packer, which is larger than what says that it is needed."""
        revision, nonce, cas_number, *kept = _decode(self.numbers)
        terms = self.terms
        chance: Chance = terms.chance
        writer = Writer(self.metadata, revision, self.ledger_key, nonce, terms.bookies, chance, terms.options)
        writer.in_flight.backlog, writer.in_flight.make_table = terms.backlog, terms.make_table
        if terms.has_sums:
            writer.in_flight.sums_through = sums_through
        writer.changes.publishing = Publishing(cas_number) if cas_number else None
        numbers = iter(kept)
        for name in _WRITER_KEPT:
            setattr(writer, name, next(numbers))
        for name in _CHANGES_KEPT:
            setattr(writer.changes, name, next(numbers))
        for name in _LACS_KEPT:
            setattr(writer.lac_publishing, name, next(numbers))
        for name in _SLOW_KEPT:
            setattr(writer.ensemble.slow_seats, name, next(numbers))
        for name in _FLIGHT_KEPT:
            setattr(writer.in_flight, name, next(numbers))
        if writer.in_flight.times is not None:
            for name in _TIMES_KEPT:
                setattr(writer.in_flight.times, name, next(numbers))
        return writer


def shrink(writer: Writer) -> IdleForm | None:
    """The idle form of the writer, which is not to be stepped any more; None: something is under way."""
    flight, changes, ensemble = writer.in_flight, writer.changes, writer.ensemble
    if flight._seatings is not None or (_writer_new(writer), _flight_new(flight)) != _AS_NEW:
        return None
    if _changes_new(changes) != _CHANGES_AS_NEW or _ensemble_new(ensemble) != _ENSEMBLE_AS_NEW:
        return None
    if _candidates_new(ensemble.candidates) != _CANDIDATES_AS_NEW:
        return None
    metadata, times, publishing = changes.metadata, flight.times, changes.publishing
    if publishing is not None and not publishing.is_idle:
        return None
    if flight._first_members != metadata.fragments[-1].members:
        return None
    assert flight.quorum == metadata.quorum
    assert flight.is_deferred == (metadata.durability == Durability.DEFERRED)
    assert (times is None) == (writer.options.late is None)
    kept = (
        *_writer_kept(writer),
        *(getattr(changes, name) for name in _CHANGES_KEPT),
        *_lacs_kept(writer.lac_publishing),
        *(getattr(ensemble.slow_seats, name) for name in _SLOW_KEPT),
        *_flight_kept(flight),
        *(() if times is None else _times_kept(times)),
    )
    cas_number = 0 if publishing is None else publishing.number
    numbers = _encode((changes.revision, flight.nonce, cas_number, *kept))
    terms = _terms(
        changes.bookies,
        ensemble.candidates.chance,
        writer.options,
        flight.backlog,
        flight.make_table,
        flight.sums_through is not no_sums,
    )
    return IdleForm(metadata, flight.ledger_key, numbers, terms)
