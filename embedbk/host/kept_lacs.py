"""Which LACs that idle writers told for good are in doubt (P6.2).

A writer tells its LAC once, and nobody answers it. So the client keeps, bookie by bookie, what it told lately: it is in
doubt when the link is lost, and at once where there is no link, or was none a moment ago, as the bookie may just start.
Decides what is kept and when it is in doubt. Leaves to `core/lac_retelling.py` how a bookie is told again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from embedbk.codec.lac_messages import ExplicitLacRequest
from embedbk.core.client_words import LacsInDoubt
from embedbk.core.lac_retelling import LACS_MAX, LacRetelling
from embedbk.core.machine import Event
from embedbk.host.operations import OneResult, Operation
from embedbk.ids import Member

__all__ = ["KEPT_NS", "STARTS_NS", "KeptLacs"]

SECOND = 1_000_000_000
# A link that dies so long after the last LAC lost none: its end is noticed within seconds (TRANSPORTS.md), and a bookie
# whose journal stands still for longer has failed (P7.8).
KEPT_NS = 30 * SECOND
# A bookie to which the link was lost may start for so long, and takes no LAC meanwhile.
STARTS_NS = 60 * SECOND


@dataclass(slots=True)
class _Kept:
    """What one bookie was told, and when a writer told it the last of that."""

    told_ns: int
    # Keys are ledger ids; the newest LAC stands last.
    lacs: dict[int, ExplicitLacRequest] = field(default_factory=dict)


class KeptLacs:
    """The kept LACs of one client."""

    def __init__(
        self, begin: Callable[[int, Operation], None], tell: Callable[[Operation, Event], None]
    ) -> None:
        """begin: starts an operation of the client; tell: gives it an event."""
        self._begin = begin
        self._tell = tell
        self._kept: dict[Member, _Kept] = {}
        self._lost_ns: dict[Member, int] = {}  # When the link to a bookie was lost the last time.
        self._retellings: dict[Member, Operation] = {}

    def note(self, now_ns: int, member: Member, lac: ExplicitLacRequest) -> None:
        """A writer tells this bookie its LAC for good."""
        kept = self._kept.get(member)
        if kept is None or now_ns - kept.told_ns > KEPT_NS:
            kept = self._kept[member] = _Kept(now_ns)
        kept.told_ns = now_ns
        kept.lacs.pop(lac.ledger_id, None)
        kept.lacs[lac.ledger_id] = lac
        if len(kept.lacs) > LACS_MAX:
            del kept.lacs[next(iter(kept.lacs))]

    def may_start(self, now_ns: int, member: Member) -> bool:
        """Whether this bookie may take no LAC just now although there is a link."""
        lost_ns = self._lost_ns.get(member)
        if lost_ns is None:
            return False
        if now_ns - lost_ns > STARTS_NS:
            del self._lost_ns[member]
            return False
        return True

    def lose(self, now_ns: int, member: Member) -> None:
        """The link to this bookie is lost, or none came up."""
        self._lost_ns[member] = now_ns
        self.doubt(now_ns, member)

    def doubt(self, now_ns: int, member: Member) -> None:
        """The bookie may lack what it was told lately."""
        kept = self._kept.pop(member, None)
        if kept is None or now_ns - kept.told_ns > KEPT_NS:
            return
        retelling = self._retellings.get(member)
        if retelling is None or retelling.is_over:
            self._retellings = {each: one for each, one in self._retellings.items() if not one.is_over}
            retelling = self._retellings[member] = OneResult(LacRetelling(member))
            self._begin(now_ns, retelling)
        self._tell(retelling, LacsInDoubt(now_ns, list(kept.lacs.values())))
