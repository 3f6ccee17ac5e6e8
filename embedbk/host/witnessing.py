"""A bookie as a witness in its place: asks which metadata it has, keeps what it met, notifies the parts that must know
(P10.5).

Decides nothing (core/witness.py). It asks when a session is opened, when a link comes up, periodically, and for the
collector, whose questions are judged here as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from embedbk.codec.metadata_messages import Refusal, Result, Tell, Told
from embedbk.codec.quorum_messages import MetTold
from embedbk.core.machine import Event
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.upkeep_words import AskMetadata, KeepMet, MetadataTold, MetKept
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.core.witness import Met, Witness, WitnessOptions
from embedbk.errors import StorageError
from embedbk.host.metadata_link import MetadataLink
from embedbk.ports.durable_bookie import DurableBookie

__all__ = ["Witnessing"]

logger = logging.getLogger(__name__)

USUAL_WITNESS = WitnessOptions()
_WAY_OUT = (
    "it drops nothing, takes no normal adds and denies no entry. Put the newer metadata back; or, if it is lost, start "
    "this one with --may-have-lost (a file MAY_HAVE_LOST in its directory), which begins a new generation; where it "
    "does not descend from the lineage that was met, name that with --gives-up (or in that file)"
)


class Witnessing:
    """on_judged(now_ns): the metadata of the present session has reported which it is. on_doubt(now_ns, is_older,
    unkept): whether that is older than what was met, or why it cannot be kept, changed. on_older(now_ns, is_older)."""

    def __init__(
        self,
        bookie_id: str,
        storage: DurableBookie,
        metadata: MetadataLink,
        on_judged: Callable[[int], None],
        on_doubt: Callable[[int, bool, str], None],
        on_older: Callable[[int, bool], None],
    ) -> None:
        self.core = Witness(storage.met, USUAL_WITNESS)
        self._bookie_id = bookie_id
        self._storage = storage
        self._metadata = metadata
        self._on_judged = on_judged
        self._on_doubt = on_doubt
        self._on_older = on_older
        self._refused = ""  # Why the last could not be written, as it was logged.

    @property
    def is_judged(self) -> bool:
        return self.core.is_judged

    @property
    def is_doubted(self) -> bool:
        return self.core.is_doubted

    def told(self) -> MetTold:
        """The answer to a recovery of metadata that asks which metadata this bookie met."""
        met = self.core.met
        if met is None:
            return MetTold("bookie", self._bookie_id)
        return MetTold("bookie", self._bookie_id, met.cluster_token, met.lineage, met.revision, met.ids_end)

    def begin(self, now_ns: int) -> None:
        """Ask which metadata it is: a session was opened."""
        self._step(Started(now_ns))

    def look(self, now_ns: int) -> None:
        """Ask again: a link came up, and the same session may be another metadata's by now."""
        if self.core.due_ns is not None:
            self.core.due_ns = now_ns

    def step(self, now_ns: int) -> None:
        due_ns = self.core.deadline_ns
        if due_ns is not None and now_ns >= due_ns and self._metadata.session:
            self._step(Tick(now_ns))

    def deadline_ns(self) -> int | None:
        return self.core.deadline_ns if self._metadata.session else None

    def ask(self, now_ns: int, tag: Tag, tell: Callable[[Event], None]) -> None:
        """For another part of the node: MetadataTold, judged, or MetadataFailed follows exactly once."""
        met = self.core.met

        def done(now_ns: int, result: Result) -> None:
            if not isinstance(result, Told):
                tell(MetadataFailed(now_ns, tag, _reason(result)))
                return
            self._step(MetadataTold(now_ns, met, result))
            if self.core.doubt or self.core.is_met(result):
                tell(MetadataTold(now_ns, tag, result, self.core.doubt))
            else:
                reason = self.core.unkept or "another start was met meanwhile"
                tell(MetadataFailed(now_ns, tag, f"it cannot be told which metadata this is: {reason}"))

        self._metadata.request(now_ns, _question(met), done)

    def _step(self, event: Event) -> None:
        was_judged, unkept, doubt = self.core.is_judged, self.core.unkept, self.core.doubt
        for effect in self.core.step(event):
            if isinstance(effect, AskMetadata):
                self._ask(event.now_ns, effect.tag)
                continue
            assert isinstance(effect, KeepMet)
            refused = self._keep(effect.met, effect.is_synced)
            if effect.is_synced:
                self.core.step(MetKept(event.now_ns, effect.met, refused))
        if bool(self.core.doubt) != bool(doubt):
            self._on_older(event.now_ns, bool(self.core.doubt))
        if self.core.doubt != doubt:
            self._say()
        if (bool(self.core.doubt), self.core.unkept) != (bool(doubt), unkept):
            self._on_doubt(event.now_ns, bool(self.core.doubt), self.core.unkept)
        if self.core.is_judged and not was_judged:
            self._on_judged(event.now_ns)

    def _ask(self, now_ns: int, met: Met | None) -> None:
        def done(now_ns: int, result: Result) -> None:
            if isinstance(result, Told):
                self._step(MetadataTold(now_ns, met, result))
            else:
                self._step(MetadataFailed(now_ns, met, _reason(result)))

        self._metadata.request(now_ns, _question(met), done)

    def _keep(self, met: Met, is_synced: bool) -> str:
        """Keep what was met; returns why that failed, empty where it did not."""
        said, self._refused = self._refused, ""
        try:
            self._storage.keep_met(met, is_synced=is_synced)
        except StorageError as refused:
            self._refused = str(refused)
            if said != self._refused:
                logger.error(
                    "bookie %s cannot keep which metadata it met: %s%s",
                    self._bookie_id,
                    refused,
                    "; until it can, it drops nothing and takes no normal adds" if is_synced else "",
                )
        return self._refused

    def _say(self) -> None:
        if self.core.doubt:
            logger.critical(
                "bookie %s has met newer metadata than this: %s; %s",
                self._bookie_id,
                self.core.doubt,
                _WAY_OUT,
            )
        else:
            logger.warning("bookie %s: metadata goes on from what it met", self._bookie_id)


def _question(met: Met | None) -> Tell:
    return Tell(met.count, met.lineage) if met is not None else Tell(0)


def _reason(result: Result) -> str:
    return f"{result.code}: {result.text}" if isinstance(result, Refusal) else f"answered with {result}"
