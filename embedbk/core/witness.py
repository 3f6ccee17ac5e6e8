"""What a bookie remembers of metadata, and whether the metadata that answers continues from there (P10.5, P7.7).

Decides: whether metadata is an older one than this bookie met, and what of the newest is kept. Leaves to others: what a
bookie does not do while that is so (core/collector.py drops nothing, core/space.py takes no normal adds), and the file.

    met:   start 7 (its random bytes), revision 120, ids below 40
    told:  start 9 now; of start 7: the same random bytes, and revision 131, ids below 44 when start 8 began ─▶ goes on
           start 5 now; or of start 7: other random bytes, or revision 110 when start 8 began ───────────────▶ older
           a higher generation, whatever its starts, of a lineage that descends: an operator's word ─────────▶ goes on
           a higher generation, of a lineage that does not descend from the one that was met ────────────────▶ older

So an older copy is told from the newest metadata for ever, also when it has more starts, changes and ids by now: its
chain has another link where this bookie remembers one, or left that link before it came as far as this bookie knows.
Nothing is learnt from metadata that is older: when the newer is put back, all is well. And nothing is done under a
newer start before that is durable here: else a crash forgets it, and an older copy is believed after all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec import Struct

from embedbk.codec.lineages import lineage_text
from embedbk.codec.metadata_messages import GENERATION_BITS, Told
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.upkeep_words import AskMetadata, KeepMet, MetadataTold, MetKept
from embedbk.core.vocabulary import Started, Tick

__all__ = ["Met", "Witness", "WitnessOptions", "doubt_of"]

_SECOND = 1_000_000_000


class Met(Struct, frozen=True, array_like=True):
    """The newest metadata that a bookie met: of which cluster, its newest start, and how far it was."""

    cluster_token: bytes
    count: int
    nonce: bytes
    revision: int
    ids_end: int
    lineage: bytes = b""  # Empty: the cluster's first.


@dataclass(frozen=True, slots=True)
class WitnessOptions:
    # Changes since the last look are forgotten by a crash, if no newer start is reported.
    look_ns: int = 5 * _SECOND
    again_ns: int = _SECOND // 2  # Pause after a question that got no answer.


def doubt_of(met: Met | None, told: Told) -> str:
    """Why this is older metadata than was met; empty: it continues from there. told.asked: of the start that was
    met."""
    if met is None:
        return ""
    if told.cluster_token != met.cluster_token:
        return f"it is of the cluster {told.cluster_token.hex()}, met was {met.cluster_token.hex()}"
    generation, known = told.revision >> GENERATION_BITS, met.revision >> GENERATION_BITS
    if generation < known:
        return (
            f"it is of generation {generation}, met was {known} (lineage {lineage_text(met.lineage, known)})"
        )
    if told.lineage != met.lineage and not told.descends:
        return (
            f"its lineage {lineage_text(told.lineage, generation)} does not descend from "
            f"{lineage_text(met.lineage, known)}, which was met"
        )
    if generation > known:
        return ""
    if told.count < met.count:
        return f"its newest start is number {told.count}, met was {met.count}"
    if told.asked is None:
        return f"it does not remember its start number {met.count}, which was met"
    if told.asked.nonce != met.nonce:
        return f"its start number {met.count} is {told.asked.nonce.hex()}, met was {met.nonce.hex()}"
    if told.asked.revision < met.revision or told.asked.ids_end < met.ids_end:
        return (
            f"its start number {met.count} came to revision {told.asked.revision} and id {told.asked.ids_end}, "
            f"met were {met.revision} and {met.ids_end}"
        )
    return ""


def _extent(met: Met) -> tuple[int, ...]:
    """How far a metadata is: rises with everything that it does."""
    return met.revision >> GENERATION_BITS, met.count, met.revision, met.ids_end


def _met_in(told: Told) -> Met:
    return Met(told.cluster_token, told.count, told.nonce, told.revision, told.ids_end, told.lineage)


def _link(met: Met | None) -> tuple[int, int, bytes] | None:
    """The start that was met."""
    return (met.revision >> GENERATION_BITS, met.count, met.nonce) if met is not None else None


class Witness(Machine):
    """doubt: why the metadata that answered last is an older one; empty: it is not, or none has answered. unkept: why
    it could not be kept which metadata that is; empty: it is kept.

    A question's tag is what was met when it was asked: an answer is judged by that, as a later one may overtake it. For
    an answer from before another start was met, nobody can tell whether it goes on from that: it is asked for again.
    """

    def __init__(self, met: Met | None, options: WitnessOptions) -> None:
        self.met = met
        self.options = options
        self.doubt = self.unkept = ""
        self.is_judged = False  # Since the session was opened that lives now.
        self.due_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    @property
    def is_doubted(self) -> bool:
        """Whether nothing irreversible may follow from the answers of this metadata."""
        return bool(self.doubt or self.unkept)

    def is_met(self, told: Told) -> bool:
        """Whether its newest start is the one that was met last."""
        return self.met is not None and _link(_met_in(told)) == _link(self.met)

    def _on_started(self, event: Started) -> list[Effect]:
        """A session was opened, perhaps with another metadata than before."""
        self.is_judged = False
        return self._ask(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        return self._ask(event.now_ns)

    def _ask(self, now_ns: int) -> list[Effect]:
        self.due_ns = now_ns + self.options.look_ns
        return [AskMetadata(self.met)]

    def _on_told(self, event: MetadataTold) -> list[Effect]:
        if _link(event.tag) != _link(self.met):
            self.due_ns = event.now_ns
            return []
        told, before = event.told, self.met
        doubt = doubt_of(event.tag, told)
        met = _met_in(told)
        is_newer = not doubt and (before is None or _extent(met) > _extent(before))
        if is_newer and _link(met) != _link(before):
            # It met newer metadata since: whether this continues from there was not asked.
            if event.tag != before:
                self.due_ns = event.now_ns
                return []
            return [KeepMet(met, True)]  # Judged when that is over.
        self.doubt, self.unkept, self.is_judged = doubt, "", True
        if not is_newer:
            return []
        self.met = met
        return [KeepMet(met, False)]

    def _on_kept(self, event: MetKept) -> list[Effect]:
        self.doubt, self.unkept, self.is_judged = "", event.refused, True
        if event.refused:  # It counts as met when it is reported again, and can be kept.
            self.due_ns = event.now_ns + self.options.again_ns
        else:
            self.met = event.met
        return []

    def _on_failed(self, event: MetadataFailed) -> list[Effect]:
        self.due_ns = event.now_ns + self.options.again_ns
        return []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        MetadataTold: _on_told,
        MetKept: _on_kept,
        MetadataFailed: _on_failed,
    }
